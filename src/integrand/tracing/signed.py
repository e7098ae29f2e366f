"""The positive and the negative contributions to a sum, and handing back to each its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .kinds import BARE, factors, has_factors
from .program import Operation, Ref
from .rewriting import FusedSum, less
from .sweep import vjp

Points = Mapping[int, Tensor]
"""The arguments of a step, by index."""

NUMBER_BY_NUMBER = frozenset("add sub rsub neg mul div where masked_fill _to_copy to".split()) | {"sum of terms"}
"""Linear steps that add up numbers at the same place, each with a factor of either sign."""

_HOLD_CONSTANTS = frozenset(
    (
        "cat stack constant_pad_nd pad index_put scatter scatter_add select_scatter slice_scatter index_add index_copy copy "
        "index_fill"
    ).split()
)
"""Steps that may put constants between what they move."""


def points_of(step: Operation, values: Any) -> dict[int, Tensor]:
    """The arguments of a step, by index."""
    return {i: values[i] for i in step.refs}


class Bare:
    """A linear step without what it gives at zero."""

    def __init__(self, step: Operation) -> None:
        self.step = step

    def __call__(self, *points: Tensor) -> Tensor:
        """The linear part of the operation at given values of its references."""
        refs = self.step.refs
        out: Tensor = self.step(dict(zip(refs, points, strict=True)))
        return less(out, constant_of(self.step, dict(zip(refs, points, strict=True))))


def without_constant(step: Operation) -> Operation:
    """A linear step with its bias, or any other constant that it adds, left out."""
    if isinstance(step.function, FusedSum):
        return replace(step, function=step.function.without_constant())
    if step.name == "convolution":
        return replace(step, args=(*step.args[:2], None, *step.args[3:]))
    if step.name == "linear":
        return replace(step, args=step.args[:2])
    if step.name in BARE and not isinstance(step.args[0], Ref):
        return _product(step)
    if step.name in ("add", "sub", "rsub"):
        return replace(step, args=(*map(_zero, step.args[:2]), *step.args[2:]))
    if step.name == "where":
        return replace(step, args=(step.args[0], *map(_zero, step.args[1:])))
    if step.name == "masked_fill" and isinstance(step.args[0], Ref):
        return replace(step, args=(*step.args[:2], _zero(step.args[2])))
    if step.name in _HOLD_CONSTANTS:
        return replace(step, function=Bare(step), args=tuple(map(Ref, step.refs)), kwargs={})
    return step


def _product(step: Operation) -> Operation:
    name = BARE[step.name]
    return replace(step, name=name, function=getattr(torch.ops.aten, name).default, args=step.args[1:3], kwargs={})


def _zero(arg: Any) -> Any:
    if isinstance(arg, Ref):
        return arg
    return torch.zeros_like(arg) if isinstance(arg, Tensor) else 0


def constant_of(step: Operation, points: Points) -> Tensor:
    """What a linear step adds whatever its arguments are: its value at zero."""
    with torch.no_grad():
        out: Tensor = step({i: torch.zeros_like(p) for i, p in points.items()})
    return out


def signed_parts(step: Operation, points: Points) -> tuple[Tensor, Tensor]:
    """The sums of the positive and of the negative contributions to a linear step, without its constant."""
    positive, negative = torch.zeros(()), torch.zeros(())
    bare = without_constant(step)
    with torch.no_grad():
        if step.name in NUMBER_BY_NUMBER:
            for term in _terms(bare, points).values():
                positive, negative = positive + term.clamp(min=0), negative + term.clamp(max=0)
            return positive, negative
        for half, keeps in _halves(bare, points):
            above = half({i: p.clamp(min=0) for i, p in points.items()})
            below = half({i: p.clamp(max=0) for i, p in points.items()})
            positive, negative = positive + (above if keeps else below), negative + (below if keeps else above)
    return positive, negative


def hand_signed(step: Operation, points: Points, to_positive: Tensor, to_negative: Tensor) -> list[tuple[int, Tensor]]:
    """Hand back one thing along positive contributions and another along negative ones.

    Returns:
        For each argument the sum over outputs of weight times what came along, chosen by the sign of weight times
        argument; multiplied by the argument, that is what its contributions get.
    """
    found: dict[int, Tensor] = {}
    bare = without_constant(step)
    if step.name in NUMBER_BY_NUMBER:
        for i, term in _terms(bare, points).items():
            found |= {j: s for j, s in vjp(bare, points, by_sign(term, to_positive, to_negative)) if j == i}
        return list(found.items())
    for half, keeps in _halves(bare, points):
        above, below = (to_positive, to_negative) if keeps else (to_negative, to_positive)
        from_above, from_below = (dict(vjp(half, points, seed)) for seed in (above, below))
        for i, seed in from_above.items():
            part = by_sign(points[i], seed, from_below[i])
            found[i] = part if i not in found else found[i] + part
    return list(found.items())


def by_sign(of: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """One thing where a number is positive, another where it is negative, and their mean where it is zero."""
    return torch.where(of > 0, positive, torch.where(of < 0, negative, (positive + negative) / 2))


def _terms(bare: Operation, points: Points) -> dict[int, Tensor]:
    """What each argument alone contributes to a step that goes number by number."""
    with torch.no_grad():
        return {i: bare({j: p if j == i else torch.zeros_like(p) for j, p in points.items()}) for i in bare.refs}


def _halves(step: Operation, points: Points) -> list[tuple[Operation, bool]]:
    """The step in parts whose weights all have one sign, each with whether that sign is plus."""
    if not has_factors(step):
        return [(step, True)]  # sums, means, pools, moves: no weight is negative
    if step.name in BARE and isinstance(step.args[0], Ref):
        product = _product(step)
        empty = [torch.zeros_like(points[a.index] if isinstance(a, Ref) else a) for a in step.args[1:3]]
        return [(replace(step, args=(step.args[0], *empty)), True), *(_halves(product, points) if product.refs else [])]
    place = next(i for i in factors(step) if not isinstance(step.args[i], Ref))
    weight: Tensor = step.args[place]
    halves = ((weight.clamp(min=0), True), (weight.clamp(max=0), False))
    return [(replace(step, args=(*step.args[:place], half, *step.args[place + 1 :])), keeps) for half, keeps in halves]
