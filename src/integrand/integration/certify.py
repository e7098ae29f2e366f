"""What an integration hands to the front door."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..certificate import CurveCertificate, ExampleCertificate, Status
from ..evaluation.evaluator import Evaluator
from ..evaluation.nodes import Nodes
from ..quadrature.fixed_rules import romberg
from ..quadrature.panel_rules import estimate
from .error import RULES, RefinementStep
from .fixed import path_ends
from .mesh import Mesh, Panels
from .outcome import relative

NARROW = 2.0**-16
"""Where a panel as narrow as this misses far more of the score than its gradients can account for, the score jumps."""

UNSEEN = 4.0
"""How many times more that is."""


class CertificateWriter:
    """Writes certificates, and the nodes and weights behind the values.

    Args:
        evaluator: knows the path, and has counted.
        table: the panels.
        shares: (pieces,) the weight of each piece.
    """

    def __init__(self, evaluator: Evaluator, table: Mesh, shares: Floats) -> None:
        self.evaluator, self.table, self.shares = evaluator, table, shares

    def certificate(self, step: RefinementStep, tol: float, scores: Floats) -> ExampleCertificate:
        """The certificate of an example, which has ended.

        Args:
            step: how.
            tol: the tolerance.
            scores: F at start and end of each piece, (2, pieces).
        """
        pieces = len(self.shares)
        one, verdict, status, panels = step.one, step.verdict, step.status, step.panels
        start, end = path_ends(self.shares, *scores)
        floor = one.floor if status is Status.NOISE else self.evaluator.epsilon * verdict.size
        jump_at = jump_size = None
        if status is Status.JUMP:
            missing = panels.missing(verdict.panel_rule)
            jumps = self.jumps(panels, verdict.panel_rule, one.example)
            at = int(np.argmax(np.where(jumps, np.abs(missing), 0)))
            jump_at, jump_size = float(panels.start[at] + panels.width[at] / 2), float(missing[at])
        return self.evaluator.certificate(
            one.example,
            tol,
            score=float(end),
            baseline_score=float(start),
            residual=verdict.residual,
            magnitude=verdict.size,
            error=0.0
            if status is Status.CONVERGED and verdict.size == 0
            else relative(max(verdict.error, floor), verdict.size),
            status=status,
            rule=f"adaptive {verdict.rule}" + ("" if verdict.rule == "Romberg" else " panels"),
            needed=step.needed,
            jump_at=jump_at,
            jump_size=jump_size,
            curves=tuple(self._curve(p, step, panels, *scores[:, p]) for p in range(pieces)) if pieces > 1 else (),
        )

    def jumps(self, panels: Panels, rule: str, example: int) -> NDArray[np.bool_]:
        """Where the score jumps: narrow panels that miss what their gradients, and rounding, cannot account for."""
        narrow = panels.width <= NARROW
        if not narrow.any():
            return narrow
        missing = np.abs(panels.missing(rule))
        norm = panels.trapezoid if rule == "trapezoid" else panels.simpson
        rounding = 50 * self.evaluator.epsilon * self.evaluator.function.scale[example]
        return np.asarray(narrow & (missing > UNSEEN * norm) & (missing > rounding))

    def _curve(self, piece: int, step: RefinementStep, panels: Panels, start: float, end: float) -> CurveCertificate:
        """The certificate of one piece, judged by the panel rule."""
        rule = step.verdict.panel_rule
        mine = panels[panels.line // self.table.examples == piece]
        sums = self.table.sums[self.table.place[step.one.example], piece, 2 * RULES.index(rule) :]
        missing = float(mine.missing(rule).sum())
        squares = np.array([(mine.indicators(rule) ** 2).sum()])
        error = float(estimate(rule, sums[1:2], squares, np.array([missing]))[0])
        share = float(self.shares[piece])
        relative_error = relative(error, float(sums[0].abs().sum()))
        return CurveCertificate(share, float(start), float(end), -missing, relative_error, 4 * len(mine) + 1)

    def weights_used(self, step: RefinementStep) -> tuple[Nodes, Floats]:
        """The nodes and weights that the values are the sum of, ends of neighbouring panels listed twice."""
        one, verdict, panels = step.one, step.verdict, step.panels
        pieces = len(self.shares)
        if verdict.rule == "Romberg" and one.level is not None:
            rule = romberg(one.level)
            t, piece = np.tile(rule.nodes, pieces), np.repeat(np.arange(pieces), len(rule))
            weights = np.tile(rule.weights, pieces)
        else:
            t = (panels.start[:, None] + panels.width[:, None] * np.arange(5) / 4).ravel()
            piece = np.repeat(panels.line // self.table.examples, 5)
            weights = panels.weights[:, RULES.index(verdict.panel_rule)].ravel()
        return Nodes(t, np.full(len(t), one.example), piece), weights * self.shares[piece]
