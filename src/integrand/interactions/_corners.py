"""Kinks in scores that are curved in between: where in a panel they are, and what they add once they are alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..execute._nodes import Floats
from ._choose import Rows
from ._rule import slog

STUBBORN = 0.75
"""A panel holds a kink if it misses at least this share of what the panel that it was cut from did."""

FINEST, FINEST_ROUNDINGS = 1e-7, 256.0
"""A panel with one kink is this narrow, or so many roundings if that is wider."""

NOISE = 16.0
"""By so many roundings a jump may be off."""

WINDOW = 1 / 30
"""A kink is looked for within this share of its cell on both sides of where the sides meet."""


@dataclass(frozen=True)
class Corners:
    """What narrow panels with a kink add.

    Attributes:
        which: (panels,) the panels that have one.
        values: (kinks, rows, columns).
        errors: (kinks,) absolute L1.
    """

    which: NDArray[np.bool_]
    values: Tensor
    errors: Floats


def corners(which: NDArray[np.bool_], jumps: Tensor, sizes: Floats, ends: Floats, rows: Rows, epsilon: float) -> Corners:
    """Count the kinks of some panels: a jump J of gradient times velocity adds J J' / (J . 1) times -s ln s.

    Args:
        which: (panels,) those that are narrow and hold a kink.
        jumps: (panels, features).
        sizes: (panels,) L1 norms of gradient times velocity.
        ends: (panels, 2) where panels start and stop.
        rows: which rows are wanted.
        epsilon: a rounding.
    """
    index = np.flatnonzero(which)
    jump = jumps[torch.as_tensor(index, device=jumps.device)]
    along, whole = (part.double().cpu().numpy() for part in (jump.sum(1), jump.abs().sum(1)))
    noise = NOISE * epsilon * sizes[index]
    good = np.abs(along) > noise
    index, jump, along, whole, noise = index[good], jump[torch.as_tensor(good)], along[good], whole[good], noise[good]
    width, weight = np.diff(ends[index], axis=1)[:, 0], slog(ends[index].mean(1))
    factor = torch.as_tensor(weight / along, dtype=jump.dtype, device=jump.device)
    mine = rows.picked(jump)
    values = mine[:, :, None] * rows.reduced(jump)[:, None] * factor[:, None, None]
    spread = whole / np.abs(along)
    off = noise / np.abs(along) * (1 + spread) + spread * width * (len(index) + 1 / np.maximum(weight, 1e-9))
    found = np.zeros_like(which)
    found[index] = True
    return Corners(found, values, off * weight * mine.abs().sum(1).double().cpu().numpy())


@dataclass(frozen=True)
class Profile:
    """A few numbers along panels, (panels, nodes + 2 ends) each, (..., 3) for the slope and two random mixtures of features."""

    s: Floats
    scores: Floats
    slopes: Floats
    curves: Floats

    def cuts(self, panel: int, depth: int) -> tuple[float, float]:
        """Where to cut a panel so that its kink is in the middle: around a cell, or at every other depth around a point."""
        s, slopes, curves = self.s[panel], self.slopes[panel], self.curves[panel]
        width = np.diff(s)
        off = np.abs(np.diff(slopes, axis=0) - (curves[1:] + curves[:-1]) / 2 * width[:, None]).sum(1)
        k = int(np.argmax(off))
        if depth % 2:
            return float(s[k]), float(s[k + 1])
        h = width[k]
        first, last = self.scores[panel, k : k + 2]
        (rise, bend), (fall, tail) = ((slopes[i, 0], curves[i, 0]) for i in (k, k + 1))
        # first + rise t + bend t^2 / 2 meets last - fall (h - t) + tail (h - t)^2 / 2
        roots = np.roots([(bend - tail) / 2, rise - fall + tail * h, first - last + fall * h - tail * h**2 / 2])
        inside = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and 0 <= root.real <= h]
        if not inside:
            return float(s[k]), float(s[k + 1])
        middle, reach = s[k] + inside[-1], max(h * WINDOW, FINEST * 0.45)
        return float(max(middle - reach, s[0])), float(min(middle + reach, s[-1]))
