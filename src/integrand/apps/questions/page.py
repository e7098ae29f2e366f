"""Rules as tables, for a terminal and as HTML. Every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...render.escaping import escape
from ...render.glance import GLANCE, Entry, Export, collection, export_buttons, glance, glance_script
from ...render.html import document, origin
from ...render.text.tokens import printable
from ...render.text.word_markup import RAMP
from ...render.text.word_sentences import capital, number, quoted
from ...words import percent
from .result import asked_for

if TYPE_CHECKING:
    from .trigger_rules import Kind, Rules, TriggerRule

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

PAGE = """
.kinds{width:auto;font-variant-numeric:tabular-nums;margin:0 0 .75rem}
.kinds :is(th,td){padding:.15rem 1.25rem .15rem 0}
.kinds thead th{font-weight:400;font-size:.8125rem;color:var(--soft)}
.kinds :is(td,thead th):nth-child(n+2):nth-child(-n+4){text-align:right}
.rule{display:grid;grid-template-columns:minmax(0,16rem) minmax(0,1fr) minmax(0,1fr);gap:.25rem 1.5rem}
.rule h2{margin:0;font-size:1.125rem}
.rule p{margin:0 0 .15rem}
.card{border-top:1px solid var(--line);padding:.6rem 0}
.kind{font-size:.8125rem;border-radius:999px;padding:.05rem .55rem;border:1px solid currentColor;color:var(--soft)}
.kind.new{color:var(--good)}
.kind.suspicious{color:var(--bad)}
.adds{display:inline-block;width:6rem;height:.7em;background:var(--card);border-radius:2px;vertical-align:-.02em}
.adds i{display:block;height:100%;border-radius:2px;background:#b2182b}
.tools label{flex:0 1 12rem}
.tools label :is(input,select){width:100%}
@media(max-width:48rem){.rule{grid-template-columns:1fr}.tools label{flex:1 1 8rem}.kinds :is(th,td){padding-right:.6rem}}
""".strip()

HEADINGS = ("fires for", "right as a rule", "right", "adds")
"""What is known of a rule: support, precision, the share of right answers where it fires, and the mean attribution."""

KINDS: tuple[Kind, ...] = ("usual", "new", "suspicious")

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
                lines += ["", f"asks for {printable(asked_for(label))}: {kind}"]
                lines += [f"  {'phrase':<{wide}}  fires for  of those with it  right  adds"]
                lines += [_text_row(rule, wide) for rule in rows]
    return "\n".join(lines + _apart_lines(found))


def _apart_lines(found: Rules) -> list[str]:
    """The questions that the network knows too little of, for a terminal; none where there are none."""
    if not found.apart:
        return []
    more = [f"  and {len(found.apart) - MOST_APART:,} more"] if len(found.apart) > MOST_APART else []
    return ["", f"{APART} ({len(found.apart):,}):", *(f"  {printable(text)}" for text in found.apart[:MOST_APART]), *more]


def _text_row(rule: TriggerRule, wide: int) -> str:
    shares = f"{rule.precision:>16.0%}  {rule.right:>5.0%}"
    why = f"  {rule.why}" if rule.kind == "suspicious" else ""
    return f"  {shown(rule):<{wide}}  {rule.support:>9,}  {shares}  {rule.attribution:>+4.2f}{why}"


def tables(found: Rules) -> str:
    """The rules as HTML tables."""
    parts = [f'<p class="lead">{escape(summary(found))}</p>\n']
    for label in found.classes:
        rows = found.of(label)
        if rows:
            parts.append(f"<h2><bdi>asks for {escape(asked_for(label))}</bdi></h2>\n")
        for kind, head in HEADS.items():
            chosen = [rule for rule in rows if rule.kind == kind]
            if chosen:
                name, _, meaning = head.partition(": ")
                parts.append(f"<h3>{name} <i>{meaning}</i></h3>\n{_table(chosen)}")
    parts.append(_apart(found))
    return "".join(parts)


def _apart(found: Rules) -> str:
    """The questions that the network knows too little of, as a section of a page; '' where there are none."""
    if not found.apart:
        return ""
    name, _, meaning = APART.partition(", ")
    listed = "".join(f'<li><bdi dir="auto">{escape(text)}</bdi></li>\n' for text in found.apart[:MOST_APART])
    left = len(found.apart) - MOST_APART
    more = f"<p>and {left:,} more; a .json in place of the page has all.</p>\n" if left > 0 else ""
    return f"<h3>{name} ({len(found.apart):,}) <i>{meaning}</i></h3>\n<ul>\n{listed}</ul>\n{more}"


def _table(rows: Sequence[TriggerRule], *, name: str = "") -> str:
    """Rules as a table; one that has a name can be saved, and says the class and kind of each."""
    heads = ("phrase", *HEADINGS, "why, and where it adds most", *(("asks for", "kind") if name else ()))
    head = "".join(f"<th>{text}</th>" for text in heads)
    body = "".join(_row(rule, whole=bool(name)) for rule in rows)
    mark = f' id="{escape(name)}"' if name else ""
    return f'<table class="rules"{mark}><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>\n'


def _row(rule: TriggerRule, *, whole: bool = False) -> str:
    size = 3.5 * min(1.0, max(0.0, rule.attribution))
    bar = f'<span class="bar" style="width:{size:.2f}em;background:{RAMP[-1]}"></span>'
    example = f"“<bdi>{escape(rule.examples[0])}</bdi>”" if rule.examples else ""
    why = f"{escape(rule.why)}: " if rule.kind == "suspicious" else ""
    also = f"<td>{escape(asked_for(rule.label))}</td><td>{escape(rule.kind)}</td>" if whole else ""
    return (
        f"<tr><td><bdi>{escape(shown(rule))}</bdi></td>"
        f'<td data-name="fires for">{rule.support:,} <span class=of>of {rule.holding:,}</span></td>'
        f'<td data-name="right as a rule" data-value="{rule.precision:.17g}">{rule.precision:.0%}</td>'
        f'<td data-name="right" data-value="{rule.right:.17g}">{rule.right:.0%}</td>'
        f'<td data-name="adds" data-value="{rule.attribution:.17g}">{bar}{rule.attribution:+.2f}</td>'
        f"<td>{why}{example}</td>{also}</tr>\n"
    )


def sentence(found: Rules) -> str:
    """How many rules there are of which kind, the strongest of them, and how sure the numbers are, in one line."""
    counted = [f"{len(found.of(kind=kind)):,} {kind}" for kind in KINDS if found.of(kind=kind)]
    if not counted:
        return NOTHING
    best = max(found, key=lambda rule: rule.attribution * rule.support)
    sure = f"numbers good to {percent(found.error)}"
    if found.converged < 1:
        sure = f"{percent(1 - found.converged)} of the numbers not good to {percent(found.settings.get('tol', 0.0))}"
    many = "question" if found.questions == 1 else "questions"
    return (
        f"From {found.questions:,} {many}: {_and(counted)} rules, strongest of all that {quoted(best.phrase)} asks for "
        f"{asked_for(best.label)}; {sure}."
    )


def rule_sentence(rule: TriggerRule) -> str:
    """What a rule says and how often it is right, in one line."""
    many = "question" if rule.support == 1 else "questions"
    place = " at the beginning" if rule.opens else ""
    return (
        f"{quoted(rule.phrase)}{place} asks for {asked_for(rule.label)}: fires for {rule.support:,} {many}, right in "
        f"{rule.right:.0%}."
    )


def page(found: Rules, *, title: str, command: str | None) -> str:
    """The rules as an HTML page: a summary, every rule in plain words to be searched and filtered, and the criteria."""
    cards = [_card(rule) for rule in found]
    limits = {name: f"{value:g}" for name, value in found.settings.items()}
    saves = export_buttons(Export("csv", "all-rules", "rules.csv", "Save all rules as CSV")) if cards else ""
    everything = f"<details><summary>All rules in one table</summary>\n{_table(found.rules, name='all-rules')}</details>\n"
    parts = (
        glance(sentence(found), *([_summary(found)] if cards else []), badges=_badge(found)),
        collection(cards, noun="rule") if cards else "",
        f"{saves}{everything if cards else ''}",
        _apart(found),
        f"<details><summary>How rules are found</summary>\n<p>{escape(_criteria(found))}</p></details>\n",
        origin(limits, command),
    )
    return document(title, "".join(parts), style=f"{GLANCE}\n{STYLE}\n{PAGE}", scripts=(glance_script(),))


def _criteria(found: Rules) -> str:
    limits = found.settings
    return (
        "A phrase fires for a class where its words are adjacent and each holds at least "
        f"{limits.get('strong', 0):.0%} of what speaks for the class; dots after it say that it opens the question. "
        "How often it is right is counted among these questions, and how often it is right as a rule among all that hold it. "
        "What it adds is the mean of what it adds to the score. Usual rules hold a question word that hand-written rules go "
        f"by. A new rule fires for at least {limits.get('least', 0):.0f} questions, and at least "
        f"{limits.get('precise', 0):.0%} of those that hold it are of the class; what is rarer is listed as suspicious where "
        f"it adds {limits.get('striking', 0):.2f} or more and is a name, a word hardly seen in training, or imprecise."
    )


def _card(rule: TriggerRule) -> Entry:
    asks = asked_for(rule.label)
    many = "question" if rule.support == 1 else "questions"
    size = 100 * min(1.0, max(0.0, rule.attribution))
    bar = f'<span class="adds"><i style="width:{size:.1f}%"></i></span>'
    example = f'<p class="rest">“<bdi>{escape(rule.examples[0])}</bdi>”</p>' if rule.examples else ""
    why = f'<p class="why">{escape(capital(rule.why))}.</p>' if rule.kind == "suspicious" else ""
    fires = f"Fires for {rule.support:,} {many}, right in {rule.right:.0%}."
    held = f"Of the {rule.holding:,} that {'open with' if rule.opens else 'hold'} it, {rule.precision:.0%} ask for {asks}."
    html = (
        f'<div class="rule"><div><h2><bdi>{escape(shown(rule))}</bdi></h2><p>asks for {escape(asks)} '
        f'<span class="kind {escape(rule.kind)}">{escape(rule.kind)}</span></p></div>\n'
        f"<div><p>{fires} {escape(held)}</p>\n<p>{bar} adds {number(rule.attribution)} on average</p></div>\n"
        f"<div>{why}{example}</div></div>\n"
    )
    order = {"most questions first": -rule.support, "adds most first": -rule.attribution, "least often right first": rule.right}
    return Entry(html, f"{rule.phrase} {' '.join(rule.examples)}", {"asks for": asks, "kind": rule.kind}, order)


def _summary(found: Rules) -> str:
    """Rules by class and kind, with the strongest of each class."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in KINDS)
    body = ""
    for label in found.classes:
        rows = found.of(label)
        if rows:
            counts = "".join(f"<td>{len(found.of(label, kind)) or '·'}</td>" for kind in KINDS)
            best = max(rows, key=lambda rule: rule.attribution * rule.support)
            name = f'<th scope="row">{escape(asked_for(label))}</th>'
            body += f"<tr>{name}{counts}<td><bdi>{escape(shown(best))}</bdi></td></tr>\n"
    top = f'<thead><tr><th scope="col">asks for</th>{head}<th scope="col">strongest</th></tr></thead>'
    return f'<table class="kinds">{top}<tbody>\n{body}</tbody></table>\n'


def _badge(found: Rules) -> str:
    good = found.converged == 1
    words = f"Numbers good to {percent(found.error)}" if good else f"{percent(1 - found.converged)} not accurate enough"
    kind = "good" if good else "bad"
    return f'<details class="badge {kind}"><summary>{escape(words)}</summary>\n<p>{escape(summary(found))}</p></details>\n'


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
