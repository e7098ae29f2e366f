"""Models that fail on their input or at the baseline: what is said, and that what is named as a remedy works."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import integrand as ig
from integrand.errors import InputError, IntegrandError, ModelError
from integrand.methods import DeepLift, Shapley


def conv(*, norm=True):
    torch.manual_seed(0)
    middle = nn.BatchNorm2d(4) if norm else nn.ReLU()
    return nn.Sequential(nn.Conv2d(3, 4, 3), middle, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)).eval()


IMAGE = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(1))


# The input


@pytest.mark.parametrize("norm", [True, False])
def test_an_image_without_a_batch_dimension(norm):
    with pytest.raises(InputError, match=r"got x of shape \(3, 8, 8\).*counts examples.*Pass x\[None\]") as caught:
        ig.integrated_gradients(conv(norm=norm), IMAGE, target=0)
    assert isinstance(caught.value.__cause__, (ValueError, RuntimeError))
    assert ig.integrated_gradients(conv(norm=norm), IMAGE[None], target=0).values.shape == (1, 3, 8, 8)


def test_an_input_of_another_type_than_the_weights():
    with pytest.raises(InputError, match=r"in float64.*Expected float32, the type of its weights.*x\.to\(torch\.float32\)"):
        ig.integrated_gradients(conv(), IMAGE[None].double(), target=0)
    with pytest.raises(InputError, match=r"in float32.*Expected float64.*x\.to\(torch\.float64\)"):
        ig.integrated_gradients(conv().double(), IMAGE[None], target=0)
    with pytest.raises(InputError, match=r"x\.to\(torch\.float32\)\[None\]"):
        ig.integrated_gradients(conv(), IMAGE.double(), target=0)


def test_several_tensors():
    net = conv()
    with pytest.raises(InputError, match=r"x\.to\(torch\.float32\), and so for each tensor"):
        ig.integrated_gradients(lambda a, b: net(a + b), (IMAGE[None].double(), IMAGE[None].double()), target=0)


def test_captums_words():
    from integrand.compat.captum import IntegratedGradients

    with pytest.raises(
        AssertionError, match=r"got inputs of shape \(1, 3, 8, 8\) in float64.*Pass inputs\.to\(torch\.float32\)"
    ):
        IntegratedGradients(conv()).attribute(IMAGE[None].double(), target=0)


def test_other_errors_are_the_models_own():
    with pytest.raises(RuntimeError, match="to have 3 channels") as caught:
        ig.integrated_gradients(conv(), torch.randn(2, 1, 8, 8), target=0)
    assert not isinstance(caught.value, IntegrandError)


# The baseline


class DropsPadding(nn.Module):
    """As models for several pictures do: those that are all zero are taken for padding."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        pictures = x[(x != 0).any(1)]
        return self.layer(pictures.reshape(len(pictures), -1))


X = torch.randn(2, 6, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    "explain",
    [
        lambda *args, **kwargs: ig.integrated_gradients(*args, target=0, **kwargs),
        lambda *args, **kwargs: ig.integrated_gradients(*args, target=0, steps=5, **kwargs),
        lambda *args, **kwargs: DeepLift()(*args, target=0, **kwargs),
        lambda *args, **kwargs: Shapley()(*args, target=0, **kwargs),
    ],
    ids=["to a tolerance", "steps", "DeepLift", "Shapley"],
)
@pytest.mark.parametrize("rows", [1, 2])
def test_a_model_that_fails_at_the_baseline(explain, rows):
    with pytest.raises(ModelError, match=r"fails at the baseline, and not at x: RuntimeError: .*Try another one") as caught:
        explain(DropsPadding().eval(), X[:rows])
    assert type(caught.value.__cause__) is RuntimeError


def test_the_baseline_that_is_named_instead_works():
    with pytest.raises(ModelError) as caught:
        ig.integrated_gradients(DropsPadding().eval(), X, target=0)
    [remedy] = re.findall(r"such as baseline=([0-9.]+)\.", str(caught.value))
    assert ig.integrated_gradients(DropsPadding().eval(), X, float(remedy), target=0).certificate.converged


def test_only_one_of_several_baselines_fails():
    with pytest.raises(ModelError, match="fails at the baseline"):
        ig.integrated_gradients(DropsPadding().eval(), X, [torch.ones(6), torch.zeros(6)], target=0)


def test_the_start_of_a_path_is_its_baseline():
    with pytest.raises(ModelError, match="fails at the baseline"):
        ig.path_attribution(DropsPadding().eval(), ig.Straight(torch.zeros(2, 6), X), target=0)


def test_a_model_that_fails_elsewhere_on_the_path_is_not_blamed_on_the_baseline():
    def fails_between(x):
        if ((x.mean(1) > 0.3) & (x.mean(1) < 0.7)).any():
            raise ArithmeticError("in between")
        return x.sum(1)

    with pytest.raises(ArithmeticError, match="in between"):
        ig.integrated_gradients(fails_between, torch.ones(2, 6))


# Layers without weights


def test_lazy_layers_are_named():
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3)).eval()
    with pytest.raises(ModelError, match=r"submodule '0' is a LazyLinear.*run it once on x first, model\(x\)"):
        ig.integrated_gradients(net, X, target=0)
    net(X)
    assert ig.integrated_gradients(net, X, target=0).certificate.converged
    with pytest.raises(ModelError, match="and it is a LazyLinear"):
        ig.integrated_gradients(nn.LazyLinear(1).eval(), X)
