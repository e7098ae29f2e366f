"""Integrating by segment secants: what they claim holds, what they cost, and when sampling is taken instead."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand._trees import Leaves
from integrand.attribution import Status
from integrand.errors import ConvergenceWarning
from integrand.execute import _choose
from integrand.operations._program import Values
from integrand.secants._program import Bound

from ..honesty.honest import Claim, assert_honest, relative_error
from ..honesty.networks import trained
from ..honesty.references import FOLDER, digit_batches
from ..problems import Problem, cases

DIGITS = 10
SECANTS = "adaptive segment secants"
KINKED = [problem for problem in cases() if problem.kind == "kinked" and problem.dtype is torch.float64]


@pytest.fixture(autouse=True)
def without_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small piecewise linear models would be integrated exactly."""
    monkeypatch.setitem(_choose.EXACT, "cpu", np.inf)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take segment secants wherever gradients look kinked, however few would do, and however small the model."""
    monkeypatch.setitem(_choose.PAYS, "cpu", 0)
    monkeypatch.setattr(_choose, "WORTH", 0)


def network(inputs: int, outputs: int, *, width: int = 60) -> nn.Module:
    """A ReLU network in float64."""
    torch.manual_seed(0)
    layers = (nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))
    return nn.Sequential(*layers).double().requires_grad_(False)


def reference(model: Any, x: Tensor, target: int, start: Tensor | None = None, nodes: int = 16384) -> Tensor:
    """Integrated gradients by midpoints, row by row."""
    times = (torch.arange(nodes, dtype=x.dtype)[:, None] + 0.5) / nodes
    out = []
    for i, row in enumerate(x):
        first = torch.zeros_like(row) if start is None else start[i]
        points = (first + times * (row - first)).requires_grad_(True)
        out.append(torch.autograd.grad(model(points)[:, target].sum(), points)[0].mean(0) * (row - first))
    return torch.stack(out)


# ---- honesty ---------------------------------------------------------------------------------------------------------------


def explained(problem: Problem, tol: float) -> Claim | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = ig.integrated_gradients(problem.function, problem.x, problem.baseline, tol=tol)
    only = result.certificate.only
    if only.rule != SECANTS:
        return None
    return Claim(problem.name, tol, only.converged, only.error, problem.error(result.values), only.gradients)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("tol", [0.01, 0.001])
def test_claims_hold_on_closed_forms(tol: float) -> None:
    claims = [claim for problem in KINKED if (claim := explained(problem, tol)) is not None]
    assert len(claims) >= 15
    assert all(claim.converged for claim in claims)
    assert_honest(claims, share=1.0, worst=1.0)


@pytest.mark.usefixtures("eager")
@pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")
@pytest.mark.parametrize(("tol", "dtype"), [(0.01, torch.float32), (0.002, torch.float64)])
def test_claims_hold_on_digits(tol: float, dtype: torch.dtype) -> None:
    """Two ReLU networks, two scores, two baselines, against references that the engine did not make."""
    references = np.load(FOLDER / "digits.npz")
    claims = []
    for batch in digit_batches(dtype):
        if batch.network not in ("relu", "cnn"):
            continue
        x, start = batch.x[:DIGITS], batch.baseline[:DIGITS]
        result = ig.integrated_gradients(trained(batch.network, dtype), x, start, score=batch.score, tol=tol)
        values = result.values.double().numpy()
        claims += [
            Claim(batch.name, tol, c.converged, c.error, relative_error(values[i], references[batch.name][i]), c.gradients)
            for i, c in enumerate(result.certificate)
            if c.rule == SECANTS
        ]
    assert len(claims) >= 40
    assert all(claim.converged for claim in claims)
    assert_honest(claims, share=0.99, worst=1.5)


def test_a_rough_network_takes_fewer_gradients_than_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a tolerance where it matters: secants, less than half of the cost, within the tolerance."""
    model, x = network(30, 1, width=300), 2 * torch.randn(1, 30, dtype=torch.float64)
    exact = reference(model, x, 0).numpy()
    monkeypatch.setattr(_choose, "WORTH", 0)
    monkeypatch.setitem(_choose.PAYS, "cpu", 100)
    taken = ig.integrated_gradients(model, x, tol=1e-3)
    monkeypatch.setitem(_choose.PAYS, "cpu", np.inf)
    sampled = ig.integrated_gradients(model, x, tol=1e-3)
    assert taken.certificate.only.rule == SECANTS
    assert "panels" in sampled.certificate.only.rule
    cost = taken.certificate.gradients + 0.4 * taken.certificate.forwards
    assert cost < 0.5 * sampled.certificate.gradients
    for result in (taken, sampled):
        assert relative_error(result.values.numpy(), exact) <= result.certificate.error <= 1e-3


