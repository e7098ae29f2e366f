"""Molecules with matplotlib: the matrix of atoms and pairs, and drawn molecules side by side. Sizes are in inches."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from ..figures import GREY, INK, NEGATIVE, POSITIVE, FigureCell
from ..text.alignment_grid import cell
from ..text.text_figure import shown
from ..text.word_markup import background, ink, number
from .molecule_data import Array, Molecule

CELLS, CELL, SMALL_CELL, SIDE, WRITTEN = 14, 0.42, 0.155, 1.5, 16
"""The layout of a matrix: the number of atoms up to which cells are large, both sizes of a cell, the room for the sums, and the
number of atoms up to which numbers are written."""

PIXELS = 160.0
"""Pixels per inch, as in all figures."""


def draw_matrix(molecule: Molecule, limit: float | None) -> Figure:
    """Draw the matrix of atoms and pairs as a heatmap; see :func:`integrand.render.molecule.matrix`."""
    count, limit = len(molecule.atoms), limit or molecule.limit
    values = molecule.pairs.copy()
    np.fill_diagonal(values, molecule.atoms)
    step = float(np.clip(6.0 / count, SMALL_CELL, CELL))
    points = min(9.0, 58 * step)
    room, head, foot = 0.16 + 0.012 * points * max(map(len, molecule.names)), 0.5, 0.5
    wide, high = max(room + step * count + SIDE + 0.3, 4.4), head + room + step * count + foot
    figure = FigureCell(figsize=(wide, high), dpi=PIXELS, facecolor="white")
    FigureCanvasAgg(figure)
    square = (room / wide, foot / high, step * count / wide, step * count / high)
    axes = figure.add_axes(square)
    _cells(axes, values, limit, molecule.names, points)
    beside = figure.add_axes((square[0] + square[2] + 0.12 / wide, square[1], SIDE / wide, square[3]), sharey=axes)
    _sums(beside, molecule, points)
    heading = ": ".join(part for part in (molecule.title, molecule.label) if part) or "Atom by atom"
    figure.text(0.02, 1 - 0.12 / high, shown(heading, wide - 0.2, 12), size=12, weight="bold", color=INK, va="top")
    parts = ", ".join(f"{name} {number(value)}" for name, value in molecule.parts[:3])
    figure.text(
        0.02, 0.2 / high, shown(f"sum {number(molecule.total)}: {parts}", wide - 0.2), size=8.5, color=GREY, va="center"
    )
    return figure


def draw_side_by_side(files: Sequence[bytes], columns: int, title: str | None) -> Figure:
    """Draw PNG files next to each other at their own resolution; see :func:`integrand.render.molecule.figure`."""
    images = [imread(io.BytesIO(file), format="png") for file in files]
    rows = [images[k : k + columns] for k in range(0, len(images), columns)]
    widths = [max(row[k].shape[1] for row in rows if k < len(row)) for k in range(min(columns, len(images)))]
    heights = [max(image.shape[0] for image in row) for row in rows]
    head = 0.45 if title else 0.0
    wide, high = sum(widths) / PIXELS, sum(heights) / PIXELS + head
    figure = FigureCell(figsize=(wide, high), dpi=PIXELS, facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        figure.text(0.1 / wide, 1 - 0.1 / high, shown(title, wide - 0.2, 14), size=14, weight="bold", color=INK, va="top")
    for r, row in enumerate(rows):
        for k, image in enumerate(row):
            tall, broad = image.shape[0] / PIXELS, image.shape[1] / PIXELS
            left, top = sum(widths[:k]) / PIXELS, head + sum(heights[:r]) / PIXELS
            axes = figure.add_axes((left / wide, (high - top - tall) / high, broad / wide, tall / high))
            axes.imshow(image)
            axes.set_axis_off()
    return figure


def _cells(axes: Axes, values: Array, limit: float, names: Sequence[str], points: float) -> None:
    """Draw the cells of the matrix: atoms on the diagonal, framed, and pairs off it."""
    count = len(names)
    table = [[bytes.fromhex(background(float(value), limit)[1:]) for value in row] for row in values]
    pixels = np.array([[list(colour) for colour in row] for row in table], dtype=np.uint8)
    pixels[values == 0] = 255
    axes.imshow(pixels, interpolation="nearest", aspect="auto")
    for i in range(count):
        axes.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=INK, linewidth=0.6, zorder=3))
    if count <= WRITTEN:
        for (i, j), value in np.ndenumerate(values):
            if value:
                colour = ink(background(float(value), limit))
                axes.text(j, i, cell(float(value)), size=min(7.0, points), color=colour, ha="center", va="center")
    axes.set_xticks(range(count), names, rotation=90)
    axes.set_yticks(range(count), names)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=points, labelcolor=INK, pad=2)
    axes.set_xticks(np.arange(0.5, count - 1), minor=True)
    axes.set_yticks(np.arange(0.5, count - 1), minor=True)
    axes.grid(which="minor", color="#e8eaed", linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_color("#c3c8ce")


def _sums(axes: Axes, molecule: Molecule, points: float) -> None:
    """Draw a bar for each atom with half of its pairs' attributions; the bars add up to all atoms and pairs."""
    sums = molecule.per_atom
    axes.barh(range(len(sums)), sums, height=0.7, color=[POSITIVE if value > 0 else NEGATIVE for value in sums])
    axes.axvline(0, color=INK, linewidth=0.7)
    reach = float(np.abs(sums).max()) or 1.0
    axes.set_xlim(-1.75 * reach, 1.75 * reach)
    for i, value in enumerate(sums.tolist()):
        side = 1 if value >= 0 else -1
        look: dict[str, Any] = {"size": min(7.5, points), "color": GREY, "va": "center", "ha": "left" if side > 0 else "right"}
        axes.annotate(number(value), (value, i), (2 * side, 0), textcoords="offset points", **look)
    axes.set_title("with half of its pairs", size=8, color=GREY, pad=4)
    axes.set_xticks([])
    axes.tick_params(left=False, labelleft=False, which="both")
    axes.spines[:].set_visible(False)
