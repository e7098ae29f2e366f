"""From what a user passes as baseline to batches of starting points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._trees import Leaves, Tensors, Tree, flatten
from ..errors import InputError
from ..functions import Function
from ..functions._build import check_tensors
from ..functions._layer import LayerCall, capture

Baseline = Tensors | float | Sequence[Tensors] | Callable[[], Tensors] | None


def settle_baselines(baseline: Baseline, function: Function, draws: int) -> list[Leaves]:
    """One or more starting points, each with one row per example, in the space that is explained.

    Args:
        baseline: see :func:`integrand.integrated_gradients`.
        function: what is explained; its inputs give shapes, dtypes and devices.
        draws: how often to call a baseline that is a function.
    """
    if baseline is None or isinstance(baseline, (int, float)):
        return [tuple(torch.full_like(leaf, float(baseline or 0)) for leaf in function.inputs)]
    if callable(baseline) and not isinstance(baseline, Tensor):
        given: list[Any] = [baseline() for _ in range(draws)]
    elif isinstance(baseline, list) and not (function.tree.kind == "tuple" and len(baseline) == function.tree.size):
        given = list(baseline)
        if not given:
            raise InputError("got an empty list of baselines; expected at least one.")
    else:
        given = [baseline]
    return [start for one in given for start in _place(one, function)]


def _place(baseline: Any, function: Function) -> list[Leaves]:
    """A baseline (or a stack of them) as starting points; with a layer, a model input is run up to the layer."""
    if isinstance(function.run, LayerCall):
        run = function.run
        if _looks_like(baseline, run.call.tree, run.inputs, function.batched):
            found = _fit(baseline, run.call.tree, run.inputs, function.batched, "the model's input", integers=True)
            return [capture(run.call, start, run.modules, run.side)[1] for start in found]
        return _fit(baseline, function.tree, function.inputs, function.batched, "the layer")
    return _fit(baseline, function.tree, function.inputs, function.batched, "x")


def _looks_like(baseline: Any, tree: Tree, like: Leaves, batched: bool) -> bool:
    """Whether a baseline is meant as a model input: same structure, kind of number, and number of dimensions."""
    try:
        found, leaves = flatten(_filled(baseline, tree, like), what="baseline")
    except InputError:
        return False
    return found == tree and all(
        leaf.dtype == other.dtype and other.shape[1:] == leaf.shape[leaf.ndim - other.ndim + 1 :]
        for leaf, other in zip(leaves, like, strict=True)
    )


def _filled(baseline: Any, tree: Tree, like: Leaves) -> Any:
    """Numbers among the tensors of a tuple or dict, spread out to tensors."""

    def fill(part: Any, leaf: Tensor) -> Any:
        if isinstance(part, (int, float)) and not isinstance(part, bool):
            return torch.full_like(leaf, part)
        return part[None].expand(leaf.shape) if isinstance(part, Tensor) and part.ndim == 0 and leaf.ndim else part

    if isinstance(baseline, Mapping) and tree.kind == "dict":
        return {key: fill(part, leaf) for (key, part), leaf in zip(baseline.items(), like, strict=False)}
    if isinstance(baseline, (tuple, list)) and tree.kind == "tuple" and len(baseline) == len(like):
        return tuple(fill(part, leaf) for part, leaf in zip(baseline, like, strict=True))
    return fill(baseline, like[0]) if tree.kind == "tensor" else baseline


def _fit(baseline: Any, tree: Tree, like: Leaves, batched: bool, what: str, *, integers: bool = False) -> list[Leaves]:
    """Check structure, dtype, device and shape; give every example its row."""
    found, leaves = flatten(_filled(baseline, tree, like), what="baseline")
    if found != tree:
        raise InputError(
            f"baseline is a {found.kind} of {found.size} tensor(s) {list(found.keys) or ''}; expected the structure of {what}, a "
            f"{tree.kind} of {tree.size} {list(tree.keys) or ''}."
        )
    check_tensors(found, leaves, what="baseline", integers=integers)
    stacks = [_rows(leaf, other, batched, name, what) for leaf, other, name in zip(leaves, like, tree.names, strict=True)]
    counts = {len(stack) for stack in stacks}
    if len(counts) > 1:
        raise InputError(f"the tensors of baseline hold {sorted(counts)} baselines each; expected the same number in all.")
    return [tuple(stack[i] for stack in stacks) for i in range(counts.pop())]


def _rows(leaf: Tensor, like: Tensor, batched: bool, name: str, what: str) -> list[Tensor]:
    """One (examples, ...) tensor per baseline in a leaf."""
    if leaf.dtype != like.dtype:
        raise InputError(
            f"baseline{name} has dtype {leaf.dtype}; expected {like.dtype}, that of {what}. Convert it with .to({like.dtype})."
        )
    if leaf.device != like.device:
        raise InputError(f"baseline{name} is on {leaf.device}; expected {like.device}, the device of {what}.")
    one = like.shape[1:]
    if leaf.shape in (like.shape, one, (1, *one)):
        return [leaf.expand(like.shape)]
    if leaf.shape[1:] == like.shape and batched:
        return list(leaf)
    if not batched and leaf.shape[1:] == one:
        return [part[None] for part in leaf]
    shown = tuple(like.shape) if batched else tuple(one)
    raise InputError(
        f"baseline{name} has shape {tuple(leaf.shape)}; expected {shown}, that of {what}, or {tuple(one)} for one shared by all "
        f"examples. Several baselines that average go into a list, or a stack of shape (number, {', '.join(map(str, shown))})."
    )
