"""The commands."""

from __future__ import annotations

from typing import Annotated

import typer

from ..apps.images.cli import image
from ..apps.molecules.cli import molecule
from ..apps.questions.cli import questions, rules
from ..apps.retina.cli import retina
from ..apps.text.cli import text
from ..apps.translation.cli import translate
from ..engine import version_of
from .axioms_command import axioms

app = typer.Typer(
    name="integrand",
    help="Why a neural network said what it said, with numbers you can check.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(image)
app.command()(retina)
app.command()(questions)
app.command()(rules)
app.command()(translate)
app.command()(text)
app.command()(molecule)
app.command()(axioms)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"integrand {version_of()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Why a neural network said what it said, with numbers you can check."""
