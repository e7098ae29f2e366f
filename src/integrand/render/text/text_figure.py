"""Texts with matplotlib: coloured words, their running sums, and the heatmap of outputs by inputs. Sizes are in inches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import FancyBboxPatch, Rectangle

from ..figures import GREY, INK, NEGATIVE, POSITIVE, WARNING, FigureCell, fitted, in_inches, plain
from .alignment_grid import Grid, cell
from .tokens import Tokens, clusters, direction, printable, right_to_left
from .word_markup import account, background, ink, limit_of, neutral
from .word_sentences import number, verdict

WIDE, LINE, GAP, SMALL, SIZE, NOTE = 8.0, 0.32, 0.16, 0.19, 12.0, 8.5
ROW, NAMES, SPACE = 0.22, 1.7, 0.055
"""A running sum's row height and the room for its words, and the space between two words of a line, in inches."""

CELL_WIDE, CELL_HIGH, GRID_GAP, GRID_SIZE, GRID_NOTE, GRID_NAME = 0.46, 0.3, 0.16, 10.0, 8.0, 1.7
"""The layout of a heatmap: a cell's width and height and the gap between blocks in inches, the sizes of names and numbers in
points, and the room for a name in inches."""

TILT = 0.75
"""The share of its length that a name at 45 degrees reaches up and to the right."""


@dataclass(frozen=True)
class Placed:
    """A word with its position: the distance from the left, its line and its width."""

    text: str
    left: float
    line: int
    wide: float
    value: float


