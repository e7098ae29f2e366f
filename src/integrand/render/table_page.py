"""The page over a data set: what was said, what mattered, how exact it is, how figures are spread, and inputs to open."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import resources

import numpy as np

from ..words import number, percent, shortened
from .certificate_text import MEANING, amount
from .escaping import escape
from .glance import GLANCE, Entry, Export, collection, export_buttons, glance, glance_script
from .html import data_url, document, framed, origin
from .image.pixels import COLOURS, Array, heat, mass_limit
from .image.views import Panel
from .table_data import FAR, GOOD, MISTAKEN, ClassTally, Distribution, ListedInput, NameTally, TableFigures, TruthCheck, signed

SHOWN, GLIMPSED = 30, 8
"""Features in the table, and on the first screen."""

REASONS = 12
"""Kinds of failures, and of notes, that are told."""

CLASSES = 12
"""Predictions that the page tells about one by one; the rest is counted."""

SHARE = 0.995
"""The share of a map's mass below its strongest colour."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 190, 44, 12, 8, 42
"""A plot and its margins, in units of its drawing."""

STYLE = """
.keyfigures{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.5rem,1fr));gap:.5rem;margin:0 0 1rem;padding:0}
.keyfigures div{background:var(--card);border-radius:10px;padding:.5rem .75rem;min-width:0}
.keyfigures dt{color:var(--soft);font-size:.8125rem}
.keyfigures dd{margin:0;font-size:1.125rem;font-weight:600;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.keyfigures dd small{font-weight:400;font-size:.8125rem;color:var(--soft)}
.tally{font-variant-numeric:tabular-nums;font-size:.9375rem}
.tally caption{text-align:left;color:var(--soft);font-size:.875rem;padding:0 0 .35rem}
.tally :is(th,td){padding:.2rem .75rem .2rem 0;border-top:1px solid var(--line)}
.tally thead :is(th,td){border:0;color:var(--soft);font-size:.8125rem;font-weight:400;white-space:nowrap}
.tally tbody th{font-weight:400;overflow-wrap:anywhere;min-width:6.75rem}
.tally td.word{white-space:nowrap}
.tally .track i{bottom:auto;height:1.1rem}
.tally thead th.text{text-align:left}
.tally :is(td,th).n{text-align:right;white-space:nowrap;padding-right:.75rem}
.tally .track{width:34%;min-width:4rem}
.tally .way{width:40%;min-width:4rem;vertical-align:middle}
.tally .way i{display:block;height:.7rem;border-radius:3px;background:var(--soft);opacity:.6;min-width:2px}
.scroll{overflow-x:auto}
.narrow{max-width:52rem}
.glance>figure{max-width:22rem}
.card>details:target{outline:2px solid var(--focus)}
.confusion{width:auto;font-size:.875rem}
.confusion td{text-align:right;padding:.2rem .6rem;border-top:1px solid var(--line)}
.confusion thead th{font-weight:400;vertical-align:bottom;padding:.2rem .6rem;max-width:7rem;overflow-wrap:break-word;
text-align:right}
.confusion td{white-space:nowrap}
.confusion caption{text-align:left}
.scroll .tally tbody th{min-width:6rem;overflow-wrap:break-word}
.confusion tbody th{font-weight:400;padding-right:.75rem;border-top:1px solid var(--line)}
.confusion .same{background:var(--good-bg);color:var(--good);font-weight:600}
.confusion .off{background:var(--bad-bg);color:var(--bad)}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:1.25rem;margin:0 0 1rem}
.plots svg{display:block;width:100%;height:auto;max-width:32rem}
.plots svg text{fill:var(--soft);font-size:11px}
.plots svg .bar{fill:var(--focus);opacity:.75}
.plots svg .axis{stroke:var(--line);stroke-width:1;fill:none}
.plots svg .mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3}
.plots svg .limit{stroke:var(--bad);stroke-width:1.5}
.plots svg .limit-name{fill:var(--bad)}
.plots figcaption details{margin:.25rem 0 0;font-size:.8125rem}
.maps{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:1rem;margin:0 0 1rem}
.cards{display:grid;gap:.4rem;grid-template-columns:minmax(0,1fr)}
.card{border:1px solid var(--line);border-radius:10px;min-width:0}
.card>details{margin:0}
.card>details>summary{padding:.45rem .75rem .45rem 2rem;color:var(--ink);display:flex;flex-wrap:wrap;gap:.1rem .75rem;
align-items:baseline;position:relative}
.card>details>summary::before{content:"▸";color:var(--soft);position:absolute;left:.75rem}
.card>details[open]>summary::before{content:"▾"}
.card>details>summary::-webkit-details-marker{display:none}
.card>details[open]{background:var(--card);border-radius:10px}
.card .inside{padding:.1rem .75rem .75rem}
.card .inside>p{margin:.25rem 0}
.card .name{font-weight:600;overflow-wrap:anywhere;min-width:0}
.card .why{color:var(--soft);font-size:.8125rem;overflow-wrap:anywhere;margin-left:auto}
.card .bad{color:var(--bad)}
.card .heed{margin:.35rem 0}
.card .small{display:block;width:8rem;max-width:100%}
.card .pane{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(17rem,100%),1fr));gap:.5rem 1.5rem;align-items:start}
.card .pane>*{min-width:0}
.card table{font-size:.875rem}
.tools label{flex:0 1 12rem}
.tools label :is(input,select){width:100%}
.how{max-width:62rem;color:var(--soft);font-size:.9375rem}
@media(max-width:40rem){.tally .spare{display:none}.tools label{flex:1 1 8rem}
.keyfigures{grid-template-columns:repeat(2,minmax(0,1fr));gap:.35rem;margin-bottom:.75rem}.keyfigures div{padding:.35rem .6rem}
.card .why{margin-left:0}}
@media print{.card>details:not([open]){break-inside:avoid}}
""".strip()


