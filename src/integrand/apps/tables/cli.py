"""``integrand table``: which columns of a table made a model say what it says of a row, or of all rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import OptionError
from ...words import shown
from ..command_line import (
    NETWORK,
    OUTPUT,
    PICTURES,
    WHAT,
    Debug,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    ScoreName,
    Tol,
    Trust,
    Verbose,
    check_folder,
    check_name,
    check_out,
    default_device,
    end_with,
    figures,
    first_few,
    headline_of,
    noted,
    one_line,
    print_line,
    print_shown,
    say,
    say_failures,
    stoppable,
    typed,
    working,
)

if TYPE_CHECKING:
    from .data_frames import TableRows
    from .model import TableExplainer
    from .result import TableExplanation

SHIPPED = ("breast-cancer", "diabetes")
"""The tables of :data:`integrand.apps.tables.trained_tables.NAMES`, for the help, which loads nothing."""

EXAMPLE = "integrand's own, trained on this table as an example; not for decisions about people"
"""What a page says of a shipped network."""

MOST_ROWS = 20_000
"""More rows than this go into a folder, which a run that was stopped goes on with."""


def table(
    data: Annotated[
        str,
        typer.Argument(metavar="TABLE", help=f"A .csv or .tsv file, or {' or '.join(SHIPPED)}, which bring their own network."),
    ],
    row: Annotated[
        list[str] | None,
        typer.Option(
            help="The row, counted from 0, or its label with --index; several times for several. Default: all.",
            metavar="ROW",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The output to explain: its number, or its name in --classes. Default: the only one.", rich_help_panel=WHAT
        ),
    ] = None,
    score: Annotated[
        ScoreName | None,
        typer.Option(help="The scale on which it is explained. Default: as the model gives it.", rich_help_panel=WHAT),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            help="mean (of the columns), row:N, sample:100 (rows drawn at random), or rows (all of them).", rich_help_panel=WHAT
        ),
    ] = "mean",
    columns: Annotated[
        str | None,
        typer.Option(help="The columns that the model takes, in its order: age,bmi,bp. Default: all.", rich_help_panel=WHAT),
    ] = None,
    index: Annotated[
        str | None, typer.Option(help="The column that names the rows.", metavar="COLUMN", rich_help_panel=WHAT)
    ] = None,
    tol: Tol = 0.01,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A page (.html), a picture (.png, .svg, .pdf), values (.csv, .json); without an ending, a folder of Parquet.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(help="Which one: waterfall, bar, beeswarm, heatmap.", metavar="NAME", rich_help_panel=OUTPUT),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Draw the dependence of this column instead.", metavar="NAME", rich_help_panel=OUTPUT)
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    retry_failed: RetryFailed = False,
    force: Force = False,
    model: Annotated[
        str | None,
        typer.Option(
            help="package.module:function with --trust: a model, or a pair of a model and its columns; or a shipped one.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of your model's outputs, in its order: no,yes.", rich_help_panel=NETWORK)
    ] = None,
    trust: Trust = False,
    device: Device = None,
    debug: Debug = False,
) -> None:
    """Which columns of a table made a model say what it says of a row?

    Without --row all rows are explained: what matters over them. Ends with 1 if some rows could not be explained.
    """
    asked = TableRequest.checked(data, row, baseline, out, picture, column, force=force)
    if model is not None:
        check_name("--model", model, "package.module:function")
        asked = replace(asked, model=model)
    how: dict[str, Any] = {"tol": tol, "max_evaluations": max_evaluations}
    how |= {} if score is None else {"score": score.value}
    how |= {} if classes is None else {"classes": [part.strip() for part in classes.split(",")]}
    how |= {} if target is None else {"target": int(target) if target.lstrip("-").isdigit() else target}
    with working() as screen:
        with screen.loading():
            rows, labels = asked.read(index)
            with one_line(f"--model {model or data}", debug=debug):
                explainer = _explainer(asked, rows, columns, how, trust=trust, device=device)
        if asked.folder:
            _into_folder(asked, explainer, rows, retry_failed=retry_failed)
            return
        bar = screen.batch(1, "")
        bar.begin(f"{len(labels):,} rows" if len(labels) > 1 else f"row {labels[0]}", -(-len(labels) // explainer.together))
        with noted() as notes, one_line(shown(data), debug=debug):
            found = explainer.explain(rows, rows=labels, progress=bar.tell)
            if out is not None:
                with screen.doing("writing"):
                    asked.write(found)
    if as_json:
        typer.echo(json.dumps(found.numbers() | {"warnings": notes, "out": None if out is None else str(out)}))
        return
    if out is None or len(found) == 1:
        print_shown(str(found) if len(found) == 1 or out is None else headline_of(found))
    else:
        print_line(headline_of(found))
    if out is None and len(found) > 1:
        print_shown(_strongest(found))
    say(first_few(notes))
    if verbose and len(found) == 1:
        print_shown(figures(found.certificate.only))
    if out is not None:
        print_line(f"wrote {out}", err=True)


@dataclass(frozen=True)
class TableRequest:
    """What was asked for, checked before anything is loaded.

    Attributes:
        data: the file, or the name of a shipped table.
        rows: labels as they were typed; None for all rows.
        baseline: as it was typed.
        out: where to write.
        picture: which picture to write.
        column: the column whose dependence is drawn.
        model: the model, as it was typed.
    """

    data: str
    rows: tuple[str, ...] | None
    baseline: str
    out: Path | None
    picture: str | None
    column: str | None
    model: str | None = None

    @staticmethod
    def checked(
        data: str,
        rows: list[str] | None,
        baseline: str,
        out: Path | None,
        picture: str | None,
        column: str | None,
        *,
        force: bool,
    ) -> TableRequest:
        """Refuse what cannot be done before anything is loaded."""
        check_name("TABLE", data, f"a .csv file, or {' or '.join(SHIPPED)}")
        kind, _, value = baseline.partition(":")
        if kind not in ("mean", "rows", "row", "sample") or bool(value) != (kind in ("row", "sample")):
            raise OptionError(f"got --baseline {baseline!r}; expected mean, rows, row:N or sample:100.")
        if kind == "sample" and not (value.isdigit() and int(value) > 0):
            raise OptionError(f"got --baseline {baseline!r}; expected how many rows to draw: sample:100.")
        drawn = ("waterfall", "bar", "beeswarm", "heatmap")
        if picture is not None and picture not in drawn:
            raise OptionError(f"got --picture {picture!r}; expected one of {', '.join(drawn)}, or --column for a dependence.")
        if (picture or column) and (out is None or out.suffix.lower() not in PICTURES):
            raise OptionError(
                f"got --picture or --column without a picture to write; expected --out with {', '.join(PICTURES)}."
            )
        if picture and column:
            raise OptionError("got --picture and --column; expected one of them.")
        found = TableRequest(data, None if rows is None else tuple(rows), baseline, out, picture, column)
        if found.folder and out is not None:
            if rows:
                raise OptionError("got --row and a folder to write to; expected a file, such as row.html.")
            check_folder(out.parent, f"--out {shown(str(out))!r}", force=force)
        else:
            check_out(out, (".html", *PICTURES, ".csv", ".json"), force=force)
        return found

    @property
    def folder(self) -> bool:
        """Whether a folder of Parquet is written."""
        return self.out is not None and not self.out.suffix

    def read(self, index: str | None) -> tuple[TableRows, list[Any]]:
        """The table, and the labels of the rows that are explained."""
        from .data_frames import read_table, rows_of_table
        from .trained_tables import table_data

        if self.data in SHIPPED:
            if index is not None:
                raise OptionError("got --index with a shipped table; its rows are counted from 0. Leave it out.")
            rows = rows_of_table(table_data(self.data)[0])
        elif Path(self.data).suffix.lower() in (".csv", ".tsv"):
            rows = read_table(Path(self.data), index=index)
        else:
            raise OptionError(f"got {self.data!r}; expected a file that ends in .csv or .tsv, or {' or '.join(SHIPPED)}.")
        if self.rows is None:
            if len(rows) > MOST_ROWS and not self.folder:
                raise OptionError(
                    f"{self.data} has {len(rows):,} rows; expected up to {MOST_ROWS:,}, some with --row, or a folder: --out "
                    "values writes Parquet, and the same command goes on where it was stopped."
                )
            return rows, list(rows.labels)
        labels = [label_given(text, rows) for text in self.rows]
        rows.places(labels)  # refuses those that are not there
        return rows, labels

    def start(self, rows: TableRows) -> Any:
        """What ``baseline=`` takes."""
        from .background_rows import sample

        kind, _, value = self.baseline.partition(":")
        if kind == "row":
            return label_given(value, rows)
        return sample(rows, int(value)) if kind == "sample" else rows if kind == "rows" else "mean"

    def write(self, found: TableExplanation) -> None:
        """Write what was asked for."""
        assert self.out is not None
        ending = self.out.suffix.lower()
        if self.column is not None:
            found.save(self.out, picture="dependence", column=self.column)
        elif ending == ".html":
            title = "" if len(found) == 1 else f"{len(found):,} rows of {Path(self.data).name}"
            about = {"network": EXAMPLE} if (self.model or self.data) in SHIPPED else {}
            found.save(self.out, title=title, meta={"table": self.data, **about}, command=typed())
        else:
            found.save(self.out, **({"picture": self.picture} if self.picture else {}))


def label_given(text: str, rows: TableRows) -> Any:
    """A label as it was typed, as the table has it: a number where labels are numbers."""
    numbers = all(isinstance(label, int) for label in rows.labels)
    if not numbers:
        return text
    try:
        return int(text)
    except ValueError:
        raise OptionError(
            f"got the row {shown(text)!r}; expected a number from {rows.labels[0]} on, as this table's rows have no names. "
            "--index COLUMN says which column names them."
        ) from None


def _explainer(
    asked: TableRequest,
    rows: TableRows,
    columns: str | None,
    how: dict[str, Any],
    *,
    trust: bool,
    device: str | None,
) -> TableExplainer:
    """The model bound to its columns and its baseline."""
    from ...loading import load_object
    from .model import TableExplainer
    from .trained_tables import load

    name = asked.model or (asked.data if asked.data in SHIPPED else None)
    if name is None:
        raise OptionError(
            f"got the table {asked.data!r} without a model; expected --model package.module:function --trust, or one of "
            f"{', '.join(SHIPPED)}."
        )
    given: dict[str, Any] = {}
    if name in SHIPPED:
        trained = load(name)
        found: Any = trained.module
        given = {"columns": trained.columns, "score": trained.score, "classes": (trained.output,)}
    else:
        found = load_object(name, trust=trust)
        if isinstance(found, tuple) and len(found) == 2:
            found, given["columns"] = found
    if columns is not None:
        given["columns"] = [part.strip() for part in columns.split(",")]
    if hasattr(found, "to") and hasattr(found, "parameters"):
        found = found.to(device or default_device())
    return TableExplainer.of(found, rows, asked.start(rows), **given | how)


def _into_folder(asked: TableRequest, explainer: TableExplainer, rows: TableRows, *, retry_failed: bool) -> None:
    """Explain all rows into a folder of Parquet; the same command goes on where it was stopped."""
    from ...batch import explain_many

    assert asked.out is not None
    records = [{name: rows.columns[name][i] for name in rows.names} for i in range(len(rows))]
    with stoppable(typed()):
        done = explain_many(records, explainer, asked.out, retry_failed=retry_failed, title=f"Rows of {Path(asked.data).name}")
    print_line(done.sentence)
    say_failures(done.summary, lambda item: f"row {item.key}")
    end_with(done.summary)


def _strongest(found: TableExplanation, most: int = 10) -> str:
    """The strongest columns over all rows, for a terminal."""
    from ...words import plus_minus

    values = found.picture.values
    wide = max(len(found.names[k]) for k in values.order[:most])
    lines = [
        f"  {shown(found.names[k]).ljust(wide)}  {plus_minus(values.strength[k], values.strength_errors[k]).lstrip('+')}"
        for k in values.order[:most]
    ]
    return "\n".join(lines)
