"""Reads a series from a table in a file: a row for each time, a column for each channel, and one for the times."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...batch.inputs import source_of
from ...errors import FileError, InputError, OptionError
from ...render.series.time_axis import TimeAxis
from ...words import shortened, shown
from .series_input import Gaps, TimeSeries, axis_of, time_series

TIMES = frozenset({"time", "times", "date", "dates", "datetime", "timestamp", "month", "year", "day", "t", "ds", "index"})
"""Headings of a first column that has the times, whatever is in it."""

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
"""What stands in a cell that has no number."""

MAX_STEPS = 1_000_000
"""Rows that are read at most: a minute of sound has as many, and is no table."""

MAX_VALUES = 32_000_000
"""Numbers that are read at most; they take 256 MB."""

MAX_STAMP = 100
"""Characters of a time."""


def read_series(
    path: Path,
    *,
    time: str | None = None,
    channels: Sequence[str] | None = None,
    units: Sequence[str] | None = None,
    rate: float | None = None,
    gaps: Gaps = "refuse",
) -> TimeSeries:
    """The series in a table: .csv, .tsv, .jsonl or .parquet, the former also packed with gzip.

    Args:
        path: the file.
        time: the column with the times. By default the first one if it is called like that, or has dates.
        channels: the columns that are taken, in this order. By default all but the times.
        units: of the channels.
        rate: values in a second, where there is no column of times.
        gaps: what to do where values are missing.

    Raises:
        FileError: it cannot be read, or has no rows.
        InputError: there is no such column, or a cell is no number.
    """
    numbers, stamps = array("d"), list[Any]()
    names: list[str] = []
    time_column: str | None = None
    for i, (row, why, _) in enumerate(source_of(path).each()):
        if why or not hasattr(row, "keys"):
            raise FileError(f"{shown(str(path))}, row {i + 1}: {why or 'it has no columns'}; expected a number in each.")
        if not i:
            time_column = _time_column(row, time)
            if time_column is not None and rate is not None:
                raise OptionError(
                    f"got --rate, and the file has times in its column {shown(time_column)}; expected one of them."
                )
            names = _channels(row, channels, time_column, path)
        numbers.extend(_number(row.get(name), name, i) for name in names)
        if time_column is not None:
            stamps.append(_stamp(row.get(time_column), time_column, i))
        if i == MAX_STEPS or len(numbers) > MAX_VALUES:
            raise FileError(
                f"{shown(str(path))} has more than {MAX_STEPS:,} rows or {MAX_VALUES:,} values; expected at most so many. Give "
                "a part of it."
            )
    if not names:
        raise FileError(f"{shown(str(path))} has a heading and no rows; expected one for each time.")
    values = np.frombuffer(numbers).reshape(-1, len(names)).copy()
    times = None if time_column is None else _times(stamps, time_column)
    return time_series(values, channels=names, units=units, times=times, rate=rate, gaps=gaps)


def _channels(row: Any, channels: Sequence[str] | None, time: str | None, path: Path) -> list[str]:
    """The columns that are taken: those that were asked for, or all but the times."""
    columns = list(row)
    for name in channels or ():
        if name not in columns:
            raise InputError(f"got the channel {name!r}; expected one of {', '.join(map(shown, columns[:20]))}.")
    names = list(channels) if channels else [name for name in columns if name != time]
    if not names:
        raise InputError(f"{shown(str(path))} has no column beside {shown(str(time))}; expected at least one with numbers.")
    return names


def _time_column(row: Any, time: str | None) -> str | None:
    """The column with the times, if there is one, from the first row."""
    columns = list(row)
    if time is not None:
        if time not in columns:
            raise InputError(f"got --time {time!r}; expected one of {', '.join(map(shown, columns[:20]))}.")
        return time
    first = columns[0]
    cell = row.get(first)
    named = first.strip().lower() in TIMES or first == ""
    return first if len(columns) > 1 and (named or _is_date(cell)) else None


def _is_date(cell: Any) -> bool:
    if not isinstance(cell, str):
        return hasattr(cell, "isoformat")
    if not any(mark in cell for mark in "-:") or cell.strip().lower() in MISSING:
        return False
    try:
        float(cell)
    except ValueError:
        pass
    else:
        return False
    try:
        np.datetime64(_without_zone(cell))
    except ValueError:
        return False
    return True


def _without_zone(cell: str) -> str:
    """A date of ISO 8601 as numpy takes it: without Z, or a zone of zero."""
    text = cell.strip().replace(" ", "T", 1)
    for zone in ("Z", "+00:00", "+0000", "+00"):
        text = text.removesuffix(zone)
    return text


def _stamp(cell: Any, name: str, row: int) -> Any:
    """A time as the file has it, if it is short enough to be one."""
    if isinstance(cell, (str, bytes, list, dict)) and len(cell) > MAX_STAMP:
        raise InputError(
            f"got {type(cell).__name__} of length {len(cell):,} in the column {shown(name)}, row {row + 1}; expected a number "
            "or a date."
        )
    return cell


def _times(cells: Sequence[Any], name: str) -> TimeAxis | Any:
    """The times of a column: numbers, or dates."""
    try:
        return np.array([float(cell) for cell in cells])
    except OverflowError:
        raise InputError(f"got a number above 1e308 in the column {shown(name)}; expected a number or a date.") from None
    except (TypeError, ValueError):
        pass
    stamps = []
    for i, cell in enumerate(cells):
        try:
            text = cell.replace(tzinfo=None).isoformat() if hasattr(cell, "tzinfo") else str(cell)
            stamps.append(np.datetime64(_without_zone(text), "us"))
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"got {shortened(repr(cell), 60)} in the column {shown(name)}, row {i + 1}; expected a number or a date such "
                "as 2026-03-01 or 2026-03-01T12:30. Times of different zones have to be brought to one."
            ) from None
    return axis_of(np.array(stamps)).dates


def _number(cell: Any, name: str, row: int) -> float:
    """The number in a cell; NaN where there is none."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"got {shortened(repr(cell), 60)} in the column {shown(name)}, row {row + 1}; expected a number. Name the channels "
            "with channels=[...], and the column of the times with times='...'."
        ) from None
