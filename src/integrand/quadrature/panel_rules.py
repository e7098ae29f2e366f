"""Panel rules as values: where the nodes of a panel are, how they are weighed, and what that says about the error.

The adaptive loop takes such a value and knows nothing else of it. :data:`FIVE_POINT` integrates gradients. On its panels the
trapezoid rule on 5, 3 and 2 nodes (T_f, T_h, T_q) and Simpson's on 5 and 3 (S_f, S_h) are at hand. Two regimes decide which to
trust. Gradients of ReLU networks move along a path like Brownian motion: T_f is then the best that can be made of the nodes,
and its error is |T_f - T_h| / sqrt(3) in expectation. Gradients of smooth networks are smooth: S_f is far better, and |S_f -
S_h| bounds its error generously. :data:`~integrand.quadrature.log_kronrod.LOG_KRONROD` integrates Hessians.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..trees import on_device
from .fixed_rules import Rule, romberg

CAUTION = 1.03
"""On real image networks the estimate is within a few per cent of the truth; this puts it on the safe side of it."""

FEW_FEATURES = 4.0
"""The estimate of a sum over N independent features varies like 1 / sqrt(N); it is raised by 1 + this / sqrt(N)."""

FEW_LOOKS = 2.0
"""In a network of few units all features move at once, however many they are, and the error of a sum over k kinks varies like
1 / sqrt(k): the estimate is raised by 1 + this / sqrt(k), where k is counted by :func:`independent`."""

KINKED = 0.2
"""The last candidate's nested difference over the first one's, from which on a panel may hold a kink."""

ONE_KINK = 0.01
"""A panel is taken to hold one kink if that explains all but this share of its nested difference."""

SKETCH = 128
"""Dimensions of random projections by which the directions of differences are compared."""

ROUNDINGS = 64
"""How many roundings a score or a slope may be off by, where a kink is placed by them."""


SCORE_ROUNDINGS = 4
"""How many roundings the change of the score from one node to the next is usually off by."""


@dataclass(frozen=True)
class Candidate:
    """One of the rules that share a panel's nodes.

    Attributes:
        name: for the certificate.
        kappa: its error over its nested difference.
        shrink: the squared error indicator of each half of a panel over that of the panel, used to plan ahead.
        broad: its error over its nested difference where gradients are smooth and that is spread over many features; the same
            as kappa if not given.
    """

    name: str
    kappa: float
    shrink: float
    broad: float | None = None

    def share(self, norm: Floats, root: Floats) -> Floats:
        """What the error of smooth gradients is over kappa times the nested difference, by the L1 and L2 norms of that."""
        if self.broad is None:
            return np.ones_like(norm)
        return np.asarray(np.minimum(1.0, self.broad / self.kappa * (1 + _few(norm, root))))


@dataclass(frozen=True, eq=False)
class PanelRule:
    """A rule for one panel of a path, which may be halved.

    Attributes:
        name: what it is called.
        nodes: where its nodes are on a panel from 0 to 1, (n,).
        candidates: the rules that share these nodes, the most robust one first.
        columns: for each candidate its weights, and their difference to the weights of a coarser rule on some of the nodes,
            on a panel of width 1, (2 * candidates, n).
        parts: weights of differences on parts of the panel, which add up to the first candidate's nested difference. Where
            they are given, its norm is at least the root of their summed squares: kinks may cancel in the sum, (k, n).
        by_cell: for each candidate, weights that integrate what it takes a gradient to be from each node to the next, where
            the change of the score is known too, (candidates, n - 1, n).
        extrapolation: from the number of halvings of [0, 1] to a rule on all nodes of equal panels, of higher order.
        kinks: whether a panel with one kink may be weighed by where the score says that the kink is.
    """

    name: str
    nodes: Floats
    candidates: tuple[Candidate, ...]
    columns: Floats
    parts: Floats | None = None
    by_cell: Floats | None = None
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


@lru_cache(maxsize=16)
def cell_weights(cells: int, stencil: int) -> Floats:
    """Weights on nodes 0 to ``cells`` that integrate polynomials through the ``stencil`` nearest ones over each cell.

    >>> cell_weights(4, 5)[0] * 720
    array([ 251.,  646., -264.,  106.,  -19.])

    Returns:
        (cells, cells + 1).
    """
    out = np.zeros((cells, cells + 1))
    for cell in range(cells):
        first = min(max(cell - (stencil - 2) // 2, 0), cells + 1 - stencil)
        powers = np.arange(stencil)
        # About the middle of the stencil, where powers are best conditioned.
        places = powers - (stencil - 1) / 2
        low, high = cell - first - (stencil - 1) / 2, cell + 1 - first - (stencil - 1) / 2
        moments = (high ** (powers + 1) - low ** (powers + 1)) / (powers + 1)
        out[cell, first : first + stencil] = np.linalg.solve(np.vander(places, increasing=True).T, moments)
    out.setflags(write=False)
    return out


_FULL = np.array([1, 2, 2, 2, 1]) / 8
_LINES = (np.eye(4, 5) + np.eye(4, 5, 1)) / 2
_HALF = np.array([1, 0, 2, 0, 1]) / 4
_ENDS = np.array([1, 0, 0, 0, 1]) / 2

FIVE_POINT = PanelRule(
    "five-point",
    np.arange(5) / 4,
    # The trapezoid's kappa is what Brownian gradients predict, Simpson's a generous bound. A half is half as wide and has half
    # of the jumps: squared indicators fall by 8 for Brownian gradients, and by far more than 64 for smooth ones.
    # Over many features, 0.3 was chosen on random smooth networks; other draws: python -m tests.honesty.attacks --only wide.
    (Candidate("trapezoid", 3**-0.5, 1 / 8), Candidate("simpson", 0.45, 1 / 64, broad=0.3)),
    np.stack([_FULL, _FULL - _HALF, (4 * _FULL - _HALF) / 3, ((4 * _FULL - _HALF) - (4 * _HALF - _ENDS)) / 3]),
    parts=np.array([[-1, 2, -1, 0, 0], [0, 0, -1, 2, -1]]) / 8,
    by_cell=np.stack([_LINES, cell_weights(4, 5)]) / 4,
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
        gaps: the same beyond rounding, or from node to node (the root of summed squares) if that is more,
            (panels, candidates).
        variation: what the score moves by from node to node, up and down, (panels,).
        masses: L1 norms of gradients times velocity at the nodes, (panels, n).
        weights: what the values weigh the nodes with, (panels, candidates, n).
        sketch: the first candidate's differences on the parts of a panel, projected at random, (panels, parts, SKETCH).
    """

    sums: Tensor
    norms: Floats
    missing: Floats
    gaps: Floats
    variation: Floats
    masses: Floats
    weights: Floats
    sketch: Floats


