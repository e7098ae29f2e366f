"""Many texts from the command line: read from a file, explained past those that fail, kept in a table, printed and written.

Questions, translations and texts of other models differ in a :class:`TextJob`; :func:`run_texts` runs one. What is printed and
drawn comes from the rows of the table, so that it is the same whether or not a run was stopped in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

from ...batch.identity import digest_of_input
from ...batch.inputs import TABLES, source_of
from ...batch.many import (
    BatchOutcome,
    BatchSummary,
    BatchTask,
    BatchWatcher,
    Failed,
    StopRequest,
    explain_each,
    explain_window,
    plan,
    stopped_by_signals,
    windows,
)
from ...batch.rows import Row, plain
from ...batch.table import Manifest, TableStore
from ...bounded_reading import MAX_ROW, bounded_bytes
from ...errors import FileError, InputError, IntegrandError, OptionError
from ...files import text_file
from ...words import shortened, shown
from ..command_line import (
    BatchBar,
    Screen,
    echo,
    end_with,
    first_few,
    noted,
    print_line,
    say,
    say_failures,
    say_others,
    say_resumed,
    stoppable,
    typed,
)
from ..output_table import carried_names, clear, output_table
from .text_options import TextOutput

Result = TypeVar("Result")

MOST, DRAWN = 500, 100
"""The most texts on one page, with more of which a browser becomes slow; and the most in one picture, which has an end."""

PRINTED = 20
"""The most results that are printed where there is a file that has all of them."""

HEADINGS = ("utterance", "question", "questions", "text", "texts", "sentence", "query", "prompt")
"""Headings under which tables have their texts; the first that is there counts."""


@dataclass(frozen=True)
class TextInput:
    """One text of many.

    Attributes:
        key: its number, from 1 on: a text that is corrected in its place takes the place of the old one.
        text: the text.
        columns: what its file says of it, and the text itself: further columns of the table.
        problem: why it cannot be explained; empty if it can.
    """

    key: str
    text: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


class TextTask(BatchTask[TextInput]):
    """Texts as inputs of the batch runner, put together with others of about the same length."""

    def __init__(
        self, explain: Callable[[list[str]], Sequence[Any]], *, size: Callable[[str], float], together: int = 1
    ) -> None:
        """Bind what explains.

        Args:
            explain: gives a result with a method ``row()`` for each text.
            size: how long a text is; an error is why it cannot be explained.
            together: texts that are explained in one call.
        """
        self._explain, self._size, self.together = explain, size, together

    def key(self, item: TextInput) -> str:
        """Its number."""
        return item.key

    def name(self, item: TextInput) -> str:
        """How it begins."""
        return shortened(item.text, 40)

    def digest(self, item: TextInput) -> str:
        """A digest of the text, of what is wrong with it, and of what its file says of it: all are in its row."""
        return digest_of_input((item.text, item.problem, dict(item.columns)))

    def problem(self, item: TextInput) -> str:
        """What was wrong with it in reading."""
        return item.problem

    def size(self, item: TextInput) -> float:
        """How long it is."""
        return self._size(item.text)

    def explain(self, items: Sequence[TextInput]) -> Sequence[Any]:
        """The results of some texts."""
        return self._explain([item.text for item in items])

    def row(self, item: TextInput, found: Any) -> Row:
        """The row of a result."""
        row: Row = found.row()
        return row

    def columns(self, item: TextInput) -> Mapping[str, Any]:
        """What its file says of it."""
        return item.columns


@dataclass(frozen=True)
class TextJob:
    """What to do with every text, as the command line has it.

    Attributes:
        task: explains them.
        settings: everything that a result depends on beside its text.
        what: what the texts are called, such as ``questions``.
        unpack: makes a result of the column ``details``.
        show: prints a result.
        numbers: a result as JSON values; several where it has several lines.
        write: writes the first results of a page or picture: the file, the results, and a remark on those that are not there.
        title: what the table is about, for its summary.
        as_json: print JSON.
    """

    task: TextTask
    settings: Mapping[str, Any]
    what: str
    unpack: Callable[[str | None], Any]
    show: Callable[[Any], None] = print
    numbers: Callable[[Any], list[dict[str, Any]]] = lambda one: [one.numbers()]
    write: Callable[[Path, list[Any], str], None] = lambda out, found, lead: None
    title: str = ""
    as_json: bool = False


# ---- reading -----------------------------------------------------------------------------------------------------------------


def texts_of(file: Path, column: str | None, *, what: str = "text", longest: int | None = None) -> Iterator[TextInput]:
    """The texts of a file, one at a time; one that cannot be explained has a problem, and does not end the run.

    Args:
        file: one text per line, or a table: ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``.
        column: the column of a table; None to find it by its heading.
        what: what a text is called.
        longest: the most characters of a text.

    Raises:
        FileError: it cannot be read.
        OptionError: it has no such column.
    """
    if file.name.lower().endswith(TABLES):
        return _table(file, column, what, longest)
    if column is not None:
        raise OptionError(
            f"got --column {column!r} for {shown(str(file))}, which has no columns; expected a file that ends in "
            f"{', '.join(TABLES)}."
        )
    numbers = count(1)
    return (text_input(next(numbers), text, {what: text}, longest) for text in _lines(file))


def text_input(number: int, text: object, columns: Mapping[str, Any] | None = None, longest: int | None = None) -> TextInput:
    """A text as an input of the runner.

    Args:
        number: its place, from 1 on.
        text: what was found there.
        columns: what else is known of it.
        longest: the most characters that it may have.
    """
    columns = columns or {}
    names = carried_names(list(columns))
    known = {names[name]: plain(value) for name, value in columns.items()}
    if not isinstance(text, str):
        told = "nothing" if text is None else f"a {type(text).__name__}"
        return TextInput(str(number), "", known, f"got {told}; expected a text")
    text = text.encode("utf-8", "replace").decode()  # halves of characters are in no table
    if longest is not None and len(text) > longest:
        known = {name: value for name, value in known.items() if value != text}
        why = f"it has {len(text):,} characters; expected at most {longest:,}"
        return TextInput(str(number), text[: longest + 1], known, why)
    return TextInput(str(number), text, known)


def _table(file: Path, column: str | None, what: str, longest: int | None) -> Iterator[TextInput]:
    chosen = column
    for number, (row, problem, _) in enumerate(source_of(file).each(), 1):
        if problem:
            yield TextInput(str(number), "", {}, problem)
            continue
        if chosen is None:
            chosen = _column(file, list(row), what)
        if chosen not in row:
            why = f"it has no {chosen!r}; expected a column of that name"
            if number == 1:
                have = ", ".join(shortened(shown(str(name)), 40) for name in list(row)[:20])
                raise OptionError(f"got --column {chosen!r}, which {shown(str(file))} does not have; expected one of: {have}.")
            yield TextInput(str(number), "", {}, why)
            continue
        yield text_input(number, row[chosen], row, longest)


def _column(file: Path, names: list[str], what: str) -> str:
    """The column that has the texts."""
    lower = {name.strip().lower(): name for name in reversed(names)}
    found = next((lower[name] for name in (what, *HEADINGS) if name in lower), names[0] if len(names) == 1 else None)
    if found is None:
        have = ", ".join(shortened(shown(str(name)), 40) for name in names[:20])
        raise OptionError(f"got {shown(str(file))} with the columns {have}; expected --column with the one that has the texts.")
    return found


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file that are not blank; UTF-8, or else Latin-1."""
    with bounded_bytes(file, what="a file with one text per line") as opened:
        first = True
        while raw := opened.readline(MAX_ROW):
            if b"\0" in raw:
                raise FileError(f"{shown(str(file))} is no text; expected one text per line. Save it as text, in UTF-8.")
            try:
                line = raw.decode("utf-8-sig" if first else "utf-8")
            except UnicodeDecodeError:
                line = raw.decode("latin-1")
            first = False
            if line.strip():
                yield line.strip()


