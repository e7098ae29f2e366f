"""Texts with coloured words, as HTML and for a terminal.

Red words speak for the label, blue ones against it; words that add next to nothing are grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ...words import percent
from ..escaping import escape
from ..glance import saying
from ..image.pixels import COLOURS
from .tokens import TextPiece, Tokens, printable
from .word_sentences import number as number  # other pictures take it from here
from .word_sentences import verdict, word_saying

NEUTRAL, UNKNOWN = "#e3e5e8", "#808080"
"""The colours of words that add nothing, and of words whose attribution is not a number."""

QUIET = 0.06
"""Words whose attribution is below this share of the strongest word's count as neutral."""

RAMP = (*COLOURS[:2], COLOURS[2], NEUTRAL, COLOURS[4], *COLOURS[5:])

STYLE = """
.line{margin:0 0 .35rem;font-size:1.125rem;line-height:1.9;overflow-wrap:anywhere;white-space:pre-wrap}
.line b{font-size:.9375rem;font-weight:600;white-space:nowrap}
.line span{cursor:default}
.line .saying{box-shadow:0 0 0 2px var(--paper),0 0 0 4px var(--focus)}
.large{font-size:clamp(1.35rem,2.4vw,1.9rem);line-height:1.75}
.large.long{font-size:1.15rem;line-height:1.8}
.run{table-layout:fixed;font-variant-numeric:tabular-nums}
.run th{font-weight:400;overflow-wrap:anywhere;white-space:pre-wrap}
.run th:first-child{width:24%}
.run th,.run td{padding:.12rem .6rem .12rem 0}
.run td:nth-child(n+3){text-align:right;white-space:nowrap;padding-right:0}
.run thead th{font-size:.8125rem;color:var(--soft)}
.run thead th:nth-child(n+3){text-align:right;width:6rem;padding-right:0}
.run :is(th,td):nth-child(5){color:var(--soft)}
.run .end th,.run .end td{font-weight:600}
.run .way{position:relative;padding:0;background:var(--card)}
.run .way i{position:absolute;top:.22rem;bottom:.22rem;border-radius:2px;min-width:1px}
.run tbody tr:hover,.run tr.saying{background:var(--card)}
.key{display:flex;gap:.6rem;align-items:center;max-width:24rem;margin:.25rem 0 .75rem;font-size:.8125rem;color:var(--soft)}
.key .ramp{flex:1;margin:0;height:.7rem}
@media(max-width:40rem){.run{table-layout:auto}.run .way{width:35%}
.run thead th:nth-child(n+3){width:auto}.run td:nth-child(n+3),.run thead th:nth-child(n+3){padding-left:.5rem}
.run :is(th,td):nth-child(5){display:none}}
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
        below = " · ".join(escape(text) for text in (*tokens.notes, account(tokens), tokens.note) if text)
        small = f'<div style="opacity:.65;font-size:85%;margin:0 0 1em">{below}</div>' if below else ""
        drawn.append(f'<p style="{look}">{_line(tokens, limit)}</p>{small}')
    return f"<div>{''.join(drawn)}</div>"


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


def words_html(tokens: Tokens, limit: float | None = None, *, pieces: Iterable[TextPiece] | None = None) -> str:
    """The coloured words of a text as HTML for a page, each of which says its number when pointed at, touched or reached.

    Args:
        tokens: the text.
        limit: the attribution that has the strongest colour; by default that of the strongest word.
        pieces: some of its pieces, where not all are to show. Markers that add nothing never do.
    """
    reach = limit_of([tokens]) if limit is None else limit
    # Markers such as [CLS] are no words of the reader's; kept in the baseline, they add exactly nothing.
    chosen = [piece for piece in (tokens.pieces if pieces is None else pieces) if not piece.marker or piece.value]
    told = (saying(word_saying(piece.shown, piece.value, _error(tokens, piece))) for piece in chosen)
    words = "".join(
        escape(piece.gap if i else piece.gap.lstrip(), directed=True) + _word(piece, reach, attributes)
        for i, (piece, attributes) in enumerate(zip(chosen, told, strict=True))
    )
    tail = escape(tokens.tail, directed=True) if pieces is None else ""
    return f'<bdi dir="auto">{words}{tail}</bdi>'


def _line(tokens: Tokens, limit: float | None) -> str:
    """One text as HTML: its words in an element that finds its own reading direction, then the label in brackets."""
    reach = limit_of([tokens]) if limit is None else limit
    # No element of its own direction around single words: the letters of cursive scripts join across word pieces.
    titles = (f' title="{escape(number(piece.value))}"' for piece in tokens.pieces)
    words = "".join(
        escape(piece.gap, directed=True) + _word(piece, reach, title)
        for piece, title in zip(tokens.pieces, titles, strict=True)
    )
    words += escape(tokens.tail, directed=True)
    said = verdict(tokens)
    return f'<bdi dir="auto">{words}</bdi>' + (f" <b>[<bdi>{escape(said)}</bdi>]</b>" if said else "")


def _word(piece: TextPiece, limit: float, attributes: str) -> str:
    if neutral(piece.value, limit):
        return f'<span style="opacity:.75"{attributes}>{escape(piece.shown, directed=True)}</span>'
    behind = background(piece.value, limit)
    look = f"background:{behind};color:{ink(behind)};border-radius:.2em;padding:.1em 0"
    return f'<span style="{look}"{attributes}>{escape(piece.shown, directed=True)}</span>'


def _error(tokens: Tokens, piece: TextPiece) -> float | None:
    return None if tokens.errors is None else sum(tokens.errors[i] for i in piece.tokens)


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
