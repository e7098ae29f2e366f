"""Going back through a program, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from .._trees import Leaves
from ..errors import OperationError
from ._kinds import Kind, kind_of
from ._program import Program, Step, Values

Handed = Iterable[tuple[int, Any]]
"""What goes to which value: index and cotangent."""


class Rule(Protocol):
    """How a method hands back what arrives at a step's output."""

    def __call__(self, step: Step, arrived: Any) -> Handed:
        """From what arrived (for several outputs a dict from output to what arrived there) to what each argument gets."""
        ...


def sweep(program: Program, seed: Tensor, rule: Rule, values: Values) -> Leaves:
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


def vjp(step: Step, values: Values | Mapping[int, Any], arrived: Any) -> list[tuple[int, Tensor]]:
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


def no_rule(method: str, step: Step, values: Values, *, do: str) -> OperationError:
    """The error for a step that a method has no rule for."""
    out = values[step.out]
    shape = f" giving shape {tuple(out.shape)}" if isinstance(out, Tensor) else ""
    where = f" in module {step.module!r}" if step.module else ""
    return OperationError(
        f"{method} has no rule for the operation {step.name!r}{where}{shape} ({kind_of(step, values).value}). {do}"
    )


__all__ = ["Handed", "Kind", "Rule", "no_rule", "sweep", "vjp"]
