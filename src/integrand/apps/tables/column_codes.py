"""How columns become what a model takes, and which numbers of the model's input belong to which column.

A column is a number (as it is, or scaled), a category as one-hot numbers, or a category as the row of an embedding inside the
model. Nothing of this is guessed: what is no number has to be said.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from torch import nn

from ...errors import InputError, OptionError
from ...words import shortened, shown
from .data_frames import Cells, TableRows, listed

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Codes: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, which the model takes as (value - mean) / scale.

    Attributes:
        mean: what is subtracted.
        scale: what the rest is divided by.
        missing: what stands for an empty cell; None to refuse it.
    """

    mean: float = 0.0
    scale: float = 1.0
    missing: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and np.isfinite(self.scale)) or self.scale == 0:
            raise OptionError(
                f"got mean={self.mean!r}, scale={self.scale!r}; expected finite numbers, and a scale other than 0."
            )

    @property
    def width(self) -> int:
        """How many numbers of the model's input the column takes."""
        return 1

    def encode(self, cells: Cells, name: str, labels: Sequence[Hashable]) -> Numbers:
        """The model's numbers for cells, (rows, 1)."""
        raw = numbers_of(cells, name, labels, self.missing)
        return ((raw - self.mean) / self.scale)[:, None]

    def decode(self, encoded: Numbers) -> Cells:
        """The cells that numbers of the model's input stand for, (rows,)."""
        return np.asarray(encoded[:, 0] * self.scale + self.mean)


@dataclass(frozen=True)
class OneHotColumn:
    """A column of categories, which the model takes as one number for each: 1 for the cell's own, 0 for the others.

    Attributes:
        categories: in the order of the model's numbers.
        dropped: the position of a category that has no number of its own; None if all have.
        unknown: whether a cell of another category is all zeros rather than an error.
        missing: the category that stands for an empty cell; None to refuse it.
    """

    categories: tuple[Hashable, ...]
    dropped: int | None = None
    unknown: bool = False
    missing: Hashable | None = None

    def __post_init__(self) -> None:
        _check_categories(self.categories)

    @property
    def width(self) -> int:
        """How many numbers of the model's input the column takes."""
        return len(self.categories) - (self.dropped is not None)

    def encode(self, cells: Cells, name: str, labels: Sequence[Hashable]) -> Numbers:
        """The model's numbers for cells, (rows, width)."""
        codes = codes_of(cells, self.categories, name, labels, unknown=self.unknown, missing=self.missing)
        out = np.zeros((len(codes), len(self.categories)))
        known = codes >= 0
        out[np.flatnonzero(known), codes[known]] = 1.0
        return out if self.dropped is None else np.delete(out, self.dropped, axis=1)

    def decode(self, encoded: Numbers) -> Cells:
        """The cells that numbers of the model's input stand for, (rows,)."""
        whole = encoded if self.dropped is None else np.insert(encoded, self.dropped, 1 - encoded.sum(1), axis=1)
        found = np.empty(len(whole), dtype=object)
        for i, code in enumerate(whole.argmax(1).tolist()):
            found[i] = self.categories[code] if whole[i, code] > 0 else None
        return found


@dataclass(frozen=True)
class EmbeddedColumn:
    """A column of categories, which the model looks up in an embedding of its own.

    Attributes:
        categories: in the order of the embedding's rows.
        layer: the embedding: its dotted name in the model, or the module.
        missing: the category that stands for an empty cell; None to refuse it.
    """

    categories: tuple[Hashable, ...]
    layer: str | nn.Module
    missing: Hashable | None = None

    def __post_init__(self) -> None:
        _check_categories(self.categories)
        if not isinstance(self.layer, (str, nn.Module)):
            raise OptionError(f"got layer={self.layer!r}; expected the embedding: its dotted name in the model, or the module.")

    @property
    def width(self) -> int:
        """How many whole numbers of the model's input the column takes."""
        return 1

    def encode(self, cells: Cells, name: str, labels: Sequence[Hashable]) -> Numbers:
        """The rows of the embedding for cells, (rows, 1), as floats."""
        return codes_of(cells, self.categories, name, labels, missing=self.missing).astype(np.float64)[:, None]

    def decode(self, encoded: Numbers) -> Cells:
        """The cells that rows of the embedding stand for, (rows,)."""
        found = np.empty(len(encoded), dtype=object)
        for i, code in enumerate(encoded[:, 0].astype(np.int64).tolist()):
            if not 0 <= code < len(self.categories):
                raise InputError(f"got the code {code}; expected 0 to {len(self.categories) - 1}, a row of the embedding.")
            found[i] = self.categories[code]
        return found


Column: TypeAlias = NumberColumn | OneHotColumn | EmbeddedColumn


def number(mean: float = 0.0, scale: float = 1.0, *, missing: float | None = None) -> NumberColumn:
    """A column of numbers, which the model takes as (value - mean) / scale.

    Args:
        mean: what was subtracted in training.
        scale: what the rest was divided by.
        missing: what stands for an empty cell; without it, an empty cell is an error.
    """
    return NumberColumn(float(mean), float(scale), None if missing is None else float(missing))


