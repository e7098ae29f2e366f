"""``multiply_by_inputs=False``: the mean gradient along the path."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from integrand.compat import captum as compat
from integrand.errors import ConvergenceWarning

from .both import METHODS, Net, rows, same


@pytest.mark.parametrize("method", METHODS)
def test_mean_gradients_where_the_input_equals_the_baseline(method):
    x, start = rows(), rows(seed=5)
    start[:, ::2] = x[:, ::2]
    values = same(Net(), x, target=1, baselines=start, multiply=False, method=method)
    assert values[:, ::2].abs().min() > 0  # dividing attributions by x - x' would have lost these
    everywhere = same(Net(), x, target=1, baselines=x, multiply=False)
    assert everywhere.abs().min() > 0


@pytest.mark.parametrize("n_steps", [40, None])
def test_mean_gradients_in_closed_form(n_steps):
    x = torch.tensor([[1.0, 2.0, 0.0]], dtype=torch.float64)
    ig = compat.IntegratedGradients(lambda x: (x**4).sum(1) + x[:, 1] * x[:, 2], multiply_by_inputs=False)
    result = ig.attribute_with_certificate(x, n_steps=n_steps, tol=1e-6)
    torch.testing.assert_close(result.values, torch.tensor([[1.0, 8.0, 1.0]], dtype=torch.float64), rtol=1e-12, atol=1e-12)
    certificate = result.certificate.only
    assert certificate.converged
    assert abs(certificate.residual) < 1e-12
    assert (certificate.score, certificate.baseline_score) == (17.0, 0.0)
    assert certificate.gradients == 40 if n_steps else certificate.gradients < 40
    assert certificate.rule.startswith("adaptive") is (n_steps is None)


def test_mean_gradients_say_when_they_are_off():
    ig = compat.IntegratedGradients(lambda x: (200 * (x - 0.9)).sigmoid().sum(1), multiply_by_inputs=False)
    x = torch.ones(1, 2, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning):
        assert ig.attribute(x, n_steps=5).sum() < 0.1
    with pytest.warns(ConvergenceWarning, match="too few steps"):
        ig.attribute(x, n_steps=2)
    result = ig.attribute_with_certificate(x, n_steps=None, tol=1e-4)
    torch.testing.assert_close(result.values, torch.ones_like(x), rtol=1e-4, atol=0)
    hard = compat.IntegratedGradients(lambda x: (x > 0.5).double().mul(x).sum(1), False)
    with pytest.warns(ConvergenceWarning):
        assert not hard.attribute_with_certificate(x, n_steps=None, tol=1e-9).certificate.converged


@pytest.mark.filterwarnings("ignore::integrand.errors.ConvergenceWarning")
@pytest.mark.parametrize("n_steps", [10, 50])
def test_mean_gradients_are_no_further_off_than_their_certificates_say(n_steps):
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)).double()
        x, start = rows(4, 8, torch.float64, seed), rows(4, 8, torch.float64, 100 + seed)
        start[:, ::2] = x[:, ::2]
        ig = compat.IntegratedGradients(model, multiply_by_inputs=False)
        true = ig.attribute(x, start, n_steps=5000, method="riemann_middle")
        found = ig.attribute_with_certificate(x, start, n_steps=n_steps)
        errors = (found.values - true).abs().sum(1) / true.abs().sum(1)
        assert all(error <= example.error + 1e-4 for error, example in zip(errors.tolist(), found.certificate, strict=True))
