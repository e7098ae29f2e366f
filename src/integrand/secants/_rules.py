"""What each operation hands back over a segment: its mean slope, if what goes into it moves along a straight line."""

# ruff: noqa: SIM905 (a table of names)
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..operations import Kind, Ref, Step, product, secant, vjp
from ..operations._program import Values
from ..operations._sweep import Handed

NO_RULE = frozenset({Kind.CUT, Kind.CHOICE, Kind.UNKNOWN})
"""What jumps, or is not known: there, gradients have to be sampled."""

_CLAMPS = {
    "relu": (0.0, None), "relu6": (0.0, 6.0), "hardtanh": (-1.0, 1.0), "clamp": (None, None), "clamp_min": (None, None)
}  # fmt: skip
"""Pointwise functions that keep numbers within bounds, and what these are where they are not given."""

_SMOOTH_OR_KINKED = frozenset(
    (
        "relu relu6 hardtanh clamp clamp_min clamp_max leaky_relu _prelu_kernel elu celu selu gelu silu mish softplus "
        "sigmoid tanh log_sigmoid hardswish hardsigmoid softshrink rrelu exp exp2 expm1 log log2 log10 log1p sqrt rsqrt "
        "reciprocal pow square abs neg sin cos sinh cosh asinh atan erf erfc special_ndtr logit div maximum "
        "minimum"
    ).split()
)
"""Pointwise functions that do not jump: where one jumps, its secants see a change that no gradient does."""

