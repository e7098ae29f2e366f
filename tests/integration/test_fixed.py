"""Accumulation: flat in memory, and as exact as it says."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.integration.fixed import WeightedSums

CPU = torch.device("cpu")


def add(sums: WeightedSums, label: int, row: Tensor) -> None:
    """One row, with weight one."""
    sums.add(slice(label, label + 1), torch.ones(1, 1), row[None, None])


def terms(count: int, seed: int = 0) -> Tensor:
    """Numbers of very different sizes and both signs, (count, 5) in float32."""
    generator = torch.Generator().manual_seed(seed)
    sizes = 10.0 ** torch.randint(-3, 4, (count, 5), generator=generator)
    return (torch.randn(count, 5, generator=generator) * sizes).float()


@pytest.mark.parametrize("count", [10, 3000])
def test_float64_sums_are_exact_to_rounding(count: int) -> None:
    rows = terms(count)
    sums = WeightedSums(1, 1, 5, CPU, wide=True)
    for row in rows:
        add(sums, 0, row)
    exact = [math.fsum(column) for column in rows.double().numpy().T]
    size = rows.double().abs().sum(0)
    assert sums.total().dtype == torch.float64
    assert (torch.tensor(exact, dtype=torch.float64) - sums.total()[0, 0]).abs().div(size).max() <= count * 2.0**-53


@pytest.mark.parametrize("count", [10, 3000])
def test_compensated_float32_is_as_good_as_one_rounding(count: int) -> None:
    """Kahan's bound: two roundings of float32 of the sum of sizes, however many terms; plain sums lose with their number."""
    rows = terms(count)
    sums, plain = WeightedSums(1, 1, 5, CPU, wide=False), torch.zeros(5)
    for row in rows:
        add(sums, 0, row)
        plain += row
    exact = torch.tensor([math.fsum(column) for column in rows.double().numpy().T], dtype=torch.float64)
    size = rows.double().abs().sum(0)
    assert sums.total().dtype == torch.float32
    assert ((sums.total()[0, 0].double() - exact).abs() / size).max() <= 2 * 2.0**-23
    if count > 1000:
        assert (plain.double() - exact).abs().sum() > 3 * (sums.total()[0, 0].double() - exact).abs().sum()


def test_compensation_where_plain_float32_stalls() -> None:
    """Twenty million has an ulp of 2: adding 0.1 to it changes nothing, unless what is lost is kept."""
    sums = WeightedSums(1, 1, 1, CPU, wide=False)
    add(sums, 0, torch.tensor([2e7]))
    for _ in range(1000):
        add(sums, 0, torch.tensor([0.1]))
    assert sums.total().item() == pytest.approx(2e7 + 100, abs=2)


@pytest.mark.parametrize("wide", [True, False])
def test_several_columns_of_weights_at_once(wide: bool) -> None:
    """Steps come in blocks, for some of the rows at a time; each column of weights has its own sums."""
    generator = torch.Generator().manual_seed(1)
    steps, weights = torch.randn(30, 6, 5, generator=generator), torch.randn(2, 30, generator=generator, dtype=torch.float64)
    sums = WeightedSums(2, 6, 5, CPU, wide=wide)
    for first in range(0, 30, 7):
        block = slice(first, first + 7)
        for rows in (slice(0, 4), slice(4, 6)):
            sums.add(rows, weights[:, block], steps[block, rows])
    expected = torch.einsum("cs,srd->crd", weights, steps.double())
    torch.testing.assert_close(sums.total().double(), expected, rtol=0, atol=1e-12 if wide else 1e-5)


SCRIPT = """
import resource, torch
import integrand as ig

def peak():  # in MB; Linux counts in kB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

torch.set_num_threads(1)
x = torch.linspace(0.5, 1, 250_000)[None]  # 1 MB, and so is every gradient

def model(x):
    return torch.sin(3 * x).sum(1)

def wave(x):
    return torch.relu(torch.sin(12 * x)).sum(1)

ig.integrated_gradients(model, x, steps=5, chunk=4, tol=1e9)
before = peak()
if ADAPTIVE:
    spent = ig.integrated_gradients(wave, x[:, ::4], tol=0.02, chunk=4, memory=10_000_000).certificate.gradients
else:
    spent = ig.integrated_gradients(model, x, steps=400, chunk=4, tol=1e9).certificate.gradients
print(peak() - before, spent)
"""


