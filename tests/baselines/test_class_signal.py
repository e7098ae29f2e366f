"""The warning for a baseline that has the explained class already: both sides of the rule."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from integrand import integrated_gradients
from integrand.baselines.class_signal import head_start
from integrand.errors import BaselineWarning


def softmaxed(classes: int) -> Callable[[Tensor], Tensor]:
    """A model of one feature whose first class has probability x."""

    def model(x: Tensor) -> Tensor:
        p = x[:, 0].clamp(1e-6, 1 - 1e-6)
        return torch.stack([p.log(), *[((1 - p) / (classes - 1)).log()] * (classes - 1)], 1)

    return model


CASES = [
    # classes, p(x), p(x'), whether it is high: more than half of the rise above chance, and a quarter of the way to certainty
    (1000, 0.9, 0.001, False),
    (1000, 0.9, 0.44, False),
    (1000, 0.9, 0.46, True),
    (1000, 0.9, 0.95, True),
    (1000, 0.3, 0.24, False),
    (1000, 0.3, 0.26, True),
    (1000, 0.01, 0.3, True),
    (2, 0.9, 0.5, False),
    (2, 0.9, 0.69, False),
    (2, 0.9, 0.71, True),
    (2, 0.52, 0.62, False),
    (2, 0.52, 0.63, True),
    (2, 0.3, 0.5, False),
    (2, 0.3, 0.7, True),
    (3, 0.9, 0.4, False),
    (3, 0.55, 0.45, False),
    (3, 0.9, 0.65, True),
]


@pytest.mark.parametrize(("classes", "here", "base", "high"), CASES)
@pytest.mark.parametrize("score", ["probability", "log-probability", "logit"])
def test_the_rule(classes: int, here: float, base: float, high: bool, score: str) -> None:
    x, baseline = torch.tensor([[here]], dtype=torch.float64), torch.tensor([[base]], dtype=torch.float64)

    def run() -> None:
        integrated_gradients(softmaxed(classes), x, baseline, target=0, score=score)  # type: ignore[arg-type]

    if high and score != "logit":
        with pytest.warns(BaselineWarning, match=r"baselines\.diagnose"):
            run()
    else:
        run()  # a warning would be an error


@pytest.mark.parametrize(
    ("here", "base", "high"), [(0.9, 0.5, False), (0.9, 0.8, True), (0.1, 0.5, False), (0.1, 0.2, True), (0.1, 0.9, False)]
)
@pytest.mark.parametrize("batched", [True, False])
def test_a_single_output_stands_for_two_classes(here: float, base: float, high: bool, batched: bool) -> None:
    """What is explained is the class that x belongs to; the other one at the baseline is what it is told apart from."""
    x, start = (torch.tensor([math.log(p / (1 - p))], dtype=torch.float64) for p in (here, base))

    def run() -> None:
        integrated_gradients(
            lambda v: v[..., 0], x[None] if batched else x, start, score="probability", batched=batched, tol=1e-4
        )

    if high:
        with pytest.warns(BaselineWarning, match="1 of 1 example"):
            run()
    else:
        run()


def test_the_mean_over_baselines_counts() -> None:
    x = torch.tensor([[0.9]], dtype=torch.float64)
    low, high = x * 0 + 0.01, x * 0 + 0.8
    for score in ("probability", "log-probability"):
        integrated_gradients(softmaxed(10), x, [low, low, high], target=0, score=score)
        with pytest.warns(BaselineWarning, match="0.54 at the baseline of example 0 and 0.9 at the input"):
            integrated_gradients(softmaxed(10), x, [low, high, high], target=0, score=score)


def test_it_names_the_first_example_that_is_high() -> None:
    x = torch.tensor([[0.9], [0.8], [0.9]], dtype=torch.float64)
    starts = torch.tensor([[0.1], [0.7], [0.75]], dtype=torch.float64)
    with pytest.warns(BaselineWarning, match=r"2 of 3 example\(s\): its probability is 0.7 at the baseline of example 1"):
        integrated_gradients(softmaxed(4), x, starts, target=0, score="probability")


def test_an_output_with_positions_has_as_many_classes_as_its_last_dimension() -> None:
    """With two positions of two classes, a half is chance."""

    def model(x: Tensor) -> Tensor:
        return torch.stack([softmaxed(2)(x), softmaxed(2)(x)], 1)

    x = torch.tensor([[0.9]], dtype=torch.float64)
    integrated_gradients(model, x, 0.5, target=(1, 0), score="probability")
    with pytest.warns(BaselineWarning, match=r"near chance \(0.5\)"):
        integrated_gradients(model, x, 0.8, target=(1, 0), score="probability")


def test_nothing_is_evaluated_for_it_where_the_baseline_is_low() -> None:
    rows = []

    def model(x: Tensor) -> Tensor:
        rows.append(len(x))
        return softmaxed(5)(x)

    x = torch.tensor([[0.9]], dtype=torch.float64)
    example = integrated_gradients(model, x, 0.1, target=0, score="probability", steps=6, tol=1.0).certificate[0]
    counted = sum(rows)
    rows.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = integrated_gradients(model, x, 0.8, target=0, score="probability", steps=6, tol=1.0).certificate[0]
    assert example.gradients == other.gradients
    assert sum(rows) - counted in (0, 1)


@pytest.mark.parametrize("chance", [0.5, 0.1, 0.001])
def test_a_head_start_is_zero_at_chance_and_one_at_x(chance: float) -> None:
    assert head_start(chance, 0.9, chance) == 0
    assert head_start(chance / 2, 0.9, chance) == 0
    assert head_start(0.9, 0.9, chance) == 1
    assert head_start((chance + 0.9) / 2, 0.9, chance) == pytest.approx(0.5)
