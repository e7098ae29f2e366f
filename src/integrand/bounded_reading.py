"""Bounded reading of files of others: unpacked within limits, in lines and rows of bounded size, checked for change at the end.

Every reader of text, packed or not, opens its file here. A file may promise far more than it holds: what it unpacks to is
bounded by its size, and a line or a row by a limit, so that memory is bounded whatever the file says.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from .errors import FileError
from .files import digest_of, reading
from .words import first_line, shown

Item = TypeVar("Item")

RATIO = 200
"""Times its size that a packed file may unpack to, besides :data:`FREE`; molecules and tables come to 5 to 30 times."""

FREE = 16 << 20
"""Bytes to which any packed file may unpack: what is short and repeats itself is no bomb."""

MAX_ROW = 1 << 26
"""Characters of a line or a row of a table, which is held in memory as a whole; a picture in base64 has tens of millions."""

MAX_CELLS = 1 << 20
"""Cells of a row of a table: an empty one takes 60 times its place in the file."""


class UnpackError(FileError):
    """A packed file that is damaged, cut off, or unpacks to too much."""


class ChangedFileError(FileError):
    """A file that is no longer what was read from it."""


@dataclass
class FileVersion:
    """A digest of what was read from a file, to tell whether it is read again as it was.

    Attributes:
        digest: SHA-256 of the bytes of the file, packed as they are; empty before it is read.
    """

    digest: str = ""


class ChangeRecord:
    """The end of a stream of inputs whose file has changed: those that came are worked on, then the error is raised.

    Attributes:
        error: the change; None if there was none.
    """

    def __init__(self) -> None:
        self.error: ChangedFileError | None = None

    def until_changed(self, items: Iterable[Item]) -> Iterator[Item]:
        """Give the items; a change of their file ends them and is kept."""
        try:
            yield from items
        except ChangedFileError as error:
            self.error = error

    def check(self) -> None:
        """Raise the change, if there was one."""
        if self.error is not None:
            raise self.error


def changed(path: Path) -> ChangedFileError:
    """The error of a file that changed while it was read."""
    return ChangedFileError(
        f"{shown(path.name)} changed while it was read, so that inputs may be missing. What is done is kept: the same again "
        "explains what is there now. Rows of inputs that are gone stay in a table; a new folder has none."
    )


def file_stamp(state: os.stat_result) -> tuple[int, int, int]:
    """Inode, size and time: they differ where another file is there, or where it was written to."""
    return state.st_ino, state.st_size, state.st_mtime_ns


def check_ratio(unpacked: int, packed: int, name: str, *, free: int = 0) -> None:
    """Refuse what unpacks to too much.

    Args:
        unpacked: bytes that it takes.
        packed: bytes of the file, or of the part of it.
        name: what it is, for the error.
        free: bytes that are allowed in any case, instead of :data:`FREE`.
    """
    if unpacked > RATIO * packed + (free or FREE):
        raise UnpackError(f"{name} unpacks to more than {RATIO} times its size; expected less. Store it unpacked.")


@contextmanager
def bounded_bytes(path: Path, *, what: str, version: FileVersion | None = None) -> Iterator[io.BufferedReader[Any]]:
    """Open a file to be read from its beginning to its end, unpacked where it is packed with gzip.

    Args:
        path: the file; a pipe, a device or a folder is refused.
        what: what is expected in it, for errors.
        version: what an earlier reading has found, or where this one leaves it.

    Raises:
        UnpackError: it is damaged, or unpacks to too much.
        ChangedFileError: at the end, if the file is no longer what was read. One that is gone by then was read as a whole.
    """
    with reading(path, what=what) as file:
        digested = _DigestedBytes(file)
        opened: io.BufferedReader[Any] = io.BufferedReader(digested)
        try:
            if path.name.lower().endswith(".gz") or opened.peek(2)[:2] == b"\x1f\x8b":
                yield io.BufferedReader(_UnpackedBytes(opened, os.fstat(file.fileno()).st_size, shown(str(path))))
            else:
                yield opened
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnpackError(
                f"{shown(str(path))} cannot be unpacked ({first_line(error)}); expected {what}. Check that all of it is there."
            ) from None
        except MemoryError:
            raise FileError(
                f"{shown(str(path))} does not fit into memory; expected {what} in smaller lines. Split it."
            ) from None
        digest = digested.finish()
    version = version or FileVersion()
    version.digest = version.digest or digest
    if digest != version.digest or (os.path.lexists(path) and digest_of(path, what=what, most=1 << 62) != digest):
        raise changed(path)


@contextmanager
def bounded_text(
    path: Path, *, what: str, errors: str = "surrogateescape", newline: str | None = "", version: FileVersion | None = None
) -> Iterator[IO[str]]:
    """Open a file of text, packed or not, in UTF-8 or in UTF-16, as spreadsheets save it; see :func:`bounded_bytes`.

    Args:
        path: the file.
        what: what is expected in it, for errors.
        errors: what to do with bytes that are no UTF-8.
        newline: how lines end, as for :func:`open`.
        version: what an earlier reading has found.
    """
    with bounded_bytes(path, what=what, version=version) as file:
        utf_16 = file.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = io.TextIOWrapper(file, "utf-16" if utf_16 else "utf-8-sig", "replace" if utf_16 else errors, newline=newline)
        yield text


class TextLines:
    """The lines of a text, of bounded length; a longer one is passed over.

    Attributes:
        number: lines so far.
        size: characters since this was last set to 0.
        ended: whether the end was met.
    """

    def __init__(self, text: IO[str], longest: int = MAX_ROW) -> None:
        """Begin with the first line.

        Args:
            text: the text.
            longest: the most characters of a line.
        """
        self._text, self._longest = text, longest
        self.number = self.size = 0
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._text.readline(self._longest + 1)
        if not line:
            self.ended = True
            raise StopIteration
        self.number += 1
        self.size += len(line)
        if len(line) <= self._longest:
            return line
        while line and not line.endswith(("\n", "\r")):
            line = self._text.readline(min(self._longest, 1 << 20))
        return self.too_long()

    def too_long(self) -> str:
        """Stand in for a line that was too long; an error of :mod:`csv` makes it a row that cannot be read."""
        raise csv.Error(f"a line has more than {self._longest:,} characters")


class RowLines(TextLines):
    """The lines of a table: a row, which quotes let go on over many of them, has bounded cells and length."""

    def __init__(self, text: IO[str], delimiter: str) -> None:
        """Begin with the first line.

        Args:
            text: the text.
            delimiter: what stands between cells.
        """
        super().__init__(text)
        self._delimiter, self._cells, self._first = delimiter, 0, 0

    @property
    def taken(self) -> int:
        """Lines of the row so far."""
        return self.number - self._first

    def begin(self) -> None:
        """Begin a row."""
        self.size = self._cells = 0
        self._first = self.number

    def __next__(self) -> str:
        line = super().__next__()
        self._cells += line.count(self._delimiter)
        if self.size > self._longest:
            raise csv.Error(f"a row has more than {self._longest:,} characters; is there a quote that is not closed?")
        if self._cells >= MAX_CELLS:
            raise csv.Error(f"a row has more than {MAX_CELLS:,} cells")
        return line


class _DigestedBytes(io.RawIOBase):
    """The bytes of a file, each of which goes into a digest once."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file, self._digest = file, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        self._digest.update(data)
        buffer[: len(data)] = data
        return len(data)

    def finish(self) -> str:
        """The digest of the whole file; what nobody has asked for is read."""
        while data := self._file.read(1 << 20):
            self._digest.update(data)
        return self._digest.hexdigest()


class _UnpackedBytes(io.RawIOBase):
    """The contents of a packed file; an error where they are too large."""

    def __init__(self, packed: io.BufferedReader[Any], size: int, name: str) -> None:
        super().__init__()
        self._file, self._size, self._name, self._count = gzip.GzipFile(fileobj=packed), size, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        self._count += len(data)
        check_ratio(self._count, self._size, self._name)
        buffer[: len(data)] = data
        return len(data)
