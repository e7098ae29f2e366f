"""Layers followed by constant factors and shifts, such as a batch norm, as one layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ._fuse import all_refs, is_part
from ._program import Program, Ref, Step

aten = torch.ops.aten


def folded(program: Program) -> Program:
    """The program with constant factors and shifts drawn into the layer before them.

    A negative factor turns the layer's positive contributions into negative ones; rules that tell them apart must see that.
    """
    uses = Counter(ref for step in program.steps for ref in all_refs(step))
    layers: dict[int, Step] = {}
    gone: set[int] = set()
    steps: list[Step] = []
    for step in program.steps:
        source = step.refs[0] if len(step.refs) == 1 else -1
        if _is_layer(step):
            layers[step.out] = step
        elif is_part(step) and len(all_refs(step)) == 1 and source in layers and uses[source] == 1:
            drawn = _drawn(layers[source], step)
            if drawn is not None:
                gone.add(source)
                step = layers[step.out] = drawn
        steps.append(step)
    return Program(program.inputs, [step for step in steps if step.out not in gone], program.result)


def _is_layer(step: Step) -> bool:
    """A convolution or a matrix product with constant weights on the usual side, and constants only."""
    if len(all_refs(step)) != 1:
        return False
    if step.name == "convolution":
        return isinstance(step.args[0], Ref) and not step.args[6]
    return isinstance(step.args[{"mm": 0, "addmm": 1}.get(step.name, -1)], Ref) if step.name in ("mm", "addmm") else False


def _drawn(layer: Step, step: Step) -> Step | None:
    """One layer that does what two steps do; None where its weights cannot hold the factor."""
    spread = layer.name == "convolution"
    weight: Tensor = layer.args[1] if spread else layer.args[1 if layer.name == "mm" else 2]
    channels = weight.shape[0 if spread else 1]
    shape = (1, channels, *[1] * (weight.ndim - 2)) if spread else (1, channels)
    zero = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
    bias = _bias_of(layer)
    with torch.no_grad():
        shift = _at(step, zero if bias is None else bias.reshape(shape))
        factor = _at(step, zero + 1) - _at(step, zero)
    if shift.shape != zero.shape or factor.shape != zero.shape:
        return None
    scaled = weight * (factor.reshape(-1, *[1] * (weight.ndim - 1)) if spread else factor)
    args: tuple[Any, ...] = (*layer.args[:1], scaled, shift.reshape(-1), *layer.args[3:])
    if spread:
        return replace(layer, out=step.out, args=args)
    x = layer.args[0 if layer.name == "mm" else 1]
    return replace(
        layer, out=step.out, name="addmm", function=aten.addmm.default, args=(shift.reshape(-1), x, scaled), kwargs={}
    )


def _bias_of(layer: Step) -> Tensor | None:
    if layer.name == "convolution":
        found: Tensor | None = layer.args[2]
        return found
    return layer.args[0] if layer.name == "addmm" else None


def _at(step: Step, point: Tensor) -> Tensor:
    values: Mapping[int, Any] = {step.refs[0]: point}
    out: Tensor = step(values)
    return out
