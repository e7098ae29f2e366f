"""Two real tables with a network trained on each: scikit-learn's breast cancer and diabetes data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from ...errors import MissingExtraError, OptionError
from ...functions.target import Score
from ...loading import shipped
from ...schema import parsed
from ...tensor_files import read_safetensors
from .column_codes import Column, NumberColumn, OneHotColumn
from .result import TableExplanation

if TYPE_CHECKING:
    from .model import TableExplainer

TableName = Literal["breast-cancer", "diabetes"]

NAMES: Mapping[str, str] = {
    "breast-cancer": "569 tumours: is it malignant?",
    "diabetes": "442 patients: how far will the disease progress in a year?",
}
"""The tables, and what is asked of a row."""


class TableNetwork(nn.Module):
    """A network of two hidden layers on the encoded columns of a table.

    Args:
        features: numbers of a row.
        hidden: units of each hidden layer.
    """

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """One number for each row, (N, 1), from its encoded columns, (N, features)."""
        out: Tensor = self.layers(x)
        return out


@dataclass(frozen=True, eq=False)
class TrainedTable:
    """A table, and a network that was trained on part of it; made by :func:`load`.

    Attributes:
        name: of the table.
        module: the network.
        columns: how columns become what it takes.
        output: what it says of a row, in words.
        score: on which scale it is explained.
        held_out: positions of the rows that it was not trained on.
    """

    name: str
    module: TableNetwork
    columns: Mapping[str, Column]
    output: str
    score: Score
    held_out: tuple[int, ...]

    @cached_property
    def frame(self) -> Any:
        """The table as a pandas DataFrame, as scikit-learn ships it.

        Raises:
            MissingExtraError: scikit-learn or pandas is not installed.
        """
        return table_data(self.name)[0]

    def explain(self, baseline: Any = "mean", *, rows: Any = None, frame: Any = None, **options: Any) -> TableExplanation:
        """Explain rows of the table, or others with the same columns.

        Args:
            baseline: as in :func:`integrand.tables.explain`, where means and labels are those of this table.
            rows: the labels of the rows to explain; None for all.
            frame: other rows; None for those of the table.
            **options: further ones of :func:`integrand.tables.explain`.
        """
        return self.explainer(baseline, **options).explain(self.frame if frame is None else frame, rows=rows)

    def explainer(self, baseline: Any = "mean", **options: Any) -> TableExplainer:
        """The network with its columns and a baseline; arguments as in :meth:`explain`."""
        from .model import TableExplainer

        given = {"columns": self.columns, "score": self.score, "classes": (self.output,)} | options
        return TableExplainer.of(self.module, self.frame, baseline, **given)


def load(name: TableName | str = "breast-cancer") -> TrainedTable:
    """One of the tables with its network.

    Args:
        name: ``breast-cancer``: the probability that a tumour is malignant, from 30 measures of cell nuclei. ``diabetes``: a
            measure of the disease's progression after a year, from ten of a patient.
    """
    if name not in NAMES:
        raise OptionError(f"got the table {name!r}; expected one of {', '.join(NAMES)}.")
    path = shipped(f"table-{name}.safetensors", "explaining a shipped table", extra="tables")
    weights, header = read_safetensors(path, what="a network on a table")
    kinds, settings = (parsed(header.get(key, ""), what=path.name) for key in ("columns", "settings"))
    columns = {name: _column(kind) for name, kind in kinds}
    module = TableNetwork(sum(one.width for one in columns.values()), settings["hidden"])
    module.load_state_dict({key: value.float() for key, value in weights.items()})
    module.eval().requires_grad_(False)
    return TrainedTable(name, module, columns, settings["output"], settings["score"], tuple(settings["held_out"]))


def table_data(name: str) -> tuple[Any, Any]:
    """The columns of a table and what is to be predicted, as pandas has them, from scikit-learn.

    Args:
        name: one of :data:`NAMES`. Of ``breast-cancer``, 1 is malignant.
    """
    try:
        import pandas  # noqa: F401 - scikit-learn's own error does not say how to install it
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtraError(
            (error.name or "scikit-learn").replace("sklearn", "scikit-learn"), "tables", f"the table {name}"
        ) from None
    if name == "breast-cancer":
        found = datasets.load_breast_cancer(as_frame=True)
        return found.data, 1 - found.target
    found = datasets.load_diabetes(as_frame=True, scaled=False)
    return found.data, found.target


def _column(kind: Sequence[float] | Mapping[str, Any]) -> Column:
    """A column as the header of a file describes it: mean and scale, or categories."""
    if isinstance(kind, Mapping):
        return OneHotColumn(tuple(kind["categories"]))
    mean, scale = kind
    return NumberColumn(float(mean), float(scale))
