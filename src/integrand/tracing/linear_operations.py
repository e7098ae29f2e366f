"""Linear operations of a program: rewritten so that a layer or a sum is one operation, and split by sign.

Rules such as LRP's and DeepLift's look at the contributions to a sum. What a sum is should not depend on how it is written: a
batch norm belongs to the layer before it (:func:`folded`), and a - 1 - b is one sum of three terms (:func:`fused`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .backward import BARE, MOVES, WEIGHTED, factors, has_factors, vjp
from .program import Operation, Program, Ref

aten = torch.ops.aten

_VIEWS = ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze")

Points = Mapping[int, Tensor]
"""The values of an operation's arguments, by index."""

NUMBER_BY_NUMBER = frozenset("add sub rsub neg mul div where masked_fill _to_copy to".split()) | {"sum of terms"}
"""Linear operations that add up numbers at the same position, each with a factor of either sign."""

_HOLD_CONSTANTS = frozenset(
    (
        "cat stack constant_pad_nd pad index_put scatter scatter_add select_scatter slice_scatter index_add index_copy copy "
        "index_fill"
    ).split()
)
"""Operations that may put constants between the values that they move."""


@dataclass(frozen=True)
class _Form:
    """How the arguments of a layer's operation are arranged.

    Attributes:
        value: the position of the argument that the layer is applied to.
        weight: the position of the weights.
        bias: the position of the bias; None where the operation has none.
        channels: the dimension of the weights that counts outputs.
        with_bias: the name of the operation of the same kind that has a bias.
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
    """The program with constant factors and shifts, such as a batch norm, folded into the layer before them.

    A negative factor turns the layer's positive contributions into negative ones; rules that tell them apart must see that.
    """
    program = _shifted_before_unbind(program)
    uses = Counter(ref for operation in program.operations for ref in all_refs(operation))
    operations: dict[int, Operation] = {}
    for operation in program.operations:
        operations[operation.out] = operation
        source = operations.get(operation.refs[0]) if is_part(operation) and len(all_refs(operation)) == 1 else None
        view = None
        if source is not None and source.name in _VIEWS:
            source, view = operations.get(source.refs[0]), source
        if source is None or not _is_layer(source) or uses[source.out] != 1 or (view is not None and uses[view.out] != 1):
            continue
        drawn = _absorbed(source, operation, view)
        if drawn is None:
            continue
        if view is None:
            del operations[source.out]
            operations[operation.out] = replace(drawn, out=operation.out)
        else:
            operations[source.out] = drawn
            del operations[view.out]
            operations[operation.out] = replace(view, out=operation.out)
    return Program(program.inputs, list(operations.values()), program.result)


class FusedSum:
    """A chain of sums, differences and constant factors as one function of the values that go into it.

    Args:
        operations: the operations of the chain, in order; the last gives the result.
        refs: the indices of the values that the chain takes from outside.
        bare: whether to leave out the constants that are added.
    """

    def __init__(self, operations: tuple[Operation, ...], refs: tuple[int, ...], *, bare: bool = False) -> None:
        self.operations, self.refs, self.bare = operations, refs, bare

    def __call__(self, *points: Tensor) -> Tensor:
        """The value of the sum, given the values of its references in order."""
        out = self._at(points)
        if self.bare:
            with torch.no_grad():
                constant = self._at([torch.zeros_like(p) for p in points])
            out = less(out, constant)
        return out

    def _at(self, points: Any) -> Tensor:
        known: dict[int, Any] = dict(zip(self.refs, points, strict=True))
        for operation in self.operations:
            known[operation.out] = operation(known)
        out: Tensor = known[self.operations[-1].out]
        return out

    def without_constant(self) -> FusedSum:
        """The sum with the constants in it left out."""
        return FusedSum(self.operations, self.refs, bare=True)


def fused(program: Program) -> Program:
    """The program with chains of sums, differences and constant factors as one operation, named ``sum of terms``.

    Someone who writes relu(a) - 1 - relu(b) means one unit with three terms, not a difference of a difference. What is
    added to a layer is that layer's bias, and stays with it: kernels differ in where they add it.
    """
    made_by = {operation.out: operation for operation in program.operations}
    biased: dict[int, bool] = {}
    uses = Counter(ref for operation in program.operations for ref in all_refs(operation))
    chains: dict[int, tuple[Operation, ...]] = {}
    for operation in program.operations:
        if not is_part(operation):
            continue
        inner = [chains[i] for i in operation.refs if i in chains and uses[i] == 1 and not biased.get(i)]
        chains[operation.out] = (*(part for chain in inner for part in chain), operation)
        sources = {i for part in chains[operation.out] for i in part.refs} - {part.out for part in chains[operation.out]}
        biased[operation.out] = len(sources) == 1 and _from_layer(min(sources), made_by)
    absorbed = {part.out for chain in chains.values() for part in chain[:-1]}
    operations = []
    for operation in program.operations:
        if operation.out in absorbed:
            continue
        chain = chains.get(operation.out, ())
        operations.append(operation if len(chain) < 2 else _fused_sum(operation, chain))
    return Program(program.inputs, operations, program.result)


def all_refs(operation: Operation) -> list[int]:
    """The indices of the arguments that depend on the input, as often as the operation uses them."""
    return [leaf.index for leaf in pytree.tree_leaves((operation.args, dict(operation.kwargs))) if isinstance(leaf, Ref)]


def is_part(operation: Operation) -> bool:
    """Whether an operation can be part of a fused sum: a sum, a difference, or a multiplication by a constant."""
    if operation.name in ("add", "sub", "rsub", "neg"):
        return True
    if len(all_refs(operation)) != 1 or operation.kwargs.get("rounding_mode") is not None:
        return False
    return operation.name == "mul" or (operation.name == "div" and isinstance(operation.args[0], Ref))


def less(value: Tensor, constant: Tensor) -> Tensor:
    """A value minus the constant that was added to it; zero where the constant is infinite (a mask)."""
    return torch.where(constant.isfinite(), value - constant, 0)


def points_of(operation: Operation, values: Any) -> dict[int, Tensor]:
    """The values of an operation's arguments, by index."""
    return {i: values[i] for i in operation.refs}


