"""The paper's results about methods and axioms, from its own examples and from the search."""

import pytest
import torch

from integrand.axioms import check, network
from integrand.methods import (
    LRP,
    Deconvnet,
    DeepLift,
    Gradient,
    GradientTimesInput,
    GuidedBackprop,
    IntegratedGradients,
    Lime,
    PathMethod,
    Shapley,
)
from integrand.paths import Polyline

from .searched import searched

F = network("relu(relu(x1) - 1 - relu(x2))")
G = network("relu(relu(x1 - 1) - relu(x2))")
AT = torch.tensor([[3.0, 1.0]], dtype=torch.float64)
ZERO = torch.zeros_like(AT)
IG = IntegratedGradients(tol=1e-4)

PATHS = [IG, PathMethod(tol=1e-4), Shapley()]
"""What section 2 and remark 2 say keeps all but symmetry: path methods, and mixtures of them such as Shapley-Shubik."""


@pytest.mark.parametrize("method", [Gradient(), GradientTimesInput(), Deconvnet(), GuidedBackprop()])
def test_gradients_break_sensitivity_a_where_the_score_has_levelled_off(method):
    verdict = check(method, "sensitivity-a", network("1 - relu(1 - x1)"), torch.tensor([[2.0]]))
    assert verdict.kept is False
    assert verdict.counterexample.gap == 1
    assert verdict.counterexample.attributions == (("the model", (0.0,)),)


@pytest.mark.parametrize("method", [*PATHS, DeepLift()])
def test_methods_that_look_at_more_than_the_slope_keep_it_there(method):
    assert check(method, "sensitivity-a", network("1 - relu(1 - x1)"), torch.tensor([[2.0]])).kept


@pytest.mark.parametrize("method", [Deconvnet(), GuidedBackprop()])
def test_deconvnet_and_guided_backprop_give_x2_nothing_anywhere(method):
    points = torch.cartesian_prod(torch.linspace(-2, 5, 8), torch.linspace(-2, 5, 8)).double() + 0.01
    assert not method(F, points).values[:, 1].any()
    verdict = check(method, "sensitivity-a", F, AT, torch.tensor([[3.0, 0.0]]).double())
    assert verdict.kept is False
    assert "x[1]" in verdict.counterexample.statement
    assert verdict.counterexample.gap == 1  # F(3, 1) - F(3, 0) = 1 - 2


@pytest.mark.parametrize("method", [DeepLift(), LRP()])
def test_deeplift_and_lrp_tell_two_implementations_of_one_function_apart(method):
    assert method(F, AT, ZERO).values[0].tolist() == pytest.approx([1.5, -0.5])
    assert method(G, AT, ZERO).values[0].tolist() == pytest.approx([2, -1])
    verdict = check(method, "implementation-invariance", F, AT, equivalent=G)
    assert verdict.kept is False
    assert verdict.counterexample.gap == pytest.approx(1)  # |1.5 - 2| + |-0.5 + 1|


def test_integrated_gradients_do_not():
    assert IG(F, AT, ZERO).values[0].tolist() == pytest.approx([1.5, -0.5], abs=1e-3)
    assert IG(G, AT, ZERO).values[0].tolist() == pytest.approx([1.5, -0.5], abs=1e-3)
    assert check(IG, "implementation-invariance", F, AT, equivalent=G).kept


