"""Piecewise linear scores, such as ReLU networks: their second derivatives sit in kinks, and each kink is found and counted.

Between kinks the Hessian is zero. At a kink the gradient jumps by a vector J that is normal to the kink's plane, so the Hessian
is J J' / (J . (x - x')) times a delta function of s, and the matrix takes (J_i d_i)(J_j d_j) / (J . d) times -s ln s. No second
derivative has to be evaluated; what has to be known are the places of the kinks, each in a cell of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..arrays import Floats
from ..certificate import Status
from ..evaluation.checks import noise, score_rounding
from ..evaluation.evaluator import Evaluator
from ..paths.base import Nodes
from ..quadrature.log_kronrod import log_integral, slog
from .hessian_panels import FoundInteractions, InteractionLimits
from .interaction_rows import InteractionRows

Bools = NDArray[np.bool_]

CELLS = 16
"""Cells to start with, on each line."""

FLAT = 32
"""Gradients that differ by less than so many roundings are the same."""

FINEST, FINEST_ROUNDINGS = 1e-9, 256.0
"""A cell with one kink is this narrow, or so many roundings if that is wider."""

NEAR, NEAR_PLACES = 1e-4, np.array([0.1371, 0.3719, 0.6183, 0.8537])
"""So far apart, at some places, gradients are the same unless there are thousands of kinks."""

OPEN_SPREAD = 10.0
"""In a cell with several kinks their jumps may cancel: more than this over their sum is not to be believed."""


@dataclass
class KinkLine:
    """What is known along one line: nodes ``s`` (n,), scores (n,), and gradients times velocity (n, features)."""

    s: Floats
    scores: Floats
    terms: Floats

    @staticmethod
    def empty(features: int) -> KinkLine:
        """A line of which nothing is known."""
        return KinkLine(np.empty(0), np.empty(0), np.empty((0, features)))

    def add(self, s: Floats, scores: Floats, terms: Floats) -> None:
        """Put new nodes where they belong."""
        order = np.argsort(np.concatenate([self.s, s]), kind="stable")
        self.s = np.concatenate([self.s, s])[order]
        self.scores = np.concatenate([self.scores, scores])[order]
        self.terms = np.concatenate([self.terms, terms])[order]


@dataclass(frozen=True)
class Rounding:
    """What rounding does: relative, to a score, to gradient times velocity (L1), and how narrow a cell may get."""

    epsilon: float
    score: float
    gradient: float

    @property
    def finest(self) -> float:
        """The width of a cell with one kink."""
        return max(FINEST, FINEST_ROUNDINGS * self.epsilon)


@dataclass(frozen=True)
class Cells:
    """The cells of a line.

    Attributes:
        width: (n,).
        jumps: (n, features) by how much gradient times velocity changes.
        along: (n,) their sums, the change of slope.
        bent: (n,) whether there is a kink inside.
        narrow: (n,) whether a cell is too narrow to be cut.
        noise: (n,) L1, what rounding does to the gradient.
    """

    width: Floats
    jumps: Floats
    along: Floats
    bent: Bools
    narrow: Bools
    noise: Floats

    @staticmethod
    def of(line: KinkLine, rounding: Rounding) -> Cells:
        """Look at each cell."""
        width, jumps = np.diff(line.s), np.diff(line.terms, axis=0)
        sizes = np.abs(line.terms).sum(1)
        noise = rounding.epsilon * np.maximum(sizes[1:], sizes[:-1]) + rounding.gradient
        slopes = line.terms.sum(1)
        gap = np.abs(np.diff(line.scores) - (slopes[1:] + slopes[:-1]) / 2 * width)
        # Of the largest on the line: where a score crosses zero, it is the difference of numbers that are no smaller.
        same = 2 * np.abs(line.scores).max() + sizes[1:] * width
        same = FLAT * (rounding.epsilon * same + rounding.score)
        bent = (np.abs(jumps).sum(1) > FLAT * noise) | (gap > same)
        return Cells(width, jumps, np.diff(slopes), bent, width <= rounding.finest, noise)


def find_kinks(
    evaluator: Evaluator, rows: InteractionRows, shares: Floats, examples: list[int], limits: InteractionLimits
) -> dict[int, FoundInteractions]:
    """The matrices of examples whose scores are piecewise linear between the baselines and the input."""
    if not examples:
        return {}
    scores, (gradients, _) = score_rounding(evaluator.function), noise(evaluator, np.array(examples))
    pairs = zip(examples, gradients.tolist(), strict=True)
    rounding = {e: Rounding(evaluator.epsilon, float(scores[e]), noise) for e, noise in pairs}
    hidden = _curved(evaluator, rounding)
    lines = {(e, p): KinkLine.empty(evaluator.features) for e in examples for p in range(len(shares))}
    inner = np.arange(1, CELLS) / CELLS
    asked = dict.fromkeys(lines, np.concatenate([[evaluator.epsilon], inner, [1 - 4 * evaluator.epsilon]]))
    most = min(limits.points, limits.bytes // (32 * evaluator.features * len(examples)))
    spent = dict.fromkeys(examples, 0)
    while asked:
        _evaluate(evaluator, lines, asked)
        for (e, _), s in asked.items():
            spent[e] += len(s)
        found = {key: _cuts(lines[key], rounding[key[0]]) for key in asked if key[0] not in hidden}
        wanted = {e: spent[e] + sum(len(s) for (other, _), s in found.items() if other == e) for e in examples}
        asked = {key: s for key, s in found.items() if len(s) and wanted[key[0]] <= most}
    out = {}
    for e in examples:
        mine = [lines[e, p] for p in range(len(shares))]
        one = _summed(evaluator, rows, shares, mine, rounding[e], limits.tol)
        out[e] = replace(one, status=Status.JUMP, kinks=None) if e in hidden and one.status is not Status.CONVERGED else one
    return out


def _curved(evaluator: Evaluator, rounding: dict[int, Rounding]) -> set[int]:
    """The examples whose gradient changes wherever one looks.

    Then it is not piecewise constant, and its own derivative is zero only because a backward pass hides it; or there are far
    more kinks than can be told apart.
    """
    times = np.add.outer(NEAR_PLACES, [0.0, NEAR]).ravel()
    examples = np.array(list(rounding))
    nodes = Nodes(
        np.tile(times, len(examples)), np.repeat(examples, len(times)), np.zeros(len(examples) * len(times), np.int64)
    )
    terms = np.empty((len(nodes), evaluator.features))
    for done in evaluator.gradients_at(nodes):
        terms[done.index] = done.terms.double().cpu().numpy()
    changes = np.abs(terms[1::2] - terms[::2]).sum(1).reshape(len(examples), -1)
    sizes = np.abs(terms[::2]).sum(1).reshape(len(examples), -1)
    noise = evaluator.epsilon * sizes + np.array([one.gradient for one in rounding.values()])[:, None]
    return set(examples[(changes > FLAT * noise).all(1)].tolist())


def _evaluate(evaluator: Evaluator, lines: dict[tuple[int, int], KinkLine], asked: dict[tuple[int, int], Floats]) -> None:
    """Run the model at the places that are asked for, on all lines together."""
    counts = [len(s) for s in asked.values()]
    times = np.concatenate(list(asked.values()))
    examples, pieces = (np.repeat([key[i] for key in asked], counts) for i in (0, 1))
    scores, terms = np.empty(len(times)), np.empty((len(times), evaluator.features))
    for done in evaluator.gradients_at(Nodes(times, examples, pieces)):
        scores[done.index] = done.scores
        terms[done.index] = done.terms.double().cpu().numpy()
    first = 0
    for key, count in zip(asked, counts, strict=True):
        part = slice(first, first + count)
        lines[key].add(times[part], scores[part], terms[part])
        first += count


def _cuts(line: KinkLine, rounding: Rounding) -> Floats:
    """Where to look next: on both sides of where the tangents meet, or in the middle of a cell."""
    cells = Cells.of(line, rounding)
    index = np.flatnonzero(cells.bent & ~cells.narrow)
    if not len(index):
        return np.empty(0)
    a, width, along = line.s[index], cells.width[index], cells.along[index]
    slope = line.terms[index + 1].sum(1)
    safe = np.where(along == 0, 1.0, along)
    shift = (line.scores[index] - line.scores[index + 1] + slope * width) / safe
    # How well the scores tell the place.
    doubt = 8 * (rounding.epsilon * (np.abs(line.scores[index]) + np.abs(slope) * width) + rounding.score) / np.abs(safe)
    reach = np.maximum(0.45 * rounding.finest, doubt)
    met = (along != 0) & (shift > -reach) & (shift < width + reach) & (reach < width / 8)
    # Close to an end it may be several kinks that only seem to be one there: then the middle tells, too.
    sure = met & (np.minimum(shift, width - shift) > width / 16)
    middle = a[~sure] + width[~sure] / 2
    low, high = (a + shift - reach)[met], (a + shift + reach)[met]
    inside = [low[low > a[met]], high[high < (a + width)[met]]]
    return np.unique(np.concatenate([middle, *inside]))


def _summed(
    evaluator: Evaluator, rows: InteractionRows, shares: Floats, lines: list[KinkLine], rounding: Rounding, tol: float
) -> FoundInteractions:
    values = torch.zeros(len(rows), rows.columns, dtype=torch.float64)
    own = torch.zeros(1, evaluator.features, dtype=torch.float64)
    attributions = torch.zeros(evaluator.features, dtype=torch.float64)
    mine = InteractionRows(rows.masks.cpu(), rows.names, rows.places, None if rows.labels is None else rows.labels.cpu())
    error, unresolved, leaps, count = 0.0, 0.0, 0.0, 0
    for share, line in zip(shares, lines, strict=True):
        cells = Cells.of(line, rounding)
        edges = np.concatenate([[0.0], line.s[1:-1], [1.0]])
        mean = (line.terms[1:] + line.terms[:-1]) / 2
        own += share * torch.as_tensor(np.diff(log_integral(edges)) @ mean)[None]
        attributions += share * torch.as_tensor(np.diff(edges) @ mean)
        leaps += share * np.abs(np.diff(line.scores) - cells.width * mean.sum(1))[cells.bent].sum()
        kinks = _Kinks.of(line, cells)
        count += int(kinks.resolved.sum())
        jumps = torch.as_tensor(kinks.jumps)
        scale = torch.as_tensor(share * kinks.factor)
        values += (mine.picked(jumps) * scale[:, None]).T @ mine.reduced(jumps)
        size = np.abs(mine.picked(jumps).numpy()).sum(1)
        error += share * float((kinks.doubt * size).sum())
        unresolved += share * float((kinks.doubt * size)[~kinks.resolved].sum())
    values += mine.own(own)[0]
    norm = float(values.abs().sum())
    error += float(leaps)
    status = Status.CONVERGED
    if error > tol * norm:
        status = Status.BUDGET if unresolved > error / 2 else Status.JUMP if leaps > error / 2 else Status.NOISE
    device = evaluator.device
    return FoundInteractions(values.to(device), attributions.to(device), error, status, "kinks", count)


@dataclass(frozen=True)
class _Kinks:
    """Cells with a kink.

    Attributes:
        jumps: (kinks, features).
        factor: (kinks,) what the outer product of the jump is multiplied by.
        doubt: (kinks,) the L1 error of a kink's matrix over the L1 norm of its rows.
        resolved: (kinks,) whether the cell is narrow.
    """

    jumps: Floats
    factor: Floats
    doubt: Floats
    resolved: Bools

    @staticmethod
    def of(line: KinkLine, cells: Cells) -> _Kinks:
        """Collect them."""
        index = np.flatnonzero(cells.bent)
        jumps, along, noise = cells.jumps[index], cells.along[index], cells.noise[index]
        resolved, weight = cells.narrow[index], slog(line.s[index] + cells.width[index] / 2)
        size = np.abs(jumps).sum(1)
        good = np.abs(along) > np.where(resolved, 4 * noise, size / OPEN_SPREAD)
        safe = np.where(good, along, 1.0)
        spread = size / np.abs(safe)
        # Rounding of the jump, of its sum, and of the place; and another kink by chance in the same cell.
        off = 4 * (noise / np.abs(safe)) * (1 + spread) + spread * cells.width[index] * (
            len(index) + 1 / np.maximum(weight, 1e-9)
        )
        doubt = weight * np.where(good, np.where(resolved, off, spread), OPEN_SPREAD)
        return _Kinks(jumps, np.where(good, weight / safe, 0.0), doubt, resolved)
