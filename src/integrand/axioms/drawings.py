"""A network drawn as a graph: layered SVG for a page, a tree of text for a terminal."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from ..render.html import POLICY, STYLE
from .checking import MODULES
from .formula import FormulaNetwork, plain
from .formula_network import FormulaUnit, units
from .verdict import Verdict

if TYPE_CHECKING:
    from .axiom_table import Table

COLUMN, ROW, HALF, TALL = 132, 58, 34, 17
"""Distances between columns and rows, and half the width and height of a box, in pixels."""

_STYLE = (
    "svg.net{font:13px system-ui,-apple-system,Segoe UI,Roboto,sans-serif;max-width:100%;height:auto}"
    ".net rect{fill:var(--card,transparent);stroke:var(--soft,currentColor)}.net .in rect{fill:none}"
    ".net text{fill:var(--ink,currentColor);text-anchor:middle;dominant-baseline:central}"
    ".net .w{font-size:12px;paint-order:stroke;stroke:var(--paper,Canvas);stroke-width:4px}"
    ".net .b{font-size:11px;fill:var(--soft,currentColor)}"
    ".net path{fill:none;stroke:#3b6fb6;stroke-width:1.6}.net path.neg{stroke:#c2572b;stroke-dasharray:6 3}"
)


def svg(network: FormulaNetwork) -> str:
    """The network as a layered graph, inputs on the left: boxes with activation and bias, edges with their weights."""
    parts, output = units(network)
    places = _places(network, parts)
    rows = 1 + max(row for _, row in places.values())
    columns = 1 + max(column for column, _ in places.values())
    width, height = COLUMN * (columns - 1) + 2 * HALF + 24 + 40, round(ROW * (rows - 1)) + 2 * TALL + 28

    def at(stop: Stop) -> Point:
        column, row = places[stop]
        return 12 + HALF + COLUMN * column, 14 + TALL + ROW * row

    edges, boxes = [], [_box(at((i, -1)), f"x{i + 1}", "", "in") for i in range(network.inputs)]
    for i, unit in enumerate(parts, network.inputs):
        order = sorted(range(len(unit.sources)), key=lambda k: at(_way(places, unit.sources[k], i)[-2])[1])
        for rank, k in enumerate(order):
            way = [at(stop) for stop in _way(places, unit.sources[k], i)]
            way[-1] = (way[-1][0], way[-1][1] + (rank - (len(order) - 1) / 2) * min(9, 24 / len(order)))
            edges.append(_edge(way, unit.weights[k]))
        boxes.append(_box(at((i, -1)), _label(unit), _signed(unit.bias) if unit.bias else "", "unit"))
    x, y = at((output, -1))
    leave = f'<path d="M{x + HALF:g} {y:g}h28"/>'
    lines, labels = zip(*edges, strict=True) if edges else ((), ())
    title = escape(str(network))
    return (
        f'<svg class="net" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{title}"><title>{title}</title><style>{_STYLE}</style>'
        f"{''.join(lines)}{leave}{''.join(boxes)}{''.join(labels)}</svg>"
    )


Point = tuple[float, float]
Stop = tuple[int, int]
"""A value's box, (value, -1), or the gap where the edge from a value to a later one passes a column, (value, column)."""


def _way(places: dict[Stop, tuple[int, float]], source: int, target: int) -> list[Stop]:
    first, last = places[source, -1][0], places[target, -1][0]
    return [(source, -1), *((source, column) for column in range(first + 1, last)), (target, -1)]


def _places(network: FormulaNetwork, parts: tuple[FormulaUnit, ...]) -> dict[Stop, tuple[int, float]]:
    """Column and row of every stop: columns by depth, rows near the mean of what feeds them, at least one apart."""
    depth = dict.fromkeys(range(network.inputs), 0) | {i: unit.depth for i, unit in enumerate(parts, network.inputs)}
    feeds: dict[Stop, list[Stop]] = {(i, -1): [] for i in depth}
    for i, unit in enumerate(parts, network.inputs):
        for source in unit.sources:
            stops = [(source, -1), *((source, column) for column in range(depth[source] + 1, unit.depth)), (i, -1)]
            for before, after in pairwise(stops):
                feeds.setdefault(after, []).append(before)
    places: dict[Stop, tuple[int, float]] = {(i, -1): (0, float(i)) for i in range(network.inputs)}
    for column in range(1, 1 + max(depth.values())):
        layer = [stop for stop in feeds if (depth[stop[0]] if stop[1] < 0 else stop[1]) == column]
        wish = {stop: _mean([places[before][1] for before in feeds[stop]]) for stop in layer}
        layer.sort(key=lambda stop: wish[stop])
        rows: list[float] = []
        for stop in layer:
            rows.append(max(wish[stop], rows[-1] + 1) if rows else wish[stop])
        shift = _mean([wish[stop] for stop in layer]) - _mean(rows)  # those above share the push of those pushed down
        places |= {stop: (column, row + shift) for stop, row in zip(layer, rows, strict=True)}
    top = min(row for _, row in places.values())
    return {stop: (column, row - top) for stop, (column, row) in places.items()}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _label(unit: FormulaUnit) -> str:
    return {"linear": "Σ", "mul": "×"}.get(unit.kind, unit.kind)


