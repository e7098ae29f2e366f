"""What methods with backward rules of their own (DeepLift, LRP, guided back-propagation) share: tracing in chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..backends.torch_function import TorchFunction
from ..evaluation.chunks import Chunks
from ..functions.layer import uncompiled
from ..functions.randomness import SumsRounded
from ..tracing.program import Program
from ..tracing.tracer import check_at, trace
from ..trees import Leaves, flat
from .method import Problem

TRACED = 6
"""Forward passes that tracing takes: one to trace, one at the input, whose score is known, and two each at the baseline and
in between, to compare the operations with the model."""

Explain = Callable[[Program, Leaves, Leaves], Leaves]
"""From a program, the inputs and the baselines of some rows, to the attributions of the inputs."""


def by_operations(problem: Problem, explain: Explain, starts: Sequence[Leaves]) -> Tensor:
    """Trace the model in chunks of examples and average what ``explain`` gives over ``starts``, (examples, features)."""
    function = problem.function

    def run(rows: Tensor) -> Tensor:
        points = tuple(leaf.index_select(0, rows) for leaf in function.inputs)
        program = trace(function, rows)
        total = torch.zeros((), dtype=torch.float64)
        for i, start in enumerate(starts):
            base = tuple(leaf.index_select(0, rows) for leaf in start)
            check_at(function, program, base, rows)
            if i == 0:  # also between the two: at a baseline of zero a value wrongly taken for a constant may not show
                check_at(function, program, tuple(map(_between, points, base)), rows)
            with SumsRounded(problem.rounded) if problem.rounded else nullcontext():
                total = total + flat(explain(program, points, base)).double()
        return total / len(starts)

    if problem.chunk is None and problem.examples > 1:
        room = Chunks.start(problem.device, rows=None, memory=problem.memory).target
        problem = replace(problem, chunk=max(1, min(1024, room // _bytes_of_one(function))))
    return torch.cat([part for _, part in problem.chunked(problem.examples, run)])


def _between(point: Tensor, base: Tensor) -> Tensor:
    return torch.lerp(base, point, 0.7)


def _bytes_of_one(function: TorchFunction) -> int:
    """About how many bytes one example takes: all that the model computes, at the input, at a baseline and backward."""
    counter = _Counter()
    with torch.no_grad(), uncompiled(), counter:
        try:
            function.scores(tuple(leaf[:1] for leaf in function.inputs), torch.arange(1, device=function.inputs[0].device))
        except Exception:  # a model that needs all its rows at once; other checks report what is wrong with it
            return 1
    return 3 * counter.bytes


class _Counter(TorchDispatchMode):
    """Counts the bytes of the results of all operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.bytes += sum(leaf.nbytes for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor))
        return out
