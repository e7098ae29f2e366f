"""The closed forms themselves: complete, finite, and equal to an integral taken by other means."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.problems import Problem, cases, invisible

PROBLEMS = cases()
SMALL = [p for p in cases([torch.float64]) if p.x.numel() <= 3 and p.kind != "hard"]


def test_there_are_many_and_their_names_differ() -> None:
    assert len(PROBLEMS) >= 80
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)
    assert {problem.x.numel() for problem in PROBLEMS} >= {1, 2, 1000}


@pytest.mark.parametrize("problem", PROBLEMS + invisible(), ids=lambda p: p.name)
def test_exact_values_are_complete(problem: Problem) -> None:
    """Both sides in float64: what is left is rounding in sums of up to 1000 features and 100 hidden units."""
    assert problem.exact.isfinite().all()
    size = max(1.0, float(problem.exact.abs().sum()))
    assert float(problem.exact.sum()) == pytest.approx(problem.change, abs=1e-11 * size)


@pytest.mark.parametrize("problem", SMALL, ids=lambda p: p.name)
def test_exact_values_are_integrals_of_the_gradient(problem: Problem) -> None:
    """Three Gauss nodes in each of 20,000 cells, on autograd's gradient.

    Smooth cells are exact to rounding (their error falls with the sixth power of 5e-5); a kink or a cusp costs at most its
    jump, here below 10, times one cell.
    """
    cells = 20_000
    nodes, weights = np.polynomial.legendre.leggauss(3)
    t = torch.from_numpy(((np.arange(cells)[:, None] + (nodes + 1) / 2) / cells).ravel())[:, None]
    line = problem.x - problem.baseline
    points = (problem.baseline + t * line).requires_grad_(True)
    (slopes,) = torch.autograd.grad(problem.function(points).sum(), points)
    found = torch.from_numpy(np.tile(weights / 2 / cells, cells)) @ (slopes * line)
    torch.testing.assert_close(found[None], problem.exact, rtol=0, atol=10 / cells)
