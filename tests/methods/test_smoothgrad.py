"""SmoothGrad against closed forms and captum's noise tunnel; what it claims against what is true."""

from __future__ import annotations

import math
import pickle

import captum.attr
import numpy as np
import pytest
import torch
from torch import nn

from integrand.certificate import Status
from integrand.errors import ConvergenceWarning, NonFiniteError, OptionError
from integrand.methods import ExpectedGradients, Gradient, GradientTimesInput, IntegratedGradients, Lime, Shapley, SmoothGrad

KINKS = torch.tensor([0.1, 0.4, 0.6, 0.9], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, -2.0, 3.0, 1.5], dtype=torch.float64)


def kinked(x):
    return (torch.relu(x - KINKS) * WEIGHTS).sum(1)


def smoothed(x, sigma):
    """The mean gradient of a ReLU under Gaussian noise: the normal distribution function of the distance to its kink."""
    scale = sigma * (x.amax(1) - x.amin(1))[:, None]
    return WEIGHTS * torch.special.ndtr((x - KINKS) / scale)


def points(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_gradient_of_a_relu_becomes_the_normal_distribution_function():
    x = points(3, 4)
    result = SmoothGrad(sigma=0.3, tol=0.02, samples=50_000)(kinked, x)
    exact = smoothed(x, 0.3)
    # What happens less than once in all samples is not in their standard error.
    unseen = 5 * WEIGHTS.abs() / torch.tensor([[one.gradients] for one in result.certificate])
    assert ((result.values - exact).abs() <= 5 * result.extras["standard_error"] + unseen).all()
    assert ((result.values - exact).abs().sum(1) / exact.abs().sum(1) < 0.04).all()
    assert all(one.status is Status.CONVERGED for one in result.certificate)


def test_standard_errors_are_honest_and_fall_with_the_root():
    x = torch.tensor([[0.3, 0.3, 0.8, 0.8]], dtype=torch.float64)  # less than half a deviation from each kink
    exact = smoothed(x, 1.0)
    spread = {}
    for samples in (64, 256):
        scores, ratios, claims = [], [], []
        for seed in range(80):
            with pytest.warns(ConvergenceWarning, match="raise samples"):
                result = SmoothGrad(sigma=1.0, tol=1e-9, samples=samples, seed=seed)(kinked, x)
            off, error = result.values - exact, result.extras["standard_error"]
            scores.append(off / error)
            ratios.append(float(off.abs().sum() / exact.abs().sum()) / result.certificate.only.error)
            claims.append(float(error.mean()))
        assert 0.9 < float((torch.stack(scores).abs() < 2).double().mean()) < 0.99
        assert np.mean(ratios) < 1
        spread[samples] = float(np.mean(claims))
    assert spread[64] / spread[256] == pytest.approx(2, rel=0.1)


def test_pairs_of_noise_cancel_what_is_linear():
    x, w = points(2, 3), torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    result = SmoothGrad()(lambda x: (w * x**2).sum(1) + x[:, 0] * x[:, 1], x)
    exact = 2 * w * x + torch.stack([x[:, 1], x[:, 0], 0 * x[:, 0]], 1)
    torch.testing.assert_close(result.values, exact)
    assert float(result.extras["standard_error"].max()) < 1e-12


def test_what_is_quadratic_in_the_noise_gets_its_variance():
    # From zero, integrated gradients of a square is the square, whose mean under noise is x**2 plus the variance.
    x = points(2, 3) + 0.5
    variance = (0.2 * (x.amax(1) - x.amin(1))) ** 2
    method = SmoothGrad(IntegratedGradients(tol=1e-4), sigma=0.2, tol=0.01, samples=20_000)
    result = method(lambda x: (x**2).sum(1), x)
    exact = x**2 + variance[:, None]
    assert ((result.values - exact).abs() <= 5 * result.extras["standard_error"] + 1e-6).all()
    for i, one in enumerate(result.certificate):  # the noisy inputs are complete, x is not
        assert one.residual == pytest.approx(float(3 * variance[i]), rel=0.3)
    assert "completeness" in result.certificate.broken


def test_captum_agrees_in_distribution():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2)).double()
    x = points(1, 5, seed=4)
    scale = 0.4 * float(x.max() - x.min())
    tunnel = captum.attr.NoiseTunnel(captum.attr.Saliency(model))
    runs = torch.stack([tunnel.attribute(x, nt_samples=200, stdevs=scale, target=1, abs=False)[0] for _ in range(10)])
    own = SmoothGrad(sigma=0.4, tol=0.02, samples=20_000)(model, x, target=1)
    both = (runs.var(0) / len(runs) + own.extras["standard_error"][0] ** 2).sqrt()
    assert ((runs.mean(0) - own.values[0]).abs() < 5 * both + 1e-9).all()
    assert float(both.sum() / own.values.abs().sum()) < 0.1  # or the line above says nothing


def test_without_noise_it_is_the_method_inside():
    x = points(2, 4)
    sampled = (Shapley(exact=0, tol=0.3), ExpectedGradients(), Lime(samples=15, tol=10.0))
    for inside in (Gradient(), GradientTimesInput(), IntegratedGradients(), Shapley(), Lime(), *sampled):
        plain, smooth = inside(kinked, x), SmoothGrad(inside, sigma=0)(kinked, x)
        torch.testing.assert_close(smooth.values, plain.values)
        assert float(smooth.extras["standard_error"].abs().max()) < 1e-12


