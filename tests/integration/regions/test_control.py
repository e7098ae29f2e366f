"""The front door, with its defaults: what is piecewise linear comes out exact where the tolerance asks for many gradients."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.certificate import Status
from integrand.errors import ConvergenceWarning
from integrand.integration import linear_regions, region_lines
from tests.honesty.networks import digits, trained
from tests.problems import Problem, cases

from .common import D, drawn, off, reference

EXACT = "linear regions"
PAPER = [problem for problem in cases() if problem.name.startswith("paper")]
TOL = {torch.float64: 1e-13, torch.float32: 1e-6}


def mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for before, after in pairwise(sizes):
        parts += [nn.Linear(before, after), activation()]
    return nn.Sequential(*parts[:-1]).double().requires_grad_(False)


def rows(model: Any, x: Tensor, start: Tensor, **options: Any) -> Tensor:
    return torch.cat([reference(model, x[i : i + 1], start[i : i + 1], **options) for i in range(len(x))])


# ---- what comes out exact ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
@pytest.mark.parametrize("problem", PAPER, ids=lambda p: p.name)
def test_the_papers_examples(problem: Problem, tol: float) -> None:
    result = ig.integrated_gradients(problem.function, problem.x, problem.baseline, tol=tol)
    assert result.certificate.only.status is Status.EXACT
    assert problem.error(result.values) <= TOL[problem.dtype]
    assert problem.error(result.values) <= result.certificate.only.error


@pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")
@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize(("score", "tol"), [("logit", 1e-3), ("logit", 1e-5), ("probability", 1e-4)])
def test_a_trained_relu_network(score: Any, tol: float, dtype: torch.dtype) -> None:
    """Exact to rounding, with fewer gradients than sampling takes."""
    x = digits()[0][1500:1505]
    result = ig.integrated_gradients(trained("relu", dtype), x.to(dtype), score=score, tol=tol)
    assert {c.status for c in result.certificate} == {Status.EXACT}
    assert {c.rule for c in result.certificate} == {EXACT}
    wide = x.double()
    targets = trained("relu", D)(wide).argmax(1).tolist()
    for i, target in enumerate(targets):
        one = wide[i : i + 1]
        exact = reference(trained("relu", D), one, torch.zeros_like(one), score, target)
        assert off(result.values[i : i + 1], exact) <= {D: 1e-12, torch.float32: 2e-5}[dtype]
    sampled = ig.integrated_gradients(trained("relu", dtype), x.to(dtype), score=score, tol=tol, create_graph=True)
    assert all("panels" in c.rule for c in sampled.certificate)
    assert result.certificate.gradients < 0.5 * sampled.certificate.gradients  # half of which are for the graph


def test_several_baselines_and_groups() -> None:
    model, x, starts = mlp(10, 30, 30, 3), drawn(4, 10), drawn(2, 4, 10, seed=2)
    exact = sum(rows(model, x, start, target=1) for start in starts) / 2
    whole = ig.integrated_gradients(model, x, starts, target=1, tol=1e-4)
    labels = torch.arange(10) % 3
    grouped = ig.integrated_gradients(model, x, starts, target=1, tol=1e-4, groups=labels)
    assert {c.status for c in (*whole.certificate, *grouped.certificate)} == {Status.EXACT}
    assert off(whole.values, exact) <= 1e-12
    assert off(grouped.values, torch.zeros(4, 3, dtype=D).index_add(1, labels, exact)) <= 1e-12
    for i, one in enumerate(whole.certificate):
        assert len(one.curves) == 2
        torch.testing.assert_close(float(whole.values[i].sum()), one.score - one.baseline_score, rtol=1e-12, atol=1e-12)
        assert sum(curve.gradients for curve in one.curves) == int(one.note.split()[0])


@pytest.mark.parametrize("memory", [None, 1, 40_000])
def test_little_memory_changes_nothing(memory: int | None) -> None:
    """Examples then come one after the other, and are looked at one after the other."""
    model, x = mlp(10, 30, 30, 1), drawn(5, 10)
    result = ig.integrated_gradients(model, x, tol=1e-5, memory=memory)
    if memory != 1:
        assert {c.status for c in result.certificate} == {Status.EXACT}
    assert off(result.values, rows(model, x, torch.zeros_like(x))) <= 1e-5


# ---- the certificate --------------------------------------------------------------------------------------------------------


def test_evaluations_are_counted_and_the_regions_named() -> None:
    calls = 0
    model = mlp(10, 30, 30, 2)

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += len(x)
        return model(x)

    x = drawn(1, 10)
    result = ig.integrated_gradients(counted, x, target=1, tol=1e-5)
    only = result.certificate.only
    regions = int(only.note.removesuffix(" linear regions"))
    # Two rounds of refinement (9 and up to 8), a gradient for each region, and two of them looked at twice.
    assert 9 + 4 + regions + 2 <= only.gradients <= 9 + 8 + regions + 2
    assert only.forwards >= 1 + 3 + regions + 1  # at the input, following the model, at the break points
    assert only.gradients <= calls <= only.gradients + 4  # the break points are found among its operations, not by calling it
    assert abs(only.residual) <= 1e-13
    assert result.profile is not None
    assert len(result.profile) == only.gradients + 2 * regions  # and what is known at both ends of each region


# ---- what does not ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6, 1e-9])
def test_smooth_networks_never_do(tol: float) -> None:
    model, x = mlp(10, 30, 30, 1, activation=nn.GELU), drawn(4, 10)
    result = ig.integrated_gradients(model, x, tol=tol)
    assert {c.status for c in result.certificate} == {Status.CONVERGED}
    assert {c.note for c in result.certificate} == {""}
    trained_ = ig.integrated_gradients(trained("gelu"), digits()[0][1500:1505], tol=max(tol, 1e-5))
    assert EXACT not in {c.rule for c in trained_.certificate}


def test_a_batch_in_which_some_are_exact() -> None:
    """The score is linear in regions where the first feature is positive, and bent elsewhere: both come out right."""
    model = mlp(10, 30, 30, 1)

    def half(x: Tensor) -> Tensor:
        bend = torch.relu(-x[:, :1]) ** 2
        return model(x) + bend

    x = drawn(6, 10)
    result = ig.integrated_gradients(half, x, tol=1e-4)
    assert {c.status for c in result.certificate} == {Status.CONVERGED}  # its operations say that it may be bent

    few = mlp(10, 6, 1)
    x[:3, :] = 0.01 * x[:3]  # no kink of these 6 lies on their lines
    mixed = ig.integrated_gradients(few, x, tol=1e-5)
    assert {c.status for c in mixed.certificate} == {Status.EXACT}
    assert {c.note for c in mixed.certificate[:3]} == {"1 linear region"}
    assert off(mixed.values, rows(few, x, torch.zeros_like(x))) <= 1e-12


def test_refused_examples_are_sampled_beside_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many regions for some: these come out as if nothing had been tried, but for the forward passes."""
    model, x = mlp(10, 30, 30, 1), drawn(6, 10)
    found = ig.integrated_gradients(model, x, tol=1e-4)
    regions = [int(c.note.split()[0]) for c in found.certificate]
    worth = linear_regions._regions_worth

    def tight(*given: Any) -> int:
        return min(worth(*given), int(np.median(regions)))

    monkeypatch.setattr(linear_regions, "_regions_worth", tight)
    mixed = ig.integrated_gradients(model, x, tol=1e-4)
    monkeypatch.setitem(linear_regions.EXACT, "cpu", np.inf)
    sampled = ig.integrated_gradients(model, x, tol=1e-4)
    assert {c.status for c in mixed.certificate} == {Status.EXACT, Status.CONVERGED}
    for i, (one, plain) in enumerate(zip(mixed.certificate, sampled.certificate, strict=True)):
        assert (one.status is Status.EXACT) is (regions[i] <= int(np.median(regions)))
        if one.status is Status.CONVERGED:
            assert (one.gradients, one.rule, one.note) == (plain.gradients, plain.rule, "")
            torch.testing.assert_close(mixed.values[i], sampled.values[i], rtol=1e-12, atol=1e-12)


