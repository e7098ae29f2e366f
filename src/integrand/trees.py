"""Structures of tensors: one tensor, a tuple or a dict of tensors, flattened and built again; and what a tensor has to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .errors import InputError

Tensors = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""What users pass and get: one tensor, a tuple of them, or a dict of them."""

Leaves = tuple[Tensor, ...]
"""The same, flattened in order."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The structure around a tuple of leaves: ``kind`` and, for a dict, its keys.

    >>> tree, leaves = flatten({"a": torch.zeros(2), "b": torch.ones(2)})
    >>> tree.names
    ("['a']", "['b']")
    >>> sorted(tree.build(leaves))
    ['a', 'b']
    """

    kind: str  # "tensor", "tuple" or "dict"
    keys: tuple[str, ...] = ()
    size: int = 1

    def __str__(self) -> str:
        if self.kind == "tensor":
            return "one tensor"
        return f"a {self.kind} of {self.size} tensor(s)" + (f" ({', '.join(map(repr, self.keys))})" if self.keys else "")

    @property
    def names(self) -> tuple[str, ...]:
        """A suffix for messages that tells the leaves apart ('' for a single tensor)."""
        if self.kind == "tensor":
            return ("",)
        if self.kind == "dict":
            return tuple(f"[{k!r}]" for k in self.keys)
        return tuple(f"[{i}]" for i in range(self.size))

    def arguments(self, leaves: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """The positional and keyword arguments that a model gets: a dict is spread as keywords, all else is positional."""
        return ((), dict(zip(self.keys, leaves, strict=True))) if self.kind == "dict" else (tuple(leaves), {})

    def build(self, leaves: Sequence[Tensor]) -> Tensors:
        """Put leaves back into the structure."""
        if self.kind == "tensor":
            return leaves[0]
        if self.kind == "dict":
            return dict(zip(self.keys, leaves, strict=True))
        return tuple(leaves)


def flatten(value: object, *, what: str = "x") -> tuple[Tree, Leaves]:
    """Split a structure of tensors into its shape and its leaves.

    Args:
        value: a tensor, a tuple or list of tensors, or a mapping from names to tensors.
        what: how messages call it.
    """
    if isinstance(value, Tensor):
        return Tree("tensor"), (value,)
    if isinstance(value, Mapping):
        tree = Tree("dict", tuple(value), len(value))
        leaves = tuple(value.values())
    elif isinstance(value, (tuple, list)):
        tree = Tree("tuple", (), len(value))
        leaves = tuple(value)
    else:
        expected = "expected a torch tensor, a tuple of tensors or a dict of tensors"
        raise InputError(f"{what} is {_kind(value)}; {expected}. {_instead(value, what)}")
    if not leaves:
        raise InputError(f"{what} is empty ({value!r}); expected at least one tensor.")
    for name, leaf in zip(tree.names, leaves, strict=True):
        if not isinstance(leaf, Tensor):
            numbers = tree.kind == "tuple" and not any(isinstance(part, Tensor) for part in leaves)
            if numbers and isinstance(leaf, (int, float, list)):
                convert = f"{_instead(value, what)} "
            else:
                convert = "" if isinstance(leaf, (int, float)) else f"{_instead(leaf, f'{what}{name}')} "
            further = "Pass what is not explained through args= or kwargs=."
            raise InputError(f"{what}{name} is {_kind(leaf)}; expected a torch tensor. {convert}{further}")
    return tree, leaves


def matched(value: object, tree: Tree, *, what: str, like: str = "x") -> Leaves:
    """The leaves of something that must have a given structure; a dict may come in another order.

    >>> tree, _ = flatten({"a": torch.zeros(2), "b": torch.ones(2)})
    >>> matched({"b": torch.tensor(1), "a": torch.tensor(0)}, tree, what="mask")
    (tensor(0), tensor(1))
    """
    if tree.kind == "dict" and isinstance(value, Mapping) and set(value) == set(tree.keys):
        value = {key: value[key] for key in tree.keys}
    found, leaves = flatten(value, what=what)
    if found != tree:
        raise InputError(f"{what} is {found}; expected {tree}, the structure of {like}.")
    return leaves


def _instead(value: object, what: str) -> str:
    """What to pass in the place of an object that is no tensor, as code to paste."""
    package = type(value).__module__.partition(".")[0]
    if package == "numpy":
        return f"Convert it with torch.from_numpy({what}).float()."
    if package in ("pandas", "polars"):
        row = "[None]" if type(value).__name__ == "Series" else ""
        numbers = "to_numpy(dtype='float32')" if package == "pandas" else "to_numpy().astype('float32')"
        return f"Convert it with torch.tensor({what}.{numbers}){row}; texts in it have to become numbers first."
    if package == "PIL":
        return (
            f"Convert it with torch.from_numpy(numpy.array({what})).permute(2, 0, 1)[None] / 255; "
            "integrand.apps.images.explain takes photos as they are."
        )
    if isinstance(value, str):
        return "Texts are explained by integrand.text.explain(model, tokenizer, text)."
    if isinstance(value, (list, tuple)):
        return f"Convert numbers with torch.tensor({what}, dtype=torch.float32)."
    return f"Convert it with torch.as_tensor({what})."


def _kind(value: object) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else f"a {kind.__qualname__}"


def flat(leaves: Sequence[Tensor]) -> Tensor:
    """Rows of all leaves side by side: N tensors of shape (N, ...) to one (N, features)."""
    # Not flatten(1): a row may be a single number, of shape ().
    rows = [leaf.reshape(leaf.shape[0], leaf.shape[1:].numel()) for leaf in leaves]
    return rows[0] if len(rows) == 1 else torch.cat(rows, 1)


def unflat(rows: Tensor, shapes: Sequence[torch.Size]) -> Leaves:
    """The inverse of :func:`flat` for the given per-row shapes."""
    sizes = [shape.numel() for shape in shapes]
    return tuple(part.reshape(-1, *shape) for part, shape in zip(rows.split(sizes, 1), shapes, strict=True))


def add_rows(total: Tensor, rows: Tensor, terms: Tensor) -> None:
    """Add terms (N, ...) to some rows of a total, in a fixed order also where a row comes twice.

    >>> total = torch.zeros(2, 1)
    >>> add_rows(total, torch.tensor([1, 0, 1]), torch.tensor([[1.0], [2.0], [3.0]]))
    >>> total
    tensor([[2.],
            [4.]])
    """
    if total.is_cuda:  # where index_add_ adds in no fixed order
        total.index_put_((rows,), terms, accumulate=True)
    else:
        total.index_add_(0, rows, terms)


def add_columns(terms: Tensor, columns: Tensor, count: int) -> Tensor:
    """Terms (..., features) added up by the column of each feature, (features,), to (..., count), in a fixed order.

    >>> add_columns(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1, 0, 1]), 2)
    tensor([[2., 4.]])
    """
    if terms.is_cuda:  # where index_add adds in no fixed order
        turned = terms.movedim(-1, 0)
        return turned.new_zeros(count, *turned.shape[1:]).index_put((columns,), turned, accumulate=True).movedim(0, -1)
    return terms.new_zeros(*terms.shape[:-1], count).index_add(-1, columns, terms)


def check_tensors(tree: Tree, leaves: Leaves, *, what: str, integers: bool = False) -> None:
    """Floating point, finite, not empty, all on one device; ids are fine where a layer is explained."""
    for name, leaf in zip(tree.names, leaves, strict=True):
        if leaf.device != leaves[0].device:
            first = f"{leaves[0].device}, the device of {what}{tree.names[0]}"
            raise InputError(f"{what}{name} is on {leaf.device}; expected {first}.")
        if leaf.is_meta:
            raise InputError(f"{what}{name} is on the meta device, which holds no numbers; expected a tensor with values.")
        if leaf.layout != torch.strided:
            raise InputError(f"{what}{name} has layout {leaf.layout}; expected a dense tensor. Convert it with .to_dense().")
        if leaf.numel() == 0:
            shape = tuple(leaf.shape)
            raise InputError(f"{what}{name} is empty (shape {shape}); expected at least one example and one feature.")
        if not leaf.dtype.is_floating_point:
            if integers and not leaf.dtype.is_complex:
                continue
            raise InputError(_not_floating(f"{what}{name}", leaf))
        bad = (~torch.isfinite(leaf)).nonzero()
        if len(bad):
            place = tuple(bad[0].tolist())
            raise InputError(
                f"{what}{name} holds {leaf[place].item()} at index {place} ({len(bad)} such values); expected finite numbers. "
                "Replace missing values before explaining."
            )


def _not_floating(name: str, leaf: Tensor) -> str:
    if leaf.dtype.is_complex:
        return f"{name} has dtype {leaf.dtype}; expected real floating point. Explain torch.view_as_real({name})."
    return (
        f"{name} has dtype {leaf.dtype}; expected floating point, since a path runs between whole numbers. Convert pixels with "
        f"{name}.float(); for token ids name the embedding with layer=; pass masks and lengths through kwargs=."
    )


def on_device(
    values: NDArray[np.generic] | Sequence[float] | Sequence[int],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Numbers of the host as a tensor on a device, without waiting for what the device was asked for before.

    ``torch.as_tensor(values, device=...)`` waits until a GPU has done all that it was asked for, so that nothing can be asked
    for ahead. The numbers are taken from the host before this returns, which only CUDA says of memory that is not pinned.
    """
    return torch.as_tensor(values, dtype=dtype).to(device, non_blocking=device.type == "cuda")