def table_page(figures: TableFigures, *, command: str | None = None) -> str:
    """The page over a data set, as the text of one HTML file that loads nothing.

    Args:
        figures: what it shows.
        command: the command that makes it again.
    """
    ids = {one.key: f"input-{i}" for i, one in reversed(list(enumerate(figures.listed)))}
    panes = [pane for pane in (_said(figures), _mattered(figures)) if pane]
    first = glance(figures.sentence, heed=figures.heed, badges=_badges(figures, ids) + _keyfigures(figures))
    first += f'<div class="glance">\n{"".join(panes)}</div>\n' if panes else ""
    body = "".join(
        (
            first,
            _parts(figures),
            _maps(figures),
            _by_class(figures),
            _truth(figures.truth, figures),
            _plots(figures),
            _exactness(figures, ids),
            _messages(figures),
            _inputs(figures),
            origin(figures.meta, command),
        )
    )
    return document(figures.title, body, style=f"{GLANCE}\n{STYLE}", scripts=(glance_script(), _script()))


@cache
def _script() -> str:
    text = resources.files(__package__).joinpath("table_page.js").read_text(encoding="utf-8")
    return '"use strict";\n{\n' + text + "}\n"


# ---- parts of the page -------------------------------------------------------------------------------------------------------


def _section(title: str, body: str, *, how: str = "", mark: str = "") -> str:
    """A section of the page; '' if there is nothing in it."""
    lead = f'<p class="how">{escape(how)}</p>\n' if how else ""
    named = f' id="{escape(mark)}"' if mark else ""
    return f"<section><h2{named}>{escape(title)}</h2>\n{lead}{body}</section>\n" if body else ""


def _grid(rows: str, *heads: str, caption: str = "", mark: str = "", kind: str = "tally") -> str:
    """A table with its headings, which are cells already."""
    head = f"<thead><tr>{''.join(heads)}</tr></thead>" if heads else ""
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    named = f' id="{escape(mark)}"' if mark else ""
    return f'<table class="{escape(kind)}"{named}>{said}{head}<tbody>\n{rows}</tbody></table>\n'


def _name(text: str) -> str:
    """The cell that a row begins with."""
    return f'<th scope="row"><bdi>{escape(text)}</bdi></th>'


def _cell(text: str, kind: str = "n", *, value: float | None = None) -> str:
    """A cell with a number, or with text of another kind."""
    exact = "" if value is None else f' data-value="{value!r}"'
    return f'<td class="{escape(kind)}"{exact}>{escape(text)}</td>'


