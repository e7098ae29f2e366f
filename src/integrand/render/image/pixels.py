"""From attributions to pixels: one number per pixel, clipped by mass, drawn as brightness, as colour or as an outline."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...errors import InputError, OptionError

Array = np.ndarray[Any, np.dtype[Any]]

COLOURS = ("#2166ac", "#4393c3", "#92c5de", "#f7f7f7", "#f4a582", "#d6604d", "#b2182b")
"""From negative to positive, blue over white to red: told apart with every common kind of colour blindness."""

UNKNOWN = 0x80
"""The grey of a pixel whose attribution is NaN or infinite."""

AIM = (255, 214, 10)
"""The yellow of the line around what is explained, a box or a mask: neither of the two colours that mean numbers, nor white."""

CANVAS = 448
"""The least length of the longer side, in pixels, of pictures with outlines, so that the lines are thin."""


def colour_table() -> Array:
    """:data:`COLOURS` as numbers, (colours, 3) from 0 to 255.

    >>> colour_table()[0].tolist()
    [33.0, 102.0, 172.0]
    """
    return np.array([list(bytes.fromhex(colour[1:])) for colour in COLOURS], float)


def contribution(values: Array) -> Array:
    """What each pixel contributes to the score: its attributions summed over the channels, (C, H, W) to (H, W)."""
    total: Array = np.asarray(values, float).sum(0)
    return total


def strength(values: Array) -> Array:
    """How much each pixel matters: the magnitudes of its attributions summed over the channels, (C, H, W) to (H, W).

    The paper aggregates over the colours and does not say how. Magnitudes, as in the saliency library of PAIR, keep a
    pixel bright whose red speaks for the class as much as its blue speaks against it.
    """
    total: Array = np.abs(np.asarray(values, float)).sum(0)
    return total


def mass_limit(values: Array, share: float) -> float:
    """The magnitude up to which the entries hold ``share`` of the total magnitude; what is beyond is clipped.

    Clipping by mass leaves the picture as it is when a single pixel stands out, where a scale set by the largest pixel
    would turn everything else black.

    >>> mass_limit(np.array([1.0, -1.0, 1.0, 1.0, 100.0]), 0.03)
    1.0
    >>> mass_limit(np.array([1.0, -1.0, 1.0, 1.0, 100.0]), 1.0)
    100.0
    >>> mass_limit(np.zeros(3), 0.8)
    0.0
    """
    if not 0 < share <= 1:
        raise OptionError(f"got share={share!r}; expected a share of the attribution mass, above 0 and at most 1")
    size = np.sort(np.abs(values[np.isfinite(values)]), axis=None)
    if not size.size or size[-1] == 0:
        return 0.0
    mass = np.cumsum(size / size[-1])  # divided first, so that the sum of large numbers does not overflow
    return float(size[min(int(np.searchsorted(mass, share * mass[-1])), size.size - 1)])


def remark(values: Array) -> str:
    """A remark on a map whose colours may mislead: all zero, one sign only, not finite; '' for an ordinary map.

    >>> remark(np.array([0.0, 0.0])), remark(np.array([1.0, 0.0])), remark(np.array([1.0, np.nan, -1.0]))
    ('all zero', 'none negative', '1 of 3 not finite')
    """
    finite = values[np.isfinite(values)]
    missing = values.size - finite.size
    parts = [f"{missing} of {values.size} not finite"] if missing else []
    if finite.size:
        if not finite.any():
            parts.append("all zero")
        elif finite.min() >= 0:
            parts.append("none negative")
        elif finite.max() <= 0:
            parts.append("none positive")
    return "; ".join(parts)


def heat(values: Array, limit: float) -> Array:
    """Signed values as colours, (H, W) to (H, W, 3) uint8; ``-limit`` and ``limit`` are the ends of the colours."""
    table = colour_table()
    known = np.isfinite(values)
    scaled = np.clip(np.where(known, values, 0) / (limit or 1.0), -1, 1)
    at = (scaled + 1) / 2 * (len(table) - 1)
    colours = np.stack([np.interp(at, np.arange(len(table)), column) for column in table.T], -1)
    colours[~known] = UNKNOWN
    out: Array = np.rint(colours).astype(np.uint8)
    return out


def lit(photo: Array, values: Array, limit: float) -> Array:
    """The photo with each pixel scaled by its strength, (H, W, 3) uint8.

    Args:
        photo: (H, W, 3) from 0 to 1.
        values: (h, w), not negative; where it is coarser than the photo, as for a layer, each entry covers a block of pixels.
        limit: the strength that leaves a pixel as bright as it is.
    """
    values = onto(values, photo.shape)
    known = np.isfinite(values)
    scale = np.clip(np.where(known, values, 0) / (limit or 1.0), 0, 1)
    pixels = photo * scale[..., None] * 255
    pixels[~known] = UNKNOWN
    out: Array = np.rint(pixels).astype(np.uint8)
    return out


def onto(values: Array, shape: tuple[int, ...]) -> Array:
    """A map on another grid, (h, w, ...) to (H, W, ...): each entry covers the block of pixels that lies under it.

    >>> onto(np.array([[1, 2]]), (2, 4)).tolist()
    [[1, 1, 2, 2], [1, 1, 2, 2]]
    """
    rows, columns = (np.arange(shape[axis]) * values.shape[axis] // shape[axis] for axis in (0, 1))
    out: Array = values[rows[:, None], columns]
    return out


def rgb(colour: str) -> Array:
    """A colour like '#00ff00' as three numbers from 0 to 1."""
    return np.array(list(bytes.fromhex(colour[1:])), float) / 255


def grey(photo: Array) -> Array:
    """The photo without its colours, as bright as the eye sees them (Rec. 709), (H, W, 3) from 0 to 1."""
    out: Array = np.repeat(photo @ np.array([[0.2126], [0.7152], [0.0722]]), 3, -1)
    return out


def blend(under: Array, over: Array, opacity: Array) -> Array:
    """One picture over another, both (H, W, 3) from 0 to 1 (or one colour), by an opacity per pixel; (H, W, 3) uint8."""
    share = opacity[..., None]
    out: Array = np.rint(255 * (under * (1 - share) + over * share)).astype(np.uint8)
    return out


def photo_pixels(photo: Array, like: tuple[int, ...] = ()) -> tuple[Array, str]:
    """A photo as (H, W, 3) from 0 to 1, and a remark ('' if it was in range and of the map's size).

    Args:
        photo: (H, W), (C, H, W) or (H, W, C) with 1, 3 or 4 channels; integers 0 to 255 or floats 0 to 1. Other floats,
            such as a model's normalised input, are stretched to be seen.
        like: the size of the map to be drawn on it, which settles where the channels are if the shape leaves it open.

    Raises:
        InputError: the photo is none, or not of the map's proportions, so that the map would be drawn out of place.
    """
    pixels = _channels_last(photo, like)
    note = laid(like, pixels.shape[:2]) if like else ""
    if np.issubdtype(pixels.dtype, np.integer):
        pixels = pixels / 255
    pixels = pixels.astype(float)
    finite = pixels[np.isfinite(pixels)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if low < -0.01 or high > 1.01:
        note = "; ".join(filter(None, (f"colours stretched from {low:.3g}…{high:.3g}", note)))
        pixels = (pixels - low) / (high - low or 1.0)
    return np.clip(np.nan_to_num(pixels, posinf=1, neginf=0), 0, 1), note


def laid(values: tuple[int, ...], photo: tuple[int, ...], *, what: str = "the photo") -> str:
    """A remark where a map and the photo under it differ in size; '' where they do not. Other proportions are refused.

    A layer's map, or a larger photo, is the same picture rescaled: one factor fits both sides, but for a pixel of rounding
    on the coarser grid. With any other photo, such as one that was cropped for the network, every pixel would be out of place.

    Args:
        values: (h, w) of the map.
        photo: (H, W) of the photo.
        what: the photo, in words.

    >>> laid((224, 224), (512, 512)), laid((7, 5), (224, 150)), laid((4, 6), (4, 6))
    ('photo 512 × 512, attributions 224 × 224', 'photo 150 × 224, attributions 5 × 7', '')
    """
    if values == photo:
        return ""
    (a, b), (tall, wide) = sorted((values, photo))
    sizes = [f"{size[1]} × {size[0]}" for size in (photo, values)]
    if (a - 1) * wide > (b + 1) * tall or (b - 1) * tall > (a + 1) * wide:
        raise InputError(
            f"{what} is {sizes[0]} pixels and the attributions are {sizes[1]}; expected the same size, or the same "
            "proportions; pass what the network saw, such as the photo as it was cropped for it"
        )
    return f"{what.removeprefix('the ')} {sizes[0]}, attributions {sizes[1]}"


def smoothed(values: Array, width: float) -> Array:
    """Values averaged with a Gaussian of this standard deviation in pixels, (h, w); cut off at the edges of the map."""
    for axis in (0, 1):
        place = np.arange(values.shape[axis])
        away = (place[:, None] - place) / max(width, 1e-9)
        weights = np.exp(-(away**2) / 2)
        values = np.moveaxis(np.tensordot(weights / weights.sum(1, keepdims=True), values, (1, axis)), 0, axis)
    return values


def enlarged(photo: Array) -> Array:
    """The photo enlarged to at least :data:`CANVAS` pixels on its longer side; pixels of small photos stay squares."""
    factor = -(-CANVAS // max(photo.shape[:2]))
    if factor <= 1:
        return photo
    if max(photo.shape) < CANVAS // 4:
        return photo.repeat(factor, 0).repeat(factor, 1)
    whole = torch.as_tensor(np.ascontiguousarray(photo)).permute(2, 0, 1)[None]
    large = torch.nn.functional.interpolate(whole, scale_factor=factor, mode="bicubic").clamp(0, 1)
    out: Array = large[0].permute(1, 2, 0).numpy()
    return out


def draw_line(pixels: Array, mask: Array, colour: tuple[int, int, int] = (255, 255, 255)) -> Array:
    """Draw a line with dark edges, visible on any photo, around the mask; (H, W, 3) uint8."""
    line = max(1, round(max(mask.shape) / CANVAS))
    edge = around(mask)
    out = pixels.copy()
    out[grown(edge, 2 * line)] = (16, 16, 16)
    out[grown(edge, line)] = colour
    return out


def with_aim(pixels: Array, aim: Array | None) -> Array:
    """A picture, (H, W, 3) uint8, with a yellow line around what is explained, (h, w) bool; as it is where that is None."""
    if aim is None or not aim.any():
        return pixels
    # Around a box that fills the picture the line would otherwise lie outside.
    inside = onto(aim, pixels.shape).copy()
    inside[[0, -1]], inside[:, [0, -1]] = False, False
    return draw_line(pixels, inside, AIM)


def around(mask: Array) -> Array:
    """The pixels of the mask that border on pixels outside it, (H, W) bool."""
    out: Array = mask & grown(~mask, 1)
    return out


def grown(mask: Array, by: int) -> Array:
    """The mask grown by so many pixels along rows and columns, (H, W) bool."""
    for _ in range(by):
        wider = mask.copy()
        wider[1:] |= mask[:-1]
        wider[:-1] |= mask[1:]
        wider[:, 1:] |= mask[:, :-1]
        wider[:, :-1] |= mask[:, 1:]
        mask = wider
    return mask


def _channels_last(photo: Array, like: tuple[int, ...]) -> Array:
    if photo.ndim == 2:
        photo = photo[..., None]
    if photo.ndim == 3 and photo.size:
        first, last = (photo.shape[axis] in (1, 3, 4) for axis in (0, -1))
        if first and (not last or photo.shape[1:] == like):
            photo, last = np.moveaxis(photo, 0, -1), True
        if last:
            # The fourth channel is opacity; grey is repeated.
            return np.broadcast_to(photo[..., :3], (*photo.shape[:2], 3))
    raise InputError(
        f"image has shape {tuple(photo.shape)} for one example; expected (H, W), (C, H, W) or (H, W, C) with 1, 3 or 4 channels"
    )
