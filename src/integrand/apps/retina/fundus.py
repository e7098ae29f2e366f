"""Finds the retina in a fundus photo and frames it as in training: its disc fills a black square."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtraError, OptionError
from ...words import short_repr
from ..images.photo_files import Photo, as_photo

Pixels = NDArray[np.uint8]
Values = NDArray[np.float32]
Points = NDArray[np.float64]

SEARCH = 256  # pixels of the longer side on which the disc is looked for
NEAR = 0.03  # of the radius: how far from the circle a point still counts for something
SETTLED = 100  # rounds within which the fitted circle settles: a dozen, usually
FILLS = 0.05  # of the side: a disc that fills its square this well stays as it is; training moved photos by as much

LARGEST = 8192
"""The side of the largest square, in pixels, that a retina is framed in; larger photos are made smaller first."""

SIDE = 512
"""The side of the square that the grader takes, in pixels."""

BaselineName = Literal["black", "retina", "blurred", "average"]
BASELINES: tuple[BaselineName, ...] = ("black", "retina", "blurred", "average")
BLUR = 32.0  # pixels of 512: wider than all but the largest lesions


@dataclass(frozen=True, eq=False)
class Eye:
    """A fundus photo, framed as the grader takes it.

    Attributes:
        photo: 512 x 512 pixels, the disc of the retina filling the square, black around it; its notes say what was done.
        values: the same pixels before they were rounded to whole numbers, (512, 512, 3) from 0 to 255; the grader takes these.
        inside: (512, 512), True where the photo shows retina.
        fundus: whether it looks like a fundus photo at all.
    """

    photo: Photo
    values: Values
    inside: NDArray[np.bool_]
    fundus: bool

    __repr__ = short_repr

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the photo that a reader of the result should know."""
        return self.photo.notes

    def baseline(self, name: BaselineName) -> list[Values]:
        """Uninformative versions of this eye, (512, 512, 3) each, from 0 to 255, black outside the disc as the photo is.

        ``black``; ``retina``: all of it in its median colour; ``blurred``: by a Gaussian of 32 pixels; ``average``: these
        three, to be averaged over.
        """
        if name not in BASELINES:
            raise OptionError(f"got baseline {name!r}; expected one of {', '.join(BASELINES)}.")
        values, inside = self.values, self.inside[..., None]
        found: list[Values] = []
        if name in ("black", "average"):
            found.append(np.zeros_like(values))
        if name in ("retina", "average"):
            colour = np.median(values[self.inside], axis=0) if self.inside.any() else np.zeros(3)
            found.append(np.where(inside, colour, 0).astype(np.float32))
        if name in ("blurred", "average"):
            found.append(smoothed(values, self.inside, BLUR))
        return found


def see(photo: Photo | Pixels | str | Path) -> Eye:
    """Find the retina in a photo and frame it like the photos the grader was trained on.

    Args:
        photo: a file, a :class:`~integrand.apps.photos.Photo`, or (H, W, 3) bytes in RGB.
    """
    photo = as_photo(photo)
    disc = find_disc(photo.pixels)
    values, place, shown = framed(photo.pixels, disc, SIDE)
    pixels = np.rint(values).astype(np.uint8)
    circle = place.mask(SIDE, SIDE)
    inside = circle & shown if disc.found else shown
    notes, fundus = _remarks(pixels, inside, disc.found)
    missing = 1 - inside.sum() / circle.sum()
    if disc.found and missing > 0.02:
        notes += (f"{missing:.0%} of the round retina is cut off in the photo; the square was filled up with black.",)
    if 2 * disc.radius < 0.75 * SIDE:
        notes += (f"the retina is only {2 * disc.radius:.0f} px across; with under {SIDE}, small lesions cannot be seen.",)
    seen = Photo(pixels=pixels, name=photo.name, notes=photo.notes + notes, digest=photo.digest)
    return Eye(seen, values, inside, fundus)


@dataclass(frozen=True)
class Disc:
    """A circle in a photo, in pixels of that photo.

    Attributes:
        x: the column of the centre, from the left.
        y: the row of the centre, from the top.
        radius: half the side of the square that is framed.
        support: the share of the visible rim with darkness outside and light inside; 0 if no circle was found.
    """

    x: float
    y: float
    radius: float
    support: float

    @property
    def found(self) -> bool:
        """Whether the photo shows a disc on a dark background."""
        return self.support >= 0.7

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """The mask of the pixels inside the circle, (height, width) bool."""
        y, x = np.ogrid[:height, :width]
        inside: NDArray[np.bool_] = (x + 0.5 - self.x) ** 2 + (y + 0.5 - self.y) ** 2 <= self.radius**2
        return inside


