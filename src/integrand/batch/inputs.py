"""Where inputs come from: anything that can be gone through, a DataLoader, a data set, a folder, a table in a file.

:func:`inputs_of` turns any of these into a stream of :class:`KeyedInput`. What cannot be read is an input with a problem: it
becomes a row with that problem, and the run goes on.
"""

from __future__ import annotations

import csv
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..bounded_reading import MAX_ROW, RowLines, TextLines, bounded_text
from ..errors import FileError, IntegrandError, OptionError
from ..schema import parsed
from ..words import first_line, shortened, shown
from .parquet_files import BLOCK, parquet_rows, row_count
from .rows import Column, check_columns, key_text, plain
from .table import FILES, MANIFEST

Key = str | Callable[[Any], object] | None
"""What tells inputs apart: the name of a column, a function of the input, or None for its place (the path, for files)."""

TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".csv.gz", ".tsv.gz", ".jsonl.gz")
"""The endings of files that are tables of inputs."""


@dataclass(frozen=True)
class KeyedInput:
    """One input.

    Attributes:
        key: what tells it from all others.
        item: what is explained; None if there is a problem.
        columns: what it brought along and is to be carried into the table.
        problem: why it cannot be explained; empty if it can.
    """

    key: str
    item: Any
    columns: Mapping[str, Column] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class InputSource:
    """Inputs that can be gone through, again and again if their source allows it.

    Attributes:
        each: begins a stream of inputs: item, and what is wrong with it ('' for nothing), and its place.
        total: how many they are; None if that is not known.
        what: what they are called, for messages.
    """

    each: Callable[[], Iterator[tuple[Any, str, str]]]
    total: int | None
    what: str = "inputs"


def inputs_of(
    source: object, *, key: Key = None, column: str | None = None, carry: Sequence[str] | Mapping[str, str] = ()
) -> tuple[Iterator[KeyedInput], int | None]:
    """The inputs of a source, and how many they are (None if that is not known).

    Args:
        source: an iterable, a sequence, a mapping from keys to inputs, a ``torch.utils.data`` DataLoader or Dataset, a Hugging
            Face data set, a folder, or a file that ends in one of :data:`TABLES`.
        key: what tells inputs apart.
        column: where inputs are rows, the one that is explained; None for the row itself, as a dict.
        carry: where inputs are rows, further columns that are carried into the table; a mapping gives them other names there.
    """
    if isinstance(carry, str):
        raise OptionError(f"got carry={carry!r}; expected a list of columns: carry=[{carry!r}].")
    named = dict(carry) if isinstance(carry, Mapping) else {name: name for name in carry}
    check_columns(named.values())
    found = source_of(source)
    return _keyed(found, key, column, named), found.total


DOUBTFUL = 64
"""Inputs in a row, from the first on, without a column that was asked for, after which that is a mistake in the call."""


def _keyed(source: InputSource, key: Key, column: str | None, carry: Mapping[str, str]) -> Iterator[KeyedInput]:
    """The inputs of a source with their keys; an input without one gets its place, told apart from other inputs' keys."""
    waiting: list[KeyedInput] = []
    doubt: OptionError | None = None
    settled = False  # an input had all that was asked for: what others lack is a mistake in the data, not in the call
    for item, problem, place in source.each():
        own = place if key is None else f"input {place} of the source"
        lacks = _lacking(item, place, carry) if carry and not problem else None  # null in the table, where others have it
        try:
            one = KeyedInput(own, None, {}, problem) if problem else _one(item, place, own, key, column, carry)
        except OptionError as error:
            lacks = lacks or error
            one = KeyedInput(own, None, {}, str(error))
        doubt = doubt or lacks
        waiting.append(one)
        settled = settled or (not one.problem and lacks is None)
        if settled or doubt is None:
            yield from waiting
            waiting = []
        elif len(waiting) == DOUBTFUL:
            raise doubt
    if waiting and doubt is not None:
        raise doubt


def _lacking(item: Any, place: str, names: Iterable[str]) -> OptionError | None:
    """The error that an input does not have a column of these names; None if it has all."""
    row = item if isinstance(item, Mapping) else {}
    missing = next((name for name in names if name not in row), None)
    if missing is None:
        return None
    have = ", ".join(shortened(shown(str(name)), 40) for name in list(row)[:20]) or f"a {type(item).__name__}"
    return OptionError(f"got the column {missing!r}, which input {place} does not have; expected one of: {have}.")


