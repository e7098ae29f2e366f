"""Changes of the score that its gradients do not see: jumps, many small steps, parts cut from autograd, rounding.

Gradients add up to the change of the score only if they are the gradients of that score. Where the score changes by more than
the gradients on either side account for, something narrower than the distance between them is behind it, which refinement will
find, or one of the following, which it never will:

- a *jump* at one place: a hard threshold, a rounding, an argmax;
- many small *steps*, as in a quantised model, which the gradients do not follow;
- a change *throughout*: part of the model or of the path is cut from autograd, or a backward pass is not the derivative;
- *rounding* inside the model: many small steps about a slope that the gradients do follow.

Forward passes tell them apart. The cell that misses most is cut into parts, the worst of these again, down to the narrowest: a
jump stays as large as it was. Where the change is spread over the parts, finite differences of the score, on two scales and at
several places off the grid, are held against the gradients there: those of an honest function agree. Steps that are also found
at places chosen without looking are everywhere; whether they are rounding is told by what the sum of the attributions misses.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch

from ..arrays import Bools, Floats, Ints
from ..evaluation.checks import score_rounding_along
from ..evaluation.evaluator import Evaluator
from ..paths.base import Nodes
from ..trees import flat

UNSEEN = 4.0
"""How many times more than its gradients account for a panel, or an example, must miss before it is looked into."""

HALF = 1e-4
"""The relative rounding from which on a precision is a half precision (float16 has 1e-3, float32 1e-7)."""

PARTS = 8
"""Parts that a cell is cut into at a time."""

FINEST = (2.0**-22, 2.0**-43)
"""How far apart times are at the least, in float32 and in float64."""

PLACES = (0.2113, 0.5393, 0.8613)
"""Where in a cell finite differences are taken: off every grid."""

SCALES = (1 / 16, 1 / 64)
"""How far to either side, over the width of the cell."""

TESTS = 4
"""How many times, on narrower and narrower cells, gradients are held against finite differences before that is given up."""

MOST = (TESTS + 1) * len(PLACES)
"""The most gradients that an example may take to be looked into."""

ROUNDINGS = 16.0
"""Roundings of the score that a change must exceed to be taken for one."""

EVERYWHERE = 2.0
"""Times what rounding moves scores by: what the sum may miss, of which the scores at both ends are part."""


@dataclass(frozen=True)
class UnseenChange:
    """What is behind a change of the score that the gradients do not account for.

    Attributes:
        kind: see the module; for all but "rounding" no integral of gradients can add up to the change of the score.
        at: where on its piece of the path the largest jump or step is, 0 to 1; None where there is none, be it for a change
            throughout or for the rounding that every score has.
        size: by how much the score changes there; for "rounding", by how much two scores may be off.
    """

    kind: Literal["jump", "steps", "throughout", "rounding"]
    at: float | None = None
    size: float = 0.0

    @property
    def hidden(self) -> bool:
        """Whether attributions cannot add up to the change of the score."""
        return self.kind != "rounding"

    @property
    def allowance(self) -> float:
        """What a panel may miss of the change of the score without that saying anything about the gradients."""
        return float("inf") if self.hidden else self.size


@dataclass(frozen=True)
class PathCells:
    """Stretches of paths between two places where the score is known, (N,) each.

    Attributes:
        example: whose path.
        piece: which piece of it.
        start: where they start.
        width: how wide they are.
        first: F at the start.
        last: F at the end.
        before: the slope at the nearest node before.
        after: at the nearest node after.
        low: the smallest slope known there.
        high: the largest.
    """

    example: Ints
    piece: Ints
    start: Floats
    width: Floats
    first: Floats
    last: Floats
    before: Floats
    after: Floats
    low: Floats
    high: Floats

    @staticmethod
    def between(nodes: Floats) -> PathCells:
        """Between neighbours on the same piece, of nodes (5, K) with example, piece, time, F and slope, sorted."""
        both = np.flatnonzero((np.diff(nodes[0]) == 0) & (np.diff(nodes[1]) == 0))
        here, there = nodes[:, both], nodes[:, both + 1]
        owner, slopes = here[:2].astype(np.int64), (here[4], there[4])
        low, high = np.minimum(*slopes), np.maximum(*slopes)
        return PathCells(owner[0], owner[1], here[2], there[2] - here[2], here[3], there[3], *slopes, low, high)

    def __len__(self) -> int:
        return len(self.example)

    def __getitem__(self, index: Any) -> PathCells:
        return PathCells(*[getattr(self, part.name)[index] for part in fields(self)])

    @property
    def excess(self) -> Floats:
        """By how much F changes beyond what the slopes account for, with its sign, (N,): nothing for a single kink."""
        rise = self.last - self.first
        return np.asarray(rise - np.clip(rise, self.width * self.low, self.width * self.high))

    @property
    def missing(self) -> Floats:
        """What the mean of the two slopes misses of the change of F, (N,)."""
        return np.asarray(self.last - self.first - self.width * (self.low + self.high) / 2)

    def cut(self, evaluator: Evaluator) -> PathCells:
        """The same stretches, each in so many parts in a row, (N * PARTS,); takes forward passes."""
        times = rounded(evaluator, self.start[:, None] + self.width[:, None] * np.arange(1, PARTS) / PARTS)
        scores = scores_of(evaluator, self, times)
        t = np.concatenate([self.start[:, None], times, (self.start + self.width)[:, None]], 1)
        values = np.concatenate([self.first[:, None], scores, self.last[:, None]], 1)
        same = self[np.repeat(np.arange(len(self)), PARTS)]
        start, first, last = (part.ravel() for part in (t[:, :-1], values[:, :-1], values[:, 1:]))
        return replace(same, start=start, width=np.diff(t, axis=1).ravel(), first=first, last=last)

    def knowing(self, slopes: Floats) -> PathCells:
        """The same stretches with slopes (N, n) found inside."""
        return replace(self, low=np.minimum(self.low, slopes.min(1)), high=np.maximum(self.high, slopes.max(1)))


def find_unseen(
    evaluator: Evaluator, examples: Ints, shares: Floats, *, ends: Floats | None = None, gradients: bool = True
) -> dict[int, UnseenChange]:
    """What is behind the changes of the score that gradients miss, for those examples where it is no matter of resolution.

    Args:
        evaluator: has evaluated gradients along the paths, and evaluates scores there.
        examples: which ones to look into.
        shares: the weight of each piece, (pieces,).
        ends: F at both ends of each piece, (2, pieces, all examples), where these are not among the nodes.
        gradients: whether a few gradients more may be taken, MOST for each example; it is surer with them.
    """
    cells = _unresolved(_cells_of(evaluator, examples, ends), shares)
    if not len(cells):
        return {}
    order = np.lexsort((np.abs(shares[cells.piece] * cells.excess), cells.example))
    worst = order[np.r_[np.diff(cells.example[order]) != 0, True]]
    examples, excess = cells.example[worst], np.abs(cells.excess[worst])
    rounding = ROUNDINGS * np.maximum(score_rounding_along(evaluator, examples), _last_place(evaluator, examples))
    # A score that stands still to the last place is saturated: what its gradients say is below its rounding.
    still = np.bincount(cells.example, np.abs(cells.last - cells.first), evaluator.function.examples)[examples] == 0
    missed = np.bincount(cells.example, np.abs(shares[cells.piece] * cells.missing), evaluator.function.examples)[examples]
    rounding = np.where(still, np.maximum(rounding, missed), rounding)
    out = {int(examples[k]): UnseenChange("rounding", None, float(2 * rounding[k])) for k in np.flatnonzero(excess <= rounding)}
    if not gradients:
        out |= _cut_off(evaluator, cells[order], {int(e): float(r) for e, r in zip(examples, rounding, strict=True)}, out)
    far = np.array([k for k, example in enumerate(examples) if example not in out], np.int64)
    traced = _traced(evaluator, cells[worst[far]], rounding[far], gradients=gradients)
    for k, found in zip(far, traced, strict=True):
        if found is not None and found.kind == "jump":
            mine = cells[cells.example == examples[k]]
            found = _named(evaluator, mine, found, float(rounding[k]), float(shares[mine.piece] @ mine.missing))
        if found is not None:
            out[int(examples[k])] = found
    return out


def _cut_off(
    evaluator: Evaluator, cells: PathCells, rounding: dict[int, float], known: dict[int, UnseenChange]
) -> dict[int, UnseenChange]:
    """The examples whose gradients are wrong next to each of the cells that miss most, told by forward passes alone.

    Args:
        evaluator: evaluates scores.
        cells: sorted by example, and then by what they miss.
        rounding: what may be rounding of the score, by example.
        known: the examples that need not be looked at.
    """
    last = np.flatnonzero(np.r_[np.diff(cells.example) != 0, True])
    first = np.r_[0, last[:-1] + 1]
    some = [np.arange(max(a, b + 1 - len(PLACES) - 1), b + 1) for a, b in zip(first, last, strict=True)]
    some = [index for index in some if len(index) > 2 and int(cells.example[index[0]]) not in known]
    if not some:
        return {}
    here = cells[np.concatenate(some)]
    inner = np.where(here.start > 0, here.start, here.start + here.width)[:, None]
    slopes = np.where(here.start > 0, here.before, here.after)[:, None]
    limits = np.array([rounding[int(example)] for example in here.example])
    wrong, _ = _follows(evaluator, here, limits, inner, slopes)
    return {int(e): UnseenChange("throughout") for e in np.unique(here.example) if wrong[here.example == e].all()}


def _cells_of(evaluator: Evaluator, examples: Ints, ends: Floats | None) -> PathCells:
    """The cells between all nodes of some examples that were evaluated so far."""
    seen = evaluator.profile()
    if seen is None:
        return PathCells.between(np.zeros((5, 0)))
    nodes = np.stack([seen.example, seen.piece, seen.t, seen.score, seen.slope])[:, np.isin(seen.example, examples)]
    if ends is not None:  # with the slope of the nearest node
        new = np.r_[True, (np.diff(nodes[:2]) != 0).any(0)]
        first, last = nodes[:, new].copy(), nodes[:, np.r_[new[1:], True]].copy()
        for side, part in enumerate((first, last)):
            part[2], part[3] = side, ends[side][part[1].astype(np.int64), part[0].astype(np.int64)]
        nodes = np.concatenate([nodes, first, last], 1)
        nodes = nodes[:, np.lexsort(nodes[2::-1])]
        nodes = nodes[:, np.r_[True, (np.diff(nodes[:3]) != 0).any(0)]]
    return PathCells.between(nodes)


def _unresolved(cells: PathCells, shares: Floats) -> PathCells:
    """The cells of the examples whose gradients leave a good part of what is missed without an account."""
    if not len(cells):
        return cells
    missing, excess = (shares[cells.piece] * part for part in (cells.missing, cells.excess))
    total, squares, left = (np.bincount(cells.example, part) for part in (missing, missing**2, np.abs(excess)))
    return cells[(left > np.maximum(np.abs(total), np.sqrt(squares)) / UNSEEN)[cells.example]]


def _last_place(evaluator: Evaluator, examples: Ints) -> Floats:
    """One unit in the last place of the score, or of the smallest number that means anything where it is all but zero.

    The logarithm of a probability of 1 is zero whatever happens at 1e-60 of it, where gradients still say something.
    """
    return np.asarray(evaluator.epsilon * np.maximum(evaluator.function.scale[examples], evaluator.epsilon))


def rounded(evaluator: Evaluator, times: Floats) -> Floats:
    """Times as paths are asked for them: in the precision of the points."""
    return np.asarray(torch.as_tensor(times).to(evaluator.dtype).double().numpy())


def scores_of(evaluator: Evaluator, cells: PathCells, times: Floats) -> Floats:
    """F on the paths of cells at times (N, n) each, (N, n)."""
    count = times.shape[1]
    nodes = Nodes(times.ravel(), np.repeat(cells.example, count), np.repeat(cells.piece, count))
    return evaluator.scores_at(nodes).reshape(times.shape)


def slopes_of(evaluator: Evaluator, cells: PathCells, times: Floats) -> Floats:
    """dF/dt on the paths of cells at times (N, n) each by gradients, (N, n)."""
    count = times.shape[1]
    out = np.zeros(times.size)
    nodes = Nodes(times.ravel(), np.repeat(cells.example, count), np.repeat(cells.piece, count))
    for done in evaluator.gradients_at(nodes):
        out[done.index] = done.slopes
    return out.reshape(times.shape)


def _traced(evaluator: Evaluator, cells: PathCells, rounding: Floats, *, gradients: bool) -> list[UnseenChange | None]:
    """Follow what cells miss down to the narrowest parts; None where the gradients account for it after all.

    Args:
        evaluator: evaluates scores.
        cells: one of each example.
        rounding: what may be rounding of the score, (N,).
        gradients: whether to take gradients where a change is spread over a cell; it is left alone otherwise.
    """
    out: list[UnseenChange | None] = [None] * len(cells)
    tests = np.zeros(len(cells), np.int64)
    finest = _finest(evaluator, cells)
    left, here = np.arange(len(cells)), cells
    while len(left):
        parts = here.cut(evaluator)
        each = np.abs(parts.excess).reshape(-1, PARTS)
        below = parts[np.arange(len(left)) * PARTS + each.argmax(1)]
        on = np.ones(len(left), bool)
        spread = np.flatnonzero((each.max(1) < np.abs(here.excess) / 2) & (here.width * SCALES[1] >= finest[left]))
        if not gradients:
            on[spread] = False
        spread = spread[gradients & (tests[left[spread]] < TESTS)]
        tests[left[spread]] += 1
        if len(spread):
            times = places_in(evaluator, here[spread])
            slopes = slopes_of(evaluator, here[spread], times)
            hidden, honest = _follows(evaluator, here[spread], rounding[left[spread]], times, slopes)
            for number in left[spread[hidden]]:
                out[number] = UnseenChange("throughout")
            on[spread[hidden]] = False
            tests[left[spread[honest]]] = TESTS
            known = np.repeat(below.low[:, None], len(PLACES), 1)
            known[spread] = slopes
            below = below.knowing(known)
        on &= np.abs(below.excess) > rounding[left]
        ended = np.flatnonzero(on & (below.width <= 2 * finest[left]))
        if len(ended):
            steps = _steps(evaluator, below[ended], rounding[left[ended]], finest[left[ended]], gradients=gradients)
            for number, found in zip(left[ended], steps, strict=True):
                out[number] = found
            on[ended] = False
        left, here = left[on], below[on]
    return out


def _finest(evaluator: Evaluator, cells: PathCells) -> Floats:
    """How far apart times must be, at the least, for points there to differ by several roundings, (N,)."""
    order = np.argsort(cells.piece, kind="stable")
    nodes = Nodes(cells.start[order] + cells.width[order] / 2, cells.example[order], cells.piece[order])

    def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Floats]:
        points, velocities = evaluator.points(here)
        speed = flat(velocities).abs()
        blurred = flat(points).abs() * torch.finfo(evaluator.dtype).eps
        moves = speed >= 0.01 * speed.amax(1, keepdim=True).clamp(min=torch.finfo(speed.dtype).tiny)
        coarse = torch.where(moves, blurred / speed, torch.zeros_like(speed)).amax(1)
        return index, coarse.double().cpu().numpy()

    out = np.zeros(len(nodes))
    for index, coarse in evaluator.in_chunks(nodes, evaluate):
        out[order[index]] = coarse
    return np.asarray(np.maximum(8 * out, FINEST[evaluator.dtype == torch.float64]))


def places_in(evaluator: Evaluator, cells: PathCells) -> Floats:
    """Times inside cells, off every grid, (N, places)."""
    return rounded(evaluator, cells.start[:, None] + cells.width[:, None] * np.array(PLACES))


def _follows(evaluator: Evaluator, cells: PathCells, rounding: Floats, times: Floats, slopes: Floats) -> tuple[Bools, Bools]:
    """Whether gradients are the derivative of the score, by finite differences on two scales.

    Args:
        evaluator: evaluates scores.
        cells: what misses part of the change of the score, N of them.
        rounding: what may be rounding of the score, (N,).
        times: inside each of them, or at its ends, (N, n).
        slopes: what the gradients say there, (N, n).

    Returns:
        Where they are not, at any of the times, by about as much as the cell misses and to the same side; where at most times
        they are, (N,) each. Neither may be the case.
    """
    off, unsure = [], []
    for scale in SCALES:
        step = scale * cells.width[:, None]
        before, after = (rounded(evaluator, np.clip(times + side, 0.0, 1.0)) for side in (-step, step))
        apart = np.maximum(after - before, 1e-300)
        scores = scores_of(evaluator, cells, np.concatenate([before, after], 1))
        off.append((scores[:, times.shape[1] :] - scores[:, : times.shape[1]]) / apart - slopes)
        unsure.append(rounding[:, None] / apart)
    density = (cells.excess / cells.width)[:, None]
    margin = np.maximum(4 * np.abs(off[0] - off[1]) + unsure[1], np.abs(density) / 4)
    wrong = [(np.abs(one) > margin) & (one * density > 0) for one in off]
    right = np.abs(off[1]) <= np.maximum(np.abs(density) / 4, unsure[1])
    return np.asarray((wrong[0] & wrong[1]).all(1)), np.asarray(right.sum(1) > times.shape[1] / 2)


def _steps(
    evaluator: Evaluator, cells: PathCells, rounding: Floats, finest: Floats, *, gradients: bool
) -> list[UnseenChange | None]:
    """What the narrowest cells hold: a jump, unless the gradients inside are steep enough to account for it.

    Args:
        evaluator: evaluates gradients.
        cells: so narrow that their ends are hardly more than a few roundings apart.
        rounding: what may be rounding of the score, (N,).
        finest: how far apart times must be for points to differ by several roundings, (N,).
        gradients: whether gradients may be evaluated inside.
    """
    if gradients:
        cells = cells.knowing(slopes_of(evaluator, cells, places_in(evaluator, cells)))
    seen = UNSEEN * np.maximum(cells.width, finest) * np.maximum(np.abs(cells.low), np.abs(cells.high))
    size, end = cells.last - cells.first, cells.start + cells.width
    at = np.where(cells.start == 0, 0.0, np.where(end >= 1, 1.0, cells.start + cells.width / 2))
    found = np.abs(size) > seen + rounding
    return [UnseenChange("jump", float(t), float(s)) if f else None for f, t, s in zip(found, at, size, strict=True)]


def _named(evaluator: Evaluator, cells: PathCells, jump: UnseenChange, rounding: float, misses: float) -> UnseenChange:
    """A jump on the path of one example by its right name: are there steps everywhere, and do gradients follow them?

    Args:
        evaluator: evaluates scores.
        cells: all of the example's.
        jump: what was found in the worst of them.
        rounding: what may be rounding of the score.
        misses: what the sum of the attributions misses.
    """
    worst = int(np.argmax(np.abs(cells.excess)))
    others = np.setdiff1d((np.arange(1, 4) * len(cells)) // 4, [worst])
    if not len(others):
        return jump
    first = cells[others].cut(evaluator)
    inside = np.array([3 + PARTS * row for row in range(len(others))])
    second = first[inside].cut(evaluator)
    sizes = np.stack([np.abs(part.excess).reshape(-1, PARTS).max(1) for part in (first, second)])
    rough = sizes.max(0) > max(rounding, abs(jump.size) / 16)
    if rough.sum() < 2:
        return jump
    amplitude = float(max(np.abs(first.missing).max(), np.abs(second.missing).max()))
    flat = not (cells.low.any() or cells.high.any())  # gradients that are zero follow nothing
    if abs(misses) <= EVERYWHERE * amplitude and not flat:
        return UnseenChange("rounding", jump.at, 2 * max(amplitude, float(np.abs(cells.excess).max())))
    return UnseenChange("steps", jump.at, jump.size)
