"""Sequence logos drawn with matplotlib, in rows, or by their strongest stretches where a sequence is long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import PathPatch
from matplotlib.transforms import Affine2D

from ...errors import OptionError
from ..certificate_text import caption
from ..figures import FOOTER, GREY, INK, WARNING, FigureCell, broken, plain
from .letter_shapes import outline
from .logo_data import Logo, letter_colour
from .logo_layout import PlacedLetter, contribution_letters, extent, hypothetical_letters

WIDE, HIGH, GAP, LEFT, TITLE = 11.0, 1.15, 0.36, 0.55, 0.3
"""The layout in inches: the picture, a row, what is between rows, the numbers beside them, a line of the title."""

ROW, ROWS = 100, 12
"""Letters in a row, and rows; of a longer sequence the strongest stretches are drawn, with so many letters around them:"""

AROUND = 20

SHADE = "#eef1f5"

Mark = tuple[int, int, str]
"""A stretch to be marked with a line and a text: start (from 0), end, text."""


@dataclass(frozen=True)
class LogoRow:
    """A row of a picture: from one position up to another, of contributions or of hypothetical ones."""

    start: int
    end: int
    hypothetical: bool = False


def draw(
    logo: Logo,
    *,
    window: tuple[int, int] | None = None,
    hypothetical: bool = False,
    marks: Sequence[Mark] = (),
    title: str | None = None,
) -> Any:
    """A logo as a figure; see :func:`integrand.render.sequence.figure`."""
    rows = _rows(logo, window, hypothetical)
    heads = broken(title if title is not None else logo.sentence, WIDE, 11, bold=True)
    feet = broken(_foot(logo), WIDE, FOOTER)
    above = 0.2 if marks else 0.0
    height = TITLE * len(heads) + above + sum(HIGH + GAP for _ in rows) + 0.15 * len(feet) + 0.1
    figure = FigureCell(figsize=(WIDE, height), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    for i, line in enumerate(heads):
        figure.text(0, 1 - (0.05 + 0.22 * i) / height, plain(line), size=11, weight="bold", color=INK, va="top")
    drawn = {kind: _letters(logo, rows, kind) for kind in {row.hypothetical for row in rows}}
    limits = {kind: extent([one for part in parts for one in part]) for kind, parts in drawn.items()}
    top = height - TITLE * len(heads) - above
    longest = max(row.end - row.start for row in rows)
    for row in rows:
        mine = [one for one in drawn[row.hypothetical][0] if row.start <= one.position < row.end]
        span = (WIDE - LEFT) * (row.end - row.start) / longest
        axes = figure.add_axes((LEFT / WIDE, (top - HIGH) / height, span / WIDE, HIGH / height))
        _draw_row(axes, logo, row, mine, limits[row.hypothetical], marks)
        top -= HIGH + GAP
    colour = GREY if logo.certificate.converged else WARNING
    for i, line in enumerate(feet):
        figure.text(0, (0.15 * (len(feet) - i) - 0.02) / height, plain(line), size=FOOTER, color=colour, va="top")
    return figure


def _rows(logo: Logo, window: tuple[int, int] | None, hypothetical: bool) -> list[LogoRow]:
    length = len(logo.letters)
    if hypothetical and logo.hypothetical is None:
        raise OptionError("got hypothetical=True for a result without hypothetical contributions; explain it with them.")
    if window is not None and not 0 <= window[0] < window[1] <= length:
        raise OptionError(f"got window={window} of {length} letters; expected 0 <= start < end <= {length}.")
    first, last = window or (0, length)
    if last - first <= ROW * ROWS:
        count = -(-(last - first) // ROW)
        wide = -(-(last - first) // count)
        places = [(at, min(at + wide, last)) for at in range(first, last, wide)]
    else:
        places = [
            (max(0, one.start - AROUND), min(length, one.end + AROUND))
            for one in sorted(logo.seqlets[:6], key=lambda s: s.start)
        ] or [(first, first + ROW)]
        places = [(start, min(end, start + ROW)) for start, end in places]
    kinds = (False, True) if hypothetical else (False,)
    return [LogoRow(start, end, kind) for start, end in places for kind in kinds]


def _letters(logo: Logo, rows: Sequence[LogoRow], kind: bool) -> list[list[PlacedLetter]]:
    place = hypothetical_letters if kind else contribution_letters
    mine = [row for row in rows if row.hypothetical == kind]
    return [[one for row in mine for one in place(logo, row.start, row.end)]]


def _draw_row(
    axes: Axes, logo: Logo, row: LogoRow, letters: Sequence[PlacedLetter], limits: tuple[float, float], marks: Sequence[Mark]
) -> None:
    low, high = limits
    room = 0.06 * (high - low)
    axes.set_xlim(row.start, row.end)
    axes.set_ylim(low - room, high + room)
    if not row.hypothetical:
        for seqlet in (one for one in logo.seqlets if one.start < row.end and one.end > row.start):
            axes.axvspan(max(seqlet.start, row.start), min(seqlet.end, row.end), color=SHADE, linewidth=0, zorder=0)
    for one in letters:
        tall = one.high - one.low
        move = Affine2D().scale(0.92, tall if one.high > 0 else -tall)
        move = move.translate(one.position + 0.04, one.low if one.high > 0 else one.high)
        face = letter_colour(one.letter, logo.alphabet)
        shape = outline(one.letter).transformed(move)
        axes.add_patch(PathPatch(shape, facecolor=face, linewidth=0, alpha=0.5 if one.masked else 1.0))
    for start, end, text in marks:
        if start < row.end and end > row.start and not row.hypothetical:
            a, b = max(start, row.start), min(end, row.end)
            line: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot([a, b], [1.03, 1.03], color=INK, linewidth=2, solid_capstyle="butt", **line)
            axes.text((a + b) / 2, 1.06, plain(text), size=7.5, color=INK, ha="center", va="bottom", **line)
    axes.axhline(0, color=INK, linewidth=0.6)
    ticks = [at for at in range(row.start, row.end) if (at + 1) % 10 == 0]
    axes.set_xticks([at + 0.5 for at in ticks], [str(at + 1) for at in ticks])
    axes.tick_params(length=2, labelsize=7, labelcolor=GREY, color=GREY, pad=1)
    axes.locator_params(axis="y", nbins=4)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(GREY)
    if row.hypothetical:
        axes.set_ylabel("hypothetical", size=7, color=GREY)


def _foot(logo: Logo) -> str:
    against = f"Compared with {logo.baseline}. " if logo.baseline else ""
    return f"{against}{caption(logo.certificate)}"
