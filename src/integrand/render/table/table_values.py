"""What is drawn of a table: the values of rows and columns, what the table holds there, and sentences about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...certificate import Certificate, ExampleCertificate
from ...words import number, plus_minus, short_repr, shortened, shown
from ..certificate_text import trust

Floats = np.ndarray[Any, np.dtype[np.float64]]

BECAUSE, DESPITE = 3, 0.4
"""A sentence names so many columns at the most, and one that speaks against them from this share of the strongest on."""

LEAST = 0.2
"""A sentence names columns down to this share of the strongest."""


def cell_text(value: Any) -> str:
    """What a table holds in a cell, for people; empty where it holds nothing.

    >>> cell_text(2019.0), cell_text(0.118423), cell_text(1234567.0), cell_text("male"), cell_text(None)
    ('2019', '0.1184', '1,234,567', 'male', '')
    """
    if value is None:
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, float, np.integer, np.floating)):
        found = float(value)
        if not math.isfinite(found):
            return str(found)
        if found == int(found) and abs(found) < 1e12:
            return f"{int(found):,}" if abs(found) >= 1e5 else f"{int(found)}"
        return f"{found:,.0f}" if 1e4 <= abs(found) < 1e12 else f"{found:.4g}"
    return shown(str(value))


def score_text(value: float, unit: str) -> str:
    """A score for people; a probability near 1 with as many digits as tell it from 1.

    >>> score_text(0.93, "probability of malignant"), score_text(0.9998, "probability"), score_text(203.9488, "score")
    ('0.93', '0.9998', '204')
    """
    if unit.startswith("probability") and 0.995 <= value < 1:
        return number(value, 4) if value < 0.99995 else "over 0.9999"
    return number(value, 3)


@dataclass(frozen=True, eq=False)
class TableValues:
    """Values of rows and columns, ready to be drawn.

    Attributes:
        names: of the columns.
        labels: of the rows, as texts.
        values: (rows, columns).
        errors: by how much each value may be off, (rows, columns).
        cells: what the table holds, as texts, a list for each row.
        numbers: the same as numbers, (rows, columns): of categories, their position among those that come.
        levels: of columns that hold no numbers, the categories in the order of these positions; empty for numbers.
        certificate: of each row.
        unit: what the values are measured in, in words.
        start: where paths began, in words.
        start_cells: what the baseline has in each column, as texts; empty where that cannot be said.
        sampled: whether errors are those of a sample of baselines too, which certificates know nothing of.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    values: Floats
    errors: Floats
    cells: tuple[tuple[str, ...], ...]
    numbers: Floats
    levels: tuple[tuple[str, ...], ...]
    certificate: Certificate
    unit: str
    start: str
    start_cells: tuple[str, ...]
    sampled: bool = False

    __repr__ = short_repr

    @staticmethod
    def of(
        names: Sequence[str],
        labels: Sequence[str],
        columns: Sequence[np.ndarray[Any, Any]],
        values: Floats,
        errors: Floats,
        certificate: Certificate,
        *,
        unit: str,
        start: str,
        start_cells: Sequence[str],
        sampled: bool = False,
    ) -> TableValues:
        """Take columns as a table has them, (rows,) each; the other arguments are attributes."""
        texts = [[cell_text(cell) for cell in column.tolist()] for column in columns]
        numbers, levels = zip(*(_places(column, text) for column, text in zip(columns, texts, strict=True)), strict=True)
        return TableValues(
            tuple(names),
            tuple(labels),
            values,
            errors,
            tuple(zip(*texts, strict=True)),
            np.stack(numbers, axis=1),
            tuple(levels),
            certificate,
            unit,
            start,
            tuple(start_cells),
            sampled,
        )

    @cached_property
    def strength(self) -> Floats:
        """The values of each column without signs, averaged over the rows, (columns,)."""
        found: Floats = np.abs(self.values).mean(0)
        return found

    @cached_property
    def strength_errors(self) -> Floats:
        """By how much :attr:`strength` may be off: no more than the errors are on average, (columns,)."""
        found: Floats = self.errors.mean(0)
        return found

    @cached_property
    def order(self) -> list[int]:
        """The columns, the strongest over all rows first."""
        return [int(k) for k in np.argsort(-self.strength, kind="stable")]

    def order_of(self, row: int) -> list[int]:
        """The columns, the strongest of a row first."""
        return [int(k) for k in np.argsort(-np.abs(self.values[row]), kind="stable")]

    @cached_property
    def shades(self) -> Floats:
        """Where a cell lies in its column, from 0 to 1 between the 5th and the 95th percentile; NaN where it holds nothing."""
        out = np.full(self.numbers.shape, np.nan)
        for k in range(self.numbers.shape[1]):
            column = self.numbers[:, k]
            known = column[np.isfinite(column)]
            if len(known):
                low, high = np.percentile(known, [5, 95])
                low, high = (known.min(), known.max()) if low == high else (low, high)
                out[:, k] = 0.5 if low == high else np.clip((column - low) / (high - low), 0, 1)
        return out

    @property
    def scores(self) -> Floats:
        """The explained score of each row, (rows,)."""
        return np.array([one.score for one in self.certificate])

    @property
    def base(self) -> float:
        """The score at the baseline, the mean over the rows."""
        return float(np.mean([one.baseline_score for one in self.certificate]))

    def said(self, row: int, column: int) -> str:
        """A value in words, for somebody who points at it."""
        held = shortened(self.cells[row][column], 40) or "empty"
        return (
            f"row {shortened(self.labels[row], 40)}: {self.names[column]} is {held}, "
            f"{plus_minus(self.values[row, column], self.errors[row, column])}"
        )

    def sentence_of(self, row: int, *, named: bool = True) -> str:
        """What the model says of a row, because of which columns, and how sure the numbers are.

        Args:
            row: its position.
            named: whether to begin with its label.
        """
        one = self.certificate[row]
        change = one.score - one.baseline_score
        order = self.order_of(row)
        most = abs(self.values[row, order[0]])
        # What is within its error may as well be zero, or have the other sign: it is no reason.
        sure = [k for k in order if not abs(self.values[row, k]) <= self.errors[row, k]]
        along = [k for k in sure if self.values[row, k] * change > 0 and abs(self.values[row, k]) >= LEAST * most][:BECAUSE]
        against = next(
            (k for k in sure if self.values[row, k] * change < 0 and abs(self.values[row, k]) >= DESPITE * most), None
        )
        what = "" if self.unit == "score" else f"{self.unit} "
        head = f"{what}{score_text(one.score, self.unit)} ({_at(self.start)} {score_text(one.baseline_score, self.unit)})"
        head = f"Row {shortened(self.labels[row], 40)}: {head}" if named else head[:1].upper() + head[1:]
        why = f", mostly because {_joined([self._cause(row, k) for k in along])}" if along else ""
        but = f", although {self._cause(row, against)}" if against is not None else ""
        return f"{head}{why}{but}; {self._trust(one)}."

    @property
    def sentence(self) -> str:
        """What matters over all rows, or of the only one, in one line."""
        if len(self.labels) == 1:
            return self.sentence_of(0)
        named = [
            f"{self.names[k]} ({plus_minus(self.strength[k], self.strength_errors[k]).lstrip('+')})"
            for k in self.order[:BECAUSE]
            if not self.strength[k] <= self.strength_errors[k]
        ]
        what = "the score" if self.unit == "score" else f"the {self.unit}"
        moved = f"no column moves {what} by more than its error,"
        if named:
            moved = f"{_joined(named)} move{'s' if len(named) == 1 else ''} {what} the most, on average and without signs,"
        return f"Over {len(self.labels):,} rows, {moved} from {self.start}; {self._trust(self.certificate)}."

    def _trust(self, certificate: Certificate | ExampleCertificate) -> str:
        """How far numbers can be trusted; beside a sample, which moves them more, that is said of the integrals alone."""
        told = trust(certificate)
        return f"{told.replace('numbers', 'integrals', 1)}, the rest of ± is the sample's" if self.sampled else told

    def _cause(self, row: int, column: int) -> str:
        held = shortened(self.cells[row][column], 40) or "empty"
        return f"{self.names[column]} is {held} ({plus_minus(self.values[row, column], self.errors[row, column])})"


def _at(start: str) -> str:
    """Where paths began, before the score there: a colon parts two numbers.

    >>> _at("the column means"), _at("row 5"), _at("50 rows drawn from 442")
    ('at the column means', 'at row 5:', 'on average over 50 rows drawn from 442:')
    """
    if start[:1].isdigit():
        return f"on average over {start}:"
    return f"at {start}:" if any(one.isdigit() for one in start) else f"at {start}"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _places(column: np.ndarray[Any, Any], texts: Sequence[str]) -> tuple[Floats, tuple[str, ...]]:
    """A column as numbers: its own, or the positions of its categories in their order, and these."""
    if column.dtype.kind in "iufb":
        return column.astype(np.float64), ()
    found = np.full(len(column), np.nan)
    try:
        for i, cell in enumerate(column.tolist()):
            found[i] = float(cell) if cell is not None and str(cell).strip() else np.nan
        return found, ()
    except (TypeError, ValueError):
        levels = tuple(sorted(set(texts)))
        return np.array([float(levels.index(text)) for text in texts]), levels
