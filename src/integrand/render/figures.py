"""The scene laid out with matplotlib. Sizes are in inches; nothing touches pyplot or its global state."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from .certificate_text import caption
from .image.panel import Panel
from .image.pixels import COLOURS
from .scene import Bars, Example, Scene

INK, GREY, WARNING = "#1c2128", "#6a737d", "#a8460b"
POSITIVE, NEGATIVE = COLOURS[-1], COLOURS[0]
SIDE, GAP, HEAD, FOOT, TOP, BAR = 2.8, 0.14, 0.52, 0.36, 0.42, 0.82
LINE, LABELS, NUMBERS, REST, LEGEND = 0.27, 1.9, 4.4, 0.22, 0.15
NOTE, STEP, LISTED = 8.5, 0.15, 0.135
"""The size of notes in points, the distance of their lines in inches, and of the lines under a picture."""

MOST_COLUMNS, TALLEST = 4, 1.75
"""Panels in a row, and how many times as high as wide a panel may be; taller photos are drawn narrower."""


class FigureCell(Figure):
    """A figure that notebooks draw although pyplot does not know of it."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()


@dataclass(frozen=True)
class FigureRow:
    """Parts next to each other, in inches.

    Attributes:
        parts: panels or bars, each with its title and note.
        lefts: where each begins.
        wide: how wide each is, without its colour bar.
        high: how high the highest is.
        lines: of the longest note over them.
    """

    parts: list[tuple[Panel | Bars, str, str]]
    lefts: list[float]
    wide: float
    high: float
    lines: int

    @property
    def head(self) -> float:
        """The room for titles and notes."""
        return HEAD + STEP * (self.lines - 1)


