"""ReLU networks: kinks are found and counted, smoothed on request, and never silently left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from integrand import Status
from integrand.errors import ConvergenceWarning, ModelError
from integrand.interactions import integrated_hessians

from .interaction_references import distance, integral, relu_network, sigmoid_of_relu_network


def relu_net(seed, widths=(24, 24), features=5):
    torch.manual_seed(seed)
    sizes = (features, *widths)
    layers = [nn.Linear(a, b) for a, b in zip(sizes, (*widths, 1), strict=True)]
    modules = [m for layer in layers for m in (layer, nn.ReLU())][:-1]
    return nn.Sequential(*modules).double().eval(), layers


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("widths", [(20,), (24, 24), (16, 16, 16)])
def test_relu_networks_are_exact(seed, widths):
    net, layers = relu_net(seed, widths)
    x, b = torch.randn(2, 2, 5, dtype=torch.float64) * 2
    result = integrated_hessians(net, x, b)
    exact = torch.stack([relu_network(layers, *pair) for pair in zip(x, b, strict=True)])
    assert result.converged
    assert distance(result.values, exact) < 1e-7
    assert torch.allclose(result.values.sum(2), result.attributions, atol=1e-10)
    assert all(one.rule == "kinks" and one.kinks for one in result.certificate)
    assert all(one.gradients < 12 * (one.kinks + 10) for one in result.certificate)


def test_in_single_precision_too():
    for seed in range(8):
        net, layers = relu_net(seed)
        x, b = torch.randn(2, 1, 5, dtype=torch.float64) * 2
        exact = relu_network(layers, x[0], b[0])[None]
        result = integrated_hessians(net.float(), x.float(), b.float(), tol=0.05)
        assert result.converged
        assert distance(result.values, exact) <= result.error


def test_one_kink_by_hand():
    """relu(x0 + x1 - 1) from 0 to (1, 1): a kink at 1/2 with the jump (1, 1)."""
    result = integrated_hessians(lambda x: torch.relu(x.sum(1) - 1), torch.ones(1, 2, dtype=torch.float64))
    weight = 0.5 * torch.tensor(2.0, dtype=torch.float64).log()
    own = 1 - 0.5 - weight  # the integral of -ln s from 1/2 to 1
    exact = torch.tensor([[own, 0], [0, own]], dtype=torch.float64) + weight / 2
    assert torch.allclose(result.values[0], exact, atol=1e-8)
    assert result.certificate[0].kinks == 1


def test_a_score_that_crosses_zero_is_rounded_by_more_than_its_last_digit():
    """There it is a difference of larger numbers; it does not move at x, where its rounding could have been measured."""

    def score(x):
        return (torch.relu(1 - x.sum(1)) - 0.3 + 40) - 40

    result = integrated_hessians(score, torch.tensor([[0.9, 1.2]], dtype=torch.float64))
    assert result.converged
    assert result.certificate[0].kinks == 1
    assert result.certificate[0].gradients < 12 * (1 + 10)


def test_groups_and_chosen_features_of_a_relu_network():
    net, _ = relu_net(3)
    x = torch.randn(2, 5, dtype=torch.float64) * 2
    whole = integrated_hessians(net, x).values
    rows = integrated_hessians(net, x, features=[3, 0]).values
    assert torch.allclose(rows, whole[:, [3, 0]], atol=1e-12)
    groups = integrated_hessians(net, x, groups=torch.tensor([0, 1, 0, -1, 1]))
    assert torch.allclose(groups.values[:, 0, 1], whole[:, [0, 2]][:, :, [1, 4]].sum((1, 2)), atol=1e-12)
    assert torch.allclose(groups.outside[:, 0], whole[:, [0, 2], 3].sum(1), atol=1e-12)


def test_batches_and_several_baselines_of_relu_networks():
    net, layers = relu_net(4)
    x, starts = torch.randn(5, 5, dtype=torch.float64) * 2, torch.randn(2, 5, dtype=torch.float64)
    result = integrated_hessians(net, x, list(starts[:, None]))
    exact = [torch.stack([relu_network(layers, row, start) for start in starts]).mean(0) for row in x]
    assert distance(result.values, torch.stack(exact)) < 1e-7
    assert torch.allclose(result.values[3], integrated_hessians(net, x[3:4], list(starts[:, None])).values[0], atol=1e-10)


def test_pooling_and_absolute_values_have_kinks_as_well():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 12), nn.MaxPool1d(3), nn.Linear(4, 6), nn.Hardtanh(), nn.Linear(6, 1)).double().eval()
    x = torch.randn(3, 4, dtype=torch.float64)
    result = integrated_hessians(lambda x: net(x) + x.abs().sum(1, keepdim=True), x, -x.flip(1))
    assert result.converged
    assert torch.allclose(result.values, result.values.mT)
    assert [bool(one.kinks) for one in result.certificate] == [True, True, False]


def test_a_kink_in_a_curved_score_by_hand():
    """relu(x0 - 0.4) x1^2 from 0 to (1, 1): a kink at 0.4 with the jump (0.16, 0)."""
    f = lambda x: torch.relu(x[:, 0] - 0.4) * x[:, 1] ** 2  # noqa: E731
    result = integrated_hessians(f, torch.ones(1, 2, dtype=torch.float64))

    def beyond(function):
        return 0.6 * integral(lambda u: function(0.4 + 0.6 * u))

    own = -0.4 * np.log(0.4) * 0.16 + beyond(lambda s: -np.log(s) * s**2)
    cross = beyond(lambda s: -s * np.log(s) * 2 * s)
    other = beyond(lambda s: -np.log(s) * 4 * s * (s - 0.4))
    assert np.allclose(result.numpy()[0], [[own, cross], [cross, other]], rtol=1e-4)
    assert result.converged
    assert result.certificate[0].kinks == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(4))
def test_probabilities_of_relu_networks(seed, dtype):
    net, layers = relu_net(seed, (16, 12), 4)
    x, b = torch.randn(2, 1, 4, dtype=torch.float64) * 2
    exact = sigmoid_of_relu_network(layers, x[0], b[0])[None]
    result = integrated_hessians(net.to(dtype), x.to(dtype), b.to(dtype), score="probability")
    assert result.converged
    assert result.certificate[0].kinks
    assert distance(result.values, exact) <= result.error <= 0.01


@pytest.mark.filterwarnings("ignore:the tolerance was not met")
@pytest.mark.parametrize("number", [80, 160])
def test_many_kinks_in_a_curved_score(number):
    net, layers = relu_net(0, (number,), 4)
    x, b = torch.randn(2, 1, 4, dtype=torch.float64) * 3
    result = integrated_hessians(net, x, b, score="probability")
    assert distance(result.values, sigmoid_of_relu_network(layers, x[0], b[0])[None]) <= result.error


def test_more_kinks_than_can_be_found_are_never_silent():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5000), nn.ReLU(), nn.Linear(5000, 1)).eval()
    with pytest.warns(ConvergenceWarning, match=r"not complete: .* kinks .* pass smooth="):
        result = integrated_hessians(net, torch.randn(1, 4) * 3, score="probability", groups=torch.tensor([0, 0, 1, 1]))
    assert result.certificate[0].gradients < 9000


def test_jumps_of_the_score_are_told():
    for f in (lambda x: (3 * x).round().sum(1) + x.sum(1), lambda x: (x**2 + x.round()).sum(1)):
        with pytest.warns(ConvergenceWarning, match="not complete"):
            assert integrated_hessians(f, torch.ones(1, 2, dtype=torch.float64)).certificate[0].status is Status.JUMP


def test_too_many_kinks_for_the_budget():
    net, _ = relu_net(0, (64, 64))
    with pytest.warns(ConvergenceWarning, match="kinks of a piecewise linear score were found, and there are more"):
        result = integrated_hessians(net, torch.randn(1, 5, dtype=torch.float64) * 4, max_evaluations=40)
    assert result.certificate[0].status is Status.BUDGET


def test_smooth_explains_the_softplus_network():
    net, _ = relu_net(1)
    soft = nn.Sequential(*[nn.Softplus(20.0, 40.0) if isinstance(m, nn.ReLU) else m for m in net])
    x = torch.randn(2, 5, dtype=torch.float64)
    result = integrated_hessians(net, x, smooth=20, tol=1e-6)
    assert distance(result.values, integrated_hessians(soft, x, tol=1e-6).values) < 1e-6
    for e, one in enumerate(result.certificate):
        assert one.score == pytest.approx(float(soft(x)[e].detach()), abs=1e-12)
        assert one.model_score == pytest.approx(float(net(x)[e].detach()), abs=1e-12)
        assert one.converged
    assert "the model itself" in str(result)


def test_sharper_is_closer():
    net, layers = relu_net(5, (12,))
    x = torch.randn(1, 5, dtype=torch.float64)
    exact = relu_network(layers, x[0], torch.zeros(5, dtype=torch.float64))[None]
    far, near = (distance(integrated_hessians(net, x, smooth=beta).values, exact) for beta in (10, 1000))
    assert near < 0.05 < far


@pytest.mark.parametrize(
    "relu",
    [
        functional.relu,
        torch.relu,
        torch.Tensor.relu,
        nn.ReLU(),
        nn.ReLU(inplace=True),
        lambda x: functional.relu(x, inplace=True),
        torch.relu_,
        torch.Tensor.relu_,
        functional.relu_,
    ],
)
def test_every_way_to_call_relu_is_smoothed(relu):
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    b = torch.tensor([-2.0, 0.5], dtype=torch.float64)
    result = integrated_hessians(lambda x: relu(2 * x - x.flip(1)).sum(1), x, b, smooth=3, tol=1e-8)
    exact = integrated_hessians(lambda x: functional.softplus(2 * x - x.flip(1), 3, 40).sum(1), x, b, tol=1e-8)
    assert distance(result.values, exact.values) < 1e-7


@pytest.mark.parametrize(
    ("kinked", "limits"),
    [(nn.LeakyReLU(0.2), None), (nn.ReLU6(), (0, 6)), (functional.relu6, (0, 6)), (nn.Hardtanh(-2, 3), (-2, 3))],
)
def test_relatives_of_relu_are_smoothed(kinked, limits):
    def soft(x):
        plus = lambda x: functional.softplus(x, 4, 40)  # noqa: E731
        return 0.2 * x + 0.8 * plus(x) if limits is None else limits[0] + plus(x - limits[0]) - plus(x - limits[1])

    x = torch.tensor([[8.0, -3.0]], dtype=torch.float64)
    result = integrated_hessians(lambda x: kinked(x * 1).sum(1), x, -x, smooth=4, tol=1e-8)
    assert distance(result.values, integrated_hessians(lambda x: soft(x).sum(1), x, -x, tol=1e-8).values) < 1e-7


def test_smooth_without_anything_to_smooth():
    with pytest.raises(ModelError, match=r"smooth=10, but the model calls none of relu"):
        integrated_hessians(lambda x: x.prod(1), torch.ones(1, 2), smooth=10)


def test_relu_is_relu_again_afterwards():
    net, _ = relu_net(0)
    x = torch.randn(1, 5, dtype=torch.float64)
    before = net(x)
    integrated_hessians(net, x, smooth=5)
    assert torch.equal(net(x), before)
