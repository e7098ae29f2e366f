"""Units so close to their kinks that rounding decides on which side they are: what is exact then, and what is not."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import integrand as ig


def hugging(seed: int, *, bias: float, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    """A network one of whose units hardly moves along the line from zero to x: its weights are at right angles to x."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    for parameter in model.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    x = torch.randn(1, 8, generator=generator)
    row = model[0].weight.data[3].double()
    along = x[0].double() / x.norm().double()
    model[0].weight.data[3] = (row - (row @ along) * along).float()
    model[0].bias.data[3] = bias
    return model.to(dtype).eval(), x.to(dtype)


@pytest.mark.parametrize("seed", range(6))
def test_rounding_that_decides_is_no_exact_result(seed: int) -> None:
    """In float32 the unit is on or off by chance, in the score nothing shows, and in the attributions it is a third."""
    model, x = hugging(seed, bias=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        certificate = ig.integrated_gradients(model, x, tol=1e-3).certificate.only
    assert certificate.status is not ig.Status.EXACT


@pytest.mark.parametrize(("bias", "dtype"), [(1e-3, torch.float32), (-1e-3, torch.float32), (1e-10, torch.float64)])
def test_a_margin_that_rounding_cannot_cross_is_exact(bias: float, dtype: torch.dtype) -> None:
    for seed in range(6):
        model, x = hugging(seed, bias=bias, dtype=dtype)
        result = ig.integrated_gradients(model, x, tol=1e-3)
        assert result.certificate.only.status is ig.Status.EXACT
        wide = ig.integrated_gradients(model.double(), x.double(), tol=1e-9).values
        off = (result.values.double() - wide).abs().sum() / wide.abs().sum()
        assert float(off) <= max(result.certificate.only.error, 1e-5)
