"""What is asked of a model about some texts, and how the answer is told: the same for classes, answers and similarity."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...api import integrated_gradients
from ...certificate import Certificate
from ...errors import ConvergenceWarning, ModelError
from ...functions.target import Score
from .embeddings import Fill, Slot, baseline_of, look, slots_of
from .encoding import Encoded, parameters_of
from .result import Explained, explained


@dataclass(frozen=True, eq=False)
class TextQuestion:
    """Texts, the model that reads them, and how to integrate.

    Attributes:
        model: the user's.
        tokenizer: its tokenizer.
        encoded: the texts.
        slots: where they are looked up.
        baseline: what words are replaced with, or several such, over which the result is averaged.
        tol: the relative error of the tokens' sums.
        options: further ones of the engine.
    """

    model: nn.Module
    tokenizer: Any
    encoded: Encoded
    slots: Sequence[Slot]
    baseline: Fill | Sequence[Fill]
    tol: float
    options: dict[str, Any]

    def explained(
        self,
        pick: Pick,
        *,
        rows: dict[str, Tensor],
        meta: dict[str, str],
        labels: Sequence[str] | None = None,
        words: Sequence[str] = (),
        chances: Sequence[float | None] | None = None,
        target: Any = None,
        score: Score = "logit",
    ) -> tuple[Explained, ...]:
        """Integrate the score of every text.

        Args:
            pick: from the model's output to what is scored.
            rows: what it needs to know of each text.
            meta: how it was made, in words, beyond the model and the baseline.
            labels: what was explained of each text; by default as the engine calls it.
            words: the same with its scale, for the certificates.
            chances: the probability of each, where there is one.
            target: for the engine, where ``pick`` gives logits.
            score: likewise.
        """
        values, found = integrate(
            TextRun(self.model, pick, fixed_of(self.model)),
            {"input_ids": self.encoded.ids},
            self.slots,
            given=self.encoded.given,
            rows=rows,
            fill=self.baseline,
            tokenizer=self.tokenizer,
            tol=self.tol,
            target=target,
            score=score,
            words=words,
            options=self.options,
        )
        about = {"model": type(self.model).__name__, "baseline": baseline_words(self.baseline)} | meta
        names = [one.target for one in found] if labels is None else labels
        sure = [None] * len(values) if chances is None else chances
        each = zip(self.encoded.pieces, values, found, names, sure, strict=True)
        return tuple(explained(p, v, c, label=name, probability=chance, meta=about) for p, v, c, name, chance in each)


def baseline_words(baseline: Fill | Sequence[Fill]) -> str:
    """A baseline in words, for a page."""
    if isinstance(baseline, str):
        known = {"zero": "zero embeddings", "pad": "padding tokens", "mask": "mask tokens", "mean": "the mean embedding"}
        return f"{known.get(baseline, baseline)}, markers kept"
    if isinstance(baseline, int):
        return f"token {baseline}, markers kept"
    if isinstance(baseline, Tensor):
        return "an embedding of the user's, markers kept"
    return "; ".join(baseline_words(one) for one in baseline)


Values = NDArray[np.float64]
Pick = Callable[[Any, dict[str, Tensor]], Any]


@dataclass(frozen=True)
class TextRun:
    """A model as the engine calls it: token ids in, what is scored out.

    Attributes:
        model: the user's model.
        pick: from the model's output, and what belongs to each row, to scores or logits.
        fixed: keywords that are the same for all rows.
    """

    model: nn.Module
    pick: Pick
    fixed: Mapping[str, Any]

    def __call__(self, *, given: dict[str, Tensor], rows: dict[str, Tensor], **ids: Tensor) -> Any:
        """Run the model.

        Args:
            given: masks and token types, a row per text.
            rows: what :attr:`pick` needs to know of each row.
            **ids: ``input_ids``, and ``decoder_input_ids`` where there are some.
        """
        return self.pick(self.model(**ids, **given, **self.fixed), rows)


def fixed_of(model: nn.Module) -> dict[str, Any]:
    """Keywords that make the model return what we read, and keep nothing from call to call."""
    wanted = {"return_dict": True, "use_cache": False}
    named = parameters_of(model)
    return {name: value for name, value in wanted.items() if name in named}


def first_look(model: nn.Module, encoded: Encoded) -> tuple[tuple[Slot, ...], Any]:
    """Run the model on texts as they are: where it looks words up, and its output.

    A single text runs twice side by side, since the engine will run many rows; the output then has two.
    """
    count = len(encoded.pieces)
    twice = torch.arange(max(count, 2), device=encoded.ids.device) % count
    given = {name: value[twice] for name, value in encoded.given.items()}
    try:
        calls, output = look(model, lambda: model(input_ids=encoded.ids[twice], **given, **fixed_of(model)))
    except ValueError as error:
        if "padding token" not in str(error):
            raise
        raise ModelError(
            f"the model takes no batches: {error} Expected one that knows its padding: set model.config.pad_token_id = "
            "tokenizer.pad_token_id."
        ) from error
    slots = slots_of(calls, [(encoded.ids[twice], encoded.kept[twice], 0)])
    return tuple(slot.rows(count) for slot in slots), output


def rows_of(output: Any, count: int) -> dict[str, Tensor]:
    """The tensors of a model's output by name, of the first rows only."""
    items = output.items() if hasattr(output, "items") else enumerate(output if isinstance(output, tuple) else (output,))
    return {str(name): value[:count] for name, value in items if isinstance(value, Tensor) and value.ndim}


