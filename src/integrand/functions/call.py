"""Calling the model on rows: each row is one point on one example's path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import IntegrandError
from ..memory import joined, out_of_memory
from ..trees import Leaves, Tree

Model = Callable[..., Any]


class RunsRows(Protocol):
    """Anything that turns explained rows into the model's raw output(s)."""

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """Raw outputs: one for the whole batch, or one per row where the model knows no batch dimension."""
        ...


@dataclass(frozen=True)
class ModelCall:
    """A model with the structure of its input and what else it is called with.

    Attributes:
        model: any callable.
        tree: the structure of the explained input; a dict reaches the model as keywords.
        examples: how many examples there are.
        batched: whether the model takes a batch; else it is called row by row.
        args: further positional arguments, not explained.
        kwargs: further keyword arguments, not explained.
        copies: hand the model a copy, because it writes into its input.
        kept: further arguments, by place or by name, that are handed on as they are, whatever they look like.
        step: the number of rows that the model takes at a time, where it was exported for so many; None for any number.
    """

    model: Model
    tree: Tree
    examples: int
    batched: bool
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    copies: bool = False
    kept: frozenset[int | str] = frozenset()
    step: int | None = None

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """Run the model on ``leaves`` of shape (N, ...), row i belonging to example ``rows[i]``."""
        if self.copies:
            leaves = tuple(leaf.clone() for leaf in leaves)
        if not self.batched:
            return [self.whole(tuple(leaf[i] for leaf in leaves)) for i in range(len(rows))]
        if self.step is not None and len(rows) != self.step:
            return [self._in_steps(leaves, rows, self.step)]
        args, kwargs = self._further(rows)
        positional, keywords = self.tree.arguments(leaves)
        try:
            return [self.model(*positional, *args, **keywords, **kwargs)]
        except Exception as error:
            if not isinstance(error, IntegrandError) and not out_of_memory(error):
                error.add_note(self._note(leaves))
            raise

    def whole(self, leaves: Leaves) -> Any:
        """Call the model as a user would, with all further arguments as they are."""
        positional, keywords = self.tree.arguments(leaves)
        return self.model(*positional, *self.args, **keywords, **self.kwargs)

    def _in_steps(self, leaves: Leaves, rows: Tensor, step: int) -> Any:
        """Run as many rows at a time as the model takes, the last ones filled up with copies of the last row."""
        pieces = torch.arange(len(rows), device=rows.device).split(step)
        parts = [self._filled_up(leaves, rows, piece, step) for piece in pieces]
        return joined(parts, [len(piece) for piece in pieces])

    def _filled_up(self, leaves: Leaves, rows: Tensor, piece: Tensor, step: int) -> Any:
        """The output for some of the rows, which are filled up with copies of their last one."""
        index = torch.cat([piece, piece[-1:].expand(step - len(piece))])
        [output] = self(tuple(leaf.index_select(0, index.to(leaf.device)) for leaf in leaves), rows[index])

        def cut(leaf: Tensor) -> Tensor:
            return leaf[: len(piece)] if leaf.ndim and leaf.shape[0] == step else leaf

        return pytree.tree_map_only(Tensor, cut, output)

    def _further(self, rows: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The further arguments for some rows."""
        given = {name: take(value, rows, self.examples) for name, value in self.kwargs.items() if name not in self.kept}
        args = tuple(v if i in self.kept else take(v, rows, self.examples) for i, v in enumerate(self.args))
        return args, {name: given.get(name, value) for name, value in self.kwargs.items()}

    @property
    def split(self) -> list[int | str]:
        """The further arguments that have one entry per example, and are split with the rows: by place or by name."""
        if not self.batched:
            return []
        args, kwargs = self._further(torch.zeros(1, dtype=torch.long))
        places = [i for i, (new, old) in enumerate(zip(args, self.args, strict=True)) if new is not old]
        return [*places, *(name for name, new in kwargs.items() if new is not self.kwargs[name])]

    def split_words(self) -> str:
        """A sentence on the further arguments that are split with the rows, and how to keep them whole; empty without any."""
        if not self.split:
            return ""
        return (
            f" With the rows, {self.named(self.split)} was split, having one entry per example; what is one setting for all "
            "rows, put into the model with functools.partial."
        )

    def named(self, places: Sequence[int | str]) -> str:
        """Further arguments as the user wrote them."""
        return ", ".join(f"args[{place}]" if isinstance(place, int) else f"kwargs[{place!r}]" for place in places)

    def _note(self, leaves: Leaves) -> str:
        """What an error inside the model cannot say: what it was called with."""
        shapes = ", ".join(f"x{name} of shape {tuple(leaf.shape)}" for name, leaf in zip(self.tree.names, leaves, strict=True))
        return (
            f"integrand called the model with {shapes}: several points on the paths of {self.examples} example(s)"
            + (f", and split {self.named(self.split)} with them, which have one entry per example" if self.split else "")
            + ". Expected a model that takes any number of rows. If x is one example without a batch dimension, pass "
            "batched=False; if the model takes one row at a time, chunk=1; what must not be split, put into the model with "
            "functools.partial."
        )


def exported_rows(model: Model, tree: Tree, leaves: Leaves) -> int | None:
    """The number of rows that an exported program takes at a time; None for any number, and for other models.

    >>> program = torch.export.export(torch.nn.Linear(3, 1), (torch.zeros(2, 3),)).module()
    >>> exported_rows(program, Tree("tensor"), (torch.zeros(5, 3),))
    2
    """
    if not isinstance(model, torch.fx.GraphModule):
        return None
    inputs = {str(node.target): node.meta.get("val") for node in model.graph.nodes if node.op == "placeholder"}
    positional, keywords = tree.arguments(leaves)
    pairs = [*zip(inputs.values(), positional, strict=False), *((inputs.get(name), leaf) for name, leaf in keywords.items())]
    if not all(isinstance(like, Tensor) and 0 < like.ndim == leaf.ndim for like, leaf in pairs):
        return None
    rows = [like.shape[0] for like, _ in pairs]
    fixed = all(isinstance(side, int) for side in rows)  # one that may change is a symbol
    return rows[0] if fixed and rows[0] > 1 and len(set(rows)) == 1 else None


def take(value: Any, rows: Tensor, examples: int) -> Any:
    """The rows of something that has one entry per example; anything else as it is.

    Tuples of numbers are settings (sizes, strides) and stay; tuples, lists and dicts of tensors are split inside.

    >>> import torch
    >>> take(torch.tensor([10, 20]), torch.tensor([1, 1, 0]), 2)
    tensor([20, 20, 10])
    >>> take(["a", "b"], torch.tensor([1, 0]), 2)
    ['b', 'a']
    >>> take(("ab", (7, 7)), torch.tensor([1, 0]), 2)
    ((7, 7), 'ab')
    >>> take((7, 7), torch.tensor([1, 0, 1]), 2)
    (7, 7)
    """
    if isinstance(value, Tensor):
        return value.index_select(0, rows.to(value.device)) if _has_rows(value, examples) else value
    if isinstance(value, np.ndarray):
        return value[rows.cpu().numpy()] if _has_rows(value, examples) else value
    if type(value) in (list, tuple) and _per_example(value, examples):
        return type(value)(value[i] for i in rows.tolist())
    if type(value) in (list, tuple) or hasattr(value, "_fields"):
        parts = [take(part, rows, examples) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return value._make(parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, MutableMapping):
        entries = {name: take(part, rows, examples) for name, part in value.items()}
        changed = {name: part for name, part in entries.items() if part is not value[name]}
        if changed:
            value = copy.copy(value)
            value.update(changed)
    return value


def _has_rows(value: Tensor | np.ndarray[Any, Any], examples: int) -> bool:
    return value.ndim > 0 and value.shape[0] == examples


def _per_example(value: list[Any] | tuple[Any, ...], examples: int) -> bool:
    """Whether a list or tuple holds one entry per example, and not tensors that do so themselves, nor settings."""
    if len(value) != examples or (isinstance(value, tuple) and all(isinstance(part, (int, float)) for part in value)):
        return False
    return not all(isinstance(part, (Tensor, np.ndarray)) and _has_rows(part, examples) for part in value)
