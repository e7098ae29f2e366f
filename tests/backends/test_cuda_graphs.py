"""When a recording is made, used and forgotten; the recording itself needs a GPU, and is stood in for."""

from __future__ import annotations

import gc
import weakref
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.backends import cuda_graphs as _record
from integrand.backends.cuda_graphs import SIZES, USES, CapturedGraph, CapturedGraphs, size_for
from integrand.backends.precision import PrecisionMode
from integrand.backends.torch_function import TorchFunction, build
from integrand.evaluation.chunks import Chunks
from integrand.functions.model_notes import known, known_of
from integrand.functions.target import ReadOut


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: Tensor, shift: Tensor | float = 0.0) -> Tensor:
        out: Tensor = self.inner(x) + shift
        return out


class Clock:
    """Time that passes only when told."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


CLOCK = Clock()


class Fake:
    """Stands for a GPU: recordings are made of nothing, and it takes so long after it was asked."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[int] = []
        self.waits = 0.0
        patch.setattr(_record, "time", CLOCK)
        patch.setattr(_record, "fit", lambda function: True)
        patch.setattr(CapturedGraphs, "_small", lambda *_: True)
        patch.setattr(CapturedGraphs, "_made", self.make)
        patch.setattr(torch.cuda, "synchronize", lambda *_: setattr(CLOCK, "now", CLOCK.now + self.waits))

    def make(self, leaves: tuple[Tensor, ...], rows: Tensor, size: int) -> object:
        self.made.append(size)
        return object()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(monkeypatch)


def function(model: nn.Module, count: int = 2, **options: Any) -> TorchFunction:
    return build(model, torch.zeros(count, 6), target=options.pop("target", 1), **options)


def uses(made_of: TorchFunction, rows: int = 5, way: PrecisionMode | None = None) -> object:
    """One chunk of so many rows in a run of its own; the recording that was found for it."""
    recordings = CapturedGraphs(made_of, lambda *_: None)  # type: ignore[arg-type, return-value]
    label = torch.zeros(rows, dtype=torch.int64)
    found = recordings.find(way or PrecisionMode(), (torch.zeros(rows, 6),), label)
    with recordings.watching():
        CLOCK.now += 1.0  # what Python takes to ask
    return found


def test_a_recording_is_made_of_what_came_up_before(gpu: Fake) -> None:
    model = Net()
    for _ in range(USES):
        assert uses(function(model)) is None
    assert uses(function(model)) is not None
    assert uses(function(model), rows=7) is not None  # of the same size, filled up
    assert gpu.made == [size_for(5)]
    assert uses(function(model), rows=11) is None  # of another


def test_none_is_made_where_the_gpu_is_busy_anyway(gpu: Fake) -> None:
    gpu.waits = 1.0
    model = Net()
    assert [uses(function(model)) for _ in range(USES + 3)] == [None] * (USES + 3)
    assert not gpu.made


@pytest.mark.parametrize("change", ["weights", "module", "hook", "train", "batch", "arguments", "precision", "score"])
def test_one_is_not_used_for_something_else(change: str, gpu: Fake) -> None:
    model = Net()
    for _ in range(USES + 1):
        found = uses(function(model))
    assert found is not None
    other: dict[str, Any] = {}
    way = PrecisionMode("tf32") if change == "precision" else PrecisionMode()
    if change == "weights":
        model.inner.weight = nn.Parameter(torch.zeros(3, 6))
    elif change == "module":
        model.inner = nn.Linear(6, 3)
    elif change == "hook":
        model.inner.register_forward_hook(lambda *_: None)
    elif change == "train":
        model.inner.training = not model.inner.training
    elif change == "batch":
        other["count"] = 3
    elif change == "arguments":
        other["args"] = (torch.zeros(2, 1),)
    elif change == "score":
        other["score"] = "probability"
    assert uses(function(model, **other), way=way) is None


def test_other_targets_and_values_share_it(gpu: Fake) -> None:
    model = Net()
    for value in range(USES):
        uses(function(model, target=[value, 1], args=(torch.full((2, 1), float(value)),)))
    assert uses(function(model, target=[2, 0], args=(torch.ones(2, 1),))) is not None
    with torch.no_grad():
        model.inner.weight.mul_(2)  # in place: a recording reads it where it is
    assert uses(function(model)) is None  # but without arguments it is another call
    assert uses(function(model, target=[0, 0], args=(torch.ones(2, 1),))) is not None


