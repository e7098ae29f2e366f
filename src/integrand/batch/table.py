"""The table of many inputs: a folder of Parquet parts that a kill at any moment leaves whole.

::

    out/
      part-000001.parquet ...   the rows, in the order of the inputs as they were explained
      _manifest.json            what was done, and everything that a result depends on beside its input
      _attributions/            a file for each input, where attributions are too large for a row

Readers of Parquet folders (pandas, DuckDB, Ray) pass by what begins with an underscore. A part is written aside, brought to the
disk and renamed, so that it is there as a whole or not at all. Several parts may hold a row for the same input for a moment (a
failure that was tried again, a merge of small parts that was killed): :func:`tidy`, where every run begins and ends, leaves
one, and a success rather than a failure.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..bounded_reading import file_stamp
from ..errors import FileError, OptionError
from ..files import locked, read_bytes, ready, remove, replacing, write_bytes
from ..version import generator
from ..words import byte_size, first_line, shortened, shown
from .parquet_files import BLOCK, OpenParquet, parquet_file, row_count
from .rows import FAILED, KEEPING, Keeping, Row, TableLayout, arrow, check_columns, key_text

if TYPE_CHECKING:
    import pyarrow as pa

    from .table_summary import TableSummary

T = TypeVar("T")

MANIFEST = "_manifest.json"
"""The file that says what a folder of parts was made with."""

FILES = "_attributions"
"""The folder of the files of single inputs."""

FORMAT = 1
"""Version of the manifest and the columns; a folder with another number is refused."""

PART_BYTES = 32 << 20
"""The bytes after which rows that wait in memory are written as a part; also of parts that are merged, unpacked."""

ROW_BYTES = 1000
"""The bytes that a row takes in memory beside its numbers and texts."""

PART_SECONDS = 5.0
"""The seconds after which rows that wait in memory are written: what a kill can cost, beside the inputs at hand."""

LARGEST_MANIFEST = 64 << 20
"""The most bytes of a manifest: it may hold a list of thousands of targets."""

_PART = re.compile(r"part-(\d{6,9})\.parquet")
_FILE = re.compile(r"[0-9a-f]{32}\.safetensors")


def fingerprint(settings: Mapping[str, Any]) -> str:
    """A text of 64 characters that differs where settings differ. Values that JSON does not know count by their ``str``."""
    return hashlib.sha256(_canonical(settings).encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(settings: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(dict(settings), default=str))  # names of settings are texts from here on, and sort as such
    return json.dumps(plain, sort_keys=True)


@dataclass(frozen=True)
class Manifest:
    """What a folder of parts was made with.

    Attributes:
        settings: everything that a row depends on beside its input, as JSON values.
        keep: how attributions are kept.
        title: what the run is about, for pages.
    """

    settings: Mapping[str, Any]
    keep: Keeping = "auto"
    title: str = ""

    @property
    def fingerprint(self) -> str:
        """Differs where the settings differ."""
        return fingerprint(self.settings)

    @staticmethod
    def read(folder: Path) -> Manifest:
        """The manifest of a folder.

        Raises:
            FileError: there is none, or it is not as it was written.
        """
        place = folder / MANIFEST
        if not place.is_file():
            raise FileError(
                f"{shown(str(folder))} has no {MANIFEST}; expected a folder that integrand.explain_many or a command wrote."
            )
        raw = read_bytes(place, what="a manifest", most=LARGEST_MANIFEST)
        try:
            found = json.loads(raw)
            if (number := found["format"]) != FORMAT:
                raise FileError(f"{shown(str(place))} has format {number!r}; expected {FORMAT}. Begin in another folder.")
            settings, keep, title = (found[name] for name in ("settings", "attributions", "title"))
            if not isinstance(settings, dict) or keep not in KEEPING or not isinstance(title, str):
                raise TypeError("its parts are not what they should be")
            if found["fingerprint"] != fingerprint(settings):
                raise ValueError("its settings are not those of its fingerprint")
        except FileError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FileError(
                f"{shown(str(place))} is damaged ({first_line(error)}); expected it as it was written. Put it back, or begin "
                "in another folder."
            ) from None
        return Manifest(settings, keep, title)

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        said = {
            "format": FORMAT,
            "made by": generator(),
            "title": self.title,
            "fingerprint": self.fingerprint,
            "attributions": self.keep,
            "settings": json.loads(_canonical(self.settings)),
        }
        raw = (json.dumps(said, indent=1) + "\n").encode()
        if len(raw) > LARGEST_MANIFEST:
            raise OptionError(
                f"got settings of {byte_size(len(raw))} for a table; expected at most {byte_size(LARGEST_MANIFEST)}. Pass "
                "large values as arrays, of which a digest is kept."
            )
        write_bytes(folder / MANIFEST, raw)

    def check_same(self, other: Manifest, folder: Path) -> None:
        """Refuse to add rows to a table that was made with other settings; the error says what differs.

        Args:
            other: the manifest of the rows that are to be added.
            folder: where the table is.
        """
        mine, theirs = (flattened(json.loads(_canonical({**one.settings, "attributions": one.keep}))) for one in (self, other))
        apart = [name for name in {**mine, **theirs} if _text(mine, name) != _text(theirs, name)]
        if not apart:
            return
        said = list(dict.fromkeys(_difference(name, mine, theirs) for name in apart))
        more = f", and {len(said) - 5} more" if len(said) > 5 else ""
        raise OptionError(
            f"{shown(str(folder))} holds results of another run: got {', '.join(said[:5])}{more}. Expected the same settings, "
            "for rows of one table must be comparable. Choose another folder, or run with the settings of this one."
        )


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level of names with dots; lists of settings too, with a number for each.

    >>> flattened({"tol": 0.01, "model": {"weights": "abc"}, "size": [2, 3], "all": [{"a": 1}]})
    {'tol': 0.01, 'model.weights': 'abc', 'size': [2, 3], 'all.1.a': 1}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, list) and any(isinstance(part, dict) for part in value):
            value = {str(i): part for i, part in enumerate(value, 1)}
        if isinstance(value, dict) and value:
            found |= flattened(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


_SAID = {
    "weights": "other weights of the network",
    "structure": "another structure of the network",
    "code": "other code",
    "digest": "other data",
}
"""How a difference is told whose values are digests, which say nothing to a reader, by the last part of its name."""


def _difference(name: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """How a setting differs, in words."""
    owner, _, last = name.rpartition(".")
    if last in _SAID and name in mine and name in theirs:
        at = ".".join(part for part in owner.split(".") if part and not part.isdigit() and part != last)
        return f"{_SAID[last]} ({shown(at)})" if at and last in ("code", "digest") else _SAID[last]
    return f"{shown(name)} {_told(theirs, name)} (there: {_told(mine, name)})"


def _text(settings: Mapping[str, Any], name: str) -> str:
    return json.dumps(settings[name]) if name in settings else ""


def _told(settings: Mapping[str, Any], name: str) -> str:
    return shortened(shown(json.dumps(settings[name])), 40) if name in settings else "nothing"


# ---- parts -------------------------------------------------------------------------------------------------------------------


def parts_of(folder: Path) -> list[Path]:
    """The parts in a folder, in order."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _PART.fullmatch(path.name))]
    return [path for number, path in sorted(found) if path.name == part_name(number)]


