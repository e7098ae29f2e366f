"""Panels: what the rules on five nodes give, against loops and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from integrand.quadrature.panel_rules import (
    FIVE_POINT,
    SKETCH,
    Candidate,
    PanelSums,
    estimate,
    independent,
    measure,
    norms_of,
    raising,
)

Array = NDArray[np.float64]

TRAPEZOID, SIMPSON = FIVE_POINT.candidates

several = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def smooth_panels(count: int = 7, features: int = 4, seed: int = 0) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Starts, widths, nodes (panels, 5, features), F, dF/dt, and the exact integrals: feature i has e^(c_i t)."""
    rng = np.random.default_rng(seed)
    start, width = rng.uniform(0, 1, count), rng.uniform(0.05, 0.5, count)
    rates = rng.normal(size=features)
    t = start[:, None] + width[:, None] * np.arange(5) / 4
    nodes = np.exp(t[:, :, None] * rates)
    scores = (nodes / rates).sum(2)
    exact = (np.exp(np.outer(start + width, rates)) - np.exp(np.outer(start, rates))) / rates
    return start, width, nodes, scores, nodes.sum(2), exact


def by_hand(values: Array, width: float) -> tuple[float, float, float, float, float]:
    """T_f, T_h, T_q, S_f, S_h of five numbers, written out."""
    a, b, c, d, e = values
    fine = width / 4 * (a / 2 + b + c + d + e / 2)
    half = width / 2 * (a / 2 + c + e / 2)
    ends = width * (a + e) / 2
    return fine, half, ends, width / 12 * (a + 4 * b + 2 * c + 4 * d + e), width / 6 * (a + 4 * c + e)


def run(nodes: Array, scores: Array, slopes: Array, width: Array) -> PanelSums:
    return measure(FIVE_POINT, torch.from_numpy(nodes), scores, slopes, width, torch.float64)


def test_weights_are_trapezoid_and_simpson() -> None:
    assert (TRAPEZOID.name, SIMPSON.name) == ("trapezoid", "simpson")
    assert FIVE_POINT.nodes.tolist() == [0, 0.25, 0.5, 0.75, 1]
    for node in range(5):
        unit = np.eye(5)[node]
        fine, half, _, simpson, rough = by_hand(unit, 1.0)
        np.testing.assert_allclose(FIVE_POINT.columns[:, node], [fine, fine - half, simpson, simpson - rough], atol=1e-16)


def test_measure_against_loops() -> None:
    """Float64 throughout, the same products in another order: some roundings."""
    _, width, nodes, scores, slopes, _ = smooth_panels()
    found = run(nodes, scores, slopes, width)
    for p in range(len(width)):
        rows = np.array([by_hand(nodes[p, :, i], width[p]) for i in range(nodes.shape[2])])
        fine, half, _, simpson, rough = rows.T
        expected = np.stack([fine, fine - half, simpson, simpson - rough])
        np.testing.assert_allclose(found.sums[p].numpy(), expected, rtol=1e-12, atol=1e-15)
        halves = [abs(width[p] * (-nodes[p, k] + 2 * nodes[p, k + 1] - nodes[p, k + 2]) / 8).sum() for k in (0, 2)]
        assert found.norms[p, 0] == pytest.approx(max(np.abs(fine - half).sum(), np.hypot(*halves)), rel=1e-12)
        assert found.norms[p, 1] == pytest.approx(np.abs(simpson - rough).sum(), rel=1e-10)
        rise = scores[p, 4] - scores[p, 0]
        assert found.missing[p, 0] == pytest.approx(rise - fine.sum(), abs=1e-14)
        assert found.missing[p, 1] == pytest.approx(rise - simpson.sum(), abs=1e-14)
        np.testing.assert_allclose(found.weights[p] @ nodes[p], [fine, simpson], rtol=1e-13)
        for candidate, degree in enumerate((1, 4)):  # straight lines, and the polynomial through all nodes
            cells = [by_polynomial(slopes[p], width[p], cell, degree) for cell in range(4)]
            missed = np.linalg.norm(np.diff(scores[p]) - cells)
            assert found.gaps[p, candidate] == pytest.approx(max(missed, abs(found.missing[p, candidate])), abs=1e-13)


def by_polynomial(slopes: Array, width: float, cell: int, degree: int) -> float:
    """The integral from one node to the next of the line through both, or of the polynomial through all five."""
    t = width * np.arange(5) / 4
    inside = slice(cell, cell + 2) if degree == 1 else slice(0, 5)
    whole = np.polynomial.Polynomial.fit(t[inside], slopes[inside], degree).integ()
    return float(whole(t[cell + 1]) - whole(t[cell]))


def test_kinks_of_a_bump_do_not_cancel() -> None:
    """Up in the first cell and down in the third: the difference of two trapezoids is zero, and the norm is not."""
    nodes = np.array([0.0, 1.0, 1.0, 0.0, 0.0])[None, :, None]
    found = run(nodes, np.zeros((1, 5)), nodes[..., 0], np.ones(1))
    assert float(found.sums[0, 1]) == 0
    assert found.norms[0, 0] == pytest.approx(np.hypot(1 / 8, 1 / 8))


