"""The colours of words: red for what speaks for the label, blue for what speaks against it, grey for what says nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ._pixels import COLOURS
from ._text_tokens import Tokens

NEUTRAL, UNKNOWN = "#e3e5e8", "#808080"
"""Of words that add nothing, and of words whose attribution is not a number."""

QUIET = 0.06
"""Words below this share of the strongest one count as neutral."""

RAMP = (*COLOURS[:2], COLOURS[2], NEUTRAL, COLOURS[4], *COLOURS[5:])


def limit_of(lines: Iterable[Tokens]) -> float:
    """The magnitude that has the strongest colour: that of the strongest word; 0 where none has any."""
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
    """Whether a word says next to nothing."""
    return math.isfinite(value) and abs(value) <= QUIET * limit


def ink(colour: str) -> str:
    """Black or white, whichever can be read on a colour (by the contrast of WCAG).

    >>> ink("#b2182b"), ink("#e3e5e8")
    ('#ffffff', '#000000')
    """
    parts = np.array(list(bytes.fromhex(colour[1:]))) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    light = float(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return "#ffffff" if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else "#000000"


def number(value: float) -> str:
    """A value with its sign.

    >>> number(0.314), number(-2.0), number(0.0), number(math.nan)
    ('+0.314', '−2', '0', 'nan')
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:+.3g}".replace("-", "−") if value else "0"


def verdict(tokens: Tokens) -> str:
    """What the model said, as the paper writes it: in brackets; '' where nothing is known."""
    if not tokens.label:
        return ""
    chance = "" if tokens.probability is None or not math.isfinite(tokens.probability) else f" {tokens.probability:.2f}"
    return f"{tokens.label}{chance}"


def account(tokens: Tokens) -> str:
    """What the sum accounts for, in a line, or how many words have no number; '' where the scores are not known."""
    unknown = sum(not math.isfinite(value) for value in tokens.values)
    if unknown:
        return f"{unknown} of {len(tokens.values)} words have no number (grey), so that nothing adds up"
    if not (math.isfinite(tokens.score) and math.isfinite(tokens.baseline_score)):
        return ""
    said = f"from {tokens.baseline_score:.3g} to {tokens.score:.3g}: the words add up to {number(tokens.total)}"
    if tokens.certificate is not None:
        from ..attribution import percent

        said += f", estimated error {percent(tokens.certificate.error)}, {tokens.certificate.status.value}"
    return said
