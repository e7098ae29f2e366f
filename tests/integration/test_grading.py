"""Paths that start at zero in front of a norm: nodes gather at the start, whose own gradient has no weight."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from tests.honesty.honest import relative_error

EPSILON = 1e-12

pytestmark = pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")  # zero is what is tested here


def normed(weights: Tensor, epsilon: float = EPSILON) -> nn.Module:
    """Features over their own size, weighed."""

    class Normed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * torch.rsqrt(x.square().sum(1, keepdim=True) + epsilon)) @ weights.to(x)

    return Normed()


def exact(x: np.ndarray, weights: np.ndarray, epsilon: float = EPSILON) -> np.ndarray:
    """Integrated gradients of :func:`normed` from zero, in closed form."""
    square, dot = float(x @ x), float(x @ weights)
    rise = math.asinh(math.sqrt(square / epsilon))
    bend = rise / square**1.5 - 1 / (square * math.sqrt(square + epsilon))
    return weights * x * rise / math.sqrt(square) - dot * x**2 * bend


def case(seed: int, features: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, features, generator=generator).double(), torch.randn(features, generator=generator).double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-12, 1e-20])
@pytest.mark.parametrize("tol", [0.01, 0.002])
def test_a_norm_from_zero(dtype: torch.dtype, epsilon: float, tol: float) -> None:
    for seed in range(3):
        x, weights = case(seed)
        result = ig.integrated_gradients(normed(weights, epsilon), x.to(dtype), tol=tol)
        only = result.certificate.only
        assert only.converged
        assert only.gradients <= 150
        assert relative_error(result.values[0].double().numpy(), exact(x[0].numpy(), weights.numpy(), epsilon)) <= tol


def test_two_sides_that_cancel_in_the_score() -> None:
    """The output does not move at all: only the gradient at the start tells."""
    x, weights = case(0)
    side = normed(weights)
    result = ig.integrated_gradients(lambda both: side(both[:, :6]) - side(both[:, 6:]), torch.cat([x, x], 1))
    one = exact(x[0].numpy(), weights.numpy())
    assert result.certificate.only.converged
    assert relative_error(result.values[0].numpy(), np.r_[one, -one]) <= 0.01


def test_other_examples_of_the_batch_are_integrated_as_they_are_alone() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.LayerNorm(8, bias=False), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).double().eval()
    x, start = torch.randn(3, 8).double(), torch.randn(3, 8).double()
    start[1] = 0
    together = ig.integrated_gradients(net, x, start)
    for row in range(3):
        alone = ig.integrated_gradients(net, x[row : row + 1], start[row : row + 1])
        assert alone.certificate.only.gradients == together.certificate[row].gradients
        torch.testing.assert_close(alone.values[0], together.values[row], rtol=1e-9, atol=1e-12)


def test_one_of_several_baselines_is_zero() -> None:
    x, weights = case(1)
    other = torch.full_like(x, 0.3)
    net = normed(weights)
    result = ig.integrated_gradients(net, x, [torch.zeros_like(x), other])
    line = ig.integrated_gradients(net, x, other, tol=1e-6)
    expected = (exact(x[0].numpy(), weights.numpy()) + line.values[0].numpy()) / 2
    assert result.certificate.only.converged
    assert relative_error(result.values[0].numpy(), expected) <= 0.01


def test_values_that_are_differentiated_have_the_same_nodes() -> None:
    x, weights = case(2)
    net = normed(weights)
    plain = ig.integrated_gradients(net, x)
    graph = ig.integrated_gradients(net, x, create_graph=True)
    assert graph.values.requires_grad
    torch.testing.assert_close(graph.values.detach(), plain.values)


@pytest.mark.parametrize("normalised", [False, True])
def test_other_starts_are_not_graded(normalised: bool) -> None:
    """Zero without a norm, and a norm that does not see zero: equal steps, as ever."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2)]
    net = nn.Sequential(*([nn.LayerNorm(8)] if normalised else []), *layers).double().eval()
    start = torch.randn(1, 8).double() if normalised else None
    profile = ig.integrated_gradients(net, torch.randn(1, 8).double(), start, target=0).profile
    assert profile is not None
    assert {0.0, 0.25, 0.5, 0.75, 1.0} <= set(profile.t.tolist())


def test_the_profile_is_in_the_time_of_the_path() -> None:
    x, weights = case(3)
    profile = ig.integrated_gradients(normed(weights), x).profile
    assert profile is not None
    sizes = profile.t * math.sqrt(float(x.square().sum()))
    scores = sizes / np.sqrt(sizes**2 + EPSILON) * float(x[0] @ weights) / math.sqrt(float(x.square().sum()))
    np.testing.assert_allclose(profile.score, scores, rtol=1e-9)
    assert profile.reached(0.5) < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_that_are_infinite_at_the_start(dtype: torch.dtype) -> None:
    """A root has an infinite gradient at zero, a norm none at all; both ended in an error, and have integrals."""
    x, theta = torch.tensor([[1.0, 4.0]], dtype=dtype), torch.tensor([3.0, 5.0], dtype=dtype, requires_grad=True)
    root = ig.integrated_gradients(lambda z: (theta * z.sqrt()).sum(1), x, tol=1e-4, create_graph=True)
    assert root.certificate.converged
    torch.testing.assert_close(root.values.detach(), torch.tensor([[3.0, 10.0]], dtype=dtype), rtol=1e-4, atol=0)
    (slopes,) = torch.autograd.grad(root.values.sum(), theta)
    torch.testing.assert_close(slopes, torch.tensor([1.0, 2.0], dtype=dtype), rtol=1e-4, atol=0)
    norm = ig.integrated_gradients(lambda z: z.norm(dim=1), x)
    assert norm.certificate.converged
    torch.testing.assert_close(norm.values, x**2 / x.norm(), rtol=1e-2, atol=0)
