"""Scenes and paths laid out with matplotlib. Sizes are in inches; only :func:`present` touches pyplot and its global state."""

from __future__ import annotations

import io
import math
import os
import tempfile
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from ..evaluation.progress import in_notebook
from ..files import made_here, picture_marks, replacing
from ..words import number, shown
from .certificate_text import caption
from .image.image_pictures import SHARES, Journey
from .image.pixels import COLOURS
from .image.views import Panel
from .scene import Bars, Example, Scene

INK, GREY, WARNING = "#1c2128", "#6a737d", "#a8460b"
POSITIVE, NEGATIVE = COLOURS[-1], COLOURS[0]
SIDE, GAP, HEAD, FOOT, TOP, BAR = 2.8, 0.14, 0.52, 0.36, 0.42, 0.82
LINE, LABELS, NUMBERS, REST, LEGEND = 0.27, 1.9, 4.4, 0.22, 0.15
FOOTER, HEADLINE = 7.5, 0.26
"""The size of the lines under a picture in points, and the line height of a title in inches."""

NOTE, STEP, LISTED = 8.5, 0.15, 0.135
"""The size of notes in points, and the line heights of notes and of the lines under a picture in inches."""

MOST_COLUMNS, TALLEST = 4, 1.75
"""The number of panels in a row, and the largest ratio of a panel's height to its width; taller photos are narrower."""

PATH_LEFT, PATH_WIDE, PATH_RIGHT = 0.85, 6.6, 0.6
PATH_HEAD, PATH_SCORE, PATH_MASS, PATH_GAP, PATH_FOOT = 0.58, 1.55, 1.15, 0.42, 0.82
PATH_THUMB, PATH_TALLEST, PATH_UNDER = 1.05, 1.5, 0.5
"""The layout of a path's figure, in inches: margins, the two plots, and the thumbnails over them."""

WINDOWLESS = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})
"""The backends of matplotlib that only write files."""

MASS_COLOURS = ("#2b6ca3", "#7fb2d6", "#cfe2f0")
"""The colours of the first half of the attribution mass, of the part up to 90%, and of the rest."""


def png_bytes(figure: Figure, *, margin: float = 0.15, dpi: float | None = None) -> bytes:
    """A figure of matplotlib as the bytes of a PNG.

    Args:
        figure: what is drawn.
        margin: around it, in inches.
        dpi: dots per inch; the figure's own if not given.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", pad_inches=margin, dpi="figure" if dpi is None else dpi)
    return buffer.getvalue()


class FigureCell(Figure):
    """A matplotlib figure that notebooks display although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        return png_bytes(self, margin=0.1)


_SAVED: Counter[str] = Counter()
"""How many pictures of each name this process has saved, so that one does not take the place of another."""


def present(figure: Figure, stem: str) -> Figure:
    """Let people see a figure: in a window where matplotlib has one, else as a file, whose place is printed; returns it.

    In a notebook nothing is done: a cell that ends in the figure shows it.

    Args:
        figure: what to show.
        stem: the name of the file without its ending, in the current folder, or in the temporary one if that is not writable.
    """
    from matplotlib import pyplot

    backend = pyplot.get_backend().lower()
    if "inline" in backend or "nbagg" in backend or "ipympl" in backend or in_notebook():
        return figure
    if backend in WINDOWLESS:
        folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path(tempfile.gettempdir())
        file = _next_free(folder, stem)
        with replacing(file) as part:
            figure.savefig(part, bbox_inches="tight", pad_inches=0.15, metadata=picture_marks(".png"))
        print(f"saved {file.name if folder == Path.cwd() else shown(str(file))}")
        return figure
    pixels = pyplot.imread(io.BytesIO(png_bytes(figure)))
    window = pyplot.figure(stem, figsize=(pixels.shape[1] / figure.dpi, pixels.shape[0] / figure.dpi))
    window.add_axes((0, 0, 1, 1)).imshow(pixels)
    window.axes[0].set_axis_off()
    pyplot.show()
    return figure


def _next_free(folder: Path, stem: str) -> Path:
    """The file for the next picture of a name: a new one, or one of ours that an earlier process has written."""
    while True:
        _SAVED[stem] += 1
        file = folder / (f"{stem}.png" if _SAVED[stem] == 1 else f"{stem}-{_SAVED[stem]}.png")
        if not os.path.lexists(file) or made_here(file):
            return file


