"""Explaining a layer: the model is run as usual, and what the layer gives (or gets) is replaced by points of the path.

A module that runs more than once in a forward pass has one value per call; each is a tensor of its own in the result, so
that together they account for the whole score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._trees import Leaves
from ..errors import ModelError, OptionError
from ._call import Call, take
from ._state import modules_of

LayerName = str | nn.Module
Layers = LayerName | Sequence[LayerName]
Visitor = Callable[[int, int, list[Any]], list[Any]]


def find_modules(model: Callable[..., Any], layer: Layers) -> list[nn.Module]:
    """The modules that ``layer=`` names, by dotted name or as objects."""
    roots = [getattr(root, "_orig_mod", root) for root in modules_of(model)]
    wanted = [layer] if isinstance(layer, (str, nn.Module)) else list(layer)
    found: list[nn.Module] = []
    for name in wanted:
        if isinstance(name, nn.Module):
            found.append(name)
            continue
        named = {key: module for root in roots for key, module in root.named_modules() if key}
        if name not in named:
            close = [key for key in named if name.split(".")[-1] in key][:5] or list(named)[:5]
            raise OptionError(
                f"got layer={name!r}, which the model does not have; expected the name of a submodule, for example "
                f"{', '.join(map(repr, close)) or '(this model has none)'}."
            )
        found.append(named[name])
    return found


@dataclass(frozen=True)
class LayerCall:
    """A call whose explained tensors are what some modules give (or get), one per call of the module.

    Attributes:
        call: the model's own call.
        inputs: the model's own input, one row per example, with a batch dimension.
        modules: the modules that are replaced.
        side: replace what the module gives (``output``) or gets (``input``).
        slots: (module, call, leaf) of each explained tensor, in order.
    """

    call: Call
    inputs: Leaves
    modules: tuple[nn.Module, ...]
    side: str
    slots: tuple[tuple[int, int, int], ...]

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """Run the model on its own input with the layer's values replaced."""
        if self.call.batched:
            return self._replaced(leaves, rows)
        return [out for i in range(len(rows)) for out in self._replaced(tuple(v[i] for v in leaves), rows[i : i + 1])]

    def _replaced(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        places = {slot: i for i, slot in enumerate(self.slots)}
        used: set[tuple[int, int, int]] = set()

        def visit(module: int, call: int, parts: list[Any]) -> list[Any]:
            new = list(parts)
            for i, part in enumerate(parts):
                if _floating(part):
                    slot = (module, call, i)
                    if slot not in places:
                        raise ModelError(_calls_differ(self.modules[module]))
                    used.add(slot)
                    # A copy of its own, so that an in-place activation after the layer may write to it.
                    new[i] = leaves[places[slot]].clone()
            return new

        with _visiting(self.modules, self.side, visit):
            inputs = tuple(take(leaf, rows, self.call.examples) for leaf in self.inputs)
            outputs = self.call(inputs, rows)
        if len(used) != len(self.slots):
            missing = next(slot for slot in self.slots if slot not in used)
            raise ModelError(_calls_differ(self.modules[missing[0]]))
        return outputs


def capture(call: Call, inputs: Leaves, modules: Sequence[nn.Module], side: str) -> tuple[LayerCall, Leaves, list[Any]]:
    """Run the model once and keep what the modules give (or get).

    Returns:
        The call that replaces them, their values with one row per example, and the model's raw outputs.
    """
    slots: list[tuple[int, int, int]] = []
    values: list[Tensor] = []

    def visit(module: int, number: int, parts: list[Any]) -> list[Any]:
        for i, part in enumerate(parts):
            if _floating(part):
                slots.append((module, number, i))
                values.append(part.detach().clone())
        return parts

    rows = torch.arange(call.examples, device=inputs[0].device)
    with torch.no_grad(), _visiting(modules, side, visit):
        outputs = call(inputs, rows)
    if not values:
        name = type(modules[0]).__name__
        raise ModelError(
            f"the layer ({name}) was not run, or its {side} holds no floating point tensor; expected a submodule that the "
            "forward pass calls. Choose another layer, or side with layer_side=."
        )
    if not call.batched:
        values = [value[None] for value in values]
    for value in values:
        if value.ndim == 0 or value.shape[0] != call.examples:
            raise ModelError(
                f"the layer's {side} has shape {tuple(value.shape)}; expected {call.examples} rows, one per example, in its "
                "first dimension (for recurrent layers: batch_first=True)."
            )
    return LayerCall(call, inputs, tuple(modules), side, tuple(slots)), tuple(values), outputs


def _floating(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype.is_floating_point


def _calls_differ(module: nn.Module) -> str:
    return (
        f"the layer ({type(module).__name__}) is called a different number of times along the path than at the input; "
        "expected the same calls at every point. Choose a layer outside the data-dependent loop."
    )


@contextmanager
def _visiting(modules: Sequence[nn.Module], side: str, visit: Visitor) -> Iterator[None]:
    """Hooks on the modules that show each call's tensors to ``visit`` and put back what it returns."""
    calls = [0] * len(modules)
    handles = []

    def through(index: int, value: Any) -> Any:
        parts, spec = pytree.tree_flatten(value)
        new = visit(index, calls[index], parts)
        calls[index] += 1
        return pytree.tree_unflatten(new, spec)

    try:
        for index, module in enumerate(modules):
            if side == "output":

                def after(_: nn.Module, __: Any, output: Any, index: int = index) -> Any:
                    return through(index, output)

                handles.append(module.register_forward_hook(after))
            else:

                def before(_: nn.Module, args: Any, kwargs: Any, index: int = index) -> Any:
                    return through(index, (args, kwargs))

                handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
