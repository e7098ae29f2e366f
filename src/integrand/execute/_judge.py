"""Judging an example after a wave: which rule, how far off, and whether that will do."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..quadrature import romberg
from ..quadrature._panels import estimate, spread
from ._evaluate import Floats, Ints
from ._table import Panels, Table

RULES = ("trapezoid", "simpson")

FIRST = 4.0
"""What the estimate after the first wave is multiplied by: two panels are little to judge by."""

ROMBERG = 9
"""The highest level of Romberg's rule (513 nodes)."""


@dataclass
class Progressing:
    """An unfinished example: what its waves have shown."""

    example: int
    waves: int = 0
    level: int | None = 3  # log2 of the number of cells, while all panels are equally wide and at hand
    history: list[float] = field(default_factory=list)  # Romberg's errors, relative
    noise: float = 0.0  # relative error of the gradients themselves


@dataclass(frozen=True)
class Verdict:
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


class Judge:
    """Judges all unfinished examples of a table."""

    def __init__(self, table: Table, shares: Floats) -> None:
        self.table = table
        self.shares = shares

    def verdicts(self, active: list[Progressing], groups: dict[int, Ints]) -> list[Verdict]:
        """One verdict per example, in order."""
        table, panels = self.table, self.table.panels
        places = table.place[[one.example for one in active]]
        pooled = table.pooled(self.shares)[torch.as_tensor(places, device=table.device)]
        sizes = {rule: pooled[:, 2 * i].abs().sum(-1).cpu().numpy() for i, rule in enumerate(RULES)}
        weight = self.shares[panels.line // table.examples]
        errors, missing = {}, {}
        for i, rule in enumerate(RULES):
            ind, miss = weight * panels.indicators(rule), weight * panels.missing(rule)
            squares = np.array([(ind[groups[one.example]] ** 2).sum() for one in active])
            missing[rule] = np.array([miss[groups[one.example]].sum() for one in active])
            errors[rule] = estimate(rule, pooled[:, 2 * i + 1], squares, missing[rule])
        out = []
        for k, one in enumerate(active):
            factor = FIRST if one.waves == 0 else 1.0
            best = min(RULES, key=lambda rule: errors[rule][k])
            values = pooled[k, 2 * RULES.index(best)]
            error = float(errors[best][k]) * factor
            verdict = Verdict(best, error, float(sizes[best][k]), values, -float(missing[best][k]), best, error)
            out.append(self._with_romberg(one, verdict, panels, groups[one.example], factor))
        return out

    def _with_romberg(self, one: Progressing, verdict: Verdict, panels: Panels, index: Ints, factor: float) -> Verdict:
        """Romberg's rule instead, where all panels are equally wide and it is better."""
        if one.level is None or one.level > ROMBERG or (panels.slots[index, 0] < 0).any():
            one.level = None
            return verdict
        rule = romberg(one.level)
        order = index[np.lexsort((panels.start[index], panels.line[index]))].reshape(self.table.pieces, -1)
        slots = np.concatenate([panels.slots[order][:, :, :4].reshape(len(order), -1), panels.slots[order[:, -1], 4:]], 1)
        assert rule.embedded is not None
        columns = np.stack([rule.weights, rule.weights - rule.embedded])
        total = torch.zeros(2, self.table.evaluator.features, dtype=torch.float64, device=self.table.device)
        given = 0.0
        rise = 0.0
        for share, row in zip(self.shares, slots, strict=True):
            store = self.table.store
            for part in np.array_split(np.arange(len(row)), max(1, len(row) // 16)):
                block = store.rows(row[part]).double()
                total += torch.as_tensor(share * columns[:, part], device=self.table.device) @ block
            given += share * float(rule.weights @ store.slopes[row])
            rise += share * float(store.scores[row[-1]] - store.scores[row[0]])
        error = float(total[1].abs().sum() * spread(total[1])) * factor
        error = max(error, abs(given - rise))
        size = float(total[0].abs().sum())
        one.history.append(error / size if size else 0.0)
        if error >= verdict.error:
            return verdict
        return Verdict("Romberg", error, size, total[0], given - rise, verdict.panel_rule, verdict.panel_error)

    def doubling_pays(self, one: Progressing, tol: float, halvings: int) -> bool:
        """Whether Romberg on twice as many nodes is expected to be the shorter way than halving some panels."""
        if one.level is None or one.level >= ROMBERG or len(one.history) < 2 or one.history[-2] == 0:
            return False
        ratio = one.history[-1] / one.history[-2]
        soon = one.history[-1] * ratio <= tol
        return ratio < 0.3 and (soon or ratio < 0.1) and 4 * halvings >= self.table.pieces * 2 ** (one.level - 1)
