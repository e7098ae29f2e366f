"""``integrand questions`` and ``integrand rules``: what questions ask for, by which words, and rules over many of them."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import OptionError
from ...files import write_text
from ...version import generator
from ..command_line import (
    NETWORK,
    OUTPUT,
    PICTURES,
    WHAT,
    Colour,
    Device,
    Force,
    Json,
    Most,
    ScoreName,
    Tol,
    Verbose,
    check_out,
    coloured,
    figures,
    headline_of,
    noted,
    only_model,
    print_line,
    print_shown,
    say,
    typed,
    working,
)
from .question_files import BYTES, QuestionRecord, check_length, decoded, parsed, read

if TYPE_CHECKING:
    from ...evaluation.progress import Progress
    from .. import questions as app

ENDINGS = (".txt", ".tsv", ".csv", ".json", ".jsonl", ".label")
"""A single word with such an ending is taken for the name of a file, not for a question."""

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
        typer.Argument(metavar="QUESTION", help="Questions; or a file with one per line, - for standard input."),
    ],
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
        typer.Option(help="A page (.html), a picture (.png, .svg, .pdf) or numbers (.json).", rich_help_panel=OUTPUT),
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="In a picture: also the running sums.", rich_help_panel=OUTPUT)
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
    colour: Colour = True,
    force: Force = False,
    model: Model = DEFAULT,  # type: ignore[assignment]  # typer makes lists of it
    device: Device = None,
) -> None:
    """What does a question ask for, and which of its words told?"""
    check_out(out, (".html", *PICTURES, ".json"), force=force)
    if running and (out is None or out.suffix.lower() == ".json"):
        raise OptionError("got --running without a picture to draw in; expected --out with .png, .svg or .pdf. Leave it out.")
    name = only_model(model, "wtq or trec", why=APART)
    asked = _asked(question).questions
    with working() as screen:
        with screen.loading():
            from ...render import text as pictures
            from .. import questions as app

            classifier = app.load(name, device=device)
        bar = screen.batch(1)
        bar.begin(f"{len(asked)} question{'s' if len(asked) > 1 else ''}", _batches(len(asked)))
        how: dict[str, Any] = {"target": target, "score": score.value, "tol": tol, "max_evaluations": max_evaluations}
        with noted() as notes:
            found = classifier.explain(asked, progress=bar.tell, **how)
        lines = [one.tokens for one in found]
        if out is not None:
            with screen.doing("writing"):
                pictures.save(lines, out, **_options(out, classifier, running))
    if as_json:
        told = [{"sentence": headline_of(one)} | one.tokens.numbers() for one in found]
        typer.echo(json.dumps(told, allow_nan=False))
    else:
        for one in found:
            print_line(headline_of(one))
            words = pictures.terminal(one.tokens, colour=coloured(colour), detail=verbose)
            typer.echo("\n".join(f"  {line}" for line in words.splitlines()), color=True)
            if verbose:
                print_shown(figures(one.certificate))
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
    force: Force = False,
    model: Model = DEFAULT,  # type: ignore[assignment]  # typer makes lists of it
    device: Device = None,
) -> None:
    """Which words and phrases trigger which class? Usual rules, new ones, and suspicious ones."""
    check_out(out, (".html", ".json", ".txt"), force=force)
    name = only_model(model, "wtq or trec", why=APART)
    asked = _files(file)
    with working() as screen:
        with screen.loading():
            from .. import questions as app

            classifier = app.load(name, device=device)
        labels = asked.labels_for(classifier.classes)
        if asked.labels is not None and labels is None:
            say([f"the labels of the file are not those of --model {name}; precision is by what the network says"])
        bar = screen.batch(1)
        bar.begin(f"{len(asked.questions)} questions", _batches(len(asked.questions)))
        how: dict[str, Any] = {"tol": tol, "longest": longest, "least": least, "precise": precise, "most": most}
        how["max_evaluations"] = max_evaluations
        with noted() as notes:
            found = app.rules(_Watched(classifier, bar.tell), asked.questions, labels, **how)
        if out is not None and out.suffix.lower() == ".txt":
            write_text(out, f"{found}\n\n# {generator()}: {typed()}\n")
        elif out is not None:
            found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
    if as_json:
        typer.echo(json.dumps(found.numbers(), allow_nan=False))
    elif out is None:
        print_shown("\n".join([*filter(None, [getattr(found, "sentence", "")]), str(found)]))
    else:
        print_line(headline_of(found))
    say(notes)
    if out is not None:
        print_line(f"wrote {out}", err=True)


class _Watched:
    """A classifier that reports how far each of its explanations is; otherwise the one that is given."""

    def __init__(self, classifier: app.Classifier, tell: Callable[[Progress], None]) -> None:
        self._classifier, self._tell = classifier, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._classifier, name)

    def explain(self, texts: Sequence[str], **how: Any) -> list[app.WordAttribution]:
        """As the classifier does, with a report of its progress."""
        return self._classifier.explain(texts, progress=self._tell, **how)


def _batches(count: int) -> int:
    """How many integrals so many questions take, one after the other."""
    from .model import BATCH

    return -(-count // BATCH)


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
        return {"title": "What the questions ask for", "meta": meta, "command": typed()}
    return {} if out.suffix.lower() == ".json" else {"running": running}
