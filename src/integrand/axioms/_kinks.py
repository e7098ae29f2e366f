"""Where a network has no gradient: cases that ask for one there blame a method for torch's choice."""

from __future__ import annotations

import numpy as np
import torch

from ..methods import Method
from ._evidence import Case
from ._formula import Network
from ._network import Floats, evaluate

TIMES = (0.1372549, 0.3819660, 0.6180340, 0.8914027)
"""Times at which a path with plain corners crosses no kink, unless it runs along one."""

NEAR, ZERO, MOVED = 1e-4, 1e-9, 1e-8


def smooth(case: Case, method: Method) -> bool:
    """Whether the gradient exists at the input, and almost everywhere on the line or route to it."""
    points = _points(case, method)
    return not any(_kinked(net, points) for _, net in case.networks)


def _points(case: Case, method: Method) -> Floats:
    """The input, the straight line, and the method's own route where it has one."""
    x, start = np.array(case.x), np.array(case.baseline)
    points = [x[None], start + np.array(TIMES)[:, None] * (x - start)]
    route = getattr(method, "route", None)
    if callable(route):
        t, rows = torch.tensor(TIMES, dtype=torch.float64), torch.zeros(len(TIMES), dtype=torch.long)
        pieces = route(case.start, case.point).pieces(batched=True)
        points += [piece.points_at(t, rows)[0].numpy() for piece in pieces]
    return np.concatenate(points)


def _kinked(net: Network, points: Floats) -> bool:
    """Whether a unit's argument is zero at a point and does not stay zero around it."""
    steps = np.random.default_rng(0).standard_normal((3, points.shape[1])) * NEAR
    here = np.abs(evaluate(net, points)[1]) < ZERO
    if not here.any():
        return False
    around = np.concatenate([steps, -steps])
    moved = [np.abs(evaluate(net, points + step)[1]) > MOVED for step in around]
    return bool((here & np.any(moved, axis=0)).any())
