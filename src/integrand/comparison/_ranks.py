"""Rank correlations between attributions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ranks(row: Floats) -> Floats:
    """The ranks of numbers from 1 on; equal ones share the mean of theirs, and NaN makes all of them unknown.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    if np.isnan(row).any():
        return np.full(len(row), np.nan)
    _, inverse, counts = np.unique(row, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Floats = (last - (counts - 1) / 2)[inverse.reshape(-1)]
    return shared


def rank_correlations(rows: Floats) -> Floats:
    """Spearman's correlation between every two of n rows of features, (n, features) to (n, n).

    NaN where a row is constant or holds NaN: it then has no order to agree with.

    >>> rank_correlations(np.array([[1.0, 2.0, 3.0], [-1.0, -8.0, -9.0], [5.0, 5.0, 5.0]])).round(9).tolist()
    [[1.0, -1.0, nan], [-1.0, 1.0, nan], [nan, nan, nan]]
    """
    places = np.stack([ranks(row) for row in rows])
    centred = places - places.mean(1, keepdims=True)
    size = np.sqrt((centred**2).sum(1, keepdims=True))
    unit = np.divide(centred, size, out=np.full_like(centred, np.nan), where=size > 0)
    found: Floats = np.clip(unit @ unit.T, -1, 1)
    np.fill_diagonal(found, np.where(np.isnan(np.diagonal(found)), np.nan, 1.0))
    return found


def mean_over_examples(matrices: Floats) -> Floats:
    """The mean over the first dimension of what is known; NaN where nothing is."""
    known = ~np.isnan(matrices)
    count = known.sum(0)
    total = np.where(known, matrices, 0.0).sum(0)
    out: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return out
