"""Reading and writing files, for everything in the package that does so.

What is written appears under its name when it is complete, so that a reader finds the old file or the new one, whatever
happens in between: an error, a full disk, a kill. What is read is an ordinary file of a bounded size. A job that writes for a
long time takes a lock.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shlex
import socket
import stat
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .errors import FileError, OptionError
from .version import generator
from .words import byte_size, shown

LARGEST = 1 << 30
"""The most bytes that a file may have which is read as a whole, unless its kind has a smaller limit."""

LONGEST_NAME = 255
"""The most bytes of a file's name on the file systems in use."""

_PART = ".part"
_WINDOWS = os.name == "nt"
_LOCK_BYTE = 1 << 20  # where Windows locks: beyond what the lock file says, so that others can read that


def write(
    path: Path,
    options: Mapping[str, Any],
    *,
    picture: Callable[..., Any],
    numbers: Callable[[], Any],
    report: Callable[..., str] | None = None,
    also: str = "",
) -> Path:
    """Write something by the ending of the path: a picture, its numbers as JSON, or a page.

    Args:
        path: where to.
        options: for pictures and pages.
        picture: gives the figure.
        numbers: gives what JSON can hold.
        report: gives the page, where there is one.
        also: endings that the caller sees to, for the error: ``.csv, ``.
    """
    suffix = path.suffix.lower()
    if suffix in {".png", ".svg", ".pdf"}:
        drawn = picture(**options)
        with replacing(path) as part:
            drawn.savefig(part, bbox_inches="tight", pad_inches=0.15, metadata=picture_marks(suffix))
    elif suffix == ".html" and report is not None:
        write_text(path, report(**options))
    elif suffix == ".json":
        if options:
            raise OptionError(f"got options {sorted(options)} for a .json file; they are for pictures")
        write_text(path, json.dumps(numbers(), indent=1, allow_nan=False))
    else:
        pages = "" if report is None else ".html, "
        raise OptionError(f"got the ending {suffix!r}; expected {pages}{also}.png, .svg, .pdf or .json")
    return path


MARKS = re.compile(
    rb"""name="generator"\ content="integrand\ |Software\x00integrand\ |/Creator\ \(integrand\ |<dc:title>integrand\ """
    rb"""|<!--\ integrand\ |^\#\ integrand\ """  # pages, PNG, PDF, SVG of two kinds, text
    rb"""|"baseline_score":\ |\A\{\s*"questions":\ \d+,\s*"accuracy":\ |\A\{\s*"axioms":\ \["""  # JSON
    rb"""|"unit":\ "[^"]*",\s*"models":\ \{|\A(?:example,)?feature,[^\n]*\ \xe2\x88\x92\ """  # two models
    rb"""|\A.{8}\{"__metadata__":\{"integrand":|baseline_score,(?:integrand_)*status,|>\ +<attribution_of_bonds>"""  # values
    rb"""|\Atime,channel,value,baseline,attribution,window,""",  # series
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
"""How the files that this package writes can be told from others: by a mark, or by what only they hold."""

LOOKED_AT_FOR_MARKS = 1 << 18
"""The bytes at both ends of a file that are searched for a mark."""


def made_here(path: Path) -> bool:
    """Whether a file was written by this package, by the mark that it carries; a command may replace it then.

    Args:
        path: the file; a link is followed. What is no ordinary file, or cannot be read, is not ours.
    """
    try:
        with reading(path, what="a file") as file:
            start = file.read(LOOKED_AT_FOR_MARKS)
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - LOOKED_AT_FOR_MARKS, len(start)))
            return MARKS.search(start) is not None or MARKS.search(file.read(LOOKED_AT_FOR_MARKS)) is not None
    except FileError:
        return False


@contextmanager
def unheard(descriptor: int) -> Iterator[None]:
    """Lead what is written to a descriptor, such as 2 for standard error, nowhere until the block ends."""
    try:
        original = os.dup(descriptor)
    except OSError:  # there is none
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
        yield
    finally:
        os.dup2(original, descriptor)
        os.close(original)


def picture_marks(ending: str) -> dict[str, str]:
    """The metadata that marks a picture as ours, for matplotlib's ``savefig``."""
    return {"Software" if ending == ".png" else "Creator": generator()}


