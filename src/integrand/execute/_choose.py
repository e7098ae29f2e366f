"""When linear regions are the shorter way."""

from __future__ import annotations

import math

from ._evaluate import Evaluator
from ._judge import Progressing, Verdict
from ._table import Panels

KINKED = 0.2
"""Simpson's nested difference over the trapezoid rule's, from which on gradients are taken to have kinks everywhere."""

EXACT = {"cpu": 48}
"""Gradients on a line, should the error fall with their number, from which on its linear regions are looked for; elsewhere
:data:`EXACT_LATE`."""

EXACT_LATE = 512
"""On a GPU gradients cost little beside following the model's operations one by one."""

EXACT_LOOK = 2
"""The wave after which that is done: the first says too little about kinks."""

SAVES = 12
"""Sampling takes down to a third of what it would if its error fell with the number of gradients, and a region takes as long
as up to six gradients (convolutions in float32; its break points are found in float64)."""

FEW = 64
"""As many regions on a line cost little in any case, and leave no doubt."""

SPARSE = 8
"""At least one in so many numbers that autograd saves is expected to have a kink on the line: in networks that were trained on
digits it is every fourth or fifth. Looking for more regions than are worth it would be for nothing."""


def kinked(panels: Panels) -> bool:
    """Whether gradients have kinks everywhere, by how Simpson's rule fares beside the trapezoid rule."""
    return bool(panels.simpson.sum() > KINKED * panels.trapezoid.sum())


def regions_worth(evaluator: Evaluator, tol: float, limit: int, one: Progressing, verdict: Verdict, panels: Panels) -> int:
    """How many linear regions an example may have for exact integration to be the shorter way; 0 where it is not tried.

    Args:
        evaluator: knows what was spent, and how large a row is.
        tol: the tolerance.
        limit: gradients that the example may take.
        one: what its waves have shown.
        verdict: the last of it.
        panels: its panels.
    """
    if one.waves != EXACT_LOOK or not kinked(panels):
        return 0
    lines, spent = len(evaluator.pieces), int(evaluator.gradients[one.example])
    goal = max(tol * verdict.size, one.floor)
    # At kinks every rule is of first order, whatever the plan hopes for from Simpson's.
    sampled = spent * verdict.error / goal if goal > 0 else math.inf
    if sampled < lines * EXACT.get(evaluator.device.type, EXACT_LATE):
        return 0
    budget = int(min(max(sampled / SAVES, lines * FEW), (limit - spent) / 2))
    numbers = evaluator.chunks.each // evaluator.dtype.itemsize
    return budget if lines * numbers <= SPARSE * budget else 0
