"""The first screen of every page: one sentence, the input, the picture that answers, and the certificate as a badge that opens.

Besides, what every page can do: say a value where it is pointed at, touched or reached by keyboard; write the present view as
a picture and tables as CSV; sort, filter and search many results. Without JavaScript everything shows, and nothing can be
pressed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal

from ..certificate import Certificate, ExampleCertificate
from .certificate_text import cancelling, grade, promises, trust, verdict
from .escaping import escape
from .html import fact_table

GLANCE = """
main{max-width:80rem;padding-top:1.25rem}
h1{font-size:clamp(1.4rem,3.2vw,2rem)}
h1 small{font-weight:400;font-size:.7em;color:var(--soft);letter-spacing:0}
.says{font-size:clamp(1rem,1.6vw,1.15rem);margin:0 0 .5rem;max-width:62rem;overflow-wrap:anywhere}
.badge a{color:inherit;text-decoration:underline}
.heed{margin:0 0 .5rem;padding:.4rem .75rem;border-radius:8px;background:var(--mixed-bg);color:var(--ink);font-size:.9375rem}
.glance{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(19rem,100%),1fr));gap:.75rem 1.5rem;align-items:start;
margin:0 0 .75rem}
.glance>*{min-width:0}
.badge{display:inline-block;margin:0 .5rem .5rem 0;font-size:.875rem;max-width:100%;vertical-align:top}
.badge>summary{display:inline-block;list-style:none;border-radius:999px;padding:.2rem .75rem;border:1px solid currentColor;
color:var(--soft);cursor:pointer}
.badge>summary::-webkit-details-marker{display:none}
.badge>summary::before{content:"✓ "}
.badge:not(.good)>summary::before{content:"⚠ "}
.badge>summary::after{content:" ▾"}
.badge.good>summary{color:var(--good);background:var(--good-bg)}
.badge.bad>summary{color:var(--bad);background:var(--bad-bg)}
.badge.mixed>summary{color:var(--mixed);background:var(--mixed-bg)}
.badge[open]{display:block;border:1px solid var(--line);border-radius:12px;padding:.75rem 1rem;margin-bottom:1rem}
.badge[open]>summary{margin-bottom:.75rem}
.badge[open]>summary::after{content:" ▴"}
summary:focus-visible,[data-says]:focus-visible,.tools :is(button,input,select):focus-visible{outline:3px solid var(--focus);
outline-offset:2px}
.tools{display:flex;flex-wrap:wrap;gap:.5rem;align-items:end;margin:0 0 .75rem;font-size:.875rem}
.tools :is(button,input,select){font:inherit;color:var(--ink);background:var(--paper);border:1px solid var(--line);
border-radius:8px;padding:.3rem .7rem;min-height:2rem;max-width:100%}
.tools button{cursor:pointer}
.tools :is(button,input,select):hover{border-color:var(--soft)}
.tools label{display:grid;grid-template-columns:minmax(0,auto);max-width:100%;gap:.15rem;color:var(--soft)}
.tools output{color:var(--soft);align-self:center}
.said{display:block;min-height:1.5em;font-size:.9375rem;margin:.25rem 0 .5rem;color:var(--soft);
font-variant-numeric:tabular-nums}
html:not(.live) :is(.tools,.said){display:none}
.card[hidden]{display:none}
[data-says]{cursor:default}
@media(max-width:40rem){main{padding:.75rem 1rem 3rem}.says{margin-bottom:.35rem}
.tools :is(button,input,select){min-height:2.5rem}
.badge>summary{padding:.35rem .85rem}}
@media print{.tools,.said{display:none}}
""".strip()
"""CSS of the parts below, beyond that of every page."""

Exported = Literal["png", "svg", "csv"]


@cache
def glance_script() -> str:
    """The JavaScript of these parts, to be included once in a page."""
    text = resources.files(__package__).joinpath("glance.js").read_text(encoding="utf-8")
    return '"use strict";\n{\n' + text + "}\n"  # a block, so that no name leaves it


@dataclass(frozen=True, slots=True)
class Export:
    """A button that writes a part of the page to a file of the reader's.

    Attributes:
        kind: ``png`` and ``svg`` write the part as it looks now (``svg`` only for an SVG element), ``csv`` a table's numbers.
        part: the ``id`` of the element: a canvas, an SVG or any other element for a picture, a table for CSV. Of a table, cells
            with ``data-value`` give that instead of their text, rows or cells with ``data-csv="no"`` are left out.
        file: the name of the file.
        label: what the button says; by default "Save PNG" and the like.
    """

    kind: Exported
    part: str
    file: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One of many results on a page.

    Attributes:
        html: what it shows.
        text: what a search looks through.
        kinds: what it can be filtered by, such as ``{"class": "yes-no"}``.
        order: what it can be sorted by, such as ``{"least certain first": 0.03}``, smallest first.
    """

    html: str
    text: str
    kinds: Mapping[str, str] = field(default_factory=dict)
    order: Mapping[str, float] = field(default_factory=dict)


