"""What the commands share: options, what was typed, the first line for people, notes, bars, and what is said at the end.

Nothing heavy is imported until a command runs: ``integrand image --help`` must not wait for a network that it does not need.
"""

from __future__ import annotations

import enum
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..errors import FileError, IntegrandError, OptionError, collected
from ..files import LARGEST, digest_of, made_here, ready, writing
from ..words import shown

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ..batch.many import BatchSummary
    from ..certificate import ExampleCertificate
    from ..evaluation.progress import Progress as GradientProgress

Item = TypeVar("Item")

has_options: ContextVar[frozenset[str]] = ContextVar("has_options", default=frozenset(("--tol", "--max-evaluations")))
"""The options of the command that runs: no advice names another."""

PICTURES = (".png", ".svg", ".pdf")

WHAT, ACCURACY, OUTPUT, NETWORK, WHERE, LIMITS, EXPERTS = (
    "What is explained",
    "How accurately",
    "Output",
    "The network",
    "Where",
    "How much a user may ask",
    "For experts",
)
"""The panels in which every command shows its options."""


def _share(tol: float) -> float:
    """The tolerance, if it is a share: 5 is 500%, and whoever writes that wants 0.05."""
    if tol > 1:
        raise typer.BadParameter(f"got {tol:g}, which is {100 * tol:g}%; expected a share: {tol / 100:g} for {tol:g}%.")
    return tol


Tol = Annotated[
    float,
    typer.Option(help="The relative error to integrate to: 0.05 is 5%.", rich_help_panel=ACCURACY, callback=_share),
]
Most = Annotated[
    int, typer.Option(min=17, help="Gradients that one explanation may take.", rich_help_panel=ACCURACY, metavar="N")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, with all figures.", rich_help_panel=OUTPUT)]
Force = Annotated[
    bool,
    typer.Option("--force", help="Replace a file that integrand did not write; make missing folders.", rich_help_panel=OUTPUT),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Also print how the numbers came about, and their errors.", rich_help_panel=OUTPUT)
]
Colour = Annotated[bool, typer.Option("--color/--no-color", help="Colours on a terminal.", rich_help_panel=OUTPUT)]
Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, mps. Default: cuda where there is one.", rich_help_panel=NETWORK, show_default=False),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an unexpected error happened.", rich_help_panel=EXPERTS)]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run a --model that is code. Only if you trust its source.", rich_help_panel=NETWORK),
]


RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", help="Try inputs again that an earlier run could not explain.", rich_help_panel=OUTPUT),
]

FAILURES = 20
"""The most inputs that are named at the end because they could not be explained."""

WIDE = 100
"""Columns of a terminal from which on a bar is shown with all that belongs to it; below, it is shorter."""


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
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def coloured(wanted: bool = True) -> bool:
    """Whether to print colours: if they are wanted, standard output is a terminal, and NO_COLOR is not set."""
    return wanted and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def headline_of(result: Any) -> str:
    """The one line that answers: what the network said, what mattered most, and how sure the numbers are.

    Args:
        result: that of any application, which has it as its ``sentence``; of anything else, the first line of its text.
    """
    return str(getattr(result, "sentence", "")) or next(iter(str(result).splitlines()), "")


def figures(example: ExampleCertificate) -> str:
    """The figures of a certificate with their names, one to a line, for ``--verbose``."""
    from ..render.certificate_text import facts, sum_note

    rows = [(name, value) for name, value, _ in facts(example)]
    wide = max(len(name) for name, _ in rows)
    lines = [f"  {name.ljust(wide)}  {shown(value)}" for name, value in rows]
    lines.append(f"  {'Status'.ljust(wide)}  {example.status.value}")
    notes = [f"  {in_options(note)}" for note in (sum_note(example), example.remedy) if note]
    return "\n".join([*lines, *notes])


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect this package's warnings as notes for the user, each once, worded for a command; hide those of others."""
    notes: list[str] = []
    with collected() as warned:
        yield notes
    notes += dict.fromkeys(in_options(text) for text in warned)


def in_options(text: str) -> str:
    """A message of the package in the words of the command that runs: advice names its options, not Python's keywords.

    Args:
        text: a remedy, a warning or an error, as Python's users read it.
    """
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    return text


