"""The time axis of a series: counted steps, numbers with a unit, or dates; how it is written, marked and gone on with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...words import short_repr

Numbers = NDArray[np.float64]

UNITS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("s", (1, 5, 15, 30)),
    ("m", (1, 5, 15, 30)),
    ("h", (1, 3, 6, 12)),
    ("D", (1, 2, 7, 14)),
    ("M", (1, 3, 6)),
    ("Y", (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)
"""The steps between marks on an axis of dates, from short to long, by numpy's names of units."""

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """When each value of a series was taken; made by :meth:`steps`, :meth:`numbers` or :meth:`dates_of`.

    Attributes:
        at: places on the axis, (time,), increasing; seconds after the first where there are dates.
        unit: of the places, such as ``s``; ``step`` where values are only counted.
        dates: the dates, (time,) in microseconds; None where the places are numbers.
    """

    at: Numbers
    unit: str = "step"
    dates: NDArray[np.datetime64] | None = None

    __repr__ = short_repr

    @staticmethod
    def steps(count: int) -> TimeAxis:
        """Values that are only counted: 0, 1, 2, ..."""
        return TimeAxis(np.arange(count, dtype=np.float64))

    @staticmethod
    def numbers(at: Any, unit: str = "") -> TimeAxis:
        """Places given as numbers, (time,).

        Raises:
            InputError: they do not increase, or are no numbers.
        """
        places = np.array(at, np.float64)
        if places.ndim != 1 or not np.isfinite(places).all():
            raise InputError("got times that are not all finite numbers in one row; expected one number for each value.")
        _check_order(places, places)
        return TimeAxis(places, unit)

    @staticmethod
    def dates_of(dates: Any) -> TimeAxis:
        """Dates, (time,), in anything that numpy takes for dates.

        Raises:
            InputError: some are missing, or they do not increase.
        """
        stamps = np.asarray(dates, "datetime64[us]")
        if stamps.ndim != 1 or np.isnat(stamps).any():
            raise InputError("got times of which some are no dates; expected one date for each value. Leave those rows out.")
        places = (stamps - stamps[:1]).astype(np.int64) / 1e6
        _check_order(places, stamps)
        return TimeAxis(places, "s", stamps)

    def __len__(self) -> int:
        return len(self.at)

    @property
    def even(self) -> bool:
        """Whether all steps are equal; months and years count as equal."""
        gaps = np.diff(self.at)
        return bool(len(gaps) < 2 or np.ptp(gaps) <= 1e-6 * gaps.max() or self.months > 0)

    @property
    def months(self) -> int:
        """The months from one date to the next, where that is the same number throughout, on the same day; 0 otherwise."""
        return self._monthly[0]

    @property
    def _monthly(self) -> tuple[int, np.timedelta64]:
        """The months between dates, 0 if they differ, and what is added first: a day, where dates are the last of months."""
        for ahead in (np.timedelta64(0, "us"), np.timedelta64(86_400_000_000, "us")):
            if self.dates is None or len(self) < 2:
                continue
            moved = self.dates + ahead
            whole = moved.astype("datetime64[M]")
            gaps, inside = np.diff(whole.astype(np.int64)), moved - whole
            if gaps[0] > 0 and (gaps == gaps[0]).all() and (inside == inside[0]).all():
                return int(gaps[0]), ahead
        return 0, np.timedelta64(0, "us")

    @property
    def edges(self) -> Numbers:
        """Where the share of the axis of each value begins and ends, (time + 1,): half-way between neighbours."""
        if len(self) == 1:
            return np.array([self.at[0] - 0.5, self.at[0] + 0.5])
        middle = (self.at[1:] + self.at[:-1]) / 2
        found: Numbers = np.r_[1.5 * self.at[0] - self.at[1] / 2, middle, 1.5 * self.at[-1] - self.at[-2] / 2]
        return found

    def label(self, i: int) -> str:
        """Time i in words, without the unit.

        >>> TimeAxis.numbers([0.0, 0.1], "s").label(1), TimeAxis.dates_of(["1960-01", "1960-02"]).label(0)
        ('0.1', 'Jan 1960')
        """
        if self.dates is None:
            return _plain(self.at[i], self._decimals)
        return _date(self.dates[i], self._shown)

    def span(self, start: int, stop: int) -> str:
        """The times from one place to another (the latter not included) in words, with the unit.

        >>> TimeAxis.numbers([0.0, 0.1, 0.2], "s").span(1, 3), TimeAxis.steps(9).span(2, 3), TimeAxis.steps(9).span(2, 5)
        ('0.1–0.2 s', 'step 2', 'steps 2–4')
        """
        ends = [self.label(start), *([self.label(stop - 1)] if stop - start > 1 else [])]
        # With dates a dash has spaces, for there are dashes in them.
        text = (" – " if self.dates is not None else "–").join(ends)
        if self.dates is not None or not self.unit:
            return text
        return f"{self.unit}{'s' * (len(ends) > 1)} {text}" if self.unit == "step" else f"{text} {self.unit}"

    def cut(self, start: int, stop: int) -> TimeAxis:
        """The axis of some of the values."""
        if self.dates is not None:
            return TimeAxis.dates_of(self.dates[start:stop])
        return replace(self, at=self.at[start:stop])

    def extended(self, count: int) -> TimeAxis:
        """The axis with further times: as many months on where it has months, else by the usual (median) step."""
        if self.dates is not None:
            step: Any = np.median(np.diff(self.dates).astype(np.int64)) if len(self) > 1 else 86_400_000_000
            ahead = self.dates[-1] + np.arange(1, count + 1) * np.timedelta64(int(step), "us")
            months, shift = self._monthly
            if months:
                last = (self.dates[-1] + shift).astype("datetime64[M]")
                inside = self.dates[-1] + shift - last
                ahead = (last + months * np.arange(1, count + 1)).astype("datetime64[us]") + inside - shift
            return TimeAxis.dates_of(np.r_[self.dates, ahead])
        gap = float(np.median(np.diff(self.at))) if len(self) > 1 else 1.0
        return replace(self, at=np.r_[self.at, self.at[-1] + gap * np.arange(1, count + 1)])

    def ticks(self, most: int = 8) -> list[tuple[float, str]]:
        """Round times inside the axis to be marked, with their labels, at most so many."""
        low, high = float(self.edges[0]), float(self.edges[-1])
        if self.dates is not None:
            return self._date_ticks(low, high, most)
        return number_ticks(low, high, most, whole=self.unit == "step")

    def _date_ticks(self, low: float, high: float, most: int) -> list[tuple[float, str]]:
        assert self.dates is not None
        first = self.dates[0]
        ends = [first + np.timedelta64(int(place * 1e6), "us") for place in (low, high)]
        for unit, steps in UNITS:
            for step in steps:
                start, end = (int(one.astype(f"datetime64[{unit}]").astype(np.int64)) for one in ends)
                if (end - start) // step > most:
                    continue
                # Years are counted from 1970, which is no multiple of 20.
                shift = 1970 if unit == "Y" else 0
                numbers = range(-(-(start + shift) // step) * step - shift, end + 1, step)
                stamps = list(np.array(numbers, f"datetime64[{unit}]").astype("datetime64[us]"))
                places = [float((stamp - first).astype(np.int64)) / 1e6 for stamp in stamps]
                kept = [(p, _date(stamp, unit)) for p, stamp in zip(places, stamps, strict=True) if low <= p <= high]
                if len(kept) > 1 or unit == "Y":
                    return kept
        return [(0.0, self.label(0))]

    @property
    def _shown(self) -> str:
        """The unit in which dates are written: the coarsest that loses nothing."""
        assert self.dates is not None
        for unit in ("Y", "M", "D", "m", "s"):
            if (self.dates == self.dates.astype(f"datetime64[{unit}]")).all():
                return unit
        return "us"

    @property
    def _decimals(self) -> int:
        """The digits after the point that tell neighbouring times apart."""
        gaps = np.diff(self.at)
        least = float(gaps.min()) if len(gaps) else 1.0
        if least >= 1 and (self.at == np.round(self.at)).all():
            return 0
        return max(1, min(9, -math.floor(math.log10(least) + 1e-9)))


def number_ticks(low: float, high: float, most: int = 8, *, whole: bool = False) -> list[tuple[float, str]]:
    """Round numbers between two ends, with their texts, at most so many.

    >>> number_ticks(0.0, 5.0, 6)
    [(0.0, '0'), (1.0, '1'), (2.0, '2'), (3.0, '3'), (4.0, '4'), (5.0, '5')]
    """
    width = high - low
    if not (math.isfinite(width) and width > 0):
        return [(low, f"{low:g}")] if math.isfinite(low) else []
    power = 10.0 ** math.floor(math.log10(width / most))
    steps = (power * factor for factor in (1, 2, 5, 10, 20, 50, 100))
    step = next(one for one in steps if width / one <= most and (not whole or one >= 1))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [(k * step, _plain(k * step, decimals)) for k in range(first, last + 1)]


def _plain(value: float, decimals: int) -> str:
    """A number without powers of ten where it is of a usual size, and with a true minus."""
    text = f"{value:.{decimals}f}" if abs(value) < 1e7 else f"{value:.6g}"
    return text.replace("-", "−")


def _date(stamp: np.datetime64, unit: str) -> str:
    """A date to a unit, for people; numbered days in the order of ISO 8601, so that nobody takes days for months."""
    day = str(stamp.astype("datetime64[D]"))
    if unit == "Y":
        return day[:-6]
    if unit == "M":
        return f"{MONTHS[int(day[-5:-3]) - 1]} {day[:-6]}"
    if unit == "D":
        return day
    clock = str(stamp.astype("datetime64[us]")).partition("T")[2]
    kept = {"h": clock[:5], "m": clock[:5], "s": clock[:8]}.get(unit, clock.rstrip("0"))
    return f"{day} {kept}"


def _check_order(places: Numbers, shown: Any) -> None:
    """Refuse times that do not increase; says which."""
    wrong = np.flatnonzero(np.diff(places) <= 0)
    if not len(wrong):
        return
    i = int(wrong[0])
    same = places[i + 1] == places[i]
    kind = "comes twice" if same else f"comes after {shown[i]}"
    raise InputError(
        f"got times that do not increase: {shown[i + 1]} {kind} (row {i + 1}); expected each later than the one before. Sort "
        "the rows by time (in pandas, sort_index()) and keep one of each (drop_duplicates())."
    )
