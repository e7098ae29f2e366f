"""The test of a claim, apart from convergence: is a result as accurate as its certificate says?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Claim:
    """What a certificate said of one example, and what was measured.

    Attributes:
        name: the case.
        tol: the tolerance that was asked for.
        converged: whether the certificate claims to have met it.
        claimed: the error that it states.
        measured: the relative L1 error against the known or converged answer.
        gradients: evaluations spent.
    """

    name: str
    tol: float
    converged: bool
    claimed: float
    measured: float
    gradients: int


def relative_error(values: np.ndarray, exact: np.ndarray) -> float:
    """sum|a - a*| / sum|a*|; where a* is zero, zero or infinite."""
    wrong, size = np.abs(values - exact).sum(), np.abs(exact).sum()
    return float(wrong / size) if size > 0 else (0.0 if wrong == 0 else float("inf"))


def assert_honest(claims: Sequence[Claim], *, share: float = 0.97, worst: float = 3.0) -> None:
    """Of the results that claim convergence, ``share`` are within tol and none is worse than ``worst`` times tol."""
    claiming = [claim for claim in claims if claim.converged]
    assert claiming, "no result claims convergence"
    ratios = np.array([claim.measured / claim.tol for claim in claiming])
    late = [f"{c.name}: {c.measured:.3g} for tol {c.tol:.3g}, claimed {c.claimed:.3g}" for c in claiming if c.measured > c.tol]
    assert np.mean(ratios <= 1) >= share, f"{len(late)} of {len(claiming)} miss their tolerance:\n" + "\n".join(late)
    assert ratios.max() <= worst, "worse than allowed:\n" + "\n".join(late)


def summary(claims: Sequence[Claim]) -> str:
    """One line: how many, how many late, the worst, and the cost."""
    ratios = np.array([claim.measured / claim.tol for claim in claims if claim.converged])
    cost = np.mean([claim.gradients for claim in claims])
    return (
        f"{len(claims)} cases, {len(ratios)} converged, within tol {np.mean(ratios <= 1):.1%}, median {np.median(ratios):.2f}, "
        f"worst {ratios.max():.2f} x tol, {cost:.0f} gradients on average"
    )
