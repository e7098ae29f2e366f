"""The same call gives the same bits and the same certificate, whatever was called before and however long it took."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import integrand as ig

CALLS = 6
WAYS: dict[str, dict[str, Any]] = {"to a tolerance": {"tol": 1e-3}, "fixed": {"steps": 30, "tol": 1e9}}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


def mlp() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3)), torch.randn(5, 12)


def cnn() -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 3)]
    return nn.Sequential(*layers), torch.randn(3, 3, 16, 16)


def lstm() -> tuple[nn.Module, Tensor]:
    return Recurrent(), torch.randn(4, 7, 4)


class Erratic:
    """A clock on which now this, now that takes long: nothing may hang on it unless tuning is asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps: Iterator[float] = itertools.cycle([0.004, 0.3, 0.02, 5.0, 0.003])

    def perf_counter(self) -> float:
        self.now += next(self.steps)
        return self.now


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", [mlp, cnn, lstm])
def test_six_identical_calls(
    kind: Callable[[], tuple[nn.Module, Tensor]], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("integrand.memory.time", Erratic())
    torch.manual_seed(0)
    model, x = kind()
    model.eval()
    first = ig.integrated_gradients(model, x, target=1, **options)
    others: list[dict[str, Any]] = [
        {"target": 2, "tol": 0.05},
        {"target": 0, "tol": 1e-4, "chunk": 3},
        {"target": [0, 1], "steps": 7, "tol": 1e9},
        {"target": 1, "tol": 0.01, "memory": 200_000},
        {"target": 1, "steps": 300, "tol": 1e9, "tune": True},
    ]
    assert len(others) == CALLS - 1
    for other in others:
        ig.integrated_gradients(model, x[:2], **other)
        again = ig.integrated_gradients(model, x, target=1, **options)
        assert torch.equal(again.values, first.values)  # type: ignore[arg-type]
        assert again.certificate == first.certificate
        assert again.profile is not None
        assert first.profile is not None
        for column in ("example", "piece", "t", "score", "slope", "mass"):
            assert getattr(again.profile, column).tolist() == getattr(first.profile, column).tolist()
