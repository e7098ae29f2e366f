"""Values against closed forms, and certificates against the truth."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.errors import ConvergenceWarning
from tests.problems import Jump, Problem, cases, invisible, jumps

FLOAT64 = [torch.float64]
ROUNDING = {torch.float64: 1e-13, torch.float32: 2e-6}
"""What a sum of some hundred terms of up to 1000 features loses, relative: a few hundred roundings."""


def explain(problem: Problem, **options: object) -> ig.Attribution:
    return ig.integrated_gradients(problem.function, problem.x, problem.baseline, **options)  # type: ignore[arg-type]


def named(kinds: set[str]) -> list[Problem]:
    return [problem for problem in cases(FLOAT64) if problem.kind in kinds]


@pytest.mark.parametrize("problem", [p for p in cases() if p.kind != "hard"], ids=lambda p: p.name)
def test_the_default_gives_exact_values_and_says_so(problem: Problem) -> None:
    """Converged (a warning would be an error), within 1%, and no further off than the certificate says."""
    result = explain(problem)
    certificate = result.certificate.only
    true = problem.error(result.values)
    assert certificate.converged
    assert true <= 0.01
    assert true <= certificate.error + ROUNDING[problem.dtype]
    assert result.values.dtype == problem.dtype
    # The residual is taken from the sums before they are rounded to the dtype of x.
    slack = 10 * torch.finfo(problem.dtype).eps * (abs(problem.change) + float(problem.exact.abs().sum()) + 1)
    assert certificate.residual == pytest.approx(float(result.values.double().sum()) - problem.change, abs=slack)


@pytest.mark.parametrize("problem", [p for p in cases() if p.kind == "hard"], ids=lambda p: p.name)
def test_what_does_not_converge_is_never_claimed(problem: Problem) -> None:
    """A gradient without bound: no tolerance is promised, but neither may the certificate claim more than it has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = explain(problem)
    assert problem.error(result.values) <= result.certificate.only.error + ROUNDING[problem.dtype]


@pytest.mark.parametrize("problem", [p for p in invisible() if p.name.startswith("sines")], ids=lambda p: p.name)
def test_a_wave_that_the_first_nodes_cannot_see_is_found_by_the_witness(problem: Problem) -> None:
    """At multiples of 1/8 it looks slow; one gradient off the grid gives it away."""
    result = explain(problem)
    assert result.certificate.converged
    assert problem.error(result.values) <= 0.01


@pytest.mark.parametrize("problem", [p for p in invisible() if p.name.startswith("needles")], ids=lambda p: p.name)
def test_needles_that_cancel_in_the_score_are_found_by_half_of_the_features(problem: Problem) -> None:
    result = explain(problem)
    assert problem.error(result.values) <= result.certificate.only.error + ROUNDING[problem.dtype]


@pytest.mark.parametrize("problem", named({"linear"}), ids=lambda p: p.name)
@pytest.mark.parametrize("rule", ["right", "left", "midpoint", "gauss-legendre"])
def test_linear_models_are_exact_at_one_evaluation(problem: Problem, rule: str) -> None:
    """Exact, but one node cannot tell: the certificate says that the error is unknown."""
    with pytest.warns(ConvergenceWarning, match="too few steps to estimate the error"):
        result = explain(problem, steps=1, rule=rule)
    certificate = result.certificate.only
    assert problem.error(result.values) <= 4 * torch.finfo(torch.float64).eps
    assert certificate.gradients == 1
    assert math.isnan(certificate.error)
    assert not certificate.converged


@pytest.mark.parametrize("steps", [3, 7, 50])
@pytest.mark.parametrize("rule", ["right", "left", "midpoint", "trapezoid", "simpson", "gauss-legendre"])
def test_linear_models_are_exact_with_any_rule(rule: str, steps: int) -> None:
    """Weights that add up to (n - 1) / n, as a trapezoid elsewhere has them, would be 2% short at 50."""
    if rule == "simpson" and steps % 2 == 0:
        steps += 1
    for problem in named({"linear"}):
        result = explain(problem, steps=steps, rule=rule)
        assert problem.error(result.values) <= 1e-14
        assert result.certificate.only.error <= 1e-13


@pytest.mark.parametrize("problem", named({"polynomial"}), ids=lambda p: p.name)
def test_polynomials_are_exact_with_enough_gauss_nodes(problem: Problem) -> None:
    """The highest degree is 8, so the gradient has 7: four nodes do, and the five taken here are exact to rounding."""
    result = explain(problem, steps=5, rule="gauss-legendre", tol=100.0)
    assert problem.error(result.values) <= 1e-12


@pytest.mark.parametrize("degree", range(1, 12))
def test_gauss_nodes_are_exact_up_to_degree_2n_minus_1_and_no_further(degree: int) -> None:
    """F = x^d has a gradient of degree d - 1; n nodes integrate degree 2n - 1."""
    x = torch.ones(1, 1, dtype=torch.float64)
    for steps in (3, 4, 5):
        result = ig.integrated_gradients(lambda z: z[:, 0] ** degree, x, steps=steps, rule="gauss-legendre", tol=1e9)
        exact = degree - 1 <= 2 * steps - 1
        assert (abs(float(result.values) - 1) <= 1e-13) is exact


