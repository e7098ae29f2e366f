"""A table of many inputs in numbers: what was said, what mattered, how exact it is, and which inputs are worth a look.

All numbers are exact over all rows, in memory that does not grow with them: parts are gone through several times, a few columns
at a time. :func:`summarise` is the walk: count, find quantiles and what stands out, add up contributions, read what is listed.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np

from ..errors import OptionError
from ..files import write_text
from ..render.table_data import (
    BROKEN,
    FAR,
    FAR_OFF,
    GOOD,
    MISTAKEN,
    REASONS,
    SOME,
    UNSURE,
    WORST,
    ClassTally,
    Distribution,
    ListedInput,
    MistakeTally,
    NameTally,
    ReasonCount,
    TableFigures,
    TruthCheck,
    signed,
)
from ..words import finite, number, percent, shortened, shown
from .rows import COLUMN_NAMES, FAILED, Row, TableLayout, arrow
from .table import ExplainedTable, PartsSnapshot, flattened

if TYPE_CHECKING:
    import pyarrow as pa

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]

MOST_CLASSES = 1000
"""Where there are more different predictions than this, they are no classes: a translation, a number."""

MOST_NAMES = 200_000
"""Names of features that are held in memory at a time; of more, parts are gone through again for the rest."""

MOST_REASONS = 1000
"""Different messages that are told apart; further ones are counted together."""

TOLD_APART = 500
"""Characters of a message by which it is told from others."""

MOST_POSITIONS = 4096
"""Features without names that are told apart by their places."""

NAMED, NAMED_OF_CLASS = 50, 12
"""Features that are kept over all inputs, and of each class."""

LISTED = 50
"""Inputs in each list: the worst errors, those far from the rest, failures, mistakes, and some of all."""

LEAST_PROBABLE = 20
"""Inputs in the list of predictions with the least probability."""

STRONGEST = 12
"""Features that are listed of one input."""

BARS = 36
"""Bars of a plot of a distribution."""

ROWS = 8192
"""Rows that are worked on at a time."""

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)

FIGURES = {
    "error / tolerance": "estimated error, as a share of the tolerance",
    "evaluations": "gradient evaluations",
    "probability": "probability of the prediction",
    "score": "F(x), the score that is explained",
    "change of the score": "|F(x) − F(x′)|, from the baseline to the input",
    "magnitude": "attributions added up without their signs",
}
"""What is measured of every input, and what it is in a few words."""

ABOUT = ("question", "text", "source", "smiles", "name", "file")
"""Columns that say what an input is."""

EYES = "looks_like_a_retina"
"""A column that only tables of graded eyes have; their pages say that this is no diagnosis."""

NOT_MEDICAL = "Not a medical device: for research, not for diagnosing, treating or reassuring anybody."

_ATOM = re.compile(r"([A-Z][a-z]?)\d+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_PARTICULAR = re.compile(r"[/\\\d]")
_OF_WORDS = ("questions", "rules", "text", "translate")
_WORDS = re.compile(r"apps\.(?:questions|text|translation)\b|TextCNN|Seq2Seq")


@dataclass(frozen=True)
class TableSummary(TableFigures):
    """A table of many inputs in numbers, which prints itself, and writes itself as a page.

    Beyond :class:`~integrand.render.table_data.TableFigures`:

    Attributes:
        folder: the folder beside whose files the page belongs: that of the table, or the one around it.
        page_name: what the page is called there, if it is called nothing else.
    """

    folder: Path = Path()
    page_name: str = "_summary.html"

    @property
    def place(self) -> Path:
        """Where the page goes, if nothing else is said."""
        return self.folder / self.page_name

    def numbers(self) -> dict[str, Any]:
        """Everything as values of JSON."""
        kept = {one.name: getattr(self, one.name) for one in fields(TableFigures) if one.name != "truth"}
        found = {"sentence": self.sentence, "explained": self.explained, "failed": self.failed, "missed": self.missed}
        found |= {name: _as_json(value) for name, value in kept.items() if value is not None}
        if self.truth is not None:
            pairs = [[label, said, count] for (label, said), count in self.truth.confusion.items()]
            truth = _as_json(replace(self.truth, confusion={}))
            found["truth"] = truth | {"accuracy": finite(self.truth.accuracy), "confusion": pairs}
        return found

    def page(self, *, beside: Path | None = None, command: str | None = None) -> str:
        """The page, as the text of one HTML file that loads nothing.

        Args:
            beside: the folder that the page will be in, so that its links lead to the pages of single inputs.
            command: the command that makes it again.
        """
        from ..render.table_page import table_page

        moved = self.listed
        if beside is not None and beside.resolve() != self.folder.resolve():
            way = quote(Path(relpath(self.folder.resolve(), beside.resolve())).as_posix())
            moved = tuple(replace(one, link=f"{way}/{one.link}") if one.link else one for one in moved)
        return table_page(replace(self, listed=moved), command=command)

    def save(self, path: str | Path | None = None, *, command: str | None = None) -> Path:
        """Write the page, or the numbers, by the ending of the path.

        Args:
            path: a ``.html`` or ``.json`` file. Default: ``_summary.html`` in the folder of the table.
            command: the command that makes it again, for the page.
        """
        place = self.place if path is None else Path(path)
        if place.suffix.lower() == ".html":
            write_text(place, self.page(beside=place.parent, command=command))
        elif place.suffix.lower() == ".json":
            write_text(place, json.dumps(self.numbers(), indent=1, allow_nan=False) + "\n")
        else:
            raise OptionError(f"got {shown(str(place))!r}; expected a file that ends in .html or .json.")
        return place

    def __str__(self) -> str:
        lines = [self.sentence]
        lines += _table(
            "said", [(one.name, f"{one.inputs:,}", percent(one.inputs / max(1, self.explained))) for one in self.classes[:5]]
        )
        for what, names in (("group", self.groups), (self.part, self.features)):
            rows = [(one.name, signed(one.mean), f"in {one.inputs:,} inputs") for one in names[:5]]
            lines += _table(f"{what}s that mattered most, on average", rows)
        if self.failed or self.missed:
            lines += _table("ended", [(status, f"{count:,}") for status, count in self.statuses.items()])
        worst = [one for one in self.worst if one.badness[0]][:3]
        lines += _table("largest errors", [(one.name, one.status, _error_text(one)) for one in worst])
        lines += _table("failed because", [(f"{one.inputs:,}", one.text) for one in self.failures[:3]])
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.sentence


def _table(heading: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """A few rows for a terminal, under a heading; nothing if there are none."""
    if not rows:
        return []
    cut = [[shortened(shown(text), 60) for text in row] for row in rows]
    wide = [max(len(row[i]) for row in cut) for i in range(len(cut[0]))]
    return [
        f"{heading}:",
        *("  " + "  ".join(text.ljust(size) for text, size in zip(row, wide, strict=True)).rstrip() for row in cut),
    ]


def _error_text(one: ListedInput) -> str:
    known = "error not known" if one.error is None else f"error {percent(one.error)}"
    return known + (f", asked for {percent(one.tol)}" if one.tol else "")


def _as_json(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        kept = {one.name: _as_json(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, NameTally):
            kept["mean"] = finite(value.mean)
        return kept
    if isinstance(value, Mapping):
        return {str(name): _as_json(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_as_json(part) for part in value]
    return finite(value)


# ---- the walk ----------------------------------------------------------------------------------------------------------------


def summarise(table: ExplainedTable, *, label: str | None = None) -> TableSummary:
    """A table in numbers.

    Args:
        table: the table.
        label: a column of it that says what is true, to compare predictions with.
    """
    return PartsSnapshot.use(table.folder, lambda parts: _summarised(TableReader(table, parts, label)))


def _summarised(reader: TableReader) -> TableSummary:
    table = reader.table
    counts = _counted(reader)
    found = _distributions(reader)
    picked, drawn = _picked(reader, found, counts)
    tallies = _tallied(reader, counts)
    base = table.folder.parent if table.folder.name == "table" else table.folder
    return TableSummary(
        title=table.manifest.title or shown(base.resolve().name) or "Many inputs",
        total=counts.total,
        statuses=dict(counts.statuses.most_common()),
        classes=_classes(counts, tallies),
        predictions=counts.predictions,
        features=tallies.features.top(NAMED),
        distinct_features=tallies.features.distinct,
        groups=tallies.groups.top(NAMED),
        distinct_groups=tallies.groups.distinct,
        strongest=tallies.features.strongest(),
        strongest_groups=tallies.groups.strongest(),
        least_inputs=least_inputs(counts.total),
        part=reader.part,
        mean_map=tallies.maps.mean(),
        mapped=tallies.maps.total,
        distributions=drawn,
        failures=counts.failures.top(),
        notes=counts.notes.top(),
        truth=_truth(reader, counts, tallies),
        listed=_listed(reader, picked, drawn, base),
        evaluations=counts.evaluations,
        heed=(NOT_MEDICAL,) if EYES in reader.layout.columns else (),
        meta=_meta(table),
        folder=base,
        page_name="_summary.html" if base == table.folder else "summary.html",
    )


def _meta(table: ExplainedTable) -> dict[str, str]:
    """How a table was made, as far as people read it."""
    said = flattened(dict(table.manifest.settings))
    plain = {name: value for name, value in said.items() if isinstance(value, (bool, int, float, str)) and value != ""}
    return {name: shortened(shown(str(value)), 120) for name, value in list(plain.items())[:40]}


class TableReader:
    """Reads columns of a table part by part, some rows at a time.

    Attributes:
        label: the column that says what is true; None if there is none.
        layout: the types of the columns.
        parts: the files.
    """

    def __init__(self, table: ExplainedTable, parts: PartsSnapshot, label: str | None) -> None:
        self.table, self.label = table, label
        self.layout, self.parts, self._snapshot = parts.layout, parts.parts, parts
        if label is not None and label not in self.layout.columns:
            there = ", ".join(map(repr, self.layout.columns)) or "none"
            raise OptionError(
                f"got the label column {label!r}; expected one that was carried into the table (there: {there}). "
                "explain_many carries columns with carry=."
            )

    def read(self, part: int, names: Sequence[str] | None = None) -> pa.Table:
        """A part, or some of its columns, without the rows that a stopped run has left beside better ones."""
        return self._snapshot.read(self.parts[part], names)

    def batches(self, names: Sequence[str]) -> Iterator[tuple[int, int, pa.Table]]:
        """The number of the part, the first row, and some rows with these columns; null where a part has none of a name."""
        pa = arrow()
        schema = self.layout.schema()
        for k in range(len(self.parts)):
            read = self.read(k, names)
            for name in names:
                if name not in read.column_names:
                    read = read.append_column(name, pa.nulls(read.num_rows, schema.field(name).type))
            for start in range(0, read.num_rows, ROWS):
                yield k, start, read.slice(start, ROWS).combine_chunks()

    def figures(self) -> Iterator[tuple[int, int, pa.Table, dict[str, Floats]]]:
        """All rows with the columns that figures are made of, and the figures: NaN where one is not known."""
        more = [self.label] if self.label is not None else []
        columns = ["status", "prediction", "probability", "score", "baseline_score", "error", "tol", "evaluations"]
        for k, start, rows in self.batches([*columns, "magnitude", *more]):
            score, base, error, tol = (_floats(rows, name) for name in ("score", "baseline_score", "error", "tol"))
            failed = _texts(rows, "status") == FAILED
            exact = _texts(rows, "status") == "exact"
            with np.errstate(all="ignore"):
                found = {
                    "error / tolerance": np.where(exact | ~(tol > 0), np.nan, error / tol),
                    "evaluations": np.where(_floats(rows, "evaluations") > 0, _floats(rows, "evaluations"), np.nan),
                    "probability": _floats(rows, "probability"),
                    "score": score,
                    "change of the score": np.abs(score - base),
                    "magnitude": _floats(rows, "magnitude"),
                }
            yield k, start, rows, {name: np.where(failed, np.nan, values) for name, values in found.items()}

    @cached_property
    def part(self) -> str:
        """What one feature is called. Atoms, which have numbers of their own in each molecule, are counted by element."""
        for k in range(len(self.parts)):
            read = self.read(k, ["features"]).slice(0, 500)
            first = [name for row in read["features"].to_pylist() for name in row or ()]
            if first:
                if sum(_ATOM.fullmatch(name or "") is not None for name in first) > 0.8 * len(first):
                    return "element"
                made = dict(self.table.manifest.settings)
                words = made.get("command") in _OF_WORDS or _WORDS.search(json.dumps(made, default=str))
                return "word" if words else "feature"
        return "feature"

    def truths(self, rows: pa.Table, how: LabelReading) -> tuple[list[str | None], list[str | None]]:
        """Labels and predictions of some rows, as they are compared."""
        said = rows["prediction"].to_pylist()
        true = [] if self.label is None else [_label(value) for value in rows[self.label].to_pylist()]
        if how.words:
            true = [None if text is None else how.words.get(text.casefold(), text) for text in true]
        return true, [_numeral(text) for text in said] if how.numbered else said


@dataclass(frozen=True)
class LabelReading:
    """How labels are compared with predictions.

    Attributes:
        numbered: with the number in a prediction: 2 with ``grade 2``.
        words: what labels mean in the words of predictions: 0 is ``not active``.
    """

    numbered: bool = False
    words: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def ways(said: Iterable[str]) -> list[LabelReading]:
        """The ways in which labels may be meant, given all predictions: the first that fits is taken."""
        found = [LabelReading(), LabelReading(numbered=True)]
        yes = {text.removeprefix("not ") for text in said}
        if len(yes) == 1:
            words = {**dict.fromkeys(("1", "true", "yes"), *yes), **dict.fromkeys(("0", "false", "no"), f"not {min(yes)}")}
            found.append(LabelReading(words=words))
        return found

    def __str__(self) -> str:
        if self.numbered:
            return "by the number in the prediction"
        return f"with 1 for {self.words['1']!r} and 0 for {self.words['0']!r}" if self.words else ""


def _label(value: object) -> str | None:
    if value is None or value == "":
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _numeral(text: str | None) -> str | None:
    """The one whole number in a prediction, such as ``grade 2``; None if there is none, or several."""
    found = re.findall(r"\d+", text or "")
    return str(int(found[0])) if len(found) == 1 else None


def _floats(rows: pa.Table, name: str) -> Floats:
    kept: Floats = rows[name].cast("double").to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isfinite(kept), kept, np.nan)


def _texts(rows: pa.Table, name: str) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = rows[name].to_numpy(zero_copy_only=False)
    return found


# ---- counts ------------------------------------------------------------------------------------------------------------------


class ReasonCounter:
    """Counts messages that say the same of different inputs: names, numbers and quoted texts in them do not count."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, text: str, key: str) -> None:
        """Count a message about an input."""
        told = text[:TOLD_APART]
        told = _QUOTED.sub("…", told.replace(key, "…") if key else told)
        kind = " ".join("…" if _PARTICULAR.search(word) else word for word in told.split())
        if kind not in self._first:
            if len(self._first) >= MOST_REASONS:
                kind = text = "other reasons"
            self._first.setdefault(kind, text)
        self._counts[kind] += 1

    def top(self) -> tuple[ReasonCount, ...]:
        """The messages, the most frequent first."""
        return tuple(ReasonCount(self._first[kind], count) for kind, count in self._counts.most_common(LISTED))


