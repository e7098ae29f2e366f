"""Layers followed by constant factors and shifts, such as a bias or a batch norm, as one layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .kinds import MOVES, WEIGHTED
from .program import Operation, Program, Ref
from .sweep import vjp

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
    steps: dict[int, Operation] = {}
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
    users: dict[int, list[Operation]] = {}
    for step in program.steps:
        for index in all_refs(step):
            users.setdefault(index, []).append(step)
    shaped = {step.out for step in program.steps if _has_rows(step)}
    steps: list[Operation] = []
    gone: dict[int, Operation | None] = {}
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


def _has_rows(step: Operation) -> bool:
    """Whether a layer, or a view, surely gives two dimensions or more."""
    if step.name in ("view", "_unsafe_view", "reshape"):
        return len(step.args[1]) > 1
    return step.name in _FORMS and not step.name.endswith("mv")


def _adds_the_same(step: Operation, first: Operation) -> bool:
    """Whether two steps add one and the same constant, a number for each place of the last dimension."""
    if step.name != "add" or first.name != "add" or step.kwargs or not isinstance(step.args[0], Ref):
        return False
    own, other = step.args[1], first.args[1]
    alike = isinstance(own, Tensor) and isinstance(other, Tensor) and own.ndim == 1 and own.shape == other.shape
    return alike and own.data_ptr() == other.data_ptr()


def _is_layer(step: Operation) -> bool:
    """A convolution or a matrix product with constant weights on the usual side, and a bias per output if any."""
    form = _FORMS.get(step.name)
    if form is None or len(all_refs(step)) != 1 or not isinstance(step.args[form.value], Ref):
        return False
    if step.name == "convolution" and step.args[6]:  # transposed
        return False
    bias = None if form.bias is None else step.args[form.bias]
    channels = step.args[form.weight].shape[form.channels]
    return bias is None or (bias.numel() == channels and bias.shape[-1] == channels)


def _dimensions(view: Operation, ndim: int, channels: int) -> int | None:
    """How many dimensions a view gives, where the outputs stay the last one."""
    to = view.args[1] if len(view.args) > 1 else None
    if view.name in ("view", "_unsafe_view", "reshape"):
        return len(to) if to and to[-1] == channels else None
    if not isinstance(to, int) or (view.name == "squeeze" and to % ndim == ndim - 1):
        return None
    if view.name == "squeeze":
        return ndim - 1
    return ndim + 1 if to % (ndim + 1) != ndim else None


def _drawn(layer: Operation, step: Operation, view: Operation | None) -> Operation | None:
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


class FusedSum:
    """A chain of sums, differences and constant factors: one function of the values that go into it.

    Args:
        steps: the operations, in order; the last gives the result.
        refs: the values that they take from outside.
        bare: whether constants that are added are left out.
    """

    def __init__(self, steps: tuple[Operation, ...], refs: tuple[int, ...], *, bare: bool = False) -> None:
        self.steps, self.refs, self.bare = steps, refs, bare

    def __call__(self, *points: Tensor) -> Tensor:
        """The sum at given values of its references."""
        out = self._at(points)
        if self.bare:
            with torch.no_grad():
                constant = self._at([torch.zeros_like(p) for p in points])
            out = less(out, constant)
        return out

    def _at(self, points: Any) -> Tensor:
        known: dict[int, Any] = dict(zip(self.refs, points, strict=True))
        for step in self.steps:
            known[step.out] = step(known)
        out: Tensor = known[self.steps[-1].out]
        return out

    def without_constant(self) -> FusedSum:
        """The same sum without the constants in it."""
        return FusedSum(self.steps, self.refs, bare=True)


def fused(program: Program) -> Program:
    """The program with chains of sums, differences and constant factors as one step, named ``sum of terms``.

    Someone who writes relu(a) - 1 - relu(b) means one unit with three terms, not a difference of a difference. What is
    added to a layer is that layer's bias, and stays with it: kernels differ in where they add it.
    """
    made_by = {step.out: step for step in program.steps}
    biased: dict[int, bool] = {}
    uses = Counter(ref for step in program.steps for ref in all_refs(step))
    chains: dict[int, tuple[Operation, ...]] = {}
    for step in program.steps:
        if not is_part(step):
            continue
        inner = [chains[i] for i in step.refs if i in chains and uses[i] == 1 and not biased.get(i)]
        chains[step.out] = (*(part for chain in inner for part in chain), step)
        sources = {i for part in chains[step.out] for i in part.refs} - {part.out for part in chains[step.out]}
        biased[step.out] = len(sources) == 1 and _from_layer(min(sources), made_by)
    absorbed = {part.out for chain in chains.values() for part in chain[:-1]}
    steps = []
    for step in program.steps:
        if step.out in absorbed:
            continue
        chain = chains.get(step.out, ())
        steps.append(step if len(chain) < 2 else _sum(step, chain))
    return Program(program.inputs, steps, program.result)


def _from_layer(index: int, made_by: dict[int, Operation]) -> bool:
    """Whether a value is what a layer gave, in another place or shape."""
    while index in made_by and made_by[index].name in MOVES and len(made_by[index].refs) == 1:
        index = made_by[index].refs[0]
    return index in made_by and made_by[index].name in WEIGHTED


def _sum(last: Operation, chain: tuple[Operation, ...]) -> Operation:
    own = {part.out for part in chain}
    refs = tuple(dict.fromkeys(i for part in chain for i in part.refs if i not in own))
    return replace(last, name="sum of terms", function=FusedSum(chain, refs), args=tuple(map(Ref, refs)), kwargs={})


def all_refs(step: Operation) -> list[int]:
    """The arguments that depend on the input, as often as they are used."""
    return [leaf.index for leaf in pytree.tree_leaves((step.args, dict(step.kwargs))) if isinstance(leaf, Ref)]


def is_part(step: Operation) -> bool:
    """Sums and differences, and factors that are constant."""
    if step.name in ("add", "sub", "rsub", "neg"):
        return True
    if len(all_refs(step)) != 1 or step.kwargs.get("rounding_mode") is not None:
        return False
    return step.name == "mul" or (step.name == "div" and isinstance(step.args[0], Ref))


def less(value: Tensor, constant: Tensor) -> Tensor:
    """A value without the constant that was added to it; nothing is left of it where that is infinite (a mask)."""
    return torch.where(constant.isfinite(), value - constant, 0)
