"""What certificates of methods other than the engine's may claim."""

import copy

import pytest
import torch
from torch import nn

from integrand.errors import OperationError, OptionError, ZeroAttributionWarning
from integrand.methods import (
    LRP,
    DeepLift,
    Epsilon,
    GradientTimesInput,
    GuidedBackprop,
    IntegratedGradients,
    Lime,
    PathMethod,
    Shapley,
)


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)).eval()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", [LRP(), DeepLift(), DeepLift("reveal-cancel"), GradientTimesInput(), Shapley()])
def test_half_precision_is_not_called_exact_to_the_last_digit(method, dtype):
    """Most errors against float64 are within the rounding that the certificate states, and none is far beyond it."""
    ratios = []
    for seed in range(6):
        net, x = mlp(seed).to(dtype), torch.randn(3, 10, generator=torch.Generator().manual_seed(seed)).to(dtype)
        rough, fine = method(net, x, target=1), method(copy.deepcopy(net).double(), x.double(), target=1)
        off = (rough.values.double() - fine.values).abs().sum(1) / fine.values.abs().sum(1)
        claimed = torch.tensor([one.error for one in rough.certificate], dtype=torch.float64)
        assert bool((claimed > 0).all())
        ratios += (off / claimed).tolist()
    assert sum(ratio <= 1 for ratio in ratios) >= 0.8 * len(ratios)
    assert max(ratios) < 20


def test_rounding_is_in_the_certificate_line():
    net, x = mlp().half(), torch.randn(1, 10).half()
    assert "rounding" in str(LRP()(net, x, target=1))
    assert "rounding" not in str(GradientTimesInput()(mlp().double(), torch.randn(1, 10).double(), target=1))


@pytest.mark.parametrize("method", [IntegratedGradients(), PathMethod(), DeepLift(), Shapley()])
def test_an_input_that_equals_its_baseline_is_told(method):
    net, x = mlp(), torch.randn(1, 10)
    with pytest.warns(ZeroAttributionWarning, match="the input equals the baseline"):
        result = method(net, x, x.clone(), target=0)
    assert not result.values.any()
    assert result.certificate.converged


@pytest.mark.parametrize("method", [IntegratedGradients(), PathMethod(), Shapley(), Shapley(exact=0)])
def test_what_rounding_does_is_nothing_to_attribute(method):
    """On some machines the last digit of a score depends on the row's place in its batch; F(x) and F(x') then differ by it."""

    def score(x):
        return x.sum(1) * (1 + torch.finfo(x.dtype).eps * (torch.arange(len(x)) % 3))

    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    with pytest.warns(ZeroAttributionWarning, match="the input equals the baseline"):
        result = method(score, x, x.clone())
    assert not result.values.any()
    assert result.certificate.converged
    assert result.certificate.only.error == 0


def test_a_pattern_that_matches_no_layer_is_refused():
    with pytest.raises(OptionError, match=r"'nomatch\.\*'.*matches a layer of the model: '0', '2', '4'"):
        LRP(composite=(("nomatch.*", Epsilon()),))(mlp(), torch.randn(1, 10))
    LRP(composite=(("2", Epsilon(0.1)),))(mlp(), torch.randn(1, 10))


def test_large_relevances_are_told():
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, -1.0]]))
        net.bias.fill_(1.0)
    result = LRP()(net.eval(), torch.tensor([[1.0, 1.0 + 1e-6]]))
    assert "times the score" in result.certificate.only.note
    assert not LRP()(net, torch.tensor([[3.0, 1.0]])).certificate.only.note


def test_an_operation_without_a_gradient_is_named():
    half = torch.tensor(0.5)

    def steps(x):
        return (torch.heaviside(x, half) * x).sum(1)

    for method in (DeepLift(), GuidedBackprop(others="gradient")):  # LRP hands relevance on without a gradient
        with pytest.raises(OperationError, match="heaviside"):
            method(steps, torch.tensor([[1.0, -2.0]]))


def test_noise_is_cut_into_a_grid_where_colours_do_not_hang_together():
    pytest.importorskip("skimage")
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    result = Lime(tol=0.5)(lambda x: x[:, :, :32].mean((1, 2, 3)), image)
    assert "in 1 features" not in result.certificate.only.note
    assert len(result.values.unique()) > 1


def test_settings_that_make_no_sense_are_refused_when_a_method_is_made():
    for make in (lambda: IntegratedGradients(tol=-1), lambda: PathMethod(steps=0), lambda: PathMethod(route=3)):
        with pytest.raises(OptionError):
            make()
    assert "0x" not in repr(PathMethod())
