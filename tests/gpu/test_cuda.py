"""On a CUDA device: graphs, overlap, precision modes, lack of memory and workers; all of it small."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from benchmarks.threads import Scenario, attack
from integrand.backends.checkpointing import NOTE
from integrand.backends.cuda_graphs import USES, CapturedGraph, size_for
from integrand.errors import MemoryBackoffWarning
from integrand.evaluation import precision_choice
from integrand.evaluation.evaluator import Evaluator
from integrand.functions.model_notes import notes_of, release_graphs
from integrand.integration.adaptive import GradientIntegral
from integrand.paths import guided

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CALLS = 6
WAYS: dict[str, dict[str, Any]] = {"to a tolerance": {"tol": 1e-3}, "fixed": {"steps": 20, "tol": 1e9}}

way = pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)


class Recurrent(nn.Module):
    """The last state of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


class Attentive(nn.Module):
    """One transformer layer; not with "gelu", for which PyTorch takes another formula on a GPU when gradients are off."""

    def __init__(self) -> None:
        super().__init__()
        silu = nn.functional.silu
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation=silu, batch_first=True)
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(x).mean(1))
        return out


def dense() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 3)), torch.randn(4, 48)


def kinked() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 3)), torch.randn(4, 48)


def convolutional() -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 8, 3, stride=2), nn.SiLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(968, 3)), torch.randn(2, 3, 24, 24)


def many() -> tuple[nn.Module, Tensor]:
    """Features beyond which sums are taken on the device."""
    return nn.Sequential(nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3)), torch.randn(2, 2048)


def transformer() -> tuple[nn.Module, Tensor]:
    return Attentive(), torch.randn(3, 10, 32)


def recurrent() -> tuple[nn.Module, Tensor]:
    return Recurrent(), torch.randn(3, 12, 6)


Kind = Callable[[], tuple[nn.Module, Tensor]]
KINDS: list[Kind] = [dense, kinked, many, convolutional, transformer, recurrent]

every = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def made(kind: Kind, device: str = "cuda", dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x = kind()
    return model.to(device, dtype).eval(), x.to(device, dtype)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Switches are afterwards as they were, and nothing is left on the device that a test would be short of."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.enabled, torch.get_float32_matmul_precision()
    yield
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.enabled, torch.get_float32_matmul_precision()) == before
    release_graphs()
    gc.collect()
    torch.cuda.empty_cache()


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, cuDNN's gradients of convolutions differ from run to run, whoever asks for them."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every graph that is replayed."""
    found: list[int] = []
    replay = CapturedGraph.replay

    def counted(self: CapturedGraph, *args: Any) -> Any:
        found.append(len(self.rows))
        return replay(self, *args)

    monkeypatch.setattr(CapturedGraph, "replay", counted)
    return found


def off(found: Any, expected: Any) -> float:
    """The largest relative L1 error over the examples."""
    error = (found.double().cpu() - expected.double().cpu()).flatten(1).abs().sum(1)
    return float((error / expected.double().cpu().flatten(1).abs().sum(1)).max())


# ---- the same values as elsewhere -------------------------------------------------------------------------------------------


@every
def test_values_are_those_of_a_cpu(kind: Kind) -> None:
    """By a fixed rule to the rounding of either precision, and to a tolerance within it."""
    for dtype, slack in ((torch.float32, 2e-5), (torch.float64, 1e-12)):
        here, there = (
            ig.integrated_gradients(*made(kind, device, dtype), target=1, steps=20, tol=1e9) for device in ("cuda", "cpu")
        )
        assert isinstance(here.values, Tensor)
        assert here.values.device.type == "cuda"
        assert off(here.values, there.values) <= slack
        assert here.certificate.gradients == there.certificate.gradients
    found = ig.integrated_gradients(*made(kind), target=1, tol=1e-3)
    exact = ig.integrated_gradients(*made(kind, "cpu", torch.float64), target=1, tol=1e-7)
    assert found.certificate.converged
    assert off(found.values, exact.values) <= found.certificate.error


@way
def test_an_lstm_in_eval_mode(options: dict[str, Any]) -> None:
    """Whose backward pass cuDNN refuses."""
    model, x = made(recurrent)
    with pytest.raises(RuntimeError, match="cudnn"):
        torch.autograd.grad(model(x.clone().requires_grad_(True)).sum(), [*model.parameters()])
    found = ig.integrated_gradients(model, x, target=1, **options)
    there = ig.integrated_gradients(*made(recurrent, "cpu"), target=1, **options)
    assert off(found.values, there.values) <= (1e-3 if "steps" not in options else 2e-5)
    assert torch.backends.cudnn.enabled


