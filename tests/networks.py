"""Small random networks for property tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "softplus": nn.Softplus,
    "leaky": nn.LeakyReLU,
}


class Net(nn.Module):
    """A multilayer perceptron with one output, and a linear part so that no attribution is zero throughout."""

    def __init__(self, features: int, widths: tuple[int, ...], activation: str, *, generator: torch.Generator) -> None:
        super().__init__()
        sizes = (features, *widths)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.head = nn.Linear(sizes[-1], 1)
        self.skip = nn.Linear(features, 1)
        self.activation = ACTIVATIONS[activation]()
        self.double()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                scale = 2 / module.in_features**0.5
                module.weight.data = torch.randn(module.weight.shape, generator=generator, dtype=torch.float64) * scale
                module.bias.data = torch.randn(module.bias.shape, generator=generator, dtype=torch.float64) * 0.5
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        value = x
        for layer in self.hidden:
            value = self.activation(layer(value))
        return (self.head(value) + self.skip(x))[:, 0]


@dataclass(frozen=True)
class Case:
    """A network, some examples and as many baselines."""

    model: Net
    x: Tensor
    baseline: Tensor
    activation: str
    generator: torch.Generator

    def rows(self, count: int) -> Case:
        """The first rows alone."""
        return Case(self.model, self.x[:count], self.baseline[:count], self.activation, self.generator)


@st.composite
def networks(draw: Callable[..., object], *, examples: int = 1, smooth: bool = False, relu: bool = False) -> Case:
    """Networks of one to three hidden layers on one to six features."""
    names = ["relu"] if relu else [n for n in ACTIVATIONS if not smooth or n not in {"relu", "leaky"}]
    activation = str(draw(st.sampled_from(names)))
    features = int(draw(st.integers(1, 6)))  # type: ignore[call-overload]
    widths = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))  # type: ignore[call-overload]
    generator = torch.Generator().manual_seed(int(draw(st.integers(0, 2**31))))  # type: ignore[call-overload]
    model = Net(features, widths, activation, generator=generator)
    x, baseline = (torch.randn(examples, features, generator=generator, dtype=torch.float64) for _ in range(2))
    return Case(model, x, baseline, activation, generator)


def distance(a: Tensor, b: Tensor) -> float:
    """The largest relative L1 distance over the examples."""
    size = b.detach().abs().sum(1).clamp_min(1e-300)
    return float(((a.detach() - b.detach()).abs().sum(1) / size).max())
