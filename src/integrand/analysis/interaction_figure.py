"""Interactions drawn with matplotlib: a matrix of colours, numbers where there is room, integrated gradients beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from ..render.figures import GREY, INK, NEGATIVE, POSITIVE, WARNING, FigureCell, plain, short
from ..render.image.pixels import COLOURS
from ..words import number, percent
from .interaction_result import InteractionCertificate

Array = np.ndarray[Any, Any]

CELL, LABELS, TOP, SIDE, GAP, BAR, FOOT = 0.46, 1.3, 0.75, 1.25, 0.12, 0.85, 0.95
"""Inches: a cell of the matrix, the room for labels and for the title, the width of the bars of sums, the gaps between, the
room for the colour scale, and for what is below the matrix."""


FEW, MOST_TICKS, SMALLEST, LARGEST = 12, 48, 3.0, 9.0
"""Up to how many rows cells hold numbers, how many labels fit on an axis, and the limits of the matrix's side in inches."""


LEAST_SCALE = 0.02
"""The colour scale ends at no less than this share of the largest entry, so that tiny interactions stay pale."""


def draw(
    matrix: Array,
    attributions: Array,
    labels: list[str],
    certificate: InteractionCertificate,
    *,
    title: str | None,
    whole: bool,
) -> Figure:
    """Draw a matrix of interactions, rows against columns.

    Args:
        matrix: the interactions, (rows, rows).
        attributions: the integrated gradient of each row, drawn as bars beside it.
        labels: the names of the rows.
        certificate: what is known of the error.
        title: a heading; by default what was explained.
        whole: whether the columns are all there are, so that rows add up to their bars.
    """
    count = len(labels)
    side = float(np.clip(CELL * count, SMALLEST, LARGEST))
    width, height = LABELS + side + GAP + SIDE + BAR, TOP + side + FOOT
    figure = FigureCell(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)

    def place(left: float, wide: float) -> tuple[float, float, float, float]:
        return left / width, FOOT / height, wide / width, side / height

    limit = _limit(matrix)
    colours = LinearSegmentedColormap.from_list("signed", COLOURS)
    size = float(np.clip(110 * side / 4 / count / 2.4, 5.0, 8.0))
    _matrix(figure.add_axes(place(LABELS, side)), matrix, labels, limit, colours, size)
    _sums(figure.add_axes(place(LABELS + side + GAP, SIDE)), attributions, size)
    beyond = bool((np.abs(np.nan_to_num(matrix)) > limit).any())
    _scale(figure.add_axes(place(LABELS + side + 2 * GAP + SIDE, 0.09)), limit, colours, beyond)
    up = 1 - 0.1 / height
    figure.text(0.12 / width, up, plain(title or certificate.target), size=11, weight="bold", color=INK, va="top")
    rows = "each row adds up to its bar" if whole else "columns are the chosen rows alone"
    note = f"score {number(certificate.score, 3)}; {rows}"
    figure.text(0.12 / width, up - 0.24 / height, plain(note), size=8.5, color=GREY, va="top")
    words = f"error {percent(certificate.error)} (tol {percent(certificate.tol)}), {certificate.status.value}"
    colour = GREY if certificate.converged else WARNING
    figure.text(0.12 / width, 0.1 / height, words, size=7.5, color=colour, va="bottom")
    return figure


def _limit(matrix: Array) -> float:
    """The end of the colour scale: the largest entry off the diagonal, which would otherwise outshine all others."""
    size = np.abs(np.nan_to_num(matrix.astype(float)))
    others = float((size - np.diag(np.diag(size))).max(initial=0.0))
    return max(others, LEAST_SCALE * float(size.max(initial=0.0))) or 1.0


def _matrix(axes: Axes, matrix: Array, labels: list[str], limit: float, colours: LinearSegmentedColormap, size: float) -> None:
    count = len(labels)
    axes.imshow(matrix, cmap=colours, norm=Normalize(-limit, limit), aspect="auto", interpolation="nearest")
    ticks = np.arange(0, count, max(1, -(-count // MOST_TICKS)))
    shown = [plain(short(labels[i], 16)) for i in ticks]
    upright = max(len(label) for label in shown) <= 3
    axes.set_xticks(ticks, shown, rotation=0 if upright else 45, ha="center" if upright else "right", rotation_mode="anchor")
    axes.set_yticks(ticks, shown)
    axes.tick_params(length=0, labelsize=size, labelcolor=INK, pad=4 if upright else 2)
    axes.spines[:].set_visible(False)
    if count > FEW:
        return
    for line in np.arange(0.5, count - 1):
        axes.axhline(line, color="white", linewidth=1)
        axes.axvline(line, color="white", linewidth=1)
    for (i, j), value in np.ndenumerate(matrix):
        colour = "white" if abs(value) > 0.62 * limit else INK
        axes.text(j, i, f"{value:.2g}", ha="center", va="center", size=size * 0.85, color=colour)


def _sums(axes: Axes, attributions: Array, size: float) -> None:
    """Draw the integrated gradients as bars."""
    values = np.nan_to_num(attributions.astype(float))
    places = np.arange(len(values))
    axes.barh(places, values, height=0.68, color=[POSITIVE if value > 0 else NEGATIVE for value in values])
    axes.set_ylim(len(values) - 0.5, -0.5)
    reach = float(np.abs(values).max(initial=0.0)) or 1.0
    axes.set_xlim(min(values.min(), 0.0) - 0.45 * reach * bool((values < 0).any()), max(values.max(), 0.0) + 0.45 * reach)
    axes.axvline(0, color=INK, linewidth=0.8)
    if len(values) <= 2 * FEW:
        for place, value in zip(places, values, strict=True):
            side: dict[str, Any] = {"xytext": (3, 0), "ha": "left"} if value >= 0 else {"xytext": (-3, 0), "ha": "right"}
            axes.annotate(
                f"{value:+.2g}", (value, place), textcoords="offset points", size=size * 0.85, color=GREY, va="center", **side
            )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_xlabel("integrated\ngradients", size=7.5, color=GREY)


def _scale(axes: Axes, limit: float, colours: LinearSegmentedColormap, beyond: bool) -> None:
    ramp = np.linspace(-limit, limit, 256)[:, None]
    axes.imshow(
        ramp, cmap=colours, norm=Normalize(-limit, limit), origin="lower", extent=(0.0, 1.0, -limit, limit), aspect="auto"
    )
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.set_yticks(
        [-limit, 0, limit], [f"≤ −{limit:.2g}", "0", f"≥ {limit:.2g}"] if beyond else [f"−{limit:.2g}", "0", f"{limit:.2g}"]
    )
    axes.tick_params(length=0, labelsize=7, labelcolor=GREY, pad=3)
    axes.set_frame_on(False)
