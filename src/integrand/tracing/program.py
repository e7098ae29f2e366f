"""A traced model: the operations from its inputs to its scores, as plain data that can be run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..trees import Leaves

Values = list[Any]
"""The values of the inputs and of every operation: a tensor, or a tuple of them for operations with several outputs."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Where an argument of an operation comes from: an index into :data:`Values`."""

    index: int


@dataclass(frozen=True)
class Operation:
    """One operation of a traced model that depends on the input.

    Attributes:
        out: the index of its result in :data:`Values`.
        name: the name of the operation, such as ``relu`` or ``convolution``.
        function: the function that runs it.
        args: its positional arguments; a :class:`Ref` stands for what depends on the input, all else is a constant.
        kwargs: its keyword arguments, with references in the same way.
        module: the dotted name of the submodule whose parameter it uses; '' where there is none.
    """

    out: int
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    module: str = ""

    @property
    def refs(self) -> list[int]:
        """The indices of the arguments that depend on the input, each once, in order."""
        return list(self._refs)

    # Operations are run and asked again and again, and looking through their arguments takes longer than a small operation.

    @cached_property
    def _refs(self) -> tuple[int, ...]:
        """What :attr:`refs` lists."""
        return tuple(dict.fromkeys(_refs_in((self.args, dict(self.kwargs)))))

    @cached_property
    def _nested(self) -> frozenset[int | str]:
        """Positions and names of the arguments that are no references themselves but have some inside."""
        given: list[tuple[int | str, Any]] = [*enumerate(self.args), *self.kwargs.items()]
        return frozenset(key for key, value in given if not isinstance(value, Ref) and _refs_in(value))

    @property
    def picks(self) -> bool:
        """Whether the operation only picks one output of another operation."""
        return self.function is operator.getitem

    def __call__(self, values: Values | Mapping[int, Any]) -> Any:
        """Run the operation on the given values; several outputs come as a tuple."""

        def known(key: int | str, value: Any) -> Any:
            if isinstance(value, Ref):
                return values[value.index]
            return pytree.tree_map_only(Ref, lambda ref: values[ref.index], value) if key in self._nested else value

        args = [known(position, value) for position, value in enumerate(self.args)]
        out = self.function(*args, **{name: known(name, value) for name, value in self.kwargs.items()})
        return tuple(out) if isinstance(out, (list, tuple)) else out


def _refs_in(value: Any) -> list[int]:
    """The indices of the references in an argument, which may hold them in lists, tuples and dictionaries."""
    return [leaf.index for leaf in pytree.tree_leaves(value) if isinstance(leaf, Ref)]


@dataclass(frozen=True)
class Program:
    """The operations from some inputs to one score per row, for a fixed number of rows.

    Attributes:
        inputs: how many explained tensors there are; they are the first values.
        operations: what is done to them, in order; only what the score depends on.
        result: the index of the scores.
    """

    inputs: int
    operations: Sequence[Operation]
    result: int

    @property
    def size(self) -> int:
        """How many values the inputs and the operations give."""
        return max([self.inputs - 1, *(operation.out for operation in self.operations)]) + 1

    def run(self, leaves: Leaves) -> Values:
        """Run the program at some inputs, without gradients, and keep all values."""
        values: Values = [*leaves, *[None] * (self.size - len(leaves))]
        with torch.no_grad():
            for operation in self.operations:
                values[operation.out] = operation(values)
        return values

    def scores(self, values: Values) -> Tensor:
        """The scores among the values of a run, (rows,)."""
        scores: Tensor = values[self.result]
        return scores