def counted(inputs: Iterable[TextInput], file: Path) -> int:
    """How many texts there are; an error if there is none."""
    total = sum(1 for _ in inputs)
    if not total:
        raise FileError(f"{shown(str(file))} holds no text; expected one per line, or a table of them.")
    return total


# ---- running -----------------------------------------------------------------------------------------------------------------


def explain_typed(task: TextTask, items: Sequence[TextInput]) -> list[Any]:
    """Explain a few texts in one call, as if there were no table; one that cannot be explained does not lose the others.

    Args:
        task: what explains.
        items: the texts.

    Returns:
        A result for each, or a :class:`~integrand.batch.many.Failed`. An error of the only text is raised.
    """
    if len(items) == 1:
        if items[0].problem:
            raise InputError(f"the text cannot be explained: {items[0].problem}.")
        return list(task.explain(items))
    batches, failed = plan(task, {item.key: item for item in items})
    good = {key for batch in batches for key in batch}
    chosen = [item for item in items if item.key in good]
    found: dict[str, Any] = {key: Failed(why) for key, why in failed.items()}
    try:
        results = task.explain(chosen) if chosen else []
        found |= {item.key: one for item, one in zip(chosen, results, strict=True)}
    except task.stops:
        raise
    except IntegrandError:
        for item in chosen:
            try:
                found[item.key] = task.explain([item])[0]
            except task.stops:
                raise
            except IntegrandError as error:
                found[item.key] = Failed(str(error))
    return [found[item.key] for item in items]


