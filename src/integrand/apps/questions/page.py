"""Rules as tables, for a terminal and as HTML. Every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...render.escaping import escape
from ...render.html import document, origin
from ...render.text.tokens import printable
from ...render.text.word_markup import RAMP
from ...words import percent

if TYPE_CHECKING:
    from .trigger_rules import Rules, TriggerRule

STYLE = """
.rules{margin:0 0 1.5rem;font-variant-numeric:tabular-nums;table-layout:fixed}
.rules th{border-bottom:1px solid var(--line);font-size:.8125rem;color:var(--soft);font-weight:400}
.rules td{padding:.3rem 1rem .3rem 0}
.rules td:nth-child(n+2):nth-child(-n+5),.rules th:nth-child(n+2):nth-child(-n+5){text-align:right;white-space:nowrap}
.rules th:nth-child(2){width:7.5rem}
.rules th:nth-child(3),.rules th:nth-child(4){width:5rem}
.rules th:nth-child(5){width:9rem}
.rules td:first-child{font-weight:550}
.rules td:last-child{color:var(--soft);font-size:.875rem}
.rules th:last-child{width:36%}
.rules .bar{display:inline-block;height:.7em;border-radius:2px;margin-right:.5em;vertical-align:-.02em}
.rules .of{color:var(--soft)}
@media (max-width:56rem){
.rules th:nth-child(2){width:6rem}
.rules th:nth-child(3),.rules th:nth-child(4){width:4.5rem}
.rules th:nth-child(5){width:8rem}
.rules th:last-child{width:20%}
}
@media (max-width:40rem){
.rules thead{display:none}
.rules,.rules tbody{display:block}
.rules tr{display:flex;flex-wrap:wrap;column-gap:1rem;padding:.5rem 0;border-bottom:1px solid var(--line)}
.rules td,.rules td:nth-child(n+2):nth-child(-n+5){padding:.1rem 0;border:0;text-align:left}
.rules td:first-child,.rules td:last-child{flex:0 0 100%;min-width:8rem;overflow-wrap:anywhere}
.rules td[data-name]::before{content:attr(data-name) " ";color:var(--soft);font-size:.8125rem}
}
h3 i{font-style:normal;font-weight:400;color:var(--soft)}
""".strip()

HEADS = {
    "usual": "Usual: they hold a question word that hand-written rules go by",
    "new": "New: as frequent and precise, without such a word",
    "suspicious": "Suspicious: imprecise, often wrong where used, a name, or hardly seen in training",
}


NOTHING = "No phrase is supported by enough questions to be a rule: give more questions, or lower least (--least)."


def summary(found: Rules) -> str:
    """One line on the questions, the network's accuracy and the errors of the attributions."""
    right = "" if found.accuracy is None else f" The network agrees with the labels on {found.accuracy:.1%} of them."
    met = "All" if found.converged == 1 else f"{found.converged:.1%} of the"
    tol, many = found.settings.get("tol", 0.0), "question" if found.questions == 1 else "questions"
    return (
        f"{found.questions:,} {many}.{right} {met} attributions are within the {percent(tol)} asked for "
        f"(largest estimated error {percent(found.error)})."
    )


APART = "Not counted, since the network never saw most of their words: its answers to them mean nothing"

MOST_APART = 20
"""The most such questions that a table lists."""


def shown(rule: TriggerRule) -> str:
    """The phrase of a rule, followed by dots if it opens the question."""
    return printable(rule.phrase) + (" …" if rule.opens else "")


def table(found: Rules) -> str:
    """The rules as a table for a terminal."""
    lines = [summary(found), *([] if len(found) else ["", NOTHING])]
    wide = max((len(shown(rule)) for rule in found), default=6)
    for label in found.classes:
        for kind in HEADS:
            rows = [rule for rule in found if (rule.label, rule.kind) == (label, kind)]
            if rows:
                lines += ["", f"{printable(label)}: {kind}", f"  {'phrase':<{wide}}  support  precision  right  attribution"]
                lines += [_text_row(rule, wide) for rule in rows]
    return "\n".join(lines + _apart_lines(found))


