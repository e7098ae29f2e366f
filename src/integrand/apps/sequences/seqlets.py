"""Seqlets: stretches of a sequence in which the attributions are high, by a simple rule."""

from __future__ import annotations

import numpy as np

from ...arrays import Floats

STRONG = 0.2
"""Letters with at least this share of the strongest attribution are the cores of seqlets, by hand."""

APART, SHORTEST, MOST = 3, 3, 12
"""Cores with fewer letters than APART between them belong together; a seqlet has so many letters at least; so many are kept."""


def strong_stretches(
    values: Floats, *, strong: float = STRONG, apart: int = APART, shortest: int = SHORTEST, most: int = MOST
) -> list[tuple[int, int]]:
    """Where the strongest stretches of a sequence begin and end, the strongest first.

    Letters with at least ``strong`` times the largest magnitude are cores. Cores of the same sign with fewer than ``apart``
    letters between them, and no core of the other sign, are one stretch, from the first to the last, with all letters in
    between; a stretch of fewer than ``shortest`` letters is left out. So stretches do not overlap. They are ranked by the
    magnitude of their sums, and ``most`` are kept.

    >>> strong_stretches(np.array([0, 0, 1.0, 0.1, 0.9, 0.5, 0, 0, 0, 0, -0.4, -0.5, -0.3]))
    [(2, 6), (10, 13)]

    Args:
        values: of each position, (L,).
        strong: as above.
        apart: as above.
        shortest: as above.
        most: as above.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not largest > 0:
        return []
    cores = np.flatnonzero(np.abs(values) >= strong * largest).tolist()
    found: list[tuple[int, int]] = []
    for i in cores:
        last = found[-1][1] - 1 if found else -1
        if found and i - last <= apart and values[i] * values[last] > 0:
            found[-1] = (found[-1][0], i + 1)
        else:
            found.append((i, i + 1))
    kept = [(start, end) for start, end in found if end - start >= shortest]
    return sorted(kept, key=lambda one: (-abs(float(values[one[0] : one[1]].sum())), one))[:most]
