"""The explanation of a series: what each value of it adds to a score, with sums over windows, channels and any stretch."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...attribution import Attribution
from ...batch.rows import Row
from ...certificate import ExampleCertificate
from ...errors import InputError, MissingExtraError
from ...files import write, write_text
from ...render import series as pictures
from ...render.certificate_text import trust
from ...render.notebook import notebook_view, said_first
from ...render.series.signal import AttributedSignal, SignalStretch, place_words
from ...render.series.time_axis import TimeAxis
from ...render.text.word_sentences import capital, quoted
from ...words import cell, finite, number, percent, plus_minus, short_repr
from .series_input import Layout, TimeSeries, find_channel, taken_back
from .series_run import SeriesStart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]

MOSTLY = 0.3
"""A score comes mostly from a stretch that has at least this share of all that speaks for it; by hand."""

CONTRARY = 0.2
"""A stretch against the score is named if it is at least this share of the one for it; by hand."""

MOST_FEATURES = 4096
"""Features that a row of a table names; with more, it has the windows alone."""


@dataclass(frozen=True)
class SeriesSum:
    """What a part of a series adds to the score.

    Attributes:
        value: the sum of its attributions.
        error: by how much it may be off; NaN where that is not known.
        where: the part, in words.
    """

    value: float
    error: float
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {plus_minus(self.value, self.error)}"


def signal_of(
    series: TimeSeries,
    start: SeriesStart,
    attribution: Attribution,
    layout: Layout,
    windows: Sequence[tuple[int, int]],
    scale: str = "",
) -> AttributedSignal:
    """A series with its attributions, summed over windows with errors, as pictures take it.

    Args:
        series: what was explained.
        start: its baselines.
        attribution: of one example, in the layout.
        layout: of the attributions.
        windows: (start, stop) in steps, without gaps.
        scale: the unit of the score.
    """
    many, times = len(series.names), torch.zeros(len(series), dtype=torch.long)
    for w, (first, stop) in enumerate(windows):
        times[first:stop] = w
    cells = times[:, None] * many + torch.arange(many)
    shape = (len(windows), many)
    by_window = attribution.sums(as_values(cells, layout))
    by_channel = attribution.sums(as_values(torch.arange(many).expand(len(series), many), layout))
    values = attribution.values
    assert isinstance(values, torch.Tensor)
    return AttributedSignal(
        series.axis,
        series.values,
        start.drawn,
        taken_back(values[0].detach().cpu().double(), layout).numpy(),
        series.names,
        series.units,
        tuple(windows),
        by_window.values[0].reshape(shape).numpy(),
        by_window.errors[0].reshape(shape).numpy(),
        by_channel.values[0].numpy(),
        by_channel.errors[0].numpy(),
        scale,
        series.known,
    )


def as_values(labels: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Labels (time, channels) in the shape of one example's values."""
    return labels.mT.contiguous() if layout == "channels-time" else labels[:, 0] if layout == "time" else labels.contiguous()


def sum_between(
    attribution: Attribution, layout: Layout, shape: tuple[int, int], part: SignalStretch, *, whole: bool = False
) -> tuple[float, float]:
    """The sum over a stretch of one channel, or with ``whole`` of all channels, and its error."""
    labels = torch.full(shape, -1)
    labels[part.start : part.stop, slice(None) if whole else part.channel] = 0
    found = attribution.sums(as_values(labels, layout))
    return float(found.values[0, 0]), float(found.errors[0, 0])