def run_typed(
    job: TextJob,
    items: Sequence[TextInput],
    asked: TextOutput,
    screen: Screen,
    *,
    joined: Callable[[Any], Any] = lambda one: one,
) -> None:
    """Explain the texts that were typed, print them and write the file; exit with 1 if some failed, with 2 if all did.

    Args:
        job: what to do with a text.
        items: the texts.
        asked: a file to write, if any; no table.
        screen: where bars are drawn.
        joined: makes of a result what is shown of it, such as words of word pieces.
    """
    with noted() as notes:
        found = explain_typed(job.task, items)
    summary: BatchSummary[TextInput] = BatchSummary()
    for item, one in zip(items, found, strict=True):
        failed = isinstance(one, Failed)
        row = Row.failed(item.key, one.why) if failed else Row(item.key, status="exact")
        summary.add(BatchOutcome(item, item.key, lambda row=row: row, failed=failed))  # type: ignore[misc]
    good = [joined(one) for one in found if not isinstance(one, Failed)]
    if asked.out is not None and good:
        with screen.doing("writing"):
            _write(job, asked.out, iter(good), summary)
    screen.close()
    told = ResultPrinter(job)
    for one in good:
        told.add(one)
    told.end()
    say(notes)
    say_failures(summary, lambda item: f"{_single(job.what)} {item.key}", kept=False)
    if asked.out is not None and good:
        print_line(f"wrote {asked.out}", err=True)
    end_with(summary)


