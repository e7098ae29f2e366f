"""The axioms, for random networks."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import integrand as ig
from tests.networks import Case, Net, distance, networks

TOL = 1e-3
FIXED = {"steps": 8, "rule": "gauss-legendre", "tol": 1e9}
"""A fixed rule is linear in the gradients, so axioms hold for it to rounding, converged or not (hence the tolerance)."""

ROUNDING = 1e-11
"""Sums of at most 8 nodes, 12 units and 6 features in float64, with room for cancellation of a few digits."""

several = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def adaptive(model: object, case: Case) -> ig.Attribution:
    return ig.integrated_gradients(model, case.x, case.baseline, tol=TOL)  # type: ignore[arg-type]


def fixed(model: object, case: Case) -> Tensor:
    values = ig.integrated_gradients(model, case.x, case.baseline, **FIXED).values  # type: ignore[arg-type]
    assert isinstance(values, Tensor)
    return values


@given(networks(examples=3))
@several
def test_completeness(case: Case) -> None:
    """What the sum misses is at most the L1 error, which is within the tolerance; and the certificate tells it."""
    result = adaptive(case.model, case)
    change = (case.model(case.x) - case.model(case.baseline)).detach()
    missing = result.values.sum(1) - change
    size = result.values.abs().sum(1)
    assert (missing.abs() <= TOL * size + 1e-12).all()
    residual = torch.tensor([c.residual for c in result.certificate], dtype=torch.float64)
    torch.testing.assert_close(residual, missing, rtol=0, atol=1e-11 * float(size.max() + 1))
    scores = torch.tensor([[c.score, c.baseline_score] for c in result.certificate], dtype=torch.float64)
    truth = torch.stack([case.model(case.x), case.model(case.baseline)], 1).detach()
    torch.testing.assert_close(scores, truth, rtol=1e-12, atol=1e-12)


@given(networks(examples=2), st.floats(-3, 3), st.floats(-3, 3))
@several
def test_linearity(case: Case, a: float, b: float) -> None:
    other = Net(case.x.shape[1], (5,), "tanh", generator=case.generator)

    def both(x: Tensor) -> Tensor:
        return a * case.model(x) + b * other(x) + x.sum(1)  # never the zero function

    line = case.x - case.baseline
    expected = a * fixed(case.model, case) + b * fixed(other, case) + line
    scale = fixed(case.model, case).abs().sum() + fixed(other, case).abs().sum() + line.abs().sum()
    torch.testing.assert_close(fixed(both, case), expected, rtol=0, atol=ROUNDING * float(scale))

    one, two, sums = (adaptive(model, case).values for model in (case.model, other, both))
    allowed = TOL * (abs(a) * one.abs().sum(1) + abs(b) * two.abs().sum(1) + sums.abs().sum(1))
    assert ((sums - (a * one + b * two + line)).abs().sum(1) <= allowed + 1e-12).all()


@given(networks(examples=2))
@several
def test_symmetry(case: Case) -> None:
    """Two features that the function cannot tell apart, with equal values at both ends, get the same."""
    x, start = (torch.cat([part, part[:, :1]], 1) for part in (case.x, case.baseline))
    model = Net(x.shape[1], (6, 4), case.activation, generator=case.generator)
    swapped = [x.shape[1] - 1, *range(1, x.shape[1] - 1), 0]

    def symmetric(rows: Tensor) -> Tensor:
        return model(rows) + model(rows[:, swapped]) if rows.shape[1] > 1 else model(rows)

    result = ig.integrated_gradients(symmetric, x, start, tol=TOL)
    torch.testing.assert_close(result.values[:, 0], result.values[:, -1], rtol=ROUNDING, atol=ROUNDING)


@given(networks(examples=2))
@several
def test_dummy(case: Case) -> None:
    """A feature that the function does not depend on gets exactly nothing."""
    noise = torch.randn(2, 1, generator=case.generator, dtype=torch.float64)
    x, start = torch.cat([case.x, noise], 1), torch.cat([case.baseline, -noise], 1)
    result = ig.integrated_gradients(lambda rows: case.model(rows[:, :-1]), x, start, tol=TOL)
    assert (result.values[:, -1] == 0).all()
    alone = ig.integrated_gradients(case.model, case.x, case.baseline, tol=TOL)
    assert distance(result.values[:, :-1], alone.values) <= ROUNDING


def permuted(model: Net, generator: torch.Generator) -> Net:
    """The same function: units of each hidden layer in another order, ReLU units scaled up and down again."""
    out = copy.deepcopy(model)
    layers = [*out.hidden, out.head]
    for here, after in pairwise(layers):
        order = torch.randperm(here.out_features, generator=generator)
        scale = torch.rand(here.out_features, generator=generator, dtype=torch.float64) * 3 + 0.1
        here.weight.data = here.weight.data[order] * scale[:, None]
        here.bias.data = here.bias.data[order] * scale
        after.weight.data = after.weight.data[:, order] / scale
    return out


class Split(nn.Module):
    """The same function: every hidden layer as two, by an invertible matrix and its inverse."""

    def __init__(self, model: Net, generator: torch.Generator) -> None:
        super().__init__()
        self.model = model
        self.factors = []
        for layer in model.hidden:
            size = layer.out_features
            mix = torch.eye(size, dtype=torch.float64) + 0.1 * torch.randn(size, size, generator=generator, dtype=torch.float64)
            self.factors.append((mix, torch.linalg.solve(mix, layer.weight.data), torch.linalg.solve(mix, layer.bias.data)))

    def forward(self, x: Tensor) -> Tensor:
        value = x
        for mix, weight, bias in self.factors:
            value = self.model.activation((value @ weight.T + bias) @ mix.T)
        return (self.model.head(value) + self.model.skip(x))[:, 0]


@given(networks(examples=2, relu=True))
@several
def test_implementation_invariance(case: Case) -> None:
    """Equal functions, whatever their layers look like, get equal attributions: to rounding, and so within a tolerance."""
    expected, exact = fixed(case.model, case), adaptive(case.model, case).values
    for twin in (permuted(case.model, case.generator), Split(case.model, case.generator).eval()):
        # Inverses of random matrices lose some digits, and a kink may lie on the other side of a node by rounding.
        torch.testing.assert_close(twin(case.x), case.model(case.x), rtol=1e-9, atol=1e-9)
        assert distance(fixed(twin, case), expected) <= 1e-8
        assert distance(adaptive(twin, case).values, exact) <= 2 * TOL


@given(networks(examples=2, smooth=True))
@several
def test_the_path_backwards_is_the_negative(case: Case) -> None:
    """Integrating from x to x' turns every sign; nodes are symmetric, so it does to rounding."""
    there = ig.integrated_gradients(case.model, case.x, case.baseline, **FIXED)
    back = ig.integrated_gradients(case.model, case.baseline, case.x, **FIXED)
    assert distance(-back.values, there.values) <= ROUNDING


@given(networks(examples=1), st.floats(0.1, 10), st.floats(-2, 2))
@several
def test_affine_changes_of_a_feature_do_not_matter(case: Case, scale: float, shift: float) -> None:
    """Measuring a feature in another unit leaves its attribution."""
    x, start = case.x * scale + shift, case.baseline * scale + shift
    result = ig.integrated_gradients(lambda rows: case.model((rows - shift) / scale), x, start, **FIXED)
    assert distance(result.values, fixed(case.model, case)) <= 1e-9  # (x s + c - c) / s loses digits of x
