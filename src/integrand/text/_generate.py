"""Language models: every generated token attributed to the prompt and to what was generated before it.

The text is given to the model as it came out (teacher forcing), so that nothing is generated again: row i of a batch has the
text up to output i and the score of that output. What comes later cannot matter, and is cut off block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..attribution import Certificate, ExampleCertificate
from ..errors import OptionError
from ..functions import ReadOut, Score
from ._ask import baseline_words
from ._embed import Fill, Known, look, slots_of
from ._encode import marker_ids
from ._matrix import Generated
from ._run import Runs, Values, fixed_of, integrate, picked
from ._write import Written, inputs_of, outputs

BLOCK = 16
"""Outputs that are explained side by side, on the text up to the last of them."""


@dataclass(frozen=True)
class _Next:
    """The score of the token that follows a position."""

    model: nn.Module
    score: Score

    def __call__(self, output: Any, rows: dict[str, Tensor]) -> Tensor:
        logits = output.logits
        return self.of(_at(logits, rows["position"]) if logits.shape[1] > 1 else logits[:, 0], rows)

    def of(self, logits: Tensor, rows: dict[str, Tensor]) -> Tensor:
        """One score per row of (N, vocabulary)."""
        own = picked(logits, rows["token"], self.score)
        return own - picked(logits, rows["other"], self.score) if "other" in rows else own


@dataclass(frozen=True)
class _Narrow(Runs):
    """A language model that computes the vocabulary's logits at one position per row only: they are most of its memory."""

    head: nn.Module | None = field(default=None, kw_only=True)

    def __call__(self, *, given: dict[str, Tensor], rows: dict[str, Tensor], **ids: Tensor) -> Any:
        length = ids.get("decoder_input_ids", ids["input_ids"]).shape[1]

        def before(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            hidden = args[0] if args else None
            if not isinstance(hidden, Tensor) or hidden.ndim != 3 or hidden.shape[1] != length:
                return None
            return (_at(hidden, rows["position"])[:, None], *args[1:])

        handle = None if self.head is None else self.head.register_forward_pre_hook(before)
        try:
            return super().__call__(given=given, rows=rows, **ids)
        finally:
            if handle is not None:
                handle.remove()


@dataclass(frozen=True)
class _Body(Runs):
    """A language model up to its head, which all outputs share; each then has the head to itself, at its position."""

    head: nn.Module = field(kw_only=True)

    def __call__(self, *, given: dict[str, Tensor], rows: dict[str, Tensor], **ids: Tensor) -> Tensor:
        found: list[Tensor] = []

        def before(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            found.append(args[0])
            return (args[0][:, :1], *args[1:])

        handle = self.head.register_forward_pre_hook(before)
        try:
            super().__call__(given=given, rows=rows, **ids)
        finally:
            handle.remove()
        return found[-1]

    def reads(self, following: _Next, rows: dict[str, Tensor]) -> ReadOut:
        """The scores, from what the head is given."""

        def read(hidden: Tensor, examples: Tensor) -> Tensor:
            mine = {name: value[examples.to(value.device)] for name, value in rows.items()}
            return following.of(self.head(_at(hidden, mine["position"])[:, None])[:, 0], mine)

        return ReadOut(read)


def _at(values: Tensor, position: Tensor) -> Tensor:
    """From (N, T, ...) to (N, ...), each row at its position."""
    return values[torch.arange(len(values), device=values.device), position.to(values.device)]


def _body(model: nn.Module, ids: dict[str, Tensor], given: dict[str, Tensor], logits: Tensor) -> _Body | None:
    """The model up to its head, where its logits are what the head gives, with nothing after it."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    if not isinstance(head, nn.Module):
        return None
    body = _Body(model, lambda output, _: output, fixed_of(model), head=head)
    try:
        with torch.no_grad():
            again = head(body(given=given, rows={}, **ids))
    except (IndexError, TypeError, AttributeError):  # the head is not called, or not with one tensor alone
        return None
    slack = 16 * torch.finfo(logits.dtype).eps * float(logits.abs().max())
    same = again.shape == logits.shape and bool(((again - logits).abs() <= slack).all())
    return body if same else None


def attribute(
    model: nn.Module,
    tokenizer: Any,
    written: Written,
    chosen: range,
    *,
    score: Score,
    against: str | int | None,
    baseline: Fill | Sequence[Fill],
    tol: float,
    options: dict[str, Any],
) -> Generated:
    """Attribute outputs to all that comes before them; see :func:`integrand.text.generated`.

    Args:
        model: the language model.
        tokenizer: its tokenizer.
        written: prompt and output.
        chosen: which outputs.
        score: the scale.
        against: a token to compare each output with.
        baseline: the baseline.
        tol: the tolerance.
        options: of the engine.
    """
    inputs, found_out = inputs_of(tokenizer, written, chosen[-1]), outputs(tokenizer, written)
    names = [piece for piece, _ in found_out]
    values = np.zeros((len(chosen), len(inputs.ids)))
    examples: list[ExampleCertificate] = []
    chances: list[float] = []
    other = None if against is None else _one_token(tokenizer, against)
    for first in range(0, len(chosen), BLOCK):
        block = chosen[first : first + BLOCK]
        found, certificate, sure = _block(model, tokenizer, written, block, names, score, other, baseline, tol, options)
        values[first : first + len(block), : found.shape[1]] = found
        examples += certificate.examples
        chances += sure
    meta = {"model": type(model).__name__, "baseline": baseline_words(baseline), "score": score}
    reach = tuple(written.source + i for i in chosen)
    shown, whole = tuple(names[i] for i in chosen), Certificate(tuple(examples), certificate.promises)
    spelled = tuple("" if i and found_out[i][1] == found_out[i - 1][1] else names[i] for i in chosen)
    rather = None if other is None else tokenizer.decode([other]).strip() or repr(tokenizer.decode([other]))
    return Generated(inputs, shown, spelled, values, reach, written.encoded.ids.shape[1], tuple(chances), whole, meta, rather)


def _block(
    model: nn.Module,
    tokenizer: Any,
    written: Written,
    block: range,
    names: Sequence[str],
    score: Score,
    other: int | None,
    baseline: Fill | Sequence[Fill],
    tol: float,
    options: dict[str, Any],
) -> tuple[Values, Certificate, list[float]]:
    """Some outputs side by side: values (outputs, inputs up to the last of them), certificates, probabilities."""
    ids = written.ids(block[-1] + 1)
    decoder = "decoder_input_ids" in ids
    given = dict(written.encoded.given) if decoder else {}
    calls, output = look(model, lambda: model(**ids, **given, **fixed_of(model)))
    slots = slots_of(calls, _known(tokenizer, written, ids))
    first = 0 if decoder else written.source - 1
    positions = torch.tensor([first + i for i in block])
    rows = {"position": positions, "token": torch.tensor([written.out[i] for i in block])}
    sure = picked(output.logits[0, positions.to(output.logits.device)].double(), rows["token"], "probability").tolist()
    if other is not None:
        rows["other"] = torch.full_like(positions, other)
    count, following = len(block), _Next(model, score)
    body = _body(model, ids, given, output.logits)
    narrow = _Narrow(model, following, fixed_of(model), head=model.get_output_embeddings())  # type: ignore[operator]
    versus = "" if other is None else f" against {tokenizer.decode([other])!r}"
    values, certificate = integrate(
        body or narrow,
        {name: value.expand(count, -1) for name, value in ids.items()},
        slots,
        given={name: value.expand(count, -1) for name, value in given.items()},
        rows={} if body else rows,
        fill=baseline,
        tokenizer=tokenizer,
        tol=tol,
        target=None if body is None else body.reads(following, rows),
        words=[f"{names[i]!r}{versus} ({score})" for i in block],
        options=options,
    )
    return values, certificate, sure


def _known(tokenizer: Any, written: Written, ids: dict[str, Tensor]) -> list[Known]:
    """The texts that the model is given, which of their tokens are kept, and where their columns begin."""
    marks = torch.tensor(sorted(marker_ids(tokenizer)), device=ids["input_ids"].device)
    own = written.encoded.kept
    if "decoder_input_ids" not in ids:
        whole = ids["input_ids"]
        return [(whole, torch.cat([own, torch.isin(whole[:, own.shape[1] :], marks)], 1), 0)]
    prefix = ids["decoder_input_ids"]
    kept = torch.isin(prefix, marks)
    kept[:, 0] = True
    return [(ids["input_ids"], own, 0), (prefix, kept, own.shape[1])]


def _one_token(tokenizer: Any, word: str | int) -> int:
    if isinstance(word, int):
        return word
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise OptionError(
            f"got against={word!r}, which is {len(ids)} tokens; expected one token (many tokenizers want the blank before a "
            "word: ' bad'), or its id."
        )
    return int(ids[0])
