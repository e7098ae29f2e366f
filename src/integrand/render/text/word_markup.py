"""Texts with coloured words, as HTML and for a terminal.

Red words speak for the label, blue ones against it; words that add next to nothing are grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...words import percent
from ..certificate_text import sentence
from ..certificate_text import verdict as certificate_verdict
from ..escaping import escape
from ..html import document, fact_table, origin
from ..image.pixels import COLOURS
from .tokens import TextPiece, Tokens, printable

NEUTRAL, UNKNOWN = "#e3e5e8", "#808080"
"""The colours of words that add nothing, and of words whose attribution is not a number."""

QUIET = 0.06
"""Words whose attribution is below this share of the strongest word's count as neutral."""

RAMP = (*COLOURS[:2], COLOURS[2], NEUTRAL, COLOURS[4], *COLOURS[5:])

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

_END = "\x1b[0m"


def limit_of(lines: Iterable[Tokens]) -> float:
    """The magnitude that gets the strongest colour: that of the strongest word; 0 if there is none."""
    sizes = [abs(piece.value) for tokens in lines for piece in tokens.pieces if math.isfinite(piece.value)]
    return max(sizes, default=0.0)


def background(value: float, limit: float) -> str:
    """The colour behind a word.

    >>> background(1.0, 1.0), background(0.0, 1.0), background(-2.0, 1.0), background(math.nan, 1.0)
    ('#b2182b', '#e3e5e8', '#2166ac', '#808080')
    """
    if not math.isfinite(value):
        return UNKNOWN
    table = np.array([list(bytes.fromhex(colour[1:])) for colour in RAMP], float)
    at = (min(1.0, max(-1.0, value / (limit or 1.0))) + 1) / 2 * (len(table) - 1)
    found = [round(float(np.interp(at, np.arange(len(table)), column))) for column in table.T]
    return "#" + bytes(found).hex()


def neutral(value: float, limit: float) -> bool:
    """Whether a word's attribution is too small, next to the strongest one, to be coloured."""
    return math.isfinite(value) and abs(value) <= QUIET * limit