# ---- the certificate ---------------------------------------------------------------------------------------------------------


def test_few_gradients_and_small_models_are_left_to_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(30, 1, width=300), 2 * torch.randn(1, 30, dtype=torch.float64)
    assert "panels" in ig.integrated_gradients(model, x, tol=1e-3).certificate.only.rule
    monkeypatch.setattr(_choose, "WORTH", 0)
    assert "panels" in ig.integrated_gradients(model, x, tol=0.05).certificate.only.rule


@pytest.mark.usefixtures("eager")
def test_sums_are_complete_and_evaluations_are_counted() -> None:
    calls = 0
    model = network(12, 3)

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += len(x)
        return model(x)

    x = torch.randn(2, 12, dtype=torch.float64)
    result = ig.integrated_gradients(counted, x, target=1, tol=1e-3)
    assert {c.rule for c in result.certificate} == {SECANTS}
    for i, c in enumerate(result.certificate):
        assert abs(c.residual) < 1e-9
        torch.testing.assert_close(float(result.values[i].sum()), c.score - c.baseline_score, rtol=1e-9, atol=1e-9)
        assert c.forwards > 2
    # The model itself is called for a few gradients; the segments run its operations.
    assert calls < result.certificate.gradients + result.certificate.forwards
    assert result.profile is not None
    assert (np.diff(result.profile.of(0).t) > 0).all()


@pytest.mark.usefixtures("eager")
def test_a_spent_budget_is_said() -> None:
    model, x = network(40, 1, width=200), 3 * torch.randn(1, 40, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="budget spent"):
        result = ig.integrated_gradients(model, x, tol=1e-5, max_evaluations=100)
    only = result.certificate.only
    assert only.rule == SECANTS
    assert only.status is Status.BUDGET
    assert only.gradients <= 100 < (only.needed or 0)
    exact = reference(model, x, 0).numpy()
    assert relative_error(result.values.numpy(), exact) <= only.error