def measure(
    rule: PanelRule,
    nodes: Tensor,
    scores: Floats,
    slopes: Floats,
    widths: Floats,
    dtype: torch.dtype,
    *,
    rounding: float | None = None,
) -> PanelSums:
    """Apply a rule to panels.

    Args:
        rule: the rule.
        nodes: (panels, n, features) gradients times velocity.
        scores: (panels, n) F at the nodes.
        slopes: (panels, n) dF/dt at the nodes, the sum of ``nodes`` over features.
        widths: (panels,) lengths in t.
        dtype: what to compute in.
        rounding: the relative precision of scores; that of the nodes where it is not given.
    """
    wide = nodes.to(dtype)
    epsilon = torch.finfo(nodes.dtype).eps
    weights = rule.weights(widths)
    columns = on_device(weights, nodes.device, dtype)
    sums = torch.bmm(columns, wide)  # of all ways to write this the fastest, on a CPU and on a GPU
    found = torch.cat([torch.linalg.vector_norm(part, 1, 2) for part in (sums[:, 1::2], wide)], 1).double().cpu().numpy()
    count = len(rule.candidates)
    norms, sizes = found[:, :count].copy(), found[:, count:]
    sketch = np.zeros((len(nodes), 0, SKETCH))
    if rule.parts is not None:
        apart, sketch = _by_parts(rule.parts[None] * widths[:, None, None], wide)
        norms[:, 0] = np.maximum(norms[:, 0], apart)
    rise = scores[:, -1] - scores[:, 0]
    missing = rise[:, None] - (slopes @ rule.columns.T * widths[:, None])[:, ::2]
    slack = SCORE_ROUNDINGS * (rounding or epsilon) * np.abs(scores).max(1)[:, None]
    gaps = _beyond(missing, slack)
    if rule.by_cell is not None:
        given = np.einsum("kcn,pn->pkc", rule.by_cell, slopes) * widths[:, None, None]
        from_node_to_node = _beyond(np.diff(scores)[:, None] - given, slack[..., None])
        gaps = np.maximum(gaps, np.sqrt((from_node_to_node**2).sum(2)))
    used = weights[:, ::2].copy()
    if rule.kinks:
        # Where nested differences are rounding there is no kink, and the score must not be made to fit: it may change unseen.
        seen = norms[:, 0] > ROUNDINGS * epsilon * widths * sizes.max(1)
        index = np.flatnonzero((norms[:, -1] > KINKED * norms[:, 0]) & seen)
        index, fine, values = _with_one_kink(index, wide, scores, slopes, widths, sizes, norms[:, 0], epsilon)
        if len(index):
            at = on_device(index, nodes.device)
            used[index] = fine[:, None]
            # The kink rule has no honest error of its own (two kinks in one cell look like one): it keeps the trapezoid's.
            difference = sums[at, 1]
            for candidate in range(count):
                sums[at, 2 * candidate], sums[at, 2 * candidate + 1] = values, difference
            norms[index] = norms[index, :1]
            missing[index] = (rise[index] - (slopes[index] * fine).sum(1))[:, None]
            gaps[index] = _beyond(missing[index], slack[index])
    return PanelSums(sums, norms, missing, gaps, np.abs(np.diff(scores)).sum(1), sizes, used, sketch)


