"""Pages of explained sequences: one with its logo in large, or many with a logo each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from ...certificate import Certificate
from ...words import number, plus_minus
from ..certificate_text import grade, trust
from ..escaping import escape
from ..glance import GLANCE, Entry, Export, badge, collection, export_buttons, glance, glance_script, said
from ..html import document, origin, wide_table
from .logo_data import Logo, Seqlet
from .logo_svg import logo_svg, overview_svg

MOST_LETTERS = 4000
"""The most positions on a page, with more of which a browser becomes slow: those around the strongest stretch."""

TICK = 10
"""Every so many positions have a number under them."""

HIGH, HIGH_BELOW = 150, 110
"""The heights of the logo, and of the one of hypothetical contributions, in pixels."""

STYLE = """
[data-logo]{--col:14px;margin:0 0 .75rem}
.strip{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--paper)}
.strip>div{width:calc(var(--col)*var(--count));min-width:100%;padding:.4rem 0 .2rem}
.strip:focus-visible{outline:3px solid var(--focus)}
svg.logo,svg.overview{display:block;width:100%;overflow:visible}
svg.overview{cursor:pointer;margin:0 0 .4rem;border-bottom:1px solid var(--line);touch-action:none}
.bars-all{fill:var(--soft)}
.seen{fill:var(--focus);opacity:.14}
.seqlet{fill:var(--card)}
.zero{stroke:var(--soft);stroke-width:1;vector-effect:non-scaling-stroke}
.hit{fill:transparent}
svg.logo use{pointer-events:none}
.col.saying .hit,.col:hover .hit{fill:var(--focus);opacity:.16}
.col:focus{outline:none}
.col:focus-visible .hit{fill:var(--focus);opacity:.3}
.ticks{position:relative;height:1.15rem;font-size:.72rem;color:var(--soft);font-variant-numeric:tabular-nums}
.ticks span{position:absolute;transform:translateX(-50%)}
.ticks .last{left:auto;right:0;transform:none}
.which{position:sticky;left:.6rem;display:inline-block;font-size:.78rem;color:var(--soft);margin:.35rem 0 0 .6rem}
.seqlets td,.seqlets th{padding:.25rem 1rem .25rem 0;font-variant-numeric:tabular-nums;white-space:nowrap}
.seqlets th{font-weight:500;color:var(--soft)}
.seqlets td:first-child{font-family:ui-monospace,monospace;white-space:normal;overflow-wrap:anywhere}
.seqlets,.numbers{width:auto}
.numbers td,.numbers th{padding:.1rem 1rem .1rem 0;font-variant-numeric:tabular-nums;white-space:nowrap}
.card{border-top:1px solid var(--line);padding:.75rem 0 .25rem}
.card h2{margin:0;font-size:1.0625rem}
/* two hundred letters fit a desk's screen */
.card [data-logo]{--col:6px}
.card .badge{float:right;margin-left:.75rem}
@media(prefers-color-scheme:dark){svg.logo use{filter:brightness(1.45)}}
@media print{.strip{overflow:visible}}
""".strip()


@cache
def logo_script() -> str:
    """The JavaScript of logos, to be included once in a page."""
    text = resources.files(__package__).joinpath("logo_page.js").read_text(encoding="utf-8")
    return '"use strict";\n{\n' + text + "}\n"


def page(
    logos: Sequence[Logo], *, title: str, lead: str = "", meta: Mapping[str, str] | None = None, command: str | None = None
) -> str:
    """A page of sequences; see :func:`integrand.render.sequence.page`."""
    made = origin(meta or {}, command)
    if len(logos) == 1:
        one = logos[0]
        verdict = one.verdict[:1].upper() + one.verdict[1:]
        heading, body = f"{one.name}: {one.verdict}" if one.name else verdict, _single(one)
    else:
        heading, body = title, _many(logos, lead)
    return document(heading, body + made, style=f"{GLANCE}\n{STYLE}", scripts=(glance_script(), logo_script()))


def _single(logo: Logo) -> str:
    start, end = window_of(logo)
    heed = list(logo.notes)
    if end - start < len(logo.letters):
        heed.append(
            f"Positions {start + 1} to {end} of {len(logo.letters):,}, around the strongest stretch; a .json file has them all."
        )
    pane = strip(logo, start, end)
    saves = export_buttons(
        Export("svg", "logo", "logo.svg"), Export("png", "logo", "logo.png"), Export("csv", "numbers", "attributions.csv")
    )
    first = glance(logo.sentence, pane, badges=badge(logo.certificate), heed=heed)
    return f"{first}{saves}{_seqlets(logo.seqlets)}{_reading(logo)}{_numbers(logo)}"


def window_of(logo: Logo, most: int = MOST_LETTERS) -> tuple[int, int]:
    """The positions that a page shows: all of them, or so many around the strongest stretch."""
    length = len(logo.letters)
    if length <= most:
        return 0, length
    middle = (logo.seqlets[0].start + logo.seqlets[0].end) // 2 if logo.seqlets else length // 2
    start = max(0, min(middle - most // 2, length - most))
    return start, start + most


def strip(logo: Logo, start: int, end: int, *, name: str = "logo", high: int = HIGH, small: bool = False) -> str:
    """The logo in a part of the page that scrolls by itself, with hypothetical contributions below and an overview above.

    Args:
        logo: the sequence.
        start: the first position that is drawn, from 0.
        end: the one after the last.
        name: the ``id`` of the logo.
        high: its height in pixels.
        small: without hypothetical contributions, for one of many.
    """
    count = end - start
    ticks = "".join(
        # In the middle below its letter; at the right edge half of it would be cut off, and 200 read as 20.
        (
            f'<span class="last">{i + 1}</span>'
            if i >= end - 2
            else f'<span style="left:{100 * (i - start + 0.5) / count:.4f}%">{i + 1}</span>'
        )
        for i in range(start, end)
        if (i + 1) % TICK == 0
    )
    drawn = logo_svg(logo, start, end, name=name, high=high, label="what each letter contributes", speaks=not small)
    below = ""
    if logo.hypothetical is not None and not small:
        what = "If another letter stood there: hypothetical contributions"
        shown = logo_svg(logo, start, end, name="hypothetical", high=HIGH_BELOW, label=what, hypothetical=True, speaks=False)
        below = f'<span class="which">{escape(what)}</span>\n{shown}'
    prompt = "Point at a letter, touch it, or use the arrow keys, to read its number."
    overview = overview_svg(logo, start, end) if count > 80 and not small else ""
    tools = (
        '<div class="tools"><label>width of a letter<input type="range" min="3" max="40" value="14" data-zoom></label></div>'
    )
    inner = f'<div style="--count:{count}">{drawn}<div class="ticks">{ticks}</div>\n{below}</div>'
    scroll = f'<div class="strip" data-strip tabindex="0" role="group" aria-label="sequence logo">{inner}</div>\n'
    if small:
        return f"<div data-logo>{scroll}</div>\n"
    middles = [(one.start + one.end) // 2 for one in logo.seqlets if start <= one.start < end]
    first = f' data-first="p{middles[0] + 1}"' if middles else ""
    return f"<div data-logo data-sayings{first}>\n{said(prompt)}{overview}{scroll}{tools}</div>\n"


def _seqlets(seqlets: Sequence[Seqlet]) -> str:
    if not seqlets:
        return ""
    several = any(math.isfinite(one.spread) for one in seqlets)
    head = "<tr><th>letters</th><th>positions</th><th>add up to</th>" + ("<th>baselines</th>" if several else "") + "</tr>"
    rows = "".join(
        f"<tr><td>{escape(one.letters)}</td>"
        f'<td><a href="#p{one.start + 1}" data-goto="p{(one.start + one.end) // 2 + 1}">{escape(one.place)}</a></td>'
        f'<td data-value="{one.value:.17g}">{escape(plus_minus(one.value, one.error))}</td>'
        + (f"<td>± {escape(number(one.spread, 2))}</td>" if several else "")
        + "</tr>\n"
        for one in seqlets
    )
    table = f'<table class="seqlets" id="seqlets"><thead>{head}</thead><tbody>\n{rows}</tbody></table>'
    return f"<h2>Where it stands out</h2>\n{wide_table(table, 'Strongest stretches')}"


def _reading(logo: Logo) -> str:
    """How the numbers are to be read."""
    lines = [f"The sequence is compared with {logo.baseline}." if logo.baseline else ""]
    lines.append("± is by how much the integration may be off.")
    if logo.spread is not None:
        lines.append("Under “baselines” is the standard error of the mean over them: what other shuffles would change.")
    lines.append("A stretch is shaded where letters of one sign, with at least a fifth of the strongest, stand close together.")
    return f'<p class="rest">{escape(" ".join(filter(None, lines)))}</p>\n'


def _numbers(logo: Logo) -> str:
    """All positions as a table."""
    more = "" if logo.hypothetical is None else "".join(f"<th>{escape(letter)}</th>" for letter in logo.alphabet)
    spread = "" if logo.spread is None else "<th>baselines ±</th>"
    rows = []
    for i in range(*window_of(logo)):
        cells = [f"<td>{i + 1}</td><td>{escape(logo.letters[i])}</td>"]
        numbers = [float(logo.values[i]), float(logo.errors[i])]
        numbers += [] if logo.spread is None else [float(logo.spread[i])]
        numbers += [] if logo.hypothetical is None else [float(v) for v in logo.hypothetical[:, i]]
        cells += [f'<td data-value="{value!r}">{escape(number(value, 3))}</td>' for value in numbers]
        rows.append(f"<tr>{''.join(cells)}</tr>\n")
    head = f"<tr><th>position</th><th>letter</th><th>value</th><th>±</th>{spread}{more}</tr>"
    table = f'<table class="numbers" id="numbers"><thead>{head}</thead><tbody>\n{"".join(rows)}</tbody></table>'
    return f"<details><summary>All numbers</summary>\n{wide_table(table, 'All numbers')}</details>\n"


def _many(logos: Sequence[Logo], lead: str) -> str:
    whole = Certificate(tuple(one.certificate for one in logos))
    said_of = {one.said for one in logos if one.said}
    told = f"{len(logos)} sequences"
    if said_of:
        counts = ", ".join(f"{sum(one.said == name for one in logos)} {name}" for name in sorted(said_of))
        told += f": {counts}"
    notes = f'<p class="rest">{escape(lead)}</p>\n' if lead else ""
    cards = [_card(i, one) for i, one in enumerate(logos)]
    return f"{glance(f'{told}; {trust(whole)}.', badges=badge(whole))}{notes}{collection(cards, noun='sequence')}"


def _card(i: int, logo: Logo) -> Entry:
    name = logo.name or f"Sequence {i + 1}"
    start, end = window_of(logo, 1000)
    marks = badge(logo.certificate) if grade(logo.certificate) != "good" else ""
    drawn = strip(logo, start, end, name=f"logo-{i}", high=90, small=True)
    notes = "".join(f'<p class="heed">{escape(note)}</p>\n' for note in logo.notes)
    html = f'{marks}<h2>{escape(name)}</h2>\n<p class="rest">{escape(logo.sentence)}</p>\n{notes}{drawn}'
    kinds = {"says": logo.said} if logo.said else {}
    order = {"highest score first": -logo.certificate.score}
    if logo.probability is not None:
        order["least certain first"] = logo.probability
    return Entry(html, f"{name} {logo.letters.upper()} {logo.sentence}", kinds, order)
