"""Series from what people have (tensors, arrays, pandas, polars): values, names, units and a time axis, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import InputError, OptionError
from ...render.series.time_axis import TimeAxis
from ...words import first_line, short_repr, shown

Layout = Literal["time-channels", "channels-time", "time"]
"""How a model takes a series, after the batch dimension: (time, channels), (channels, time), or (time,) for one channel."""

LAYOUTS: tuple[Layout, ...] = ("time-channels", "channels-time", "time")

Gaps = Literal["refuse", "interpolate"]
"""What is done with values that are missing (NaN)."""


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """A series of several channels with its time axis.

    Attributes:
        values: (time, channels), finite.
        axis: the times.
        names: of the channels.
        units: of the channels; empty texts where they have none.
        known: whether each value was given, (time, channels); None where all were.
        flat: whether it came as one row of numbers, without channels.
        dtype: of the tensor that it came as; None for everything else.
        device: of that tensor.
    """

    values: NDArray[np.float64]
    axis: TimeAxis
    names: tuple[str, ...]
    units: tuple[str, ...]
    known: NDArray[np.bool_] | None = None
    flat: bool = False
    dtype: torch.dtype | None = None
    device: torch.device | None = None

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.values)

    @property
    def gaps(self) -> int:
        """How many values were filled in."""
        return 0 if self.known is None else int((~self.known).sum())

    def tensor(self, layout: Layout, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The series as a model takes it, without the batch dimension."""
        return laid_out(torch.from_numpy(self.values), layout).to(device, dtype)

    def cut(self, start: int, stop: int) -> TimeSeries:
        """The steps from one place to another."""
        known = None if self.known is None else self.known[start:stop]
        return replace(self, values=self.values[start:stop], axis=self.axis.cut(start, stop), known=known)

    def chosen(self, names: Sequence[str]) -> TimeSeries:
        """Some of the channels, in this order.

        Raises:
            InputError: there is no such channel.
        """
        columns = [self.channel(name) for name in names]
        known = None if self.known is None else self.known[:, columns]
        parts = (tuple(part[i] for i in columns) for part in (self.names, self.units))
        kept, units = parts
        return replace(self, values=self.values[:, columns], names=kept, units=units, known=known)

    def channel(self, name: str | int) -> int:
        """The number of a channel, given its name or number.

        Raises:
            InputError: there is no such channel.
        """
        return find_channel(name, self.names)


def find_channel(name: str | int, names: Sequence[str]) -> int:
    """The number of the channel of a name, or of a number; an InputError names those that there are."""
    if isinstance(name, str) and name in names:
        return list(names).index(name)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(names):
        return name
    listed = ", ".join(shown(one) for one in names[:12]) + (", ..." if len(names) > 12 else "")
    raise InputError(f"got the channel {name!r}; expected one of {listed}, or a number from 0 to {len(names) - 1}.")


def laid_out(values: Tensor, layout: Layout) -> Tensor:
    """(time, channels), with any dimensions before, in a layout."""
    return values.mT if layout == "channels-time" else values[..., 0] if layout == "time" else values


def taken_back(values: Tensor, layout: Layout) -> Tensor:
    """From a layout, with any dimensions before, back to (time, channels)."""
    return values.mT if layout == "channels-time" else values[..., None] if layout == "time" else values


def layout_of(layout: str | None, series: TimeSeries) -> Layout:
    """The layout in which a model takes a series: what was asked for, or what the shape of the series suggests.

    Raises:
        OptionError: it is none of them, or does not go with several channels.
    """
    if layout is None:
        return "time" if series.flat else "time-channels"
    if layout not in LAYOUTS:
        raise OptionError(f"got layout={layout!r}; expected one of {', '.join(map(repr, LAYOUTS))}.")
    if layout == "time" and len(series.names) > 1:
        raise OptionError(
            f"got layout='time' for a series of {len(series.names)} channels; expected 'time-channels' or 'channels-time', or "
            "one channel."
        )
    return layout