# ---- graphs -----------------------------------------------------------------------------------------------------------------


@way
@every
@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_same_call_gives_the_same_bits(
    kind: Kind, options: dict[str, Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a graph at first and from graphs later, with other calls in between."""
    monkeypatch.setattr("integrand.backends.cuda_graphs.WAITS", 0.0)  # captured however busy the device is
    model, x = made(kind, dtype=dtype)
    other, y = made(dense)
    first = ig.integrated_gradients(model, x, target=1, **options)
    for _ in range(CALLS - 1):
        ig.integrated_gradients(other, y, target=2, tol=0.02)
        ig.integrated_gradients(model, x[:1], target=2, tol=0.02)
        again = ig.integrated_gradients(model, x, target=1, **options)
        assert torch.equal(again.values, first.values)  # type: ignore[arg-type]
        assert again.certificate == first.certificate


@pytest.mark.usefixtures("repeatable")
@pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")
@pytest.mark.parametrize("score", ["logit", "probability"])
def test_groups_baselines_and_graphs_of_gradients_give_the_same_bits(score: Any) -> None:
    """Whatever else is added up."""
    model, x = made(many, dtype=torch.float64)
    results = [
        [
            ig.integrated_gradients(model, x, target=1, tol=1e-4, score=score, groups=torch.arange(2048, device="cuda") // 512),
            ig.integrated_gradients(model, x, [0.0, 1.0], target=1, tol=1e-3, score=score),  # type: ignore[arg-type]
            ig.integrated_gradients(model, x, target=1, tol=1e-3, score=score, create_graph=True),
        ]
        for _ in range(CALLS)
    ]
    for again in results[1:]:
        for one, first in zip(again, results[0], strict=True):
            assert torch.equal(one.values, first.values)  # type: ignore[arg-type]
            assert one.certificate == first.certificate


@way
def test_graphs_are_captured_and_replayed(options: dict[str, Any], replays: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chunks that came up before; a call then runs from graphs, also for other targets and inputs."""
    monkeypatch.setattr("integrand.backends.cuda_graphs.WAITS", 0.0)
    model, x = made(dense)
    counts = []
    for _ in range(CALLS):
        before = len(replays)
        ig.integrated_gradients(model, x, target=1, **options)
        counts.append(len(replays) - before)
    assert counts[:USES] == [0] * USES
    assert counts[-1] > 0
    graphs = [graph for graph in notes_of(model)["graphs"].values() if graph is not None]
    assert graphs
    assert all(len(graph.rows) == size_for(len(graph.rows)) for graph in graphs)
    # Another input and another target, from the same graphs.
    before = len(replays)
    found = ig.integrated_gradients(model, 2 * x, target=[0, 1, 2, 0], **options)
    if "steps" in options:
        assert len(replays) > before
    there, _ = made(dense, "cpu")
    expected = ig.integrated_gradients(there, 2 * x.cpu(), target=[0, 1, 2, 0], **options)
    assert off(found.values, expected.values) <= (1e-3 if "steps" not in options else 2e-5)


def test_graphs_follow_weights_that_change_in_place(replays: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integrand.backends.cuda_graphs.WAITS", 0.0)
    model, x = made(dense)
    for _ in range(USES + 1):
        before = ig.integrated_gradients(model, x, target=1, steps=20, tol=1e9)
    assert replays
    with torch.no_grad():
        model[-1].weight.mul_(3)  # type: ignore[operator, index]
    replays.clear()
    after = ig.integrated_gradients(model, x, target=1, steps=20, tol=1e9)
    assert replays
    assert off(after.values, 3 * before.values) <= 1e-5  # type: ignore[operator]


class Scaled(nn.Module):
    """Something about it changes that nobody can see."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.factor = nn.Linear(8, 8), 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.inner(x).tanh().sum(1)


@way
def test_a_model_that_changes_unseen_is_noticed(
    options: dict[str, Any], replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("integrand.backends.cuda_graphs.WAITS", 0.0)
    torch.manual_seed(0)
    model, x = Scaled().cuda().eval(), torch.randn(3, 8, device="cuda")
    for _ in range(USES + 2):
        before = ig.integrated_gradients(model, x, **options)
    assert replays
    model.factor = 2.0
    after = ig.integrated_gradients(model, x, **options)
    assert off(after.values, 2 * before.values) <= (1e-3 if "steps" not in options else 1e-5)  # type: ignore[operator]


@way
def test_a_model_that_waits_for_the_device_is_run_without_graphs(options: dict[str, Any], replays: list[int]) -> None:
    class Waits(Scaled):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * (1.0 if float(x.detach().abs().max()) >= 0 else 2.0)

    torch.manual_seed(0)
    model, x = Waits().cuda().eval(), torch.randn(3, 8, device="cuda")
    results = [ig.integrated_gradients(model, x, **options).values for _ in range(CALLS)]
    assert not replays
    assert all(torch.equal(values, results[0]) for values in results)  # type: ignore[arg-type]


def test_graphs_go_with_the_model(replays: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integrand.backends.cuda_graphs.WAITS", 0.0)
    model, x = made(dense)
    for _ in range(USES + 2):
        ig.integrated_gradients(model, x, target=1, steps=20, tol=1e9)
    assert replays
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


# ---- overlap ----------------------------------------------------------------------------------------------------------------


@way
def test_the_next_chunk_is_asked_for_before_one_is_looked_at(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    finish = Evaluator.finish

    def look(self: Evaluator, asked: Any) -> Any:
        log.append("look")
        return finish(self, asked)

    monkeypatch.setattr(Evaluator, "finish", look)
    model, x = made(dense)
    plain = ig.integrated_gradients(model, x, target=1, **options)
    model.register_forward_hook(lambda *_: log.append("ask"))
    log.clear()
    parts = ig.integrated_gradients(model, x, target=1, chunk=8, **options)
    first = log.index("look")
    assert log[:first].count("ask") >= 3, "F(x) and two chunks"
    assert log[first : first + 4] == ["look", "ask", "look", "ask"]
    assert off(parts.values, plain.values) <= 1e-5
    assert parts.certificate.gradients == plain.certificate.gradients


# ---- precision --------------------------------------------------------------------------------------------------------------


def wide() -> tuple[nn.Module, Tensor]:
    layers = [nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 3)]
    return nn.Sequential(*layers), 2 * torch.randn(6, 64)


def true_errors(found: ig.Attribution, kind: Kind, tol: float = 1e-7) -> list[float]:
    """Of each example that was found, against float64 to a tolerance; thousands of kinks cannot be had to the finest."""
    exact = ig.integrated_gradients(*made(kind, "cuda", torch.float64), target=1, tol=tol).values
    return [off(found.values[i : i + 1], exact[i : i + 1]) for i in range(len(found.certificate))]  # type: ignore[index]


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are small here, for which a lower precision would not be tried."""
    monkeypatch.setattr(precision_choice, "WORTH", 0)
    monkeypatch.setattr(precision_choice, "WORTH_BACKWARD", 0)


@pytest.mark.usefixtures("worth")
def test_a_tolerance_that_leaves_room_is_met_in_less() -> None:
    model, x = made(wide)
    alone = ig.integrated_gradients(model, x[:1], target=1, tol=0.05)
    assert alone.certificate.only.precision == "tf32-backward"  # whose check takes no pass that is waited for
    assert 0 < true_errors(alone, wide)[0] <= alone.certificate.only.error <= 0.05
    results = [ig.integrated_gradients(model, x, target=1, tol=0.05) for _ in range(CALLS)]
    found = results[0]
    assert {one.precision for one in found.certificate} <= {"float16", "tf32"}
    assert found.certificate.converged
    assert all(0 < one.moved < 0.05 for one in found.certificate)
    for error, one in zip(true_errors(found, wide), found.certificate, strict=True):
        assert error <= one.error
    for again in results[1:]:
        assert torch.equal(again.values, found.values)  # type: ignore[arg-type]
        assert again.certificate == found.certificate


def kinked_images() -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1568, 3)), torch.randn(3, 3, 32, 32)


@pytest.mark.usefixtures("worth", "repeatable")
def test_backward_passes_in_tf32() -> None:
    """The default for networks with kinks: scores are those of float32, and what gradients move by is measured."""
    model, x = made(kinked_images)
    plain = ig.integrated_gradients(model, x, target=1, tol=0.02, precision="float32")
    results = [ig.integrated_gradients(model, x, target=1, tol=0.02) for _ in range(CALLS)]
    errors = true_errors(results[0], kinked_images, tol=5e-4)
    for error, one, full in zip(errors, results[0].certificate, plain.certificate, strict=True):
        assert one.precision == "tf32-backward"
        assert 0 < one.moved < 0.005
        assert error <= one.error <= 0.02
        assert one.score == full.score
    for again in results[1:]:
        assert torch.equal(again.values, results[0].values)  # type: ignore[arg-type]
    asked = ig.integrated_gradients(model, x, target=1, tol=0.02, precision="tf32-backward")
    assert asked.certificate.converged
    assert off(asked.values, plain.values) <= 0.03


def held() -> int:
    """Bytes that tensors hold; cuBLAS keeps a workspace of 32 MiB for each stream and kind of product that it has run."""
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_computed_as_in_float32(dtype: torch.dtype) -> None:
    model, x = made(transformer, "cuda", dtype)
    exact = ig.integrated_gradients(copy.deepcopy(model).double(), x.double(), target=1, tol=1e-7).values
    weights = held()
    result = ig.integrated_gradients(model, x, target=1, tol=1e-4)
    assert {one.precision for one in result.certificate} == {f"float32 with {str(dtype)[6:]} weights"}
    for i, one in enumerate(result.certificate):
        assert one.converged
        assert off(result.values[i : i + 1], exact[i : i + 1]) <= one.error  # type: ignore[index]
    del result
    assert held() <= weights + (1 << 20)


@pytest.mark.usefixtures("worth")
def test_a_tolerance_that_leaves_none_is_met_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the check shows, and, where it is made to show nothing, by what turns out on the way."""
    model, x = made(wide)
    plain = ig.integrated_gradients(model, x, target=1, tol=1e-4, precision="float32")
    checked = ig.integrated_gradients(model, x, target=1, tol=1e-4)
    monkeypatch.setattr(precision_choice, "SHARE", 1e9)
    given_up, modes = [], set()
    start_again = GradientIntegral._give_up_precision

    def noted(self: GradientIntegral) -> Any:
        given_up.append(self.evaluator.runner.mode.name)
        return start_again(self)

    monkeypatch.setattr(GradientIntegral, "_give_up_precision", noted)
    late = ig.integrated_gradients(model, x, target=1, tol=1e-4)
    assert given_up == ["float16"]
    for found in (checked, late):
        modes |= {one.precision for one in found.certificate}
        assert found.certificate.converged
        assert torch.equal(found.values, plain.values)  # type: ignore[arg-type]
        assert all(one.moved == 0 for one in found.certificate)
        assert found.certificate.gradients > plain.certificate.gradients
    assert modes == {"float32"}


def test_small_models_are_not_tried_in_less() -> None:
    result = ig.integrated_gradients(*made(wide), target=1, tol=0.05)
    assert {one.precision for one in result.certificate} == {"float32"}


@way
@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_a_precision_that_is_asked_for(
    precision: Any, options: dict[str, Any], replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shift counts into the error; graphs serve it as they do float32; and the same call gives the same bits."""
    monkeypatch.setattr("integrand.backends.cuda_graphs.WAITS", 0.0)
    model, x = made(wide)
    options = options | {"tol": 0.2}
    results = [ig.integrated_gradients(model, x, target=1, precision=precision, **options) for _ in range(CALLS)]
    assert replays
    for error, one in zip(true_errors(results[0], wide), results[0].certificate, strict=True):
        assert one.precision == precision
        assert error <= one.error
        assert one.moved > 0
    for again in results[1:]:
        assert torch.equal(again.values, results[0].values)  # type: ignore[arg-type]
        assert again.certificate == results[0].certificate


# ---- memory -----------------------------------------------------------------------------------------------------------------


class Hungry(nn.Module):
    """Saves 2 MiB for a row of 64 KiB, and takes twice as much besides."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = nn.Parameter(torch.linspace(0.5, 2, 32)[:, None])

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(torch.tanh(x[:, None] * self.rates)).mean((1, 2))


@way
def test_chunks_that_do_not_fit_are_made_smaller(options: dict[str, Any]) -> None:
    """The process may have 200 MiB more than it has: 64 rows take twice as much."""
    model, x = Hungry().cuda().eval(), torch.linspace(-1, 2, 4 << 14, device="cuda").reshape(4, -1)
    options = options | ({"steps": 32} if "steps" in options else {})  # chunks of 64 are then full
    expected = ig.integrated_gradients(model, x, chunk=4, **options)
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (200 << 20)) / total)
    try:
        with pytest.warns(MemoryBackoffWarning, match=r"out of memory with \d+ rows at a time; going on with \d+"):
            found = ig.integrated_gradients(model, x, chunk=64, **options)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert off(found.values, expected.values) <= 1e-5
    assert found.certificate.gradients == expected.certificate.gradients


def deep() -> tuple[nn.Module, Tensor]:
    """Sixteen transformer layers, and a text of 1,024 tokens: a row saves some 170 MB, or 27 if blocks are recomputed."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, activation=nn.functional.silu, batch_first=True)
    body = nn.TransformerEncoder(layer, 16, enable_nested_tensor=False)
    model = nn.Sequential(body, nn.Flatten(1), nn.Linear(1024 * 256, 5)).cuda().eval()
    return model, torch.randn(1, 1024, 256, device="cuda")


def test_blocks_are_recomputed_under_a_limit() -> None:
    """Three outputs of one input, which share forward passes; autograd's own threads run the blocks once more."""
    model, x = deep()
    peaks, results = [], []
    for memory in (None, 150 << 20):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        given: dict[str, Any] = {"target": [0, 2, 4], "steps": 6, "tol": 1e9, "chunk": 1}
        results.append(ig.integrated_gradients(model, x.expand(3, -1, -1), batched=True, memory=memory, **given))
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert off(results[1].values, results[0].values) <= 1e-5
    assert {one.note for one in results[1].certificate} == {NOTE}
    assert peaks[1] < 0.5 * peaks[0]
    assert peaks[1] < 150 << 20


def test_blocks_are_recomputed_where_one_row_runs_out_of_memory() -> None:
    model, x = deep()
    expected = ig.integrated_gradients(model, x, target=1, steps=6, tol=1e9)
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (100 << 20)) / total)
    try:
        with pytest.warns(MemoryBackoffWarning, match="going on with activations recomputed block by block"):
            found = ig.integrated_gradients(model, x, target=1, steps=6, tol=1e9, chunk=1)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert off(found.values, expected.values) <= 1e-5
    assert found.certificate.only.note == NOTE


