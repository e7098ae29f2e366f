"""Where in a photo the evidence for an answer lies, in numbers and in words.

Every pixel raises or lowers the score. What raises it speaks for the answer; the smallest smooth area that holds half of that
is where a reader should look first. Because the attributions come with an error, so does the half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...certificate import ExampleCertificate
from ...words import percent, short_repr
from ..certificate_text import trust
from .pixels import Array, contribution, smoothed

HALF = 0.5
"""The share of the evidence that the area holds."""

SMOOTH = 0.02
"""The width of the Gaussian by which an area is made smooth, as a share of the photo's diagonal."""

MOSTLY = 0.7
"""The places that are named hold at least this share of the area's evidence, if three are enough for that."""

EVERYWHERE = "all over it"
SPREAD = 5
"""An area that needs more of the nine parts of the picture than these is said to be everywhere."""

NAMED = 3
"""The most places that are named."""

TINY = 0.0005
"""An error of the half below this is not worth a word."""

CLEAR, ROUGH = 0.015, 0.1
"""Up to these errors a half is called half, and about half; beyond, its error is said."""

VAGUE = 0.25
"""With a larger error nothing is said about where the evidence lies."""

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")

_CELLS = (
    ("in the upper left", "at the top", "in the upper right"),
    ("on the left", "in the centre", "on the right"),
    ("in the lower left", "at the bottom", "in the lower right"),
)
_ROWS = ("across the top", "across the middle", "across the bottom")
_COLUMNS = ("down the left side", "down the middle", "down the right side")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Focus:
    """The smallest smooth area of a photo that holds half of the evidence for an answer.

    The pixels are taken in the order of their positive contributions, smoothed; what the area holds is counted on the
    contributions themselves.

    Attributes:
        inside: the pixels of the area, (h, w) bool; none where nothing speaks for the answer.
        share: the share of all positive contributions that lies inside, one half or a little more.
        off: by how much that share may be off, from the error of the attributions; NaN where it is not known.
        against: the share of all negative contributions that lies inside; NaN where there are none.
        places: where the area is, in words such as "in the centre and at the top".
    """

    inside: Array
    share: float
    off: float
    against: float
    places: str

    __repr__ = short_repr

    @property
    def area(self) -> float:
        """The share of the picture that it covers."""
        return float(self.inside.mean())

    def told(self, what: str = "it") -> str:
        """What the area holds, as the middle of a sentence.

        Args:
            what: what the evidence is for.
        """
        if not self.inside.any():
            return f"nothing in the picture speaks for {what}"
        if not self.off <= VAGUE:
            return f"where in the picture the evidence for {what} lies is too uncertain to say"
        half = "half" if self.off <= CLEAR else "about half" if self.off <= ROUGH else f"half (± {percent(self.off)})"
        where = f"spread {EVERYWHERE}" if self.places == EVERYWHERE else f"most of all {self.places}"
        return f"{half} of what speaks for {what} lies in {percent(self.area)} of the picture, {where}"

    @property
    def details(self) -> str:
        """What the area is and what it holds, with errors, in a sentence or two."""
        if not self.inside.any():
            return "No pixel raises the score, so that there is nothing to outline."
        off = " (with an error that is not known)"
        if math.isfinite(self.off):
            off = f" (±\u00a0{percent(self.off)})" if self.off >= TINY else ""
        held = f"{percent(self.share)} of what speaks for it{off}"
        also = f", and {percent(self.against)} of what speaks against it" if math.isfinite(self.against) else ""
        return f"The outlined {percent(self.area)} of the picture hold {held}{also}."


def focus_of(
    values: Array, certificate: ExampleCertificate | None = None, *, share: float = HALF, smooth: float = SMOOTH
) -> Focus:
    """Find the smallest smooth area that holds a share of what speaks for an answer.

    Args:
        values: the attributions of one photo, (C, h, w).
        certificate: what is known of their error.
        share: the share that the area is to hold.
        smooth: the width of the smoothing as a share of the photo's diagonal.
    """
    signed = contribution(values)
    known = np.where(np.isfinite(signed), signed, 0.0)
    raising, lowering = np.maximum(known, 0), np.maximum(-known, 0)
    inside = enclosing(raising, share, smooth * math.hypot(*signed.shape))
    total, against = float(raising.sum()), float(lowering.sum())
    held = float(raising[inside].sum()) / total if total > 0 else math.nan
    return Focus(
        inside=inside,
        share=held,
        off=_off(held, total, certificate),
        against=float(lowering[inside].sum()) / against if against > 0 else math.nan,
        places=places(np.where(inside, raising, 0.0)),
    )


def held_by(values: Array, inside: Array, certificate: ExampleCertificate | None = None) -> tuple[float, float]:
    """The share of what speaks for an answer that lies in a given area, and by how much it may be off.

    Args:
        values: the attributions of one photo, (C, h, w).
        inside: the area, (h, w) bool.
        certificate: what is known of their error.

    Returns:
        The share of all positive contributions inside, NaN where there are none; and its error, NaN where it is not known.
    """
    signed = contribution(values)
    raising = np.maximum(np.where(np.isfinite(signed), signed, 0.0), 0)
    total = float(raising.sum())
    share = float(raising[inside].sum()) / total if total > 0 else math.nan
    return share, _off(share, total, certificate)