def _has(option: str) -> bool:
    """Whether the command that runs has an option."""
    return option in has_options.get()


def _missed(found: re.Match[str]) -> str:
    """What to do where the work that was allowed was not enough for the tolerance."""
    error, tol, needed = found.groups()
    advice = []
    if _has("--max-evaluations"):
        advice.append(f"allow more work with --max-evaluations {_rounded_up(float(needed)) if needed else 8000}")
    if _has("--tol"):
        advice.append(f"ask for less with --tol {_rounded_up(float(error) * 1.05) / 100:g}")
    return f"the error is estimated at {error}%, not within {tol}; {' or '.join(advice) or 'take the numbers as rough'}"


def _coarser(found: re.Match[str]) -> str:
    """What to do where numbers of so few digits allow no smaller error."""
    advice = [f"compute with --dtype {found[1]}"] if found[1] and _has("--dtype") else []
    advice.append(f"ask for less with --tol {_rounded_up(float(found[2]) * 1.05) / 100:g}" if _has("--tol") else "accept that")
    return " or ".join(advice)


def _rounded_up(value: float) -> float:
    """The next number with at most two digits that is larger.

    >>> _rounded_up(5213), _rounded_up(3.1), _rounded_up(120)
    (5300, 3.2, 130)
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    more = (math.floor(value / unit + 1e-9) + 1) * unit
    return int(more) if unit >= 1 else round(more, 9)


_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        r"the tolerance was not met for 1 of 1 example\(s\); example 0: [a-z ]+: the error is estimated",
        "not as exact as asked for: the error is estimated",
    ),
    (
        r"the tolerance was not met for (\d+) of (\d+) example\(s\); example (\d+): [a-z ]+: ",
        lambda found: f"not as exact as asked for in {found[1]} of {found[2]} (first: number {int(found[3]) + 1}): ",
    ),
    (
        r"the error is estimated at ([\d.e+-]+)%, not within ([\d.e+-]+%); raise max_evaluations, steps or memory"
        r"(?: \(about (\d+) evaluations\))?, or ask for a larger tol\b",
        _missed,
    ),
    (r"(?:use (?:precision='float32'|a model and input in (float\d+)) or|or ask for) a tolerance above ([\d.]+)%", _coarser),
    (r"or ask for a larger tol\b", "or ask for less with a larger --tol"),
    (r"raise max_evaluations, steps or memory", "allow more work with a larger --max-evaluations"),
    (r"too few steps to estimate the error; use more, or None to integrate to a tolerance", "too little work to say how exact"),
    # names of options
    (r"use a model and input in (float\d+), (?=explain the score)", r"compute with --dtype \1, "),
    (r"\b(?:pass|Pass) (layout|gaps|baseline)='([\w-]+)'", r"give --\1 \2"),
    (r"\b(?:pass|with|Pass one as|Use) (target|score|baseline)=(?:'([\w-]+)')?", r"with --\1 \2"),
    (r"\bscore='([\w-]+)'", r"--score \1"),
    (r"\b(baseline|gaps|layout|alphabet)='([\w-]+)'", r"--\1 \2"),
    (r"Leave edge_weights out, or (?:give|use) [^.]+\.", "Use --no-edge-weights."),
    (r"\b(channels|classes|columns)=\[\.\.\.\]", r"--\1"),
    (r"\bcolumns=\{.*?\}(?=\.)", "the columns that --model may give beside the model"),
    (r", of its type \(dtype=\), and embeddings as takes= says", ", or --model to give both"),
    (r"\b(columns|target)=(?=[,;:. )]|$)", r"--\1"),
    (r"\btimes='\.\.\.'", "--time"),
    (r"\b(rate|channel|horizon|window|layout|alphabet)=(?=[,;:. ]|$)", r"--\1"),
    (r"Compare baselines with integrand\.baselines\.diagnose\(model, x\), or average several", "Try another --baseline"),
    (r" Pass chunk=\d+ to start there\.", ""),
    (r"\bgot (target|score|baseline|tol|path|device|max_evaluations|beam|layout|window|horizon|gaps|rate)=", r"got --\1 "),
    # counting from one, as people do
    (r"\btext (\d+): ", lambda found: f"text {int(found[1]) + 1}: "),
    (r"\btext (\d+) is empty", lambda found: f"text {int(found[1]) + 1} is empty"),
    (r" for example\(s\) \[0\]", ""),
    (r" for 1 of 1 example\(s\)", ""),
    (r"of example 0 and", "and"),
    (r"\bexample\(s\)", "inputs"),
)
"""This package's words in messages, and those of its commands, in the order in which they are replaced."""


