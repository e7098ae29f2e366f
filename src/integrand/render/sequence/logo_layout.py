"""Where the letters of a logo stand: one column per position, letters stacked up above the line and down below it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import Floats
from .logo_data import Logo


@dataclass(frozen=True, slots=True)
class PlacedLetter:
    """One letter of a logo, in the units of the values.

    Attributes:
        letter: which; a capital.
        position: its column, from 0.
        low: its lower edge.
        high: its upper edge.
        masked: whether the sequence has a small letter there.
    """

    letter: str
    position: int
    low: float
    high: float
    masked: bool = False


def contribution_letters(logo: Logo, start: int = 0, end: int | None = None) -> list[PlacedLetter]:
    """The letters that are there, as high as their attributions; negative ones hang below the line.

    Args:
        logo: the sequence.
        start: the first position that is drawn.
        end: the one after the last; None for all.
    """
    out = []
    for i in range(start, len(logo.letters) if end is None else end):
        value, letter = float(logo.values[i]), logo.letters[i]
        if np.isfinite(value) and value != 0 and letter.isalpha():
            out.append(PlacedLetter(letter.upper(), i, min(value, 0.0), max(value, 0.0), letter.islower()))
    return out


def hypothetical_letters(logo: Logo, start: int = 0, end: int | None = None) -> list[PlacedLetter]:
    """All letters of the alphabet at each position, as high as what they would contribute: the largest farthest from the line.

    Args:
        logo: the sequence, with hypothetical contributions.
        start: the first position that is drawn.
        end: the one after the last; None for all.
    """
    assert logo.hypothetical is not None
    out = []
    for i in range(start, len(logo.letters) if end is None else end):
        column: Floats = logo.hypothetical[:, i]
        for sign in (1, -1):
            at = 0.0
            for k in sorted(np.flatnonzero(sign * column > 0).tolist(), key=lambda k: abs(float(column[k]))):
                after = at + float(column[k])
                out.append(PlacedLetter(logo.alphabet[k], i, min(at, after), max(at, after)))
                at = after
    return out


def extent(letters: list[PlacedLetter]) -> tuple[float, float]:
    """The lowest and highest edge of letters, with the line at 0 within; never without height."""
    low = min([0.0, *(one.low for one in letters)])
    high = max([0.0, *(one.high for one in letters)])
    return (low, high) if high > low else (0.0, 1.0)
