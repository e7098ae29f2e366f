"""Measures of one explanation against another: relative errors, ranks, and where a word stands."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]


def relative_error(values: Floats, exact: Floats) -> float:
    """sum|a - a*| / sum|a*|."""
    return float(np.abs(values - exact).sum() / np.abs(exact).sum())


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's correlation of two rows without ties."""
    ranks = [np.argsort(np.argsort(row)) for row in (first, second)]
    return float(np.corrcoef(*ranks)[0, 1])


def same_top(first: Floats, second: Floats) -> bool:
    """Whether the largest magnitude is at the same place."""
    return int(np.abs(first).argmax()) == int(np.abs(second).argmax())


def rank_of(places: list[int], tokens: Floats) -> int:
    """The rank of the best of some places by magnitude, 1 for the largest; not finite ones come last."""
    sizes = np.nan_to_num(np.abs(tokens), nan=-1.0, posinf=-1.0)
    best = max(sizes[places])
    return 1 + int((sizes > best).sum())


def share_of(places: list[int], tokens: Floats) -> float:
    """The share of some places in the sum of magnitudes."""
    sizes = np.abs(tokens)
    return float(sizes[places].sum() / sizes.sum())
