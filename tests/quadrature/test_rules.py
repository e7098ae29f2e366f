"""Rules as data: what they are exact for, how fast they converge, and the paper's sum among them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import integrand as ig
from integrand.errors import OptionError
from integrand.quadrature import RULES, Rule, gauss_legendre, left, midpoint, right, romberg, simpson, trapezoid

Array = NDArray[np.float64]


def counts(name: str, up_to: int = 60) -> list[int]:
    """The numbers of steps that a rule takes."""
    least = {"trapezoid": 2, "simpson": 3}.get(name, 1)
    return [n for n in range(least, up_to) if name != "simpson" or n % 2]


def integral(rule: Rule, function: Callable[[Array], Array], weights: Array | None = None) -> float:
    return float((rule.weights if weights is None else weights) @ function(rule.nodes))


# ---- the paper's equation 3 --------------------------------------------------------------------------------------------


def equation_3(model: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor, m: int) -> Tensor:
    """(x_i - x'_i) x sum_{k=1}^{m} dF(x' + k/m (x - x')) / dx_i x 1/m, one point at a time."""
    total = torch.zeros_like(x)
    for k in range(1, m + 1):
        point = (baseline + k / m * (x - baseline)).requires_grad_(True)
        (gradient,) = torch.autograd.grad(model(point).sum(), point)
        total += gradient * (1 / m)
    return (x - baseline) * total


@pytest.mark.parametrize("m", [1, 2, 7, 50, 300])
def test_right_riemann_is_equation_3(m: int) -> None:
    torch.manual_seed(m)
    layers = torch.nn.Linear(6, 20), torch.nn.GELU(), torch.nn.Linear(20, 1)
    model = torch.nn.Sequential(*layers).double()
    x, baseline = torch.randn(3, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    # One or two nodes say nothing about their error; the values are what is looked at here.
    own = Rule("right", np.arange(1, m + 1) / m, np.full(m, 1 / m), np.full(m, 1 / m))
    expected = equation_3(model, x, baseline, m)
    found = ig.integrated_gradients(model, x, baseline, rule=own, tol=1e9)
    # The same products, added in another order: some roundings of float64.
    torch.testing.assert_close(found.values, expected, rtol=1e-13, atol=1e-14)
    assert [c.gradients for c in found.certificate] == [m] * 3
    if m > 2:
        named = ig.integrated_gradients(model, x, baseline, steps=m, rule="right", tol=1e9)
        torch.testing.assert_close(named.values, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("m", [1, 2, 10, 64])
def test_right_riemann_as_data(m: int) -> None:
    rule = right(m)
    assert rule.nodes.tolist() == [k / m for k in range(1, m + 1)]
    assert rule.weights.tolist() == [1 / m] * m


# ---- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_weights_add_up_to_one(name: str) -> None:
    """To rounding: a trapezoid whose weights add up to (n - 1) / n is 2% short at 50 nodes."""
    for steps in [*counts(name), 101, 501]:
        rule = RULES[name](steps)
        assert len(rule) == len(rule.nodes) == len(rule.weights) == steps
        assert math.fsum(rule.weights) == pytest.approx(1, abs=1e-14)
        assert (np.diff(rule.nodes) > 0).all()
        assert rule.nodes[0] >= 0
        assert rule.nodes[-1] <= 1
        if rule.embedded is not None:
            assert math.fsum(rule.embedded) == pytest.approx(1, abs=1e-12)
            assert not np.array_equal(rule.embedded, rule.weights)


@pytest.mark.parametrize("name", RULES)
def test_embedded_weights_are_there_from_three_nodes_on(name: str) -> None:
    for steps in counts(name, 12):
        assert (RULES[name](steps).embedded is not None) is (steps >= 3)


@pytest.mark.parametrize("steps", [3, 10, 33, 64, 100, 257, 500])
def test_weights_do_not_blow_rounding_up(steps: int) -> None:
    """The error of a sum is rounding times the absolute weights; Gauss weights are positive, the embedded nearly so."""
    rule = gauss_legendre(steps)
    assert (rule.weights > 0).all()
    assert rule.embedded is not None
    assert np.abs(rule.embedded).sum() < 5


# ---- degree of exactness ------------------------------------------------------------------------------------------------


def exact_degree(rule: Rule, weights: Array, limit: int = 40) -> int:
    """The largest k such that 1, t, ..., t^k are integrated to rounding."""
    for degree in range(limit):
        if abs(integral(rule, lambda t, k=degree: t**k, weights) - 1 / (degree + 1)) > 1e-13:
            return degree - 1
    return limit


DEGREES = {"right": 0, "left": 0, "midpoint": 1, "trapezoid": 1, "simpson": 3}


@pytest.mark.parametrize("name", DEGREES)
@pytest.mark.parametrize("steps", [3, 5, 9, 21])
def test_degree_of_exactness(name: str, steps: int) -> None:
    rule = RULES[name](steps)
    assert exact_degree(rule, rule.weights) == DEGREES[name]


@pytest.mark.parametrize("steps", range(1, 9))
def test_gauss_is_exact_to_degree_2n_minus_1(steps: int) -> None:
    rule = gauss_legendre(steps)
    assert exact_degree(rule, rule.weights) == 2 * steps - 1


@pytest.mark.parametrize("steps", range(3, 12))
def test_what_is_embedded_in_gauss_interpolates(steps: int) -> None:
    """Through every other node, both ends kept: exact to at least one degree less than it has nodes, and less than Gauss."""
    rule = gauss_legendre(steps)
    assert rule.embedded is not None
    kept = int((rule.embedded != 0).sum())
    assert kept < steps
    assert kept - 1 <= exact_degree(rule, rule.embedded) < 2 * steps - 1


@pytest.mark.parametrize("level", range(0, 5))
def test_romberg_is_exact_to_degree_2l_plus_1(level: int) -> None:
    rule = romberg(level)
    assert len(rule) == 2**level + 1
    assert exact_degree(rule, rule.weights) == 2 * level + 1
    if level:
        assert rule.embedded is not None
        assert exact_degree(rule, rule.embedded) == 2 * level - 1


# ---- order of convergence -----------------------------------------------------------------------------------------------


def order(errors: list[float], steps: list[int]) -> float:
    """Minus the slope of log error against log steps, by regression."""
    return -float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


ORDERS: list[tuple[str, Callable[[int], Rule], float]] = [
    ("right", right, 1),
    ("left", left, 1),
    ("midpoint", midpoint, 2),
    ("trapezoid", trapezoid, 2),
    ("simpson", simpson, 4),
]


@pytest.mark.parametrize(("make", "expected"), [case[1:] for case in ORDERS], ids=[case[0] for case in ORDERS])
def test_order_on_a_smooth_function(make: Callable[[int], Rule], expected: float) -> None:
    """The integral of e^t is e - 1. A regression over a factor of 16 in steps, so within a few per cent of the order."""
    intervals = [8, 16, 32, 64, 128]
    steps = [n + 1 if make in (trapezoid, simpson) else n for n in intervals]
    errors = [abs(integral(make(n), np.exp) - (math.e - 1)) for n in steps]
    assert order(errors, intervals) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", ["right", "midpoint", "trapezoid", "simpson", "gauss-legendre"])
def test_order_one_on_a_kink(name: str) -> None:
    """A gradient that jumps at t = 1/e: whatever the order, the error falls like 1/n (in the mean over many n)."""
    # Fewer for Gauss, whose nodes are eigenvalues and take their time.
    sizes = range(16, 160, 2) if name == "gauss-legendre" else range(16, 400)
    intervals = np.array([n for n in sizes if name != "simpson" or n % 2])

    def step(t: Array) -> Array:
        return (t > math.exp(-1)).astype(float)

    errors = [abs(integral(RULES[name](int(n)), step) - (1 - math.exp(-1))) for n in intervals]
    blocks = np.array_split(np.arange(len(intervals)), 8)
    means = [float(np.mean([errors[i] for i in block])) for block in blocks]
    centres = [int(np.mean(intervals[block])) for block in blocks]
    # Errors go up and down with where the kink falls in its cell; block means leave some of that.
    assert order(means, centres) == pytest.approx(1, abs=0.15)


def test_gauss_converges_faster_than_any_order() -> None:
    errors = [abs(integral(gauss_legendre(n), np.exp) - (math.e - 1)) for n in (2, 4, 8)]
    assert errors[1] < 1e-3 * errors[0]
    assert errors[2] < 1e-14


def test_romberg_is_the_table_by_richardson() -> None:
    """R(i, j) = R(i, j-1) + (R(i, j-1) - R(i-1, j-1)) / (4^j - 1), from trapezoid sums, by its definition."""

    def function(t: Array) -> Array:
        return np.asarray(1 / (1 + t))

    levels = 6
    table = np.zeros((levels, levels))
    for i in range(levels):
        t = np.linspace(0, 1, 2**i + 1)
        y = function(t)
        table[i, 0] = (y[0] / 2 + y[1:-1].sum() + y[-1] / 2) / 2**i
        for j in range(1, i + 1):
            table[i, j] = table[i, j - 1] + (table[i, j - 1] - table[i - 1, j - 1]) / (4**j - 1)
        rule = romberg(i)
        assert integral(rule, function) == pytest.approx(table[i, i], abs=1e-15)
        if rule.embedded is not None:
            assert integral(rule, function, rule.embedded) == pytest.approx(table[i - 1, i - 1], abs=1e-15)
    assert table[-1, -1] == pytest.approx(math.log(2), abs=1e-10)


# ---- a rule of one's own ------------------------------------------------------------------------------------------------


def test_a_rule_of_ones_own() -> None:
    """Boole's rule, with Simpson's on every other node embedded: exact for F = x^6, whose gradient has degree 5."""
    boole = Rule("Boole", np.linspace(0, 1, 5), np.array([7, 32, 12, 32, 7]) / 90, np.array([1, 0, 4, 0, 1]) / 6)
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    result = ig.integrated_gradients(lambda z: (z**6).sum(1), x, rule=boole, tol=1e9)
    torch.testing.assert_close(result.values, x**6, rtol=1e-14, atol=0)
    assert result.certificate.only.rule == "Boole"
    # Simpson gives (4 (1/2)^5 + 1) / 6 x 6 = 9/8 of it: an eighth more, which the estimate is no less than.
    assert result.certificate.only.error >= 0.125


NODES, EVEN = np.array([0.25, 0.75]), np.array([0.5, 0.5])


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((NODES, EVEN[:1], None), "expected as many of each"),
        ((NODES[:0], EVEN[:0], None), "expected as many of each"),
        ((NODES + 1, EVEN, None), r"expected increasing times within \[0, 1\]"),
        ((NODES[::-1], EVEN, None), r"expected increasing times within \[0, 1\]"),
        ((NODES * np.nan, EVEN, None), r"expected increasing times within \[0, 1\]"),
        ((NODES, EVEN * 0.98, None), "add up to 0.98; expected 1"),
        ((NODES, EVEN, EVEN * 2), "embedded weights that add up to 2; expected 1"),
        ((NODES, EVEN, np.ones(1)), "embedded weights of shape"),
    ],
)
def test_rules_that_make_no_sense(parts: tuple[Array, Array, Array | None], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        Rule("mine", *parts)


def test_rules_cannot_be_changed() -> None:
    """They are cached and shared; and what a user hands over stays the user's."""
    with pytest.raises(ValueError, match="read-only"):
        gauss_legendre(5).weights[0] = 0
    mine = np.array([0.5, 0.5])
    rule = Rule("mine", NODES, mine, None)
    mine[:] = 7
    assert rule.weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("make", "steps", "text"),
    [(trapezoid, 1, "at least 2, its two ends"), (simpson, 4, "an odd number from 3 on"), (simpson, 1, "an odd number")],
)
def test_steps_that_a_rule_cannot_have(make: Callable[[int], Rule], steps: int, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        make(steps)