def test_steps_that_cancel_within_a_panel_are_seen_in_the_score() -> None:
    """The score goes up by 1 between the first two nodes and down again before the last, where no gradient is."""
    scores = np.array([[0.0, 1.0, 1.0, 1.0, 0.0]])
    found = run(np.zeros((1, 5, 2)), scores, np.zeros((1, 5)), np.ones(1))
    np.testing.assert_allclose(found.missing, 0)
    np.testing.assert_allclose(found.gaps, np.sqrt(2), rtol=1e-12)


def test_independent_differences_are_counted() -> None:
    rng = np.random.default_rng(0)
    assert independent(np.zeros((4, SKETCH))) == (1, 1)
    assert independent(np.outer([1.0, -1, 1, 1], rng.normal(size=SKETCH))) == pytest.approx((4, 1))
    assert independent(np.outer([1.0, 1e-9, 0, 0], rng.normal(size=SKETCH))) == pytest.approx((1, 1))
    count, spread = independent(1e-200 * rng.normal(size=(8, SKETCH)))
    assert 7 < count <= 8
    assert spread > 40
    few = rng.normal(size=(64, 3)) @ rng.normal(size=(3, SKETCH))  # many differences of a network with three units
    assert 1 < independent(few)[1] < 4


def test_nested_differences_bound_the_error_of_smooth_gradients() -> None:
    _, width, nodes, scores, slopes, exact = smooth_panels(count=40)
    found = run(nodes, scores, slopes, width)
    true_t = np.abs(found.sums[:, 0].numpy() - exact).sum(1)
    true_s = np.abs(found.sums[:, 2].numpy() - exact).sum(1)
    assert (true_t <= TRAPEZOID.kappa * found.norms[:, 0]).all()
    assert (true_s <= SIMPSON.kappa * found.norms[:, 1]).all()
    assert (true_s < true_t).all()


def test_panels_do_not_know_of_each_other() -> None:
    _, width, nodes, scores, slopes, _ = smooth_panels()
    together = run(nodes, scores, slopes, width)
    for p in range(len(width)):
        one = slice(p, p + 1)
        alone = run(nodes[one], scores[one], slopes[one], width[one])
        torch.testing.assert_close(alone.sums[0], together.sums[p], rtol=1e-14, atol=1e-16)
        assert alone.norms[0, 1] == pytest.approx(together.norms[p, 1], rel=1e-12)


def kinked(at: float, width: float, before: Array, after: Array) -> tuple[Array, Array, Array]:
    """Nodes, F and dF/dt on [0, width], where the gradient is ``before`` up to ``at`` and ``after`` from there on."""
    t = width * np.arange(5) / 4
    nodes = np.where((t <= at)[:, None], before, after)
    scores = np.minimum(t, at) * before.sum() + np.maximum(t - at, 0) * after.sum()
    return nodes, scores, nodes.sum(1)


@given(
    at=st.floats(0.01, 0.99),
    width=st.sampled_from([1.0, 0.5, 2.0**-6]),
    before=st.lists(st.floats(-4, 4), min_size=3, max_size=3),
    after=st.lists(st.floats(-4, 4), min_size=3, max_size=3),
)
@several
def test_one_kink_is_placed_by_the_score(at: float, width: float, before: list[float], after: list[float]) -> None:
    """A piecewise constant gradient with one kink is integrated exactly, for every feature, wherever the kink is."""
    first, last = np.array(before), np.array(after)
    if abs(first.sum() - last.sum()) < 0.1:  # the score has next to no kink: it cannot tell where
        return
    nodes, scores, slopes = kinked(at * width, width, first, last)
    found = run(nodes[None], scores[None], slopes[None], np.array([width]))
    exact = width * (at * first + (1 - at) * last)
    # The place is a quotient of differences of F, which loses a digit or two.
    np.testing.assert_allclose(found.sums[0, 0].numpy(), exact, atol=1e-12 * width)
    np.testing.assert_allclose(found.sums[0, 2].numpy(), exact, atol=1e-12 * width)
    np.testing.assert_allclose(found.weights[0, 0] @ nodes, exact, atol=1e-12 * width)
    # It is not believed: the error stays that of the trapezoid.
    fine, half = (np.array([by_hand(nodes[:, i], width)[k] for i in range(3)]) for k in (0, 1))
    assert found.norms[0, 0] == pytest.approx(np.abs(fine - half).sum(), abs=1e-12)
    assert found.norms[0, 1] >= found.norms[0, 0] - 1e-12