_LIVE: list[Progress] = []
"""The bars on the terminal, if there are any: what is printed goes above them."""


def echo(text: str, *, err: bool = False) -> None:
    """Print a text, with its colours, above the bars if there are some; nothing in it is made harmless.

    Args:
        text: one line or several.
        err: print it to standard error.
    """
    if _LIVE and (sys.stderr if err else sys.stdout).isatty():
        from rich.text import Text

        _LIVE[-1].console.print(Text.from_ansi(text), soft_wrap=True, highlight=False)
    else:
        typer.echo(text, err=err, color=True)


def print_shown(text: str, *, err: bool = False) -> None:
    """Print a text that may hold names of files, or what is in them: the terminal shows all of it, and obeys none of it.

    Args:
        text: one line or several; without colours.
        err: print it to standard error.
    """
    echo(shown(text, lines=True), err=err)


def print_line(text: str, *, err: bool = False) -> None:
    """Print a text like :func:`print_shown`, on one line whatever is in it: a name with a line break does not begin another.

    Args:
        text: the line; without colours.
        err: print it to standard error.
    """
    echo(shown(text), err=err)


def say(notes: Sequence[str]) -> None:
    """Print notes to standard error, a line each, so that they do not mix with the answer."""
    for note in notes:
        print_line(f"note: {note}", err=True)


def first_few(notes: Sequence[str], most: int = 5) -> list[str]:
    """The first notes, and how many more there are: of thousands of inputs there may be many.

    >>> first_few(["a", "b", "c"], 2)
    ['a', 'b', 'and 1 more']
    """
    return [*notes[:most], *([f"and {len(notes) - most} more"] if len(notes) > most else [])]


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


def check_name(option: str, name: str, expected: str) -> None:
    """Refuse an empty name, as a variable of a shell that is not set gives it.

    Args:
        option: where it was given, for the error.
        name: what was given.
        expected: what it should have been.
    """
    if not name.strip():
        raise OptionError(f"got {option} {name!r}, which is empty; expected {expected}.")


def only_model(names: Sequence[str], expected: str, *, why: str = "") -> str:
    """The one network that a command takes; an error if there are several, rather than to take the last without a word.

    Args:
        names: what was given with ``--model``.
        expected: what a name should be, for the error.
        why: why several are not compared here, as a sentence.
    """
    for name in names:
        check_name("--model", name, expected)
    if len(names) > 1:
        raise OptionError(
            f"got --model {len(names)} times ({', '.join(names)}); expected one. {f'{why} ' if why else ''}Two networks are "
            "compared on a photo (integrand image), a molecule (integrand molecule) or a text (integrand text), and in Python "
            "with integrand.compare_models."
        )
    return names[0]


def check_out(out: Path | None, endings: Sequence[str], *, force: bool = False) -> None:
    """Check before the work begins that an output file has one of these endings, and that it may be written.

    Args:
        out: the file; None if there is none.
        endings: what its name may end in.
        force: replace whatever is there, and make the folders that are missing.
    """
    if out is None:
        return
    if out.suffix.lower() not in endings:
        raise OptionError(f"got --out {str(out)!r}; expected a file that ends in {', '.join(endings)}.")
    check_place(out, force=force)


def check_place(out: Path, *, force: bool) -> None:
    """Check that an output file is new or ours, and that its folder is there and can be written to.

    Args:
        out: the file, of any kind.
        force: replace whatever is there, and make the folders that are missing.
    """
    with writing(out), suppress(FileNotFoundError):
        out.lstat()  # a name may be too long
    check_folder(out.parent, f"--out {shown(str(out))!r}", force=force)
    ready(out.parent)
    if out.exists() and not out.is_file():
        raise OptionError(f"got --out {shown(str(out))!r}, which is no ordinary file; expected one, or a new name.")
    if not force and out.is_file() and not made_here(out):
        raise OptionError(
            f"got --out {shown(str(out))!r}, which is there already and was not written by integrand; expected a new name. "
            "--force replaces it."
        )