def part_name(number: int) -> str:
    """The file of the part of this number."""
    return f"part-{number:06d}.parquet"


def write_part(path: Path, table: pa.Table) -> None:
    """Write a part, which appears under its name when all of it is on the disk."""
    parquet = arrow().parquet
    with replacing(path) as part, part.open("wb") as file:  # opened here: Arrow takes no names that are not UTF-8
        parquet.write_table(table, file, compression="zstd", write_page_checksum=True)


@contextmanager
def _part(path: Path) -> Iterator[tuple[OpenParquet, TableLayout]]:
    """Open a part whose columns are those of a table of ours, and have the types of its layout."""
    advice = " Move it away: the same run then explains its inputs again."
    with parquet_file(path, what="a part as it was written", advice=advice) as opened:
        schema = opened.schema
        layout = TableLayout.read(schema)
        if wrong := [part.name for part in layout.schema() if part.name in schema.names and schema.field(part.name) != part]:
            raise ValueError(f"its column {shown(wrong[0])} is a {shown(str(schema.field(wrong[0]).type))}")
        yield opened, layout


def read_part(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a part, or some of its columns.

    Raises:
        FileError: the part cannot be read; the message says what to do.
    """
    with _part(path) as (opened, _):
        return opened.whole(columns)


def name_of(key: str) -> bytes:
    """A digest of a key, of 16 bytes that do not end in zero, which numpy would cut."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return digest[:-1] + bytes([digest[-1] | 1])


class KeyIndex:
    """Where the row of each key is, in some 40 bytes for each: of millions of inputs most are in sorted arrays.

    A place is the number of the part, the row in it, and whether it is a success.
    """

    RECENT = 1 << 16
    """Keys that are held in a dict before they are sorted in."""

    def __init__(self) -> None:
        self._names = np.empty(0, "S16")
        self._places = np.empty(0, np.int64)
        self._digests = np.empty(0, "S16")
        self._recent: dict[bytes, tuple[int, bytes]] = {}

    def add(self, key: str, part: int, row: int, *, ok: bool, digest: str) -> None:
        """Remember where a key's row is, in place of any earlier one."""
        self._recent[name_of(key)] = ((part << 33) | (row << 1) | ok, digest.encode())
        if len(self._recent) > max(self.RECENT, len(self._names) // 8):
            self._merge()

    def get(self, key: str) -> tuple[int, int, bool, str] | None:
        """The part, the row, whether it is a success, and the digest of the input; None if the key is not known."""
        name = name_of(key)
        found = self._recent.get(name)
        if found is None:
            at = int(np.searchsorted(self._names, np.bytes_(name)))
            if at == len(self._names) or self._names[at] != name:
                return None
            found = int(self._places[at]), bytes(self._digests[at])
        place, digest = found
        return place >> 33, (place >> 1) & 0xFFFFFFFF, bool(place & 1), digest.decode()

    def _merge(self) -> None:
        order = sorted(self._recent)
        names = np.array(order, "S16")
        places = np.array([self._recent[name][0] for name in order], np.int64)
        digests = np.array([self._recent[name][1] for name in order], "S16")
        at = np.searchsorted(self._names, names)
        known = np.zeros(len(names), bool)
        inside = at < len(self._names)
        known[inside] = self._names[at[inside]] == names[inside]
        self._places[at[known]], self._digests[at[known]] = places[known], digests[known]
        new = ~known
        self._names = np.insert(self._names, at[new], names[new])
        self._places = np.insert(self._places, at[new], places[new])
        self._digests = np.insert(self._digests, at[new], digests[new])
        self._recent = {}


def short_digest(digest: str) -> str:
    """A digest of an input as the table and its index hold it: at most 16 letters and numbers.

    >>> short_digest("0123456789abcdef"), short_digest("")
    ('0123456789abcdef', '')
    """
    fits = not digest or (len(digest) <= 16 and digest.isascii() and digest.isalnum())
    return digest if fits else name_of(digest).hex()[:16]


def _identities(path: Path) -> Iterator[tuple[str, str, bool, str | None]]:
    """Key, digest of the input, success and file of the rows of a part."""
    names = ("key", "input_digest", "status", "attribution_file")
    table = read_part(path, names)
    columns = [table.column(name).to_pylist() for name in names]
    for key, digest, status, file in zip(*columns, strict=True):
        yield key, digest or "", status != FAILED, file


def outdated(parts: Sequence[Path]) -> dict[Path, set[int]]:
    """The rows of some parts that do not count, as others have their keys.

    Of several rows for the same input a success counts more than a failure, and a later one more than an earlier; where the
    input has changed under its key, the later row counts.
    """
    best: dict[bytes, tuple[bool, str, Path, int]] = {}
    dropped: dict[Path, set[int]] = {}
    for path, row, name, digest, ok in _doubles(parts):
        known = best.get(name)
        if known is not None:
            mine = ok >= known[0] or bool(digest and known[1] and digest != known[1])
            loser = known[2:] if mine else (path, row)
            dropped.setdefault(loser[0], set()).add(loser[1])
            if not mine:
                continue
        best[name] = ok, digest, path, row
    return dropped


def _doubles(parts: Sequence[Path]) -> Iterator[tuple[Path, int, bytes, str, bool]]:
    """The rows whose keys are there more than once: part, row, digest of the key, of the input, whether it is a success."""
    names = [np.array([name_of(one[0]) for one in _identities(path)], "S16") for path in parts]
    every = np.concatenate(names) if names else np.empty(0, "S16")
    every.sort()
    twice = set(every[1:][every[1:] == every[:-1]].tolist())
    if not twice:
        return
    for path, own in zip(parts, names, strict=True):
        chosen = [row for row, name in enumerate(own.tolist()) if name in twice]
        known = list(_identities(path)) if chosen else []
        yield from ((path, row, bytes(own[row]), known[row][1], known[row][2]) for row in chosen)


def without(table: pa.Table, rows: set[int]) -> pa.Table:
    """A part without some of its rows."""
    return table.filter(arrow().array([i not in rows for i in range(table.num_rows)])) if rows else table


def tidy(folder: Path) -> None:
    """Leave one row for each key in a folder of parts, the same columns in all of them, and few parts.

    Nobody else may write there meanwhile. A kill at any moment leaves nothing that the next call does not mend.
    """
    for path, rows in outdated(parts_of(folder)).items():
        left = without(read_part(path), rows)
        if left.num_rows:
            write_part(path, left)
        else:
            remove(path)
    layout = layout_of(parts_of(folder))
    schema = layout.schema()
    for path in parts_of(folder):
        if not _schema(path).equals(schema, check_metadata=True):
            write_part(path, layout.cast(read_part(path)))
    _merge_small(folder)


def layout_of(parts: Sequence[Path]) -> TableLayout:
    """The layout that holds the rows of all of some parts."""
    found = TableLayout()
    for path in parts:
        with _part(path) as (_, layout):
            found = found.union(layout)
    return found


def _merge_small(folder: Path) -> None:
    """Merge neighbouring parts as long as they are small together. The first of them is replaced, then the others go."""
    waiting: list[Path] = []
    size = 0
    for path in [*parts_of(folder), None]:
        own = 0 if path is None else _unpacked(path)
        if path is None or size + own > PART_BYTES:
            if len(waiting) > 1:
                tables = [read_part(one) for one in waiting]
                write_part(waiting[0], arrow().concat_tables(tables).combine_chunks())
                for one in waiting[1:]:
                    remove(one)
            waiting, size = [], 0
        if path is not None:
            waiting.append(path)
            size += own


def _unpacked(path: Path) -> int:
    """About how many bytes the rows of a part take in memory."""
    with _part(path) as (opened, _):
        about = opened.file.metadata
    unpacked = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    return int(unpacked + about.num_rows * ROW_BYTES)


# ---- writing -----------------------------------------------------------------------------------------------------------------


class TableStore:
    """A table that a run writes to: the rows of earlier runs are found by their keys, new ones are added in parts.

    Attributes:
        folder: where the table is.
        manifest: what it is made with.
        layout: the types of its columns so far.
    """

    CACHED = 4
    """Parts, and blocks of their rows, that are held in memory to read from: neighbouring inputs have neighbouring rows."""

    BLOCK = 128
    """Rows that are taken from a part at a time."""

    def __init__(self, folder: Path, manifest: Manifest, *, again: bool = False) -> None:
        """Use :meth:`opened`, which takes the lock."""
        self.folder, self.manifest = folder, manifest
        self.layout = TableLayout()
        self._waiting: list[Row] = []
        self._waiting_at: dict[str, int] = {}
        self._bytes, self._since = 0, time.monotonic()
        self._tables: OrderedDict[int, pa.Table] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, int], list[Row]] = OrderedDict()
        self._index = KeyIndex()
        self._next, self._results = 1, False
        self._look()
        self._hidden = self._next if again else 0  # rows in earlier parts are to be made again

    @staticmethod
    @contextmanager
    def opened(folder: Path, manifest: Manifest, *, again: bool = False) -> Iterator[TableStore]:
        """Open the table in a folder, which nobody else can do until the block ends; what waits is written when it does.

        Args:
            folder: a new folder, or that of a table with the same settings.
            manifest: what the rows are made with.
            again: find no row of an earlier run; each stays until it is replaced.

        Raises:
            FileError: the folder cannot be read or written, another process has opened it, or it holds something else.
            OptionError: its rows were made with other settings; the message says which.
        """
        arrow()
        ready(folder)
        with locked(folder):
            parts = parts_of(folder)
            if foreign := sorted({*folder.glob("*.parquet")} - {*parts}):
                raise FileError(
                    f"{shown(str(folder))} holds {shown(foreign[0].name)}, which is no part of a table of ours: who reads the "
                    "folder would take its rows for results. Move it away, or choose another folder."
                )
            if parts and not (folder / MANIFEST).exists():
                raise FileError(
                    f"{shown(str(folder))} holds {parts[0].name} but no {MANIFEST}; expected an empty folder, or that of an "
                    "earlier run. Choose another one."
                )
            if parts:
                Manifest.read(folder).check_same(manifest, folder)
                tidy(folder)
            else:  # a run that ended before its first row has left no results that others could be mixed with
                manifest.write(folder)
            if (folder / FILES).is_dir():
                with locked(folder / FILES):  # which removes what killed writers left
                    pass
            store = TableStore(folder, manifest, again=again)
            try:
                yield store
            except BaseException:
                with suppress(FileError):  # the first error is the one to be said
                    store.flush()
                raise
            store.flush()

    def known(self, key: str) -> tuple[bool, str] | None:
        """Whether an input was explained, and the digest that it had; None if there is no row of it."""
        key = key_text(key)
        if key in self._waiting_at:
            row = self._waiting[self._waiting_at[key]]
            return row.ok, row.input_digest
        found = self._index.get(key)
        if found is None or found[0] < self._hidden:
            return None
        return found[2], found[3]

    def snapshot(self) -> KeyIndex:
        """Which inputs have a row in the parts, for other processes."""
        return KeyIndex() if self._hidden else self._index

    def get(self, key: str) -> Row | None:
        """The row of an input; None if there is none."""
        key = key_text(key)
        if key in self._waiting_at:
            return self._waiting[self._waiting_at[key]]
        found = self._index.get(key)
        if found is None or found[0] < self._hidden:
            return None
        return self._read(found[0], found[1])

    @property
    def holds_results(self) -> bool:
        """Whether any input was ever explained."""
        return self._results

    def put(self, rows: Sequence[Row]) -> None:
        """Add rows. They are on the disk after :meth:`flush`, which comes by itself every few seconds."""
        for row in rows:
            check_columns(row.columns)
        new = [_tabled(row) for row in rows]
        places = {row.key: i for i, row in enumerate(new, len(self._waiting))}
        size, results = sum(map(_size_of, new)), any(row.ok for row in new)
        # All in one step, for a signal may come between any two: of a window of which only some rows were written, the run that
        # goes on would explain the others in other batches, to other last digits.
        self._waiting.extend(new)
        self._waiting_at.update(places)
        self._bytes += size
        self._results = self._results or results
        if self._bytes >= PART_BYTES or time.monotonic() - self._since >= PART_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a part."""
        self._since = time.monotonic()
        if not self._waiting:
            return
        rows = list({row.key: row for row in self._waiting}.values())  # of two rows with one key, the later
        self.layout = self.layout.holding(rows, self.manifest.keep)
        write_part(self.folder / part_name(self._next), self.layout.table(rows))
        for i, row in enumerate(rows):
            self._index.add(row.key, self._next, i, ok=row.ok, digest=row.input_digest)
        self._next += 1
        self._waiting, self._waiting_at, self._bytes = [], {}, 0

    def finish(self) -> None:
        """Write what waits, leave one row for each key, merge small parts, and remove files that no row names any more."""
        self.flush()
        tidy(self.folder)
        _remove_unnamed(self.folder)
        self._look()
        self._hidden = 0

    def _look(self) -> None:
        """See what is in the folder. A row whose file is gone does not count."""
        self._index, self.layout = KeyIndex(), layout_of(parts_of(self.folder))
        self._tables.clear()
        self._blocks.clear()
        for path in parts_of(self.folder):
            number = int(path.stem.partition("-")[2])
            for row, (key, digest, ok, file) in enumerate(_identities(path)):
                if file is None or (self.folder / file).exists():
                    self._index.add(key, number, row, ok=ok, digest=digest)
                    self._results = self._results or ok
            self._next = max(self._next, number + 1)

    def _read(self, number: int, row: int) -> Row:
        block = row // self.BLOCK
        if (number, block) not in self._blocks:
            if number not in self._tables:
                self._tables[number] = read_part(self.folder / part_name(number))
            self._tables.move_to_end(number)
            table = self._tables[number]
            rows = TableLayout.read(table.schema).rows(table.slice(block * self.BLOCK, self.BLOCK))
            self._blocks[number, block] = rows
            for cache in (self._tables, self._blocks):
                while len(cache) > self.CACHED:
                    cache.popitem(last=False)
        self._blocks.move_to_end((number, block))
        return self._blocks[number, block][row - block * self.BLOCK]


def _remove_unnamed(folder: Path) -> None:
    """Remove files with attributions that no row names: of inputs that have changed, or whose key another input has."""
    if not (folder / FILES).is_dir():
        return
    named = {file for path in parts_of(folder) for *_, file in _identities(path) if file is not None}
    for path in sorted((folder / FILES).iterdir()):
        if _FILE.fullmatch(path.name) and f"{FILES}/{path.name}" not in named:
            remove(path)


def _tabled(row: Row) -> Row:
    """A row with its key, its digest and the names of its columns as the table holds them."""
    key, digest = key_text(row.key), short_digest(row.input_digest)
    columns = {key_text(name): value for name, value in row.columns.items()}
    if key == row.key and digest == row.input_digest and columns.keys() == row.columns.keys():
        return row
    return replace(row, key=key, input_digest=digest, columns=columns)


def _schema(path: Path) -> pa.Schema:
    """The columns of a part."""
    with _part(path) as (opened, _):
        return opened.schema


def _size_of(row: Row) -> int:
    """About how many bytes a row takes."""
    values = 0 if row.attributions is None else np.asarray(row.attributions).nbytes
    texts = (row.key, row.details or "", row.sentence or "", row.failure or "", *row.notes, *(row.features or ()))
    own = sum(len(value) if isinstance(value, str) else 8 for value in row.columns.values())
    return values + sum(map(len, texts)) + own + 8 * len(row.attribution_errors or ()) + ROW_BYTES


# ---- reading -----------------------------------------------------------------------------------------------------------------

TRIES = 10
"""How often reading begins anew where a run has written parts anew meanwhile, which it does when it begins and when it ends."""


class TableChangedError(FileError):
    """A part was written anew by a run while the table was read."""


class PartsSnapshot:
    """The parts of a table as they are at one moment: new ones do not count, and one that was written anew is an error.

    Attributes:
        parts: the files, in order.
        layout: the types of the columns.
    """

    def __init__(self, folder: Path) -> None:
        self.parts = parts_of(folder)
        self._stamps = {path: self._stamp(path) for path in self.parts}
        with self._steady(self.parts):
            self.layout, self._outdated = layout_of(self.parts), outdated(self.parts)

    def read(self, path: Path, columns: Sequence[str] | None = None) -> pa.Table:
        """A part, or its keys and those of some columns that it has, without the rows that do not count."""
        with self._steady([path]):
            # The key too, for a table without any column has forgotten how many rows it has.
            have = None if columns is None else [name for name in _schema(path).names if name == "key" or name in columns]
            return without(read_part(path, have), self._outdated.get(path, set()))

    def __len__(self) -> int:
        """How many inputs have a row."""
        with self._steady(self.parts):
            return sum(map(row_count, self.parts)) - sum(map(len, self._outdated.values()))

    @staticmethod
    def _stamp(path: Path) -> tuple[int, int, int] | None:
        try:
            return file_stamp(path.stat())
        except FileNotFoundError:
            return None

    @contextmanager
    def _steady(self, parts: Sequence[Path]) -> Iterator[None]:
        """Raise an error if one of some parts is not what it was, whatever reading it has come to."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # rows that are not there any more, too
            failure = error
        if changed := [path for path in parts if (now := self._stamp(path)) is None or now != self._stamps[path]]:
            raise TableChangedError(
                f"{shown(str(changed[0]))} was written anew by a run while it was read. Read it again when the run is done."
            ) from failure
        if failure is not None:
            raise failure

    @staticmethod
    def use(folder: Path, read: Callable[[PartsSnapshot], T]) -> T:
        """What a function makes of the parts of a folder; begun anew if a run writes some of them anew meanwhile."""
        for _ in range(TRIES - 1):
            with suppress(TableChangedError):
                return read(PartsSnapshot(folder))
        return read(PartsSnapshot(folder))


