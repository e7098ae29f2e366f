"""The control: halve the panels that the error sits in, until the tolerance is met or something else ends it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..attribution import Status
from ..execute._nodes import Floats
from ._choose import Rows
from ._evaluate import Curvature
from ._panels import Measured, Measuring, Panel
from ._rule import NODES

CLOSED = 0.25
"""The share of what is left of the tolerance that panels may take which are not looked at again."""

DEEPEST = 2 / 3
"""Panels are halved until their width over their distance from the baseline is this power of a rounding."""

SOON = 3
"""Panels that were cut so often tell whether what they miss is a kink."""

MANY = 100
"""Kinks beyond this number in a curved score are not looked for one by one."""

ROUNDINGS = 1e5
"""Errors up to so many roundings of what is summed may be noise."""

BLOCK_BYTES = 1 << 30
"""Matrices of panels that are worked on at a time, where the user names no limit."""

PANELS = 16
"""Panels that an example is expected to have open at a time, and may have in any case."""


@dataclass
class Found:
    """An example's result.

    Attributes:
        values: (rows, columns).
        attributions: (features,).
        error: absolute L1 error.
        status: how it ended.
        rule: how it was integrated.
        kinks: kinks that were found and counted.
    """

    values: Tensor
    attributions: Tensor
    error: float
    status: Status
    rule: str = "Gauss-Kronrod"
    kinks: int | None = None


@dataclass
class Progressing:
    """An unfinished example: what is closed of it, and the panels that are open."""

    example: int
    open: list[Panel]
    values: Tensor
    attributions: Tensor
    error: float = 0.0
    stuck: float = 0.0  # what closed panels miss however narrow they are: kinks and jumps
    size: float = 0.0
    points: int = 0
    kinks: int = 0
    history: list[float] = field(default_factory=list)
    missed: list[float] = field(default_factory=list)  # what all panels missed after each wave, closed ones left out


@dataclass(frozen=True)
class Limits:
    """When to stop: the tolerance, points per example, and bytes for matrices of panels."""

    tol: float
    points: int
    bytes: int

    def panel_bytes(self, rows: Rows) -> int:
        """What a panel takes: its matrix, the embedded one, and one that is worked on."""
        return 3 * 8 * len(rows) * rows.columns


def integrate(measuring: Measuring, limits: Limits) -> tuple[dict[int, Found], list[int]]:
    """Integrate all examples.

    Returns:
        What was found for each example, and which are piecewise linear, with kinks that second derivatives do not see.
    """
    curvature = measuring.curvature
    examples, pieces = curvature.evaluator.function.examples, len(measuring.shares)
    each = PANELS * pieces * limits.panel_bytes(curvature.rows)
    block = int(np.clip(limits.bytes // each, 1, examples))
    done: dict[int, Found] = {}
    linear: list[int] = []
    for first in range(0, examples, block):
        active = [_started(measuring, e) for e in range(first, min(first + block, examples))]
        while active:
            wave = [panel for one in active for panel in one.open]
            measured = measuring(wave)
            place, going = 0, []
            for one in active:
                index = np.arange(place, place + len(one.open))
                place += len(one.open)
                if _is_linear(one, measured, index, limits.tol):
                    linear.append(one.example)
                    continue
                found = _step(one, measured, index, limits, curvature)
                if found is None:
                    going.append(one)
                else:
                    done[one.example] = found
            active = going
            curvature.evaluator.tell(len(done) + len(linear), _expected(active, measuring))
    return done, linear


def _started(measuring: Measuring, example: int) -> Progressing:
    curvature = measuring.curvature
    zero = torch.zeros((), dtype=curvature.wide, device=curvature.evaluator.device)
    values = zero.new_zeros(len(curvature.rows), curvature.rows.columns)
    panels = [Panel(piece, example, 0.0, 1.0) for piece in range(len(measuring.shares))]
    return Progressing(example, panels, values, zero.new_zeros(curvature.evaluator.features))


def _expected(active: list[Progressing], measuring: Measuring) -> int:
    return int(measuring.curvature.evaluator.gradients.sum()) + sum(NODES * len(one.open) for one in active)


def _is_linear(one: Progressing, measured: Measured, index: np.ndarray[tuple[int], np.dtype[np.int64]], tol: float) -> bool:
    """Whether an example has kinks and between them nothing but straight pieces, as in a ReLU network."""
    if one.points or not measured.straight[index].all():
        return False
    return bool(measured.errors[index].sum() > min(tol, 1e-3) * measured.values[index].sum(0).abs().sum())


def _step(
    one: Progressing,
    measured: Measured,
    index: np.ndarray[tuple[int], np.dtype[np.int64]],
    limits: Limits,
    curvature: Curvature,
) -> Found | None:
    """Judge an example after a wave: finished, or with other panels open."""
    epsilon = curvature.evaluator.epsilon
    errors, missed = measured.errors[index], measured.missed[index]
    one.points += NODES * len(index)
    values = one.values + measured.values[index].sum(0)
    attributions = one.attributions + measured.attributions[index].sum(0)
    error, norm = one.error + float(errors.sum()), float(values.abs().sum())
    size = one.size + float(measured.size[index].sum())
    one.history.append(error)
    one.missed.append(float(missed.sum()))
    status = None
    if error <= limits.tol * norm or error == 0:
        status = Status.CONVERGED
    elif _is_noise(one.history, ROUNDINGS * epsilon * size):
        status = Status.NOISE
    else:
        closed = _closed(errors, CLOSED * max(limits.tol * norm - one.error, 0.0)) | measured.kinks[index]
        deep = np.array([p.stop - p.start <= max(epsilon**DEEPEST * p.start, epsilon) for p in one.open])
        split = np.flatnonzero(~closed & ~deep)
        stubborn = np.array([panel.depth >= SOON for panel in one.open]) & measured.stubborn[index]
        many = len(split) >= MANY and one.missed[-1] > 0.5 * one.missed[0]
        full = 3 * len(split) > max(PANELS, limits.bytes // limits.panel_bytes(curvature.rows))
        if many or full or not len(split) or one.points + 2 * NODES * len(split) > limits.points:
            stuck = one.stuck + float(missed[stubborn].sum())
            if many or _contradicted(one.missed, float(measured.nested[index].sum())):
                stuck = float(missed.sum())
            status = Status.BUDGET if len(split) else Status.NOISE
            status = Status.JUMP if stuck > CLOSED * limits.tol * norm and stuck > CLOSED * error else status
    if status is not None:
        kinks = one.kinks + int(measured.kinks[index].sum())
        return Found(values, attributions, error, status, kinks=kinks or None)
    keep = index[closed | deep]
    one.values += measured.values[keep].sum(0)
    one.attributions += measured.attributions[keep].sum(0)
    one.size += float(measured.size[keep].sum())
    one.error += float(errors[closed | deep].sum())
    one.stuck += float(missed[deep & stubborn].sum())
    one.kinks += int(measured.kinks[keep].sum())
    one.open = [part for k in split for part in _parts(one.open[k], measured, int(index[k]))]
    return None


def _parts(panel: Panel, measured: Measured, place: int) -> list[Panel]:
    """The halves of a panel, or what is around its kink and the kink."""
    missed = float(measured.missed[place])
    if panel.depth and measured.stubborn[place]:
        return panel.cut(missed, measured.profile.cuts(place, panel.depth))
    return panel.cut(missed)


def _closed(errors: Floats, budget: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The panels with the smallest errors, as many as may stay as they are."""
    order = np.argsort(errors, kind="stable")
    closed = np.zeros(len(errors), bool)
    closed[order] = np.cumsum(errors[order]) <= budget
    return closed


def _contradicted(missed: list[float], nested: float) -> bool:
    """Whether second derivatives agree with each other, and not with the gradients: a backward pass that is not its own."""
    return len(missed) >= SOON and missed[-1] > 0.5 * missed[0] and nested < 0.1 * missed[-1]


def _is_noise(history: list[float], floor: float) -> bool:
    """Whether errors are small and do not fall any more."""
    return len(history) >= 3 and history[-1] <= floor and min(history[-2:]) > 0.5 * history[-3]
