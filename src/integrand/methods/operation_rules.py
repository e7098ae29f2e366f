"""What the methods that go back through the operations of a model share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..backends.torch_function import TorchFunction
from ..evaluation.chunks import Chunks
from ..functions.layer import uncompiled
from ..tracing.program import Program, check_at, trace
from ..trees import Leaves, flat
from .method import Problem

TRACED = 6
"""Forward passes to follow a model and to see, at three points, that its operations one by one do the same."""

Explain = Callable[[Program, Leaves, Leaves], Leaves]
"""From a program, the inputs and the baselines of some rows, to what the inputs get."""


def by_operations(problem: Problem, explain: Explain, starts: Sequence[Leaves]) -> Tensor:
    """The mean over ``starts`` of what ``explain`` gives, (examples, features) in float64."""
    function = problem.function

    def run(rows: Tensor) -> Tensor:
        points = tuple(leaf.index_select(0, rows) for leaf in function.inputs)
        program = trace(function, rows)
        total = torch.zeros((), dtype=torch.float64)
        for i, start in enumerate(starts):
            base = tuple(leaf.index_select(0, rows) for leaf in start)
            check_at(function, program, base, rows)
            if i == 0:  # once between the two: at a baseline of zero much is zero, whatever was taken for a constant
                check_at(function, program, tuple(map(_between, points, base)), rows)
            total = total + flat(explain(program, points, base)).double()
        return total / len(starts)

    if problem.chunk is None and problem.examples > 1:
        room = Chunks.start(problem.device, rows=None, memory=problem.memory).target
        problem = replace(problem, chunk=max(1, min(1024, room // _bytes_of_one(function))))
    return torch.cat([part for _, part in problem.chunked(problem.examples, run)])


def _between(point: Tensor, base: Tensor) -> Tensor:
    return torch.lerp(base, point, 0.7)


def _bytes_of_one(function: TorchFunction) -> int:
    """About what is kept of one example: everything that the model computes, at the input and at a baseline, and more."""
    counter = _Counter()
    with torch.no_grad(), uncompiled(), counter:
        try:
            function.scores(tuple(leaf[:1] for leaf in function.inputs), torch.arange(1, device=function.inputs[0].device))
        except Exception:  # a model that wants all its rows; what is wrong with that is said elsewhere
            return 1
    return 3 * counter.bytes


class _Counter(TorchDispatchMode):
    """Counts the bytes that operations give."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.bytes += sum(leaf.nbytes for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor))
        return out
