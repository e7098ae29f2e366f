"""Where the results of a batch are kept: a dict of JSON values per input, found again by the input's key and the settings.

:class:`LineStore` is a journal: a file of lines that only grows, one per entry. A kill at any moment loses no more than the
line being written, and a damaged or foreign line no more than its own entry.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from ..errors import FileError
from ..files import append, appending, locked, reading, remove, replacing, writing
from ..words import shown

Entry = dict[str, Any]
"""What is kept of one input: values that JSON can hold."""

LONGEST_LINE = 1 << 24
"""The most bytes of a line in a journal; a longer one is passed by, and nothing of it is held in memory."""

BLOCK = 1 << 16
"""The bytes that are read at a time to find the end of a line."""


class EntryStore(Protocol):
    """What the runner needs from a store; a folder of Parquet parts can be one too."""

    def get(self, key: str) -> Entry | None:
        """The entry of an input that was made with the present settings; None if there is none, or a damaged one."""
        ...

    def put(self, entries: Mapping[str, Entry]) -> None:
        """Keep entries, by the keys of their inputs, in place of any earlier ones; they are on disk when this returns."""
        ...


def fingerprint(settings: Mapping[str, Any]) -> str:
    """A text of 64 characters that differs where settings differ. Values that JSON does not know count by their ``str``."""
    return _digest(json.dumps(dict(settings), sort_keys=True, default=str))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()  # the name of a file need not be UTF-8


class JournalLine(NamedTuple):
    """A line of a journal.

    Attributes:
        place: where it begins.
        size: how many bytes it has.
        name: the settings and the key of its entry; empty if it is torn, damaged, too long or not of a journal at all.
    """

    place: int
    size: int
    name: bytes


def _lines(file: IO[bytes]) -> Iterator[JournalLine]:
    """The lines of a journal, from where the file is; of one that is longer than :data:`LONGEST_LINE` nothing is held."""
    place = file.tell()
    while line := file.readline(LONGEST_LINE):
        size, name = len(line), LineStore.name_on(line)
        while line and not line.endswith(b"\n"):
            line = file.readline(BLOCK)
            size += len(line)
        yield JournalLine(place, size, name)
        place += size


@contextmanager
def _read_errors(path: Path | None) -> Iterator[None]:
    """Turn an operating system error while reading a journal into a one-line :class:`~integrand.errors.FileError`."""
    try:
        yield
    except OSError as error:
        name = "a temporary file" if path is None else shown(str(path))
        raise FileError(
            f"{name} cannot be read ({error.strerror or error}); expected the journal of an earlier run. "
            "Check the disk, or choose another place."
        ) from error


def _tidy(path: Path) -> None:
    """Leave the outdated lines out of a journal if they are more than half of it; what is not ours stays."""
    if not path.is_file() or path.is_symlink():
        return
    latest: dict[bytes, JournalLine] = {}
    outdated: list[JournalLine] = []
    total = 0
    with reading(path, what="a journal") as file, _read_errors(path):
        for line in _lines(file):
            if line.name in latest:
                outdated.append(latest[line.name])
            if line.name:
                latest[line.name] = line
            total += line.size
    if 2 * sum(line.size for line in outdated) <= total:
        return
    with suppress(FileError), replacing(path) as part, reading(path, what="a journal") as file, part.open("wb") as kept:
        _copy_without(outdated, file, kept, total)  # where there is no room for it on the disk, there may be for the run


def _copy_without(left_out: Iterable[JournalLine], file: IO[bytes], copy: IO[bytes], total: int) -> None:
    """Copy the first bytes of a file, so many in all, but for some lines."""
    gaps = [(0, 0), *sorted((line.place, line.place + line.size) for line in left_out), (total, total)]
    for (_, place), (end, _) in pairwise(gaps):
        file.seek(place)
        while place < end and (block := file.read(min(BLOCK, end - place))):
            copy.write(block)
            place += len(block)


class LineStore:
    """A file of lines, one per entry, that only grows: a kill loses no more than the line being written.

    A line begins with 16 characters for the settings, 32 for the input's key and 16 that the rest is checked by: entries of
    several settings live in one file, none is used by mistake, and none that is damaged. Of several sound lines for one input
    the last counts. Only the places of the lines are held in memory.

    Attributes:
        mark: the fingerprint of the settings.
        spent: set it where everything that the store is kept for is done: its file is removed when it is closed.
    """

    MARK, NAME, CHECK = 16, 32, 16
    """The characters of the three digests at the beginning of a line."""

    def __init__(self, file: int, settings: Mapping[str, Any], *, path: Path | None = None, again: bool = False) -> None:
        """Index a file.

        Args:
            file: the descriptor of a file that can be read and appended to.
            settings: everything that an entry depends on beside its input.
            path: the name of the file, for messages; None for a temporary one, whose entries need not reach the disk.
            again: find no entry that is there by now, though all stay until they are replaced.
        """
        self.mark = fingerprint(settings)
        self._file, self._path = file, path
        with _read_errors(path), open(file, "rb", closefd=False) as lines:
            lines.seek(0)
            self._places = {line.name: line.place for line in _lines(lines) if line.name}
        self._stale = set(self._places) if again else set()
        self.spent = False

    @staticmethod
    @contextmanager
    def opened(path: Path | None, settings: Mapping[str, Any], *, again: bool = False) -> Iterator[LineStore]:
        """Open the store in a file, which nobody else can do until the block ends; or in a temporary one, which then goes.

        Args:
            path: the file; None for a temporary one.
            settings: everything that an entry depends on beside its input.
            again: find no entry of an earlier run, though all stay until they are replaced.

        Raises:
            FileError: the file cannot be read or written, or another process has opened it.
        """
        if path is None:
            with tempfile.TemporaryFile() as file:
                yield LineStore(file.fileno(), settings)
            return
        with locked(path):
            _tidy(path)
            with appending(path) as kept:
                yield (store := LineStore(kept, settings, path=path, again=again))
            if store.spent:
                remove(path)

    def get(self, key: str) -> Entry | None:
        """Read the entry of an input; None if there is none with these settings, it is to be made again, or it is damaged."""
        name = self._name(key)
        return None if name in self._stale or name not in self._places else self._read(name)

    def entries(self) -> Iterator[Entry]:
        """All entries that were made with these settings, in the order in which their inputs first came; also outdated ones."""
        for name in [name for name in self._places if name.startswith(self.mark[: self.MARK].encode())]:
            entry = self._read(name)
            if entry is not None:
                yield entry

    def put(self, entries: Mapping[str, Entry]) -> None:
        """Append entries, by the keys of their inputs, unless the very same are there already."""
        lines: dict[bytes, bytes] = {}
        for key, entry in entries.items():
            name = self._name(key)
            line = name + self._check(name, text := json.dumps(entry).encode()) + text + b"\n"
            if len(line) > LONGEST_LINE:
                raise FileError(f"a result takes {len(line)} bytes; expected at most {LONGEST_LINE}. Leave out this input.")
            if name not in self._places or self._line(self._places[name]) != line:
                lines[name] = line
            self._stale.discard(name)
        if not lines:
            return
        with writing(self._path or Path(tempfile.gettempdir())):
            place = append(self._file, b"".join(lines.values()), sync=self._path is not None)
        for name, line in lines.items():
            self._places[name] = place
            place += len(line)

    @classmethod
    def name_on(cls, line: bytes) -> bytes:
        """How a line of a journal begins: its settings, then its key; empty if the line is torn, damaged or none of ours."""
        start = cls.MARK + cls.NAME
        end = start + cls.CHECK
        if len(line) <= end or not line.endswith(b"\n") or line[start:end] != cls._check(line[:start], line[end:-1]):
            return b""
        return line[:start]

    def _name(self, key: str) -> bytes:
        """How the line of an input begins: its settings, then its key."""
        return (self.mark[: self.MARK] + _digest(f"{self.mark}\n{key}")[: self.NAME]).encode()

    @classmethod
    def _check(cls, name: bytes, text: bytes) -> bytes:
        return hashlib.sha256(name + text).hexdigest()[: cls.CHECK].encode()

    def _line(self, place: int) -> bytes:
        """The line that begins there, or what can be read of it."""
        blocks: list[bytes] = []
        with suppress(OSError):
            os.lseek(self._file, place, os.SEEK_SET)
            while len(blocks) * BLOCK <= LONGEST_LINE and (block := os.read(self._file, BLOCK)):
                head, end, _ = block.partition(b"\n")
                blocks.append(head + end)
                if end:
                    break
        return b"".join(blocks)

    def _read(self, name: bytes) -> Entry | None:
        """The entry on the line that begins so; None if the line has been damaged meanwhile, or holds no entry."""
        line = self._line(self._places[name])
        if self.name_on(line) != name:
            return None
        try:
            entry = json.loads(line[len(name) + self.CHECK :])
        except (ValueError, RecursionError):
            return None
        return entry if isinstance(entry, dict) else None
