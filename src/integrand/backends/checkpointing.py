"""Gradient checkpointing by layer: in the backward pass, the activations of a stack of blocks are computed again, one by one.

A transformer of 32 blocks then holds what one block saves and what goes into each of them, for one more forward pass through
the blocks for every backward pass. Chosen where a single row would not fit into memory otherwise; see
:meth:`integrand.evaluation.evaluator.Evaluator.measure_rows`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, is_grad_enabled, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from ..functions.call import ModelCall, RunsRows
from ..functions.layer import LayerCall, uncompiled
from ..functions.model_state import modules_of
from ..trees import Leaves
from .full_precision import FullPrecision

NOTE = "activations recomputed block by block to save memory"
"""What a certificate says of a result that was computed so: the values are the same to rounding."""

CACHES = ("past_key_values", "past_key_value", "layer_past")
"""What blocks of language models call the keys and values that they keep for later tokens."""


def blocks_of(model: Callable[..., Any]) -> tuple[nn.Module, ...]:
    """The repeated blocks of a model: entries of its lists and sequences of modules of one class that have parts of their own.

    Of lists inside of blocks, only the outermost count.

    >>> block = lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> len(blocks_of(nn.Sequential(nn.Linear(3, 2), nn.Sequential(block(), block(), block()))))
    3
    """
    found: dict[int, nn.Module] = {}
    waiting = modules_of(model)
    seen: set[int] = set()
    while waiting:
        module = waiting.pop(0)
        if id(module) in seen:
            continue
        seen.add(id(module))
        parts = [part for part in module._modules.values() if part is not None]
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and _stack(parts):
            found.update({id(part): part for part in parts})
        else:
            waiting += parts
    return tuple(found.values())


def _stack(parts: Sequence[nn.Module]) -> bool:
    """Whether modules are blocks: at least two, of one class, each with parts of its own."""
    return len(parts) > 1 and len(set(map(type, parts))) == 1 and all(len(part._modules) for part in parts)


def recomputable(run: RunsRows) -> tuple[nn.Module, ...]:
    """The blocks whose activations may be computed again: none with a layer whose value is replaced while the model runs."""
    if isinstance(run, ModelCall):
        return blocks_of(run.model)
    if not isinstance(run, LayerCall):
        return ()
    explained = set(map(id, run.modules))
    blocks = blocks_of(run.call.model)
    return tuple(block for block in blocks if explained.isdisjoint(map(id, block.modules())))


@dataclass(frozen=True)
class CheckpointedRun:
    """Runs a model whose blocks' activations are computed again in the backward pass.

    Attributes:
        inner: runs the model.
        blocks: whose activations.
    """

    inner: RunsRows
    blocks: tuple[nn.Module, ...]

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """The model's raw outputs for explained rows."""
        if not is_grad_enabled():
            return self.inner(leaves, rows)
        with checkpointed(self.blocks), uncompiled():
            return self.inner(leaves, rows)


@contextmanager
def checkpointed(blocks: Sequence[nn.Module]) -> Iterator[None]:
    """Modules that save what goes into them, and nothing else, for the backward pass of what runs inside.

    Blocks are everybody's: what other threads run through them meanwhile is left alone.
    """
    owner = threading.current_thread()

    def light(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not owner or not is_grad_enabled():
                return plain(*args, **kwargs)
            without = _without_caches(kwargs)
            if without is None:
                return plain(*args, **kwargs)
            # What is computed again is computed after the forward pass, in a thread of autograd's: in the same precision.
            again: Callable[[], Any] = FullPrecision if FullPrecision.active() else nullcontext
            # Models that draw random numbers are refused, so that there is no state to keep.
            return checkpoint(
                plain,
                *args,
                use_reentrant=False,
                context_fn=lambda: (nullcontext(), again()),
                preserve_rng_state=False,
                **without,
            )

        return forward

    with _forwards_replaced(blocks, light):
        yield


@contextmanager
def _forwards_replaced(blocks: Sequence[nn.Module], make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Modules with another forward function, made of their own; they have their own again afterwards."""
    before = [(block, block.__dict__.get("forward")) for block in blocks]
    try:
        for block in blocks:
            block.forward = make(block.forward)
        yield
    finally:
        for block, own in before:
            block.__dict__.pop("forward", None)
            if own is not None:
                block.forward = own


def _without_caches(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Keywords without caches of keys and values that are still empty; None where one holds something.

    A block that runs again would add its keys to the cache once more.
    """
    out = dict(given)
    for name in CACHES:
        cache = given.get(name)
        if cache is None:
            continue
        length = getattr(cache, "get_seq_length", None)
        if length is None or length():
            return None
        out[name] = None
    return out


@dataclass(frozen=True)
class SavedBytes:
    """What autograd saves in a forward pass, in bytes.

    Attributes:
        plain: if everything is saved.
        light: if blocks save what goes into them only: that, what is saved outside of them, and all that the largest saves.
    """

    plain: int
    light: int


def saved_bytes(run: Callable[[], object], blocks: Sequence[nn.Module]) -> SavedBytes:
    """Count what autograd saves while something runs, without holding it.

    Args:
        run: a forward pass of the model, which is not differentiated.
        blocks: of the model.
    """
    everything, inputs, inside = StorageCount(), StorageCount(), []

    def counted(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            for leaf in pytree.tree_leaves((args, kwargs)):
                if isinstance(leaf, Tensor):
                    inputs.add(leaf)
            before = everything.bytes
            out = plain(*args, **kwargs)
            inside.append(everything.bytes - before)
            return out

        return forward

    with saved_tensors_hooks(everything.add, _not_held), _forwards_replaced(blocks, counted), uncompiled():
        run()
    largest, outside = max(inside, default=0), everything.bytes - sum(inside)
    return SavedBytes(everything.bytes, outside + (inputs.bytes if inside else 0) + largest)


def _not_held(_: object) -> Tensor:
    raise RuntimeError("what was saved while bytes were counted is not held: the model differentiates something itself")


class StorageCount:
    """Adds up the bytes of tensors, each storage once, without holding them; what was freed is told apart from what follows."""

    def __init__(self) -> None:
        self.bytes = 0
        self._seen: dict[int, StorageWeakRef] = {}

    def add(self, tensor: Tensor) -> None:
        """Count a tensor, unless it is a parameter, which is there once however many rows there are."""
        base = tensor if tensor._base is None else tensor._base
        if isinstance(base, nn.Parameter):
            return
        storage = StorageWeakRef(tensor.untyped_storage())
        if storage.cdata not in self._seen:
            self._seen[storage.cdata] = storage
            self.bytes += tensor.untyped_storage().nbytes()