def time_series(
    series: Any,
    *,
    layout: str | None = None,
    channels: Sequence[str] | None = None,
    units: Sequence[str] | str | None = None,
    times: Any = None,
    rate: float | None = None,
    gaps: Gaps = "refuse",
) -> TimeSeries:
    """A series from whatever it comes as.

    Args:
        series: a tensor or an array, (time,) or as ``layout`` says; a pandas Series or DataFrame, or a polars one, with a row
            for each time; or a TimeSeries.
        layout: for tensors and arrays: ``channels-time`` if channels come first. Frames always have a row for each time.
        channels: names for them; of a frame, which columns, in which order.
        units: of the channels, or one for all.
        times: a number or a date for each value; of a frame, the name of the column that has them. By default the index of a
            pandas object, or the first column of dates of a polars one.
        rate: values in a second, instead of times.
        gaps: what to do where values are missing: ``refuse``, or ``interpolate`` between the neighbours.

    Raises:
        InputError: it is no such series, or values are missing.
    """
    if isinstance(series, TimeSeries):
        return series if channels is None else series.chosen(channels)
    if times is not None and rate is not None:
        raise OptionError("got both times= and rate=; expected one of them.")
    if gaps not in ("refuse", "interpolate"):
        raise OptionError(f"got gaps={gaps!r}; expected 'refuse' or 'interpolate'.")
    values, names, found, flat = _framed(series, times, channels)
    if names is None:
        values, flat = _array(series, layout)
        names = tuple(channels) if channels is not None else ()
    dtype = series.dtype if isinstance(series, Tensor) and series.is_floating_point() else None
    device = series.device if isinstance(series, Tensor) else None
    if not values.size:
        raise InputError(f"got a series of shape {values.shape}; expected at least one time and one channel.")
    many = values.shape[1]
    names = names or (("signal",) if many == 1 else tuple(f"channel {i}" for i in range(many)))
    if len(names) != many:
        raise InputError(
            f"got {len(names)} names for {many} channels and {len(values)} times; expected one for each channel. "
            "If times and channels are the other way round, pass layout='channels-time' or transpose the series."
        )
    if found is not None and rate is not None:
        raise OptionError("got rate= for a series that has its own times; expected one of them. Leave rate= out.")
    axis = found if found is not None else _axis(times, rate, len(values))
    if len(axis) != len(values):
        raise InputError(f"got {len(axis)} times for {len(values)} values; expected one for each.")
    filled, known = _filled(values, names, axis, gaps)
    return TimeSeries(filled, axis, names, _units(units, many), known, flat, dtype, device)


def _units(units: Sequence[str] | str | None, many: int) -> tuple[str, ...]:
    given = ("",) * many if units is None else (units,) * many if isinstance(units, str) else tuple(map(str, units))
    if len(given) != many:
        raise InputError(f"got {len(given)} units for {many} channels; expected one for each, or one text for all.")
    return given


def _array(series: Any, layout: str | None) -> tuple[NDArray[np.float64], bool]:
    """Numbers as (time, channels), and whether they came without channels."""
    try:
        given = series.detach().cpu().double().numpy() if isinstance(series, Tensor) else np.asarray(series, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"got a {type(series).__name__} as a series ({first_line(error)}); expected a tensor or an array of (time, "
            "channels), or a pandas or polars frame with a row for each time."
        ) from None
    if given.ndim == 1:
        return given[:, None], True
    if given.ndim != 2:
        raise InputError(
            f"got a series of shape {given.shape}; expected (time,) or (time, channels), or a list of such series to explain "
            "several."
        )
    return (given.T if layout == "channels-time" else given), False


Framed = tuple[NDArray[np.float64], tuple[str, ...] | None, TimeAxis | None, bool]
"""What is known of a frame: values, names, times, and whether it came without channels."""


def _framed(series: Any, times: Any, channels: Sequence[str] | None) -> Framed:
    """Values, names and times of a frame of pandas or polars; no names if it is none."""
    home = type(series).__module__.partition(".")[0]
    if home == "pandas":
        return _pandas(series, times, channels)
    if home == "polars":
        return _polars(series, times, channels)
    return np.empty((0, 0)), None, None, False


def _pandas(series: Any, times: Any, channels: Sequence[str] | None) -> Framed:
    flat = series.ndim == 1
    axis = None
    if flat:
        series = series.to_frame("signal" if series.name is None else str(series.name))
        channels = None if channels is None else list(channels)
        if channels is not None and len(channels) == 1:
            series.columns = channels
    series = series.rename(columns=str)
    if isinstance(times, str):
        axis = _dated(series[_column(times, series.columns)])
        series = series.drop(columns=times)
    elif times is None:
        index = series.index.to_timestamp() if type(series.index).__name__ == "PeriodIndex" else series.index
        kind = type(index).__name__
        dated = [name for name in series.columns if series[name].dtype.kind == "M"]
        if kind == "DatetimeIndex":
            axis = _dated(index)
        elif kind == "TimedeltaIndex":
            axis = TimeAxis.numbers(index.total_seconds().to_numpy(), "s")
        elif kind != "RangeIndex" and index.dtype.kind in "iuf":
            axis = TimeAxis.numbers(index.to_numpy(), str(index.name or ""))
        elif dated:  # the times are a column among others
            axis = _dated(series[dated[0]])
            series = series.drop(columns=dated[0])
    series = series if channels is None else series[[_column(name, series.columns) for name in channels]]
    return _table(series, [str(kind) for kind in series.dtypes], axis, flat)


def _dated(times: Any) -> TimeAxis:
    """The axis of an index or a column of pandas; dates of a time zone as its clocks show them.

    Raises:
        InputError: they do not increase, as where clocks are put back.
    """
    zone = getattr(times.dtype, "tz", None)
    if zone is None:
        return axis_of(times.to_numpy())
    local = (times.dt if hasattr(times, "dt") else times).tz_localize(None)
    return _by_the_clock(local.to_numpy(), times.is_monotonic_increasing and times.is_unique, zone)


