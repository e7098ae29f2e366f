"""Baselines of texts: what each token is where the path starts, as an embedding.

A name or a token stands for every word alike. Another text stands for the words one by one: tokens that both texts share
stay as they are, so that all of the attribution falls on what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...errors import InputError, OptionError
from .encoding import Pieces, encode

BaselineName = Literal["zero", "pad", "mask", "eos", "mean"]
BASELINES = ("zero", "pad", "mask", "eos", "mean")

VOCABULARY_BLOCK = 4096
"""The number of vocabulary rows embedded at a time when their mean is computed."""


@dataclass(frozen=True)
class Looked:
    """One call of an embedding in a forward pass.

    Attributes:
        module: the embedding.
        ids: (N, T) what it was called with.
        value: (N, T, D) what it gave.
    """

    module: nn.Module
    ids: Tensor
    value: Tensor


@dataclass(frozen=True)
class Slot:
    """One call of an embedding, with the columns of the result it belongs to and the tokens kept in the baseline.

    Attributes:
        looked: the call.
        labels: (T,) the column of each place in the result; -1 for none.
        kept: (N, T), True where the baseline is the same as the input.
    """

    looked: Looked
    labels: Tensor
    kept: Tensor

    def rows(self, count: int) -> Slot:
        """The slot cut to the first ``count`` texts."""
        looked = Looked(self.looked.module, self.looked.ids[:count], self.looked.value[:count])
        return Slot(looked, self.labels, self.kept[:count])


@dataclass(frozen=True)
class AlignedText:
    """Another text, laid beside the user's token by token.

    Attributes:
        text: the other text.
        tokens: for each of the user's tokens the ids that stand for it, of which the mean embedding is taken; none where it
            stays as it is.
        pairs: words that differ, as (user's, other's); '' where one of them has none.
    """

    text: str
    tokens: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[str, str], ...]

    @staticmethod
    def of(pieces: Pieces, other: Pieces) -> AlignedText:
        """Lay a text beside another: one by one if both have as many tokens, else by what they have in common."""
        places, other_places = ([i for i, mark in enumerate(part.special) if not mark] for part in (pieces, other))
        ids, other_ids = [pieces.ids[i] for i in places], [other.ids[i] for i in other_places]
        if len(ids) == len(other_ids):
            blocks = [(i, i + 1, i, i + 1) for i in range(len(ids)) if ids[i] != other_ids[i]]
        else:
            matcher = SequenceMatcher(None, ids, other_ids, autojunk=False)
            blocks = [block for kind, *block in matcher.get_opcodes() if kind != "equal"]  # type: ignore[misc]
        if len(ids) != len(other_ids) and sum(end - start for start, end, _, _ in blocks) == len(ids):
            names = ", ".join(map(repr, BASELINES))
            raise OptionError(
                f"got baseline={other.text!r}, {len(other_ids)} tokens that share nothing with the {len(ids)} of "
                f"{pieces.text!r}; expected one of {names}, or a text with as many tokens or with words in common."
            )
        tokens: list[tuple[int, ...]] = [()] * len(pieces.ids)
        pairs = []
        for start, end, first, last in blocks:
            replaced, by = places[start:end], other_places[first:last]
            # Of blocks of other lengths each token gets the mean of the counterparts, or of the whole text if there are none.
            counterparts = tuple(other.ids[j] for j in by) or tuple(other_ids)
            for number, i in enumerate(replaced):
                tokens[i] = counterparts[number : number + 1] if len(replaced) == len(by) else counterparts
            pairs.append((" ".join(pieces.texts[i] for i in replaced), " ".join(other.texts[j] for j in by)))
        return AlignedText(other.text, tuple(tokens), tuple(pairs))

    def __str__(self) -> str:
        words = ", ".join(f"{word or 'nothing'!r} was {start or 'nothing'!r}" for word, start in self.pairs)
        return f"the text {self.text!r}" + (f" ({words})" if words else "")


Fill = str | int | Tensor | Callable[[Tensor, Tensor], Tensor] | tuple[AlignedText, ...]
"""A name, a token id, an embedding, a function of embeddings (N, T, D) and ids (N, T), or an aligned text for each row."""


def resolved(baseline: Any, model: nn.Module, tokenizer: Any, texts: Sequence[Pieces]) -> Any:
    """The baseline with other texts laid beside the user's texts; a list of baselines stays one."""
    if isinstance(baseline, list | tuple):
        return [resolved(part, model, tokenizer, texts) for part in baseline]
    if not isinstance(baseline, str) or baseline in BASELINES:
        return baseline
    [other] = encode(model, tokenizer, [baseline], device=torch.device("cpu")).pieces
    return tuple(AlignedText.of(pieces, other) for pieces in texts)