def badge(certificate: Certificate | ExampleCertificate, *, label: str = "") -> str:
    """The certificate as a small badge that opens.

    Args:
        certificate: that of one example; of several, the badge counts them and lists those that need attention.
        label: what the numbers belong to, where a page has several badges.
    """
    whole = certificate if isinstance(certificate, Certificate) else Certificate((certificate,))
    said = trust(certificate)
    body = "".join(f"{verdict(one)}\n{cancelling(one)}{fact_table(one)}" for one in whole.examples) if len(whole) == 1 else ""
    if len(whole) > 1:
        doubtful = [one for one in whole.examples if grade(one) != "good"]
        body = "".join(verdict(one) + "\n" for one in doubtful[:5]) or verdict(max(whole.examples, key=lambda one: one.error))
        body += f'<p class="rest">and {len(doubtful) - 5} more</p>' if len(doubtful) > 5 else ""
    kept = promises(whole)
    body += f'<p class="rest">{escape(kept)}</p>' if kept else ""
    words = f"{label}: {said}" if label else said[:1].upper() + said[1:]
    return f'<details class="badge {grade(certificate)}"><summary>{escape(words)}</summary>\n{body}</details>\n'


def glance(says: str, *panes: str, badges: str = "", heed: Iterable[str] = ()) -> str:
    """The first screen under a page's heading.

    Args:
        says: the answer in one sentence of the reader's words; plain text.
        *panes: HTML of the input and of the picture that answers, side by side where there is room.
        badges: HTML of one or more :func:`badge`.
        heed: warnings that a reader must not miss, such as what the network never saw; plain text.
    """
    warnings = "".join(f'<p class="heed">{escape(text)}</p>\n' for text in heed)
    shown = f'<div class="glance">\n{"".join(panes)}</div>\n' if panes else ""
    return f'<p class="says">{escape(says)}</p>\n{warnings}{badges}{shown}'


def export_buttons(*exports: Export) -> str:
    """Buttons that write parts of the page to files."""
    buttons = "".join(
        f'<button type="button" data-export="{escape(one.kind)}" data-part="{escape(one.part)}" data-file="{escape(one.file)}">'
        f"{escape(one.label or f'Save {one.kind.upper()}')}</button>"
        for one in exports
    )
    return f'<div class="tools">{buttons}</div>\n' if exports else ""


def saying(text: str, *, reachable: bool = True) -> str:
    """Attributes of an element that has something to say when it is pointed at, touched or reached by keyboard.

    Inside an element with ``data-sayings`` the text goes to that element's :func:`said`; arrow keys move between neighbours.
    What has the same ``data-row`` or ``data-column`` there gets the class ``across`` meanwhile.

    Args:
        text: what it says; plain text.
        reachable: whether the tab key may stop here. The script lets it stop once for all elements of a group.
    """
    return f' data-says="{escape(text)}"' + (' tabindex="0"' if reachable else "")


def said(prompt: str) -> str:
    """Where a group of :func:`saying` elements is read: a line that begins with how to use it."""
    return f'<output class="said" data-said data-prompt="{escape(prompt)}">{escape(prompt)}</output>\n'


def collection(cards: Sequence[Entry], *, summary: str = "", noun: str = "result") -> str:
    """Many results with a search, filters and an order above them, as an HTML fragment.

    Args:
        cards: the results, in the order in which they show at first.
        summary: HTML above all, such as a table of classes.
        noun: what one result is called.
    """
    kinds = {name: sorted({card.kinds[name] for card in cards if name in card.kinds}) for name in _names(cards, "kinds")}
    filters = "".join(
        f"<label>{escape(name)}<select data-filter={_quoted(name)}><option value=''>all</option>"
        + "".join(f"<option>{escape(value)}</option>" for value in values)
        + "</select></label>"
        for name, values in kinds.items()
        if len(values) > 1
    )
    orders = "".join(f"<option>{escape(name)}</option>" for name in _names(cards, "order"))
    order = f"<label>order<select data-order><option value=''>as given</option>{orders}</select></label>" if orders else ""
    search = '<label>search<input type="search" data-search></label>'
    count = f'<output data-count data-noun="{escape(noun)}"></output>'
    tools = f'<div class="tools">{search}{filters}{order}{count}</div>\n' if len(cards) > 1 else ""
    body = "".join(_card(card) for card in cards)
    return f'<div data-collection>\n{summary}{tools}<div class="cards">\n{body}</div>\n</div>\n'


def _names(cards: Sequence[Entry], what: Literal["kinds", "order"]) -> list[str]:
    return list(dict.fromkeys(name for card in cards for name in getattr(card, what)))


def _quoted(text: str) -> str:
    return f'"{escape(text)}"'


def _card(card: Entry) -> str:
    # A number that is not known has no place in an order: what lacks it comes last.
    order = {name: float(value) for name, value in card.order.items() if math.isfinite(value)}
    facts = "".join(f' data-kind-{i}="{escape(f"{name}={value}")}"' for i, (name, value) in enumerate(card.kinds.items()))
    keys = "".join(f' data-order-{i}="{escape(f"{name}={value!r}")}"' for i, (name, value) in enumerate(order.items()))
    return f'<article class="card" data-text="{escape(card.text)}"{facts}{keys}>\n' + card.html + "</article>\n"
