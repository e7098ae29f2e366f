"""The one caller of a function's scores and gradients, wrapped by a precision mode, by CUDA graphs and by checkpointing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..backends.checkpointing import CheckpointedRun, recomputable
from ..backends.precision import BACKWARD, PrecisionMode
from ..backends.torch_function import TorchFunction
from ..memory import out_of_memory, warn_lighter
from ..trees import Leaves

if TYPE_CHECKING:
    from ..backends.cuda_graphs import GraphedRows


class Runner:
    """Scores and gradients of rows, in a precision mode.

    Args:
        function: what is explained.
        graphs: whether CUDA graphs may be captured and replayed, which no two threads may do at a time.
    """

    def __init__(self, function: TorchFunction, *, graphs: bool = True) -> None:
        self.function = self._plain = function
        self.mode = PrecisionMode()
        self.graphs: GraphedRows | None = None
        if graphs and function.inputs[0].device.type == "cuda":
            from ..backends.cuda_graphs import graphed_rows

            self.graphs = graphed_rows(function)

    @property
    def low(self) -> bool:
        """Whether the mode is less precise than the model and its input."""
        return self.mode.name != "float32"

    @cached_property
    def blocks(self) -> tuple[nn.Module, ...]:
        """Repeated blocks of the model whose activations can be recomputed."""
        return recomputable(self._plain.run)

    @property
    def recomputes(self) -> bool:
        """Whether activations are recomputed block by block."""
        return self.function is not self._plain

    def recompute(self) -> bool:
        """Recompute the activations of blocks from now on, rather than save them; False if there are none, or it is done."""
        if self.recomputes or not self.blocks:
            return False
        self.function, self.graphs = replace(self._plain, run=CheckpointedRun(self._plain.run, self.blocks)), None
        if self.mode.name == BACKWARD:  # what is computed again in a backward pass would be in TF32, too
            self.mode = PrecisionMode()
        return True

    def in_full_precision(self) -> Runner | None:
        """Runs a half-precision model as in float32; None where that cannot be done.

        A row takes twice the memory then: where there is none for it, activations are recomputed block by block.
        """
        from ..backends.full_precision import in_full_precision

        function, light = None, False
        try:
            function = in_full_precision(self.function)
        except Exception as error:
            if not out_of_memory(error):
                raise
            light = True
        if light:  # what the error held is free by now
            if self.recomputes or not self.blocks:
                return None
            warn_lighter()
            function = in_full_precision(replace(self.function, run=CheckpointedRun(self.function.run, self.blocks)))
        if function is None:
            return None
        runner = Runner(replace(function, run=self.function.run), graphs=False)
        if light:
            runner.recompute()
        return runner

    def __call__(self, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """Scores (N,) and gradients (N, ...) at points (N, ...), row i on the path of example ``rows[i]``."""
        if self.graphs is not None:
            return self.graphs.value_and_grad(self.mode, leaves, rows)
        if self.low:
            return self.mode.value_and_grad(self.function, leaves, rows)
        return self.function.value_and_grad(leaves, rows)

    def scores(self, leaves: Leaves, rows: Tensor) -> Tensor:
        """Scores (N,) at points, in full precision."""
        return self.function.scores(leaves, rows)

    def differentiable(self, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """Scores and gradients at points in full precision, with their graph."""
        return self._plain.value_and_grad(leaves, rows, create_graph=True)

    def several_targets(self, leaves: Leaves, rows: Tensor, asked: Tensor) -> list[tuple[Tensor, Leaves]]:
        """Scores and gradients of several targets from one forward pass; see :meth:`TorchFunction.value_and_grads`."""
        with self.mode.switched():
            return self.mode.applied(self.function).value_and_grads(leaves, rows, asked)

    def several_scores(self, leaves: Leaves, rows: Tensor, asked: Tensor) -> Tensor:
        """Scores of several targets from one forward pass, in full precision; see :meth:`TorchFunction.several_scores`."""
        return self.function.several_scores(leaves, rows, asked)

    @contextmanager
    def in_mode(self, mode: PrecisionMode) -> Iterator[None]:
        """Run in another precision mode while in this context."""
        before, self.mode = self.mode, mode
        try:
            yield
        finally:
            self.mode = before
