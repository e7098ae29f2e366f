"""Paths that are laid by the gradients met on the way."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..trees import Tensors
from .base import Path
from .guided import Gradient


@runtime_checkable
class Steered(Protocol):
    """A path that asks for gradients while it is laid. The engine then integrates along what was laid.

    Like a :class:`Path`, it may say in an attribute ``promises`` which axioms it keeps.
    """

    def end(self) -> Tensors:
        """The input: where the path ends."""
        ...

    def steer(self, gradient: Gradient, *, batched: bool) -> Path:
        """Lay the path. Without a batch dimension, points handed to ``gradient`` gain one of size 1."""
        ...
