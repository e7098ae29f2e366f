"""Chunks: measured on the first one, and smaller where memory runs out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.errors import MemoryBackoffWarning, MemoryLimitError
from integrand.evaluation.chunks import MOST_ROWS, Chunks
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
    chunks = Chunks.start(CPU, rows=None, memory=960_000, input_bytes=8000)
    x = torch.zeros(8, 1000, dtype=torch.float64, requires_grad=True)
    with chunks.measuring(8):
        x.exp()
    assert chunks.size == 10


def test_small_models_fill_a_gpu_too() -> None:
    """Where no cache is to be kept to, rows that save little are not run by the few: 80 bytes a row, room for 10,000."""
    chunks = Chunks(8, 800_000, MOST_ROWS, measured=False)
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
    ig.integrated_gradients(model, x, steps=200, tol=1.0)
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
