"""What a view is given and what it gives back. A view turns the attributions of one photo into one picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...errors import OptionError
from .pixels import COLOURS, Array, contribution, strength


@dataclass(frozen=True, slots=True)
class Mark:
    """A short text on a panel.

    Attributes:
        x: where its middle is, in pixels of the panel from the left.
        y: the same from the top.
        text: one or more lines.
    """

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture of an image's row.

    Attributes:
        title: what it shows.
        note: what to know of it, or ''.
        pixels: (H, W, 3) uint8.
        limit: where colours mean numbers, the score at their ends: from ``-limit`` to ``limit``.
        clipped: whether there may be values beyond the limit.
        colours: from the one of ``-limit`` to the one of ``limit``.
        marks: texts on the picture.
        lines: what the picture says in numbers, line by line; with marks, what they stand for.
    """

    title: str
    note: str
    pixels: Array
    limit: float | None = None
    clipped: bool = True
    colours: tuple[str, ...] = COLOURS
    marks: tuple[Mark, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """What a view draws: one attribution of one photo.

    Attributes:
        name: whose attribution.
        values: (C, h, w).
        photo: (H, W, 3) from 0 to 1, or None.
        share: the share of the attribution mass up to which brightness and colours tell pixels apart.
        change: F(x) - F(x'), what complete attributions add up to.
    """

    name: str
    values: Array
    photo: Array | None = None
    share: float = 0.7
    change: float = float("nan")

    @property
    def signed(self) -> Array:
        """What each pixel contributes to the score, (h, w)."""
        return contribution(self.values)

    @property
    def strength(self) -> Array:
        """How much each pixel matters, without sign, (h, w)."""
        return strength(self.values)

    def shown(self, view: str) -> Array:
        """The photo, for a view that cannot do without."""
        if self.photo is None:
            raise OptionError(f"the view {view!r} draws on the photo; give image=, or use the view 'heatmap'")
        return self.photo


class View(Protocol):
    """Anything that draws a panel: one of :data:`integrand.render.image.VIEWS`, or your own function."""

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw it."""
