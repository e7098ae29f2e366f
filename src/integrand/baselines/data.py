"""Baselines drawn from data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, OptionError
from ..trees import Tensors, flatten


class Data(Protocol):
    """A tensor whose rows are examples, a map-style ``Dataset`` or a sequence: of examples, or of (example, label) pairs."""

    def __len__(self) -> int:
        """How many examples there are."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """An example, or a tuple that starts with it."""
        ...


@dataclass(frozen=True)
class Examples:
    """The examples of a data set, without their labels."""

    data: Data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Tensors:
        item = self.data[index]
        if isinstance(item, (tuple, list)) and item:  # an example of several tensors comes as ((a, b), label)
            item = item[0]
        tree, leaves = flatten(item, what=f"example {index} of the data")
        return tree.build([leaf.detach() for leaf in leaves])

    def __iter__(self) -> Iterator[Tensors]:
        return (self[i] for i in range(len(self)))


def examples_of(data: Data) -> Examples:
    """The examples of a data set; refuses what cannot be counted or is empty."""
    if isinstance(data, Mapping) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise InputError(
            f"got a {type(data).__name__} as data; expected a tensor whose rows are examples, a map-style Dataset, or a "
            "sequence of examples or (example, label) pairs. Take some from an iterator with list(itertools.islice(data, 100))."
        )
    if (isinstance(data, Tensor) and data.ndim == 0) or not len(data):
        raise InputError("got no examples as data; expected at least one.")
    return Examples(data)


def check_draws(draws: int) -> None:
    """Refuse numbers of draws that make no sense."""
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 1:
        raise OptionError(f"got draws={draws!r}; expected a whole number from 1 on.")


def drawn(data: Data, draws: int = 10, seed: int = 0, *, like: Tensors | None = None) -> list[Tensors]:
    """Examples of a training set as baselines, whose attributions average.

    The answer is then what sets x apart from what the model usually sees, not from nothing: right where nothing neutral
    exists, as for tables. Some of the draws may be of the explained class; what they share with x gets no credit.

    >>> drawn([(torch.tensor([1.0, 2.0]), "label")], draws=1)
    [tensor([1., 2.])]

    Args:
        data: a tensor whose rows are examples, a map-style ``Dataset`` or a sequence; of examples, or of tuples that start
            with the example, such as (example, label).
        draws: how many, without repetition.
        seed: the same seed draws the same examples.
        like: the input x: the draws are checked against its shape and brought to its dtype and device.

    Returns:
        A list of examples, each without a batch dimension and shared by all inputs that are explained.
    """
    check_draws(draws)
    examples = examples_of(data)
    if draws > len(examples):
        raise OptionError(f"got draws={draws} from {len(examples)} examples; expected at most as many as there are.")
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))[:draws].tolist()
    found = [examples[i] for i in order]
    shapes = [[tuple(leaf.shape) for leaf in flatten(one)[1]] for one in found]
    for i, shape in zip(order, shapes, strict=True):
        if shape != shapes[0]:
            raise InputError(
                f"example {i} of the data has shape {shape} and example {order[0]} {shapes[0]}; expected the same."
            )
    return found if like is None else [_fitted(one, like) for one in found]


def _fitted(example: Tensors, like: Tensors) -> Tensors:
    tree, leaves = flatten(like)
    found, parts = flatten(example, what="an example of the data")
    if found != tree:
        raise InputError(f"the examples of the data are {found}; expected {tree}, the structure of x.")
    for part, leaf in zip(parts, leaves, strict=True):
        if part.shape not in (leaf.shape, leaf.shape[1:]):
            raise InputError(
                f"the examples of the data have shape {tuple(part.shape)}; expected {tuple(leaf.shape[1:])} for a batch x, or "
                f"{tuple(leaf.shape)} for one example. Resize them as x was."
            )
    return tree.build([part.to(leaf.device, leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)])
