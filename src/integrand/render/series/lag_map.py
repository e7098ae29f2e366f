"""Forecasts by what they come from, as data and as a heat map: a row for each horizon, a column for each window of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...words import short_repr
from ..escaping import escape
from .signal import AttributedSignal
from .signal_svg import Across, Ahead, window_cell
from .time_axis import TimeAxis

LAGS = """
.lags{margin:0 0 .9rem}
.lags svg{height:var(--rows)}
.lags .windows i{bottom:auto}
.lags .windows i.across{box-shadow:none}
.lags .windows i.saying{box-shadow:inset 0 0 0 2px var(--focus)}
.lags .y span.across{color:var(--focus);font-weight:650}
""".strip()
"""CSS of the heat map, beyond that of the plots."""

ROW = 1.35
"""The height of a row in rem."""


@dataclass(frozen=True, eq=False)
class LagMap:
    """What windows of a history add to each of several forecasts.

    Attributes:
        axis: the times of the history, and those that are forecast.
        signals: the history with its attributions, one for each row.
        rows: what each row is, in words, such as ``Jul 1961``.
        channel: the number of the channel that is forecast.
        ahead: the forecast.
        horizons: of the rows, counted from 1; none where a row is the sum of several.
    """

    axis: TimeAxis
    signals: tuple[AttributedSignal, ...]
    rows: tuple[str, ...]
    channel: int
    ahead: Ahead
    horizons: tuple[int, ...]

    __repr__ = short_repr

    def sums(self, channel: int) -> NDArray[np.float64]:
        """The sums of a channel, (rows, windows)."""
        return np.stack([signal.sums[:, channel] for signal in self.signals])

    @property
    def reach(self) -> float:
        """The largest magnitude among all cells."""
        return max(float(np.abs(np.nan_to_num(signal.sums)).max()) for signal in self.signals) or 1.0

    def saying(self, row: int, window: int, channel: int) -> str:
        """What a window adds to a forecast, in words."""
        signal = self.signals[row]
        added = signal.amount(float(signal.sums[window, channel]), float(signal.errors[window, channel]))
        name = f"{signal.named(channel)}, " if signal.several else ""
        return f"{name}{signal.axis.span(*signal.windows[window])} adds {added} to {self.rows[row]}"


def lag_plot(lags: LagMap, channel: int) -> str:
    """The heat map of a channel, under the same times as the plots."""
    across, reach, count = Across(lags.axis), lags.reach, len(lags.rows)
    rects, cells = "", ""
    for r, signal in enumerate(lags.signals):
        for w, (start, stop) in enumerate(signal.windows):
            value = float(np.nan_to_num(signal.sums[w, channel]))
            left, right = across.edge(start), across.edge(stop)
            share = abs(value) / reach
            if share > 0.004:
                kind, wide = ("for" if value > 0 else "against"), right - left
                rects += (
                    f'<rect class="{kind}" x="{left:.1f}" y="{r}" width="{wide:.1f}" height="1" opacity="{share**0.7:.3f}"/>'
                )
            place = f";top:{100 * r / count:.2f}%;height:{100 / count:.2f}%"
            cells += window_cell(lags.saying(r, w, channel), (left / 10, right / 10), row=r, column=w, place=place)
    rects += _targets(lags, across)
    names = "".join(
        f'<span style="top:{100 * (r + 0.5) / count:.2f}%" data-row="{r}">{escape(name)}</span>'
        for r, name in enumerate(_short(lags))
    )
    title = f"What {lags.signals[0].names[channel]} adds to each forecast"
    svg = f'<svg viewBox="0 0 1000 {count}" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">{rects}</svg>\n'
    return (
        f'<div class="lags" style="--rows:{max(2.0, ROW * count):g}rem"><p class="head"><b>{escape(title)}</b></p>\n'
        f'<div class="plot"><div class="y">{names}</div><div class="body">{svg}<div class="windows">\n{cells}</div></div></div>'
        "</div>\n"
    )


def _targets(lags: LagMap, across: Across) -> str:
    """A mark in each row at the time that it forecasts."""
    count = len(lags.signals[0].axis)
    marks = ""
    for r, horizon in enumerate(lags.horizons):
        left, right = across.edge(count + horizon - 1), across.edge(count + horizon)
        middle = (left + right) / 2
        marks += f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{r}" y2="{r + 1}" style="stroke:var(--focus);stroke-width:3"/>'
    return marks


def _short(lags: LagMap) -> list[str]:
    """The names of the rows in few letters: the horizon."""
    return [f"+{h}" for h in lags.horizons] if lags.horizons else list(lags.rows)