def find_disc(pixels: Pixels) -> Disc:
    """Find the round retina on its dark background; without one, the whole photo is returned with support 0.

    Args:
        pixels: (H, W, 3) RGB.
    """
    height, width = pixels.shape[:2]
    whole = Disc(width / 2, height / 2, max(height, width) / 2, 0.0)
    scale = max(1.0, max(height, width) / SEARCH)
    light = _reduced(pixels, scale)
    ground = min(float(np.median(corner)) for corner in _corners(light))
    bright = float(np.percentile(light, 95))
    level = ground + max(0.1 * (bright - ground), 5.0)
    points = _rim(light, level)
    circle = _circle(points, light.shape) if len(points) >= 20 else None
    if circle is None:
        return whole
    x, y, radius = circle
    support = _support(light > level, x, y, radius)
    found = Disc((x + 0.5) * width / light.shape[1], (y + 0.5) * height / light.shape[0], radius * scale, support)
    return found if found.found else whole


def framed(pixels: Pixels, disc: Disc, side: int) -> tuple[Values, Disc, NDArray[np.bool_]]:
    """The disc in a black square of ``side`` pixels, its position there, and the mask of pixels that show the photo.

    A photo that is already such a square is only resized, so that photos prepared elsewhere stay what they are. Nothing is
    rounded, neither the place of the square nor the pixels, so that a slightly different photo gives a slightly different
    square: rounded to whole pixels, the grader's logits jump by up to half a unit when the disc moves by a hair.
    """
    height, width = pixels.shape[:2]
    image = pillow()
    if 2 * disc.radius > LARGEST:  # a panorama, say: its square would not fit into memory
        factor = math.ceil(2 * disc.radius / LARGEST)
        pixels = np.asarray(image.fromarray(pixels).reduce(factor))
        disc = Disc(disc.x / factor, disc.y / factor, disc.radius / factor, disc.support)
        height, width = pixels.shape[:2]
    half = max(height, width) / 2
    off = max(abs(disc.x - width / 2), abs(disc.y - height / 2), abs(disc.radius - half)) / (2 * half)
    left, top, length = disc.x - disc.radius, disc.y - disc.radius, max(1.0, 2 * disc.radius)
    if height == width and off <= FILLS:
        left, top, length = 0.0, 0.0, float(width)
    scale = side / length
    place = Disc((disc.x - left) * scale, (disc.y - top) * scale, disc.radius * scale, disc.support)
    centres = (np.arange(side) + 0.5) / scale
    across, down = centres + left, centres + top
    shown = ((down > 0) & (down < height))[:, None] & ((across > 0) & (across < width))
    return _cut(pixels, left, top, length, side), place, shown


def _cut(pixels: Pixels, left: float, top: float, length: float, side: int) -> Values:
    """A square of a photo, black beyond its edges, resized to ``side`` pixels; its corner and length may be fractions."""
    height, width = pixels.shape[:2]
    if (left, top, length, length) == (0, 0, width, height) and length == side:
        return pixels.astype(np.float32)
    image = pillow()
    corner = math.floor(left), math.floor(top)
    size = tuple(math.ceil(start + length) - first for start, first in zip((left, top), corner, strict=True))
    box = (left - corner[0], top - corner[1], left - corner[0] + length, top - corner[1] + length)
    found = np.empty((side, side, 3), np.float32)
    for channel in range(3):  # one at a time, in floating point: four bytes for a pixel, as in a colour picture of Pillow
        square = image.new("F", size)
        square.paste(image.fromarray(pixels[..., channel].astype(np.float32)), (-corner[0], -corner[1]))
        found[..., channel] = np.asarray(square.resize((side, side), image.Resampling.BICUBIC, box=box))
    return found.clip(0, 255)


def smoothed(pixels: Values | Pixels, inside: NDArray[np.bool_], sigma: float) -> Values:
    """A Gaussian blur restricted to a mask: pixels outside contribute nothing and become black.

    Args:
        pixels: (H, W, 3).
        inside: (H, W), True where the picture is.
        sigma: the standard deviation of the Gaussian, in pixels.
    """
    height, width = inside.shape
    down, across = (np.exp(-0.5 * (np.subtract.outer(np.arange(n), np.arange(n)) / sigma) ** 2) for n in (height, width))
    weight = inside.astype(np.float64)
    layers = np.stack([*(pixels[..., k] * weight for k in range(3)), weight])
    layers = (down @ layers @ across).transpose(1, 2, 0)
    mean = layers[..., :3] / np.maximum(layers[..., 3:], 1e-12)
    return np.where(inside[..., None], mean, 0).astype(np.float32)


