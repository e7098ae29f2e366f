"""What counts as one feature on a user's model: single numbers where there are few, else groups or blocks of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..trees import Leaves, Tensors, Tree, flat, matched

MOST = 64
"""Features up to this number stand for themselves."""


@dataclass(frozen=True)
class Parts:
    """Features by the part that they belong to.

    Attributes:
        labels: (features,) the part of each, -1 for none.
        names: of the parts, for people.
        grouped: whether a part may have several features, so that methods are to explain parts.
    """

    labels: Tensor
    names: tuple[str, ...]
    grouped: bool = True

    def __len__(self) -> int:
        return len(self.names)

    def where(self, part: int) -> Tensor:
        """The features of a part."""
        return (self.labels == part).nonzero().flatten()

    def whole(self) -> Tensor:
        """Labels without -1: what belongs to no part is one more."""
        return torch.where(self.labels < 0, len(self), self.labels)


def parts_of(leaves: Leaves, tree: Tree, groups: Tensors | None) -> Parts:
    """The user's groups; else every feature, or blocks of features where there are many.

    Args:
        leaves: one example, (1, ...) each.
        tree: their structure.
        groups: integer labels in the structure of one example.
    """
    if groups is not None:
        labels = matched(groups, tree, what="groups")
        if any(label.dtype.is_floating_point or label.dtype == torch.bool for label in labels):
            raise InputError(f"groups has dtype {labels[0].dtype}; expected integers, -1 for features to leave out.")
        wide = flat([label.expand(leaf.shape[1:])[None] for label, leaf in zip(labels, leaves, strict=True)])[0].cpu()
        return Parts(wide.long(), tuple(f"group {i}" for i in range(int(wide.max()) + 1)))
    if sum(leaf[0].numel() for leaf in leaves) <= MOST:
        names = [name for suffix, leaf in zip(tree.names, leaves, strict=True) for name in _entries(suffix, leaf)]
        return Parts(torch.arange(len(names)), tuple(names), grouped=False)
    blocks, names = [], []
    for suffix, leaf in zip(tree.names, leaves, strict=True):
        own = _blocks(leaf[0])
        blocks.append((own + len(names)).flatten())
        names += [f"block {i} of x{suffix}" for i in range(int(own.max()) + 1)]
    return Parts(torch.cat(blocks), tuple(names))


def _entries(suffix: str, leaf: Tensor) -> list[str]:
    if leaf[0].ndim == 0:
        return [f"x{suffix}"]
    places = torch.ones_like(leaf[0], device="cpu").nonzero().tolist()
    return [f"x{suffix}[{', '.join(map(str, place))}]" for place in places]


def _blocks(row: Tensor) -> Tensor:
    """Labels of an image's patches over all its colours, or of stretches of whatever else."""
    if row.ndim == 3 and min(row.shape[1:]) >= 2 * GRID:
        down, across = (torch.arange(size) * GRID // size for size in row.shape[1:])
        return (down[:, None] * GRID + across).expand(row.shape)
    count = row.numel()
    return (torch.arange(count) * min(BLOCKS, count) // count).reshape(row.shape)


GRID, BLOCKS = 4, 16