def _signed(value: float) -> str:
    return ("−" if value < 0 else "+") + _short(abs(value))


def _short(value: float) -> str:
    text = plain(value)
    return text if len(text) <= 6 else f"{value:.4g}"


def _box(at: Point, label: str, bias: str, kind: str) -> str:
    x, y = at
    below = f'<text class="b" x="{x:g}" y="{y + 9:g}">{escape(bias)}</text>' if bias else ""
    return (
        f'<g class="{kind}"><rect x="{x - HALF:g}" y="{y - TALL:g}" width="{2 * HALF}" height="{2 * TALL}" rx="8"/>'
        f'<text x="{x:g}" y="{y - (5 if bias else 0):g}">{escape(label)}</text>{below}</g>'
    )


def _edge(way: list[Point], weight: float) -> tuple[str, str]:
    """A curve from box to box, through the gaps between, and its label on the last stretch."""
    (x, y), *rest = way
    x += HALF
    path = f"M{x:g} {y:g}"
    for k, (stop, height) in enumerate(rest):
        end, reach = stop - HALF, (stop - HALF - x) / 2
        path += f"C{x + reach:g} {y:g} {end - reach:g} {height:g} {end:g} {height:g}"
        if k == len(rest) - 1:
            t = 0.36  # nearer to the source, where edges to the same box are still apart
            label = x + (end - x) * (1.5 * t - 1.5 * t**2 + t**3), y + (height - y) * (3 * t**2 - 2 * t**3)
        if k < len(rest) - 1:
            path += f"h{2 * HALF}"
        x, y = stop + HALF, height
    text = ("−" if weight < 0 else "") + _short(abs(weight))
    negative = ' class="neg"' if weight < 0 else ""
    return f'<path{negative} d="{path}"/>', f'<text class="w" x="{label[0]:g}" y="{label[1]:g}">{escape(text)}</text>'


def drawing(network: FormulaNetwork) -> str:
    """The network as a tree from its output to its inputs; a unit that is used again is named and not repeated.

    >>> from integrand.axioms import parse
    >>> print(drawing(parse("relu(relu(x1) - 1 - relu(x2))")))
    relu  bias -1
    ├─ 1 ─ relu
    │      └─ 1 ─ x1
    └─ -1 ─ relu
            └─ 1 ─ x2
    """
    parts, output = units(network)
    uses = [source for unit in parts for source in unit.sources]
    shared = [i for i in range(network.inputs, network.inputs + len(parts)) if uses.count(i) > 1]
    names = {number: f"h{k + 1}" for k, number in enumerate(shared)}
    lines: list[str] = []
    told: set[int] = set()

    def tell(number: int, lead: str, rest: str) -> None:
        if number < network.inputs:
            lines.append(f"{lead}x{number + 1}")
            return
        unit = parts[number - network.inputs]
        name = f"{names[number]}: " if number in names else ""
        if number in told:
            lines.append(f"{lead}{names[number]} (above)")
            return
        told.add(number)
        bias = f"  bias {plain(unit.bias)}" if unit.bias else ""
        lines.append(f"{lead}{name}{_label(unit)}{bias}")
        for k, (source, weight) in enumerate(zip(unit.sources, unit.weights, strict=True)):
            last = k == len(unit.sources) - 1
            edge = f"─ {plain(weight)} ─ "
            tell(source, rest + ("└" if last else "├") + edge, rest + (" " if last else "│") + " " * len(edge))

    tell(output, "", "")
    return "\n".join(lines)