class LinearPart:
    """The linear part of an operation: its value minus its value at zero."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    def __call__(self, *points: Tensor) -> Tensor:
        """The linear part of the operation, given the values of its references in order."""
        refs = self.operation.refs
        out: Tensor = self.operation(dict(zip(refs, points, strict=True)))
        return less(out, constant_of(self.operation, dict(zip(refs, points, strict=True))))


def without_constant(operation: Operation) -> Operation:
    """A linear operation with its bias, or any other constant that it adds, left out."""
    if isinstance(operation.function, FusedSum):
        return replace(operation, function=operation.function.without_constant())
    if operation.name == "convolution":
        return replace(operation, args=(*operation.args[:2], None, *operation.args[3:]))
    if operation.name == "linear":
        return replace(operation, args=operation.args[:2])
    if operation.name in BARE and not isinstance(operation.args[0], Ref):
        return _without_summand(operation)
    if operation.name in ("add", "sub", "rsub"):
        return replace(operation, args=(*map(_zero, operation.args[:2]), *operation.args[2:]))
    if operation.name == "where":
        return replace(operation, args=(operation.args[0], *map(_zero, operation.args[1:])))
    if operation.name == "masked_fill" and isinstance(operation.args[0], Ref):
        return replace(operation, args=(*operation.args[:2], _zero(operation.args[2])))
    if operation.name in _HOLD_CONSTANTS:
        return replace(operation, function=LinearPart(operation), args=tuple(map(Ref, operation.refs)), kwargs={})
    return operation


def constant_of(operation: Operation, points: Points) -> Tensor:
    """The constant that a linear operation adds whatever its arguments are: its value at zero."""
    with torch.no_grad():
        out: Tensor = operation({i: torch.zeros_like(p) for i, p in points.items()})
    return out


def signed_parts(operation: Operation, points: Points) -> tuple[Tensor, Tensor]:
    """The sums of the positive and of the negative contributions to the result of a linear operation, without its constant."""
    positive, negative = torch.zeros(()), torch.zeros(())
    bare = without_constant(operation)
    with torch.no_grad():
        if operation.name in NUMBER_BY_NUMBER:
            for term in _terms(bare, points).values():
                positive, negative = positive + term.clamp(min=0), negative + term.clamp(max=0)
            return positive, negative
        for half, keeps in halves(bare, points):
            above = half({i: p.clamp(min=0) for i, p in points.items()})
            below = half({i: p.clamp(max=0) for i, p in points.items()})
            positive, negative = positive + (above if keeps else below), negative + (below if keeps else above)
    return positive, negative


def hand_signed(operation: Operation, points: Points, to_positive: Tensor, to_negative: Tensor) -> list[tuple[int, Tensor]]:
    """Propagate one tensor backward along the positive contributions to a sum and another along the negative ones.

    Returns:
        For each argument, the sum over outputs of weight times the tensor that the sign of weight times argument
        chooses; multiplied by the argument, this is what its contributions get.
    """
    found: dict[int, Tensor] = {}
    bare = without_constant(operation)
    if operation.name in NUMBER_BY_NUMBER:
        for i, term in _terms(bare, points).items():
            found |= {j: s for j, s in vjp(bare, points, by_sign(term, to_positive, to_negative)) if j == i}
        return list(found.items())
    for half, keeps in halves(bare, points):
        above, below = (to_positive, to_negative) if keeps else (to_negative, to_positive)
        from_above, from_below = (dict(vjp(half, points, seed)) for seed in (above, below))
        for i, seed in from_above.items():
            part = by_sign(points[i], seed, from_below[i])
            found[i] = part if i not in found else found[i] + part
    return list(found.items())


def by_sign(of: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """``positive`` where ``of`` is positive, ``negative`` where it is negative, and their mean where it is zero."""
    return torch.where(of > 0, positive, torch.where(of < 0, negative, (positive + negative) / 2))


def _shifted_before_unbind(program: Program) -> Program:
    """The program with what is added to every part of an ``unbind`` added before it, as a recurrent layer's bias may be."""
    users: dict[int, list[Operation]] = {}
    for operation in program.operations:
        for index in all_refs(operation):
            users.setdefault(index, []).append(operation)
    shaped = {operation.out for operation in program.operations if _has_rows(operation)}
    operations: list[Operation] = []
    gone: dict[int, Operation | None] = {}
    for operation in program.operations:
        layered = (
            operation.name == "unbind" and operation.refs[0] in shaped and (*operation.args, 0)[1] == 0
        )  # the last dimension stays
        parts = users.get(operation.out, []) if layered else []
        adds = [users.get(part.out, []) for part in parts]
        first = adds[0][0] if adds and adds[0] else None
        if first is not None and all(len(found) == 1 and _adds_the_same(found[0], first) for found in adds):
            source, before = operation.args[0], parts[0].out
            operations.append(replace(first, out=before, args=(source, first.args[1])))
            operation = replace(operation, args=(Ref(before), *operation.args[1:]))
            gone |= {part.out: None for part in parts}
            gone |= {found[0].out: replace(part, out=found[0].out) for part, found in zip(parts, adds, strict=True)}
        kept = gone.get(operation.out, operation)
        if kept is not None:
            operations.append(kept)
    return Program(program.inputs, operations, program.result)


