"""What the commands share: what was typed, notes, errors in one line, files that can be written."""

from __future__ import annotations

import enum
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import typer

from ..errors import FileError, IntegrandError, IntegrandWarning, OptionError

PICTURES = (".png", ".svg", ".pdf")


class ScoreName(enum.StrEnum):
    """What is explained."""

    probability = "probability"
    logit = "logit"
    log_probability = "log-probability"


def typed() -> str:
    """The command as it was typed."""
    return shlex.join(["integrand", *sys.argv[1:]])


def default_device() -> str:
    """A GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def coloured(wanted: bool = True) -> bool:
    """Whether colours are wanted and somebody sees them."""
    return wanted and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@contextmanager
def noted() -> Iterator[list[str]]:
    """Warnings of ours, to be said as notes; others are not for the user of a command."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", IntegrandWarning)
        yield notes
    notes += dict.fromkeys(str(warning.message) for warning in caught)


def say(notes: Sequence[str]) -> None:
    """Notes, a line each, where they do not mix with the answer."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


@contextmanager
def one_line(where: str, hint: str = "", *, debug: bool) -> Iterator[None]:
    """Turn what goes wrong inside, in a user's model for instance, into one line that says where."""
    try:
        yield
    except (IntegrandError, KeyboardInterrupt):
        raise
    except Exception as error:
        if debug:
            raise
        said = (str(error).strip() or "no message").splitlines()[0]
        rest = f"{hint}; " if hint else ""
        raise IntegrandError(f"{where}: {type(error).__name__}: {said}. {rest}--debug shows where it happened.") from error


def check_out(out: Path | None, endings: Sequence[str]) -> None:
    """See that a file has one of these endings and can be written, before the work begins."""
    if out is None:
        return
    if out.suffix.lower() not in endings:
        raise OptionError(f"got --out {str(out)!r}; expected a file that ends in {', '.join(endings)}.")
    ready(out.parent)


def ready(folder: Path) -> None:
    """Make a folder and see that it can be written to."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what keeps a file from being written into one line."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror or error}); choose another place with --out.") from error


def write(path: Path, text: str) -> None:
    """Write a file so that it is never half there."""
    with writing(path):
        part = path.with_name(path.name + ".part")
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)


def stamp(file: Path) -> list[int]:
    """What differs when a file was changed; nothing where there is none."""
    try:
        known = file.stat()
    except OSError:
        return []
    return [known.st_size, known.st_mtime_ns]
