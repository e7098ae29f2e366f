"""Coloured words for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ._text_clusters import printable
from ._text_colours import account, background, ink, limit_of, neutral, number, verdict
from ._text_tokens import Piece, Tokens

_END = "\x1b[0m"


def lines(rows: Sequence[Tokens], *, colour: bool = True, detail: bool = False, limit: float | None = None) -> str:
    """A line per text; see :func:`integrand.render.text.terminal`."""
    return "\n".join(line(tokens, colour=colour, detail=detail, limit=limit) for tokens in rows)


def line(tokens: Tokens, *, colour: bool = True, detail: bool = False, limit: float | None = None) -> str:
    """One text with its words coloured, or with numbers behind the strong ones; what was said in brackets."""
    reach = limit_of([tokens]) if limit is None else limit
    drawn = "".join(printable(piece.gap) + _word(piece, reach, colour) for piece in tokens.pieces) + printable(tokens.tail)
    said = printable(verdict(tokens))
    out = drawn + (f"  {_bold(f'[{said}]', colour)}" if said else "")
    below = [text for text in (account(tokens) if detail else "", printable(tokens.note)) if text]
    return "\n".join([out, *(_dim(f"  {text}", colour) for text in below)])


def _word(piece: Piece, limit: float, colour: bool) -> str:
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
