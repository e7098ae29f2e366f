"""Attributions that are differentiated further: gradients reach the parameters, and are right."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.errors import ConvergenceWarning, NonFiniteError
from integrand.integration import linear_regions
from tests.networks import distance

X = torch.tensor([[0.7, -1.3, 0.4], [1.1, 0.2, -0.6]], dtype=torch.float64)
START = torch.tensor([[0.1, 0.2, -0.3], [0.0, 0.0, 0.0]], dtype=torch.float64)
LOSS = torch.tensor([[1.0, -2.0, 0.5], [0.3, 1.7, -1.0]], dtype=torch.float64)


def explain(model: Callable[[Tensor], Tensor], **options: object) -> Tensor:
    values = ig.integrated_gradients(model, X, START, create_graph=True, **options).values  # type: ignore[arg-type]
    assert isinstance(values, Tensor)
    return values


def test_squares_have_a_closed_form() -> None:
    """F = sum theta_i x_i^2 attributes theta_i (x_i^2 - x'_i^2): its derivative by theta_i is what is in brackets."""
    theta = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    values = explain(lambda x: (theta * x**2).sum(1))
    torch.testing.assert_close(values.detach(), (theta * (X**2 - START**2)).detach(), rtol=1e-12, atol=1e-14)
    (slope,) = torch.autograd.grad((LOSS * values).sum(), theta)
    torch.testing.assert_close(slope, (LOSS * (X**2 - START**2)).sum(0), rtol=1e-12, atol=1e-14)


def sigmoid_attributions(weight: Tensor, bias: Tensor) -> Tensor:
    """F = sigmoid(w x + b): feature i gets its share w_i (x_i - x'_i) / (u - u') of the change."""
    before, after = START @ weight + bias, X @ weight + bias
    return weight * (X - START) * ((torch.sigmoid(after) - torch.sigmoid(before)) / (after - before))[:, None]


@pytest.mark.parametrize("options", [{"tol": 1e-9}, {"steps": 20}], ids=["to a tolerance", "fixed"])
def test_a_sigmoid_has_a_closed_form(options: dict[str, float]) -> None:
    """Autograd through the closed form is the reference; both integrals are good to 1e-9, and so are their derivatives."""
    weight = torch.tensor([0.8, -0.4, 1.5], dtype=torch.float64, requires_grad=True)
    bias = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    expected = sigmoid_attributions(weight, bias)
    found = explain(lambda x: torch.sigmoid(x @ weight + bias), **options)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)
    wanted = torch.autograd.grad((LOSS * expected).sum(), (weight, bias))
    got = torch.autograd.grad((LOSS * found).sum(), (weight, bias))
    torch.testing.assert_close(got, wanted, rtol=1e-7, atol=1e-8)


def test_gradcheck() -> None:
    """Finite differences of the whole computation, at fixed nodes (adaptive ones move with the parameters)."""

    def values(weight: Tensor, bias: Tensor) -> Tensor:
        return explain(lambda x: torch.tanh(x @ weight.T + bias).prod(1), steps=6, tol=1e9)

    weight = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    bias = torch.tensor([0.2, -0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(values, (weight, bias))


def network(activation: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), activation, nn.Linear(16, 8), activation, nn.Linear(8, 1)).double()


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Softplus()], ids=["tanh", "softplus"])
def test_parameters_of_a_module_by_finite_differences(activation: nn.Module) -> None:
    """To a tolerance: central differences of a fresh integration each, along a random direction in parameter space."""
    model = network(activation)
    parameters = list(model.parameters())
    loss = (LOSS * explain(model, tol=1e-10) ** 2).sum()
    slopes = torch.autograd.grad(loss, parameters, allow_unused=True)
    # The last bias shifts F everywhere: no attribution depends on it, and it alone has no gradient.
    assert [slope is None for slope in slopes] == [False] * 5 + [True]
    directions = [torch.randn_like(p) for p in parameters]
    expected = sum(float((s * d).sum()) for s, d in zip(slopes, directions, strict=True) if s is not None)

    def moved(step: float) -> float:
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter += step * direction
        out = ig.integrated_gradients(model, X, START, tol=1e-10).values
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter -= step * direction
        return float((LOSS * out**2).sum())

    step = 1e-4  # third derivatives leave some 1e-8, the tolerance 1e-10 / 1e-4 = 1e-6
    assert (moved(step) - moved(-step)) / (2 * step) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU()], ids=["relu", "gelu"])
