"""Where paths begin: the column means, a row, or several rows, of which each is a baseline of its own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError, OptionError
from ...words import shortened, shown
from .column_codes import ColumnCodes
from .data_frames import TableRows, listed, row_of, rows_of_table
from .start_groups import FEWEST

MANY = 2000
"""More rows than this are no baseline but a data set: a path from each of them would be integrated for every explained row."""


@dataclass(frozen=True, eq=False)
class MeanRow:
    """The column means of a table, as a baseline: of numbers the mean, of categories how often each of them comes."""

    table: Any


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Some rows of a table, as baselines, and how many rows they stand for.

    Attributes:
        rows: those that were drawn.
        drawn_from: how many there were to draw from.
    """

    rows: TableRows
    drawn_from: int


@dataclass(frozen=True, eq=False)
class StartRows:
    """Baselines, before they are encoded.

    Attributes:
        rows: one or more of them; of the means, the rows that they are the means of.
        mean: whether to take the means.
        words: what they are, in words: ``the column means``.
        drawn_from: how many rows these were drawn from at random; 0 if they were not drawn.
    """

    rows: TableRows
    mean: bool
    words: str
    drawn_from: int = 0


def mean(table: Any) -> MeanRow:
    """The column means of a table, such as the one that the model was trained on, as a baseline for rows of another.

    Args:
        table: a DataFrame.
    """
    return MeanRow(table)


def sample(table: Any, count: int = 100, *, seed: int = 0) -> SampledRows:
    """Draw rows of a table without replacement, as baselines: expected gradients.

    Values then carry the error of the sample, by how much they may differ from those over all rows of the table, beside that of
    the integration.

    Args:
        table: a DataFrame.
        count: how many rows, at least 4, from whose spread the error is told; all of them if there are fewer.
        seed: the same seed draws the same rows.
    """
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise OptionError(f"got count={count!r}; expected how many rows to draw, at least 1.")
    rows = rows_of_table(table)
    if count < min(FEWEST, len(rows)):
        raise OptionError(
            f"got a sample of {count} of {len(rows):,} rows; expected at least {FEWEST}, since the error of a sample is told "
            "by the spread in it. Some rows of your own are a baseline too: frame.sample(2)."
        )
    # They stay in the order of the draw: the sample is cut into groups, which have to differ by chance, in a sorted table too.
    drawn = np.random.default_rng(seed).permutation(len(rows))[:count]
    return SampledRows(rows.take(drawn.tolist()), len(rows))


def start_rows(baseline: Any, rows: TableRows, codes: ColumnCodes, *, encoded: bool) -> StartRows:
    """What was given as ``baseline=``, as rows of the columns that the model takes.

    Args:
        baseline: ``"mean"``, the label of a row of the table, a row (dict, Series), a table, :func:`mean` or :func:`sample`.
        rows: the table that is explained, in the columns of ``codes``.
        codes: the columns.
        encoded: whether tables hold the model's numbers already.
    """

    def read(table: Any) -> TableRows:
        found = rows_of_table(table, what="the baseline")
        return codes.decode(found) if encoded else having(found)

    def having(found: TableRows) -> TableRows:
        if missing := [name for name in codes.names if name not in found.columns]:
            raise InputError(
                f"the baseline has no column {shown(missing[0])!r}; expected all that the model takes, and it has "
                f"{listed(found.names)}. pandas.DataFrame(array, columns=[...]) names the columns of an array."
            )
        return found

    if isinstance(baseline, str) and baseline == "mean":
        return StartRows(rows, True, "the column means")
    if isinstance(baseline, MeanRow):
        return StartRows(read(baseline.table), True, "the column means")
    if isinstance(baseline, SampledRows):
        drawn = codes.decode(baseline.rows) if encoded else baseline.rows
        more = baseline.drawn_from if baseline.drawn_from > len(drawn) else 0
        return StartRows(drawn, False, _several(len(drawn), more), more)
    if isinstance(baseline, (Mapping, dict)) or (hasattr(baseline, "items") and not hasattr(baseline, "columns")):
        given = row_of(baseline, what="baseline=")
        if encoded:
            raise OptionError(
                "got a row as the baseline of a table that is encoded already; expected frame.iloc[[i]], a table."
            )
        label = getattr(baseline, "name", None)  # a row of a frame has its label
        words = "a row of your own" if label is None else f"row {shortened(shown(str(label)), 40)}"
        return StartRows(having(given), False, words)
    if isinstance(baseline, Hashable) and isinstance(baseline, (str, int, float, np.generic, tuple)):
        [place] = _place(rows, baseline)
        return StartRows(rows.take([place]), False, f"row {shortened(shown(str(baseline)), 40)}")
    if baseline is None:
        raise OptionError(
            "got baseline=None; expected 'mean', the label of a row, a row, or a table of rows. Zero is a row like any other: "
            "{name: 0.0, ...}."
        )
    found = read(baseline)
    if len(found) > MANY:
        raise OptionError(
            f"got a table of {len(found):,} rows as the baseline; expected at most {MANY:,}, for every row is explained from "
            "each of them. Draw some: tables.sample(frame, 100)."
        )
    return StartRows(found, False, _several(len(found), 0))


def _place(rows: TableRows, label: Any) -> list[int]:
    try:
        return rows.places(label)
    except InputError as error:
        raise OptionError(f"baseline={label!r}: {error} Or give 'mean', a row as a dict, or a table.") from None


def _several(count: int, drawn_from: int) -> str:
    if count == 1:
        return "one row"
    return f"{count:,} rows drawn from {drawn_from:,}" if drawn_from else f"{count:,} rows"
