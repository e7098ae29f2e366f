"""What is refused, and with which words; degenerate lines; parts of a line; and everything a call can be made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from integrand.backends.torch_function import build
from integrand.certificate import Status
from integrand.integration.linear_regions import integrate_exactly
from integrand.integration.region_lines import GRID, PathLine, RegionLimits, follow_lines, thinned
from integrand.integration.region_network import network
from integrand.paths import Curve
from tests.honesty.networks import digits, trained

from .common import D, Exact, Refusal, drawn, evaluator_of, exactly, off, reason, reference, values

X, BASE = drawn(1, 4), drawn(1, 4, seed=2)
W = drawn(4, 8, seed=3)


def relu_net(x: Tensor) -> Tensor:
    return ((x @ W).relu() @ drawn(8, 6, seed=4)).relu() @ drawn(6, seed=5)


# ---- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda x: nn.functional.gelu(x @ W).sum(1), "'gelu' is not piecewise linear"),
        (lambda x: (x @ W).sigmoid().sum(1), "'sigmoid' is not piecewise linear"),
        (lambda x: (x @ W).relu().prod(1), "'prod' is not piecewise linear"),
        (lambda x: (x[:, :2] * x[:, 2:]).sum(1), "'mul' is not piecewise linear"),
        (lambda x: (x @ W).sort(1).values[:, 0], "'sort' is not piecewise linear"),
        (lambda x: nn.functional.hardswish(x @ W).sum(1), "'hardswish' is not piecewise linear"),
        (lambda x: (x @ W).relu().sum(1) if x.sum() > 0 else x.sum(1), "cannot be followed one by one"),
        (lambda x: (x @ W).relu().sum(1) + (x[:, 0] > 0).float(), "'_to_copy' is not piecewise linear"),
        (lambda x: x.sum(1) + torch.where(x[:, 0] > 0, 1.0, 0.0), "it jumps"),
        (lambda x: (x @ W).relu().sum(1) + (x @ W).detach().sum(1), "its gradient is not its derivative"),
    ],
)
def test_refusals(model: Any, words: str) -> None:
    assert words in reason(model, X, -X)


def test_recurrent_networks_are_refused() -> None:
    assert "'sigmoid' is not piecewise linear" in reason(trained("lstm", D), digits()[0][:1].double())


def test_smooth_networks_are_refused_for_their_probabilities_too() -> None:
    assert "'gelu' is not piecewise linear" in reason(trained("gelu", D), digits()[0][:1].double(), score="probability")


def test_half_precision_is_refused() -> None:
    assert "float16 are too coarse" in reason(lambda x: x.relu().sum(1), X.half())


def test_curves_are_refused() -> None:
    pieces = Curve(lambda t: BASE + t * t * (X - BASE)).pieces(batched=True)
    assert "not made of straight lines" in reason(relu_net, X, BASE, pieces=list(pieces))


class Straight(torch.autograd.Function):
    """Rounds, and hands gradients back as if it did not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.abs()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        return given[0]


def test_a_backward_pass_that_is_not_the_derivative_is_refused() -> None:
    assert "its gradient is not its derivative" in reason(lambda x: Straight.apply(x).sum(1), X, -X)


def test_a_model_that_hides_numbers_from_the_tracer_is_refused() -> None:
    def model(x: Tensor) -> Tensor:
        size = torch.tensor(x.detach().numpy().max(1)) if type(x) is Tensor else x.detach().amax(1)
        return (x @ W).relu().sum(1) * (1 + (size > 0.5).double())

    found = exactly(model, X, BASE)[0]
    assert isinstance(found, Refusal)


def test_the_budget() -> None:
    (whole,) = exactly(relu_net, X, BASE)
    assert isinstance(whole, Exact)
    assert whole.regions > 3
    assert isinstance(exactly(relu_net, X, BASE, budget=whole.regions)[0], Exact)
    assert reason(relu_net, X, BASE, budget=whole.regions - 1) == (
        f"the line crosses more than {whole.regions - 1} linear regions"
    )


# ---- degenerate lines -------------------------------------------------------------------------------------------------


def test_an_input_that_equals_its_baseline_gets_zero() -> None:
    (found,) = exactly(relu_net, X, X)
    assert isinstance(found, Exact)
    assert not found.values.any()
    assert (found.regions, found.certificate.error, found.certificate.status) == (1, 0.0, Status.EXACT)


def test_dead_units_break_nothing() -> None:
    (found,) = exactly(lambda x: (x - 100).relu().sum(1) + x.sum(1), X, BASE)
    assert isinstance(found, Exact)
    assert found.regions == 1
    assert torch.allclose(found.values, (X - BASE)[0], rtol=1e-14)


