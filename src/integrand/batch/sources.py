"""Where inputs come from: anything that can be gone through, a DataLoader, a data set, a folder, a table in a file.

:func:`inputs_of` turns any of these into a stream of :class:`KeyedInput`. What cannot be read is an input with a problem: it
becomes a row with that problem, and the run goes on.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from ..errors import FileError, IntegrandError, OptionError
from ..files import reading
from ..words import first_line, shortened, shown
from .rows import Column, arrow

Key = str | Callable[[Any], object] | None
"""What tells inputs apart: the name of a column, a function of the input, or None for its place (the path, for files)."""

TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".csv.gz", ".tsv.gz", ".jsonl.gz")
"""The endings of files that are tables of inputs."""

LONGEST_LINE = 1 << 26
"""The most characters of a line of a table: a longer one would be held in memory as a whole."""


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
    source: object, *, key: Key = None, column: str | None = None, carry: Sequence[str] = ()
) -> tuple[Iterator[KeyedInput], int | None]:
    """The inputs of a source, and how many they are (None if that is not known).

    Args:
        source: an iterable, a sequence, a mapping from keys to inputs, a ``torch.utils.data`` DataLoader or Dataset, a Hugging
            Face data set, a folder, or a file that ends in one of :data:`TABLES`.
        key: what tells inputs apart.
        column: where inputs are rows, the one that is explained; None for the row itself, as a dict.
        carry: where inputs are rows, further columns that are carried into the table.
    """
    found = source_of(source)
    return _keyed(found, key, column, carry), found.total


def _keyed(source: InputSource, key: Key, column: str | None, carry: Sequence[str]) -> Iterator[KeyedInput]:
    first = True
    for item, problem, place in source.each():
        if problem:
            yield KeyedInput(place, None, {}, problem)
            continue
        try:
            one = _one(item, place, key, column, carry)
        except OptionError as error:
            if first:  # a mistake in the call; later, one in the data
                raise
            one = KeyedInput(place, None, {}, str(error))
        first = False
        yield one


def _one(item: Any, place: str, key: Key, column: str | None, carry: Sequence[str]) -> KeyedInput:
    """An input with its key, what is explained of it, and what it brings along."""
    row = item if isinstance(item, Mapping) else {}
    missing = [name for name in (*(n for n in (key, column) if isinstance(n, str)), *carry) if name not in row]
    if missing:
        have = ", ".join(shortened(shown(str(name)), 40) for name in list(row)[:20]) or f"a {type(item).__name__}"
        raise OptionError(f"got the column {missing[0]!r}, which input {place} does not have; expected one of: {have}.")
    columns = {name: plain(row[name]) for name in carry}
    try:
        named = place if key is None else row[key] if isinstance(key, str) else key(item)
    except IntegrandError:
        raise
    except Exception as error:  # the user's function, on an input that is not as it should be
        return KeyedInput(place, None, columns, f"its key cannot be told ({type(error).__name__}: {first_line(error)})")
    named = plain(named)
    if named is None or (isinstance(named, float) and math.isnan(named)) or str(named) == "":
        return KeyedInput(place, None, columns, "it has no key: the value that should tell it from all others is empty")
    return KeyedInput(str(named), item if column is None else row[column], columns)


def plain(value: Any) -> Any:
    """A value of a column: numbers of numpy and torch as Python has them, everything that is no number as text."""
    if isinstance(value, Tensor) or hasattr(value, "dtype"):
        value = value.item() if getattr(value, "ndim", 0) == 0 else value.tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def source_of(source: object) -> InputSource:
    """Find out what a source is."""
    if isinstance(source, (str, Path)):
        return _on_disk(Path(source))
    if isinstance(source, InputSource):
        return source
    if isinstance(source, torch.utils.data.DataLoader):
        return _loaded(source)
    if isinstance(source, Mapping):
        return InputSource(lambda: ((item, "", str(name)) for name, item in source.items()), len(source))
    if isinstance(source, Tensor) and not source.ndim:
        raise OptionError("got a tensor that is a single number as the source; expected one with an input in each row.")
    if isinstance(source, Tensor) or (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        return _indexed(source)
    if isinstance(source, Iterable):
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

    def each() -> Iterator[tuple[Any, str, str]]:
        for i in range(len(source)):
            try:
                item, problem = source[i], ""
            except IndexError:
                return
            except Exception as error:
                item, problem = None, f"it cannot be read ({type(error).__name__}: {first_line(error)})"
            yield item, problem, str(i)

    return InputSource(each, len(source))


def _loaded(loader: Any) -> InputSource:
    """The examples of a DataLoader's batches, one by one; where a batch cannot be loaded, its examples are tried alone."""
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, torch.utils.data.RandomSampler):
        raise OptionError(
            "got a DataLoader that shuffles, so that the place of an input is another one in every run; expected "
            "shuffle=False, or the data set itself."
        )

    def each() -> Iterator[tuple[Any, str, str]]:
        place = count()
        batches = iter(loader)
        plan = iter(loader.batch_sampler) if getattr(loader, "batch_sampler", None) is not None else None
        while True:
            chosen = None if plan is None else next(plan, None)
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception as error:
                if chosen is None:
                    raise FileError(f"the DataLoader cannot go on ({type(error).__name__}: {first_line(error)}).") from error
                for index in chosen:
                    try:
                        one = loader.collate_fn([loader.dataset[index]])
                        yield next(_examples(one)), "", str(next(place))
                    except Exception as why:
                        yield None, f"it cannot be read ({type(why).__name__}: {first_line(why)})", str(next(place))
                continue
            for item in _examples(batch):
                yield item, "", str(next(place))

    total = _length(getattr(loader, "dataset", loader))
    return InputSource(each, None if total is None or getattr(loader, "drop_last", False) else total)


