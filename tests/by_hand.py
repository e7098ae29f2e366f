"""Small models, and integrated gradients written out by hand: one example, one point at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 1.5, -1.0]])
"""Two examples of three features."""


def squares(x: Tensor) -> Tensor:
    """One score per row; its attribution from zero is x squared."""
    return (x**2).sum(1)


def net(outputs: int = 4) -> nn.Sequential:
    """A smooth network for X, always the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, outputs)).eval()


def line_integral(
    score: Callable[..., Tensor], x: Sequence[Tensor], baseline: Sequence[Tensor], nodes: int = 48
) -> list[Tensor]:
    """The integral of (x - x') * grad score along the straight line, for one example.

    Exact to rounding where the score is smooth; no part of the package is used.

    Args:
        score: from the tensors of one example to a scalar.
        x: these tensors at the input.
        baseline: and at the baseline.
        nodes: how many.
    """
    total = [torch.zeros_like(part, dtype=torch.float64) for part in x]
    places, weights = np.polynomial.legendre.leggauss(nodes)
    for place, weight in zip(places, weights, strict=True):
        t = (place + 1) / 2
        point = [(b + t * (a - b)).detach().requires_grad_() for a, b in zip(x, baseline, strict=True)]
        gradients = torch.autograd.grad(score(*point), point)
        for i, gradient in enumerate(gradients):
            total[i] += weight / 2 * (gradient * (x[i] - baseline[i])).double()
    return total