@pytest.mark.parametrize("method", [Deconvnet(), GuidedBackprop(), DeepLift(), LRP()])
def test_the_search_finds_that_they_break_implementation_invariance(method):
    verdict = searched(method, "implementation-invariance")
    assert verdict.kept is False
    f, g = (network(net) for _, net in verdict.counterexample.networks)
    x, start = (torch.tensor([v]).double() for v in (verdict.counterexample.x, verdict.counterexample.baseline))
    points = torch.randn(500, x.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    torch.testing.assert_close(f(points), g(points))
    a, b = method(f, x, start).values, method(g, x, start).values
    assert float((a - b).abs().sum()) == pytest.approx(verdict.counterexample.gap)


@pytest.mark.parametrize("method", [Gradient(), GradientTimesInput(), Deconvnet(), GuidedBackprop()])
def test_the_search_finds_that_gradients_break_sensitivity_a(method):
    verdict = searched(method, "sensitivity-a")
    assert verdict.kept is False
    ((_, net),) = verdict.counterexample.networks
    x, start = (torch.tensor([v]).double() for v in (verdict.counterexample.x, verdict.counterexample.baseline))
    assert int((x != start).sum()) == 1
    change = float(network(net)(x) - network(net)(start))
    assert abs(change) == pytest.approx(verdict.counterexample.gap)
    assert float(method(network(net), x, start).values[x != start].abs().sum()) == 0


@pytest.mark.parametrize("axiom", ["completeness", "sensitivity-a", "sensitivity-b", "implementation-invariance", "linearity"])
@pytest.mark.parametrize("method", PATHS, ids=lambda method: method.name)
def test_the_search_finds_nothing_against_path_methods(method, axiom):
    verdict = check(method, axiom, max_examples=15)
    assert verdict.kept
    assert 8 <= verdict.tried <= 15


def test_of_path_methods_the_straight_line_alone_keeps_symmetry():
    assert check(IG, "symmetry", max_examples=20).kept
    verdict = check(PathMethod(tol=1e-4), "symmetry", max_examples=20)
    assert verdict.kept is False
    assert verdict.promise is not None
    assert not verdict.refuted  # it never said so


@pytest.mark.parametrize("method", [Deconvnet(), GuidedBackprop(), DeepLift(rule="reveal-cancel")])
def test_what_sees_implementations_gives_shares_to_what_does_nothing(method):
    # Of f - g for one function written twice: linear methods that are not implementation invariant cannot be zero on it.
    verdict = searched(method, "sensitivity-b")
    assert verdict.kept is False
    ((_, net),) = verdict.counterexample.networks
    points = torch.randn(300, net.inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3
    moved = points.clone()
    moved[:, 0] += 1.7
    torch.testing.assert_close(network(net)(points), network(net)(moved))


def test_deeplift_on_the_papers_pair_subtracted():
    zero = network("relu(relu(x1) - 1 - relu(x2)) - relu(relu(x1 - 1) - relu(x2))")
    verdict = check(DeepLift(), "sensitivity-b", zero, AT)
    assert verdict.kept is False
    assert verdict.tried == 2  # both inputs, as far as the probes show
    assert dict(verdict.counterexample.attributions)["the model"] == pytest.approx((-0.5, 0.5))  # (1.5, -0.5) - (2, -1)
    assert check(IG, "sensitivity-b", zero, AT).kept


def above_the_diagonal(baseline, x):
    """From (0, 0) to (1, 1) by way of (a, a) and (b, b), in between above the diagonal."""
    low, high = x * 0.25, x * 0.75
    middle = torch.cat([low[:, :1] * 0.75 + high[:, :1] * 0.25, low[:, 1:] * 0.25 + high[:, 1:] * 0.75], 1)
    return Polyline([baseline, low, middle, high, x])


def proof(x):
    """The function of the proof of theorem 1, with a = 1/4 and b = 3/4."""
    a, b = 0.25, 0.75
    inside = (x[:, 0] - a) * (x[:, 1] - a)
    full = torch.full_like(inside, (b - a) ** 2) + 0 * inside
    out = torch.where(x.max(1).values >= b, full, inside)
    return torch.where(x.min(1).values <= a, 0 * inside, out)


def test_the_construction_of_theorem_1_tells_a_path_above_the_diagonal_from_the_line():
    x = torch.ones(1, 2, dtype=torch.float64)
    path = PathMethod(above_the_diagonal, tol=1e-4)
    # x1 gets the area under the path, as a share of (b - a)^2: 3/32 below the middle and 21/32 above it.
    assert path(proof, x).values[0].tolist() == pytest.approx([0.25 * 0.75, 0.25 * 0.25], abs=1e-3)
    assert IG(proof, x).values[0].tolist() == pytest.approx([0.125, 0.125], abs=1e-3)
    assert check(path, "symmetry", proof, x, moves=1).kept is False
    assert check(path, "completeness", proof, x).kept
    assert check(IG, "symmetry", proof, x, moves=1).kept


def test_shapley_shubik_shares_a_minimum_where_the_line_does_not():
    f, x = network("min(x1, x2)"), torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    assert Shapley()(f, x).values[0].tolist() == pytest.approx([0.5, 0.5])
    assert IG(f, x).values[0].tolist() == pytest.approx([1.0, 0.0], abs=1e-4)


def test_lime_is_not_guaranteed_sensitivity_a():
    # Its kernel may be so narrow that inputs with a feature off count for nothing.
    narrow = Lime(width=0.01)
    assert check(narrow, "sensitivity-a", network("x1 + x2"), torch.tensor([[1.0, 1.0]]).double()).kept is False
    assert check(narrow, "sensitivity-a", max_examples=20).kept is False
