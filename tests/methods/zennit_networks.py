"""The small networks whose relevances zennit computed, and the rules that it computed them by."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

STORE = Path(__file__).with_name("zennit.npz")

EPSILON = 1e-9
"""What every denominator is kept from zero by."""

RULES = ("epsilon", "epsilon 0.1", "gamma 0.25", "gamma 1", "alpha2 beta1", "alpha1 beta0", "z+")
COMPOSITES = ("epsilon-plus", "epsilon-alpha2-beta1")
BIASES = ("keep", "spread")


class Join(nn.Module):
    """A sum over the last dimension, as zennit wants it."""

    def forward(self, stacked):
        return stacked.sum(-1)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.relu, self.relu2 = nn.ReLU(), nn.ReLU()
        self.join = Join()

    def forward(self, x):
        h = self.relu(self.first(x))
        return self.last(self.relu2(self.join(torch.stack([h, self.inner(h)], -1))))


def mlp():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))


def cnn():
    first = [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, stride=1, padding=1), nn.ReLU()]
    return nn.Sequential(*first, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(20, 3))


def normed():
    # A tiny eps: zennit merges a norm into the layer before it and leaves its eps behind, so that 1e-5 is off by 5e-6.
    convolution = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, eps=1e-15), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*convolution, nn.Linear(16, 6), nn.BatchNorm1d(6, eps=1e-15), nn.ReLU(), nn.Linear(6, 3))


NETWORKS = {"mlp": (mlp, (5,)), "cnn": (cnn, (2, 8, 8)), "normed": (normed, (2, 6, 6)), "residual": (Residual, (4,))}
"""Builders, and the shape of one input."""


def drawn(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network with random weights, biases and statistics (negative scales among them), in float64, and two inputs."""
    build, shape = NETWORKS[name]
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    net = build().double().eval()
    with torch.no_grad():
        for key, value in net.state_dict().items():
            if not value.dtype.is_floating_point:
                continue
            values = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            # Divided by the root of the fan-in, so that signals stay of one size; variances must be positive.
            value.copy_(values.abs() + 0.5 if key.endswith("var") else values / max(1, value[0].numel()) ** 0.5)
    return net, torch.randn(2, *shape, generator=generator, dtype=torch.float64)
