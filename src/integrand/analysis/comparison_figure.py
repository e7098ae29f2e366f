"""A comparison drawn with matplotlib: the maps or bars of each example, then the rank correlations."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ..arrays import Floats
from ..render.figures import GREY, INK, WARNING, FigureCell, draw_bars, draw_panel, heading, plain, short
from ..render.image.pixels import COLOURS
from ..render.image.views import Panel
from ..render.scene import Bars
from .comparison_report import ComparisonRow, ComparisonScene, titles
from .comparison_result import AGREEMENT, Comparison, correlation_text, cost_text, gap_text

SIDE, BAR, GAP, HEAD, TOP = 2.75, 0.74, 0.22, 0.52, 0.46
"""Inches: the side of a map, the room for its colour bar, between columns, for the heading of a cell, and for the title."""

WIDE, LINE, REST, LABELS = 2.6, 0.27, 0.24, 1.9
"""Inches: the width of a set of bars, the height of a bar, of the line of the rest, and the room for the names on the left."""

SMALL, STEP = 7.0, 0.135
"""The size of the texts under a map, in points, and the distance of their lines."""

MOST_COLUMNS, MOST_LETTERS, CELL, MATRIX_HEAD = 4, 40, 0.4, 0.6
"""Columns of maps, letters of a method's name, and in inches the side of a correlation's cell and the room above them."""

LETTERS = 18.5
"""How many letters of the small size fit into an inch, with some to spare."""


@dataclass(frozen=True)
class FigureSheet:
    """A figure on which things are placed in inches from its upper left corner."""

    figure: Figure
    width: float
    height: float

    def axes(self, left: float, top: float, wide: float, high: float) -> Axes:
        """Add axes at a place, of a given size."""
        box = (left / self.width, 1 - (top + high) / self.height, wide / self.width, high / self.height)
        return self.figure.add_axes(box)

    def text(self, left: float, top: float, text: str, **look: Any) -> None:
        """Add a text whose upper left corner is at a place."""
        self.figure.text(left / self.width, 1 - top / self.height, plain(text), **{"va": "top", "color": GREY} | look)


@dataclass(frozen=True)
class ComparisonCell:
    """One map or set of bars of a comparison, with its heading and the lines under it."""

    part: Panel | Bars
    title: str
    note: str
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ComparisonGrid:
    """The cells of one example, arranged in columns; sizes are in inches."""

    row: ComparisonRow
    cells: list[ComparisonCell]
    columns: int
    wide: float
    high: float
    room: float
    under: float
    left: float

    @property
    def width(self) -> float:
        """The width of all columns and what is left of them, in inches."""
        return self.left + self.columns * (self.wide + self.room + GAP) - GAP

    @property
    def height(self) -> float:
        """The height of all rows of cells, in inches."""
        return math.ceil(len(self.cells) / self.columns) * (HEAD + self.high + self.under)


def draw(comparison: Comparison, scene: ComparisonScene) -> Figure:
    """Draw a comparison: the methods of each example, then their rank correlations, then the legend."""
    grids = [_grid(comparison, row) for row in scene.rows]
    count = len(comparison.names)
    matrix = count > 1
    wide = max([grid.width for grid in grids] + [_matrix_width(comparison) if matrix else 0.0])
    notes = [line for note in _notes(comparison, scene) for line in textwrap.wrap(note, int(wide * 16))]
    title = TOP if scene.title or scene.left_out else 0.0
    below = MATRIX_HEAD + CELL * count + 0.25 if matrix else 0.0
    height = title + sum(grid.height for grid in grids) + below + 0.16 * len(notes) + 0.1
    figure = FigureCell(figsize=(wide, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    sheet = FigureSheet(figure, wide, height)
    if title:
        left_out = f"first {len(scene.rows)} of {comparison.examples} examples" if scene.left_out else ""
        sheet.text(0, 0.08, " - ".join(filter(None, (scene.title, left_out))), size=14, weight="bold", color=INK)
    top = title
    for grid in grids:
        _place(sheet, grid, top)
        top += grid.height
    if matrix:
        _matrices(sheet, comparison, top)
        top += below
    for i, note in enumerate(notes):
        sheet.text(0, top + 0.16 * i, note, size=8)
    return figure


def _grid(comparison: Comparison, row: ComparisonRow) -> ComparisonGrid:
    parts: list[Panel | Bars] = [*row.maps, *row.bars]
    wide = SIDE if row.maps else WIDE
    room = BAR if any(panel.limit is not None for panel in row.maps) else 0.0
    cells = []
    if row.photo is not None:
        cells.append(ComparisonCell(row.photo, row.label, "; ".join(filter(None, (f"score {row.score:.3g}", row.photo.note)))))
    for name, title, part in zip(comparison.names, titles(comparison), parts, strict=True):
        cells.append(ComparisonCell(part, title, part.note, _lines(comparison, name, row.index, wide + room)))
    if row.photo is None:
        first = cells[0]
        note = "; ".join(filter(None, (first.note, row.label, f"score {row.score:.3g}")))
        cells[0] = ComparisonCell(first.part, first.title, note, first.lines)
    columns = math.ceil(len(cells) / math.ceil(len(cells) / MOST_COLUMNS))
    shape = row.maps[0].pixels.shape if row.maps else (0, 1)
    high = LINE * len(row.bars[0].names) + REST if row.bars else SIDE * shape[0] / shape[1]
    under = 0.2 + STEP * max(len(cell.lines) for cell in cells)
    return ComparisonGrid(row, cells, columns, wide, high, room, under, LABELS if row.bars else 0.0)


def _lines(comparison: Comparison, name: str, example: int, wide: float) -> tuple[tuple[str, str], ...]:
    """The texts under a map with their colours, wrapped into lines that fit."""
    certificate = comparison.attributions[name].certificate
    # 5% is what the eye does not see in a map.
    off = comparison.relative_gaps[name][example] > 0.05
    texts = [(gap_text(comparison, name, example), WARNING if off else GREY)]
    texts.append((cost_text(comparison, name, example), GREY if certificate[example].converged else WARNING))
    if comparison.broken[name]:
        texts.append((f"no promise of {', '.join(comparison.broken[name])}", GREY))
    return tuple(
        (line, colour) for text, colour in texts for line in textwrap.wrap(text, int(LETTERS * wide), break_on_hyphens=False)
    )


def _place(sheet: FigureSheet, grid: ComparisonGrid, top: float) -> None:
    for k, cell_ in enumerate(grid.cells):
        line, column = divmod(k, grid.columns)
        left = grid.left + column * (grid.wide + grid.room + GAP)
        upper = top + line * (HEAD + grid.high + grid.under) + HEAD
        bars = isinstance(cell_.part, Bars)
        axes = sheet.axes(left, upper, grid.wide, grid.high - REST if bars else grid.high)
        heading(axes, cell_.title, cell_.note, grid.wide)
        if isinstance(cell_.part, Bars):
            draw_bars(axes, cell_.part, names=column == 0, ends=grid.row.ends)
        else:
            draw_panel(axes, cell_.part)
        for i, (text, colour) in enumerate(cell_.lines):
            sheet.text(left, upper + grid.high + 0.07 + STEP * i, text, size=SMALL, color=colour)


def _names_width(comparison: Comparison) -> float:
    """The room for the names of the methods, left of the matrices, in inches."""
    longest = max(len(short(title, MOST_LETTERS)) for title in titles(comparison))
    return max(0.075 * longest + 0.2, 1.75)


def _matrix_width(comparison: Comparison) -> float:
    return _names_width(comparison) + 2 * CELL * len(comparison.names) + 2 * CELL


def _matrices(sheet: FigureSheet, comparison: Comparison, top: float) -> None:
    count, start = len(comparison.names), _names_width(comparison)
    mean = f"mean of {comparison.examples} examples" if comparison.examples > 1 else "Spearman, over all features"
    sheet.text(0, top + 0.1, "Rank correlations", size=11, weight="bold", color=INK)
    sheet.text(0, top + 0.31, mean, size=8.5)
    for k, magnitudes in enumerate((False, True)):
        axes = sheet.axes(start + k * (CELL * count + 2 * CELL), top + MATRIX_HEAD, CELL * count, CELL * count)
        found = comparison.mean_correlations(magnitudes=magnitudes)
        numbers = [str(i + 1) for i in range(count)]
        _matrix(axes, found, titles(comparison) if not k else numbers, pad=72 * start if not k else 6)
        axes.set_title("of magnitudes" if magnitudes else "of values", size=8.5, color=INK, loc="left", pad=8)


def _matrix(axes: Axes, found: Floats, names: list[str], *, pad: float) -> None:
    """Draw correlations as colours with their numbers in them; NaN is grey."""
    colours = LinearSegmentedColormap.from_list("signed", COLOURS).with_extremes(bad="#dddddd")
    axes.imshow(np.ma.masked_invalid(found), cmap=colours, vmin=-1, vmax=1, aspect="auto")
    places = range(len(found))
    for i in places:
        for j in places:
            dark = abs(found[i, j]) > 0.6
            axes.text(j, i, correlation_text(found, i, j), ha="center", va="center", size=7.5, color="white" if dark else INK)
    axes.set_xticks(places, [str(j + 1) for j in places])
    axes.xaxis.tick_top()
    axes.set_yticks(places, [plain(short(name, MOST_LETTERS)) for name in names])
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
    axes.tick_params(axis="y", pad=pad)
    for label in axes.get_yticklabels():
        label.set_horizontalalignment("left" if pad > 20 else "right")
    axes.spines[:].set_visible(False)


def _notes(comparison: Comparison, scene: ComparisonScene) -> list[str]:
    notes = [scene.legend, AGREEMENT] if len(comparison.names) > 1 else [scene.legend]
    return notes + [f"{name} gave nothing: {short(message, 300)}" for name, message in comparison.failures.items()]
