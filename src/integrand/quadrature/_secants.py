"""What a segment against its halves says about the error.

With P the attributions of a segment by its secants, C those of its halves, the value is C + (C - P) / 3: right to one more
order where the gradient is smooth, and no worse where it moves like Brownian motion. There the error of C falls like the
width to the power of 3/2 and is about half of |C - P|, more as long as |C - P| is itself large.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

FACTOR = 0.6
"""Error over |C - P| on deep networks with kinks, where that is small: 0.45 to 0.55, and a little more."""

FEW_FEATURES = 10.0
"""The estimate of a sum over N independent features is raised by 1 + this / sqrt(N)."""

FEW_SEGMENTS = 3.0
"""Where M segments hold nearly all of it, what one of them hides is not made up for by others: 1 + this / M."""

SPLIT = 1 / 16
"""Squared |C - P| of each half over that of the segment, used to plan ahead: an error like the width to the power of 3/2."""


def estimate(change: Tensor, norms: NDArray[np.float64], missing: float, size: float) -> float:
    """Absolute L1 error of a sum over segments.

    Args:
        change: (features,) C - P, summed over segments.
        norms: (segments,) |C - P| of each.
        missing: what the sum misses of the change of F.
        size: L1 norm of the attributions.
    """
    squares = norms**2
    together = max(float(change.abs().sum()), float(np.sqrt(squares.sum())))
    if together == 0 or size <= 0:
        return abs(missing) if together == 0 else float(np.inf)
    few = 1 + FEW_FEATURES / float(np.sqrt(features(change)))
    few *= 1 + FEW_SEGMENTS / segments(norms)
    return max((FACTOR + together / size) * few * together, abs(missing))


def features(change: Tensor) -> float:
    """The effective number of features, |d|_1^2 / |d|_2^2."""
    square = float(change.square().sum())
    return max(float(change.abs().sum()) ** 2 / square, 1.0) if square > 0 else 1.0


def segments(norms: NDArray[np.float64]) -> float:
    """The effective number of segments that hold the error, (sum n^2)^2 / sum n^4."""
    squares = (norms / max(float(norms.max()), 1e-300)) ** 2
    return max(float(squares.sum() ** 2 / (squares**2).sum()), 1.0) if squares.any() else 1.0
