"""Views: each turns the attributions of one photo into one picture, a :class:`Panel`.

A view is anything that can be called with a :class:`Subject`. :data:`VIEWS` holds those that have a name: the photo scaled by
its attributions and the green and red of the paper's figures, heat maps, overlays, outlines and superpixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ...attribution import Attribution
from ...errors import OptionError
from ...words import percent, short_repr
from .image_regions import Regions, depth_of, regions_of, share, with_errors
from .pixels import (
    COLOURS,
    UNKNOWN,
    Array,
    blend,
    contribution,
    draw_line,
    enlarged,
    grey,
    heat,
    lit,
    mass_limit,
    onto,
    remark,
    rgb,
    smoothed,
    strength,
)
from .whereabouts import HALF, SMOOTH, focus_of

SAFE = ("#2f8fff", "#ff4f3f")
"""Negative and positive on a grey photo: the blue and red of the heat map, as bright as each other on dark grey, and told
apart with every common kind of colour blindness."""

PAPER = ("#ff0000", "#00ff00")
"""Negative and positive in figure 3 of the paper: red and green, which one man in twelve cannot tell apart."""

TEXT = (0.042, 0.0295)
"""The height of a line and the width of a letter on a picture, as shares of the panel's width."""

DIMMED = 0.45
"""How bright the grey photo is around outlines."""

PALE, TINT = 0.25, 0.62
"""How pale the grey photo under regions is, and how opaque their colours are."""

