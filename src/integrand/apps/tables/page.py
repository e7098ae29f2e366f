"""Results of tables as self-contained pages: one row with its waterfall, or many with what matters over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...render.escaping import escape
from ...render.glance import GLANCE, Entry, Export, badge, collection, export_buttons, glance, glance_script, said
from ...render.html import document, origin, wide_table
from ...render.table import TablePicture, TableValues
from ...render.table.chart_marks import STYLE as CHART_STYLE
from ...words import number, plus_minus, shortened

if TYPE_CHECKING:
    from .result import TableExplanation

STYLE = """
.narrow{display:none}
.values{font-variant-numeric:tabular-nums;max-width:46rem}
.values :is(th,td){padding:.2rem 1rem .2rem 0;border-top:1px solid var(--line)}
.values :is(td,th):last-child{padding-right:0}
.values thead th{font-weight:400;font-size:.8125rem;color:var(--soft);border:0}
.values :is(td,thead th):nth-child(n+2){text-align:right;white-space:nowrap}
.values th{font-weight:550}
.note{color:var(--soft);font-size:.875rem;margin:0 0 .75rem}
.card{border-top:1px solid var(--line);padding:.4rem 0}
.card p{margin:0}
figure.drawn{margin:0 0 1rem}
@media(max-width:40rem){.chart.broad{display:none}.chart.narrow{display:block}.values :is(th,td){padding-right:.6rem}
.values .spare{display:none}
.values{font-size:.8125rem}}
""".strip()

BROAD, NARROW = 760.0, 360.0
"""The widths of a picture for a screen and for a phone, in pixels."""

DOTS, CELLS, LISTED = 250, 120, 200
"""The most rows that a page draws as dots and as cells, and lists with their sentences."""


def page(
    found: TableExplanation,
    *,
    title: str = "",
    meta: Mapping[str, str] | None = None,
    command: str | None = None,
    by: bool = True,
) -> str:
    """A result as a page; arguments as in :meth:`integrand.apps.tables.TableExplanation.html`."""
    drawn = _one(found) if len(found) == 1 else _many(found, by=by)
    facts = {
        "explained": found.unit,
        "baseline": found.baseline,
        "rows": f"{len(found):,}",
        "columns": f"{len(found.names):,}",
        **(meta or {}),
    }
    heading = title or (f"Row {shortened(str(found.labels[0]), 60)}" if len(found) == 1 else f"{len(found):,} rows")
    style = f"{GLANCE}\n{CHART_STYLE}\n{STYLE}"
    return document(heading, f"{drawn}{origin(facts, command)}", style=style, scripts=(glance_script(),))


def _one(found: TableExplanation) -> str:
    picture = _drawn(found.picture, "waterfall", "Point at a bar for its numbers.", place=0)
    answer = glance(found.sentence, picture, badges=badge(found.certificate))
    save = export_buttons(Export("png", "waterfall", "waterfall.png"), Export("svg", "waterfall", "waterfall.svg"))
    return f"{answer}{save}<h2>All columns</h2>\n{_note(found)}{_row_table(found)}"


def _many(found: TableExplanation, *, by: bool) -> str:
    picture = found.picture
    answer = glance(
        found.sentence,
        _drawn(picture, "beeswarm", "Point at a dot for its row.", drawn=DOTS),
        badges=badge(found.certificate),
    )
    save = export_buttons(Export("png", "beeswarm", "beeswarm.png"), Export("svg", "beeswarm", "beeswarm.svg"))
    parts = [answer, save, "<h2>How much each column matters</h2>\n", _drawn(picture, "bar", "Point at a bar for its numbers.")]
    if by:
        strongest = found.names[picture.values.order[0]]
        parts.append(f"<h2>What {escape(strongest)} adds</h2>\n{_dependence(found, strongest)}")
    parts.append("<h2>Rows and columns</h2>\n")
    parts.append(_drawn(picture, "heatmap", "Point at a cell for its row and column.", drawn=CELLS))
    parts.append(f"<h2>All columns</h2>\n{_note(found)}{_column_table(found)}{_rows(found)}")
    return "".join(parts)


def _dependence(found: TableExplanation, column: str) -> str:
    partner = None if found.explained_by is None or len(found.names) < 2 else found.partner(column)
    place = found.names.index(column)
    told = (
        f"Coloured by {partner}, the column that it acts with most by integrated Hessians."
        if partner
        else "Integrated Hessians find no column that it acts with."
    )
    other = None if partner is None else found.names.index(partner)
    return f'<p class="note">{escape(told)}</p>\n' + _drawn(
        found.picture, "dependence", "Point at a dot for its row.", column=place, by=other, drawn=2 * DOTS
    )


def _drawn(picture: TablePicture, kind: str, prompt: str, **options: Any) -> str:
    """A picture in two widths, of which a page shows one, with a line for what is pointed at."""
    broad = picture.svg(kind, name=kind, classes="chart broad", wide=BROAD, **options)
    narrow = picture.svg(kind, name=f"{kind}-narrow", classes="chart narrow", wide=NARROW, **options)
    return f'<figure class="drawn" data-sayings>{broad}{narrow}{said(prompt)}</figure>\n'


def _note(found: TableExplanation) -> str:
    sampled = " and of the sample of baselines" if found.sampling is not None else ""
    added = f"A value is what a column adds to the {found.unit}, from {found.baseline}"
    text = f"{added}; ± is its error, of the integration{sampled}."
    return f'<p class="note">{escape(text)}</p>\n'


def _row_table(found: TableExplanation) -> str:
    values = found.picture.values
    lines = "".join(
        f"<tr><th>{escape(found.names[k])}</th><td>{escape(values.cells[0][k])}</td>"
        f'<td class="spare">{escape(values.start_cells[k])}</td>'
        f'<td data-value="{found.values[0, k]:.6g}">{escape(plus_minus(found.values[0, k], found.errors[0, k]))}</td>'
        f'<td hidden data-value="{found.errors[0, k]:.3g}"></td></tr>\n'
        for k in values.order_of(0)
    )
    head = (
        '<tr><th>column</th><th>in the row</th><th class="spare">at the baseline</th><th>value</th><th hidden>error</th></tr>'
    )
    return _table(head, lines, "row.csv")


def _column_table(found: TableExplanation) -> str:
    values = found.picture.values
    lines = "".join(
        f"<tr><th>{escape(found.names[k])}</th>"
        f'<td data-value="{values.strength[k]:.6g}">{escape(_mean_size(values, k))}</td>'
        f"<td>{escape(number(found.values[:, k].min(), 3))}</td><td>{escape(number(found.values[:, k].max(), 3))}</td></tr>\n"
        for k in values.order
    )
    return _table("<tr><th>column</th><th>mean |value|</th><th>least</th><th>most</th></tr>", lines, "columns.csv")


def _mean_size(values: TableValues, column: int) -> str:
    return plus_minus(values.strength[column], values.strength_errors[column]).lstrip("+")


def _table(head: str, lines: str, file: str) -> str:
    table = f'<table class="values" id="values"><thead>{head}</thead><tbody>\n{lines}</tbody></table>'
    return wide_table(table, "Values of all columns") + export_buttons(Export("csv", "values", file))


def _rows(found: TableExplanation) -> str:
    picture = found.picture
    cards = [
        Entry(
            f"<p>{escape(picture.sentence_of(i))}</p>\n",
            picture.sentence_of(i),
            order={"highest score first": -one.score, "lowest score first": one.score, "largest error first": -one.error},
        )
        for i, one in enumerate(found.certificate.examples[:LISTED])
    ]
    more = f'<p class="note">and {len(found) - LISTED:,} more rows</p>\n' if len(found) > LISTED else ""
    listed = collection(cards, noun="row")
    return f"<details><summary>What the model says of each row, and why</summary>\n{listed}{more}</details>\n"
