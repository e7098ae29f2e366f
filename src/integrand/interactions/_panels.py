"""Panels of the path: what each gives for the matrix, and what says how far off that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..execute._nodes import Floats, Nodes
from ._corners import FINEST, FINEST_ROUNDINGS, STUBBORN, Corners, Profile, corners
from ._evaluate import Curvature
from ._rule import NODES, panel_rule, slog_between

Bools = NDArray[np.bool_]
Key = tuple[int, int, float]
"""A point: piece, example, and where on the path."""

CAUTION = 1.5
"""Jumps of several kinks in one panel may cancel in part: what is missed is raised by this."""

SPREAD = 100.0
"""The most that a kink is taken to change the matrix by, over what it changes the sums of rows by."""


@dataclass(frozen=True)
class Panel:
    """A stretch of the path from one baseline to one example.

    Attributes:
        piece: which baseline.
        example: which example.
        start: where it starts.
        stop: where it stops.
        depth: how often it was cut.
        inherited: what the panel that it is part of missed.
    """

    piece: int
    example: int
    start: float
    stop: float
    depth: int = 0
    inherited: float = np.inf

    def cut(self, missed: float, places: tuple[float, ...] = ()) -> list[Panel]:
        """Its parts: its halves, or what lies between given places."""
        inner = [s for s in places if self.start < s < self.stop] or [(self.start + self.stop) / 2]
        edges = [self.start, *inner, self.stop]
        return [Panel(self.piece, self.example, a, b, self.depth + 1, missed) for a, b in pairwise(edges)]

    @property
    def ends(self) -> tuple[Key, Key]:
        """Its two ends."""
        return (self.piece, self.example, self.start), (self.piece, self.example, self.stop)


@dataclass(frozen=True)
class Measured:
    """What panels give, weighted by the share of their baseline.

    Attributes:
        values: (panels, rows, columns).
        attributions: (panels, features), integrated gradients.
        nested: (panels,) the L1 difference of the two rules.
        missed: (panels,) what the second derivatives do not tell of the change of gradients, and gradients of the change of
            scores: kinks and jumps, or too few nodes.
        size: (panels,) the L1 norm of what was summed, for telling rounding.
        straight: (panels,) whether every second derivative was exactly zero.
        stubborn: (panels,) whether they miss about as much as the wider panels that they were cut from.
        kinks: (panels,) whether they are narrow and hold a kink, which is then part of the values.
        profile: where to look for the kinks of the others.
    """

    values: Tensor
    attributions: Tensor
    nested: Floats
    missed: Floats
    size: Floats
    straight: Bools
    stubborn: Bools
    kinks: Bools
    profile: Profile

    @property
    def errors(self) -> Floats:
        """(panels,) absolute L1 errors: what both witnesses say."""
        return self.nested + self.missed


class Measuring:
    """Measures panels; gradients at their ends are kept as long as a panel may need them.

    Args:
        curvature: runs the model.
        shares: (pieces,) the weight of each baseline.
    """

    def __init__(self, curvature: Curvature, shares: Floats) -> None:
        self.curvature = curvature
        self.shares = shares
        self.ends: dict[Key, tuple[float, Tensor]] = {}
        signs = np.random.default_rng(0).integers(0, 2, (curvature.evaluator.features, 3)) * 2.0 - 1
        signs[:, 0] = 1
        self.mixtures = torch.as_tensor(signs, dtype=curvature.wide, device=curvature.evaluator.device)
        epsilon = curvature.evaluator.epsilon
        self.inside = (epsilon, 1 - 4 * epsilon)
        """Gradients at the ends of the path are asked for just inside, where a kink that sits on x or x' does not count."""

    def __call__(self, panels: Sequence[Panel]) -> Measured:
        """Evaluate all nodes of panels."""
        curvature, device = self.curvature, self.curvature.evaluator.device
        rules = [panel_rule(panel.start, panel.stop) for panel in panels]
        self._find_ends(panels)
        share = np.array([self.shares[panel.piece] for panel in panels])
        columns = np.stack(
            [[r.slog, r.slog_difference, r.log, r.log_difference, r.one, r.one_difference] for r in rules]
        ).transpose(0, 2, 1)
        weights = torch.as_tensor(columns.reshape(-1, 6), device=device, dtype=curvature.wide)
        nodes = Nodes(
            np.concatenate([rule.nodes for rule in rules]),
            np.repeat([panel.example for panel in panels], NODES),
            np.repeat([panel.piece for panel in panels], NODES),
        )
        count, rows = len(panels), curvature.rows
        matrix = weights.new_zeros(2, count, len(rows), rows.columns)
        first = weights.new_zeros(4, count, curvature.evaluator.features)
        total = weights.new_zeros(count, curvature.evaluator.features)
        size, straight = np.zeros(count), np.ones(count, bool)
        scores, mixed = np.empty(len(nodes)), np.empty((2, len(nodes), 3))
        for done in curvature.at(nodes):
            panel = done.index // NODES
            scores[done.index] = done.scores
            for i, part in enumerate((done.terms, done.totals)):
                mixed[i, done.index] = (part @ self.mixtures).double().cpu().numpy()
            where = torch.as_tensor(panel, device=device)
            weight = weights[torch.as_tensor(done.index.copy(), device=device)]
            for i in range(2):
                matrix[i].index_add_(0, where, done.products * weight[:, i, None, None])
            for i in range(4):
                first[i].index_add_(0, where, done.terms * weight[:, 2 + i, None])
            total.index_add_(0, where, done.totals * weight[:, 4, None])
            norm = done.products.abs().sum((1, 2)) * weight[:, 0].abs() + done.terms.abs().sum(1) * weight[:, 2].abs()
            np.add.at(size, panel, norm.double().cpu().numpy())
            np.logical_and.at(straight, panel, ~(done.products.flatten(1).any(1) | done.totals.any(1)).cpu().numpy())
        missed, stubborn, found = self._missed(panels, total, first[2])
        scale = weights.new_tensor(share)
        values = matrix[0] + rows.own(first[0])
        values[torch.as_tensor(found.which, device=device)] += found.values
        values *= scale[:, None, None]
        nested = (matrix[1] + rows.own(first[1])).abs().sum((1, 2)).double().cpu().numpy()
        attributed = rows.picked(first[3].abs()).sum(1).double().cpu().numpy()
        nested = np.maximum(nested, attributed)
        profile = self._profile(panels, nodes.t, scores, mixed)
        attributions, kinks = first[2] * scale[:, None], found.which
        return Measured(values, attributions, nested * share, missed * share, size * share, straight, stubborn, kinks, profile)

    def _profile(self, panels: Sequence[Panel], t: Floats, scores: Floats, mixed: Floats) -> Profile:
        """The numbers along panels with those at their ends."""
        ends = [[self.ends[key] for key in panel.ends] for panel in panels]
        s = np.array([[panel.start, panel.stop] for panel in panels])
        f = np.array([[a[0], b[0]] for a, b in ends])
        slopes = torch.stack([torch.stack([a[1], b[1]]) for a, b in ends]) @ self.mixtures
        g, curves = slopes.double().cpu().numpy(), mixed[1].reshape(-1, NODES, 3)

        def around(inner: Floats, outer: Floats) -> Floats:
            return np.concatenate([outer[:, :1], inner.reshape(len(panels), NODES, *inner.shape[1:]), outer[:, 1:]], 1)

        return Profile(around(t, s), around(scores, f), around(mixed[0], g), around(mixed[1], curves[:, [0, -1]]))

    def _missed(self, panels: Sequence[Panel], total: Tensor, given: Tensor) -> tuple[Floats, Bools, Corners]:
        """What panels miss: kinks, by gradients at the ends, and jumps, by scores; and the kinks that are alone."""
        starts, stops = ([self.ends[panel.ends[i]] for panel in panels] for i in (0, 1))
        change = torch.stack([b - a for (_, a), (_, b) in zip(starts, stops, strict=True)])
        gap = total - change
        along, whole = gap.sum(1).abs(), gap.abs().sum(1)
        # A single kink adds gap gap' / (gap . 1) to the matrix: where its plane is nearly parallel to the path, that is far
        # more than what it adds to the sums of rows.
        spread = torch.where(along > 0, whole / along.clamp_min(torch.finfo(along.dtype).tiny), 1.0).clamp(1.0, SPREAD)
        kinks = (self.curvature.rows.picked(gap).abs().sum(1) * spread).double().cpu().numpy()
        kinks *= CAUTION * np.array([slog_between(panel.start, panel.stop) for panel in panels])
        rise = np.array([b - a for (a, _), (b, _) in zip(starts, stops, strict=True)])
        leaps = np.abs(given.sum(1).double().cpu().numpy() - rise)
        inherited = np.array([panel.inherited for panel in panels]) / [self.shares[panel.piece] for panel in panels]
        stubborn = np.maximum(kinks, leaps) >= STUBBORN * inherited
        ends = np.array([[panel.start, panel.stop] for panel in panels])
        sizes = np.array([float(b.abs().sum()) for _, b in stops])
        epsilon = self.curvature.evaluator.epsilon
        alone = stubborn & (np.diff(ends, axis=1)[:, 0] <= max(FINEST, FINEST_ROUNDINGS * epsilon))
        found = corners(alone, -gap, sizes, ends, self.curvature.rows, epsilon)
        kinks[found.which] = found.errors
        return np.maximum(kinks, leaps), stubborn, found

    def _find_ends(self, panels: Sequence[Panel]) -> None:
        """Scores and gradients at ends that are new; those that no panel here has are forgotten."""
        wanted = list(dict.fromkeys(key for panel in panels for key in panel.ends))
        examples = {panel.example for panel in panels}
        used = set(wanted)
        self.ends = {key: end for key, end in self.ends.items() if key in used or key[1] not in examples}
        new = [key for key in wanted if key not in self.ends]
        if not new:
            return
        pieces, rows, times = (np.array(column) for column in zip(*new, strict=True))
        nodes = Nodes(np.clip(times.astype(float), *self.inside), rows, pieces)
        for done in self.curvature.evaluator.gradients_at(nodes):
            for k, score, terms in zip(done.index.tolist(), done.scores.tolist(), done.terms, strict=True):
                self.ends[new[k]] = score, terms.to(self.curvature.wide)
