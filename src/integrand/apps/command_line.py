"""What the commands share: what was typed, notes, errors in one line, a progress bar, what is said at the end of a batch."""

from __future__ import annotations

import enum
import hashlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from ..batch.resumable import BatchSummary
from ..errors import FileError, IntegrandError, IntegrandWarning, OptionError
from ..evaluation.progress import Progress as GradientProgress
from ..files import LARGEST, digest_of, ready
from ..words import shown

Item = TypeVar("Item")

PICTURES = (".png", ".svg", ".pdf")


class ScoreName(enum.StrEnum):
    """The scale on which a prediction is explained."""

    probability = "probability"
    logit = "logit"
    log_probability = "log-probability"


def typed() -> str:
    """The command line as the user typed it."""
    return shlex.join(["integrand", *sys.argv[1:]])


def default_device() -> str:
    """The device to compute on if none is named: the GPU if there is one, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def coloured(wanted: bool = True) -> bool:
    """Whether to print colours: if they are wanted, standard output is a terminal, and NO_COLOR is not set."""
    return wanted and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect this package's warnings as notes for the user, each once; hide the warnings of other packages."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", IntegrandWarning)
        yield notes
    notes += dict.fromkeys(str(warning.message) for warning in caught)


def print_shown(text: str, *, err: bool = False) -> None:
    """Print a text that may hold names of files, or what is in them: the terminal shows all of it, and obeys none of it.

    Args:
        text: one line or several; without colours.
        err: print it to standard error.
    """
    typer.echo(shown(text, lines=True), err=err)


def print_line(text: str, *, err: bool = False) -> None:
    """Print a text like :func:`print_shown`, on one line whatever is in it: a name with a line break does not begin another.

    Args:
        text: the line; without colours.
        err: print it to standard error.
    """
    typer.echo(shown(text), err=err)


def say(notes: Sequence[str]) -> None:
    """Print notes to standard error, a line each, so that they do not mix with the answer."""
    for note in notes:
        print_line(f"note: {note}", err=True)


@contextmanager
def one_line(where: str, hint: str = "", *, debug: bool) -> Iterator[None]:
    """Turn an unexpected error, in a user's model for instance, into one line; ``debug`` lets it through with its traceback."""
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
    """Check before the work begins that the output file has one of these endings and that its folder can be written to."""
    if out is None:
        return
    if out.suffix.lower() not in endings:
        raise OptionError(f"got --out {str(out)!r}; expected a file that ends in {', '.join(endings)}.")
    ready(out.parent)


def stamp(file: Path, *, most: int = LARGEST) -> str:
    """A digest of what is in a file, which differs when that was changed; empty if there is no file that can be read.

    Args:
        file: the file.
        most: the bytes that it may have; one with more is as good as none.
    """
    try:
        return digest_of(file, most=most)
    except FileError:
        return ""


def weights_digest(*models: object) -> str:
    """A digest of the weights and buffers of those of some objects that are networks; others, such as names, do not count."""
    found = hashlib.sha256()
    for model in models:
        for key, value in model.state_dict().items() if isinstance(model, nn.Module) else ():
            found.update(f"{key}\n{getattr(value, 'dtype', '')}\n{tuple(getattr(value, 'shape', ()))}\n".encode())
            try:
                found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
            except (AttributeError, RuntimeError, TypeError):  # not a tensor, or one of a kind that is no row of numbers
                found.update(repr(value).encode("utf-8", "replace"))
    return found.hexdigest()


class BatchBar:
    """A progress bar over many inputs, and over the gradients of the one at hand if there is something to call the inputs."""

    def __init__(self, bar: Progress, total: int, what: str) -> None:
        """Add the lines of the bar.

        Args:
            bar: what draws them.
            total: how many inputs there are.
            what: what to call the inputs; if empty, there is one line, called after the input at hand.
        """
        self._bar = bar
        self._inputs = bar.add_task(what, total=total, visible=not what or total > 1)
        self._gradients = bar.add_task("", total=None) if what else None

    def begin(self, name: str) -> None:
        """Show the name of the input that is explained now."""
        name = shown(name)  # a bar has one line
        if self._gradients is None:
            self._bar.update(self._inputs, description=name[:40])
        else:
            self._bar.reset(self._gradients, total=None, description=name[:80])

    def advance(self, count: int) -> None:
        """Count inputs that are done with."""
        self._bar.advance(self._inputs, count)

    def tell(self, step: GradientProgress) -> None:
        """Show how many gradients of the input at hand are computed."""
        if self._gradients is not None:
            self._bar.update(self._gradients, completed=step.gradients, total=max(step.expected, step.gradients))


@contextmanager
def batch_bar(total: int, what: str = "", *, quiet: bool = False) -> Iterator[BatchBar]:
    """A :class:`BatchBar` on standard error if that is a terminal; one that shows nothing otherwise, or if ``quiet``."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        yield BatchBar(bar, total, what)


@contextmanager
def stoppable(command: str) -> Iterator[None]:
    """On Ctrl-C, say which command continues the batch (without ``--again``, which begins anew), and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        words = shlex.split(command)
        end = words.index("--") if "--" in words else len(words)  # what comes after it are names
        kept = [*(word for word in words[:end] if word != "--again"), *words[end:]]
        anew = len(kept) < len(words)
        how = "without --again it goes on, with old results for the rest" if anew else "the same command goes on where it was"
        print_line(f"stopped; {how}: {shlex.join(kept)}", err=True)
        raise typer.Exit(130) from None


def say_failures(summary: BatchSummary[Item], name: Callable[[Item], str]) -> None:
    """Print to standard error which inputs could not be explained and why, a line each."""
    for item, why in summary.failed:
        print_line(f"not explained: {name(item)}: {why}", err=True)


def end_with(summary: BatchSummary[Item]) -> None:
    """Exit with 1 if some inputs could not be explained, with 2 if none could; return if all could."""
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)
