"""A signal with attributions under it, and a forecast with its heat map, drawn with matplotlib. Sizes are in inches."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from ...certificate import Certificate, ExampleCertificate
from ..certificate_text import caption, trust
from ..figures import FOOTER, GREY, INK, NEGATIVE, POSITIVE, WARNING, FigureCell, broken, plain
from ..image.pixels import COLOURS
from .lag_map import LagMap
from .signal import AttributedSignal, drawn_bins, limits
from .signal_svg import BARS, Ahead, reach_of
from .time_axis import TimeAxis, number_ticks

WIDTH, LEFT, RIGHT = 8.4, 0.75, 0.15
HEAD, STEP, FOOT, NAME = 0.1, 0.2, 0.4, 0.3
SEEN, ADDS, GAP = 1.25, 0.75, 0.06
LOWER = 0.62
"""What the plots are scaled by where there are more than three channels."""

NEXT, LINE = "#175cd3", "#c8cdd3"


def draw_signal(signal: AttributedSignal, *, title: str, certificate: ExampleCertificate, most: int = 12) -> Figure:
    """The channels one under the other, each with what it adds beneath.

    Args:
        signal: what is drawn.
        title: over everything.
        certificate: for the line under the picture.
        most: channels that are drawn, the strongest.
    """
    order = np.argsort(-np.abs(np.nan_to_num(signal.sums)).sum(0), kind="stable")[:most]
    channels = sorted(int(c) for c in order)
    share = LOWER if len(channels) > 3 else 1.0
    block = NAME + share * (SEEN + ADDS) + GAP
    figure, top, height = _begin(title, len(channels) * (block + 0.12) + 0.05, caption(certificate), certificate.converged)
    reach = reach_of([signal])
    for k, channel in enumerate(channels):
        at = top + k * (block + 0.12)
        last = k == len(channels) - 1
        seen = _axes(figure, at + NAME, share * SEEN, height)
        _draw_seen(seen, signal, channel, signal.axis)
        _name(figure, signal, channel, at, height)
        adds = _axes(figure, at + NAME + share * SEEN + GAP, share * ADDS, height)
        _draw_adds(adds, signal, channel, signal.axis, reach)
        _times(seen, signal.axis, labels=False)
        _times(adds, signal.axis, labels=last)
    return figure


def draw_forecast(lags: LagMap, *, title: str, certificate: Certificate) -> Figure:
    """The history with the forecast, and under it a heat map for each channel; for one row, what it adds as bars."""
    first = lags.signals[0]
    several, channels = len(lags.rows) > 1, range(len(first.names[:8]))
    tall = max(0.5, 0.17 * len(lags.rows))
    inside = NAME + SEEN + (sum(NAME + tall for _ in channels) if several else sum(NAME + ADDS for _ in channels)) + 0.1
    said = f"{trust(certificate)}: {caption(max(certificate.examples, key=lambda one: one.error))}"
    figure, top, height = _begin(title, inside, said, all(one.converged for one in certificate.examples))
    seen = _axes(figure, top + NAME, SEEN, height)
    ahead = Ahead(lags.ahead.values, lags.ahead.base, lags.horizons)
    _draw_seen(seen, first, lags.channel, lags.axis, ahead)
    _name(figure, first, lags.channel, top, height, total=not several)
    _times(seen, lags.axis, labels=False)
    at = top + NAME + SEEN
    for channel in channels:
        low = tall if several else ADDS
        axes = _axes(figure, at + NAME - 0.05, low, height)
        name = f"what {first.names[channel]} adds" + (" to each forecast" if several else "")
        figure.text(LEFT / WIDTH, 1 - (at + 0.2) / height, plain(name), size=8.5, color=GREY, va="baseline")
        if several:
            _draw_lags(axes, lags, channel)
        else:
            _draw_adds(axes, first, channel, lags.axis, reach_of([first]))
        _times(axes, lags.axis, labels=channel == channels[-1])
        at += NAME + low
    return figure


def _begin(title: str, inside: float, note: str, good: bool) -> tuple[Figure, float, float]:
    """An empty figure with its title and the line under it; where the inside begins, and the height."""
    lines, notes = broken(title, WIDTH - 0.1, 11, bold=True), broken(note, WIDTH, FOOTER)
    top = HEAD + STEP * len(lines)
    height = top + inside + FOOT + 0.15 * len(notes)
    figure = FigureCell(figsize=(WIDTH, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    for i, line in enumerate(lines):
        figure.text(0.01, 1 - (HEAD + STEP * i) / height, plain(line), size=11, weight="bold", color=INK, va="top")
    for i, line in enumerate(notes):
        down = top + inside + FOOT + 0.15 * i
        figure.text(0.01, 1 - down / height, plain(line), size=FOOTER, color=GREY if good else WARNING, va="top")
    return figure, top, height


def _axes(figure: Figure, down: float, high: float, height: float) -> Axes:
    wide = WIDTH - LEFT - RIGHT
    axes = figure.add_axes((LEFT / WIDTH, 1 - (down + high) / height, wide / WIDTH, high / height))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=LINE)
    axes.tick_params(length=2.5, color=LINE, labelsize=7.5, labelcolor=GREY)
    return axes


def _name(figure: Figure, signal: AttributedSignal, channel: int, at: float, height: float, *, total: bool = True) -> None:
    unit = f" ({signal.units[channel]})" if signal.units[channel] else ""
    line = 1 - (at + 0.22) / height
    figure.text(LEFT / WIDTH, line, plain(signal.names[channel] + unit), size=9, weight="bold", color=INK, va="baseline")
    if total:
        added = f"adds {signal.amount(float(signal.totals[channel]), float(signal.total_errors[channel]))}"
        figure.text(1 - RIGHT / WIDTH, line, plain(added), size=8.5, color=GREY, va="baseline", ha="right")


def _draw_seen(axes: Axes, signal: AttributedSignal, channel: int, axis: TimeAxis, ahead: Ahead | None = None) -> None:
    """The signal over bands in the colour of what each window adds, with the baseline and the forecast."""
    values, base, at = signal.values[:, channel], signal.baseline[:, channel], signal.axis.at
    low, high = limits([values, base] + ([ahead.values, ahead.base] if ahead is not None else []))
    strongest = float(np.abs(np.nan_to_num(signal.sums)).max()) or 1.0
    if ahead is None or len(ahead.chosen) <= 1:
        for w, (start, stop) in enumerate(signal.windows):
            share = float(np.nan_to_num(signal.sums[w, channel])) / strongest
            colour = POSITIVE if share > 0 else NEGATIVE
            axes.axvspan(signal.axis.edges[start], signal.axis.edges[stop], color=colour, alpha=0.3 * abs(share), linewidth=0)
    axes.plot(at, base, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(at, values, color=INK, linewidth=1.2)
    if signal.known is not None:
        for t in np.flatnonzero(~signal.known[:, channel]):
            axes.axvspan(signal.axis.edges[t], signal.axis.edges[t + 1], color=GREY, alpha=0.25, linewidth=0)
    if ahead is not None:
        count = len(at)
        places = axis.at[count - 1 : count + len(ahead.values)]
        axes.plot(places, np.r_[base[-1], ahead.base], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.plot(places, np.r_[values[-1], ahead.values], color=NEXT, linewidth=1.4, linestyle=(0, (5, 2)))
        axes.axvline(axis.edges[count], color=LINE, linewidth=0.9)
        if len(ahead.chosen) == 1:
            axes.axvline(places[ahead.chosen[0]], color=NEXT, linewidth=1)
    axes.set_ylim(low, high)
    ticks = number_ticks(low, high, 4)
    axes.set_yticks([place for place, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(axis.edges[0], axis.edges[-1])


def _draw_adds(axes: Axes, signal: AttributedSignal, channel: int, axis: TimeAxis, reach: float) -> None:
    """What each value adds, as bars up and down from zero."""
    bins = drawn_bins(len(signal.axis), BARS)
    edges = signal.axis.edges
    added = np.array([np.nan_to_num(signal.attributions[start:stop, channel]).sum() for start, stop in bins])
    left = np.array([edges[start] for start, _ in bins])
    wide = np.array([edges[stop] - edges[start] for start, stop in bins])
    axes.bar(left, added, 0.92 * wide if len(bins) < 120 else wide, align="edge", color=np.where(added > 0, POSITIVE, NEGATIVE))
    axes.axhline(0, color=GREY, linewidth=0.7)
    axes.set_ylim(-1.05 * reach, 1.05 * reach)
    ticks = [one for one in number_ticks(-reach, reach, 4) if abs(one[0]) < reach]
    axes.set_yticks([place for place, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(axis.edges[0], axis.edges[-1])


def _draw_lags(axes: Axes, lags: LagMap, channel: int) -> None:
    """The heat map of a channel: a row for each forecast, a column for each window."""
    first, reach = lags.signals[0], lags.reach
    edges = [first.axis.edges[start] for start, _ in first.windows] + [first.axis.edges[first.windows[-1][1]]]
    colours = LinearSegmentedColormap.from_list("signed", (*COLOURS[:3], "white", *COLOURS[4:]))
    rows = np.arange(len(lags.rows) + 1)
    axes.pcolormesh(np.array(edges), rows, lags.sums(channel), cmap=colours, norm=Normalize(-reach, reach))
    count = len(first.axis)
    for r, horizon in enumerate(lags.horizons):
        axes.vlines(lags.axis.at[count + horizon - 1], r + 0.08, r + 0.92, color=NEXT, linewidth=2.5)
    names = [f"+{h}" for h in lags.horizons] or list(lags.rows)
    axes.set_ylim(len(lags.rows), 0)
    axes.set_yticks(rows[:-1] + 0.5, [plain(name) for name in names])
    axes.set_xlim(lags.axis.edges[0], lags.axis.edges[-1])
    axes.tick_params(axis="y", length=0, labelsize=6.5)


def _times(axes: Axes, axis: TimeAxis, *, labels: bool) -> None:
    ticks = axis.ticks(9)
    axes.set_xticks([place for place, _ in ticks], [text if labels else "" for _, text in ticks])
    if labels and axis.dates is None and axis.unit:
        axes.set_xlabel(plain(axis.unit), size=7.5, color=GREY, loc="right", labelpad=1)
