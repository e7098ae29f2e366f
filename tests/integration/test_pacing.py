"""Fewer and larger rounds, as on a GPU: the same answers, at hardly more gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.arrays import Ints
from integrand.integration import linear_regions
from integrand.integration.adaptive import GradientIntegral, Pacing
from integrand.integration.error import FEATURES
from integrand.integration.mesh import Split
from integrand.quadrature.panel_rules import FIVE_POINT
from tests.problems import Problem, cases

GPU = Pacing(2, 3, 0.97, checked=True)
PROBLEMS = [p for p in cases((torch.float64,)) if p.kind in ("polynomial", "smooth", "kinked", "needle")]


def deep(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(30, 80), nn.ReLU(), nn.Linear(80, 80), nn.ReLU(), nn.Linear(80, 2)).eval()


def rounds(monkeypatch: pytest.MonkeyPatch, pacing: Pacing) -> list[int]:
    """Runs are paced so from now on; the number of panels after each of their rounds."""
    seen: list[int] = []
    judge = GradientIntegral.judge

    def counted(self: GradientIntegral, fresh: Ints) -> Split:
        seen.append(len(self.mesh.panels))
        return judge(self, fresh)

    monkeypatch.setattr(GradientIntegral, "judge", counted)
    monkeypatch.setattr(Pacing, "of", staticmethod(lambda *_: pacing))
    return seen


def without_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear regions are not looked for: refinement is what is looked at."""
    monkeypatch.setattr(linear_regions, "integrate_regions", lambda *_: ({}, set()))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_larger_rounds_are_as_right(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, GPU)
    result = ig.integrated_gradients(problem.function, problem.x, problem.baseline, tol=0.01)
    assert result.certificate.converged
    assert isinstance(result.values, Tensor)
    assert problem.error(result.values) <= result.certificate.error + 1e-12


def test_a_kinked_network_takes_fewer_rounds_and_hardly_more_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    without_regions(monkeypatch)
    spent: dict[int, list[int]] = {1: [], 3: []}
    for seed in range(4):
        x = 3 * torch.randn(2, 30, generator=torch.Generator().manual_seed(seed))
        found = {}
        for deepest in (1, 3):
            with pytest.MonkeyPatch.context() as patch:
                seen = rounds(patch, Pacing(2, deepest, 0.97, checked=True))
                found[deepest] = ig.integrated_gradients(deep(seed), x, target=0, tol=0.01)
                spent[deepest] += [len(seen), found[deepest].certificate.gradients]
        assert found[3].certificate.converged
        first, second = (found[k].values for k in (1, 3))
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        assert ((first - second).abs().sum(1) <= 0.02 * first.abs().sum(1)).all()
    assert sum(spent[3][::2]) < sum(spent[1][::2])
    assert sum(spent[3][1::2]) <= 1.2 * sum(spent[1][1::2])


def test_smooth_networks_are_not_planned_far_ahead() -> None:
    assert GPU.depth(1, kinked=False) == GPU.depth(0, kinked=True) == 1
    assert GPU.depth(1, kinked=True) == 3


@pytest.mark.parametrize(
    ("count", "size", "first"), [(1, 10**5, 2), (8, 10**5, 2), (9, 10**5, 1), (64, 10**5, 1), (64, 10**3, 2), (1000, 10**3, 1)]
)
def test_a_gpu_starts_with_as_many_nodes_as_are_free(count: int, size: int, first: int) -> None:
    class Somewhere:
        device = torch.device("cuda")
        pieces = (None,)
        features = size
        smooth = kinked = False

        class chunks:
            row_bytes = 1 << 25

        def measure_rows(self) -> None:
            """What the model is made of is not known here."""

        class function:
            examples = count

    assert Pacing.of(Somewhere(), FIVE_POINT, 0.05) == Pacing(first, 3, 0.97, checked=first == 2)  # type: ignore[arg-type]
    Somewhere.kinked = True
    assert Pacing.of(Somewhere(), FIVE_POINT, 0.05).first == (3 if (size, count) == (10**5, 1) else first)  # type: ignore[arg-type]
    assert Pacing.of(Somewhere(), FIVE_POINT, 0.01).first == (4 if (size, count) == (10**5, 1) else first)  # type: ignore[arg-type]
    Somewhere.smooth, Somewhere.kinked = True, False
    assert Pacing.of(Somewhere(), FIVE_POINT, 0.05) == Pacing(0, 3, 0.97, checked=True)  # type: ignore[arg-type]
    Somewhere.chunks.row_bytes = 1 << 10
    assert Pacing.of(Somewhere(), FIVE_POINT, 0.05) == Pacing(2, 3, 0.97, checked=True)  # type: ignore[arg-type]
    Somewhere.device = torch.device("cpu")  # few features are judged by two panels at the least
    assert Pacing.of(Somewhere(), FIVE_POINT, 0.05) == Pacing(0, 1, 0.99)  # type: ignore[arg-type]
    Somewhere.features = FEATURES - 1
    assert Pacing.of(Somewhere(), FIVE_POINT, 0.05) == Pacing(1, 1, 0.99)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", [None, 100_000])
def test_panels_that_were_released_are_halved_several_times_too(memory: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, GPU)
    without_regions(monkeypatch)
    x = 3 * torch.randn(2, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    result = ig.integrated_gradients(deep(5).double(), x, target=0, tol=0.003, memory=memory)
    ample = ig.integrated_gradients(deep(5).double(), x, target=0, tol=0.003)
    assert result.certificate.converged
    torch.testing.assert_close(result.values, ample.values, rtol=0.01, atol=0.01 * float(ample.values.abs().max()))  # type: ignore[union-attr]
    errors = result.sums(torch.arange(30) // 5).errors
    assert bool((errors.isnan() | (errors > 0)).all())  # not known where no panel could be kept, and never none


@pytest.mark.parametrize("budget", [17, 30, 64, 200])
def test_the_budget_holds(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, GPU)
    without_regions(monkeypatch)
    x = 3 * torch.randn(1, 30, generator=torch.Generator().manual_seed(5))
    with pytest.warns(ig.errors.ConvergenceWarning):
        result = ig.integrated_gradients(deep(5), x, target=0, tol=1e-5, max_evaluations=budget)
    # The first round, its two checks off the grid, and the three times two gradients by which rounding is measured come anyway.
    assert result.certificate.gradients <= max(budget, 17 + 2 + 6)
