"""Quadrature rules on [0, 1]: nodes, weights, and a second set of weights on the same nodes for the error.

A rule is a value. To use one of your own, build a :class:`Rule` and pass it as ``rule=``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError
from ..words import short_repr

Array = NDArray[np.float64]

ONE_SIDED = 1.5
"""Caution for rules without a node at one end: what happens in the cell there is seen by nobody."""


@dataclass(frozen=True, eq=False)
class Rule:
    """Nodes and weights on [0, 1].

    Attributes:
        name: for the certificate.
        nodes: increasing times, (n,). Like the weights, they are copied and cannot be written to.
        weights: they add up to 1, (n,).
        embedded: weights of a coarser rule on the same nodes; the difference of the two estimates the error. None where
            there are too few nodes to tell.
    """

    name: str
    nodes: Array
    weights: Array
    embedded: Array | None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        for part in ("nodes", "weights", "embedded"):
            if getattr(self, part) is not None:
                array = np.array(getattr(self, part), np.float64)
                array.setflags(write=False)
                object.__setattr__(self, part, array)
        if self.nodes.shape != self.weights.shape or self.nodes.ndim != 1 or not len(self.nodes):
            raise OptionError(
                f"a rule got {self.nodes.shape} nodes and {self.weights.shape} weights; expected as many of each."
            )
        if not (self.nodes.min() >= 0 and self.nodes.max() <= 1 and (np.diff(self.nodes) > 0).all()):
            raise OptionError(f"a rule got the nodes {self.nodes}; expected increasing times within [0, 1].")
        _check_weights("weights", self.weights, self.nodes)
        if self.embedded is not None:
            _check_weights("embedded weights", self.embedded, self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


def _check_weights(what: str, weights: Array, nodes: Array) -> None:
    if weights.shape != nodes.shape:
        raise OptionError(f"a rule got {len(nodes)} nodes and {what} of shape {weights.shape}; expected as many of each.")
    if not abs(weights.sum() - 1) <= 1e-6:
        raise OptionError(f"a rule got {what} that add up to {weights.sum():.9g}; expected 1, as every linear model needs.")


def right(steps: int) -> Rule:
    """The paper's equation 3: the right Riemann sum, nodes k/m for k = 1..m, weights 1/m.

    >>> right(4).nodes
    array([0.25, 0.5 , 0.75, 1.  ])
    """
    nodes = np.arange(1, steps + 1) / steps
    return _rule("right Riemann", nodes, np.full(steps, 1 / steps), caution=ONE_SIDED)


def left(steps: int) -> Rule:
    """The left Riemann sum, nodes k/m for k = 0..m-1."""
    return _rule("left Riemann", np.arange(steps) / steps, np.full(steps, 1 / steps), caution=ONE_SIDED)


def midpoint(steps: int) -> Rule:
    """Midpoints of equal steps."""
    return _rule("midpoint", (np.arange(steps) + 0.5) / steps, np.full(steps, 1 / steps))


def trapezoid(steps: int) -> Rule:
    """Equally spaced nodes with both ends, the ends at half weight; the weights add up to 1."""
    if steps < 2:
        raise OptionError(f"got steps={steps} for the trapezoid rule; expected at least 2, its two ends.")
    weights = np.full(steps, 1 / (steps - 1))
    weights[[0, -1]] /= 2
    return _rule("trapezoid", np.linspace(0, 1, steps), weights)


def simpson(steps: int) -> Rule:
    """Simpson's rule on an odd number of equally spaced nodes."""
    if steps < 3 or steps % 2 == 0:
        raise OptionError(f"got steps={steps} for Simpson's rule; expected an odd number from 3 on.")
    weights = _simpson_weights(steps)
    nodes = np.linspace(0, 1, steps)
    if steps % 4 != 1 or steps < 5:
        return _rule("Simpson", nodes, weights)
    embedded = np.zeros(steps)
    embedded[::2] = _simpson_weights((steps + 1) // 2)
    return Rule("Simpson", nodes, weights, embedded)


def _simpson_weights(steps: int) -> Array:
    weights = np.full(steps, 2.0)
    weights[1::2] = 4
    weights[[0, -1]] = 1
    return np.asarray(weights / (3 * (steps - 1)))


@lru_cache(maxsize=64)
def gauss_legendre(steps: int) -> Rule:
    """Gauss-Legendre in float64; its error is judged by the polynomial through every other node."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    times = (nodes + 1) / 2
    if steps < 3:
        return Rule("Gauss-Legendre", times, weights / 2, None)
    keep = _every_other(steps)
    basis = np.polynomial.legendre.legvander(nodes[keep], len(keep) - 1).T
    moments = np.zeros(len(keep))
    moments[0] = 1.0  # the mean of each Legendre polynomial over [-1, 1]
    embedded = np.zeros(steps)
    embedded[keep] = np.linalg.solve(basis, moments)
    return Rule("Gauss-Legendre", times, weights / 2, embedded)


@lru_cache(maxsize=16)
def romberg(level: int) -> Rule:
    """Romberg's extrapolation of the trapezoid rule on 2**level + 1 nodes, with the level below embedded."""
    count = 2**level
    embedded = np.zeros(count + 1)
    if level:
        embedded[::2] = _romberg_weights(level - 1)
    return Rule("Romberg", np.linspace(0, 1, count + 1), _romberg_weights(level), embedded if level else None)


def _romberg_weights(level: int) -> Array:
    columns = []
    for coarse in range(level + 1):
        weights = np.zeros(2**level + 1)
        weights[:: 2 ** (level - coarse)] = 1 / 2**coarse
        weights[[0, -1]] /= 2
        columns.append(weights)
    power = 4.0
    while len(columns) > 1:
        columns = [(power * fine - rough) / (power - 1) for rough, fine in pairwise(columns)]
        power *= 4
    return columns[0]


def _rule(name: str, nodes: Array, weights: Array, *, caution: float = 1.0) -> Rule:
    """A rule whose error is judged by the straight lines through every other node, times ``caution``."""
    if len(nodes) < 3:
        return Rule(name, nodes, weights, None)
    keep = _every_other(len(nodes))
    embedded = np.zeros(len(nodes))
    embedded[keep] = _line_weights(nodes[keep])
    return Rule(name, nodes, weights, weights + caution * (embedded - weights))


def _every_other(count: int) -> NDArray[np.intp]:
    """Every other index, both ends kept."""
    return np.unique(np.r_[np.arange(0, count, 2), count - 1])


def _line_weights(nodes: Array) -> Array:
    """Weights that integrate the piecewise linear interpolant over [0, 1], extended straight to the ends."""
    weights = np.zeros(len(nodes))
    gaps = np.diff(nodes)
    weights[:-1] += gaps / 2
    weights[1:] += gaps / 2
    for end, near, far in ((0.0, 0, 1), (1.0, -1, -2)):
        reach = abs(nodes[near] - end)
        slope = reach / abs(nodes[far] - nodes[near])
        weights[near] += reach * (1 + slope / 2)
        weights[far] -= reach * slope / 2
    return weights


STENCIL = 12
"""Nodes by which the integral from one node to the next is told: the order of most rules is less."""


@lru_cache(maxsize=16)
def between_nodes(rule: Rule) -> Array:
    """Weights that integrate the polynomial through the nearest nodes from 0 to the first node, to the next, ..., to 1.

    >>> weights = between_nodes(trapezoid(3))
    >>> weights.shape, (weights @ trapezoid(3).nodes ** 2).round(6).tolist()
    ((4, 3), [0.0, 0.041667, 0.291667, 0.0])

    Returns:
        (nodes + 1, nodes).
    """
    count, size = len(rule), min(STENCIL, len(rule))
    ends = np.concatenate([[0.0], rule.nodes, [1.0]])
    out = np.zeros((count + 1, count))
    for cell in range(count + 1):
        first = min(max(cell - size // 2, 0), count - size)
        near = slice(first, first + size)
        middle, reach = rule.nodes[near].mean(), max(np.ptp(rule.nodes[near]) / 2, ends[cell + 1] - ends[cell], 1e-9)
        places, powers = (rule.nodes[near] - middle) / reach, np.arange(1, size + 1)
        low, high = (ends[cell] - middle) / reach, (ends[cell + 1] - middle) / reach
        out[cell, near] = np.linalg.solve(np.vander(places, increasing=True).T, (high**powers - low**powers) / powers) * reach
    out.setflags(write=False)
    return out


RULES: dict[str, Callable[[int], Rule]] = {
    "right": right,
    "left": left,
    "midpoint": midpoint,
    "trapezoid": trapezoid,
    "simpson": simpson,
    "gauss-legendre": gauss_legendre,
}
"""The fixed rules by name, each a function of the number of steps (gradient evaluations)."""
