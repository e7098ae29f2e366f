"""Panel rules as values: where the nodes of a panel are, how they are weighed, and what that says about the error.

The adaptive loop takes such a value and knows nothing else of it. :data:`FIVE_POINT` integrates gradients. On its panels the
trapezoid rule on 5, 3 and 2 nodes (T_f, T_h, T_q) and Simpson's on 5 and 3 (S_f, S_h) are at hand. Two regimes decide which to
trust. Gradients of ReLU networks move along a path like Brownian motion: T_f is then the best that can be made of the nodes,
and its error is |T_f - T_h| / sqrt(3) in expectation. Gradients of smooth networks are smooth: S_f is far better, and |S_f -
S_h| bounds its error generously. :data:`~integrand.quadrature.log_kronrod.LOG_KRONROD` integrates Hessians.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from .fixed_rules import Rule, romberg

Values = TypeVar("Values", Floats, Tensor)

CAUTION = 1.03
"""On real image networks the estimate is within a few per cent of the truth; this puts it on the safe side of it."""

FEW_FEATURES = 4.0
"""The estimate of a sum over N independent features varies like 1 / sqrt(N); it is raised by 1 + this / sqrt(N)."""

KINKED = 0.2
"""The last candidate's nested difference over the first one's, from which on a panel may hold a kink."""

ONE_KINK = 0.01
"""A panel is taken to hold one kink if that explains all but this share of its nested difference."""

ROUNDINGS = 64
"""How many roundings a score or a slope may be off by, where a kink is placed by them."""


@dataclass(frozen=True)
class Candidate:
    """One of the rules that share a panel's nodes.

    Attributes:
        name: for the certificate.
        kappa: its error over its nested difference.
        shrink: the squared error indicator of each half of a panel over that of the panel, used to plan ahead.
    """

    name: str
    kappa: float
    shrink: float


@dataclass(frozen=True, eq=False)
class PanelRule:
    """A rule for one panel of a path, which may be halved.

    Attributes:
        name: what it is called.
        nodes: where its nodes are on a panel from 0 to 1, (n,).
        candidates: the rules that share these nodes, the most robust one first.
        columns: for each candidate its weights, and their difference to the weights of a coarser rule on some of the nodes,
            on a panel of width 1, (2 * candidates, n).
        extrapolation: from the number of halvings of [0, 1] to a rule on all nodes of equal panels, of higher order.
        kinks: whether a panel with one kink may be weighed by where the score says that the kink is.
    """

    name: str
    nodes: Floats
    candidates: tuple[Candidate, ...]
    columns: Floats
    extrapolation: Callable[[int], Rule] | None = None
    kinks: bool = False

    @property
    def cells(self) -> int:
        """The intervals between the nodes of a panel."""
        return len(self.nodes) - 1

    def count(self, halvings: int) -> int:
        """The nodes on a path that is one panel halved so many times; neighbouring panels share an end."""
        return int(self.cells * 2**halvings + 1)

    def weights(self, width: Floats) -> Floats:
        """The columns on panels of some widths, (panels, 2 * candidates, n)."""
        return np.asarray(self.columns * width[:, None, None])


_FULL = np.array([1, 2, 2, 2, 1]) / 8
_HALF = np.array([1, 0, 2, 0, 1]) / 4
_ENDS = np.array([1, 0, 0, 0, 1]) / 2

FIVE_POINT = PanelRule(
    "five-point",
    np.arange(5) / 4,
    # The trapezoid's kappa is what Brownian gradients predict, Simpson's a generous bound. A half is half as wide and has half
    # of the jumps: squared indicators fall by 8 for Brownian gradients, and by far more than 64 for smooth ones.
    (Candidate("trapezoid", 3**-0.5, 1 / 8), Candidate("simpson", 0.45, 1 / 64)),
    np.stack([_FULL, _FULL - _HALF, (4 * _FULL - _HALF) / 3, ((4 * _FULL - _HALF) - (4 * _HALF - _ENDS)) / 3]),
    extrapolation=romberg,
    kinks=True,
)
"""Five equally spaced nodes: halves use all of them again."""


@dataclass(frozen=True)
class PanelSums:
    """What a rule gives on panels.

    Attributes:
        sums: for each candidate its value and its nested difference, (panels, 2 * candidates, features) in float64; where
            there is one kink, all values are those of the kink rule, and all differences those of the first candidate.
        norms: L1 norms of the nested differences, (panels, candidates).
        missing: the change of F that each candidate misses, (panels, candidates).
        weights: what the values weigh the nodes with, (panels, candidates, n).
    """

    sums: Tensor
    norms: Floats
    missing: Floats
    weights: Floats


def measure(rule: PanelRule, nodes: Tensor, scores: Floats, slopes: Floats, widths: Floats, dtype: torch.dtype) -> PanelSums:
    """Apply a rule to panels.

    Args:
        rule: the rule.
        nodes: (panels, n, features) gradients times velocity.
        scores: (panels, n) F at the nodes.
        slopes: (panels, n) dF/dt at the nodes, the sum of ``nodes`` over features.
        widths: (panels,) lengths in t.
        dtype: what to compute in.
    """
    wide = nodes.to(dtype)
    weights = rule.weights(widths)
    columns = torch.as_tensor(weights, dtype=dtype, device=nodes.device)
    sums = torch.bmm(columns, wide)  # of all ways to write this the fastest, on a CPU and on a GPU
    found = torch.cat([torch.linalg.vector_norm(part, 1, 2) for part in (sums[:, 1::2], wide)], 1).double().cpu().numpy()
    count = len(rule.candidates)
    norms, sizes = found[:, :count].copy(), found[:, count:]
    rise = scores[:, -1] - scores[:, 0]
    missing = rise[:, None] - (slopes @ rule.columns.T * widths[:, None])[:, ::2]
    used = weights[:, ::2].copy()
    if rule.kinks:
        index = np.flatnonzero((norms[:, -1] > KINKED * norms[:, 0]) & (norms[:, 0] > 0))
        epsilon = torch.finfo(nodes.dtype).eps
        index, fine, values = _with_one_kink(index, wide, scores, slopes, widths, sizes, norms[:, 0], epsilon)
        if len(index):
            at = torch.as_tensor(index, device=nodes.device)
            used[index] = fine[:, None]
            # The kink rule has no honest error of its own (two kinks in one cell look like one): it keeps the trapezoid's.
            difference = sums[at, 1]
            for candidate in range(count):
                sums[at, 2 * candidate], sums[at, 2 * candidate + 1] = values, difference
            norms[index] = norms[index, :1]
            missing[index] = (rise[index] - (slopes[index] * fine).sum(1))[:, None]
    return PanelSums(sums, norms, missing, used)


def _with_one_kink(
    index: Ints, wide: Tensor, scores: Floats, slopes: Floats, widths: Floats, sizes: Floats, norms: Floats, epsilon: float
) -> tuple[Ints, Floats, Tensor]:
    """Those of some panels that hold one kink, the weights of their nodes, (panels, 5), and what these give; see `measure`."""
    if len(index):
        maybe, fine, rough = _kink_weights(scores[index], slopes[index], widths[index], sizes[index], epsilon)
        index, fine, rough = index[maybe], fine[maybe], rough[maybe]
    if not len(index):
        return index, np.zeros((0, scores.shape[1])), wide[:0, 0]
    columns = torch.as_tensor(np.stack([fine, fine - rough], 1), dtype=wide.dtype, device=wide.device)
    both = torch.bmm(columns, wide[torch.as_tensor(index, device=wide.device)])
    change = torch.linalg.vector_norm(both[:, 1], 1, 1).double().cpu().numpy()
    good = change <= ONE_KINK * norms[index]
    # Indices, not a mask: a GPU would have to be waited for to count it.
    return index[good], fine[good], both[torch.as_tensor(np.flatnonzero(good), device=wide.device), 0]


def weighed(rule: PanelRule, nodes: Tensor, weights: Floats, widths: Floats, dtype: torch.dtype) -> Tensor:
    """The sums that :func:`measure` gave, recomputed from the weights that it gave with them.

    Args:
        rule: the rule.
        nodes: (panels, n, features).
        weights: (panels, candidates, n), as in :class:`PanelSums`.
        widths: (panels,).
        dtype: what to compute in.
    """
    columns = rule.weights(widths).copy()
    columns[:, ::2] = weights
    kink = (weights == weights[:, :1]).all((1, 2))
    columns[kink, 1::2] = columns[kink, 1:2]
    return torch.bmm(torch.as_tensor(columns, dtype=dtype, device=nodes.device), nodes.to(dtype))


def _kink_weights(
    scores: Floats, slopes: Floats, widths: Floats, sizes: Floats, epsilon: float
) -> tuple[Bools, Floats, Floats]:
    """Node weights if the gradient is constant but for one kink in each cell, placed where the score says it is.

    In a cell [a, b] with one kink, F(b) - F(a) = h (s F'(a) + (1 - s) F'(b)), where s is the share before the kink. The
    weights (s, 1 - s) are then exact for every feature.

    Scores and slopes are rounded: what they cannot tell must not decide, or the answer would hang on the rounding.

    Args:
        scores: (panels, 5) F at the nodes.
        slopes: (panels, 5) dF/dt at the nodes.
        widths: (panels,) lengths in t.
        sizes: (panels, 5) L1 norms of what the slopes are sums of.
        epsilon: the precision of scores and slopes.

    Returns:
        Where that can be (all shares within [0, 1]), the weights on the four cells, and on the two double cells.
    """
    largest = np.abs(scores).max(1, keepdims=True)

    def cells(step: int) -> tuple[Bools, Floats]:
        first, last = np.arange(0, 4, step), np.arange(step, 5, step)
        length = (widths * step / 4)[:, None]
        rise = (scores[:, last] - scores[:, first]) / length
        before, after = slopes[:, first], slopes[:, last]
        jump = before - after
        size = np.abs(before) + np.abs(after) + np.abs(rise)
        blur_slope = ROUNDINGS * epsilon * np.maximum(sizes[:, first], sizes[:, last])
        blur = blur_slope + ROUNDINGS * epsilon * largest / length
        flat = np.abs(jump) <= 1e-6 * size + blur_slope
        height = np.where(flat, 1.0, jump)
        share = np.where(flat, 0.5, (rise - after) / height)
        slack = np.where(flat, 0.0, blur / np.abs(height))
        placed = (share > -1e-4 - slack) & (share < 1 + 1e-4 + slack) & (slack < 0.02)
        inside = np.all(placed & (~flat | (np.abs(rise - before) <= 1e-4 * size + blur)), axis=1)
        share = np.clip(share, 0, 1)
        weights = np.zeros((len(widths), 5))
        weights[:, first] += share * length
        weights[:, last] += (1 - share) * length
        return inside, weights

    fine_ok, fine = cells(1)
    rough_ok, rough = cells(2)
    return fine_ok & rough_ok, fine, rough


@lru_cache(maxsize=64)
def interpolation(cells: int, place: float) -> Floats:
    """Weights of equally spaced nodes 0 to ``cells`` for the value at a place: straight lines, and a polynomial; (2, n).

    >>> interpolation(4, 2.5) @ np.array([0.0, 1.0, 4.0, 9.0, 16.0])
    array([6.5 , 6.25])
    """
    steps = np.arange(cells + 1)
    lines = np.clip(1 - np.abs(steps - place), 0, None)
    polynomial = [np.prod([(place - other) / (k - other) for other in steps if other != k]) for k in steps]
    return np.stack([lines, np.array(polynomial)])


def norms_of(rows: Tensor) -> tuple[Floats, Floats]:
    """L1 and L2 norms of rows (..., features), brought to the host at once, (...) each."""
    both = torch.stack([torch.linalg.vector_norm(rows, order, -1) for order in (1, 2)])
    norm, root = both.double().cpu().numpy()
    return norm, root


def raising(norm: Values, root: Values) -> Values:
    """How much to raise an estimate, from the L1 and L2 norms of a nested difference.

    1 + 4 / sqrt(N), and a little more, where N, the effective number of features, is the square of the ratio of the norms (1
    where nothing differs).
    """
    none = root == 0
    raised: Values = CAUTION * (1 + FEW_FEATURES * ((root + none) / (norm + none)))
    return raised


def estimate(kappa: float, norm: Floats, root: Floats, squares: Floats, missing: Floats) -> Floats:
    """Absolute L1 errors of sums over panels, (rows,).

    Args:
        kappa: the candidate's error over its nested difference.
        norm: L1 norms of the nested differences, summed over panels, (rows,).
        root: their L2 norms, (rows,).
        squares: squared panel indicators, summed over panels, (rows,).
        missing: what the sum misses of the change of F: a lower bound of the L1 error, (rows,).
    """
    together = np.maximum(kappa * norm, np.sqrt(squares))
    return np.asarray(np.maximum(together * raising(norm, root), np.abs(missing)))
