"""What a text's attributions say, in sentences: what the model said, because of which words, and what each word adds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...words import percent, plus_minus
from ..certificate_text import trust
from .tokens import TextPiece, Tokens, printable

MUCH, MOST = 2 / 3, 3
"""The words that are named hold this share of all that speaks for the label, and are at most so many."""

CONTRARY = 0.5
"""A word against the label is named if it is at least this share as strong as the strongest word for it."""

LONG = 60
"""Names of words and labels are cut to this many characters in a sentence."""


def sentence(tokens: Tokens) -> str:
    """What the model said, which words made it so, and how sure the numbers are, in one line.

    >>> sentence(Tokens(["how", "many", "?"], [0.5, 0.3, 0.0], label="number", meaning="asks for a number", probability=0.99))
    "It asks for a number (99%) because of 'how many'."
    """
    said, why = _answer(tokens), because(tokens)
    end = f"; {trust(tokens.certificate)}." if tokens.certificate is not None else "."
    if tokens.notes and ":" in tokens.notes[0]:  # an answer that may mean nothing is not told without a word of that
        end += f" ({tokens.notes[0].partition(':')[0]}.)"
    if tokens.meaning:
        return f"It {said} {why}{end}" if why.startswith("because") else f"It {said}; {why}{end}"
    return f"{said}, mostly {why}{end}" if why.startswith("because") else f"{said}: {why}{end}"


def verdict(tokens: Tokens) -> str:
    """What the model said, in the reader's words, with its probability where known; '' without a label.

    >>> verdict(Tokens(["how"], [0.5], label="number", meaning="asks for a number", probability=0.99))
    'asks for a number (99%)'
    """
    said = tokens.meaning or tokens.label
    known = said and tokens.probability is not None and math.isfinite(tokens.probability)
    return f"{said} ({percent(tokens.probability or 0.0)})" if known else said


def because(tokens: Tokens) -> str:
    """Which words speak for the label, and which strong ones against it, as part of a sentence."""
    pieces = [piece for piece in tokens.pieces if not piece.marker]
    if any(not math.isfinite(piece.value) for piece in pieces):
        return "some of its words have no number"
    words = [piece for piece in pieces if any(sign.isalnum() for sign in piece.shown)] or pieces
    named = strongest(pieces, words)
    if not named:
        return "no word speaks for it"
    top = max(piece.value for piece in words)
    contrary = sorted((piece for piece in words if piece.value <= -CONTRARY * top), key=lambda piece: piece.value)[:2]
    but = f", although {listed([piece.shown for piece in contrary])} {_speaks(contrary)} against it" if contrary else ""
    return f"because of {listed(named)}{but}"


def strongest(pieces: Sequence[TextPiece], words: Sequence[TextPiece]) -> list[str]:
    """The words that hold two thirds of what speaks for the label, at most three; neighbours among them are one phrase.

    Args:
        pieces: all pieces of the text in order.
        words: those of them that may be named.
    """
    for_it = sorted((piece for piece in words if piece.value > 0), key=lambda piece: -piece.value)
    total, held, chosen = sum(piece.value for piece in for_it), 0.0, []
    for piece in for_it[:MOST]:
        chosen.append(piece)
        held += piece.value
        if held >= MUCH * total:
            break
    runs: list[list[TextPiece]] = []
    places = {id(piece): i for i, piece in enumerate(pieces)}
    for piece in sorted(chosen, key=lambda piece: places[id(piece)]):
        if runs and places[id(runs[-1][-1])] + 1 == places[id(piece)]:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    runs.sort(key=lambda run: -sum(piece.value for piece in run))
    return ["".join(piece.gap * (i > 0) + piece.shown for i, piece in enumerate(run)) for run in runs]


def word_saying(name: str, value: float, error: float | None = None) -> str:
    """What one word adds, in words.

    >>> word_saying("did", 0.345, 0.002), word_saying("play", -0.046)
    ("'did' speaks for it: +0.345 ± 0.002", "'play' speaks against it: −0.046")
    """
    if not math.isfinite(value):
        return f"{quoted(name)} has no number"
    sign = "speaks for it" if value > 0 else "speaks against it" if value < 0 else "adds nothing"
    return f"{quoted(name)} {sign}" + (f": {with_error(value, error)}" if value else "")


def with_error(value: float, error: float | None) -> str:
    """A value with its sign, and its error where known.

    >>> with_error(0.345, 0.0021), with_error(-2.0, None)
    ('+0.345 ± 0.003', '−2')
    """
    return number(value) if error is None or not math.isfinite(error) else plus_minus(value, error)


def number(value: float) -> str:
    """A number with its sign and three digits, as text.

    >>> number(0.314), number(-2.0), number(0.0), number(math.nan)
    ('+0.314', '−2', '0', 'nan')
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:+.3g}".replace("-", "−") if value else "0"


def quoted(text: str) -> str:
    """A word or label of a text in quotation marks, short enough for a sentence."""
    seen = printable(text).strip() or text
    return f"'{seen if len(seen) <= LONG else seen[: LONG - 1] + '…'}'"


def listed(names: Sequence[str]) -> str:
    """Words in quotation marks as a list: 'a', 'b' and 'c'."""
    marked = [quoted(name) for name in names]
    return marked[0] if len(marked) == 1 else f"{', '.join(marked[:-1])} and {marked[-1]}"


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def _answer(tokens: Tokens) -> str:
    said = printable(verdict(tokens))
    if not said:
        score = f" ({tokens.score:.3g})" if math.isfinite(tokens.score) else ""
        return f"The score{score}"
    return said


def _speaks(words: Sequence[TextPiece]) -> str:
    return "speaks" if len(words) == 1 else "speak"
