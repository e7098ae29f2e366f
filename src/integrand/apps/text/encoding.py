"""Texts as the model reads them: checks of model, tokenizer and texts, then tokens with padding, masks and spans."""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, IntegrandWarning, ModelError, OptionError, TrainModeError, warn
from ...words import shown
from .quantised import refuse_without_gradient

ENDLESS = 10**9
"""Tokenizers without a length limit report a number larger than this."""

MOST_NAMED = 5
"""The most unknown words that a note names."""

Span = tuple[int, int]

SEPARATOR = "\n"
"""The separator between the two texts of a pair where both are shown as one."""


def listed(text: Any, name: str = "text") -> list[Any]:
    """One text or several, as a list."""
    if isinstance(text, str):
        return [text]
    if text is None or isinstance(text, bytes) or not hasattr(text, "__iter__"):
        raise InputError(f"got a {type(text).__name__} as {name}; expected a string, or a list of them.")
    return list(text)


def check_texts(texts: Sequence[str], pairs: Sequence[str] | None) -> None:
    """Refuse inputs that are not strings, are empty, or have no context where one is expected."""
    if not texts:
        raise InputError("got no texts; expected at least one.")
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"got {len(texts)} texts and {len(pairs)} contexts; expected one context for each text.")
    for name, many in (("text", texts), ("context", pairs or ())):
        for i, text in enumerate(many):
            if not isinstance(text, str):
                raise InputError(f"{name} {i} is a {type(text).__name__}; expected a string. Decode ids with tokenizer.decode.")
            if not text.strip():
                raise InputError(f"{name} {i} is empty ({text!r}); expected at least one word to explain.")


def check_length(model: nn.Module, tokenizer: Any, count: int, what: str) -> None:
    """Refuse texts with more tokens than the model has positions."""
    limit = longest(model, tokenizer)
    if limit is not None and count > limit:
        raise InputError(
            f"{what} has {count} tokens; expected at most {limit}, the positions that the model has. Shorten it, or split it "
            "and explain the parts."
        )


def longest(model: nn.Module, tokenizer: Any) -> int | None:
    """The largest number of tokens that the model takes; None where neither model nor tokenizer says."""
    config: Any = getattr(model, "config", None)
    limits = [int(limit) for limit in (getattr(tokenizer, "model_max_length", None),) if limit and limit < ENDLESS]
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        # RoBERTa and its kin count positions from behind that of the padding.
        tables = [
            m for name, m in model.named_modules() if name.endswith("position_embeddings") and isinstance(m, nn.Embedding)
        ]
        skipped = [table.padding_idx + 1 for table in tables if table.padding_idx is not None]
        limits.append(positions - max(skipped, default=0))
    return min(limits, default=None)


def parameters_of(model: nn.Module) -> set[str]:
    """The names of the parameters of the model's ``forward``."""
    return set(inspect.signature(model.forward).parameters)


