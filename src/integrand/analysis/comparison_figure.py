"""What is drawn of a comparison, as data: one map or one set of bars per method and example."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ..errors import InputError, OptionError
from ..render.figures import GREY, INK, WARNING, FigureCell, draw_bars, draw_panel, heading, plain, short
from ..render.image.panel import Panel
from ..render.image.pixels import COLOURS, Array, contribution, heat, lit, mass_limit, photo_pixels, remark, strength
from ..render.scene import Bars, FeatureNames, arrays_of, labels_of, photos_of
from .comparison_result import AGREEMENT, Comparison, Floats, Scale
from .comparison_text import cell, misses, spent


@dataclass(frozen=True, slots=True)
class MethodView:
    """What :meth:`Comparison.figure` and :meth:`Comparison.report` take; described there."""

    image: Any = None
    labels: str | Sequence[str] | None = None
    features: Sequence[str] | None = None
    title: str | None = None
    scale: Scale = "each"
    signed: bool = False
    share: float = 0.7
    top: int = 12
    most: int = 4

    def __post_init__(self) -> None:
        mass_limit(np.zeros(0), self.share)  # refuses a share that makes no sense
        if self.scale not in get_args(Scale):
            raise OptionError(f"got scale={self.scale!r}; expected 'each' (every map by its own mass) or 'common'.")
        for name, value in (("top", self.top), ("most", self.most)):
            if value < 1:
                raise OptionError(f"got {name}={value!r}; expected at least 1")


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One example.

    Attributes:
        index: which example.
        label: what was explained.
        score: its score.
        photo: the photo, where there is one.
        maps: one panel per method, or
        bars: one set of bars per method, all of the same features.
        ends: the least and largest value of bars on a common scale; None where each has its own.
    """

    index: int
    label: str
    score: float
    photo: Panel | None
    maps: tuple[Panel, ...] = ()
    bars: tuple[Bars, ...] = ()
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ComparisonScene:
    """Everything that is drawn, and what to know of its colours."""

    title: str
    rows: tuple[ComparisonRow, ...]
    left_out: int
    legend: str


def compose(comparison: Comparison, view: MethodView) -> ComparisonScene:
    """Decide what is drawn."""
    sources = {name: arrays_of(one.values, one.batched) for name, one in comparison.attributions.items()}
    leaves, first = next(iter(sources.values()))
    arrays = {name: found for name, (_, found) in sources.items()}
    certificate = next(iter(comparison.attributions.values())).certificate
    count = comparison.examples
    labels = labels_of(view.labels, [example.target for example in certificate])
    shown = range(min(count, view.most))
    image = (
        len(first) == 1 and view.features is None and (first[0].ndim == 4 or (first[0].ndim == 3 and view.image is not None))
    )
    if not image and view.image is not None:
        raise InputError(f"got image= for values of shape {first[0].shape}; expected (examples, channels, height, width)")
    rows: list[ComparisonRow] = []
    photos = photos_of(view.image, count) if view.image is not None else None
    names = None if image else FeatureNames(leaves, tuple(array.shape[1:] for array in first), view.features)
    for i in shown:
        if names is not None:
            bars, ends = _bars(arrays, i, names, view)
            rows.append(ComparisonRow(i, labels[i], certificate[i].score, None, (), bars, ends))
        else:
            photo, maps = _maps(arrays, i, None if photos is None else photos[i], view)
            rows.append(ComparisonRow(i, labels[i], certificate[i].score, photo, maps))
    return ComparisonScene(
        view.title or "", tuple(rows), count - len(rows), _legend(view, maps=image, lit_up=photos is not None)
    )


def titles(comparison: Comparison) -> list[str]:
    """Names with the numbers that the columns of the correlations go by."""
    return [f"{i + 1}  {name}" for i, name in enumerate(comparison.names)]