def marked(picture: str | bytes) -> bytes:
    """A picture, as the text of an SVG or the bytes of a PNG, with the mark that tells it as ours."""
    if isinstance(picture, str):
        return f"{picture.rstrip()}\n<!-- {generator()} -->\n".encode("utf-8", "replace")
    chunk = b"tEXtSoftware\x00" + generator().encode()
    end = picture.rindex(b"IEND") - 4  # a chunk begins with its length
    return picture[:end] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + picture[end:]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating system error while writing a file into a one-line :class:`~integrand.errors.FileError`."""
    if "\0" in str(path):
        raise FileError(f"{shown(str(path))} cannot be written (a name has no NUL character); choose another name.")
    try:
        yield
    except OSError as error:
        raise FileError(f"{shown(str(path))} cannot be written ({error.strerror or error}); choose another place.") from error


def ready(folder: Path) -> None:
    """Create a folder if there is none, and check that files can be created in it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file, part = _new_part(folder, "")
        _close(file)
        part.unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a new, empty file beside ``path``; what is written to it replaces ``path`` if the block ends without an error.

    Its name is its own, so that two writers of the same file do not meet; the one that ends last wins. What was written is on
    the disk before the names change. Where ``path`` is a link, the link is replaced; the file it leads to is left alone.
    """
    with writing(path):
        mode = _mode_of(path)
        file, part = _new_part(path.parent, path.suffix)
    try:
        with writing(path):
            yield part
            _to_disk(part)
            if mode is not None:
                part.chmod(mode)
            _put(part, path)
            _to_disk(path.parent)
    finally:
        _close(file)
        with suppress(OSError):  # it is gone if all went well
            part.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text (UTF-8) so that a reader sees the old file or the new one, never half of it."""
    write_bytes(path, text.encode("utf-8", "replace"))  # a file's name may hold what UTF-8 does not


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file by these bytes so that a reader sees the old file or the new one, never half of it."""
    with replacing(path) as part:
        part.write_bytes(data)


@contextmanager
def text_file(path: Path) -> Iterator[IO[str]]:
    """Open a text file to be written bit by bit (UTF-8, line ends as they are given), which appears when it is complete."""
    with replacing(path) as part, part.open("w", encoding="utf-8", errors="replace", newline="") as file:
        yield file


def remove(path: Path) -> None:
    """Remove a file of ours that is of no more use; one that is gone already is as good."""
    with writing(path):
        path.unlink(missing_ok=True)


@contextmanager
def appending(path: Path) -> Iterator[int]:
    """Open a file that only grows, for :func:`append`; gives its descriptor, which can be read from too.

    A last line that a kill has left without its end gets one, so that what follows is a line of its own. A link, a pipe or a
    folder in its place is refused. Who appends should hold a lock: see :func:`locked`.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with writing(path):
        if path.is_symlink():
            raise OSError(errno.ELOOP, "it is a link")
        file = os.open(path, flags, 0o666)
    try:
        with writing(path):
            _check_ours(file, path)
            end = os.lseek(file, 0, os.SEEK_END)
            if not end:
                _to_disk(path.parent)
            elif os.lseek(file, end - 1, os.SEEK_SET) == end - 1 and os.read(file, 1) != b"\n":
                append(file, b"\n")
        yield file
    finally:
        os.close(file)


def append(file: int, data: bytes, *, sync: bool = True) -> int:
    """Add bytes to the end of an open file: all of them, or, after an OSError or a stop, none.

    Args:
        file: the descriptor, from :func:`appending`.
        data: the bytes.
        sync: wait until the disk has them.

    Returns:
        Where in the file they begin.
    """
    end = os.lseek(file, 0, os.SEEK_END)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        if sync:
            _sync(file)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(file, end)
        raise
    return end


def fitting(stem: str, ending: str) -> str:
    """The name ``stem + ending`` for a file; a stem that is too long for that is cut, and ends in a digest of all of it.

    >>> fitting("cat", ".html"), len(fitting("x" * 300, ".html"))
    ('cat.html', 255)
    """
    whole = os.fsencode(stem)
    room = LONGEST_NAME - len(os.fsencode(ending))
    if len(whole) <= room:
        return stem + ending
    digest = f"-{hashlib.sha256(whole).hexdigest()[:16]}"
    cut = room - len(digest)
    while cut and 0x80 <= whole[cut] < 0xC0:  # not in the middle of a letter
        cut -= 1
    return os.fsdecode(whole[:cut]) + digest + ending


