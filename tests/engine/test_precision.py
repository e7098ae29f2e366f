"""What the model computes in decides what can be promised, and the certificate says what that was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

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


def test_the_precision_switches_of_a_gpu_are_as_before() -> None:
    """They are turned to full float32 inside, where a GPU is used; here only that nothing leaks out."""
    before = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.enabled, torch.get_float32_matmul_precision())
    ig.integrated_gradients(network(), torch.ones(1, 30))
    after = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.enabled, torch.get_float32_matmul_precision())
    assert after == before
