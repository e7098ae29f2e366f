"""Panels of five equally spaced nodes: what each gives for the integral, and what it says about the error.

On a panel the trapezoid rule on 5, 3 and 2 nodes (T_f, T_h, T_q) and Simpson's on 5 and 3 (S_f, S_h) are at hand. Two
regimes decide which to trust. Gradients of ReLU networks move along a path like Brownian motion: T_f is then the best
that can be made of the nodes, and its error is |T_f - T_h| / sqrt(3) in expectation. Gradients of smooth networks are
smooth: S_f is far better, and |S_f - S_h| bounds its error generously.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Values = TypeVar("Values", Floats, Tensor)

KAPPA = {"trapezoid": 3**-0.5, "simpson": 0.45}
"""Error over nested difference: what Brownian gradients predict for the trapezoid, a generous bound for Simpson."""

SPLIT = {"trapezoid": 1 / 8, "simpson": 1 / 64}
"""Squared indicator of each half over that of the panel, used to plan ahead."""

CAUTION = 1.03
"""On real image networks the estimate is within a few per cent of the truth; this puts it on the safe side of it."""

FEW_FEATURES = 4.0
"""The estimate of a sum over N independent features varies like 1 / sqrt(N); it is raised by 1 + this / sqrt(N)."""

KINK = 0.01
"""A panel is taken to hold one kink if that explains all but this share of its nested difference."""

ROUNDINGS = 64
"""How many roundings a score or a slope may be off by, where a kink is placed by them."""

_FULL = np.array([1, 2, 2, 2, 1]) / 8
_HALF = np.array([1, 0, 2, 0, 1]) / 4
_ENDS = np.array([1, 0, 0, 0, 1]) / 2
WEIGHTS = np.stack([_FULL, _FULL - _HALF, (4 * _FULL - _HALF) / 3, ((4 * _FULL - _HALF) - (4 * _HALF - _ENDS)) / 3], axis=1)
"""(5 nodes, 4 columns): T_f, T_f - T_h, S_f, S_f - S_h, for a panel of width 1."""


@dataclass(frozen=True)
class PanelSums:
    """What panels give.

    Attributes:
        sums: (panels, 4, features) in float64: T_f, T_f - T_h, S_f, S_f - S_h, scaled by the width; where there is one
            kink, both values are those of the kink rule.
        trapezoid: (panels,) L1 norms of T_f - T_h.
        simpson: (panels,) L1 norms of S_f - S_h; where there is a kink, those of T_f - T_h.
        missing_t: (panels,) change of F that T_f misses.
        missing_s: the same for S_f.
        weights: (panels, 2, 5) what the two values weigh the nodes with.
    """

    sums: Tensor
    trapezoid: Floats
    simpson: Floats
    missing_t: Floats
    missing_s: Floats
    weights: Floats


def measure(nodes: Tensor, scores: Floats, slopes: Floats, widths: Floats, dtype: torch.dtype) -> PanelSums:
    """Apply the rules to panels.

    Args:
        nodes: (panels, 5, features) gradients times velocity.
        scores: (panels, 5) F at the nodes.
        slopes: (panels, 5) dF/dt at the nodes, the sum of ``nodes`` over features.
        widths: (panels,) lengths in t.
        dtype: what to compute in.
    """
    wide = nodes.to(dtype)
    weights = WEIGHTS.T * widths[:, None, None]
    columns = torch.as_tensor(weights, dtype=dtype, device=nodes.device)
    sums = torch.bmm(columns, wide)  # of all ways to write this the fastest, on a CPU and on a GPU
    found = torch.cat([torch.linalg.vector_norm(part, 1, 2) for part in (sums[:, 1::2], wide)], 1).double().cpu().numpy()
    trapezoid, simpson, sizes = found[:, 0].copy(), found[:, 1].copy(), found[:, 2:]
    rise = scores[:, 4] - scores[:, 0]
    given = slopes @ WEIGHTS * widths[:, None]
    missing_t, missing_s = rise - given[:, 0], rise - given[:, 2]
    used = weights[:, ::2].copy()
    index = np.flatnonzero((simpson > 0.2 * trapezoid) & (trapezoid > 0))
    index, fine, values = _with_one_kink(index, wide, scores, slopes, widths, sizes, trapezoid, torch.finfo(nodes.dtype).eps)
    if len(index):
        at = torch.as_tensor(index, device=nodes.device)
        used[index] = fine[:, None]
        sums[at, 0] = sums[at, 2] = values
        # The kink rule has no honest error of its own (two kinks in one cell look like one): it keeps the trapezoid's.
        sums[at, 3] = sums[at, 1]
        simpson[index] = trapezoid[index]
        missing_t[index] = missing_s[index] = rise[index] - (slopes[index] * fine).sum(1)
    return PanelSums(sums, trapezoid, simpson, missing_t, missing_s, used)


def _with_one_kink(
    index: Ints, wide: Tensor, scores: Floats, slopes: Floats, widths: Floats, sizes: Floats, trapezoid: Floats, epsilon: float
) -> tuple[Ints, Floats, Tensor]:
    """Those of some panels that hold one kink, the weights of their nodes, (panels, 5), and what these give; see `measure`."""
    if len(index):
        maybe, fine, rough = _kink_weights(scores[index], slopes[index], widths[index], sizes[index], epsilon)
        index, fine, rough = index[maybe], fine[maybe], rough[maybe]
    if not len(index):
        return index, np.zeros((0, 5)), wide[:0, 0]
    columns = torch.as_tensor(np.stack([fine, fine - rough], 1), dtype=wide.dtype, device=wide.device)
    both = torch.bmm(columns, wide[torch.as_tensor(index, device=wide.device)])
    change = torch.linalg.vector_norm(both[:, 1], 1, 1).double().cpu().numpy()
    good = change <= KINK * trapezoid[index]
    # Indices, not a mask: a GPU would have to be waited for to count it.
    return index[good], fine[good], both[torch.as_tensor(np.flatnonzero(good), device=wide.device), 0]


def weighed(nodes: Tensor, weights: Floats, widths: Floats, dtype: torch.dtype) -> Tensor:
    """The sums that :func:`measure` gave, from the weights that it gave with them.

    Args:
        nodes: (panels, 5, features).
        weights: (panels, 2, 5), as in :class:`Measured`.
        widths: (panels,).
        dtype: what to compute in.
    """
    columns = np.broadcast_to(WEIGHTS, (len(widths), 5, 4)) * widths[:, None, None]
    columns[:, :, 0], columns[:, :, 2] = weights[:, 0], weights[:, 1]
    kink = (weights[:, 0] == weights[:, 1]).all(1)
    columns[kink, :, 3] = columns[kink, :, 1]
    return torch.bmm(torch.as_tensor(columns.swapaxes(1, 2), dtype=dtype, device=nodes.device), nodes.to(dtype))


def _kink_weights(
    scores: Floats, slopes: Floats, widths: Floats, sizes: Floats, epsilon: float
) -> tuple[NDArray[np.bool_], Floats, Floats]:
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

    def cells(step: int) -> tuple[NDArray[np.bool_], Floats]:
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
def interpolation(place: float) -> Floats:
    """Weights of a panel's five nodes for the value at a place from 0 to 4: straight lines, and a polynomial; (2, 5).

    >>> interpolation(2.5) @ np.array([0.0, 1.0, 4.0, 9.0, 16.0])
    array([6.5 , 6.25])
    """
    steps = np.arange(5)
    lines = np.clip(1 - np.abs(steps - place), 0, None)
    polynomial = [np.prod([(place - other) / (k - other) for other in steps if other != k]) for k in steps]
    return np.stack([lines, np.array(polynomial)])


def norms(rows: Tensor) -> tuple[Floats, Floats]:
    """L1 and L2 norms of rows (..., features), brought to the host at once, (...) each."""
    both = torch.stack([torch.linalg.vector_norm(rows, order, -1) for order in (1, 2)])
    norm, root = both.double().cpu().numpy()
    return norm, root


def spread(difference: Tensor) -> Tensor:
    """How much to raise an estimate: 1 + 4 / sqrt(N), N the effective number of features, and a little more, per row."""
    raised: Tensor = raising(*(torch.linalg.vector_norm(difference, order, -1) for order in (1, 2)))
    return raised


def raising(norm: Values, root: Values) -> Values:
    """The same from L1 and L2 norms: N is the square of their ratio, and 1 where nothing differs."""
    none = root == 0
    raised: Values = CAUTION * (1 + FEW_FEATURES * ((root + none) / (norm + none)))
    return raised


def estimate(rule: str, difference: Tensor, squares: Floats, missing: Floats) -> Floats:
    """Absolute L1 error of sums over panels, one per row.

    Args:
        rule: ``trapezoid`` or ``simpson``.
        difference: (rows, features) nested differences, summed over panels.
        squares: (rows,) squared panel indicators, summed over panels.
        missing: (rows,) what the sum misses of the change of F: a lower bound of the L1 error.
    """
    return estimate_from(rule, *norms(difference), squares, missing)


def estimate_from(rule: str, norm: Floats, root: Floats, squares: Floats, missing: Floats) -> Floats:
    """The same from the L1 and L2 norms of the differences, (rows,) each."""
    together = np.maximum(KAPPA[rule] * norm, np.sqrt(squares))
    return np.asarray(np.maximum(together * raising(norm, root), np.abs(missing)))