def pillow() -> Any:
    """Import PIL's Image, or raise an error that says how to install it."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Pillow", "images", "framing a fundus photo") from None
    return Image


def _reduced(pixels: Pixels, scale: float) -> Points:
    """The brightest channel of a photo, averaged over squares of about ``scale`` pixels; sums of bytes, so exact."""
    height, width = pixels.shape[:2]
    if scale <= 1:
        return np.asarray(pixels.max(axis=2), np.float64)
    rows, columns = (_edges(n, scale) for n in (height, width))
    total = np.add.reduceat(np.add.reduceat(pixels, rows, axis=0, dtype=np.uint32), columns, axis=1, dtype=np.uint32)
    area = np.outer(np.diff([*rows, height]), np.diff([*columns, width]))
    light: Points = total.max(axis=2) / area
    return light


def _edges(side: int, scale: float) -> NDArray[np.int64]:
    """Where each of the parts of about ``scale`` pixels begins that a side is divided into."""
    return np.rint(np.linspace(0, side, max(1, round(side / scale)), endpoint=False)).astype(np.int64)


def _corners(light: NDArray[Any]) -> list[NDArray[Any]]:
    h, w = max(1, light.shape[0] // 20), max(1, light.shape[1] // 20)
    return [light[:h, :w], light[:h, -w:], light[-h:, :w], light[-h:, -w:]]


def _rim(light: Points, level: float) -> Points:
    """The points where light begins and ends along each row and column, except at the photo's own edge: (N, 2), x and y.

    They lie between the last dark pixel and the first lit one, in proportion, so that they move only as the light does.
    """
    found = []
    for turned, grid in ((False, light), (True, light.T)):
        for mirrored in (False, True):
            seen = grid[:, ::-1] if mirrored else grid
            first = (seen > level).argmax(axis=1)
            rows = np.flatnonzero(first > 0)  # 0: lit up to the edge of the photo, or not lit at all
            dark, lit = seen[rows, first[rows] - 1], seen[rows, first[rows]]
            at = first[rows] - 1 + (level - dark) / (lit - dark)
            at = grid.shape[1] - 1 - at if mirrored else at
            found.append(np.stack((rows, at) if turned else (at, rows), axis=1))
    return np.concatenate(found)


def _circle(points: Points, shape: tuple[int, ...]) -> tuple[float, float, float] | None:
    """The circle that most points lie on; outliers, such as shadows and marks, are left out."""
    drawn = np.random.default_rng(0).random((600, 3))  # of the way along the points: one more or less changes little
    threes = points[(drawn * len(points)).astype(int)]
    a, b = threes[:, 1] - threes[:, 0], threes[:, 2] - threes[:, 0]
    cross = 2 * (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
    keep = np.abs(cross) > 1e-6
    a, b, cross, start = a[keep], b[keep], cross[keep], threes[keep, 0]
    aa, bb = (a**2).sum(axis=1), (b**2).sum(axis=1)
    centre = np.stack([b[:, 1] * aa - a[:, 1] * bb, a[:, 0] * bb - b[:, 0] * aa], axis=1) / cross[:, None]
    radius, centre = np.hypot(*centre.T), centre + start
    likely = (radius > 0.2 * min(shape)) & (radius < 0.8 * max(shape))
    if not likely.any():
        return None
    radius, centre = radius[likely], centre[likely]
    best = int(_weights(points[None], centre[:, None], radius[:, None]).sum(axis=1).argmax())
    circle = np.array([*centre[best], radius[best]])
    for _ in range(SETTLED):
        weights = _weights(points, circle[:2], circle[2])
        if (weights > 0).sum() < 10:
            return None
        before, circle = circle, _least_squares(points, weights)
        if np.abs(circle - before).max() < 1e-9:
            break
    x, y, r = circle.tolist()
    return x, y, r


def _weights(points: Points, centre: Points, radius: Any) -> Points:
    """How much each point counts: 1 on the circle, falling smoothly to 0 at :data:`NEAR` of the radius (Tukey's biweight)."""
    away = np.abs(np.hypot(points[..., 0] - centre[..., 0], points[..., 1] - centre[..., 1]) - radius)
    weights: Points = (1 - np.minimum(away / (NEAR * radius), 1) ** 2) ** 2
    return weights


def _least_squares(points: Points, weights: Points) -> Points:
    """The circle x² + y² = 2 a x + 2 b y + c fitted to weighted points by least squares: its centre and radius."""
    mean = weights @ points / weights.sum()
    p, root = points - mean, np.sqrt(weights)
    terms = np.column_stack([2 * p, np.ones(len(p))]) * root[:, None]
    (a, b, c), *_ = np.linalg.lstsq(terms, (p**2).sum(axis=1) * root, rcond=None)
    return np.array([a + mean[0], b + mean[1], np.sqrt(max(c + a * a + b * b, 0.0))])


def _support(lit: NDArray[np.bool_], x: float, y: float, radius: float) -> float:
    """The share of the visible rim that is dark outside and light inside."""
    angle = np.linspace(0, 2 * np.pi, 720, endpoint=False)

    def at(share: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        column = np.rint(x + share * radius * np.cos(angle)).astype(int)
        row = np.rint(y + share * radius * np.sin(angle)).astype(int)
        seen = (row >= 0) & (row < lit.shape[0]) & (column >= 0) & (column < lit.shape[1])
        value = np.zeros(len(angle), dtype=bool)
        value[seen] = lit[row[seen], column[seen]]
        return seen, value

    (seen, outside), (_, inside) = at(1.04), at(0.95)
    if seen.mean() < 0.1:
        return 0.0
    return float((inside & ~outside)[seen].mean())


def _remarks(pixels: Pixels, inside: NDArray[np.bool_], found: bool) -> tuple[tuple[str, ...], bool]:
    """Reasons to doubt that this is a fundus photo, and whether it looks like one."""
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
    return tuple(notes), bool(reddish) and found
