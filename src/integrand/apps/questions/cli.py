"""``integrand questions`` and ``integrand rules``: what questions ask for, by which words, and rules over many of them."""

from __future__ import annotations

import enum
import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import OptionError
from ...files import reading, write_text
from ...version import generator
from ..command_line import (
    NETWORK,
    OUTPUT,
    PICTURES,
    WHAT,
    BatchBar,
    Colour,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    ScoreName,
    Tol,
    Verbose,
    coloured,
    echo,
    end_with,
    figures,
    headline_of,
    only_model,
    print_line,
    print_shown,
    say,
    say_failures,
    typed,
    working,
)
from ..text.text_options import Again, Column, Keep, TextOutput
from .question_files import ASKED, BYTES, LONGEST, QuestionRecord, decoded, parsed, read

if TYPE_CHECKING:
    from .. import questions as app
    from ..text.text_batch import TextInput

ENDINGS = (".txt", ".tsv", ".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz", ".label")
"""A single word with such an ending is taken for the name of a file, not for a question."""

OBJECTS = (".jsonl", ".ndjson", ".parquet", ".gz")
"""Files with such an ending are tables in any case; .csv and .tsv may be questions, one per line."""

APART = "wtq and trec sort questions into different classes, so that their answers cannot be subtracted; ask one at a time."
"""Why two networks are not compared on a question."""


class ModelName(enum.StrEnum):
    """The data set that a question classifier was trained on: WikiTableQuestions or TREC."""

    wtq = "wtq"
    trec = "trec"


Model = Annotated[
    list[ModelName],
    typer.Option(
        help="wtq (the default): number, year, date, yes-no, text. trec: person, location, description, ...",
        metavar="wtq|trec",
        show_default=False,
        rich_help_panel=NETWORK,
    ),
]
DEFAULT = (ModelName.wtq,)


def questions(
    question: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION", help="Questions; or a file with one per line or a table of them, - for standard input."
        ),
    ],
    column: Column = None,
    target: Annotated[
        str | None, typer.Option(help="The class to explain. Default: what the network says.", rich_help_panel=WHAT)
    ] = None,
    score: Annotated[
        ScoreName, typer.Option(help="The scale on which it is explained.", rich_help_panel=WHAT)
    ] = ScoreName.probability,
    tol: Tol = 0.01,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A page (.html), a picture (.png, .svg, .pdf), numbers (.json); without an ending, a folder for a table.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="In a picture: also the running sums.", rich_help_panel=OUTPUT)
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
    colour: Colour = True,
    again: Again = False,
    retry_failed: RetryFailed = False,
    keep: Keep = False,
    force: Force = False,
    model: Model = DEFAULT,  # type: ignore[assignment]  # typer makes lists of it
    device: Device = None,
) -> None:
    """What does a question ask for, and which of its words told?

    Of a file of questions what is done is kept beside the output, and the same command goes on where it was stopped.
    """
    given = {"force": force, "again": again, "keep": keep, "retry_failed": retry_failed}
    asked = TextOutput.checked(out, (".html", *PICTURES, ".json"), **given)
    if running and (out is None or asked.folder or out.suffix.lower() == ".json"):
        raise OptionError("got --running without a picture to draw in; expected --out with .png, .svg or .pdf. Leave it out.")
    name = only_model(model, "wtq or trec", why=APART)
    with working() as screen:
        with screen.doing("looking at the questions"):
            source = _asked(question, column)
        with screen.loading():
            from ...render import text as pictures
            from .. import questions as app
            from ..text.text_batch import TextJob, run_texts, run_typed

            classifier = app.load(name, device=device)
        many = source.file or asked.folder
        bar = screen.batch(source.total if many else 1, "questions" if many else "")
        how: dict[str, Any] = {"target": target, "score": score.value, "tol": tol, "max_evaluations": max_evaluations}

        def show(one: app.WordAttribution) -> None:
            print_line(headline_of(one))
            words = pictures.terminal(one.tokens, colour=coloured(colour), detail=verbose)
            echo("\n".join(f"  {line}" for line in words.splitlines()))
            if verbose:
                print_shown(figures(one.certificate))

        def write(out: Path, found: list[app.WordAttribution], lead: str) -> None:
            pictures.save([one.tokens for one in found], out, **_options(out, classifier, running, lead))

        job = TextJob(
            *_task(classifier, how, bar),
            what="questions",
            unpack=app.WordAttribution.of_details,
            show=show,
            numbers=lambda one: [{"sentence": headline_of(one)} | one.tokens.numbers()],
            write=write,
            title="What the questions ask for",
            as_json=as_json,
        )
        if many:
            run_texts(job, source.inputs(), source.total, asked, screen, bar)
        else:
            bar.begin(f"{source.total} question{'s' if source.total > 1 else ''}", _batches(source.total))
            run_typed(job, list(source.inputs()), asked, screen)


