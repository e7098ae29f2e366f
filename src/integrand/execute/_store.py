"""Gradients that the adaptive control keeps, in as many slots as the memory budget has room for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ._evaluate import Evaluated
from ._nodes import Ints
from ._remember import release

BLOCK_BYTES = 16 << 20
"""Memory that is taken at a time, unless a block of 64 nodes is more."""


class Store:
    """Slots that hold one evaluated node each, counted by the panels that use them.

    Slots come in blocks, so that a growing store never copies what it holds; each is as large as all before it, so that there
    are few to look into.

    Args:
        features: length of a node's terms.
        capacity: the most slots there will ever be.
        dtype: what terms are kept in.
        device: where they are kept.
    """

    def __init__(self, features: int, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        self.capacity = capacity
        self.features, self.dtype, self.device = features, dtype, device
        self.block = min(max(64, BLOCK_BYTES // (features * dtype.itemsize)), 1024)
        self._blocks: list[Tensor] = []
        self._starts = np.zeros(0, np.int64)
        self.scores = np.zeros(0)
        self.slopes = np.zeros(0)
        self._uses = np.zeros(0, np.int64)
        self._free: list[int] = []
        self.peak = 0

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def room(self) -> int:
        """Slots that can still be taken."""
        return len(self._free) + self.capacity - len(self)

    def take(self, count: int) -> Ints:
        """Slots for new nodes."""
        while count > len(self._free):
            self._grow()
        first = len(self._free) - count
        out = np.array(self._free[first:][::-1], np.int64)
        del self._free[first:]
        self.peak = max(self.peak, len(self) - len(self._free))
        return out

    def _grow(self) -> None:
        old = len(self)
        left = self.capacity - old
        size = min(max(self.block, old), left) if left > 0 else self.block
        block = self._taken(size)
        self._starts = np.append(self._starts, old)
        self._blocks.append(block)
        extra = np.zeros(size)
        self.scores, self.slopes = np.append(self.scores, extra), np.append(self.slopes, extra)
        self._uses = np.append(self._uses, extra.astype(np.int64))
        self._free += list(range(old + size - 1, old - 1, -1))

    def _taken(self, size: int) -> Tensor:
        """Memory for so many slots; recordings of models make room for it."""
        try:
            return torch.empty(size, self.features, dtype=self.dtype, device=self.device)
        except torch.OutOfMemoryError:
            release()
            torch.cuda.empty_cache()
            return torch.empty(size, self.features, dtype=self.dtype, device=self.device)

    def put(self, slots: Ints, done: Evaluated) -> None:
        """Fill slots with evaluated nodes."""
        terms = done.terms.to(self.device)
        if len(self._blocks) == 1:
            self._blocks[0][torch.as_tensor(slots, device=self.device)] = terms
        else:
            for block, which, inside in self._places(slots):
                block[inside] = terms[which]
        self.scores[slots], self.slopes[slots] = done.scores, done.slopes

    def rows(self, slots: Ints) -> Tensor:
        """The terms in slots of any shape, (*slots, features)."""
        flat = slots.ravel()
        if len(self._blocks) == 1:
            found = self._blocks[0][torch.as_tensor(flat, device=self.device)]
        else:
            found = torch.empty(len(flat), self.features, dtype=self.dtype, device=self.device)
            for block, which, inside in self._places(flat):
                found[which] = block[inside]
        return found.view(*slots.shape, self.features)

    def _places(self, slots: Ints) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Each block that holds some of the slots, which of them, and where in the block."""
        number = np.searchsorted(self._starts, slots, side="right") - 1
        for n in np.unique(number):
            which = np.flatnonzero(number == n)
            inside = slots[which] - self._starts[n]
            yield self._blocks[n], *(torch.as_tensor(part, device=self.device) for part in (which, inside))

    def clear(self) -> None:
        """Free all slots."""
        self._uses[:] = 0
        self._free = list(range(len(self) - 1, -1, -1))

    def hold(self, slots: Ints) -> None:
        """Count one more use of each slot."""
        np.add.at(self._uses, slots.ravel(), 1)

    def release(self, slots: Ints) -> None:
        """Count one use less; unused slots are free again."""
        flat = slots.ravel()
        np.add.at(self._uses, flat, -1)
        unused = flat[self._uses[flat] == 0]
        self._free += dict.fromkeys(unused.tolist())  # each once
