"""The positive and the negative contributions to a sum, and handing back to each its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ._fuse import Sum
from ._kinds import factors, has_factors
from ._program import Ref, Step
from ._sweep import vjp

Points = Mapping[int, Tensor]
"""The arguments of a step, by index."""


def points_of(step: Step, values: Any) -> dict[int, Tensor]:
    """The arguments of a step, by index."""
    return {i: values[i] for i in step.refs}


def without_constant(step: Step) -> Step:
    """A linear step with its bias, or any other constant that it adds, left out."""
    if isinstance(step.function, Sum):
        return replace(step, function=step.function.without_constant())
    if step.name == "convolution":
        return replace(step, args=(*step.args[:2], None, *step.args[3:]))
    if step.name == "linear":
        return replace(step, args=step.args[:2])
    if step.name == "addmm" and not isinstance(step.args[0], Ref):
        return replace(step, name="mm", function=torch.ops.aten.mm.default, args=step.args[1:3], kwargs={})
    if step.name in ("add", "sub", "rsub", "where"):
        first = 1 if step.name == "where" else 0
        return replace(step, args=(*step.args[:first], *map(_zero, step.args[first:])))
    if step.name == "masked_fill" and isinstance(step.args[0], Ref):
        return replace(step, args=(*step.args[:2], _zero(step.args[2])))
    return step


def _zero(arg: Any) -> Any:
    if isinstance(arg, Ref):
        return arg
    return torch.zeros_like(arg) if isinstance(arg, Tensor) else 0


def constant_of(step: Step, points: Points) -> Tensor:
    """What a linear step adds whatever its arguments are: its value at zero."""
    with torch.no_grad():
        out: Tensor = step({i: torch.zeros_like(p) for i, p in points.items()})
    return out


def signed_parts(step: Step, points: Points) -> tuple[Tensor, Tensor]:
    """The sums of the positive and of the negative contributions to a linear step, without its constant."""
    positive, negative = torch.zeros(()), torch.zeros(())
    with torch.no_grad():
        for half, keeps in _halves(without_constant(step), points):
            above = half({i: p.clamp(min=0) for i, p in points.items()})
            below = half({i: p.clamp(max=0) for i, p in points.items()})
            positive, negative = positive + (above if keeps else below), negative + (below if keeps else above)
    return positive, negative


def hand_signed(step: Step, points: Points, to_positive: Tensor, to_negative: Tensor) -> list[tuple[int, Tensor]]:
    """Hand back one thing along positive contributions and another along negative ones.

    Returns:
        For each argument the sum over outputs of weight times what came along, chosen by the sign of weight times
        argument; multiplied by the argument, that is what its contributions get.
    """
    found: dict[int, Tensor] = {}
    for half, keeps in _halves(without_constant(step), points):
        above, below = (to_positive, to_negative) if keeps else (to_negative, to_positive)
        from_above, from_below = (dict(vjp(half, points, seed)) for seed in (above, below))
        for i, seed in from_above.items():
            part = torch.where(points[i] >= 0, seed, from_below[i])
            found[i] = part if i not in found else found[i] + part
    return list(found.items())


def _halves(step: Step, points: Points) -> list[tuple[Step, bool]]:
    """The step in parts whose weights all have one sign, each with whether that sign is plus."""
    if step.name in ("add", "sub", "rsub"):
        return _terms(step, points)
    if step.name == "neg":
        return [(step, False)]
    if not has_factors(step):
        return [(step, True)]  # sums, means, pools, moves: no weight is negative
    if step.name == "addmm" and isinstance(step.args[0], Ref):
        product = replace(step, name="mm", function=torch.ops.aten.mm.default, args=step.args[1:3], kwargs={})
        empty = [torch.zeros_like(points[a.index] if isinstance(a, Ref) else a) for a in step.args[1:3]]
        return [(replace(step, args=(step.args[0], *empty)), True), *(_halves(product, points) if product.refs else [])]
    place = next(i for i in factors(step) if not isinstance(step.args[i], Ref))
    weight = step.args[place]
    if not isinstance(weight, Tensor):
        return [(step, weight >= 0)]
    if step.name == "div":
        step, weight = replace(step, name="mul", function=torch.ops.aten.mul.Tensor), 1 / weight
    halves = ((weight.clamp(min=0), True), (weight.clamp(max=0), False))
    return [(replace(step, args=(*step.args[:place], half, *step.args[place + 1 :])), keeps) for half, keeps in halves]


def _terms(step: Step, points: Points) -> list[tuple[Step, bool]]:
    """The terms of a sum or difference of two arguments, one by one."""
    factor = float(step.kwargs.get("alpha", step.args[2] if len(step.args) > 2 else 1))
    signs = {"add": (1.0, factor), "sub": (1.0, -factor), "rsub": (-factor, 1.0)}[step.name]
    terms = []
    for place, sign in enumerate(signs):
        other = step.args[1 - place]
        if isinstance(step.args[place], Ref):
            # Zeros of the other's shape, so that the term has the shape of the sum.
            empty = torch.zeros_like(points[other.index]) if isinstance(other, Ref) else _zero(other)
            args = (*step.args[:1], empty, *step.args[2:]) if place == 0 else (empty, *step.args[1:])
            terms.append((replace(step, args=args), sign >= 0))
    return terms
