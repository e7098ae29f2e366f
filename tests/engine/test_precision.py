"""What the model computes in decides what can be promised, and the certificate says what that was."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.errors import ConvergenceWarning


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1)).eval()


def test_autocast_is_named_and_its_rounding_counts() -> None:
    model, x = network(), torch.randn(3, 30, generator=torch.Generator().manual_seed(1))
    exact = ig.integrated_gradients(model.double(), x.double(), tol=1e-9).values
    model.float()
    remedy = "gradients in bfloat16 .*use a model and input in float32 or"
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(ConvergenceWarning, match=remedy):
        result = ig.integrated_gradients(model, x, tol=1e-3)
    for i, certificate in enumerate(result.certificate):
        true = float((result.values[i].double() - exact[i]).abs().sum() / exact[i].abs().sum())
        assert certificate.status is ig.Status.NOISE
        assert certificate.precision == "bfloat16"
        assert true <= certificate.error


class Inside(nn.Module):
    """A model that goes to bfloat16 by itself, inside its forward pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(x).float()


def midpoints(model: nn.Module, x: Tensor, count: int) -> Tensor:
    """A plain sum of gradients times x at so many midpoints: the function as it is computed, noise and all, (features,)."""
    total = torch.zeros(x.shape[1], dtype=torch.float64)
    for times in ((torch.arange(count) + 0.5) / count).split(512):
        points = (times[:, None] * x).to(x.dtype).requires_grad_(True)
        total += torch.autograd.grad(model(points)[:, 0].sum(), points)[0].double().sum(0)
    return total / count * x[0].double()


@pytest.mark.parametrize("kind", [nn.GELU, nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("offset", [0.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_half_precision_inside_the_model_is_found_and_its_rounding_averages_out(
    kind: type[nn.Module], offset: float, seed: int
) -> None:
    """With an offset, scores are rounded to steps of up to 3% of all attributions; gradients are as good as without."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), kind(), nn.Linear(128, 128), kind(), nn.Linear(128, 10)).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 1.5
        model[-1].bias += offset
    x = torch.randn(1, 64)
    own, exact = midpoints(Inside(model), x, 2048), midpoints(model.double(), x.double(), 2048)
    model.float()
    for tol in (0.01, 0.001):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = ig.integrated_gradients(Inside(model), x, target=0, tol=tol)
        found, values = result.certificate.only, result.values[0].double()
        assert found.precision == "bfloat16"
        assert found.status is (ig.Status.CONVERGED if tol == 0.01 else ig.Status.NOISE)
        # The estimate is for the function as computed; here it covers what bfloat16 does to the function as well.
        for reference in (own, exact):
            assert float((values - reference).abs().sum() / reference.abs().sum()) <= found.error
        assert found.error <= 0.02  # one rounding is 0.8%
        assert found.gradients <= 300
    assert "use a model and input in float32 or a tolerance above" in found.remedy
    assert ig.integrated_gradients(Inside(model), x, target=0, tol=1.1 * found.error).certificate.converged


def test_a_score_that_is_coarser_than_the_error_is_noted() -> None:
    """The last bits of a score of 100 are worth more than the tolerance; the attributions are right all the same."""
    model, x = network(), torch.randn(2, 30, generator=torch.Generator().manual_seed(1))
    exact = ig.integrated_gradients(model, x, tol=1e-4).values
    high = Inside(model)
    with torch.no_grad():
        model[-1].bias += 100
    for options in ({"tol": 0.02}, {"tol": 0.02, "steps": 32}):
        result = ig.integrated_gradients(high, x, **options)
        for i, found in enumerate(result.certificate):
            assert found.converged
            assert "rounding inside the model moves scores by up to" in found.note
            assert abs(found.residual) > found.error * found.magnitude
            assert float((result.values[i] - exact[i]).abs().sum() / exact[i].abs().sum()) <= found.error


@pytest.mark.parametrize("tol", [1e-4, 1e-5, 3e-6])
def test_float32_claims_are_not_below_its_rounding(tol: float) -> None:
    for seed in range(6):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).eval()
        x = torch.randn(1, 20)
        exact = ig.integrated_gradients(model.double(), x.double(), tol=1e-10).values
        model.float()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = ig.integrated_gradients(model, x, tol=tol)
        true = float((result.values.double() - exact).abs().sum() / exact.abs().sum())
        assert true <= result.certificate.only.error


def test_the_precision_switches_of_a_gpu_are_as_before() -> None:
    """They are turned to full float32 inside, where a GPU is used; here only that nothing leaks out."""
    before = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.enabled, torch.get_float32_matmul_precision())
    ig.integrated_gradients(network(), torch.ones(1, 30))
    after = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.enabled, torch.get_float32_matmul_precision())
    assert after == before