def rules(
    file: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Questions, one per line (with TREC's labels or none), or WikiTableQuestions' .tsv; - for input.",
        ),
    ],
    longest: Annotated[int, typer.Option(min=1, max=8, help="Words of a phrase.", rich_help_panel=WHAT)] = 4,
    least: Annotated[int, typer.Option(min=1, help="Questions that must support a rule.", rich_help_panel=WHAT)] = 5,
    precise: Annotated[
        float, typer.Option(min=0, max=1, help="The precision below which a rule is suspicious.", rich_help_panel=WHAT)
    ] = 0.75,
    most: Annotated[int, typer.Option(min=1, help="Rules of each class and kind.", rich_help_panel=WHAT)] = 20,
    tol: Tol = 0.05,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None, typer.Option(help="A page (.html), data (.json) or text (.txt).", rich_help_panel=OUTPUT)
    ] = None,
    as_json: Json = False,
    again: Again = False,
    retry_failed: RetryFailed = False,
    keep: Keep = False,
    force: Force = False,
    model: Model = DEFAULT,  # type: ignore[assignment]  # typer makes lists of it
    device: Device = None,
) -> None:
    """Which words and phrases trigger which class? Usual rules, new ones, and suspicious ones.

    With --out, what is done is kept beside it, and the same command goes on where it was stopped.
    """
    given = {"force": force, "again": again, "keep": keep, "retry_failed": retry_failed}
    asked = TextOutput.checked(out, (".html", ".json", ".txt"), **given)
    if asked.folder:
        raise OptionError(
            f"got --out {str(out)!r} without an ending; expected a file that ends in .html, .json or .txt. The table of all "
            "questions is what integrand questions FILE --out FOLDER writes."
        )
    name = only_model(model, "wtq or trec", why=APART)
    record = _files(file)
    with working() as screen:
        with screen.loading():
            from .. import questions as app
            from ..text.text_batch import TextJob, run_kept

            classifier = app.load(name, device=device)
        labels = record.labels_for(classifier.classes)
        if record.labels is not None and labels is None:
            say([f"the labels of the file are not those of --model {name}; precision is by what the network says"])
        bar = screen.batch(len(record.questions), "questions")
        source = _record(record)
        job = TextJob(
            *_task(classifier, {"tol": tol, "max_evaluations": max_evaluations}, bar),
            what="questions",
            unpack=app.WordAttribution.of_details,
            title="What the network goes by",
        )
        how: dict[str, Any] = {"tol": tol, "longest": longest, "least": least, "precise": precise, "most": most}

        def made(results: list[tuple[TextInput, app.WordAttribution]]) -> app.Rules:
            true = None if labels is None else [labels[int(item.key) - 1] for item, _ in results]
            texts = [item.text for item, _ in results]
            found = app.rules(_KnownAnswers(classifier, [one for _, one in results]), texts, true, **how)
            if out is not None and out.suffix.lower() == ".txt":
                write_text(out, f"{found}\n\n# {generator()}: {typed()}\n")
            elif out is not None:
                found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
            return found

        found, summary, notes = run_kept(job, source.inputs(), len(record.questions), asked, bar, made)
    if found is not None and as_json:
        typer.echo(json.dumps(found.numbers(), allow_nan=False))
    elif found is not None and out is None:
        print_shown("\n".join([*filter(None, [getattr(found, "sentence", "")]), str(found)]))
    elif found is not None:
        print_line(headline_of(found))
    say(notes)
    say_failures(summary, lambda item: f"question {item.key}")
    if found is not None and out is not None:
        print_line(f"wrote {out}", err=True)
    end_with(summary)


class _KnownAnswers:
    """A classifier that has explained its questions already, as :func:`integrand.apps.questions.rules` takes it."""

    def __init__(self, classifier: app.Classifier, results: list[app.WordAttribution]) -> None:
        self._classifier, self._left = classifier, iter(results)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._classifier, name)

    def explain(self, texts: Sequence[str], **how: Any) -> list[app.WordAttribution]:
        """The next results, one for each text."""
        return [next(self._left) for _ in texts]


