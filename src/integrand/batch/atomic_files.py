"""Files that are complete at any moment: written beside their place, then moved there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import FileError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating system error while writing a file into a one-line :class:`~integrand.errors.FileError`."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror or error}); choose another place with --out.") from error


def ready(folder: Path) -> None:
    """Create a folder if there is none, and check that files can be created in it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; what was written there replaces ``path`` if the block ends without an error."""
    part = path.with_name(path.name + ".part")
    try:
        with writing(path):
            yield part
            os.replace(part, path)
    finally:
        with suppress(OSError):  # it is gone if all went well, and may never have been there
            part.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text (UTF-8) so that a reader sees the old file or the new one, never half of it."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
