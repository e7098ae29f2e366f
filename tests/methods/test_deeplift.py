"""DeepLift against Captum and shap, the definition written with loops, and closed forms."""

from __future__ import annotations

import warnings

import captum.attr
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from integrand.certificate import Status
from integrand.errors import ConvergenceWarning, NonFiniteError, OperationError, OptionError
from integrand.methods import DeepLift

D = torch.float64
REVEAL = DeepLift("reveal-cancel")
QUIET = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # the peers', about their own code


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def mlp(*activations, seed=0):
    """A dense network with a module of its own for every activation, as the peers need it."""
    torch.manual_seed(seed)
    sizes = [5, 8, 7, 6][: len(activations) + 1]
    parts = [m for i, act in enumerate(activations) for m in (nn.Linear(sizes[i], sizes[i + 1]), act)]
    return nn.Sequential(*parts, nn.Linear(sizes[-1], 3)).to(D).eval()


def cnn(pool, activation=nn.ReLU, seed=0):
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), activation(), pool, nn.Conv2d(4, 5, 3, padding=1), activation())
    width = body(torch.zeros(1, 2, 8, 8)).numel()
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(width, 3)).to(D).eval()


def residuals(result):
    return max(abs(one.residual) for one in result.certificate)


@QUIET
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.ELU, nn.LeakyReLU])
def test_equals_captum_on_dense_networks(activation):
    net, x, base = mlp(activation(), activation()), drawn(3, 5), drawn(3, 5, seed=2)
    expected = captum.attr.DeepLift(net).attribute(x, base, target=[0, 1, 2])
    torch.testing.assert_close(DeepLift()(net, x, base, target=[0, 1, 2]).values, expected)


@QUIET
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid])
def test_equals_captum_on_convolutions(activation):
    # Not with max-pooling: with a baseline that is not constant, Captum's attributions then do not sum to the change.
    # Not with softmax: Captum subtracts the mean over classes from what it hands back, a rule of its own.
    net, x, base = cnn(nn.AvgPool2d(2), activation), drawn(2, 2, 8, 8), drawn(2, 2, 8, 8, seed=2)
    expected = captum.attr.DeepLift(net).attribute(x, base, target=1)
    torch.testing.assert_close(DeepLift()(net, x, base, target=1).values, expected)


@QUIET
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(4), nn.AvgPool2d(2)], ids=["max 2", "max 4", "mean 2"])
def test_equals_shap(shap, pool, activation):
    # Not with overlapping windows: shap then writes over what it has handed to a number that won twice.
    net, x, base = cnn(pool, activation), drawn(2, 2, 8, 8), drawn(1, 2, 8, 8, seed=2)
    expected = shap.DeepExplainer(net, base.clone()).shap_values(x.clone(), check_additivity=True)[..., 1]
    found = DeepLift()(net, x, base.expand_as(x), target=1)
    np.testing.assert_allclose(found.values.numpy(), expected, rtol=0, atol=1e-12)
    assert residuals(found) < 1e-14


@QUIET
def test_several_baselines_average_as_shap_does(shap):
    net, x, base = cnn(nn.MaxPool2d(2)), drawn(2, 2, 8, 8), drawn(4, 2, 8, 8, seed=2)
    expected = shap.DeepExplainer(net, base.clone()).shap_values(x.clone(), check_additivity=True)[..., 0]
    found = DeepLift()(net, x, [one.expand_as(x) for one in base], target=0)
    np.testing.assert_allclose(found.values.numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 3, 2),
        lambda x: F.max_pool2d(x, 3, 1, padding=1),
        lambda x: F.max_pool2d(x, 2, dilation=2),
        lambda x: F.adaptive_max_pool2d(x, 3),
        lambda x: x.amax((2, 3)),
        lambda x: x.max(3).values,
        lambda x: x.flatten(1).min(1, keepdim=True).values,
        lambda x: torch.maximum(x[:, :1], x[:, 1:]),
        lambda x: torch.minimum(x[..., :1], x),
    ],
    ids=["overlap", "padding", "dilation", "adaptive", "amax", "max", "min", "maximum", "broadcast minimum"],
)
def test_every_maximum_is_complete(pool):
    x, base = drawn(3, 2, 6, 6), drawn(3, 2, 6, 6, seed=2)
    for a, b in ((x, base), (x.round(), base.round()), (x, torch.zeros_like(x))):  # rounded: many ties
        for method in (DeepLift(), REVEAL):
            assert residuals(method(lambda x: pool(x).flatten(1).square().sum(1), a, b)) < 1e-11


