"""Writing files: results by the ending of a path, and files that are complete at any moment."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import FileError, OptionError


def write(
    path: Path,
    options: Mapping[str, Any],
    *,
    picture: Callable[..., Any],
    numbers: Callable[[], Any],
    report: Callable[..., str] | None = None,
) -> Path:
    """Write something by the ending of the path: a picture, its numbers as JSON, or a page.

    Args:
        path: where to.
        options: for pictures and pages.
        picture: gives the figure.
        numbers: gives what JSON can hold.
        report: gives the page, where there is one.
    """
    suffix = path.suffix.lower()
    if suffix in {".png", ".svg", ".pdf"}:
        picture(**options).savefig(path, bbox_inches="tight", pad_inches=0.15)
    elif suffix == ".html" and report is not None:
        path.write_text(report(**options), encoding="utf-8")
    elif suffix == ".json":
        if options:
            raise OptionError(f"got options {sorted(options)} for a .json file; they are for pictures")
        path.write_text(json.dumps(numbers(), indent=1, allow_nan=False), encoding="utf-8")
    else:
        pages = "" if report is None else ".html, "
        raise OptionError(f"got the ending {suffix!r}; expected {pages}.png, .svg, .pdf or .json")
    return path


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
