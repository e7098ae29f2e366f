"""Which panels are halved: as few as will do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integrand.quadrature.refinement import plan

several = settings(max_examples=80, deadline=None, derandomize=True, database=None)
squares_of = st.lists(st.floats(1e-3, 100), min_size=1, max_size=5)


def remaining(square: float, count: int, shrink: float) -> float:
    """The sum of squares of a panel and its descendants after so many halvings, largest part first."""
    parts = [square]
    for _ in range(count):
        largest = max(parts)
        parts.remove(largest)
        parts += [largest * shrink] * 2
    return sum(parts)


def fewest(squares: list[float], goal: float, shrink: float, most: int) -> int | None:
    """The least number of halvings that reaches the goal, by trying every way to spread them over the panels.

    Halving a panel k times, largest part first, leaves the parts of a binary tree; the sum of its squares is what counts.
    """
    after = [[remaining(square, count, shrink) for count in range(most + 1)] for square in squares]
    for count in range(most + 1):
        for split in itertools.product(range(count + 1), repeat=len(squares)):
            if sum(split) == count and sum(after[i][k] for i, k in enumerate(split)) <= goal * (1 + 1e-12):
                return count
    return None


@given(squares_of, st.floats(0.05, 0.9), st.sampled_from([1 / 8, 1 / 64]))
@several
def test_no_plan_is_shorter(squares: list[float], share: float, shrink: float) -> None:
    goal = share * sum(squares)
    best = fewest(squares, goal, shrink, 5)
    if best is None:
        return
    chosen, times = plan(np.array(squares), goal * (1 + 1e-9), shrink, 100)
    count = int(times.sum())
    assert count <= best
    assert len(chosen) <= count


@given(squares_of, st.floats(0.05, 0.9))
@several
def test_the_largest_come_first(squares: list[float], share: float) -> None:
    chosen, times = plan(np.array(squares), share * sum(squares), 1 / 8, 1000)
    assert len(times) == len(chosen)
    assert (times >= 1).all()
    assert len(set(chosen.tolist())) == len(chosen)
    sizes = [squares[i] for i in chosen]
    assert sizes == sorted(sizes, reverse=True)
    left_alone = [s for i, s in enumerate(squares) if i not in set(chosen.tolist())]
    if left_alone and sizes:
        assert max(left_alone) <= min(sizes)
    # The larger of two panels is not halved less often, and the plan does what it says.
    assert times.tolist() == sorted(times.tolist(), reverse=True)
    left = sum(left_alone) + sum(remaining(square, count, 1 / 8) for square, count in zip(sizes, times.tolist(), strict=True))
    assert left <= share * sum(squares) * (1 + 1e-9)


def test_nothing_to_do() -> None:
    chosen, times = plan(np.array([1.0, 2.0]), 3.0, 1 / 8, 100)
    assert len(chosen) == len(times) == 0
    assert len(plan(np.zeros(0), 1.0, 1 / 8, 100)[0]) == 0


def test_zero_panels_stay() -> None:
    """Panels that must not be halved are handed over as zero; a goal out of reach is then looked for until the limit."""
    chosen, times = plan(np.array([0.0, 5.0, 0.0]), 0.0, 1 / 8, 20)
    assert chosen.tolist() == [1]
    assert times.tolist() == [20]


def test_looking_ahead_counts_repeated_halvings() -> None:
    """One large panel has to be halved three times over: 1 + 2 + 4 halvings bring 64 down to 64 (2/8)^3 = 1."""
    chosen, times = plan(np.array([64.0]), 64 * (2 / 8) ** 3, 1 / 8, 100)
    assert chosen.tolist() == [0]
    assert times.tolist() == [1 + 2 + 4]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_the_limit_is_kept(limit: int) -> None:
    chosen, times = plan(np.arange(1.0, 10.0), 1e-9, 1 / 8, limit)
    assert times.sum() == limit
    assert len(chosen) <= limit
