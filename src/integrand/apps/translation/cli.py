"""``integrand translate``: English to German, and which words contributed to each word of the translation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ...errors import OptionError
from ...files import writing
from .. import translation
from ..command_line import ScoreName, check_out, coloured, noted, print_line, say, typed

LONGEST = 2000
"""The most characters of a text that is translated: each word takes a second or so."""

ENDINGS = (".html", ".png", ".svg", ".pdf", ".json")


def translate(
    text: Annotated[str, typer.Argument(help="What to translate, in English and in quotes.")],
    target: Annotated[str | None, typer.Option(help="The translation to explain. Default: what the network says.")] = None,
    score: Annotated[ScoreName, typer.Option(help="The scale on which each piece is explained.")] = ScoreName.probability,
    tol: Annotated[float, typer.Option(help="The relative error to integrate to.")] = 0.02,
    beam: Annotated[int, typer.Option(min=1, help="Beginnings that the search keeps.")] = 5,
    words: Annotated[bool, typer.Option("--words/--pieces", help="Join word pieces to words, with sums kept.")] = True,
    out: Annotated[Path | None, typer.Option(help="A page (.html), a picture (.png, .svg, .pdf) or numbers (.json).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    colour: Annotated[bool, typer.Option("--color/--no-color", help="Colours on a terminal.")] = True,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps. Default: cuda where there is one.")] = None,
) -> None:
    """Translate English to German. Which words contributed to each word of the translation?"""
    check_out(out, ENDINGS)
    for name, given in (("a text", text), ("--target", target or "")):
        if len(given) > LONGEST:
            raise OptionError(f"got {name} of {len(given):,} characters; expected at most {LONGEST:,}. Translate it in parts.")
    translator = translation.load(device)
    with noted() as notes:
        found = translator.explain(text, target, score=score.value, tol=tol, beam=beam, progress=None)
    if words:
        found = found.words()
    if out is not None:
        with writing(out):
            found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
    if as_json:
        typer.echo(json.dumps(found.numbers(), allow_nan=False))
    else:
        typer.echo(found.terminal(colour=coloured(colour)), color=True)
    say(notes)
    if out is not None:
        print_line(f"wrote {out}", err=True)