def _one(item: Any, place: str, own: str, key: Key, column: str | None, carry: Mapping[str, str]) -> KeyedInput:
    """An input with its key, what is explained of it, and what it brings along."""
    row = item if isinstance(item, Mapping) else {}
    asked = [name for name in (key, column) if isinstance(name, str)]
    if asked and (lacks := _lacking(item, place, asked)):
        raise lacks
    columns = {name: plain(row.get(of)) for of, name in carry.items()}
    try:
        named = place if key is None else row[key] if isinstance(key, str) else key(item)
        if (named := plain(named)) is None or (isinstance(named, float) and math.isnan(named)) or (text := str(named)) == "":
            return KeyedInput(own, None, columns, "it has no key: the value that should tell it from all others is empty")
    except IntegrandError:
        raise
    except Exception as error:  # the user's function, on an input that is not as it should be; a number without end
        return KeyedInput(own, None, columns, f"its key cannot be told ({type(error).__name__}: {first_line(error)})")
    return KeyedInput(key_text(text), item if column is None else row[column], columns)


def source_of(source: object) -> InputSource:
    """Find out what a source is."""
    if isinstance(source, (str, Path)):
        return _on_disk(Path(source))
    if isinstance(source, InputSource):
        return source
    if isinstance(source, torch.utils.data.DataLoader):
        return _loaded(source)
    if isinstance(source, Mapping):
        if source and all(hasattr(part, "column_names") for part in source.values()):
            splits = ", ".join(map(str, source))
            raise OptionError(f"got a data set with the splits {splits}; expected one: data[{next(iter(source))!r}].")
        return InputSource(lambda: ((item, "", key_text(str(name))) for name, item in source.items()), len(source))
    if getattr(source, "ndim", 1) == 0:
        raise OptionError("got a single number as the source; expected an array with an input in each row.")
    if isinstance(source, (set, frozenset)):
        raise OptionError("got a set as the source, whose order is another one in every run; expected a list: sorted(...).")
    if (rows := _framed(source)) is not None:
        return rows
    numbered = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if numbered and not isinstance(source, (bytes, bytearray, torch.utils.data.IterableDataset)):
        return _indexed(source)
    if isinstance(source, Iterable) and not isinstance(source, (bytes, bytearray)):
        return InputSource(lambda: ((item, "", str(i)) for i, item in enumerate(source)), _length(source))
    raise OptionError(
        f"got a {type(source).__name__} as the source; expected something to go through (a list, a DataLoader, a data set), a "
        f"folder, or a file that ends in {', '.join(TABLES)}."
    )


def _length(source: object) -> int | None:
    try:
        return len(source)  # type: ignore[arg-type]
    except TypeError:
        return None


def _indexed(source: Any) -> InputSource:
    """Inputs by their numbers: one that cannot be read does not end the run."""
    by_place = getattr(source, "iloc", source)  # a Series of pandas has labels of its own, which after a filter have gaps

    def each() -> Iterator[tuple[Any, str, str]]:
        for i in range(len(source)):
            try:
                item, problem = by_place[i], ""
            except Exception as error:
                item, problem = None, f"it cannot be read ({type(error).__name__}: {first_line(error)})"
            yield item, problem, str(i)

    return InputSource(each, len(source))


