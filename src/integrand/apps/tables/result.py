"""What was found of rows of a table: a value for each column with its error, and pictures and pages of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...batch.rows import Row, plain
from ...certificate import Certificate
from ...errors import InputError, MissingExtraError, OptionError
from ...files import text_file, write
from ...functions.target import Score
from ...render.notebook import LOW, notebook_view, view
from ...render.table import TablePicture, TableValues, cell_text
from ...words import cell, finite, plus_minus, short_repr, shortened, shown
from .data_frames import Cells, TableRows, frames, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .model import TableExplainer

PARTNERS = 24
"""The rows on which the partner of a column is looked for, evenly spread: integrated Hessians take far more work."""


@dataclass(frozen=True, eq=False, repr=False)
class TableExplanation:
    """Attributions of a score to the columns of a table, row by row, with their errors.

    Attributes:
        names: of the columns.
        labels: of the rows, as the table's index has them.
        cells: what the table holds in each column, (rows,) each; not scaled, not encoded.
        values: (rows, columns); with the base value, they add up to the score of a row.
        errors: by how much each value may be off, likewise: of the integration, and of the sample of baselines if there is one.
        sampling: the part of the errors that is due to the sample of baselines; None where none was drawn.
        certificate: how far the values can be trusted, row by row.
        output: what is explained, in words; empty where the model has one output without a name.
        score: whether as the model gives it, or as a probability.
        baseline: where paths began, in words.
        baseline_cells: what the baseline has in each column, where that can be said.
        explained_by: what explained it, for interactions; None in what was copied or sent elsewhere.
    """

    names: tuple[str, ...]
    labels: tuple[Hashable, ...]
    cells: Mapping[str, Cells]
    values: np.ndarray[Any, np.dtype[np.float64]]
    errors: np.ndarray[Any, np.dtype[np.float64]]
    sampling: np.ndarray[Any, np.dtype[np.float64]] | None
    certificate: Certificate
    output: str
    score: Score
    baseline: str
    baseline_cells: Mapping[str, Any] = field(default_factory=dict)
    explained_by: TableExplainer | None = field(default=None, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_picture"} | {"explained_by": None}

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def scores(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The explained score of each row, (rows,)."""
        return np.array([one.score for one in self.certificate])

    @property
    def base(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The score at the baseline, (rows,): the same for all, but for rounding."""
        return np.array([one.baseline_score for one in self.certificate])

    def place(self, row: Any = None) -> int:
        """The position of a row, given its label; that of the only one if none is given."""
        if row is None:
            if len(self) > 1:
                raise OptionError(f"there are {len(self)} rows; expected the label of one: {listed(map(str, self.labels))}.")
            return 0
        return TableRows(self.names, {}, self.labels).places(row)[0]

    def row(self, label: Any) -> TableExplanation:
        """The part of one row, given its label."""
        return self.take([self.place(label)])

    def take(self, places: Sequence[int]) -> TableExplanation:
        """Some of the rows, by their positions."""
        chosen = list(places)
        return replace(
            self,
            labels=tuple(self.labels[i] for i in chosen),
            cells={name: column[chosen] for name, column in self.cells.items()},
            values=self.values[chosen],
            errors=self.errors[chosen],
            sampling=None if self.sampling is None else self.sampling[chosen],
            certificate=Certificate(tuple(self.certificate[i] for i in chosen), self.certificate.promises),
        )

    @cached_property
    def _picture(self) -> TablePicture:
        return TablePicture(
            TableValues.of(
                self.names,
                [shown(str(label)) for label in self.labels],
                [self.cells[name] for name in self.names],
                self.values,
                self.errors,
                self.certificate,
                unit=self.unit,
                start=self.baseline,
                start_cells=[cell_text(self.baseline_cells.get(name)) for name in self.names],
                sampled=self.sampling is not None,
            )
        )

    @property
    def unit(self) -> str:
        """What the values are measured in: the output and its scale, in words."""
        scale = "" if self.score == "logit" else self.score
        return " of ".join(filter(None, (scale, self.output))) or "score"

    @property
    def sentence(self) -> str:
        """What the model says, because of which columns, and how sure the numbers are, in one line."""
        return self._picture.sentence

    def sentence_of(self, row: Any) -> str:
        """The sentence of one row, given its label."""
        return self._picture.sentence_of(self.place(row))

    # ---- pictures ------------------------------------------------------------------------------------------------------------

    def waterfall(self, row: Any = None, *, most: int = 10) -> Figure:
        """How a row's columns lead from the base value to its score, the strongest first.

        Args:
            row: its label; may be left out where there is one row.
            most: the columns that are drawn one by one; the others come as one.
        """
        return self._picture.figure("waterfall", place=self.place(row), most=most)

    def bar(self, *, most: int = 10) -> Figure:
        """How much each column matters: its values without signs, averaged over the rows.

        Args:
            most: the columns that are drawn one by one.
        """
        return self._picture.figure("bar", most=most)

    def beeswarm(self, *, most: int = 10) -> Figure:
        """The values of all rows, column by column, coloured by what the table holds there.

        Args:
            most: the columns that are drawn.
        """
        return self._picture.figure("beeswarm", most=most)

    def heatmap(self, *, most: int = 10, by: str = "score") -> Figure:
        """The values of rows and columns as colours, under the score of each row.

        Args:
            most: the columns that are drawn one by one.
            by: rows in the order of their ``score``, or as they are ``given``.
        """
        return self._picture.figure("heatmap", most=most, by=by)

    def dependence(self, column: str, *, by: str | None = None) -> Figure:
        """What a column adds, against what the table holds in it, coloured by the column it acts with most.

        Args:
            column: its name.
            by: the column that colours; by default the one that integrated Hessians find (:meth:`partner`), or none where they
                find no interaction.
        """
        return self._picture.figure("dependence", column=self._named(column), by=self._coloured(column, by))

    def partner(self, column: str, *, rows: int = PARTNERS, **options: Any) -> str | None:
        """The column that a column acts with most: by integrated Hessians, averaged without signs over some rows.

        Args:
            column: its name.
            rows: how many rows are looked at, evenly spread.
            **options: of :func:`integrand.integrated_hessians`.

        Returns:
            Its name; None where the column acts with none beyond the error of the interactions.
        """
        found = self.interactions(rows=rows, **options)
        place = self._named(column)
        strength = np.abs(np.asarray(found.numpy())).mean(0)[place]
        # What lies within the error of all interactions together is no partner.
        noise = float(np.mean([one.error * one.magnitude for one in found.certificate])) / max(len(self.names), 1)
        strength[place] = 0.0
        best = int(strength.argmax())
        return self.names[best] if strength[best] > noise else None

    def interactions(self, *, rows: int = PARTNERS, **options: Any) -> Any:
        """Which columns act together, by integrated Hessians: (rows, columns, columns), with certificates of their own.

        Args:
            rows: how many rows are looked at, evenly spread.
            **options: of :func:`integrand.integrated_hessians`.
        """
        if self.explained_by is None:
            raise InputError("the model is not at hand any more (the result was copied or loaded); explain the table again.")
        chosen = np.unique(np.linspace(0, len(self) - 1, min(rows, len(self))).round().astype(int))
        table = TableRows(self.names, {name: self.cells[name][chosen] for name in self.names}, tuple(range(len(chosen))))
        return self.explained_by.interactions(table, **options)

    def _named(self, column: str) -> int:
        if column not in self.names:
            raise OptionError(f"got the column {column!r}; expected one of {listed(self.names)}.")
        return self.names.index(column)

    def _coloured(self, column: str, by: str | None) -> int | None:
        if by is not None:
            return self._named(by)
        self._named(column)
        if self.explained_by is None or len(self.names) < 2:
            return None
        found = self.partner(column)
        return None if found is None else self.names.index(found)

    # ---- other shapes --------------------------------------------------------------------------------------------------------

    def to_frame(self) -> Any:
        """The values as a pandas DataFrame with the labels of the rows: all columns, ``base value`` and ``score``."""
        pandas = frames()
        found = pandas.DataFrame(self.values, columns=list(self.names), index=list(self.labels))
        for name, column in (("base value", self.base), ("score", self.scores)):
            if name not in found.columns:  # a column of the table comes first
                found[name] = column
        return found

    def to_shap(self) -> Any:
        """The values as a ``shap.Explanation``, for all of shap's plots.

        Raises:
            MissingExtraError: shap is not installed.
        """
        try:
            import shap
        except ImportError:
            raise MissingExtraError("shap", "dev", "shap's plots") from None
        data = np.empty((len(self), len(self.names)), dtype=object)
        for i, name in enumerate(self.names):
            data[:, i] = self.cells[name].tolist()
        numeric = all(self.cells[name].dtype.kind in "iufb" for name in self.names)
        return shap.Explanation(
            values=self.values.copy(),
            base_values=self.base,
            data=data.astype(float) if numeric else data,
            feature_names=list(self.names),
            output_names=self.output or None,
            error_std=None,
        )

    def table_rows(self) -> list[Row]:
        """The results as rows of the table of :func:`integrand.explain_many`."""
        return [
            Row.of(
                one,
                prediction=f"{one.score:.6g}",
                target=self.unit,
                sentence=self._picture.sentence_of(i, named=False),
                features=self.names,
                attributions=self.values[i],
                attribution_errors=tuple(self.errors[i].tolist()),
            )
            for i, one in enumerate(self.certificate)
        ]

    def numbers(self) -> dict[str, Any]:
        """Everything as JSON holds it."""
        rows = [
            {
                "row": plain(label),
                "score": one.score,
                "baseline_score": one.baseline_score,
                "error": one.error,
                "tol": one.tol,
                "status": one.status.value,
                "sentence": self._picture.sentence_of(i),
                "columns": [
                    {
                        "name": name,
                        "cell": plain(self.cells[name][i]),
                        "value": self.values[i, k],
                        "error": self.errors[i, k],
                    }
                    for k, name in enumerate(self.names)
                ],
            }
            for i, (label, one) in enumerate(zip(self.labels, self.certificate, strict=True))
        ]
        found: dict[str, Any] = finite({"unit": self.unit, "baseline": self.baseline, "rows": rows})
        return found

    def html(
        self, *, title: str = "", meta: Mapping[str, str] | None = None, command: str | None = None, by: bool = True
    ) -> str:
        """One self-contained page: of one row its waterfall, of several what matters over them.

        Args:
            title: the heading.
            meta: how it was made, name by name.
            command: what makes the page again, to be shown in it.
            by: with several rows, also the dependence of the strongest column, which takes integrated Hessians.
        """
        from .page import page

        return page(self, title=title, meta=meta, command=command, by=by)

    @property
    def picture(self) -> TablePicture:
        """What draws it."""
        return self._picture

    def save(self, path: str | PathLike[str], *, picture: str | None = None, **options: Any) -> Path:
        """Write the result by the ending of the path: ``.html``, ``.png``, ``.svg``, ``.pdf``, ``.csv`` or ``.json``.

        Args:
            path: where to.
            picture: for pictures: ``waterfall``, ``bar``, ``beeswarm``, ``heatmap`` or ``dependence``; by default a waterfall
                of one row, a beeswarm of several.
            **options: those of :meth:`html`, or of the picture's method.
        """
        file = Path(path)
        if file.suffix.lower() == ".csv":
            if options or picture:
                given = sorted([*options, *(["picture"] if picture else [])])
                raise OptionError(f"got {', '.join(given)} for a .csv file; they are for pages and pictures.")
            return self._write_csv(file)
        if picture is not None and file.suffix.lower() in (".html", ".json"):
            raise OptionError(f"got picture={picture!r} for a {file.suffix} file; expected .png, .svg or .pdf.")
        drawn = picture or ("waterfall" if len(self) == 1 else "beeswarm")
        if drawn not in TablePicture.KINDS:
            raise OptionError(f"got picture={drawn!r}; expected one of {', '.join(TablePicture.KINDS)}.")
        if file.suffix.lower() not in (".html", ".json", ".png", ".svg", ".pdf"):
            raise OptionError(f"got the ending {file.suffix!r}; expected .html, .png, .svg, .pdf, .csv or .json.")
        return write(file, options, picture=getattr(self, drawn), numbers=self.numbers, report=self.html)

    def _write_csv(self, file: Path) -> Path:
        """A line for each row and column: what the table holds, the value, and its error."""
        import csv

        with text_file(file) as out:
            lines = csv.writer(out, lineterminator="\n")
            lines.writerow(["row", "column", "cell", "value", "error", "score", "baseline_score", "status", "tol"])
            for i, (label, one) in enumerate(zip(self.labels, self.certificate, strict=True)):
                for k, name in enumerate(self.names):
                    held = [cell(shown(str(part))) for part in (label, name, plain(self.cells[name][i]))]
                    found = [
                        repr(float(self.values[i, k])),
                        repr(float(self.errors[i, k])),
                        repr(one.score),
                        repr(one.baseline_score),
                    ]
                    lines.writerow([*held, *found, one.status.value, repr(one.tol)])
        return file

    def show(self, **options: Any) -> Any:
        """Draw it with matplotlib and show it: the waterfall of one row, the beeswarm of several; returns the figure."""
        from ...render.figures import present

        return present((self.waterfall if len(self) == 1 else self.beeswarm)(**options), "integrand-table")

    def __str__(self) -> str:
        if len(self) > 1:
            return f"{self.sentence}\n{self.certificate!r}"
        order = np.argsort(-np.abs(self.values[0]), kind="stable")
        wide = max(len(self.names[k]) for k in order)
        lines = [
            f"  {shown(self.names[k]).ljust(wide)}  {plus_minus(self.values[0, k], self.errors[0, k]):>20}  "
            f"{shortened(cell_text(self.cells[self.names[k]][0]), 30)}"
            for k in order[:20]
        ]
        more = [f"  and {len(order) - 20} more columns"] if len(order) > 20 else []
        return "\n".join([self.sentence, *lines, *more])

    __repr__ = short_repr

    def _small_html_(self) -> str:
        drawn = self._picture.svg("waterfall", place=0, most=8) if len(self) == 1 else self._picture.svg("bar", most=8)
        return view(self.sentence, drawn, certificate=self.certificate)

    def _repr_html_(self) -> str:
        return notebook_view(self, lambda: self.html(by=False), self._small_html_, height=LOW)