@contextmanager
def reading(path: Path, *, what: str) -> Iterator[IO[bytes]]:
    """Open an ordinary file to be read; a pipe, which may never end or never begin, a device and a folder are refused.

    Args:
        path: the file; a link is followed.
        what: what is expected in it, for the error: ``a file of molecules``.
    """
    name = shown(str(path))
    try:
        # Not blocking: to open a pipe would wait until somebody writes to it.
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FileError(f"{name} cannot be read ({said}); expected {what}. Check the path, and who may read it.") from None
    kind = os.fstat(file).st_mode
    if not stat.S_ISREG(kind):
        os.close(file)
        raise FileError(f"{name} is {_kind(kind)}; expected {what} in an ordinary file. Name one, or save it as one first.")
    with open(file, "rb") as opened:
        try:
            yield opened
        except OSError as error:
            if error.errno is None:  # not the system's: what a reader of some format says of the contents
                raise
            raise FileError(f"{name} cannot be read ({error.strerror}); expected {what}. Check the disk.") from error


def read_bytes(path: Path, *, what: str, most: int = LARGEST) -> bytes:
    """Read an ordinary file as a whole; one that has more bytes than ``most`` is refused before it is read.

    Args:
        path: the file.
        what: what is expected in it, for the error: ``a file of questions``.
        most: how many bytes it may have.
    """
    with reading(path, what=what) as file:
        size = os.fstat(file.fileno()).st_size
        found = b"" if size > most else file.read(size + 1)
    if size > most:
        raise FileError(f"{shown(str(path))} has {byte_size(size)}; expected {what} of at most {byte_size(most)}. Split it.")
    if len(found) > size:
        raise FileError(f"{shown(str(path))} grows while it is read; expected {what} that is complete. Wait until it is.")
    return found


def digest_of(path: Path, *, what: str = "a file", most: int = LARGEST) -> str:
    """The SHA-256 of what is in an ordinary file, in hex: it tells files apart that were changed.

    Args:
        path: the file.
        what: what is expected in it, for the error.
        most: how many bytes it may have.
    """
    found = hashlib.sha256()
    with reading(path, what=what) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise FileError(f"{shown(str(path))} has {byte_size(size)}; expected {what} of at most {byte_size(most)}.")
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep others from writing ``path``, a file or a folder, until the block ends.

    The lock is a hidden file, in the folder or beside the file, that says who holds it; after a kill the operating system lifts
    it. What killed writers left in the folder is removed.

    Raises:
        FileError: somebody else holds the lock; the message says who.
    """
    place = path.resolve()
    with writing(path):
        file, lock = _locked_file(place, path)
    try:
        with writing(path):
            os.lseek(file, 0, os.SEEK_SET)
            os.truncate(file, 0)
            os.write(file, _about_this_run())
        _sweep(lock.parent)
        yield
    finally:
        with suppress(OSError):
            lock.unlink()  # while it is held: whoever has opened it meanwhile sees that it is gone, and opens another
        os.close(file)


def _mode_of(path: Path) -> int | None:
    """The permissions of the file to be replaced; None if there is none. Only an ordinary file can be."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISLNK(kind):
        return None
    if not stat.S_ISREG(kind):
        raise FileExistsError(errno.EEXIST, f"it is {_kind(kind)}", str(path))
    return stat.S_IMODE(kind)


def _kind(mode: int) -> str:
    for matches, name in ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket")):
        if matches(mode):
            return name
    return "a device"


def _new_part(folder: Path, suffix: str) -> tuple[int | None, Path]:
    """A new file in a folder under a name that nothing has; it stays open and locked, which tells it from what a kill left.

    On Windows it is closed: what is open there can be neither replaced nor, beyond a lock, written by others.
    """
    while True:
        part = folder / f".{secrets.token_hex(8)}{_PART}{suffix[:16]}"
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if _WINDOWS:
            os.close(file)
            return None, part
        try:
            _lock(file)
        except (BlockingIOError, PermissionError):  # somebody takes it for what a kill left, and is about to remove it
            os.close(file)
            continue
        except OSError:  # a file system without locks: nothing is ever removed there
            return file, part
        if part.exists():  # if not, somebody has removed it before it was locked
            return file, part
        os.close(file)


def _close(file: int | None) -> None:
    if file is not None:
        os.close(file)


def _sweep(folder: Path) -> None:
    """Remove the parts in a folder that nobody is writing any more."""
    for part in () if _WINDOWS else folder.glob(f".*{_PART}*"):
        token = part.name[1:].partition(_PART)[0]
        if len(token) != 16 or not set(token) <= set("0123456789abcdef"):
            continue
        with suppress(OSError):
            file = os.open(part, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            try:
                _lock(file)
                part.unlink()
            finally:
                os.close(file)


_NO_FOLDERS = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EISDIR, errno.EBADF, errno.ENOTSUP, errno.ENOSYS}
"""How systems say that folders cannot be opened, or waited for."""


