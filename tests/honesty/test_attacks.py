"""Functions that were made to fool the estimate: how many do, family by family, and those that are known to.

``python -m tests.honesty.attacks`` draws more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.integration.halves import halves_of

from .attacks import Function, Trial, claim, claims
from .honest import Claim

DRAWN = [
    ("ordinary", 0.01, 40),
    ("ranking", 0.01, 60),
    ("narrow", 0.01, 60),
    ("few units", 0.05, 50),
    ("few units", 0.01, 100),
    ("hard feature", 0.001, 60),
    ("twins", 0.01, 100),
    ("twins", 0.001, 75),
    ("narrow twins", 0.05, 60),
    ("narrow twins", 0.01, 60),
    ("in step", 0.05, 100),
    ("in step", 0.01, 100),
    ("close ReLUs", 0.05, 60),
    ("close ReLUs", 0.01, 60),
    ("four ReLUs", 0.01, 100),
    ("four ReLUs", 0.001, 50),
    ("needles", 0.01, 50),
    ("wide", 0.05, 60),
    ("wide", 0.01, 60),
    ("wide ranking", 0.01, 60),
    ("attention", 0.01, 12),
    ("recurrent", 0.01, 20),
    ("flashes", 0.01, 100),
    ("norms at zero", 0.01, 40),
    ("norms at zero", 0.001, 10),
    ("attention at zero", 0.05, 12),
    ("attention at zero", 0.01, 12),
]
"""How many are drawn of each family, at which tolerance."""

MOST = {"twins": 0.02, "narrow twins": 0.02, "four ReLUs": 0.02, "needles": 0.02}
"""Of those that claim convergence, how many may be off by more than three times the tolerance; none of the other families."""


LATE = {"few units": 0.03, "norms at zero": 0.03}
"""How many may be beyond the tolerance, where those are not 2% but the 3% that the README grants: none of them far."""


def far_off(found: list[Claim]) -> list[Claim]:
    return [c for c in found if c.converged and c.measured > 3 * c.tol]


@pytest.mark.parametrize(("family", "tol", "count"), DRAWN)
def test_few_are_fooled(family: str, tol: float, count: int) -> None:
    found = claims(family, tol, count, seed=3)
    claiming = [c for c in found if c.converged]
    assert len(claiming) >= (0.8 if family == "narrow twins" else 0.9) * len(found)  # some waves take more than the budget
    wrong = far_off(found)
    assert len(wrong) <= MOST.get(family, 0.0) * len(claiming), wrong
    if family not in MOST:
        late = [c for c in claiming if c.measured > c.tol]
        assert len(late) <= LATE.get(family, 0.02) * len(claiming), late


@pytest.mark.parametrize("slope", [2000.0, 3000.0])
def test_opposite_needles_with_a_fixed_number_of_steps(slope: float) -> None:
    """Scores at the nodes tell steps apart that lie between different nodes: 79 and 105 of 200 were claimed before."""
    family = {2000.0: "needles 2000", 3000.0: "needles"}[slope]
    assert len(far_off(claims(family, 0.01, 60, seed=5, steps=50))) <= 2


# ---- cases with names, each of which was wrong once -------------------------------------------------------------------------


def twin(name: str, phi: Function, change: float) -> Trial:
    """phi(x0) - phi(x1) on the diagonal, where the score never changes."""
    one = torch.ones(1, 2, dtype=torch.float64)
    return Trial(name, lambda rows: phi(rows[:, 0]) - phi(rows[:, 1]), one, 0 * one, np.array([change, -change]))


def bump(low: float, high: float) -> Trial:
    """Gradients that are 1 from one time to another, and 0 elsewhere."""
    return twin(f"bump {low}-{high}", lambda z: torch.relu(z - low) - torch.relu(z - high), high - low)


def wave(k: int, phase: float = 0.0) -> Trial:
    return twin(f"sin(2 pi {k} x + {phase})", lambda z: torch.sin(2 * np.pi * k * z + phase) + z, 1.0)


CAUGHT: dict[str, Callable[[], Trial]] = {
    # A difference of trapezoids is zero where both kinks lie in cells of equal parity.
    **{f"bump {a}-{b}": lambda a=a, b=b: bump(a, b) for a, b in [(0.07, 0.37), (0.03, 0.3), (0.541, 0.863)]},
    # On multiples of 1 / 2^k these are constant; the golden section, where one looked before, is next to 55 / 144.
    **{f"wave {k}": lambda k=k: wave(k) for k in (8, 16, 24, 32, 40, 48, 56, 128, 144, 256)},
    **{f"shifted wave {k}": lambda k=k: wave(k, 0.3) for k in (8, 16, 18, 24, 32, 40, 48, 56, 128)},
    # What the score shows only where half of the features move.
    "a bump narrower than all gaps": lambda: bump(0.505, 0.518),
    "opposite needles at one place": lambda: needles_in_a_slope(),
    "opposite needles between two nodes": lambda: needles_in_one_cell(),
    "steps beside steps": lambda: a_step_beside_others(),
    "a bump beside a step": lambda: a_bump_beside_a_step(),
}


@pytest.mark.parametrize("name", CAUGHT)
@pytest.mark.parametrize("tol", [0.01, 1e-4])
def test_cases_that_were_wrong_once(name: str, tol: float) -> None:
    found = claim(CAUGHT[name](), tol)
    assert not found.converged or found.measured <= tol


def needles_in_a_slope() -> Trial:
    return twin("needles in a slope", lambda z: z + torch.sigmoid(3000 * (z - 0.43)), 2.0)


def a_step_beside_others() -> Trial:
    """Seven steep steps: those that a node comes near are found, and the others are not."""
    return twin("staircase", lambda z: sum(torch.sigmoid(2000 * (z - j / 7 - 0.011)) for j in range(1, 7)), 6.0)


def a_bump_beside_a_step() -> Trial:
    """Nodes gather at the step, and the first panels stay as coarse as they were where the bump is."""
    change = float(torch.sigmoid(torch.tensor(48.0)) - torch.sigmoid(torch.tensor(-12.0))) + 3 * 0.11

    def phi(z: Tensor) -> Tensor:
        return torch.sigmoid(60 * (z - 0.2)) + 3 * (torch.relu(z - 0.76) - torch.relu(z - 0.87))

    return twin("bump beside a step", phi, change)


def needles_in_one_cell() -> Trial:
    one = torch.ones(1, 2, dtype=torch.float64)

    def step(z: Tensor, at: float) -> Tensor:
        return torch.sigmoid(3000 * (z - at))

    return Trial(
        "needles in one cell", lambda r: r.sum(1) + step(r[:, 0], 0.2) - step(r[:, 1], 0.21), one, 0 * one, np.array([2.0, 0.0])
    )


def twins_moved_together() -> Trial:
    """Opposite needles in two of eight features that are in the same half, whichever way the features are halved."""
    ways = halves_of(8)
    i, j = next((i, j) for i in range(8) for j in range(i) if (ways[:, i] == ways[:, j]).all())
    one = torch.ones(1, 8, dtype=torch.float64)

    def function(rows: Tensor) -> Tensor:
        steps = torch.sigmoid(3000 * (rows - 0.43))
        return rows.sum(1) + steps[:, i] - steps[:, j]

    exact = np.ones(8)
    exact[[i, j]] += 1, -1
    return Trial("needles moved together", function, one, 0 * one, exact)


KNOWN_DISHONEST: dict[str, Callable[[], Trial]] = {"needles that always move together": twins_moved_together}
"""What claims 1% and is wrong: nothing of it shows at the nodes, at the places between them, or where half of the features
move. The table is meant to empty; what is in it is said in docs/method.md."""


@pytest.mark.parametrize("name", KNOWN_DISHONEST)
@pytest.mark.xfail(strict=True, reason="known to be dishonest: take it out of the table once it is not")
def test_known_dishonest(name: str) -> None:
    assert not far_off([claim(KNOWN_DISHONEST[name](), 0.01)])


# ---- what the score can see --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"steps": 65}])
def test_the_certificate_says_what_the_score_can_see(options: dict[str, Any]) -> None:
    x = torch.ones(1, 2, dtype=torch.float64)

    def seen(weight: float) -> float | None:
        result = ig.integrated_gradients(lambda r: r[:, 0] ** 2 - weight * r[:, 1] ** 2, x, **options)
        return result.certificate.only.visible

    assert seen(1.0) == pytest.approx(0.0, abs=1e-12)  # twins
    assert seen(0.5) == pytest.approx(0.5 / 1.5)
    assert seen(-1.0) == pytest.approx(1.0)


def test_a_spent_budget_leaves_no_claim_untested() -> None:
    """A wave in step with the first 17 nodes, and no gradients left: what claims are looked at by does not count."""
    x = torch.ones(1, 2, dtype=torch.float64)

    def score(rows: Tensor) -> Tensor:
        waves = torch.sin(64 * np.pi * rows) + rows
        return waves[:, 0] - waves[:, 1]

    with pytest.warns(ig.errors.ConvergenceWarning, match="budget spent"):
        result = ig.integrated_gradients(score, x, max_evaluations=17)
    assert result.certificate.only.error > 0.25
