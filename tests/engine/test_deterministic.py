"""torch.use_deterministic_algorithms(True) is honoured: everything runs, gives the same bits, and nobody switches it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import integrand as ig
from benchmarks.threads import Network, difference, inputs, methods, numbers, usual

MODEL, X = Network(), inputs(2, 6)
CALLS = {
    **usual(MODEL, X),
    **methods(MODEL, X),
    "groups": lambda: ig.integrated_gradients(MODEL, X, target=1, groups=torch.tensor([0, 0, 1, 1, 2, -1])),
    "several targets": lambda: ig.integrated_gradients(MODEL, X[:1].expand(3, 6), target=torch.tensor([0, 1, 2])),
    "several baselines": lambda: ig.integrated_gradients(MODEL, X, [X * 0, X * 0.5], target=1, tol=0.05),
    "workers": lambda: ig.integrated_gradients(MODEL, X, target=1, steps=12, tol=1e9, devices=["cpu", "cpu"], chunk=4),
    "half": lambda: ig.integrated_gradients(nn.Sequential(MODEL, nn.Softmax(1)), X, target=1, precision="bfloat16", tol=0.2),
}


def switches() -> tuple[Any, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        cudnn.deterministic,
        cudnn.benchmark,
    )


@pytest.fixture(params=["filled", "not filled"])
def deterministic(request: pytest.FixtureRequest) -> Iterator[None]:
    """Deterministic algorithms only, where memory that nobody has written to holds NaN, or whatever was there."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = request.param == "filled"
    before = switches()
    try:
        yield
        assert switches() == before
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.fixture(scope="module")
def expected() -> dict[str, list[torch.Tensor]]:
    return {name: numbers(call()) for name, call in CALLS.items()}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::integrand.errors.IntegrandWarning", "ignore:The given NumPy array is not writable")
def test_every_call_gives_the_same_bits(name: str, deterministic: None, expected: dict[str, list[torch.Tensor]]) -> None:
    assert difference(numbers(CALLS[name]()), expected[name]) is None