OWN = """
.grid{overflow-x:auto;margin:0 0 1.5rem}
.grid table{font-size:.875rem}
.grid th,.grid td{padding:.5rem .6rem;border-top:1px solid var(--line);white-space:nowrap}
.grid thead th{border-top:0;font-weight:550;white-space:normal;vertical-align:bottom}
.grid tbody th{font-weight:500}
.cell{display:inline-block;border-radius:6px;padding:.1rem .5rem;color:inherit;text-decoration:none}
.cell.kept{background:var(--good-bg);color:var(--good)}
.cell.broken{background:var(--bad-bg);color:var(--bad)}
.cell.refuted{background:#b3261e;color:#fff;font-weight:650}
.cell.open{color:var(--soft)}
a.cell:hover{text-decoration:underline}
.nets{display:flex;flex-wrap:wrap;gap:1.5rem;margin:0 0 1rem}
.nets figcaption code{color:var(--soft)}
ul.rest{padding-left:1.2rem}
:target{outline:2px solid var(--soft);outline-offset:.4rem;border-radius:4px}
.evidence{border-top:1px solid var(--line);padding-top:.25rem}
.evidence summary{padding:.35rem 0}
.evidence summary b{color:var(--ink)}
dl{margin:0}dt{font-weight:550}dd{margin:0 0 .6rem;color:var(--soft)}
""".strip()


def page(table: Table, *, title: str | None, command: str | None) -> str:
    """The whole page."""
    heading = title or f"Methods and axioms on {table.where}"
    axioms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(MODULES[name].RULE)}</dd>" for name in table.axioms)
    again = f"<p>Made with</p><pre><code>{escape(command)}</code></pre>" if command else ""
    origin = "".join(f"<tr><th>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in table.meta.items())
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>{STYLE}\n{OWN}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(heading)}</h1>\n<p class="lead">{escape(_lead(table))}</p>\n{grid(table)}\n'
        f"<section><h2>What they ask</h2><dl>{axioms}</dl></section>\n"
        f"<section><h2>The evidence</h2>\n{''.join(_row(i, row) for i, row in enumerate(table.verdicts))}</section>\n"
        f'<section><h2>How it was made</h2><table class="origin"><tbody>{origin}</tbody></table>{again}</section>\n'
        "</main>\n</body>\n</html>\n"
    )


def _lead(table: Table) -> str:
    count = len(table.refuted)
    said = "No promise was refuted." if not count else f"{count} promise{'s' if count > 1 else ''} refuted: see the red cells."
    return (
        "Kept means that nothing broke it in as many cases as the cell says; broken comes with a counter-example. "
        f"A star: kept here, though the method does not promise it. {said}"
    )


def grid(table: Table, *, linked: bool = True) -> str:
    """The table itself; each cell leads to its evidence."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.axioms)
    rows = []
    for i, row in enumerate(table.verdicts):
        cells = "".join(f"<td>{_cell(verdict, f'#v{i}-{k}' if linked else '')}</td>" for k, verdict in enumerate(row))
        rows.append(f"<tr><th>{escape(row[0].settings)}</th>{cells}</tr>\n")
    return (
        f'<div class="grid"><table><thead><tr><th>method</th>{head}</tr></thead><tbody>\n{"".join(rows)}</tbody></table></div>'
    )


def _cell(verdict: Verdict, link: str) -> str:
    tone = "refuted" if verdict.refuted else {True: "kept", False: "broken", None: "open"}[verdict.kept]
    star = "*" if verdict.kept and verdict.promise is not None and not verdict.promise.kept else ""
    text = f"kept in {verdict.tried}{star}" if verdict.kept else verdict.word
    tip = escape(verdict.sentence)
    if not link:
        return f'<span class="cell {tone}" title="{tip}">{escape(text)}</span>'
    return f'<a class="cell {tone}" href="{link}" title="{tip}">{escape(text)}</a>'


def _row(i: int, row: tuple[Verdict, ...]) -> str:
    """A method's evidence: counter-examples drawn, the rest in a sentence each."""
    drawn, told = [], []
    for k, verdict in enumerate(row):
        if verdict.counterexample is None:
            told.append(f'<li id="v{i}-{k}">{escape(verdict.sentence)}</li>')
            continue
        drawn.append(
            f'<details class="evidence" id="v{i}-{k}" open><summary><b>{escape(verdict.axiom)}</b>: '
            f"{escape(verdict.word)}</summary><p>{escape(verdict.sentence)}</p>{verdict.counterexample._repr_html_()}</details>\n"
        )
    rest = f'<ul class="rest">{"".join(told)}</ul>\n' if told else ""
    return f"<h3>{escape(row[0].settings)} <span>{escape(row[0].method)}</span></h3>\n{rest}{''.join(drawn)}"