def test_a_smooth_panel_is_not_taken_for_a_kink() -> None:
    """Simpson's value has to stay Simpson's where the gradient is smooth."""
    _, width, nodes, scores, slopes, exact = smooth_panels(count=200, seed=3)
    found = run(nodes, scores, slopes, width)
    np.testing.assert_allclose(found.weights, FIVE_POINT.columns[None, ::2] * width[:, None, None], rtol=1e-14)
    np.testing.assert_allclose(found.sums[:, 2].numpy(), exact, rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_rounding_does_not_decide_in_float32(seed: int) -> None:
    """Scores and terms moved by one rounding of float32: the values may move by rounding, not by a change of rule."""
    rng = np.random.default_rng(seed)
    epsilon = 2.0**-24
    for _ in range(40):
        width = 2.0 ** -rng.integers(1, 12)
        parts = kinked(rng.uniform(0.05, 0.95) * width, width, rng.normal(size=30), rng.normal(size=30))
        nodes, scores, _ = (part.astype(np.float32).astype(np.float64) for part in parts)
        scores = (scores + 3).astype(np.float32).astype(np.float64)
        values = []
        for _ in range(4):
            moved = torch.from_numpy(nodes * (1 + epsilon * rng.choice([-1, 1], nodes.shape))).float()
            near = scores * (1 + epsilon * rng.choice([-1, 1], scores.shape))
            slopes = moved.double().sum(1).numpy()
            found = measure(FIVE_POINT, moved[None], near[None], slopes[None], np.array([width]), torch.float64)
            values.append(found.sums[0, 0].numpy())
        # A kink's place is known to 64 roundings of F, over what its slope changes by: at most 2% of a cell.
        moved_by = max(np.abs(value - values[0]).sum() for value in values)
        jump = np.abs(nodes[0] - nodes[4]).sum() * width / 4
        assert moved_by <= 0.02 * jump + 1e-6 * width * np.abs(nodes).sum()


# ---- the estimate --------------------------------------------------------------------------------------------------------


def spread(rows: torch.Tensor) -> Array:
    """How much the estimate of nested differences, (..., features), is raised."""
    return raising(*norms_of(rows))


def test_spread_by_the_effective_number_of_features() -> None:
    """Equal differences count in full, one that stands out counts alone; more features, less caution."""
    one, hundred = torch.zeros(100, dtype=torch.float64), torch.ones(100, dtype=torch.float64)
    one[3] = -2.0
    alone, equal, signs = spread(torch.stack([one, hundred, hundred * torch.tensor([1.0, -1.0]).repeat(50)]))
    few, many = float(alone), float(equal)
    assert few > many > 1
    assert float(signs) == pytest.approx(many)
    # c (1 + k / sqrt N) at N = 1 and 100: what is above c falls by ten.
    caution = (10 * many - few) / 9
    assert 1 <= caution < 1.5
    assert few - caution == pytest.approx(10 * (many - caution))
    assert np.isfinite(spread(torch.zeros(2, 5, dtype=torch.float64))).all()
    np.testing.assert_allclose(spread(7 * hundred), equal, rtol=1e-12)


@pytest.mark.parametrize("rule", FIVE_POINT.candidates, ids=lambda rule: rule.name)
def test_estimate_is_never_below_what_is_known(rule: Candidate) -> None:
    """Not below the difference, the root of the summed squares, nor what the sum misses."""
    rng = np.random.default_rng(1)
    difference = torch.from_numpy(rng.normal(size=(6, 20)))
    squares, missing = rng.uniform(0, 400, 6), rng.normal(size=6) * 50
    found = estimate(rule, *norms_of(difference), squares, missing)
    assert (found >= rule.kappa * difference.abs().sum(1).numpy()).all()
    assert (found >= np.sqrt(squares)).all()
    assert (found >= np.abs(missing)).all()
    nothing = estimate(rule, *norms_of(torch.zeros(1, 3, dtype=torch.float64)), np.zeros(1), np.zeros(1))
    assert nothing.tolist() == [0.0]


def test_estimate_of_brownian_gradients_is_what_theory_predicts() -> None:
    """Integrals of Brownian motion: the trapezoid's error over |T_f - T_h| is 3^-1/2 in the root mean square.

    4000 features of 8 panels; the true integral is taken on 256 steps to a cell, which adds 1/256 of the variance.
    """
    rng = np.random.default_rng(2)
    panels, features, fine = 8, 4000, 256
    steps = panels * 4 * fine
    path = np.concatenate([np.zeros((1, features)), np.cumsum(rng.normal(size=(steps, features)) / steps**0.5, axis=0)])
    truth = (path[:-1] + path[1:]).sum(0) / 2 / steps
    nodes = path[::fine]
    stacked = np.stack([nodes[4 * p : 4 * p + 5] for p in range(panels)])
    found = run(stacked, np.zeros((panels, 5)), stacked.sum(2), np.full(panels, 1 / panels))
    error = (found.sums[:, 0].sum(0).numpy() - truth) ** 2
    difference = found.sums[:, 1].sum(0).numpy() ** 2
    # A ratio of two means over 4000 features: good to some per cent.
    assert np.sqrt(error.mean() / difference.mean()) == pytest.approx(3**-0.5, rel=0.05)
