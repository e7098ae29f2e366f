"""Attributions by region: since they add up, what a region gives to the score is a number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ...errors import InputError, MissingExtraError, OptionError
from ...superpixels import grid, slic
from ...words import number, percent
from .outlines import draw_line, enlarged, grown, smoothed
from .panel import Mark, Panel, Subject
from .pixels import Array, blend, grey, heat, laid, onto, remark

TEXT = (0.042, 0.0295)
"""The height of a line and the width of a letter on the picture, as shares of a panel's width."""

_ROWS, _COLUMNS = ("upper", "middle", "lower"), ("left", "centre", "right")


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """The attributions of one photo, added up region by region.

    Attributes:
        labels: the region of each pixel, (H, W), from 0.
        sums: what each region gives to the score, (regions,).
        areas: the pixels of each, (regions,).
        centres: (row, column) of the pixel deepest inside each, (regions, 2).
        change: F(x) - F(x'), what all of them should add up to.
        kind: how the regions were made, in words.
    """

    labels: Array
    sums: Array
    areas: Array
    centres: Array
    change: float
    kind: str = ""

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def shares(self) -> Array:
        """Each sum as a share of F(x) - F(x'), (regions,); NaN where the score did not change."""
        out: Array = self.sums / (self.change or math.nan)
        return out

    @property
    def total(self) -> float:
        """What all regions add up to."""
        return math.fsum(self.sums) if np.isfinite(self.sums).all() else float(self.sums.sum())

    @property
    def order(self) -> Array:
        """The regions, strongest first, (regions,); what is not finite comes last."""
        out: Array = np.argsort(-np.where(np.isfinite(self.sums), np.abs(self.sums), -1.0), kind="stable")
        return out

    def place(self, region: int) -> str:
        """Where a region is, in words."""
        row, column = (min(2, int(3 * at / size)) for at, size in zip(self.centres[region], self.labels.shape, strict=True))
        return "centre" if row == column == 1 else f"{_ROWS[row]} {_COLUMNS[column]}"

    def lines(self, top: int = 10) -> tuple[str, ...]:
        """The strongest regions and what all add up to, a line each."""
        found = [
            f"{signed(self.sums[k])}{f' ({part})' if (part := share(self.shares[k])) else ''}, {self.place(k)}, "
            f"{percent(self.areas[k] / self.labels.size)} of the area"
            for k in self.order[:top]
        ]
        return (*found, f"{self.summary()}; F(x) − F(x′) = {number(self.change, 3)}")

    def summary(self) -> str:
        """What all regions add up to, in words."""
        unknown = int((~np.isfinite(self.sums)).sum())
        if unknown:
            return f"{len(self)} regions, {unknown} of them unknown"
        return f"{len(self)} {'rectangles' if self.kind == 'rectangles' else 'regions'} add up to {number(self.total, 3)}"

    def __str__(self) -> str:
        width = len(str(len(self)))
        *found, last = self.lines()
        return "\n".join([f"{i + 1:>{width}}  {line}" for i, line in enumerate(found)] + [last])


def signed(value: float) -> str:
    """A number with its sign, short.

    >>> signed(0.4), signed(-1234.5), signed(float("nan"))
    ('+0.40', '−1,234', 'unknown')
    """
    if not math.isfinite(value):
        return "unknown"
    text = f"{value:+,.0f}" if 100 <= abs(value) < 1e6 else f"{value:+#.2g}".rstrip(".")
    return text.replace("-", "−", 1)


def share(value: float) -> str:
    """A share of the change with its sign: percent, or how many times as much; '' if there is none.

    >>> share(0.314), share(-0.00025), share(56.1), share(float("nan"))
    ('+31%', '−0.03%', '+56×', '')
    """
    if not math.isfinite(value):
        return ""
    text = f"{value:+,.0f}×" if abs(value) >= 10 else f"{100 * value:+.{0 if abs(value) >= 0.01 else 2}f}%"
    return text.replace("-", "−", 1)


def regions_of(
    values: Array, photo: Array | None, *, change: float = math.nan, count: int = 50, segments: Array | None = None
) -> Regions:
    """Add attributions up by region.

    Args:
        values: (h, w), signed.
        photo: (H, W, 3) from 0 to 1; regions of like colour are found in it. Without it they are rectangles.
        change: F(x) - F(x').
        count: about how many regions.
        segments: regions of one's own, (H, W) integers, instead.
    """
    if count < 1:
        raise OptionError(f"got count={count!r}; expected at least 1 region")
    if segments is not None:
        labels, kind = _own(segments), "own regions"
        laid(values.shape, labels.shape, what="the map of segments")
        shape = tuple(max(sizes) for sizes in zip(values.shape, labels.shape, strict=True))
        labels = onto(labels, shape)
    else:
        shape = values.shape if photo is None else tuple(max(s) for s in zip(values.shape, photo.shape[:2], strict=True))
        labels, kind = _found(np.zeros((*shape, 1)) if photo is None else onto(photo, shape), count, coloured=photo is not None)
    sums = np.bincount(labels.ravel(), spread(values, shape).ravel())
    return Regions(labels, sums, np.bincount(labels.ravel()), _centres(labels), change, kind)