def draw(rows: Sequence[Tokens], *, running: bool, title: str | None, limit: float | None) -> Figure:
    """Draw texts one below the other; see :func:`integrand.render.text.figure`."""
    laid = [placed(tokens) for tokens in rows]
    notes = [[text for text in (account(tokens), tokens.note) if text] for tokens in rows]
    tall = [_high(tokens, words, len(said), running) for tokens, words, said in zip(rows, laid, notes, strict=True)]
    head = 0.42 if title else 0.0
    height = head + sum(tall) + GAP * (len(rows) - 1)
    figure = FigureCell(figsize=(WIDE, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        figure.text(0, 1 - 0.08 / height, shown(title), size=14, weight="bold", color=INK, va="top")
    top = height - head
    for tokens, words, said, high in zip(rows, laid, notes, tall, strict=True):
        _draw_one(figure, tokens, words, said, (top, high, height), running, limit)
        top -= high + GAP
    return figure


def placed(tokens: Tokens) -> list[Placed]:
    """Break the words of a text into lines, from the right for right-to-left text; the label follows the last word."""
    whole = tokens.text if tokens.text is not None else " ".join(tokens.texts)
    mirrored = right_to_left(whole)
    out: list[Placed] = []
    at, line = 0.0, 0
    parts = [(piece.gap, piece.shown, piece.value, False) for piece in tokens.pieces]
    if tokens.tail.strip():
        parts.append(("", tokens.tail.strip(), 0.0, False))
    if verdict(tokens):
        parts.append((" ", f"[{verdict(tokens)}]", math.inf, True))
    for gap, text, value, bold in parts:
        seen = drawable(printable(text).strip()) or "·"
        wide = in_inches(seen, SIZE, bold=bold) + 0.05
        at += (SPACE if gap else 0.0) * bool(at)
        if at + wide > WIDE and at > 0:
            at, line = 0.0, line + 1
        out.append(Placed(seen, WIDE - at - wide if mirrored else at, line, wide, value))
        at += wide
    return [word for line in range(_lines(out)) for word in _turned([one for one in out if one.line == line], mirrored)]


def draw_running(axes: Axes, tokens: Tokens) -> None:
    """Draw the running sum from F(x') word by word to F(x), each bar beginning where the one before ended."""
    sums = tokens.running
    names = ["nothing: F(x′)", *tokens.texts, "the model: F(x)"]
    score = tokens.score if math.isfinite(tokens.score) else sums[-1]
    begins = [0.0, *sums[:-1], 0.0]
    ends = [sums[0], *sums[1:], score]
    values = [None, *tokens.values, None]
    colours = [GREY if v is None or not math.isfinite(v) else POSITIVE if v > 0 else NEGATIVE for v in values]
    places = np.arange(len(names))
    axes.barh(places, [b - a for a, b in zip(begins, ends, strict=True)], left=begins, height=0.66, color=colours)
    low, high = min(*ends, 0.0), max(*ends, 0.0)
    room = (high - low) or 1.0
    axes.set_xlim(low - 0.02 * room, high + 0.14 * room)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for place, value, a, b in zip(places, values, begins, ends, strict=True):
        text = f"{b:.3g}" if value is None else number(value)
        beside = max(a, b, sums[-1] if place == places[-1] else -math.inf)
        axes.annotate(text, (beside, place), (4, 0), textcoords="offset points", size=7.5, color=GREY, va="center")
    for place in places[:-1]:  # the line that hands each sum on to the next word
        axes.plot([ends[place]] * 2, [place, place + 1], color=GREY, linewidth=0.6, alpha=0.7)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(places, [shown(name, NAMES - 0.15) for name in names])
    axes.set_xticks([])
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
    axes.spines[:].set_visible(False)


def shown(text: str, wide: float = math.inf, size: float = NOTE) -> str:
    """As much of a text as fits into a width in inches, escaped for matplotlib."""
    seen = drawable(printable(text).strip()) or "·"
    return plain(seen if math.isinf(wide) else fitted(seen, wide, size))


def drawable(text: str) -> str:
    """The text with an empty box for each visible character that the font lacks."""
    known = _charmap()
    signs = (text[start:end] for start, end in clusters(text))
    return "".join(sign if all(ord(part) in known or part.isspace() for part in sign) else "▯" for sign in signs)


def draw_grid(grid: Grid, *, title: str) -> Figure:
    """Draw a heatmap of outputs by inputs; see :func:`integrand.render.text.alignment_grid.figure`."""
    unit, grid = grid.unit, grid.scaled()
    rows = [shown(row, GRID_NAME, GRID_SIZE) for row in grid.rows]
    sums = grid.sums()
    names = [[shown(name, GRID_NAME, GRID_SIZE) for name in block.columns] for block in grid.blocks]
    labels = [shown(name, GRID_NAME, GRID_SIZE) for name, _ in sums]
    tallest = max(in_inches(name, GRID_SIZE) for part in [*names, labels] for name in part)
    left = max(in_inches(row, GRID_SIZE) for row in rows) + 0.12
    lefts = [left]
    for part in names:
        lefts.append(lefts[-1] + CELL_WIDE * len(part) + GRID_GAP * bool(part))
    wide = lefts[-1] + CELL_WIDE * len(sums) + TILT * max(in_inches(label, GRID_SIZE) for label in labels)
    head, top = 0.42, 0.42 + TILT * tallest + 0.12
    high = top + CELL_HIGH * (len(rows) + 1) + (0.34 if unit == 1 else 0.6)
    picture = FigureCell(figsize=(wide, high), dpi=160, facecolor="white")
    FigureCanvasAgg(picture)
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, wide)
    axes.set_ylim(high, 0)
    axes.text(0, head / 2, shown(title, wide, 12), size=12, weight="bold", color=INK, va="center")
    if unit != 1:
        axes.text(0, high - 0.14, f"numbers in units of {unit:g}", size=GRID_NOTE, color=GREY, va="center")
    for i, row in enumerate(rows):
        axes.text(left - 0.1, top + CELL_HIGH * (i + 0.5), row, size=GRID_SIZE, color=INK, ha="right", va="center")
    axes.text(left - 0.1, top + CELL_HIGH * (len(rows) + 0.5), "sum", size=GRID_NOTE, color=GREY, ha="right", va="center")
    for k, part in enumerate(names):
        _draw_block(axes, grid, k, part, (lefts[k], top))
    _draw_sums(axes, sums, labels, (lefts[-1], top))
    return picture


def _lines(words: Sequence[Placed]) -> int:
    return 1 + max((word.line for word in words), default=0)


def _high(tokens: Tokens, words: Sequence[Placed], notes: int, running: bool) -> float:
    return LINE * _lines(words) + SMALL * notes + (ROW * (len(tokens.texts) + 2) + 0.2 if running else 0.0)


def _draw_one(
    figure: Figure,
    tokens: Tokens,
    words: Sequence[Placed],
    notes: Sequence[str],
    place: tuple[float, float, float],
    running: bool,
    limit: float | None,
) -> None:
    top, high, height = place
    lines = _lines(words)
    axes = figure.add_axes((0, (top - LINE * lines) / height, 1, LINE * lines / height))
    axes.set_axis_off()
    axes.set_xlim(0, WIDE)
    axes.set_ylim(LINE * lines, 0)
    reach = limit_of([tokens]) if limit is None else limit
    for word in words:
        _draw_word(axes, word, reach)
    good = tokens.certificate is None or tokens.certificate.converged
    for i, text in enumerate(notes):
        y = (top - LINE * lines - SMALL * (i + 0.5)) / height
        figure.text(0, y, shown(text, WIDE), size=NOTE, color=GREY if good else WARNING, va="center")
    if running:
        rows = ROW * (len(tokens.texts) + 2)
        below = figure.add_axes((NAMES / WIDE, (top - high + 0.1) / height, (WIDE - NAMES - 0.6) / WIDE, rows / height))
        draw_running(below, tokens)


def _turned(words: list[Placed], mirrored: bool) -> list[Placed]:
    """One line, with runs of words in the other reading direction put in their own order."""
    ways = [None if math.isinf(word.value) else direction(word.text) for word in words]
    other = [i for i, way in enumerate(ways) if way is not None and way != mirrored]
    runs: list[list[int]] = []
    for i in other:
        between = ways[runs[-1][-1] + 1 : i] if runs else [mirrored]
        if runs and all(way is None for way in between):
            runs[-1].append(i)
        else:
            runs.append([i])
    for run in runs:
        part = words[run[0] : run[-1] + 1]
        ends = min(word.left for word in part) + max(word.left + word.wide for word in part)
        words[run[0] : run[-1] + 1] = [replace(word, left=ends - word.left - word.wide) for word in part]
    return words


def _draw_word(axes: Axes, word: Placed, limit: float) -> None:
    middle = LINE * (word.line + 0.5)
    look: dict[str, Any] = {"size": SIZE, "va": "center", "ha": "center", "parse_math": False}
    if math.isinf(word.value):
        axes.text(word.left + word.wide / 2, middle, word.text, weight="bold", color=INK, **look)
        return
    quiet = neutral(word.value, limit)
    behind = background(0.0 if quiet else word.value, limit)
    box = FancyBboxPatch(
        (word.left, middle - 0.125), word.wide, 0.25, boxstyle="round,pad=0,rounding_size=0.03", facecolor=behind, linewidth=0
    )
    axes.add_patch(box)
    axes.text(word.left + word.wide / 2, middle, word.text, color="#5d6671" if quiet else ink(behind), **look)


@lru_cache(maxsize=1)
def _charmap() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def _draw_block(axes: Axes, grid: Grid, k: int, names: Sequence[str], corner: tuple[float, float]) -> None:
    block, (left, top), limit = grid.blocks[k], corner, grid.limit
    if not names:
        return
    _draw_tilted(axes, names, corner)
    count = len(grid.rows)
    for i in range(count):
        for j in range(len(names)):
            if not block.there[i, j]:
                continue
            value = float(block.values[i, j])
            behind = background(value, limit)
            place = (left + CELL_WIDE * j, top + CELL_HIGH * i)
            axes.add_patch(Rectangle(place, CELL_WIDE, CELL_HIGH, facecolor=behind, edgecolor="white", linewidth=0.8))
            _draw_number(axes, cell(value), (left, top), i, j, ink(behind))
    for j in range(len(names)):
        _draw_number(axes, cell(float(block.values[:, j].sum())), (left, top), count, j, GREY)
    below = top + CELL_HIGH * (count + 1) + 0.06
    axes.plot([left + 0.03, left + CELL_WIDE * len(names) - 0.03], [below, below], color=GREY, linewidth=0.8)
    look: dict[str, Any] = {"size": GRID_NOTE + 0.5, "color": GREY, "ha": "center", "va": "center"}
    axes.text(left + CELL_WIDE * len(names) / 2, below + 0.14, shown(f"from {block.name}"), **look)


def _draw_sums(axes: Axes, sums: Sequence[tuple[str, list[float]]], labels: Sequence[str], corner: tuple[float, float]) -> None:
    _draw_tilted(axes, labels, corner)
    for j, (_, values) in enumerate(sums):
        for i, value in enumerate(values):
            score = len(sums) - j <= 2
            text = f"{value:.2f}".replace("-", "−") if score else cell(value)
            _draw_number(axes, text, corner, i, j, INK, bold=j == len(sums) - 1)


def _draw_tilted(axes: Axes, names: Sequence[str], corner: tuple[float, float]) -> None:
    for j, name in enumerate(names):
        place = (corner[0] + CELL_WIDE * (j + 0.35), corner[1] - 0.06)
        axes.text(*place, name, size=GRID_SIZE, color=INK, rotation=45, rotation_mode="anchor", ha="left", va="baseline")


def _draw_number(
    axes: Axes, text: str, corner: tuple[float, float], i: int, j: int, colour: str, *, bold: bool = False
) -> None:
    place = (corner[0] + CELL_WIDE * (j + 0.5), corner[1] + CELL_HIGH * (i + 0.5))
    weight = "bold" if bold else "normal"
    axes.text(*place, text, size=GRID_NOTE, color=colour, weight=weight, ha="center", va="center")
