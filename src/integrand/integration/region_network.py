"""A model whose operations are piecewise linear: what is known of it before a line is sent through, and where its kinks are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
from ..tracing.backward import Kind, kind_of, smallest
from ..tracing.program import Operation, Program, Ref, Values
from ..tracing.tracer import trace
from ..trees import add_rows, on_device


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
        return whole(outputs, batched=self.batched).reshape(len(rows), -1)


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
        epsilon: the precision that the model itself computes in.
    """

    program: Program
    last: Mapping[int, int]
    bytes: Mapping[int, int]
    epsilon: float


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
    epsilon = float(torch.finfo(function.inputs[0].dtype).eps)
    return PiecewiseLinearNetwork(program, last, {i: _bytes(value) for i, value in enumerate(values)}, epsilon)


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
        index = on_device(np.repeat(region[part], NODES), out.device)
        place, share = (on_device(a[part].ravel(), out.device) for a in (places, shares))
        shape = (-1, *[1] * (start.ndim - 1))
        at = (start[index] + place.reshape(shape) * change[index]).requires_grad_(True)
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(scores_of(scorer, at, example).sum(), at)
        add_rows(out, index, slope * share.reshape(shape))
    return out


Gaps = Callable[..., Sequence[Tensor]]
"""From an operation's arguments to numbers that are zero at its kinks."""

NEXT_TO = 4
"""Roundings of the largest number around within which a unit is next to its kink: long sums are off by as much."""

COMPARISONS = frozenset("gt ge lt le".split())
"""Comparisons: what they choose between may meet, or not, where the two sides are equal."""

_POOLS = {"max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3, "adaptive_max_pool2d": 2, "adaptive_max_pool3d": 3}
"""Pools, with the number of dimensions that their windows have."""

_REDUCTIONS = frozenset("max min amax amin".split())


def _at_zero(x: Tensor, *_: Any, **__: Any) -> Sequence[Tensor]:
    return (x,)


def _bounds(x: Tensor, low: Any = None, high: Any = None, **named: Any) -> Sequence[Tensor]:
    low, high = named.get("min", low), named.get("max", high)
    return [x - bound for bound in (low, high) if bound is not None]


def _hardtanh(x: Tensor, low: float = -1, high: float = 1, **named: Any) -> Sequence[Tensor]:
    return (x - named.get("min_val", low), x - named.get("max_val", high))


def _both_sides(x: Tensor, at: float = 0.5, **_: Any) -> Sequence[Tensor]:
    return (x - at, x + at)


_OF_ONE: dict[str, Gaps] = {
    **dict.fromkeys("relu leaky_relu abs _prelu_kernel".split(), _at_zero),
    "relu6": lambda x: (x, x - 6),
    "hardtanh": _hardtanh,
    "softshrink": _both_sides,
    "threshold": lambda x, at, _: (x - at,),
}
"""Functions of one number, with constant parameters."""

_OF_TWO: dict[str, Gaps] = {
    **dict.fromkeys("maximum minimum fmax fmin clamp_min clamp_max gt ge lt le".split(), lambda a, b: (a - b,)),
    "clamp": _bounds,
}
"""Functions whose other argument, or bounds, may depend on the input too."""

_GAPS = _OF_ONE | _OF_TWO


def kinked(step: Operation) -> bool:
    """Whether a step is known to be linear but for kinks that can be found."""
    if step.name in _OF_TWO:
        return True
    return isinstance(step.args[0], Ref) and len(step.refs) == 1 and step.name in {*_OF_ONE, *_POOLS, *_REDUCTIONS}


def shares(step: Operation, values: dict[int, Any], run: Callable[..., Any]) -> list[tuple[Tensor, Tensor]]:
    """The kinks of a step on a line of P points.

    Args:
        step: the operation.
        values: its arguments at the points, (P, ...) each.
        run: runs a function of a step's arguments at every point.

    Returns:
        Pairs: which stretches, out of P - 1, and at which shares of them there are kinks.
    """
    if step.name in _GAPS:
        return [_crossings(gap[:-1], -gap[1:]) for gap in run(step, values, _GAPS[step.name])]
    return [_overtaken(step, values[step.args[0].index], run, values)]


def undecided(step: Operation, values: dict[int, Any], run: Callable[..., Any], epsilon: float) -> Tensor | None:
    """On which stretches, (P - 1,), rounding decides on which side of its kink a unit of a step is.

    In the middle of such a stretch a unit is next to its kink, so that the model, in its own precision, may see it on the other
    side; the score does not tell, for it hardly changes. A unit that is exactly zero is so in any precision.

    Args:
        step: the operation.
        values: its arguments at the points, (P, ...) each.
        run: runs a function of a step's arguments at every point.
        epsilon: the model's precision.
    """
    out: Tensor | None = None
    for gap in run(step, values, _GAPS[step.name]) if step.name in _GAPS else ():
        middle, scale = ((gap[:-1] + gap[1:]) / 2).flatten(1), gap.abs().amax()
        near = ((middle.abs() <= NEXT_TO * epsilon * scale) & (middle != 0)).any(1)
        out = near if out is None else out | near
    return out


def _crossings(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Where numbers of one sign before, and of the other after (turned round), are zero in between, (P - 1, ...) each."""
    crossed = ((before > 0) & (after > 0)) | ((before < 0) & (after < 0))
    place = crossed.nonzero(as_tuple=True)
    a, b = before[place], after[place]
    return place[0], a / (a + b)


def _overtaken(step: Operation, x: Tensor, run: Callable[..., Any], values: dict[int, Any]) -> tuple[Tensor, Tensor]:
    """Where the largest at one end of a stretch meets the largest at its other end.

    Another may be larger than both there: then the point, once it is on the line, shows that, and one asks again.
    """
    x, index = (_windows if step.name in _POOLS else _groups)(step, x, run, values)
    if smallest(step):
        x = -x
    top = x.gather(-1, index)
    ahead = top[:-1] - x[:-1].gather(-1, index[1:])
    behind = top[1:] - x[1:].gather(-1, index[:-1])
    return _crossings(ahead.clamp(min=0), behind.clamp(min=0))


def _windows(step: Operation, x: Tensor, run: Callable[..., Any], values: dict[int, Any]) -> tuple[Tensor, Tensor]:
    """The planes of a pool's input, (P, ..., places), and the place of the largest in each window, (P, ..., windows)."""
    dims = _POOLS[step.name]
    index = run(step, values)[1]
    return x.flatten(-dims), index.flatten(-dims)


def _groups(step: Operation, x: Tensor, run: Callable[..., Any], values: dict[int, Any]) -> tuple[Tensor, Tensor]:
    """The numbers that a maximum is taken over, (P, groups, numbers), and the place of the largest, (P, groups, 1)."""
    dims: Any = step.args[1] if len(step.args) > 1 else step.kwargs.get("dim", ())
    inner = x.ndim - 1
    taken = sorted({d % inner for d in ([dims] if isinstance(dims, int) else dims)} or range(inner)) if inner else []
    moved = x.movedim([d + 1 for d in taken], list(range(x.ndim - len(taken), x.ndim)))
    moved = moved.reshape(len(x), -1, math.prod(x.shape[d + 1] for d in taken))
    best = moved.argmin if smallest(step) else moved.argmax
    return moved, best(-1, keepdim=True)
