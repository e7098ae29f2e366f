"""Probabilities that flash between the nodes: what forward passes at a few places say of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import integrand as ig
from tests.honesty.attacks import smooth_reference
from tests.honesty.honest import relative_error


def flash(at: float, steep: float = 400.0) -> ig.Attribution:
    """A probability of 1e-7 and less at most nodes, and of 0.95 at one time; the score ends where it began."""

    def ramp(z: Tensor) -> Tensor:
        return 0.01 * torch.nn.functional.softplus(z / 0.01)

    def function(rows: Tensor) -> Tensor:
        tent = 3 - steep * (ramp(at - rows[:, 0]) + ramp(rows[:, 1] - at))
        late = 40 * (rows[:, 2] - 0.98)
        return torch.stack([torch.logaddexp(tent, late), 0 * tent], 1).softmax(1)[:, 0]

    one = torch.ones(1, 3, dtype=torch.float64)
    result = ig.integrated_gradients(function, one)
    result.meta["off"] = str(relative_error(result.values[0].numpy(), smooth_reference(function, one, 0 * one)))
    return result


@pytest.mark.parametrize("at", [0.07, 0.19, 0.3, 0.4824, 0.56, 0.61])
def test_a_flash_is_found(at: float) -> None:
    result = flash(at)
    assert result.certificate.only.converged
    assert float(result.meta["off"]) <= 0.01
