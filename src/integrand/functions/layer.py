"""Explaining a layer: the model is run as usual, and what the layer gives (or gets) is replaced by points of the path.

A module that runs more than once in a forward pass has one value per call; each is a tensor of its own in the result, so
that together they account for the whole score.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import ModelError, NonFiniteError, OptionError
from ..memory import all_rows, joined, repeated
from ..trees import Leaves
from .call import ModelCall, take
from .model_state import PROCESS, modules_of

LayerSide = Literal["output", "input"]

LayerName = str | nn.Module
Layers = LayerName | Sequence[LayerName]
Slot = tuple[int, int, int]
Visitor = Callable[[int, int, list[Any]], list[Any]]


def find_modules(model: Callable[..., Any], layer: Layers) -> list[nn.Module]:
    """The modules that ``layer=`` names, by dotted name or as objects."""
    wanted = [layer] if isinstance(layer, (str, nn.Module)) else layer
    if not isinstance(wanted, Sequence) or not wanted or not all(isinstance(name, (str, nn.Module)) for name in wanted):
        raise OptionError(f"got layer={layer!r}; expected the dotted name of a submodule, the module, or a list of them.")
    named: dict[str, list[nn.Module]] = {}
    for root in modules_of(model):
        for key, module in root.named_modules():
            named.setdefault(key, []).append(module)
    named.pop("", None)
    found: dict[int, nn.Module] = {}  # by identity, so that a module named twice is explained once
    for name in wanted:
        module = _named(name, named) if isinstance(name, str) else name
        if isinstance(module, torch.jit.ScriptModule):
            shown = name if isinstance(name, str) else type(name).__name__
            raise OptionError(
                f"got layer={shown!r}, which is compiled by torch.jit: its value can be neither seen nor replaced. Expected a "
                "module as it was written: name one outside of what is scripted or traced, or pass the model from before "
                "torch.jit.script or torch.jit.trace."
            )
        found[id(module)] = module
    return list(found.values())


def _named(name: str, named: dict[str, list[nn.Module]]) -> nn.Module:
    if name not in named:
        close = [key for key in named if name.split(".")[-1] in key][:5] or list(named)[:5]
        raise OptionError(
            f"got layer={name!r}, which the model does not have; expected the name of a submodule, for example "
            f"{', '.join(map(repr, close)) or '(this model has none)'}."
        )
    if len(named[name]) > 1:
        raise OptionError(
            f"got layer={name!r}, which {len(named[name])} modules of the model have; expected one. Pass the module itself."
        )
    return named[name][0]


@dataclass(frozen=True)
class LayerCall:
    """A call whose explained tensors are what some modules give (or get), one per call of the module.

    Attributes:
        call: the model's own call.
        inputs: the model's own input, one row per example, with a batch dimension.
        modules: the modules that are replaced.
        side: replace what the module gives (``output``) or gets (``input``).
        slots: (module, call, leaf) of each explained tensor, in order.
        dims: which dimension of each counts examples inside the model; explained tensors have it in front.
    """

    call: ModelCall
    inputs: Leaves
    modules: tuple[nn.Module, ...]
    side: str
    slots: tuple[Slot, ...]
    dims: tuple[int, ...]

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """Run the model on its own input with the layer's values replaced."""
        return self.at(leaves, tuple(take(leaf, rows, self.call.examples) for leaf in self.inputs), rows)

    def at(self, leaves: Leaves, inputs: Leaves, rows: Tensor) -> list[Any]:
        """Run the model on any inputs, (N, ...) each, with the layer's values replaced."""
        if self.call.batched:
            moved = tuple(leaf.movedim(0, dim) for leaf, dim in zip(leaves, self.dims, strict=True))
            return self._replaced(moved, inputs, rows)
        parts = ((tuple(v[i] for v in leaves), tuple(v[i : i + 1] for v in inputs), rows[i : i + 1]) for i in range(len(rows)))
        return [out for part in parts for out in self._replaced(*part)]

    def values_at(self, inputs: Leaves, rows: Tensor) -> Leaves:
        """What the layer gives (or gets) at any inputs of a model with a batch dimension, (N, ...) each, with its graph."""
        found: dict[Slot, Tensor] = {}

        def visit(module: int, call: int, parts: list[Any]) -> list[Any]:
            # Copies, so that an in-place activation after the layer does not write to them.
            found.update({(module, call, i): part.clone() for i, part in enumerate(parts) if _floating(part)})
            return parts

        with visiting(self.modules, self.side, visit):
            self.call(inputs, rows)
        if tuple(found) != self.slots:
            raise ModelError(calls_differ(self.modules[0]))
        return tuple(value.movedim(dim, 0) for value, dim in zip(found.values(), self.dims, strict=True))

    def _replaced(self, leaves: Leaves, inputs: Leaves, rows: Tensor) -> list[Any]:
        places = {slot: i for i, slot in enumerate(self.slots)}
        used: set[Slot] = set()

        def visit(module: int, call: int, parts: list[Any]) -> list[Any]:
            new = list(parts)
            for i, part in enumerate(parts):
                if _floating(part):
                    slot = (module, call, i)
                    if slot not in places:
                        raise ModelError(calls_differ(self.modules[module]))
                    used.add(slot)
                    # A copy of its own, so that an in-place activation after the layer may write to it.
                    new[i] = leaves[places[slot]].clone()
            return new

        with visiting(self.modules, self.side, visit):
            outputs = self.call(inputs, rows)
        if len(used) != len(self.slots):
            missing = next(slot for slot in self.slots if slot not in used)
            raise ModelError(calls_differ(self.modules[missing[0]]))
        return outputs