def run_texts(job: TextJob, inputs: Iterable[TextInput], total: int, asked: TextOutput, screen: Screen, bar: BatchBar) -> None:
    """Explain many texts, print them and write the file or the table; exit with 1 if some failed, with 2 if all did.

    Where something is written, what is done is in a table from the start: the same command goes on after a stop. A file is
    written from the table when all texts are done; the table beside it is removed then, unless it is to be kept or some failed.

    Args:
        job: what to do with a text.
        inputs: the texts.
        total: how many they are.
        asked: what is to be written.
        screen: where bars are drawn.
        bar: the one over the texts.
    """
    with noted() as notes, ExitStack() as stack:
        store, stop = opened(job, asked, stack), stack.enter_context(stopped_by_signals())
        summary: BatchSummary[TextInput] = BatchSummary()
        told = ResultPrinter(job, most=PRINTED if asked.out is not None and not job.as_json else None)
        for outcome in explained(job.task, inputs, store, bar, stop, retry_failed=asked.retry_failed):
            if not outcome.known and not outcome.failed:
                say_resumed(summary, total, job.what)
            summary.add(outcome)
            if not outcome.failed and told.wants:
                told.add(job.unpack(outcome.row.details))
        if store is not None:
            with screen.doing("writing"):
                store.finish()
                if asked.out is not None and not asked.folder and summary.explained:
                    _write(job, asked.out, _kept(job, store, summary.total), summary)
            leave(store, asked, summary)
    screen.close()
    told.end(left=summary.explained)
    _say_end(job, summary, notes, asked)
    end_with(summary)


def run_kept(
    job: TextJob,
    inputs: Iterable[TextInput],
    total: int,
    asked: TextOutput,
    bar: BatchBar,
    make: Callable[[list[tuple[TextInput, Any]]], Result],
) -> tuple[Result | None, BatchSummary[TextInput], list[str]]:
    """Explain many texts, of all of which one thing is made, such as rules; a table keeps what is done until that is written.

    Args:
        job: what to do with a text.
        inputs: the texts.
        total: how many they are.
        asked: what is to be written.
        bar: the one over the texts.
        make: makes it of the texts that were explained, and writes it.

    Returns:
        What was made (None if no text was explained), how the run went, and what is to be noted.
    """
    with noted() as notes, ExitStack() as stack:
        store, stop = opened(job, asked, stack), stack.enter_context(stopped_by_signals())
        summary: BatchSummary[TextInput] = BatchSummary()
        found: list[tuple[TextInput, Any]] = []
        for outcome in explained(job.task, inputs, store, bar, stop, retry_failed=asked.retry_failed):
            if not outcome.known and not outcome.failed:
                say_resumed(summary, total, job.what)
            summary.add(outcome)
            if not outcome.failed:
                found.append((outcome.item, job.unpack(outcome.row.details)))
        if store is not None:
            store.finish()
        made = make(found) if found else None
        if store is not None:
            leave(store, asked, summary)
    return made, summary, [*first_few(notes), *_missed(job, summary)]


def opened(job: TextJob, asked: TextOutput, stack: ExitStack) -> TableStore | None:
    """Open the table of a run until the stack is closed, so that Ctrl-C and the like leave what is done in it.

    Args:
        job: what is done with a text.
        asked: where the table is.
        stack: closes it.

    Returns:
        The table; None if nothing is written.
    """
    if asked.out is None:
        return None
    stack.enter_context(stoppable(typed()))
    manifest = Manifest(job.settings, "auto", job.title)
    return stack.enter_context(output_table(asked.out, manifest, folder=asked.folder, again=asked.again))


def explained(
    task: TextTask,
    items: Iterable[TextInput],
    store: TableStore | None,
    watch: BatchWatcher,
    stop: StopRequest,
    *,
    retry_failed: bool = False,
) -> Iterator[BatchOutcome[TextInput]]:
    """Explain texts in the same batches whether or not there is a table; the outcome of each, in order.

    Args:
        task: what explains.
        items: the texts.
        store: the table, if there is one.
        watch: told how far it is.
        stop: looked at after every text.
        retry_failed: explain texts again that an earlier run could not.
    """
    if store is not None:
        yield from explain_each(task, items, store, watcher=watch, retry_failed=retry_failed, stop=stop)
        return
    proven = False
    for window in windows(task, items):
        rows = explain_window(task, {item.key: item for item in window}, watch, proven=proven)
        proven = proven or any(row.ok for row in rows.values())
        for item in window:
            row = rows[item.key]
            yield BatchOutcome(item, item.key, lambda row=row: row, failed=not row.ok)  # type: ignore[misc]
            stop.check()


