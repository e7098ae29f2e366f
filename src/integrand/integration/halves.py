"""Steps between the nodes that cancel in the score, found by moving half of the features at a time.

Where attributions cancel in the score (a network that ranks pairs, weights that add up to zero), a step between two nodes may
leave no trace in any gradient or score on the path. It leaves one beside the path. From node a to node b, half of the features
move while the others stay, once at a and once at b: the mean of the two changes of the score is the Shapley value of that half
in a game of two players. Where the score is smooth it differs from the integrated gradients of that half by the third power of
the distance at the most. A step stays as large as it is, however narrow.

So a difference that shrinks with the distance comes from features that act together; one that does not was hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from ..arrays import Bools, Floats, Ints
from ..errors import IntegrandError
from ..evaluation.evaluator import Mixture
from ..paths.base import Nodes
from ..quadrature.panel_rules import SCORE_ROUNDINGS, interpolation
from ..trees import on_device, unflat
from .error import Claim, Refutation
from .mesh import Mesh

HIDDEN = 0.5
"""Share of the tolerance that may be hidden between the nodes before a claim is refuted."""

MANY_FEATURES, MAX_CAUTION = 0.4, 10.0
"""Caution for N features: their hidden error is taken to be MANY_FEATURES * sqrt(N) above what one half of them shows, but no
more than MAX_CAUTION (600 features): what thousands show of a smooth score would be raised above the tolerance."""

ZOOMED, PARTS = 8, (2, 4, 8)
"""Number of cells that are looked at more closely, those that may hide most, and the parts that each may be cut into."""

SURE = 1.5
"""How far below the limit a smooth score is to be brought by looking more closely."""

LARGE = 0.1
"""Share of what the worst panel hides, from which on a panel is halved."""


class HalvesTest:
    """Looks between the nodes of claims whose attributions cancel in the score.

    Args:
        mesh: the panels.
        shares: the weight of each piece, (pieces,).
        tol: the tolerance.
    """

    def __init__(self, mesh: Mesh, shares: Floats, tol: float) -> None:
        self.mesh, self.shares, self.tol, self.evaluator = mesh, shares, tol, mesh.evaluator
        self.halves = halves_of(self.evaluator.features)
        choices = on_device(self.halves, self.evaluator.device)
        choices = choices if self.evaluator.columns is None else choices[:, self.evaluator.columns]
        self.masks = unflat(choices, [leaf.shape[1:] for leaf in self.evaluator.function.inputs])

    def refuted(self, claims: Sequence[Claim]) -> dict[int, Refutation]:
        """The claims that do not hold, by example."""
        present = self.mesh.panels.slots[:, 0] >= 0
        panels = [claim.index[present[claim.index]] for claim in claims]
        try:
            hidden = self._hidden(claims, panels)
        except (IntegrandError, RuntimeError, ValueError):
            # A model may refuse points beside the path: the others of a batch are looked at all the same.
            return {} if len(claims) == 1 else {e: r for claim in claims for e, r in self.refuted([claim]).items()}
        refutations = {}
        for claim, index, parts in zip(claims, panels, hidden, strict=True):
            if parts.sum() > self._limit(claim):
                claim.one.suspect = True
                error = max(claim.found.error, float(parts.sum()))
                refutations[claim.one.example] = Refutation(error, index[parts >= LARGE * parts.max()])
        return refutations

    def _limit(self, claim: Claim) -> float:
        """The most that may be hidden: the error that is claimed shows here, too."""
        return max(HIDDEN * self.tol * claim.found.size, claim.found.error)

    def _hidden(self, claims: Sequence[Claim], panels: Sequence[Ints]) -> list[Floats]:
        """L1 error hidden in each panel of each claim."""
        index, counts = np.concatenate(panels), np.array([len(part) for part in panels])
        cells = self.mesh.rule.cells
        panel, cell = np.repeat(np.arange(len(index)), cells), np.tile(np.arange(cells), len(index))
        owner = np.repeat(np.arange(len(claims)), counts * cells)
        coarse = np.abs(self._differences(index, panel, cell, 1)[:, 0])
        first = np.r_[0, np.cumsum(counts * cells)[:-1]]
        half = np.add.reduceat(coarse, first).argmax(1)[owner]  # of each claim the split that shows most
        hidden = coarse[np.arange(len(coarse)), half]
        scale, limit = np.array([self._caution(claim) for claim in claims]), np.array([self._limit(claim) for claim in claims])
        excess = scale * np.add.reduceat(hidden, first) / np.maximum(limit, 1e-300)
        order = np.lexsort((-hidden, owner))
        rank = np.argsort(order, kind="stable") - first[owner]
        # In as few parts as bring a smooth score below the limit: what it hides falls with their square.
        parts = np.where(excess > 1, np.array(PARTS)[np.searchsorted(np.square(PARTS[:-1]), SURE * excess)], 1)
        for count in PARTS:
            zoomed = np.flatnonzero((parts[owner] == count) & (rank < ZOOMED))
            if not len(zoomed):
                continue
            closer = np.abs(self._differences(index, panel[zoomed], cell[zoomed], count)).sum(1)
            fine = np.minimum(closer[np.arange(len(zoomed)), half[zoomed]], hidden[zoomed])
            before, after = (np.bincount(owner[zoomed], part, len(claims)) for part in (hidden[zoomed], fine))
            # The rest is taken to shrink alike.
            hidden *= np.where(parts == count, after / np.maximum(before, 1e-300), 1.0)[owner]
            hidden[zoomed] = fine
        return np.split(np.bincount(panel, scale[owner] * hidden, len(index)), np.cumsum(counts)[:-1])

    def _caution(self, claim: Claim) -> float:
        """Factor by which more may be hidden than one half of the features shows: 2, and more of many features.

        Of N independent errors a half shows the root of their sum of squares, which is 1 / sqrt(N) of their L1 norm.
        """
        root = float(torch.linalg.vector_norm(claim.found.values))
        return 2 * min(max(1.0, MANY_FEATURES * claim.found.size / root if root else 1.0), MAX_CAUTION)

    def _differences(self, index: Ints, panel: Ints, cell: Ints, parts: int) -> Floats:
        """Shapley values of halves of the features less their integrated gradients, in equal parts of cells.

        Args:
            index: panels of the mesh.
            panel: the panel of each cell, an index into these, (N,).
            cell: the number of the cell in its panel, (N,).
            parts: the number of parts that each cell is cut into.

        Returns:
            (N, parts, halves), times the weight of the piece; 0 where it is rounding.
        """
        mesh, panels = self.mesh, self.mesh.panels[index]
        terms = self._sums(panels.slots)
        weights = part_weights(mesh.rule.cells, parts)[:, cell] * panels.width[panel][:, None, None]
        integrals = np.einsum("icpn,cnh->icph", weights, terms[panel])
        line, width = panels.line[panel], panels.width[panel] / mesh.rule.cells
        times = (panels.start[panel] + cell * width)[:, None] + width[:, None] * np.arange(parts + 1) / parts
        if parts == 1:
            on_path = mesh.store.scores[panels.slots[panel[:, None], cell[:, None] + np.arange(2)]]
        else:
            on_path = mesh.source.scores_at(self._nodes(line, times)).reshape(times.shape)
        before, after = times[:, :-1], times[:, 1:]
        # Each half moves once with the rest at the first time, and stays once while the rest moves.
        ways = len(self.halves)
        nodes, rest = (
            self._nodes(np.tile(line, 2 * ways), np.concatenate(pair * ways)) for pair in ([after, before], [before, after])
        )
        nodes, rest = (mesh.paths.in_t(each)[0] for each in (nodes, rest))
        mixture = Mixture(rest.t, np.repeat(np.arange(ways), 2 * before.size), self.masks)
        scores = self.evaluator.scores_at(nodes, mixture).reshape(ways, 2, *before.shape)
        values = (scores[:, 0] - on_path[:, :-1] + on_path[:, 1:] - scores[:, 1]) / 2
        slack = 2 * SCORE_ROUNDINGS * self.evaluator.rounding * np.abs(scores).max(1)
        off = np.abs(values.transpose(1, 2, 0) - integrals).min(0)
        beyond = np.maximum(off - slack.transpose(1, 2, 0), 0.0)
        share = np.abs(self.shares[line // mesh.examples])
        # Points beside the path may be outside the model's domain.
        return np.asarray(np.where(np.isfinite(beyond), beyond, 0.0) * share[:, None, None])

    def _sums(self, slots: Ints) -> Floats:
        """Terms at nodes (panels, n), added up over each half of the features, (panels, n, halves)."""
        store, device = self.mesh.store, self.mesh.device
        columns = on_device(self.halves.T.astype(np.float64), device, torch.float64)
        count = max(1, self.mesh.block_bytes // (8 * slots.shape[1] * store.features))
        blocks = [store.rows(slots[first : first + count]).double() @ columns for first in range(0, len(slots), count)]
        return np.asarray(torch.cat(blocks).cpu().numpy())

    def _nodes(self, line: Ints, times: Floats) -> Nodes:
        """Nodes at times (N, k) of lines (N,)."""
        piece, example = np.divmod(np.repeat(line, times.shape[1]), self.mesh.examples)
        return Nodes(times.ravel(), example, piece)


def halves_of(features: int) -> Bools:
    """Two ways to take half of the features, which tell most pairs apart, (ways, features); none for a single feature.

    >>> halves_of(2)
    array([[False,  True]])
    """
    rank = np.random.default_rng(features).permutation(features) if features > 2 else np.arange(features)
    return np.stack([rank % 2 == 1, rank // 2 % 2 == 1])[: min(features - 1, 2)]


@cache
def part_weights(cells: int, parts: int) -> Floats:
    """Weights of the nodes of a panel of width 1 that integrate over each part of each cell, by lines and by a polynomial.

    >>> part_weights(4, 1)[0, 0, 0]
    array([0.125, 0.125, 0.   , 0.   , 0.   ])

    Returns:
        (2, cells, parts, cells + 1): by lines, by a polynomial.
    """
    places, weights = np.polynomial.legendre.leggauss(3)
    at = (np.arange(cells * parts)[:, None] + (1 + places) / 2) / parts
    rows = np.array([[interpolation(cells, float(place)) for place in part] for part in at])  # (cells * parts, 3, 2, n)
    sums = np.einsum("pgkn,g->kpn", rows, weights / 2) / (cells * parts)
    return np.asarray(sums.reshape(2, cells, parts, cells + 1))