def check_model(model: Any) -> None:
    """Refuse objects that are not models with an input embedding, models in train mode, and layers without a gradient."""
    if not isinstance(model, nn.Module) or not callable(getattr(model, "get_input_embeddings", None)):
        raise ModelError(
            f"got a {type(model).__name__} as model; expected a Hugging Face model (a module with get_input_embeddings()). "
            "Explain other models with integrand.integrated_gradients(model, ids, layer=...)."
        )
    if model.training:
        raise TrainModeError("the model is in train mode; expected eval mode, without dropout: call model.eval() first.")
    refuse_without_gradient(model)


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse objects that are not Hugging Face tokenizers."""
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        what = repr(tokenizer) if isinstance(tokenizer, str) else f"a {type(tokenizer).__name__}"
        raise InputError(f"got {what} as tokenizer; expected a Hugging Face one: AutoTokenizer.from_pretrained(name).")


def check_options(options: dict[str, Any]) -> None:
    """Refuse keyword options that are not options of the engine."""
    known = ("steps", "rule", "max_evaluations", "memory", "chunk", "precision", "progress")
    for name in options:
        if name not in known:
            raise OptionError(f"got {name}=; expected one of the named options, or {', '.join(known)}.")


@dataclass(frozen=True)
class Pieces:
    """The tokens of one text (or pair of texts), without padding.

    Attributes:
        texts: what each token stands for in the text; its name for markers.
        spans: (start, end) of each in the text, (i, i) for markers; None where the tokenizer does not tell.
        text: the text, a pair joined by a line break.
        special: which tokens are markers: kept in the baseline.
        parts: 0 for tokens of the first text, 1 for the second, -1 for markers.
        columns: where each token stands in the batch.
        ids: the token ids.
        notes: what a reader must not miss: words that the tokenizer does not know.
    """

    texts: tuple[str, ...]
    spans: tuple[Span, ...] | None
    text: str
    special: tuple[bool, ...]
    parts: tuple[int, ...]
    columns: tuple[int, ...]
    ids: tuple[int, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Encoded:
    """A padded batch of texts.

    Attributes:
        ids: (N, T) token ids.
        given: what else goes to the model: masks, token types; (N, T) each.
        kept: (N, T), True for markers and padding, which are the same in the baseline.
        pieces: the tokens of each text.
    """

    ids: Tensor
    given: dict[str, Tensor]
    kept: Tensor
    pieces: tuple[Pieces, ...]

    @property
    def mask(self) -> Tensor:
        """The mask of tokens that are not padding, (N, T) bool."""
        mask = self.given.get("attention_mask")
        if mask is not None:
            return mask.bool()
        shown = torch.zeros_like(self.ids, dtype=torch.bool)
        for row, pieces in enumerate(self.pieces):
            shown[row, list(pieces.columns)] = True
        return shown


def encode(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    device: torch.device,
) -> Encoded:
    """Tokenize and pad texts, with markers, masks and spans.

    Args:
        model: says which further inputs it takes, and how many tokens.
        tokenizer: a Hugging Face tokenizer.
        texts: the texts, or the first of each pair.
        pairs: the second ones.
        device: where the ids go.
    """
    check_tokenizer(tokenizer)
    check_texts(texts, pairs)
    if len(texts) > 1 and getattr(tokenizer, "pad_token_id", None) is None:
        raise InputError(
            f"got {len(texts)} texts and a tokenizer without a padding token; expected one, to make texts equally long. Set "
            "tokenizer.pad_token = tokenizer.eos_token (and model.config.pad_token_id to its id), or explain one at a time."
        )
    fast = bool(getattr(tokenizer, "is_fast", False))
    named = parameters_of(model)
    with _padded(tokenizer, _side(model, tokenizer)):
        found = tokenizer(
            list(texts),
            None if pairs is None else list(pairs),
            padding=len(texts) > 1,
            return_tensors="pt",
            return_attention_mask=True,
            return_special_tokens_mask=True,
            **({"return_offsets_mapping": True} if fast else {}),
        )
    ids, mask = found["input_ids"].long(), found["attention_mask"].bool()
    marked = marker_ids(tokenizer)
    special = found["special_tokens_mask"].bool() | torch.isin(ids, torch.tensor(sorted(marked), dtype=ids.dtype))
    special &= mask
    wholes = [text if pairs is None else text + SEPARATOR + pairs[i] for i, text in enumerate(texts)]
    pieces = tuple(_pieces(tokenizer, found, i, wholes[i], len(texts[i]) + len(SEPARATOR), special) for i in range(len(texts)))
    for i, one in enumerate(pieces):
        check_length(model, tokenizer, len(one.ids), f"text {i}" if len(texts) > 1 else "the text")
        if all(one.special):
            raise InputError(f"text {i} ({wholes[i]!r}) has no tokens but markers; expected at least one word to explain.")
    _warn_unknown(tokenizer, pieces)
    pieces = tuple(replace(one, notes=_unknown_notes(tokenizer, one)) for one in pieces)
    extra = ("attention_mask", "token_type_ids")
    given = {name: found[name].to(device) for name in extra if name in found and name in named}
    return Encoded(ids.to(device), given, (special | ~mask).to(device), pieces)


def trimmed(text: str, start: int, end: int) -> Span:
    """A span without the spaces at its ends, which some tokenizers count as part of the word.

    >>> trimmed("a film", 1, 6), trimmed("a  b", 1, 3)
    ((2, 6), (1, 3))
    """
    inside = text[start:end]
    if not inside.strip():
        return start, end
    return end - len(inside.lstrip()), start + len(inside.rstrip())


def marker_ids(tokenizer: Any) -> set[int]:
    """The ids of tokens that only structure a text: begin, end, separators, padding; not unknown words and masks."""
    names = ("bos", "eos", "cls", "sep", "pad")
    certain = {getattr(tokenizer, f"{name}_token_id", None) for name in names}
    words = {getattr(tokenizer, f"{name}_token_id", None) for name in ("unk", "mask")} - certain
    return {int(i) for i in {*tokenizer.all_special_ids, *certain} - words if i is not None}


def decoded(tokenizer: Any, before: Sequence[int], ids: Sequence[int]) -> list[tuple[str, int]]:
    """The text that each token adds after the tokens before it, spaces included.

    Returns:
        For each the text, and a number that is the same for ids that are parts of one sign (an emoji in several bytes).
    """

    def text(many: Sequence[int]) -> str:
        return str(tokenizer.decode(list(many), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    whole = text([*before, *ids])
    ends = [len(text(before)) if before else 0]
    for i in range(len(ids)):
        sure = text([*before, *ids[: i + 1]]).rstrip("\ufffd")  # half a sign is not there yet
        ends.append(max(ends[-1], len(sure) if whole.startswith(sure) else 0))
    ends[-1] = len(whole)
    out = []
    for i in range(len(ids)):
        done = next((k for k in range(i + 1, len(ends)) if ends[k] > ends[i]), i + 1)
        out.append((whole[ends[i] : ends[done]], done))
    return out


def _warn_unknown(tokenizer: Any, pieces: Sequence[Pieces]) -> None:
    """Warn where the tokenizer does not know most words, which the model then all reads as the same token."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    for i, one in enumerate(pieces):
        words = [  # punctuation is missing in many vocabularies
            token == unknown
            for token, said, mark in zip(one.ids, one.texts, one.special, strict=True)
            if not mark and any(sign.isalnum() for sign in said)
        ]
        if 2 * sum(words) > len(words):
            warn(
                f"text {i}: the tokenizer does not know {sum(words)} of {len(words)} words, which the model reads as "
                f"{tokenizer.unk_token}; see that it is the model's own, and made for this language.",
                IntegrandWarning,
            )


