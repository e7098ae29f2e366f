"""Why a score cannot be integrated exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..backends.torch_function import TorchFunction
from ..errors import IntegrandError
from ..functions.target import Scorer, main_tensor
from ..memory import all_rows
from ..tracing.backward import Kind, kind_of
from ..tracing.program import Operation, Program, Ref, Values
from ..tracing.tracer import trace
from .region_kinks import COMPARISONS, kinked


class NotExactError(Exception):
    """Ends an attempt from within; the text is the reason. It never reaches a user: see :class:`Refusal`."""


@dataclass(frozen=True)
class Refusal:
    """An example that is left to sampling.

    Attributes:
        reason: why, in words.
    """

    reason: str


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
class PiecewiseLinearNetwork:
    """A piecewise linear program for a single row.

    Attributes:
        program: its steps, as they were followed.
        last: for each value the number of the step that uses it last.
        bytes: what each value takes in float64.
    """

    program: Program
    last: Mapping[int, int]
    bytes: Mapping[int, int]


def network(function: TorchFunction, example: int) -> PiecewiseLinearNetwork:
    """Follow the model on one example; raises where it cannot be followed, or is not piecewise linear."""
    row = torch.tensor([example], device=function.inputs[0].device)
    try:
        program = trace(function, row)
    except IntegrandError as error:
        raise NotExactError(f"the model's operations cannot be followed one by one: {error}") from error
    values = program.run(tuple(leaf.index_select(0, row) for leaf in function.inputs))
    kinds = {step.out: kind_of(step, values) for step in program.operations}
    _check(program, kinds, values)
    last = {program.result: len(program.operations)}
    for number, step in enumerate(program.operations):
        for index in step.refs:
            last[index] = max(number, last.get(index, 0))
    return PiecewiseLinearNetwork(program, last, {i: _bytes(value) for i, value in enumerate(values)})


def _bytes(value: Any) -> int:
    return sum(8 * part.numel() for part in pytree.tree_leaves(value) if isinstance(part, Tensor))


def whole_output(function: TorchFunction) -> TorchFunction:
    """The same model, with all that it gives as its score."""
    scorer = function.scorer
    outputs = Outputs(scorer.examples, scorer.batched, "logit", (), None, scorer.words)

    def run(rows: Tensor) -> Tensor:
        return outputs(function.run(tuple(leaf.index_select(0, rows) for leaf in function.inputs), rows), rows)

    with torch.no_grad():
        at_input = torch.cat(all_rows(run, function.examples, function.inputs[0].device))
    return replace(function, scorer=outputs, at_input=at_input)


def _check(program: Program, kinds: Mapping[int, Kind], values: Values) -> None:
    """Refuse the first step that is not piecewise linear in what it gets."""
    made_by = {step.out: step for step in program.operations}
    for step in program.operations:
        if not _follows(step, kinds[step.out], made_by):
            where = f" in module {step.module!r}" if step.module else ""
            raise NotExactError(f"the operation {step.name!r}{where} is not piecewise linear ({kinds[step.out].value})")
    if isinstance(values[program.result], tuple):
        raise NotExactError("the score is one of several results of one operation")


def _follows(step: Operation, kind: Kind, made_by: Mapping[int, Operation]) -> bool:
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


def widened(step: Operation) -> Operation:
    """The step in float64, constants and casts included."""

    def wide(part: Any) -> Any:
        if isinstance(part, Tensor) and part.dtype.is_floating_point:
            return part.double()
        return torch.float64 if isinstance(part, torch.dtype) and part.is_floating_point else part

    args, kwargs = pytree.tree_map(wide, (step.args, dict(step.kwargs)), is_leaf=lambda part: isinstance(part, Ref))
    return replace(step, args=args, kwargs=kwargs)


NODES = 10
"""Gauss-Legendre nodes on a stretch over which the outputs move by at most 2 against each other."""

# A sum of exponentials whose exponents move by at most 2 h against each other on a stretch of half-width h has no zero within
# pi half-widths of it: phases that spread by less than pi cannot cancel. So softmax is analytic in an ellipse of sum of axes
# pi + sqrt(pi^2 + 1) = 6.4, and the error falls like 6.4^-2n: 1e-16 at n = 10.

MOST = 1_000_000
"""Stretches beyond this are refused: probabilities of outputs that move by millions are steps."""

BLOCK = 1 << 22
"""Numbers to work on at a time."""


def scores_of(scorer: Scorer, outputs: Tensor, example: int) -> Tensor:
    """The scores (N,) of an example for outputs (N, ...)."""
    rows = torch.full((len(outputs),), example, device=outputs.device)
    return scorer([outputs] if scorer.batched else list(outputs), rows)


def seeds(scorer: Scorer, outputs: Tensor, example: int) -> Tensor:
    """The mean of dF/dz over each region, (R, ...), for outputs (R + 1, ...) at the break points."""
    start, change = outputs[:-1], outputs[1:] - outputs[:-1]
    flat = change.flatten(1)
    reach = torch.maximum(flat.amax(1), flat.new_zeros(())) - torch.minimum(flat.amin(1), flat.new_zeros(()))
    counts = (reach / 2).ceil().clamp(min=1).long().cpu().numpy()
    if counts.sum() > MOST:
        raise NotExactError(f"the outputs move by {float(reach.max()):.3g} within one linear region")
    region = np.repeat(np.arange(len(counts)), counts)
    first = np.arange(len(region)) - np.repeat(np.cumsum(counts) - counts, counts)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    places = (first[:, None] + (nodes + 1) / 2) / counts[region][:, None]  # (stretches, nodes)
    shares = np.broadcast_to(weights / 2, places.shape) / counts[region][:, None]
    out = torch.zeros_like(start)
    size = max(1, BLOCK // (NODES * max(1, flat.shape[1])))
    for begin in range(0, len(region), size):
        part = slice(begin, begin + size)
        index = torch.as_tensor(np.repeat(region[part], NODES), device=out.device)
        place, share = (torch.as_tensor(a[part].ravel(), device=out.device) for a in (places, shares))
        shape = (-1, *[1] * (start.ndim - 1))
        at = (start[index] + place.reshape(shape) * change[index]).requires_grad_(True)
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(scores_of(scorer, at, example).sum(), at)
        out.index_add_(0, index, slope * share.reshape(shape))
    return out
