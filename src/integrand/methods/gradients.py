"""The gradient at the input, alone and times the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..evaluation.runner import Runner
from ..trees import flat
from .method import Found, Method, Problem

SATURATES = "a score that has levelled off at x has gradient zero, whatever led there"


@final
@dataclass(frozen=True)
class Gradient(Method):
    """The gradient of the score at the input: how the score would change, not what it is made of (Baehrens; Simonyan)."""

    name: ClassVar[str] = "gradient"
    promises: ClassVar[tuple[Promise, ...]] = promised(completeness="slopes do not add up to a score", sensitivity_a=SATURATES)

    def attribute(self, problem: Problem) -> Attribution:
        """One gradient for each example."""
        return problem.dress(Found(gradient(problem), self.promises, gradients=1, compares=False))


@final
@dataclass(frozen=True)
class GradientTimesInput(Method):
    """The gradient at the input times the input."""

    name: ClassVar[str] = "gradient x input"
    promises: ClassVar[tuple[Promise, ...]] = promised(
        completeness="adds up only where the score is linear through zero", sensitivity_a=SATURATES
    )

    def attribute(self, problem: Problem) -> Attribution:
        """One gradient for each example."""
        values = gradient(problem) * flat(problem.function.inputs).double()
        return problem.dress(Found(values, self.promises, gradients=1, compares=False))


def gradient(problem: Problem) -> Tensor:
    """The gradient at the input, (examples, features) in float64."""
    inputs, runner = problem.function.inputs, Runner(problem.function, graphs=False)

    def run(rows: Tensor) -> Tensor:
        points = tuple(leaf.index_select(0, rows).detach() for leaf in inputs)
        return flat(runner(points, rows)[1]).double()

    return torch.cat([part for _, part in problem.chunked(problem.examples, run)])