def _examples(batch: Any) -> Iterator[Any]:
    """The examples of a collated batch, each in the structure of the batch."""
    if isinstance(batch, Mapping):
        parts = [list(_examples(part)) for part in batch.values()]
        yield from (dict(zip(batch, values, strict=True)) for values in zip(*parts, strict=True))
    elif isinstance(batch, tuple) or (
        isinstance(batch, list) and batch and isinstance(batch[0], (Tensor, Mapping, tuple, list))
    ):
        parts = [list(_examples(part)) for part in batch]
        yield from zip(*parts, strict=True)
    else:
        yield from batch


def _on_disk(path: Path) -> InputSource:
    """The files of a folder, or the rows of a table."""
    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.is_file() and not _hidden(one.relative_to(path)))
        places = [(one, one.relative_to(path).as_posix()) for one in files]
        return InputSource(lambda: ((file, "", place) for file, place in places), len(files), "files")
    name = path.name.lower()
    readers: dict[str, Callable[[Path], Iterator[tuple[Any, str]]]] = {
        ".parquet": _parquet,
        ".csv": lambda one: _delimited(one, ","),
        ".tsv": lambda one: _delimited(one, "\t"),
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
    }
    read = readers.get(Path(name.removesuffix(".gz")).suffix)
    if read is None or not path.exists():
        problem = "is not there" if not path.exists() else "has another ending"
        raise FileError(f"{shown(str(path))} {problem}; expected a folder, or a file that ends in {', '.join(TABLES)}.")
    total = arrow().parquet.read_metadata(path).num_rows if name.endswith(".parquet") else None
    return InputSource(lambda: ((row, why, str(i)) for i, (row, why) in enumerate(read(path))), total, "rows")


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _parquet(path: Path) -> Iterator[tuple[Any, str]]:
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                yield from ((row, "") for row in batch.to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise FileError(f"{shown(str(path))} cannot be read ({first_line(error)}); expected a Parquet file.") from None


def _text(path: Path, file: IO[bytes]) -> IO[str]:
    raw: Any = gzip.GzipFile(fileobj=file) if path.name.lower().endswith(".gz") else file
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")


def _delimited(path: Path, delimiter: str) -> Iterator[tuple[Any, str]]:
    """The rows of a table of text; one with more or fewer cells than the heading has is a problem of its own."""
    with reading(path, what="a table") as file, _text(path, file) as text:
        rows = csv.reader(text, delimiter=delimiter)
        try:
            heading = next(rows, None)
            if not heading:
                raise FileError(f"{shown(str(path))} is empty; expected a table with a heading.")
            for cells in rows:
                if len(cells) == len(heading):
                    yield dict(zip(heading, cells, strict=True)), ""
                elif cells:
                    yield None, f"it has {len(cells)} cells; expected {len(heading)}, as the heading has"
        except (csv.Error, EOFError, gzip.BadGzipFile) as error:
            raise FileError(f"{shown(str(path))} cannot be read ({first_line(error)}); expected a table.") from None


def _json_lines(path: Path) -> Iterator[tuple[Any, str]]:
    """The objects of a file with one on each line."""
    with reading(path, what="a file with a JSON object on each line") as file, _text(path, file) as text:
        while line := text.readline(LONGEST_LINE):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield None, f"it is no JSON ({first_line(error)})"
                continue
            yield (row, "") if isinstance(row, dict) else (None, f"it is a {type(row).__name__}; expected an object: {{...}}")