@dataclass(frozen=True, eq=False)
class SeriesExplanation:
    """What each value of a series adds to a score of a model; made by :func:`integrand.series.explain`.

    Attributes:
        series: what was explained, with its times and names.
        start: the baselines.
        attribution: the attributions in the model's layout, with the certificate; one example.
        layout: how the model takes a series.
        windows: (start, stop) of each window in steps.
        label: what is explained: a class, or a name for the output.
        prediction: the class that the model says; the label where it has no classes.
        chances: the probability of every class, where there are classes.
        scale: the unit of the score.
        notes: what a reader must not miss.
        meta: how it was made, name by name.
    """

    series: TimeSeries
    start: SeriesStart
    attribution: Attribution
    layout: Layout
    windows: tuple[tuple[int, int], ...]
    label: str
    prediction: str
    chances: Mapping[str, float] = field(default_factory=dict)
    scale: str = ""
    notes: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)

    __repr__ = short_repr

    @cached_property
    def signal(self) -> AttributedSignal:
        """The series with its attributions as pictures take it: window sums with errors, channel totals."""
        return signal_of(self.series, self.start, self.attribution, self.layout, self.windows, self.scale)

    @property
    def certificate(self) -> ExampleCertificate:
        """How far the numbers can be trusted."""
        return self.attribution.certificate.only

    @property
    def values(self) -> Numbers:
        """What each value of the series adds to the score, (time, channels)."""
        return self.signal.attributions

    @property
    def window_sums(self) -> Numbers:
        """The sums over windows, (windows, channels)."""
        return self.signal.sums

    @property
    def window_errors(self) -> Numbers:
        """By how much each may be off, (windows, channels)."""
        return self.signal.errors

    @property
    def channels(self) -> dict[str, SeriesSum]:
        """What each channel adds over all times, by name."""
        found = zip(self.series.names, self.signal.totals.tolist(), self.signal.total_errors.tolist(), strict=True)
        return {name: SeriesSum(value, error, name) for name, value, error in found}

    def between(self, start: Any, end: Any, channel: str | int | None = None) -> SeriesSum:
        """What the values from one time to another add, both included, with the error of that sum.

        Args:
            start: a time as on the axis: a number, or a date such as ``"1959-07"``.
            end: likewise.
            channel: a name or number; None for all channels together.

        Raises:
            InputError: there is no value between the two, or no such channel.
        """
        axis = self.series.axis
        low, high = place_of_time(axis, start), place_of_time(axis, end, last=True)
        inside = np.flatnonzero((axis.at >= low - 1e-9) & (axis.at <= high + 1e-9))
        if not len(inside):
            raise InputError(
                f"got {start!r} to {end!r}, in which the series has no value; expected times from {axis.label(0)} to "
                f"{axis.label(len(axis) - 1)}, the earlier one first."
            )
        number_ = 0 if channel is None else find_channel(channel, self.series.names)
        part = SignalStretch(number_, int(inside[0]), int(inside[-1]) + 1)
        shape = (len(self.series), len(self.series.names))
        found = sum_between(self.attribution, self.layout, shape, part, whole=channel is None)
        where = axis.span(part.start, part.stop) + ("" if channel is None else f" of {self.series.names[number_]}")
        return SeriesSum(*found, where)

    def stretch(self, sign: int = 1) -> SeriesSum | None:
        """The strongest stretch of one channel that speaks for the score (1) or against it (-1): neighbouring windows."""
        part = self.signal.stretch(sign)
        if part is None:
            return None
        where = place_words(self.signal, part)
        if (part.start, part.stop) in self.windows:  # its error is estimated beside the other windows', as everywhere else
            w = self.windows.index((part.start, part.stop))
            return SeriesSum(float(self.signal.sums[w, part.channel]), float(self.signal.errors[w, part.channel]), where)
        shape = (len(self.series), len(self.series.names))
        return SeriesSum(*sum_between(self.attribution, self.layout, shape, part), where)

    @property
    def verdict(self) -> str:
        """What the model says, in a few words."""
        one = self.certificate
        if not self.chances:
            unit = f" {self.scale}" if self.scale else ""
            start = one.baseline_score if abs(one.baseline_score) > 1e-6 * abs(one.score) else 0.0  # what rounding leaves
            return f"{capital(self.label)} is {number(one.score)}{unit}, {number(start)} at the baseline"
        if self.prediction == self.label:
            return f"It says {quoted(self.label)} ({percent(self.chances[self.label])})"
        other = f"it says {quoted(self.prediction)}, {percent(self.chances[self.prediction])}"
        return f"{quoted(self.label)} gets {percent(self.chances[self.label])} ({other})"

    @cached_property
    def sentence(self) -> str:
        """What the model says, because of which stretch, and how sure the numbers are, in one line."""
        one = self.certificate
        sign = 1 if self.chances or one.score >= one.baseline_score else -1
        return f"{self.verdict}{self.reasons(sign)}; {trust(one)}."

    def reasons(self, sign: int) -> str:
        """Which stretch speaks for the score (1), or for its being so low (-1), and which strong one against that, in words."""
        first, second = self.stretch(sign), self.stretch(-sign)
        said = "; nothing speaks for it" if first is None else f", {self._because(first, sign)}"
        if second is not None and abs(second.value) > CONTRARY * (abs(first.value) if first is not None else 0.0):
            against = "against it" if self.chances else "the other way"
            said += f"; {against} above all {second.where} ({self.signal.amount(second.value, second.error)})"
        return said

    def _because(self, part: SeriesSum, sign: int) -> str:
        """That a stretch is why, as part of a sentence; where it is one of many, the channel first."""
        told = f"{part.where} ({self.signal.amount(part.value, part.error)})"
        whole = float(np.clip(sign * np.nan_to_num(self.signal.sums), 0, None).sum())
        if abs(part.value) >= MOSTLY * whole:
            return f"mostly because of {told}"
        if not self.signal.several:
            return f"because of many stretches, {told} the strongest"
        best = max(self.channels.values(), key=lambda one: sign * one.value)
        most = f"{best.where} ({self.signal.amount(best.value, best.error)})"
        return f"most of it from {most}; the strongest stretch is {told}"

    def page(self, *, title: str | None = None, command: str | None = None) -> str:
        """One self-contained HTML page: the sentence, the signal with what it adds beneath, and the certificate.

        Args:
            title: the heading; by default what was explained.
            command: what makes the page again, to be shown in it.
        """
        return pictures.page(
            self.signal,
            title=title
            or (f"Why {quoted(self.label)}?" if self.chances else f"Why {self.label} is {number(self.certificate.score)}"),
            says=self.sentence,
            certificate=self.certificate,
            notes=self.notes,
            meta=self.meta,
            command=command,
        )

    html = page

    def figure(self, *, title: str | None = None) -> Figure:
        """The same picture drawn with matplotlib.

        Args:
            title: the heading; by default the sentence.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        return pictures.figure(self.signal, title=title or self.sentence, certificate=self.certificate)

    def show(self, *, title: str | None = None) -> Figure:
        """The figure in a window, or as a file where there is no display; returns it."""
        drawn = self.figure(title=title)
        from ...render.figures import present

        return present(drawn, "integrand-series")

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
        """A line for each value: time, channel, value, baseline, attribution, and the sum over its window with its error."""
        return signal_csv(self.signal)

    def to_frame(self) -> Any:
        """The attributions as a pandas DataFrame, a row for each time and a column for each channel.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return framed(self.series, self.values)

    def numbers(self) -> dict[str, Any]:
        """Everything as a dictionary for JSON."""
        one = self.certificate
        said: dict[str, Any] = {"label": self.label, "prediction": self.prediction, "probabilities": dict(self.chances)}
        scores = {"score": one.score, "baseline_score": one.baseline_score, "error": one.error, "status": one.status.value}
        told = {"sentence": self.sentence, **said, **scores, "gradients": one.gradients, "notes": list(self.notes)}
        found: dict[str, Any] = finite(told | signal_numbers(self.signal) | {"meta": dict(self.meta)})
        return found

    def row(self) -> Row:
        """The result as a row of a table of many series: what the model said, and what each window adds."""
        signal = self.signal
        names = [
            (f"{name}: " if signal.several else "") + signal.axis.span(*window)
            for window in signal.windows
            for name in signal.names
        ]
        errors = tuple(signal.errors.reshape(-1).tolist())
        return Row.of(
            self.certificate,
            prediction=self.prediction,
            probability=self.chances.get(self.prediction),
            target=self.label,
            sentence=self.sentence,
            notes=self.notes,
            features=tuple(names),
            attributions=signal.sums.reshape(-1),
            attribution_errors=errors if np.isfinite(errors).all() else None,
            whole=self.attribution,
        )

    def __str__(self) -> str:
        return f"{self.sentence}\n{pictures.terminal(self.signal)}"

    def _small_html_(self) -> str:
        return said_first(self, pictures.fragment(self.signal))

    def _repr_html_(self) -> str:
        return notebook_view(self, self.page, self._small_html_)