def test_units_that_are_zero_on_part_of_the_line() -> None:
    """relu(relu(x) - 0) is at its kink for x < 0; so is every unit of a second layer without a bias."""
    found = values(
        lambda x: (x.relu() * 2).relu().sum(1) - x.relu().abs().sum(1), torch.tensor([[1.0, 3.0]], dtype=D), -X[:, :2].abs()
    )
    assert torch.allclose(found, torch.tensor([[1.0, 3.0]], dtype=D), rtol=1e-14)


def test_two_units_of_separate_operations_with_one_kink() -> None:
    """Where one kink hides the other in the score, the features still change."""
    found = values(lambda x: x[:, 0].relu() - x[:, 1].relu(), torch.ones(1, 2, dtype=D), -torch.ones(1, 2, dtype=D))
    assert found.tolist() == [[1.0, -1.0]]


def test_ties_in_a_pool() -> None:
    """Equal pixels all the way: torch takes one of them, and all of the change goes there."""
    found = values(lambda x: nn.functional.max_pool2d(x, 2).sum((1, 2, 3)), torch.ones(1, 1, 4, 4, dtype=D))
    assert found.sum().item() == 4
    assert ((found == 0) | (found == 1)).all()


def test_a_kink_at_either_end() -> None:
    x = torch.tensor([[1.0, -1.0]], dtype=D)
    assert values(lambda x: x.relu().sum(1) + (x - 1).relu().sum(1), x).tolist() == [[1.0, 0.0]]


