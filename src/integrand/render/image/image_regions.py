"""Attributions added up by region: because they add up, the contribution of a region to the score is a number."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ...attribution import Attribution
from ...errors import InputError, MissingExtraError, OptionError
from ...superpixels import grid, slic
from ...trees import flatten
from ...words import number, percent, plus_minus, short_repr
from .pixels import Array, grown, laid, onto, smoothed

_ROWS, _COLUMNS = ("upper", "middle", "lower"), ("left", "centre", "right")


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """The attributions of one photo, summed by region.

    Attributes:
        labels: the region of each pixel, (H, W), from 0.
        sums: what each region gives to the score, (regions,).
        areas: the pixels of each, (regions,).
        centres: (row, column) of the pixel deepest inside each, (regions, 2).
        change: F(x) - F(x'), what all of them should add up to.
        kind: how the regions were made, in words.
        errors: by how much each sum may be off, (regions,); NaN where that is not known.
    """

    labels: Array
    sums: Array
    areas: Array
    centres: Array
    change: float
    kind: str = ""
    errors: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if len(self.errors) != len(self.sums):
            object.__setattr__(self, "errors", np.full(len(self.sums), math.nan))

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def shares(self) -> Array:
        """Each sum as a share of F(x) - F(x'), (regions,); NaN where the score did not change."""
        out: Array = self.sums / (self.change or math.nan)
        return out

    @property
    def total(self) -> float:
        """The sum over all regions."""
        return math.fsum(self.sums) if np.isfinite(self.sums).all() else float(self.sums.sum())

    @property
    def order(self) -> Array:
        """The indices of the regions, strongest first, (regions,); sums that are not finite come last."""
        out: Array = np.argsort(-np.where(np.isfinite(self.sums), np.abs(self.sums), -1.0), kind="stable")
        return out

    def place(self, region: int) -> str:
        """Where a region lies in the photo, in words, such as "upper left"."""
        row, column = (min(2, int(3 * at / size)) for at, size in zip(self.centres[region], self.labels.shape, strict=True))
        return "centre" if row == column == 1 else f"{_ROWS[row]} {_COLUMNS[column]}"

    def said(self, region: int) -> str:
        """The sum of a region, with its error where that is known."""
        total, error = float(self.sums[region]), float(self.errors[region])
        return plus_minus(total, error) if math.isfinite(error) else signed(total)

    def lines(self, top: int = 10) -> tuple[str, ...]:
        """One line for each of the strongest regions, and a last one with the sum over all of them."""
        found = [
            f"{self.said(int(k))}{f' ({part})' if (part := share(self.shares[k])) else ''}, {self.place(k)}, "
            f"{percent(self.areas[k] / self.labels.size)} of the area"
            for k in self.order[:top]
        ]
        return (*found, f"{self.summary()}; F(x) − F(x′) = {number(self.change, 3)}")

    def summary(self) -> str:
        """The sum over all regions, in words."""
        unknown = int((~np.isfinite(self.sums)).sum())
        if unknown:
            return f"{len(self)} regions, {unknown} of them unknown"
        return f"{len(self)} {'rectangles' if self.kind == 'rectangles' else 'regions'} add up to {number(self.total, 3)}"

    __repr__ = short_repr

    def __str__(self) -> str:
        width = len(str(len(self)))
        *found, last = self.lines()
        return "\n".join([f"{i + 1:>{width}}  {line}" for i, line in enumerate(found)] + [last])


def signed(value: float) -> str:
    """A number with its sign, rounded for people.

    >>> signed(0.4), signed(-1234.5), signed(float("nan"))
    ('+0.40', '−1,234', 'unknown')
    """
    if not math.isfinite(value):
        return "unknown"
    text = f"{value:+,.0f}" if 100 <= abs(value) < 1e6 else f"{value:+#.2g}".rstrip(".")
    return text.replace("-", "−", 1)


def share(value: float) -> str:
    """A share of the change with its sign, as a percentage or as a multiple; '' where it is not defined.

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
    """Sum the attributions of a photo by region.

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


def with_errors(found: Regions, result: Attribution, example: int = 0) -> Regions:
    """The regions of one example of a result, with the error of each sum.

    Where the photo is finer than the attributions, an entry counts as part of the region in its middle.

    Args:
        found: the regions.
        result: the attributions that they are sums of, (examples, channels, h, w) or (channels, h, w).
        example: which one.
    """
    shape = flatten(result.values, what="values")[1][0].shape[-2:]
    rows, columns = ((2 * np.arange(n) + 1) * size // (2 * n) for n, size in zip(shape, found.labels.shape, strict=True))
    labels = found.labels[rows[:, None], columns]
    errors = result.sums(torch.as_tensor(labels)).errors
    own, there = (errors[example] if result.batched else errors).numpy(), np.unique(labels)
    out = np.full(len(found), math.nan)
    out[there] = own[there]
    return replace(found, errors=out)


def spread(values: Array, shape: tuple[int, ...]) -> Array:
    """A map on a finer grid with the same sum: each entry is divided among the pixels it covers, (h, w) to (H, W).

    >>> spread(np.array([[1.0, 2.0]]), (1, 4)).tolist()
    [[0.5, 0.5, 1.0, 1.0]]
    """
    rows, columns = (np.arange(shape[axis]) * values.shape[axis] // shape[axis] for axis in (0, 1))
    each = np.bincount(rows)[:, None] * np.bincount(columns)
    return onto(values / each, shape)


def depth_of(labels: Array) -> Array:
    """The distance of each pixel from the nearest other region or the rim, in steps from 1, (H, W)."""
    padded = np.pad(labels, 1, constant_values=-1)
    steps = [np.roll(padded, step, axis) for axis in (0, 1) for step in (1, -1)]
    left = padded >= 0
    depth = left.astype(int)
    left &= np.all([step == padded for step in steps], 0)
    while left.any():
        depth += left
        left = ~grown(~left, 1)
    return depth[1:-1, 1:-1]


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


def _centres(labels: Array) -> Array:
    """The pixel that lies deepest inside each region, (regions, 2)."""
    order = np.lexsort((-depth_of(labels).ravel(), labels.ravel()))
    first = order[np.unique(labels.ravel()[order], return_index=True)[1]]
    return np.stack(np.unravel_index(first, labels.shape), -1)
