"""Rows at a time by measurement: simulated machines, whose best setting is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integrand.execute._tune import LEAST_SECONDS, TRIALS, Setting, Tuning


def settle(tuning: Tuning, cost: Callable[[Setting], float], limit: int = 100) -> int:
    """Run until nothing is left to try; how many chunks that took."""
    for count in range(limit):
        if tuning.settled:
            return count
        tuning.took(cost(tuning.now))
    raise AssertionError("never settles")


@pytest.mark.parametrize("best", [2, 4, 8, 16, 64])
def test_the_best_number_of_rows_is_found_from_either_side(best: int) -> None:
    def cost(setting: Setting) -> float:
        return setting.rows * 0.01 * (1 + abs(setting.rows - best) / best)

    tuning = Tuning(Setting(8), most=512)
    settle(tuning, cost)
    assert tuning.now.rows == best


def test_memory_bounds_what_is_tried() -> None:
    tuning = Tuning(Setting(8), most=20)
    settle(tuning, lambda setting: 0.01 + 1e-4 * setting.rows)
    assert tuning.now.rows == 16
    assert max(setting.rows for setting in tuning.seconds) == 16


def test_of_settings_that_are_as_good_the_smallest_is_taken() -> None:
    tuning = Tuning(Setting(8), most=512)
    settle(tuning, lambda setting: 0.01 * setting.rows)
    assert tuning.now.rows == 2


@pytest.mark.parametrize("faster", [True, False])
def test_channels_last_is_taken_where_it_is_faster(faster: bool) -> None:
    tuning = Tuning(Setting(8), most=8, layouts=True)
    settle(tuning, lambda s: (0.05 + 0.01 * s.rows) * ((0.7 if faster else 1.4) if s.last else 1.0))
    assert tuning.now == Setting(8, faster)
    without = Tuning(Setting(8), most=8, layouts=False)
    settle(without, lambda s: 0.05 + 0.01 * s.rows)
    assert not any(setting.last for setting in without.seconds)


def test_a_slow_first_chunk_does_not_decide() -> None:
    """Kernels are set up for every new shape."""
    seen: set[Setting] = set()

    def cost(setting: Setting) -> float:
        first = setting not in seen
        seen.add(setting)
        return (0.05 + 0.002 * setting.rows) * (3 if first else 1)

    tuning = Tuning(Setting(8), most=64)
    chunks = settle(tuning, cost)
    assert tuning.now.rows == 64
    assert chunks == TRIALS * len(tuning.seconds)


def test_what_is_too_short_to_measure_changes_nothing() -> None:
    tuning = Tuning(Setting(8), most=64)
    for _ in range(50):
        tuning.took(LEAST_SECONDS / 2)
    assert tuning.now == Setting(8)
    assert not tuning.seconds
