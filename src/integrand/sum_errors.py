"""How far a sum of attributions is off: a region, a word or an atom is a sum over many features, in which errors partly cancel.

The certificate bounds the error of all features together, sum|a - a*|. What is left of it in a sum depends on how the errors of
its features hang together, and no number per feature can say that. So an integration leaves some *draws* behind: each is what
the error of the values might be, with every stretch of the path wrong by its nested difference in a direction drawn at random.
What a sum of the draws varies by is what the sum of the values is off by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .certificate import ExampleCertificate, Status
from .trees import add_columns
from .words import short_repr

SURE = 2.3
"""Standard deviations that are claimed where they are known: 98% of normal errors are within."""

FEW_DRAWS = 2.0
"""A standard deviation from k draws is itself uncertain: claims are raised by 1 + this / k, about as Student's t asks for."""

POOLED = 4.0
"""So many draws is it worth to know how errors add up in the other groups: what is chance in a group's own counts less."""

ROUNDED = 2.0
"""What rounding may do to a sum, over the share of the sum's features in all roundings."""

STORED = torch.float8_e5m2
"""Draws are kept in one byte for a number: each is off by up to an eighth, to either side, which a variance does not feel."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of attributions, each with its own error.

    Attributes:
        values: the sums in float64, (examples, groups), or (groups,) where there is no batch dimension.
        errors: by how much each may be off, in the units of the score, likewise; NaN where that is not known. About 98% of
            sums are within.
    """

    values: Tensor
    errors: Tensor

    __repr__ = short_repr

    @property
    def known(self) -> bool:
        """Whether all errors are known."""
        return bool(torch.isfinite(self.errors).all())


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Which sums the features go to: each to one of them, or a share of it to each.

    Attributes:
        count: how many sums there are.
        columns: the sum that each feature goes to, (features,); None where there are weights.
        weights: how much of each feature goes to each sum, (examples, sums, features), or (1, sums, features) for all examples.
    """

    count: int
    columns: Tensor | None = None
    weights: Tensor | None = None

    __repr__ = short_repr

    def add(self, terms: Tensor, *, power: int = 0) -> Tensor:
        """The sums of terms (examples, features); weights without signs with power 1, squared with power 2."""
        if self.columns is not None:
            return add_columns(terms, self.columns, self.count)
        assert self.weights is not None
        weights = (self.weights, self.weights.abs(), self.weights.square())[power]
        return torch.matmul(weights, terms[..., None])[..., 0]


@dataclass(frozen=True, slots=True, eq=False)
class ErrorDraws:
    """What the errors of the values of some examples may look like, up to their size, which the certificates tell.

    Attributes:
        draws: (examples, draws, features), of one byte each, the features in the order of the values. Zero for examples without
            quadrature error.
        scale: what a draw of an example is multiplied by, besides its absolute error (L1), to be of the size that errors have,
            (examples,). Zero where only rounding is left, NaN where nothing is known.
    """

    draws: Tensor
    scale: Tensor

    __repr__ = short_repr

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as bytes: torch cannot pickle numbers of one byte."""
        if self.draws.dtype is STORED:
            return _drawn, (self.draws.view(torch.uint8), self.scale)
        return ErrorDraws, (self.draws, self.scale)

    def first(self, count: int) -> ErrorDraws:
        """The draws of the first features."""
        return replace(self, draws=self.draws[:, :, :count].contiguous())

    def within(self, mask: Tensor) -> ErrorDraws:
        """The draws with zeros for the features that are not shown, (features,)."""
        hidden = torch.zeros((), dtype=STORED)
        return replace(self, draws=torch.where(mask.cpu(), self.draws, hidden))

    def spread(self, grouping: Grouping, masses: Tensor) -> Tensor:
        """By how much sums may be off, over the absolute error of all features (L1), (examples, sums); NaN if unknown.

        Args:
            grouping: which sums the features go to.
            masses: sum|a| over the features of each group, (examples, groups).
        """
        draws = self.draws.shape[1]
        own, alone = torch.zeros(2, *masses.shape, dtype=torch.float64)
        for k in range(draws):
            draw = self.draws[:, k].double()
            own += grouping.add(draw).square() / draws
            alone += grouping.add(draw.square(), power=2) / draws
        # In each group errors are taken to hang together as in all of them, until its own draws say otherwise, and to be where
        # differences are, or attributions. With few draws a sum of zero is chance.
        whole = alone.sum(1, keepdim=True)
        together = (own.sum(1, keepdim=True) / whole.clamp_min(1e-300)).clamp_min(1.0 if draws < POOLED else 0.0)
        usual = together * (alone + whole * masses / masses.sum(1, keepdim=True).clamp_min(1e-300)) / 2
        several = (masses > 0).sum(1, keepdim=True) > 1
        worth = torch.where(several, POOLED, 1.0 if draws == 1 else 0.0).double()
        variance = (draws * own + worth * usual) / (draws + worth)
        found = SURE * (1 + FEW_DRAWS / (draws + worth)) * self.scale[:, None] * variance.sqrt()
        bounded: Tensor = found.clamp_max(1.0)  # no sum is off by more than all features together
        return bounded


def errors_of(
    draws: ErrorDraws, examples: Sequence[ExampleCertificate], masses: Tensor, grouping: Grouping, rounding: float
) -> Tensor:
    """The errors of sums in the units of the score, (examples, groups); NaN where they are not known.

    Args:
        draws: what errors look like.
        examples: the certificates, which tell their size.
        masses: sum|a| over the features of each group, (examples, groups).
        grouping: which sums the features go to.
        rounding: what a value may be off by because it is stored in its precision, as a share of it.
    """
    spread = draws.spread(grouping, masses)
    out = torch.full_like(masses, torch.nan)
    for i, one in enumerate(examples):
        error = one.error * one.magnitude
        share = masses[i] / one.magnitude if one.magnitude > 0 else torch.zeros_like(masses[i])
        # Rounding is not drawn: it may go to the same side everywhere.
        only_rounding = bool(draws.scale[i] == 0)
        rounded = ROUNDED * error if only_rounding or one.status is Status.NOISE else one.moved * one.magnitude
        out[i] = (0.0 if only_rounding else error * spread[i]) + rounded * share + rounding * masses[i]
        if one.status is Status.JUMP:  # what no gradient accounts for may belong anywhere
            out[i] += abs(one.residual)
    return torch.where(out.isfinite(), out, torch.nan)


def _drawn(stored: Tensor, scale: Tensor) -> ErrorDraws:
    return ErrorDraws(stored.view(STORED), scale)
