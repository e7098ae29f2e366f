"""A model as a list of steps."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .._trees import Leaves

Values = list[Any]
"""What the inputs and every step gave: a tensor, or a tuple of them for steps with several outputs."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a step's argument comes from: an index into :data:`Values`."""

    index: int


@dataclass(frozen=True)
class Step:
    """One operation that depends on the input.

    Attributes:
        out: where its result goes in :data:`Values`.
        name: the operation, such as ``relu`` or ``convolution``.
        function: what runs it.
        args: its arguments; a :class:`Ref` stands for what depends on the input, everything else is a constant.
        kwargs: likewise.
        module: the submodule whose parameter it uses, by its dotted name; '' where there is none.
    """

    out: int
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    module: str = ""

    @property
    def refs(self) -> list[int]:
        """The arguments that depend on the input, each once, in order."""
        found = [leaf.index for leaf in pytree.tree_leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Ref)]
        return list(dict.fromkeys(found))

    @property
    def picks(self) -> bool:
        """Whether it only picks one output of another step."""
        return self.function is operator.getitem

    def __call__(self, values: Values | Mapping[int, Any]) -> Any:
        """Run it on the given values; several outputs come as a tuple."""
        args, kwargs = pytree.tree_map_only(Ref, lambda ref: values[ref.index], (self.args, dict(self.kwargs)))
        out = self.function(*args, **kwargs)
        return tuple(out) if isinstance(out, (list, tuple)) else out

    def places(self, index: int) -> list[int]:
        """The positional arguments that are this value."""
        return [i for i, arg in enumerate(self.args) if isinstance(arg, Ref) and arg.index == index]


@dataclass(frozen=True)
class Program:
    """The steps from some inputs to one score per row, for a fixed number of rows.

    Attributes:
        inputs: how many explained tensors there are; they are the first values.
        steps: what is done to them, in order; only what the score depends on.
        result: the index of the scores.
    """

    inputs: int
    steps: Sequence[Step]
    result: int

    @property
    def size(self) -> int:
        """How many values there are."""
        return max([self.inputs - 1, *(step.out for step in self.steps)]) + 1

    def run(self, leaves: Leaves) -> Values:
        """All values at some inputs, without gradients."""
        values: Values = [*leaves, *[None] * (self.size - len(leaves))]
        with torch.no_grad():
            for step in self.steps:
                values[step.out] = step(values)
        return values

    def scores(self, values: Values) -> Tensor:
        """The scores among the values."""
        scores: Tensor = values[self.result]
        return scores
