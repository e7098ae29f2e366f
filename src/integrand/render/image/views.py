"""What a view is given and what it gives back. A view turns the attributions of one photo into one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import OptionError
from .image_regions import Superpixels
from .outlines import Outlines, smoothed
from .panel import Panel, Subject, View
from .pixels import UNKNOWN, Array, blend, grey, heat, lit, mass_limit, onto, remark, rgb

SAFE = ("#2f8fff", "#ff4f3f")
"""Negative and positive on a grey photo: the blue and red of the heat map, as bright as each other on dark grey, and told
apart with every common kind of colour blindness."""

PAPER = ("#ff0000", "#00ff00")
"""Negative and positive in figure 3 of the paper: red and green, which one man in twelve cannot tell apart."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The photo with each pixel scaled by the strength of its attribution, as in figure 2 of the paper."""

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw it."""
        values = subject.strength
        pixels = lit(subject.shown("scaled"), values, mass_limit(values, subject.share))
        return Panel(subject.name, remark(subject.signed) or "brighter = stronger", pixels)


@dataclass(frozen=True, slots=True)
class Heatmap:
    """What each pixel contributes to the score, with its sign, as a colour; the scale is in units of the score."""

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw it."""
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
        """Draw it."""
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
        opacity: of the strongest pixels.
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
        """Draw it."""
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


def _opacity(values: Array, limit: float) -> Array:
    """From 0 for nothing to 1 at the limit."""
    out: Array = np.clip(np.abs(np.where(np.isfinite(values), values, 0)) / (limit or 1.0), 0, 1)
    return out


VIEWS: dict[str, View] = {
    "scaled": Scaled(),
    "signed": Signed(),
    "green-red": Signed(*PAPER, ("green", "red"), remark="the paper's colours: "),
    "heatmap": Heatmap(),
    "outlines": Outlines(),
    "regions": Superpixels(),
    "overlay": Overlay(),
}
"""By name: what ``views=`` takes."""


def views_of(given: str | View | Sequence[str | View]) -> tuple[View, ...]:
    """Views from their names; one that is given as such stays."""
    several = [given] if isinstance(given, str) or callable(given) else list(given)
    unknown = [view for view in several if not callable(view) and view not in VIEWS]
    if unknown or not several:
        got = f"{unknown[0]!r} in views=" if unknown else "no views"
        raise OptionError(f"got {got}; expected one or more of {', '.join(map(repr, VIEWS))}, or your own function")
    return tuple(VIEWS[view] if isinstance(view, str) else view for view in several)
