"""Pictures of signals: a signal with what each value adds beneath, and forecasts with a heat map of where they come from.

Nothing here knows a model: a :class:`~integrand.render.series.signal.AttributedSignal` is plain data, from any application.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...certificate import Certificate, ExampleCertificate
from ...errors import MissingExtraError
from ...words import shown
from . import signal_page
from .lag_map import LAGS, LagMap, lag_plot
from .signal import AttributedSignal
from .signal_svg import PLOTS, time_marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "AttributedSignal",
    "LagMap",
    "figure",
    "forecast_figure",
    "forecast_fragment",
    "fragment",
    "lag_terminal",
    "page",
    "terminal",
]

BLOCKS = " ▁▂▃▄▅▆▇█"


def page(
    signal: AttributedSignal,
    *,
    title: str,
    says: str,
    certificate: ExampleCertificate,
    notes: Sequence[str] = (),
    meta: Mapping[str, str] | None = None,
    command: str | None = None,
) -> str:
    """A signal as one self-contained HTML page that loads nothing; arguments as in :func:`signal_page.page`."""
    return signal_page.page(signal, title=title, says=says, certificate=certificate, notes=notes, meta=meta, command=command)


def fragment(signal: AttributedSignal) -> str:
    """A signal as an HTML fragment with its style, as notebooks show it."""
    return f"<div><style>{PLOTS}</style>{signal_page.plots(signal)}</div>"


def forecast_fragment(lags: LagMap) -> str:
    """A heat map of forecasts as an HTML fragment with its style, as notebooks show it."""
    drawn = "".join(lag_plot(lags, c) for c in range(len(lags.signals[0].names[:4])))
    return f'<div><style>{PLOTS}\n{LAGS}</style><div class="plots">{drawn}{time_marks(lags.axis)}</div></div>'


def figure(signal: AttributedSignal, *, title: str, certificate: ExampleCertificate) -> Figure:
    """A signal drawn with matplotlib.

    Args:
        signal: what is drawn.
        title: over everything.
        certificate: for the line under the picture.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from .signal_figure import draw_signal
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a series") from None
    return draw_signal(signal, title=title, certificate=certificate)


def forecast_figure(lags: LagMap, *, title: str, certificate: Certificate) -> Figure:
    """A forecast with its heat map drawn with matplotlib.

    Args:
        lags: what is drawn.
        title: over everything.
        certificate: for the line under the picture.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from .signal_figure import draw_forecast
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a forecast") from None
    return draw_forecast(lags, title=title, certificate=certificate)


def terminal(signal: AttributedSignal, *, count: int = 6) -> str:
    """A signal for a terminal: each channel as a line of blocks over what it adds, and the windows that matter most.

    Args:
        signal: what is shown.
        count: windows that are listed.
    """
    wide = min(max(20, shutil.get_terminal_size((100, 24)).columns - 26), 100)
    lines = []
    strongest = np.argsort(-np.abs(np.nan_to_num(signal.sums)).sum(0), kind="stable")[:6]
    for channel in sorted(int(c) for c in strongest):
        total = signal.amount(float(signal.totals[channel]), float(signal.total_errors[channel]))
        lines += [f"  {signal.named(channel)[:40]}: adds {total}", f"    {_blocks(signal.values[:, channel], wide)}"]
        lines += [f"    {_signs(signal.attributions[:, channel], wide)}"]
    lines.append(f"    {shown(signal.axis.span(0, len(signal.axis)))}; + raises the score, − lowers it")
    for w, c in signal.strongest(count):
        adds = signal.amount(float(signal.sums[w, c]), float(signal.errors[w, c]))
        name = f"{signal.named(c)}, " if signal.several else ""
        lines.append(f"  {adds:>22}  {name}{signal.axis.span(*signal.windows[w])}")
    return "\n".join(lines)


def lag_terminal(lags: LagMap, *, count: int = 3) -> str:
    """Forecasts for a terminal: a line for each, with the windows that it comes from most.

    Args:
        lags: what is shown.
        count: windows for each.
    """
    lines = []
    wide = max(len(shown(row)) for row in lags.rows)
    for row, signal in zip(lags.rows, lags.signals, strict=True):
        most = [
            f"{f'{signal.named(c)}, ' if signal.several else ''}{signal.axis.span(*signal.windows[w])} "
            f"{signal.amount(float(signal.sums[w, c]), float(signal.errors[w, c]))}"
            for w, c in signal.strongest(count)
        ]
        lines.append(f"  {shown(row):<{wide}}  {'; '.join(most)}")
    return "\n".join(lines)


def _blocks(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], wide: int) -> str:
    parts = [float(part.mean()) for part in np.array_split(values, min(wide, len(values)))]
    low, high = min(parts), max(parts)
    return "".join(BLOCKS[1 + round(7 * (part - low) / (high - low or 1.0))] for part in parts)


def _signs(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], wide: int) -> str:
    parts = [float(np.nan_to_num(part).sum()) for part in np.array_split(values, min(wide, len(values)))]
    least = 0.15 * (max(map(abs, parts)) or 1.0)
    return "".join("+" if part > least else "−" if part < -least else "·" for part in parts)
