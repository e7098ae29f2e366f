"""What is known of a model before a line is sent through it: its operations, and whether each is piecewise linear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import IntegrandError
from ..functions import Function
from ..functions._parts import in_parts
from ..functions._scores import Scorer, main_tensor
from ..operations import Kind, Program, Step, kind_of, trace
from ..operations._program import Ref, Values
from ._kinks import COMPARISONS, kinked
from ._refusal import NotExactError

TRACED = 3
"""Forward passes that it takes to follow a model and to look at what each operation gives."""


@dataclass(frozen=True)
class Outputs(Scorer):
    """All of a model's outputs instead of one score, (N, outputs)."""

    def __call__(self, outputs: Any, rows: Tensor) -> Tensor:
        """The outputs of each row, side by side."""
        return whole(outputs, batched=self.batched).flatten(1)


def whole(outputs: Any, *, batched: bool) -> Tensor:
    """The output tensor, (N, ...), of a model that was run on N rows."""
    return main_tensor(outputs[0]) if batched else torch.stack([main_tensor(raw) for raw in outputs])


@dataclass(frozen=True)
class Network:
    """A piecewise linear program for a single row.

    Attributes:
        program: its steps, as they were followed.
        last: for each value the number of the step that uses it last.
        bytes: what each value takes in float64.
    """

    program: Program
    last: Mapping[int, int]
    bytes: Mapping[int, int]


def network(function: Function, example: int) -> Network:
    """Follow the model on one example; raises where it cannot be followed, or is not piecewise linear."""
    row = torch.tensor([example], device=function.inputs[0].device)
    try:
        program = trace(function, row)
    except IntegrandError as error:
        raise NotExactError(f"the model's operations cannot be followed one by one: {error}") from error
    values = program.run(tuple(leaf.index_select(0, row) for leaf in function.inputs))
    kinds = {step.out: kind_of(step, values) for step in program.steps}
    _check(program, kinds, values)
    last = {program.result: len(program.steps)}
    for number, step in enumerate(program.steps):
        for index in step.refs:
            last[index] = max(number, last.get(index, 0))
    return Network(program, last, {i: _bytes(value) for i, value in enumerate(values)})


def _bytes(value: Any) -> int:
    return sum(8 * part.numel() for part in pytree.tree_leaves(value) if isinstance(part, Tensor))


def whole_output(function: Function) -> Function:
    """The same model, with all that it gives as its score."""
    scorer = function.scorer
    outputs = Outputs(scorer.examples, scorer.batched, "logit", (), None, scorer.words)

    def run(rows: Tensor) -> Tensor:
        return outputs(function.run(tuple(leaf.index_select(0, rows) for leaf in function.inputs), rows), rows)

    with torch.no_grad():
        at_input = torch.cat(in_parts(run, function.examples, function.inputs[0].device))
    return replace(function, scorer=outputs, at_input=at_input)


def _check(program: Program, kinds: Mapping[int, Kind], values: Values) -> None:
    """Refuse the first step that is not piecewise linear in what it gets."""
    made_by = {step.out: step for step in program.steps}
    for step in program.steps:
        if not _follows(step, kinds[step.out], made_by):
            where = f" in module {step.module!r}" if step.module else ""
            raise NotExactError(f"the operation {step.name!r}{where} is not piecewise linear ({kinds[step.out].value})")
    if isinstance(values[program.result], tuple):
        raise NotExactError("the score is one of several results of one operation")


def _follows(step: Step, kind: Kind, made_by: Mapping[int, Step]) -> bool:
    """Whether a step is piecewise linear; comparisons are, where all that is asked of them is to choose."""
    sources = {i: made_by[i].name for i in step.refs if i in made_by}
    compared = [i for i, name in sources.items() if name in COMPARISONS]
    if step.picks:
        parent = made_by[step.args[0].index]
        return step.args[1] == 0 or not kinked(parent)  # not the place of a maximum
    if kind is Kind.CHOICE:  # by the comparison, and not among the comparisons
        chooser = {"where": 0, "masked_fill": 1}.get(step.name)
        return chooser is not None and compared == [getattr(step.args[chooser], "index", None)]
    if compared:
        return False
    return kind in (Kind.MOVE, Kind.LINEAR) or step.name == "detach" or kinked(step)


def widened(step: Step) -> Step:
    """The step in float64, constants and casts included."""

    def wide(part: Any) -> Any:
        if isinstance(part, Tensor) and part.dtype.is_floating_point:
            return part.double()
        return torch.float64 if isinstance(part, torch.dtype) and part.is_floating_point else part

    args, kwargs = pytree.tree_map(wide, (step.args, dict(step.kwargs)), is_leaf=lambda part: isinstance(part, Ref))
    return replace(step, args=args, kwargs=kwargs)