@dataclass(frozen=True)
class ExplainedTable:
    """A table of many inputs, to be read.

    Attributes:
        folder: where it is.
        manifest: what it was made with.
    """

    folder: Path
    manifest: Manifest

    @staticmethod
    def open(folder: str | Path) -> ExplainedTable:
        """Open a table: a folder of parts, or the output of a command that has one inside.

        Raises:
            FileError: there is no table.
        """
        place = Path(folder)
        inside = place / "table"
        if not (place / MANIFEST).exists() and (inside / MANIFEST).exists():
            place = inside
        return ExplainedTable(place, Manifest.read(place))

    @property
    def parts(self) -> list[Path]:
        """The files with the rows, in order."""
        return parts_of(self.folder)

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, or some of their columns, as an Arrow table."""

        def read(snapshot: PartsSnapshot) -> pa.Table:
            layout = snapshot.layout
            names = layout.schema().names
            if columns is not None and (unknown := [name for name in columns if name not in names]):
                raise OptionError(f"got the columns {unknown}; expected some of {', '.join(names)}.")
            chosen = names if columns is None else list(columns)
            tables = [layout.cast(layout.schema().empty_table(), chosen)]
            have = ["key", *(name for name in chosen if name != "key")]
            tables += [layout.cast(snapshot.read(path, have), chosen) for path in snapshot.parts]
            return arrow().concat_tables(tables)

        return PartsSnapshot.use(self.folder, read)

    def rows(self) -> Iterator[Row]:
        """All rows in order, one part at a time. Where a run writes parts anew meanwhile, what was not given yet follows."""
        given: list[Any] = []  # of parts, the digests of their keys
        for left in reversed(range(TRIES)):
            try:
                snapshot = PartsSnapshot(self.folder)
                before = np.concatenate(given) if given else None
                for path in snapshot.parts:
                    table = snapshot.read(path)
                    names = np.array([name_of(key) for key in table["key"].to_pylist()], "S16")
                    if before is not None:
                        new = ~np.isin(names, before)
                        table, names = table.filter(arrow().array(new)), names[new]
                    layout = TableLayout.read(table.schema)
                    for begin in range(0, table.num_rows, BLOCK):
                        yield from layout.rows(table.slice(begin, BLOCK))
                    given.append(names)
                return
            except TableChangedError:
                if not left:
                    raise

    def pandas(self, columns: Sequence[str] | None = None) -> Any:
        """All rows, or some of their columns, as a pandas ``DataFrame``."""
        return self.arrow(columns).to_pandas()

    def summary(self, *, label: str | None = None) -> TableSummary:
        """The table in numbers: what was said, what mattered, how exact it is, and inputs worth a look; saves itself as a page.

        Args:
            label: a column of the table that says what is true, to compare predictions with.
        """
        from .table_summary import summarise

        return summarise(self, label=label)

    def csv(self, path: str | Path, *, columns: Sequence[str] | None = None, long: bool = False) -> int:
        """Write the table as CSV for spreadsheets; see :func:`~integrand.batch.table_export.write_csv`.

        Args:
            path: the file, which appears when it is complete.
            columns: which columns, in this order. Default: those that people read, and those that inputs brought along.
            long: one line for each feature of an input, instead of one for each input.

        Returns:
            How many lines were written, without that of the headings.
        """
        from .table_export import write_csv

        return write_csv(self, Path(path), columns=columns, long=long)

    def __len__(self) -> int:
        """How many inputs have a row."""
        return PartsSnapshot.use(self.folder, len)
