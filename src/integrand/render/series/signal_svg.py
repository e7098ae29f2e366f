"""Parts of the picture of a signal as HTML and SVG: lines, bars, windows that say what they add, and the axes.

Drawings are stretched to the width of the page and keep their height; all text is HTML over them, so that it stays as large as
text is, on a phone too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..escaping import escape
from ..glance import saying
from .signal import AttributedSignal, drawn_bins, limits
from .time_axis import TimeAxis, number_ticks

Numbers = NDArray[np.float64]

WIDE, HIGH = 1000.0, 100.0
"""The size of a drawing in its own units."""

POINTS, BARS = 1500, 500
"""The most points of a line and bars that are drawn; what there is more of is drawn together. By hand: a screen has as many."""

PLOTS = """
:root{--for:#b2182b;--against:#2166ac}
@media(prefers-color-scheme:dark){:root{--for:#ef7a6a;--against:#6aaee6}}
.plots{margin:0 0 .5rem}
.channel{margin:0 0 .9rem}
.channel .head{margin:0 0 .15rem;font-size:.9375rem;display:flex;flex-wrap:wrap;gap:0 .6rem;align-items:baseline}
.channel .head span{color:var(--soft);font-size:.875rem}
.channel .head .sum{margin-left:auto;font-variant-numeric:tabular-nums}
.plot{display:grid;grid-template-columns:3.4rem minmax(0,1fr)}
.plot .y{position:relative;font-size:.75rem;color:var(--soft);font-variant-numeric:tabular-nums}
.plot .y span{position:absolute;right:.45rem;transform:translateY(-50%);white-space:nowrap}
.plot .body{position:relative;border-left:1px solid var(--line)}
.plot svg{display:block;width:100%}
.plot svg *{vector-effect:non-scaling-stroke}
.plot .y div{position:relative}
.plot .seen{height:clamp(5rem,11vw,8rem)}
.plots.many .seen{height:3.6rem}
.plot .adds{height:clamp(3.5rem,7vw,5rem);margin-top:.25rem}
.plots.many .adds{height:2.6rem}
.seen .line{fill:none;stroke:var(--ink);stroke-width:1.6}
.seen .base{fill:none;stroke:var(--soft);stroke-width:1.2;stroke-dasharray:4 3}
.seen .next{fill:none;stroke:var(--focus);stroke-width:2;stroke-dasharray:7 4}
.seen .gap{fill:var(--soft);opacity:.25}
.seen .chosen,.seen .now{stroke:var(--focus);stroke-width:1.5}
.seen .now{stroke:var(--line)}
.for{fill:var(--for)}
.against{fill:var(--against)}
.zero{stroke:var(--soft);stroke-width:1;opacity:.7}
.windows{position:absolute;inset:0}
.windows i{position:absolute;top:0;bottom:0;display:block}
.windows i.across{box-shadow:inset 1px 0 var(--focus),inset -1px 0 var(--focus)}
.windows i.saying{box-shadow:inset 0 0 0 2px var(--focus)}
.windows i:focus-visible{outline:0}
.axis{position:relative;height:1.5rem;border-top:1px solid var(--line);font-size:.75rem;color:var(--soft);
font-variant-numeric:tabular-nums}
.axis span{position:absolute;top:.2rem;transform:translateX(-50%);white-space:nowrap}
.axis span::before{content:"";position:absolute;top:-.2rem;left:50%;height:.2rem;border-left:1px solid var(--line)}
.axis .last{transform:translateX(-100%)}
.axis .last::before{left:100%}
.key{font-size:.8125rem;color:var(--soft);margin:.25rem 0 .5rem;display:flex;flex-wrap:wrap;gap:.1rem 1rem}
.key i{display:inline-block;width:1.4em;height:.65em;margin-right:.35em;vertical-align:0}
.key .is-line{height:0;border-top:2px solid var(--ink);vertical-align:.25em}
.key .is-base{height:0;border-top:2px dashed var(--soft);vertical-align:.25em}
.key .is-next{height:0;border-top:2px dashed var(--focus);vertical-align:.25em}
.key .is-for{background:var(--for)}
.key .is-against{background:var(--against)}
@media(max-width:40rem){.axis .odd{display:none}.plot{grid-template-columns:2.7rem minmax(0,1fr)}}
@media(forced-colors:active){.for,.against,.key i{forced-color-adjust:none}}
""".strip()
"""CSS of these parts."""


@dataclass(frozen=True, eq=False)
class Across:
    """The horizontal scale that all parts of a picture share.

    Attributes:
        axis: the times, which may go on after the signal's.
    """

    axis: TimeAxis

    def x(self, place: float) -> float:
        """A place of the axis in units of the drawing, 0 to :data:`WIDE`."""
        low, high = self.axis.edges[0], self.axis.edges[-1]
        return float(WIDE * (place - low) / (high - low))

    def edge(self, step: int) -> float:
        """Where the share of a step begins."""
        return self.x(float(self.axis.edges[step]))


@dataclass(frozen=True, eq=False)
class Ahead:
    """A forecast to be drawn after a signal.

    Attributes:
        values: forecast, (horizons,).
        base: after the baseline, (horizons,).
        chosen: horizons that are explained, counted from 1.
    """

    values: Numbers
    base: Numbers
    chosen: tuple[int, ...] = ()


def channel_plot(signal: AttributedSignal, channel: int, across: Across, *, reach: float, ahead: Ahead | None = None) -> str:
    """One channel: its name, the signal, what it adds beneath, and windows that say it.

    Args:
        signal: what is drawn.
        channel: its number.
        across: the horizontal scale.
        reach: the attribution that has the full height.
        ahead: what is forecast of this channel, if anything.
    """
    parts = [signal.values[:, channel], signal.baseline[:, channel]]
    parts += [ahead.values, ahead.base] if ahead is not None else []
    low, high = limits(parts)
    unit = f" <span>{escape(signal.units[channel])}</span>" if signal.units[channel] else ""
    total = signal.amount(float(signal.totals[channel]), float(signal.total_errors[channel]))
    head = f'<p class="head"><b>{escape(signal.names[channel])}</b>{unit}<span class="sum">adds {escape(total)}</span></p>\n'
    end = 50 / 48 * reach
    y = f'<div class="seen">{value_marks(low, high)}</div><div class="adds">{value_marks(-end, end)}</div>'
    drawn = _seen(signal, channel, across, low, high, ahead) + _adds(signal, channel, across, reach)
    return (
        f'<div class="channel">\n{head}<div class="plot"><div class="y" aria-hidden="true">{y}</div><div class="body">\n{drawn}'
        f"{_windows(signal, channel, across)}</div></div>\n</div>\n"
    )


def _seen(signal: AttributedSignal, channel: int, across: Across, low: float, high: float, ahead: Ahead | None) -> str:
    """The signal over bands that have the colour of what each window adds."""
    scale = HIGH / (high - low)
    places = signal.axis.at
    strongest = float(np.abs(np.nan_to_num(signal.sums)).max()) or 1.0
    bands = ""
    for w, (start, stop) in enumerate(signal.windows):
        share = float(np.nan_to_num(signal.sums[w, channel])) / strongest
        if abs(share) < 0.02:
            continue
        left, right = across.edge(start), across.edge(stop)
        kind, tint = ("for" if share > 0 else "against"), 0.3 * abs(share)
        bands += f'<rect class="{kind}" x="{left:.1f}" y="0" width="{right - left:.1f}" height="100" opacity="{tint:.3f}"/>'
    gaps = "" if signal.known is None else _gaps(signal, channel, across)
    base = _path(across, places, signal.baseline[:, channel], low, scale)
    line = _path(across, places, signal.values[:, channel], low, scale)
    drawn = f'{bands}{gaps}<path class="base" d="{base}"/><path class="line" d="{line}"/>'
    if ahead is not None:
        drawn += _ahead(signal, channel, across, low, scale, ahead)
    return _svg("seen", 0, f"{signal.names[channel]} over time", drawn)


def _ahead(signal: AttributedSignal, channel: int, across: Across, low: float, scale: float, ahead: Ahead) -> str:
    """The forecast, joined to the last value that is known, and where the history ends."""
    count = len(signal.axis)
    places = across.axis.at[count - 1 : count + len(ahead.values)]
    joined = (np.r_[signal.values[-1, channel], ahead.values], np.r_[signal.baseline[-1, channel], ahead.base])
    now = across.edge(count)
    drawn = f'<line class="now" x1="{now:.1f}" x2="{now:.1f}" y1="0" y2="100"/>'
    drawn += f'<path class="base" d="{_path(across, places, joined[1], low, scale)}"/>'
    drawn += f'<path class="next" d="{_path(across, places, joined[0], low, scale)}"/>'
    if len(ahead.chosen) == 1:
        x = across.x(float(places[ahead.chosen[0]]))
        drawn += f'<line class="chosen" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="100"/>'
    return drawn


def _gaps(signal: AttributedSignal, channel: int, across: Across) -> str:
    assert signal.known is not None
    missing = np.flatnonzero(~signal.known[:, channel])
    edges = [(across.edge(int(t)), across.edge(int(t) + 1)) for t in missing[:POINTS]]
    return "".join(f'<rect class="gap" x="{a:.1f}" y="0" width="{b - a:.1f}" height="100"/>' for a, b in edges)


def _path(across: Across, places: Numbers, values: Numbers, low: float, scale: float) -> str:
    """A line through values; of very many, from the smallest to the largest of neighbours."""
    points: list[tuple[float, float]] = []
    for start, stop in drawn_bins(len(values), POINTS):
        x = across.x(float(places[start:stop].mean()))
        part = values[start:stop]
        points += [(x, float(part[0]))] if stop - start == 1 else [(x, float(part.min())), (x, float(part.max()))]
    return "M" + "L".join(f"{x:.1f} {HIGH - scale * (y - low):.2f}" for x, y in points)


def _adds(signal: AttributedSignal, channel: int, across: Across, reach: float) -> str:
    """What each value adds, as bars up and down from zero."""
    bars = {1: "", -1: ""}
    for start, stop in drawn_bins(len(signal.axis), BARS):
        value = float(np.nan_to_num(signal.attributions[start:stop, channel]).sum())
        height = 48 * value / reach
        if abs(height) < 0.02:
            continue
        left, right = across.edge(start), across.edge(stop)
        room = 0.08 * (right - left) if stop - start == 1 and right - left > 3 else 0.0
        bars[1 if value > 0 else -1] += f"M{left + room:.1f} 0V{-height:.2f}H{right - room:.1f}V0Z"
    drawn = "".join(f'<path class="{kind}" d="{bars[sign]}"/>' for sign, kind in ((1, "for"), (-1, "against")) if bars[sign])
    zero = f'<line class="zero" x1="0" x2="{WIDE:g}" y1="0" y2="0"/>'
    return _svg("adds", -50, f"What {signal.names[channel]} adds over time", f"{drawn}{zero}")


def _svg(kind: str, top: int, label: str, drawn: str) -> str:
    """A drawing that is stretched to the width of the page."""
    named = f'role="img" aria-label="{escape(label)}"'
    return f'<svg class="{kind}" viewBox="0 {top} {WIDE:g} {HIGH:g}" preserveAspectRatio="none" {named}>{drawn}</svg>\n'


def value_marks(low: float, high: float, most: int = 4) -> str:
    """Round numbers beside a drawing that goes from one value to another."""
    places = [(100 * (high - value) / (high - low), text) for value, text in number_ticks(low, high, most)]
    return "".join(f'<span style="top:{top:.1f}%">{escape(text)}</span>' for top, text in places if 3 <= top <= 97)


def _windows(signal: AttributedSignal, channel: int, across: Across) -> str:
    """Windows over both, each of which says what it adds."""
    cells = ""
    for w, (start, stop) in enumerate(signal.windows):
        left, right = across.edge(start) / 10, across.edge(stop) / 10
        text = signal.window_saying(w, channel)
        cells += window_cell(text, (left, right), column=w)
    return f'<div class="windows">\n{cells}</div>\n'


def window_cell(text: str, ends: tuple[float, float], *, column: int, row: int | None = None, place: str = "") -> str:
    """A part of a picture that says something, from one end to another in percent of the width.

    Args:
        text: what it says.
        ends: left and right.
        column: what has the same number stands out with it.
        row: likewise.
        place: CSS of where it is from top to bottom, beginning with a semicolon; by default over the whole height.
    """
    left, right = ends
    beside = "" if row is None else f' data-row="{row:d}"'
    return (
        f'<i role="img" aria-label="{escape(text)}" style="left:{left:.2f}%;width:{right - left:.2f}%{place}" '
        f'data-column="{column:d}"{beside}{saying(text)}></i>\n'
    )


def time_marks(axis: TimeAxis) -> str:
    """The axis of times under a picture; every other mark is left out on a phone."""
    across, ticks = Across(axis), axis.ticks(9)
    unit = "" if axis.dates is not None or axis.unit == "step" or not axis.unit else f" {axis.unit}"
    marks = ""
    for k, (place, text) in enumerate(ticks):
        at = across.x(place) / 10
        kind = " ".join(filter(None, ("odd" * (k % 2), "last" * (at > 97))))
        last = unit if k == len(ticks) - 1 - (len(ticks) - 1) % 2 else ""
        marks += f'<span style="left:{at:.2f}%"{f" class={kind!r}" if kind else ""}>{escape(text + last)}</span>'
    counted = '<span style="left:100%" class="last">step</span>' if axis.unit == "step" else ""
    return f'<div class="plot"><div class="y"></div><div class="axis">{marks}{counted}</div></div>\n'


def picture_key(*, ahead: bool = False) -> str:
    """What the lines and colours mean."""
    parts = [("is-line", "the signal"), ("is-base", "the baseline"), *([("is-next", "the forecast")] if ahead else [])]
    parts += [("is-for", "raises the score"), ("is-against", "lowers it")]
    marks = "".join(f'<span><i class="{kind}"></i>{text}</span>' for kind, text in parts)
    return f'<p class="key">{marks}</p>\n'


def reach_of(signals: Sequence[AttributedSignal]) -> float:
    """The largest bar of some signals, so that all are drawn to one scale."""
    largest = 0.0
    for signal in signals:
        for start, stop in drawn_bins(len(signal.axis), BARS):
            added = np.abs(np.nan_to_num(signal.attributions[start:stop]).sum(0))
            largest = max(largest, float(added.max()))
    return largest or 1.0


def history_plot(signal: AttributedSignal, channel: int, across: Across, ahead: Ahead) -> str:
    """The channel that is forecast with its history and the forecast, without what it adds: for the top of a heat map."""
    low, high = limits([signal.values[:, channel], signal.baseline[:, channel], ahead.values, ahead.base])
    scale, places = HIGH / (high - low), signal.axis.at
    base = _path(across, places, signal.baseline[:, channel], low, scale)
    line = _path(across, places, signal.values[:, channel], low, scale)
    drawn = (
        f'<path class="base" d="{base}"/><path class="line" d="{line}"/>{_ahead(signal, channel, across, low, scale, ahead)}'
    )
    unit = f" <span>{escape(signal.units[channel])}</span>" if signal.units[channel] else ""
    svg = _svg("seen", 0, f"{signal.names[channel]} over time, and the forecast", drawn)
    return (
        f'<div class="channel"><p class="head"><b>{escape(signal.names[channel])}</b>{unit}</p>\n<div class="plot">'
        f'<div class="y" aria-hidden="true"><div class="seen">{value_marks(low, high)}</div></div>'
        f'<div class="body">{svg}</div></div></div>\n'
    )
