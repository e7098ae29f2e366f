"""Expected gradients against closed forms, integrated gradients and shap; what it claims against what is true."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from integrand.certificate import Status
from integrand.errors import ConvergenceWarning, OptionError, ZeroAttributionWarning
from integrand.methods import ExpectedGradients, IntegratedGradients


def network(features, seed=0):
    g = torch.Generator().manual_seed(seed)
    inner = 2 * torch.randn(features, 12, generator=g, dtype=torch.float64) / math.sqrt(features)
    outer = torch.randn(12, generator=g, dtype=torch.float64)
    return lambda x: torch.tanh(x.flatten(1) @ inner) @ outer


def points(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_linear_score_with_one_baseline_is_exact():
    x, b, w = points(2, 4), points(2, 4, seed=1), points(4, seed=2)
    result = ExpectedGradients()(lambda x: x @ w, x, b)
    torch.testing.assert_close(result.values, w * (x - b))
    assert float(result.extras["standard_error"].max()) < 1e-12
    assert all(one.converged for one in result.certificate)


def test_a_quadratic_score_is_within_its_error():
    # Gradient times velocity at t is 2 (b + t d) d, whose mean over t is x**2 - b**2.
    x, starts = points(3, 5), points(6, 5, seed=1)
    result = ExpectedGradients(tol=0.02, samples=100_000)(lambda x: (x**2).sum(1), x, list(starts))
    exact = x**2 - (starts**2).mean(0)
    assert ((result.values - exact).abs() < 5 * result.extras["standard_error"]).all()
    assert ((result.values - exact).abs().sum(1) / exact.abs().sum(1) < 0.04).all()
    assert all(one.status is Status.CONVERGED for one in result.certificate)


def test_standard_errors_are_honest_and_fall_with_the_root():
    f, x = network(6), points(1, 6)
    starts = list(points(10, 6, seed=1))
    exact = IntegratedGradients(tol=1e-6)(f, x, starts).values
    spread = {}
    for samples in (16 * 8, 64 * 8):
        scores, ratios, claims = [], [], []
        for seed in range(60):
            with pytest.warns(ConvergenceWarning, match="raise samples"):
                result = ExpectedGradients(tol=1e-9, samples=samples, seed=seed)(f, x, starts)
            off = result.values - exact
            scores.append(off / result.extras["standard_error"])
            ratios.append(float(off.abs().sum() / exact.abs().sum()) / result.certificate.only.error)
            claims.append(float(result.extras["standard_error"].mean()))
        inside = float((torch.stack(scores).abs() < 2).double().mean())
        assert 0.9 < inside < 0.99
        assert np.mean(ratios) < 1
        spread[samples] = float(np.mean(claims))
    assert spread[128] / spread[512] == pytest.approx(2, rel=0.1)


def test_shap_agrees(shap):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
        x, starts = points(2, 5).float(), points(20, 5, seed=1).float()
        peer = shap.GradientExplainer(model, starts, local_smoothing=0)
        runs = np.stack([peer.shap_values(x, nsamples=400, rseed=seed).reshape(2, 5) for seed in range(8)])
    own = ExpectedGradients(tol=0.02, samples=100_000)(model, x, list(starts))
    scatter = torch.as_tensor(runs.std(0, ddof=1) / math.sqrt(len(runs)))
    both = (scatter**2 + own.extras["standard_error"].double() ** 2).sqrt()
    assert ((torch.as_tensor(runs.mean(0)) - own.values.double()).abs() < 5 * both).all()
    assert float(both.sum() / own.values.abs().sum()) < 0.1  # or the line above says nothing


def test_says_when_the_sum_misses_what_no_gradient_sees():
    def jumps(x):
        return (x[:, 0] > 0.5).double() * 3 + x[:, 1]

    with pytest.warns(ConvergenceWarning):
        result = ExpectedGradients(samples=800)(jumps, torch.ones(1, 2, dtype=torch.float64))
    one = result.certificate.only
    assert one.residual == pytest.approx(-3)
    assert one.error >= 3
    assert "jumps" in one.note
    smooth = ExpectedGradients()(lambda x: x.prod(1), torch.ones(1, 2, dtype=torch.float64))
    assert smooth.certificate.only.note == ""


def test_neither_chunk_nor_batch_matters():
    f, x, starts = network(6), points(4, 6), [points(4, 6, seed=i) for i in range(1, 5)]
    method = ExpectedGradients(tol=0.05)
    whole = method(f, x, starts)
    torch.testing.assert_close(method(f, x, starts, chunk=5).values, whole.values, rtol=1e-10, atol=1e-12)
    for i in range(4):
        alone = method(f, x[i : i + 1], [start[i : i + 1] for start in starts])
        torch.testing.assert_close(alone.values[0], whole.values[i], rtol=1e-10, atol=1e-12)
        assert alone.certificate.only.gradients == whole.certificate[i].gradients
    assert len({one.gradients for one in whole.certificate}) > 1  # some took more than others


def test_groups_have_the_error_of_their_sum():
    f, x, starts = network(6), points(2, 6), list(points(5, 6, seed=1))
    labels = torch.tensor([0, 0, 1, 1, 1, -1])
    method = ExpectedGradients(tol=1.0, samples=400)
    alone, grouped = method(f, x, starts), method(f, x, starts, groups=labels)
    torch.testing.assert_close(grouped.values, alone.sum(groups=labels))
    # Together, since errors of features in a group may cancel, the group has at most the sum of theirs.
    most = torch.stack([alone.extras["standard_error"][:, labels == g].sum(1) for g in (0, 1)], 1)
    assert (grouped.extras["standard_error"] <= most + 1e-12).all()
    assert grouped.extras["standard_error"].shape == (2, 2)


def test_structures_layers_and_single_examples():
    f, x, starts = network(5), points(2, 5), list(points(3, 5, seed=1))
    method = ExpectedGradients(tol=0.1)
    whole = method(f, x, starts)
    pair = method(lambda a, b: f(torch.cat([a, b], 1)), (x[:, :2], x[:, 2:]), [(s[:2], s[2:]) for s in starts])
    torch.testing.assert_close(torch.cat(pair.values, 1), whole.values)
    single = method(lambda x: f(x[None])[0], x[0], starts)
    torch.testing.assert_close(single.values, whole.values[0])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    layered = method(model, x, layer="0", target=2)
    direct = method(model[1:], model[0](x).detach(), target=2)
    torch.testing.assert_close(layered.values, direct.values)


def test_an_input_that_equals_its_baseline_gets_zero():
    with pytest.warns(ZeroAttributionWarning, match="the input equals the baseline"):
        result = ExpectedGradients()(network(4), torch.zeros(1, 4, dtype=torch.float64))
    assert not result.values.any()
    assert result.certificate.only.error == 0
    assert result.certificate.only.converged


def test_float32_sums_in_float64():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    x, starts = points(2, 6).float(), points(4, 6, seed=1).float()
    small = ExpectedGradients()(model, x, list(starts))
    large = ExpectedGradients()(model.double(), x.double(), list(starts.double()))
    assert small.values.dtype == torch.float32
    torch.testing.assert_close(small.values.double(), large.values, rtol=1e-4, atol=1e-5)


def test_refuses_what_makes_no_sense():
    for options in ({"tol": -1.0}, {"samples": 8}, {"seed": 1.5}):
        with pytest.raises(OptionError, match=r"got .*expected"):
            ExpectedGradients(**options)


def test_is_a_frozen_value_that_leaves_torch_alone():
    method = ExpectedGradients(tol=0.5)
    assert pickle.loads(pickle.dumps(method)) == method
    state = torch.get_rng_state()
    result = method(network(5), points(1, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert result.certificate.broken == ()


def small(k):
    """Networks of 2 to 100 features with 4 or 32 units, two inputs and 1, 5 or 12 baselines."""
    torch.manual_seed(k)
    features, activation, width = (2, 6, 20, 100)[k % 4], (nn.ReLU, nn.Tanh, nn.GELU)[k % 3], (4, 32)[k % 2]
    layers = [nn.Linear(features, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, 2)]
    net = nn.Sequential(*layers).double().requires_grad_(False)
    for parameter in net.parameters():
        parameter *= 2
    starts = [torch.randn(2, features).double() for _ in range((1, 5, 12)[k % 3])]
    return net.eval(), torch.randn(2, features).double(), starts


@pytest.mark.filterwarnings("ignore::integrand.errors.ConvergenceWarning")
def test_claims_hold_for_nearly_all_seeds():
    """Of 479 claims 25 were beyond their tolerance, by up to 1.7 times: standard errors do not know what is wrong together."""
    ratios, within = [], []
    for k in range(24):
        net, x, starts = small(k)
        exact = IntegratedGradients(tol=1e-4)(net, x, starts, target=0).values
        for seed in range(3):
            result = ExpectedGradients(tol=0.1, samples=16000, seed=seed)(net, x, starts, target=0)
            off = (result.values - exact).abs().sum(1) / exact.abs().sum(1)
            ratios += [float(part / one.error) for part, one in zip(off, result.certificate, strict=True) if one.converged]
            within += [float(part) <= 0.1 for part, one in zip(off, result.certificate, strict=True) if one.converged]
    assert len(ratios) >= 130
    assert np.mean(within) >= 0.97
    assert np.mean(np.array(ratios) <= 1) >= 0.95
    assert max(ratios) < 2
    assert np.median(ratios) > 0.2  # it is no blanket claim
