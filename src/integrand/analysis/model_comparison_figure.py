"""Models side by side drawn with matplotlib: the maps or bars of each example, on one scale, with their differences."""

from __future__ import annotations

import math
import textwrap

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..render.certificate_text import trust
from ..render.figures import GREY, INK, WARNING, FigureCell, draw_bars, draw_panel, heading
from ..render.image.views import Panel
from ..render.scene import Bars
from ..words import number, percent
from .comparison_figure import BAR, GAP, HEAD, LABELS, LETTERS, LINE, REST, SIDE, SMALL, STEP, WIDE, FigureSheet
from .model_comparison import ModelComparison, brief
from .model_comparison_page import ModelRow, ModelScene

TITLE, MOST_COLUMNS = 0.2, 4
"""The height of a line of the title in inches, and the columns of maps."""


def draw(comparison: ModelComparison, scene: ModelScene, title: str | None) -> Figure:
    """Draw the models of each example and their differences side by side, then how to read the colours."""
    maps = bool(scene.rows[0].maps)
    cells = len(scene.rows[0].titles) + (scene.rows[0].photo is not None)
    columns = math.ceil(cells / math.ceil(cells / MOST_COLUMNS))
    column = (SIDE + BAR if maps else WIDE) + GAP
    width = max(columns * column - GAP + (0.0 if maps else LABELS), 4.0)
    lines = textwrap.wrap(title or comparison.sentence, max(20, int(width * 9.5)))
    notes = textwrap.wrap(scene.legend, max(20, int(width * 16)))
    if scene.left_out:
        notes.append(f"{scene.left_out} more examples are not drawn.")
    high = [_high(row) for row in scene.rows]
    rows = math.ceil(cells / columns)
    under = 0.15 + 2 * STEP
    head = TITLE * len(lines) + 0.15
    height = head + sum(rows * (HEAD + each + under) for each in high) + 0.16 * len(notes) + 0.15
    figure = FigureCell(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    sheet = FigureSheet(figure, width, height)
    for i, line in enumerate(lines):
        sheet.text(0, 0.05 + TITLE * i, line, size=11, weight="bold", color=INK)
    top = head
    for row, each in zip(scene.rows, high, strict=True):
        _place(sheet, comparison, row, top, columns=columns, high=each)
        top += rows * (HEAD + each + under)
    for i, note in enumerate(notes):
        sheet.text(0, top + 0.05 + 0.16 * i, note, size=8)
    return figure


def _high(row: ModelRow) -> float:
    if row.bars:
        return LINE * len(row.bars[0].names) + REST
    height, width, _ = row.maps[0].pixels.shape
    return min(SIDE * float(height) / float(width), 1.75 * SIDE)


def _place(sheet: FigureSheet, comparison: ModelComparison, row: ModelRow, top: float, *, columns: int, high: float) -> None:
    parts: list[tuple[Panel | Bars, str, str, str]] = []
    if row.photo is not None:
        parts.append((row.photo, "the photo", row.photo.note, GREY))
    drawn: list[Panel | Bars] = [*row.maps, *row.bars]
    parts += [(part, row.titles[k], *_under(comparison, row, k)) for k, part in enumerate(drawn)]
    wide = SIDE if row.maps else WIDE
    under = 0.15 + 2 * STEP
    for k, (part, title, said, colour) in enumerate(parts):
        line, column = divmod(k, columns)
        left = (0.0 if row.maps else LABELS) + column * (wide + (BAR if row.maps else 0.0) + GAP)
        upper = top + line * (HEAD + high + under) + HEAD
        axes = sheet.axes(left, upper, wide, high - REST if isinstance(part, Bars) else high)
        axes.set_anchor("NW")
        heading(axes, title, part.note if part.note != said else "", wide)
        if isinstance(part, Bars):
            draw_bars(axes, part, names=column == 0, ends=row.ends)
        else:
            draw_panel(axes, part)
        room = int(LETTERS * (wide + (BAR if row.maps else 0.0)))
        for i, text in enumerate(textwrap.wrap(said, room)[:2]):
            sheet.text(left, upper + high + 0.07 + STEP * i, text, size=SMALL, color=colour)


def _under(comparison: ModelComparison, row: ModelRow, k: int) -> tuple[str, str]:
    """The line under a map or set of bars, and its colour."""
    if k >= len(comparison.names):
        apart = comparison.differences[k - len(comparison.names)]
        alike = apart.agreement.rank_correlation[row.index]
        return f"{apart.trust}; rank correlation {alike:.2f}", GREY
    name = comparison.names[k]
    answer, example = comparison.answers[name][row.index], comparison.results[name].certificate[row.index]
    score = percent(answer.score) if comparison.unit == "probability" else number(answer.score, 3)
    return f"{brief(answer.explained, 40)}: {score}; {trust(example)}", GREY if example.converged else WARNING
