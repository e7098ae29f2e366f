"""From what a user passes as baseline to the starting points of paths, one row per example."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..backends.torch_function import TorchFunction
from ..errors import InputError, ModelError
from ..functions.layer import LayerCall, calls_differ, capture
from ..functions.randomness import noticing_draws
from ..trees import Leaves, Tensors, Tree, check_tensors, flatten, matched

Baseline = Tensors | float | Sequence[Tensors | float] | Callable[[], Tensors] | None
"""What may be passed as ``baseline=``; see :func:`integrand.integrated_gradients`."""


def resolve_baselines(baseline: Baseline, function: TorchFunction, draws: int) -> list[Leaves]:
    """One or more starting points, each with one row per example, in the space that is explained.

    Args:
        baseline: see :func:`integrand.integrated_gradients`.
        function: the function that is explained; its inputs give shapes, dtypes and devices.
        draws: how often to call a baseline that is a function.
    """
    return [start for one in _listed(baseline, function.tree, draws) for start in _starting_points(one, function)]


def _listed(baseline: Any, tree: Tree, draws: int) -> list[Any]:
    """The baselines to average as a list; each of them may still be a stack of several."""
    if callable(baseline) and not isinstance(baseline, Tensor):
        with noticing_draws():
            return [baseline() for _ in range(draws)]
    if not isinstance(baseline, list):
        return [baseline]
    if not baseline:
        raise InputError("got an empty list of baselines; expected at least one.")
    # Where x has several tensors, a list with as many is one baseline in its structure, not several.
    one = tree.kind == "tuple" and len(baseline) == tree.size and any(isinstance(part, Tensor) for part in baseline)
    return [tuple(baseline)] if one else baseline


def _starting_points(baseline: Any, function: TorchFunction) -> list[Leaves]:
    """A baseline, or a stack of several, as starting points; with a layer, a model input is run up to the layer."""
    if baseline is None or _is_number(baseline):
        value = float(baseline or 0)
        if not math.isfinite(value):
            raise InputError(f"got baseline={value}; expected a finite number.")
        return [tuple(torch.full_like(leaf, value) for leaf in function.inputs)]
    run = function.run
    if not isinstance(run, LayerCall):
        return _check_and_expand(baseline, function.tree, function.inputs, function.batched, "x")
    if not _is_model_input(baseline, run):
        return _check_and_expand(baseline, function.tree, function.inputs, function.batched, "the layer")
    starts = _check_and_expand(baseline, run.call.tree, run.inputs, function.batched, "the model's input", integers=True)
    return [_at_layer(start, run, function.inputs) for start in starts]


def _at_layer(start: Leaves, run: LayerCall, like: Leaves) -> Leaves:
    """The values of the explained layer for a baseline that is an input of the model."""
    found, values, _ = capture(run.call, start, run.modules, run.side)
    if found.slots != run.slots:
        raise ModelError(calls_differ(run.modules[0]))
    for value, other in zip(values, like, strict=True):
        if value.shape != other.shape:
            raise InputError(
                f"the layer's {run.side} has shape {tuple(value.shape)} at the baseline and {tuple(other.shape)} at the input; "
                "expected the same. Choose a baseline of the same length."
            )
    return values


def _is_model_input(baseline: Any, run: LayerCall) -> bool:
    """Whether a baseline is meant as a model input rather than as a value of the layer.

    Whole numbers are a model input where the model takes whole numbers; otherwise, what has the structure and shape of one.
    """
    try:
        tree, leaves = flatten(_numbers_as_tensors(baseline, run.call.tree, run.inputs), what="baseline")
    except InputError:
        return False
    if tree != run.call.tree:
        return False
    pairs = list(zip(leaves, run.inputs, strict=True))
    kinds = all(leaf.dtype.is_floating_point == like.dtype.is_floating_point for leaf, like in pairs)
    ids = any(not like.dtype.is_floating_point for like in run.inputs)
    return kinds and (ids or all(leaf.shape[max(0, leaf.ndim - like.ndim + 1) :] == like.shape[1:] for leaf, like in pairs))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers_as_tensors(baseline: Any, tree: Tree, like: Leaves) -> Any:
    """A baseline with numbers in place of tensors expanded to tensors, and a dict in the order of x."""

    def fill(part: Any, leaf: Tensor) -> Any:
        if _is_number(part):
            return torch.full_like(leaf, part)
        return part[None].expand(leaf.shape) if isinstance(part, Tensor) and part.ndim == 0 else part

    if tree.kind == "dict" and isinstance(baseline, Mapping) and set(baseline) == set(tree.keys):
        return {key: fill(baseline[key], leaf) for key, leaf in zip(tree.keys, like, strict=True)}
    if tree.kind == "tuple" and isinstance(baseline, (tuple, list)) and len(baseline) == len(like):
        return tuple(fill(part, leaf) for part, leaf in zip(baseline, like, strict=True))
    return fill(baseline, like[0]) if tree.kind == "tensor" else baseline


def _check_and_expand(
    baseline: Any, tree: Tree, like: Leaves, batched: bool, what: str, *, integers: bool = False
) -> list[Leaves]:
    """Check structure, dtype, device and shape of a baseline, and give every example its row."""
    leaves = matched(_numbers_as_tensors(baseline, tree, like), tree, what="baseline", like=what)
    for leaf, other, name in zip(leaves, like, tree.names, strict=True):
        if leaf.dtype != other.dtype:
            raise InputError(
                f"baseline{name} has dtype {leaf.dtype}; expected {other.dtype}, that of {what}. Convert it with "
                f".to({other.dtype})."
            )
        if leaf.device != other.device:
            raise InputError(
                f"baseline{name} is on {leaf.device}; expected {other.device}, the device of {what}. Move it with "
                f".to({str(other.device)!r})."
            )
    check_tensors(tree, leaves, what="baseline", integers=integers)
    stacks = [
        _rows_of_each_baseline(leaf, other, batched, name, what)
        for leaf, other, name in zip(leaves, like, tree.names, strict=True)
    ]
    counts = {len(stack) for stack in stacks}
    if len(counts) > 1:
        raise InputError(f"the tensors of baseline hold {sorted(counts)} baselines each; expected the same number in all.")
    return [tuple(stack[i] for stack in stacks) for i in range(counts.pop())]


def _rows_of_each_baseline(leaf: Tensor, like: Tensor, batched: bool, name: str, what: str) -> list[Tensor]:
    """One (examples, ...) tensor for each baseline that a tensor holds."""
    one = like.shape[1:]
    leaf = leaf.detach()
    if leaf.shape in (like.shape, one, (1, *one)):
        return [leaf.expand(like.shape)]
    if batched and leaf.shape[1:] in (like.shape, (1, *one)):
        return [part.expand(like.shape) for part in leaf]
    if not batched and leaf.shape[1:] == one:
        return [part[None] for part in leaf]
    shown = tuple(like.shape) if batched else tuple(one)
    shared = f", or {tuple(one)} for one shared by all examples" if batched else ""
    raise InputError(
        f"baseline{name} has shape {tuple(leaf.shape)}; expected {shown}, that of {what}{shared}. "
        f"Several baselines that average go into a list, or a stack of shape (number, {', '.join(map(str, shown))})."
    )
