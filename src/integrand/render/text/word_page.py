"""Pages of explained texts: one with its answer in large, or many that can be searched, filtered and sorted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from ...certificate import Certificate, ExampleCertificate
from ...words import percent
from ..certificate_text import grade, trust
from ..escaping import escape
from ..glance import GLANCE, Entry, Export, badge, collection, export_buttons, glance, glance_script, said, saying
from ..html import document, origin
from .tokens import Tokens
from .word_markup import RAMP, STYLE, UNKNOWN, account, words_html
from .word_sentences import capital, number, quoted, sentence, verdict, word_saying

CHOICES = 8
"""Answers that a page lists with their probabilities; the rest is counted."""

LONG = 240
"""Texts with more characters than this are written smaller on a page of their own."""

PAGE = """
.chances{table-layout:fixed;font-variant-numeric:tabular-nums;max-width:34rem}
.chances th{width:42%;font-weight:400;overflow-wrap:anywhere;padding:.15rem .75rem .15rem 0}
.chances td{padding:.15rem 0;vertical-align:middle}
.chances td:last-child{width:4.25rem;text-align:right}
.chances i{display:block;height:.7rem;border-radius:3px;background:var(--soft);opacity:.55;min-width:2px}
.chances .said-so :is(th,td){font-weight:650}
.chances .said-so i{background:var(--focus);opacity:1}
.chances caption{text-align:left;color:var(--soft);font-size:.875rem;padding:0 0 .25rem}
.text .top{display:flex;flex-wrap:wrap;gap:0 1.5rem;align-items:baseline}
.text h2{margin:0;font-size:1.0625rem}
.text .said{margin:0;flex:1 1 16rem;text-align:right}
.card{border-top:1px solid var(--line);padding:.75rem 0 .25rem}
.card p.rest{margin:0 0 .25rem}
.card details{margin:.1rem 0 .4rem;font-size:.9375rem}
.card .badge{float:right;margin-left:.75rem}
.card .badge[open]{float:none;clear:both}
.tools label{flex:0 1 12rem}
.tools label :is(input,select){width:100%}
@media(max-width:40rem){.glance:has(.chances){gap:.25rem}
.tools label{flex:1 1 8rem}.text .said{text-align:left;min-height:1.5em}}
""".strip()


def page(
    rows: Sequence[Tokens], *, title: str, lead: str = "", meta: Mapping[str, str] | None = None, command: str | None = None
) -> str:
    """A page of texts; see :func:`integrand.render.text.page`."""
    made = origin(meta or {}, command)
    if len(rows) == 1:
        heading, body = capital(verdict(rows[0])) or title, _single(rows[0])
    else:
        heading, body = title, _many(rows, lead)
    return document(heading, body + made, style=f"{GLANCE}\n{STYLE}\n{PAGE}", scripts=(glance_script(),))


def chances(tokens: Tokens) -> str:
    """What the model could have said, with probabilities as bars, the most probable first; '' where that is not known."""
    if not tokens.choices:
        return ""
    order = sorted(tokens.choices, key=lambda choice: -choice[1])
    rows = "".join(_chance(name, share, name == _chosen(tokens)) for name, share in order[:CHOICES])
    rest = f'<p class="rest">and {len(order) - CHOICES} more</p>\n' if len(order) > CHOICES else ""
    return f'<table class="chances"><caption>How probable each answer is</caption><tbody>\n{rows}</tbody></table>\n{rest}'


def running_table(tokens: Tokens, *, name: str = "") -> str:
    """The running sum, word by word, as bars that each begin where the last one ended; each row says what it shows.

    Args:
        tokens: the text.
        name: the ``id`` of the table, by which it is saved.
    """
    sums = tokens.running
    ends = [*sums, tokens.score] if math.isfinite(tokens.score) else list(sums)
    low, high = min(*ends, 0.0), max(*ends, 0.0)
    reach = (high - low) or 1.0

    def bar(a: float, b: float, colour: str) -> str:
        left, wide = 100 * (min(a, b) - low) / reach, 100 * abs(b - a) / reach
        return f'<i style="left:{left:.2f}%;width:{wide:.2f}%;background:{colour}"></i>'

    grey = "var(--soft)"
    start = f"Without any words the score is {sums[0]:.3g}"
    rows = [_row("baseline: F(x′)", bar(0.0, sums[0], grey), "", (f"{sums[0]:.3g}", sums[0]), start, end=True)]
    errors: Sequence[float | None] = tokens.errors or [None] * len(tokens.texts)
    each = zip(tokens.texts, tokens.values, errors, sums[:-1], sums[1:], strict=True)
    for text, value, error, before, after in each:
        colour = UNKNOWN if not math.isfinite(value) else RAMP[-1] if value > 0 else RAMP[0]
        says = f"{word_saying(text, value, error)}; the sum goes from {before:.3g} to {after:.3g}"
        total = (f"{after:.3g}", after)
        rows.append(_row(text, bar(before, after, colour), number(value), total, says, value=value, error=error))
    if math.isfinite(tokens.score):
        misses = f"off {number(float(f'{tokens.missed:.1g}'))}"
        says = f"With all words the score is {tokens.score:.3g}; the sum of the words misses it by {abs(tokens.missed):.1g}"
        total = (f"{tokens.score:.3g}", tokens.score)
        rows.append(_row("the model: F(x)", bar(0.0, tokens.score, grey), misses, total, says, end=True))
    mark = f' id="{escape(name)}"' if name else ""
    off = "<th>±</th>" if tokens.errors is not None else ""
    head = f'<thead><tr><th>word</th><td data-csv="no"></td><th>adds</th><th>sum</th>{off}</tr></thead>'
    body = f'<table class="run"{mark}>{head}<tbody>\n{"".join(rows)}</tbody></table>\n'
    return f"<div data-sayings>\n{body}{said('Point at a row, or touch it, to read it in words.')}</div>\n"


def key(says: str = "for it") -> str:
    """The colour scale below the texts of a page."""
    ramp = f'<span class="ramp" style="background:linear-gradient(to right,{",".join(RAMP)})"></span>'
    return f'<p class="key"><span>speaks against it</span>{ramp}<span>{escape(says)}</span></p>\n'


def _single(tokens: Tokens) -> str:
    size = " long" if len(tokens.text or " ".join(tokens.texts)) > LONG else ""
    moved = ""
    if math.isfinite(tokens.score) and math.isfinite(tokens.baseline_score):
        moved = f" All of them together move the score from {tokens.baseline_score:.3g} to {tokens.score:.3g}."
    prompt = said(f"Point at a word, touch it, or use the arrow keys, to read its number.{moved}")
    words = f'<p class="line large{size}" id="words">{words_html(tokens)}</p>\n'
    shown = f"<div data-sayings>\n{words}{prompt}{key()}</div>\n"
    answers = chances(tokens)
    panes = [shown, f"<div>{answers}</div>\n"] if answers else [shown]
    badges = badge(tokens.certificate) if tokens.certificate is not None else ""
    first = glance(sentence(tokens), *panes, badges=badges, heed=[*tokens.notes, *filter(None, [tokens.note])])
    saves = export_buttons(Export("png", "words", "words.png"), Export("csv", "sums", "words.csv"))
    told = f'<p class="rest">{escape(account(tokens))}</p>\n' if account(tokens) else ""
    sums = f"{told}{running_table(tokens, name='sums')}"
    return f"{first}{saves}<details open><summary>Word by word: how the sum grows</summary>\n{sums}</details>\n"


def _many(rows: Sequence[Tokens], lead: str) -> str:
    certificates = [tokens.certificate for tokens in rows if tokens.certificate is not None]
    badges = badge(Certificate(tuple(certificates))) if certificates else ""
    notes = f'<p class="rest">{escape(lead)}</p>\n' if lead else ""
    filtered = len({tokens.meaning or tokens.label for tokens in rows}) > 1
    cards = [_card(i, tokens, filtered) for i, tokens in enumerate(rows)]
    saves = export_buttons(Export("csv", "all-words", "words.csv", "Save all words as CSV"))
    noted = sum(bool(tokens.notes) for tokens in rows)
    heed = [f"{noted} of {len(rows)} texts come with a note: the model may not know their words."] if noted else []
    pane = f"<div>{_counts(rows)}{key()}</div>\n"
    top = f"{glance(_told(rows, certificates), pane, badges=badges, heed=heed)}{notes}"
    return f"{top}{collection(cards, noun='text')}{saves}{_all_words(rows)}"


def _told(rows: Sequence[Tokens], certificates: Sequence[ExampleCertificate]) -> str:
    """Several texts in one sentence: how many, of which the model is least certain, and how sure the numbers are."""
    known = [tokens for tokens in rows if tokens.probability is not None and math.isfinite(tokens.probability)]
    least = min(known, key=lambda tokens: tokens.probability or 0.0, default=None)
    sure = "" if least is None else f", least certain of {quoted(least.text or ' '.join(least.texts))}: {verdict(least)}"
    kinds = {tokens.label for tokens in rows}
    same = f": {kinds.pop()}" if len(kinds) == 1 and not known else ""
    return f"{len(rows)} texts{same}{sure}" + (f"; {trust(Certificate(tuple(certificates)))}." if certificates else ".")


def _counts(rows: Sequence[Tokens]) -> str:
    """How many texts got each answer, as bars; '' where each got another."""
    kinds = Counter(tokens.meaning or tokens.label for tokens in rows if tokens.label)
    if not kinds or len(kinds) == len(rows):
        return ""
    most = max(kinds.values())
    body = "".join(
        f'<tr><th scope="row"><bdi>{escape(name)}</bdi></th><td><i style="width:{100 * count / most:.2f}%"></i></td>'
        f"<td>{count:,}</td></tr>\n"
        for name, count in kinds.most_common()
    )
    return f'<table class="chances"><caption>Answers, by number of texts</caption><tbody>\n{body}</tbody></table>\n'


def _card(i: int, tokens: Tokens, filtered: bool) -> Entry:
    text = tokens.text or " ".join(tokens.texts)
    heading = capital(verdict(tokens)) or f"Text {i + 1}"
    notes = "".join(f'<p class="heed">{escape(note)}</p>\n' for note in tokens.notes)
    small = "".join(f'<p class="rest">{escape(text)}</p>\n' for text in (sentence(tokens), tokens.note) if text)
    top = f'<div class="top"><h2>{escape(heading)}</h2>{said("")}</div>\n'
    words = f'<div data-sayings>\n{top}<p class="line">{words_html(tokens)}</p>\n</div>\n'
    marks = badge(tokens.certificate) if tokens.certificate is not None and grade(tokens.certificate) != "good" else ""
    inside = f"{chances(tokens)}{running_table(tokens)}"
    told = f'<p class="rest">{escape(account(tokens))}</p>\n' if account(tokens) else ""
    more = f"<details><summary>Probabilities and running sum</summary>\n{told}{inside}</details>\n"
    chance = tokens.probability if tokens.probability is not None and math.isfinite(tokens.probability) else None
    order = {"least certain first": chance} if chance is not None else {}
    if tokens.certificate is not None and math.isfinite(tokens.certificate.error):
        order["least accurate numbers first"] = -tokens.certificate.error
    kinds = {"answer": tokens.meaning or tokens.label} if filtered and tokens.label else {}
    kinds |= {"note": "with a note"} if tokens.notes else {"note": "without"}
    html = f'<div class="text">{marks}{words}{notes}{small}{more}</div>\n'
    return Entry(html, f"{text} {heading}", kinds, order)


def _all_words(rows: Sequence[Tokens]) -> str:
    head = "<thead><tr><th>text</th><th>answer</th><th>word</th><th>adds</th></tr></thead>"
    body = "".join(
        f"<tr><td>{i}</td><td>{escape(tokens.label)}</td><td>{escape(word)}</td>"
        f'<td data-value="{value!r}">{escape(number(value))}</td></tr>\n'
        for i, tokens in enumerate(rows, 1)
        for word, value in zip(tokens.texts, tokens.values, strict=True)
    )
    table = f'<table id="all-words">{head}<tbody>\n{body}</tbody></table>'
    return f"<details><summary>All words in one table</summary>\n{table}</details>\n"


def _chosen(tokens: Tokens) -> str:
    """The answer among the choices that was explained: the one whose probability it has."""
    near = [(abs(share - (tokens.probability or math.inf)), name) for name, share in tokens.choices]
    return min(near)[1] if near and math.isfinite(min(near)[0]) else ""


def _chance(name: str, share: float, chosen: bool) -> str:
    kind = ' class="said-so"' if chosen else ""
    bar = f'<td><i style="width:{100 * max(0.0, min(1.0, share)):.2f}%"></i></td>'
    return f'<tr{kind}><th scope="row"><bdi>{escape(name)}</bdi></th>{bar}<td>{percent(share)}</td></tr>\n'


def _row(
    name: str,
    bar: str,
    shown: str,
    total: tuple[str, float],
    says: str,
    *,
    value: float | None = None,
    error: float | None = None,
    end: bool = False,
) -> str:
    kind = ' class="end"' if end else ""
    exact = "" if value is None else f' data-value="{value!r}"'
    cells = f'<td class="way" data-csv="no">{bar}</td><td{exact}>{escape(shown)}</td>'
    cells += f'<td data-value="{total[1]:.17g}">{escape(total[0])}</td>'
    cells += "" if error is None else f'<td data-value="{error!r}">{error:.1g}</td>'
    return f'<tr{kind}{saying(says)}><th scope="row"><bdi dir="auto">{escape(name, directed=True)}</bdi></th>{cells}</tr>\n'