def capture(
    call: ModelCall, inputs: Leaves, modules: Sequence[nn.Module], side: str, *, alike: bool = False
) -> tuple[LayerCall, Leaves, list[Any]]:
    """Run the model once and keep what the modules give (or get).

    Args:
        call: the model's own call.
        inputs: the model's own input, one row per example.
        modules: whose values are kept.
        side: what a module gives (``output``) or gets (``input``).
        alike: whether all examples are one row, expanded, which is then run alone.

    Returns:
        The call that replaces them, their values with one row per example, and the model's raw outputs.
    """

    def look(rows: Tensor) -> _Seen:
        return _look(call, inputs, modules, side, rows)

    seen = all_rows(look, 1 if alike else call.examples, inputs[0].device)
    first = seen[0]
    if not first.values:
        raise ModelError(
            f"the layer ({type(modules[0]).__name__}) was not run, or its {side} holds no floating point tensor; expected a "
            "submodule that the forward pass calls (torch.jit calls none). Choose another layer, or side with layer_side=."
        )
    if any(part.slots != first.slots for part in seen):
        raise ModelError(calls_differ(modules[0]))
    if call.batched:
        dims = _row_dims(first, look, side)
        values = [torch.cat([p.values[i].movedim(dim, 0) for p in seen]) for i, dim in enumerate(dims)]
        outputs = [joined([part.outputs[0] for part in seen], [len(part.rows) for part in seen])]
        if alike:
            values, outputs = repeated((values, outputs), call.examples)
    else:
        dims, outputs = (0,) * len(first.values), first.outputs
        values = [value[None] for value in first.values]
    _check_finite(values, side)
    return LayerCall(call, inputs, tuple(modules), side, first.slots, dims), tuple(values), outputs


@dataclass(frozen=True)
class _Seen:
    """What a run on some rows showed: the slots of the layer's tensors, these tensors, and the model's outputs."""

    rows: Tensor
    slots: tuple[Slot, ...]
    values: tuple[Tensor, ...]
    outputs: list[Any]