# ---- workers ----------------------------------------------------------------------------------------------------------------


@way
@every
@pytest.mark.usefixtures("repeatable")
def test_two_workers_on_one_device(kind: Kind, options: dict[str, Any]) -> None:
    model, x = made(kind)
    alone = ig.integrated_gradients(model, x, target=1, **options)
    results = [ig.integrated_gradients(model, x, target=1, chunk=7, devices=["cuda:0", "cuda:0"], **options) for _ in range(3)]
    for found in results:
        assert found.meta["devices"] == "cuda:0, cuda:0"
        assert off(found.values, alone.values) <= (1e-3 if "steps" not in options else 2e-5)
        assert torch.equal(found.values, results[0].values)  # type: ignore[arg-type]


def test_a_worker_on_the_cpu_beside_one_on_the_device() -> None:
    model, x = made(dense)
    alone = ig.integrated_gradients(model, x, target=1, steps=40, tol=1e9)
    found = ig.integrated_gradients(model, x, target=1, steps=40, tol=1e9, chunk=4, devices=["cuda:0", "cpu"])
    assert off(found.values, alone.values) <= 2e-5


# ---- threads, and deterministic algorithms ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("repeatable")
@pytest.mark.filterwarnings("ignore::integrand.errors.IntegrandWarning")
def test_threads_that_need_other_switches_wait_for_each_other() -> None:
    """Recurrent networks do without cuDNN, TF32 is for the process: each call has its own bits, and all switches come back."""
    models = [made(kind) for kind in (dense, convolutional, recurrent, transformer)]
    calls: dict[str, Callable[[], Any]] = {}
    for number, (model, x) in enumerate(models):
        for name, options in {"plain": {}, "fixed": {"steps": 12}, "tf32": {"steps": 12, "precision": "tf32"}}.items():
            chosen: dict[str, Any] = {"tol": 0.05 if not options else 1e9, **options}
            calls[f"{number} {name}"] = partial(ig.integrated_gradients, model, x, target=1, **chosen)
    counts = attack(Scenario("on a GPU", calls, [model for model, _ in models]), threads=4, rounds=3, bystanders=False)
    assert counts.clean, "\n".join(counts.lines())


DETERMINISTIC = """
import warnings
import torch
from benchmarks.threads import Network, difference, inputs, methods, numbers, usual

warnings.simplefilter("ignore")
torch.use_deterministic_algorithms(True)
model, x = Network().cuda(), inputs(2, 6).cuda()
for name, call in (usual(model, x) | methods(model, x)).items():
    first = numbers(call())
    assert difference(numbers(call()), first) is None, name
assert torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory
assert not torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
"""


def test_deterministic_algorithms_alone() -> None:
    """In a process of its own: cuBLAS looks at its setting once."""
    setting = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    done = subprocess.run([sys.executable, "-c", DETERMINISTIC], env=setting, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_count_th_smallest_without_kthvalue() -> None:
    values = torch.tensor([[3.0, 1.0, torch.inf, 1.0], [torch.inf, torch.inf, 2.0, 5.0]])
    for count in range(1, 5):
        torch.use_deterministic_algorithms(True)
        try:
            found = guided._smallest(values.cuda(), count)
        finally:
            torch.use_deterministic_algorithms(False)
        assert torch.equal(found.cpu(), guided._smallest(values, count))
