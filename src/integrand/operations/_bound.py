"""Programs whose rows are still open: for which examples they run is said later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ._program import Program, Ref, Step


def bound(program: Program, index: int, value: Tensor) -> Program:
    """The program with the input ``index`` set to ``value``: what depends on nothing else becomes a constant."""
    known: dict[int, Any] = {index: value}
    steps: list[Step] = []
    for step in program.steps:
        refs = step.refs
        there = [i in known for i in refs]
        if all(there):
            known[step.out] = step(known)
        elif any(there):
            parts = pytree.tree_map_only(Ref, lambda ref: known.get(ref.index, ref), (step.args, dict(step.kwargs)))
            steps.append(replace(step, args=parts[0], kwargs=parts[1]))
        else:
            steps.append(step)
    return Program(program.inputs, steps, program.result)
