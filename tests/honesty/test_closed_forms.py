"""The estimate holds on functions whose attributions are known in closed form: smooth, kinked, needles, 1 to 1000 features."""

from __future__ import annotations

import warnings

import pytest

import integrand as ig
from integrand.errors import ConvergenceWarning

from ..problems import Problem, cases
from .honest import Claim, assert_honest, summary


def claim_of(problem: Problem, tol: float, **options: object) -> Claim:
    """Explain one problem and measure the result. Not to converge is no lie: the warning for it is let pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = ig.integrated_gradients(problem.function, problem.x, problem.baseline, tol=tol, **options)
    only = result.certificate.only
    return Claim(f"{problem.name} at {tol}", tol, only.converged, only.error, problem.error(result.values), only.gradients)


@pytest.mark.parametrize("tol", [0.05, 0.01, 0.001])
def test_to_a_tolerance(tol: float) -> None:
    claims = [claim_of(problem, tol) for problem in cases()]
    print(summary(claims))
    assert len(claims) >= 150
    assert sum(claim.converged for claim in claims) >= 0.95 * len(claims)
    assert_honest(claims)


@pytest.mark.parametrize("rule", ["right", "left", "midpoint", "trapezoid", "simpson", "gauss-legendre"])
@pytest.mark.parametrize("steps", [9, 51])
def test_fixed_rules_own_up(rule: str, steps: int) -> None:
    """What a fixed rule claims holds likewise, but for needles and waves that are finer than its nodes."""
    problems = [p for p in cases() if p.kind not in {"needle", "hard"} and not p.name.startswith("sines")]
    claims = [claim_of(problem, 0.01, steps=steps, rule=rule) for problem in problems]
    late = [claim for claim in claims if claim.measured > max(claim.claimed, 1e-5)]  # float32 gradients are not exact
    assert len(late) <= 0.03 * len(claims), late
    assert all(claim.measured <= 3 * max(claim.claimed, 1e-5) for claim in claims), late
