"""Noise floors and unknown errors: what rounding leaves is measured where rounding acts, and nothing is claimed beyond 30%."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.certificate import MAX_KNOWN_ERROR, Status
from tests.honesty.honest import relative_error


def pooled(seed: int) -> tuple[nn.Module, Tensor]:
    """A network that pools, and a picture in few colours: the maximum of a window is often that of several equal pixels."""
    torch.manual_seed(seed)
    layers = [nn.MaxPool2d(2), nn.Conv2d(1, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 6 * 6, 1)]
    return nn.Sequential(*layers).eval(), (4 * torch.rand(1, 1, 16, 16)).round() / 4


@pytest.mark.parametrize("seed", range(4))
def test_equal_pixels_are_no_noise(seed: int) -> None:
    network, x = pooled(seed)
    result = ig.integrated_gradients(network, x, tol=1e-3)
    exact = ig.integrated_gradients(network.double(), x.double(), tol=1e-5)
    assert result.certificate.only.converged
    # At black itself all pixels are equal, and one node is wrong: that is an error of quadrature.
    assert relative_error(result.values[0].double().numpy(), exact.values[0].numpy()) <= 3e-3


def saturated(x: Tensor) -> Tensor:
    """A probability that is 1 to the last digit, by logits that differ by 80."""
    return torch.softmax(torch.stack([80 + x.sum(1), x.sum(1).sin()], 1), 1)[:, 0]


@pytest.mark.parametrize("tol", [0.01, 0.4, 0.75])
def test_nothing_is_claimed_beyond_a_third(tol: float) -> None:
    torch.manual_seed(0)
    weights = torch.randn(40, 8)

    def rough(x: Tensor) -> Tensor:  # forty kinks in every direction, and hardly any budget
        return (torch.sin(40 * x @ weights.T) ** 3).sum(1)

    with pytest.warns(ig.errors.ConvergenceWarning):
        result = ig.integrated_gradients(rough, torch.ones(1, 8), tol=tol, max_evaluations=20)
    only = result.certificate.only
    assert not only.converged
    assert only.status in (Status.BUDGET, Status.UNKNOWN)


def test_a_large_tolerance_is_met_to_what_is_knowledge() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)).double().eval()
    only = ig.integrated_gradients(network, torch.randn(1, 6).double(), tol=0.9).certificate.only
    assert only.converged
    assert only.error <= MAX_KNOWN_ERROR
    assert only.tol == 0.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_below_their_rounding_are_unknown(dtype: torch.dtype) -> None:
    """Attributions of 1e-35 of a probability that is 1 everywhere: the error was given as 3e23%."""
    with pytest.warns(ig.errors.ConvergenceWarning, match="leaves an error above 30%"):
        only = ig.integrated_gradients(saturated, torch.linspace(0.1, 1, 8, dtype=dtype)[None]).certificate.only
    assert only.status is Status.UNKNOWN
    assert math.isnan(only.error)
    assert "tolerance" not in only.remedy
    assert ("float64, explain" in only.remedy) is (dtype is torch.float32)


@pytest.mark.parametrize("rule", ["left", "right"])
def test_a_kink_in_the_middle_of_a_cell_is_no_rounding(rule: str) -> None:
    """The paper's saturated function: slopes account for its changes, and the weights of a Riemann sum are what is wrong."""
    with pytest.warns(ig.errors.ConvergenceWarning, match="budget spent"):
        only = ig.integrated_gradients(
            lambda x: 1 - torch.relu(1 - x[:, 0]), torch.tensor([[2.0]]).double(), steps=17, rule=rule
        ).certificate.only
    assert only.error >= abs(only.residual) / only.magnitude


@pytest.mark.parametrize("seed", range(4))
def test_more_gradients_are_not_the_remedy_for_rounding(seed: int) -> None:
    """Deep ReLU networks at 1e-6 in float32: "about 29,977 gradients", which then ended at the noise floor."""
    torch.manual_seed(seed)
    width, depth = (32, 64)[seed // 2], 8 + 4 * (seed % 2)
    layers = [nn.Linear(16, width), *(nn.Linear(width, width) for _ in range(depth))]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight)
    network = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), nn.Linear(width, 1)).eval()
    x = torch.randn(1, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.errors.ConvergenceWarning)
        result = ig.integrated_gradients(network, x, tol=1e-6)
    exact = ig.integrated_gradients(network.double(), x.double(), tol=1e-6)
    assert exact.certificate.converged
    only = result.certificate.only
    assert relative_error(result.values[0].double().numpy(), exact.values[0].numpy()) <= only.error
    assert only.status in (Status.NOISE, Status.EXACT)
    assert only.converged or "float64" in only.remedy