def ink(colour: str) -> str:
    """Black or white, whichever is easier to read on a background colour (by WCAG contrast).

    >>> ink("#b2182b"), ink("#e3e5e8")
    ('#ffffff', '#000000')
    """
    parts = np.array(list(bytes.fromhex(colour[1:]))) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    light = float(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return "#ffffff" if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else "#000000"


def number(value: float) -> str:
    """A number with its sign and three digits, as text.

    >>> number(0.314), number(-2.0), number(0.0), number(math.nan)
    ('+0.314', '−2', '0', 'nan')
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:+.3g}".replace("-", "−") if value else "0"


def verdict(tokens: Tokens) -> str:
    """The label that is explained, with its probability where known; '' without a label."""
    if not tokens.label:
        return ""
    chance = "" if tokens.probability is None or not math.isfinite(tokens.probability) else f" {tokens.probability:.2f}"
    return f"{tokens.label}{chance}"


def account(tokens: Tokens) -> str:
    """One line on what the words add up to, or on how many have no number; '' where the scores are not known."""
    unknown = sum(not math.isfinite(value) for value in tokens.values)
    if unknown:
        return f"{unknown} of {len(tokens.values)} words have no number (grey), so that nothing adds up"
    if not (math.isfinite(tokens.score) and math.isfinite(tokens.baseline_score)):
        return ""
    said = f"from {tokens.baseline_score:.3g} to {tokens.score:.3g}: the words add up to {number(tokens.total)}"
    if tokens.certificate is not None:
        said += f", estimated error {percent(tokens.certificate.error)}, {tokens.certificate.status.value}"
    return said


def fragment(rows: Sequence[Tokens], *, limit: float | None = None) -> str:
    """Texts with coloured words as an HTML fragment with inline styles, for a notebook."""
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
    """An HTML page of texts, each with its running sum and certificate; see :func:`integrand.render.text.page`."""
    opened = len(rows) <= 3
    body = "".join(section(tokens, opened=opened) for tokens in rows)
    said = f'<p class="lead">{escape(lead)}</p>\n' if lead else ""
    return document(title, f"{said}{body}{key()}{origin(meta or {}, command)}", style=STYLE)


def section(tokens: Tokens, *, opened: bool = False, limit: float | None = None) -> str:
    """One text as a section of a page: its coloured words, the label, the running sum and the certificate."""
    certificate = tokens.certificate
    said = [escape(text) for text in (*tokens.notes, account(tokens), tokens.note) if text]
    more = f"<details{' open' * opened}><summary>Running sum</summary>\n{running_table(tokens)}</details>\n"
    if certificate is not None:
        facts = f"<p>{escape(sentence(certificate))}</p>\n{certificate_verdict(certificate)}\n{fact_table(certificate)}"
        more += f"<details><summary>Certificate</summary>\n{facts}</details>\n"
    notes = "".join(f"<p>{text}</p>\n" for text in said)
    return f'<section class="text">\n<p class="line">{_line(tokens, limit)}</p>\n{notes}{more}</section>\n'


def running_table(tokens: Tokens) -> str:
    """The running sum from F(x') word by word to F(x), as a table of bars that each begin where the last one ended."""
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


def key() -> str:
    """The colour scale below the texts of a page."""
    ramp = f'<span class="ramp" style="background:linear-gradient(to right,{",".join(RAMP)})"></span>'
    return f'<p class="key"><span>against</span>{ramp}<span>for what is in brackets</span></p>\n'


def lines(rows: Sequence[Tokens], *, colour: bool = True, detail: bool = False, limit: float | None = None) -> str:
    """Texts with coloured words for a terminal, one per line; see :func:`integrand.render.text.terminal`."""
    return "\n".join(line(tokens, colour=colour, detail=detail, limit=limit) for tokens in rows)


def line(tokens: Tokens, *, colour: bool = True, detail: bool = False, limit: float | None = None) -> str:
    """One text for a terminal: words coloured, or with their numbers where colours are off, and the label in brackets."""
    reach = limit_of([tokens]) if limit is None else limit
    drawn = "".join(printable(piece.gap) + _terminal_word(piece, reach, colour) for piece in tokens.pieces) + printable(
        tokens.tail
    )
    said = printable(verdict(tokens))
    out = drawn + (f"  {_bold(f'[{said}]', colour)}" if said else "")
    below = [text for text in (account(tokens) if detail else "", printable(tokens.note)) if text]
    heed = [f"  {printable(note)}" for note in tokens.notes]
    return "\n".join([out, *heed, *(_dim(f"  {text}", colour) for text in below)])


def _line(tokens: Tokens, limit: float | None) -> str:
    """One text as HTML: its words in an element that finds its own reading direction, then the label in brackets."""
    reach = limit_of([tokens]) if limit is None else limit
    # No element of its own direction around single words: the letters of cursive scripts join across word pieces.
    words = "".join(escape(piece.gap, directed=True) + _word(piece, reach) for piece in tokens.pieces)
    words += escape(tokens.tail, directed=True)
    said = verdict(tokens)
    return f'<bdi dir="auto">{words}</bdi>' + (f" <b>[<bdi>{escape(said)}</bdi>]</b>" if said else "")


def _word(piece: TextPiece, limit: float) -> str:
    title = f' title="{escape(number(piece.value))}"'
    if neutral(piece.value, limit):
        return f'<span style="opacity:.72"{title}>{escape(piece.shown, directed=True)}</span>'
    behind = background(piece.value, limit)
    look = f"background:{behind};color:{ink(behind)};border-radius:.2em;padding:.1em 0"
    return f'<span style="{look}"{title}>{escape(piece.shown, directed=True)}</span>'


def _row(name: str, bar: str, value: str, total: str, *, end: bool = False) -> str:
    kind = ' class="end"' if end else ""
    cells = f'<td class="way">{bar}</td><td>{escape(value)}</td><td>{escape(total)}</td>'
    return f'<tr{kind}><th><bdi dir="auto">{escape(name, directed=True)}</bdi></th>{cells}</tr>\n'


def _terminal_word(piece: TextPiece, limit: float, colour: bool) -> str:
    shown = printable(piece.shown)
    if neutral(piece.value, limit):
        return _dim(shown, colour)
    if not colour:
        return f"{shown}({number(piece.value)})"
    behind = background(piece.value, limit)
    mark = "" if math.isfinite(piece.value) else f"({number(piece.value)})"
    return f"\x1b[48;2;{_rgb(behind)}m\x1b[38;2;{_rgb(ink(behind))}m{shown}{mark}{_END}"


def _rgb(colour: str) -> str:
    return ";".join(str(part) for part in bytes.fromhex(colour[1:]))


def _bold(text: str, colour: bool) -> str:
    return f"\x1b[1m{text}{_END}" if colour else text


def _dim(text: str, colour: bool) -> str:
    return f"\x1b[2m{text}{_END}" if colour and text.strip() else text
