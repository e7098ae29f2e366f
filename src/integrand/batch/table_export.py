"""A table of many inputs as CSV for spreadsheets: one line for each input, or for each feature of each input.

Written part by part, so that memory does not grow with the table. Texts that a spreadsheet would take for formulas are defused;
the file begins with the mark by which spreadsheets know UTF-8.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import OptionError
from ..files import text_file
from ..words import cell
from .rows import COLUMN_NAMES
from .table import PartsSnapshot

if TYPE_CHECKING:
    from .table import ExplainedTable

READ = (
    "key",
    "prediction",
    "probability",
    "target",
    "score",
    "baseline_score",
    "status",
    "error",
    "tol",
    "residual",
    "magnitude",
    "evaluations",
    "sentence",
    "notes",
    "failure",
    "features",
    "groups",
    "attribution_file",
)
"""The columns of a file with a line for each input; those that inputs brought along come after them."""

READ_LONG = ("key", "prediction", "probability", "target", "score", "baseline_score", "status")
"""The columns that are repeated on every line where each feature has one."""

PARTS = ("kind", "part", "place", "contribution", "contribution_error")
"""The columns of one feature or group."""

LONGEST_CELL = 32_000
"""The most characters of a cell: spreadsheets hold 32,767, and break a longer one over the next line."""

SHEET_LINES = 1_048_576
"""The most lines of a sheet, that of the headings included."""

ROWS = 1024
"""Rows that are turned into lines at a time."""

_NAMED = {"features": "attributions", "groups": "group_sums"}


def write_csv(table: ExplainedTable, path: Path, *, columns: Sequence[str] | None = None, long: bool = False) -> int:
    """Write a table as CSV.

    Lists stand in one cell: features and groups as ``where: +0.51; is: -0.02``, notes and numbers between semicolons.

    Args:
        table: the table.
        path: the file, which appears when it is complete.
        columns: which columns, in this order. Default: those that people read, and those that inputs brought along.
        long: one line for each feature and group of an input; an input without any has one line.

    Returns:
        How many lines were written, without that of the headings.
    """
    return PartsSnapshot.use(table.folder, lambda parts: _write_csv(parts, path, columns, long))


def _write_csv(snapshot: PartsSnapshot, path: Path, columns: Sequence[str] | None, long: bool) -> int:
    layout = snapshot.layout
    carried = list(layout.columns)
    known = [*COLUMN_NAMES, *carried]
    if columns is not None and (unknown := [name for name in columns if name not in known]):
        raise OptionError(f"got the columns {', '.join(map(repr, unknown))}; expected some of {', '.join(known)}.")
    wanted = list(columns) if columns is not None else [*(READ_LONG if long else READ), *carried]
    if not wanted:
        raise OptionError(f"got no columns; expected some of {', '.join(known)}.")
    parts = [_ours(name, wanted) for name in PARTS] if long else []
    needed = {*wanted, *(_NAMED[name] for name in wanted if name in _NAMED)}
    needed |= {"features", "attributions", "attribution_errors", "groups", "group_sums"} if long else set()
    count = 0
    with text_file(path) as file:
        file.write("\ufeff")
        writer = csv.writer(file)
        writer.writerow([cell(name) for name in (*wanted, *parts)])
        for values in _rows(snapshot, [name for name in known if name in needed]):
            own = [_cell(name, values) for name in wanted]
            for more in _parts(values, layout.shape) if long else [()]:
                writer.writerow([*own, *more])
                count += 1
    return count


def _ours(name: str, others: Sequence[str]) -> str:
    """What to call a column of ours where the table has one of that name."""
    while name in others:
        name = f"integrand_{name}"
    return name


def _rows(snapshot: PartsSnapshot, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for path in snapshot.parts:
        read = snapshot.read(path, names)
        for start in range(0, read.num_rows, ROWS):
            yield from read.slice(start, ROWS).to_pylist()


def _cell(name: str, values: Mapping[str, Any]) -> Any:
    """A value of a row as a cell."""
    value = values.get(name)
    if value is None:
        return ""
    if name in _NAMED:
        numbers = values.get(_NAMED[name])
        if numbers is not None and len(numbers) == len(value):
            return cell(_joined([f"{text}: {_signed(one)}" for text, one in zip(value, numbers, strict=True)]))
    if isinstance(value, list):
        return cell(_joined([_plain(one) for one in value]))
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return _number(value) if isinstance(value, (int, float)) else cell(_cut(str(value)))


def _joined(texts: Sequence[str]) -> str:
    """Texts in one cell, as many as it holds."""
    size, kept = 0, len(texts)
    for i, text in enumerate(texts):
        size += len(text) + 2
        if size > LONGEST_CELL:
            kept = i
            break
    more = [f"… and {len(texts) - kept} more"] if kept < len(texts) else []
    return "; ".join([*texts[:kept], *more])


def _cut(text: str) -> str:
    text = text.replace("\x00", "")
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"


def _plain(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value).replace("\x00", "")


def _signed(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:+.4g}"


def _number(value: float | int | None) -> Any:
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


def _parts(values: Mapping[str, Any], shape: tuple[int, ...] | None) -> Iterator[tuple[Any, ...]]:
    """What the features and groups of one input have on their lines; one line with nothing if there are none."""
    found = False
    numbers = values.get("attributions")
    if numbers is not None:
        names, errors = values.get("features"), values.get("attribution_errors")
        names = names if names is not None and len(names) == len(numbers) else _places(len(numbers), shape)
        errors = errors if errors is not None and len(errors) == len(numbers) else [None] * len(numbers)
        for i, (name, number, error) in enumerate(zip(names, numbers, errors, strict=True), 1):
            found = True
            yield "feature", cell(_cut(str(name))), i, _number(number), _number(error)
    names, numbers = values.get("groups"), values.get("group_sums")
    if names is not None and numbers is not None and len(names) == len(numbers):
        for i, (name, number) in enumerate(zip(names, numbers, strict=True), 1):
            found = True
            yield "group", cell(_cut(str(name))), i, _number(number), ""
    if not found:
        yield "", "", "", "", ""


def _places(count: int, shape: tuple[int, ...] | None) -> list[str]:
    """Names for features that have none: their places, counted from 0 as in Python."""
    sizes = shape if shape is not None and math.prod(shape) == count else (count,)
    return [f"[{', '.join(map(str, place))}]" for place in np.ndindex(*sizes)]
