"""Which rows of the matrix are wanted: single features, or groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backends.torch_function import TorchFunction
from ..errors import InputError, OptionError
from ..trees import Tensors, Tree, add_columns, flatten, matched

Index = int | tuple[Any, ...]
"""A feature: an int where examples are flat, else an index tuple; the tensor's key or number first where there are several."""

Features = Sequence[Index] | Tensors | None

FEW = 64
"""Up to so many features every one gets its row, where none are chosen."""


@dataclass(frozen=True, eq=False)
class InteractionRows:
    """The rows, and what their columns are.

    Attributes:
        masks: (rows, features) whether a feature belongs to a row.
        names: each row's feature, as in ``features=``, or its group's label.
        places: each row's feature, counted through all tensors; empty for groups.
        labels: (features,) the column of each feature, for groups; the last column takes what is left out.
    """

    masks: Tensor
    names: tuple[Index, ...]
    places: tuple[int, ...] = ()
    labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def columns(self) -> int:
        """How many columns."""
        return self.masks.shape[1] if self.labels is None else len(self) + 1

    @property
    def cover(self) -> bool:
        """Whether the rows together hold every feature once."""
        return bool((self.masks.sum(0) == 1).all())

    def reduced(self, terms: Tensor) -> Tensor:
        """From one number per feature, (..., features), to one per column."""
        if self.labels is None:
            return terms
        return add_columns(terms, self.labels, self.columns)

    def own(self, terms: Tensor) -> Tensor:
        """What features have to themselves, (panels, features), in the matrix, (panels, rows, columns)."""
        out = terms.new_zeros(len(terms), len(self), self.columns)
        rows = torch.arange(len(self), device=terms.device)
        out[:, rows, torch.tensor(self.places, device=terms.device) if self.places else rows] = self.picked(terms)
        return out

    def picked(self, terms: Tensor) -> Tensor:
        """Sums over each row's features, (panels, features) to (panels, rows)."""
        return terms @ self.masks.to(terms.dtype).T


def choose(features: Any, groups: Any, function: TorchFunction) -> InteractionRows:
    """Rows for what the user asked for."""
    shapes = [tuple(leaf.shape[1:]) for leaf in function.inputs]
    count = sum(int(np.prod(shape)) for shape in shapes)
    device = function.inputs[0].device
    if features is not None and groups is not None:
        raise OptionError("got both features= and groups=; expected one of them (label -1 in groups leaves features out).")
    if groups is not None:
        return _grouped(groups, function.tree, shapes, device)
    if features is None:
        if count > FEW:
            raise OptionError(
                f"x has {count} features per example and neither features= nor groups= is given; expected at most {FEW}, since "
                f"each costs a row of {count} numbers and a Hessian-vector product at every point. Choose rows with features= "
                "(indices or a boolean mask) or sum features with groups= (integer labels, such as one per token or patch)."
            )
        places = list(range(count))
    else:
        places = _places(features, function.tree, shapes)
    masks = torch.zeros(len(places), count, dtype=torch.bool, device=device)
    masks[torch.arange(len(places)), torch.tensor(places)] = True
    return InteractionRows(masks, tuple(index_of(place, function.tree, shapes) for place in places), tuple(places))


def index_of(place: int, tree: Tree, shapes: Sequence[tuple[int, ...]]) -> Index:
    """A feature's index from its place among all.

    >>> index_of(7, Tree("dict", ("a", "b"), 2), [(3,), (2, 3)])
    ('b', 1, 1)
    >>> index_of(2, Tree("tensor"), [(3,)])
    2
    """
    for number, shape in enumerate(shapes):
        size = int(np.prod(shape))
        if place < size:
            index = tuple(int(i) for i in np.unravel_index(place, shape)) if shape else ()
            if tree.kind == "tensor":
                return index[0] if len(index) == 1 else index
            return (tree.keys[number] if tree.kind == "dict" else number, *index)
        place -= size
    raise IndexError(place)


