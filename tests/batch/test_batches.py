"""Inputs of about the same size go together: where the batches end."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from integrand.batch import many
from integrand.batch.many import ends_of_batches


def cost(sizes: list[float], ends: list[int]) -> float:
    """What batches cost: each as many times its largest input as it has inputs, and a call."""
    call = many.CALL * sum(sizes) / len(sizes)
    return math.fsum((end - start) * sizes[end - 1] + call for start, end in itertools.pairwise([0, *ends]))


def all_ends(count: int, most: int) -> list[list[int]]:
    """Every way to cut so many inputs into batches."""
    ways = itertools.product((False, True), repeat=count - 1)
    found = [[*(i + 1 for i, cut in enumerate(cuts) if cut), count] for cuts in ways]
    return [ends for ends in found if all(end - start <= most for start, end in itertools.pairwise([0, *ends]))]


@pytest.mark.parametrize("seed", range(20))
def test_no_other_batches_of_the_same_inputs_cost_less(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(many, "CALL", chance.choice([0.5, 1.0, 2.0, 24.0]))
    sizes = sorted(float(chance.randint(1, 30)) for _ in range(chance.randint(2, 10)))
    most = chance.randint(1, 6)
    ends = ends_of_batches(sizes, most)
    assert ends in all_ends(len(sizes), most)
    assert cost(sizes, ends) == pytest.approx(min(cost(sizes, other) for other in all_ends(len(sizes), most)))


def test_a_few_long_inputs_do_not_stretch_the_batch_of_all_others() -> None:
    sizes = [*[8.0] * 60, *[37.0] * 4]
    assert ends_of_batches(sizes, 64) == [60, 64]


def test_inputs_of_one_size_fill_their_batches() -> None:
    assert ends_of_batches([0.0] * 40, 16) == [16, 32, 40]
    assert ends_of_batches([], 16) == []
