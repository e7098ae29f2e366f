"""The page of an explained series, and of an explained forecast: the sentence, the picture, the numbers, the certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...certificate import Certificate, ExampleCertificate
from ..escaping import escape
from ..glance import GLANCE, Export, badge, export_buttons, glance, glance_script, said
from ..html import document, origin, wide_table
from .lag_map import LAGS, LagMap, lag_plot
from .signal import AttributedSignal
from .signal_svg import PLOTS, Across, Ahead, channel_plot, history_plot, picture_key, reach_of, time_marks

MOST_CHANNELS, MANY = 12, 3
"""Channels that are drawn, the strongest; and from how many on each is drawn lower."""

MOST_PANES = 36
"""Horizons that can be looked at one by one."""

PROMPT = "Point at the signal, touch it, or walk along it with the arrow keys, to read what a stretch adds."

PANES = """
.one{border:0;padding:0;margin:1rem 0;min-width:0}
.one legend{font-size:1.25rem;font-weight:650;padding:0;margin:0 0 .5rem}
.one>input{position:absolute;opacity:0}
.one>label{display:inline-block;border:1px solid var(--line);border-radius:8px;padding:.2rem .6rem;margin:0 .25rem .35rem 0;
font-size:.875rem;cursor:pointer;order:0}
.one>input:checked+label{border-color:var(--focus);color:var(--focus);font-weight:650}
.one>input:focus-visible+label{outline:3px solid var(--focus);outline-offset:2px}
.one .pane{display:none;order:1;flex:0 0 100%;min-width:0}
.one>input:checked+label+.pane{display:block}
.one{display:flex;flex-wrap:wrap}
.windows-table :is(td,th){white-space:nowrap;font-variant-numeric:tabular-nums;padding:.2rem .9rem .2rem 0;text-align:right}
.windows-table th:first-child{text-align:left}
""".strip()


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
    """The page of a series.

    Args:
        signal: what is drawn.
        title: the heading.
        says: the answer in a sentence.
        certificate: how far the numbers can be trusted.
        notes: what a reader must not miss.
        meta: how it was made.
        command: what makes it again.
    """
    tools = export_buttons(
        Export("png", "picture", "series.png", "Save the picture"), Export("csv", "sums", "windows.csv", "Save the sums as CSV")
    )
    body = "".join(
        (
            glance(says, badges=badge(certificate), heed=notes),
            f'<div data-sayings>\n<div id="picture">{plots(signal)}</div>\n{picture_key()}{said(PROMPT)}</div>\n',
            tools,
            f"<details><summary>The sums over windows, with their errors</summary>\n{window_table(signal)}</details>\n",
            _reading(signal),
            origin(meta or {}, command),
        )
    )
    return document(title, body, style=f"{GLANCE}\n{PLOTS}\n{PANES}", scripts=(glance_script(),))


def plots(signal: AttributedSignal, lags: LagMap | None = None, *, row: int = 0) -> str:
    """All channels of a signal over one axis of times; of very many, the strongest.

    Args:
        signal: what is drawn.
        lags: the forecast that it belongs to, if any; the axis then goes on.
        row: which of the forecasts.
    """
    across = Across(signal.axis if lags is None else lags.axis)
    reach = reach_of([signal])
    strongest = np.argsort(-np.abs(np.nan_to_num(signal.sums)).sum(0), kind="stable")[:MOST_CHANNELS]
    many = " many" if len(signal.names) > MANY else ""
    drawn = ""
    for channel in sorted(int(c) for c in strongest):
        ahead = None
        if lags is not None and channel == lags.channel:
            chosen = (lags.horizons[row],) if lags.horizons else ()
            ahead = Ahead(lags.ahead.values, lags.ahead.base, chosen)
        drawn += channel_plot(signal, channel, across, reach=reach, ahead=ahead)
    hidden = len(signal.names) - len(strongest)
    left = f'<p class="rest">{hidden} more channels add less; the sums below have all.</p>\n' if hidden else ""
    return f'<div class="plots{many}">\n{drawn}{time_marks(across.axis)}</div>\n{left}'


def forecast_page(
    lags: LagMap,
    *,
    title: str,
    says: str,
    each: Sequence[str],
    certificate: Certificate,
    notes: Sequence[str] = (),
    meta: Mapping[str, str] | None = None,
    command: str | None = None,
) -> str:
    """The page of a forecast: the history with the forecast, the heat map under it, and each horizon by itself.

    Args:
        lags: what is drawn.
        title: the heading.
        says: the answer in a sentence.
        each: a sentence for each row.
        certificate: of all rows.
        notes: what a reader must not miss.
        meta: how it was made.
        command: what makes it again.
    """
    several = len(lags.rows) > 1
    across = Across(lags.axis)
    tools = export_buttons(
        Export("png", "picture", "forecast.png", "Save the picture"), Export("csv", "sums", "lags.csv", "Save the sums as CSV")
    )
    if several:
        top = history_plot(lags.signals[0], lags.channel, across, lags.ahead) + "".join(
            lag_plot(lags, c) for c in range(len(lags.signals[0].names[:MOST_CHANNELS]))
        )
        picture = f'<div class="plots">{top}{time_marks(lags.axis)}</div>\n'
    else:
        picture = plots(lags.signals[0], lags)
    body = "".join(
        (
            glance(says, badges=badge(certificate), heed=notes),
            f'<div data-sayings>\n<div id="picture">{picture}</div>\n{picture_key(ahead=True)}{said(PROMPT)}</div>\n',
            tools,
            _panes(lags, each) if several else "",
            f"<details><summary>The sums over windows, with their errors</summary>\n{lag_table(lags)}</details>\n",
            _reading(lags.signals[0]),
            origin(meta or {}, command),
        )
    )
    return document(title, body, style=f"{GLANCE}\n{PLOTS}\n{LAGS}\n{PANES}", scripts=(glance_script(),))


def _panes(lags: LagMap, each: Sequence[str]) -> str:
    """Each horizon by itself, to be chosen; works without JavaScript."""
    shown = range(min(len(lags.rows), MOST_PANES))
    strongest = max(shown, key=lambda r: float(np.abs(np.nan_to_num(lags.signals[r].sums)).max()))
    parts = ""
    for r in shown:
        checked = " checked" if r == strongest else ""
        pane = f'<p class="says">{escape(each[r])}</p>\n{plots(lags.signals[r], lags, row=r)}{said(PROMPT)}'
        parts += (
            f'<input type="radio" name="horizon" id="horizon-{r}"{checked}>'
            f'<label for="horizon-{r}">{escape(lags.rows[r])}</label>\n'
            f'<div class="pane" data-sayings>\n{pane}</div>\n'
        )
    return f'<fieldset class="one"><legend>One forecast at a time</legend>\n{parts}</fieldset>\n'


def window_table(signal: AttributedSignal) -> str:
    """The sums over windows with their errors as an HTML table, with those of the channels below."""
    head = "".join(f'<th scope="col">{escape(name)}</th><th scope="col">error</th>' for name in signal.names)
    rows = "".join(
        f'<tr><th scope="row">{escape(signal.axis.span(*window))}</th>'
        + "".join(_two(float(signal.sums[w, c]), float(signal.errors[w, c])) for c in range(len(signal.names)))
        + "</tr>\n"
        for w, window in enumerate(signal.windows)
    )
    totals = "".join(_two(float(v), float(e)) for v, e in zip(signal.totals, signal.total_errors, strict=True))
    foot = f'<tr><th scope="row">all</th>{totals}</tr>\n'
    return _wide(head, rows + foot)


def lag_table(lags: LagMap) -> str:
    """The sums over windows for every row of a forecast as an HTML table."""
    first = lags.signals[0]
    head = "".join(f'<th scope="col">{escape(name)}</th><th scope="col">error</th>' for name in lags.rows)
    rows = ""
    for c, channel in enumerate(first.names):
        for w, window in enumerate(first.windows):
            name = f"{channel}, {first.axis.span(*window)}" if first.several else first.axis.span(*window)
            cells = "".join(_two(float(one.sums[w, c]), float(one.errors[w, c])) for one in lags.signals)
            rows += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>\n'
    return _wide(head, rows)


def _wide(head: str, rows: str) -> str:
    top = f'<thead><tr><th scope="col">time</th>{head}</tr></thead>'
    return wide_table(f'<table class="windows-table" id="sums">{top}<tbody>\n{rows}</tbody></table>', "Sums over windows")


def _two(value: float, error: float) -> str:
    shown = f"{value:+.3g}".replace("-", "−")
    off = f"{error:.1g}" if np.isfinite(error) else "?"
    return f'<td data-value="{value!r}">{shown}</td><td data-value="{error!r}">{off}</td>'


def _reading(signal: AttributedSignal) -> str:
    text = (
        "The line is the signal and the dashed line the baseline, where the path of integration starts. Each bar beneath is "
        "what one value adds to the score: red raises it, blue lowers it. All bars add up to the change of the score from the "
        "baseline to the signal. The tint behind the signal is the sum over a window; its error is by how much it may be off. "
        "A value that equals its baseline adds nothing, whatever the model makes of it."
    )
    axis = "" if signal.axis.even else " The times are not evenly spaced, and are drawn where they are."
    return f"<details><summary>How to read the picture</summary>\n<p>{text}{axis}</p></details>\n"
