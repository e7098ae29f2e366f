"""Slopes between two points, operation by operation: what discrete gradients are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from ._program import Step, Values
from ._sweep import Handed, vjp


def secant(step: Step, here: Values, there: Values) -> Tensor:
    """The slope of a pointwise step between two values, in the shape of its output; the derivative where they are equal."""
    index = step.refs[0]
    a, b, out, was = here[index], there[index], here[step.out], there[step.out]
    change, rise = a - b, out - was
    eps = torch.finfo(out.dtype).eps
    near = change.abs() <= eps**0.5 * torch.maximum(a.abs(), b.abs())
    middle = torch.where(near, (a + b) / 2, a)
    found = vjp(step, {index: middle.expand(out.shape)}, torch.ones_like(out))
    slope = found[0][1] if found else torch.zeros_like(out)
    # Near each other, the derivative has more digits than a difference of rounded values: unless there is a kink between.
    agrees = (slope * change - rise).abs() <= 16 * eps * torch.maximum(out.abs(), was.abs())
    derived = (change == 0) | (near & agrees)
    slopes = torch.where(derived, slope, rise / torch.where(change == 0, 1, change))
    # Not finite: masked scores, -inf at both ends; sqrt at 0.
    return torch.where(change.isfinite() & slopes.isfinite(), slopes, 0)


def product(step: Step, here: Values, there: Values, arrived: Tensor) -> Handed:
    """Ab - a'b' = (a - a') mean(b, b') + (b - b') mean(a, a'), for every product that is linear in both."""
    middle = {i: (here[i] + there[i]) / 2 if here[i].dtype.is_floating_point else here[i] for i in step.refs}
    if step.name != "div":
        return vjp(step, middle, arrived)
    above, below = step.args[0].index, step.args[1].index
    inverse = (1 / here[below] + 1 / there[below]) / 2
    # 1/b - 1/b' = -(b - b') / (b b')
    return [
        (above, (arrived * inverse).sum_to_size(middle[above].shape)),
        (below, (-arrived * middle[above] / (here[below] * there[below])).sum_to_size(middle[below].shape)),
    ]
