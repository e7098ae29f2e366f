"""The page of a graph: what the model says, the graph beside bars of what matters most, tables below. Every text is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...render.escaping import escape
from ...render.glance import GLANCE, Export, badge, export_buttons, glance, glance_script, said, saying
from ...render.graph.graph_drawing import GraphDrawing, svg_of, told
from ...render.html import document, origin
from ...render.molecule.molecule_drawing import DARK, LIGHT
from ...words import plus_minus
from .result import Floats

if TYPE_CHECKING:
    from .result import GraphAttribution

FIRST = 12
"""Bars beside the drawing; all others are in the tables below."""

MOST_ROWS = 2000
"""The most rows of a table on the page; files have all."""

STYLE = """
.graph .glance{grid-template-columns:minmax(0,8fr) minmax(0,5fr);gap:.5rem 2rem}
.sheet{overflow:auto;text-align:center}
.sheet svg{width:100%;height:auto;max-height:min(62vh,40rem)}
.sheet .link{stroke:var(--line)}
.sheet .link.told{stroke:var(--l)}
.sheet .node{fill:var(--l);stroke:var(--soft)}
.sheet .arrow{fill:var(--soft)}
.sheet .ring{stroke:var(--ink)}
.sheet .label{fill:var(--ink);stroke:var(--paper);stroke-width:2.5px;stroke-opacity:.65;paint-order:stroke}
.sheet [data-says]{outline:none;cursor:pointer}
.sheet .node:is(.saying,.across,:focus-visible){stroke:var(--focus);stroke-width:3}
.sheet .link:is(.saying,.across,:focus-visible){stroke:var(--focus)}
.key{display:flex;gap:.6rem;align-items:center;max-width:28rem;margin:.35rem auto .1rem;font-size:.8125rem;color:var(--soft)}
.key .ramp{flex:1;margin:0;height:.7rem;background:RAMP}
figure .said{min-height:2.8em;margin:.25rem 0}
.side h3{margin:.2rem 0 .3rem}
.parts{table-layout:auto}
.parts thead th{font-weight:400;font-size:.8125rem;color:var(--soft)}
.parts th[scope=row]{font-weight:400;max-width:14rem;overflow-wrap:break-word}
.parts :is(th,td){padding:.16rem .6rem .16rem 0}
.parts :is(td,thead th):nth-child(3){white-space:nowrap;text-align:right;padding:.16rem .25rem .16rem .8rem;
font-variant-numeric:tabular-nums}
.parts .track{min-width:4rem;width:40%;padding:0}
.parts .track i{top:.2rem;bottom:auto;height:1.1rem}
.parts .p{left:50%;background:FOR}
.parts .n{right:50%;background:AGAINST}
.parts tr:is(.saying,.across){background:var(--card)}
.rows{max-height:24rem;overflow:auto}
.rows:focus-visible{outline:2px solid var(--focus)}
.more{border-top:1px solid var(--line);margin:0;padding:.55rem 0}
.more>summary{color:var(--ink);font-weight:550}
@media(prefers-color-scheme:dark){.sheet .link.told{stroke:var(--d)}.sheet .node{fill:var(--d)}
.key .ramp{background:DARKER}}
@media(max-width:40rem){.parts .track{width:28%;min-width:3.5rem}}
@media(max-width:56rem){.graph .glance{grid-template-columns:minmax(0,1fr)}}
""".strip()

Part = tuple[str, float, float, str]
"""A row of a table: name, value, error, and the key that it shares with its mark in the drawing."""


def build(result: GraphAttribution, *, title: str | None, command: str | None) -> str:
    """The page as HTML.

    Args:
        result: what was found.
        title: the heading; by default what the model says.
        command: what makes the page again.
    """
    drawing = result.drawing()
    nodes, links = _nodes(result), _links(result)
    first = sorted([*nodes, *links], key=lambda part: -abs(part[1]))[:FIRST]
    about = "The strongest nodes and edges" if links else "The strongest nodes"
    left = len(nodes) + len(links) - len(first)
    more = f'<p class="rest">and {left:,} more below</p>' if left > 0 else ""
    side = f'<div class="side"><h3>{escape(about)}</h3>\n{_table(first, "part", "first")}{more}</div>\n'
    top = glance(result.sentence, _figure(drawing), side, badges=badge(result.certificate), heed=result.notes)
    body = f'<section class="graph" data-sayings>\n{top}</section>\n{_details(result, nodes, links)}'
    heading = title or result.answer
    return document(heading, body + origin(result.meta, command), style=f"{GLANCE}\n{_style()}", scripts=(glance_script(),))


def _style() -> str:
    colours = {"RAMP": LIGHT.ramp, "DARKER": DARK.ramp, "FOR": LIGHT.lines[1], "AGAINST": LIGHT.lines[0]}
    found = STYLE
    for name, colour in colours.items():
        found = found.replace(name, colour)
    return found


def _figure(drawing: GraphDrawing) -> str:
    limit = drawing.limit
    low, high = (f"lowers it −{limit:.2g}", f"+{limit:.2g} raises it") if limit else ("all zero", "")
    key = f'<p class="key"><span>{escape(low)}</span><span class="ramp"></span><span>{escape(high)}</span></p>'
    if drawing.link_limit:
        key += f'<p class="rest">Edges likewise; the widest line is {drawing.link_limit:.2g}.</p>'
    if drawing.left_out:
        key += f'<p class="rest">{escape(drawing.left_out)}</p>'
    sheet = f'<div class="sheet" id="picture">{svg_of(drawing, ident="drawn", live=True)}{key}</div>\n'
    exports = (Export("png", "picture", "graph.png"), Export("csv", "all-nodes", "nodes.csv", "Nodes as CSV"))
    prompt = "Point at or touch a node, an edge or a bar; arrow keys move on."
    return f"<figure>{sheet}{said(prompt)}{export_buttons(*exports)}</figure>\n"


def _nodes(result: GraphAttribution) -> list[Part]:
    sums = result.sums
    pairs = zip(sums.nodes.tolist(), sums.node_errors.tolist(), strict=True)
    return [(result.name(i), value, error, f"n{i}") for i, (value, error) in enumerate(pairs)]


def _links(result: GraphAttribution) -> list[Part]:
    sums = result.sums
    each = zip(sums.links.tolist(), sums.link_values.tolist(), sums.link_errors.tolist(), strict=False)
    return [(result.link_name(k), value, error, f"e{a}-{b}") for k, ((a, b), value, error) in enumerate(each)]


def _columns(values: Floats, errors: Floats, names: Sequence[str]) -> list[Part]:
    return [(name, float(v), float(e), "") for name, v, e in zip(names, values, errors, strict=True)]


def _details(result: GraphAttribution, nodes: list[Part], links: list[Part]) -> str:
    """Tables of everything, each of which opens."""
    sums = result.sums
    parts = [(f"All nodes ({len(nodes):,})", nodes, "node", "all-nodes")]
    parts += [(f"All edges ({len(links):,})", links, "edge", "all-edges")] if links else []
    features = _columns(sums.features, sums.feature_errors, [result.feature(i) for i in range(len(sums.features))])
    parts += [("Features of nodes, over all nodes", features, "feature", "all-features")] if len(features) > 1 else []
    others = _columns(
        sums.edge_features, sums.edge_feature_errors, [result.edge_feature(i) for i in range(len(sums.edge_features))]
    )
    parts += [("Features of edges, over all edges", others, "feature", "all-edge-features")] if others else []
    return "".join(
        f'<details class="more"><summary>{escape(name)}</summary>\n<div class="rows" tabindex="0" role="group" '
        f'aria-label="{escape(name)}">{_table(_strongest(rows), what, mark)}</div>{_rest(rows)}</details>\n'
        for name, rows, what, mark in parts
    )


def _strongest(rows: Sequence[Part]) -> list[Part]:
    return sorted(rows, key=lambda part: -abs(part[1]))[:MOST_ROWS]


def _rest(rows: Sequence[Part]) -> str:
    more = len(rows) - MOST_ROWS
    return f'<p class="rest">and {more:,} that matter less; a .csv file has all</p>' if more > 0 else ""


def _table(rows: Sequence[Part], what: str, mark: str) -> str:
    reach = max((abs(value) for _, value, _, _ in rows if math.isfinite(value)), default=0.0) or 1.0
    body = "".join(_row(part, reach) for part in rows)
    heads = f'<th scope="col">{escape(what)}</th><th scope="col" data-csv="no" aria-label="bar"></th>'
    heads += '<th scope="col">adds</th><th scope="col" hidden>error</th>'
    return f'<table class="parts" id="{escape(mark)}"><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table>\n'


def _row(part: Part, reach: float) -> str:
    name, value, error, key = part
    size = 50 * min(1.0, abs(value) / reach) if math.isfinite(value) else 0.0
    bar = f'<i class="{"p" if value > 0 else "n"}" style="width:{size:.2f}%"></i>'
    marked = f' data-row="{escape(key)}"' if key else ""
    off = repr(error) if math.isfinite(error) else ""
    return (
        f'<tr{marked}{saying(told(name, value, error), reachable=False)}><th scope="row">{escape(name)}</th>'
        f'<td class="track" data-csv="no">{bar}</td><td data-value="{value:.17g}">{escape(plus_minus(value, error))}</td>'
        f'<td hidden data-value="{off}"></td></tr>\n'
    )
