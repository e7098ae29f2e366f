"""How far off an example is after a refinement round: the best rule, its error estimate, and whether a check bears it out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..paths.base import Nodes
from ..quadrature.panel_rules import estimate, interpolation, norms_of, raising
from .mesh import GroupedPanels, Mesh

FIRST = 4.0
"""What the estimate after the first round is multiplied by: two panels are little to judge by."""

HIGHEST = 9
"""The most halvings of a path that its extrapolation is used for (513 nodes)."""

AT_ONCE = 32
"""Nodes of each example that the extrapolation weighs at a time."""

EARLY = 5
"""Up to so many halvings of cells (33 nodes at equal distances) a claim is checked at a node off the grid."""

OFF_GRID = 0.381966
"""Where on the path that node is: the golden section, far from every multiple of a power of two."""

MISFIT = 1e-3
"""Of the attributions: what the off-grid check must be off by, at the least, to be believed over the estimate."""


@dataclass
class OpenExample:
    """An unfinished example: what its refinement rounds have shown.

    Attributes:
        example: which one.
        rounds: how many rounds it has been through.
        level: log2 of the number of cells, where all panels are equally wide and their nodes at hand; None otherwise.
        history: the relative errors of the extrapolation, round by round.
        noise: what rounding does to the gradients, absolute L1.
        floor: the error that rounding leaves in any case, absolute L1.
    """

    example: int
    rounds: int = 0
    level: int | None = None
    history: list[float] = field(default_factory=list)
    noise: float = 0.0
    floor: float = 0.0

    def early(self) -> bool:
        """Whether all there is to judge by are a few nodes at equal distances, which oscillations can hide between."""
        return self.level is not None and self.level <= EARLY


@dataclass(frozen=True)
class Estimate:
    """An example's best values after a refinement round, and how far off they are.

    Attributes:
        rule: the name of the rule that gave them.
        error: absolute L1 error estimate.
        size: L1 norm of the values.
        values: (features,) in float64.
        residual: sum of the values minus the change of the score.
        candidate: the better one of the panel rule's candidates, by which to refine.
        candidate_error: its error.
    """

    rule: str
    error: float
    size: float
    values: Tensor
    residual: float
    candidate: int
    candidate_error: float

    @property
    def extrapolated(self) -> bool:
        """Whether the values are those of the extrapolation over all panels."""
        return self.rule == "Romberg"


@dataclass(frozen=True)
class Extrapolated:
    """What the extrapolation over all equal panels gives for an example: absolute error, L1 norm, values, residual."""

    error: float
    size: float
    values: Tensor
    residual: float


class ErrorEstimator:
    """Estimates the errors of all unfinished examples of a mesh.

    Args:
        mesh: the panels.
        shares: the weight of each piece, (pieces,).
    """

    def __init__(self, mesh: Mesh, shares: Floats) -> None:
        self.mesh, self.rule = mesh, mesh.rule
        self.shares = shares

    def estimates(self, active: list[OpenExample], groups: GroupedPanels) -> list[Estimate]:
        """One estimate per example, in order: that of the best candidate, or of the extrapolation if that is better."""
        examples = [one.example for one in active]
        mine = np.searchsorted(groups.examples, examples)
        pooled = self.mesh.pooled(examples, self.shares)
        sizes, roots = norms_of(pooled)
        errors, missing = [], []
        for i, candidate in enumerate(self.rule.candidates):
            squares, missed = (np.add.reduceat(part[i], groups.starts)[mine] for part in (groups.squares, groups.missing))
            errors.append(estimate(candidate.kappa, sizes[:, 2 * i + 1], roots[:, 2 * i + 1], squares, missed).tolist())
            missing.append(missed.tolist())
        out = []
        extrapolated = self._extrapolated(active, groups, mine)
        for k, one in enumerate(active):
            factor = FIRST if one.rounds == 0 else 1.0
            best = min(range(len(errors)), key=lambda candidate: errors[candidate][k])
            error, size, name = errors[best][k] * factor, float(sizes[k, 2 * best]), self.rule.candidates[best].name
            found = Estimate(name, error, size, pooled[k, 2 * best], -missing[best][k], best, error)
            out.append(self._better(one, found, extrapolated.get(one.example), factor))
        return out

    def _extrapolated(self, active: list[OpenExample], groups: GroupedPanels, mine: Ints) -> dict[int, Extrapolated]:
        """The extrapolation for the examples whose panels are all equally wide, those of one level together."""
        if self.rule.extrapolation is None:
            return {}
        levels: dict[int, list[int]] = {}
        for one, k, level in zip(active, mine.tolist(), self._levels(groups)[mine].tolist(), strict=True):
            one.level = level if level <= HIGHEST else None
            if one.level is not None:
                levels.setdefault(level, []).append(k)
        out: dict[int, Extrapolated] = {}
        for level, members in levels.items():
            rule = self.rule.extrapolation(level)
            assert rule.embedded is not None
            columns = np.stack([rule.weights, rule.weights - rule.embedded])
            each = columns.shape[1] * self.mesh.pieces * self.mesh.evaluator.features * 8
            for part in np.array_split(np.array(members), max(1, len(members) * each // max(1, self.mesh.block_bytes))):
                if len(part):
                    out |= self._extrapolate(groups, part, columns)
        return out

    def _levels(self, groups: GroupedPanels) -> Ints:
        """Log2 of the number of cells on each piece of each example whose panels are equal and at hand; else too many."""
        panels, starts = groups.panels, groups.starts
        width = np.minimum.reduceat(panels.width, starts)
        whole = (width == np.maximum.reduceat(panels.width, starts)) & (np.minimum.reduceat(panels.slots[:, 0], starts) >= 0)
        cells = np.rint(np.log2(self.rule.cells / width))
        return np.where(whole, cells, HIGHEST + 1).astype(np.int64)

    def _extrapolate(self, groups: GroupedPanels, members: Ints, columns: Floats) -> dict[int, Extrapolated]:
        """Weigh the nodes of some members of the groups, all of one level, with (2, nodes) weights."""
        panels, store, examples = groups.panels, self.mesh.store, groups.examples[members].tolist()
        index = groups.starts[members, None] + np.arange(self.mesh.pieces * (columns.shape[1] // self.rule.cells))
        order = np.lexsort((panels.start[index], panels.line[index]), axis=1)
        in_order = np.take_along_axis(index, order, 1).reshape(len(examples), self.mesh.pieces, -1)
        slots = panels.slots[in_order]
        nodes = np.concatenate([slots[..., :-1].reshape(*slots.shape[:2], -1), slots[:, :, -1, -1:]], 2)
        total = torch.zeros(len(examples), 2, store.features, dtype=torch.float64, device=store.device)
        for piece, share in enumerate(self.shares):
            for first in range(0, nodes.shape[2], AT_ONCE):
                part = slice(first, first + AT_ONCE)
                terms = store.rows(nodes[:, piece, part]).double()
                total += torch.matmul(torch.as_tensor(share * columns[:, part], device=store.device), terms)
        given = (store.slopes[nodes] @ columns[0]) @ self.shares
        rise = (store.scores[nodes[..., -1]] - store.scores[nodes[..., 0]]) @ self.shares
        sizes, roots = norms_of(total)
        errors = sizes[:, 1] * raising(sizes[:, 1], roots[:, 1])
        return {
            e: Extrapolated(float(errors[k]), float(sizes[k, 0]), total[k, 0], float(given[k] - rise[k]))
            for k, e in enumerate(examples)
        }

    def _better(self, one: OpenExample, found: Estimate, other: Extrapolated | None, factor: float) -> Estimate:
        """The estimate of a candidate, or that of the extrapolation where it is better."""
        if other is None:
            return found
        error = max(other.error * factor, abs(other.residual))
        one.history.append(error / other.size if other.size else 0.0)
        if error >= found.error:
            return found
        return Estimate("Romberg", error, other.size, other.values, other.residual, found.candidate, found.candidate_error)

    def refuted(self, claims: dict[int, Estimate], tol: float) -> dict[int, float]:
        """Examples whose claim a node off the grid does not bear out (an oscillation between the nodes), with their error.

        The gradient there is compared with what the grid's nodes say it is, by straight lines or by a polynomial,
        whichever is closer; over the width of one cell, that must not be far above the error that is claimed.
        """
        if not claims:
            return {}
        mesh, panels, cells = self.mesh, self.mesh.panels, self.rule.cells
        examples = np.array(list(claims))
        around = (panels.start <= OFF_GRID) & (panels.start + panels.width > OFF_GRID)
        index = np.flatnonzero(around & np.isin(panels.line % mesh.examples, examples))
        rows, piece = panels.line[index] % mesh.examples, panels.line[index] // mesh.examples
        places = cells * (OFF_GRID - panels.start[index]) / panels.width[index]
        weights = np.stack([interpolation(cells, place) for place in places])
        missed = np.zeros(mesh.examples)

        def compare(which: Ints, terms: Tensor) -> None:
            nodes = mesh.store.rows(panels.slots[index[which]]).double()
            expected = torch.bmm(torch.as_tensor(weights[which], device=mesh.device), nodes)
            off = (terms.to(mesh.device, torch.float64)[:, None] - expected).abs().sum(2).amin(1).cpu().numpy()
            np.add.at(missed, rows[which], off * panels.width[index[which]] / cells * self.shares[piece[which]])

        slots = mesh.off_grid_slots[panels.line[index]]
        there, others = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
        if len(there):
            compare(there, mesh.store.rows(slots[there]))
        for done in mesh.evaluator.gradients_at(Nodes(np.full(len(others), OFF_GRID), rows[others], piece[others])):
            compare(others[done.index], done.terms)
        return {
            example: float(missed[example])
            for example, claim in claims.items()
            if missed[example] > max(4 * claim.error, tol * claim.size, MISFIT * claim.size)
        }

    def doubling_pays(self, one: OpenExample, tol: float, halvings: int) -> bool:
        """Whether the extrapolation on twice as many nodes is expected to take less than a plan of so many halvings."""
        if one.level is None or one.level >= HIGHEST or len(one.history) < 2 or one.history[-2] == 0:
            return False
        ratio = one.history[-1] / one.history[-2]
        soon = one.history[-1] * ratio <= tol
        return ratio < 0.3 and (soon or ratio < 0.1) and 4 * halvings >= self.mesh.pieces * 2 ** (one.level - 1)
