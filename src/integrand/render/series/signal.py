"""A signal with attributions under it, as plain data: what every picture of a series takes, and what it says in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...words import plus_minus, short_repr, shown
from .time_axis import TimeAxis

Numbers = NDArray[np.float64]

NEAR = 1 / 3
"""A window belongs to a stretch if it has at least this share of the strongest one beside it; by hand."""


@dataclass(frozen=True)
class SignalStretch:
    """Neighbouring windows of one channel that speak the same way.

    Attributes:
        channel: its number.
        start: the first step.
        stop: the step after the last.
    """

    channel: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class AttributedSignal:
    """A series of several channels, what each value of it adds to a score, and the sums over windows of time.

    Attributes:
        axis: the times.
        values: the signal, (time, channels).
        baseline: where the path of integration started, (time, channels).
        attributions: what each value adds to the score, (time, channels).
        names: of the channels.
        units: of the channels; empty texts where they have none.
        windows: (start, stop) of each window in steps, in order, without gaps.
        sums: over each window, (windows, channels).
        errors: of the sums, likewise; NaN where they are not known.
        totals: over all times, (channels,).
        total_errors: of the totals.
        scale: the unit of the score, such as ``thousand``; empty where it has none.
        known: whether each value was measured, (time, channels); False where a gap was filled.
    """

    axis: TimeAxis
    values: Numbers
    baseline: Numbers
    attributions: Numbers
    names: tuple[str, ...]
    units: tuple[str, ...]
    windows: tuple[tuple[int, int], ...]
    sums: Numbers
    errors: Numbers
    totals: Numbers
    total_errors: Numbers
    scale: str = ""
    known: NDArray[np.bool_] | None = field(default=None)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        shape = (len(self.axis), len(self.names))
        for name in ("values", "baseline", "attributions"):
            if getattr(self, name).shape != shape:
                raise InputError(f"{name} has shape {getattr(self, name).shape}; expected {shape}, (time, channels).")
        cells = (len(self.windows), len(self.names))
        if self.sums.shape != cells or self.errors.shape != cells:
            raise InputError(f"sums have shape {self.sums.shape}; expected {cells}, (windows, channels).")

    @property
    def several(self) -> bool:
        """Whether there is more than one channel."""
        return len(self.names) > 1

    def named(self, channel: int) -> str:
        """The name of a channel, so that a terminal shows it."""
        return shown(self.names[channel])

    def amount(self, value: float, error: float) -> str:
        """A sum with its error and the unit of the score."""
        return plus_minus(value, error) + (f" {self.scale}" if self.scale else "")

    def window_saying(self, window: int, channel: int) -> str:
        """What a window of a channel adds, in words, with what the signal does there."""
        start, stop = self.windows[window]
        part = self.values[start:stop, channel]
        unit = f" {self.units[channel]}" if self.units[channel] else ""
        low, high = float(part.min()), float(part.max())
        ends = [f"{end:.4g}".replace("-", "−") for end in ((low,) if low == high else (low, high))]
        seen = f"{' to '.join(ends)}{unit}"
        adds = self.amount(float(self.sums[window, channel]), float(self.errors[window, channel]))
        return f"{self.axis.span(start, stop)}: {self.named(channel)} is {seen} and adds {adds}"

    def strongest(self, count: int = 6) -> list[tuple[int, int]]:
        """The windows that add or take most, as (window, channel), strongest first."""
        order = np.argsort(-np.abs(np.nan_to_num(self.sums)), axis=None, kind="stable")[:count]
        pairs = (np.unravel_index(int(k), self.sums.shape) for k in order)
        return [(int(w), int(c)) for w, c in pairs if self.sums[w, c]]

    def stretch(self, sign: int) -> SignalStretch | None:
        """The strongest stretch that speaks for the score (1) or against it (-1): a window and neighbours nearly as strong."""
        signed = sign * np.nan_to_num(self.sums)
        if not signed.size or signed.max() <= 0:
            return None
        w, c = (int(k) for k in np.unravel_index(int(signed.argmax()), signed.shape))
        enough = NEAR * signed[w, c]
        first = last = w
        while first > 0 and signed[first - 1, c] >= enough:
            first -= 1
        while last + 1 < len(signed) and signed[last + 1, c] >= enough:
            last += 1
        return SignalStretch(c, self.windows[first][0], self.windows[last][1])


def place_words(signal: AttributedSignal, one: SignalStretch) -> str:
    """Where a stretch lies, in words: the times, and of several channels which."""
    span = signal.axis.span(one.start, one.stop)
    return f"{span} of {signal.named(one.channel)}" if signal.several else span


def drawn_bins(count: int, most: int) -> list[tuple[int, int]]:
    """Steps put together so that at most so many bars are drawn, as (start, stop).

    >>> drawn_bins(5, 3)
    [(0, 2), (2, 4), (4, 5)]
    """
    size = -(-count // most)
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def limits(parts: Sequence[Numbers]) -> tuple[float, float]:
    """The smallest and the largest of some finite numbers, with a little room; never equal."""
    low = min((float(part.min()) for part in parts if part.size), default=0.0)
    high = max((float(part.max()) for part in parts if part.size), default=1.0)
    room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return low - room, high + room
