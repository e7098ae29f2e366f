"""The room for tables: a row of a real table, as it is or with some of its columns changed, and what the network says of it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..apps.tables.background_rows import sample
from ..apps.tables.cli import EXAMPLE
from ..apps.tables.column_codes import NumberColumn
from ..apps.tables.trained_tables import NAMES, TrainedTable, load
from ..errors import IntegrandWarning, warn
from ..render.table import cell_text
from ..words import shortened, shown
from .jobs import Refused
from .room import Asked, FormField, ModelShelf, Room, RoomJob, RoomResult, code_of, compared, diagnosed, png_of, tolerance_field

if TYPE_CHECKING:
    from ..analysis.inquiry import Inquiry

MEANS, DRAWN = "the column means", "100 rows drawn at random"
STARTS: Mapping[str, str] = {MEANS: "'mean'", DRAWN: "ig.tables.sample(trained.frame, 100)"}
"""Where paths may begin, each with the Python for it; another row is a field of its own."""

LARGEST = 1e9
"""What a cell may be at the most: far above what these tables hold, and nothing that overflows in float32."""

EXAMPLES = (
    {"title": "a tumour", "table": "breast-cancer", "row": "86"},
    {"title": "a patient", "table": "diabetes", "row": "3"},
    {"title": "the same one with a bmi of 35", "table": "diabetes", "row": "3", "changes": "bmi = 35"},
    {"title": "one patient rather than another", "table": "diabetes", "row": "3", "rival": "5"},
)


class TableRoom(Room):
    """A row of a table, and a network that was trained on the table."""

    name = "table"
    title = "Table"
    lead = (
        "Pick a row of a table, and change it if you like. You see what the network says of it, and because of which columns."
    )
    notice = "The networks were trained as examples: they are not for decisions about people."

    def __init__(self, *, device: str | None = None) -> None:
        self.tables = ModelShelf({name: partial(_placed, name, device) for name in NAMES})
        names = self.tables.names
        self.fields = (
            FormField(
                "table", "Table", "choice", names[0], names, help=" ".join(f"{k}: {v}" for k, v in NAMES.items()), needed=True
            ),
            FormField("row", "Row", "line", most=20, help="Its number, counted from 0.", needed=True),
            FormField(
                "changes",
                "Changes",
                "line",
                most=1000,
                help="What if? Columns to change, such as bmi = 35, bp = 90; the result lists all of them.",
                first=True,
            ),
            FormField("baseline", "Compared with", "choice", MEANS, tuple(STARTS)),
            FormField("rival", "Rather than row", "line", most=20, help="Another row to compare it with instead."),
            tolerance_field("1%"),
        )
        self.examples = EXAMPLES

    def warm(self) -> None:
        """Load the networks and their tables."""
        for name in self.tables.names:
            _ = self.tables[name].frame

    def explain(self, asked: Asked, job: RoomJob) -> None:
        """Say what the network makes of the row, and explain it."""
        row = AskedRow(self.tables[asked["table"]], asked)
        found = row.trained.explain(row.start, frame=row.frame, tol=asked.tol, progress=job.tell)
        said = found.sentence.partition(" (")[0]
        job.answers(said.partition(": ")[2])
        line = f"result = trained.explain({row.start_code}, frame=row, tol={asked.tol!r})"
        job.show(
            RoomResult(
                said,
                found.sentence,
                found.html(meta={"table": row.trained.name, "network": EXAMPLE}),
                found.certificate,
                png_of(found.waterfall),
                found.numbers,
                code_of(*row.setup, line, "print(result)"),
                "row",
                found.values.nbytes + found.errors.nbytes,
            )
        )

    def methods(self, asked: Asked, job: RoomJob) -> None:
        """Set methods side by side on the row."""
        row = AskedRow(self.tables[asked["table"]], asked)
        inquiry, line = row.inquiry()
        found = inquiry.compare_methods(tol=asked.tol, progress=job.tell)
        code = code_of(*row.setup, line, f"print(asked.compare_methods(tol={asked.tol!r}))")
        job.show(compared(found, code, "row", **inquiry.view, labels=inquiry.label))

    def baselines(self, asked: Asked, job: RoomJob) -> None:
        """Set baselines side by side on the row."""
        row = AskedRow(self.tables[asked["table"]], asked, start="mean")
        inquiry, line = row.inquiry()
        found = inquiry.diagnose(tol=asked.tol, progress=job.tell)
        code = code_of(*row.setup, line, f"print(asked.diagnose(tol={asked.tol!r}))")
        job.show(diagnosed(found, code, "row", **inquiry.view, label=inquiry.label))


class AskedRow:
    """The row that a form asks about, and what it is compared with.

    Attributes:
        trained: the table with its network.
        label: of the row.
        changes: what is changed in it, column by column.
        start: the baseline.
        start_code: the Python for it.
    """

    def __init__(self, trained: TrainedTable, asked: Asked, *, start: str | None = None) -> None:
        self.trained = trained
        self.label = self._row(asked["row"], "Row")
        self.changes = self._changes(asked["changes"])
        self.start: Any = "mean"
        self.start_code = STARTS[MEANS]
        if start is None and asked.get("rival"):
            self.start = self._row(asked["rival"], "Rather than row")
            self.start_code = str(self.start)
            if self.start == self.label and not self.changes:
                raise Refused(f"Rather than row: {self.label} is the row itself; expected another one.")
        elif start is None and asked["baseline"] == DRAWN:
            self.start, self.start_code = sample(trained.frame, 100), STARTS[DRAWN]

    @property
    def frame(self) -> Any:
        """The row as a table of one, with its changes."""
        row = self.trained.frame.loc[[self.label]]
        return row.assign(**self.changes).rename(index={self.label: self._named}) if self.changes else row

    @property
    def setup(self) -> tuple[str, ...]:
        """The lines of Python that load the table and make the row."""
        more = f".assign(**{self.changes!r}).rename(index={{{self.label}: {self._named!r}}})" if self.changes else ""
        load = f"trained = ig.tables.load({self.trained.name!r})"
        return ("import integrand as ig", "", load, f"row = trained.frame.loc[[{self.label}]]{more}")

    def inquiry(self) -> tuple[Inquiry, str]:
        """The same question for other methods and baselines, and the line of Python for it."""
        found = self.trained.explainer(self.start).inquiry(self.frame)
        return found, f"asked = trained.explainer({self.start_code}).inquiry(row)"

    @property
    def _named(self) -> str:
        return f"{self.label}, changed"

    def _row(self, text: str, field: str) -> int:
        most = len(self.trained.frame) - 1
        if not (text.isascii() and text.isdecimal() and int(text) <= most):
            raise Refused(f"{field}: got {shown(text)!r}; expected a number from 0 to {most}.")
        return int(text)

    def _changes(self, text: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in filter(None, (one.strip() for one in re.split(r"[,;\n]", text))):
            name, equals, value = (one.strip() for one in part.partition("="))
            if not equals or not value:
                raise Refused(
                    f"Changes: got {shortened(shown(part), 60)!r}; expected a column and its value, such as bmi = 35."
                )
            column = self._column(name)
            if column in found:
                raise Refused(f"Changes: {column} comes twice; expected one value for it.")
            found[column] = self._cell(column, value)
        return found

    def _column(self, name: str) -> str:
        columns = list(self.trained.columns)
        known = {one.lower(): one for one in columns}
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, 1)
            hint = (
                f"Did you mean {known[near[0]]}?" if near else f"It has {', '.join(columns[:6])} and {len(columns) - 6} more."
            )
            raise Refused(f"Changes: there is no column {shortened(shown(name), 40)!r} in {self.trained.name}. {hint}")
        return known[name.lower()]

    def _cell(self, column: str, text: str) -> Any:
        kind = self.trained.columns[column]
        if not isinstance(kind, NumberColumn):
            choices = {cell_text(one): one for one in getattr(kind, "categories", ())}
            if text not in choices:
                raise Refused(f"Changes: {column} cannot be {shortened(shown(text), 40)!r}; expected {' or '.join(choices)}.")
            return choices[text]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise Refused(f"Changes: {column} cannot be {shortened(shown(text), 40)!r}; expected a number, with a point: 0.5.")
        low, high = float(self.trained.frame[column].min()), float(self.trained.frame[column].max())
        if not low <= value <= high:
            warn(
                f"{column} goes from {cell_text(low)} to {cell_text(high)} in this table; the network has seen nothing like "
                f"{cell_text(value)}, and what it says of it means little.",
                IntegrandWarning,
            )
        return value


def _placed(name: str, device: str | None) -> TrainedTable:
    """A table with its network, where it is to be computed."""
    trained = load(name)
    if device is not None:
        trained.module.to(device)
    return trained
