"""The table as one HTML page in the style of the reports. Every text passes through ``html.escape``."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..render._report import POLICY
from ..render._style import STYLE
from ._check import MODULES
from ._verdict import Verdict

if TYPE_CHECKING:
    from ._table import Table

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
