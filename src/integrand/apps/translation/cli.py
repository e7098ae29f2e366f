"""``integrand translate``: English to German, and which words contributed to each word of the translation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ...errors import OptionError
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
    ScoreName,
    Tol,
    Verbose,
    check_out,
    coloured,
    figures,
    headline_of,
    noted,
    print_line,
    print_shown,
    say,
    typed,
    working,
)

LONGEST = 2000
"""The most characters of a text that is translated: each word takes a second or so."""

ENDINGS = (".html", ".png", ".svg", ".pdf", ".json")


def translate(
    text: Annotated[str, typer.Argument(help="What to translate, in English and in quotes.")],
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
        typer.Option(help="A page (.html), a picture (.png, .svg, .pdf) or numbers (.json).", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    colour: Colour = True,
    force: Force = False,
    device: Device = None,
    beam: Annotated[int, typer.Option(min=1, help="Beginnings that the search keeps.", rich_help_panel=EXPERTS)] = 5,
) -> None:
    """Translate English to German. Which words contributed to each word of the translation?"""
    check_out(out, ENDINGS, force=force)
    for name, given in (("a text", text), ("--target", target or "")):
        if len(given) > LONGEST:
            raise OptionError(f"got {name} of {len(given):,} characters; expected at most {LONGEST:,}. Translate it in parts.")
    with working() as screen:
        with screen.loading():
            from .. import translation

            translator = translation.load(device)
        bar = screen.batch(1)
        bar.begin("translating")
        how = {"tol": tol, "beam": beam, "max_evaluations": max_evaluations, "words": words, "progress": bar.tell}
        with noted() as notes:
            found = translator.explain(text, target, score=score.value, **how)  # type: ignore[arg-type]
        if out is not None:
            with screen.doing("writing"), writing(out):
                found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
    if as_json:
        typer.echo(json.dumps({"sentence": headline_of(found)} | found.numbers(), allow_nan=False))
    else:
        if getattr(found, "sentence", ""):
            print_line(headline_of(found))
        typer.echo(found.terminal(colour=coloured(colour)), color=True)
        if verbose:
            for output, example in zip(found.outputs, found.certificate, strict=True):
                print_shown(f"{output}\n{figures(example)}")
    say(notes)
    if out is not None:
        print_line(f"wrote {out}", err=True)