def _apart_lines(found: Rules) -> list[str]:
    """The questions that the network knows too little of, for a terminal; none where there are none."""
    if not found.apart:
        return []
    more = [f"  and {len(found.apart) - MOST_APART:,} more"] if len(found.apart) > MOST_APART else []
    return ["", f"{APART} ({len(found.apart):,}):", *(f"  {printable(text)}" for text in found.apart[:MOST_APART]), *more]


def _text_row(rule: TriggerRule, wide: int) -> str:
    shares = f"{rule.precision:>9.0%}  {rule.right:>5.0%}"
    why = f"  {rule.why}" if rule.kind == "suspicious" else ""
    return f"  {shown(rule):<{wide}}  {rule.support:>7,}  {shares}  {rule.attribution:>+11.2f}{why}"


def tables(found: Rules) -> str:
    """The rules as HTML tables."""
    parts = [f'<p class="lead">{escape(summary(found))}</p>\n']
    for label in found.classes:
        rows = found.of(label)
        if rows:
            parts.append(f"<h2><bdi>{escape(label)}</bdi></h2>\n")
        for kind, head in HEADS.items():
            chosen = [rule for rule in rows if rule.kind == kind]
            if chosen:
                name, _, meaning = head.partition(": ")
                parts.append(f"<h3>{name} <i>{meaning}</i></h3>\n{_table(chosen)}")
    if found.apart:
        name, _, meaning = APART.partition(", ")
        listed = "".join(f'<li><bdi dir="auto">{escape(text)}</bdi></li>\n' for text in found.apart[:MOST_APART])
        left = len(found.apart) - MOST_APART
        more = f"<p>and {left:,} more; a .json in place of the page has all.</p>\n" if left > 0 else ""
        parts.append(f"<h3>{name} ({len(found.apart):,}) <i>{meaning}</i></h3>\n<ul>\n{listed}</ul>\n{more}")
    return "".join(parts)


def _table(rows: Sequence[TriggerRule]) -> str:
    heads = ("phrase", "support", "precision", "right", "adds", "why, and where it adds most")
    head = "".join(f"<th>{text}</th>" for text in heads)
    body = "".join(_row(rule) for rule in rows)
    return f'<table class="rules"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>\n'


def _row(rule: TriggerRule) -> str:
    size = 3.5 * min(1.0, max(0.0, rule.attribution))
    bar = f'<span class="bar" style="width:{size:.2f}em;background:{RAMP[-1]}"></span>'
    example = f"“<bdi>{escape(rule.examples[0])}</bdi>”" if rule.examples else ""
    why = f"{escape(rule.why)}: " if rule.kind == "suspicious" else ""
    return (
        f"<tr><td><bdi>{escape(shown(rule))}</bdi></td>"
        f'<td data-name="support">{rule.support:,} <span class=of>of {rule.holding:,}</span></td>'
        f'<td data-name="precision">{rule.precision:.0%}</td><td data-name="right">{rule.right:.0%}</td>'
        f'<td data-name="adds">{bar}{rule.attribution:+.2f}</td><td>{why}{example}</td></tr>\n'
    )


def page(found: Rules, *, title: str, command: str | None) -> str:
    """The rules as an HTML page, with the criteria at its end."""
    limits = found.settings
    said = (
        "A phrase triggers a class where its words are adjacent and each holds at least "
        f"{limits.get('strong', 0):.0%} of what speaks for the class; dots after it say that it opens the question. "
        "Support counts such questions, out of all that hold "
        "the phrase; precision is the share of those that are of the class, and right the share of the supporting ones; adds "
        f"is the mean of what it adds to the score. A new rule needs a support of {limits.get('least', 0):.0f} and a "
        f"precision of {limits.get('precise', 0):.0%}; what is rarer is listed as suspicious where it adds "
        f"{limits.get('striking', 0):.2f} or more and is a name, a word hardly seen in training, or imprecise."
    )
    made = origin({name: f"{value:g}" for name, value in limits.items()}, command)
    return document(title, f'{tables(found)}<p class="legend">{escape(said)}</p>\n{made}', style=STYLE)