def enclosing(values: Array, share: float, width: float) -> Array:
    """The pixels, (h, w) bool, that hold ``share`` of the sum of values, taken in the order of the smoothed values.

    Args:
        values: (h, w), not negative; what is not finite counts as nothing.
        share: the share of their sum to hold.
        width: the width of the smoothing, in pixels.
    """
    known = np.where(np.isfinite(values), values, 0.0)
    order = np.argsort(-smoothed(known, width), axis=None, kind="stable")
    mass = np.cumsum(known.ravel()[order] / (known.max() or 1.0))
    inside = np.zeros(known.size, bool)
    if mass[-1] > 0:
        inside[order[: int(np.searchsorted(mass, share * mass[-1])) + 1]] = True
    return inside.reshape(known.shape)


def places(weights: Array) -> str:
    """Where in a picture most of some weights lie, in words; neighbours are named together.

    The picture is cut into three by three parts; the fewest that hold most of the weights are named, at most three.

    Args:
        weights: (h, w), not negative.

    >>> places(np.pad(np.ones((1, 1)), ((1, 1), (1, 1))))
    'in the centre'
    >>> places(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.5]]))
    'across the top'
    >>> places(np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 2.0, 3.0]]))
    'in the upper left and towards the lower right'
    """
    rows, columns = (np.minimum(3 * np.arange(size) // max(size, 1), 2) for size in weights.shape)
    cells = np.zeros((3, 3))
    np.add.at(cells, (rows[:, None], columns), weights)
    order = np.argsort(-cells, axis=None, kind="stable")
    held = np.cumsum(cells.ravel()[order])
    if not held[-1] > 0:
        return "nowhere"
    needed = int(np.searchsorted(held, MOSTLY * held[-1] * (1 - 1e-9))) + 1
    if needed > SPREAD:
        return EVERYWHERE
    *first, last = _joined([(int(k) // 3, int(k) % 3) for k in order[:needed]])[:NAMED]
    return f"{', '.join(first)} and {last}" if first else last


def photo_sentence(
    label: str, focus: Focus, certificate: ExampleCertificate, *, probability: float = math.nan, rank: int | None = None
) -> str:
    """The answer for a photo in one line: what the network said, where that lies, and how far to trust the numbers.

    Args:
        label: what is explained, in words.
        focus: where the evidence for it lies.
        certificate: of the attributions.
        probability: of that answer; NaN where there is none.
        rank: its place among all answers, 1 for the surest; None where there are no others.
    """
    which = ""
    if rank is not None and rank > 1:
        which = f"the network's {ORDINALS[rank - 1] if rank <= len(ORDINALS) else f'no. {rank}'} answer"
    sure = "" if math.isnan(probability) else chance(probability, digits=0 if 0.01 <= probability < 0.995 else 1)
    said = ", ".join(filter(None, (sure, which)))
    return f"{label}{f' ({said})' if said else ''}: {focus.told()}; {trust(certificate)}."


def chance(value: float, *, digits: int = 1) -> str:
    """A probability for people: never 0% or 100% unless it is exactly that.

    >>> [chance(p) for p in (0.4048, 0.99999, 0.00001, 1.0)]
    ['40.5%', '> 99.9%', '< 0.1%', '100.0%']
    >>> [chance(p, digits=0) for p in (0.4048, 0.9999, 0.0023, 1.0)]
    ['40%', '> 99.9%', '0.2%', '100%']
    """
    if 0 < value < 0.0005:
        return "< 0.1%"
    if 0.9995 <= value < 1:
        return "> 99.9%"
    if digits == 0 and (0 < value < 0.005 or 0.995 <= value < 1):
        digits = 1
    return f"{100 * value:.{digits}f}%"


def _off(share: float, total: float, certificate: ExampleCertificate | None) -> float:
    """By how much a share of the positive contributions can be off if the attributions are off by their error in all.

    Taking a sum L of errors from what lies inside, or adding it outside, changes the share the most.
    """
    if certificate is None or not total > 0:
        return math.nan
    errors = 0.0 if certificate.error == 0 else certificate.error * certificate.magnitude
    if not math.isfinite(errors):
        return math.nan
    return max(share, 1 - share) * errors / (total - errors) if errors < total else math.inf


def _joined(cells: list[tuple[int, int]]) -> list[str]:
    """Parts of a picture in words: those that fill a row or a column together, and a corner with what lies beside it."""
    left, named = list(cells), []
    for at in range(3):
        row, column = [(at, k) for k in range(3)], [(k, at) for k in range(3)]
        for line, words in ((row, _ROWS[at]), (column, _COLUMNS[at])):
            if all(cell in left for cell in line):
                named.append((min(cells.index(cell) for cell in line), words))
                left = [cell for cell in left if cell not in line]
    for corner in [cell for cell in left if cell[0] != 1 and cell[1] != 1]:
        beside = [cell for cell in ((corner[0], 1), (1, corner[1])) if cell in left]
        if beside:
            both = (corner, *beside)
            named.append((min(map(cells.index, both)), _CELLS[corner[0]][corner[1]].replace("in the", "towards the")))
            left = [cell for cell in left if cell not in both]
    named += [(cells.index((row, column)), _CELLS[row][column]) for row, column in left]
    return [words for _, words in sorted(named)]