def place_of_time(axis: TimeAxis, time: Any, *, last: bool = False) -> float:
    """A time that a user gives as a place on the axis.

    Args:
        axis: the axis.
        time: a number, or where the axis has dates a date: a text, a datetime or a Timestamp.
        last: whether the last moment is meant: of ``1959-07``, the end of July.

    Raises:
        InputError: it is neither.
    """
    if axis.dates is not None and getattr(time, "tzinfo", None) is not None:
        raise InputError(
            f"got the time {str(time)!r} with a time zone; expected one as the clocks of the axis show it: "
            f"time.tz_localize(None), after tz_convert(...) if it is of another zone."
        )
    try:
        if axis.dates is None:
            return float(time)
        stamp = time.to_datetime64() if hasattr(time, "to_datetime64") else np.datetime64(time)
        end = stamp
        if last and isinstance(time, str):
            unit, step = np.datetime_data(stamp.dtype)
            length: Any = np.timedelta64(step, unit)  # type: ignore[call-overload]  # any unit of numpy
            end = (stamp + length).astype("datetime64[us]") - np.timedelta64(1, "us")
        return float((end.astype("datetime64[us]") - axis.dates[0]).astype(np.int64)) / 1e6
    except (TypeError, ValueError):
        expected = (
            "a number on the axis of the series" if axis.dates is None else "a date such as '1959-07' or '2021-05-01T12:00'"
        )
        raise InputError(f"got the time {time!r}; expected {expected}.") from None


