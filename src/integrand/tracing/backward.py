"""Backward passes through a program by any rule: kinds of operations, the sweep, and the slopes that rules are made of."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import OperationError
from ..trees import Leaves
from .program import Operation, Program, Ref, Values

MOVES = frozenset(
    (
        "view _unsafe_view reshape _reshape_alias t transpose permute unsqueeze squeeze expand slice select getitem clone "
        "cat stack split split_with_sizes unsafe_split unsafe_split_with_sizes unbind chunk alias lift_fresh "
        "lift_fresh_copy contiguous flip roll repeat index index_select gather constant_pad_nd reflection_pad1d "
        "reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pixel_shuffle "
        "pixel_unshuffle as_strided diagonal tril triu unfold im2col movedim narrow narrow_copy detach_copy view_copy pad "
        "ravel flatten unflatten _unsafe_index"
    ).split()
)

_SUMS = frozenset(
    (
        "add sub rsub neg sum mean cumsum avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d "
        "adaptive_avg_pool1d col2im trace upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d "
        "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact2d masked_fill diff "
        "select_scatter slice_scatter scatter scatter_add index_add index_put copy _to_copy to diag_embed"
    ).split()
)

_FACTORS = {
    "mul": (0, 1), "mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "convolution": (0, 1), "addmm": (1, 2),
    "div": (0, 1), "outer": (0, 1), "ger": (0, 1), "linear": (0, 1), "matmul": (0, 1), "baddbmm": (1, 2), "addmv": (1, 2),
}  # fmt: skip
"""Operations that are linear in each of two arguments (or, division, in the first)."""

_POINTWISE = frozenset(
    (
        "hardswish hardsigmoid _prelu_kernel hardtanh log_sigmoid elu celu selu mish silu gelu softplus softshrink "
        "hardshrink logit sinc relu6 rrelu special_ndtr special_erfcx"
    ).split()
)
"""Pointwise functions that torch does not tag as such."""

_MAXIMA = frozenset(
    (
        "max min amax amin maximum minimum max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices "
        "adaptive_max_pool2d adaptive_max_pool3d fmax fmin"
    ).split()
)

_CHOOSERS = frozenset(
    (
        "where masked_fill index _unsafe_index gather index_select scatter scatter_add scatter_reduce index_add index_put "
        "index_copy index_fill masked_scatter take take_along_dim"
    ).split()
)

_SMALLEST = frozenset("min amin minimum fmin".split())

BARE = {"addmm": "mm", "baddbmm": "bmm", "addmv": "mv"}
"""Matrix products that add a third argument, and the products without it."""

WEIGHTED = frozenset("convolution mm addmm bmm baddbmm mv addmv linear matmul".split())
"""Operations whose constant factor is the weights of a layer."""

RECTIFIERS = frozenset("relu relu6 hardtanh clamp clamp_min threshold maximum".split())
"""Rectifiers, where their lower bound is zero; see :func:`rectifies`."""

ARITHMETIC = frozenset("pow sqrt rsqrt reciprocal square exp log div".split())
"""Pointwise functions that norms and quotients are made of, and that nobody takes for an activation."""

Handed = Iterable[tuple[int, Any]]
"""The result of a backward rule: pairs of the index of a value and what it gets (a cotangent, a multiplier, a relevance)."""


class Kind(enum.Enum):
    """What kind an operation is, as a function of those arguments that depend on the input."""

    MOVE = "numbers change places or are copied"
    LINEAR = "sums with constant weights"
    POINTWISE = "a function of each number alone"
    PRODUCT = "factors that both depend on the input"
    MAX = "the largest or smallest of several numbers"
    SOFTMAX = "softmax or its logarithm"
    CUT = "no gradient passes: comparisons, casts to integers, detach"
    CHOICE = "a choice between numbers by a condition that depends on the input"
    UNKNOWN = "none of these"


def kind_of(operation: Operation, values: Values) -> Kind:
    """The kind of an operation, given the values of a run."""
    name, out = operation.name, values[operation.out]
    if any(isinstance(value, Tensor) and value.is_complex() for value in (out, *(values[i] for i in operation.refs))):
        return Kind.UNKNOWN
    if name == "detach" or (isinstance(out, Tensor) and not out.dtype.is_floating_point):
        return Kind.CUT
    if name in _CHOOSERS and _condition_varies(operation, values):
        return Kind.CHOICE
    if name in MOVES:
        return Kind.MOVE
    if name in _SUMS or name in ("where", "sum of terms"):
        return Kind.LINEAR
    if name in _FACTORS:
        return _factor_kind(operation)
    if "softmax" in name or name == "logsumexp":
        return Kind.SOFTMAX
    if name in _MAXIMA:
        two = name in ("maximum", "minimum", "fmax", "fmin")
        return Kind.POINTWISE if two and len(operation.refs) == 1 else Kind.MAX
    if len(operation.refs) == 1 and (name in _POINTWISE or _tagged_pointwise(operation)):
        return Kind.POINTWISE
    return Kind.UNKNOWN


def smallest(operation: Operation) -> bool:
    """Whether an operation of kind MAX takes the smallest number."""
    return operation.name in _SMALLEST


def factors(operation: Operation) -> tuple[int, int]:
    """The positions of the two factors among the arguments of an operation that multiplies."""
    return _FACTORS[operation.name]


def has_factors(operation: Operation) -> bool:
    """Whether an operation multiplies two of its arguments."""
    return operation.name in _FACTORS


def rectifies(operation: Operation) -> bool:
    """Whether an operation is max(0, z), possibly bounded above."""
    if operation.name not in RECTIFIERS or len(operation.refs) != 1:
        return False
    if operation.name in ("relu", "relu6"):
        return True
    if operation.name == "maximum":
        return len(operation.refs) == 1 and any(isinstance(arg, Tensor) and not arg.any() for arg in operation.args)
    if operation.name == "threshold":
        return operation.args[1:3] == (0, 0)
    if not isinstance(operation.args[0], Ref):
        return False
    bound = (
        operation.args[1]
        if len(operation.args) > 1
        else operation.kwargs.get("min", -1 if operation.name == "hardtanh" else None)
    )
    return not isinstance(bound, Ref) and bound is not None and not bool(torch.as_tensor(bound).any())


class SweepRule(Protocol):
    """How a method propagates backward through one operation."""

    def __call__(self, operation: Operation, arrived: Any) -> Handed:
        """From what arrived at the output (a dict by output where there are several) to what each argument gets."""
        ...


def sweep(program: Program, seed: Tensor, rule: SweepRule, values: Values) -> Leaves:
    """What the inputs get when ``seed`` is propagated backward from the scores, by ``rule`` at every operation."""
    waiting: dict[int, Any] = {program.result: seed}
    for operation in reversed(program.operations):
        arrived = waiting.pop(operation.out, None)
        if arrived is None:
            continue
        if operation.picks:
            parent, slot = operation.args[0].index, operation.args[1]
            slots = waiting.setdefault(parent, {})
            slots[slot] = arrived if slot not in slots else slots[slot] + arrived
            continue
        for index, part in rule(operation, arrived):
            waiting[index] = part if index not in waiting else waiting[index] + part
    inputs = values[: program.inputs]
    return tuple(waiting.get(i, torch.zeros_like(leaf)) for i, leaf in enumerate(inputs))


def vjp(operation: Operation, values: Values | Mapping[int, Any], arrived: Any) -> list[tuple[int, Tensor]]:
    """The vector-Jacobian product: what the gradient gives to each argument of an operation at ``values``."""
    points = {i: values[i].detach() for i in operation.refs}
    leaves = {i: p.requires_grad_(True) for i, p in points.items() if p.dtype.is_floating_point or p.is_complex()}
    try:
        with torch.enable_grad():
            out = operation(points)
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
            f"the operation {operation.name!r} has no gradient in torch. Expected operations that can be differentiated; write "
            "it in terms of those, or use a method that needs scores only (Shapley, Lime)."
        ) from error
    return [(i, g) for i, g in zip(leaves, found, strict=True) if g is not None]


def no_rule(method: str, operation: Operation, values: Values, *, do: str) -> OperationError:
    """The error to raise at an operation that a method has no rule for; ``do`` says what to do instead."""
    out = values[operation.out]
    shape = f" giving shape {tuple(out.shape)}" if isinstance(out, Tensor) else ""
    where = f" in module {operation.module!r}" if operation.module else ""
    return OperationError(
        f"{method} has no rule for the operation {operation.name!r}{where}{shape} ({kind_of(operation, values).value}). {do}"
    )


def secant(operation: Operation, here: Values, there: Values) -> Tensor:
    """The slope of a pointwise operation between two points, in its output's shape; the derivative where they are equal."""
    index = operation.refs[0]
    a, b, out, was = here[index], there[index], here[operation.out], there[operation.out]
    change, rise = a - b, out - was
    eps = torch.finfo(out.dtype).eps
    near = change.abs() <= eps**0.5 * torch.maximum(a.abs(), b.abs())
    middle = torch.where(near, (a + b) / 2, a)
    found = vjp(operation, {index: middle.expand(out.shape)}, torch.ones_like(out))
    slope = found[0][1] if found else torch.zeros_like(out)
    # Where the two are close, the derivative has more digits than a difference of rounded values, unless a kink is between.
    agrees = (slope * change - rise).abs() <= 16 * eps * torch.maximum(out.abs(), was.abs())
    derived = (change == 0) | (near & agrees)
    slopes = torch.where(derived, slope, rise / torch.where(change == 0, 1, change))
    # Slopes are not finite for masked scores (-inf at both ends) and for sqrt at 0.
    return torch.where(change.isfinite() & slopes.isfinite(), slopes, 0)