def _loaded(loader: Any) -> InputSource:
    """The examples of a DataLoader's batches, one by one; where a batch cannot be loaded, its examples are tried alone."""
    random = (torch.utils.data.RandomSampler, torch.utils.data.SubsetRandomSampler, torch.utils.data.WeightedRandomSampler)
    samplers = (loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None))
    if any(isinstance(sampler, random) for sampler in samplers):
        raise OptionError(
            "got a DataLoader that shuffles, so that the place of an input is another one in every run; expected "
            "shuffle=False, or the data set itself."
        )
    alone = loader.batch_sampler is None  # batch_size=None: what comes is single examples
    streamed = isinstance(loader.dataset, torch.utils.data.IterableDataset)

    def each() -> Iterator[tuple[Any, str, str]]:
        batches = iter(loader)
        try:
            yield from examples(batches)
        finally:  # or the garbage collector ends the workers, after an error in one of them, and waits five seconds for each
            end = None if loader.persistent_workers else getattr(batches, "_shutdown_workers", None)
            if end is not None:
                end()

    def examples(batches: Iterator[Any]) -> Iterator[tuple[Any, str, str]]:
        place = count()
        plan = None if streamed else iter(([one] for one in loader.sampler) if alone else loader.batch_sampler)
        while True:
            chosen = None if plan is None else next(plan, None)
            if plan is not None and chosen is None:
                return
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception as error:
                if chosen is None:
                    raise FileError(f"the DataLoader cannot go on ({type(error).__name__}: {first_line(error)}).") from error
                for index in chosen:
                    yield *_alone(loader, index, alone), str(next(place))
                continue
            for item in [batch] if alone else _examples(batch, None if chosen is None else len(chosen)):
                yield item, "", str(next(place))

    total = _length(loader.dataset)
    return InputSource(each, None if total is None or getattr(loader, "drop_last", False) else total)


def _alone(loader: Any, index: Any, alone: bool) -> tuple[Any, str]:
    """One example of a batch that could not be loaded, and what is wrong with it."""
    try:
        one = loader.dataset[index]
        return (loader.collate_fn(one) if alone else next(_examples(loader.collate_fn([one]), 1))), ""
    except Exception as error:
        return None, f"it cannot be read ({type(error).__name__}: {first_line(error)})"


def _examples(batch: Any, expected: int | None) -> Iterator[Any]:
    """The examples of a batch of a DataLoader, each in the structure of the batch.

    Args:
        batch: what it gave.
        expected: how many examples it has; None if that is not known.
    """
    try:
        found = list(_split(batch))
    except (TypeError, ValueError) as error:
        found, why = [], f" ({first_line(error)})"
    else:
        why = ""
    if expected is not None and len(found) != expected:
        if isinstance(batch, (list, tuple)) and len(batch) == expected:  # a collate_fn that leaves examples as they are
            found = list(batch)
        else:
            raise OptionError(
                f"got a batch of the DataLoader with {len(found)} examples{why}; expected {expected}, each with a row in every "
                "part of the batch. Give the data set itself, or a collate_fn that gives a list of examples."
            )
    yield from found


def _split(batch: Any) -> Iterator[Any]:
    """What a collated batch holds, example by example."""
    if isinstance(batch, Mapping):
        parts = [list(_split(part)) for part in batch.values()]
        yield from (dict(zip(batch, values, strict=True)) for values in zip(*parts, strict=True))
    elif isinstance(batch, tuple) or (
        isinstance(batch, list) and batch and isinstance(batch[0], (Tensor, Mapping, tuple, list))
    ):
        parts = [list(_split(part)) for part in batch]
        yield from zip(*parts, strict=True)
    else:
        yield from batch


def _framed(source: Any) -> InputSource | None:
    """The rows of a table in memory, of pandas or Arrow, as dicts; None if it is none."""
    if hasattr(source, "iloc") and hasattr(source, "to_dict") and hasattr(source, "columns"):  # pandas

        def rows(begin: int) -> list[dict[str, Any]]:
            return list(source.iloc[begin : begin + BLOCK].to_dict("records"))

    elif hasattr(source, "to_pylist") and hasattr(source, "column_names"):  # Arrow

        def rows(begin: int) -> list[dict[str, Any]]:
            return list(source.slice(begin, BLOCK).to_pylist())

    else:
        return None

    def each() -> Iterator[tuple[Any, str, str]]:
        for begin in range(0, len(source), BLOCK):
            yield from ((row, "", str(begin + i)) for i, row in enumerate(rows(begin)))

    return InputSource(each, len(source), "rows")