def signal_csv(signal: AttributedSignal) -> str:
    """A signal as CSV with a heading, a line for each time and channel."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["time", "channel", "value", "baseline", "attribution", "window", "window_sum", "window_error"])
    for w, (start, stop) in enumerate(signal.windows):
        span = signal.axis.span(start, stop)
        for t in range(start, stop):
            stamp = _stamp(signal, t)
            for c, name in enumerate(signal.names):
                seen = (signal.values[t, c], signal.baseline[t, c], signal.attributions[t, c])
                added = (signal.sums[w, c], signal.errors[w, c])
                writer.writerow([stamp, cell(name), *map(float, seen), cell(span), *map(float, added)])
    return buffer.getvalue()


def _stamp(signal: AttributedSignal, t: int) -> str | float:
    return float(signal.axis.at[t]) if signal.axis.dates is None else str(signal.axis.dates[t].astype("datetime64[s]"))


def signal_numbers(signal: AttributedSignal) -> dict[str, Any]:
    """A signal as a dictionary for JSON."""
    windows = [
        {"from": _stamp(signal, start), "to": _stamp(signal, stop - 1), "sums": sums, "errors": errors}
        for (start, stop), sums, errors in zip(signal.windows, signal.sums.tolist(), signal.errors.tolist(), strict=True)
    ]
    return {
        "channels": list(signal.names),
        "units": list(signal.units),
        "times": [_stamp(signal, t) for t in range(len(signal.axis))],
        "values": signal.values.tolist(),
        "baseline": signal.baseline.tolist(),
        "attributions": signal.attributions.tolist(),
        "windows": windows,
        "totals": signal.totals.tolist(),
        "total_errors": signal.total_errors.tolist(),
    }


def framed(series: TimeSeries, values: Numbers) -> Any:
    """Values (time, channels) as a DataFrame with the times as its index."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("pandas", "tables", "a DataFrame of attributions") from None
    index = pd.Index(series.axis.at, name=series.axis.unit or "time") if series.axis.dates is None else None
    return pd.DataFrame(
        values,
        index=index if index is not None else pd.DatetimeIndex(series.axis.dates, name="time"),
        columns=list(series.names),
    )
