"""Asking for the next chunk before the last one is looked at: the same numbers, in another order of work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.errors import MemoryBackoffWarning, NonFiniteError
from integrand.evaluation.evaluator import Evaluator


class Net(nn.Module):
    """Smooth, and tells what it is asked for; refuses batches above a size, as if memory had run out."""

    def __init__(self, log: list[str], most: int = 1000) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
        self.log, self.most = log, most

    def forward(self, x: Tensor) -> Tensor:
        self.log.append(f"ask {len(x)}")
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.inner(x)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a run asks for and looks at, in order, on a device that is taken for one that works by itself."""
    found: list[str] = []
    original = Evaluator.finish

    def look(self: Evaluator, asked: Any) -> Any:
        found.append(f"look {len(asked.index)}")
        return original(self, asked)

    monkeypatch.setattr(Evaluator, "finish", look)
    return found


X = torch.linspace(-1, 2, 18).reshape(3, 6)


@pytest.mark.parametrize("options", [{"tol": 1e-6}, {"steps": 7}, {"steps": 7, "rule": "gauss-legendre"}])
def test_the_same_numbers(options: dict[str, Any], log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of four: the model is asked for one more before each is looked at, but for the last of a round."""
    before = ig.integrated_gradients(Net(log), X, chunk=4, progress=False, **options)
    plain = log[1:]  # the first is F(x)
    log.clear()
    monkeypatch.setattr(Evaluator, "asynchronous", property(lambda self: True))
    ahead = ig.integrated_gradients(Net(log), X, chunk=4, progress=False, **options)
    assert torch.equal(before.values, ahead.values)
    assert ahead.certificate.gradients == before.certificate.gradients
    assert [entry.split()[0] for entry in plain[:6]] == ["ask", "look"] * 3
    assert log[1] == "ask 1", "what a row takes is measured before the first chunk"
    assert [entry.split()[0] for entry in log[2:7]] == ["ask", "ask", "look", "ask", "look"]
    assert sorted(plain) == sorted(log[2:])


@pytest.mark.parametrize("options", [{"tol": 1e-6}, {"steps": 7}])
def test_lack_of_memory_makes_chunks_smaller(options: dict[str, Any], log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ig.integrated_gradients(Net([]), X, progress=False, **options)
    monkeypatch.setattr(Evaluator, "asynchronous", property(lambda self: True))
    with pytest.warns(MemoryBackoffWarning):
        parts = ig.integrated_gradients(Net(log, most=5), X, chunk=18, progress=False, **options)
    torch.testing.assert_close(parts.values, whole.values, rtol=1e-5, atol=1e-6)
    assert parts.certificate.gradients == whole.certificate.gradients


@pytest.mark.parametrize("options", [{"tol": 1e-2}, {"steps": 8}])
def test_what_is_no_number_is_said(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """log x from -1 on: the score is not a number at the start of the path."""
    monkeypatch.setattr(Evaluator, "asynchronous", property(lambda self: True))
    with pytest.raises(NonFiniteError, match="the score is"):
        ig.integrated_gradients(
            lambda x: x.log().sum(1), torch.ones(1, 3), -torch.ones(1, 3), chunk=2, progress=False, **options
        )
