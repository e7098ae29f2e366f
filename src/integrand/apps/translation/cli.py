"""``integrand translate``: English to German, and which words contributed to each word of the translation."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError, OptionError
from ...files import writing
from ..command_line import (
    EXPERTS,
    OUTPUT,
    WHAT,
    Colour,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    ScoreName,
    Screen,
    Tol,
    Verbose,
    coloured,
    echo,
    figures,
    headline_of,
    noted,
    print_line,
    print_shown,
    say,
    typed,
    working,
)
from ..text.text_options import Again, Column, File, Keep, TextOutput

if TYPE_CHECKING:
    from .. import translation as app

LONGEST = 2000
"""The most characters of a text that is translated: each word takes a second or so."""

ENDINGS = (".html", ".png", ".svg", ".pdf", ".json")


def translate(
    text: Annotated[str | None, typer.Argument(help="What to translate, in English and in quotes.", show_default=False)] = None,
    file: File = None,
    column: Column = None,
    target: Annotated[
        str | None, typer.Option(help="The translation to explain. Default: what the network says.", rich_help_panel=WHAT)
    ] = None,
    words: Annotated[
        bool, typer.Option("--words/--pieces", help="Join word pieces to words, with sums kept.", rich_help_panel=WHAT)
    ] = True,
    score: Annotated[
        ScoreName, typer.Option(help="The scale on which each piece is explained.", rich_help_panel=WHAT)
    ] = ScoreName.probability,
    tol: Tol = 0.02,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A page (.html), a picture (.png, .svg, .pdf), numbers (.json); without an ending, a folder for a table.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    colour: Colour = True,
    again: Again = False,
    retry_failed: RetryFailed = False,
    keep: Keep = False,
    force: Force = False,
    device: Device = None,
    beam: Annotated[int, typer.Option(min=1, help="Beginnings that the search keeps.", rich_help_panel=EXPERTS)] = 5,
) -> None:
    """Translate English to German. Which words contributed to each word of the translation?

    Of a file of texts what is done is kept beside the output, and the same command goes on where it was stopped.
    """
    asked = TextOutput.checked(out, ENDINGS, force=force, again=again, keep=keep, retry_failed=retry_failed)
    _check_given(text, file, column, target, asked)
    how: dict[str, Any] = {"score": score.value, "tol": tol, "beam": beam, "max_evaluations": max_evaluations, "words": words}

    def show(found: app.Alignment) -> None:
        if getattr(found, "sentence", ""):
            print_line(headline_of(found))
        echo(found.terminal(colour=coloured(colour)))
        for output, example in zip(found.outputs, found.certificate, strict=True) if verbose else ():
            print_shown(f"{output}\n{figures(example)}")

    with working() as screen:
        if file is not None or asked.folder:
            _many(text, file, column, how, asked, screen, show=show, as_json=as_json, device=device)
            return
        with screen.loading():
            from .. import translation

            translator = translation.load(device)
        bar = screen.batch(1)
        bar.begin("translating")
        with noted() as notes:
            found = translator.explain(text or "", target, progress=bar.tell, **how)
        if out is not None:
            with screen.doing("writing"), writing(out):
                found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
    if as_json:
        typer.echo(json.dumps(_numbers(found), allow_nan=False))
    else:
        show(found)
    say(notes)
    if out is not None:
        print_line(f"wrote {out}", err=True)


def _check_given(text: str | None, file: Path | None, column: str | None, target: str | None, asked: TextOutput) -> None:
    """Refuse what does not go together, before anything is loaded."""
    if (text is None) == (file is None):
        given = "nothing to translate" if text is None else "a text and --file"
        raise OptionError(f"got {given}; expected a text in quotes, or a file of them: --file texts.txt.")
    if file is not None and target is not None:
        raise OptionError("got --target with --file; expected it with one text. Leave it out.")
    if target is not None and asked.folder:
        raise OptionError("got --target with a folder for a table; expected --out with an ending, such as .html.")
    if column is not None and file is None:
        raise OptionError(f"got --column {column!r} without a table; expected --file with it.")
    for name, given in (("a text", text or ""), ("--target", target or "")):
        if len(given) > LONGEST:
            raise OptionError(f"got {name} of {len(given):,} characters; expected at most {LONGEST:,}. Translate it in parts.")


def _many(
    text: str | None,
    file: Path | None,
    column: str | None,
    how: dict[str, Any],
    asked: TextOutput,
    screen: Screen,
    *,
    show: Callable[[app.Alignment], None],
    as_json: bool,
    device: str | None,
) -> None:
    """Translate the texts of a file, or one text into a table."""
    with screen.doing("looking at the texts"):
        from ..text.text_batch import TextJob, TextTask, counted, run_texts, text_input, texts_of

        if file is None:
            inputs, total = iter([text_input(1, text, {"text": text}, LONGEST)]), 1
        else:
            total = counted(texts_of(file, column, longest=LONGEST), file)
            inputs = texts_of(file, column, longest=LONGEST)
    with screen.loading():
        from ...batch.identity import settings_of
        from ...render import text as pictures
        from .. import translation

        translator = translation.load(device)
    bar = screen.batch(total, "texts")
    explain = functools.partial(translator.explain, **how)
    meta = {"model": "LSTM encoder-decoder with attention", "weights": translator.source, "score": how["score"]}

    def write(out: Path, found: list[app.Alignment], lead: str) -> None:
        page = out.suffix.lower() == ".html"
        if len(found) == 1:
            found[0].save(out, **({"command": typed()} if page else {}))
            return
        about = {"title": "Translations", "lead": lead, "meta": meta, "command": typed()}
        pictures.save([one.line for one in found], out, **(about if page else {}))

    job = TextJob(
        TextTask(lambda texts: [explain(one, progress=bar.tell) for one in texts], size=_length, together=translator.together),
        settings_of(explain) | {"command": "translate"},
        what="texts",
        unpack=translation.Alignment.of_details,
        show=show,
        numbers=lambda one: [_numbers(one)],
        write=write,
        title="Translations",
        as_json=as_json,
    )
    run_texts(job, inputs, total, asked, screen, bar)


def _length(text: str) -> float:
    """How long a text is; an error if there is nothing to translate."""
    if not text.strip():
        raise InputError("it is empty; expected at least one word to translate")
    return float(len(text))


def _numbers(found: app.Alignment) -> dict[str, Any]:
    return {"sentence": headline_of(found)} | found.numbers()
