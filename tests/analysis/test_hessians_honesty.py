"""The claimed error against the true one, over random networks and converged references."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from integrand import Status
from integrand.errors import ConvergenceWarning
from integrand.interactions import integrated_hessians

from .interaction_references import distance


class Wave(nn.Module):
    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.frequency * x)


ACTIVATIONS = [nn.GELU(), nn.Tanh(), nn.Softplus(5, 40), nn.SiLU(), Wave(1.0), Wave(4.0), nn.ELU(), nn.Softplus(50, 40)]


def network(seed: int, activation: nn.Module, features: int) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(features, 16), activation, nn.Linear(16, 16), activation, nn.Linear(16, 1)).double().eval()
    for module in net:
        if isinstance(module, nn.Linear):
            module.weight.data *= 2
    return net


@pytest.mark.parametrize("number", range(len(ACTIVATIONS)))
def test_the_estimate_holds(number):
    checked = 0
    for seed in range(4):
        features = (3, 5, 8)[seed % 3]
        net = network(31 * number + seed, ACTIVATIONS[number], features)
        x, b = torch.randn(2, 3, features, dtype=torch.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            reference = integrated_hessians(net, 2 * x, b, tol=1e-7, max_evaluations=20_000)
            assert reference.error < 1e-5
            for tol in (0.1, 0.01, 1e-4):
                result = integrated_hessians(net, 2 * x, b, tol=tol)
                for e, one in enumerate(result.certificate):
                    true = distance(result.values[e : e + 1], reference.values[e : e + 1])
                    assert true <= one.error + reference.certificate[e].error
                    assert one.converged == (one.error <= tol)
                    checked += one.converged
    assert checked >= 24


def test_single_precision_ends_at_its_noise_floor():
    net = network(0, nn.Tanh(), 4).float()
    x = torch.randn(1, 4)
    with pytest.warns(ConvergenceWarning, match="float32 are not precise enough"):
        result = integrated_hessians(net, x, tol=1e-9)
    assert result.certificate[0].status is Status.NOISE
    exact = integrated_hessians(net.double(), x.double(), tol=1e-11).values
    assert distance(result.values, exact) <= result.error
    assert result.error < 1e-4


def test_a_spent_budget_says_so():
    with pytest.warns(ConvergenceWarning, match="budget spent: .* raise max_evaluations"):
        result = integrated_hessians(lambda x: torch.sin(300 * x).sum(1), torch.ones(1, 2), max_evaluations=100)
    assert not result.converged
    assert result.certificate[0].gradients <= 110


def test_a_wave_that_the_nodes_cannot_follow_is_not_believed():
    """Whatever the frequency: what is claimed is true."""
    for wave in (20.0, 47.1, 94.2, 130.0):
        x = torch.tensor([[1.0, 0.5]], dtype=torch.float64)
        f = lambda x, wave=wave: torch.sin(wave * x[:, 0]) * x[:, 1] + x.sum(1)  # noqa: E731
        exact = integrated_hessians(f, x, tol=1e-9, max_evaluations=20_000)
        assert exact.converged
        result = integrated_hessians(f, x, tol=0.05)
        assert distance(result.values, exact.values) <= result.error
