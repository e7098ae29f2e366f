"""Rows at a time by measurement: simulated machines, whose best setting is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.evaluation.chunks import LEAST_SECONDS, TRIALS, Chunks, Setting, Tuning
from integrand.functions.model_notes import notes_of
from integrand.memory import in_chunks


class Clock:
    """Time that passes only where a test says so."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What chunks are timed by."""
    found = Clock()
    monkeypatch.setattr("integrand.memory.time", found)
    return found


def settle(tuning: Tuning, cost: Callable[[Setting], float], limit: int = 100) -> int:
    """Run until nothing is left to try; how many chunks that took."""
    for count in range(limit):
        if tuning.done:
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
    settle(tuning, lambda s: (0.05 + 0.01 * s.rows) * ((0.7 if faster else 1.4) if s.channels_last else 1.0))
    assert tuning.now == Setting(8, faster)
    without = Tuning(Setting(8), most=8, layouts=False)
    settle(without, lambda s: 0.05 + 0.01 * s.rows)
    assert not any(setting.channels_last for setting in without.seconds)


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


class Timed(nn.Module):
    """A small convolutional network that takes so long for a row; 16 rows at a time are best."""

    def __init__(self, clock: Clock, *, view: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 8 * 8, 2)
        self.clock, self.view = clock, view
        self.runs: list[tuple[int, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        last = x.is_contiguous(memory_format=torch.channels_last)
        if x.requires_grad:
            self.runs.append((len(x), last))
        hidden = torch.tanh(self.conv(x))
        flat = hidden.view(len(x), -1) if self.view else hidden.flatten(1)
        self.clock.now += 0.01 * len(x) * (1 + abs(len(x) - 16) / 16) * (0.5 if last else 1.0)
        out: Tensor = self.head(flat)
        return out


X = torch.linspace(-1, 2, 4 * 192).reshape(4, 3, 8, 8)
MANY = {"target": 1, "steps": 1200, "rule": "midpoint", "tol": 1e9, "memory": 800_000}
"""Rows enough for all trials, the first of which are of 64 rows or so: there is no memory for more."""


@pytest.mark.parametrize("options", [{"steps": 200, "tol": 1e9}, {"tol": 1e-6}])
def test_tuning_is_asked_for(options: dict[str, float], clock: Clock) -> None:
    """Without tune=True the clock decides nothing and nothing is remembered; with it later runs use what was found."""
    model = Timed(clock).eval()
    plain = [ig.integrated_gradients(model, X, target=1, **options) for _ in range(2)]
    half = len(model.runs) // 2
    assert model.runs[:half] == model.runs[half:]
    assert not any(last for _, last in model.runs)
    assert not any("tuning" in notes for notes in notes_of(model).values())
    assert torch.equal(plain[0].values, plain[1].values)  # type: ignore[arg-type]
    assert plain[0].certificate == plain[1].certificate


def test_what_is_tuned_is_remembered(clock: Clock) -> None:
    model = Timed(clock).eval()
    plain = ig.integrated_gradients(model, X[:1], **MANY)  # type: ignore[arg-type]
    for _ in range(3):
        model.runs.clear()
        tuned = ig.integrated_gradients(model, X[:1], **MANY, tune=True)  # type: ignore[arg-type]
        torch.testing.assert_close(tuned.values, plain.values, rtol=1e-4, atol=1e-6)
    (notes,) = [one for one in notes_of(model).values() if "tuning" in one]
    assert notes["tuning"].done
    assert notes["tuning"].now == Setting(16, True)
    assert set(model.runs[1:]) == {(16, True)}  # after the first chunk, on which a row is measured
    model.runs.clear()
    ig.integrated_gradients(model, X[:1], **MANY)  # type: ignore[arg-type]
    assert not any(last for _, last in model.runs), "only who asks for it gets what was tuned"


def test_a_model_that_does_not_take_channels_last_is_left_with_them_first(clock: Clock) -> None:
    """``view`` after a convolution: the trial fails, and is neither the user's error nor remembered."""
    model = Timed(clock, view=True).eval()
    plain = ig.integrated_gradients(model, X[:1], **MANY, chunk=8)  # type: ignore[arg-type]
    model.runs.clear()
    for _ in range(3):
        found = ig.integrated_gradients(model, X[:1], **MANY, tune=True)  # type: ignore[arg-type]
        torch.testing.assert_close(found.values, plain.values, rtol=1e-3, atol=1e-6)
    assert any(last for _, last in model.runs), "it was tried"
    (notes,) = [one for one in notes_of(model).values() if "tuning" in one]
    assert notes["tuning"].done
    assert not notes["tuning"].now.channels_last


def test_only_forward_and_backward_passes_are_timed(clock: Clock) -> None:
    """A forward pass takes half as long, and says nothing about the others."""
    chunks = Chunks(8, 1 << 30, 8, measured=True, tuning=Tuning(Setting(8), most=64))
    everything = slice(0, 16)

    def run(part: slice) -> int:
        clock.now += 0.003
        return part.stop - part.start

    assert chunks.tuning is not None
    assert list(in_chunks(run, everything, chunks.untimed())) == [8, 8]
    assert chunks.tuning.seconds == {}
    assert list(in_chunks(run, everything, chunks)) == [8, 8]
    assert chunks.tuning.seconds == {Setting(8): pytest.approx([0.003 / 8] * 2)}