def test_a_maximum_gives_its_rise_to_the_winner_and_its_fall_to_the_loser():
    x, base = torch.tensor([[5.0, 1.0]], dtype=D), torch.tensor([[0.0, 3.0]], dtype=D)
    # From max = 3 (the second) to 5 (the first): up by 2, down by nothing.
    assert DeepLift()(lambda x: x.amax(1), x, base).values[0].tolist() == [2, 0]
    # Down from 5 (the first) to 3 (the second).
    assert DeepLift()(lambda x: x.amax(1), base, x).values[0].tolist() == [-2, 0]


def test_products_are_the_shapley_values_of_two_factors():
    x, base = torch.tensor([[2.0, 5.0]], dtype=D), torch.tensor([[1.0, 3.0]], dtype=D)
    # 10 - 3: (2 - 1) (5 + 3) / 2 and (5 - 3) (2 + 1) / 2.
    assert DeepLift()(lambda x: x[:, 0] * x[:, 1], x, base).values[0].tolist() == [4, 3]
    quotient = DeepLift()(lambda x: x[:, 0] / x[:, 1], x, base).values[0].tolist()
    # (2 - 1) (1/5 + 1/3) / 2 and (1/5 - 1/3) (2 + 1) / 2.
    assert quotient == pytest.approx([4 / 15, -1 / 5])


def test_softmax_closed_forms():
    x, zero = torch.tensor([[1.5, 0.0]], dtype=D), torch.zeros(1, 2, dtype=D)
    p = torch.sigmoid(torch.tensor(1.5, dtype=D)).item()
    # Only the first logit moves: it gets all of the change.
    assert DeepLift()(lambda x: x.softmax(1)[:, 0], x, zero).values[0].tolist() == pytest.approx([p - 0.5, 0])
    assert DeepLift()(lambda x: x.log_softmax(1)[:, 0], x, zero).values[0].tolist() == pytest.approx([np.log(2 * p), 0])
    assert DeepLift()(lambda x: x.logsumexp(1), x, zero).values[0].tolist() == pytest.approx(
        [np.log(np.exp(1.5) + 1) - np.log(2), 0]
    )
    # Both move alike: nothing changes, and each gets p (1 - p) times its move, of either sign.
    for size in (1.0, 50.0, 2000.0):
        both = DeepLift()(lambda x: x.softmax(1)[:, 0], torch.full((1, 2), size, dtype=D), zero)
        assert both.values[0].tolist() == pytest.approx([size / 4, -size / 4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 30.0, 300.0])
def test_softmax_of_large_logits_stays_of_their_size(dtype, size):
    """The slopes of softmax lie between -1 and 1, so attributions cannot exceed the moves of the logits."""
    x, base = (size * drawn(3, 6)).to(dtype), (size * drawn(3, 6, seed=2) - 2 * size).to(dtype)
    for function in (lambda x: x.softmax(1)[:, 0], lambda x: x.log_softmax(1)[:, 0], lambda x: x.logsumexp((1,))):
        result = DeepLift()(function, x, base)
        assert bool((result.values.abs() <= (x - base).abs() * 1.0001).all())
        assert residuals(result) < 20 * torch.finfo(dtype).eps * max(one.magnitude for one in result.certificate)


def test_logsumexp_over_several_dimensions():
    x, base = drawn(2, 3, 4, 2), drawn(2, 3, 4, 2, seed=2)
    assert residuals(DeepLift()(lambda x: x.logsumexp((1, 3)).square().sum(1), x, base)) < 1e-13
    assert residuals(DeepLift()(lambda x: x.logsumexp(-1, keepdim=True).sum((1, 2, 3)), x, base)) < 1e-13


