"""How a model runs: in its own precision or a lower one, operation by operation or from a recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..functions.call import RunsRows
from ..trees import Leaves

Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]
"""``auto``: less than float32 on a GPU, where that pays and keeps the tolerance, as measured (:mod:`._settle`)."""

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}

COARSE = {"tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance of neighbouring numbers at 1."""


@dataclass(frozen=True)
class PrecisionMode:
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
class Autocast:
    """Runs a model under autocast."""

    inner: RunsRows
    dtype: torch.dtype

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[object]:
        """The raw outputs for explained rows."""
        with torch.autocast(leaves[0].device.type, self.dtype):
            return self.inner(leaves, rows)


PROVEN = 0.25
"""Over the mean along a path: how large gradients must be where it was checked, for the check to say something about it."""

FEARED = 64
"""Roundings that attributions may be moved by where it does not."""


@dataclass
class PrecisionShift:
    """Of all examples, each (examples,) unless said otherwise.

    Attributes:
        shifts: what is moved still, over the size of the gradients.
        sizes: of the gradients where that was found (gradient times velocity, L1).
        corrections: what is known of it, to be added to the attributions, (examples, features); None if that is nothing.
        starts: F(x') in full precision, where it came with the check.
        coarse: the precision, relative.
        slipped: what the change of F is off by, at the least (and so attributions), besides the corrections.
        low: which examples run in it.
    """

    shifts: Floats
    sizes: Floats
    corrections: Tensor | None
    starts: Floats | None
    coarse: float
    slipped: Floats
    low: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    def moved(self, mass: Floats) -> Floats:
        """What attributions are moved by (L1), given the size of the gradients along each path, its mean, (examples,)."""
        feared = np.maximum(self.shifts, FEARED * self.coarse)
        shifts = np.where(self.sizes >= PROVEN * mass, self.shifts, feared)
        return np.asarray(np.where(self.low, np.maximum(shifts * mass, self.slipped), 0.0))

    def slip(self, examples: Ints, missing: Floats, scale: Floats) -> None:
        """Note by how much F changes more from start to end in full precision, (n,), F being of this size."""
        known = 0.0 if self.corrections is None else self.corrections[examples].sum(1).double().cpu().numpy()
        self.slipped[examples] = np.maximum(np.abs(missing - known) - 2 * self.coarse * scale, 0.0)

    def stop(self, examples: Ints) -> None:
        """These run in full precision from now on."""
        self.low[examples] = False
        if self.corrections is not None:
            self.corrections[torch.as_tensor(examples, device=self.corrections.device)] = 0.0