def _unknown_notes(tokenizer: Any, one: Pieces) -> tuple[str, ...]:
    """A note that names the words, emoji and the like that the tokenizer does not know; punctuation does not count."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    told = [
        (token, said)
        for token, said, mark in zip(one.ids, one.texts, one.special, strict=True)
        if not mark and any(unicodedata.category(sign)[0] in "LN" or unicodedata.category(sign) == "So" for sign in said)
    ]
    lost = [said for token, said in told if token == unknown]
    if unknown is None or not lost:
        return ()
    if len(lost) == len(told):
        return (f"The model knows none of these words: it reads {tokenizer.unk_token} for each, and its answer means nothing.",)
    named = [f"“{shown(word)[:40]}”" for word in dict.fromkeys(lost)]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return (f"The model does not know {', '.join(named[:MOST_NAMED])}{more}: it reads {tokenizer.unk_token} there.",)


def _pieces(tokenizer: Any, found: Any, row: int, whole: str, second: int, special: Tensor) -> Pieces:
    columns = found["attention_mask"][row].nonzero().flatten().tolist()
    ids = [int(found["input_ids"][row, c]) for c in columns]
    names = [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    marks = [bool(special[row, c]) for c in columns]
    parts = _parts(found, row, columns, marks)
    if "offset_mapping" not in found:
        return Pieces(tuple(names), None, whole, tuple(marks), tuple(parts), tuple(columns), tuple(ids))
    spans: list[Span] = []
    for column, part, mark in zip(columns, parts, marks, strict=True):
        a, b = (int(end) + (second if part == 1 else 0) for end in found["offset_mapping"][row, column])
        place = spans[-1][1] if spans else 0
        spans.append((place, place) if mark else trimmed(whole, a, b))
    texts = [whole[a:b] or name for (a, b), name in zip(spans, names, strict=True)]
    return Pieces(tuple(texts), tuple(spans), whole, tuple(marks), tuple(parts), tuple(columns), tuple(ids))


def _parts(found: Any, row: int, columns: Sequence[int], marks: Sequence[bool]) -> list[int]:
    """The text (0 or 1) that each token belongs to, -1 for markers; by token type where the tokenizer does not say."""
    belongs: Sequence[int | None]
    try:
        belongs = found.sequence_ids(row)
    except (AttributeError, ValueError):
        types = found.get("token_type_ids")
        belongs = [0] * (max(columns) + 1) if types is None else types[row].tolist()
    return [-1 if mark else belongs[c] or 0 for c, mark in zip(columns, marks, strict=True)]


def _side(model: nn.Module, tokenizer: Any) -> str:
    """The side to pad on: right, since positions count from the left, unless the model reads the last position (XLNet)."""
    return str(tokenizer.padding_side) if getattr(getattr(model, "config", None), "summary_type", "") == "last" else "right"


@contextmanager
def _padded(tokenizer: Any, side: str) -> Iterator[None]:
    """Set the tokenizer's padding side for the duration of a block."""
    before = tokenizer.padding_side
    try:
        tokenizer.padding_side = side
        yield
    finally:
        tokenizer.padding_side = before
