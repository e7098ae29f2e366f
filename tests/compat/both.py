"""The same question to Captum and to us, and models to ask about."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from integrand.compat import captum as compat

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    reference = pytest.importorskip("captum.attr")
    models = pytest.importorskip("captum.testing.helpers.basic_models")
METHODS = ("riemann_right", "riemann_left", "riemann_middle", "gausslegendre")
"""All but the trapezoid, where Captum is not right."""


class Toy(nn.Module):
    """The example of Captum's README."""

    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(3, 3), nn.Linear(3, 2)
        self.lin1.weight = nn.Parameter(torch.arange(-4.0, 5.0).view(3, 3))
        self.lin1.bias = nn.Parameter(torch.zeros(1, 3))
        self.lin2.weight = nn.Parameter(torch.arange(-3.0, 3.0).view(2, 3))
        self.lin2.bias = nn.Parameter(torch.ones(1, 2))

    def forward(self, x):
        return self.lin2(torch.relu(self.lin1(x)))


class Net(nn.Module):
    """Smooth, with layers by name, a second input and further arguments."""

    def __init__(self, features=6, classes=4):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.act, self.second = nn.Linear(features, 8), nn.GELU(), nn.Linear(8, classes)
        self.side = nn.Linear(3, 8)

    def forward(self, x, y=None, scale=1.0, shift=None, sizes=()):
        hidden = self.first(x) if y is None else self.first(x) + self.side(y)
        out = self.second(self.act(hidden)) * scale
        out = out if shift is None else out + shift * x[:, :1] ** 2
        return out + len(sizes) * x[:, 1:2]


class Shared(nn.Module):
    """One embedding for two sequences of ids, one encoder for both."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.embed, self.encode, self.out = nn.Embedding(20, 5), nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, left, right):
        a, b = (self.encode(self.embed(ids)).tanh().sum(1) for ids in (left, right))
        return self.out(a * b + a)


def quiet(call, *args, **kwargs):
    """Without the warnings that are Captum's own, or ours about few steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **kwargs)


def ask(library, model, inputs, layer=None, multiply=True, **options):
    """One question to one library."""
    if layer is None:
        return quiet(library.IntegratedGradients(model, multiply).attribute, inputs, **options)
    explainer = quiet(library.LayerIntegratedGradients, model, layer, multiply_by_inputs=multiply)
    return quiet(explainer.attribute, inputs, **options)


def same(model, inputs, rtol=1e-5, atol=1e-5, **options):
    """Ask both, compare values, structure, shapes and dtypes; give back ours."""
    ours, theirs = ask(compat, model, inputs, **options), ask(reference, model, inputs, **options)
    assert type(ours) is type(theirs)
    torch.testing.assert_close(ours, _detached(theirs), rtol=rtol, atol=atol)
    return ours


def _detached(value):
    return value.detach() if isinstance(value, Tensor) else type(value)(_detached(part) for part in value)


def rows(count=3, features=6, dtype=torch.float32, seed=0):
    return torch.randn(count, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
