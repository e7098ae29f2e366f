"""A vector-valued integral over [0, 1] by Gauss-Kronrod panels, with an error of its own: what explanations are judged by.

Nothing of integrand is used. Panels of 15 nodes come first, fine enough to meet every cliff, and narrower in the first half,
where the cliffs of language models are. Then the one whose 7 and 15 nodes disagree most is halved, until all disagreements
together are small. Their sum is the error of the 7-node rule, above that of the 15-node rule whose values are kept: at 0.5%
these were 0.02% and 0.25% off on two prompts, against 2,460 nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .measures import Floats

KRONROD_NODES = (
    0.991455371120812639206854697526329,
    0.949107912342758524526189684047851,
    0.864864423359769072789712788640926,
    0.741531185599394439863864773280788,
    0.586087235467691130294144838257297,
    0.405845151377397166906606412076961,
    0.207784955007898467600689403773245,
    0.0,
)
KRONROD_WEIGHTS = (
    0.022935322010529224963732008058970,
    0.063092092629978553290700663189204,
    0.104790010322250183839876322541518,
    0.140653259715525918745189590510238,
    0.169004726639267902826583426598550,
    0.190350578064785409913256402421014,
    0.204432940075298892414161999234649,
    0.209482141084727828012999174891714,
)
GAUSS_WEIGHTS = (
    0.129484966168869693270611432679082,
    0.279705391489276667901467771423780,
    0.381830050505118944950369775488975,
    0.417959183673469387755102040816327,
)

NODES = np.concatenate([-np.array(KRONROD_NODES), np.array(KRONROD_NODES)[-2::-1]])
WEIGHTS = np.concatenate([np.array(KRONROD_WEIGHTS), np.array(KRONROD_WEIGHTS)[-2::-1]])
INNER = np.zeros(15)
INNER[1::2] = np.concatenate([np.array(GAUSS_WEIGHTS), np.array(GAUSS_WEIGHTS)[-2::-1]])

Integrand = Callable[[Floats], Floats]
"""From times (n,) to terms (n, rows, features)."""


@dataclass(frozen=True)
class Reference:
    """An integral and how sure it is.

    Attributes:
        values: (rows, features).
        doubt: for each row the disagreement of the rules in all panels, relative to the sum of magnitudes.
        nodes: evaluations spent.
    """

    values: Floats
    doubt: Floats
    nodes: int


@dataclass(frozen=True)
class Panel:
    """A part of [0, 1]: its ends, its integral by 15 nodes, and for each row how far 7 nodes are from it."""

    start: float
    end: float
    values: Floats
    error: Floats


def panel(terms: Integrand, start: float, end: float) -> Panel:
    """One part of the integral."""
    middle, half = (start + end) / 2, (end - start) / 2
    rows = terms(middle + half * NODES)
    kronrod, gauss = (np.einsum("n,nrf->rf", half * weights, rows) for weights in (WEIGHTS, INNER))
    return Panel(start, end, kronrod, np.abs(kronrod - gauss).sum(1))


def integral(terms: Integrand, *, panels: int = 25, tol: float = 5e-3, max_nodes: int = 1300) -> Reference:
    """Integrate to a tolerance.

    Args:
        terms: the integrand.
        panels: to begin with; four fifths of them before 1/2.
        tol: the doubt at which to stop.
        max_nodes: the number of nodes after which to stop in any case.
    """
    late = max(1, panels // 5)
    edges = np.r_[np.linspace(0.0, 0.5, panels - late + 1), np.linspace(0.5, 1.0, late + 1)[1:]]
    parts = [panel(terms, a, b) for a, b in itertools.pairwise(edges)]
    nodes = len(NODES) * panels
    while True:
        values = np.sum([part.values for part in parts], 0)
        size = np.abs(values).sum(1)
        doubt = np.sum([part.error for part in parts], 0) / size
        if max(doubt) <= tol or nodes >= max_nodes:
            return Reference(values, doubt, nodes)
        worst = max(parts, key=lambda part: float(max(part.error / size)))
        parts.remove(worst)
        middle = (worst.start + worst.end) / 2
        parts += [panel(terms, worst.start, middle), panel(terms, middle, worst.end)]
        nodes += 2 * len(NODES)
