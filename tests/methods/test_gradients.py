"""The gradient and gradient x input against Captum and closed forms."""

from __future__ import annotations

import math

import captum.attr
import pytest
import torch
from torch import nn

from integrand.certificate import Status
from integrand.errors import GradientError, NonFiniteError
from integrand.methods import DeepLift, Gradient, GradientTimesInput

D = torch.float64


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.GELU(), nn.Flatten(), nn.Linear(48, 4)).to(D).eval()


def images(count=3, seed=1):
    return torch.randn(count, 2, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=D)


def test_gradient_equals_captum():
    net, x = network(), images()
    expected = captum.attr.Saliency(net).attribute(x.clone().requires_grad_(), target=[0, 2, 3], abs=False)
    torch.testing.assert_close(Gradient()(net, x, target=[0, 2, 3]).values, expected)


def test_gradient_times_input_equals_captum():
    net, x = network(), images()
    expected = captum.attr.InputXGradient(net).attribute(x.clone().requires_grad_(), target=1)
    torch.testing.assert_close(GradientTimesInput()(net, x, target=1).values, expected)


def test_closed_form():
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=D)
    assert Gradient()(lambda x: x[:, 0] ** 2 * x[:, 1], x).values.tolist() == [[4.0, 1.0], [-6.0, 9.0]]
    assert GradientTimesInput()(lambda x: x[:, 0] ** 2 * x[:, 1], x).values.tolist() == [[4.0, 2.0], [-18.0, -9.0]]


def test_gradient_times_input_of_a_linear_function_is_complete_and_of_a_square_twice_it():
    x = torch.tensor([[1.0, -2.0]], dtype=D)
    weights = torch.tensor([3.0, 4.0], dtype=D)
    assert GradientTimesInput()(lambda x: x @ weights, x).certificate.only.residual == 0
    assert GradientTimesInput()(lambda x: x.square().sum(1), x).certificate.only.residual == 5


def test_certificate():
    result = Gradient()(network(), images(2), target=0)
    for one in result.certificate:
        assert (one.status, one.error, one.gradients) == (Status.EXACT, 0, 1)
    broken = {p.axiom for p in result.certificate.promises if not p.kept}
    assert broken == {"completeness", "sensitivity-a"}
    assert result.meta["method"] == "gradient"


def test_a_score_without_gradient_is_an_error():
    with pytest.raises(GradientError, match="detach"):
        Gradient()(lambda x: x.detach().sum(1), torch.ones(1, 2))


@pytest.mark.parametrize("method", [Gradient(), GradientTimesInput()])
def test_a_baseline_that_is_not_used_need_not_be_in_the_domain(method):
    x = torch.tensor([[2.0, 4.0]])
    result = method(lambda x: x.log().sum(1), x)
    expected = 1 / x if method == Gradient() else torch.ones_like(x)
    torch.testing.assert_close(result.values, expected)
    assert math.isnan(result.certificate.only.baseline_score)
    with pytest.raises(NonFiniteError, match="Choose a baseline within the model's domain"):
        DeepLift()(lambda x: x.log().sum(1), x)
