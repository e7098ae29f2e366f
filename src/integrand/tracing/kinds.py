"""What kind of operation a step is: what a rule needs to know to hand something back through it."""

from __future__ import annotations

import enum
from typing import Any

import torch
from torch import Tensor

from .program import Operation, Ref, Values


class Kind(enum.Enum):
    """Kinds of operations, as seen from the arguments that depend on the input."""

    MOVE = "numbers change places or are copied"
    LINEAR = "sums with constant weights"
    POINTWISE = "a function of each number alone"
    PRODUCT = "factors that both depend on the input"
    MAX = "the largest or smallest of several numbers"
    SOFTMAX = "softmax or its logarithm"
    CUT = "no gradient passes: comparisons, casts to integers, detach"
    CHOICE = "a choice between numbers by a condition that depends on the input"
    UNKNOWN = "none of these"


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
"""Functions of each number alone that torch does not mark as such."""

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
"""Products with something added, and the same without."""

WEIGHTED = frozenset("convolution mm addmm bmm baddbmm mv addmv linear matmul".split())
"""Operations whose constant factor is what people call a layer's weights."""

RECTIFIERS = frozenset("relu relu6 hardtanh clamp clamp_min threshold maximum".split())
"""Rectifiers, where their lower bound is zero; see :func:`rectifies`."""

ARITHMETIC = frozenset("pow sqrt rsqrt reciprocal square exp log div".split())
"""Functions of each number alone that norms and quotients are made of, and no one takes for an activation."""


def kind_of(step: Operation, values: Values) -> Kind:
    """The kind of a step, given what its arguments are."""
    name, out = step.name, values[step.out]
    if any(isinstance(value, Tensor) and value.is_complex() for value in (out, *(values[i] for i in step.refs))):
        return Kind.UNKNOWN
    if name == "detach" or (isinstance(out, Tensor) and not out.dtype.is_floating_point):
        return Kind.CUT
    if name in _CHOOSERS and _condition_varies(step, values):
        return Kind.CHOICE
    if name in MOVES:
        return Kind.MOVE
    if name in _SUMS or name in ("where", "sum of terms"):
        return Kind.LINEAR
    if name in _FACTORS:
        return _factor_kind(step)
    if "softmax" in name or name == "logsumexp":
        return Kind.SOFTMAX
    if name in _MAXIMA:
        two = name in ("maximum", "minimum", "fmax", "fmin")
        return Kind.POINTWISE if two and len(step.refs) == 1 else Kind.MAX
    if len(step.refs) == 1 and (name in _POINTWISE or _marked(step)):
        return Kind.POINTWISE
    return Kind.UNKNOWN


def _factor_kind(step: Operation) -> Kind:
    first, second = (isinstance(step.args[i], Ref) for i in _FACTORS[step.name])
    if step.name == "div" and step.kwargs.get("rounding_mode") is not None:
        return Kind.UNKNOWN
    if first and second:
        return Kind.PRODUCT
    return Kind.POINTWISE if step.name == "div" and second else Kind.LINEAR


def _marked(step: Operation) -> bool:
    function: Any = step.function
    overloads = [getattr(function, o) for o in function.overloads()] if hasattr(function, "overloads") else [function]
    return any(torch.Tag.pointwise in getattr(overload, "tags", ()) for overload in overloads)


def _condition_varies(step: Operation, values: Values) -> bool:
    """Whether a mask or an index is computed from the input."""
    return any(isinstance(values[i], Tensor) and not values[i].dtype.is_floating_point for i in step.refs)


def smallest(step: Operation) -> bool:
    """Whether a MAX step takes the smallest."""
    return step.name in _SMALLEST


def factors(step: Operation) -> tuple[int, int]:
    """The positions of the two factors of a PRODUCT or weighted LINEAR step."""
    return _FACTORS[step.name]


def has_factors(step: Operation) -> bool:
    """Whether a step multiplies two arguments."""
    return step.name in _FACTORS


def rectifies(step: Operation) -> bool:
    """Whether a step is max(0, z), possibly bounded above."""
    if step.name not in RECTIFIERS or len(step.refs) != 1:
        return False
    if step.name in ("relu", "relu6"):
        return True
    if step.name == "maximum":
        return len(step.refs) == 1 and any(isinstance(arg, Tensor) and not arg.any() for arg in step.args)
    if step.name == "threshold":
        return step.args[1:3] == (0, 0)
    if not isinstance(step.args[0], Ref):
        return False
    bound = step.args[1] if len(step.args) > 1 else step.kwargs.get("min", -1 if step.name == "hardtanh" else None)
    return not isinstance(bound, Ref) and bound is not None and not bool(torch.as_tensor(bound).any())