def _look(call: ModelCall, inputs: Leaves, modules: Sequence[nn.Module], side: str, rows: Tensor) -> _Seen:
    slots: list[Slot] = []
    values: list[Tensor] = []

    def visit(module: int, number: int, parts: list[Any]) -> list[Any]:
        for i, part in enumerate(parts):
            if _floating(part):
                slots.append((module, number, i))
                values.append(part.detach().clone())
        return parts

    with torch.no_grad(), visiting(modules, side, visit):
        outputs = call(tuple(leaf.index_select(0, rows) for leaf in inputs), rows)
    return _Seen(rows, tuple(slots), tuple(values), outputs)


def _row_dims(seen: _Seen, look: Callable[[Tensor], _Seen], side: str) -> tuple[int, ...]:
    """Which dimension of each tensor counts rows: the first, or the second as in recurrent layers and their states.

    Where both have the right size, a run on another number of rows tells.
    """
    count = len(seen.rows)
    options = [[dim for dim in (0, 1) if dim < value.ndim and value.shape[dim] == count] for value in seen.values]
    for value, dims in zip(seen.values, options, strict=True):
        if not dims:
            raise ModelError(
                f"the layer's {side} has shape {tuple(value.shape)}; expected {count} rows, one per example, in its first or "
                "second dimension. Choose a layer that keeps the examples apart."
            )
    if any(len(dims) > 1 for dims in options):
        other = look(seen.rows[:-1] if count > 1 else seen.rows.repeat(2))
        if other.slots == seen.slots:
            pairs = zip(options, other.values, strict=True)
            options = [[dim for dim in dims if value.shape[dim] == len(other.rows)] or dims for dims, value in pairs]
    return tuple(dims[0] for dims in options)


def _check_finite(values: Sequence[Tensor], side: str) -> None:
    for value in values:
        bad = (~torch.isfinite(value)).nonzero()
        if len(bad):
            place = tuple(bad[0].tolist())
            raise NonFiniteError(
                f"the layer's {side} holds {value[place].item()} at index {place}; expected finite numbers to run a path "
                "between. Choose another layer, or side with layer_side= (masks that a layer gets are often -inf)."
            )


def _floating(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype.is_floating_point


def calls_differ(module: nn.Module) -> str:
    """The message for a layer that runs more or less often than at the input."""
    return (
        f"the layer ({type(module).__name__}) is called a different number of times along the path than at the input; "
        "expected the same calls at every point. Choose a layer outside the data-dependent loop."
    )


def of_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook on a module, which is everybody's, that leaves what other threads run through the module as it is."""
    owner = threading.current_thread()

    @functools.wraps(hook)
    def own(*args: Any, **kwargs: Any) -> Any:
        thread = threading.current_thread()
        # Autograd's own threads, which run checkpointed layers once more, are none that Python has started.
        return hook(*args, **kwargs) if thread is owner or isinstance(thread, threading._DummyThread) else None

    return own


@contextmanager
def visiting(modules: Sequence[nn.Module], side: str, visit: Visitor) -> Iterator[None]:
    """Hooks on the modules that show each call's tensors to ``visit`` and put back what it returns.

    The modules are everybody's: what other threads run through them meanwhile is left alone.
    """
    calls = [0] * len(modules)
    handles = []

    @of_this_thread
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
        with uncompiled():
            yield
    finally:
        for handle in handles:
            handle.remove()


def uncompiled() -> AbstractContextManager[Any]:
    """What torch.compile made runs as written, since compiled code does not see hooks that come later."""
    return PROCESS.claimed(switches={"compiler": "eager"}) if _something_is_compiled() else nullcontext()


def _something_is_compiled() -> bool:
    """Whether ``torch.compile`` was ever called, as far as can be seen; other parts of torch load the compiler, too."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None or not hasattr(torch.compiler, "set_stance"):
        return False
    backends = getattr(frames, "cached_backends", None)
    return backends is None or any(backend is not None for backend in list(backends.values()))
