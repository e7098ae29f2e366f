"""A model that answers differently each time is refused, early and by its name; one that does not is never called random."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import integrand as ig
from integrand import integrated_gradients
from integrand.errors import RandomnessError
from integrand.functions.randomness import InFloat64
from tests.by_hand import X, net, squares

WEIGHT = torch.tensor([1.0, -2.0, 0.5])

WAYS = {"to a tolerance": {}, "steps": {"steps": 20}}


def dropout(p: float):
    return lambda x: F.dropout(x, p, training=True) @ WEIGHT


# Random


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_that_is_always_on(p, options):
    """With three features, two calls agree by chance in most cases: for p = 0.1 in 55 of 100."""
    for seed in range(10):
        torch.manual_seed(seed)
        with pytest.raises(RandomnessError, match=r"two identical calls give .* for example 0; expected the same score"):
            integrated_gradients(dropout(p), X[:1], max_evaluations=100, **options)


def test_it_is_said_before_anything_is_integrated():
    with_gradient = 0

    def model(x: Tensor) -> Tensor:
        nonlocal with_gradient
        with_gradient += x.requires_grad and len(x) > 1
        return dropout(0.3)(x)

    with pytest.raises(RandomnessError):
        integrated_gradients(model, X[:1])
    assert not with_gradient


GENERATORS = {
    "torch": lambda: torch.rand(()).item(),
    "numpy": np.random.random,
    "python": random.random,
}


@pytest.mark.parametrize("draw", GENERATORS.values(), ids=GENERATORS.keys())
def test_one_call_in_five_is_different(draw):
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    with pytest.raises(RandomnessError):
        integrated_gradients(lambda x: squares(x) * (1 + (draw() < 0.2)), X)


class Holds(nn.Module):
    """Dropout by a generator of its own."""

    def __init__(self, draw, generator) -> None:
        super().__init__()
        self.draw, self.generator = draw, generator

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.as_tensor(self.draw(self.generator, x), dtype=torch.float32) > 0.1
        return (x * kept) @ WEIGHT


OWN = {
    "torch": (lambda g, x: torch.rand(x.shape, generator=g), lambda seed: torch.Generator().manual_seed(seed)),
    "numpy": (lambda g, x: g.random(x.shape), np.random.default_rng),
    "numpy's old one": (lambda g, x: g.random_sample(x.shape), np.random.RandomState),
    "python": (lambda g, x: [[g.random() for _ in row] for row in x], random.Random),
}


@pytest.mark.parametrize(("draw", "make"), OWN.values(), ids=OWN.keys())
@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: nn.Sequential(m), lambda m: lambda x: m(x), lambda m: m.forward])
def test_a_generator_that_the_model_holds(draw, make, wrap):
    for seed in range(3):
        with pytest.raises(RandomnessError):
            integrated_gradients(wrap(Holds(draw, make(seed))), X[:1], max_evaluations=100)


def test_a_generator_that_cannot_be_seen():
    """That the tolerance was missed gives it away, and not as a spent budget."""
    seeds = iter(range(10**6))

    def model(x: Tensor) -> Tensor:
        made = torch.Generator().manual_seed(next(seeds))
        return (x * (torch.rand(x.shape, generator=made) > 0.1)).sin() @ WEIGHT

    for _ in range(5):
        with pytest.raises(RandomnessError):
            integrated_gradients(model, X[:1], max_evaluations=200)


def test_a_probability_that_is_one_at_the_input():
    """There, noise of the logits does not show; on the way to it, it does."""
    x = torch.full((1, 3), 30.0)

    def model(x: Tensor) -> Tensor:
        return torch.stack([x.sum(1), -x.sum(1)], 1) + 40 * torch.randn(len(x), 2) * (x.sum(1, keepdim=True) < 50)

    assert float(model(x).softmax(1)[0, 0]) == 1.0
    with pytest.raises(RandomnessError):
        integrated_gradients(model, x, target=0, score="probability")


@pytest.mark.parametrize("method", [ig.methods.GradientTimesInput(), ig.methods.Shapley(), ig.methods.SmoothGrad()])
def test_other_methods(method):
    with pytest.raises(RandomnessError):
        method(dropout(0.1), X[:1])


def test_other_calls():
    for call in (
        lambda: ig.path_attribution(dropout(0.1), ig.Straight(torch.zeros(1, 3), X[:1])),
        lambda: ig.integrated_hessians(dropout(0.1), X[:1]),
        lambda: integrated_gradients(nn.Sequential(nn.Linear(3, 2), Always(), nn.Linear(2, 1)).eval(), X[:1], layer="0"),
    ):
        with pytest.raises(RandomnessError):
            call()


class Always(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, training=True)


# What the message advises works


class Advised(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, training=self.training) @ WEIGHT


def test_the_advice():
    torch.testing.assert_close(integrated_gradients(Advised().eval(), X).values, X * WEIGHT)
    noise = torch.bernoulli(torch.full((3,), 0.5), generator=torch.Generator().manual_seed(0)) * 2
    found = integrated_gradients(lambda x, noise: x * noise @ WEIGHT, X, kwargs={"noise": noise})
    torch.testing.assert_close(found.values, X * noise * WEIGHT)


# Not random


def test_seeded_in_each_call():
    """Row by row, the same noise each time."""
    calls = 0

    def model(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        torch.manual_seed(0)
        return F.dropout(x, 0.5, training=True) @ WEIGHT

    torch.manual_seed(0)
    noise = F.dropout(torch.ones(3), 0.5, training=True)
    found = integrated_gradients(model, X[0], batched=False, steps=4, tol=1.0)
    torch.testing.assert_close(found.values, X[0] * noise * WEIGHT)
    assert calls < 20


def test_draws_that_the_score_does_not_use():
    found = integrated_gradients(lambda x: squares(x) + 0 * torch.rand(len(x)), X)
    torch.testing.assert_close(found.values, X**2)
    found = integrated_gradients(lambda x: torch.stack([squares(x), torch.rand(len(x))], 1), X, target=0)
    torch.testing.assert_close(found.values, X**2)


def test_the_last_digit_from_call_to_call():
    """As on a GPU, where sums are taken in no fixed order; such a model may draw random numbers besides."""
    calls = 0

    def model(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        torch.rand(1)
        order = torch.randperm(40, generator=torch.Generator().manual_seed(calls)).tolist()
        terms = [x.sum(1) * sign * 1e4 * (j + 1.3) for sign in (1, -1) for j in range(20)]
        total = x.sum(1)
        for j in order:
            total = total + terms[j]
        return total.tanh()

    x = torch.tensor([[0.1, 0.2, 0.3]])
    with torch.no_grad():
        seen = {float(model(x)) for _ in range(16)}
    assert max(seen) - min(seen) > 4e3 * torch.finfo(torch.float32).eps * max(seen)  # far more than a rounding of the score
    found = integrated_gradients(model, x, steps=3, tol=1e9)
    assert found.certificate[0].score == pytest.approx(float(np.tanh(0.6)), abs=0.1)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_ordinary_models_are_called_no_more_often_than_before(rows):
    model, calls = net(), []
    x = torch.linspace(-1, 1, 3 * rows).reshape(rows, 3)
    integrated_gradients(lambda v: (calls.append(v.requires_grad), model(v))[1], x, target=0, steps=8, tol=1e9)
    assert calls.count(False) == 2  # the first look at the input, and both ends of the path


def test_the_random_state_is_that_of_before():
    before = torch.get_rng_state()
    with pytest.raises(RandomnessError):
        integrated_gradients(dropout(0.1), X[:1])
    assert torch.equal(torch.get_rng_state(), before)


# In float64


def test_everything_is_computed_in_float64():
    model = nn.Sequential(
        nn.Conv1d(3, 4, 3, padding=1),
        nn.BatchNorm1d(4),
        nn.GELU(),
        nn.Flatten(),
        nn.LayerNorm(20),
        nn.Linear(20, 5),
        nn.Softmax(1),
    ).eval()
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), InFloat64():
        found = model(x)
    expected = model.double()(x.double())
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-14)


def test_casts_and_writes_in_float64():
    def model(x: Tensor) -> Tensor:
        out = torch.zeros(len(x), 2)
        out[:, 0] = x.half().float().sum(1) + 1 / 3
        out[:, 1] = torch.full((len(x),), 1.0, dtype=torch.bfloat16) / 3
        return out

    x = torch.tensor([[1 / 7, 2 / 7]], dtype=torch.float64)
    with torch.no_grad(), InFloat64():
        found = model(x)
    torch.testing.assert_close(found, torch.tensor([[3 / 7 + 1 / 3, 1 / 3]], dtype=torch.float64), rtol=1e-15, atol=0)
