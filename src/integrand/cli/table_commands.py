"""``integrand summary`` and ``integrand export``: what became of many inputs, as a page and for spreadsheets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..apps.command_line import OUTPUT, WHAT, Force, Json, check_out, check_place, print_line, print_shown, typed, working
from ..errors import OptionError
from ..words import shown

Folder = Annotated[
    Path,
    typer.Argument(help="The output folder of a command, or of integrand.explain_many.", metavar="FOLDER", show_default=False),
]


def summary(
    folder: Folder,
    label: Annotated[
        str | None,
        typer.Option(
            help="A column that says what is true, to compare predictions with.", rich_help_panel=WHAT, metavar="COLUMN"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The page, a .html file, or .json for the numbers. Default: in the folder.", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """What did a model say of a whole data set, what mattered, and how exact is it? As a page.

    Reads the table that a command or integrand.explain_many wrote: what was said, which features, words and groups mattered,
    which inputs failed, have the largest errors, or are far from the rest.
    """
    from ..batch.table import ExplainedTable

    check_out(out, (".html", ".json"), force=force)
    with working() as screen, screen.doing("reading the table"):
        found = ExplainedTable.open(folder).summary(label=label)
    if as_json:
        import json

        typer.echo(json.dumps(found.numbers(), indent=1, allow_nan=False))
    else:
        print_shown(str(found))
    if out is not None or not as_json:
        place = out if out is not None else found.place
        if out is None:
            check_place(place, force=force)
        elif force:
            from ..files import ready

            ready(place.parent)
        found.save(place, command=typed())
        print_line(f"wrote {place}", err=True)


def export(
    folder: Folder,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="The file to write.", rich_help_panel=OUTPUT, metavar="FILE", show_default=False),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Which columns, with commas between them. Default: those that people read.", rich_help_panel=OUTPUT),
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="One line for each feature instead of one for each input.", rich_help_panel=OUTPUT)
    ] = False,
    force: Force = False,
) -> None:
    """Write what became of many inputs as CSV for spreadsheets, one line for each input.

    Features stand in one cell, as in 'where: +0.51; is: -0.02', or with --long on a line each. Texts that a spreadsheet would
    take for formulas get a quote in front.
    """
    from ..batch.table import ExplainedTable
    from ..batch.table_export import SHEET_LINES

    if csv is None:
        raise OptionError("got no file to write; expected --csv FILE.")
    if csv.suffix.lower() != ".csv":
        raise OptionError(f"got --csv {shown(str(csv))!r}; expected a file that ends in .csv.")
    check_place(csv, force=force)
    table = ExplainedTable.open(folder)
    if csv.resolve().is_relative_to(table.folder.resolve()) and csv.name.startswith("part-"):
        raise OptionError(f"got --csv {shown(str(csv))!r}, which is the name of a part of the table; expected another name.")
    wanted = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    with working() as screen, screen.doing("writing the file"):
        lines = table.csv(csv, columns=wanted, long=long)
    print_line(f"wrote {csv}: {lines:,} lines", err=True)
    if lines >= SHEET_LINES:
        print_line(
            f"note: spreadsheets show {SHEET_LINES:,} lines at the most; --columns and DuckDB or pandas read all", err=True
        )
