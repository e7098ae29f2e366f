"""The explanation of a forecast: what each value of a history adds to each of the values that a model forecasts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...attribution import Attribution
from ...batch.rows import Row, example_of
from ...certificate import Certificate
from ...errors import OptionError
from ...files import write, write_text
from ...render import series as pictures
from ...render.certificate_text import trust
from ...render.notebook import notebook_view, said_first
from ...render.series.lag_map import LagMap
from ...render.series.signal import AttributedSignal
from ...render.series.signal_page import forecast_page
from ...render.series.signal_svg import Ahead
from ...words import cell, finite, number, short_repr
from .result import SeriesExplanation, framed, signal_numbers
from .series_input import Layout, TimeSeries
from .series_run import SeriesStart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ForecastExplanation:
    """What each value of a history adds to each forecast; made by :func:`integrand.series.forecast`.

    Attributes:
        series: the history.
        start: the baselines.
        attribution: an example for each horizon, or one where they were added up; in the model's layout.
        layout: how the model takes a series.
        windows: (start, stop) of each window in steps.
        horizons: that were asked for, counted from 1.
        joined: ``sum`` or ``mean`` where all horizons were taken together, else empty.
        channel: the name of what is forecast.
        forecasts: everything that the model forecasts of it, (all horizons,).
        baseline_forecasts: what it forecasts after the baseline (the mean over several), likewise.
        scale: the unit of the forecast.
        notes: what a reader must not miss.
        meta: how it was made, name by name.
    """

    series: TimeSeries
    start: SeriesStart
    attribution: Attribution
    layout: Layout
    windows: tuple[tuple[int, int], ...]
    horizons: tuple[int, ...]
    joined: Literal["", "sum", "mean"]
    channel: str
    forecasts: Numbers
    baseline_forecasts: Numbers
    scale: str = ""
    notes: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.certificate)

    @property
    def certificate(self) -> Certificate:
        """How far the numbers can be trusted, for each horizon."""
        return self.attribution.certificate

    @cached_property
    def explanations(self) -> tuple[SeriesExplanation, ...]:
        """Each horizon as the explanation of a series, with all that one can do."""
        found = []
        for i, name in enumerate(self.rows):
            alone = example_of(self.attribution, i)
            label = f"the forecast for {name}"
            parts = (self.series, self.start, alone, self.layout, self.windows, label, label)
            found.append(SeriesExplanation(*parts, scale=self.scale, notes=self.notes, meta=self.meta))
        return tuple(found)

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """What is forecast, in words, for each horizon: the time, and how far ahead it is."""
        axis = self.series.axis.extended(len(self.forecasts))
        count = len(self.series)
        if self.joined:
            return (f"the {self.joined} of {axis.span(count, count + len(self.forecasts))}",)
        return tuple(axis.span(count + h - 1, count + h) for h in self.horizons)

    @cached_property
    def lags(self) -> LagMap:
        """The heat map of horizons by windows, as pictures take it."""
        axis = self.series.axis.extended(len(self.forecasts))
        names = self.series.names
        channel = names.index(self.channel) if self.channel in names else 0
        ahead = Ahead(self.forecasts, self.baseline_forecasts, self.horizons)
        own = () if self.joined else self.horizons
        return LagMap(axis, tuple(one.signal for one in self.explanations), self.rows, channel, ahead, own)

    @property
    def values(self) -> Numbers:
        """What each value of the history adds, (horizons, time, channels)."""
        return np.stack([one.values for one in self.explanations])

    @property
    def window_sums(self) -> Numbers:
        """The sums over windows, (horizons, windows, channels)."""
        return np.stack([one.window_sums for one in self.explanations])

    @property
    def window_errors(self) -> Numbers:
        """By how much each may be off, (horizons, windows, channels)."""
        return np.stack([one.window_errors for one in self.explanations])

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each horizon: what is forecast, and because of which stretch."""
        return tuple(self._sentence(i) for i in range(len(self)))

    def _sentence(self, i: int) -> str:
        one, result = self.certificate[i], self.explanations[i]
        unit = f" {self.scale}" if self.scale else ""
        change = one.score - one.baseline_score
        said = f"The forecast for {self.rows[i]} is {number(one.score)}{unit}"
        base = f"{number(abs(change), 3)} {'above' if change >= 0 else 'below'} that after the baseline ({self.start.name})"
        return f"{said}, {base}{result.reasons(1 if change >= 0 else -1)}; {trust(one)}."

    @property
    def sentence(self) -> str:
        """What is forecast, because of what, and how sure the numbers are, in one line; of several, the strongest influence."""
        if len(self) == 1:
            return self.sentences[0]
        low, high = self.rows[0], self.rows[-1]
        sizes = [float(np.abs(np.nan_to_num(one.signal.sums)).max()) for one in self.explanations]
        best = int(np.argmax(sizes))
        result = self.explanations[best]
        ends = f"{number(float(self.certificate[0].score))} to {number(float(self.certificate[len(self) - 1].score))}"
        unit = f" {self.scale}" if self.scale else ""
        w, c = result.signal.strongest(1)[0] if result.signal.strongest(1) else (0, 0)
        where = result.signal.axis.span(*self.windows[w]) + (f" of {result.signal.named(c)}" if result.signal.several else "")
        adds = result.signal.amount(float(result.signal.sums[w, c]), float(result.signal.errors[w, c]))
        return (
            f"The {len(self)} forecasts from {low} to {high} go from {ends}{unit}; the strongest single influence is {where} "
            f"on {self.rows[best]} ({adds}); {trust(self.certificate)}."
        )

    def page(self, *, title: str | None = None, command: str | None = None) -> str:
        """One self-contained HTML page: the forecast, the heat map of where it comes from, and each horizon by itself.

        Args:
            title: the heading; by default what is forecast.
            command: what makes the page again, to be shown in it.
        """
        return forecast_page(
            self.lags,
            title=title or f"Where the forecast of {self.channel} comes from",
            says=self.sentence,
            each=self.sentences,
            certificate=self.certificate,
            notes=self.notes,
            meta=self.meta,
            command=command,
        )

    html = page

    def figure(self, *, title: str | None = None) -> Figure:
        """The forecast and its heat map drawn with matplotlib.

        Args:
            title: the heading; by default the sentence.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        return pictures.forecast_figure(self.lags, title=title or self.sentence, certificate=self.certificate)

    def show(self, *, title: str | None = None) -> Figure:
        """The figure in a window, or as a file where there is no display; returns it."""
        drawn = self.figure(title=title)
        from ...render.figures import present

        return present(drawn, "integrand-forecast")

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write ``.html``, a picture (``.png``, ``.svg``, ``.pdf``), ``.json`` or ``.csv``, by the suffix of the path.

        Args:
            path: where to.
            **options: of :meth:`page` or :meth:`figure`.
        """
        file = Path(path)
        if file.suffix.lower() == ".csv" and not options:
            write_text(file, self.csv())
            return file
        return write(file, options, picture=self.figure, numbers=self.numbers, report=self.page, also=".csv, ")

    def csv(self) -> str:
        """A line for each forecast and window: what is forecast, its score, the window, the channel, the sum and its error."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["forecast", "score", "baseline_score", "status", "window", "channel", "sum", "error"])
        for name, one, signal in zip(self.rows, self.certificate, self.lags.signals, strict=True):
            about = [cell(name), one.score, one.baseline_score, one.status.value]
            for w, window in enumerate(signal.windows):
                for c, channel in enumerate(signal.names):
                    sums = (float(signal.sums[w, c]), float(signal.errors[w, c]))
                    writer.writerow([*about, cell(signal.axis.span(*window)), cell(channel), *sums])
        return buffer.getvalue()

    def to_frame(self, horizon: int | None = None) -> Any:
        """The attributions of one horizon as a pandas DataFrame, a row for each time; of all, side by side.

        Args:
            horizon: one of those that were asked for; None for all.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        if horizon is not None and (self.joined or horizon not in self.horizons):
            there = (
                f"None, since they are taken together ({self.joined})" if self.joined else ", ".join(map(str, self.horizons))
            )
            raise OptionError(f"got horizon={horizon!r}; expected one of those that were asked for: {there}.")
        if horizon is not None or len(self) == 1:
            return framed(self.series, self.values[0 if horizon is None else self.horizons.index(horizon)])
        parts = [f"{name} {row}" if len(self.series.names) > 1 else row for row in self.rows for name in self.series.names]
        wide = self.values.transpose(1, 0, 2).reshape(len(self.series), -1)
        return framed(replace(self.series, names=tuple(parts)), wide)

    def numbers(self) -> dict[str, Any]:
        """Everything as a dictionary for JSON."""
        rows = [
            {"forecast": name, "sentence": said, "score": one.score, "baseline_score": one.baseline_score}
            | {"error": one.error, "status": one.status.value, "gradients": one.gradients}
            | signal_numbers(signal)
            for name, said, one, signal in zip(self.rows, self.sentences, self.certificate, self.lags.signals, strict=True)
        ]
        told: dict[str, Any] = {"sentence": self.sentence, "channel": self.channel, "forecasts": self.forecasts.tolist()}
        found: dict[str, Any] = finite(told | {"rows": rows, "notes": list(self.notes), "meta": dict(self.meta)})
        return found

    def row(self) -> Row:
        """The result as a row of a table of many histories: what windows add to the mean of the forecasts asked for."""
        signals: tuple[AttributedSignal, ...] = self.lags.signals
        names = [
            (f"{name}: " if signals[0].several else "") + signals[0].axis.span(*window)
            for window in self.windows
            for name in self.series.names
        ]
        return Row.of(
            self.certificate,
            prediction=number(float(np.mean([one.score for one in self.certificate]))),
            target=" ".join(self.rows[:1]) if len(self) == 1 else f"{len(self)} horizons",
            sentence=self.sentence,
            notes=self.notes,
            features=tuple(names),
            attributions=self.window_sums.mean(0).reshape(-1),
        )

    def __str__(self) -> str:
        shown = pictures.terminal(self.lags.signals[0]) if len(self) == 1 else pictures.lag_terminal(self.lags)
        return f"{self.sentence}\n{shown}"

    def _small_html_(self) -> str:
        return said_first(self, pictures.forecast_fragment(self.lags))

    def _repr_html_(self) -> str:
        return notebook_view(self, self.page, self._small_html_)
