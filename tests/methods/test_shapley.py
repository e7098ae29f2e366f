"""Shapley values against brute force, closed forms and other implementations; what sampling claims against what is true."""

from __future__ import annotations

import math
import pickle
import warnings
from itertools import permutations

import captum.attr
import numpy as np
import pytest
import torch
from torch import nn

from integrand.certificate import Status
from integrand.errors import ConvergenceWarning, InputError, NonFiniteError, OptionError, ZeroAttributionWarning
from integrand.methods import Shapley


def network(features, seed=0):
    """A smooth function with interactions of every order, in float64."""
    g = torch.Generator().manual_seed(seed)
    inner = 2 * torch.randn(features, 12, generator=g, dtype=torch.float64) / math.sqrt(features)
    outer = torch.randn(12, generator=g, dtype=torch.float64)
    return lambda x: torch.tanh(x.flatten(1) @ inner) @ outer


def points(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_orderings(f, x, baseline):
    """The definition, one ordering at a time."""
    total = torch.zeros_like(x)
    orders = list(permutations(range(x.shape[1])))
    for order in orders:
        here = baseline.clone()
        before = f(here)
        for player in order:
            here[:, player] = x[:, player]
            after = f(here)
            total[:, player] += after - before
            before = after
    return total / len(orders)


def test_equals_the_mean_over_all_orderings():
    f, x, b = network(5), points(3, 5), points(3, 5, seed=1)
    result = Shapley()(f, x, b)
    torch.testing.assert_close(result.values, by_orderings(f, x, b))
    assert all(one.status is Status.EXACT and one.error < 1e-14 for one in result.certificate)
    assert all(abs(one.residual) < 1e-12 for one in result.certificate)
    assert not result.extras["standard_error"].any()


def test_several_baselines_average():
    f, x = network(4), points(2, 4)
    starts = [points(2, 4, seed=i) for i in (1, 2, 3)]
    expected = sum(by_orderings(f, x, b) for b in starts) / 3
    torch.testing.assert_close(Shapley()(f, x, starts).values, expected)
    sampled = Shapley(exact=0, tol=1e-9, orderings=512)
    with pytest.warns(ConvergenceWarning):
        result = sampled(f, x, starts)
    assert all(abs(one.residual) < 1e-12 for one in result.certificate)
    assert ((result.values - expected).abs() <= 5 * result.extras["standard_error"] + 1e-9).all()


@pytest.mark.parametrize("exact", [0, 12])
def test_closed_forms(exact):
    x = torch.tensor([[2.0, 3.0, 4.0, 5.0]], dtype=torch.float64)
    method = Shapley(exact=exact)
    additive = method(lambda x: (x**2).sum(1), x)
    torch.testing.assert_close(additive.values, x**2)
    # A product of two is shared in halves; an ordering and its reverse give just that, so one pair is exact.
    pairs = method(lambda x: x[:, 0] * x[:, 1] - 2 * x[:, 1] * x[:, 3], x)
    torch.testing.assert_close(pairs.values, torch.tensor([[3.0, 3.0 - 15.0, 0.0, -15.0]], dtype=torch.float64))
    assert float(pairs.extras["standard_error"].max()) < 1e-12


def test_a_product_is_shared_equally():
    x = points(2, 6).abs() + 0.5
    values = Shapley()(lambda x: x.prod(1), x).values
    torch.testing.assert_close(values, (x.prod(1) / 6)[:, None].expand_as(x))


def test_captum_agrees():
    f, x, b = network(6), points(2, 6), points(2, 6, seed=3)
    labels = torch.tensor([0, 0, 1, 2, 2, 3])
    peer = captum.attr.ShapleyValues(f).attribute(x, b, feature_mask=labels[None], perturbations_per_eval=4)
    values = Shapley()(f, x, b, groups=labels).values
    torch.testing.assert_close(values.float(), peer[:, [0, 2, 3, 5]])  # which captum rounds to float32


def test_shap_agrees(shap):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f, x, b = network(7), points(3, 7), points(1, 7, seed=2)

        def model(rows):
            return f(torch.as_tensor(rows)).numpy()

        peer = shap.ExactExplainer(model, shap.maskers.Independent(b.numpy()))(x.numpy()).values
    torch.testing.assert_close(Shapley()(f, x, b[0]).values, torch.as_tensor(peer), atol=1e-6, rtol=1e-6)


def test_the_standard_error_is_honest_and_falls_with_the_root():
    f, x = network(7), points(1, 7)
    exact = Shapley()(f, x).values
    spread = {}
    for orderings in (32, 128):
        scores, claims = [], []
        for seed in range(60):
            with pytest.warns(ConvergenceWarning):
                result = Shapley(exact=0, tol=1e-9, orderings=orderings, seed=seed)(f, x)
            error = result.extras["standard_error"]
            scores.append((result.values - exact) / error)
            claims.append(float(error.mean()))
            own = float((result.values - exact).abs().sum() / exact.abs().sum())
            scores[-1] = torch.cat([scores[-1].flatten(), torch.tensor([own / result.certificate.only.error])])
        z = torch.stack(scores)
        inside = float((z[:, :-1].abs() < 2).double().mean())
        assert 0.9 < inside < 0.99  # 95.4% of a normal distribution
        assert float(z[:, -1].mean()) < 1  # what the certificate says is at least what is expected
        spread[orderings] = float(np.mean(claims))
    assert spread[32] / spread[128] == pytest.approx(2, rel=0.1)


def test_stops_at_the_tolerance_and_keeps_it():
    f, x = network(8), points(2, 8)
    exact = Shapley()(f, x).values
    off = []
    for seed in range(20):
        result = Shapley(exact=0, tol=0.1, seed=seed)(f, x)
        assert all(one.status is Status.CONVERGED and one.error <= 0.1 for one in result.certificate)
        assert all(abs(one.residual) < 1e-12 for one in result.certificate)
        off.append((result.values - exact).abs().sum(1) / exact.abs().sum(1))
    assert float(torch.stack(off).mean()) < 0.1


def test_neither_chunk_nor_batch_matters():
    f, x, b = network(14), points(4, 14), points(4, 14, seed=1)
    method = Shapley(tol=0.2)
    whole = method(f, x, b)
    torch.testing.assert_close(method(f, x, b, chunk=7).values, whole.values, rtol=1e-12, atol=1e-12)
    for i in range(4):
        alone = method(f, x[i : i + 1], b[i : i + 1])
        torch.testing.assert_close(alone.values[0], whole.values[i], rtol=1e-12, atol=1e-12)
        assert alone.certificate.only.forwards == whole.certificate[i].forwards
    assert torch.equal(method(f, x, b).values, whole.values)
    assert not torch.equal(Shapley(tol=0.2, seed=1)(f, x, b).values, whole.values)


def test_spends_what_it_says():
    rows = 0

    def f(x):
        nonlocal rows
        rows += len(x)
        return network(14)(x)

    result = Shapley(tol=0.3)(f, points(2, 14))
    probes = rows - result.certificate.forwards
    assert 0 <= probes <= 2 * 2  # F(x) is looked at once more in its own batch


def test_features_labelled_minus_one_stay_at_the_input():
    f, x, b = network(5), points(2, 5), points(2, 5, seed=4)
    labels = torch.tensor([0, -1, 2, 2, -1])
    result = Shapley()(f, x, b, groups=labels)
    start = torch.where(labels < 0, x, b)
    second = start.clone()
    second[:, 0] = x[:, 0]
    first = start.clone()
    first[:, 2:4] = x[:, 2:4]
    own = (f(second) - f(start) + f(x) - f(first)) / 2
    expected = torch.stack([own, torch.zeros(2, dtype=torch.float64), f(x) - f(start) - own], 1)
    torch.testing.assert_close(result.values, expected)
    for i, one in enumerate(result.certificate):
        assert one.baseline_score == pytest.approx(float(f(start)[i]))
        assert abs(one.residual) < 1e-12
        assert "-1" in one.note
    torch.testing.assert_close(Shapley(exact=0)(f, x, b, groups=labels).values, expected)  # two players: pairs are exact


def test_structures_layers_and_single_examples():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 3)
            self.out = nn.Linear(3, 1)

        def forward(self, ids):
            return self.out(torch.tanh(self.embed(ids).prod(1)))[:, 0]

    torch.manual_seed(0)
    model, ids = Model().double(), torch.tensor([[1, 2], [3, 4]])
    layered = Shapley()(model, ids, layer="embed")
    value = model.embed(ids).detach()
    direct = Shapley()(lambda v: model.out(torch.tanh(v.prod(1)))[:, 0], value)
    torch.testing.assert_close(layered.values, direct.values)
    assert layered.values.shape == (2, 2, 3)

    f, x = network(5), points(2, 5)
    pair = Shapley()(lambda a, b: f(torch.cat([a, b], 1)), (x[:, :2], x[:, 2:]))
    torch.testing.assert_close(torch.cat(pair.values, 1), Shapley()(f, x).values)
    named = Shapley()(lambda a, b: f(torch.cat([a, b], 1)), {"b": x[:, 2:], "a": x[:, :2]})
    torch.testing.assert_close(named.values["a"], pair.values[0])
    single = Shapley()(lambda x: f(x[None])[0], x[0])
    torch.testing.assert_close(single.values, Shapley()(f, x).values[0])
    assert Shapley(exact=0, tol=0.5)(lambda x: f(x[None])[0], x[0]).extras["standard_error"].shape == (5,)