INSIDE = 0.97
"""The share of a text's box that must be in its region: an outline may cut a corner, but not run through a letter."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A short text written on a panel.

    Attributes:
        x: the column of its middle, in pixels of the panel from the left.
        y: the row of its middle, in pixels of the panel from the top.
        text: one or more lines.
    """

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture, with its title, its colour scale and the texts on it and below it.

    Attributes:
        title: what it shows.
        note: a remark on how to read it, or ''.
        pixels: (H, W, 3) uint8.
        limit: where colours mean numbers, the score at their ends: from ``-limit`` to ``limit``.
        clipped: whether there may be values beyond the limit.
        colours: from the one of ``-limit`` to the one of ``limit``.
        marks: texts on the picture.
        lines: what the picture says in numbers, line by line; with marks, what they stand for.
        smooth: whether its pixels may be blended where it is drawn smaller, as those of line drawings must be.
    """

    title: str
    note: str
    pixels: Array
    limit: float | None = None
    clipped: bool = True
    colours: tuple[str, ...] = COLOURS
    marks: tuple[Mark, ...] = ()
    lines: tuple[str, ...] = ()
    smooth: bool = False

    __repr__ = short_repr


@dataclass(frozen=True, slots=True)
class Subject:
    """What a view draws: one attribution of one photo.

    Attributes:
        name: whose attribution.
        values: (C, h, w).
        photo: (H, W, 3) from 0 to 1, or None.
        share: the share of the attribution mass up to which brightness and colours tell pixels apart.
        change: F(x) - F(x'), what complete attributions add up to.
        source: the result that the values are from, which knows the errors of their sums; None where there is none.
        example: which one of that result.
    """

    name: str
    values: Array
    photo: Array | None = None
    share: float = 0.7
    change: float = float("nan")
    source: Attribution | None = None
    example: int = 0

    __repr__ = short_repr

    @property
    def signed(self) -> Array:
        """What each pixel contributes to the score, with its sign, (h, w)."""
        return contribution(self.values)

    @property
    def strength(self) -> Array:
        """The magnitude of each pixel's attributions, summed over the channels, (h, w)."""
        return strength(self.values)

    def shown(self, view: str) -> Array:
        """The photo; an OptionError for a view that cannot draw without one."""
        if self.photo is None:
            raise OptionError(f"the view {view!r} draws on the photo; give image=, or use the view 'heatmap'")
        return self.photo


class View(Protocol):
    """A function that draws one attribution: one of :data:`integrand.render.image.VIEWS`, or your own."""

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw one attribution of one photo as a panel."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The photo with each pixel scaled by the strength of its attribution, as in figure 2 of the paper."""

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw the photo with each pixel scaled by the magnitude of its attributions."""
        values = subject.strength
        pixels = lit(subject.shown("scaled"), values, mass_limit(values, subject.share))
        return Panel(subject.name, remark(subject.signed) or "brighter = stronger", pixels)


@dataclass(frozen=True, slots=True)
class Heatmap:
    """What each pixel contributes to the score, with its sign, as a colour; the scale is in units of the score."""

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw the signed attributions as a heat map."""
        values = subject.signed
        limit = mass_limit(values, subject.share)
        # Without a photo there is nothing else to draw, so that the name alone says it.
        title = subject.name if subject.photo is None else f"{subject.name}, signed"
        hint = "" if subject.photo is None else "red raises, blue lowers the score"
        return Panel(title, remark(values) or hint, heat(values, limit), limit)


@dataclass(frozen=True, slots=True)
class Signed:
    """What each pixel contributes, as colour over the grey photo, as in figure 3 of the paper.

    Attributes:
        negative: the colour of what lowers the score.
        positive: the colour of what raises it.
        words: both colours in words, positive first.
        dim: how bright the photo is under the colours.
        remark: what else to know of the colours, or ''.
    """

    negative: str = SAFE[0]
    positive: str = SAFE[1]
    words: tuple[str, str] = ("red", "blue")
    dim: float = 0.7
    remark: str = ""

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw the signed attributions as colours over the grey photo."""
        photo = subject.shown("signed")
        values = subject.signed
        limit = mass_limit(values, subject.share)
        under = self.dim * grey(photo)
        fine = onto(values, photo.shape)
        over = np.where((fine > 0)[..., None], rgb(self.positive), rgb(self.negative))
        pixels = blend(under, over, _opacity(fine, limit))
        pixels[~np.isfinite(fine)] = UNKNOWN
        hint = f"{self.remark}{self.words[0]} raises, {self.words[1]} lowers the score"
        said = "; ".join(filter(None, (remark(values), hint if self.remark else ""))) or hint
        middle = "#595959"  # the dimmed photo where it is of middling brightness
        title = f"{subject.name} on grey"
        return Panel(title, said, pixels, limit, colours=(self.negative, middle, self.positive))


@dataclass(frozen=True, slots=True)
class Overlay:
    """The colours of the heat map laid over the photo, the more opaque the stronger.

    Neighbouring pixels often cancel, as attributions of convolutional networks do; averaged, what is left is seen.

    Attributes:
        opacity: the opacity of the strongest pixels.
        smooth: the width of a Gaussian that averages neighbours, as a share of the photo's diagonal; 0 for none.
    """

    opacity: float = 0.85
    smooth: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.opacity <= 1 or not self.smooth >= 0:
            raise OptionError(
                f"got Overlay(opacity={self.opacity!r}, smooth={self.smooth!r}); expected an opacity above 0 and at most 1, "
                "and a width of at least 0"
            )

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw the heat map over the photo, the stronger the more opaque."""
        photo = subject.shown("overlay")
        values = subject.signed
        known = np.isfinite(values)
        width = self.smooth * math.hypot(*values.shape)
        values = np.where(known, smoothed(np.where(known, values, 0), width), values) if width else values
        limit = mass_limit(values, subject.share)
        fine = onto(values, photo.shape)
        pixels = blend(photo, heat(fine, limit) / 255, self.opacity * _opacity(fine, limit))
        pixels[~np.isfinite(fine)] = UNKNOWN
        hint = f"red raises, blue lowers; averaged over {width:.1f} px" if width else "red raises, blue lowers the score"
        return Panel(f"{subject.name}, overlaid", remark(subject.signed) or hint, pixels, limit)


@dataclass(frozen=True, slots=True)
class Outlines:
    """A line around where the evidence lies: the smallest smooth area that holds ``share`` of what raises the score.

    What raises the score is smoothed to find the area; what the area holds is counted on the contributions themselves.

    Attributes:
        share: the share of all positive contributions inside the line.
        smooth: the width of the smoothing as a share of the photo's diagonal.
    """

    share: float = HALF
    smooth: float = SMOOTH

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or not self.smooth >= 0:
            raise OptionError(
                f"got Outlines(share={self.share!r}, smooth={self.smooth!r}); expected a share of what raises the score "
                "between 0 and 1, and a width of at least 0"
            )

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw the photo with a line around the area that holds ``share`` of what raises the score."""
        photo, found = subject.shown("outlines"), focus_of(subject.values, share=self.share, smooth=self.smooth)
        canvas = enlarged(photo)
        mask = onto(found.inside, canvas.shape)
        some = bool(mask.any())
        pixels = np.rint(255 * np.where(mask[..., None] | (not some), canvas, DIMMED * grey(canvas))).astype(np.uint8)
        said = f"{percent(self.share)} of what raises the score lies in {percent(found.area)} of the area"
        note = "; ".join(filter(None, (remark(subject.signed), said if some else "nothing to outline")))
        return Panel(f"{subject.name}, outlined", note, draw_line(pixels, mask) if some else pixels)


@dataclass(frozen=True, slots=True)
class Superpixels:
    """Regions of similar colour, each coloured by its contribution to the score; the strongest are numbered.

    Attributes:
        count: about how many regions.
        top: how many are numbered, strongest first.
    """

    count: int = 50
    top: int = 8

    def __post_init__(self) -> None:
        if self.count < 1 or self.top < 1:
            raise OptionError(f"got Superpixels(count={self.count!r}, top={self.top!r}); expected at least 1 of each")

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw the regions of the photo in the colours of their sums, the strongest numbered."""
        photo = subject.shown("regions")
        found = regions_of(subject.signed, photo, change=subject.change, count=self.count)
        found = found if subject.source is None else with_errors(found, subject.source, subject.example)
        panel = region_panel(found, photo, f"{subject.name}, regions", top=self.top)
        note = "; ".join(filter(None, (remark(subject.signed), panel.note)))
        return replace(panel, note=note)


def region_panel(found: Regions, photo: Array, title: str, *, top: int = 8) -> Panel:
    """The regions of a photo in the colours of their sums, the strongest numbered.

    Args:
        found: the regions.
        photo: (H, W, 3) from 0 to 1.
        title: what it shows.
        top: how many are numbered.
    """
    known = found.sums[np.isfinite(found.sums)]
    limit = float(np.abs(known).max(initial=0.0))
    canvas = enlarged(onto(photo, found.labels.shape))
    labels = onto(found.labels, canvas.shape)
    colours = heat(found.sums[None], limit)[0] / 255
    pixels = blend(PALE + (1 - PALE) * grey(canvas), colours[labels], np.full(labels.shape, TINT))
    pixels[_borders(labels)] = 255
    strong = [int(k) for k in found.order[:top] if np.isfinite(found.sums[k])] if limit else []
    for k in reversed(strong):
        pixels = draw_line(pixels, labels == k)
    scale = canvas.shape[0] / found.labels.shape[0]
    marks = tuple(Mark(scale * (x + 0.5), scale * (y + 0.5), text) for x, y, text in _texts(found, strong))
    *strongest, last = found.lines(top)
    lines = (*(f"{i + 1}: {line}" for i, line in enumerate(strongest)), last)
    return Panel(title, found.summary(), pixels, limit, clipped=False, marks=marks, lines=lines)


VIEWS: dict[str, View] = {
    "scaled": Scaled(),
    "signed": Signed(),
    "green-red": Signed(*PAPER, ("green", "red"), remark="the paper's colours: "),
    "heatmap": Heatmap(),
    "outlines": Outlines(),
    "regions": Superpixels(),
    "overlay": Overlay(),
}
"""The views by name, as ``views=`` takes them."""


def views_of(given: str | View | Sequence[str | View]) -> tuple[View, ...]:
    """The views that are named; views given as functions stay as they are."""
    several = [given] if isinstance(given, str) or callable(given) else list(given)
    unknown = [view for view in several if not callable(view) and view not in VIEWS]
    if unknown or not several:
        got = f"{unknown[0]!r} in views=" if unknown else "no views"
        raise OptionError(f"got {got}; expected one or more of {', '.join(map(repr, VIEWS))}, or your own function")
    return tuple(VIEWS[view] if isinstance(view, str) else view for view in several)


def _opacity(values: Array, limit: float) -> Array:
    """The opacity of each pixel: 0 where its value is 0, 1 from the limit on."""
    out: Array = np.clip(np.abs(np.where(np.isfinite(values), values, 0)) / (limit or 1.0), 0, 1)
    return out


def _texts(found: Regions, top: list[int]) -> list[tuple[float, float, str]]:
    """The rank and numbers written on each strong region, as (x, y, text), deep inside the region.

    Where there is no room for the numbers the rank stands alone, and where there is none for the rank it is left out of the
    picture; the lines have all.
    """
    height, width = found.labels.shape
    line, letter = (part * max(width, height / 1.75) for part in TEXT)
    depth = depth_of(found.labels)
    texts: list[tuple[float, float, str]] = []
    for i, k in enumerate(top):
        parts = [part for part in (f"{i + 1}", found.said(k), share(found.shares[k])) if part]
        for said in (parts[:some] for some in range(len(parts), 0, -1)):
            size = (letter * max(map(len, said)), line * len(said))
            room = _room(found.labels == k, size)
            if room.any():
                y, x = np.unravel_index(np.argmax(np.where(room, depth, -1)), depth.shape)
                texts.append((float(x), float(y), "\n".join(said)))
                break
    return texts


def _room(mask: Array, size: tuple[float, float]) -> Array:
    """Where the middle of a text box of this size, (width, height), may lie so that the box is in the mask, (H, W) bool."""
    room = np.zeros(mask.shape, bool)
    wide, tall = (max(1, math.ceil(side)) for side in size)
    if tall > mask.shape[0] or wide > mask.shape[1]:
        return room
    sums = np.pad(np.cumsum(np.cumsum(mask, 0), 1), ((1, 0), (1, 0)))
    held = sums[tall:, wide:] - sums[:-tall, wide:] - sums[tall:, :-wide] + sums[:-tall, :-wide]
    room[tall // 2 : tall // 2 + held.shape[0], wide // 2 : wide // 2 + held.shape[1]] = held >= INSIDE * tall * wide
    out: Array = room & mask
    return out


def _borders(labels: Array) -> Array:
    """The pixels with another region directly below or to the right, (H, W) bool."""
    out = np.zeros(labels.shape, bool)
    out[:-1] |= labels[:-1] != labels[1:]
    out[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    return out
