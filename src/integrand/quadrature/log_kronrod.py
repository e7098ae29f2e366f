"""Gauss-Kronrod 7/15 with the weights of integrated Hessians built in.

With s = alpha * beta the double integral of integrated Hessians is a single one: the density of a product of two uniform
numbers is -ln s. Gradients are weighted by -ln s, second derivatives by -s ln s, and integrated gradients by 1. The logarithm
is integrated exactly against the polynomial through the nodes, so that its singularity at 0 costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..arrays import Floats
from .panel_rules import Candidate, PanelRule

_HALF = np.array(
    [
        0.991455371120812639206854697526329,
        0.949107912342758524526189684047851,
        0.864864423359769072789712788640926,
        0.741531185599394439863864773280788,
        0.586087235467691130294144691693259,
        0.405845151377397166906606412076961,
        0.207784955007898467600689403773245,
        0.0,
    ]
)
KRONROD = np.concatenate([-_HALF, _HALF[-2::-1]])
"""The 15 nodes on [-1, 1]; every other one, from the second on, is a node of Gauss's rule."""

GAUSS = np.arange(1, 15, 2)
NODES = len(KRONROD)
_FINE, _FINE_WEIGHTS = np.polynomial.legendre.leggauss(64)
SINGULAR = 6
"""The power that takes the logarithm at 0 out of the moments."""


@dataclass(frozen=True, eq=False)
class LogWeights:
    """What to weigh the nodes of a panel with, (15,) each; differences are to the embedded Gauss rule.

    Attributes:
        nodes: where on the path they are.
        one: weights for integrated gradients.
        log: weights for gradients, with -ln s.
        slog: weights for second derivatives, with -s ln s.
        one_difference: what the error of ``one`` is estimated with.
        log_difference: what the error of ``log`` is estimated with.
        slog_difference: what the error of ``slog`` is estimated with.
    """

    nodes: Floats
    one: Floats
    log: Floats
    slog: Floats
    one_difference: Floats
    log_difference: Floats
    slog_difference: Floats


@lru_cache(maxsize=4096)
def log_weights(start: float, stop: float) -> LogWeights:
    """The weights on a panel from ``start`` to ``stop`` within [0, 1]; unlike those of other rules they depend on its place.

    >>> rule = log_weights(0.0, 1.0)
    >>> float(np.round(rule.log.sum(), 12)), float(np.round(rule.slog.sum(), 12)), float(np.round(rule.slog @ rule.nodes, 12))
    (1.0, 0.25, 0.111111111111)
    """
    half = (stop - start) / 2
    share, scale = (_FINE + 1) / 2, _FINE_WEIGHTS
    if start == 0:
        share, scale = share**SINGULAR, scale * SINGULAR * share ** (SINGULAR - 1)
    fine, s = 2 * share - 1, start + (stop - start) * share
    functions = np.stack([np.ones_like(s), -np.log(s), -s * np.log(s)], 1)
    basis = np.polynomial.legendre.legvander(fine, NODES - 1)
    moments = half * np.einsum("q,qm,qf->mf", scale, basis, functions)
    kronrod = np.linalg.solve(np.polynomial.legendre.legvander(KRONROD, NODES - 1).T, moments)
    gauss = np.zeros_like(kronrod)
    order = len(GAUSS)
    gauss[GAUSS] = np.linalg.solve(np.polynomial.legendre.legvander(KRONROD[GAUSS], order - 1).T, moments[:order])
    columns = [np.ascontiguousarray(column) for column in (*kronrod.T, *(kronrod - gauss).T)]
    return LogWeights(start + half * (KRONROD + 1), *columns)


def slog(s: Floats) -> Floats:
    """The weight of second derivatives, -s ln s, which is 0 at both ends."""
    return np.asarray(-s * np.log(np.where(s > 0, s, 1.0)))


def slog_between(start: float, stop: float) -> float:
    """The largest -s ln s on an interval.

    >>> round(slog_between(0.0, 1.0), 6)
    0.367879
    """
    top = float(np.clip(np.exp(-1), start, stop))
    return float(slog(np.array([top]))[0])


def log_integral(s: Floats) -> Floats:
    """The integral of -ln from 0 to s."""
    return np.asarray(s + slog(s))


LOG_KRONROD = PanelRule(
    "Gauss-Kronrod",
    (KRONROD + 1) / 2,
    # The error of the Gauss rule stands for that of the far better Kronrod rule. A kink halves its share in half of the panel.
    (Candidate("Gauss-Kronrod", 1.0, 1 / 4),),
    np.stack([log_weights(0.0, 1.0).one, log_weights(0.0, 1.0).one_difference]),
)
"""Fifteen nodes inside a panel, none of which its halves use again; see :func:`log_weights` for integrated Hessians."""
