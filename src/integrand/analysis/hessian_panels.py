"""Integrated Hessians by panels: what each panel of a path gives for the matrix, how far off that is, and when to stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..certificate import Status
from ..paths.base import Nodes
from ..quadrature.log_kronrod import LOG_KRONROD, log_weights, slog, slog_between
from ..quadrature.panel_rules import PanelRule
from ..trees import add_rows
from .hessian_products import Curvature
from .interaction_rows import InteractionRows

Key = tuple[int, int, float]
"""A point: piece, example, and where on the path."""

CAUTION = 1.5
"""Jumps of several kinks in one panel may cancel in part: what is missed is raised by this."""

SPREAD = 100.0
"""The most that a kink is taken to change the matrix by, over what it changes the sums of rows by."""


@dataclass(frozen=True)
class HessianPanel:
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

    def cut(self, missed: float, places: tuple[float, ...] = ()) -> list[HessianPanel]:
        """Its parts: its halves, or what lies between given places."""
        inner = [s for s in places if self.start < s < self.stop] or [(self.start + self.stop) / 2]
        edges = [self.start, *inner, self.stop]
        return [HessianPanel(self.piece, self.example, a, b, self.depth + 1, missed) for a, b in pairwise(edges)]

    @property
    def ends(self) -> tuple[Key, Key]:
        """Its two ends."""
        return (self.piece, self.example, self.start), (self.piece, self.example, self.stop)


@dataclass(frozen=True)
class MeasuredPanels:
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
    profile: PanelProfile

    @property
    def errors(self) -> Floats:
        """(panels,) absolute L1 errors: the nested difference, and what gradients and scores show to be missing."""
        return self.nested + self.missed


class HessianMesh:
    """The panels of all unfinished examples that are open, and what the rule gives on them.

    Gradients at the ends of panels are kept as long as a panel may need them.

    Args:
        curvature: runs the model.
        shares: (pieces,) the weight of each baseline.
        rule: the panel rule.
    """

    def __init__(self, curvature: Curvature, shares: Floats, rule: PanelRule = LOG_KRONROD) -> None:
        self.rule, self.curvature = rule, curvature
        self.panels: list[HessianPanel] = []
        self.measured: MeasuredPanels
        self.shares = shares
        self.ends: dict[Key, tuple[float, Tensor]] = {}
        signs = np.random.default_rng(0).integers(0, 2, (curvature.evaluator.features, 3)) * 2.0 - 1
        signs[:, 0] = 1
        self.mixtures = torch.as_tensor(signs, dtype=curvature.wide, device=curvature.evaluator.device)
        epsilon = curvature.evaluator.epsilon
        self.inside = (epsilon, 1 - 4 * epsilon)
        """Gradients at the ends of the path are asked for just inside, where a kink that sits on x or x' does not count."""

    def refine(self, split: list[HessianPanel], fresh: Ints) -> None:
        """Open the parts of panels that were split, and the whole paths of fresh examples; evaluate all of their nodes."""
        every = range(len(self.shares))
        self.panels = split + [HessianPanel(piece, int(example), 0.0, 1.0) for example in fresh for piece in every]
        self.measured = self._measure(self.panels)

    def _measure(self, panels: Sequence[HessianPanel]) -> MeasuredPanels:
        """Evaluate all nodes of panels."""
        curvature, device = self.curvature, self.curvature.evaluator.device
        nodes_each = len(self.rule.nodes)
        rules = [log_weights(panel.start, panel.stop) for panel in panels]
        self._find_ends(panels)
        share = np.array([self.shares[panel.piece] for panel in panels])
        columns = np.stack(
            [[r.slog, r.slog_difference, r.log, r.log_difference, r.one, r.one_difference] for r in rules]
        ).transpose(0, 2, 1)
        weights = torch.as_tensor(columns.reshape(-1, 6), device=device, dtype=curvature.wide)
        nodes = Nodes(
            np.concatenate([rule.nodes for rule in rules]),
            np.repeat([panel.example for panel in panels], nodes_each),
            np.repeat([panel.piece for panel in panels], nodes_each),
        )
        count, rows = len(panels), curvature.rows
        matrix = weights.new_zeros(2, count, len(rows), rows.columns)
        first = weights.new_zeros(4, count, curvature.evaluator.features)
        total = weights.new_zeros(count, curvature.evaluator.features)
        size, straight = np.zeros(count), np.ones(count, bool)
        scores, mixed = np.empty(len(nodes)), np.empty((2, len(nodes), 3))
        for done in curvature.at(nodes):
            panel = done.index // nodes_each
            scores[done.index] = done.scores
            for i, part in enumerate((done.terms, done.totals)):
                mixed[i, done.index] = (part @ self.mixtures).double().cpu().numpy()
            where = torch.as_tensor(panel, device=device)
            weight = weights[torch.as_tensor(done.index.copy(), device=device)]
            for i in range(2):
                add_rows(matrix[i], where, done.products * weight[:, i, None, None])
            for i in range(4):
                add_rows(first[i], where, done.terms * weight[:, 2 + i, None])
            add_rows(total, where, done.totals * weight[:, 4, None])
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
        return MeasuredPanels(
            values, attributions, nested * share, missed * share, size * share, straight, stubborn, kinks, profile
        )

    def _profile(self, panels: Sequence[HessianPanel], t: Floats, scores: Floats, mixed: Floats) -> PanelProfile:
        """The numbers along panels with those at their ends."""
        ends = [[self.ends[key] for key in panel.ends] for panel in panels]
        s = np.array([[panel.start, panel.stop] for panel in panels])
        f = np.array([[a[0], b[0]] for a, b in ends])
        slopes = torch.stack([torch.stack([a[1], b[1]]) for a, b in ends]) @ self.mixtures
        g, curves = slopes.double().cpu().numpy(), mixed[1].reshape(len(panels), -1, 3)

        def around(inner: Floats, outer: Floats) -> Floats:
            return np.concatenate([outer[:, :1], inner.reshape(len(panels), -1, *inner.shape[1:]), outer[:, 1:]], 1)

        return PanelProfile(around(t, s), around(scores, f), around(mixed[0], g), around(mixed[1], curves[:, [0, -1]]))

    def _missed(self, panels: Sequence[HessianPanel], total: Tensor, given: Tensor) -> tuple[Floats, Bools, Corners]:
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

    def _find_ends(self, panels: Sequence[HessianPanel]) -> None:
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


