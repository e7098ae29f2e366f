"""Coloured words and their running sum with matplotlib. Sizes are in inches."""

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
from matplotlib.patches import FancyBboxPatch

from ..figures import GREY, INK, NEGATIVE, POSITIVE, WARNING, FigureCell, fitted, in_inches, plain
from .tokens import Tokens, clusters, direction, printable, right_to_left
from .word_markup import account, background, ink, limit_of, neutral, number, verdict

WIDE, LINE, GAP, SMALL, SIZE, NOTE = 8.0, 0.32, 0.16, 0.19, 12.0, 8.5
ROW, NAMES, SPACE = 0.22, 1.7, 0.055
"""Of a running sum: the height of a row, the room for its words; and the space between two words of a line."""


@dataclass(frozen=True)
class Placed:
    """A word at its place: from the left, in which line, how wide."""

    text: str
    left: float
    line: int
    wide: float
    value: float


def draw(rows: Sequence[Tokens], *, running: bool, title: str | None, limit: float | None) -> Figure:
    """Lay the texts out below each other; see :func:`integrand.render.text.figure`."""
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


def placed(tokens: Tokens) -> list[Placed]:
    """Words in lines, from the right where the text is read so; what was said comes after the last one."""
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


def _turned(words: list[Placed], mirrored: bool) -> list[Placed]:
    """A line whose words of the other direction, where several stand side by side, are read in their own."""
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


def draw_running(axes: Axes, tokens: Tokens) -> None:
    """From F(x') word by word to F(x), each bar beginning where the one before ended."""
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
    """As much of a text as fits into so many inches, as matplotlib draws it."""
    seen = drawable(printable(text).strip()) or "·"
    return plain(seen if math.isinf(wide) else fitted(seen, wide, size))


def drawable(text: str) -> str:
    """A text with an empty box for each sign that the font lacks, however many characters it is made of."""
    known = _charmap()
    signs = (text[start:end] for start, end in clusters(text))
    return "".join(sign if all(ord(part) in known or part.isspace() for part in sign) else "▯" for sign in signs)


@lru_cache(maxsize=1)
def _charmap() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())
