"""Batch normalisation of a single row: torch's own gradient is wrong for some strides, and what is explained must not be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import integrand as ig


class Norm(nn.BatchNorm2d):
    """Batch normalisation, as torch has it or written out."""

    plain = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.plain:
            return super().forward(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight / (self.running_var + self.eps).sqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]


class Recogniser(nn.Module):
    """Convolutions, whose places become the steps of a sequence: the gradient comes back through flatten and transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.linear = nn.Conv2d(3, 8, 3, padding=1), Norm(8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.norm(torch.tanh(self.convolution(x))).flatten(2).transpose(1, 2)
        return torch.tanh(self.linear(seen)).sum(1)


@pytest.mark.parametrize("given", [{"chunk": 1}, {}, {"steps": 9, "chunk": 1}, {"steps": 9, "chunk": 2}])
@pytest.mark.parametrize("batched", [True, False])
def test_single_rows_have_the_gradients_of_norms_written_out(given: dict[str, int], batched: bool) -> None:
    torch.manual_seed(0)
    network = Recogniser().eval()
    network.norm.running_mean.normal_()  # type: ignore[union-attr]
    network.norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    nn.init.normal_(network.norm.weight)
    model = network if batched else lambda x: network(x[None])[0]
    x = torch.randn(1, 3, 12, 12) if batched else torch.randn(3, 12, 12)
    found = ig.integrated_gradients(model, x, target=1, batched=batched, **given)
    network.norm.plain = True
    expected = ig.integrated_gradients(model, x, target=1, batched=batched, **given)
    torch.testing.assert_close(found.values, expected.values, rtol=1e-4, atol=1e-5)
    assert found.certificate.converged
