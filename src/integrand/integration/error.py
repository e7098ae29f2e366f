"""Judging an example after a wave: which rule, how far off, and whether that will do."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..certificate import Status
from ..evaluation.nodes import Nodes
from ..quadrature.fixed_rules import romberg
from ..quadrature.panel_rules import estimate_from, interpolation, norms, raising
from .mesh import Grouped, Mesh, Panels

RULES = ("trapezoid", "simpson")

FIRST = 4.0
"""What the estimate after the first wave is multiplied by: two panels are little to judge by."""

ROMBERG = 9
"""The highest level of Romberg's rule (513 nodes)."""

AT_ONCE = 32
"""Nodes of each example that Romberg's rule weighs at a time."""

EARLY = 5
"""Up to this level (33 nodes at equal distances) a claim is checked at a node off the grid."""

WITNESS = 0.381966
"""Where on the path that is: the golden section, far from every multiple of a power of two."""

MISFIT = 1e-3
"""Of the attributions: what the witness must be off by, at the least, to be believed over the estimate."""


NONE = np.zeros(0, np.int64)


@dataclass
class OpenExample:
    """An unfinished example: what its waves have shown."""

    example: int
    waves: int = 0
    level: int | None = None  # log2 of the number of cells, where all panels are equally wide and at hand
    history: list[float] = field(default_factory=list)  # Romberg's errors, relative
    noise: float = 0.0  # what rounding does to the gradients, absolute L1
    floor: float = 0.0  # the error that rounding leaves in any case, absolute L1

    def early(self) -> bool:
        """Whether all there is to judge by are a few nodes at equal distances, which waves can hide between."""
        return self.level is not None and self.level <= EARLY


@dataclass(frozen=True)
class Estimate:
    """An example's best rule after a wave.

    Attributes:
        rule: its name.
        error: absolute L1 error estimate.
        size: L1 norm of the values.
        values: (features,) in float64.
        residual: sum of the values minus the change of the score.
        panel_rule: the better one of the panel rules, by which to refine.
        panel_error: its error.
    """

    rule: str
    error: float
    size: float
    values: Tensor
    residual: float
    panel_rule: str
    panel_error: float


@dataclass(frozen=True)
class RefinementStep:
    """What comes next for an example.

    Attributes:
        one: the example.
        verdict: what its last wave says.
        index: which panels of the table are its own.
        panels: they themselves.
        halve: those to halve.
        depths: how many times each.
        status: how it ended; None where it goes on.
        needed: evaluations that it would have taken, where the budget ended it.
    """

    one: OpenExample
    verdict: Estimate
    index: Ints
    panels: Panels
    halve: Ints = field(default_factory=lambda: NONE)
    depths: Ints = field(default_factory=lambda: NONE)
    status: Status | None = None
    needed: int | None = None


@dataclass(frozen=True)
class Extrapolated:
    """What Romberg's rule gives for an example: absolute error, L1 norm, values, residual."""

    error: float
    size: float
    values: Tensor
    residual: float