@dataclass(frozen=True)
class FigureRow:
    """A row of panels or bar charts, with its layout in inches.

    Attributes:
        parts: panels or bars, each with its title and note.
        lefts: where each begins.
        wide: how wide each is, without its colour bar.
        high: how high the highest is.
        lines: the number of lines of the longest note over them.
    """

    parts: list[tuple[Panel | Bars, str, str]]
    lefts: list[float]
    wide: float
    high: float
    lines: int

    @property
    def head(self) -> float:
        """The height of the titles and notes above the row, in inches."""
        return HEAD + STEP * (self.lines - 1)


def draw(scene: Scene) -> Figure:
    """Lay a scene out as a figure: a row per example, or several rows of at most four panels."""
    grids = [_rows(example) for example in scene.examples]
    width = max(_right(row) for rows in grids for row in rows)
    left_out = f"first {len(scene.examples)} of {len(scene.examples) + scene.left_out} examples" if scene.left_out else ""
    heads = broken(" - ".join(part for part in (scene.title, left_out) if part), width, 14, bold=True)
    feet = [broken(caption(example.certificate), width, FOOTER) for example in scene.examples]
    legend = [part for line in scene.legend.splitlines() for part in broken(line, width, FOOTER)]
    title = TOP + HEADLINE * (len(heads) - 1) if heads else 0.0
    foot = LEGEND * len(legend)
    height = sum(row.head + row.high for rows in grids for row in rows) + sum(map(_gaps, grids)) + title + foot
    height += LEGEND * sum(len(lines) - 1 for lines in feet)
    # Two screen pixels for each of a 224-pixel photo; the canvas is Agg's whatever the user's backend is.
    figure = FigureCell(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    for i, line in enumerate(heads):
        down = 0.08 + HEADLINE * i
        figure.text(0, 1 - down / height, plain(line), size=14, weight="bold", color=INK, va="top")
    top = height - title
    for example, rows, lines in zip(scene.examples, grids, feet, strict=True):
        for row in rows:
            _draw_row(figure, row, top - row.head, (width, height))
            top -= row.head + row.high + (GAP if row is not rows[-1] else 0)
        colour = GREY if example.certificate.converged else WARNING
        _footer(figure, lines, top - 0.12, height, colour)
        top -= FOOT + LEGEND * (len(lines) - 1)
    _footer(figure, legend, top + FOOT - 0.12 - LEGEND, height, GREY)
    return figure


def _footer(figure: Figure, lines: list[str], top: float, height: float, colour: str) -> None:
    """Write lines under a picture, the first at a height in inches."""
    for i, line in enumerate(lines):
        figure.text(0, (top - LEGEND * i) / height, plain(line), size=FOOTER, color=colour, va="top")


def heading(axes: Axes, title: str, note: str, wide: float, *, lines: int = 1) -> None:
    """Write a title and a note above axes of a given width in inches; text that does not fit is cut off.

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
    notes = wrapped(note, wide) if lines > 1 else [fitted(note, wide, NOTE)]
    for i, line in enumerate(notes):
        axes.annotate(plain(line), (0, 1), (0, 6 + over - 72 * STEP * i), size=NOTE, color=GREY, **up)


@lru_cache(maxsize=4096)
def in_inches(text: str, size: float, *, bold: bool = False) -> float:
    """The width of a text as matplotlib draws it, in inches."""
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(shown(text, lines=True), font, ismath=False)
    return float(width) / 72


def _letters_within(text: str, wide: float, size: float, *, bold: bool) -> int:
    """How many letters from the beginning of a text fit into a width in inches; at least one."""
    return bisect_right(range(1, len(text)), wide, key=lambda k: in_inches(text[:k], size, bold=bold)) or 1


def fitted(text: str, wide: float, size: float, *, bold: bool = False) -> str:
    """As much of a text as fits into a width in inches, with an ellipsis where it is cut."""
    text = text[:400]
    if in_inches(text, size, bold=bold) <= wide:
        return text
    most = max((k for k in range(len(text)) if in_inches(text[:k].rstrip() + "…", size, bold=bold) <= wide), default=0)
    return text[:most].rstrip() + "…"


def broken(text: str, wide: float, size: float, *, bold: bool = False) -> list[str]:
    """A text broken into lines of a width in inches, at spaces, and inside a word only where that alone is too long."""
    lines: list[str] = []
    wide *= 0.97  # letters on a canvas are placed on whole pixels, and take a little more room
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and in_inches(longer, size, bold=bold) <= wide:
            lines[-1] = longer
        else:
            lines.append(word)
        while in_inches(lines[-1], size, bold=bold) > wide and len(lines[-1]) > 1:
            line = lines.pop()
            fits = _letters_within(line, wide, size, bold=bold)
            lines += [line[:fits], line[fits:]]
    return lines


def wrapped(note: str, wide: float) -> list[str]:
    """A note broken into at most two lines of a width in inches; the rest is cut off."""
    if in_inches(note, NOTE) <= wide:
        return [note]
    words = note.split(" ")
    fits = max((k for k in range(1, len(words)) if in_inches(" ".join(words[:k]), NOTE) <= wide), default=0)
    if not fits:
        return [fitted(note, wide, NOTE)]
    return [" ".join(words[:fits]), fitted(" ".join(words[fits:]), wide, NOTE)]


def plain(text: str) -> str:
    """The text so that matplotlib shows it as it is: dollar signs are no mathematics, and what no font can show is spelt."""
    return shown(text, lines=True).replace("$", r"\$")


def draw_panel(axes: Axes, panel: Panel) -> float:
    """Draw one panel with its colour bar; returns the width that the colour bar takes."""
    # Smooth for photos; colours that mean a number, and pixels large enough to be seen, stay as they are.
    smooth = panel.limit is None and max(panel.pixels.shape) >= 112
    axes.imshow(panel.pixels, interpolation="hanning" if panel.smooth else "bicubic" if smooth else "nearest")
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
    """Draw a bar chart; ``ends`` are the smallest and largest value that fit, by default those of the bars."""
    values = np.nan_to_num(np.array(bars.values), nan=0.0, posinf=0.0, neginf=0.0)
    places = np.arange(len(values))
    axes.barh(places, values, height=0.68, color=[POSITIVE if value > 0 else NEGATIVE for value in values])
    low, high = (min(float(values.min()), 0.0), max(float(values.max()), 0.0)) if ends is None else ends
    reach = max(-low, high) or 1.0
    axes.set_xlim(low - 0.28 * reach * (low < 0), high + 0.28 * reach)
    axes.set_ylim(len(values) - 0.4, -0.6)
    for place, drawn, value in zip(places, values, bars.values, strict=True):
        text = f"{value:+.2g}" if np.isfinite(value) else str(value)
        side: dict[str, Any] = {"xytext": (4, 0), "ha": "left"} if drawn >= 0 else {"xytext": (-4, 0), "ha": "right"}
        axes.annotate(text, (drawn, place), textcoords="offset points", size=7.5, color=GREY, va="center", **side)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(places, [plain(short(name)) for name in bars.names] if names else [""] * len(values))
    axes.set_xticks([])
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    axes.spines[:].set_visible(False)
    if bars.hidden:
        axes.set_xlabel(f"and {bars.hidden} more, adding up to {bars.rest:+.2g}", size=7.5, color=GREY, loc="left")


def short(name: str, most: int = 28) -> str:
    """The text cut to at most so many characters, with an ellipsis."""
    return name if len(name) <= most else name[: most - 1] + "…"


def draw_path(journey: Journey) -> Figure:
    """Draw the score along a path, where its attribution mass lies, and thumbnails of the photo along it."""
    thumbs = max(map(_thumb_height, (frame.pixels.shape for frame in journey.thumbnails)), default=0.0)
    top = thumbs + (PATH_UNDER if thumbs else 0)
    width = PATH_LEFT + PATH_WIDE + PATH_RIGHT
    lines = broken(caption(journey.certificate), width, FOOTER)
    height = PATH_HEAD + top + PATH_SCORE + PATH_GAP + PATH_MASS + PATH_FOOT + LEGEND * (len(lines) - 1)
    figure = FigureCell(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)

    def at(left: float, down: float, wide: float, high: float) -> Axes:
        return figure.add_axes((left / width, 1 - (down + high) / height, wide / width, high / height))

    title = plain(fitted(journey.label, width, 12, bold=True))
    figure.text(0, 1 - 0.05 / height, title, size=12, weight="bold", color=INK, va="top")
    figure.text(0, 1 - 0.3 / height, plain(fitted(journey.note, width, 8.5)), size=8.5, color=GREY, va="top")
    _draw_thumbnails(journey, at, thumbs)
    score = at(PATH_LEFT, PATH_HEAD + top, PATH_WIDE, PATH_SCORE)
    mass = at(PATH_LEFT, PATH_HEAD + top + PATH_SCORE + PATH_GAP, PATH_WIDE, PATH_MASS)
    _draw_score(score, journey)
    _draw_mass(mass, journey)
    _draw_times(score, mass, journey)
    colour = GREY if journey.certificate.converged else WARNING
    _footer(figure, lines, 0.15 + LEGEND * len(lines), height, colour)
    return figure


def _gaps(rows: list[FigureRow]) -> float:
    return FOOT + GAP * (len(rows) - 1)


def _rows(example: Example) -> list[FigureRow]:
    """The panels or bar charts of an example, in rows of at most four and of about equal length."""
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
    """The height of the picture alone, without the lines under it, in inches."""
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
    """Write the lines of a panel with marks under its picture, where not every number has room."""
    for i, line in enumerate(panel.lines if panel.marks else ()):
        text, down = plain(fitted(line, SIDE + BAR, 7)), -9 - 72 * LISTED * i
        up: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(text, (0, 0), (0, down), size=7, color=GREY, va="baseline", **up)


def _thumb_height(shape: tuple[int, ...]) -> float:
    return min(PATH_THUMB * shape[0] / shape[1], PATH_TALLEST)


def _draw_thumbnails(journey: Journey, at: Any, high: float) -> None:
    """Draw each thumbnail over its time, narrower where there are many."""
    count = len(journey.thumbnails)
    for frame, t in zip(journey.thumbnails, journey.times, strict=True):
        wide = min(PATH_THUMB, 0.92 * PATH_WIDE / (count - 1))
        axes = at(PATH_LEFT + t * PATH_WIDE - wide / 2, PATH_HEAD, wide, high)
        axes.set_anchor("S")
        axes.imshow(frame.pixels, interpolation="bicubic" if max(frame.pixels.shape) >= 112 else "nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set(color="#c8cdd3", linewidth=0.6)
        axes.set_xlabel(f"t = {frame.title}", size=7.5, color=GREY, labelpad=3)


def _draw_score(axes: Axes, journey: Journey) -> None:
    certificate, mean = journey.certificate, journey.mean
    for part in journey.single:
        axes.plot(part.t, part.score, color="#b9c0c8", linewidth=0.8)
    dots = "o" if len(mean.t) <= 200 else None
    axes.plot(mean.t, mean.score, color=INK, linewidth=1.6, marker=dots, markersize=1.9)
    low, high = axes.get_ylim()
    ends = {certificate.baseline_score: "F(x′)", certificate.score: "F(x)"}
    if abs(certificate.score - certificate.baseline_score) < 0.15 * (high - low):  # no room for both
        ends = {certificate.score: "F(x)"}
    for value in ends:
        axes.axhline(value, color="#d5dae0", linewidth=0.8, zorder=0)
    axes.set_yticks(list(ends), [f"{name} {number(value, 3)}" for value, name in ends.items()])
    _dress_plot(axes, "score along the path")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], [""] * 5)


def _draw_mass(axes: Axes, journey: Journey) -> None:
    mean = journey.mean
    cuts = [0.0, *(t if math.isfinite(t) else 1.0 for t in journey.reached), 1.0]
    for colour, start, end in zip(MASS_COLOURS, cuts, cuts[1:], strict=False):
        t = np.unique(np.r_[start, mean.t[(mean.t > start) & (mean.t < end)], end])
        axes.fill_between(t, np.interp(t, mean.t, mean.mass), color=colour, linewidth=0)
    axes.plot(mean.t, mean.mass, color=INK, linewidth=0.9)
    most = float(mean.mass.max())
    axes.set_ylim(0, 1.18 * most or 1.0)
    axes.set_yticks(
        [0, most] if most else [0], ["0", f"{most:,.0f}" if 100 <= most < 1e6 else number(most, 2)] if most else ["0"]
    )
    _dress_plot(axes, "attribution mass per t: magnitudes of gradient × step, added up over the features")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nbaseline", "0.25", "0.5", "0.75", "1\ninput"])


def _draw_times(score: Axes, mass: Axes, journey: Journey) -> None:
    """Mark the times at which the shares of the mass are reached, as lines through both plots."""
    for share, t in zip(SHARES, journey.reached, strict=True):
        if math.isfinite(t):
            for axes in (score, mass):
                axes.axvline(t, color=GREY, linewidth=0.8, linestyle=(0, (3, 2)))
            up: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            mass.annotate(f"{100 * share:g}%", (t, 1), (3, -2), size=7.5, color=INK, va="top", **up)


def _dress_plot(axes: Axes, title: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_title(title, size=8.5, color=GREY, loc="left", pad=5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color="#c8cdd3")
    axes.tick_params(length=2.5, color="#c8cdd3", labelsize=7.5, labelcolor=GREY)