def _has_rows(operation: Operation) -> bool:
    """Whether an operation is a layer or a view whose result certainly has two dimensions or more."""
    if operation.name in ("view", "_unsafe_view", "reshape"):
        return len(operation.args[1]) > 1
    return operation.name in _FORMS and not operation.name.endswith("mv")


def _adds_the_same(operation: Operation, first: Operation) -> bool:
    """Whether two operations add one and the same constant tensor, a number for each entry of the last dimension."""
    if operation.name != "add" or first.name != "add" or operation.kwargs or not isinstance(operation.args[0], Ref):
        return False
    own, other = operation.args[1], first.args[1]
    alike = isinstance(own, Tensor) and isinstance(other, Tensor) and own.ndim == 1 and own.shape == other.shape
    return alike and own.data_ptr() == other.data_ptr()


def _is_layer(operation: Operation) -> bool:
    """Whether an operation is a convolution or matrix product with constant weights on the usual side and a bias per output."""
    form = _FORMS.get(operation.name)
    if form is None or len(all_refs(operation)) != 1 or not isinstance(operation.args[form.value], Ref):
        return False
    if operation.name == "convolution" and operation.args[6]:  # transposed
        return False
    bias = None if form.bias is None else operation.args[form.bias]
    channels = operation.args[form.weight].shape[form.channels]
    return bias is None or (bias.numel() == channels and bias.shape[-1] == channels)


