"""How well an order of atoms finds the true ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .labels import Bools, Example, Floats


def kendall(found: Floats, true: Floats) -> float:
    """Kendall's tau-b of two rows of numbers, which allows for ties; 0 if ``found`` are all equal, for they order nothing."""
    one, two = (np.sign(np.subtract.outer(row, row)) for row in (found, true))
    scale = math.sqrt(float((one**2).sum() * (two**2).sum()))
    return float((one * two).sum()) / scale if scale else 0.0


def aurocs(found: Floats, sets: Bools) -> Floats:
    """(sets,) the probability that an atom of a set comes before one outside of it, ties by half; NaN for a set of all atoms.

    Args:
        found: (N,) a number per atom, larger for atoms that come first.
        sets: (sets, N) atoms that are true.
    """
    inside = sets.sum(1)
    pairs = inside * (sets.shape[1] - inside)
    wins = sets @ _midranks(found) - inside * (inside + 1) / 2  # Mann and Whitney's U
    return np.where(pairs > 0, wins / np.maximum(pairs, 1), np.nan)


def _midranks(row: Floats) -> NDArray[np.float64]:
    """Ranks from 1, equal numbers sharing their mean rank."""
    _, place, count = np.unique(row, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place])


def scores(found: Floats, example: Example) -> dict[str, float]:
    """Of a map of one molecule: ``tau`` for terms; ``all`` matches and the ``best`` of the sets of matches for labels."""
    if len(example.ways) == 0:
        return {"tau": kendall(found, example.true)}
    each = aurocs(found, example.ways)
    return {"all": float(each[-1]), "best": float(np.nanmax(each))}
