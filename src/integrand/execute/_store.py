"""Gradients that the adaptive control keeps, in as many slots as the memory budget has room for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ._evaluate import Evaluated, Floats, Ints


class Store:
    """Slots that hold one evaluated node each, counted by the panels that use them.

    Args:
        features: length of a node's terms.
        capacity: the most slots there will ever be.
        dtype: what terms are kept in.
        device: where they are kept.
    """

    def __init__(self, features: int, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        self.capacity = capacity
        self.terms = torch.empty(min(capacity, 64), features, dtype=dtype, device=device)
        self.scores = np.zeros(len(self.terms))
        self.slopes = np.zeros(len(self.terms))
        self._uses = np.zeros(len(self.terms), np.int64)
        self._free = list(range(len(self.terms)))[::-1]
        self.peak = 0

    @property
    def room(self) -> int:
        """Slots that can still be taken."""
        return len(self._free) + self.capacity - len(self.terms)

    def take(self, count: int) -> Ints:
        """Slots for new nodes."""
        if count > len(self._free):
            self._grow(count - len(self._free))
        out = np.array([self._free.pop() for _ in range(count)], np.int64)
        self.peak = max(self.peak, len(self.terms) - len(self._free))
        return out

    def _grow(self, more: int) -> None:
        old = len(self.terms)
        size = min(max(2 * old, old + more), max(self.capacity, old + more))
        terms = torch.empty(size, self.terms.shape[1], dtype=self.terms.dtype, device=self.terms.device)
        terms[:old] = self.terms
        self.terms = terms
        extra = np.zeros(size - old)
        self.scores, self.slopes = np.r_[self.scores, extra], np.r_[self.slopes, extra]
        self._uses = np.r_[self._uses, extra.astype(np.int64)]
        self._free += list(range(size - 1, old - 1, -1))

    def put(self, slots: Ints, done: Evaluated) -> None:
        """Fill slots with evaluated nodes."""
        self.terms[torch.as_tensor(slots, device=self.terms.device)] = done.terms.to(self.terms.device)
        self.scores[slots], self.slopes[slots] = done.scores, done.slopes

    def rows(self, slots: Ints) -> Tensor:
        """The terms in slots of any shape, (*slots, features)."""
        return self.terms[torch.as_tensor(slots, device=self.terms.device)]

    def hold(self, slots: Ints) -> None:
        """Count one more use of each slot."""
        np.add.at(self._uses, slots.ravel(), 1)

    def release(self, slots: Ints) -> None:
        """Count one use less; unused slots are free again."""
        flat = slots.ravel()
        np.add.at(self._uses, flat, -1)
        unique = np.unique(flat)
        self._free += unique[self._uses[unique] == 0].tolist()

    def worth(self, rows: Floats) -> int:
        """How many slots' memory some float64 numbers per feature take."""
        return int(np.ceil(rows * 8 / self.terms.element_size()))
