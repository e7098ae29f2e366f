"""``integrand questions`` and ``integrand rules``: what questions ask for, by which words, and rules over many of them."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from ...errors import OptionError
from ...render import text as pictures
from .. import questions as app
from ..command_line import PICTURES, ScoreName, check_out, coloured, noted, print_line, print_shown, say, typed
from .question_files import BYTES, QuestionRecord, check_length, decoded, parsed, read

ENDINGS = (".txt", ".tsv", ".csv", ".json", ".jsonl", ".label")
"""A single word with such an ending is taken for the name of a file, not for a question."""


class ModelName(enum.StrEnum):
    """The data set that a question classifier was trained on: WikiTableQuestions or TREC."""

    wtq = "wtq"
    trec = "trec"


Model = Annotated[
    ModelName, typer.Option(help="wtq: number, year, date, yes-no, text. trec: person, location, description, ...")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps. Default: cuda where there is one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def questions(
    question: Annotated[
        list[str],
        typer.Argument(metavar="QUESTION...", help="Questions; or a file with one per line, - for standard input."),
    ],
    model: Model = ModelName.wtq,
    target: Annotated[str | None, typer.Option(help="The class to explain. Default: what the network says.")] = None,
    score: Annotated[ScoreName, typer.Option(help="The scale on which it is explained.")] = ScoreName.probability,
    tol: Annotated[float, typer.Option(help="The relative error to integrate to.")] = 0.01,
    out: Annotated[Path | None, typer.Option(help="A page (.html), a picture (.png, .svg, .pdf) or numbers (.json).")] = None,
    running: Annotated[bool, typer.Option("--running", help="In a picture: also the running sums.")] = False,
    as_json: Json = False,
    colour: Annotated[bool, typer.Option("--color/--no-color", help="Colours on a terminal.")] = True,
    device: Device = None,
) -> None:
    """What does a question ask for, and which of its words told?"""
    check_out(out, (".html", *PICTURES, ".json"))
    if running and (out is None or out.suffix.lower() == ".json"):
        raise OptionError("got --running without a picture to draw in; expected --out with .png, .svg or .pdf. Leave it out.")
    asked = _asked(question).questions
    classifier = app.load(model.value, device=device)
    with noted() as notes:
        found = classifier.explain(asked, target=target, score=score.value, tol=tol)
    lines = [one.tokens for one in found]
    if out is not None:
        pictures.save(lines, out, **_options(out, classifier, running))
    if as_json:
        typer.echo(json.dumps([tokens.numbers() for tokens in lines], allow_nan=False))
    else:
        typer.echo(pictures.terminal(lines, colour=colour and coloured(), detail=True), color=True)
    say(notes)
    if out is not None:
        print_line(f"wrote {out}", err=True)


def rules(
    file: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Questions, one per line (with TREC's labels or none), or WikiTableQuestions' .tsv; - for input.",
        ),
    ],
    model: Model = ModelName.wtq,
    out: Annotated[Path | None, typer.Option(help="A page (.html), data (.json) or text (.txt).")] = None,
    tol: Annotated[float, typer.Option(help="The relative error to integrate each attribution to.")] = 0.05,
    longest: Annotated[int, typer.Option(min=1, max=8, help="Words of a phrase.")] = 4,
    least: Annotated[int, typer.Option(min=1, help="Questions that must support a rule.")] = 5,
    precise: Annotated[float, typer.Option(min=0, max=1, help="The precision below which a rule is suspicious.")] = 0.75,
    most: Annotated[int, typer.Option(min=1, help="Rules of each class and kind.")] = 20,
    as_json: Json = False,
    device: Device = None,
) -> None:
    """Which words and phrases trigger which class? Usual rules, new ones, and suspicious ones."""
    check_out(out, (".html", ".json", ".txt"))
    asked = _files(file)
    classifier = app.load(model.value, device=device)
    labels = asked.labels_for(classifier.classes)
    if asked.labels is not None and labels is None:
        say([f"the labels of the file are not those of --model {model.value}; precision is by what the network says"])
    with noted() as notes, _bar(len(asked.questions)) as counted:
        how: dict[str, Any] = {"tol": tol, "longest": longest, "least": least, "precise": precise, "most": most}
        found = app.rules(classifier, asked.questions, labels, progress=counted, **how)
    if out is not None:
        found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
    if as_json:
        typer.echo(json.dumps(found.numbers(), allow_nan=False))
    elif out is None:
        print_shown(str(found))
    say(notes)
    if out is not None:
        print_line(f"wrote {out}", err=True)


def _asked(given: Sequence[str]) -> QuestionRecord:
    """The questions that were typed; if the only one is the name of a file, or -, those in the file or in standard input."""
    if len(given) == 1 and (given[0] == "-" or _is_path(given[0])):
        return _files(given)
    for number, text in enumerate(given, 1):
        check_length(text, f"question {number}")
    return QuestionRecord(tuple(given), None)


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


def _options(out: Path, classifier: app.Classifier, running: bool) -> dict[str, Any]:
    if out.suffix.lower() == ".html":
        meta = {"model": classifier.name, "weights": classifier.source, "baseline": "all embeddings zero"}
        lead = "Red words speak for what is in brackets, blue words against it."
        return {"title": "What the questions ask for", "lead": lead, "meta": meta, "command": typed()}
    return {} if out.suffix.lower() == ".json" else {"running": running}


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int, int], object]]:
    """A progress bar over questions if standard error is a terminal, or none; gives the function that moves it."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("questions", total=total)
        yield lambda done, _: bar.update(task, completed=done)