def one_hot(categories: Sequence[Hashable], *, dropped: Hashable | None = None, unknown: bool = False) -> OneHotColumn:
    """A column of categories, which the model takes as one number for each: 1 for the cell's own, 0 for the others.

    Args:
        categories: in the order of the model's numbers.
        dropped: the category that has no number of its own, where the encoding left one out.
        unknown: whether a cell of another category is all zeros rather than an error.
    """
    kept = tuple(categories)
    if dropped is not None and dropped not in kept:
        raise OptionError(f"got dropped={dropped!r}; expected one of the categories {listed(map(str, kept))}.")
    return OneHotColumn(kept, None if dropped is None else kept.index(dropped), unknown)


def embedded(categories: Sequence[Hashable], layer: str | nn.Module) -> EmbeddedColumn:
    """A column of categories, which the model looks up in an embedding; the column gets the sum over the embedding.

    Args:
        categories: in the order of the embedding's rows; ``range(n)`` where cells are the rows' numbers already.
        layer: the embedding: its dotted name in the model, or the module. Several columns may share one.
    """
    return EmbeddedColumn(tuple(categories), layer)


@dataclass(frozen=True)
class ColumnCodes:
    """All columns of a table, in the order in which the model takes them.

    Attributes:
        parts: name and kind of each; a column may come more than once, as where it is both a number and categories.
        together: whether rows of embeddings stand among the other numbers, in one tensor, rather than in one of their own.
    """

    parts: tuple[tuple[str, Column], ...]
    together: bool = False

    def __post_init__(self) -> None:
        if not self.parts:
            raise OptionError("got no columns; expected at least one that the model takes.")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns, each once."""
        return tuple(dict.fromkeys(name for name, _ in self.parts))

    @cached_property
    def embedded(self) -> tuple[tuple[str, EmbeddedColumn], ...]:
        """The columns that are looked up in an embedding."""
        return tuple((name, part) for name, part in self.parts if isinstance(part, EmbeddedColumn))

    @cached_property
    def plain(self) -> tuple[tuple[str, Column], ...]:
        """The columns that are in the model's tensor of numbers."""
        return self.parts if self.together else tuple(one for one in self.parts if not isinstance(one[1], EmbeddedColumn))

    @cached_property
    def owners(self) -> list[int]:
        """For each number of the model's tensor of numbers, the position of its column in :attr:`names`."""
        return [self.names.index(name) for name, part in self.plain for _ in range(part.width)]

    def encode(self, rows: TableRows) -> tuple[Numbers, Codes]:
        """What the model takes for rows: numbers (rows, D) and rows of embeddings (rows, E), the latter empty if together."""
        count = len(rows)
        numbers = [part.encode(rows.column(name), name, rows.labels) for name, part in self.plain]
        codes = [] if self.together else [part.encode(rows.column(name), name, rows.labels) for name, part in self.embedded]
        return (
            np.concatenate(numbers, axis=1) if numbers else np.zeros((count, 0)),
            np.concatenate(codes, axis=1).astype(np.int64) if codes else np.zeros((count, 0), np.int64),
        )

    def decode(self, rows: TableRows) -> TableRows:
        """Rows of what the model takes, number by number in their order, as the columns that they stand for."""
        wide = sum(part.width for _, part in self.parts)
        if len(rows.names) != wide:
            raise InputError(
                f"got a table with {len(rows.names)} columns that is encoded already; expected {wide}, one for each number "
                f"that the model takes for {listed(self.names)}."
            )
        matrix = np.stack([numbers_of(rows.columns[name], name, rows.labels) for name in rows.names], axis=1)
        found, start = {}, 0
        for name, part in self.parts:
            found[name] = part.decode(matrix[:, start : start + part.width])
            start += part.width
        return TableRows(self.names, found, rows.labels)


def codes_given(columns: Any, rows: TableRows, *, together: bool = False, encoded: bool = False) -> ColumnCodes:
    """What was given as ``columns=``, as :class:`ColumnCodes`.

    Args:
        columns: None (all columns of the table are numbers), names of columns that are numbers, a mapping from names to kinds,
            or a fitted transformer of scikit-learn.
        rows: the table.
        together: as in :class:`ColumnCodes`.
        encoded: whether the table holds the model's numbers, not the columns.
    """
    if isinstance(columns, ColumnCodes):
        return columns
    if columns is None:
        columns = list(rows.names)
    if isinstance(columns, str):
        raise OptionError(f"got columns={columns!r}; expected a list of names, or a mapping from names to kinds.")
    if isinstance(columns, Mapping):
        parts = [(str(name), column_given(kind, str(name))) for name, kind in columns.items()]
    elif hasattr(columns, "transform"):
        from .fitted_columns import fitted_parts

        parts = list(fitted_parts(columns, rows.names))
    else:
        parts = [(str(name), NumberColumn()) for name in columns]
    found = ColumnCodes(tuple(parts), together)
    if not encoded:
        for name in found.names:
            rows.column(name)
    return found