STUBBORN = 0.75
"""A panel holds a kink if it misses at least this share of what the panel that it was cut from did."""

FINEST, FINEST_ROUNDINGS = 1e-7, 256.0
"""A panel with one kink is this narrow, or so many roundings if that is wider."""

NOISE = 16.0
"""By so many roundings a jump may be off."""

WINDOW = 1 / 30
"""A kink is looked for within this share of its cell on both sides of where the sides meet."""


@dataclass(frozen=True)
class Corners:
    """What narrow panels with a kink add.

    Attributes:
        which: (panels,) the panels that have one.
        values: (kinks, rows, columns).
        errors: (kinks,) absolute L1.
    """

    which: Bools
    values: Tensor
    errors: Floats


def corners(which: Bools, jumps: Tensor, sizes: Floats, ends: Floats, rows: InteractionRows, epsilon: float) -> Corners:
    """Count the kinks of some panels: a jump J of gradient times velocity adds J J' / (J . 1) times -s ln s.

    Args:
        which: (panels,) those that are narrow and hold a kink.
        jumps: (panels, features).
        sizes: (panels,) L1 norms of gradient times velocity.
        ends: (panels, 2) where panels start and stop.
        rows: which rows are wanted.
        epsilon: a rounding.
    """
    index = np.flatnonzero(which)
    jump = jumps[torch.as_tensor(index, device=jumps.device)]
    along, whole = (part.double().cpu().numpy() for part in (jump.sum(1), jump.abs().sum(1)))
    noise = NOISE * epsilon * sizes[index]
    good = np.abs(along) > noise
    index, jump, along, whole, noise = index[good], jump[torch.as_tensor(good)], along[good], whole[good], noise[good]
    width, weight = np.diff(ends[index], axis=1)[:, 0], slog(ends[index].mean(1))
    factor = torch.as_tensor(weight / along, dtype=jump.dtype, device=jump.device)
    mine = rows.picked(jump)
    values = mine[:, :, None] * rows.reduced(jump)[:, None] * factor[:, None, None]
    spread = whole / np.abs(along)
    off = noise / np.abs(along) * (1 + spread) + spread * width * (len(index) + 1 / np.maximum(weight, 1e-9))
    found = np.zeros_like(which)
    found[index] = True
    return Corners(found, values, off * weight * mine.abs().sum(1).double().cpu().numpy())