def draw(scene: Scene) -> Figure:
    """Lay the scene out, one row per example, or several of at most four columns."""
    grids = [_rows(example) for example in scene.examples]
    width = max(_right(row) for rows in grids for row in rows)
    title = TOP if scene.title or scene.left_out else 0.0
    foot = LEGEND if scene.legend else 0.0
    height = sum(row.head + row.high for rows in grids for row in rows) + sum(map(_gaps, grids)) + title + foot
    # Two screen pixels for each of a 224-pixel photo; the canvas is Agg's whatever the user's backend is.
    figure = FigureCell(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        left_out = f"first {len(scene.examples)} of {len(scene.examples) + scene.left_out} examples" if scene.left_out else ""
        text = " - ".join(part for part in (scene.title, left_out) if part)
        figure.text(0, 1 - 0.08 / height, plain(text), size=14, weight="bold", color=INK, va="top")
    top = height - title
    for example, rows in zip(scene.examples, grids, strict=True):
        for row in rows:
            _draw_row(figure, row, top - row.head, (width, height))
            top -= row.head + row.high + (GAP if row is not rows[-1] else 0)
        colour = GREY if example.certificate.converged else WARNING
        figure.text(0, (top - 0.12) / height, caption(example.certificate), size=7.5, color=colour, va="top")
        top -= FOOT
    if foot:
        figure.text(0, (top + FOOT - 0.12 - LEGEND) / height, scene.legend, size=7.5, color=GREY, va="top")
    return figure


def _gaps(rows: list[FigureRow]) -> float:
    return FOOT + GAP * (len(rows) - 1)


def _rows(example: Example) -> list[FigureRow]:
    """The parts of an example, in rows of at most four panels of about the same length."""
    parts: list[Panel | Bars] = [*example.panels, *example.bars]
    wide = NUMBERS if example.bars else SIDE
    side_by_side = 1 < example.together < MOST_COLUMNS
    balanced = -(-len(parts) // -(-len(parts) // MOST_COLUMNS))
    columns = len(parts) if example.bars else example.together + 1 if side_by_side else balanced
    rooms = [_beside(part) for part in parts]
    if len(parts) > columns:  # a grid looks tidy only with columns of one width
        rooms = [max(rooms)] * columns
    lefts = [(LABELS if example.bars else 0.0) + j * (wide + GAP) + sum(rooms[:j]) for j in range(columns)]
    # The photo, or where there is none the first attribution, carries the label.
    first, score = parts[0], f"score {example.certificate.score:.3g}"
    titled = [(first, example.label, "; ".join(filter(None, (score, first.note, first.title))))]
    titled += [(part, part.title, part.note) for part in parts[1:]]
    rows = [_row(titled[:columns], lefts, wide)]
    indent, step = (1, columns - 1) if side_by_side else (0, columns)
    return rows + [_row(titled[i : i + step], lefts[indent:], wide) for i in range(columns, len(parts), step)]


def _row(parts: list[tuple[Panel | Bars, str, str]], lefts: list[float], wide: float) -> FigureRow:
    lines = max(len(wrapped(note, wide)) for _, _, note in parts)
    return FigureRow(parts, lefts, wide, max(_high(part) for part, _, _ in parts), lines)


def _high(part: Panel | Bars) -> float:
    if isinstance(part, Bars):
        return LINE * len(part.names) + REST
    return _tall(part) + (0.1 + LISTED * len(part.lines) if part.marks else 0.0)


def _tall(panel: Panel) -> float:
    """The picture alone, without the lines under it."""
    height, width, _ = panel.pixels.shape
    return min(SIDE * float(height) / float(width), TALLEST * SIDE)


def _beside(part: Panel | Bars) -> float:
    return BAR if isinstance(part, Panel) and part.limit is not None else 0.0


def _right(row: FigureRow) -> float:
    ends = [left + row.wide + _beside(part) for left, (part, _, _) in zip(row.lefts, row.parts, strict=False)]
    return max(ends)


def _draw_row(figure: Figure, row: FigureRow, top: float, size: tuple[float, float]) -> None:
    width, height = size
    for i, (left, (part, title, note)) in enumerate(zip(row.lefts, row.parts, strict=False)):
        high = _high(part) - REST if isinstance(part, Bars) else _tall(part)
        axes = figure.add_axes((left / width, (top - high) / height, row.wide / width, high / height))
        axes.set_anchor("NW")
        heading(axes, title, note, row.wide, lines=row.lines)
        if isinstance(part, Bars):
            draw_bars(axes, part, names=i == 0)
        else:
            draw_panel(axes, part)
            _list(axes, part)


def _list(axes: Axes, panel: Panel) -> None:
    """Under a picture with marks, what they stand for: there is not room for every number on it."""
    for i, line in enumerate(panel.lines if panel.marks else ()):
        text, down = plain(fitted(line, SIDE + BAR, 7)), -9 - 72 * LISTED * i
        up: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(text, (0, 0), (0, down), size=7, color=GREY, va="baseline", **up)


def heading(axes: Axes, title: str, note: str, wide: float, *, lines: int = 1) -> None:
    """A title and a note over axes that are so many inches wide; what does not fit is cut off.

    Args:
        axes: what they are about.
        title: one line.
        note: one line or two.
        wide: in inches.
        lines: for how many lines of notes there is room.
    """
    up: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "va": "baseline",
        "annotation_clip": False,
    }
    size = next((size for size in (11.0, 10.0, 9.0) if in_inches(title, size, bold=True) <= wide), 9.0)
    over = 72 * STEP * (lines - 1)
    text = plain(fitted(title, wide, size, bold=True))
    axes.annotate(text, (0, 1), (0, 19 + over), size=size, weight="bold", color=INK, **up)
    shown = wrapped(note, wide) if lines > 1 else [fitted(note, wide, NOTE)]
    for i, line in enumerate(shown):
        axes.annotate(plain(line), (0, 1), (0, 6 + over - 72 * STEP * i), size=NOTE, color=GREY, **up)


@lru_cache(maxsize=4096)
def in_inches(text: str, size: float, *, bold: bool = False) -> float:
    """How wide a text is drawn."""
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def fitted(text: str, wide: float, size: float, *, bold: bool = False) -> str:
    """As much of a text as fits into so many inches."""
    text = text[:400]
    if in_inches(text, size, bold=bold) <= wide:
        return text
    most = max((k for k in range(len(text)) if in_inches(text[:k].rstrip() + "…", size, bold=bold) <= wide), default=0)
    return text[:most].rstrip() + "…"


def wrapped(note: str, wide: float) -> list[str]:
    """A note in one line or two; what does not fit into two is cut off."""
    if in_inches(note, NOTE) <= wide:
        return [note]
    words = note.split(" ")
    fits = max((k for k in range(1, len(words)) if in_inches(" ".join(words[:k]), NOTE) <= wide), default=0)
    if not fits:
        return [fitted(note, wide, NOTE)]
    return [" ".join(words[:fits]), fitted(" ".join(words[fits:]), wide, NOTE)]


def plain(text: str) -> str:
    """A text that matplotlib draws as it is."""
    return text.replace("$", r"\$")  # matplotlib reads dollars as mathematics


def draw_panel(axes: Axes, panel: Panel) -> float:
    """Draw one panel; returns the width that its colour bar takes."""
    # Smooth for photos; colours that mean a number, and pixels large enough to be seen, stay as they are.
    smooth = panel.limit is None and max(panel.pixels.shape) >= 112
    axes.imshow(panel.pixels, interpolation="bicubic" if smooth else "nearest")
    axes.set_axis_off()
    for mark in panel.marks:
        plate = {"boxstyle": "round,pad=0.12", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
        look: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.05, "bbox": plate}
        axes.text(mark.x - 0.5, mark.y - 0.5, plain(mark.text), size=6.5, weight="bold", color=INK, **look)
    if panel.limit is None:
        return 0.0
    beside = axes.inset_axes((1.025, 0, 0.035, 1))
    limit = panel.limit or 1.0
    colours = LinearSegmentedColormap.from_list("signed", panel.colours)
    ramp = np.linspace(-limit, limit, 256)[:, None]
    extent = (0.0, 1.0, -limit, limit)
    beside.imshow(ramp, cmap=colours, norm=Normalize(-limit, limit), origin="lower", extent=extent, aspect="auto")
    beside.set_xticks([])
    beside.yaxis.tick_right()
    low, high = ("≤ −", "≥ ") if panel.clipped else ("−", "+")
    ends = [f"{low}{limit:.2g}", "0", f"{high}{limit:.2g}"] if panel.limit else ["", "0", ""]
    beside.set_yticks([-limit, 0, limit], ends)
    beside.tick_params(length=0, labelsize=7, labelcolor=GREY, pad=3)
    beside.set_frame_on(False)
    return BAR


def draw_bars(axes: Axes, bars: Bars, *, names: bool, ends: tuple[float, float] | None = None) -> None:
    """Draw bars; ``ends`` are the least and the largest value that fit, their own if not given."""
    values = np.nan_to_num(np.array(bars.values), nan=0.0, posinf=0.0, neginf=0.0)
    places = np.arange(len(values))
    axes.barh(places, values, height=0.68, color=[POSITIVE if value > 0 else NEGATIVE for value in values])
    low, high = (min(float(values.min()), 0.0), max(float(values.max()), 0.0)) if ends is None else ends
    reach = max(-low, high) or 1.0
    axes.set_xlim(low - 0.28 * reach * (low < 0), high + 0.28 * reach)
    axes.set_ylim(len(values) - 0.4, -0.6)
    for place, shown, value in zip(places, values, bars.values, strict=True):
        text = f"{value:+.2g}" if np.isfinite(value) else str(value)
        side: dict[str, Any] = {"xytext": (4, 0), "ha": "left"} if shown >= 0 else {"xytext": (-4, 0), "ha": "right"}
        axes.annotate(text, (shown, place), textcoords="offset points", size=7.5, color=GREY, va="center", **side)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(places, [plain(short(name)) for name in bars.names] if names else [""] * len(values))
    axes.set_xticks([])
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    axes.spines[:].set_visible(False)
    if bars.hidden:
        axes.set_xlabel(f"and {bars.hidden} more, adding up to {bars.rest:+.2g}", size=7.5, color=GREY, loc="left")


def short(name: str, most: int = 28) -> str:
    """A text of so many letters at the most."""
    return name if len(name) <= most else name[: most - 1] + "…"