def _by_parts(weights: Floats, wide: Tensor) -> tuple[Floats, Floats]:
    """The norm of differences on the parts of panels, (panels,), and their random projections, (panels, parts, SKETCH).

    Args:
        weights: (panels, parts, n).
        wide: (panels, n, features).
    """
    parts = torch.bmm(on_device(weights, wide.device, wide.dtype), wide)
    norms = torch.linalg.vector_norm(parts, 1, 2).square().sum(1).sqrt()
    if parts.shape[2] <= SKETCH:
        projected = torch.nn.functional.pad(parts, (0, SKETCH - parts.shape[2]))
    else:
        features = parts.shape[2]
        mixed = torch.nn.functional.pad(parts * _signs(features, parts.device), (0, -features % SKETCH))
        projected = mixed.unflatten(2, (SKETCH, -1)).sum(3)
    found = torch.cat([norms[:, None], projected.flatten(1)], 1).double().cpu().numpy()
    return found[:, 0], found[:, 1:].reshape(len(parts), -1, SKETCH)


@lru_cache(maxsize=4)
def _signs(features: int, device: torch.device) -> Tensor:
    """Random signs, the same ones every time, (features,)."""
    return on_device(np.random.default_rng(features).integers(0, 2, features) * 2.0 - 1, device)


def _beyond(missing: Floats, slack: Floats) -> Floats:
    """What is missed of the score's change beyond its rounding, which would add up over many nodes."""
    return np.asarray(np.maximum(np.abs(missing) - slack, 0.0))


def independent(sketch: Floats) -> tuple[float, float]:
    """How many independent differences there are among some, of which only random projections (k, SKETCH) are known.

    >>> [round(number) for number in independent(np.ones((3, SKETCH)))]
    [3, 1]

    Returns:
        How many of them matter, and the dimensions that they spread over, 1 over the mean square of their cosines. Their
        product is the number of independent ones.
    """
    largest = np.abs(sketch).max(initial=0.0)
    if not largest > 0:
        return 1.0, 1.0
    scaled = sketch / largest
    gram = scaled @ scaled.T
    own = np.diag(gram)
    total, squares = own.sum() ** 2, (own**2).sum()
    across = (gram**2).sum() - squares
    return float(total / squares), float(max((total - squares) / max(across, 1e-12 * squares), 1.0))


