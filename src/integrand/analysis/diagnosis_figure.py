"""A diagnosis drawn with matplotlib: the advice at the top, then every baseline next to its attributions."""

from __future__ import annotations

import math
import textwrap

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..render.figures import BAR, GREY, INK, FigureCell, draw_bars, draw_panel, heading
from ..render.scene import Bars
from .comparison_figure import FigureSheet
from .diagnosis_report import DiagnosisCell, DiagnosisScene
from .diagnosis_result import Diagnosis

MAP, PHOTO, THUMB, NEXT, GAP, HEAD = 2.5, 1.8, 1.15, 0.1, 0.32, 0.55
"""Inches: the width of a map, the height of the photo, the width of a baseline's thumbnail, the room between thumbnail and
map, between columns, and for the heading of a cell."""

LABELS, WIDE, LINE, REST = 1.9, 2.7, 0.27, 0.24
"""Inches: the room for the names of features, the width of a set of bars, the height of a bar, and of the line of the rest."""

COLUMNS, STEP, SMALL = 3, 0.142, 7.5
"""Columns of cells, the distance of small lines in inches, and the size of small texts in points."""

EDGE = "#c9ced4"
Ends = tuple[float, float] | None

LETTERS = 15.0
"""How many letters of the advice fit into an inch, with some to spare."""


def draw(diagnosis: Diagnosis, scene: DiagnosisScene) -> Figure:
    """Draw a diagnosis: photo and advice at the top, then the candidates in columns."""
    bars = isinstance(scene.cells[0].part, Bars)
    columns = min(COLUMNS, len(scene.cells))
    cell, left = (WIDE, LABELS) if bars else (_cell_width(scene), 0.0)
    wide = max(left + columns * (cell + GAP) - GAP, 7.4)
    beside = 0.0 if scene.photo is None else _photo_width(scene) + 0.3
    lines = _words(diagnosis, scene, wide - beside)
    tall = max(0.5 + 0.19 * len(lines), 0.0 if scene.photo is None else PHOTO) + 0.15
    high = _cell_height(scene, bars=bars)
    rows = math.ceil(len(scene.cells) / columns)
    height = tall + rows * (HEAD + high) + 0.25
    figure = FigureCell(figsize=(wide, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    sheet = FigureSheet(figure, wide, height)
    if scene.photo is not None:
        draw_panel(sheet.axes(0, 0, _photo_width(scene), PHOTO), scene.photo)
    sheet.text(beside, 0.02, scene.title, size=14, weight="bold", color=INK)
    for i, (line, colour) in enumerate(lines):
        sheet.text(beside, 0.36 + 0.19 * i, line, size=9, color=colour)
    for k, one in enumerate(scene.cells):
        row, column = divmod(k, columns)
        place = (left + column * (cell + GAP), tall + row * (HEAD + high) + HEAD)
        _draw_cell(sheet, one, place, cell, scene.ends, names=column == 0)
    sheet.text(0, height - 0.18, scene.legend, size=SMALL)
    return figure


def _photo_width(scene: DiagnosisScene) -> float:
    assert scene.photo is not None
    height, width, _ = scene.photo.pixels.shape
    return PHOTO * float(width) / float(height)


def _cell_width(scene: DiagnosisScene) -> float:
    beside = BAR if any(not isinstance(one.part, Bars) and one.part.limit is not None for one in scene.cells) else 0.0
    return THUMB + NEXT + MAP + beside


def _cell_height(scene: DiagnosisScene, *, bars: bool) -> float:
    part = scene.cells[0].part
    most = max(len(one.lines) for one in scene.cells)
    if isinstance(part, Bars):
        return LINE * len(part.names) + REST + STEP * most + 0.25
    height, width, _ = part.pixels.shape
    map_ = MAP * float(height) / float(width)
    return max(map_, THUMB * float(height) / float(width) + 0.1 + STEP * (most + 1)) + 0.2


def _words(diagnosis: Diagnosis, scene: DiagnosisScene, wide: float) -> list[tuple[str, str]]:
    """What is explained and the advice, wrapped into lines with their colours."""
    letters = int(LETTERS * wide)
    question = diagnosis.question().replace(diagnosis.target, scene.label, 1)
    lines = [(line, GREY) for line in textwrap.wrap(question, letters)]
    texts = [diagnosis.advice, *(f"{name} could not be used: {said[:200]}" for name, said in diagnosis.failures.items())]
    return lines + [(line, INK) for text in texts for line in textwrap.wrap(text, letters)]


def _draw_cell(
    sheet: FigureSheet, one: DiagnosisCell, place: tuple[float, float], wide: float, ends: Ends, *, names: bool
) -> None:
    left, top = place
    if isinstance(one.part, Bars):
        tall = LINE * len(one.part.names)
        axes = sheet.axes(left, top, wide, tall)
        heading(axes, one.title, one.note, wide)
        draw_bars(axes, one.part, names=names, ends=ends)
        _lines(sheet, one.lines, left, top + tall + REST, wide)
        return
    height, width, _ = one.part.pixels.shape
    ratio = float(height) / float(width)
    beneath = top
    if one.thumbnail is not None:
        small = sheet.axes(left, top, THUMB, THUMB * ratio)
        draw_panel(small, one.thumbnail)
        # White on white needs an edge.
        small.add_patch(Rectangle((0, 0), 1, 1, transform=small.transAxes, fill=False, edgecolor=EDGE, linewidth=0.8))
        beneath += THUMB * ratio + 0.1
    axes = sheet.axes(left + THUMB + NEXT, top, MAP, MAP * ratio)
    draw_panel(axes, one.part)
    over = sheet.axes(left, top, wide, 0.01)
    over.set_axis_off()
    heading(over, one.title, one.note, wide)
    _lines(sheet, one.lines, left, beneath, THUMB)


def _lines(sheet: FigureSheet, lines: tuple[str, ...], left: float, top: float, wide: float) -> None:
    cut = [part for line in lines for part in textwrap.wrap(line, int(17.5 * wide))]
    for i, line in enumerate(cut):
        sheet.text(left, top + STEP * i, line, size=SMALL)