_POOLS = {"max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3, "adaptive_max_pool2d": 2, "adaptive_max_pool3d": 3}
"""Pools, and how many dimensions they pool over."""

_GAUSS = ((1.0, 3), (6.0, 8), (np.inf, 24))
"""How far logits may move along a segment for so many Gauss nodes to integrate softmax."""


def needs_output(step: Step, kind: Kind) -> bool:
    """Whether a rule needs what the step gave, and not only what it was given."""
    return (kind is Kind.POINTWISE and _bounds(step) is None) or (kind is Kind.MAX and step.name in _POOLS)


def supported(step: Step, kind: Kind) -> bool:
    """Whether there is a rule."""
    if kind is Kind.POINTWISE:
        return step.name in _SMOOTH_OR_KINKED
    if kind is Kind.MAX:
        along = step.name in ("max", "min", "amax", "amin") and _dim(step) is not None
        return step.name in _POOLS or along or step.name in ("maximum", "minimum")
    return kind not in NO_RULE


class Workspace:
    """Memory that is used again and again: on a CPU, asking for new memory takes longer than the arithmetic in it."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, torch.dtype], Tensor] = {}

    def __call__(self, number: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor of the shape of another, whose numbers last until the same number is asked for again."""
        key = number, dtype or like.dtype
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < like.numel():
            buffer = self._buffers[key] = torch.empty(like.numel(), dtype=key[1], device=like.device)
        if not _dense(like):
            return torch.empty_like(like, dtype=key[1])
        return buffer[: like.numel()].as_strided(like.shape, like.stride())


def mean_slopes(step: Step, first: Values, last: Values, arrived: Any, kind: Kind, space: Workspace) -> Handed:
    """What each argument of a step that is not linear gets.

    Args:
        step: the operation.
        first: values at the segment's start.
        last: values at its end.
        arrived: what arrived at the output.
        kind: what kind of operation it is.
        space: memory to work in.
    """
    if kind is Kind.POINTWISE:
        index = step.refs[0]
        bounds = _bounds(step)
        if bounds is not None:
            return [(index, _clamped(bounds, first[index], last[index], arrived, space))]
        return [(index, (arrived * secant(step, last, first)).sum_to_size(first[index].shape))]
    if kind is Kind.PRODUCT:
        return product(step, last, first, arrived)
    if kind is Kind.SOFTMAX:
        return [(step.refs[0], _softmax(step, first[step.refs[0]], last[step.refs[0]], arrived))]
    if step.name in ("maximum", "minimum"):
        return _larger(step, first, last, arrived)
    return [(step.refs[0], _maximum(step, first, last, arrived))]


def _bounds(step: Step) -> tuple[float, float] | None:
    """The bounds that a step keeps numbers within, None where it does something else."""
    if step.name not in _CLAMPS or not isinstance(step.args[0], Ref):
        return None
    given = dict(zip(("min", "max"), step.args[1:], strict=False)) | dict(step.kwargs)
    given = {name.removesuffix("_val"): bound for name, bound in given.items()}
    low, high = (given.get(name, usual) for name, usual in zip(("min", "max"), _CLAMPS[step.name], strict=True))
    if any(isinstance(bound, (Tensor, Ref)) for bound in (low, high)):
        return None
    return (-torch.inf if low is None else float(low)), (torch.inf if high is None else float(high))


def _clamped(bounds: tuple[float, float], a: Tensor, b: Tensor, arrived: Tensor, space: Workspace) -> Tensor:
    """Arrived times (f(b) - f(a)) / (b - a), or f'(a) where nothing moved; most of the work is done here."""
    rise = torch.clamp(b, *bounds, out=space(0, a))
    rise.sub_(torch.clamp(a, *bounds, out=space(1, a))).mul_(arrived)
    change = torch.sub(b, a, out=space(1, a))
    still = torch.eq(change, 0, out=space(2, a, torch.bool))
    slopes = rise.div_(change)
    derived = torch.ops.aten.hardtanh_backward(arrived, a, *bounds, grad_input=space(3, a))
    return torch.where(still, derived, slopes)


def _dense(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor lie side by side in memory."""
    return tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)


def _share(lead: Tensor, lost: Tensor) -> Tensor:
    """The share of a segment up to where a difference that is ``lead`` at its start and ``-lost`` at its end is zero."""
    total = lead + lost
    return torch.where(total > 0, lead / torch.where(total > 0, total, 1), 0.5)


def _larger(step: Step, first: Values, last: Values, arrived: Tensor) -> Handed:
    """Of two: each gets the share of the segment on which it is chosen."""
    one, two = step.args[0].index, step.args[1].index
    sign = -1 if step.name == "minimum" else 1
    before, after = sign * (first[one] - first[two]), sign * (last[one] - last[two])
    cross = _share(before.abs(), after.abs())
    share = torch.where(before >= 0, cross, 0) + torch.where(after >= 0, 1 - cross, 0)
    parts = [(one, arrived * share), (two, arrived * (1 - share))]
    return [(i, part.sum_to_size(first[i].shape)) for i, part in parts]


def _dim(step: Step) -> int | None:
    """The one dimension that a maximum is taken over, None where it is several or all."""
    dim = step.args[1] if len(step.args) > 1 else step.kwargs.get("dim")
    if isinstance(dim, (list, tuple)):
        dim = dim[0] if len(dim) == 1 else None
    return dim if isinstance(dim, int) and not isinstance(dim, bool) else None


def _maximum(step: Step, first: Values, last: Values, arrived: Any) -> Tensor:
    """Of many: the winners at both ends share the segment at the point where they cross."""
    seed: Tensor = arrived[0] if isinstance(arrived, dict) else arrived
    index = step.refs[0]
    a, b = first[index], last[index]
    if step.name in _POOLS:
        over = _POOLS[step.name]
        won, wins = (values[step.out][1].flatten(-over) for values in (first, last))
        return _divided(a.flatten(-over), b.flatten(-over), won, wins, seed.flatten(-over), -1).view(a.shape)
    dim = _dim(step)
    assert dim is not None
    kept = bool(step.args[2] if len(step.args) > 2 else step.kwargs.get("keepdim", False))
    seed = seed if kept else seed.unsqueeze(dim)
    pick = torch.argmin if step.name in ("min", "amin") else torch.argmax
    return _divided(a, b, pick(a, dim, keepdim=True), pick(b, dim, keepdim=True), seed, dim)


def _divided(a: Tensor, b: Tensor, won: Tensor, wins: Tensor, seed: Tensor, dim: int) -> Tensor:
    lead = (a.gather(dim, won) - a.gather(dim, wins)).abs()
    lost = (b.gather(dim, wins) - b.gather(dim, won)).abs()
    share = _share(lead, lost)
    return torch.zeros_like(a).scatter_add_(dim, won, seed * share).scatter_add_(dim, wins, seed * (1 - share))


def _softmax(step: Step, a: Tensor, b: Tensor, arrived: Tensor) -> Tensor:
    """Softmax integrated along the segment of its logits."""
    change = torch.where(a == b, 0, b - a)  # equal: also where both are -inf, masked
    far = float(change.abs().max())
    nodes, weights = np.polynomial.legendre.leggauss(next(count for limit, count in _GAUSS if far <= limit or limit == np.inf))
    total = torch.zeros_like(a)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        for _, part in vjp(step, {step.refs[0]: a + float(node) * change}, arrived):
            total += float(weight) * part
    return total
