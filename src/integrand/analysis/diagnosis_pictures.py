"""A diagnosis laid out with matplotlib: what to do at the top, then every baseline next to its attributions."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from ..baselines.constructors import spread
from ..render.figures import BAR, GREY, INK, FigureCell, draw_bars, draw_panel, heading
from ..render.html import bar_table, document, framed, origin
from ..render.image.panel import Panel
from ..render.image.pixels import Array, photo_pixels
from ..render.scene import Bars
from ..trees import Tensors, flatten
from ..words import share_of
from .comparison_figure import FigureSheet, MethodView
from .comparison_figure import compose as side_by_side
from .comparison_report import STYLE
from .comparison_result import Comparison
from .diagnosis_result import Diagnosis, DiagnosisRow, plain

MAP, PHOTO, THUMB, NEXT, GAP, HEAD = 2.5, 1.8, 1.15, 0.1, 0.32, 0.55
LABELS, WIDE, LINE, REST = 1.9, 2.7, 0.27, 0.24
COLUMNS, STEP, SMALL = 3, 0.142, 7.5
EDGE = "#c9ced4"
Ends = tuple[float, float] | None
LETTERS = 15.0
"""Letters of the advice that fit into an inch, with some to spare."""


def draw(diagnosis: Diagnosis, scene: DiagnosisScene) -> Figure:
    """Lay the scene out."""
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
    """What is explained and what to do, in lines with their colours."""
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


@dataclass(frozen=True, slots=True)
class DiagnosisCell:
    """One candidate.

    Attributes:
        title: its name.
        note: what was found, in a few words.
        thumbnail: the baseline itself, where it can be seen.
        part: its attributions.
        lines: the numbers.
    """

    title: str
    note: str
    thumbnail: Panel | None
    part: Panel | Bars
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiagnosisScene:
    """Everything that is drawn, what to know of its colours, and the ends of the scale that bars have in common."""

    title: str
    label: str
    photo: Panel | None
    cells: tuple[DiagnosisCell, ...]
    legend: str
    ends: tuple[float, float] | None = None


def compose(
    diagnosis: Diagnosis,
    image: Any,
    pixels: Callable[[Any], Any] | None,
    label: str | None,
    features: Sequence[str] | None,
    title: str | None,
    signed: bool,
    share: float,
    top: int,
) -> DiagnosisScene:
    """Decide what is drawn; arguments as in :meth:`Diagnosis.figure`."""
    visible = _visible(diagnosis, pixels)
    if image is None and visible is not None and features is None:
        image = visible(diagnosis.x)
    view = MethodView(image, label, features, None, "each", signed, share, top, 1)
    comparison = Comparison({row.name: row.attribution for row in diagnosis.rows})
    scene = side_by_side(comparison, view)
    if scene.rows[0].bars:  # all are in units of one score; only maps need a scale each to be seen
        scene = side_by_side(comparison, replace(view, scale="common"))
    row = scene.rows[0]
    parts: tuple[Panel | Bars, ...] = (*row.maps, *row.bars)
    cells = tuple(_cell(diagnosis, one, part, visible) for one, part in zip(diagnosis.rows, parts, strict=True))
    return DiagnosisScene(title or "Which baseline?", row.label, row.photo, cells, scene.legend, row.ends)


def _cell(
    diagnosis: Diagnosis, row: DiagnosisRow, part: Panel | Bars, visible: Callable[[Tensors], Array] | None
) -> DiagnosisCell:
    name = f"{row.name} (recommended)" if row.name == diagnosis.recommended else row.name
    thumbnail = None
    if visible is not None:
        drawn = photo_pixels(visible(row.baseline))[0]
        thumbnail = Panel(row.name, "", np.rint(drawn * 255).astype(np.uint8))
    draws = f"{row.draws} draws" if thumbnail is None else f"first of {row.draws} draws"
    return DiagnosisCell(name, row.verdict, thumbnail, part, (*numbers(diagnosis, row), *([draws] if row.draws > 1 else [])))


def numbers(diagnosis: Diagnosis, row: DiagnosisRow) -> tuple[str, ...]:
    """What was found about a candidate, line by line."""
    known = not np.isnan(row.probability)
    lines = [f"p of the class {plain(row.probability, '.2g')}" if known else f"F(x') {row.score:.2g}"]
    lines.append(f"head start {share_of(row.head_start)}")
    if row.top is not None:
        lines += [f"sees {diagnosis.names(row.top)} ({row.confidence:.2g})", f"entropy {row.entropy:.2f}"]
    lines += [f"agreement {plain(row.agreement, '.2f')}", f"sum|a| {row.certificate.magnitude:.3g}"]
    if not row.certificate.converged:
        lines.append(row.certificate.status.value)
    return tuple(lines)


def _visible(diagnosis: Diagnosis, pixels: Callable[[Any], Any] | None) -> Callable[[Tensors], Array] | None:
    """From an input to what can be seen, (H, W, 3) from 0 to 1; None where inputs are no images or a layer was explained."""
    x, values = diagnosis.x, diagnosis.rows[0].attribution.values
    if not isinstance(x, Tensor) or not isinstance(values, Tensor) or x.shape != values.shape:
        return None
    one = x.shape[1:] if diagnosis.rows[0].attribution.batched else x.shape
    if len(one) != 3 or (one[0] not in (1, 3) and pixels is None):
        return None

    def shown(value: Tensors) -> Array:
        leaf = flatten(value)[1][0].detach().reshape(one)
        if pixels is not None:
            found = pixels(leaf)
            return np.asarray(found.detach().cpu() if isinstance(found, Tensor) else found, float).reshape(*one[1:], -1)
        low, high = (spread(end, leaf, "low and high").double() for end in (diagnosis.low, diagnosis.high))
        scaled = (leaf.double() - low) / torch.where(high == low, torch.ones_like(high), high - low)
        return np.asarray(scaled.clamp(0, 1).permute(1, 2, 0).cpu().numpy(), float)

    return shown


OWN_STYLE = """
.pair2{display:grid;grid-template-columns:1fr 2.2fr;gap:.75rem;align-items:start}
.cells{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(24rem,100%),1fr));gap:1.75rem 2.5rem;margin:0 0 1.5rem}
.cells h3{margin:0 0 .6rem}
.cells img{border:1px solid var(--line)}
.shown{max-width:15rem;margin:0 0 1.5rem}
"""

READING = (
    ("F(x\u2032), p(x\u2032)", "The explained score at the baseline, and the probability of the explained class there."),
    (
        "head start",
        "How much of the rise above chance to that at x is there already. Up to 10% counts as near zero.",
    ),
    (
        "own top class",
        "What the model sees in the baseline; beyond halfway from chance to certainty a signal of its own.",
    ),
    ("entropy", "Of the classes at the baseline: 1 where all are alike, 0 where one is certain."),
    ("sum|a|", "The sum of the magnitudes of all attributions. Far above |F(x) \u2212 F(x\u2032)|, most of it cancels."),
    ("agreement", "The mean rank correlation of the attributions with those from the others, over regions of an image."),
    ("error, gradients", "The estimated error of the attributions, and the gradient evaluations that they took."),
)


def page(diagnosis: Diagnosis, scene: DiagnosisScene, command: str | None) -> str:
    """The whole page."""
    question = diagnosis.question().replace(diagnosis.target, scene.label, 1)
    photo = "" if scene.photo is None else f'<div class="shown">{framed(scene.photo, scene.label, scene.photo.note)}</div>\n'
    reading = "".join(f"<tr><th>{escape(name)}</th><td>{escape(meaning)}</td></tr>\n" for name, meaning in READING)
    kind = "good" if diagnosis.neutral else "bad"
    body = (
        f'<p class="lead">{escape(question)}</p>\n<p class="verdict {kind}">{escape(diagnosis.advice)}</p>\n'
        f"{_failures(diagnosis)}{photo}<section>\n<h2>Baselines and their attributions</h2>\n"
        f'<div class="cells">{"".join(_cell_html(one, scene.ends) for one in scene.cells)}</div>\n'
        f'<p class="legend">{escape(scene.legend)}</p>\n</section>\n'
        f'<section>\n<h2>The numbers</h2>\n<div class="wide">{_table(diagnosis)}</div>\n'
        "<details><summary>What the columns mean</summary>\n"
        f'<table class="origin"><tbody>\n{reading}</tbody></table></details>\n</section>\n{_agreements(diagnosis)}'
    )
    return document(scene.title, body + origin(diagnosis.meta, command), style=STYLE + OWN_STYLE)


def fragment(diagnosis: Diagnosis) -> str:
    """Table and advice as a piece of HTML, for notebooks."""
    return f"<div><p>{escape(diagnosis.question())}</p>{_table(diagnosis)}<p>{escape(diagnosis.advice)}</p></div>"


def _cell_html(one: DiagnosisCell, ends: tuple[float, float] | None) -> str:
    lines = "".join(f'<span class="note">{escape(line)}</span>' for line in one.lines)
    if isinstance(one.part, Bars):
        reach = None if ends is None else max(-ends[0], ends[1])
        said = "<br>".join(map(escape, (one.note, *one.lines)))
        return f'<div>{bar_table(replace(one.part, title=one.title), reach=reach)}<p class="rest">{said}</p></div>\n'
    left = f"<figcaption>{lines}</figcaption>"
    if one.thumbnail is not None:
        left = framed(one.thumbnail, "the baseline", *one.lines)
    return (
        f"<div><h3>{escape(one.title)} <span>{escape(one.note)}</span></h3>"
        f'<div class="pair2"><div>{left}</div>{framed(one.part, "its attributions", one.part.note)}</div></div>\n'
    )


def _table(diagnosis: Diagnosis) -> str:
    titles, *rows = diagnosis.table()
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(part)}</td>' for part in row[1:])}</tr>\n" for row in rows
    )
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return f'{table}\n<p class="rest">* recommended</p>'


def _agreements(diagnosis: Diagnosis) -> str:
    if len(diagnosis.rows) < 2:
        return ""
    from .comparison_text import cell

    found, names = diagnosis.agreements, [row.name for row in diagnosis.rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{cell(found, i, j)}</td>' for j in range(len(names)))}</tr>\n"
        for i, name in enumerate(names)
    )
    return (
        '<section>\n<h2>Does the answer depend on it?</h2>\n<p class="legend">Rank correlations between the attributions, over '
        "regions of an image or all features.</p>\n"
        f'<div class="wide"><table class="matrix"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>\n</section>\n"
    )


def _failures(diagnosis: Diagnosis) -> str:
    return "".join(
        f'<p class="verdict bad">{escape(name)} could not be used: {escape(said)}</p>\n'
        for name, said in diagnosis.failures.items()
    )
