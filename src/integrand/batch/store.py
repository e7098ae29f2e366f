"""Where the results of a batch are kept: a dict of JSON values per input, found again by the input's key and the settings.

Two kinds of file, with one interface: :class:`LineStore` only grows and is read one entry at a time, for inputs by the
million; :class:`DocumentStore` is one JSON document held in memory, for inputs by the thousand whose entries are wanted
together. Both survive a kill at any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from ..files import write_text, writing

Entry = dict[str, Any]
"""What is kept of one input: values that JSON can hold."""


class EntryStore(Protocol):
    """What the runner needs from a store; a folder of Parquet parts can be one too."""

    def get(self, key: str) -> Entry | None:
        """The entry of an input that was made with the present settings; None if there is none, or a damaged one."""
        ...

    def put(self, key: str, entry: Entry) -> None:
        """Keep the entry of an input in place of any earlier one; it is on disk when this returns."""
        ...


def fingerprint(settings: Mapping[str, Any]) -> str:
    """A short text that differs where settings differ. Values that JSON does not know count by their ``str``."""
    return hashlib.sha256(_canonical(settings).encode()).hexdigest()[:16]


def _canonical(settings: Mapping[str, Any]) -> str:
    """The settings as JSON with sorted keys."""
    return json.dumps(dict(settings), sort_keys=True, default=str)


class LineStore:
    """A file of lines, one per entry, that only grows: a kill loses no more than the line being written.

    A line begins with a digest of the settings and the input's key, so that entries of several settings live in one file and
    none is used by mistake. Only the places of the lines are held in memory.
    """

    DIGEST = 32
    """Characters of the digest before the JSON of each line."""

    def __init__(self, file: IO[bytes], settings: Mapping[str, Any]) -> None:
        """Index a file that is open for reading and appending; a last line without an end is cut off.

        Args:
            file: open in binary mode.
            settings: everything that an entry depends on beside its input.
        """
        self._file, self._settings = file, _canonical(settings)
        self._places: dict[bytes, int] = {}
        place = file.seek(0)
        for line in file:
            if not line.endswith(b"\n"):  # the writer was killed: what follows would become part of this line
                file.truncate(place)
                break
            self._places[line[: self.DIGEST]] = place
            place += len(line)

    @staticmethod
    @contextmanager
    def opened(path: Path | None, settings: Mapping[str, Any], *, again: bool = False) -> Iterator[LineStore]:
        """Open the store in a file, or in a temporary one that goes when the block ends.

        Args:
            path: the file; None for a temporary one.
            settings: everything that an entry depends on beside its input.
            again: empty the file first.
        """
        if path is None:
            with tempfile.TemporaryFile() as file:
                yield LineStore(file, settings)
            return
        with writing(path):
            kept = path.open("w+b" if again else "a+b")
        with kept:
            yield LineStore(kept, settings)

    def get(self, key: str) -> Entry | None:
        """Read the entry of an input; None if there is none with these settings, or its line is damaged."""
        digest = self._digest(key)
        if digest not in self._places:
            return None
        self._file.seek(self._places[digest])
        line = self._file.readline()
        try:
            entry = json.loads(line[self.DIGEST :]) if line.startswith(digest) else None
        except ValueError:
            return None
        return entry if isinstance(entry, dict) else None

    def put(self, key: str, entry: Entry) -> None:
        """Append an entry, unless the very same one is there already."""
        digest = self._digest(key)
        text = json.dumps(entry)
        if digest in self._places and self.get(key) == json.loads(text):
            return
        with writing(Path(str(self._file.name))):
            self._places[digest] = self._file.seek(0, os.SEEK_END)
            self._file.write(digest + text.encode() + b"\n")
            self._file.flush()

    def _digest(self, key: str) -> bytes:
        return hashlib.sha256(f"{self._settings}\n{key}".encode()).hexdigest()[: self.DIGEST].encode()


class DocumentStore:
    """One JSON document, replaced as a whole by every entry, so that it is complete at any moment.

    Each entry carries the fingerprint of its settings under ``"mark"``; an entry that was made with other settings is not
    found, and is replaced when its input is done again.
    """

    FORMAT = 1

    def __init__(self, path: Path, settings: Mapping[str, Any], *, name: str = "entries", again: bool = False) -> None:
        """Read what an earlier run left; a missing or damaged file counts as empty.

        Args:
            path: the file.
            settings: everything that an entry depends on beside its input.
            name: what the document calls its entries.
            again: find no entry of an earlier run, though all stay until they are replaced.
        """
        self.path, self.mark, self._name = path, fingerprint(settings), name
        self.entries: dict[str, Entry] = self._read()
        self._stale = set(self.entries) if again else set()

    def get(self, key: str) -> Entry | None:
        """The entry of an input; None if there is none with these settings, or it is to be made again."""
        entry = self.entries.get(key)
        return None if entry is None or key in self._stale or entry["mark"] != self.mark else entry

    def put(self, key: str, entry: Entry) -> None:
        """Add or replace the entry of an input, and write the document."""
        self.entries[key] = {"mark": self.mark} | entry
        self._stale.discard(key)
        write_text(self.path, json.dumps({"format": self.FORMAT, self._name: self.entries}))

    def _read(self) -> dict[str, Entry]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            entries = found[self._name] if found["format"] == self.FORMAT else {}
            return {key: entry for key, entry in entries.items() if isinstance(entry["mark"], str)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
