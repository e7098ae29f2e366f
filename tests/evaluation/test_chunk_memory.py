"""Memory: chunks that are measured and backed off, and a store that keeps to its capacity."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.errors import MemoryBackoffWarning, MemoryLimitError
from integrand.evaluation.chunks import MOST_ROWS, Chunks
from integrand.evaluation.evaluator import Evaluated
from integrand.functions.model_notes import known
from integrand.integration.mesh import GradientStore
from integrand.memory import out_of_memory

CPU = torch.device("cpu")


# ---- chunks ----------------------------------------------------------------------------------------------------------------


def measured(features: int, memory: int | None, rows: int = 8) -> Chunks:
    """Chunks after one measurement of exp, which saves its output: features x 8 bytes a row."""
    chunks = Chunks.start(CPU, rows=None, memory=memory)
    x = torch.zeros(rows, features, dtype=torch.float64, requires_grad=True)
    with chunks.measuring(rows):
        x.exp()
    return chunks


@pytest.mark.parametrize(
    ("features", "memory", "expected"),
    [(1000, 240_000, 10), (1000, 24_000, 1), (1000, 1, 1), (1, 10**9, 16384), (1000, 10**9, 524), (10**6, 10**9, 8)],
)
def test_the_chunk_size_is_measured(features: int, memory: int, expected: int) -> None:
    """A third of the memory over what autograd saves for a row; no more than fits into 4 MiB, but eight rows always pay."""
    assert measured(features, memory).size == expected
    assert MOST_ROWS == 16384


def test_what_is_saved_twice_is_counted_once() -> None:
    chunks = Chunks.start(CPU, rows=None, memory=240_000)
    x = torch.zeros(8, 1000, dtype=torch.float64, requires_grad=True)
    with chunks.measuring(8):
        y = x.exp()
        y * y  # saves y, which exp has saved already
    assert chunks.size == 10


def test_weights_are_not_activations() -> None:
    """They are there once, however many rows: what 8 rows of a wide layer save is its input, transposed weights apart."""
    layer = torch.nn.Linear(1000, 1000, dtype=torch.float64).requires_grad_(False)
    chunks = Chunks.start(CPU, rows=None, memory=240_000)
    x = torch.zeros(8, 1000, dtype=torch.float64, requires_grad=True)
    with chunks.measuring(8):
        layer(x.exp())  # exp saves its output
    assert chunks.size == 10


def test_only_the_first_chunk_is_measured_and_a_named_size_never() -> None:
    chunks = measured(1000, 240_000)
    with chunks.measuring(8):
        torch.zeros(8, 10**6, dtype=torch.float64, requires_grad=True).exp()
    assert chunks.size == 10
    named = Chunks.start(CPU, rows=3, memory=None)
    with named.measuring(3):
        torch.zeros(3, 1000, requires_grad=True).exp()
    assert named.size == 3


def test_points_and_gradients_take_room_too() -> None:
    """8 kB saved for a row of 8 kB, of which there are three more: the point, its gradient, and that times the velocity."""
    chunks = Chunks.start(CPU, rows=None, memory=960_000, row_bytes=8000)
    x = torch.zeros(8, 1000, dtype=torch.float64, requires_grad=True)
    with chunks.measuring(8):
        x.exp()
    assert chunks.size == 10


def test_small_models_fill_a_gpu_too() -> None:
    """Where no cache is to be kept to, rows that save little are not run by the few: 80 bytes a row, room for 10,000."""
    chunks = Chunks(8, 800_000, MOST_ROWS, settled=False)
    x = torch.zeros(8, 10, dtype=torch.float64, requires_grad=True)
    with chunks.measuring(8):
        x.exp()
    assert chunks.size == 10_000


def test_less_memory_means_smaller_chunks() -> None:
    """A row takes 32 kB of activations, and three times as much besides: a third of 4 MB holds 10, and no call has more."""
    seen: list[int] = []

    def model(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x.exp().sum(1)

    x = torch.zeros(2, 4000, dtype=torch.float64)
    x[:, 0] = 1
    ig.integrated_gradients(model, x, steps=100, memory=4_000_000, tol=1.0)
    assert max(seen) == 10
    ig.integrated_gradients(model, x, steps=100, tol=1.0)
    assert max(seen) > 100


# ---- running out -------------------------------------------------------------------------------------------------------------


def model_with_room_for(rows: int, error: BaseException) -> object:
    def model(x: Tensor) -> Tensor:
        if len(x) > rows:
            raise error
        return torch.sin(2 * x).sum(1)

    return model


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["cuda", "python", "cpu"])
@pytest.mark.parametrize("options", [{"steps": 30, "tol": 1e9}, {"tol": 1e-3}], ids=["fixed", "to a tolerance"])
def test_chunks_are_halved_until_they_fit(error: BaseException, options: dict[str, float]) -> None:
    """The values are those of a run with room enough; every halving is told."""
    x = torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3)
    expected = ig.integrated_gradients(lambda z: torch.sin(2 * z).sum(1), x, **options)
    with pytest.warns(MemoryBackoffWarning, match=r"out of memory with \d+ rows at a time; going on with \d+. Pass chunk="):
        found = ig.integrated_gradients(model_with_room_for(3, error), x, chunk=64, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(found.values, expected.values, rtol=1e-12, atol=1e-14)
    assert [c.gradients for c in found.certificate] == [c.gradients for c in expected.certificate]


def test_a_single_row_that_does_not_fit_is_an_error() -> None:
    calls = 0

    def model(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise torch.OutOfMemoryError("out of memory")
        return x.sum(1)

    with pytest.raises(MemoryLimitError, match="out of memory with a single row at a time"):
        ig.integrated_gradients(model, torch.ones(1, 2), chunk=1)


def test_other_errors_are_not_taken_for_lack_of_memory() -> None:
    assert all(out_of_memory(error) for error in OUT_OF_MEMORY)
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(MemoryLimitError("already small"))
    with pytest.raises(RuntimeError, match="my own bug"):
        ig.integrated_gradients(model_with_room_for(1, RuntimeError("my own bug")), torch.ones(1, 2), chunk=8)  # type: ignore[arg-type]


# ---- the store ---------------------------------------------------------------------------------------------------------------


def done(values: list[float], features: int, dtype: torch.dtype) -> Evaluated:
    rows = torch.tensor(values, dtype=dtype)[:, None].expand(-1, features)
    return Evaluated(np.arange(len(values)), np.array(values), -np.array(values), rows)


def test_slots_are_used_again() -> None:
    store = GradientStore(3, 10, torch.float32, CPU)
    assert store.room == 10
    slots = store.take(6)
    store.put(slots, done([1, 2, 3, 4, 5, 6], 3, torch.float32))
    assert sorted(slots) == sorted(set(slots))
    store.hold(slots)
    store.hold(slots[:2])
    assert store.room == 4
    store.release(slots)
    assert store.room == 8, "two are held twice"
    assert store.rows(slots[:2]).tolist() == [[1, 1, 1], [2, 2, 2]]
    assert store.scores[slots[:2]].tolist() == [1, 2]
    assert store.slopes[slots[:2]].tolist() == [-1, -2]
    store.release(slots[:2])
    assert store.room == 10
    assert store.peak == 6
    assert not set(store.take(10)) - set(range(10))


def test_recordings_make_room_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    model, empty, tried = torch.nn.Linear(1, 1), torch.empty, []

    def full_until_released(*shape: int, **options: object) -> Tensor:
        tried.append(shape)
        if known(model)["recordings"]:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return empty(*shape, **options)  # type: ignore[call-overload, no-any-return]

    known(model)["recordings"] = {"one": object()}
    monkeypatch.setattr(torch, "empty", full_until_released)
    assert len(GradientStore(3, 100, torch.float32, CPU).take(2)) == 2
    assert len(tried) == 2


def test_the_store_grows_up_to_its_capacity() -> None:
    """It starts small, whatever the capacity, and what it holds survives growing."""
    store = GradientStore(1_000_000, 1000, torch.float64, CPU)
    assert len(store) <= 64
    store = GradientStore(50_000, 1000, torch.float64, CPU)
    kept = store.take(5)
    store.put(kept, done([1, 2, 3, 4, 5], 50_000, torch.float64))
    store.hold(kept)
    more = store.take(95)
    assert len(store) <= 1000
    assert not set(kept) & set(more)
    assert store.rows(kept)[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert store.room == 900
    assert store.rows(kept.reshape(5, 1)).shape == (5, 1, 50_000)


def test_the_store_never_exceeds_its_capacity_and_the_values_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rough network at a tight tolerance, with room for a few panels only."""
    stores: list[GradientStore] = []
    create = GradientStore.__init__

    def watched(self: GradientStore, *args: object) -> None:
        create(self, *args)  # type: ignore[arg-type]
        stores.append(self)

    monkeypatch.setattr(GradientStore, "__init__", watched)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 60), torch.nn.ReLU(), torch.nn.Linear(60, 1)).double()
    x = torch.randn(6, 10, dtype=torch.float64) * 3
    ample = ig.integrated_gradients(model, x, tol=1e-3)
    for memory in (1, 5000, 20_000, 60_000):
        stores.clear()
        result = ig.integrated_gradients(model, x, tol=1e-3, memory=memory)
        assert result.certificate.converged
        # The same panels, whose nodes are evaluated again where they were let go: equal to rounding.
        torch.testing.assert_close(result.values, ample.values, rtol=1e-10, atol=1e-12)
        (store,) = stores
        assert len(store) <= store.capacity
        assert store.peak <= store.capacity
        # Two fifths of the memory, but always room for the first wave of one example.
        assert store.capacity <= max(2 * memory // 5 // (10 * 8), 17 + 8)