def test_a_false_gradient_is_noticed_and_the_budget_kept() -> None:
    """Regions are found, and do not add up: the gradients that this took count."""

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor) -> Tensor:
            return z.relu()

        @staticmethod
        def backward(ctx: Any, seed: Tensor) -> Tensor:
            return seed

    model = mlp(10, 30, 30, 1)
    for limit in (60, 100):
        with pytest.warns(ConvergenceWarning):
            result = ig.integrated_gradients(
                lambda x: model[2:](Straight.apply(model[0](x))), drawn(2, 10), tol=1e-4, max_evaluations=limit
            )
        assert all(c.gradients <= limit and not c.converged for c in result.certificate)


def test_few_regions_are_followed_behind_a_claim_that_saw_none() -> None:
    """Bumps of 0.004 in two features lie between the first nodes and cancel in the score: 24% of the attributions."""

    def bumps(x: Tensor) -> Tensor:
        steps = torch.relu(x - 0.528) - torch.relu(x - 0.532)
        return x[:, 2] + 40 * (steps[:, 0] - steps[:, 1])

    x = torch.ones(1, 3, dtype=D)
    result = ig.integrated_gradients(bumps, x, tol=0.05)
    assert result.certificate.only.status is Status.EXACT
    torch.testing.assert_close(result.values, torch.tensor([[0.16, -0.16, 1.0]], dtype=D), rtol=1e-12, atol=1e-12)


def test_what_shows_many_kinks_and_large_models_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a model was followed")

    monkeypatch.setattr(region_lines, "network", never)
    x = digits()[0][1500:1505]
    assert ig.integrated_gradients(trained("relu"), x[:1], tol=0.05).certificate.converged
    assert ig.integrated_gradients(trained("cnn"), x, tol=0.003).certificate.converged
    assert ig.integrated_gradients(trained("gelu"), x, tol=1e-4).certificate.converged


def test_values_that_are_differentiated_further_are_sampled() -> None:
    result = ig.integrated_gradients(mlp(6, 20, 20, 1), drawn(1, 6), tol=1e-4, create_graph=True)
    assert "panels" in result.certificate.only.rule
