"""What running a model in a lower precision does to its attributions, as measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ._nodes import Floats, Ints

PROVEN = 0.25
"""Over the mean along a path: how large gradients must be where it was checked, for the check to say something about it."""

FEARED = 64
"""Roundings that attributions may be moved by where it does not."""


@dataclass
class Lowered:
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