def leave(store: TableStore, asked: TextOutput, summary: BatchSummary[TextInput]) -> None:
    """Empty the table beside a file that was written, if all of its texts are in the file; its folder goes when it is closed.

    Args:
        store: the table.
        asked: the file, and whether the table is to be kept.
        summary: how the run went.
    """
    if not (asked.folder or asked.keep or summary.failed):
        clear(store.folder)


class ResultPrinter:
    """Prints results as they come: for people, or as one list of JSON."""

    def __init__(self, job: TextJob, *, most: int | None = None) -> None:
        """Begin with nothing printed.

        Args:
            job: knows how.
            most: the most results that are printed; None for all.
        """
        self._job, self._most, self._count, self._lines = job, most, 0, 0

    @property
    def wants(self) -> bool:
        """Whether one more result would be printed."""
        return self._most is None or self._count < self._most

    def add(self, one: Any) -> None:
        """Print one more result."""
        self._count += 1
        if not self._job.as_json:
            self._job.show(one)
            return
        for numbers in self._job.numbers(one):
            echo((", " if self._lines else "[") + json.dumps(numbers, allow_nan=False))
            self._lines += 1

    def end(self, *, left: int = 0) -> None:
        """Print what comes after the last result.

        Args:
            left: how many results there are in all.
        """
        if self._job.as_json:
            echo("]" if self._lines else "[]")
        elif left > self._count:
            print_line(f"and {left - self._count:,} more")


def _write(job: TextJob, out: Path, found: Iterator[Any], summary: BatchSummary[TextInput]) -> None:
    """Write a file: all results as JSON, the first of them on a page or in a picture."""
    if out.suffix.lower() == ".json":
        with text_file(out) as file:
            lines = (numbers for one in found for numbers in job.numbers(one))
            for i, numbers in enumerate(lines):
                file.write(("[\n" if not i else ",\n") + json.dumps(numbers, indent=1, allow_nan=False))
            file.write("\n]\n")
        return
    page = out.suffix.lower() == ".html"
    first = list(islice(found, MOST if page else DRAWN))
    lead = []
    if summary.explained > len(first):
        lead.append(f"The first {len(first):,} of {summary.explained:,} {job.what}; --out {out.stem}.json has all.")
    if summary.failed:
        lead.append(f"{summary.failed:,} of {summary.total:,} {job.what} could not be explained.")
    job.write(out, first, " ".join(lead) if page else "")
    say(lead if not page else [])


def _kept(job: TextJob, store: TableStore, total: int) -> Iterator[Any]:
    """The results of a table, in the order of the texts."""
    for number in range(1, total + 1):
        row = store.get(str(number))
        if row is not None and row.ok:
            yield job.unpack(row.details)


def _say_end(job: TextJob, summary: BatchSummary[TextInput], notes: Sequence[str], asked: TextOutput) -> None:
    """Say what went well and what did not."""
    say([*first_few(notes), *_missed(job, summary)])
    say_failures(summary, lambda item: f"{_single(job.what)} {item.key}", kept=asked.out is not None)
    if asked.out is not None and asked.out.is_dir():
        say_others(asked.out, summary)
    if asked.out is not None and summary.explained:
        before = f" ({summary.known:,} done before)" if summary.known else ""
        print_line(f"explained {summary.explained:,} of {summary.total:,} {job.what}{before}; wrote {asked.out}", err=True)


def _missed(job: TextJob, summary: BatchSummary[TextInput]) -> list[str]:
    if not summary.missed:
        return []
    said = f"not as exact as asked for: {summary.missed:,} of {summary.total:,} {job.what}"
    return [f"{said}; allow more work with --max-evaluations, or ask for less with --tol"]


def _single(what: str) -> str:
    return what.removesuffix("s")
