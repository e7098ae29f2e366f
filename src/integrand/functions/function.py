"""The seam between what is explained and everything that integrates it: a score per row of some tensors, and its gradient."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ..arrays import Floats
from ..trees import Leaves, Tree


class Function(Protocol):
    """What is explained. A backend provides it; in the engine only a runner calls its last two methods.

    Points are torch tensors with one row each, (N, ...); row i lies on the path of example ``rows[i]``.
    """

    @property
    def inputs(self) -> Leaves:
        """The explained tensors at the input, (examples, ...) each."""
        ...

    @property
    def tree(self) -> Tree:
        """The structure that the user passed them in."""
        ...

    @property
    def examples(self) -> int:
        """How many examples are explained."""
        ...

    @property
    def batched(self) -> bool:
        """Whether the user's tensors have a batch dimension."""
        ...

    @property
    def at_input(self) -> Tensor:
        """The scores at the input, (examples,)."""
        ...

    @property
    def scale(self) -> Floats:
        """The size of the model's outputs for each example, (examples,), for telling rounding from difference."""
        ...

    @property
    def words(self) -> tuple[str, ...]:
        """Which output is explained for each example, in words."""
        ...

    @property
    def jumps(self) -> str:
        """Where the score can jump by what the target does, and what to explain instead; '' where it cannot."""
        ...

    def remark(self, example: int) -> str:
        """What the target met at the points of an example's path so far, in words; '' where nothing."""
        ...

    @property
    def targets_differ(self) -> bool:
        """Whether two examples may be scored differently for the same output of the model."""
        ...

    @property
    def layered(self) -> bool:
        """Whether the value of a layer is explained rather than the model's input."""
        ...

    def scores(self, leaves: Leaves, rows: Tensor) -> Tensor:
        """Scores at points, (N,)."""
        ...

    def value_and_grad(
        self, leaves: Leaves, rows: Tensor, *, create_graph: bool = False, scale: float = 1.0
    ) -> tuple[Tensor, Leaves]:
        """Scores at points, (N,), and their gradients, (N, ...) each.

        Args:
            leaves: the points.
            rows: which example each of them belongs to, (N,).
            create_graph: let the gradients be differentiated further.
            scale: differentiate so many times the scores, and divide the gradients by it again: a power of two that keeps
                half precision from underflowing.
        """
        ...
