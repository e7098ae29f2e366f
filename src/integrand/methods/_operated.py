"""What the methods that go back through the operations of a model share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .._trees import Leaves, flat
from ..operations import Program, trace
from ._base import Problem

Explain = Callable[[Program, Leaves, Leaves], Leaves]
"""From a program, the inputs and the baselines of some rows, to what the inputs get."""


def by_operations(problem: Problem, explain: Explain, start: Leaves) -> Tensor:
    """What ``explain`` gives for every example, (examples, features) in float64, as many at a time as there is room for."""
    function = problem.function

    def run(rows: Tensor) -> Tensor:
        points = tuple(leaf.index_select(0, rows) for leaf in function.inputs)
        base = tuple(leaf.index_select(0, rows) for leaf in start)
        return flat(explain(trace(function, rows), points, base)).double()

    return torch.cat([part for _, part in problem.chunked(problem.examples, run)])
