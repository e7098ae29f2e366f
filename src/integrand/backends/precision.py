"""Precision modes: running a model in less than its own precision, and what that does to attributions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..functions.call import RunsRows
from ..functions.model_state import PROCESS, tf32
from ..trees import Leaves, on_device
from .torch_function import TorchFunction

Precision = Literal["auto", "float32", "tf32-backward", "tf32", "bfloat16", "float16"]
"""``auto``: less than float32 on a GPU, where that pays and keeps the tolerance, as measured on the spot."""

BACKWARD = "tf32-backward"
"""Float32 forward, so that scores and the states of all units are right, and TF32 backward, which is then a linear map."""

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}

ROUNDING = {"tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The relative rounding of each mode's scores: half the distance between neighbouring numbers at 1."""

GRADIENT_ROUNDING = {**ROUNDING, BACKWARD: 2.0**-11}
"""That of its gradients."""

PROVEN = 0.25
"""Over the mean along a path: how large gradients must be at the checked nodes for the check to say something about it."""

FEARED = 64
"""Roundings that attributions may be shifted by where the check says nothing."""


@dataclass(frozen=True)
class PrecisionMode:
    """How a model runs: the name of a precision, and the power of two that scores are scaled by before the backward pass."""

    name: str = "float32"
    scale: float = 1.0

    @property
    def low(self) -> bool:
        """Whether this is less than what the model and its input are in."""
        return self.name != "float32"

    @property
    def low_scores(self) -> bool:
        """Whether forward passes are in less than what the model and its input are in, too."""
        return self.name not in ("float32", BACKWARD)

    @contextmanager
    def switched(self) -> Iterator[None]:
        """TF32 as this mode needs it, for the process, while in this context; where it needs none, nothing."""
        if self.name not in ("tf32", BACKWARD):
            yield
            return
        # Who turns the switch between two passes has it to itself.
        with PROCESS.claimed(switches={"tf32": True if self.name == "tf32" else (BACKWARD, threading.get_ident())}):
            yield

    def applied(self, function: TorchFunction) -> TorchFunction:
        """The function as this mode computes it, inside :meth:`switched`."""
        if self.name == BACKWARD:
            return replace(function, backward=partial(tf32, True))
        half = HALF.get(self.name)
        return function if half is None else replace(function, run=AutocastRun(function.run, half), inside=Counter())

    def value_and_grad(self, function: TorchFunction, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """Scores (N,) in float32 and gradients of a function at points, computed in this mode."""
        with self.switched():
            scores, gradients = self.applied(function).value_and_grad(leaves, rows, scale=self.scale)
        return scores.float(), gradients


@dataclass(frozen=True)
class AutocastRun:
    """Runs a model under autocast to half precision."""

    inner: RunsRows
    dtype: torch.dtype

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[object]:
        """The model's raw outputs for explained rows."""
        with torch.autocast(leaves[0].device.type, self.dtype):
            return self.inner(leaves, rows)


@dataclass
class PrecisionShift:
    """What a lower precision does to the attributions of all examples, as measured; (examples,) each unless said otherwise.

    Attributes:
        shifts: by how much attributions are shifted still, over the size of the gradients.
        sizes: the size of the gradients where that was measured (gradient times velocity, L1).
        corrections: the known part of the shift, to be added to the attributions, (examples, features); None if nothing.
        starts: F(x') in full precision, where it came with the check.
        rounding: the relative rounding of the precision.
        score_shift: by how much the change of F is off, at the least (and so attributions), besides the corrections.
        low: which examples run in it.
    """

    shifts: Floats
    sizes: Floats
    corrections: Tensor | None
    starts: Floats | None
    rounding: float
    score_shift: Floats
    low: Bools

    def absolute(self, mass: Floats) -> Floats:
        """The L1 shift of each example's attributions, given the mean size of its gradients along the path, (examples,)."""
        feared = np.maximum(self.shifts, FEARED * self.rounding)
        shifts = np.where(self.sizes >= PROVEN * mass, self.shifts, feared)
        return np.asarray(np.where(self.low, np.maximum(shifts * mass, self.score_shift), 0.0))

    def note_scores(self, examples: Ints, missing: Floats, scale: Floats) -> None:
        """Note how much more F changes from start to end in full precision, (n,), for scores of a given size."""
        known = 0.0 if self.corrections is None else self.corrections[examples].sum(1).double().cpu().numpy()
        self.score_shift[examples] = np.maximum(np.abs(missing - known) - 2 * self.rounding * scale, 0.0)

    def stop(self, examples: Ints) -> None:
        """Take note that these examples run in full precision from now on."""
        self.low[examples] = False
        if self.corrections is not None:
            self.corrections[on_device(examples, self.corrections.device)] = 0.0