SLOW = ("sines-40", "sines-130")  # many periods: Romberg's rule is given up before it begins to converge


@pytest.mark.parametrize(
    "problem", [p for p in named({"smooth", "polynomial", "linear"}) if not p.name.startswith(SLOW)], ids=lambda p: p.name
)
def test_a_float64_model_gets_twelve_digits_and_an_honest_certificate(problem: Problem) -> None:
    result = explain(problem, tol=1e-12, max_evaluations=20_000)
    certificate = result.certificate.only
    assert certificate.status is ig.Status.CONVERGED
    assert certificate.error <= 1e-12
    # The closed forms themselves are rounded: sums over up to 1000 features and 100 units keep 13 digits.
    assert problem.error(result.values) <= 1e-12
    assert problem.error(result.values) <= certificate.error + 2e-13


@pytest.mark.parametrize("tol", [0.1, 0.03, 0.003, 1e-3])
def test_other_tolerances_are_kept(tol: float) -> None:
    """Within the tolerance, every one of them, and within what the certificate says.

    The estimate of a rough gradient is a statistical one, of one sample; a quarter more is granted there, never the tolerance.
    """
    for problem in named({"linear", "polynomial", "smooth", "kinked", "needle"}):
        result = explain(problem, tol=tol)
        certificate = result.certificate.only
        true = problem.error(result.values)
        assert certificate.converged
        assert true <= tol, problem.name
        assert true <= (1.25 if problem.kind == "kinked" else 1.0) * certificate.error + 1e-13, problem.name


