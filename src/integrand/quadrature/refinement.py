"""The refinement plan: which panels to halve next, as few as will do, found by looking ahead."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Ints


def plan(squares: Floats, goal: float, shrink: float, limit: int) -> tuple[NDArray[np.intp], Ints]:
    """Play the refinement through on paper, largest panel first, until the error is within the goal.

    >>> plan(np.array([100.0, 1.0, 1.0]), goal=30.0, shrink=1 / 8, limit=100)
    (array([0]), array([1]))
    >>> plan(np.array([100.0, 1.0, 1.0]), goal=3.0, shrink=1 / 8, limit=100)
    (array([0, 1]), array([7, 1]))

    Args:
        squares: squared error indicators of the panels; zero for panels that must stay.
        goal: the sum of squares to reach.
        shrink: the square of each half over that of the panel.
        limit: halvings after which to stop looking ahead.

    Returns:
        The panels to halve now (those that the plan halves at least once, largest first), and how many halvings the plan takes
        for each of them and its descendants.
    """
    total = float(squares.sum())
    queue = [(-square, index) for index, square in enumerate(squares.tolist()) if square > 0]
    heapq.heapify(queue)
    chosen: dict[int, int] = {}
    count = 0
    while total > goal and queue and count < limit:
        square, index = heapq.heappop(queue)
        total += square * (1 - 2 * shrink)
        chosen[index] = chosen.get(index, 0) + 1
        count += 1
        for _ in range(2):
            heapq.heappush(queue, (square * shrink, index))
    return np.fromiter(chosen, np.intp, len(chosen)), np.fromiter(chosen.values(), np.int64, len(chosen))