@dataclass(frozen=True)
class PanelProfile:
    """A few numbers along panels, (panels, nodes + 2 ends) each, (..., 3) for the slope and two random mixtures of features."""

    s: Floats
    scores: Floats
    slopes: Floats
    curves: Floats

    def cuts(self, panel: int, depth: int) -> tuple[float, float]:
        """Where to cut a panel so that its kink is in the middle: around a cell, or at every other depth around a point."""
        s, slopes, curves = self.s[panel], self.slopes[panel], self.curves[panel]
        width = np.diff(s)
        off = np.abs(np.diff(slopes, axis=0) - (curves[1:] + curves[:-1]) / 2 * width[:, None]).sum(1)
        k = int(np.argmax(off))
        if depth % 2:
            return float(s[k]), float(s[k + 1])
        h = width[k]
        first, last = self.scores[panel, k : k + 2]
        (rise, bend), (fall, tail) = ((slopes[i, 0], curves[i, 0]) for i in (k, k + 1))
        # first + rise t + bend t^2 / 2 meets last - fall (h - t) + tail (h - t)^2 / 2
        roots = np.roots([(bend - tail) / 2, rise - fall + tail * h, first - last + fall * h - tail * h**2 / 2])
        inside = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and 0 <= root.real <= h]
        if not inside:
            return float(s[k]), float(s[k + 1])
        middle, reach = s[k] + inside[-1], max(h * WINDOW, FINEST * 0.45)
        return float(max(middle - reach, s[0])), float(min(middle + reach, s[-1]))


CLOSED = 0.25
"""The share of what is left of the tolerance that panels may take which are not looked at again."""

DEEPEST = 2 / 3
"""Panels are halved until their width over their distance from the baseline is this power of a rounding."""

SOON = 3
"""Panels that were cut so often tell whether what they miss is a kink."""

MANY = 100
"""Kinks beyond this number in a curved score are not looked for one by one."""

ROUNDINGS = 1e5
"""Errors up to so many roundings of what is summed may be noise."""

BLOCK_BYTES = 1 << 30
"""Matrices of panels that are worked on at a time, where the user names no limit."""

PANELS = 16
"""Panels that an example is expected to have open at a time, and may have in any case."""


@dataclass
class FoundInteractions:
    """An example's result.

    Attributes:
        values: (rows, columns).
        attributions: (features,).
        error: absolute L1 error.
        status: how it ended.
        rule: how it was integrated.
        kinks: kinks that were found and counted.
    """

    values: Tensor
    attributions: Tensor
    error: float
    status: Status
    rule: str = "Gauss-Kronrod"
    kinks: int | None = None


@dataclass
class OpenInteraction:
    """An unfinished example: what is closed of it, and the panels that are open."""

    example: int
    open: list[HessianPanel]
    values: Tensor
    attributions: Tensor
    error: float = 0.0
    stuck: float = 0.0  # what closed panels miss however narrow they are: kinks and jumps
    size: float = 0.0
    points: int = 0
    kinks: int = 0
    history: list[float] = field(default_factory=list)
    missed: list[float] = field(default_factory=list)  # what all panels missed after each round, closed ones left out


@dataclass(frozen=True)
class InteractionLimits:
    """When to stop: the tolerance, points per example, and bytes for matrices of panels."""

    tol: float
    points: int
    bytes: int

    def panel_bytes(self, rows: InteractionRows) -> int:
        """What a panel takes: its matrix, the embedded one, and one that is worked on."""
        return 3 * 8 * len(rows) * rows.columns