@pytest.mark.parametrize("jump", jumps(), ids=lambda j: j.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_jump_is_reported_where_it_is(jump: Jump, dtype: torch.dtype) -> None:
    with pytest.warns(ConvergenceWarning, match="the score jumps by"):
        result = ig.integrated_gradients(jump.function, torch.ones(1, 1, dtype=dtype))
    certificate = result.certificate.only
    assert certificate.status is ig.Status.JUMP
    # Panels are halved down to 2^-16; the jump is inside the one that is named by its middle.
    assert certificate.jump_at == pytest.approx(jump.at, abs=2.0**-16)
    # The smooth part x^2 changes by no more than 2 x 2^-16 in it.
    assert certificate.jump_size == pytest.approx(jump.size, abs=2.0**-14)
    assert certificate.residual == pytest.approx(-jump.size, abs=0.01)
    assert "explain a score before the threshold" in certificate.remedy


def rough(features: int = 40, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """A ReLU network with many kinks on every line: what takes many evaluations."""
    torch.manual_seed(seed)
    one, two = torch.nn.Linear(features, 200).double(), torch.nn.Linear(200, 1).double()
    return lambda rows: two(torch.relu(4 * one(rows)))[:, 0]


@pytest.mark.parametrize("seed", range(4))
def test_a_spent_budget_says_what_it_reached_and_what_it_needs(seed: int) -> None:
    model = rough(seed=seed)
    x = torch.randn(1, 40, dtype=torch.float64)
    truth = ig.integrated_gradients(model, x, tol=1e-4, max_evaluations=100_000).values

    def error(values: Tensor) -> float:
        return float((values - truth).abs().sum() / truth.abs().sum())

    with pytest.warns(ConvergenceWarning, match="raise max_evaluations"):
        poor = ig.integrated_gradients(model, x, tol=1e-3, max_evaluations=50)
    short = poor.certificate.only
    assert short.status is ig.Status.BUDGET
    assert short.gradients <= 50
    assert short.needed is not None
    assert short.needed > 50
    assert f"about {short.needed} evaluations" in short.remedy
    # The truth is itself good to 1e-4, and the best that was reached is not claimed to be better than it is.
    assert short.error > 1e-3
    assert error(poor.values) <= short.error + 1e-4

    # A forecast from 50 evaluations of some hundred: good to a factor of two either way.
    full = ig.integrated_gradients(model, x, tol=1e-3).certificate.only
    assert full.converged
    assert 0.5 <= full.gradients / short.needed <= 2
    again = ig.integrated_gradients(model, x, tol=1e-3, max_evaluations=2 * short.needed)
    assert again.certificate.converged
    assert error(again.values) <= 1e-3 + 1e-4


def test_the_need_of_a_fixed_rule_is_about_right() -> None:
    """First order rules fall like 1/n: the steps they ask for are enough, and not ten times too many."""
    x = torch.linspace(0.5, 2, 6, dtype=torch.float64)[None]
    exact = x.exp() - 1
    with pytest.warns(ConvergenceWarning):
        poor = ig.integrated_gradients(lambda z: z.exp().sum(1), x, steps=20, rule="right", tol=1e-3).certificate.only
    assert poor.needed is not None
    good = ig.integrated_gradients(lambda z: z.exp().sum(1), x, steps=5 * poor.needed // 4, rule="right", tol=1e-3)
    assert good.certificate.converged
    assert good.certificate.error >= 5e-4
    assert float((good.values - exact).abs().sum() / exact.abs().sum()) <= good.certificate.error


def network(seed: int) -> tuple[torch.nn.Module, Tensor]:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(300, 200), torch.nn.Tanh(), torch.nn.Linear(200, 100), torch.nn.Tanh(), torch.nn.Linear(100, 1)
    return torch.nn.Sequential(*layers), torch.randn(1, 300)


@pytest.mark.parametrize("seed", range(3))
def test_float32_at_1e_7_is_a_noise_floor(seed: int) -> None:
    """A float32 network rounds its gradients at about 1e-7; the same network in float64 tells the truth."""
    model, x = network(seed)
    with pytest.warns(ConvergenceWarning, match="noise floor"):
        result = ig.integrated_gradients(model, x, tol=1e-7)
    certificate = result.certificate.only
    assert certificate.status is ig.Status.NOISE
    assert "float64" in certificate.remedy
    assert certificate.precision == "float32"
    assert 1e-7 < certificate.error < 1e-5

    exact = ig.integrated_gradients(model.double(), x.double(), tol=1e-7)
    assert exact.certificate.converged
    true = float((result.values - exact.values).abs().sum() / exact.values.abs().sum())
    assert true <= certificate.error + 1e-7


def test_a_noise_floor_is_above_the_tolerance() -> None:
    """Sines keep nearly all of float32: whichever way it ends, the estimate agrees with the status, and is true."""
    for features, seed in itertools.product((1, 5, 30, 300), range(4)):
        torch.manual_seed(seed)
        x, start = torch.randn(1, features), torch.randn(1, features)
        exact = x.double().sin() - start.double().sin()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = ig.integrated_gradients(lambda z: z.sin().sum(1), x, start, tol=1e-7)
        certificate = result.certificate.only
        true = float((result.values.double() - exact).abs().sum() / exact.abs().sum())
        assert (certificate.error <= 1e-7) is certificate.converged
        # Casting the values to float32 costs half a rounding more.
        assert true <= certificate.error + 6e-8


def test_a_kink_on_a_node_is_not_noise() -> None:
    """The paper's examples have kinks at t = 1/2, where a gradient moved by one rounding is another gradient."""
    for problem in [p for p in cases([torch.float32]) if p.name.startswith("paper")]:
        assert explain(problem, tol=1e-3).certificate.only.error <= 1e-3


def test_kinks_in_float64_are_no_noise_floor_and_no_jump() -> None:
    """A piecewise linear score in float64 has neither: where 1e-6 is out of reach, the budget is what is missing."""
    found = {}
    for problem in named({"kinked"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = explain(problem, tol=1e-6)
        assert problem.error(result.values) <= result.certificate.only.error + 1e-13
        found[problem.name] = result.certificate.only.status
    assert set(found.values()) <= {ig.Status.EXACT, ig.Status.CONVERGED, ig.Status.BUDGET}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_what_it_can(dtype: torch.dtype) -> None:
    """Times and velocities are kept in float32: F = x^2 is then off by the rounding of its points alone."""
    x = torch.tensor([[1.0, -2.0, 0.5]], dtype=dtype)
    result = ig.integrated_gradients(lambda z: (z * z).sum(1), x, steps=9, rule="trapezoid", tol=1.0)
    exact = x.double() ** 2
    assert result.values.dtype == dtype
    assert float((result.values.double() - exact).abs().sum() / exact.sum()) <= 2 * torch.finfo(dtype).eps


def test_numbers_without_a_feature_dimension() -> None:
    """A batch of scalars, and a single one."""
    batch = ig.integrated_gradients(lambda x: x**3, torch.tensor([1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(batch.values, torch.tensor([1.0, 8.0], dtype=torch.float64))
    one = ig.integrated_gradients(lambda x: x**3, torch.tensor(2.0, dtype=torch.float64))
    torch.testing.assert_close(one.values, torch.tensor(8.0, dtype=torch.float64))


def test_terms_that_cancel_to_rounding_are_no_jump():
    """Two ways to write one function, subtracted: zero but for rounding, and every gradient is exactly zero."""

    def twice(x):
        a, b = x[:, 0], x[:, 1]
        one = torch.relu(3 * torch.relu(3 * a + b + 2) - 2)
        other = torch.relu(3 * torch.relu(3 * a + b + 1.3333333333333335))
        return one - other

    x, baseline = torch.tensor([[3.0, 3.0]], dtype=torch.float64), torch.tensor([[0.5, 2.0]], dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.errors.ZeroAttributionWarning)
        result = ig.integrated_gradients(twice, x, baseline)
    assert abs(result.certificate.only.score - result.certificate.only.baseline_score) > 0
    assert result.values.abs().sum() == 0
    assert result.certificate.only.converged
    assert result.certificate.only.error == 0
