"""Coloured words as HTML. Every text passes through ``html.escape``; directions are left to the reader's browser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from ._certificate import sentence
from ._certificate import verdict as certificate_verdict
from ._report import document, fact_table, origin
from ._text_colours import RAMP, UNKNOWN, account, background, ink, limit_of, neutral, number, verdict
from ._text_tokens import Piece, Tokens

STYLE = """
.line{margin:0 0 .35rem;font-size:1.125rem;line-height:1.9;overflow-wrap:anywhere;white-space:pre-wrap}
.line b{font-size:.9375rem;font-weight:600;white-space:nowrap}
.text{border-top:1px solid var(--line);padding:1rem 0 .6rem}
.text>p:not(.line){margin:0 0 .35rem;font-size:.875rem;color:var(--soft)}
.text details{margin:.2rem 0 .4rem;font-size:.9375rem}
.run{table-layout:fixed;font-variant-numeric:tabular-nums}
.run th{width:24%;font-weight:400;overflow-wrap:anywhere;white-space:pre-wrap}
.run th,.run td{padding:.12rem .6rem .12rem 0}
.run td:nth-child(3),.run td:nth-child(4){width:7rem;text-align:right;white-space:nowrap;padding-right:0}
.run td:nth-child(4){width:5rem}
.run .end th,.run .end td{font-weight:600}
.run .way{position:relative;padding:0;background:var(--card)}
.run .way i{position:absolute;top:.22rem;bottom:.22rem;border-radius:2px;min-width:1px}
.key{display:flex;gap:.6rem;align-items:center;max-width:24rem;margin:1.5rem 0 0;font-size:.8125rem;color:var(--soft)}
.key .ramp{flex:1;margin:0;height:.7rem}
""".strip()


def fragment(rows: Sequence[Tokens], *, limit: float | None = None) -> str:
    """Texts with coloured words, in styles of their own, for a notebook."""
    look = "margin:0 0 .5em;line-height:1.9;white-space:pre-wrap;overflow-wrap:anywhere"
    drawn = []
    for tokens in rows:
        below = " · ".join(escape(text) for text in (account(tokens), tokens.note) if text)
        small = f'<div style="opacity:.65;font-size:85%;margin:0 0 1em">{below}</div>' if below else ""
        drawn.append(f'<p style="{look}">{_line(tokens, limit)}</p>{small}')
    return f"<div>{''.join(drawn)}</div>"


def page(
    rows: Sequence[Tokens], *, title: str, lead: str = "", meta: Mapping[str, str] | None = None, command: str | None = None
) -> str:
    """A page of texts, each with its running sum and certificate; see :func:`integrand.render.text.page`."""
    opened = len(rows) <= 3
    body = "".join(section(tokens, opened=opened) for tokens in rows)
    said = f'<p class="lead">{escape(lead)}</p>\n' if lead else ""
    return document(title, f"{said}{body}{key()}{origin(meta or {}, command)}", style=STYLE)


def section(tokens: Tokens, *, opened: bool = False, limit: float | None = None) -> str:
    """One text of a page: its words, what was said, the running sum, the certificate."""
    certificate = tokens.certificate
    said = [escape(text) for text in (account(tokens), tokens.note) if text]
    more = f"<details{' open' * opened}><summary>Running sum</summary>\n{running_table(tokens)}</details>\n"
    if certificate is not None:
        facts = f"<p>{escape(sentence(certificate))}</p>\n{certificate_verdict(certificate)}\n{fact_table(certificate)}"
        more += f"<details><summary>Certificate</summary>\n{facts}</details>\n"
    notes = "".join(f"<p>{text}</p>\n" for text in said)
    return f'<section class="text">\n<p class="line">{_line(tokens, limit)}</p>\n{notes}{more}</section>\n'


def _line(tokens: Tokens, limit: float | None) -> str:
    """The words in one element that finds its direction by itself; what was said stands apart from it."""
    reach = limit_of([tokens]) if limit is None else limit
    # No element of its own direction around single words: the letters of cursive scripts join across word pieces.
    words = "".join(escape(piece.gap) + _word(piece, reach) for piece in tokens.pieces) + escape(tokens.tail)
    said = verdict(tokens)
    return f'<bdi dir="auto">{words}</bdi>' + (f" <b>[<bdi>{escape(said)}</bdi>]</b>" if said else "")


def _word(piece: Piece, limit: float) -> str:
    title = f' title="{escape(number(piece.value))}"'
    if neutral(piece.value, limit):
        return f'<span style="opacity:.72"{title}>{escape(piece.shown)}</span>'
    behind = background(piece.value, limit)
    look = f"background:{behind};color:{ink(behind)};border-radius:.2em;padding:.1em 0"
    return f'<span style="{look}"{title}>{escape(piece.shown)}</span>'


def running_table(tokens: Tokens) -> str:
    """From F(x') word by word to F(x): bars that begin where the one before ended, so that completeness can be seen."""
    sums = tokens.running
    ends = [*sums, tokens.score] if math.isfinite(tokens.score) else list(sums)
    low, high = min(*ends, 0.0), max(*ends, 0.0)
    reach = (high - low) or 1.0

    def bar(a: float, b: float, colour: str) -> str:
        left, wide = 100 * (min(a, b) - low) / reach, 100 * abs(b - a) / reach
        return f'<i style="left:{left:.2f}%;width:{wide:.2f}%;background:{colour}"></i>'

    grey = "var(--soft)"
    rows = [_row("nothing: F(x′)", bar(0.0, sums[0], grey), "", f"{sums[0]:.3g}", end=True)]
    for text, value, before, after in zip(tokens.texts, tokens.values, sums[:-1], sums[1:], strict=True):
        colour = UNKNOWN if not math.isfinite(value) else RAMP[-1] if value > 0 else RAMP[0]
        rows.append(_row(text, bar(before, after, colour), number(value), f"{after:.3g}"))
    if math.isfinite(tokens.score):
        misses = f"off {number(float(f'{tokens.missed:.1g}'))}"
        rows.append(_row("the model: F(x)", bar(0.0, tokens.score, grey), misses, f"{tokens.score:.3g}", end=True))
    return f'<table class="run"><tbody>\n{"".join(rows)}</tbody></table>\n'


def _row(name: str, bar: str, value: str, total: str, *, end: bool = False) -> str:
    kind = ' class="end"' if end else ""
    cells = f'<td class="way">{bar}</td><td>{escape(value)}</td><td>{escape(total)}</td>'
    return f'<tr{kind}><th><bdi dir="auto">{escape(name)}</bdi></th>{cells}</tr>\n'


def key() -> str:
    """What the colours mean."""
    ramp = f'<span class="ramp" style="background:linear-gradient(to right,{",".join(RAMP)})"></span>'
    return f'<p class="key"><span>against</span>{ramp}<span>for what is in brackets</span></p>\n'
