"""What an integration hands to the engine: values with their certificates, and the nodes and weights behind them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..certificate import CurveCertificate, ExampleCertificate, Status
from ..evaluation.evaluator import Evaluator
from ..paths.base import Nodes
from ..quadrature.panel_rules import estimate, norms_of
from .error import Estimate, OpenExample
from .mesh import Mesh, Panels, Split

NARROW = 2.0**-16
"""Where a panel as narrow as this misses far more of the score than its gradients can account for, the score jumps."""

UNSEEN = 4.0
"""How many times more that is."""


@dataclass(frozen=True)
class Outcome:
    """Values and certificates of all examples.

    Attributes:
        values: (examples, features), in float64 where the device has it.
        examples: their certificates.
        nodes: the nodes whose weighted terms add up to the values.
        weights: (nodes,) their weights.
    """

    values: Tensor
    examples: list[ExampleCertificate]
    nodes: Nodes
    weights: Floats


@dataclass(frozen=True)
class Decision:
    """What comes next for an example after a refinement round.

    Attributes:
        one: the example.
        found: the estimate after the round.
        index: which panels of the mesh are its own.
        panels: these panels.
        split: those to halve, if it goes on.
        status: how it ended; None where it goes on.
        needed: evaluations that it would have taken, where the budget ended it.
    """

    one: OpenExample
    found: Estimate
    index: Ints
    panels: Panels
    split: Split = field(default_factory=Split)
    status: Status | None = None
    needed: int | None = None

    def ended(self, status: Status, needed: int | None = None) -> Decision:
        """The same example at its end."""
        return replace(self, status=status, needed=needed)


def relative(error: float, size: float) -> float:
    """An absolute L1 error over the L1 norm; zero over zero is exact, anything else over zero is infinite."""
    if error == 0:
        return 0.0
    return float(error / size) if size > 0 else float(np.inf)


def path_ends(shares: Floats, starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """F at the baseline and at the input, from the ends of the pieces: each piece of a row starts where the last one ends.

    >>> path_ends(np.array([1.0, 1.0]), np.array([0.0, 2.0]), np.array([2.0, 5.0]))
    (np.float64(0.0), np.float64(5.0))
    >>> path_ends(np.array([0.5, 0.5]), np.array([0.0, 1.0]), np.array([5.0, 5.0]))
    (np.float64(0.5), np.float64(5.0))
    """
    end = ends[-1]
    return end - shares @ (ends - starts), end


class CertificateWriter:
    """Writes certificates of examples that were refined to their end, and the nodes and weights behind their values.

    Args:
        evaluator: knows the path, and has counted.
        mesh: the panels.
        shares: (pieces,) the weight of each piece.
    """

    def __init__(self, evaluator: Evaluator, mesh: Mesh, shares: Floats) -> None:
        self.evaluator, self.mesh, self.shares = evaluator, mesh, shares

    def certificate(self, end: Decision, tol: float, scores: Floats) -> ExampleCertificate:
        """The certificate of an example.

        Args:
            end: how it ended.
            tol: the tolerance.
            scores: F at start and end of each piece, (2, pieces).
        """
        pieces = len(self.shares)
        one, found, status, panels = end.one, end.found, end.status, end.panels
        first, last = path_ends(self.shares, *scores)
        floor = one.floor if status is Status.NOISE else self.evaluator.epsilon * found.size
        nothing = status is Status.CONVERGED and found.size == 0
        jump_at = jump_size = None
        if status is Status.JUMP:
            missing = panels.missing[:, found.candidate]
            at = int(np.argmax(np.where(self.jumps(panels, found.candidate, one.example), np.abs(missing), 0)))
            jump_at, jump_size = float(panels.start[at] + panels.width[at] / 2), float(missing[at])
        return self.evaluator.certificate(
            one.example,
            tol,
            score=float(last),
            baseline_score=float(first),
            residual=found.residual,
            magnitude=found.size,
            error=0.0 if nothing else relative(max(found.error, floor), found.size),
            status=status,
            rule=f"adaptive {found.rule}" + ("" if found.extrapolated else " panels"),
            needed=end.needed,
            jump_at=jump_at,
            jump_size=jump_size,
            curves=tuple(self._curve(p, end, *scores[:, p]) for p in range(pieces)) if pieces > 1 else (),
        )

    def jumps(self, panels: Panels, candidate: int, example: int) -> Bools:
        """Where the score jumps: narrow panels that miss what their gradients, and rounding, cannot account for."""
        narrow = panels.width <= NARROW
        if not narrow.any():
            return narrow
        missing = np.abs(panels.missing[:, candidate])
        rounding = 50 * self.evaluator.epsilon * self.evaluator.function.scale[example]
        return np.asarray(narrow & (missing > UNSEEN * panels.norms[:, candidate]) & (missing > rounding))

    def _curve(self, piece: int, end: Decision, first: float, last: float) -> CurveCertificate:
        """The certificate of one piece, by the better candidate of the panel rule."""
        number, rule = end.found.candidate, self.mesh.rule
        mine = end.panels[end.panels.line // self.mesh.examples == piece]
        sums = self.mesh.sums[self.mesh.place[end.one.example], piece, 2 * number :]
        missing = float(mine.missing[:, number].sum())
        squares = np.array([(mine.indicators(rule, number) ** 2).sum()])
        error = estimate(rule.candidates[number].kappa, *norms_of(sums[1:2]), squares, np.array([missing]))
        share, size = float(self.shares[piece]), float(sums[0].abs().sum())
        nodes = rule.cells * len(mine) + 1
        return CurveCertificate(share, float(first), float(last), -missing, relative(float(error[0]), size), nodes)

    def weights_used(self, end: Decision) -> tuple[Nodes, Floats]:
        """The nodes and weights that the values are the sum of; ends that neighbouring panels share are listed twice."""
        one, found, panels, rule = end.one, end.found, end.panels, self.mesh.rule
        pieces = len(self.shares)
        if found.extrapolated and one.level is not None and rule.extrapolation is not None:
            fixed = rule.extrapolation(one.level)
            t, piece = np.tile(fixed.nodes, pieces), np.repeat(np.arange(pieces), len(fixed.nodes))
            weights = np.tile(fixed.weights, pieces)
        else:
            t = (panels.start[:, None] + panels.width[:, None] * rule.nodes).ravel()
            piece = np.repeat(panels.line // self.mesh.examples, len(rule.nodes))
            weights = panels.weights[:, found.candidate].ravel()
        return Nodes(t, np.full(len(t), one.example), piece), weights * self.shares[piece]
