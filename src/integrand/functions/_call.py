"""Calling the model on rows: each row is one point on one example's path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .._trees import Leaves, Tree

Model = Callable[..., Any]


class Runs(Protocol):
    """Anything that turns explained rows into the model's raw output(s)."""

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """Raw outputs: one for the whole batch, or one per row where the model knows no batch dimension."""
        ...


@dataclass(frozen=True)
class Call:
    """A model with the structure of its input and what else it is called with.

    Attributes:
        model: any callable.
        tree: the structure of the explained input; a dict reaches the model as keywords.
        examples: how many examples there are.
        batched: whether the model takes a batch; else it is called row by row.
        args: further positional arguments, not explained.
        kwargs: further keyword arguments, not explained.
        copies: hand the model a copy, because it writes into its input.
    """

    model: Model
    tree: Tree
    examples: int
    batched: bool
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    copies: bool = False

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """Run the model on ``leaves`` of shape (N, ...), row i belonging to example ``rows[i]``."""
        if self.copies:
            leaves = tuple(leaf.clone() for leaf in leaves)
        if not self.batched:
            return [self._run(tuple(leaf[i] for leaf in leaves), self.args, self.kwargs) for i in range(len(rows))]
        args = tuple(take(value, rows, self.examples) for value in self.args)
        kwargs = {name: take(value, rows, self.examples) for name, value in self.kwargs.items()}
        return [self._run(leaves, args, kwargs)]

    def _run(self, leaves: Leaves, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        value = self.tree.build(leaves)
        if isinstance(value, dict):
            return self.model(*args, **value, **kwargs)
        if isinstance(value, tuple):
            return self.model(*value, *args, **kwargs)
        return self.model(value, *args, **kwargs)

    def copying(self) -> Call:
        """The same call, protecting its input from being written to."""
        return replace(self, copies=True)


def take(value: Any, rows: Tensor, examples: int) -> Any:
    """The rows of something that has one entry per example; anything else as it is.

    >>> take(torch.tensor([10, 20]), torch.tensor([1, 1, 0]), 2)
    tensor([20, 20, 10])
    >>> take(["a", "b"], torch.tensor([1, 0]), 2)
    ['b', 'a']
    >>> take("ab", torch.tensor([1, 0]), 2)
    'ab'
    """
    if isinstance(value, Tensor):
        if value.ndim == 0 or value.shape[0] != examples:
            return value
        return value.index_select(0, rows.to(value.device))
    if isinstance(value, np.ndarray):
        return value[rows.cpu().numpy()] if value.ndim and value.shape[0] == examples else value
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple) and len(value) == examples:
        return type(value)(value[i] for i in rows.tolist())
    if isinstance(value, Mapping) and type(value) is dict:
        return {name: take(part, rows, examples) for name, part in value.items()}
    return value


def all_rows(examples: int, device: torch.device) -> Tensor:
    """Every example once."""
    return torch.arange(examples, device=device)
