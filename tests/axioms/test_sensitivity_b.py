"""What counts as a dummy on a user's model: nothing is refuted on a guess."""

import math

import pytest
import torch
from torch import nn

from integrand.axioms import check, network
from integrand.axioms.checking import CheckLimits, OwnModelQuestion, own_examples
from integrand.axioms.evidence import ExplainedCase
from integrand.axioms.sensitivity_b import dummies, dummy_finding
from integrand.errors import InputError
from integrand.methods import Gradient, IntegratedGradients, Shapley

from .test_own_model import IG, Shares


def faint(v):
    """A small fast wave on a large constant."""
    return 1000 + 0.05 * torch.sin(100 * v[:, 0]) + v[:, 1]


def small(dtype):
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return net.to(dtype), torch.randn(2, 4, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_features_that_matter_are_no_dummies_in_half_precision(dtype):
    net, x = small(dtype)
    for method in (IntegratedGradients(), Gradient()):
        assert check(method, "sensitivity-b", net, x, target=1).word == "nothing to try"
        moved = check(method, "sensitivity-a", net, x, target=1)
        assert moved.kept
        assert moved.tried > moved.undecided


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_column_without_weights_is_a_dummy_in_every_precision(dtype):
    net, x = small(dtype)
    with torch.no_grad():
        net[0].weight[:, 2] = 0
    kept = check(IntegratedGradients(), "sensitivity-b", net, x, target=1)
    assert kept.kept
    assert kept.note == "taken for dummies, as far as 16 probes show: x[2]"
    assert kept.tried == 2
    if dtype == torch.bfloat16:  # an equal share is within what rounding explains
        return
    broken = check(Shares(), "sensitivity-b", net, x, target=1)
    assert broken.kept is False
    assert "does not depend on x[2]" in broken.counterexample.statement


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_feature_whose_effect_is_small_next_to_the_score_is_no_dummy(dtype):
    x = torch.tensor([[1.0, 2.0]], dtype=dtype)
    for method in (Gradient(), IG):
        verdict = check(method, "sensitivity-b", faint, x)
        assert verdict.kept is None
        assert not verdict.refuted


def test_rounding_that_hides_a_feature_from_every_probe_does_not_refute():
    # In float32, 2**20 swallows a hundredth: no score moves, and without a gradient nothing else tells.
    def hidden(v):
        return (2.0**20 + 0.01 * v[:, 0] + v[:, 1]).detach()

    x = torch.tensor([[1.0, 1.0]])
    ask = OwnModelQuestion(hidden, x, None, None, "logit", (), {}, None, None, None)
    (own,) = own_examples(ask, CheckLimits(None, None, 1, 4, 16, 0))
    ((dummy,), how) = dummies(own)
    assert (dummy.part, how) == (0, ", as far as 16 probes show")
    assert 0.01 < dummy.missed < 1
    assert check(Shares(), "sensitivity-b", hidden, x).kept is not False


def test_what_the_probes_may_have_missed_is_undecided_and_not_broken():
    one = ExplainedCase(torch.tensor([0.5, 1.0]).double(), 0.1, 1.5, 2.0, 0.0)
    where = torch.tensor([0])
    sure, unsure, beyond = (dummy_finding(one, where, "", "f", missed) for missed in (0.0, 0.5, 0.2))
    assert sure.broken
    assert math.isnan(unsure.allowed)
    assert not unsure.broken
    assert beyond.broken
    assert beyond.allowed == pytest.approx(0.3)
    assert not dummy_finding(one, where, "", "f", math.inf).decided


def test_a_named_dummy_is_looked_at():
    with pytest.raises(InputError, match=r"got dummy=\[0\], and moving x\[0\] moves the score by .*expected features that"):
        check(Gradient(), "sensitivity-b", faint, torch.tensor([[1.0, 2.0]]), dummy=[0])
    named = check(Gradient(), "sensitivity-b", lambda v: v[:, 0] ** 2, torch.tensor([[1.0, 2.0]]), dummy=[1])
    assert named.kept
    assert named.note == "taken for dummies, as you say: x[1]"


def test_a_dummy_of_rounding_alone_may_be_named():
    # x2 and x3 go through f - g of two networks that compute the same, in float32.
    def model(v):
        a, b, c = v.unbind(1)
        return a + (a * 3 + (b.relu() - 1 - c.relu()).relu() - ((b - 1).relu() - c.relu()).relu()) / 7

    assert check(IG, "sensitivity-b", model, torch.tensor([[0.7, 2.3, 0.4]]), dummy=[1, 2]).kept


def test_probes_move_where_the_input_is_the_baseline():
    ones = torch.ones(1, 3)
    verdict = check(IntegratedGradients(), "sensitivity-b", network("x1 + x2*x3"), ones, ones)
    assert verdict.word == "nothing to try"
    dummy = check(IntegratedGradients(), "sensitivity-b", network("x1*x3", inputs=3), ones, ones)
    assert dummy.note == "taken for dummies, as far as 16 probes show: x[1]"
    nothing = check(Gradient(), "sensitivity-b", lambda v: v[:, 0] * 2, torch.zeros(1, 2), torch.zeros(1, 2))
    assert nothing.note.endswith(": x[1]")


def test_scores_without_a_gradient_have_to_do():
    verdict = check(Shapley(), "sensitivity-b", lambda v: (v[:, 0].sign() + v[:, 1]).detach(), torch.ones(1, 3))
    assert verdict.kept
    assert verdict.note.endswith(": x[2]")