@pytest.mark.parametrize("options", [{"tol": 1e-3}, {"steps": 9, "rule": "trapezoid", "tol": 1e9}], ids=["tolerance", "fixed"])
def test_values_equal_those_without_a_graph(
    activation: nn.Module, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same nodes with the same weights, added in another order, where values without a graph are sampled too."""
    monkeypatch.setitem(linear_regions.EXACT, "cpu", float("inf"))
    model = network(activation)
    plain = ig.integrated_gradients(model, X, START, **options)  # type: ignore[arg-type]
    graph = ig.integrated_gradients(model, X, START, create_graph=True, **options)  # type: ignore[arg-type]
    assert graph.values.requires_grad
    assert not plain.values.requires_grad
    assert distance(graph.values, plain.values) <= 1e-12
    for one, other in zip(graph.certificate, plain.certificate, strict=True):
        assert (one.error, one.status, one.rule) == (other.error, other.status, other.rule)
        assert one.gradients >= other.gradients


def test_several_baselines_and_paths() -> None:
    """Pieces with weights: the mean of closed forms."""
    theta = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)

    def model(x: Tensor) -> Tensor:
        return (theta * x**3).sum(1)

    starts = [START, torch.zeros_like(X)]
    found = ig.integrated_gradients(model, X, starts, create_graph=True, tol=1e-8).values
    bracket = X**3 - (START**3) / 2
    (slope,) = torch.autograd.grad((LOSS * found).sum(), theta)
    torch.testing.assert_close(slope, (LOSS * bracket).sum(0), rtol=1e-10, atol=1e-12)
    path = ig.Polyline([START, X * 0.3, X])
    (slope,) = torch.autograd.grad((LOSS * ig.path_attribution(model, path, create_graph=True).values).sum(), theta)
    torch.testing.assert_close(slope, (LOSS * (X**3 - START**3)).sum(0), rtol=1e-10, atol=1e-12)


def test_an_attribution_prior_can_be_trained() -> None:
    """Descending on what one feature gets makes the model forget it: the way attribution priors are used."""
    model = network(nn.Softplus())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    sizes = []
    for _ in range(30):
        loss = ig.integrated_gradients(model, X, START, create_graph=True, steps=6, tol=1e9).values[:, 0].square().sum()
        sizes.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert sizes[-1] < 0.2 * sizes[0]
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_float32_and_structures() -> None:
    a, b = X.float()[:, :1], X.float()[:, 1:]
    weight = torch.tensor(2.0, requires_grad=True)
    result = ig.integrated_gradients(lambda p, q: weight * p[:, 0] * q.prod(1), (a, b), create_graph=True)
    assert [value.dtype for value in result.values] == [torch.float32] * 2
    total = sum(value.sum() for value in result.values)
    (slope,) = torch.autograd.grad(total, weight)
    # Complete: the sum is weight x product of all, whose derivative is that product; values are good to 1%.
    assert float(slope) == pytest.approx(float(X.float().prod(1).sum()), rel=0.01)


def test_without_create_graph_nothing_is_left() -> None:
    model = network(nn.Tanh())
    ig.integrated_gradients(model, X, START)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


class Doubtful(torch.autograd.Function):
    """Squares, with a backward pass that is off by a factor where it is itself differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x**2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return 2 * x * gradients[0] * (ctx.factor if torch.is_grad_enabled() else 1.0), None


@pytest.mark.parametrize("options", [{}, {"steps": 20}], ids=["to a tolerance", "fixed"])
@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_the_pass_with_the_graph_is_checked_for_finite_numbers(factor: float, options: dict[str, int]) -> None:
    with pytest.raises(NonFiniteError, match=r"the gradient is (nan|inf) at feature \(\d,\) of x, example \d, t = "):
        explain(lambda x: Doubtful.apply(x, factor).sum(1), **options)


def test_infinite_scores_in_the_pass_with_the_graph() -> None:
    """The score is one only where somebody will differentiate its gradient: as in a model that looks at its parameters."""
    calls = []

    def model(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x.square().sum(1) / (1.0 if len(calls) < 4 else 0.0)

    with pytest.raises(NonFiniteError, match="the score is inf at example 0, t = "):
        ig.integrated_gradients(model, X[:1], START[:1], create_graph=True, steps=4, tol=1e9)


@pytest.mark.parametrize(("factor", "claimed"), [(1.3, False), (1.011, False), (1.001, True), (1.0, True)])
def test_values_that_differ_from_the_certified_ones_are_not_claimed(factor: float, claimed: bool) -> None:
    with nullcontext() if claimed else pytest.warns(ConvergenceWarning, match="with their graph the gradients are not those"):
        result = ig.integrated_gradients(lambda x: Doubtful.apply(x, factor).sum(1), X, START, create_graph=True, tol=0.01)
    true = factor * (X**2 - START**2)
    torch.testing.assert_close(result.values.detach(), true)
    assert result.certificate.converged == claimed
    for one, values, exact in zip(result.certificate, true, X**2 - START**2, strict=True):
        assert one.error >= 0.99 * float((values - exact).abs().sum() / values.abs().sum())
        assert one.residual == pytest.approx(float((values - exact).sum()), abs=1e-9)
        assert one.magnitude == pytest.approx(float(values.abs().sum()))