def _task(classifier: app.Classifier, how: dict[str, Any], bar: BatchBar) -> tuple[Any, dict[str, Any]]:
    """What explains questions, and everything that a result depends on beside its question."""
    from ...batch.identity import settings_of
    from ..text.text_batch import TextTask
    from .model import BATCH

    explain: Callable[..., Any] = functools.partial(classifier.explain, **how)
    task = TextTask(lambda texts: explain(texts, progress=bar.tell), size=classifier.size, together=BATCH)
    return task, settings_of(explain) | {"command": "questions", "together": BATCH}


@dataclass(frozen=True)
class QuestionSource:
    """The questions that were asked for.

    Attributes:
        inputs: begins a stream of them.
        total: how many they are.
        file: whether they are from a file, or from standard input.
    """

    inputs: Callable[[], Iterator[TextInput]]
    total: int
    file: bool


def _batches(count: int) -> int:
    """How many integrals so many questions take, one after the other."""
    from .model import BATCH

    return -(-count // BATCH)


def _asked(given: Sequence[str], column: str | None) -> QuestionSource:
    """The questions that were typed; if the only one is the name of a file, or -, those in the file or in standard input."""
    if len(given) == 1 and (given[0] == "-" or _is_path(given[0])):
        if given[0] != "-" and _is_table(Path(given[0]), column):
            from ..text.text_batch import counted, texts_of

            file = Path(given[0])
            inputs = functools.partial(texts_of, file, column, what="question", longest=LONGEST)
            return QuestionSource(inputs, counted(inputs(), file), file=True)
        return _record(_files(given))
    if column is not None:
        raise OptionError(f"got --column {column!r} without a file; expected the name of a table: .csv, .tsv or .jsonl.")
    return _record(QuestionRecord(tuple(given), None), file=False)


def _record(record: QuestionRecord, *, file: bool = True) -> QuestionSource:
    """Questions that were read."""

    def inputs() -> Iterator[TextInput]:
        from ..text.text_batch import text_input

        for number, question in enumerate(record.questions, 1):
            known = {"question": question} | ({} if record.labels is None else {"label": record.labels[number - 1]})
            yield text_input(number, question, known, LONGEST)

    return QuestionSource(inputs, len(record.questions), file)


def _is_table(file: Path, column: str | None) -> bool:
    """Whether a file is a table with a heading, to be read row by row: by its ending, and for .csv by its first line."""
    ending = file.suffix.lower()
    if column is not None or ending in OBJECTS:
        return True
    if ending != ".csv":
        return False  # WikiTableQuestions' tables are read as before, with the classes of their answers
    with reading(file, what="a file with one question per line") as opened:
        heading = opened.readline(1 << 16).decode("utf-8-sig", "replace")
    return any(part.strip().strip('"').lower() in ASKED for part in heading.split(","))


def _is_path(text: str) -> bool:
    """Whether a text is the name of a file: there is one, or it is a single word with a slash or one of :data:`ENDINGS`."""
    if not text.strip():  # Path("") is where one stands
        return False
    named = len(text.split()) == 1 and ("/" in text or Path(text).suffix.lower() in ENDINGS)
    try:
        return named or Path(text).exists()
    except (OSError, ValueError):  # a long question is no file name
        return False


def _typed() -> QuestionRecord:
    name = "standard input"
    raw = sys.stdin.buffer.read(BYTES + 1)
    if len(raw) > BYTES:
        raise OptionError(f"got more than {BYTES >> 20} MiB from {name}; expected up to so many. Give the questions in parts.")
    return parsed(decoded(raw, name), name)


def _files(names: Sequence[str]) -> QuestionRecord:
    if not all(name.strip() for name in names):
        raise OptionError("got an empty name; expected a file with one question per line.")
    parts = [_typed() if name == "-" else read(Path(name)) for name in names]
    labels = [part.labels for part in parts]
    known = None if None in labels else tuple(label for part in labels for label in part or ())
    return QuestionRecord(tuple(question for part in parts for question in part.questions), known)


def _options(out: Path, classifier: app.Classifier, running: bool, lead: str = "") -> dict[str, Any]:
    if out.suffix.lower() == ".html":
        meta = {"model": classifier.name, "weights": classifier.source, "baseline": "all embeddings zero"}
        return {"title": "What the questions ask for", "lead": lead, "meta": meta, "command": typed()}
    return {} if out.suffix.lower() == ".json" else {"running": running}
