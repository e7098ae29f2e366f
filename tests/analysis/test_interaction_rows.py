"""Which rows: features, masks, groups, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from integrand.errors import InputError, OptionError
from integrand.interactions import integrated_hessians


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1)).double().eval()


X = torch.linspace(-1, 2, 24, dtype=torch.float64).reshape(2, 3, 4)


@pytest.fixture(scope="module")
def whole(net):
    return integrated_hessians(net, X, tol=1e-6)


def test_all_features_of_a_small_input(whole):
    assert whole.values.shape == (2, 12, 3, 4)
    assert whole.rows[5] == (1, 1)
    assert torch.allclose(whole.values.flatten(2).sum(2), whole.attributions, atol=1e-6)


def test_features_by_index(net, whole):
    some = integrated_hessians(net, X, features=[(2, 3), (0, 1)], tol=1e-6)
    assert some.values.shape == (2, 2, 3, 4)
    assert some.rows == ((2, 3), (0, 1))
    assert torch.allclose(some.values, whole.values[:, [11, 1]], atol=1e-7)
    assert torch.allclose(some.attributions, whole.attributions[:, [11, 1]], atol=1e-7)
    assert torch.allclose(some.matrix(), whole.matrix()[:, [11, 1]][:, :, [11, 1]], atol=1e-7)
    # two rows and the total, at each of 15 points
    assert all(one.products % 45 == 0 for one in some.certificate)


def test_features_by_mask(net, whole):
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1, 2] = mask[0, 0] = True
    some = integrated_hessians(net, X, features=mask, tol=1e-6)
    assert some.rows == ((0, 0), (1, 2))
    assert torch.allclose(some.values, whole.values[:, [0, 6]], atol=1e-7)
    assert integrated_hessians(net, X, features=torch.tensor([True, False, False, False])).rows == ((0, 0), (1, 0), (2, 0))


def test_features_of_flat_examples_are_ints():
    x = torch.tensor([[1.0, 2.0, 3.0]])
    f = lambda x: x.prod(1)  # noqa: E731
    for features in ([2, 0], (2, 0), torch.tensor([2, 0])):
        assert integrated_hessians(f, x, features=features).rows == (2, 0)


def test_groups_are_sums_of_features(net, whole):
    labels = torch.tensor([[0, 0, 1, 1], [2, 2, 1, 1], [2, 2, -1, -1]])
    groups = integrated_hessians(net, X, groups=labels, tol=1e-6)
    square = whole.matrix()
    flat = labels.flatten()
    for a in range(3):
        for b in range(3):
            exact = square[:, flat == a][:, :, flat == b].sum((1, 2))
            assert torch.allclose(groups.values[:, a, b], exact, atol=1e-6)
        assert torch.allclose(groups.outside[:, a], square[:, flat == a][:, :, flat == -1].sum((1, 2)), atol=1e-6)
    assert torch.allclose(groups.values.sum(2) + groups.outside, groups.attributions, atol=1e-6)
    assert groups.rows == (0, 1, 2)
    assert torch.equal(groups.matrix(), groups.values)


def test_too_many_features_to_take_all():
    with pytest.raises(OptionError, match=r"65 features .* expected at most 64.*features=.*groups="):
        integrated_hessians(lambda x: x.prod(1), torch.ones(1, 65))


X2 = torch.ones(1, 2, 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"features": [(0, 0)], "groups": torch.zeros(2, 2, dtype=torch.long)}, OptionError, "both features= and groups="),
        ({"features": []}, OptionError, "expected a list of indices"),
        ({"features": 3}, OptionError, "expected a list of indices"),
        ({"features": [0]}, OptionError, r"got feature 0; expected 2 whole number\(s\) within \(2, 2\)"),
        ({"features": [(0, 2)]}, OptionError, r"got feature \(0, 2\)"),
        ({"features": [(0, -1)]}, OptionError, r"got feature \(0, -1\)"),
        ({"features": [(0, 0.5)]}, OptionError, "whole number"),
        ({"features": [(0, 1), (0, 1)]}, OptionError, "one of them twice"),
        ({"features": torch.zeros(2, 2, dtype=torch.bool)}, InputError, "False everywhere"),
        ({"features": torch.zeros(3, dtype=torch.bool)}, InputError, r"features has shape \(3,\); expected \(2, 2\)"),
        ({"groups": torch.zeros(2, 2)}, InputError, "expected integers"),
        ({"groups": torch.zeros(3, dtype=torch.long)}, InputError, r"groups has shape \(3,\)"),
        ({"groups": torch.full((2, 2), -1)}, InputError, "labels no feature"),
        ({"tol": 0}, OptionError, "got tol=0"),
        ({"tol": True}, OptionError, "got tol=True"),
        ({"smooth": -1.0}, OptionError, "got smooth=-1.0"),
        ({"max_evaluations": 20}, OptionError, "expected at least 30"),
        ({"chunk": 0}, OptionError, "got chunk=0"),
        ({"memory": 1.5}, OptionError, "got memory=1.5"),
    ],
)
def test_what_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        integrated_hessians(lambda x: x.flatten(1).prod(1), X2, **options)


def test_features_of_several_tensors_name_the_tensor():
    pair = {"a": torch.ones(1, 2), "b": torch.ones(1)}
    f = lambda a, b: a.prod(1) * b  # noqa: E731
    with pytest.raises(OptionError, match=r"expected the tensor first, one of \['a', 'b'\]"):
        integrated_hessians(f, pair, features=[0])
    with pytest.raises(OptionError, match=r"within \(2,\), the shape of one example of x\['a'\]"):
        integrated_hessians(f, pair, features=[("a", 2)])
    assert integrated_hessians(f, pair, features=[("b",), ("a", 1)]).rows == (("b",), ("a", 1))
