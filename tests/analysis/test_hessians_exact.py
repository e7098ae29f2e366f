"""Values against closed forms and independent references."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import integrand as ig
from integrand.interactions import integrated_hessians
from integrand.quadrature.log_kronrod import log_weights

from .interaction_references import distance, from_line, integral, naive


def test_a_product_is_shared_equally():
    result = integrated_hessians(lambda x: x[:, 0] * x[:, 1], torch.tensor([[2.0, 3.0]]))
    assert torch.allclose(result.values, torch.full((1, 2, 2), 1.5))
    assert torch.allclose(result.attributions, torch.full((1, 2), 3.0))


@pytest.mark.parametrize("powers", [(1, 1, 0), (2, 3, 0), (1, 2, 3), (4, 0, 1), (5, 4, 4), (1, 0, 0), (0, 7, 7)])
def test_monomials(powers):
    """With a zero baseline, G_ij = c x^p p_i p_j / d^2, the diagonal included."""
    p = torch.tensor(powers, dtype=torch.float64)
    x = torch.tensor([[1.3, -0.7, 0.9], [0.2, 1.1, -1.4]], dtype=torch.float64)
    result = integrated_hessians(lambda x: 1.7 * (x**p).prod(1), x, tol=1e-10)
    exact = 1.7 * (x**p).prod(1)[:, None, None] * torch.outer(p, p) / p.sum() ** 2
    assert torch.allclose(result.values, exact, rtol=1e-10, atol=1e-12)
    assert result.converged
    if sum(powers) <= 7:  # where the embedded rule is exact as well: one panel and its ends
        assert all(one.gradients == 17 for one in result.certificate)


def test_a_polynomial_with_a_baseline():
    """f = x0^2 x1 by hand: second derivatives along b + s d, times moments of -s ln s, 1/(k+2)^2, and of -ln s, 1/(k+1)^2."""
    x, b = np.array([1.5, -2.0]), np.array([0.5, 1.0])
    d = x - b

    def moment(coefficients, extra):
        return sum(c / (k + extra) ** 2 for k, c in enumerate(np.atleast_1d(coefficients)))

    p0, p1 = np.array([b[0], d[0]]), np.array([b[1], d[1]])
    h00, h01 = 2 * p1, 2 * p0
    g0, g1 = 2 * np.convolve(p0, p1), np.convolve(p0, p0)
    exact = np.array(
        [
            [d[0] ** 2 * moment(h00, 2) + d[0] * moment(g0, 1), d[0] * d[1] * moment(h01, 2)],
            [d[0] * d[1] * moment(h01, 2), d[1] * moment(g1, 1)],
        ]
    )
    result = integrated_hessians(lambda x: x[:, 0] ** 2 * x[:, 1], torch.tensor(x)[None], torch.tensor(b))
    assert np.allclose(result.numpy()[0], exact, rtol=1e-12)


@pytest.mark.parametrize(("wave", "tol"), [(1.0, 1e-10), (9.0, 1e-8), (40.0, 1e-4)])
def test_exponentials_and_waves(wave, tol):
    a, b = torch.tensor([0.3, -1.1, 0.8], dtype=torch.float64), torch.tensor([1.0, 0.5, -0.6], dtype=torch.float64) * wave
    x = torch.tensor([[1.2, -0.4, 0.7]], dtype=torch.float64)
    start = torch.tensor([-0.3, 0.2, 0.1], dtype=torch.float64)
    result = integrated_hessians(lambda x: torch.exp(x @ a) + torch.sin(x @ b), x, start, tol=tol)
    d = (x[0] - start).numpy()

    def line(s):
        points = start.numpy() + s[:, None] * d
        return np.exp(points @ a.numpy()), points @ b.numpy()

    def gradient(s):
        grown, phase = line(s)
        return grown[:, None] * a.numpy() + np.cos(phase)[:, None] * b.numpy()

    def hessian(s):
        grown, phase = line(s)
        outer = np.outer(a, a), np.outer(b, b)
        return grown[:, None, None] * outer[0] - np.sin(phase)[:, None, None] * outer[1]

    exact = torch.tensor(from_line(gradient, hessian, d))[None]
    assert result.converged
    assert distance(result.values, exact) <= tol
    assert torch.allclose(result.values.sum(2), result.attributions, atol=10 * tol * float(exact.abs().sum()))


def smooth_network(features=4, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1)).double().eval()


def test_against_the_double_loop():
    net = smooth_network()
    x, b = torch.randn(2, 1, 4, dtype=torch.float64)
    result = integrated_hessians(net, x, b)
    # The double loop's own error is of second order in its steps.
    coarse, fine = (naive(lambda p: net(p)[:, 0], x[0], b[0], steps) for steps in (12, 24))
    assert distance(result.values, ((4 * fine - coarse) / 3)[None]) < 1e-3


def test_rows_add_up_to_integrated_gradients_and_the_matrix_is_symmetric():
    net = smooth_network(6, seed=1)
    x, b = torch.randn(2, 3, 6, dtype=torch.float64) * 2
    result = integrated_hessians(net, x, b, tol=1e-8)
    gradients = ig.integrated_gradients(net, x, b, tol=1e-8).values
    assert torch.allclose(result.attributions, gradients, atol=1e-7)
    assert torch.allclose(result.values.sum(2), gradients, atol=1e-7)
    assert torch.allclose(result.values, result.values.mT, atol=1e-12)
    assert torch.allclose(result.values.sum((1, 2)), (net(x) - net(b))[:, 0].detach(), atol=1e-7)


def test_linear_in_the_function():
    first, second = smooth_network(3, seed=2), smooth_network(3, seed=3)
    x, b = torch.randn(2, 2, 3, dtype=torch.float64)
    parts = [integrated_hessians(f, x, b, tol=1e-9).values for f in (first, second)]
    both = integrated_hessians(lambda x: 2 * first(x) - 0.5 * second(x), x, b, tol=1e-9).values
    assert torch.allclose(both, 2 * parts[0] - 0.5 * parts[1], atol=1e-8)


def test_a_linear_model_has_no_interactions():
    weights = torch.tensor([1.0, -2.0, 3.0])
    result = integrated_hessians(lambda x: x @ weights, torch.tensor([[1.0, 1.0, 2.0]]))
    assert torch.allclose(result.values, torch.diag(torch.tensor([1.0, -2.0, 6.0]))[None], atol=1e-6)
    assert result.certificate[0].rule == "Gauss-Kronrod"


def test_several_baselines_average():
    net = smooth_network(3, seed=4)
    x, starts = torch.randn(2, 3, dtype=torch.float64), torch.randn(3, 1, 3, dtype=torch.float64)
    several = integrated_hessians(net, x, list(starts), tol=1e-8)
    each = torch.stack([integrated_hessians(net, x, start, tol=1e-8).values for start in starts])
    assert torch.allclose(several.values, each.mean(0), atol=1e-7)
    assert several.certificate[0].baseline_score == pytest.approx(float(net(starts[:, 0]).mean().detach()), abs=1e-12)
    assert several.meta["baselines"] == "3"


def test_an_irrelevant_feature_has_an_empty_row():
    result = integrated_hessians(lambda x: torch.exp(x[:, 0] * x[:, 1]), torch.tensor([[0.5, 0.7, 9.0]]))
    assert not result.values[0, 2].any()
    assert not result.values[0, :, 2].any()


@pytest.mark.parametrize(("start", "stop"), [(0.0, 1.0), (0.0, 2**-20), (0.25, 0.5), (2**-9, 2**-8)])
def test_weights_integrate_polynomials_exactly(start, stop):
    """Up to degree 14, with and without the logarithm; the embedded rule up to degree 6."""
    rule = log_weights(start, stop)
    for power in (0, 3, 6, 14):
        scaled = ((rule.nodes - start) / (stop - start)) ** power

        def exact(weight, power=power):
            return (stop - start) * integral(lambda u: u**power * weight(start + (stop - start) * u))

        for column, difference, weight in (
            (rule.one, rule.one_difference, np.ones_like),
            (rule.log, rule.log_difference, lambda s: -np.log(s)),
            (rule.slog, rule.slog_difference, lambda s: -s * np.log(s)),
        ):
            assert column @ scaled == pytest.approx(exact(weight), rel=1e-12)
            if power <= 6:
                assert abs(difference @ scaled) <= 1e-12 * abs(exact(weight)) + 1e-18