def test_recordings_go_with_the_model(gpu: Fake) -> None:
    model = Net()
    for _ in range(USES + 1):
        uses(function(model))
    assert known(model)["recordings"]
    recordings = CapturedGraphs(function(model), lambda *_: None)  # type: ignore[arg-type, return-value]
    recordings.forget()
    assert not known(model)["recordings"]
    assert recordings.find(PrecisionMode(), (torch.zeros(5, 6),), torch.zeros(5, dtype=torch.int64)) is None


def test_there_are_only_so_many(gpu: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two: the third, of yet another size, takes the place of the oldest, which would be made once more."""
    monkeypatch.setattr(_record, "MOST", 2)
    model = Net().eval()
    for rows in (3, 9, 20):
        for _ in range(USES + 1):
            uses(function(model), rows)
    assert gpu.made == [size_for(3), size_for(9), size_for(20)]
    uses(function(model), 9)
    assert len(gpu.made) == 3
    uses(function(model), 3)
    assert gpu.made[3:] == [size_for(3)]


def test_recordings_are_let_go_where_memory_runs_out(gpu: Fake) -> None:
    model = Net()
    for _ in range(USES + 1):
        uses(function(model))
    assert known(model)["recordings"]
    with pytest.warns(ig.errors.MemoryBackoffWarning):
        Chunks.start(torch.device("cpu"), rows=8, memory=None).shrink(8, MemoryError())
    assert not known(model)["recordings"]


def test_nothing_keeps_a_model_alive() -> None:
    """Neither what is remembered of it nor a recording, which holds tensors and no function."""
    kinds = {field.type for field in fields(CapturedGraph)}
    assert kinds == {"torch.cuda.CUDAGraph", "tuple[Tensor, ...]", "Leaves", "Tensor"}
    model = Net()
    ig.integrated_gradients(model, torch.ones(2, 6), target=1)
    assert known(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_model_that_changed_unseen_is_noticed_by_its_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that gives another F(x) than the model is dropped, and all starts again without it."""
    Fake(monkeypatch)

    class Stale:
        def replay(self, made_of: TorchFunction, leaves: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            scores, gradients = made_of.value_and_grad(leaves, rows)
            return 2 * scores, tuple(2 * part for part in gradients)

    monkeypatch.setattr(CapturedGraphs, "_made", lambda *_: Stale())
    model, x = Net(), torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    results = [ig.integrated_gradients(model, x, target=1).values for _ in range(USES + 3)]
    for values in results:
        torch.testing.assert_close(values, results[0])


def test_nothing_is_recorded_on_a_cpu() -> None:
    model = Net()
    for _ in range(USES + 2):
        ig.integrated_gradients(model, torch.ones(2, 6), target=1)
    assert not known(model).get("recordings")
    assert known_of(function(model))["bytes"] > 0


def test_what_a_recording_cannot_hold_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        """A function that seems to be on a GPU."""

        def __init__(self, made_of: TorchFunction) -> None:
            self.made_of = made_of
            self.inputs = (SimpleNamespace(device=torch.device("cuda")),)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.made_of, name)

    def fits(**options: Any) -> bool:
        return _record.fit(Elsewhere(function(Net(), **options)))  # type: ignore[arg-type]

    assert fits()
    assert not fits(target=lambda out: out[:, 0])
    assert not fits(target=ReadOut(lambda out, rows: out * 2, 1))
    assert not fits(layer="inner")
    assert not _record.fit(function(Net()))  # on a CPU
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    assert not fits()


def test_rows_are_written_to_the_front_and_the_rest_is_filled() -> None:
    points, labels = (torch.zeros(4, 2),), torch.zeros(4, dtype=torch.int64)
    _record._fill(points, labels, (torch.tensor([[1.0, 2.0], [3.0, 4.0]]),), torch.tensor([5, 6]))
    assert points[0].tolist() == [[1, 2], [3, 4], [1, 2], [1, 2]]
    assert labels.tolist() == [5, 6, 5, 5]


def test_a_recorded_function_picks_the_same_scores() -> None:
    """Its targets are tensors, so that others can be written in their place."""
    made_of = function(Net(), target=[2, 0], args=(torch.ones(2, 1),), score="probability")
    own = _record._own(made_of)
    x, rows = torch.randn(5, 6), torch.tensor([0, 1, 1, 0, 0])
    torch.testing.assert_close(own.scores((x,), rows), made_of.scores((x,), rows))
    for mine, yours in zip(_record._tensors(own), _record._tensors(made_of), strict=True):
        assert torch.equal(mine, yours)
        assert mine.data_ptr() != yours.data_ptr()


def test_sizes() -> None:
    assert [size_for(rows) for rows in (1, 4, 5, 17, 64, 65, 1025)] == [4, 4, 10, 18, 64, 96, None]
    assert list(SIZES) == sorted(SIZES)
