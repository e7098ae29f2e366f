"""Going back through a program, operation by operation, and the slopes between two points that discrete gradients use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import OperationError
from ..trees import Leaves
from .kinds import kind_of
from .program import Operation, Program, Values

Handed = Iterable[tuple[int, Any]]
"""What goes to which value: index and cotangent."""


class SweepRule(Protocol):
    """How a method hands back what arrives at a step's output."""

    def __call__(self, step: Operation, arrived: Any) -> Handed:
        """From what arrived (for several outputs a dict from output to what arrived there) to what each argument gets."""
        ...


def sweep(program: Program, seed: Tensor, rule: SweepRule, values: Values) -> Leaves:
    """What the inputs get when the scores are given ``seed`` and every step hands it back by ``rule``."""
    waiting: dict[int, Any] = {program.result: seed}
    for step in reversed(program.steps):
        arrived = waiting.pop(step.out, None)
        if arrived is None:
            continue
        if step.picks:
            parent, slot = step.args[0].index, step.args[1]
            slots = waiting.setdefault(parent, {})
            slots[slot] = arrived if slot not in slots else slots[slot] + arrived
            continue
        for index, part in rule(step, arrived):
            waiting[index] = part if index not in waiting else waiting[index] + part
    inputs = values[: program.inputs]
    return tuple(waiting.get(i, torch.zeros_like(leaf)) for i, leaf in enumerate(inputs))


def vjp(step: Operation, values: Values | Mapping[int, Any], arrived: Any) -> list[tuple[int, Tensor]]:
    """What the gradient hands back: the transpose of the step's derivative at ``values``."""
    points = {i: values[i].detach() for i in step.refs}
    leaves = {i: p.requires_grad_(True) for i, p in points.items() if p.dtype.is_floating_point or p.is_complex()}
    try:
        with torch.enable_grad():
            out = step(points)
        outputs = [out[slot] for slot in arrived] if isinstance(arrived, dict) else [out]
        seeds = list(arrived.values()) if isinstance(arrived, dict) else [arrived]
        used = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
        if not used or not leaves:
            return []
        found = torch.autograd.grad([o for o, _ in used], list(leaves.values()), [s for _, s in used], allow_unused=True)
    except RuntimeError as error:
        if "derivative for" not in str(error):
            raise
        raise OperationError(
            f"the operation {step.name!r} has no gradient in torch. Expected operations that can be differentiated; write it "
            "in terms of those, or use a method that needs scores only (Shapley, Lime)."
        ) from error
    return [(i, g) for i, g in zip(leaves, found, strict=True) if g is not None]


def no_rule(method: str, step: Operation, values: Values, *, do: str) -> OperationError:
    """The error for a step that a method has no rule for."""
    out = values[step.out]
    shape = f" giving shape {tuple(out.shape)}" if isinstance(out, Tensor) else ""
    where = f" in module {step.module!r}" if step.module else ""
    return OperationError(
        f"{method} has no rule for the operation {step.name!r}{where}{shape} ({kind_of(step, values).value}). {do}"
    )


def secant(step: Operation, here: Values, there: Values) -> Tensor:
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


def product(step: Operation, here: Values, there: Values, arrived: Tensor) -> Handed:
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