@dataclass
class TableCounts:
    """What was counted in a first pass.

    Attributes:
        total: all rows.
        statuses: rows by their status.
        said: rows by their prediction; empty if these are no classes.
        predictions: how many different predictions there are; None if they were too many to count.
        chances: by prediction, the sum of the probabilities that the model gave, and their number.
        evaluations: gradient evaluations, all together.
        failures: messages of failures.
        notes: notes.
        how: how labels are compared with predictions.
        confusion: rows by label and prediction.
    """

    total: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    predictions: int | None = 0
    chances: dict[str, list[float]] = field(default_factory=dict)
    evaluations: int = 0
    failures: ReasonCounter = field(default_factory=ReasonCounter)
    notes: ReasonCounter = field(default_factory=ReasonCounter)
    how: LabelReading = field(default_factory=LabelReading)
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)


def _counted(reader: TableReader) -> TableCounts:
    found = TableCounts()
    for _, _, rows in reader.batches(["key", "status", "prediction", "probability", "evaluations", "failure", "notes"]):
        found.total += rows.num_rows
        found.evaluations += int(np.nansum(_floats(rows, "evaluations")))
        found.statuses.update({status: count for (status,), count in _grouped(rows, ["status"])})
        if found.predictions is not None:
            _count_predictions(rows, found)
        _count_messages(rows, found)
    if found.predictions is not None:
        found.predictions = len(found.said)
        if len(found.said) > max(20, found.total // 2):  # each has a prediction of its own
            found.said.clear()
    if reader.label is not None:
        _compared(reader, found)
    return found


def _grouped(rows: pa.Table, names: Sequence[str]) -> list[tuple[tuple[Any, ...], int]]:
    """How many rows there are with each combination of the values of some columns."""
    found = rows.group_by(list(names), use_threads=False).aggregate([([], "count_all")])
    return list(
        zip(zip(*(found[name].to_pylist() for name in names), strict=True), found["count_all"].to_pylist(), strict=True)
    )


def _count_predictions(rows: pa.Table, found: TableCounts) -> None:
    import pyarrow.compute as pc

    said = rows.filter(pc.and_(pc.is_valid(rows["prediction"]), pc.not_equal(rows["status"], FAILED)))
    how = [("probability", "sum"), ("probability", "count"), ([], "count_all")]
    each = said.group_by("prediction", use_threads=False).aggregate(how)
    names = ("prediction", "count_all", "probability_sum", "probability_count")
    for text, count, chance, known in zip(*(each[name].to_pylist() for name in names), strict=True):
        found.said[text] += count
        sums = found.chances.setdefault(text, [0.0, 0])
        sums[0] += chance or 0.0
        sums[1] += known
    if len(found.said) > MOST_CLASSES:
        found.predictions = None
        found.said.clear()
        found.chances.clear()


def _count_messages(rows: pa.Table, found: TableCounts) -> None:
    import pyarrow.compute as pc

    broken = rows.filter(pc.is_valid(rows["failure"]))
    for key, failure in zip(broken["key"].to_pylist(), broken["failure"].to_pylist(), strict=True):
        found.failures.add(failure, key)
    noted = rows.filter(pc.fill_null(pc.greater(pc.list_value_length(rows["notes"]), 0), False))
    for key, notes in zip(noted["key"].to_pylist(), noted["notes"].to_pylist(), strict=True):
        for note in filter(None, notes):
            found.notes.add(note, key)


def _compared(reader: TableReader, found: TableCounts) -> None:
    """Count predictions by what is true, in the first way of reading labels that fits."""
    for how in LabelReading.ways(found.said):
        found.confusion.clear()
        for _, _, rows in reader.batches(["status", "prediction", str(reader.label)]):
            true, said = reader.truths(rows, how)
            pairs = zip(true, said, rows["status"].to_pylist(), strict=True)
            found.confusion.update(
                (one, other) for one, other, status in pairs if one is not None and other is not None and status != FAILED
            )
            if len(found.confusion) > MOST_CLASSES * 10:
                raise OptionError(
                    f"got the label column {reader.label!r} with too many values; expected one with some classes."
                )
        found.how = how
        if any(one == other for one, other in found.confusion):
            return
    named = [shortened(shown(text), 20) for text, _ in found.said.most_common(4)]
    labels = [shortened(shown(str(text)), 20) for text in dict.fromkeys(_first_labels(reader))][:4]
    raise OptionError(
        f"got the label column {reader.label!r}, none of whose values ({', '.join(labels) or 'all are missing'}) is a "
        f"prediction of the table ({', '.join(named) or 'there are none'}); expected the same words in both. Carry a column "
        "with the words of the predictions."
    )


def _first_labels(reader: TableReader) -> list[str]:
    for _, _, rows in reader.batches([str(reader.label)]):
        found = [text for text in map(_label, rows[reader.label].to_pylist()) if text is not None]
        if found:
            return found
    return []


# ---- distributions -----------------------------------------------------------------------------------------------------------


class QuantileSearch:
    """Finds exact quantiles of numbers that go by four times, in memory that does not grow with their number.

    The bits of a float, read as an integer, sort as the float does. Each time the numbers go by, 16 more bits of each quantile
    are found, by counting the numbers that agree with it so far.
    """

    STEPS, BITS = 4, 16

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = shares
        self.count, self.low, self.high = 0, math.inf, -math.inf
        self._step = 0
        self._prefixes: list[int] = [0] * len(shares)
        self._ranks: list[int] = [0] * len(shares)
        self._counts: dict[int, Integers] = {0: np.zeros(1 << self.BITS, np.int64)}

    def feed(self, values: Floats) -> None:
        """Let some of the numbers go by; those that are NaN do not count."""
        kept = values[~np.isnan(values)]
        if not kept.size:
            return
        if not self._step:
            self.count += kept.size
            self.low, self.high = min(self.low, float(kept.min())), max(self.high, float(kept.max()))
        bits = kept.astype(np.float64).view(np.uint64)
        top = np.uint64(1 << 63)
        keys = np.where(bits & top, ~bits, bits | top)
        shift = np.uint64(64 - self.BITS * (self._step + 1))
        for prefix, counts in self._counts.items():
            own = keys if not self._step else keys[keys >> (shift + np.uint64(self.BITS)) == np.uint64(prefix)]
            digits = (own >> shift) & np.uint64((1 << self.BITS) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << self.BITS)

    def step(self) -> None:
        """All numbers have gone by once more."""
        if not self._step:
            self._ranks = [math.floor(share * (self.count - 1)) for share in self.shares]
        for i, (prefix, rank) in enumerate(zip(self._prefixes, self._ranks, strict=True)):
            sums = np.cumsum(self._counts[prefix])
            digit = int(np.searchsorted(sums, rank, side="right"))
            self._ranks[i] = rank - (int(sums[digit - 1]) if digit else 0)
            self._prefixes[i] = (prefix << self.BITS) | min(digit, (1 << self.BITS) - 1)
        self._step += 1
        self._counts = {prefix: np.zeros(1 << self.BITS, np.int64) for prefix in self._prefixes}

    def quantiles(self) -> tuple[float, ...]:
        """The quantiles: values that occur, each the largest below which lies at most its share."""
        keys = np.array(self._prefixes, np.uint64)
        top = np.uint64(1 << 63)
        found: Floats = np.where(keys & top, keys & ~top, ~keys).astype(np.uint64).view(np.float64)
        return tuple(found.tolist())


def _distributions(reader: TableReader) -> dict[str, Distribution]:
    """The quantiles of every figure, and the scale on which it is looked at; no bars yet."""
    searches = {name: QuantileSearch(SHARES) for name in FIGURES}
    for _ in range(QuantileSearch.STEPS):
        for _, _, _, figures in reader.figures():
            for name, values in figures.items():
                searches[name].feed(values)
        for search in searches.values():
            search.step()
    found = {}
    for name, search in searches.items():
        if search.count:
            five = search.quantiles()
            # Orders of magnitude are told apart on a logarithmic scale; a share of one never is.
            log = name != "probability" and search.low > 0 and five[4] >= 20 * five[0]
            found[name] = Distribution(name, FIGURES[name], search.count, search.low, five, search.high, log)  # type: ignore[arg-type]
    return found


def _edges(one: Distribution) -> Floats:
    """Where bars begin and end: round the median as far as figures usually lie, so that one that is far off leaves a shape."""
    if one.name == "probability" and one.low >= 0 and one.high <= 1:
        return np.linspace(0, 1, 21)
    middle, reach = one.scaled(one.median), (FAR + 1) * one.spread
    low, high = max(one.scaled(one.low), middle - reach), min(one.scaled(one.high), middle + reach)
    if low >= high:
        return np.array([one.low, one.high])
    if one.name == "evaluations" and not one.log and high - low < BARS:  # a bar for each number
        return np.arange(math.floor(low), math.ceil(high) + 2, dtype=np.float64) - 0.5
    edges = np.linspace(low, high, BARS + 1)
    found: Floats = 10.0**edges if one.log else edges
    return found


class TopRows:
    """The rows with the largest figures, the earlier one first where two are equal."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows: list[tuple[float, int, int]] = []

    def offer(self, part: int, start: int, values: Floats) -> None:
        """Look at some rows; those with NaN do not count."""
        known = np.flatnonzero(~np.isnan(values))
        best = known[np.argsort(-values[known], kind="stable")[: self._most]]
        self.rows += [(-float(values[i]), part, start + int(i)) for i in best]
        self.rows = sorted(self.rows)[: self._most]


Picked = dict[tuple[int, int], list[str]]
"""By part and row: why an input is listed."""


def _picked(
    reader: TableReader, found: Mapping[str, Distribution], counts: TableCounts
) -> tuple[Picked, dict[str, Distribution]]:
    """Which rows are worth a look, and the distributions with their bars."""
    tops = {why: TopRows(LEAST_PROBABLE if why == UNSURE else LISTED) for why in (WORST, FAR_OFF, UNSURE, MISTAKEN, BROKEN)}
    bars = {name: np.zeros(max(1, len(_edges(one)) - 1), np.int64) for name, one in found.items()}
    edges = {name: _edges(one) for name, one in found.items()}
    some: list[tuple[int, int]] = []
    every, seen = max(1, math.ceil(counts.total / LISTED)), 0
    for part, start, rows, figures in reader.figures():
        for name in found:
            kept = figures[name][~np.isnan(figures[name])]
            at = np.searchsorted(edges[name], kept, side="right") - 1
            bars[name] += np.bincount(np.clip(at, 0, len(bars[name]) - 1), minlength=len(bars[name]))
        for why, values in _ranks(reader, rows, figures, found, counts).items():
            tops[why].offer(part, start, values)
        some += [(part, start + i) for i in range(-seen % every, rows.num_rows, every)]
        seen += rows.num_rows
    picked: Picked = defaultdict(list)
    for why, top in tops.items():
        for _, part, row in top.rows:
            picked[part, row].append(why)
    for part, row in some:
        if (part, row) not in picked:
            picked[part, row].append(SOME)
    drawn = {
        name: replace(one, edges=tuple(edges[name].tolist()), counts=tuple(bars[name].tolist())) for name, one in found.items()
    }
    return picked, drawn


def distances(figures: Mapping[str, Floats], found: Mapping[str, Distribution]) -> dict[str, Floats]:
    """By how many usual spreads each figure of each row is away from the median; 0 where it is not known or does not vary."""
    away = {}
    for name, one in found.items():
        if not one.spread > 0:
            continue
        with np.errstate(all="ignore"):
            values = np.log10(figures[name]) if one.log else figures[name]
        away[name] = np.nan_to_num(np.abs(values - one.scaled(one.median)) / one.spread, nan=0.0)
    return away


def _ranks(
    reader: TableReader, rows: pa.Table, figures: Mapping[str, Floats], found: Mapping[str, Distribution], counts: TableCounts
) -> dict[str, Floats]:
    """By why rows are listed: how much each deserves it, NaN if not at all."""
    status = _texts(rows, "status")
    unknown = ~np.isin(status, [*GOOD, FAILED]) & np.isnan(figures["error / tolerance"])
    error = np.where(unknown, np.inf, figures["error / tolerance"])
    missed = ~np.isin(status, [*GOOD, FAILED])
    # An input that missed its tolerance comes before all that met it.
    ranks = {WORST: np.where(missed, np.nan_to_num(error, nan=np.inf, posinf=np.inf) + 1e6, error)}
    away = list(distances(figures, found).values())
    farthest = np.max(away, axis=0) if away else np.zeros(rows.num_rows)
    ranks[FAR_OFF] = np.where(farthest >= FAR, farthest, np.nan)
    ranks[UNSURE] = -figures["probability"]
    ranks[BROKEN] = np.where(status == FAILED, 0.0, np.nan)
    if reader.label is not None:
        true, said = reader.truths(rows, counts.how)
        wrong = np.array(
            [one is not None and other is not None and one != other for one, other in zip(true, said, strict=True)]
        )
        # The surest mistakes first: those without a probability come last.
        ranks[MISTAKEN] = np.where(wrong & (status != FAILED), np.nan_to_num(figures["probability"], nan=-1.0), np.nan)
    return ranks


# ---- contributions -----------------------------------------------------------------------------------------------------------


class NameTallies:
    """Contributions added up by name, by class, and apart for mistakes.

    Where there are more names than memory should hold, half of them (by a digest) are left for another pass, and of each half
    only the largest are kept.

    Args:
        least: names of fewer inputs are not among the strongest.
    """

    def __init__(self, least: int = 1) -> None:
        self.distinct, self.least = 0, least
        self._sums: dict[str, dict[tuple[int, bool], list[float]]] = {}
        self._kept: dict[str, dict[tuple[int, bool], list[float]]] = {}
        self._size, self._mine = 1, 0
        self._left: list[tuple[int, int]] = []

    def add(self, name: str, group: tuple[int, bool], inputs: int, total: float, size: float, positive: int) -> None:
        """Add what a name contributed to some inputs of a class."""
        if self._size > 1 and zlib.crc32(name.encode("utf-8", "replace")) % self._size != self._mine:
            return
        sums = self._sums.setdefault(name, {}).setdefault(group, [0, 0.0, 0.0, 0])
        for i, value in enumerate((inputs, total, size, positive)):
            sums[i] += value
        if len(self._sums) > MOST_NAMES:
            self._left.append((2 * self._size, self._mine + self._size))
            self._size *= 2
            self._sums = {
                one: sums
                for one, sums in self._sums.items()
                if zlib.crc32(one.encode("utf-8", "replace")) % self._size == self._mine
            }

    def end_pass(self) -> bool:
        """A pass is over; whether another one is needed for names that were left."""
        self.distinct += len(self._sums)
        self._kept |= self._sums if not (self._left or self._kept) else self._largest()
        self._sums = {}
        if not self._left:
            return False
        self._size, self._mine = self._left.pop()
        return True

    def _largest(self) -> dict[str, dict[tuple[int, bool], list[float]]]:
        """Those names that may be among the largest of all, of a class, or of the mistakes."""
        kinds = {group for sums in self._sums.values() for group in sums}
        wanted = [kinds, {group for group in kinds if group[1]}]
        wanted += [{group for group in kinds if group[0] == own} for own in sorted({own for own, _ in kinds})]
        largest = [one for own in wanted for one in _top(self._sums, own.__contains__, NAMED)]
        return {one.name: self._sums[one.name] for one in (*largest, *self._strongest(self._sums))}

    def top(self, most: int, wants: Callable[[tuple[int, bool]], bool] = lambda _: True) -> tuple[NameTally, ...]:
        """The names that contributed most, without signs.

        Args:
            most: how many.
            wants: which inputs count: by the number of their class, and whether they are mistakes.
        """
        return _top(self._kept, wants, most)

    def strongest(self) -> tuple[NameTally, ...]:
        """Of names that enough inputs have, those with the largest mean, without signs."""
        return self._strongest(self._kept)

    def _strongest(self, every: Mapping[str, Mapping[tuple[int, bool], list[float]]]) -> tuple[NameTally, ...]:
        found = (_added(name, sums, lambda _: True) for name, sums in every.items())
        enough = (one for one in found if one.inputs >= self.least)
        return tuple(sorted(enough, key=lambda one: (-abs(one.mean), one.name))[:NAMED])

    def of(self, name: str, wants: Callable[[tuple[int, bool]], bool]) -> NameTally:
        """What one name contributed to inputs of some kind."""
        return _added(name, self._kept[name], wants)


def _added(name: str, sums: Mapping[tuple[int, bool], list[float]], wants: Callable[[tuple[int, bool]], bool]) -> NameTally:
    own = [sums[group] for group in sorted(sums) if wants(group)]
    inputs, total, size, positive = (math.fsum(one[i] for one in own) for i in range(4))
    return NameTally(name, int(inputs), total, size, int(positive))


def _top(
    every: Mapping[str, Mapping[tuple[int, bool], list[float]]], wants: Callable[[tuple[int, bool]], bool], most: int
) -> tuple[NameTally, ...]:
    found = (_added(name, sums, wants) for name, sums in every.items())
    return tuple(sorted((one for one in found if one.inputs), key=lambda one: (-one.size, one.name))[:most])


class MapTallies:
    """Attributions of one shape added up, by class, and apart for mistakes."""

    def __init__(self, shape: tuple[int, ...] | None) -> None:
        flat = shape is not None and len(shape) == 3 and shape[0] <= 4  # colours are added up
        self.shape = None if shape is None else shape[-2:] if flat or len(shape) == 2 else None
        if self.shape is not None and min(self.shape) < 2:
            self.shape = None
        self._sums: dict[tuple[int, bool], Floats] = {}
        self._counts: Counter[tuple[int, bool]] = Counter()

    @property
    def total(self) -> int:
        """How many inputs were added up."""
        return self._counts.total()

    def add(self, values: Floats, classes: Integers, wrong: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Add the attributions of some inputs, (inputs, features)."""
        assert self.shape is not None
        maps = np.nan_to_num(values.reshape(len(values), -1, *self.shape).sum(1), nan=0.0, posinf=0.0, neginf=0.0)
        for group in sorted(set(zip(classes.tolist(), wrong.tolist(), strict=True))):
            own = (classes == group[0]) & (wrong == group[1])
            self._sums[group] = self._sums.get(group, 0.0) + maps[own].sum(0)
            self._counts[group] += int(own.sum())

    def mean(self, wants: Callable[[tuple[int, bool]], bool] = lambda _: True) -> Floats | None:
        """The average over inputs of some kind; None if there are none."""
        own = [group for group in sorted(self._sums) if wants(group)]
        count = sum(self._counts[group] for group in own)
        if not count:
            return None
        found: Floats = np.sum([self._sums[group] for group in own], axis=0) / count
        return found


@dataclass(frozen=True)
class TableTallies:
    """What was added up over the rows.

    Attributes:
        features: contributions of named features.
        groups: contributions of named groups.
        maps: attributions of one shape.
        names: the classes, by their numbers.
    """

    features: NameTallies
    groups: NameTallies
    maps: MapTallies
    names: tuple[str, ...]


def least_inputs(total: int) -> int:
    """How many inputs must have a feature for its mean to be listed among the strongest: one in a hundred, five at the least.

    >>> least_inputs(60), least_inputs(5000)
    (5, 50)
    """
    return max(5, total // 100)


def _tallied(reader: TableReader, counts: TableCounts) -> TableTallies:
    shape = reader.layout.shape
    least = least_inputs(counts.total)
    names = tuple(name for name, _ in counts.said.most_common())
    found = TableTallies(NameTallies(least), NameTallies(least), MapTallies(shape), names)
    more = ["status", "prediction"] + ([reader.label] if reader.label is not None else [])
    placed = shape is not None and found.maps.shape is None and math.prod(shape) <= MOST_POSITIONS
    again = True
    first = True
    while again:
        for _, _, rows in reader.batches([*more, "features", "attributions"]):
            classes, wrong = _kinds(reader, rows, counts, found.names)
            if shape is None:
                _add_names(
                    found.features, rows, ("features", "attributions"), classes, wrong, elements=reader.part == "element"
                )
            elif first and (found.maps.shape is not None or placed):
                own, values = _matrix(rows, math.prod(shape))
                if found.maps.shape is not None:
                    found.maps.add(values, classes[own], wrong[own])
                else:
                    _add_places(found.features, values, classes[own], wrong[own])
        first, again = False, found.features.end_pass()
    again = True
    while again:
        for _, _, rows in reader.batches([*more, "groups", "group_sums"]):
            classes, wrong = _kinds(reader, rows, counts, found.names)
            _add_names(found.groups, rows, ("groups", "group_sums"), classes, wrong)
        again = found.groups.end_pass()
    return found


def _kinds(
    reader: TableReader, rows: pa.Table, counts: TableCounts, names: Sequence[str]
) -> tuple[Integers, np.ndarray[Any, np.dtype[np.bool_]]]:
    """The number of each row's class (-1 for none), and whether its prediction is wrong."""
    import pyarrow.compute as pc

    pa = arrow()
    places = pc.index_in(rows["prediction"], value_set=pa.array(names, pa.string()))
    classes = pc.fill_null(places, -1).to_numpy().astype(np.int64)
    if reader.label is None:
        return classes, np.zeros(rows.num_rows, bool)
    true, said = reader.truths(rows, counts.how)
    pairs = zip(true, said, strict=True)
    return classes, np.array([one is not None and other is not None and one != other for one, other in pairs], bool)


def _add_names(
    found: NameTallies,
    rows: pa.Table,
    columns: tuple[str, str],
    classes: Integers,
    wrong: np.ndarray[Any, np.dtype[np.bool_]],
    *,
    elements: bool = False,
) -> None:
    """Add named contributions: what comes twice in an input is added up first."""
    pa = arrow()
    import pyarrow.compute as pc

    names, values = (rows[column].combine_chunks() for column in columns)
    both = pc.fill_null(pc.equal(pc.list_value_length(names), pc.list_value_length(values)), False)
    names, values = pc.filter(names, both), pc.filter(values, both)
    if not len(names):
        return
    own = np.flatnonzero(both.to_numpy(zero_copy_only=False))
    flat = pc.list_flatten(names)
    if elements:
        flat = pc.replace_substring_regex(flat, f"^{_ATOM.pattern}$", r"\1")
    row = own[pc.list_parent_indices(names).to_numpy(zero_copy_only=False).astype(np.int64)]
    value = pc.list_flatten(values).cast("double")
    table = pa.table({"row": row, "name": flat, "value": value})
    table = table.filter(pc.and_(pc.is_valid(flat), pc.fill_null(pc.is_finite(value), False)))
    each = table.group_by(["row", "name"], use_threads=False).aggregate([("value", "sum")])
    at = each["row"].to_numpy()
    sums = each["value_sum"].to_numpy()
    kinds = pa.table(
        {
            "name": each["name"],
            "class": classes[at],
            "wrong": wrong[at],
            "value": sums,
            "size": np.abs(sums),
            "positive": (sums > 0).astype(np.int64),
        }
    )
    how = [("value", "count"), ("value", "sum"), ("size", "sum"), ("positive", "sum")]
    merged = kinds.group_by(["name", "class", "wrong"], use_threads=False).aggregate(how)
    columns_of = ("name", "class", "wrong", "value_count", "value_sum", "size_sum", "positive_sum")
    for name, own_class, bad, inputs, total, size, positive in zip(
        *(merged[one].to_pylist() for one in columns_of), strict=True
    ):
        found.add(name, (own_class, bad), inputs, total, size, positive)


def _matrix(rows: pa.Table, size: int) -> tuple[Integers, Floats]:
    """The rows that have attributions of the same shape, and these."""
    column = rows["attributions"].combine_chunks()
    own = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    values = column.drop_null().flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    return own, values.reshape(len(own), size)


def _add_places(found: NameTallies, values: Floats, classes: Integers, wrong: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    """Add contributions of features that have places and no names."""
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    for group in sorted(set(zip(classes.tolist(), wrong.tolist(), strict=True))):
        own = values[(classes == group[0]) & (wrong == group[1])]
        sums = zip(own.sum(0).tolist(), np.abs(own).sum(0).tolist(), (own > 0).sum(0).tolist(), strict=True)
        for i, (total, size, positive) in enumerate(sums):
            found.add(f"input [{i}]", group, len(own), total, size, positive)


def _classes(counts: TableCounts, tallies: TableTallies) -> tuple[ClassTally, ...]:
    found = []
    for i, (name, inputs) in enumerate(counts.said.most_common()):
        total, known = counts.chances.get(name, (0.0, 0))

        def own(group: tuple[int, bool], i: int = i) -> bool:
            return group[0] == i

        found.append(
            ClassTally(
                name,
                inputs,
                total / known if known else None,
                tallies.features.top(NAMED_OF_CLASS, own),
                tallies.groups.top(NAMED_OF_CLASS, own),
                tallies.maps.mean(own),
            )
        )
    return tuple(found)


def _truth(reader: TableReader, counts: TableCounts, tallies: TableTallies) -> TruthCheck | None:
    if reader.label is None:
        return None
    names = tallies.groups if tallies.groups.distinct else tallies.features
    mistakes = names.top(NAMED_OF_CLASS, lambda group: group[1])
    return TruthCheck(
        reader.label,
        counts.confusion.total(),
        sum(count for (label, said), count in counts.confusion.items() if label == said),
        str(counts.how),
        dict(counts.confusion.most_common()),
        tuple(MistakeTally(one, names.of(one.name, lambda group: not group[1])) for one in mistakes),
        tallies.maps.mean(lambda group: group[1]),
    )


# ---- inputs to look at -------------------------------------------------------------------------------------------------------


def _listed(reader: TableReader, picked: Picked, found: Mapping[str, Distribution], base: Path) -> tuple[ListedInput, ...]:
    """The rows that were picked, by what they are listed for, so that what says most of an input comes first."""
    places = sorted(picked)
    rows: dict[tuple[int, int], Row] = {}
    for part in sorted({part for part, _ in places}):
        own = [row for k, row in places if k == part]
        read = reader.read(part).take(own)
        rows |= {(part, at): row for at, row in zip(own, TableLayout.read(read.schema).rows(read), strict=True)}
    listed = [_one(reader, rows[place], why, found, base) for place, why in picked.items()]  # in each list by rank
    under = _folder_of_all([one.key for one in listed])
    return tuple(sorted((replace(one, under=under) for one in listed), key=_order))


def _folder_of_all(keys: Sequence[str]) -> str:
    """The folder that all keys lie in, with a slash at its end, if they are whole paths: who gets the page need not know it.

    >>> _folder_of_all(["/home/ann/eyes/left/1.jpg", "/home/ann/eyes/2.jpg"]), _folder_of_all(["/1.jpg", "b"])
    ('/home/ann/eyes/', '')
    """
    if not keys or not all(os.path.isabs(key) for key in keys):
        return ""
    try:
        common = os.path.join(os.path.commonpath([os.path.dirname(key) for key in keys]), "")
    except ValueError:  # on several drives
        return ""
    return common if all(key.startswith(common) for key in keys) else ""


def _order(one: ListedInput) -> tuple[float, float]:
    first = one.why[0][0]
    small = first == WORST and one.status in GOOD  # an error within the tolerance
    return REASONS.index(SOME) - 0.5 if small else REASONS.index(first), -max(one.figures.values(), default=0.0)


def _one(reader: TableReader, row: Row, why: Sequence[str], found: Mapping[str, Distribution], base: Path) -> ListedInput:
    far = _far(row, found)
    values = None
    maps = MapTallies(reader.layout.shape).shape
    if row.attributions is not None and row.features is None and maps is not None:
        values = np.asarray(row.attributions, np.float64).reshape(-1, *maps).sum(0)
    elif row.attributions is not None and row.features is None and np.asarray(row.attributions).size <= MOST_POSITIONS:
        flat = np.asarray(row.attributions, np.float64).reshape(-1)
        row = replace(row, features=tuple(f"input [{i}]" for i in range(flat.size)), attributions=flat)
    own = {name: getattr(row, name) for name in COLUMN_NAMES if name in _LISTED_FIELDS}
    return ListedInput(
        **own,
        why=tuple((reason, _particular(reason, row, far, found)) for reason in _most_telling(why, row)),
        figures={name: distance for name, (_, distance) in far.items()},
        label=None if reader.label is None else _label(row.columns.get(reader.label)),
        features=_strongest(row.features, row.attributions),
        groups=_strongest(row.groups, row.group_sums),
        values=values,
        columns={name: _shown(value) for name, value in row.columns.items() if value is not None},
        link=_link(row, base),
        about=_about(reader, row),
    )


def _far(row: Row, found: Mapping[str, Distribution]) -> dict[str, tuple[float, float]]:
    """The figures of a row that are far from the rest: value and distance, the farthest first."""
    if not row.ok:
        return {}
    change = None if row.score is None or row.baseline_score is None else abs(row.score - row.baseline_score)
    ratio = row.error / row.tol if row.error is not None and row.tol and row.status != "exact" else None
    values = (ratio, row.evaluations or None, row.probability, row.score, change, row.magnitude)
    known = {name: np.array([math.nan if value is None else value]) for name, value in zip(FIGURES, values, strict=True)}
    away = {name: (float(known[name][0]), float(each[0])) for name, each in distances(known, found).items()}
    return dict(sorted((item for item in away.items() if item[1][1] >= FAR), key=lambda item: -item[1][1]))


def _most_telling(why: Sequence[str], row: Row) -> list[str]:
    """Why an input is listed, the reason that says most of it first: an error that is within the tolerance says little."""
    met = row.status in GOOD
    return sorted(why, key=lambda reason: (met and reason == WORST, REASONS.index(reason)))


def _particular(why: str, row: Row, far: Mapping[str, tuple[float, float]], found: Mapping[str, Distribution]) -> str:
    """What is particular about an input that is listed for a reason."""
    if why == WORST:
        known = "not known" if row.error is None else percent(row.error)
        return f"error {known}" + (f", asked for {percent(row.tol)}" if row.tol else "")
    if why == FAR_OFF:
        return "; ".join(
            f"{name} {number(value, 3)}, usually {found[name].usual}" for name, (value, _) in list(far.items())[:2]
        )
    return ""


_LISTED_FIELDS = {one.name for one in fields(ListedInput)} - {"features", "groups"}


def _shown(value: object) -> str:
    """What an input brought along, for people."""
    return number(value, 6) if isinstance(value, float) else shortened(str(value), 300)


def _strongest(names: Sequence[str] | None, values: Any) -> tuple[tuple[str, float], ...]:
    if names is None or values is None or len(names) != len(values):
        return ()
    known = [
        (str(name), float(value))
        for name, value in zip(names, values, strict=True)
        if value is not None and math.isfinite(value)
    ]
    return tuple(sorted(known, key=lambda one: -abs(one[1]))[:STRONGEST])


def _about(reader: TableReader, row: Row) -> str:
    """What an input is, in its own words, where its key is only its place; of a text that did not come along, its words."""
    if not row.key.isdecimal():
        return ""
    told = next((value for name in ABOUT if isinstance(value := row.columns.get(name), str)), "")
    words = " ".join(map(str, row.features)) if not told and row.features and reader.part == "word" else ""
    return shortened(told or words, 200)


def _link(row: Row, base: Path) -> str:
    """The page of an input, if its application has said where it is and it is there; never anything outside the folder."""
    try:
        told = json.loads(row.details or "{}")
    except (ValueError, RecursionError):
        told = {}
    known = [row.columns.get("page"), *(told.get(name) for name in ("page", "link") if isinstance(told, dict))]
    page = next((one for one in known if isinstance(one, str) and one.endswith(".html")), None)
    if page is None:
        return ""
    inside = base.resolve()
    for name in (page, unquote(page)):
        try:
            place = (base / name).resolve()
            if place.is_relative_to(inside) and place.is_file():
                return quote(place.relative_to(inside).as_posix())
        except (OSError, ValueError):
            continue
    return ""