def _head(text: str, kind: str = "n") -> str:
    return f'<th scope="col" class="{escape(kind)}">{escape(text)}</th>'


_NO_HEAD = '<td data-csv="no"></td>'
"""Over a column of bars."""


def _scrolled(table: str, label: str) -> str:
    """A table that may be wider than a phone."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>\n'


def _rest(text: str) -> str:
    return f'<p class="rest">{escape(text)}</p>\n' if text else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _chance(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else percent(value)


# ---- the first screen --------------------------------------------------------------------------------------------------------


def _badge(grade: str, text: str, body: str) -> str:
    return f'<details class="badge {escape(grade)}"><summary>{escape(text)}</summary>\n{body}</details>\n'


def _badges(figures: TableFigures, ids: dict[str, str]) -> str:
    """How the inputs ended, as badges that open."""
    good = sum(count for status, count in figures.statuses.items() if status in GOOD)
    found = _badge("good", f"{good:,} as exact as asked for", _statuses(figures, GOOD)) if good else ""
    others = [status for status in figures.statuses if status not in (*GOOD, "failed")]
    if figures.missed:
        worst = "".join(f"<li>{_anchor(one, ids)}: {escape(_why(one))}</li>\n" for one in figures.worst[:5] if one.badness[0])
        more = f"<p>The largest errors:</p>\n<ul>{worst}</ul>\n" if worst else ""
        found += _badge("bad", f"{figures.missed:,} not as exact as asked for", _statuses(figures, others) + more)
    if figures.failed:
        reasons = "".join(f"<li>{one.inputs:,} × {escape(shortened(one.text, 300))}</li>\n" for one in figures.failures[:5])
        found += _badge("bad", f"{figures.failed:,} failed", f"<ul>{reasons}</ul>\n")
    if figures.truth is not None and figures.truth.compared:
        truth = figures.truth
        text = f"{truth.right:,} of {truth.compared:,} predictions as labelled"
        body = f"<p>Compared with the column {escape(truth.column)}. See <a href='#truth'>right and wrong</a>.</p>\n"
        found += _badge("good" if truth.right == truth.compared else "mixed", text, body)
    return f"<div>{found}</div>\n"


def _statuses(figures: TableFigures, wanted: Sequence[str]) -> str:
    meanings = {status.value: text for status, text in MEANING.items()} | {"failed": "There is no result; see the reasons."}
    rows = "".join(
        f"<tr>{_name(status)}{_cell(f'{count:,}')}{_cell(meanings.get(status, ''), 'text')}</tr>\n"
        for status, count in figures.statuses.items()
        if status in wanted
    )
    return _grid(rows) if rows else ""


def _keyfigures(figures: TableFigures) -> str:
    error = figures.distributions.get("error / tolerance")
    work = figures.distributions.get("evaluations")
    rows = [("inputs", f"{figures.total:,}", "")]
    if figures.truth is not None and figures.truth.compared:
        rows.append(("as labelled", percent(figures.truth.accuracy), f"of {figures.truth.compared:,}"))
    if figures.classes:
        rows.append(("different predictions", f"{figures.predictions:,}" if figures.predictions is not None else "many", ""))
    if figures.distinct_groups:
        rows.append(("different groups", f"{figures.distinct_groups:,}", ""))
    elif figures.distinct_features:
        rows.append((f"different {figures.part}s", f"{figures.distinct_features:,}", ""))
    if error is not None:
        rows.append(("error, median", f"{number(error.median, 2)}", "of the tolerance"))
    if work is not None:
        rows.append(("evaluations, median", f"{work.median:,.0f}", f"{figures.evaluations:,} in all"))
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{f' <small>{escape(more)}</small>' if more else ''}</dd></div>\n"
        for name, value, more in rows
    )
    return f'<dl class="keyfigures">\n{cells}</dl>\n'


def _said(figures: TableFigures) -> str:
    """How many inputs got each prediction, as bars."""
    if not figures.classes:
        many = f"{figures.predictions:,} different predictions, nearly one for each input." if figures.predictions else ""
        return _rest("More different predictions than can be told apart." if figures.predictions is None else many)
    most = figures.classes[0].inputs
    rows = "".join(
        f'<tr>{_name(one.name)}<td class="way" data-csv="no"><i style="width:{100 * one.inputs / most:.2f}%"></i></td>'
        f"{_cell(f'{one.inputs:,}')}{_cell(_chance(one.probability), 'n spare')}</tr>\n"
        for one in figures.classes[:GLIMPSED]
    )
    rest = figures.classes[GLIMPSED:]
    more = _rest(f"and {len(rest):,} more, of {sum(one.inputs for one in rest):,} inputs" if rest else "")
    heads = (_head("prediction", "text"), _NO_HEAD, _head("inputs"), _head("probability", "n spare"))
    return f"<div>{_grid(rows, *heads, caption='What the model said', mark='said')}{more}</div>\n"


def _mattered(figures: TableFigures) -> str:
    names, what = (figures.groups, "group") if figures.groups else (figures.features, figures.part)
    if names:
        return f"<div>{_tally(names[:GLIMPSED], what, f'{_capital(what)}s that mattered most in all')}</div>\n"
    return _mean_map(figures.mean_map, "Where it mattered, on average", figures.mapped) if figures.mean_map is not None else ""


def _tally(names: Sequence[NameTally], what: str, caption: str, *, mark: str = "") -> str:
    """Names with their mean contributions, as bars from the middle."""
    reach = max((abs(one.mean) for one in names), default=0.0) or 1.0
    rows = "".join(
        f'<tr>{_name(one.name)}<td class="track" data-csv="no">{_signed_bar(one.mean, reach)}</td>'
        f"{_cell(signed(one.mean), value=one.mean)}{_cell(f'{one.inputs:,}', value=one.inputs)}"
        f"{_cell(percent(one.positive / max(1, one.inputs)), 'n spare', value=one.positive / max(1, one.inputs))}</tr>\n"
        for one in names
    )
    heads = (_head(what, "text"), _NO_HEAD, _head("mean"), _head("inputs"), _head("speaks for it", "n spare"))
    return _grid(rows, *heads, caption=caption, mark=mark)


def _signed_bar(value: float, reach: float) -> str:
    size = 50 * min(1.0, abs(value) / reach) if math.isfinite(value) else 0.0
    left, colour = (50.0, COLOURS[-1]) if value > 0 else (50 - size, COLOURS[0])
    return f'<i style="left:{left:.2f}%;width:{size:.2f}%;background:{colour}"></i>'


# ---- what mattered -----------------------------------------------------------------------------------------------------------


def _parts(figures: TableFigures) -> str:
    found = ""
    for what, names, strongest, distinct, mark in (
        ("group", figures.groups, figures.strongest_groups, figures.distinct_groups, "groups"),
        (figures.part, figures.features, figures.strongest, figures.distinct_features, "features"),
    ):
        if not names:
            continue
        shown = names[:SHOWN]
        rest = _rest(f"and {distinct - len(shown):,} more" if distinct > len(shown) else "")
        saves = export_buttons(Export("csv", mark, f"{mark}.csv", f"Save these {what}s as CSV"))
        most = _tally(shown, what, f"Most in all: {len(shown):,} of {distinct:,} {what}s, by size over all inputs", mark=mark)
        panes = f"<div>{most}{rest}{saves}</div>"
        if distinct > GLIMPSED and strongest:
            least = f"Strongest where they are: {what}s of at least {figures.least_inputs:,} inputs, by mean"
            panes += f"<div>{_tally(strongest[:SHOWN], what, least)}</div>"
        found += f'<div class="glance">{panes}</div>\n'
    how = (
        "The mean is over the inputs that have it, in the units of the score that was explained; what comes several times in "
        "an input is added up. Plus speaks for what was explained in that input, minus against it."
    )
    return _section("What mattered", found, how=how)


def _mean_map(values: Array, title: str, inputs: int) -> str:
    limit = mass_limit(values, SHARE)
    note = f"mean over {inputs:,} input{'s' * (inputs != 1)}; strongest {_whereabouts(values)}"
    return framed(Panel("", "", heat(values, limit), limit or None, clipped=True), title, note)


def _whereabouts(values: Array) -> str:
    """Where in a map most of it lies, in words: one of nine places."""
    size = np.abs(np.nan_to_num(values))
    if not size.any():
        return "nowhere: all zero"
    height, width = values.shape
    rows = np.minimum(3 * np.arange(height) // height, 2)
    columns = np.minimum(3 * np.arange(width) // width, 2)
    sums = np.zeros((3, 3))
    np.add.at(sums, (rows[:, None], columns[None, :]), size)
    row, column = divmod(int(sums.argmax()), 3)
    if (row, column) == (1, 1):
        return "in the centre"
    return f"at the {('upper', 'middle', 'lower')[row]} {('left', 'centre', 'right')[column]}"


def _maps(figures: TableFigures) -> str:
    if figures.mean_map is None:
        return ""
    pictures = [_mean_map(figures.mean_map, "All inputs", figures.mapped)]
    pictures += [_mean_map(one.mean_map, one.name, one.inputs) for one in figures.classes[:CLASSES] if one.mean_map is not None]
    if figures.truth is not None and figures.truth.mean_map is not None:
        wrong = figures.truth.compared - figures.truth.right
        pictures.append(_mean_map(figures.truth.mean_map, "Mistakes", wrong))
    how = (
        "Attributions averaged over inputs, place by place, with their signs. Red speaks for what was explained, blue against "
        "it. What lies at the same place in most inputs stays; the rest averages out."
    )
    return _section("Where it mattered", f'<div class="maps">{"".join(pictures)}</div>', how=how)


def _by_class(figures: TableFigures) -> str:
    """What mattered for each prediction; each opens."""
    told = [one for one in figures.classes[:CLASSES] if one.features or one.groups]
    if len(figures.classes) < 2 or not told:
        return ""
    more = len(figures.classes) - len(told)
    rest = _rest(f"and {more:,} more predictions" if more else "")
    return _section("What mattered for each prediction", "".join(_class(one, figures) for one in told) + rest)


def _class(one: ClassTally, figures: TableFigures) -> str:
    first = ", ".join(f"{shortened(name.name, 30)} {signed(name.mean)}" for name in (one.groups or one.features)[:3])
    parts = [_tally(one.groups, "group", "Groups, the largest in all first")] if one.groups else []
    parts += (
        [_tally(one.features, figures.part, f"{_capital(figures.part)}s, the largest in all first")] if one.features else []
    )
    panes = "".join(f"<div>{part}</div>" for part in parts)
    said = f"<b>{escape(one.name)}</b> ({one.inputs:,} inputs): {escape(first)}"
    return f'<details><summary>{said}</summary>\n<div class="glance">{panes}</div></details>\n'


def _truth(truth: TruthCheck | None, figures: TableFigures) -> str:
    if truth is None or not truth.compared:
        return ""
    counted = f"{truth.right:,} of {truth.compared:,} predictions ({percent(truth.accuracy)})"
    said = f"{counted} are what the column {truth.column!r} says{f', compared {truth.by}' if truth.by else ''}."
    mistakes = ""
    if truth.features:
        rows = "".join(
            f"<tr>{_name(one.wrong.name)}{_cell(signed(one.wrong.mean), value=one.wrong.mean)}{_cell(f'{one.wrong.inputs:,}')}"
            f"{_cell(signed(one.right.mean) if one.right.inputs else '–')}{_cell(f'{one.right.inputs:,}')}</tr>\n"
            for one in truth.features
        )
        heads = [_head("group" if figures.groups else figures.part, "text"), _head("mean in mistakes"), _head("inputs")]
        heads += [_head("mean elsewhere"), _head("inputs")]
        title = "What mattered in the mistakes"
        table = _scrolled(_grid(rows, *heads, caption=title, mark="mistakes"), title)
        mistakes = f"<div>{table}{export_buttons(Export('csv', 'mistakes', 'mistakes.csv', 'Save this as CSV'))}</div>\n"
    body = f'<p>{escape(said)}</p>\n<div class="glance"><div>{_confusion(truth)}</div>{mistakes}</div>\n'
    return _section("Right and wrong", body, mark="truth")


def _confusion(truth: TruthCheck) -> str:
    """Labels by predictions, the most frequent of each; the rest together."""
    totals: Counter[str] = Counter()
    cells: Counter[tuple[str, str]] = Counter()
    for (label, said), count in truth.confusion.items():
        totals[label] += count
        totals[said] += count
    kept, other = [name for name, _ in totals.most_common(CLASSES)], "(others)"
    for (label, said), count in truth.confusion.items():
        cells[label if label in kept else other, said if said in kept else other] += count
    names = [*kept, *([other] if len(totals) > len(kept) else [])]
    rows = ""
    for label in names:
        row = ""
        for said in names:
            count = cells[label, said]
            row += _cell(f"{count:,}", "same" if label == said else "off") if count else "<td>·</td>"
        rows += f"<tr>{_name(shortened(label, 40))}{row}</tr>\n"
    title = "Labels (rows) by predictions (columns)"
    heads = ["<td></td>", *(_head(shortened(name, 24)) for name in names)]
    table = _scrolled(_grid(rows, *heads, caption=title, mark="confusion", kind="confusion"), title)
    return table + export_buttons(Export("csv", "confusion", "confusion.csv", "Save this as CSV"))


# ---- how figures are spread --------------------------------------------------------------------------------------------------


def _plots(figures: TableFigures) -> str:
    drawn = "".join(map(_plot, figures.distributions.values()))
    how = (
        "Bars count inputs; the dashed line is the median. Where some inputs are far off, the outermost bars hold all that is "
        "beyond them."
    )
    return _section("How figures are spread", f'<div class="plots">{drawn}</div>' if drawn else "", how=how)


def _plot(one: Distribution) -> str:
    """A histogram as SVG, with its numbers as text."""
    low, _, lower, median, upper, _, high = map(amount, (one.low, *one.quantiles, one.high))
    words = f"{one.count:,} inputs from {low} to {high}; half of them between {lower} and {upper}, median {median}"
    if one.low == one.high:
        same = f"{median} for all {one.count:,} inputs"
        return f"<figure><figcaption><b>{escape(_capital(one.name))}</b>{escape(same)}</figcaption></figure>\n"
    title = f"<b>{escape(_capital(one.name))}</b><span>{escape(words)}</span>"
    drawing = _histogram(one, f"Histogram of {one.label}: {words}.")
    return f"<figure>{drawing}<figcaption>{title}{_bars_table(one)}</figcaption></figure>\n"


def _histogram(one: Distribution, words: str) -> str:
    if len(one.counts) < 2 or one.edges[0] >= one.edges[-1]:  # but for what is far off, all are the same
        return ""
    low, high = one.scaled(one.edges[0]), one.scaled(one.edges[-1])
    wide, tall, top = WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM - TOP, max(one.counts)
    floor = TOP + tall

    def at(value: float) -> float:
        return LEFT + wide * (one.scaled(value) - low) / (high - low)

    def line(kind: str, value: float) -> str:
        return f'<path class="{escape(kind)}" d="M{at(value):.1f} {TOP:d}V{floor:d}"/>'

    bars = "".join(
        f'<rect class="bar" x="{at(a):.1f}" y="{floor - tall * count / top:.1f}" width="{max(0.6, at(b) - at(a) - 0.8):.1f}" '
        f'height="{tall * count / top:.1f}"/>'
        for a, b, count in zip(one.edges[:-1], one.edges[1:], one.counts, strict=True)
        if count
    )
    inside = f'{bars}<path class="axis" d="M{LEFT:d} {TOP:d}V{floor:d}H{WIDTH - RIGHT:d}"/>{line("mark", one.median)}'
    for value in ticks(one):
        inside += f'<path class="axis" d="M{at(value):.1f} {floor:d}v4"/>' + _said_at(_tick(value), at(value), floor + 16)
    inside += _said_at(amount(top), LEFT - 5, TOP + 8, "end") + _said_at("0", LEFT - 5, floor, "end")
    inside += _said_at("inputs", 12, TOP + tall / 2, turned=True)
    inside += _said_at(one.label + " (logarithmic)" * one.log, LEFT + wide / 2, HEIGHT - 6)
    if one.name == "error / tolerance" and low <= one.scaled(1.0) <= high:
        right = at(1.0) > LEFT + wide / 2
        inside += line("limit", 1.0)
        inside += _said_at("tolerance", at(1.0) + (-4 if right else 4), TOP + 10, "end" if right else "start", "limit-name")
    return f'<svg viewBox="0 0 {WIDTH:d} {HEIGHT:d}" role="img" aria-label="{escape(words)}">{inside}</svg>\n'


def _said_at(text: str, x: float, y: float, anchor: str = "middle", kind: str = "", *, turned: bool = False) -> str:
    """A text in a plot."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    named = f' class="{escape(kind)}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{escape(anchor)}"{turn}>{escape(text)}</text>'