def _maps(
    arrays: dict[str, list[Array]], i: int, photo: Array | None, view: MethodView
) -> tuple[Panel | None, tuple[Panel, ...]]:
    rows = {name: found[0][i] if found[0].ndim == 4 else found[0][i][None] for name, found in arrays.items()}
    signed = view.signed or photo is None
    values = {name: contribution(row) if signed else strength(row) for name, row in rows.items()}
    together = mass_limit(np.concatenate([value.ravel() for value in values.values()]), view.share)
    limits = {name: together if view.scale == "common" else mass_limit(value, view.share) for name, value in values.items()}
    drawn, pixels = None, None
    if photo is not None:
        pixels, note = photo_pixels(photo, next(iter(rows.values())).shape[1:])
        drawn = Panel("", note, np.rint(pixels * 255).astype(np.uint8))
    panels = []
    for name, value in values.items():
        limit = limits[name]
        if signed or pixels is None:
            panels.append(Panel(name, remark(value) or "red raises, blue lowers", heat(value, limit), limit))
        else:
            said = remark(contribution(rows[name]))
            note = said if said == "all zero" else "; ".join(filter(None, (f"full brightness from {limit:.2g} on", said)))
            panels.append(Panel(name, note, lit(pixels, value, limit)))
    return drawn, tuple(panels)


def _bars(
    arrays: dict[str, list[Array]], i: int, names: FeatureNames, view: MethodView
) -> tuple[tuple[Bars, ...], tuple[float, float] | None]:
    rows = {name: names.row(found, i) for name, found in arrays.items()}
    # Methods differ in units, so what counts is a feature's share of its method's attribution, in the method that rates
    # it highest: otherwise what only one of them sees would not be drawn.
    shares = []
    for row in rows.values():
        size = np.where(np.isfinite(row), np.abs(row), 0.0)
        shares.append(size / (size.sum() or 1.0))
    order = np.argsort(-np.max(shares, axis=0), kind="stable")
    keep, rest = order[: view.top], order[view.top :]
    shown = tuple(names[int(k)] for k in keep)
    bars = tuple(
        Bars(name, remark(row), shown, tuple(row[keep].tolist()), len(rest), float(row[rest].sum()))
        for name, row in rows.items()
    )
    if view.scale == "each":
        return bars, None
    drawn = np.nan_to_num(np.array([bar.values for bar in bars]), nan=0.0, posinf=0.0, neginf=0.0)
    return bars, (min(float(drawn.min()), 0.0), max(float(drawn.max()), 0.0))


def _legend(view: MethodView, *, maps: bool, lit_up: bool) -> str:
    each = view.scale == "each"
    if not maps:
        return (
            "Bars of each method are on a scale of their own: lengths can be compared within a method, not between methods."
            if each
            else "All bars are on one common scale."
        )
    what = "Brightness: magnitudes of a pixel's attributions, summed over its colours"
    if view.signed or not lit_up:
        what = (
            "Colour: a pixel's attributions summed with their signs, red where they raise the score, blue where they lower it"
        )
    beyond = f"clipped where the pixels below hold {100 * view.share:.3g}% of the attribution"
    whose = "of that map: every map is on a scale of its own" if each else "of all maps together: they are on one common scale"
    return f"{what}; {beyond} {whose}."


SIDE, BAR, GAP, HEAD, TOP = 2.75, 0.74, 0.22, 0.52, 0.46
WIDE, LINE, REST, LABELS = 2.6, 0.27, 0.24, 1.9
SMALL, STEP = 7.0, 0.135
"""The size of the texts under a map, in points, and the distance of their lines."""

MOST_COLUMNS, MOST_LETTERS, CELL, MATRIX_HEAD = 4, 40, 0.4, 0.6
LETTERS = 18.5
"""Letters of the small size that fit into an inch, with some to spare."""


@dataclass(frozen=True)
class FigureSheet:
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
class ComparisonCell:
    """One map or set of bars, and the lines under it."""

    part: Panel | Bars
    title: str
    note: str
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ComparisonGrid:
    """The cells of one example, in columns."""

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
        """From the left of the first column to the right of the last."""
        return self.left + self.columns * (self.wide + self.room + GAP) - GAP

    @property
    def height(self) -> float:
        """Of all its lines."""
        return math.ceil(len(self.cells) / self.columns) * (HEAD + self.high + self.under)


def draw(comparison: Comparison, scene: ComparisonScene) -> Figure:
    """Lay the scene out: the methods of each example, then how alike they are, then what to know."""
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
    """Room for the names left of the matrices."""
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


def _notes(comparison: Comparison, scene: ComparisonScene) -> list[str]:
    notes = [scene.legend, AGREEMENT] if len(comparison.names) > 1 else [scene.legend]
    return notes + [f"{name} gave nothing: {short(message, 300)}" for name, message in comparison.failures.items()]