def check_folder(folder: Path, asked: str, *, force: bool) -> None:
    """Check that a folder is there, so that a typing error in a path does not become a folder.

    Args:
        folder: where something is to be written.
        asked: the option that asks for it, for the error.
        force: the folder will be made.
    """
    if force or folder.exists():
        return
    near = next((one for one in folder.absolute().parents if one.is_dir()), Path("/"))
    raise OptionError(
        f"got {asked}, and there is no folder {shown(str(folder))!r}; expected one that exists (the nearest is "
        f"{shown(str(near))!r}). --force makes it."
    )


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


class Screen:
    """What a person sees while a command works: what it is doing, and bars with the time left. On a terminal only."""

    def __init__(self, bar: Progress | None) -> None:
        """Begin with nothing on it.

        Args:
            bar: what draws the lines; None to draw nothing.
        """
        self._bar = bar

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show a line that says what is going on, with the time it has taken so far, until the block ends."""
        if self._bar is None:
            yield
            return
        task = self._bar.add_task(shown(what), total=None, left="")
        try:
            yield
        finally:
            self._bar.remove_task(task)

    def loading(self) -> Any:
        """:meth:`doing` for what every command begins with: the packages and the weights are read."""
        return self.doing("loading the network")

    def close(self) -> None:
        """Take the bars away: the answer is printed next."""
        if self._bar is not None and self._bar in _LIVE:
            self._bar.stop()
            _LIVE.remove(self._bar)

    def batch(self, total: int | None, what: str = "") -> BatchBar:
        """Add the bars of a run over inputs.

        Args:
            total: how many there are; None if that is not known.
            what: what to call them; if empty, there is one line, called after the input at hand.
        """
        return BatchBar(self._bar, total, what)


@contextmanager
def working(*, quiet: bool = False) -> Iterator[Screen]:
    """A :class:`Screen` on standard error if that is a terminal; one that shows nothing otherwise, or if ``quiet``."""
    if quiet or not sys.stderr.isatty():
        yield Screen(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    wide = console.width >= WIDE
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24 if wide else 8),
        TaskProgressColumn(),
        *([TimeElapsedColumn()] if wide else []),
        TimeRemainingColumn(),
        TextColumn("{task.fields[left]}"),
    )
    # What commands print is theirs to place: redirecting would send the answer to standard error.
    how: dict[str, Any] = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
    # The time left is that of the whole run: an input may take longer than the half minute that is looked back on otherwise.
    with Progress(*columns, console=console, speed_estimate_period=math.inf, **how) as bar:
        _LIVE.append(bar)
        screen = Screen(bar)
        try:
            yield screen
        finally:
            screen.close()


class BatchBar:
    """A bar over inputs with the time left, and one over the work on the input at hand if there is something to call them."""

    def __init__(self, bar: Progress | None, total: int | None, what: str = "") -> None:
        """Add the lines of the bar.

        Args:
            bar: what draws them; None to draw nothing.
            total: how many inputs there are; None if that is not known.
            what: what to call the inputs; if empty, there is one line, called after the input at hand.
        """
        self._bar, self._total, self._what = bar, total, what
        self._done, self._gradients, self._share = 0, 0, 0.0
        self._failed, self._before, self._since = 0, 0, time.monotonic()
        self._begun = False
        self._parts, self._part = 1, 0
        self._longest = 40 if bar is None or bar.console.width >= WIDE else 20
        self._inputs: TaskID | None = None
        self._work: TaskID | None = None
        if bar is not None:
            several = total is None or total > 1
            self._inputs = bar.add_task(what, total=total, visible=several, left="left" if total else "")
            self._work = bar.add_task(what, total=None, visible=bool(what) or total == 1, left="")

    def begin(self, name: str, parts: int = 1) -> None:
        """Show the name of the input that is explained now.

        Args:
            name: what it is called.
            parts: how many integrals are computed for it, one after the other.
        """
        if self._bar is None or self._inputs is None or self._work is None:
            return
        name = shown(name)[: self._longest]  # a bar has one line
        if not self._begun:  # what was done before took no time: it tells nothing of how long the rest will take
            self._begun, self._before, self._since = True, self._done, time.monotonic()
            self._bar.reset(self._inputs, completed=self._done, left=self._left())
            self._bar.advance(self._inputs, 0)  # from here on the time is taken
        self._gradients, self._share, self._parts, self._part = 0, 0.0, parts, 0
        self._bar.reset(self._work, total=None, description=name, left="")
        if not self._what:
            self._bar.update(self._inputs, description=name)

    def advance(self, count: int, failed: int = 0) -> None:
        """Count inputs that are done with, and how many of them failed; shows how many are done in a second."""
        self._done += count
        self._failed += failed
        if self._bar is not None and self._inputs is not None:
            known = f" of {self._total}" if self._total is not None else ""
            said = {"description": f"{self._done}{known} {self._what}"} if self._what else {}
            self._bar.update(self._inputs, advance=count, left=self._left(), **said)  # type: ignore[arg-type]

    def _left(self) -> str:
        """What stands after the time left: the pace of this run, and how many inputs failed."""
        rate = (self._done - self._before) / max(time.monotonic() - self._since, 1e-3)
        pace = [f"{_rounded(rate)} a second" if rate >= 1 else f"{_rounded(60 * rate)} a minute"] if rate else []
        left = [] if self._total is None else ["left"]
        return ", ".join([*left, *pace, *([f"{self._failed} failed"] if self._failed else [])])

    def tell(self, step: GradientProgress) -> None:
        """Show how much of the work on the input at hand is done.

        The total is an estimate that moves: the bar shows the share, which never goes back, so that the time left is known.
        """
        if self._bar is None or self._work is None:
            return
        if step.gradients < self._gradients:  # the next integral for the same input
            self._part += 1
            if self._part >= self._parts:  # more of them than was said
                self._share, self._part = 0.0, 0
                self._bar.reset(self._work, total=1.0)
        self._gradients = step.gradients
        share = (self._part + step.gradients / max(step.expected, step.gradients, 1)) / self._parts
        self._share = max(self._share, share)
        self._bar.update(self._work, completed=self._share, total=1.0, left="left")


def _rounded(rate: float) -> str:
    """A rate with two digits, or as a whole number."""
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


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


def say_resumed(summary: BatchSummary[Item], total: int, what: str) -> None:
    """Before the first input that this run explains, print to standard error how many an earlier run has done.

    Args:
        summary: the run so far, without that input; inputs that failed do not count.
        total: how many inputs there are.
        what: what they are called.
    """
    if summary.known and summary.known == summary.explained:
        print_line(f"going on: {summary.known} of {total} {what} were done before", err=True)


def say_failures(summary: BatchSummary[Item], name: Callable[[Item], str], *, kept: bool = True) -> None:
    """Print to standard error which inputs could not be explained and why, a line each.

    Args:
        summary: how the run went.
        name: what an input is called.
        kept: whether there is a table that the next run goes on from.
    """
    for item, why in summary.reasons[:FAILURES]:
        print_line(f"not explained: {name(item)}: {in_options(why)}", err=True)
    if summary.failed > FAILURES:
        where = "the table has the reasons" if kept else "with --out, a table has the reasons"
        print_line(f"not explained: {summary.failed - FAILURES} more; {where}", err=True)
    if kept and summary.failed and _has("--retry-failed"):
        print_line("--retry-failed tries them again", err=True)


def say_others(folder: Path, summary: BatchSummary[Item]) -> None:
    """Say how many rows of a table are of inputs that were not among those of the run: they count for whoever reads it."""
    from ..batch import ExplainedTable
    from ..batch.many import ManyExplained, rows_of_others

    if (others := ManyExplained(ExplainedTable.open(folder), summary, 0.0).others) > 0:
        print_line(f"note: in the table, {rows_of_others(others)}", err=True)


def end_with(summary: BatchSummary[Item]) -> None:
    """Exit with 1 if some inputs could not be explained, with 2 if none could; return if all could."""
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)
