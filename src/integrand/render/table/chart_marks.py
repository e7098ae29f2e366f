"""Charts as plain data: bars, dots, lines and texts at places in pixels, so that a page and a file show the same picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...words import shortened
from ..escaping import escape
from ..glance import saying
from ..image.pixels import COLOURS

POSITIVE, NEGATIVE = COLOURS[-1], COLOURS[0]
LOW, MIDDLE, HIGH = "#2166ac", "#9a5fb0", "#c2185b"
"""The colours of low, middling and high cells: from blue to red, as in SHAP's pictures, without white between."""

LETTER = 0.56
"""The width of an average letter, over the size of the type."""

Tone = Literal["ink", "soft", "line", "paper"]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class BarMark:
    """A filled rectangle; ``says`` is what it tells who points at it."""

    x: float
    y: float
    wide: float
    high: float
    fill: str
    says: str = ""


@dataclass(frozen=True, slots=True)
class DotMark:
    """A filled circle."""

    x: float
    y: float
    radius: float
    fill: str
    says: str = ""


@dataclass(frozen=True, slots=True)
class LineMark:
    """A straight line, dashed if asked for."""

    x: float
    y: float
    to_x: float
    to_y: float
    tone: Tone = "line"
    dashed: bool = False
    wide: float = 1.0


@dataclass(frozen=True, slots=True)
class TextMark:
    """A text on one line, its baseline at ``y``."""

    x: float
    y: float
    text: str
    size: float = 12.0
    anchor: Anchor = "start"
    tone: Tone = "ink"
    bold: bool = False
    turned: bool = False


@dataclass(frozen=True, slots=True)
class PathMark:
    """A line through several points."""

    points: tuple[tuple[float, float], ...]
    tone: Tone = "ink"
    wide: float = 1.2