def integrate(
    runs: TextRun,
    ids: dict[str, Tensor],
    slots: Sequence[Slot],
    *,
    given: dict[str, Tensor],
    rows: dict[str, Tensor],
    fill: Fill | Sequence[Fill],
    tokenizer: Any,
    tol: float,
    target: Any = None,
    score: Score = "logit",
    words: Sequence[str] = (),
    options: Mapping[str, Any],
) -> tuple[Values, Certificate]:
    """Attributions of every token, added up over its embedding.

    Args:
        runs: the model.
        ids: (N, T) token ids by keyword.
        slots: where they are looked up.
        given: masks and the like.
        rows: what the score needs to know of each row.
        fill: the baseline, or several to average.
        tokenizer: knows padding and mask.
        tol: the relative error of the tokens' sums to integrate to.
        target: for the engine, where the model gives logits.
        score: likewise.
        words: what is explained in each row, for the certificate.
        options: further ones of :func:`integrand.integrated_gradients`.

    Returns:
        (N, columns), and the certificate.
    """
    fills: list[Any] = list(fill) if isinstance(fill, list | tuple) else [fill]
    starts = [baseline_of(slots, one, tokenizer) for one in fills]
    labels = tuple(slot.labels[:, None] for slot in slots)
    modules = {id(slot.looked.module): slot.looked.module for slot in slots}
    result = integrated_gradients(
        runs,
        ids,
        starts[0] if len(starts) == 1 else starts,
        target=target,
        score=score,
        tol=tol,
        layer=list(modules.values()),
        kwargs={"given": given, "rows": rows},
        batched=True,
        groups=labels[0] if len(labels) == 1 else labels,
        **options,
    )
    assert isinstance(result.values, Tensor)
    certificate = result.certificate
    if words:
        named = tuple(replace(one, target=word) for one, word in zip(certificate, words, strict=True))
        certificate = replace(certificate, examples=named)
    certificate = _advised(certificate, fills)
    return result.values.detach().double().cpu().numpy(), certificate


STEEP = "zero embeddings are where norms are steepest: baseline='mean' or a token id may converge"
FAR = 0.1
"""An error that is too large for rounding alone."""


def _advised(certificate: Certificate, fills: Sequence[Fill]) -> Certificate:
    """Point to another baseline where the path from zero embeddings could not be integrated.

    A norm divides by the size of what it gets: next to zero (RMS norms of Llama and its kin above all) it turns within a tiny
    part of the path, where neither more steps nor more digits help much.
    """
    zero = any(bool((one == 0).all()) if isinstance(one, Tensor) else one == "zero" for one in fills)
    poor = [not one.converged and one.error > FAR for one in certificate]  # less is what half precision does anywhere
    if not zero or not any(poor):
        return certificate
    warnings.warn(f"{sum(poor)} of {len(poor)} scores not within the tolerance; {STEEP}.", ConvergenceWarning, stacklevel=4)
    each = zip(certificate, poor, strict=True)
    return replace(certificate, examples=tuple(replace(one, note=STEEP) if bad else one for one, bad in each))


def picked(logits: Tensor, index: Tensor, score: Score) -> Tensor:
    """One score per row of (N, classes), at the class of each row."""
    if score != "logit":
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = wide.softmax(-1) if score == "probability" else wide.log_softmax(-1)
    return logits.gather(-1, index.to(logits.device)[:, None])[:, 0]