def test_the_error_of_the_method_inside_is_added():
    x = points(1, 4)
    rough = IntegratedGradients(steps=3)
    with pytest.warns(ConvergenceWarning):
        inside = rough(kinked, x).certificate.only.error
    with pytest.warns(ConvergenceWarning, match="method inside"):
        result = SmoothGrad(rough, sigma=0, tol=0.01)(kinked, x)
    assert result.certificate.only.error == pytest.approx(inside, abs=0.04)  # and what 32 samples may not have shown
    assert result.certificate.only.error > inside
    assert result.certificate.only.gradients < 1000  # more samples would not have helped


def test_each_row_keeps_its_target_and_arguments():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    x, gain = points(3, 4), torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)

    def scaled(x, gain, offset):
        return model(x) * gain + offset

    offset = torch.arange(3, dtype=torch.float64)[None].expand(1, 3)  # the same for all rows
    result = SmoothGrad()(scaled, x, target=[2, 0, 1], args=(gain,), kwargs={"offset": offset})
    torch.testing.assert_close(result.values, model.weight.detach()[[2, 0, 1]] * gain)
    top = SmoothGrad(sigma=5.0)(model, x)  # the target is that of x, wherever noise goes
    torch.testing.assert_close(top.values, model.weight.detach()[model(x).argmax(1)])


def test_noise_follows_the_range_of_each_tensor():
    wide, narrow = points(1, 50) * 10, points(1, 50, seed=1) * 0.1
    seen = []

    def f(a, b):
        seen.append((a.detach().clone(), b.detach().clone()))
        return (a**2).sum(1) + (b**2).sum(1)

    result = SmoothGrad(sigma=0.2, samples=64, tol=1.0)(f, (wide, narrow))
    assert "symmetry" in result.certificate.broken
    assert "symmetry" not in SmoothGrad()(lambda a: (a**2).sum(1), wide).certificate.broken
    for i, x in enumerate((wide, narrow)):
        moved = torch.cat([rows[i] for rows in seen]) - x
        moved = moved[moved.abs().sum(1) > 0]
        moved = moved[(moved + x).abs().sum(1) > 0]  # and not the baseline
        assert float(moved.std()) == pytest.approx(0.2 * float(x.max() - x.min()), rel=0.05)


def test_neither_chunk_nor_batch_matters():
    x = points(4, 4)
    method = SmoothGrad(sigma=0.4, tol=0.1)
    whole = method(kinked, x)
    torch.testing.assert_close(method(kinked, x, chunk=3).values, whole.values, rtol=1e-12, atol=1e-12)
    for i in range(4):
        alone = method(kinked, x[i : i + 1])
        torch.testing.assert_close(alone.values[0], whole.values[i], rtol=1e-12, atol=1e-12)
        assert alone.certificate.only.gradients == whole.certificate[i].gradients
    assert len({one.gradients for one in whole.certificate}) > 1  # some took more than others


def test_groups_structures_layers_and_single_examples():
    x = points(2, 4)
    method = SmoothGrad(sigma=0.4, tol=0.2)
    whole = method(kinked, x)
    labels = torch.tensor([0, 1, 1, -1])
    grouped = SmoothGrad(sigma=0.4, samples=64, tol=10.0)(kinked, x, groups=labels)
    alone = SmoothGrad(sigma=0.4, samples=64, tol=10.0)(kinked, x)
    torch.testing.assert_close(grouped.values, alone.sum(groups=labels))
    single = method(lambda x: kinked(x[None])[0], x[0])
    torch.testing.assert_close(single.values, whole.values[0])
    named = method(lambda x: kinked(x), {"x": x})
    torch.testing.assert_close(named.values["x"], whole.values)
    players = SmoothGrad(Shapley(), sigma=0.1, tol=0.2)(kinked, x, groups=labels)
    assert players.values.shape == (2, 2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    layered = method(model, x, layer="0", target=1)
    direct = method(model[1:], model[0](x).detach(), target=1)
    torch.testing.assert_close(layered.values, direct.values)


def test_float32_has_the_same_noise():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    x = points(2, 6).float()
    small = SmoothGrad()(model, x)
    large = SmoothGrad()(model.double(), x.double())
    assert small.values.dtype == torch.float32
    torch.testing.assert_close(small.values.double(), large.values, rtol=1e-4, atol=1e-5)


def test_promises_are_those_of_the_method_inside_less_two():
    names = [promise.axiom for promise in SmoothGrad(IntegratedGradients()).promises if not promise.kept]
    assert names == ["completeness", "sensitivity-a"]
    lime = [promise.axiom for promise in SmoothGrad(Lime()).promises if not promise.kept]
    assert lime == ["completeness", "sensitivity-a", "sensitivity-b", "symmetry"]
    result = SmoothGrad(GradientTimesInput())(kinked, points(1, 4))
    assert result.meta["method"] == "smoothgrad(gradient x input)"


def test_flat_scores_get_zero():
    result = SmoothGrad()(lambda x: 0 * x.sum(1), points(1, 4))
    assert not result.values.any()
    assert result.certificate.only.error == 0


def test_refuses_what_makes_no_sense():
    for options in ({"sigma": -0.1}, {"sigma": math.inf}, {"samples": 3}, {"method": Gradient}, {"tol": True}):
        with pytest.raises(OptionError, match=r"got .*expected"):
            SmoothGrad(**options)
    with pytest.raises(NonFiniteError, match="Lower sigma"):
        SmoothGrad(sigma=10)(lambda x: x.log().sum(1), points(1, 4) + 0.1, 1.0)


def test_is_a_frozen_value_that_leaves_torch_alone():
    method = SmoothGrad(GradientTimesInput(), tol=0.5)
    assert pickle.loads(pickle.dumps(method)) == method
    state = torch.get_rng_state()
    method(kinked, points(1, 4))
    assert torch.equal(torch.get_rng_state(), state)