def product(operation: Operation, here: Values, there: Values, arrived: Tensor) -> Handed:
    """Discrete gradients of a product: ab - a'b' = (a - a') mean(b, b') + (b - b') mean(a, a').

    Holds for every operation that is linear in each of two factors; a quotient is a product with 1/b.
    """
    middle = {i: (here[i] + there[i]) / 2 if here[i].dtype.is_floating_point else here[i] for i in operation.refs}
    if operation.name != "div":
        return vjp(operation, middle, arrived)
    above, below = operation.args[0].index, operation.args[1].index
    inverse = (1 / here[below] + 1 / there[below]) / 2
    # 1/b - 1/b' = -(b - b') / (b b')
    return [
        (above, (arrived * inverse).sum_to_size(middle[above].shape)),
        (below, (-arrived * middle[above] / (here[below] * there[below])).sum_to_size(middle[below].shape)),
    ]


def _factor_kind(operation: Operation) -> Kind:
    first, second = (isinstance(operation.args[i], Ref) for i in _FACTORS[operation.name])
    if operation.name == "div" and operation.kwargs.get("rounding_mode") is not None:
        return Kind.UNKNOWN
    if first and second:
        return Kind.PRODUCT
    return Kind.POINTWISE if operation.name == "div" and second else Kind.LINEAR


def _tagged_pointwise(operation: Operation) -> bool:
    function: Any = operation.function
    overloads = [getattr(function, o) for o in function.overloads()] if hasattr(function, "overloads") else [function]
    return any(torch.Tag.pointwise in getattr(overload, "tags", ()) for overload in overloads)


def _condition_varies(operation: Operation, values: Values) -> bool:
    """Whether the operation chooses by a mask or an index that is computed from the input."""
    return any(isinstance(values[i], Tensor) and not values[i].dtype.is_floating_point for i in operation.refs)