def column_given(kind: Any, name: str) -> Column:
    """One value of a mapping that was given as ``columns=``, as a kind of column."""
    if kind is None or kind == "number":
        return NumberColumn()
    if isinstance(kind, (NumberColumn, OneHotColumn, EmbeddedColumn)):
        return kind
    if isinstance(kind, tuple) and len(kind) == 2 and all(isinstance(one, (int, float, np.number)) for one in kind):
        return NumberColumn(float(kind[0]), float(kind[1]))
    if isinstance(kind, list):
        return OneHotColumn(tuple(kind))
    if hasattr(kind, "transform"):
        from .fitted_columns import fitted_parts

        found = list(fitted_parts(kind, (name,)))
        if len(found) == 1:
            return found[0][1]
    raise OptionError(
        f"got columns[{name!r}] = {shortened(shown(repr(kind)), 80)}; expected None for a number, (mean, scale) for a scaled "
        "one, a list of categories for one-hot, tables.embedded(categories, layer), or a fitted transformer of scikit-learn."
    )


def numbers_of(cells: Cells, name: str, labels: Sequence[Hashable], missing: float | None = None) -> Numbers:
    """Cells as numbers, (rows,); texts that are numbers count as such, since a row of a CSV file is texts.

    Raises:
        InputError: a cell is empty or no number, with its place and what to do.
    """
    found = np.empty(len(cells))
    if cells.dtype.kind in "iufb":
        found[:] = cells
    else:
        for i, cell in enumerate(cells.tolist()):
            found[i] = np.nan if _empty(cell) else _number(cell, name, labels[i])
    if missing is not None:
        found = np.where(np.isnan(found), missing, found)
    bad = np.flatnonzero(~np.isfinite(found))
    if len(bad):
        first = found[bad[0]]
        here = f"column {shown(name)!r} is {'empty' if np.isnan(first) else 'infinite'} in row {_label(labels[bad[0]])}"
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        if np.isinf(first):
            raise InputError(
                f"{here}{more}; expected a finite number. Replace it as in training, or leave the row out: "
                f"frame[numpy.isfinite(frame[{name!r}])]."
            )
        raise InputError(
            f"{here}{more}; expected a number. Fill the gaps as in training, or say what stands for one: "
            f"columns={{{name!r}: tables.number(missing=0.0), ...}}."
        )
    return found


def codes_of(
    cells: Cells,
    categories: Sequence[Hashable],
    name: str,
    labels: Sequence[Hashable],
    *,
    unknown: bool = False,
    missing: Hashable | None = None,
) -> Codes:
    """The position of each cell among categories, (rows,); -1 for others where they are allowed.

    Raises:
        InputError: a cell is none of them.
    """
    places: dict[Any, int] = {}
    for i, category in enumerate(categories):
        places.setdefault(category, i)
        places.setdefault(str(category), i)  # a row of a CSV file is texts
    found = np.full(len(cells), -1, np.int64)
    for i, cell in enumerate(cells.tolist()):
        value = missing if missing is not None and _empty(cell) else cell
        place = places.get(value) if isinstance(value, Hashable) else None
        if place is None and isinstance(value, float) and value.is_integer():  # a column of whole numbers with gaps
            place = places.get(int(value))
        if place is None and not unknown:
            raise InputError(
                f"column {shown(name)!r} is {shortened(shown(repr(cell)), 60)} in row {_label(labels[i])}; expected one of "
                f"{listed(map(str, categories))}."
            )
        found[i] = -1 if place is None else place
    return found


def _number(cell: Any, name: str, label: Hashable) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        said = shortened(shown(repr(cell)), 60)
        if type(cell).__name__ in ("Timestamp", "Timedelta", "datetime", "date", "timedelta"):
            raise InputError(
                f"column {shown(name)!r} holds the time {shown(str(cell))} in row {_label(label)}; expected a number. Turn it "
                "into one as in training, such as the days since a first one, (frame[name] - first).dt.days, or leave "
                "the column out with columns=[...]."
            ) from None
        raise InputError(
            f"column {shown(name)!r} holds {said} in row {_label(label)}; expected a number. Leave the column out with "
            f"columns=[...], or say which categories it has: columns={{{name!r}: [{said}, ...], ...}}."
        ) from None


def _empty(cell: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, pandas' NA or NaT, an empty text."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return True
    if isinstance(cell, float):
        return bool(np.isnan(cell))
    return type(cell).__name__ in ("NAType", "NaTType")


def _label(label: Hashable) -> str:
    return shortened(shown(str(label)), 60)


def _check_categories(categories: Sequence[Hashable]) -> None:
    if not categories:
        raise OptionError("got no categories; expected at least one, in the order of the model's numbers.")
    if len(set(categories)) < len(categories):
        raise OptionError(f"got categories of which some are the same: {listed(map(str, categories))}; expected each once.")
