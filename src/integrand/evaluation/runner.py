"""The one caller of a function's scores and gradients: in a precision mode, replayed from a CUDA graph where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from ..backends.cuda_graphs import CapturedGraphs
from ..backends.precision import HALF, Autocast, PrecisionMode
from ..backends.torch_function import TorchFunction
from ..trees import Leaves


class Runner:
    """Scores and gradients of rows, in a precision.

    Args:
        function: what is explained.
        recorded: whether recordings may be made and used, which no two threads may do at a time.
    """

    def __init__(self, function: TorchFunction, *, recorded: bool = True) -> None:
        self.function = function
        self.way = PrecisionMode()
        self.recordings = CapturedGraphs(function, self.run, allowed=recorded)

    def take(self, way: PrecisionMode) -> None:
        """From now on, run like this."""
        self.way = way

    @contextmanager
    def taking(self, way: PrecisionMode) -> Iterator[None]:
        """Run like this for a while."""
        before = self.way
        self.take(way)
        try:
            yield
        finally:
            self.take(before)

    @property
    def low(self) -> bool:
        """Whether this is less than what the model and its input are in."""
        return self.way.name != "float32"

    def __call__(self, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """Scores (N,) and gradients (N, ...) at points (N, ...), row i of example ``rows[i]``."""
        recording = self.recordings.find(self.way, leaves, rows)
        if recording is not None:
            return recording.replay(self.function, leaves, rows)
        with self.recordings.watching():
            return self.run(self.function, leaves, rows)

    def run(self, function: TorchFunction, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """The same for a function of this kind, operation by operation."""
        if not self.low:
            return function.value_and_grad(leaves, rows)
        half = HALF.get(self.way.name)
        lower = function if half is None else replace(function, run=Autocast(function.run, half))
        with self.way.switched():
            scores, gradients = lower.value_and_grad(leaves, rows, scale=self.way.scale)
        return scores.float(), gradients
