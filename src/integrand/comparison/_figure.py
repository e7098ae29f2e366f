"""A comparison laid out with matplotlib. Sizes are in inches; nothing touches pyplot or its global state."""

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

from ..render._figure import GREY, INK, WARNING, Picture, draw_bars, draw_panel, heading, plain, short
from ..render._pixels import COLOURS
from ..render._scene import Bars, Panel
from ._comparison import AGREEMENT, Comparison
from ._ranks import Floats
from ._scene import Row, Scene, titles
from ._text import cell, misses, spent

SIDE, BAR, GAP, HEAD, TOP = 2.75, 0.74, 0.22, 0.52, 0.46
WIDE, LINE, REST, LABELS = 2.6, 0.27, 0.24, 1.9
SMALL, STEP = 7.0, 0.135
"""The size of the texts under a map, in points, and the distance of their lines."""

MOST_COLUMNS, MOST_LETTERS, CELL, MATRIX_HEAD = 4, 40, 0.4, 0.6
LETTERS = 18.5
"""Letters of the small size that fit into an inch, with some to spare."""


@dataclass(frozen=True)
class Sheet:
    """A figure to put things on, in inches from its upper left corner."""

    figure: Figure
    width: float
    height: float

    def axes(self, left: float, top: float, wide: float, high: float) -> Axes:
        """Axes of a given size."""
        box = (left / self.width, 1 - (top + high) / self.height, wide / self.width, high / self.height)
        return self.figure.add_axes(box)

    def text(self, left: float, top: float, text: str, **look: Any) -> None:
        """A text that hangs from a point."""
        self.figure.text(left / self.width, 1 - top / self.height, plain(text), **{"va": "top", "color": GREY} | look)


@dataclass(frozen=True)
class Cell:
    """One map or set of bars, and the lines under it."""

    part: Panel | Bars
    title: str
    note: str
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Grid:
    """The cells of one example, in columns."""

    row: Row
    cells: list[Cell]
    columns: int
    wide: float
    high: float
    room: float
    under: float
    left: float

    @property
    def width(self) -> float:
        """From the left of the first column to the right of the last."""
        return self.left + self.columns * (self.wide + self.room + GAP) - GAP

    @property
    def height(self) -> float:
        """Of all its lines."""
        return math.ceil(len(self.cells) / self.columns) * (HEAD + self.high + self.under)


def draw(comparison: Comparison, scene: Scene) -> Figure:
    """Lay the scene out: the methods of each example, then how alike they are, then what to know."""
    grids = [_grid(comparison, row) for row in scene.rows]
    count = len(comparison.names)
    matrix = count > 1
    wide = max([grid.width for grid in grids] + [_matrix_width(comparison) if matrix else 0.0])
    notes = [line for note in _notes(comparison, scene) for line in textwrap.wrap(note, int(wide * 16))]
    title = TOP if scene.title or scene.left_out else 0.0
    below = MATRIX_HEAD + CELL * count + 0.25 if matrix else 0.0
    height = title + sum(grid.height for grid in grids) + below + 0.16 * len(notes) + 0.1
    figure = Picture(figsize=(wide, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    sheet = Sheet(figure, wide, height)
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


def _grid(comparison: Comparison, row: Row) -> Grid:
    parts: list[Panel | Bars] = [*row.maps, *row.bars]
    wide = SIDE if row.maps else WIDE
    room = BAR if any(panel.limit is not None for panel in row.maps) else 0.0
    cells = []
    if row.photo is not None:
        cells.append(Cell(row.photo, row.label, "; ".join(filter(None, (f"score {row.score:.3g}", row.photo.note)))))
    for name, title, part in zip(comparison.names, titles(comparison), parts, strict=True):
        cells.append(Cell(part, title, part.note, _lines(comparison, name, row.index, wide + room)))
    if row.photo is None:
        first = cells[0]
        note = "; ".join(filter(None, (first.note, row.label, f"score {row.score:.3g}")))
        cells[0] = Cell(first.part, first.title, note, first.lines)
    columns = math.ceil(len(cells) / math.ceil(len(cells) / MOST_COLUMNS))
    shape = row.maps[0].pixels.shape if row.maps else (0, 1)
    high = LINE * len(row.bars[0].names) + REST if row.bars else SIDE * shape[0] / shape[1]
    under = 0.2 + STEP * max(len(cell.lines) for cell in cells)
    return Grid(row, cells, columns, wide, high, room, under, LABELS if row.bars else 0.0)


def _lines(comparison: Comparison, name: str, example: int, wide: float) -> tuple[tuple[str, str], ...]:
    """The texts under a map with their colours, cut into lines that fit."""
    certificate = comparison.attributions[name].certificate
    # 5% is what the eye does not see in a map.
    off = comparison.relative_gaps[name][example] > 0.05
    texts = [(misses(comparison, name, example), WARNING if off else GREY)]
    texts.append((spent(comparison, name, example), GREY if certificate[example].converged else WARNING))
    if comparison.broken[name]:
        texts.append((f"no promise of {', '.join(comparison.broken[name])}", GREY))
    return tuple(
        (line, colour) for text, colour in texts for line in textwrap.wrap(text, int(LETTERS * wide), break_on_hyphens=False)
    )


def _place(sheet: Sheet, grid: Grid, top: float) -> None:
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
    """Room for the names left of the matrices."""
    longest = max(len(short(title, MOST_LETTERS)) for title in titles(comparison))
    return max(0.075 * longest + 0.2, 1.75)


def _matrix_width(comparison: Comparison) -> float:
    return _names_width(comparison) + 2 * CELL * len(comparison.names) + 2 * CELL


def _matrices(sheet: Sheet, comparison: Comparison, top: float) -> None:
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
    """Correlations as colours with their numbers in them; unknown ones are grey."""
    colours = LinearSegmentedColormap.from_list("signed", COLOURS).with_extremes(bad="#dddddd")
    axes.imshow(np.ma.masked_invalid(found), cmap=colours, vmin=-1, vmax=1, aspect="auto")
    places = range(len(found))
    for i in places:
        for j in places:
            dark = abs(found[i, j]) > 0.6
            axes.text(j, i, cell(found, i, j), ha="center", va="center", size=7.5, color="white" if dark else INK)
    axes.set_xticks(places, [str(j + 1) for j in places])
    axes.xaxis.tick_top()
    axes.set_yticks(places, [plain(short(name, MOST_LETTERS)) for name in names])
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
    axes.tick_params(axis="y", pad=pad)
    for label in axes.get_yticklabels():
        label.set_horizontalalignment("left" if pad > 20 else "right")
    axes.spines[:].set_visible(False)


def _notes(comparison: Comparison, scene: Scene) -> list[str]:
    notes = [scene.legend, AGREEMENT] if len(comparison.names) > 1 else [scene.legend]
    return notes + [f"{name} gave nothing: {short(message, 300)}" for name, message in comparison.failures.items()]