def ticks(one: Distribution) -> list[float]:
    """Round numbers along the axis of a plot, at most six.

    >>> ticks(Distribution("score", "", 9, 0.0, (0, 2, 5, 8, 10), 10.0, edges=(0.0, 10.0)))
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    low, high = one.edges[0], one.edges[-1]
    if one.log:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        powers = [10.0**k for k in range(first, last + 1, max(1, math.ceil((last - first) / 5)))]
        near = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
        return powers if len(powers) > 2 else [value for value in near if low <= value <= high]
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _tick(value: float) -> str:
    return amount(value).replace("-", "−")


def _bars_table(one: Distribution) -> str:
    each = zip(one.edges[:-1], one.edges[1:], one.counts, strict=True)
    rows = "".join(f"<tr>{_cell(amount(a))}{_cell(amount(b))}{_cell(f'{count:,}')}</tr>\n" for a, b, count in each)
    table = _grid(rows, _head("from"), _head("to"), _head("inputs"))
    return f"<details><summary>As numbers</summary>{table}</details>"


# ---- how exact, failures, inputs ---------------------------------------------------------------------------------------------


def _anchor(one: ListedInput, ids: dict[str, str]) -> str:
    return f'<a href="#{escape(ids[one.key])}"><bdi>{escape(shortened(one.name, 80))}</bdi></a>'


def _why(one: ListedInput) -> str:
    error = "not known" if one.error is None else percent(one.error)
    return f"{one.status}, error {error}" + (f", asked for {percent(one.tol)}" if one.tol else "")


def _exactness(figures: TableFigures, ids: dict[str, str]) -> str:
    worst = figures.worst[:10]
    rows = "".join(
        f'<tr><th scope="row">{_anchor(one, ids)}</th>{_cell(one.status, "text word")}'
        f"{_cell('not known' if one.error is None else percent(one.error))}"
        f"{_cell('' if one.tol is None else percent(one.tol))}{_cell(f'{one.evaluations:,}', 'n spare')}</tr>\n"
        for one in worst
    )
    heads = (
        _head("input", "text"),
        _head("ended", "text"),
        _head("error"),
        _head("asked for"),
        _head("evaluations", "n spare"),
    )
    table = _grid(rows, *heads, caption="The largest errors") if rows else ""
    return _section("How exact", _statuses(figures, tuple(figures.statuses)) + table)


def _messages(figures: TableFigures) -> str:
    found = ""
    for title, reasons in (("Failures by reason", figures.failures), ("What was noted", figures.notes)):
        rows = "".join(
            f"<tr>{_cell(f'{one.inputs:,}')}{_cell(shortened(one.text, 600), 'text')}</tr>\n" for one in reasons[:REASONS]
        )
        more = _rest(f"and {len(reasons) - REASONS:,} more kinds" if len(reasons) > REASONS else "")
        found += _section(title, _grid(rows, _head("inputs"), _head("such as", "text")) + more) if rows else ""
    return found


def _inputs(figures: TableFigures) -> str:
    how = (
        "Listed are the inputs with the largest errors; those far from the rest: with a score, its change, an error, "
        f"a magnitude or a number of evaluations at least {FAR:g} usual spreads from the median (the larger of the middle "
        "half's width / 1.349 and the middle nine tenths' / 3.29, on a logarithmic scale where figures span orders of "
        "magnitude); the least probable predictions; failures; with labels the surest mistakes; and every so many-th of all. "
        f"{len(figures.listed):,} of {figures.total:,} are listed; all numbers above are over all."
    )
    cards = [_card(one, f"input-{i}") for i, one in enumerate(figures.listed)]
    return _section("Inputs to look at", collection(cards, noun="input") if cards else "", how=how)


def _card(one: ListedInput, mark: str) -> Entry:
    heading = one.prediction if one.prediction is not None else "failed" if one.failure else one.target or ""
    chance = f" ({_chance(one.probability)})" if one.probability is not None else ""
    truth = f", labelled {one.label}" if one.label is not None and one.listed_as(MISTAKEN) else ""
    reasons = "; ".join(f"{why}: {more}" if more else why for why, more in one.why)
    bad = "" if one.status in GOOD else ' class="bad"'
    summary = (
        f'<span class="name"><bdi>{escape(shortened(one.name, 120))}</bdi></span> '
        f'<span{bad}>{escape(shortened(heading, 120) + chance + truth)}</span> <span class="why">{escape(reasons)}</span>'
    )
    html = f'<details id="{escape(mark)}"><summary>{summary}</summary>\n<div class="inside">{_inside(one)}</div></details>\n'
    kinds = {"listed as": one.why[0][0] if one.why else "", "ended": one.status}
    kinds |= {"prediction": one.prediction} if one.prediction is not None and len(one.prediction) <= 60 else {}
    order = {} if one.error is None or not one.tol else {"largest error first": -one.error / one.tol}
    order |= {} if one.probability is None else {"least probable first": one.probability}
    order |= {"farthest from the rest first": -max(one.figures.values())} if one.figures else {}
    order |= {"most evaluations first": -float(one.evaluations)} if one.evaluations else {}
    order |= {} if one.score is None else {"largest score first": -one.score}
    text = " ".join(filter(None, (one.name, heading, one.label, one.sentence, one.failure, *one.columns.values())))
    return Entry(html, text[:4000], kinds, order)


def _inside(one: ListedInput) -> str:
    """What is known of one input."""
    found = f"<p>{escape(one.sentence)}</p>\n" if one.sentence else ""
    found += "".join(f'<p class="heed">{escape(note)}</p>\n' for note in (one.failure, *one.notes) if note)
    found += f'<p><a href="{escape(one.link)}">Open its page</a></p>\n' if one.link else ""
    panes = [_strongest(one.groups, "Strongest groups"), _strongest(one.features, "Strongest features")]
    if one.values is not None:
        picture = data_url(heat(one.values, mass_limit(one.values, SHARE)))
        words = f"its attributions, strongest {_whereabouts(one.values)}"
        panes.append(f'<img class="sharp small" alt="{escape(words)}" src="{picture}">')
    panes.append(_facts(one))
    return f'{found}<div class="pane">{"".join(f"<div>{pane}</div>" for pane in panes if pane)}</div>\n'


def _strongest(names: Sequence[tuple[str, float]], caption: str) -> str:
    reach = max((abs(value) for _, value in names), default=0.0) or 1.0
    rows = "".join(
        f'<tr>{_name(name)}<td class="track">{_signed_bar(value, reach)}</td>{_cell(signed(value))}</tr>\n'
        for name, value in names
    )
    return _grid(rows, caption=caption) if rows else ""


def _facts(one: ListedInput) -> str:
    estimated = one.status not in ("exact", "failed")
    chance = f" ({_chance(one.probability)})" if one.probability is not None else ""
    rows = [
        ("prediction", "" if one.prediction is None else one.prediction + chance),
        ("label", one.label or ""),
        ("explained", one.target or ""),
        ("F(x)", "" if one.score is None else number(one.score)),
        ("F(x′)", "" if one.baseline_score is None else number(one.baseline_score)),
        ("the sum misses", "" if one.residual is None else f"{one.residual:+.1e}"),
        ("without signs", "" if one.magnitude is None else number(one.magnitude)),
        ("estimated error", ("not known" if one.error is None else percent(one.error)) if estimated else ""),
        ("asked for", percent(one.tol) if one.tol is not None and estimated else ""),
        ("evaluations", f"{one.evaluations:,}" if one.evaluations else ""),
        ("ended", one.status),
        *one.columns.items(),
    ]
    cells = "".join(f"<tr>{_name(name)}{_cell(value, 'text')}</tr>\n" for name, value in rows if value)
    return _grid(cells, caption="Its figures")
