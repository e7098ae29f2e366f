"""Where the results of a batch are kept: a dict of JSON values per input, found again by the input's key and the settings.

:class:`LineStore` is a journal: a file of lines that only grows, one per entry. A kill at any moment loses no more than the
line being written, and a damaged or foreign line no more than its own entry.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from ..errors import FileError
from ..files import append, appending, locked, reading, replacing, writing

Entry = dict[str, Any]
"""What is kept of one input: values that JSON can hold."""

_NAME = re.compile(b"[0-9a-f]{48}")

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


def _tidy(path: Path) -> None:
    """Leave the outdated lines out of a journal if they are more than half of it; what is not ours stays."""
    places: dict[bytes, tuple[int, int]] = {}  # where the last line of an entry begins, and how long it is
    outdated: set[int] = set()
    waste = place = 0
    for line in _lines(path):
        name = line[: LineStore.MARK + LineStore.NAME]
        if _NAME.fullmatch(name):
            if name in places:
                outdated.add(places[name][0])
                waste += places[name][1]
            places[name] = place, len(line)
        place += len(line)
    if 2 * waste <= place:
        return
    with suppress(FileError), replacing(path) as part, part.open("wb") as file:  # a disk without room for it may do for the run
        place = 0
        for line in _lines(path):
            if place not in outdated:
                file.write(line)
            place += len(line)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a journal; none if there is no such file, or a link or something else in its place."""
    if path.is_file() and not path.is_symlink():
        with reading(path, what="a journal") as file:
            yield from file


class LineStore:
    """A file of lines, one per entry, that only grows: a kill loses no more than the line being written.

    A line begins with 16 characters for the settings, 32 for the input's key and 16 that the rest is checked by: entries of
    several settings live in one file, none is used by mistake, and none that is damaged. Of several lines for one input the
    last counts. Only the places of the lines are held in memory.

    Attributes:
        mark: the fingerprint of the settings.
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
        self._places: dict[bytes, int] = {}
        place = os.lseek(file, 0, os.SEEK_SET)
        with writing(path or Path(tempfile.gettempdir())), open(file, "rb", closefd=False) as lines:
            for line in lines:
                if len(line) > self.MARK + self.NAME + self.CHECK:
                    self._places[line[: self.MARK + self.NAME]] = place
                place += len(line)
        self._stale = set(self._places) if again else set()

    @staticmethod
    @contextmanager
    def opened(path: Path | None, settings: Mapping[str, Any], *, again: bool = False) -> Iterator[LineStore]:
        """Open the store in a file, which nobody else can do until the block ends; or in a temporary one, which then goes.

        Args:
            path: the file; None for a temporary one.
            settings: everything that an entry depends on beside its input.
            again: find no entry of an earlier run, though all stay until they are replaced.

        Raises:
            FileError: the file cannot be written, or another process has opened it.
        """
        if path is None:
            with tempfile.TemporaryFile() as file:
                yield LineStore(file.fileno(), settings)
            return
        with locked(path):
            _tidy(path)
            with appending(path) as kept:
                yield LineStore(kept, settings, path=path, again=again)

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

    def _name(self, key: str) -> bytes:
        """How the line of an input begins: its settings, then its key."""
        return (self.mark[: self.MARK] + _digest(f"{self.mark}\n{key}")[: self.NAME]).encode()

    def _check(self, name: bytes, text: bytes) -> bytes:
        return hashlib.sha256(name + text).hexdigest()[: self.CHECK].encode()

    def _line(self, place: int) -> bytes:
        os.lseek(self._file, place, os.SEEK_SET)
        blocks = []
        while block := os.read(self._file, BLOCK):
            head, end, _ = block.partition(b"\n")
            blocks.append(head + end)
            if end:
                break
        return b"".join(blocks)

    def _read(self, name: bytes) -> Entry | None:
        """The entry on the line that begins so; None if the line is damaged."""
        try:
            line = self._line(self._places[name])
            text = line[len(name) + self.CHECK :].removesuffix(b"\n")
            if line[: len(name) + self.CHECK] != name + self._check(name, text):
                return None
            entry = json.loads(text)
        except (OSError, ValueError, RecursionError):
            return None
        return entry if isinstance(entry, dict) else None