def _put(part: Path, path: Path) -> None:
    """Give a finished file its name. On Windows, programs that look at the old one (indexers, scanners) are waited for."""
    for _ in range(_TRIES if _WINDOWS else 0):
        try:
            os.replace(part, path)
            return
        except PermissionError:
            time.sleep(_TRY_SECONDS)
    os.replace(part, path)


_TRIES, _TRY_SECONDS = 20, 0.1


def _sync(file: int) -> None:
    """Wait until the disk has what was written to an open file; on macOS, ``os.fsync`` leaves it in the drive's own memory."""
    if sys.platform != "win32":
        import fcntl

        if (full := getattr(fcntl, "F_FULLFSYNC", None)) is not None:
            with suppress(OSError):  # a file system that has no such thing
                fcntl.fcntl(file, full)
                return
    os.fsync(file)


def _to_disk(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder; where a system cannot do that for folders, it is left out."""
    folder = path.is_dir()
    try:
        file = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
        try:
            _sync(file)
        finally:
            os.close(file)
    except OSError as error:
        if not folder or error.errno not in _NO_FOLDERS:
            raise


def _lock(file: int) -> None:
    """Lock an open file for this process, or raise an OSError: BlockingIOError or PermissionError if somebody else has it."""
    if sys.platform == "win32":  # pragma: no cover
        import msvcrt

        os.lseek(file, _LOCK_BYTE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _locked_file(place: Path, path: Path) -> tuple[int, Path]:
    """Open and lock the lock file of a place; an error that says who holds it if somebody else does."""
    name = f".{place.name}.lock"
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = f".{hashlib.sha256(os.fsencode(place.name)).hexdigest()[:32]}.lock"
    lock = place / ".lock" if place.is_dir() else place.with_name(name)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    while True:
        try:
            file = os.open(lock, flags, 0o666)
        except OSError as error:
            if not os.path.lexists(lock):
                raise  # the folder cannot be written to
            raise FileError(
                f"{shown(str(path))} needs the lock {shown(str(lock))}, which cannot be opened ({error.strerror or error}). "
                "Remove that file, or choose another place."
            ) from error
        try:
            _check_ours(file, lock)
            _lock(file)
            if os.read(file, 1) not in (b"", b"{"):  # a file of the user's that is called like it
                raise FileError(f"{shown(str(lock))} is in the place of a lock, and is none of ours. Move it elsewhere.")
            if os.path.samestat(os.fstat(file), os.stat(lock)):
                return file, lock
        except FileError:
            os.close(file)
            raise
        except FileNotFoundError:
            pass
        except (BlockingIOError, PermissionError):
            held = _holder(file)
            os.close(file)
            raise FileError(
                f"{shown(str(path))} is being written by {held}. Wait until that is done, or choose another place."
            ) from None
        except OSError as error:
            os.close(file)
            raise FileError(
                f"{shown(str(path))} cannot be locked ({error.strerror or error}); expected a file system with locks, so that "
                "no other run writes there at the same time. Choose a place on a local disk."
            ) from error
        os.close(file)  # its last holder has removed it between our steps


def _check_ours(file: int, path: Path) -> None:
    """Refuse to write to an open file that somebody has put in the place of ours: a pipe, or another name of a file of his."""
    known = os.fstat(file)
    if not stat.S_ISREG(known.st_mode) or known.st_nlink > 1:
        kind = "has other names too (hard links)" if stat.S_ISREG(known.st_mode) else f"is {_kind(known.st_mode)}"
        raise FileError(
            f"{shown(str(path))} {kind}; expected a file that integrand has made. Remove it, or choose another place."
        )


def _about_this_run() -> bytes:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    about = {"process": os.getpid(), "host": socket.gethostname(), "since": since, "command": shlex.join(sys.argv)}
    return json.dumps(about).encode("utf-8", "replace")


def _holder(file: int) -> str:
    """Who holds a lock, from what its file says."""
    try:
        os.lseek(file, 0, os.SEEK_SET)
        about = json.loads(os.read(file, 1 << 16))
        said = f"process {int(about['process'])} on {about['host']} since {about['since']} ({about['command']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
    return shown(said)
