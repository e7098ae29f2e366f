"""Flashes of a probability: stretches between the nodes where it may be far larger than at the nodes, told by its log-odds.

A softmax makes a probability of logits. Between two nodes at which it is 1e-5 it may rise to 0.02 and fall again, and neither
its values nor its slopes at these nodes are noticeable beside the rest of the path. Its log-odds are: their slopes at the nodes
do not fit their values. The gradient's size over p (1 - p), the gradient of the log-odds, varies little from node to node, so
that forward passes between the nodes tell how much of the attributions is missed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats, Ints
from ..paths.base import Nodes
from .error import Claim, Refutation
from .mesh import NONE, Mesh

UNRESOLVED = 0.5
"""How far log-odds may be from the straight line between two nodes, by their slopes there: beyond this they are looked at."""

POSSIBLE = 1 / 16
"""Over the tolerance: what may be missed between two nodes that are looked at."""

MISSED = 0.5
"""Over the tolerance: what is missed between all nodes, from which on a claim does not hold."""

LARGE = 0.1
"""Panels are halved that miss at least this share of what the worst one misses."""

MOST = 64
"""Stretches of one example that are looked at, those first that may hide most."""

FEW: Floats = np.array([0.2113, 0.5393, 0.8613])
MANY: Floats = (np.arange(13.0) + 0.5393) / 13.5
"""Where between two nodes: off every grid; and where log-odds bend by more than BENT."""

BENT = 3.0


@dataclass(frozen=True)
class Stretches:
    """Stretches between neighbouring nodes, N of them, that are looked at in the same places.

    Attributes:
        claim: the number of the claim.
        places: where on each stretch, 0 to 1, (k,).
        panel: the panel of the mesh, (N,).
        line: its line, (N,).
        start: where they start, (N,).
        width: how wide they are, (N,).
        share: the width times the weight of the piece, (N,).
        odds: log-odds at both ends, (N, 2).
        sizes: the gradient's L1 norm over p (1 - p) at both ends, (N, 2).
    """

    claim: int
    places: Floats
    panel: Ints
    line: Ints
    start: Floats
    width: Floats
    share: Floats
    odds: Floats
    sizes: Floats

    def nodes(self, examples: int) -> Nodes:
        """The places on all stretches, (N * k,)."""
        piece, example = np.divmod(np.repeat(self.line, len(self.places)), examples)
        return Nodes((self.start[:, None] + self.width[:, None] * self.places).ravel(), example, piece)

    def missed(self, odds: Floats) -> Floats:
        """What the two ends miss of the attributions, L1, given the log-odds at the places, (N,)."""
        places = np.r_[0.0, self.places, 1.0]
        every = np.concatenate([self.odds[:, :1], odds.reshape(-1, len(self.places)), self.odds[:, 1:]], 1)
        inside = np.broadcast_to(self.sizes.min(1, keepdims=True), (len(every), len(self.places)))
        sizes = np.concatenate([self.sizes[:, :1], inside, self.sizes[:, 1:]], 1)
        masses = _spread(every) * sizes * self.share[:, None]
        parts = (masses[:, 1:] + masses[:, :-1]) / 2 * np.diff(places)
        changes = np.abs(np.diff(1 / (1 + np.exp(-every)), axis=1)) * (self.share / self.width)[:, None]
        return np.asarray(np.maximum(np.maximum(parts, changes).sum(1) - (masses[:, 0] + masses[:, -1]) / 2, 0.0))


class OddsTest:
    """Looks between the nodes of claims whose scores are probabilities.

    Args:
        mesh: the panels.
        shares: the weight of each piece, (pieces,).
        claims: the examples that claim to have converged, with scores from 0 to 1 at all nodes.
        tol: the tolerance.

    Attributes:
        nodes: where scores are to be looked at.
    """

    def __init__(self, mesh: Mesh, shares: Floats, claims: Sequence[Claim], tol: float) -> None:
        self.mesh, self.shares, self.claims, self.tol = mesh, shares, claims, tol
        self.least = float(max(mesh.evaluator.rounding, np.finfo(np.float64).eps))
        every = [stretches for number in range(len(claims)) for stretches in self._stretches(number)]
        self.stretches = [stretches for stretches in every if len(stretches.panel)]
        parts = [stretches.nodes(mesh.examples) for stretches in self.stretches]
        columns = zip(*((part.t, part.rows, part.pieces) for part in parts), strict=True)
        self.nodes = Nodes(*map(np.concatenate, columns)) if parts else Nodes(np.zeros(0), NONE, NONE)

    def _stretches(self, number: int) -> list[Stretches]:
        """The stretches of a claim that may hide something: those to look at in a few places, and those in many."""
        claim, mesh = self.claims[number], self.mesh
        index = claim.index[mesh.panels.slots[claim.index, 0] >= 0]
        panels, limit, cells = mesh.panels[index], self.tol * claim.found.size, mesh.rule.cells
        scores = mesh.store.scores[panels.slots]
        if not len(panels):
            return []
        width = np.repeat(panels.width[:, None] / cells, cells, 1)
        odds, spread = self._odds(scores)
        slopes, sizes = mesh.store.slopes[panels.slots] / spread, np.maximum(panels.masses, 1e-200) / spread
        first, last = odds[:, :-1], odds[:, 1:]
        rise = last - first
        bend = (np.abs(slopes[:, :-1] * width - rise) + np.abs(slopes[:, 1:] * width - rise)) / 4
        nearest = np.clip(0.0, np.minimum(first, last) - bend, np.maximum(first, last) + bend)
        # The log-odds' gradient is at least as large as their change, whatever it is at the ends.
        least = np.maximum(np.minimum(sizes[:, :-1], sizes[:, 1:]), np.abs(rise) / width)
        possible = _spread(nearest) * least
        seen = np.maximum(panels.masses[:, :-1], panels.masses[:, 1:])
        share = np.abs(self.shares[panels.line // mesh.examples])[:, None] * width
        hidden = np.where(bend > UNRESOLVED, (possible - seen) * share, 0.0)
        row, cell = np.nonzero(hidden > POSSIBLE * limit)
        some = np.sort(np.argsort(-hidden[row, cell], kind="stable")[:MOST])
        row, cell = row[some], cell[some]
        out = []
        for places, mine in ((FEW, bend[row, cell] <= BENT), (MANY, bend[row, cell] > BENT)):
            at, side = row[mine], cell[mine]
            out.append(
                Stretches(
                    number,
                    places,
                    index[at],
                    panels.line[at],
                    panels.start[at] + side * width[at, side],
                    width[at, side],
                    share[at, side],
                    np.stack([odds[at, side], odds[at, side + 1]], 1),
                    np.stack([sizes[at, side], sizes[at, side + 1]], 1),
                )
            )
        return out

    def _odds(self, scores: Floats) -> tuple[Floats, Floats]:
        """Log-odds of probabilities, and p (1 - p); both as far as rounding tells them."""
        p = np.clip(scores, 1e-100, 1.0)
        rest = np.maximum(1 - p, self.least)
        return np.log(p) - np.log(rest), p * rest

    def refuted(self, scores: Floats) -> dict[int, Refutation]:
        """The claims that do not hold, by example, given the scores at the nodes."""
        counts = [len(stretches.panel) * len(stretches.places) for stretches in self.stretches]
        inside = np.split(self._odds(np.clip(scores, 0.0, 1.0))[0], np.cumsum(counts)[:-1])
        missed = [part.missed(odds) for part, odds in zip(self.stretches, inside, strict=False)]
        out = {}
        for number, claim in enumerate(self.claims):
            mine = [k for k, part in enumerate(self.stretches) if part.claim == number]
            total = sum(float(missed[k].sum()) for k in mine)
            if total > MISSED * self.tol * claim.found.size:
                most = max(float(missed[k].max()) for k in mine)
                worst = np.concatenate([self.stretches[k].panel[missed[k] >= LARGE * most] for k in mine])
                out[claim.one.example] = Refutation(max(claim.found.error, total), np.unique(worst))
        return out


def _spread(odds: Floats) -> Floats:
    """Variance p (1 - p) of log-odds."""
    small = np.exp(-np.abs(odds))
    return np.asarray(small / (1 + small) ** 2)
