"""How a model runs: in its own precision or a lower one, operation by operation or from a recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from .._trees import Leaves
from ..functions import Function
from ..functions._call import Runs
from ._record import Recordings

Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]
"""``auto``: less than float32 on a GPU, where that pays and keeps the tolerance, as measured (:mod:`._settle`)."""

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}

COARSE = {"tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance of neighbouring numbers at 1."""


@dataclass(frozen=True)
class Way:
    """How the model runs: in a precision, the score scaled by a power of two before it is differentiated."""

    name: str = "float32"
    scale: float = 1.0

    @contextmanager
    def switched(self) -> Iterator[None]:
        """With TF32 switched on where that is meant."""
        if self.name != "tf32":
            yield
            return
        cudnn = torch.backends.cudnn
        options = {"enabled": cudnn.enabled, "benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
        before = torch.get_float32_matmul_precision()
        with cudnn.flags(**options, allow_tf32=True):
            torch.set_float32_matmul_precision("high")
            try:
                yield
            finally:
                torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class _Autocast:
    """Runs a model under autocast."""

    inner: Runs
    dtype: torch.dtype

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[object]:
        with torch.autocast(leaves[0].device.type, self.dtype):
            return self.inner(leaves, rows)


class Runner:
    """Scores and gradients of rows, in a precision.

    Args:
        function: what is explained.
        recorded: whether recordings may be made and used, which no two threads may do at a time.
    """

    def __init__(self, function: Function, *, recorded: bool = True) -> None:
        self.function = function
        self.way = Way()
        self.recordings = Recordings(function, self.run, allowed=recorded)

    def take(self, way: Way) -> None:
        """From now on, run like this."""
        self.way = way

    @contextmanager
    def taking(self, way: Way) -> Iterator[None]:
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

    def run(self, function: Function, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """The same for a function of this kind, operation by operation."""
        if not self.low:
            return function.value_and_grad(leaves, rows)
        half = HALF.get(self.way.name)
        lower = function if half is None else replace(function, run=_Autocast(function.run, half))
        with self.way.switched():
            scores, gradients = lower.value_and_grad(leaves, rows, scale=self.way.scale)
        return scores.float(), gradients