def _places(features: Any, tree: Tree, shapes: list[tuple[int, ...]]) -> list[int]:
    """Where the chosen features are among all."""
    parts = list(features.values()) if isinstance(features, dict) else features
    if isinstance(parts, Tensor) or (isinstance(parts, (list, tuple)) and any(isinstance(part, Tensor) for part in parts)):
        _, leaves = flatten(features, what="features")
        if any(leaf.dtype == torch.bool for leaf in leaves):
            return _masked(features, tree, shapes)
        features = [tuple(row) if isinstance(row, list) else row for row in leaves[0].tolist()]
    if isinstance(features, (int, str)) or not isinstance(features, (Sequence, np.ndarray)) or not len(features):
        raise OptionError(
            f"got features={features!r}; expected a list of indices, such as [0, 3] or [(0, 1, 2)], or a boolean mask in the "
            "structure of one example."
        )
    places = [_place(index, tree, shapes) for index in features]
    if len(set(places)) != len(places):
        raise OptionError(f"got features={features!r}, with one of them twice; expected each once.")
    return places


def _masked(features: Any, tree: Tree, shapes: list[tuple[int, ...]]) -> list[int]:
    masks = matched(features, tree, what="features")
    wide = [_spread(mask, shape, "features") for mask, shape in zip(masks, shapes, strict=True)]
    if any(mask.dtype != torch.bool for mask in wide):
        raise InputError(f"features has dtypes {[mask.dtype for mask in wide]}; expected boolean masks, or a list of indices.")
    places = [int(i) for i in torch.cat([mask.reshape(-1) for mask in wide]).nonzero().flatten()]
    if not places:
        raise InputError("features is a mask that is False everywhere; expected at least one feature.")
    return places


def _place(index: Any, tree: Tree, shapes: list[tuple[int, ...]]) -> int:
    parts = index if isinstance(index, (tuple, list)) else (index,)
    keys: tuple[Any, ...] = tree.keys if tree.kind == "dict" else tuple(range(tree.size))
    number, rest = 0, tuple(parts)
    if tree.kind != "tensor":
        if not rest or rest[0] not in keys:
            raise OptionError(f"got feature {index!r}; expected the tensor first, one of {list(keys)}, then the index in it.")
        number, rest = keys.index(rest[0]), rest[1:]
    shape = shapes[number]
    whole = all(isinstance(part, (int, np.integer)) and not isinstance(part, bool) for part in rest)
    if len(rest) != len(shape) or not whole or not all(0 <= part < size for part, size in zip(rest, shape, strict=True)):
        raise OptionError(
            f"got feature {index!r}; expected {len(shape)} whole number(s) within {shape}, the shape of one example"
            + ("." if tree.kind == "tensor" else f" of x{tree.names[number]}.")
        )
    before = sum(int(np.prod(other)) for other in shapes[:number])
    return before + (int(np.ravel_multi_index(tuple(int(part) for part in rest), shape)) if shape else 0)


def _grouped(groups: Any, tree: Tree, shapes: list[tuple[int, ...]], device: torch.device) -> InteractionRows:
    parts = []
    for label, shape in zip(matched(groups, tree, what="groups"), shapes, strict=True):
        if label.dtype.is_floating_point or label.dtype.is_complex or label.dtype == torch.bool:
            raise InputError(f"groups has dtype {label.dtype}; expected integers, -1 for features to leave out.")
        parts.append(_spread(label, shape, "groups").reshape(-1).to(device, torch.long))
    labels = torch.cat(parts)
    count = int(labels.max()) + 1
    if count < 1:
        raise InputError("groups labels no feature (all labels are negative); expected labels 0, 1, ...")
    masks = labels == torch.arange(count, device=device)[:, None]
    return InteractionRows(masks, tuple(range(count)), labels=torch.where(labels < 0, count, labels))


def _spread(part: Tensor, shape: tuple[int, ...], what: str) -> Tensor:
    try:
        return part.expand(shape)
    except RuntimeError:
        raise InputError(
            f"{what} has shape {tuple(part.shape)}; expected {shape}, the shape of one example, or one that broadcasts to it."
        ) from None
