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
    letters between them are one stretch, from the first to the last, with all letters in between; a stretch of fewer than
    ``shortest`` letters is left out. Stretches are ranked by the magnitude of their sums, and ``most`` are kept.

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
    found: list[tuple[int, int]] = []
    for sign in (1, -1):
        run: list[int] = []
        for i in [*np.flatnonzero(sign * values >= strong * largest).tolist(), len(values) + apart + 1]:
            if run and i - run[-1] > apart:
                found.append((run[0], run[-1] + 1))
                run = []
            run.append(i)
    kept = [(start, end) for start, end in found if end - start >= shortest]
    return sorted(kept, key=lambda one: (-abs(float(values[one[0] : one[1]].sum())), one))[:most]
