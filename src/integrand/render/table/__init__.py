"""Pictures of tables: waterfall, bars, beeswarm, heat map and dependence, as figures and as parts of a page.

picture = TablePicture(TableValues.of(names, labels, columns, values, errors, certificate, ...))
picture.figure("waterfall", place=0)       # matplotlib
picture.svg("beeswarm")                    # for a page, which shows the same
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import MissingExtraError, OptionError
from .chart_marks import Chart, chart_svg
from .column_charts import bar_chart, beeswarm_chart, dependence_chart, heat_chart, waterfall_chart
from .table_values import TableValues, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TablePicture", "TableValues", "cell_text"]

_CHARTS: dict[str, Callable[..., Chart]] = {
    "waterfall": waterfall_chart,
    "bar": bar_chart,
    "beeswarm": beeswarm_chart,
    "heatmap": heat_chart,
    "dependence": dependence_chart,
}


@dataclass(frozen=True, eq=False)
class TablePicture:
    """Draws the values of rows and columns.

    Attributes:
        values: what is drawn.
    """

    values: TableValues

    KINDS: ClassVar[tuple[str, ...]] = tuple(_CHARTS)
    """The pictures there are."""

    def chart(self, kind: str, **options: Any) -> Chart:
        """A picture as plain data.

        Args:
            kind: one of :data:`KINDS`.
            **options: those of the functions in :mod:`integrand.render.table.column_charts`.
        """
        most = options.get("most", 1)
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise OptionError(f"got most={most!r}; expected how many columns to draw, at least 1.")
        if options.get("by") is not None and kind == "heatmap" and options["by"] not in ("score", "given"):
            raise OptionError(f"got by={options['by']!r}; expected 'score' or 'given'.")
        return _CHARTS[kind](self.values, **options)

    def svg(self, kind: str, *, name: str = "", classes: str = "chart", **options: Any) -> str:
        """A picture as an SVG element of a page, whose style is :data:`integrand.render.table.chart_marks.STYLE`."""
        return chart_svg(self.chart(kind, **options), name=name, classes=classes)

    def figure(self, kind: str, **options: Any) -> Figure:
        """A picture drawn with matplotlib.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        try:
            from .chart_figure import chart_figure
        except ImportError:
            raise MissingExtraError("matplotlib", "tables", "drawing a table") from None
        return chart_figure(self.chart(kind, **options))

    @property
    def sentence(self) -> str:
        """What matters over all rows, or of the only one, in one line."""
        return self.values.sentence

    def sentence_of(self, row: int, *, named: bool = True) -> str:
        """What the model says of a row, given its position, and because of which columns."""
        return self.values.sentence_of(row, named=named)