def _on_disk(path: Path) -> InputSource:
    """The files of a folder, or the rows of a table."""
    if path.is_dir():
        return InputSource(lambda: _files(path), sum(1 for _ in _files(path)), "files")
    name = path.name.lower()
    readers: dict[str, Callable[[Path], Iterator[tuple[Any, str]]]] = {
        ".parquet": parquet_rows,
        ".csv": lambda one: _delimited(one, ","),
        ".tsv": lambda one: _delimited(one, "\t"),
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
    }
    read = readers.get(Path(name.removesuffix(".gz")).suffix)
    if read is None or not path.exists():
        problem = "is not there" if not path.exists() else "has another ending"
        raise FileError(f"{shown(str(path))} {problem}; expected a folder, or a file that ends in {', '.join(TABLES)}.")
    total = row_count(path) if name.endswith(".parquet") else None
    return InputSource(lambda: ((row, why, str(i)) for i, (row, why) in enumerate(read(path))), total, "rows")


def _files(folder: Path, under: str = "") -> Iterator[tuple[Any, str, str]]:
    """The files in a folder and below it, in the order of their names; what is hidden, or a table of ours, is left out."""
    try:
        inside = sorted(os.scandir(folder / under), key=lambda one: one.name)
    except OSError as error:
        yield None, f"the folder cannot be read ({error.strerror or error})", key_text(under or ".")
        return
    ours = any(one.name == MANIFEST for one in inside)
    if ours and under:
        return
    for one in inside:
        place = f"{under}/{one.name}" if under else one.name
        if one.name.startswith(".") or (ours and (one.name in (MANIFEST, FILES) or one.name.startswith("part-"))):
            continue
        if one.is_dir(follow_symlinks=False):
            yield from _files(folder, place)
        elif one.is_file():
            yield folder / place, "", key_text(place)
        elif one.is_symlink():
            to = "a folder, which is not gone into; give that folder itself" if one.is_dir() else "nothing that is there"
            yield None, f"it is a link to {to}", key_text(place)


def _not_text(text: str) -> str:
    """What is wrong with a text that has bytes which are no UTF-8; empty if it has none."""
    if text.isascii():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it has letters that are not UTF-8; save the file as UTF-8"
    return ""


def _delimited(path: Path, delimiter: str) -> Iterator[tuple[Any, str]]:
    """The rows of a table of text; one with more or fewer cells than the heading has is a problem of its own."""
    with bounded_text(path, what="a table") as text:
        lines = RowLines(text, delimiter)
        rows = csv.reader(lines, delimiter=delimiter)
        heading, why = _cells(rows)
        if why or not heading:
            said = f" that can be read ({why})" if why else ""
            raise FileError(f"{shown(str(path))} has no heading{said}; expected a table with one in its first line.")
        if len(set(heading)) < len(heading):
            twice = next(name for name, count in Counter(heading).items() if count > 1)
            raise FileError(f"{shown(str(path))} has two columns {shown(twice)!r}; expected one of each name. Rename one.")
        while True:
            lines.begin()
            cells, why = _cells(rows)
            if cells is None and not why:
                return
            if cells is not None and lines.ended:  # more was wanted than there is
                why = f"a quotation mark in it is never closed, so that the {lines.taken:,} lines to the end are one row"
            if not why and cells and len(cells) != len(heading):
                why = f"it has {len(cells)} cells; expected {len(heading)}, as the heading has"
            if why:
                yield None, why
            elif cells:
                yield dict(zip(heading, cells, strict=True)), ""


def _cells(rows: Any) -> tuple[list[str] | None, str]:
    """The next row of a table of text, None at its end, and what is wrong with it."""
    before = csv.field_size_limit(MAX_ROW)  # the module's own limit is less than a page of text
    try:
        cells = next(rows, None)
    except csv.Error as error:
        return None, f"it cannot be read ({first_line(error)})"
    finally:
        csv.field_size_limit(before)
    return cells, next((why for cell in cells or () if (why := _not_text(cell))), "")


def _json_lines(path: Path) -> Iterator[tuple[Any, str]]:
    """The objects of a file with one on each line."""
    with bounded_text(path, what="a file with a JSON object on each line") as text:
        lines = TextLines(text)
        while True:
            try:
                line = next(lines, "")
            except csv.Error as error:
                yield None, f"it cannot be read ({error})"
                continue
            if not line:
                return
            if not line.strip():
                continue
            if why := _not_text(line):
                yield None, why
                continue
            try:
                row = parsed(line, what="the line", once=False)
            except FileError as error:
                yield None, f"it is no JSON ({error})"
                continue
            yield (row, "") if isinstance(row, dict) else (None, f"it is a {type(row).__name__}; expected an object: {{...}}")
