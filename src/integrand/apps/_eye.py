"""A fundus photo as the grader sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError
from ._fundus import Pixels, find_disc, framed, smoothed
from .photos import Photo, as_photo

__all__ = ["BASELINES", "SIDE", "BaselineName", "Eye", "Pixels", "see"]

SIDE = 512
"""Pixels of the square that the grader takes."""

BaselineName = Literal["black", "retina", "blurred", "average"]
BASELINES: tuple[BaselineName, ...] = ("black", "retina", "blurred", "average")
BLUR = 32.0  # pixels of 512: wider than all but the largest lesions


@dataclass(frozen=True, eq=False)
class Eye:
    """A fundus photo as the grader sees it.

    Attributes:
        photo: 512 x 512 pixels, the disc of the retina filling the square, black around it; its notes say what was done.
        inside: (512, 512), True where the photo shows retina.
        fundus: whether it looks like a fundus photo at all.
    """

    photo: Photo
    inside: NDArray[np.bool_]
    fundus: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know about the photo."""
        return self.photo.notes

    def baseline(self, name: BaselineName) -> list[Pixels]:
        """Photos of this eye with nothing to see, (512, 512, 3) each; black outside the disc, where x is black too.

        ``black``; ``retina``: all of it in its median colour; ``blurred``: by a Gaussian of 32 pixels; ``average``: these
        three, to be averaged over.
        """
        if name not in BASELINES:
            raise OptionError(f"got baseline {name!r}; expected one of {', '.join(BASELINES)}.")
        pixels, inside = self.photo.pixels, self.inside[..., None]
        found: list[Pixels] = []
        if name in ("black", "average"):
            found.append(np.zeros_like(pixels))
        if name in ("retina", "average"):
            colour = np.median(pixels[self.inside], axis=0) if self.inside.any() else np.zeros(3)
            found.append(np.where(inside, colour, 0).round().astype(np.uint8))
        if name in ("blurred", "average"):
            found.append(smoothed(pixels, self.inside, BLUR))
        return found


def see(photo: Photo | Pixels | str | Path) -> Eye:
    """Find the retina in a photo and frame it as the photos that the grader was trained on.

    Args:
        photo: a file, a :class:`~integrand.apps.photos.Photo`, or (H, W, 3) bytes in RGB.
    """
    photo = as_photo(photo)
    disc = find_disc(photo.pixels)
    pixels, place, shown = framed(photo.pixels, disc, SIDE)
    circle = place.mask(SIDE, SIDE)
    inside = circle & shown if disc.found else shown
    notes, fundus = _remarks(pixels, inside, disc.found)
    missing = 1 - inside.sum() / circle.sum()
    if disc.found and missing > 0.02:
        notes += (f"{missing:.0%} of the round retina is cut off in the photo; the square was filled up with black.",)
    if 2 * disc.radius < 0.75 * SIDE:
        notes += (f"the retina is only {2 * disc.radius:.0f} px across; with under {SIDE}, small lesions cannot be seen.",)
    return Eye(Photo(pixels=pixels, name=photo.name, notes=photo.notes + notes), inside, fundus)


def _remarks(pixels: Pixels, inside: NDArray[np.bool_], found: bool) -> tuple[tuple[str, ...], bool]:
    """What makes one doubt that this is a fundus photo, and whether it is one for all that can be told."""
    notes = []
    y, x = np.ogrid[:SIDE, :SIDE]
    middle = inside & ((x - SIDE / 2) ** 2 + (y - SIDE / 2) ** 2 < (SIDE / 4) ** 2)
    red, green, blue = np.median(pixels[middle], axis=0) if middle.any() else (0.0, 0.0, 0.0)
    reddish = red > 1.02 * green and red > 0.95 * blue
    if not reddish:
        notes.append(
            f"the colours are not those of a retina (red {red:.0f}, green {green:.0f}, blue {blue:.0f} in the middle): "
            "if this is no colour photo of a fundus, the grade means nothing."
        )
    if not found:
        notes.append(
            "no round retina on a dark surround was found, so the whole photo was graded: if this is no fundus photo, "
            "the grade means nothing."
        )
    return tuple(notes), reddish and found