def _with_one_kink(
    index: Ints, wide: Tensor, scores: Floats, slopes: Floats, widths: Floats, sizes: Floats, norms: Floats, epsilon: float
) -> tuple[Ints, Floats, Tensor]:
    """Those of some panels that hold one kink, the weights of their nodes, (panels, 5), and what these give; see `measure`."""
    if len(index):
        maybe, fine, rough = _kink_weights(scores[index], slopes[index], widths[index], sizes[index], epsilon)
        index, fine, rough = index[maybe], fine[maybe], rough[maybe]
    if not len(index):
        return index, np.zeros((0, scores.shape[1])), wide[:0, 0]
    columns = on_device(np.stack([fine, fine - rough], 1), wide.device, wide.dtype)
    both = torch.bmm(columns, wide[on_device(index, wide.device)])
    change = torch.linalg.vector_norm(both[:, 1], 1, 1).double().cpu().numpy()
    good = change <= ONE_KINK * norms[index]
    # Indices, not a mask: a GPU would have to be waited for to count it.
    return index[good], fine[good], both[on_device(np.flatnonzero(good), wide.device), 0]


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
    return torch.bmm(on_device(columns, nodes.device, dtype), nodes.to(dtype))


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


@lru_cache(maxsize=64)
def swing(cells: int, place: float) -> float:
    """How far a smooth function is from the polynomial through nodes 0 to ``cells`` at a place, over the mean of that.

    The error of a polynomial has the shape of the product of the distances to its nodes.

    >>> round(swing(4, 0.355), 2), swing(4, 2.0)
    (2.3, 0.0)
    """
    steps = np.arange(cells + 1)
    many = np.linspace(0, cells, 64 * cells + 1)
    mean = np.abs(np.prod(many[:, None] - steps, axis=1)).mean()
    return float(np.abs(np.prod(place - steps)) / mean)


def norms_of(rows: Tensor) -> tuple[Floats, Floats]:
    """L1 and L2 norms of rows (..., features), brought to the host at once, (...) each."""
    both = torch.stack([torch.linalg.vector_norm(rows, order, -1) for order in (1, 2)])
    norm, root = both.double().cpu().numpy()
    return norm, root


def raising(norm: Floats, root: Floats, looks: Floats | float = math.inf) -> Floats:
    """How much to raise an estimate, from the L1 and L2 norms of a nested difference, and the independent looks behind it.

    1 + 4 / sqrt(N), and a little more, where N, the effective number of features, is the square of the ratio of the norms (1
    where nothing differs); or 1 + 2 / sqrt(looks) if that is more.
    """
    return np.asarray(CAUTION * (1 + np.maximum(_few(norm, root), FEW_LOOKS / np.sqrt(looks))))


def _few(norm: Floats, root: Floats) -> Floats:
    """The caution for few features, by the L1 and L2 norms of a nested difference; that for one where nothing differs."""
    none = root == 0
    return np.asarray(FEW_FEATURES * ((root + none) / (norm + none)))


def estimate(
    candidate: Candidate,
    norm: Floats,
    root: Floats,
    squares: Floats,
    missing: Floats,
    looks: Floats | float = math.inf,
    *,
    smooth: bool = False,
) -> Floats:
    """Absolute L1 errors of sums over panels, (rows,).

    Args:
        candidate: the rule that gave the sums.
        norm: L1 norms of the nested differences, summed over panels, (rows,).
        root: their L2 norms, (rows,).
        squares: squared panel indicators, summed over panels, (rows,).
        missing: what the sum misses of the change of F: a lower bound of the L1 error, (rows,).
        looks: how many independent differences the sum is over, where gradients have kinks (rows,).
        smooth: whether gradients are known to have no kinks.
    """
    together = np.maximum(candidate.kappa * norm, np.sqrt(squares)) * (candidate.share(norm, root) if smooth else 1.0)
    return np.asarray(np.maximum(together * raising(norm, root, looks), np.abs(missing)))