ChartMark = BarMark | DotMark | LineMark | TextMark | PathMark


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture.

    Attributes:
        title: what it shows, in a line.
        wide: in pixels.
        high: in pixels.
        marks: what is drawn, the first below the others.
    """

    title: str
    wide: float
    high: float
    marks: tuple[ChartMark, ...]


def shade(place: float) -> str:
    """The colour of a cell by its place in its column, from 0 to 1; grey where it holds nothing.

    >>> shade(0.0), shade(0.5), shade(1.0)
    ('#2166ac', '#9a5fb0', '#c2185b')
    """
    if not 0 <= place <= 1:
        return "#8a8f98"
    ends = (LOW, MIDDLE) if place < 0.5 else (MIDDLE, HIGH)
    return mixed(*ends, 2 * place if place < 0.5 else 2 * place - 1)


def mixed(first: str, second: str, share: float) -> str:
    """A colour between two, as #rrggbb.

    >>> mixed("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(bytes.fromhex(first[1:]), bytes.fromhex(second[1:]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def signed_colour(value: float, limit: float) -> str:
    """The colour of a value between -limit and limit: blue over white to red."""
    share = max(-1.0, min(1.0, value / limit if limit else 0.0))
    place = (share + 1) / 2 * (len(COLOURS) - 1)
    first = min(int(place), len(COLOURS) - 2)
    return mixed(COLOURS[first], COLOURS[first + 1], place - first)


def fitting(text: str, wide: float, size: float) -> str:
    """As much of a text as fits into a width, by the width of average letters."""
    return shortened(text, max(3, int(wide / (LETTER * size))))


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two, at most so many.

    >>> ticks(0.0, 1.0, 6), ticks(-3.0, 11.0, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    """
    span = high - low
    if not span > 0:
        return [low]
    power = 10.0 ** int(f"{span / most:e}".partition("e")[2])
    step = next(power * unit for unit in (1, 2, 5, 10, 20) if span / (power * unit) <= most - 1 + 1e-9)
    first = -(-low // step)
    digits = max(0, -int(f"{step:e}".partition("e")[2]))
    found = [round((first + i) * step, digits) + 0.0 for i in range(most + 1)]
    return [one for one in found if low - 1e-9 * span <= one <= high + 1e-9 * span]


def chart_svg(chart: Chart, *, name: str = "", classes: str = "chart") -> str:
    """A chart as an SVG element for a page: it takes the page's colours, and its marks say what they show.

    Args:
        chart: what is drawn.
        name: its ``id``.
        classes: its ``class``.
    """
    given = f' id="{escape(name)}"' if name else ""
    body = "".join(map(_svg, chart.marks))
    return (
        f'<svg{given} class="{escape(classes)}" viewBox="0 0 {chart.wide:g} {chart.high:g}" width="{chart.wide:g}" '
        f'height="{chart.high:g}" role="group" aria-label="{escape(chart.title)}">{body}</svg>'
    )


STYLE = """
.chart{display:block;width:100%;height:auto;max-width:56rem;font-family:inherit}
.chart text.ink{fill:var(--ink,#1c2128)}.chart text.soft{fill:var(--soft,#5d6671)}.chart text.paper{fill:#fff}
.chart .s-ink{stroke:var(--ink,#1c2128)}.chart .s-soft{stroke:var(--soft,#5d6671)}.chart .s-line{stroke:var(--line,#dfe3e8)}
.chart .s-paper{stroke:#fff}
.chart path{fill:none}
.chart .saying,.chart [data-says]:focus-visible{stroke:var(--ink,#1c2128);stroke-width:1.5;outline:none}
""".strip()
"""CSS of charts on a page."""


def _svg(mark: ChartMark) -> str:
    if isinstance(mark, BarMark):
        says = saying(mark.says) + ' role="img" aria-label="' + escape(mark.says) + '"' if mark.says else ""
        place = f'x="{mark.x:.1f}" y="{mark.y:.1f}" width="{max(mark.wide, 0.5):.1f}" height="{mark.high:.1f}"'
        return f'<rect {place} fill="{escape(mark.fill)}"{says}/>'
    if isinstance(mark, DotMark):
        says = saying(mark.says, reachable=False) if mark.says else ""
        return f'<circle cx="{mark.x:.1f}" cy="{mark.y:.1f}" r="{mark.radius:g}" fill="{escape(mark.fill)}"{says}/>'
    if isinstance(mark, LineMark):
        dashed = ' stroke-dasharray="3 3"' if mark.dashed else ""
        return (
            f'<line x1="{mark.x:.1f}" y1="{mark.y:.1f}" x2="{mark.to_x:.1f}" y2="{mark.to_y:.1f}" class="s-{mark.tone}" '
            f'stroke-width="{mark.wide:g}"{dashed}/>'
        )
    if isinstance(mark, PathMark):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in mark.points)
        return f'<polyline points="{points}" fill="none" class="s-{mark.tone}" stroke-width="{mark.wide:g}"/>'
    bold = ' font-weight="650"' if mark.bold else ""
    turned = f' transform="rotate(-90 {mark.x:.1f} {mark.y:.1f})"' if mark.turned else ""
    return (
        f'<text x="{mark.x:.1f}" y="{mark.y:.1f}" font-size="{mark.size:g}" text-anchor="{mark.anchor}" '
        f'class="{mark.tone}"{bold}{turned}>{escape(mark.text)}</text>'
    )


def legend(
    x: float, y: float, wide: float, ends: Sequence[str], *, size: float = 11.0, colour: Sequence[str] = ()
) -> list[ChartMark]:
    """A ramp of colours with a text at either end.

    Args:
        x: where it begins.
        y: its upper edge.
        wide: how wide it is.
        ends: the texts below its ends.
        size: of the type.
        colour: the colours from left to right; by default those of cells from low to high.
    """
    steps = 32
    shades = colour or [shade(i / (steps - 1)) for i in range(steps)]
    part = wide / len(shades)
    marks: list[ChartMark] = [BarMark(x + i * part, y, part + 0.6, 8, fill) for i, fill in enumerate(shades)]
    marks.append(TextMark(x, y + 8 + size + 2, ends[0], size, "start", "soft"))
    marks.append(TextMark(x + wide, y + 8 + size + 2, ends[1], size, "end", "soft"))
    return marks
