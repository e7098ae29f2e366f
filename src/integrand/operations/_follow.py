"""Watching a function run, and writing down what depends on its input."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .._trees import Leaves
from ..errors import ModelError
from ._apart import copied, table
from ._program import Ref, Step

NOT_FOLLOWED = (
    "the operations of the model cannot be followed ({}). Expected a model whose Python code does not branch on, or convert to "
    "numbers, what it computes from x (.item(), float(t), if t > 0, numpy). Methods that need only gradients or scores take "
    "any model."
)


def follow(scores: Callable[..., Tensor], points: Leaves, names: Mapping[int, str]) -> tuple[list[Step], Ref | None]:
    """Run ``scores`` at ``points``: the steps that depend on them, and where the result is (None where it does not).

    Args:
        scores: the function.
        points: its arguments.
        names: from a parameter's memory to the name of its module.
    """
    watch = _Watch(points, names)
    with watch:
        out = scores(*points)
    return watch.steps, watch.ref(out)


class _Watch(TorchDispatchMode):
    """Sees every operation below modules, functionals and autograd; what does not depend on the points just runs."""

    def __init__(self, points: Leaves, names: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs, self.names = len(points), names
        self.steps: list[Step] = []
        self.places: dict[int, Ref] = {}
        self.kept: list[Tensor] = []  # so that no id is used again
        for i, point in enumerate(points):
            self._place(point, Ref(i))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in here: so torch need not import its compiler, which takes seconds the first time."""
        return False

    def ref(self, value: Any) -> Ref | None:
        """Where a tensor comes from, if it depends on the points."""
        return self.places.get(id(value)) if isinstance(value, Tensor) else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        options = dict(kwargs or {})
        if all(self.ref(leaf) is None for leaf in pytree.tree_leaves((args, options))):
            return func(*args, **options)
        with self:
            apart = table().get(func, func.decompose)(*args, **options)
        if apart is not NotImplemented:
            return apart
        if torch.Tag.data_dependent_output in func.tags:
            raise ModelError(NOT_FOLLOWED.format(f"{func} makes a number of a tensor that depends on x"))
        writes = func._schema.is_mutable  # into a constant, perhaps, which is kept as it was before

        def known_as(leaf: Any) -> Any:
            return self.ref(leaf) or (leaf.clone() if writes and isinstance(leaf, Tensor) else leaf)

        known = pytree.tree_map(known_as, (tuple(args), options))
        out = func(*args, **options)
        self._write(func, known[0], known[1], out)
        return out

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        function, name = _functional(func)
        place = self._step(name, function, args, kwargs)
        if isinstance(out, Tensor):
            self._place(out, place)
        elif isinstance(out, (tuple, list)):
            for slot, part in enumerate(out):
                if isinstance(part, Tensor):
                    self._place(part, self._step("getitem", operator.getitem, (place, slot), {}))

    def _step(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
        tensors = (leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.numel())
        modules = (self.names.get(tensor.untyped_storage().data_ptr(), "") for tensor in tensors)
        place = Ref(self.inputs + len(self.steps))
        self.steps.append(Step(place.index, name, function, args, kwargs, next(filter(None, modules), "")))
        return place

    def _place(self, tensor: Tensor, place: Ref) -> None:
        self.kept.append(tensor)
        self.places[id(tensor)] = place


def _functional(func: Any) -> tuple[Callable[..., Any], str]:
    """An operation and its name; one that writes in place is replaced by the one that does not."""
    name: str = func.overloadpacket.__name__
    if name in ("copy_", "copy"):
        return copied, "copy"
    if name.endswith("_") and not name.startswith("__") and hasattr(torch.ops.aten, name[:-1]):
        return getattr(torch.ops.aten, name[:-1]), name[:-1]
    return func, name