def test_masked_attention_is_complete():
    q, k, v = drawn(4, 4, seed=3), drawn(4, 4, seed=4), drawn(4, 4, seed=5)
    x, base = drawn(2, 5, 4), drawn(2, 5, 4, seed=2)
    seen = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)) > 0.4
    nothing = seen.clone()
    nothing[2] = False
    minus = torch.zeros(5, 5, dtype=D).masked_fill(~seen, -torch.inf)
    for mask in (None, seen, nothing, minus):
        score = lambda x, mask=mask: F.scaled_dot_product_attention(x @ q, x @ k, x @ v, attn_mask=mask).square().sum((1, 2))  # noqa: E731
        for method in (DeepLift(), REVEAL):
            assert residuals(method(score, x, base)) < 1e-11


# Where values are close, and where they jump


def test_close_values_use_the_derivative():
    """Moves of rounding size in what the network feels, large moves in the features: a quotient would be noise."""
    x = torch.tensor([[1e3, 1e3 + 1e-9]], dtype=D)
    found = DeepLift()(lambda x: torch.tanh(1 + x[:, 0] - x[:, 1]), x).values[0]
    slope = 1 / torch.cosh(torch.tensor(1.0, dtype=D)) ** 2
    torch.testing.assert_close(found, torch.tensor([1e3, -1e3], dtype=D) * slope, rtol=1e-6, atol=0)


@pytest.mark.parametrize("jump", [torch.floor, torch.round, torch.sign, F.hardswish, F.relu, lambda x: x.clamp(max=1)])
def test_a_kink_or_jump_between_close_values_is_seen(jump):
    for middle in (1.0, 1.5, 0.0, 3.0, -3.0):
        x, base = torch.tensor([[middle + 1e-9]], dtype=D), torch.tensor([[middle - 1e-9]], dtype=D)
        assert abs(DeepLift()(lambda x: jump(x).sum(1), x, base).certificate.only.residual) < 1e-15


def test_what_stops_gradients_does_not_stop_changes():
    x, base = drawn(2, 4), drawn(2, 4, seed=2)
    result = DeepLift()(lambda x: (x - x.amax(1, keepdim=True).detach()).exp().sum(1), x, base)
    assert residuals(result) < 1e-13


UNDEFINED = {
    "sort": lambda x: x.sort(1).values[:, 0],
    "topk": lambda x: x.topk(2).values.sum(1),
    "abs": lambda x: torch.fft.rfft(x).abs().sum(1),
    "cumprod": lambda x: x.cumprod(1).sum(1),
    "where": lambda x: torch.where(x > 0, x, 0.1 * x).sum(1),
    "gather": lambda x: x.gather(1, x.argmax(1, keepdim=True)).sum(1),
    "gt": lambda x: (x * (x > 0)).sum(1),
    "ge": lambda x: x.sum(1) + (x >= 0).to(x.dtype).sum(1),
    "max": lambda x: x.sum(1) + x.max(1).indices,
    "scatter": lambda x: torch.zeros_like(x).scatter(1, x.argsort(1), x).cumsum(1).square().sum(1),
    "masked_fill": lambda x: x.masked_fill(x < 0, 0.0).sum(1),
}


@pytest.mark.parametrize("method", [DeepLift(), REVEAL], ids=["rescale", "reveal-cancel"])
@pytest.mark.parametrize("name", UNDEFINED)
def test_undefined_operations_are_named(name, method):
    x, base = torch.tensor([[1.0, -2.0, 3.5, 0.2]], dtype=D), torch.tensor([[0.5, 2.0, -1.5, 1.0]], dtype=D)
    with pytest.raises(OperationError, match=rf"deeplift has no rule for the operation '{name}'.*integrated gradients"):
        method(UNDEFINED[name], x, base)


def test_a_condition_that_is_the_same_at_both_ends_is_a_constant():
    x, base = torch.tensor([[1.0, -2.0]], dtype=D), torch.tensor([[3.0, -1.0]], dtype=D)
    for score in (lambda x: torch.where(x > 0, x, 0.1 * x).sum(1), lambda x: (x * (x > 0)).sum(1)):
        result = DeepLift()(score, x, base)
        assert abs(result.certificate.only.residual) < 1e-15
        assert result.values[0, 0] == -2


