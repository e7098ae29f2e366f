"""Integrals from several baselines: averaged over all of them, or, for a sample, group by group to see what the draw did.

What a sample of baselines leaves open is how far its average is from that over all rows. The baselines are cut into groups of
equal size; the averages of the groups vary by chance alone, and that tells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ...attribution import Attribution
from ...certificate import Certificate, ExampleCertificate, Status
from ...sum_errors import FEW_DRAWS, SURE, Sums
from ...words import short_repr

FEWEST, MOST = 4, 10
"""Groups that a sample is cut into, where its size allows: with fewer nothing is known of their spread."""

FINER = 100.0
"""By how much finer than asked for the groups are integrated at the most, where their values cancel in the average."""


class Integrates(Protocol):
    """What integrates rows from given baselines: :class:`~integrand.apps.tables.model_entry.ModelEntry`."""

    def attribution(self, x: tuple[Tensor, ...], baseline: Any, how: Mapping[str, Any]) -> Attribution:
        """Integrated gradients, one number per column."""
        ...


@dataclass(frozen=True, eq=False)
class StartGroups:
    """Baselines, as values of what is explained.

    Attributes:
        leaves: (baselines, ...) each.
        drawn_from: how many rows they were drawn from at random; 0 if they were not drawn.
    """

    leaves: tuple[Tensor, ...]
    drawn_from: int = 0

    __repr__ = short_repr

    @property
    def count(self) -> int:
        """How many baselines there are."""
        return len(self.leaves[0])

    @property
    def groups(self) -> int:
        """How many groups they are cut into: 1 where nothing was drawn."""
        if not self.drawn_from or self.count < FEWEST:
            return 1
        return next((n for n in range(min(MOST, self.count), FEWEST - 1, -1) if self.count % n == 0), self.count)

    def fewer(self, most: int) -> StartGroups:
        """At most so many of them, evenly spread."""
        if self.count <= most:
            return StartGroups(self.leaves)
        chosen = torch.linspace(0, self.count - 1, most).round().long()
        return StartGroups(tuple(leaf[chosen.to(leaf.device)] for leaf in self.leaves))

    def baselines(self, rows: int, groups: int = 1) -> Any:
        """What to pass as ``baseline=`` for rows of which each comes once for every group."""
        size = self.count // groups

        def nth(i: int) -> Any:
            parts = tuple(leaf[i::size][:groups].repeat((rows, *[1] * (leaf.ndim - 1))) for leaf in self.leaves)
            return parts[0] if len(parts) == 1 else parts

        return nth(0) if size == 1 else [nth(i) for i in range(size)]


@dataclass(frozen=True, eq=False)
class RowValues:
    """Values of columns.

    Attributes:
        values: (rows, columns).
        errors: by how much each may be off, of the integration and of the sample together, likewise.
        sampling: the part of the errors that is due to the sample of baselines; 0 where there is none.
        certificate: of each row.
    """

    values: np.ndarray[Any, np.dtype[np.float64]]
    errors: np.ndarray[Any, np.dtype[np.float64]]
    sampling: np.ndarray[Any, np.dtype[np.float64]]
    certificate: Certificate

    __repr__ = short_repr


def merged(entry: Integrates, x: tuple[Tensor, ...], start: StartGroups, how: Mapping[str, Any]) -> RowValues:
    """Integrate rows from all baselines.

    Args:
        entry: what integrates.
        x: what the model takes, (rows, ...) each.
        start: the baselines.
        how: options of :func:`integrand.integrated_gradients`.
    """
    groups, rows = start.groups, len(x[0])
    if groups == 1:
        found = entry.attribution(x, start.baselines(rows), how)
        sums = _by_column(found)
        errors = sums.errors.numpy()
        return RowValues(sums.values.numpy(), errors, np.zeros_like(errors), found.certificate)
    wide = tuple(leaf.repeat_interleave(groups, dim=0) for leaf in x)
    left = math.sqrt(max(0.0, 1 - start.count / start.drawn_from))
    tol, asked = float(how["tol"]), dict(how)
    while True:
        found = entry.attribution(wide, start.baselines(rows, groups), asked)
        sums = _by_column(found)
        values = sums.values.numpy().reshape(rows, groups, -1)
        parts = [found.certificate.examples[i * groups : (i + 1) * groups] for i in range(rows)]
        examples = [_together(part, float(np.abs(values[i].mean(0)).sum()), tol) for i, part in enumerate(parts)]
        worst = max((one.error / tol for one in examples if one.converged), default=0.0)
        # Values of opposite signs cancel in the average, and their errors need not: then each has to be better.
        if worst <= 1 or asked["tol"] < tol / FINER:
            break
        asked["tol"] *= 0.8 / worst
    errors = sums.errors.numpy().reshape(rows, groups, -1).mean(1)  # of an average no more than their average
    sampling = SURE * (1 + FEW_DRAWS / groups) * left * values.std(1, ddof=1) / math.sqrt(groups)
    examples = [one if one.error <= tol or not one.converged else replace(one, status=Status.BUDGET) for one in examples]
    certificate = Certificate(tuple(examples), found.certificate.promises)
    return RowValues(values.mean(1), errors + sampling, sampling, certificate)


def _by_column(found: Attribution) -> Sums:
    assert isinstance(found.values, Tensor)
    return found.sums(torch.arange(found.values.shape[1]))


def _together(parts: tuple[ExampleCertificate, ...], magnitude: float, tol: float) -> ExampleCertificate:
    """One certificate for the average of several results, from the one that is worst off."""
    count = len(parts)
    worst = max(parts, key=lambda one: (not one.converged, one.error if math.isfinite(one.error) else math.inf))
    off = math.fsum(one.error * one.magnitude for one in parts) / count
    return replace(
        worst,
        baseline_score=math.fsum(one.baseline_score for one in parts) / count,
        residual=math.fsum(one.residual for one in parts) / count,
        magnitude=magnitude,
        error=off / magnitude if magnitude else 0.0,
        tol=tol,
        gradients=sum(one.gradients for one in parts),
        forwards=sum(one.forwards for one in parts),
        curves=tuple(replace(curve, weight=curve.weight / count) for one in parts for curve in one.curves),
        note="the error is that of the integrals; what the sample of baselines leaves open is in the error of each value",
    )