class Judge:
    """Judges all unfinished examples of a table."""

    def __init__(self, table: Mesh, shares: Floats) -> None:
        self.table = table
        self.shares = shares

    def verdicts(self, active: list[OpenExample], groups: Grouped) -> list[Estimate]:
        """One verdict per example, in order."""
        examples = [one.example for one in active]
        mine = np.searchsorted(groups.examples, examples)
        pooled = self.table.pooled(self.table.place[examples], self.shares)
        sizes, roots = norms(pooled)
        errors, missing = {}, {}
        for i, rule in enumerate(RULES):
            squares, missed = (np.add.reduceat(part[rule], groups.starts)[mine] for part in (groups.squares, groups.missing))
            errors[rule] = estimate_from(rule, sizes[:, 2 * i + 1], roots[:, 2 * i + 1], squares, missed).tolist()
            missing[rule] = missed.tolist()
        out = []
        extrapolated = self._romberg(active, groups, mine)
        for k, one in enumerate(active):
            factor = FIRST if one.waves == 0 else 1.0
            best = min(RULES, key=lambda rule: errors[rule][k])
            column = 2 * RULES.index(best)
            error, size = errors[best][k] * factor, float(sizes[k, column])
            verdict = Estimate(best, error, size, pooled[k, column], -missing[best][k], best, error)
            out.append(self._better(one, verdict, extrapolated.get(one.example), factor))
        return out

    def _romberg(self, active: list[OpenExample], groups: Grouped, mine: Ints) -> dict[int, Extrapolated]:
        """Romberg's rule for the examples whose panels are all equally wide, those of one level together."""
        levels: dict[int, list[int]] = {}
        for one, k, level in zip(active, mine.tolist(), self._levels(groups)[mine].tolist(), strict=True):
            one.level = level if level <= ROMBERG else None
            if one.level is not None:
                levels.setdefault(level, []).append(k)
        out: dict[int, Extrapolated] = {}
        for level, members in levels.items():
            rule = romberg(level)
            assert rule.embedded is not None
            columns = np.stack([rule.weights, rule.weights - rule.embedded])
            each = len(rule) * self.table.pieces * self.table.evaluator.features * 8
            for part in np.array_split(np.array(members), max(1, len(members) * each // max(1, self.table.block_bytes))):
                if len(part):
                    out |= self._extrapolate(groups, part, columns)
        return out

    def _levels(self, groups: Grouped) -> Ints:
        """Log2 of the number of cells on each piece of each example whose panels are equally wide and at hand; else many."""
        panels, starts = groups.panels, groups.starts
        width = np.minimum.reduceat(panels.width, starts)
        whole = (width == np.maximum.reduceat(panels.width, starts)) & (np.minimum.reduceat(panels.slots[:, 0], starts) >= 0)
        return np.where(whole, 2 - np.rint(np.log2(width)), ROMBERG + 1).astype(np.int64)

    def _extrapolate(self, groups: Grouped, members: Ints, columns: Floats) -> dict[int, Extrapolated]:
        """Weigh the nodes of some members of the groups, all of one level, with (2, nodes) weights."""
        panels, store, examples = groups.panels, self.table.store, groups.examples[members].tolist()
        index = groups.starts[members, None] + np.arange(self.table.pieces * (columns.shape[1] // 4))
        order = np.lexsort((panels.start[index], panels.line[index]), axis=1)
        sorted_ = np.take_along_axis(index, order, 1).reshape(len(examples), self.table.pieces, -1)
        slots = panels.slots[sorted_]
        nodes = np.concatenate([slots[..., :4].reshape(*slots.shape[:2], -1), slots[:, :, -1, 4:]], 2)
        total = torch.zeros(len(examples), 2, store.features, dtype=torch.float64, device=store.device)
        for piece, share in enumerate(self.shares):
            for first in range(0, nodes.shape[2], AT_ONCE):
                part = slice(first, first + AT_ONCE)
                terms = store.rows(nodes[:, piece, part]).double()
                total += torch.matmul(torch.as_tensor(share * columns[:, part], device=store.device), terms)
        given = (store.slopes[nodes] @ columns[0]) @ self.shares
        rise = (store.scores[nodes[..., -1]] - store.scores[nodes[..., 0]]) @ self.shares
        sizes, roots = norms(total)
        errors = sizes[:, 1] * raising(sizes[:, 1], roots[:, 1])
        return {
            e: Extrapolated(float(errors[k]), float(sizes[k, 0]), total[k, 0], float(given[k] - rise[k]))
            for k, e in enumerate(examples)
        }

    def _better(self, one: OpenExample, verdict: Estimate, other: Extrapolated | None, factor: float) -> Estimate:
        """Romberg's rule instead, where it is better."""
        if other is None:
            return verdict
        error = max(other.error * factor, abs(other.residual))
        one.history.append(error / other.size if other.size else 0.0)
        if error >= verdict.error:
            return verdict
        rules = (verdict.panel_rule, verdict.panel_error)
        return Estimate("Romberg", error, other.size, other.values, other.residual, *rules)

    def doubted(self, claims: dict[int, Estimate], tol: float) -> dict[int, float]:
        """Examples whose claim a node off the grid does not bear out (a wave that the grid cannot see), with their error.

        The gradient there is compared with what the grid's nodes say it is, by straight lines or by a polynomial,
        whichever is closer; over the width of one cell, that must not be far above the error that is claimed.
        """
        if not claims:
            return {}
        table, panels = self.table, self.table.panels
        examples = np.array(list(claims))
        around = (panels.start <= WITNESS) & (panels.start + panels.width > WITNESS)
        index = np.flatnonzero(around & np.isin(panels.line % table.examples, examples))
        rows, piece = panels.line[index] % table.examples, panels.line[index] // table.examples
        weights = np.stack([interpolation(place) for place in 4 * (WITNESS - panels.start[index]) / panels.width[index]])
        missed = np.zeros(table.examples)

        def compare(which: Ints, terms: Tensor) -> None:
            nodes = table.store.rows(panels.slots[index[which]]).double()
            expected = torch.bmm(torch.as_tensor(weights[which], device=table.device), nodes)
            off = (terms.to(table.device, torch.float64)[:, None] - expected).abs().sum(2).amin(1).cpu().numpy()
            np.add.at(missed, rows[which], off * panels.width[index[which]] / 4 * self.shares[piece[which]])

        slots = table.witness[panels.line[index]]
        there, others = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
        if len(there):
            compare(there, table.store.rows(slots[there]))
        for done in table.evaluator.gradients_at(Nodes(np.full(len(others), WITNESS), rows[others], piece[others])):
            compare(others[done.index], done.terms)
        return {
            example: float(missed[example])
            for example, claim in claims.items()
            if missed[example] > max(4 * claim.error, tol * claim.size, MISFIT * claim.size)
        }

    def doubling_pays(self, one: OpenExample, tol: float, halvings: int) -> bool:
        """Whether Romberg on twice as many nodes is expected to be the shorter way than halving some panels."""
        if one.level is None or one.level >= ROMBERG or len(one.history) < 2 or one.history[-2] == 0:
            return False
        ratio = one.history[-1] / one.history[-2]
        soon = one.history[-1] * ratio <= tol
        return ratio < 0.3 and (soon or ratio < 0.1) and 4 * halvings >= self.table.pieces * 2 ** (one.level - 1)
