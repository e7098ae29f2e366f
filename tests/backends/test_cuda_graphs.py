"""When a CUDA graph is captured, used and forgotten; capturing needs a GPU (tests/gpu), and is stood in for."""

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
from integrand.backends import cuda_graphs
from integrand.backends.cuda_graphs import SIZES, USES, CapturedGraph, GraphedRows, graphed_rows, size_for
from integrand.backends.precision import PrecisionMode
from integrand.backends.torch_function import TorchFunction, build
from integrand.evaluation.chunks import Chunks
from integrand.evaluation.runner import Runner
from integrand.functions.model_notes import notes_of
from integrand.functions.target import ReadOut
from integrand.trees import Leaves


class Clock:
    """Time that passes only when told."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


CLOCK = Clock()


class Net(nn.Module):
    """Launching it takes a second; writes down how many rows it is run with."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.seen: list[int] = []

    def forward(self, x: Tensor, shift: Tensor | float = 0.0) -> Tensor:
        CLOCK.now += 1.0
        self.seen.append(len(x))
        out: Tensor = self.inner(x) + shift
        return out


class Replayed:
    """Stands for a captured graph: runs the model, and gives a multiple of what comes out."""

    factor = 1.0

    def replay(self, made_of: TorchFunction, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        scores, gradients = made_of.value_and_grad(leaves, rows)
        return self.factor * scores, tuple(self.factor * part for part in gradients)


class Fake:
    """Stands for a GPU, which takes so long after it was asked."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[int] = []
        self.waits = 0.0
        patch.setattr(cuda_graphs, "time", CLOCK)
        patch.setattr(cuda_graphs, "capturable", lambda function: True)
        patch.setattr(GraphedRows, "_small", lambda *_: True)
        patch.setattr(GraphedRows, "_captured", self.capture)
        patch.setattr(torch.cuda, "synchronize", lambda *_: setattr(CLOCK, "now", CLOCK.now + self.waits))
        create = Runner.__init__

        def with_graphs(runner: Runner, function: TorchFunction, *, graphs: bool = True) -> None:
            create(runner, function, graphs=graphs)
            runner.graphs = graphed_rows(function) if graphs else None

        patch.setattr(Runner, "__init__", with_graphs)

    def capture(self, mode: PrecisionMode, leaves: Leaves, rows: Tensor, size: int) -> Replayed:
        self.made.append(size)
        return Replayed()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(monkeypatch)


def function(model: nn.Module, count: int = 2, **options: Any) -> TorchFunction:
    return build(model, torch.zeros(count, 6), target=options.pop("target", 1), **options)


def replays(made_of: TorchFunction, rows: int = 5, mode: PrecisionMode | None = None) -> bool:
    """Run one chunk of so many rows in a run of its own; whether a graph was replayed."""
    graphs = graphed_rows(made_of)
    if graphs is None:
        return False
    points = torch.arange(6.0 * rows).reshape(rows, 6)
    label = torch.zeros(rows, dtype=torch.int64)
    scores, (gradient,) = graphs.value_and_grad(mode or PrecisionMode(), (points.clone(),), label)
    expected, (slope,) = made_of.value_and_grad((points.clone(),), label)
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(gradient, slope)
    return graphs.used


def test_a_graph_is_captured_of_what_came_up_before(gpu: Fake) -> None:
    model = Net()
    for _ in range(USES):
        assert not replays(function(model))
    assert replays(function(model))
    assert replays(function(model), rows=7)  # of the same size, filled up
    assert gpu.made == [size_for(5)]
    assert not replays(function(model), rows=11)  # of another


def test_rows_are_padded_before_a_graph_is_there_too(gpu: Fake) -> None:
    """So that the model's kernels are those of the graph, and the same call gives the same bits."""
    made_of = function(model := Net())
    model.seen.clear()
    assert not replays(made_of, rows=5)
    assert model.seen == [size_for(5), 5]  # the second is that of the comparison
    model.seen.clear()
    gpu.waits = 1.0
    other = function(model, count=3)
    model.seen.clear()
    for _ in range(USES + 2):
        assert not replays(other, rows=7)  # and where none will be captured
    assert model.seen == [size_for(7), 7] * (USES + 2)
    assert not gpu.made


def test_what_is_too_large_for_a_graph_is_run_as_it_is(gpu: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    made_of = function(model := Net())
    model.seen.clear()
    assert not replays(made_of, rows=SIZES[-1] + 1)
    assert model.seen[0] == SIZES[-1] + 1
    monkeypatch.setattr(GraphedRows, "_small", lambda *_: False)
    model.seen.clear()
    for _ in range(USES + 2):
        assert not replays(made_of, rows=5)
    assert set(model.seen) == {5}
    assert not gpu.made


def test_none_is_captured_where_the_gpu_is_busy_anyway(gpu: Fake) -> None:
    gpu.waits = 1.0
    model = Net()
    assert not any(replays(function(model)) for _ in range(USES + 3))
    assert not gpu.made


@pytest.mark.parametrize("change", ["weights", "module", "hook", "train", "batch", "arguments", "precision", "score"])
def test_one_is_not_used_for_something_else(change: str, gpu: Fake) -> None:
    model = Net()
    assert [replays(function(model)) for _ in range(USES + 1)][-1]
    other: dict[str, Any] = {}
    mode = PrecisionMode("tf32") if change == "precision" else PrecisionMode()
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
    assert not replays(function(model, **other), mode=mode)


def test_other_targets_and_values_share_it(gpu: Fake) -> None:
    model = Net()
    for value in range(USES):
        replays(function(model, target=[value, 1], args=(torch.full((2, 1), float(value)),)))
    assert replays(function(model, target=[2, 0], args=(torch.ones(2, 1),)))
    with torch.no_grad():
        model.inner.weight.mul_(2)  # in place: a graph reads it where it is
    assert not replays(function(model))  # but without arguments it is another call
    assert replays(function(model, target=[0, 0], args=(torch.ones(2, 1),)))


def test_graphs_that_are_forgotten_are_not_used(gpu: Fake) -> None:
    model = Net()
    for _ in range(USES + 1):
        replays(function(model))
    assert notes_of(model)["graphs"]
    graphs = graphed_rows(function(model))
    assert graphs is not None
    graphs.forget()
    assert not notes_of(model)["graphs"]
    for _ in range(USES + 2):
        graphs.value_and_grad(PrecisionMode(), (torch.zeros(5, 6),), torch.zeros(5, dtype=torch.int64))
    assert not graphs.used


def test_there_are_only_so_many(gpu: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two: the third, of yet another size, takes the place of the oldest, which would be captured once more."""
    monkeypatch.setattr(cuda_graphs, "MOST", 2)
    model = Net().eval()
    for rows in (3, 9, 20):
        for _ in range(USES + 1):
            replays(function(model), rows)
    assert gpu.made == [size_for(3), size_for(9), size_for(20)]
    replays(function(model), 9)
    assert len(gpu.made) == 3
    replays(function(model), 3)
    assert gpu.made[3:] == [size_for(3)]


def test_graphs_are_let_go_where_memory_runs_out(gpu: Fake) -> None:
    model = Net()
    for _ in range(USES + 1):
        replays(function(model))
    assert notes_of(model)["graphs"]
    with pytest.warns(ig.errors.MemoryBackoffWarning):
        Chunks.start(torch.device("cpu"), rows=8, memory=None).shrink(8, MemoryError())
    assert not notes_of(model)["graphs"]


def test_nothing_keeps_a_model_alive() -> None:
    """Neither what is remembered of it nor a graph, which holds tensors and no function."""
    kinds = {field.type for field in fields(CapturedGraph)}
    assert kinds == {"torch.cuda.CUDAGraph", "tuple[Tensor, ...]", "Leaves", "Tensor"}
    model = Net()
    ig.integrated_gradients(model, torch.ones(2, 6), target=1, tune=True)
    assert notes_of(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("options", [{}, {"steps": 9}])
def test_a_model_that_changed_unseen_is_noticed_by_its_score(
    options: dict[str, int], gpu: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that gives another F(x) than the model is dropped, and all starts again without it."""
    monkeypatch.setattr(Replayed, "factor", 2.0)
    model, x = Net(), torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    results = [ig.integrated_gradients(model, x, target=1, **options).values for _ in range(USES + 3)]  # type: ignore[arg-type]
    assert gpu.made
    for values in results:
        assert torch.equal(values, results[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"steps": 9}])
def test_graphs_serve_calls(options: dict[str, int], gpu: Fake) -> None:
    model, x = Net(), torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    results = [ig.integrated_gradients(model, x, target=1, **options) for _ in range(USES + 3)]  # type: ignore[arg-type]
    assert gpu.made
    for result in results:
        torch.testing.assert_close(result.values, results[0].values)
        assert result.certificate.gradients == results[0].certificate.gradients


def test_nothing_is_captured_nor_remembered_on_a_cpu() -> None:
    model = Net()
    for _ in range(USES + 2):
        ig.integrated_gradients(model, torch.ones(2, 6), target=1)
    assert not notes_of(model)
    assert Runner(function(model)).graphs is None


def test_what_a_graph_cannot_hold_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        """A function that seems to be on a GPU."""

        def __init__(self, made_of: TorchFunction) -> None:
            self.made_of = made_of
            self.inputs = (SimpleNamespace(device=torch.device("cuda")),)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.made_of, name)

    def fits(**options: Any) -> bool:
        return cuda_graphs.capturable(Elsewhere(function(Net(), **options)))  # type: ignore[arg-type]

    assert fits()
    assert not fits(target=lambda out: out[:, 0])
    assert not fits(target=ReadOut(lambda out, rows: out * 2, 1))
    assert not fits(layer="inner")
    assert not cuda_graphs.capturable(function(Net()))  # on a CPU
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    assert not fits()


def test_rows_are_written_to_the_front_and_the_rest_is_filled() -> None:
    points, labels = (torch.zeros(4, 2),), torch.zeros(4, dtype=torch.int64)
    cuda_graphs._fill(points, labels, (torch.tensor([[1.0, 2.0], [3.0, 4.0]]),), torch.tensor([5, 6]))
    assert points[0].tolist() == [[1, 2], [3, 4], [1, 2], [1, 2]]
    assert labels.tolist() == [5, 6, 5, 5]


def test_a_captured_function_picks_the_same_scores() -> None:
    """Its targets are tensors, so that others can be written in their place."""
    made_of = function(Net(), target=[2, 0], args=(torch.ones(2, 1),), score="probability")
    own = cuda_graphs._with_own_tensors(made_of)
    x, rows = torch.randn(5, 6), torch.tensor([0, 1, 1, 0, 0])
    torch.testing.assert_close(own.scores((x,), rows), made_of.scores((x,), rows))
    for mine, yours in zip(cuda_graphs._tensors(own), cuda_graphs._tensors(made_of), strict=True):
        assert torch.equal(mine, yours)
        assert mine.data_ptr() != yours.data_ptr()


def test_sizes() -> None:
    assert [size_for(rows) for rows in (1, 4, 5, 17, 64, 65, 1025)] == [4, 4, 7, 19, 64, 96, None]
    assert list(SIZES) == sorted(SIZES)
