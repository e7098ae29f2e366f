"""What is asked of a model about some texts, and how the answer is told: the same for classes, answers and similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..functions import Score
from ._embed import Fill, Slot
from ._encode import Encoded
from ._result import Explained, explained
from ._run import Pick, Runs, fixed_of, integrate


@dataclass(frozen=True, eq=False)
class Ask:
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
            Runs(self.model, pick, fixed_of(self.model)),
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