class HessianIntegral:
    """The integrated Hessians of a batch, for the adaptive loop.

    Args:
        mesh: the panels.
        limits: when to stop.

    Attributes:
        done: what was found, by example.
        linear: the examples that are piecewise linear, with kinks that second derivatives do not see.
    """

    def __init__(self, mesh: HessianMesh, limits: InteractionLimits) -> None:
        self.mesh, self.limits, self.curvature = mesh, limits, mesh.curvature
        examples = self.curvature.evaluator.function.examples
        each = PANELS * len(mesh.shares) * limits.panel_bytes(self.curvature.rows)
        self.block = int(np.clip(limits.bytes // each, 1, examples))
        self.waiting = deque(range(examples))
        self.active: list[OpenInteraction] = []
        self.done: dict[int, FoundInteractions] = {}
        self.linear: list[int] = []

    def admit(self, split: list[HessianPanel]) -> Ints:
        """The next block of examples, once all of the last one have ended."""
        if self.active:
            return np.zeros(0, np.int64)
        fresh = [self.waiting.popleft() for _ in range(min(self.block, len(self.waiting)))]
        self.active = [self._started(example) for example in fresh]
        return np.array(fresh, np.int64)

    def _started(self, example: int) -> OpenInteraction:
        rows, evaluator = self.curvature.rows, self.curvature.evaluator
        zero = torch.zeros((), dtype=self.curvature.wide, device=evaluator.device)
        panels = [HessianPanel(piece, example, 0.0, 1.0) for piece in range(len(self.mesh.shares))]
        return OpenInteraction(example, panels, zero.new_zeros(len(rows), rows.columns), zero.new_zeros(evaluator.features))

    def judge(self, fresh: Ints) -> list[HessianPanel]:
        """End the examples that have ended, and split the panels of the others that the error sits in."""
        measured, nodes = self.mesh.measured, len(self.mesh.rule.nodes)
        place, going = 0, []
        for one in self.active:
            index = np.arange(place, place + len(one.open))
            place += len(one.open)
            if _is_linear(one, measured, index, self.limits.tol):
                self.linear.append(one.example)
                continue
            found = _step(one, measured, index, self.limits, self.curvature, nodes)
            if found is None:
                going.append(one)
            else:
                self.done[one.example] = found
        self.active = going
        evaluator, split = self.curvature.evaluator, [panel for one in going for panel in one.open]
        evaluator.tell(len(self.done) + len(self.linear), int(evaluator.gradients.sum()) + nodes * len(split))
        return split


def _is_linear(
    one: OpenInteraction, measured: MeasuredPanels, index: np.ndarray[tuple[int], np.dtype[np.int64]], tol: float
) -> bool:
    """Whether an example has kinks and between them nothing but straight pieces, as in a ReLU network."""
    if one.points or not measured.straight[index].all():
        return False
    return bool(measured.errors[index].sum() > min(tol, 1e-3) * measured.values[index].sum(0).abs().sum())


def _step(
    one: OpenInteraction,
    measured: MeasuredPanels,
    index: np.ndarray[tuple[int], np.dtype[np.int64]],
    limits: InteractionLimits,
    curvature: Curvature,
    nodes: int,
) -> FoundInteractions | None:
    """Judge an example after a refinement round: finished, or with other panels open; ``nodes`` is the number on a panel."""
    epsilon = curvature.evaluator.epsilon
    errors, missed = measured.errors[index], measured.missed[index]
    one.points += nodes * len(index)
    values = one.values + measured.values[index].sum(0)
    attributions = one.attributions + measured.attributions[index].sum(0)
    error, norm = one.error + float(errors.sum()), float(values.abs().sum())
    size = one.size + float(measured.size[index].sum())
    one.history.append(error)
    one.missed.append(float(missed.sum()))
    status = None
    if error <= limits.tol * norm or error == 0:
        status = Status.CONVERGED
    elif _is_noise(one.history, ROUNDINGS * epsilon * size):
        status = Status.NOISE
    else:
        closed = _closed(errors, CLOSED * max(limits.tol * norm - one.error, 0.0)) | measured.kinks[index]
        deep = np.array([p.stop - p.start <= max(epsilon**DEEPEST * p.start, epsilon) for p in one.open])
        split = np.flatnonzero(~closed & ~deep)
        stubborn = np.array([panel.depth >= SOON for panel in one.open]) & measured.stubborn[index]
        many = len(split) >= MANY and one.missed[-1] > 0.5 * one.missed[0]
        full = 3 * len(split) > max(PANELS, limits.bytes // limits.panel_bytes(curvature.rows))
        if many or full or not len(split) or one.points + 2 * nodes * len(split) > limits.points:
            stuck = one.stuck + float(missed[stubborn].sum())
            if many or _contradicted(one.missed, float(measured.nested[index].sum())):
                stuck = float(missed.sum())
            status = Status.BUDGET if len(split) else Status.NOISE
            status = Status.JUMP if stuck > CLOSED * limits.tol * norm and stuck > CLOSED * error else status
    if status is not None:
        kinks = one.kinks + int(measured.kinks[index].sum())
        return FoundInteractions(values, attributions, error, status, kinks=kinks or None)
    keep = index[closed | deep]
    one.values += measured.values[keep].sum(0)
    one.attributions += measured.attributions[keep].sum(0)
    one.size += float(measured.size[keep].sum())
    one.error += float(errors[closed | deep].sum())
    one.stuck += float(missed[deep & stubborn].sum())
    one.kinks += int(measured.kinks[keep].sum())
    one.open = [part for k in split for part in _parts(one.open[k], measured, int(index[k]))]
    return None


def _parts(panel: HessianPanel, measured: MeasuredPanels, place: int) -> list[HessianPanel]:
    """The halves of a panel, or what is around its kink and the kink."""
    missed = float(measured.missed[place])
    if panel.depth and measured.stubborn[place]:
        return panel.cut(missed, measured.profile.cuts(place, panel.depth))
    return panel.cut(missed)


def _closed(errors: Floats, budget: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The panels with the smallest errors, as many as may stay as they are."""
    order = np.argsort(errors, kind="stable")
    closed = np.zeros(len(errors), bool)
    closed[order] = np.cumsum(errors[order]) <= budget
    return closed


def _contradicted(missed: list[float], nested: float) -> bool:
    """Whether second derivatives agree with each other, and not with the gradients: a backward pass that is not its own."""
    return len(missed) >= SOON and missed[-1] > 0.5 * missed[0] and nested < 0.1 * missed[-1]


def _is_noise(history: list[float], floor: float) -> bool:
    """Whether errors are small and do not fall any more."""
    return len(history) >= 3 and history[-1] <= floor and min(history[-2:]) > 0.5 * history[-3]