@given(st.floats(-1, 1), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_kinks_close_to_each_other_lose_no_width(place: float, power: int) -> None:
    gap = 2.0**-power
    x, baseline = torch.tensor([[2.0]], dtype=D), torch.tensor([[-2.0]], dtype=D)

    def model(x: Tensor) -> Tensor:
        return ((x - place).relu() - 3 * (x - place - gap).relu() + (x - place + gap).relu())[:, 0]

    change = (model(x) - model(baseline)).item()
    assert values(model, x, baseline).item() == pytest.approx(change, rel=5e-13, abs=5e-13)


# ---- the line ---------------------------------------------------------------------------------------------------------


def _line(memory: int) -> tuple[PathLine, int]:
    function = build(trained("cnn", D), digits()[0][1500:1501].double())
    net = network(function, 0)
    (line,), (rows,) = follow_lines(
        net, (torch.zeros_like(function.inputs[0]),), function.inputs, RegionLimits(np.array([4000]), memory)
    )
    assert isinstance(line, PathLine)
    return line, rows


def test_parts_of_a_line_share_their_ends_and_drop_nothing() -> None:
    """Published code drops regions where one part ends and the next begins."""
    (whole, once), (parts, several) = _line(1 << 40), _line(1 << 23)
    assert once == len(whole.t)
    assert several > 2 * once
    for one, other in ((parts, whole), (whole, parts)):  # every break point of either is one of the other
        near = np.abs(one.t[:, None] - other.t).argmin(1)
        np.testing.assert_allclose(one.t, other.t[near], rtol=0, atol=1e-12)
        assert torch.allclose(one.values, other.values[near], rtol=1e-10)


@pytest.mark.parametrize("memory", [None, 1 << 15])
def test_lines_side_by_side_with_a_budget_for_each(memory: int | None) -> None:
    """Those with too many regions are given up on the way, and leave no trace in the others."""
    model, x = trained("relu", D), digits()[0][1500:1520].double()
    whole = exactly(model, x)
    regions = [one.regions for one in whole if isinstance(one, Exact)]
    assert len(regions) == 20
    budget = int(np.median(regions))
    for one, count, found in zip(whole, regions, exactly(model, x, budget=budget, memory=memory), strict=True):
        if abs(count - budget) > 1:  # rounding may make one kink two, 1e-14 apart
            assert isinstance(found, Exact) == (count < budget)
        if isinstance(one, Exact) and isinstance(found, Exact):
            assert torch.allclose(found.values, one.values, rtol=1e-11, atol=1e-13)


def test_widths_add_up_to_one_exactly() -> None:
    line, _ = _line(1 << 40)
    for t in (line.t, thinned(line, 1e-3).t):
        assert (t[0], t[-1]) == (0, 1)
        assert (t * GRID == np.round(t * GRID)).all()
        assert float(sum(int(width * GRID) for width in np.diff(t))) == GRID
    assert np.diff(thinned(line, 1e-3).t).min() > 1e-3
    assert np.diff(line.t).min() > 0


# ---- calls ------------------------------------------------------------------------------------------------------------


def test_several_examples_with_targets_of_their_own_equal_each_alone() -> None:
    model, x = trained("relu", D), digits()[0][1500:1506].double()
    together = values(model, x, target=[0, 1, 2, 0, 1, 2])
    for i in range(6):
        assert torch.allclose(values(model, x[i : i + 1], target=i % 3)[0], together[i], rtol=1e-12, atol=1e-14)


def test_several_baselines_average() -> None:
    other = drawn(1, 4, seed=9)
    (found,) = exactly(relu_net, X, BASE, other)
    assert isinstance(found, Exact)
    mean = (reference(relu_net, X, BASE) + reference(relu_net, X, other)) / 2
    assert off(found.values[None], mean) <= 1e-13
    assert [curve.weight for curve in found.certificate.curves] == [0.5, 0.5]
    assert sum(curve.gradients for curve in found.certificate.curves) == found.regions
    assert found.certificate.baseline_score == pytest.approx((relu_net(BASE) + relu_net(other)).item() / 2)


def test_groups_are_added_up() -> None:
    found = values(relu_net, X, BASE, groups=torch.tensor([0, 0, 1, -1]))
    each = values(relu_net, X, BASE)[0]
    assert torch.allclose(found[0], torch.stack([each[:2].sum(), each[2], each[3]]), rtol=1e-13)


def test_several_inputs_and_arguments_by_example() -> None:
    x = {"a": drawn(2, 3), "b": drawn(2, 2, seed=7)}
    start = {name: torch.zeros_like(leaf) for name, leaf in x.items()}
    shift = torch.tensor([[0.3], [-0.2]], dtype=D)

    def model(shift: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (torch.cat([a, b], 1) @ W[:1].expand(5, 8) + shift).relu().sum(1) + a.abs().sum(1)

    found = values(model, x, start, args=(shift,))
    for i in range(2):
        row = torch.cat([x["a"], x["b"]], 1)[i : i + 1]
        alone = reference(lambda z, i=i: model(shift[i], z[:, :3], z[:, 3:]), row, torch.zeros_like(row))
        assert off(found[i : i + 1], alone) <= 1e-13


def test_one_example_without_a_batch() -> None:
    found = values(lambda x: (x @ W).relu().sum(), X[0], BASE[0], batched=False)
    assert off(found, reference(lambda x: (x @ W).relu().sum(1), X, BASE)) <= 1e-13


def test_a_layer() -> None:
    model, x = trained("relu", D), digits()[0][1500:1502].double()
    hidden = model[0](x).detach()
    found = values(model, x, torch.zeros_like(hidden), layer="0", target=3)
    for i in range(2):
        alone = reference(model[1:], hidden[i : i + 1], torch.zeros(1, 64, dtype=D), target=3)
        assert off(found[i : i + 1], alone) <= 1e-13


def test_the_certificate_counts_what_was_spent() -> None:
    evaluator = evaluator_of(relu_net, X, [BASE])
    (found,) = integrate_exactly(evaluator, 0.01, budget=100).values()
    assert isinstance(found, Exact)
    certificate = found.certificate
    assert certificate.gradients == found.regions + 2  # two regions are looked at twice
    assert certificate.forwards >= found.regions
    assert certificate.note == f"{found.regions} linear regions"
    assert certificate.score == pytest.approx(relu_net(X).item(), rel=1e-14)
    profile = evaluator.profile()
    assert profile is not None
    assert len(profile) == certificate.gradients + 2 * found.regions  # and what is known at both ends of each region


def test_the_profile_of_a_probability_holds_the_probability() -> None:
    model, x = trained("relu", D), digits()[0][1500:1501].double()
    evaluator = evaluator_of(model, x, [torch.zeros_like(x)], score="probability", target=1)
    assert isinstance(integrate_exactly(evaluator, 0.01, budget=100)[0], Exact)
    profile = evaluator.profile()
    assert profile is not None
    with torch.no_grad():
        there = model(torch.tensor(profile.t)[:, None] * x).softmax(1)[:, 1].numpy()
    np.testing.assert_allclose(profile.score, there, rtol=1e-12)


def test_nodes_and_weights_add_up_to_the_values() -> None:
    evaluator = evaluator_of(relu_net, X, [BASE])
    (found,) = integrate_exactly(evaluator, 0.01, budget=100).values()
    assert isinstance(found, Exact)
    total = torch.zeros(4, dtype=D)
    for done in evaluator.gradients_at(found.nodes):
        total += torch.as_tensor(found.weights[done.index]) @ done.terms
    assert torch.allclose(total, found.values, rtol=1e-13)
    assert found.weights.sum() == 1
