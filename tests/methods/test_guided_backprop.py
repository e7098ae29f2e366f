"""DeconvNet and guided back-propagation against Captum and by hand, and where their rule is undefined."""

from __future__ import annotations

import captum.attr
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from integrand.errors import ModelError, OperationError, OptionError
from integrand.methods import Deconvnet, DeepLift, Gradient, GuidedBackprop

D = torch.float64
BOTH = pytest.mark.parametrize("method", [GuidedBackprop(), Deconvnet()], ids=["guided", "deconvnet"])
BOTH_KINDS = pytest.mark.parametrize("kind", [GuidedBackprop, Deconvnet])
CAPTUM = {GuidedBackprop: captum.attr.GuidedBackprop, Deconvnet: captum.attr.Deconvolution}


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def cnn():
    torch.manual_seed(0)
    parts = [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5), nn.ReLU()]
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        net[4].weight.copy_(torch.tensor([1.0, -1.0, 0.5, -2.0, 1.0]))
        net[4].running_var.uniform_(0.5, 2)
    return net.to(D).eval()


@BOTH_KINDS
@pytest.mark.filterwarnings("ignore:Setting (forward|backward):UserWarning")
def test_equals_captum(kind):
    net, x = cnn(), drawn(3, 2, 9, 9)
    expected = CAPTUM[kind](net).attribute(x.clone().requires_grad_(), target=[0, 1, 2])
    torch.testing.assert_close(kind()(net, x, target=[0, 1, 2]).values, expected)


def by_hand(x, kind):
    """score = v . relu(W relu(x)), its two rectifiers walked back by the definitions."""
    w = torch.tensor([[1.0, -2.0], [-1.0, 1.0]], dtype=D)
    v = torch.tensor([1.0, -1.0], dtype=D)
    inner = x.clamp(min=0)
    outer = w @ inner
    passed = outer > 0 if kind is GuidedBackprop else torch.ones_like(outer)
    signal = w.T @ (v.clamp(min=0) * passed)
    return signal.clamp(min=0) * (x > 0) if kind is GuidedBackprop else signal.clamp(min=0)


@BOTH_KINDS
def test_equals_the_definition(kind):
    w = torch.tensor([[1.0, -2.0], [-1.0, 1.0]], dtype=D)
    v = torch.tensor([1.0, -1.0], dtype=D)
    for x in drawn(20, 2):
        found = kind()(lambda x: F.relu(F.relu(x) @ w.T) @ v, x[None]).values[0]
        torch.testing.assert_close(found, by_hand(x, kind))


@BOTH
def test_without_rectifiers_it_is_the_gradient(method):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(4, 2)).to(D).eval()
    x = drawn(2, 1, 6)
    torch.testing.assert_close(method(net, x, target=0).values, Gradient()(net, x, target=0).values)
    torch.testing.assert_close(method(lambda x: x.max(1).values * x.sum(1), drawn(2, 3)).values.sum(1), _product_slopes())


def _product_slopes():
    """The sum of the gradient of max(x) sum(x): sum(x) + 3 max(x)."""
    x = drawn(2, 3)
    return x.sum(1) + 3 * x.amax(1)


@BOTH
def test_nothing_passes_a_detached_value(method):
    x = drawn(2, 3)
    score = lambda x: x[:, 0] * x[:, 1].detach() + x[:, 2]  # noqa: E731
    torch.testing.assert_close(method(score, x).values, Gradient()(score, x).values)


class Straight(torch.autograd.Function):
    """Rectifies, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, arrived):
        return 3 * arrived


def _without_gradient(x):
    with torch.no_grad():
        scale = x.sum(1)
    return F.relu(x[:, 0]) * scale


@BOTH
@pytest.mark.parametrize("score", [_without_gradient, lambda x: Straight.apply(x).sum(1), lambda x: (x * x.data).sum(1)])
def test_models_that_meddle_with_gradients_are_refused(method, score):
    with pytest.raises(ModelError, match=r"leaves gradients alone"):
        method(score, drawn(2, 3).abs())
    assert DeepLift()(score, drawn(2, 3).abs()).certificate[0].residual == pytest.approx(0, abs=1e-12)


def test_bounded_rectifiers_are_rectifiers():
    x = torch.tensor([[-1.0, 1.0, 7.0]], dtype=D)
    for rectify in (F.relu6, lambda x: x.clamp(0, 6), lambda x: F.hardtanh(x, 0.0, 6.0), nn.Hardtanh(0.0, 6.0)):
        assert GuidedBackprop()(lambda x, r=rectify: r(x).sum(1), x).values.tolist() == [[0, 1, 0]]
        assert GuidedBackprop()(lambda x, r=rectify: -r(x).sum(1), x).values.tolist() == [[0, 0, 0]]


UNDEFINED = {
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "_prelu_kernel": nn.PReLU().to(D).requires_grad_(False),
    "hardtanh": F.hardtanh,
    "abs": lambda x: (x + x.abs()) / 2,
    "gt": lambda x: x * (x > 0),
    "log1p": lambda x: torch.log1p(x.exp()),
    "erf": lambda x: x * (1 + torch.erf(x)),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "sign": lambda x: x * (x.sign() + 1),
    "sort": lambda x: x.sort(1).values,
    "prod": lambda x: x.prod(1, keepdim=True),
}


@BOTH_KINDS
@pytest.mark.parametrize("name", UNDEFINED)
def test_undefined_operations_are_named(kind, name):
    function = UNDEFINED[name]

    def model(x):
        return function(x * 1.0).sum(1)

    x = drawn(2, 4)
    with pytest.raises(OperationError, match=rf"'{name}'.*others='gradient'"):
        kind()(model, x)
    result = kind(others="gradient")(model, x)
    torch.testing.assert_close(result.values, Gradient()(model, x).values)
    if name != "gt":  # nothing arrives at a comparison
        assert f"plain gradient at {name}" in result.certificate[0].note
        assert f"plain gradient at {name}" in str(result.certificate[0])


def test_a_rectifier_written_with_where_is_refused():
    with pytest.raises(OperationError, match=r"'gt'|'where'"):
        GuidedBackprop()(lambda x: torch.where(x > 0, x, 0.0).sum(1), drawn(1, 3))


def test_softmax_keeps_its_gradient_and_says_so():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1), nn.Linear(4, 2)).to(D)
    result = GuidedBackprop()(net, drawn(2, 3), target=0)
    torch.testing.assert_close(result.values, Gradient()(net, drawn(2, 3), target=0).values)
    assert "_softmax" in result.certificate[0].note


def test_options():
    with pytest.raises(OptionError, match=r"others='zero'.*'error' or 'gradient'"):
        GuidedBackprop(others="zero")


def test_functional_rectifiers_are_not_overlooked():
    """The plain gradient here is -1 everywhere; dropping negative signals leaves nothing."""
    x = torch.tensor([[1.0, 2.0]], dtype=D)
    assert Gradient()(lambda x: -F.relu(x).sum(1), x).values.tolist() == [[-1, -1]]
    for method in (GuidedBackprop(), Deconvnet()):
        assert method(lambda x: -F.relu(x).sum(1), x).values.tolist() == [[0, 0]]
