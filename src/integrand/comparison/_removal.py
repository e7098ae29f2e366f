"""Scores of inputs with some features removed, which means set to the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._trees import Leaves, Tensors, flat, flatten, unflat
from ..attribution import Attribution, group_sums
from ..baselines import Baseline
from ..errors import InputError, NonFiniteError, OptionError
from ..execute._checks import check_rows
from ..functions import Score, Target
from ..methods import Problem
from ..methods._base import settled
from ._agree import check_question
from ._ranks import Floats
from ._settings import Settings

CAUTION = (
    "What this measures is the model as much as the method: with features taken out, the network is shown inputs unlike any "
    "it was trained on, and a score that moves oddly there may be the model's doing and not the attribution's. Removed means "
    "set to the baseline, which is itself a choice; another baseline gives another curve."
)
"""Said wherever a number of this kind is shown."""


@dataclass(frozen=True)
class Removal:
    """A settled question, with its features sorted into what is removed together.

    Attributes:
        problem: the model, the input and the baselines.
        place: for each feature the unit that it is removed with, (features,); -1 for one that always stays.
        labels: the user's label of each unit, (units,).
        drawn: whether a function draws the baselines.
    """

    problem: Problem
    place: Tensor
    labels: Tensor
    drawn: bool = False

    @property
    def units(self) -> int:
        """How many features, or groups of them, can be removed."""
        return len(self.labels)

    def scores(self, examples: NDArray[np.int64], removed: Callable[[NDArray[np.int64]], NDArray[np.bool_]]) -> Floats:
        """Scores of inputs with units removed, averaged over the baselines, (rows,).

        Args:
            examples: the example that each row belongs to, (rows,).
            removed: from numbers of rows, (n,), to which units they lack, (n, units). Asked chunk by chunk.
        """
        out = np.zeros(len(examples))
        inputs = self.problem.function.inputs
        shapes = [leaf.shape[1:] for leaf in inputs]
        for start in self.problem.starts:

            def run(index: Tensor, start: Leaves = start) -> Floats:
                number = index.cpu().numpy()
                rows = torch.as_tensor(examples[number], device=index.device)
                lacks = torch.as_tensor(removed(number), device=index.device)
                lacks = torch.cat([lacks, torch.zeros_like(lacks[:, :1])], 1)[:, self.place]  # the last column always stays
                gone = unflat(lacks, shapes)
                points = tuple(
                    torch.where(mask, base.index_select(0, rows), leaf.index_select(0, rows))
                    for mask, base, leaf in zip(gone, start, inputs, strict=True)
                )
                with torch.no_grad():
                    return self.problem.function.scores(points, rows).double().cpu().numpy()

            for index, scores in self.problem.chunked(len(examples), run):
                number = index.cpu().numpy()
                self._check(scores, number, examples, removed)
                out[number] += scores / len(self.problem.starts)
        return out

    def _check(
        self,
        scores: Floats,
        number: NDArray[np.int64],
        examples: NDArray[np.int64],
        removed: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
    ) -> None:
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            row = number[bad[:1]]
            raise NonFiniteError(
                f"the score is {scores[bad[0]]} for example {examples[row[0]]} with {int(removed(row).sum())} of {self.units} "
                "features removed; expected a finite number. Choose a baseline within the model's domain."
            )

    def check_rows(self, at_input: Floats) -> None:
        """Compare the scores of the whole inputs, found among other rows, with those of the user's own batch."""
        check_rows(self.problem.evaluator(), at_input, np.arange(self.problem.examples))

    def noise(self, at_input: Floats) -> Floats:
        """By how much scores differ for no reason but rounding, (examples,), for telling that from a change."""
        return 4 * self.problem.evaluator().epsilon * np.maximum(np.abs(at_input), self.problem.function.scale)

    @property
    def same(self) -> NDArray[np.bool_]:
        """Whether an example is its own baseline, (examples,)."""
        inputs = flat(self.problem.function.inputs)
        every = [(flat(start) == inputs).all(1) for start in self.problem.starts]
        return np.asarray(torch.stack(every).all(0).cpu().numpy())

    def values_of(self, attribution: Attribution | Tensors) -> Floats:
        """The attribution of every unit, (examples, units); one that answers another question is refused."""
        function, labels = self.problem.function, self.problem.labels
        values: Tensors = attribution.values if isinstance(attribution, Attribution) else attribution
        batched = attribution.batched if isinstance(attribution, Attribution) else function.batched
        tree, leaves = flatten(values, what="attribution")
        rows = tuple((leaf if batched else leaf[None]).detach().to(self.place.device).double() for leaf in leaves)
        whole = tree == function.tree and [leaf.shape for leaf in rows] == [leaf.shape for leaf in function.inputs]
        count = None if labels is None else 1 + max(int(label.max()) for label in labels)
        grouped = len(rows) == 1 and rows[0].shape == (self.problem.examples, count)
        if not whole and not grouped:
            raise InputError(self._wrong_shape(leaves, count))
        found = flat(rows)
        if whole and labels is not None:
            found = group_sums(rows, labels, batched=True)
            if grouped and not torch.equal(found, rows[0]):
                raise InputError(
                    f"attribution has shape {tuple(leaves[0].shape)}, one number per feature as well as one per group; "
                    "expected to be able to tell. Label groups 0, 1, ... in the order of the features and without gaps, or "
                    "leave groups= out where every feature is a group of its own."
                )
        if not torch.isfinite(found).all():
            raise InputError("attribution holds NaN or infinite numbers; expected finite ones, which can be put into order.")
        if isinstance(attribution, Attribution):
            check_question(self.problem, attribution, drawn=self.drawn)
        return np.asarray(found[:, self.labels].cpu().numpy())

    def _wrong_shape(self, leaves: Leaves, count: int | None) -> str:
        function = self.problem.function
        wanted = [tuple(leaf.shape if function.batched else leaf.shape[1:]) for leaf in function.inputs]
        groups = f", or ({self.problem.examples}, {count}), one number per group" if count is not None else ""
        return (
            f"attribution has shapes {[tuple(leaf.shape) for leaf in leaves]}; expected {wanted}, the structure of what is "
            f"explained{groups}."
        )


@contextmanager
def removing(
    model: Callable[..., Any],
    x: Tensors,
    baseline: Baseline,
    target: Target,
    score: Score,
    groups: Tensors | None,
    **settings: Unpack[Settings],
) -> Iterator[Removal]:
    """What can be removed from x; while it is open the model is not disturbed."""
    with settled(model, x, baseline, target=target, score=score, groups=groups, **settings) as problem:
        place = torch.arange(problem.features, device=problem.device)
        labels = place
        if problem.labels is not None:
            parts = zip(problem.labels, problem.function.inputs, strict=True)
            wide = [label.to(problem.device, torch.long).expand(leaf.shape[1:]).reshape(-1) for label, leaf in parts]
            every = torch.cat(wide)
            labels = every[every >= 0].unique()
            place = torch.where(every < 0, -1, torch.searchsorted(labels, every.clamp(min=0)))
        yield Removal(problem, place, labels, callable(baseline) and not isinstance(baseline, Tensor))


def at_least(name: str, value: object, least: int) -> int:
    """A whole number that makes sense."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise OptionError(f"got {name}={value!r}; expected a whole number from {least} on.")
    return int(value)