def test_float32_is_close_to_float64():
    f, x = network(14), points(1, 14)
    model = nn.Sequential(nn.Linear(14, 8), nn.Tanh(), nn.Linear(8, 1))
    small = Shapley(tol=0.3)(model, x.float())
    assert small.values.dtype == torch.float32
    large = Shapley(tol=0.3)(model.double(), x.float().double())
    torch.testing.assert_close(small.values.double(), large.values, rtol=1e-4, atol=1e-5)
    assert f(x).dtype == torch.float64


@pytest.mark.parametrize("exact", [0, 12])
def test_an_input_that_equals_its_baseline_gets_zero(exact):
    f, x = network(4), points(2, 4)
    b = x.clone()
    b[1] = 0
    with pytest.warns(ZeroAttributionWarning, match="the input equals the baseline"):
        result = Shapley(exact=exact, tol=0.5)(f, x, b)
    assert not result.values[0].any()
    assert result.certificate[0].error == 0
    assert result.certificate[0].converged
    assert result.values[1].any()


@pytest.mark.parametrize("exact", [0, 12])
def test_a_feature_that_equals_its_baseline_gets_zero_whatever_rounding_does(exact):
    """The place of a row in its batch may change the last digits of its score, and does on some machines."""

    def rounded(x):
        return x.sum(1) + 1e-15 * torch.arange(len(x), dtype=x.dtype)

    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    result = Shapley(exact=exact, tol=0.5)(rounded, x, torch.tensor([[0.0, 2.0, 0.0, 4.0]], dtype=torch.float64))
    assert result.values.tolist() == [[pytest.approx(1), 0, pytest.approx(3), 0]]
    with pytest.warns(ZeroAttributionWarning, match="the input equals the baseline"):
        none = Shapley(exact=exact, tol=0.5)(rounded, x, x)
    assert not none.values.any()
    assert none.certificate.only.error == 0
    assert none.certificate.only.converged