@pytest.mark.usefixtures("eager")
def test_several_baselines_inputs_groups_layers_and_targets() -> None:
    model = network(10, 4)
    x = torch.randn(3, 10, dtype=torch.float64)
    starts = torch.randn(2, 3, 10, dtype=torch.float64)
    exact = (reference(model, x, 2, starts[0]) + reference(model, x, 2, starts[1])) / 2
    labels = torch.arange(10) % 4
    sums = torch.zeros(3, 4, dtype=torch.float64).index_add(1, labels, exact)
    options: dict[str, Any] = {"target": 2, "tol": 2e-3}
    whole = ig.integrated_gradients(model, x, starts, **options)
    grouped = ig.integrated_gradients(model, x, starts, groups=labels, **options)
    split = ig.integrated_gradients(
        lambda a, b: model(torch.cat([a, b], 1)), (x[:, :6], x[:, 6:]), [(s[:, :6], s[:, 6:]) for s in starts], **options
    )
    for result, found, wanted in (
        (whole, whole.values, exact),
        (grouped, grouped.values, sums),
        (split, torch.cat(split.values, 1), exact),
    ):
        assert SECANTS in {c.rule for c in result.certificate}
        for i, c in enumerate(result.certificate):
            assert len(c.curves) == 2
            assert relative_error(found[i].numpy(), wanted[i].numpy()) <= c.error <= 2e-3
    inner = ig.integrated_gradients(model, x, layer="1", target=[0, 2, 1], tol=2e-3)
    for i, target in enumerate([0, 2, 1]):
        value = torch.relu(model[0](x[i : i + 1]))  # type: ignore[index]
        wanted = reference(model[2:], value, target)  # type: ignore[index]
        assert relative_error(inner.values[i].numpy(), wanted[0].numpy()) <= 2e-3


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("memory", [1, 20_000])
def test_little_memory_changes_nothing_but_the_work(memory: int) -> None:
    model, x = network(10, 1, width=100), 3 * torch.randn(4, 10, dtype=torch.float64)
    ample = ig.integrated_gradients(model, x, tol=1e-3)
    tight = ig.integrated_gradients(model, x, tol=1e-3, memory=memory)
    assert {c.rule for c in (*ample.certificate, *tight.certificate)} == {SECANTS}
    torch.testing.assert_close(tight.values, ample.values, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("eager")
def test_running_out_of_memory_takes_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(10, 1, width=100), 3 * torch.randn(3, 10, dtype=torch.float64)
    ample = ig.integrated_gradients(model, x, tol=1e-3)
    forward = Bound.forward

    def tight(self: Bound, points: Leaves) -> Values:
        if len(points[0]) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return forward(self, points)

    monkeypatch.setattr(Bound, "forward", tight)
    result = ig.integrated_gradients(model, x, tol=1e-3)
    assert [c.rule for c in result.certificate] == [c.rule for c in ample.certificate]
    torch.testing.assert_close(result.values, ample.values, rtol=1e-9, atol=1e-12)


# ---- falling back ------------------------------------------------------------------------------------------------------------


class Straight(torch.autograd.Function):
    """A ReLU that says its slope is one everywhere."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return z.relu()

    @staticmethod
    def backward(ctx: Any, seed: Tensor) -> Tensor:
        return seed


def test_models_without_rules_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever cannot be followed, or has another gradient than its operations, comes out as if nothing had been tried."""
    model, x = network(8, 2, width=200), 3 * torch.randn(2, 8, dtype=torch.float64)
    options: dict[str, Any] = {"target": 1, "tol": 0.002, "max_evaluations": 800}
    functions = {
        "has no rule for the operation 'sort'": lambda x: model(x.sort(1).values),
        "another gradient than the model": lambda x: model[4](Straight.apply(model[2](torch.relu(model[0](x))))),  # type: ignore[index]
        "cannot be followed": lambda x: model(x) * (1.0 if float(x.detach().sum()) < 1e9 else 2.0),
    }
    monkeypatch.setattr(_choose, "WORTH", 0)
    for reason, function in functions.items():
        monkeypatch.setitem(_choose.PAYS, "cpu", np.inf)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the second does not sum to the change of its score
            plain = ig.integrated_gradients(function, x, **options)
            monkeypatch.setitem(_choose.PAYS, "cpu", 0)
            tried = ig.integrated_gradients(function, x, **options)
        assert relative_error(tried.values.numpy(), plain.values.numpy()) <= 0.004
        assert all("panels" in c.rule for c in tried.certificate)
        notes = [c.note for c in tried.certificate if c.note]
        assert notes
        assert all(reason in note for note in notes), notes


@pytest.mark.usefixtures("eager")
def test_values_that_are_differentiated_further_are_sampled() -> None:
    model, x = network(6, 1), torch.randn(1, 6, dtype=torch.float64)
    result = ig.integrated_gradients(model, x, tol=0.01, create_graph=True)
    assert "panels" in result.certificate.only.rule


@pytest.mark.usefixtures("eager")
def test_half_precision_and_curves_are_sampled() -> None:
    model, x = network(6, 1), torch.randn(1, 6, dtype=torch.float64)
    curve = ig.paths.Curve(lambda t: t**2 * x)
    assert "panels" in ig.path_attribution(model, curve, tol=0.01).certificate.only.rule
    half = ig.integrated_gradients(network(6, 1).bfloat16(), x.bfloat16(), tol=0.3)
    assert half.certificate.only.rule != SECANTS