def _own(segments: Array) -> Array:
    if segments.ndim != 2 or not np.issubdtype(segments.dtype, np.integer):
        raise InputError(f"segments has shape {segments.shape} and dtype {segments.dtype}; expected (H, W) integers")
    labels: Array = np.unique(segments, return_inverse=True)[1].reshape(segments.shape)
    return labels


def _found(photo: Array, count: int, *, coloured: bool) -> tuple[Array, str]:
    pixels = torch.as_tensor(np.ascontiguousarray(photo)).permute(2, 0, 1)
    if coloured:
        try:
            # Fur and leaves would fray the borders, so that regions are found in the photo with fine detail smoothed away.
            return slic(_plain(pixels), count).numpy(), "superpixels (SLIC)"
        except MissingExtraError:
            pass
    return grid(pixels, count).numpy(), "rectangles"


def _plain(pixels: torch.Tensor) -> torch.Tensor:
    width = 0.006 * math.hypot(*pixels.shape[1:])
    return torch.stack([torch.as_tensor(smoothed(channel.numpy(), width)) for channel in pixels])


def spread(values: Array, shape: tuple[int, ...]) -> Array:
    """A map on a finer grid with the same sum: each entry is shared out among its pixels, (h, w) to (H, W).

    >>> spread(np.array([[1.0, 2.0]]), (1, 4)).tolist()
    [[0.5, 0.5, 1.0, 1.0]]
    """
    rows, columns = (np.arange(shape[axis]) * values.shape[axis] // shape[axis] for axis in (0, 1))
    each = np.bincount(rows)[:, None] * np.bincount(columns)
    return onto(values / each, shape)


def _depth(labels: Array) -> Array:
    """How many steps each pixel is away from another region or the rim, (H, W), from 1."""
    padded = np.pad(labels, 1, constant_values=-1)
    steps = [np.roll(padded, step, axis) for axis in (0, 1) for step in (1, -1)]
    left = padded >= 0
    depth = left.astype(int)
    left &= np.all([step == padded for step in steps], 0)
    while left.any():
        depth += left
        left = ~grown(~left, 1)
    return depth[1:-1, 1:-1]


def _centres(labels: Array) -> Array:
    """The pixel of each region that is deepest inside it, (regions, 2)."""
    order = np.lexsort((-_depth(labels).ravel(), labels.ravel()))
    first = order[np.unique(labels.ravel()[order], return_index=True)[1]]
    return np.stack(np.unravel_index(first, labels.shape), -1)


@dataclass(frozen=True, slots=True)
class Superpixels:
    """Regions of like colour, each coloured by what it gives to the score; the strongest are numbered as in the lines.

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
        """Draw it."""
        photo = subject.shown("regions")
        found = regions_of(subject.signed, photo, change=subject.change, count=self.count)
        known = found.sums[np.isfinite(found.sums)]
        limit = float(np.abs(known).max(initial=0.0))
        canvas = enlarged(onto(photo, found.labels.shape))
        labels = onto(found.labels, canvas.shape)
        colours = heat(found.sums[None], limit)[0] / 255
        pixels = blend(0.25 + 0.75 * grey(canvas), colours[labels], np.full(labels.shape, 0.62))
        pixels[_borders(labels)] = 255
        top = [int(k) for k in found.order[: self.top] if np.isfinite(found.sums[k])] if limit else []
        for k in reversed(top):
            pixels = draw_line(pixels, labels == k)
        scale = canvas.shape[0] / found.labels.shape[0]
        marks = tuple(Mark(scale * (x + 0.5), scale * (y + 0.5), text) for x, y, text in _texts(found, top))
        note = "; ".join(filter(None, (remark(subject.signed), found.summary())))
        *strongest, last = found.lines(self.top)
        lines = (*(f"{i + 1}: {line}" for i, line in enumerate(strongest)), last)
        return Panel(f"{subject.name}, regions", note, pixels, limit, clipped=False, marks=marks, lines=lines)


def _texts(found: Regions, top: list[int]) -> list[tuple[float, float, str]]:
    """The ranks of regions with their numbers, and where they go, (x, y, text): inside the region, deep, on the picture.

    Where there is no room for the numbers the rank stands alone, and where there is none for the rank it is left out of the
    picture; the lines have all.
    """
    height, width = found.labels.shape
    line, letter = (part * max(width, height / 1.75) for part in TEXT)
    depth = _depth(found.labels)
    texts: list[tuple[float, float, str]] = []
    for i, k in enumerate(top):
        parts = [part for part in (f"{i + 1}", signed(found.sums[k]), share(found.shares[k])) if part]
        for said in (parts[:some] for some in range(len(parts), 0, -1)):
            size = (letter * max(map(len, said)), line * len(said))
            room = _room(found.labels == k, size)
            if room.any():
                y, x = np.unravel_index(np.argmax(np.where(room, depth, -1)), depth.shape)
                texts.append((float(x), float(y), "\n".join(said)))
                break
    return texts


INSIDE = 0.97
"""The share of a text's box that must be in its region: an outline may cut a corner, but not run through a letter."""


def _room(mask: Array, size: tuple[float, float]) -> Array:
    """Where a box of this size, (width, height), has its middle in the mask and itself too, off the rim; (H, W) bool."""
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
    """The pixels above or left of another region, (H, W) bool."""
    out = np.zeros(labels.shape, bool)
    out[:-1] |= labels[:-1] != labels[1:]
    out[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    return out