def growth(*, adaptive: bool) -> tuple[float, float]:
    """By how many MB the peak of memory grows, and how many gradients were taken, in a process of its own."""
    script = SCRIPT.replace("ADAPTIVE", str(adaptive))
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    megabytes, spent = map(float, done.stdout.split())
    return megabytes, spent


linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is counted in other units elsewhere")


@linux
def test_memory_of_a_fixed_rule_does_not_grow_with_its_steps() -> None:
    """Gradients of 1 MB each: 400 of them kept would be 400 MB; a chunk of four and the sums are some dozen."""
    megabytes, spent = growth(adaptive=False)
    assert spent == 400
    assert megabytes < 60


@linux
def test_memory_of_a_tolerance_does_not_grow_with_its_nodes() -> None:
    """Nodes of 250 kB each, some thousand of them: 5 MB may be kept; the rest is what is measured at a time, and sums."""
    megabytes, spent = growth(adaptive=True)
    assert spent > 600
    assert megabytes < 120


def test_chunks_bound_the_rows_of_a_call() -> None:
    seen: list[int] = []

    def model(x: Tensor) -> Tensor:
        seen.append(len(x))
        return torch.sin(3 * x).sum(1)

    ig.integrated_gradients(model, torch.ones(5, 4), steps=100, chunk=16, tol=1.0)
    assert max(seen) <= 16
    seen.clear()
    ig.integrated_gradients(model, torch.randn(5, 4), chunk=16, tol=1e-4)
    assert max(seen) <= 16


@pytest.mark.parametrize(
    "options", [{"steps": 30, "tol": 1e9}, {"tol": 0.02}, {"tol": 1e-3}], ids=["fixed", "to a tolerance", "exact"]
)
def test_every_evaluation_is_on_the_certificate(options: dict[str, float]) -> None:
    """Rows that the model has run, one by one, against what the certificate owns up to."""
    rows = 0

    def model(x: Tensor) -> Tensor:
        nonlocal rows
        rows += len(x)
        return torch.relu(x @ torch.linspace(-1, 1, 6, dtype=x.dtype)[:, None] + torch.linspace(-2, 2, 9, dtype=x.dtype)).sum(1)

    x = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 6)))
    certificate = ig.integrated_gradients(model, x, **options).certificate
    owned = certificate.gradients + certificate.forwards
    if any(c.status is ig.Status.EXACT for c in certificate):  # break points run the model's operations, not the model
        assert certificate.gradients < rows < owned
    else:
        assert rows == owned


@pytest.mark.parametrize("options", [{"steps": 8, "rule": "midpoint"}, {"tol": 1e-3}])
def test_large_attributions_that_cancel(options: dict[str, Any]) -> None:
    """Their partial sums are beyond float32, they themselves are not: F = w x, a = w."""
    weights = torch.tensor([1.8e38, 1.8e38, -1.8e38, -1.8e38])
    result = ig.integrated_gradients(lambda x: (x.double() @ weights.double()).float(), torch.ones(1, 4), **options)
    torch.testing.assert_close(result.values, weights[None])


@pytest.mark.parametrize("rule", ["gauss-legendre", "midpoint", "trapezoid"])
def test_steps_of_the_score_between_the_nodes_are_seen(rule: str) -> None:
    """Two opposite steps in a plain slope: the sum is right, no gradient shows them, but scores at the nodes do."""

    def score(rows: Tensor) -> Tensor:
        return rows.sum(1) + torch.sigmoid(3000 * (rows[:, 0] - 0.333)) - torch.sigmoid(3000 * (rows[:, 1] - 0.777))

    x = torch.ones(1, 2, dtype=torch.float64)
    with pytest.warns(ig.errors.ConvergenceWarning, match="budget spent"):
        result = ig.integrated_gradients(score, x, steps=51, rule=rule)
    assert result.certificate.only.error > 0.5  # of a = (2, 0), where it gives (1, 1)


@pytest.mark.parametrize(("rule", "steps", "below"), [("gauss-legendre", 20, 1e-12), ("simpson", 41, 1e-5), ("right", 60, 0.2)])
def test_smooth_scores_are_followed_between_the_nodes(rule: str, steps: int, below: float) -> None:
    """exp(x0) sin(x1): what slopes miss from node to node is no more than what the rule is off by."""
    x = torch.ones(1, 2, dtype=torch.float64)
    result = ig.integrated_gradients(lambda r: torch.exp(r[:, 0]) * torch.sin(r[:, 1]), x, steps=steps, rule=rule, tol=1.0)
    assert result.certificate.only.error < below