def test_a_baseline_outside_the_domain_is_refused():
    with pytest.raises(NonFiniteError, match=r"baseline"):
        DeepLift()(lambda x: x.log().sum(1), torch.ones(1, 2))


def common_shift(seed):
    """A network with equal logits, but for biases: a common move of 3e5, and softmax does not change with it."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 10), nn.Softmax(1))
    for layer in net[::2]:
        nn.init.ones_(layer.weight)
    return net.eval()


@pytest.mark.parametrize("method", [DeepLift(), REVEAL, DeepLift(multipliers=True)], ids=["rescale", "reveal", "multipliers"])
def test_the_stated_rounding_covers_what_a_common_shift_of_the_logits_costs(method):
    x = torch.arange(40.0)[None]
    for seed in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = method(common_shift(seed), x, target=2)
        one = result.certificate.only
        # The exact attributions are zero: all that there is is wrong, and nothing is claimed.
        assert not one.error <= 0.3  # also where it is NaN
        assert one.status is Status.UNKNOWN or method.multipliers


def test_values_that_rounding_has_made_up_are_not_called_exact():
    with pytest.warns(ConvergenceWarning, match=r"rounding in float32 leaves an error above 30%.*float64"):
        result = DeepLift()(common_shift(0), torch.arange(40.0)[None], target=2)
    assert result.certificate.only.status is Status.UNKNOWN


def moved_together(seed):
    """Logits that move together by about a hundred times as much as they differ: the values keep three to four digits."""
    net = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 3), nn.Softmax(1))
    with torch.no_grad():
        net[2].weight.copy_(30 * torch.randn(1, 32) + 0.1 * torch.randn(3, 32))
    return net, torch.randn(2, 10)


def large_logits(seed):
    """Logits of some thousands, in front of which many terms cancel."""
    net = nn.Sequential(nn.Linear(20 + 60 * (seed % 3), 40), nn.ReLU(), nn.Linear(40, 5), nn.Softmax(1))
    with torch.no_grad():
        net[0].weight *= 100
    return net, 100 * torch.randn(1, net[0].in_features)


@pytest.mark.parametrize("method", [DeepLift(), REVEAL], ids=["rescale", "reveal"])
@pytest.mark.parametrize("drawn", [moved_together, large_logits])
def test_rounding_in_front_of_a_softmax_is_stated_to_its_size(drawn, method):
    """Of 60 such claims 23 (rescale) and 45 (reveal-cancel) were below the truth, by up to 18 times."""
    ratios = []
    for seed in range(20):
        torch.manual_seed(seed)
        net, x = drawn(seed)
        rough, fine = method(net.eval(), x, target=1), method(net.double(), x.double(), target=1)
        off = (rough.values - fine.values).abs().sum(1)
        ratios += [float(miss / (one.error * one.magnitude)) for miss, one in zip(off, rough.certificate, strict=True)]
    assert sum(ratio > 1 for ratio in ratios) <= 0.1 * len(ratios)
    assert max(ratios) < 10
    assert min(ratios) > 1e-4  # it is no blanket claim


def test_values_that_are_all_lost_to_rounding_are_not_called_exact():
    """Logits of 1e9: all values are zero in float32, and the score changes by 0.8. The error was given as 0."""
    torch.manual_seed(15)
    net = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5), nn.Softmax(1)).eval()
    nn.init.constant_(net[0].weight, 1e6)
    with pytest.warns(ConvergenceWarning, match="float64"):
        result = DeepLift()(net, torch.arange(20.0)[None], target=int(net(torch.zeros(1, 20)).argmax()))
    only = result.certificate.only
    assert abs(only.residual) > 0.1
    assert only.status is Status.UNKNOWN


def test_options_and_certificate():
    with pytest.raises(OptionError, match="rule='linear'"):
        DeepLift("linear")
    result = DeepLift()(mlp(nn.ReLU()), drawn(2, 5), target=0)
    assert all((one.status, one.rule, one.gradients) == (Status.EXACT, "rescale", 3) for one in result.certificate)
    kept = {p.axiom: p.kept for p in result.certificate.promises}
    assert kept["completeness"]
    assert not kept["implementation-invariance"]
