"""Tables as they come (pandas, polars and whatever else speaks Arrow or the interchange protocol, arrays) as named columns."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ...batch.rows import arrow
from ...bounded_reading import MAX_CELLS
from ...errors import FileError, InputError, MissingExtraError, OptionError, quiet
from ...files import reading
from ...words import byte_size, first_line, shortened, shown

LARGEST_CSV = 256 << 20
"""The most bytes of a CSV file that is read as a whole; ``explain_many`` reads larger ones piece by piece."""

MAX_TABLE = 1 << 26
"""Cells of a CSV file that is read as a whole: a short row is filled up to the length of the heading."""

NAMED = 6
"""The most names of columns or rows that an error lists."""

Cells = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table.

    Attributes:
        names: of the columns, in their order.
        columns: the cells of each column, (rows,) each, of whatever type they had.
        labels: what each row is called: pandas' index, or the position from 0 on.
    """

    names: tuple[str, ...]
    columns: Mapping[str, Cells]
    labels: tuple[Hashable, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{len(self)} rows of {listed(self.names)}"

    def column(self, name: str) -> Cells:
        """The cells of a column, (rows,).

        Raises:
            InputError: there is no such column.
        """
        if name not in self.columns:
            raise InputError(f"the table has no column {shown(name)!r}; expected one, and it has {listed(self.names)}.")
        return self.columns[name]

    def take(self, places: Sequence[int]) -> TableRows:
        """Some of the rows, by their positions."""
        chosen = np.asarray(places, dtype=np.int64)
        columns = {name: cells[chosen] for name, cells in self.columns.items()}
        return TableRows(self.names, columns, tuple(self.labels[i] for i in chosen.tolist()))

    def places(self, labels: Any) -> list[int]:
        """The positions of rows that are named by their labels: one label, several (a list, an index), or a mask of all rows.

        Raises:
            InputError: a row of that label is not there, or there are several.
        """
        where: dict[Hashable, list[int]] = {}
        for i, label in enumerate(self.labels):
            where.setdefault(label, []).append(i)
        # The label of an index of several levels is a tuple itself.
        one = isinstance(labels, str) or not isinstance(labels, Iterable) or (isinstance(labels, tuple) and labels in where)
        wanted = [labels] if one else list(labels)
        if not one and len(wanted) == len(self) and _flags(wanted) and not _flags(self.labels):
            found = [i for i, kept in enumerate(wanted) if kept]
            if found:
                return found
            wanted = []
        if not wanted:
            raise InputError("got no rows; expected the label of at least one.")
        found = []
        for label in wanted:
            places = where.get(_plain(label), []) if isinstance(label, Hashable) else []
            if not places and isinstance(label, str) and _dates(self.labels):
                places = where.get(_date(label), [])
            if len(places) != 1:
                raise InputError(self._no_row(label, len(places)))
            found += places
        return found

    def _no_row(self, label: Any, count: int) -> str:
        """What to say of a label that no row has, or several have."""
        said = shortened(shown(repr(_plain(label))), 60)
        if count:
            own = "Give rows labels of their own: frame.reset_index(drop=True)."
            return f"{count} rows have the label {said}; expected one. {own}"
        if isinstance(label, slice):
            return f"got the rows {said}; expected labels. A slice of them is frame.loc[a:b].index."
        some = [str(label) if _dates([label]) else repr(label) for label in self.labels]
        if self.labels == tuple(range(len(self.labels))):
            return f"there is no row {said}; expected a number from 0 to {len(self) - 1}."
        return (
            f"there is no row with the label {said}; expected one of the table's index: {listed(some, quoted=False)}. By its "
            "position, a row is frame.index[position]."
        )


def rows_of_table(table: Any, *, what: str = "the table") -> TableRows:
    """A table of pandas, of polars, Arrow and the like, or an array of two dimensions, as rows.

    Args:
        table: what was given; columns of an array are called ``column 0`` and so on.
        what: what it is called in errors.
    """
    if isinstance(table, TableRows):
        return table
    if isinstance(table, (Tensor, np.ndarray)):
        return _array_rows(table, what)
    if not (hasattr(table, "iloc") and hasattr(table, "columns")):
        table = _as_pandas(table, what)
    names = [str(name) for name in table.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{what} has several columns called {shown(twice[0])!r}; expected a name for each.")
    if not len(table) or not names:
        raise InputError(f"{what} has {len(table)} rows and {len(names)} columns; expected at least one of each.")
    columns = {name: _cells(table.iloc[:, i]) for i, name in enumerate(names)}
    return TableRows(tuple(names), columns, tuple(_plain(label) for label in table.index.tolist()))


def row_of(given: Any, *, what: str) -> TableRows:
    """One row, given as a mapping or a pandas Series from names to cells, as a table of that row."""
    pairs = dict(given.items()) if hasattr(given, "items") else {}
    if not pairs:
        raise InputError(f"{what} is a {type(given).__name__}; expected a row with names: a dict or a Series.")
    columns = {}
    for name, value in pairs.items():
        cells = np.empty(1, dtype=object)
        cells[0] = value
        columns[str(name)] = cells
    label = getattr(given, "name", None)
    return TableRows(tuple(columns), columns, (_plain(label) if isinstance(label, Hashable) else 0,))


def rows_of_records(records: Sequence[Mapping[str, Any]]) -> TableRows:
    """Rows that are dicts, as ``explain_many`` hands them over; every row has to have the columns of the first."""
    names = tuple(str(name) for name in records[0])
    columns = {}
    for name in names:
        cells = np.empty(len(records), dtype=object)
        for i, record in enumerate(records):
            if name not in record:
                raise InputError(f"a row has no column {shown(name)!r}; expected {listed(names)}.")
            cells[i] = record[name]
        columns[name] = cells
    return TableRows(names, columns, tuple(range(len(records))))


def read_table(path: Path, *, index: str | None = None) -> TableRows:
    """Rows of a CSV file, of which the first line names the columns.

    Args:
        path: the file; ``.tsv`` is separated by tabs.
        index: the column that names the rows; None to count them from 0 on.

    Raises:
        FileError: there is no such file, or it is no table.
    """
    pandas = frames()
    with reading(path, what="a table (.csv)") as file:
        data = file.read(LARGEST_CSV + 1)
    if len(data) > LARGEST_CSV:
        raise FileError(
            f"{shown(str(path))} has more than {byte_size(LARGEST_CSV)}; expected a table that fits into memory. Explain it "
            "piece by piece with integrand.explain_many in Python."
        )
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    columns = data.partition(b"\n")[0].count(separator.encode()) + 1
    lines = data.count(b"\n") + 1
    if columns > MAX_CELLS or columns * lines > MAX_TABLE:
        raise FileError(
            f"{shown(str(path))} has {columns:,} columns and {lines:,} lines; expected at most {MAX_CELLS:,} columns "
            f"and {MAX_TABLE:,} cells. Explain it piece by piece with integrand.explain_many in Python."
        )
    import io

    try:
        frame = pandas.read_csv(io.BytesIO(data), sep=separator, encoding="utf-8-sig")
    except (ValueError, pandas.errors.ParserError, UnicodeDecodeError) as error:
        raise FileError(
            f"{shown(str(path))} cannot be read as a table ({first_line(error)}); expected CSV in UTF-8 with the names of the "
            "columns in its first line."
        ) from error
    if index is not None:
        if index not in frame.columns:
            raise OptionError(
                f"{shown(str(path))} has no column {shown(index)!r} to name rows by; it has {listed(map(str, frame.columns))}."
            )
        frame = frame.set_index(index)
    return rows_of_table(frame, what=shown(str(path)))


def frames() -> Any:
    """The package pandas.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "tables", "reading tables") from None
    return pandas


def listed(names: Iterable[str], *, quoted: bool = True) -> str:
    """Some names in a sentence, the first of them if there are many.

    >>> listed(["age", "sex"]), listed(map(str, range(9)), quoted=False)
    ("'age', 'sex'", '0, 1, 2, 3, 4, 5 and 3 more')
    """
    texts = [f"'{shown(name)[:60]}'" if quoted else shown(name)[:60] for name in names]
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return ", ".join(texts[:NAMED]) + more or "none"


def _as_pandas(table: Any, what: str) -> Any:
    """A table of another package as one of pandas: by way of Arrow's streams, or of the older interchange protocol."""
    kind = f"{type(table).__module__.partition('.')[0]}.{type(table).__name__}".removeprefix("builtins.")
    if type(table).__name__ == "Series":
        raise InputError(
            f"{what} is a {kind}, one column or one row; expected a table. frame[['name']] is a table of one column, and "
            "frame.loc[[label]] one of one row."
        )
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__dataframe__"):
        raise InputError(
            f"{what} is a {kind}; expected a table with named columns: a DataFrame of pandas or polars, or anything with "
            "__arrow_c_stream__ or __dataframe__. pandas.DataFrame(...) makes one of a list or a dict."
        )
    pandas = frames()
    try:
        if hasattr(table, "__arrow_c_stream__"):
            return arrow().table(table).to_pandas()
        with quiet():  # the protocol is on its way out, and there is no other to such a table
            return pandas.api.interchange.from_dataframe(table)
    except (ValueError, RuntimeError, NotImplementedError, TypeError) as error:
        raise InputError(
            f"{what}, a {kind}, cannot be read as columns of numbers or texts ({first_line(error)}); convert it first: "
            "table.to_pandas()."
        ) from error


def _cells(series: Any) -> Cells:
    """The cells of a column of pandas: numbers as numbers, everything else as objects."""
    kind = getattr(series.dtype, "kind", "O")
    if isinstance(series.dtype, np.dtype) and kind in "iufb":
        found: Cells = series.to_numpy()
        return found
    whole: Cells = np.asarray(series.to_numpy(dtype=object))
    return whole


def _array_rows(table: Tensor | np.ndarray[Any, Any], what: str) -> TableRows:
    array = table.detach().cpu().numpy() if isinstance(table, Tensor) else table
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(
            f"{what} is an array of shape {tuple(array.shape)}; expected (rows, columns), with at least one of each."
        )
    names = tuple(f"column {i}" for i in range(array.shape[1]))
    return TableRows(names, {name: array[:, i] for i, name in enumerate(names)}, tuple(range(len(array))))


def _flags(labels: Iterable[Any]) -> bool:
    """Whether all of them are yes or no."""
    return all(isinstance(label, (bool, np.bool_)) for label in labels)


def _dates(labels: Sequence[Any]) -> bool:
    """Whether labels are dates of pandas."""
    return bool(labels) and all(type(label).__name__ == "Timestamp" for label in labels)


def _date(text: str) -> Any:
    """A date that was written, as pandas has it; None if it is none."""
    try:
        return frames().Timestamp(text)
    except ValueError:
        return None


def _plain(label: Any) -> Any:
    """A label as Python has it, so that numbers of numpy are found."""
    return label.item() if isinstance(label, np.generic) else label
