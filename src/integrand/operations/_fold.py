"""Layers followed by constant factors and shifts, such as a bias or a batch norm, as one layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ._fuse import all_refs, is_part
from ._program import Program, Ref, Step
from ._sweep import vjp

aten = torch.ops.aten

_VIEWS = ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze")


@dataclass(frozen=True)
class _Form:
    """How a layer's operation is written.

    Attributes:
        value: the place of what it is applied to.
        weight: the place of its weights.
        bias: the place of its bias, None where it has none.
        channels: the dimension of the weights that counts outputs.
        with_bias: the operation of the same kind that has a bias.
    """

    value: int
    weight: int
    bias: int | None
    channels: int
    with_bias: str


_FORMS = {
    "convolution": _Form(0, 1, 2, 0, "convolution"),
    "mm": _Form(0, 1, None, 1, "addmm"),
    "addmm": _Form(1, 2, 0, 1, "addmm"),
    "bmm": _Form(0, 1, None, 2, "baddbmm"),
    "baddbmm": _Form(1, 2, 0, 2, "baddbmm"),
    "mv": _Form(1, 0, None, 0, "addmv"),
    "addmv": _Form(2, 1, 0, 0, "addmv"),
}


def folded(program: Program) -> Program:
    """The program with constant factors and shifts drawn into the layer before them.

    A negative factor turns the layer's positive contributions into negative ones; rules that tell them apart must see that.
    """
    program = _joined(program)
    uses = Counter(ref for step in program.steps for ref in all_refs(step))
    steps: dict[int, Step] = {}
    for step in program.steps:
        steps[step.out] = step
        source = steps.get(step.refs[0]) if is_part(step) and len(all_refs(step)) == 1 else None
        view = None
        if source is not None and source.name in _VIEWS:
            source, view = steps.get(source.refs[0]), source
        if source is None or not _is_layer(source) or uses[source.out] != 1 or (view is not None and uses[view.out] != 1):
            continue
        drawn = _drawn(source, step, view)
        if drawn is None:
            continue
        if view is None:
            del steps[source.out]
            steps[step.out] = replace(drawn, out=step.out)
        else:
            steps[source.out] = drawn
            del steps[view.out]
            steps[step.out] = replace(view, out=step.out)
    return Program(program.inputs, list(steps.values()), program.result)


def _joined(program: Program) -> Program:
    """What is added to every part of an ``unbind`` is added before it: a recurrent layer's bias, on some devices."""
    users: dict[int, list[Step]] = {}
    for step in program.steps:
        for index in all_refs(step):
            users.setdefault(index, []).append(step)
    shaped = {step.out for step in program.steps if _has_rows(step)}
    steps: list[Step] = []
    gone: dict[int, Step | None] = {}
    for step in program.steps:
        layered = step.name == "unbind" and step.refs[0] in shaped and (*step.args, 0)[1] == 0  # the last dimension stays
        parts = users.get(step.out, []) if layered else []
        adds = [users.get(part.out, []) for part in parts]
        first = adds[0][0] if adds and adds[0] else None
        if first is not None and all(len(found) == 1 and _adds_the_same(found[0], first) for found in adds):
            source, before = step.args[0], parts[0].out
            steps.append(replace(first, out=before, args=(source, first.args[1])))
            step = replace(step, args=(Ref(before), *step.args[1:]))
            gone |= {part.out: None for part in parts}
            gone |= {found[0].out: replace(part, out=found[0].out) for part, found in zip(parts, adds, strict=True)}
        kept = gone.get(step.out, step)
        if kept is not None:
            steps.append(kept)
    return Program(program.inputs, steps, program.result)


def _has_rows(step: Step) -> bool:
    """Whether a layer, or a view, surely gives two dimensions or more."""
    if step.name in ("view", "_unsafe_view", "reshape"):
        return len(step.args[1]) > 1
    return step.name in _FORMS and not step.name.endswith("mv")


def _adds_the_same(step: Step, first: Step) -> bool:
    """Whether two steps add one and the same constant, a number for each place of the last dimension."""
    if step.name != "add" or first.name != "add" or step.kwargs or not isinstance(step.args[0], Ref):
        return False
    own, other = step.args[1], first.args[1]
    alike = isinstance(own, Tensor) and isinstance(other, Tensor) and own.ndim == 1 and own.shape == other.shape
    return alike and own.data_ptr() == other.data_ptr()


def _is_layer(step: Step) -> bool:
    """A convolution or a matrix product with constant weights on the usual side, and a bias per output if any."""
    form = _FORMS.get(step.name)
    if form is None or len(all_refs(step)) != 1 or not isinstance(step.args[form.value], Ref):
        return False
    if step.name == "convolution" and step.args[6]:  # transposed
        return False
    bias = None if form.bias is None else step.args[form.bias]
    channels = step.args[form.weight].shape[form.channels]
    return bias is None or (bias.numel() == channels and bias.shape[-1] == channels)


def _dimensions(view: Step, ndim: int, channels: int) -> int | None:
    """How many dimensions a view gives, where the outputs stay the last one."""
    to = view.args[1] if len(view.args) > 1 else None
    if view.name in ("view", "_unsafe_view", "reshape"):
        return len(to) if to and to[-1] == channels else None
    if not isinstance(to, int) or (view.name == "squeeze" and to % ndim == ndim - 1):
        return None
    if view.name == "squeeze":
        return ndim - 1
    return ndim + 1 if to % (ndim + 1) != ndim else None


def _drawn(layer: Step, step: Step, view: Step | None) -> Step | None:
    """One layer that does what two steps do; None where its weights cannot hold the factor."""
    form = _FORMS[layer.name]
    weight: Tensor = layer.args[form.weight]
    channels = weight.shape[form.channels]
    spread = layer.name == "convolution"
    ndim: int | None = 1 if form.with_bias == "addmv" else weight.ndim
    if view is not None:
        ndim = None if spread or ndim is None else _dimensions(view, ndim, channels)
    if ndim is None:
        return None
    shape = [1] * ndim
    shape[1 if spread else -1] = channels
    zero = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
    bias = None if form.bias is None else layer.args[form.bias]
    with torch.no_grad():
        shift: Tensor = step({step.refs[0]: zero if bias is None else bias.reshape(shape)})
    if shift.shape != zero.shape or shift.dtype != zero.dtype:
        return None
    # The derivative, not a difference: next to a large shift that would have few digits.
    factor = dict(vjp(step, {step.refs[0]: zero}, torch.ones_like(zero)))[step.refs[0]].reshape(-1)
    along = [1] * weight.ndim
    along[form.channels] = channels
    scaled = weight * factor.reshape(along)
    if spread:
        return replace(layer, args=(*layer.args[:1], scaled, shift.reshape(-1), *layer.args[3:]))
    value = layer.args[form.value]
    args = (shift.reshape(-1), scaled, value) if form.with_bias == "addmv" else (shift.reshape(-1), value, scaled)
    return replace(layer, name=form.with_bias, function=getattr(aten, form.with_bias).default, args=args, kwargs={})