def baseline_of(slots: Sequence[Slot], fill: Fill, tokenizer: Any) -> Tensor | tuple[Tensor, ...]:
    """The embeddings of the baseline: markers and padding unchanged, every other token replaced.

    Args:
        slots: the calls of the embedding.
        fill: a name, a token id, a vector, a function, or aligned texts.
        tokenizer: knows the ids of padding, mask and end.
    """
    starts = []
    for slot in slots:
        value = slot.looked.value
        starts.append(torch.where(slot.kept[..., None], value, _replacement(slot, fill, tokenizer)))
    return starts[0] if len(starts) == 1 else tuple(starts)


def baseline_words(baseline: Fill | list[Fill]) -> str:
    """A description of a baseline in words, for a page."""
    if isinstance(baseline, str):
        known = {
            "zero": "zero embeddings",
            "pad": "padding tokens",
            "mask": "mask tokens",
            "eos": "end tokens",
            "mean": "the mean embedding",
        }
        return f"{known.get(baseline, baseline)}, markers kept"
    if isinstance(baseline, int):
        return f"token {baseline}, markers kept"
    if isinstance(baseline, Tensor):
        return "an embedding of the user's, markers kept"
    if isinstance(baseline, tuple):
        return str(baseline[0]) if len(baseline) == 1 else f"the text {baseline[0].text!r}"
    if callable(baseline):
        return "embeddings by a function of the user's, markers kept"
    return "; ".join(map(baseline_words, baseline))


def _replacement(slot: Slot, fill: Fill, tokenizer: Any) -> Tensor:
    """Embeddings that replace the tokens of a slot, (D,) or (N, T, D)."""
    call, value = slot.looked, slot.looked.value
    if isinstance(fill, tuple):
        return _aligned(slot, fill)
    if callable(fill) and not isinstance(fill, Tensor):
        start = fill(value.clone(), call.ids)
        if not isinstance(start, Tensor) or start.shape != value.shape:
            shape = tuple(start.shape) if isinstance(start, Tensor) else type(start).__name__
            raise InputError(f"the baseline's function gave {shape}; expected embeddings of shape {tuple(value.shape)}.")
        return start.detach().to(value)
    if isinstance(fill, Tensor):
        if fill.shape != value.shape[-1:]:
            expected = tuple(value.shape[-1:])
            raise InputError(f"got a baseline of shape {tuple(fill.shape)}; expected {expected}, one embedding for every word.")
        return fill.detach().to(value)
    if fill == "zero":
        return torch.zeros_like(value[0, 0])
    if fill == "mean":
        return _mean(call).to(value)
    return _embedded(call, torch.tensor([[_token(fill, tokenizer)]], device=call.ids.device))[0, 0]


def _aligned(slot: Slot, rows: Sequence[AlignedText]) -> Tensor:
    """Embeddings of the tokens that aligned texts put in the place of a slot's, (N, T, D)."""
    start = slot.looked.value.clone()
    for row in range(len(start)):
        tokens = rows[row % len(rows)].tokens
        for place, label in enumerate(slot.labels.tolist()):
            if 0 <= label < len(tokens) and tokens[label]:
                ids = torch.tensor([tokens[label]], device=slot.looked.ids.device)
                start[row, place] = _embedded(slot.looked, ids)[0].mean(0)
    return start


def _token(fill: str | int, tokenizer: Any) -> int:
    """The id of a token that stands for every word."""
    if isinstance(fill, int) and not isinstance(fill, bool):
        if not 0 <= fill < len(tokenizer):
            raise OptionError(f"got baseline={fill}; expected a token id from 0 to {len(tokenizer) - 1}.")
        return fill
    if fill not in ("pad", "mask", "eos"):
        names = ", ".join(map(repr, BASELINES))
        raise OptionError(
            f"got baseline={fill!r}; expected one of {names}, another text, a token id, an embedding, a function, or a list of "
            "these."
        )
    token = getattr(tokenizer, f"{fill}_token_id", None)
    if token is None:
        raise OptionError(
            f"got baseline={fill!r} and a tokenizer without a {fill} token; expected one that has it. Use baseline='zero' or "
            f"'mean', a token id, or set tokenizer.{fill}_token."
        )
    return int(token)


def _embedded(call: Looked, ids: Tensor) -> Tensor:
    """Embeddings of token ids as the module gives them."""
    with torch.no_grad():
        value: Tensor = call.module(ids)
    return value


def _mean(call: Looked) -> Tensor:
    """The mean embedding of the vocabulary, computed through the module because some modules scale what they look up."""
    weight: Any = getattr(call.module, "weight", None)
    size = getattr(call.module, "num_embeddings", None) or (0 if weight is None else weight.shape[0])
    if not size:
        raise OptionError(f"got baseline='mean' and a {type(call.module).__name__} that does not say how many words it has.")
    total = torch.zeros_like(call.value[0, 0], dtype=torch.float32)
    for start in range(0, size, VOCABULARY_BLOCK):
        ids = torch.arange(start, min(start + VOCABULARY_BLOCK, size), device=call.ids.device)[None]
        total = total + _embedded(call, ids)[0].float().sum(0)
    return total / size
