"""Nodes and weights of fixed rules, and a plain loop over them: what peers compute, without their packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .cases import Case
from .measure import frozen, out_of_memory, release
from .peers import FLOAT32, conditions

Floats = np.ndarray[Any, Any]
Nodes = tuple[Floats, Floats]


def gauss_legendre(steps: int) -> Nodes:
    """Captum's default rule: times and weights, (steps,) each."""
    t, weights = np.polynomial.legendre.leggauss(steps)
    return (t + 1) / 2, weights / 2


def both_ends(steps: int) -> Nodes:
    """The rule of PAIR's saliency: equal weights from the baseline to the input, both included."""
    return np.linspace(0, 1, steps), np.full(steps, 1 / steps)


def midpoints(steps: int) -> Nodes:
    """The middles of equal parts."""
    return (np.arange(steps) + 0.5) / steps, np.full(steps, 1 / steps)


RULES: dict[str, Callable[[int], Nodes]] = {"captum": gauss_legendre, "saliency": both_ends}
"""What each peer computes."""


def integrated(case: Case, nodes: Nodes, chunk: int) -> Floats:
    """The attributions of the case's first row in its own precision, summed in float64: (1, features).

    Args:
        case: on its device.
        nodes: times and weights.
        chunk: rows at a time; fewer where memory ends.
    """
    while True:
        try:
            with frozen(case), conditions(case, FLOAT32):
                return _looped(case, nodes, chunk)
        except RuntimeError as error:
            if not out_of_memory(error) or chunk == 1:
                raise
        chunk //= 2
        release(case.x.device)


def _looped(case: Case, nodes: Nodes, chunk: int) -> Floats:
    row, start = case.x[0], case.baseline
    total = torch.zeros_like(row, dtype=torch.float64)
    shape = (-1, *[1] * row.ndim)
    for at in range(0, len(nodes[0]), chunk):
        times, weights = (torch.as_tensor(one[at : at + chunk], device=row.device).reshape(shape) for one in nodes)
        points = (start + times.to(row.dtype) * (row - start)).detach().requires_grad_(True)
        (gradients,) = torch.autograd.grad(case.score(points).sum(), points)
        total += (gradients.double() * weights).sum(0)
    return (total * (row - start[0]).double()).flatten()[None].cpu().numpy()