def test_says_when_the_tolerance_was_not_met():
    with pytest.warns(ConvergenceWarning, match="raise orderings"):
        result = Shapley(exact=0, tol=1e-6, orderings=20)(network(6), points(1, 6))
    assert result.certificate.only.status is Status.BUDGET
    assert result.certificate.only.error > 1e-6


def test_one_player():
    for exact in (0, 12):
        result = Shapley(exact=exact)(network(3), points(2, 3), groups=torch.zeros(3, dtype=torch.long))
        f, x = network(3), points(2, 3)
        torch.testing.assert_close(result.values[:, 0], f(x) - f(torch.zeros_like(x)))


def test_refuses_what_makes_no_sense():
    for options in ({"tol": 0}, {"tol": float("nan")}, {"orderings": 2}, {"orderings": 10.0}, {"exact": 30}, {"seed": -1}):
        with pytest.raises(OptionError, match=r"got .*expected"):
            Shapley(**options)
    with pytest.raises(InputError, match="groups"):
        Shapley()(network(3), points(1, 3), groups=torch.ones(3))
    with pytest.raises(NonFiniteError, match="some features"):
        Shapley()(lambda x: (x[:, 0] - x[:, 1]).log(), torch.tensor([[3.0, 2.5]]), torch.tensor([[2.0, 1.0]]))


def test_is_a_frozen_value_that_leaves_torch_alone():
    method = Shapley(exact=0, tol=0.3)
    assert pickle.loads(pickle.dumps(method)) == method
    state = torch.get_rng_state()
    result = method(network(5), points(1, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert result.meta["method"] == "shapley"
    assert result.certificate.broken == ()