def _by_the_clock(local: Any, increasing: bool, zone: Any) -> TimeAxis:
    """The axis of dates as the clocks of a zone show them, (time,), given whether the moments themselves increase."""
    try:
        return TimeAxis.dates_of(local)
    except InputError:
        if not increasing:
            raise
        raise InputError(
            f"got times of the zone {zone}, among which clocks are put back, so that an hour comes twice; expected each later "
            "than the one before. Convert them to UTC: tz_convert('UTC') of pandas, dt.convert_time_zone('UTC') of polars."
        ) from None


def _polars(series: Any, times: Any, channels: Sequence[str] | None) -> Framed:
    flat = not hasattr(series, "columns")
    series = series.alias(series.name or "signal").to_frame() if flat else series
    dated = [name for name, kind in zip(series.columns, series.dtypes, strict=True) if kind.is_temporal()]
    column = _column(times, series.columns) if isinstance(times, str) else dated[0] if dated and times is None else None
    axis = None
    if column is not None:
        given = series[column]
        zone = getattr(given.dtype, "time_zone", None)
        if zone is None:
            axis = axis_of(given.to_numpy())
        else:
            increasing = given.is_sorted() and given.n_unique() == len(given)
            axis = _by_the_clock(given.dt.replace_time_zone(None).to_numpy(), increasing, zone)
        series = series.drop(column)
    series = series if channels is None else series.select([_column(name, series.columns) for name in channels])
    return _table(series, [str(kind) for kind in series.dtypes], axis, flat)


def _table(frame: Any, kinds: Sequence[str], axis: TimeAxis | None, flat: bool) -> Framed:
    names = tuple(map(str, frame.columns))
    try:
        values = np.asarray(frame.to_numpy(), np.float64)
    except (TypeError, ValueError):
        first = next((f"{shown(name)} ({kind})" for name, kind in zip(names, kinds, strict=True) if not _numeric(kind)), "one")
        raise InputError(
            f"got a frame with columns that are no numbers, such as {first}; expected numbers. Name the channels with "
            "channels=[...], and the column of the times with times='...'."
        ) from None
    return values, names, axis, flat


def _numeric(kind: str) -> bool:
    return any(part in kind.lower() for part in ("int", "float", "bool"))


def _column(name: str, columns: Any) -> str:
    if name in list(columns):
        return name
    listed = ", ".join(shown(str(one)) for one in list(columns)[:12])
    raise InputError(f"got the column {name!r}; expected one of {listed}.")


def axis_of(times: Any) -> TimeAxis:
    """The time axis of numbers or dates, (time,), in any form.

    Raises:
        InputError: they are neither, or do not increase.
    """
    found = np.asarray(times.detach().cpu() if isinstance(times, Tensor) else times)
    if found.dtype.kind in "iuf":
        return TimeAxis.numbers(found)
    if found.dtype.kind == "m":
        return TimeAxis.numbers(found / np.timedelta64(1, "s"), "s")
    try:
        return TimeAxis.dates_of(found)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"got times that are neither numbers nor dates ({first_line(error)}); expected one number or date for each value, "
            "such as 2026-03-01 or 2026-03-01T12:30."
        ) from None


def _axis(times: Any, rate: float | None, count: int) -> TimeAxis:
    if rate is not None:
        if not (np.isfinite(rate) and rate > 0):
            raise OptionError(f"got rate={rate!r}; expected a positive number of values in a second.")
        return TimeAxis.numbers(np.arange(count) / rate, "s")
    return TimeAxis.steps(count) if times is None else axis_of(times)


def _filled(
    values: NDArray[np.float64], names: Sequence[str], axis: TimeAxis, gaps: Gaps
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """The values without gaps, and where they were; refuses what cannot be filled."""
    known = np.isfinite(values)
    if known.all():
        return np.array(values, order="C"), None  # a copy, since a frame's own array may not be written to, which torch minds
    missing = (~known).sum(0)
    worst = int(missing.argmax())
    where = axis.span(first := int(np.flatnonzero(~known[:, worst])[0]), first + 1)
    said = f"{shown(names[worst])} has no number at {missing[worst]} of {len(values)} times (the first: {where})"
    if np.isinf(values).any():
        raise InputError(f"got a series with infinite values: {said}; expected finite numbers.")
    if gaps == "refuse":
        raise InputError(
            f"got a series with gaps: {said}; expected a number at each. Fill them as the model's training did, or pass "
            "gaps='interpolate', which draws straight lines between neighbours and goes on with the nearest value at an end."
        )
    if (missing == len(values)).any():
        raise InputError(f"got a series with an empty channel: {said}; expected some numbers. Leave the channel out.")
    filled = values.copy()
    for c in np.flatnonzero(missing):
        there = known[:, c]
        filled[~there, c] = np.interp(axis.at[~there], axis.at[there], values[there, c])
    return filled, known
