"""Where on a line an operation has its kinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..tracing.backward import smallest
from ..tracing.program import Operation, Ref

Gaps = Callable[..., Sequence[Tensor]]
"""From an operation's arguments to numbers that are zero at its kinks."""

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
