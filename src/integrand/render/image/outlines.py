"""Outlines around where the attribution is: areas that hold a stated share of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ...errors import OptionError
from ...words import number, percent
from .panel import Panel, Subject
from .pixels import Array, grey, onto, remark

CANVAS = 448
"""Lines are drawn on pictures of at least so many pixels, so that they are thin."""


@dataclass(frozen=True, slots=True)
class Outlines:
    """A line around the strongest areas, which hold ``share`` of the magnitudes in the least area that is smooth.

    The magnitudes are smoothed to find the areas; what they hold is counted on the magnitudes themselves.

    Attributes:
        share: of all magnitudes, inside the lines.
        smooth: the width of the smoothing as a share of the photo's diagonal.
    """

    share: float = 0.5
    smooth: float = 0.02

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or not self.smooth >= 0:
            raise OptionError(
                f"got Outlines(share={self.share!r}, smooth={self.smooth!r}); expected a share of the magnitudes between "
                "0 and 1, and a width of at least 0"
            )

    def __call__(self, subject: Subject, /) -> Panel:
        """Draw it."""
        photo, values = subject.shown("outlines"), subject.strength
        inside = enclosing(values, self.share, self.smooth * math.hypot(*values.shape))
        canvas = enlarged(photo)
        mask = onto(inside, canvas.shape)
        pixels = np.where(mask[..., None], canvas, 0.45 * grey(canvas))
        known = np.where(np.isfinite(subject.signed), subject.signed, 0)
        said = f"{percent(self.share)} of all magnitudes in {percent(float(inside.mean()))} of the area"
        adds = f"inside adds up to {number(float(known[inside].sum()), 2)}"
        pixels = (
            draw_line(np.rint(255 * pixels).astype(np.uint8), mask) if inside.any() else np.rint(255 * canvas).astype(np.uint8)
        )
        note = "; ".join(filter(None, (remark(subject.signed), said if inside.any() else "nothing to outline")))
        return Panel(f"{subject.name}, outlined", note, pixels, lines=(said, adds) if inside.any() else ())


def enclosing(values: Array, share: float, width: float) -> Array:
    """The pixels, (h, w) bool, that hold ``share`` of the values: the first ones in the order of the smoothed values.

    Args:
        values: (h, w), not negative; what is not finite counts as nothing.
        share: of their sum.
        width: of the smoothing, in pixels.
    """
    known = np.where(np.isfinite(values), values, 0.0)
    order = np.argsort(-smoothed(known, width), axis=None, kind="stable")
    mass = np.cumsum(known.ravel()[order] / (known.max() or 1.0))
    inside = np.zeros(known.size, bool)
    if mass[-1] > 0:
        inside[order[: int(np.searchsorted(mass, share * mass[-1])) + 1]] = True
    return inside.reshape(known.shape)


def smoothed(values: Array, width: float) -> Array:
    """Values averaged with a Gaussian of this standard deviation in pixels, (h, w); at the edges over what is there."""
    for axis in (0, 1):
        place = np.arange(values.shape[axis])
        away = (place[:, None] - place) / max(width, 1e-9)
        weights = np.exp(-(away**2) / 2)
        values = np.moveaxis(np.tensordot(weights / weights.sum(1, keepdims=True), values, (1, axis)), 0, axis)
    return values


def enlarged(photo: Array) -> Array:
    """The photo with at least :data:`CANVAS` pixels on its longer side; small ones keep their squares."""
    factor = -(-CANVAS // max(photo.shape[:2]))
    if factor <= 1:
        return photo
    if max(photo.shape) < CANVAS // 4:
        return photo.repeat(factor, 0).repeat(factor, 1)
    whole = torch.as_tensor(np.ascontiguousarray(photo)).permute(2, 0, 1)[None]
    large = torch.nn.functional.interpolate(whole, scale_factor=factor, mode="bicubic").clamp(0, 1)
    out: Array = large[0].permute(1, 2, 0).numpy()
    return out


def draw_line(pixels: Array, mask: Array) -> Array:
    """A white line with dark edges, seen on any photo, around what is in the mask; (H, W, 3) uint8."""
    line = max(1, round(max(mask.shape) / CANVAS))
    edge = around(mask)
    out = pixels.copy()
    out[grown(edge, 2 * line)] = (16, 16, 16)
    out[grown(edge, line)] = 255
    return out


def around(mask: Array) -> Array:
    """The pixels of the mask that touch what is not in it; (H, W) bool."""
    out: Array = mask & grown(~mask, 1)
    return out


def grown(mask: Array, by: int) -> Array:
    """The mask with everything within so many pixels, along rows and columns; (H, W) bool."""
    for _ in range(by):
        wider = mask.copy()
        wider[1:] |= mask[:-1]
        wider[:-1] |= mask[1:]
        wider[:, 1:] |= mask[:, :-1]
        wider[:, :-1] |= mask[:, 1:]
        mask = wider
    return mask