def _dimensions(view: Operation, ndim: int, channels: int) -> int | None:
    """How many dimensions a view gives; None where the layer's outputs do not stay the last dimension."""
    to = view.args[1] if len(view.args) > 1 else None
    if view.name in ("view", "_unsafe_view", "reshape"):
        return len(to) if to and to[-1] == channels else None
    if not isinstance(to, int) or (view.name == "squeeze" and to % ndim == ndim - 1):
        return None
    if view.name == "squeeze":
        return ndim - 1
    return ndim + 1 if to % (ndim + 1) != ndim else None


def _absorbed(layer: Operation, operation: Operation, view: Operation | None) -> Operation | None:
    """One layer that does what a layer and an operation after it do; None where its weights cannot hold the factor."""
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
        shift: Tensor = operation({operation.refs[0]: zero if bias is None else bias.reshape(shape)})
    if shift.shape != zero.shape or shift.dtype != zero.dtype:
        return None
    # The derivative, not a difference, which would have few digits next to a large shift.
    factor = dict(vjp(operation, {operation.refs[0]: zero}, torch.ones_like(zero)))[operation.refs[0]].reshape(-1)
    along = [1] * weight.ndim
    along[form.channels] = channels
    scaled = weight * factor.reshape(along)
    if spread:
        return replace(layer, args=(*layer.args[:1], scaled, shift.reshape(-1), *layer.args[3:]))
    value = layer.args[form.value]
    args = (shift.reshape(-1), scaled, value) if form.with_bias == "addmv" else (shift.reshape(-1), value, scaled)
    return replace(layer, name=form.with_bias, function=getattr(aten, form.with_bias).default, args=args, kwargs={})


def _from_layer(index: int, made_by: dict[int, Operation]) -> bool:
    """Whether a value is the output of a layer, possibly moved or reshaped."""
    while index in made_by and made_by[index].name in MOVES and len(made_by[index].refs) == 1:
        index = made_by[index].refs[0]
    return index in made_by and made_by[index].name in WEIGHTED


def _fused_sum(last: Operation, chain: tuple[Operation, ...]) -> Operation:
    own = {part.out for part in chain}
    refs = tuple(dict.fromkeys(i for part in chain for i in part.refs if i not in own))
    return replace(last, name="sum of terms", function=FusedSum(chain, refs), args=tuple(map(Ref, refs)), kwargs={})


def _without_summand(operation: Operation) -> Operation:
    name = BARE[operation.name]
    return replace(operation, name=name, function=getattr(torch.ops.aten, name).default, args=operation.args[1:3], kwargs={})


def _zero(arg: Any) -> Any:
    if isinstance(arg, Ref):
        return arg
    return torch.zeros_like(arg) if isinstance(arg, Tensor) else 0


def _terms(bare: Operation, points: Points) -> dict[int, Tensor]:
    """What each argument alone contributes to an operation that acts number by number."""
    with torch.no_grad():
        return {i: bare({j: p if j == i else torch.zeros_like(p) for j, p in points.items()}) for i in bare.refs}


def halves(operation: Operation, points: Points) -> list[tuple[Operation, bool]]:
    """An operation as two whose weights all have one sign, each with whether that sign is plus."""
    if not has_factors(operation):
        return [(operation, True)]  # sums, means, pools, moves: no weight is negative
    if operation.name in BARE and isinstance(operation.args[0], Ref):
        product = _without_summand(operation)
        empty = [torch.zeros_like(points[a.index] if isinstance(a, Ref) else a) for a in operation.args[1:3]]
        return [
            (replace(operation, args=(operation.args[0], *empty)), True),
            *(halves(product, points) if product.refs else []),
        ]
    place = next(i for i in factors(operation) if not isinstance(operation.args[i], Ref))
    weight: Tensor = operation.args[place]
    pair = ((weight.clamp(min=0), True), (weight.clamp(max=0), False))
    return [
        (replace(operation, args=(*operation.args[:place], half, *operation.args[place + 1 :])), keeps) for half, keeps in pair
    ]
