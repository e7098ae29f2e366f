"""The heatmap of outputs by inputs with matplotlib. Sizes are in inches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ._figure import GREY, INK, Picture, _inches
from ._grid import Grid, cell
from ._text_colours import background, ink
from ._text_figure import shown

WIDE, HIGH, GAP, SIZE, NOTE, LONGEST = 0.46, 0.3, 0.16, 10.0, 8.0, 1.7
"""Of a cell, between blocks, of names and numbers, and the room for a name."""

TILT = 0.75
"""How far a name at 45 degrees reaches, up and to the right, of its length."""


def draw(grid: Grid, *, title: str) -> Figure:
    """A row for each output: its cells, and the columns that account for it; see :func:`integrand.render._grid.figure`."""
    unit, grid = grid.unit, grid.scaled()
    rows = [shown(row, LONGEST, SIZE) for row in grid.rows]
    sums = grid.sums()
    names = [[shown(name, LONGEST, SIZE) for name in block.columns] for block in grid.blocks]
    labels = [shown(name, LONGEST, SIZE) for name, _ in sums]
    tallest = max(_inches(name, SIZE) for part in [*names, labels] for name in part)
    left = max(_inches(row, SIZE) for row in rows) + 0.12
    lefts = [left]
    for part in names:
        lefts.append(lefts[-1] + WIDE * len(part) + GAP * bool(part))
    wide = lefts[-1] + WIDE * len(sums) + TILT * max(_inches(label, SIZE) for label in labels)
    head, top = 0.42, 0.42 + TILT * tallest + 0.12
    high = top + HIGH * (len(rows) + 1) + (0.34 if unit == 1 else 0.6)
    picture = Picture(figsize=(wide, high), dpi=160, facecolor="white")
    FigureCanvasAgg(picture)
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, wide)
    axes.set_ylim(high, 0)
    axes.text(0, head / 2, shown(title, wide, 12), size=12, weight="bold", color=INK, va="center")
    if unit != 1:
        axes.text(0, high - 0.14, f"numbers in units of {unit:g}", size=NOTE, color=GREY, va="center")
    for i, row in enumerate(rows):
        axes.text(left - 0.1, top + HIGH * (i + 0.5), row, size=SIZE, color=INK, ha="right", va="center")
    axes.text(left - 0.1, top + HIGH * (len(rows) + 0.5), "sum", size=NOTE, color=GREY, ha="right", va="center")
    for k, part in enumerate(names):
        _block(axes, grid, k, part, (lefts[k], top))
    _sums(axes, sums, labels, (lefts[-1], top))
    return picture


def _block(axes: Axes, grid: Grid, k: int, names: Sequence[str], corner: tuple[float, float]) -> None:
    block, (left, top), limit = grid.blocks[k], corner, grid.limit
    if not names:
        return
    _tilted(axes, names, corner)
    count = len(grid.rows)
    for i in range(count):
        for j in range(len(names)):
            if not block.there[i, j]:
                continue
            value = float(block.values[i, j])
            behind = background(value, limit)
            place = (left + WIDE * j, top + HIGH * i)
            axes.add_patch(Rectangle(place, WIDE, HIGH, facecolor=behind, edgecolor="white", linewidth=0.8))
            _number(axes, cell(value), (left, top), i, j, ink(behind))
    for j in range(len(names)):
        _number(axes, cell(float(block.values[:, j].sum())), (left, top), count, j, GREY)
    below = top + HIGH * (count + 1) + 0.06
    axes.plot([left + 0.03, left + WIDE * len(names) - 0.03], [below, below], color=GREY, linewidth=0.8)
    look: dict[str, Any] = {"size": NOTE + 0.5, "color": GREY, "ha": "center", "va": "center"}
    axes.text(left + WIDE * len(names) / 2, below + 0.14, shown(f"from {block.name}"), **look)


def _sums(axes: Axes, sums: Sequence[tuple[str, list[float]]], labels: Sequence[str], corner: tuple[float, float]) -> None:
    _tilted(axes, labels, corner)
    for j, (_, values) in enumerate(sums):
        for i, value in enumerate(values):
            score = len(sums) - j <= 2
            text = f"{value:.2f}".replace("-", "−") if score else cell(value)
            _number(axes, text, corner, i, j, INK, bold=j == len(sums) - 1)


def _tilted(axes: Axes, names: Sequence[str], corner: tuple[float, float]) -> None:
    for j, name in enumerate(names):
        place = (corner[0] + WIDE * (j + 0.35), corner[1] - 0.06)
        axes.text(*place, name, size=SIZE, color=INK, rotation=45, rotation_mode="anchor", ha="left", va="baseline")


def _number(axes: Axes, text: str, corner: tuple[float, float], i: int, j: int, colour: str, *, bold: bool = False) -> None:
    place = (corner[0] + WIDE * (j + 0.5), corner[1] + HIGH * (i + 0.5))
    weight = "bold" if bold else "normal"
    axes.text(*place, text, size=NOTE, color=colour, weight=weight, ha="center", va="center")
