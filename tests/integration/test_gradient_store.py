"""The store of gradients: slots that are used again, up to a capacity that holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.evaluation.evaluator import Evaluated
from integrand.functions.model_notes import notes_of
from integrand.integration.mesh import GradientStore

CPU = torch.device("cpu")


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


def test_graphs_make_room_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    model, empty, tried = torch.nn.Linear(1, 1), torch.empty, []

    def full_until_released(*shape: int, **options: object) -> Tensor:
        tried.append(shape)
        if notes_of(model)["graphs"]:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return empty(*shape, **options)  # type: ignore[call-overload, no-any-return]

    notes_of(model)["graphs"] = {"one": object()}
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
        # The same panels, whose nodes are evaluated again where they were released: equal to rounding.
        torch.testing.assert_close(result.values, ample.values, rtol=1e-10, atol=1e-12)
        (store,) = stores
        assert len(store) <= store.capacity
        assert store.peak <= store.capacity
        # Two fifths of the memory, but always room for the first round of one example.
        assert store.capacity <= max(2 * memory // 5 // (10 * 8), 17 + 8)
