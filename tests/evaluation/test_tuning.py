"""Rows at a time by measurement: simulated machines, whose best setting is known."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.evaluation import chunks as _tune
from integrand.evaluation.chunks import LEAST_SECONDS, TRIALS, Chunks, Setting, Tuning, in_turn
from integrand.functions.model_notes import known


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


def test_a_model_that_does_not_take_channels_last_is_left_with_them_first() -> None:
    """``view`` after a convolution: the trial fails, and is neither the user's error nor remembered."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 32 * 32, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(torch.tanh(self.conv(x)).view(x.size(0), -1))
            return out

    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(4, 3, 32, 32)
    plain = ig.integrated_gradients(model, x, target=1, tol=0.01, chunk=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tune, "LEAST_SECONDS", 0.0)
        for _ in range(3):
            found = ig.integrated_gradients(model, x, target=1, tol=0.01)
            torch.testing.assert_close(found.values, plain.values, rtol=1e-3, atol=1e-6)
    (notes,) = [one for one in known(model).values() if isinstance(one, dict) and "tuning" in one]
    assert not notes["tuning"].now.last


def test_only_forward_and_backward_passes_are_timed() -> None:
    """A forward pass takes half as long, and says nothing about the others."""
    chunks = Chunks(8, 1 << 30, 8, settled=True, tuning=Tuning(Setting(8), most=64))
    everything = slice(0, 16)
    assert chunks.tuning is not None
    assert list(in_turn(lambda part: time.sleep(0.003), everything, chunks, None, timed=False)) == [None, None]
    assert chunks.tuning.seconds == {}
    assert list(in_turn(lambda part: time.sleep(0.003), everything, chunks, None)) == [None, None]
    assert len(chunks.tuning.seconds[Setting(8)]) == 2
