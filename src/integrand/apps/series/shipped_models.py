"""The models that are shipped: two classifiers and a forecaster, each with what it needs to be asked, and series to try."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from ...errors import InputError, OptionError
from ...loading import shipped
from ...render.notebook import ResultList
from ...render.series.time_axis import TimeAxis
from ...tensor_files import read_safetensors
from ...words import short_repr, shown
from .forecast_result import ForecastExplanation
from .model import explain, forecast, listed
from .series_input import Layout, TimeSeries, time_series
from .series_networks import SeasonalForecaster, SeriesFCN

ModelName = Literal["gunpoint", "motions", "airline"]

SOURCES: Mapping[str, str] = {
    "gunpoint": "integrand's own, trained on GunPoint of the UCR archive (from aeon, BSD-3) by training/series.py",
    "motions": "integrand's own, trained on BasicMotions of the UEA archive (from aeon, BSD-3) by training/series.py",
    "airline": "integrand's own, trained on Box and Jenkins' airline passengers (from aeon, BSD-3) by training/series.py",
}


@dataclass(frozen=True, eq=False)
class SeriesModel:
    """A shipped model with what it needs to be asked; made by :func:`load`.

    Attributes:
        name: of the model.
        module: the network.
        kind: ``classifier`` or ``forecaster``.
        layout: how it takes a series.
        classes: what it tells apart; none for a forecaster.
        channels: names of the channels.
        units: of the channels.
        rate: values in a second; None where the times are dates.
        length: steps that it was trained on; a forecaster takes the last so many of a history.
        horizons: values that it forecasts.
        baseline: where paths start if nothing is said.
        examples: series that are shipped with it, with their classes.
        source: where the weights are from.
    """

    name: str
    module: nn.Module
    kind: Literal["classifier", "forecaster"]
    layout: Layout
    classes: tuple[str, ...]
    channels: tuple[str, ...]
    units: tuple[str, ...]
    rate: float | None
    length: int
    horizons: int
    baseline: str
    examples: tuple[tuple[TimeSeries, str], ...] = field(repr=False)
    source: str = ""

    together: ClassVar[int] = 32
    """Series that are explained in one call where there are many; see :func:`integrand.explain_many`."""

    __repr__ = short_repr

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that a result depends on beside the series, for the fingerprint of a table."""
        return {"model": self.name, "network": self.module, "classes": self.classes}

    def example(self, row: int = 0) -> TimeSeries:
        """A series that is shipped with the model, in the order of the official test set.

        Raises:
            InputError: there is no such row.
        """
        if not 0 <= row < len(self.examples):
            raise InputError(f"got row {row}; expected 0 to {len(self.examples) - 1}: {self.name} has so many examples.")
        return self.examples[row][0]

    def read(self, series: Any, **reading: Any) -> TimeSeries:
        """A series as the model takes it: its channels named, and of a longer history the last steps.

        Args:
            series: as in :func:`explain`, with times first.
            **reading: ``times``, ``rate``, ``gaps``.

        Raises:
            InputError: it has other channels, or is too short.
        """
        frame = type(series).__module__.partition(".")[0] in ("pandas", "polars")
        if not isinstance(series, TimeSeries) and not frame and reading.get("times") is None and reading.get("rate") is None:
            reading["rate"] = self.rate
        if frame and set(self.channels) <= set(map(str, getattr(series, "columns", ()))):
            reading["channels"] = self.channels
        found = time_series(series, **reading)
        if len(found.names) != len(self.channels):
            raise InputError(
                f"got {len(found.names)} channels ({', '.join(map(shown, found.names[:8]))}); expected {len(self.channels)}: "
                f"{', '.join(self.channels)}."
            )
        if self.kind == "forecaster" and len(found) < self.length:
            raise InputError(f"got {len(found)} steps; expected at least {self.length}, which the forecaster looks back.")
        cut = found.cut(len(found) - self.length, len(found)) if self.kind == "forecaster" else found
        unnamed = found.names == ("signal",) or found.names[0] == "channel 0"
        names = self.channels if unnamed else found.names
        known = [name.lower() for name in names] == [name.lower() for name in self.channels]
        return replace(cut, names=names, units=self.units if known else found.units, flat=False)

    def explain(self, series: Any, **options: Any) -> Any:
        """Find what each value adds to what the classifier says; a list of series gives a list of results.

        Args:
            series: as in :func:`explain`, with times first.
            **options: of :func:`explain`.
        """
        if self.kind != "classifier":
            raise OptionError(f"{self.name} forecasts; expected forecast(series, horizon=...) instead of explain(series).")
        reading = {name: options.pop(name) for name in ("times", "rate", "gaps") if name in options}
        one, given = listed(series)
        read = [self.read(part, **reading) for part in given]
        how: dict[str, Any] = {"classes": self.classes, "layout": self.layout} | options
        start = how.pop("baseline", self.baseline)
        found: Any = explain(self.module, read, start, **how)
        named = ResultList(replace(each, meta={"model": self.name, "source": self.source, **each.meta}) for each in found)
        return named[0] if one else named

    def forecast(self, series: Any, **options: Any) -> ForecastExplanation:
        """Find what each value of a history adds to the forecast.

        Args:
            series: as in :func:`forecast`; of a longer history the last steps are taken.
            **options: of :func:`forecast`.
        """
        if self.kind != "forecaster":
            raise OptionError(f"{self.name} classifies; expected explain(series) instead of forecast(series).")
        reading = {name: options.pop(name) for name in ("times", "rate", "gaps") if name in options}
        start = options.pop("baseline", self.baseline)
        found = forecast(self.module, self.read(series, **reading), start, layout=self.layout, **options)
        return replace(found, meta={"model": self.name, "source": self.source, **found.meta})


def load(name: ModelName = "gunpoint", *, device: str | torch.device = "cpu") -> SeriesModel:
    """Load a shipped model by name.

    Args:
        name: ``gunpoint`` (does a hand draw a gun, or point?), ``motions`` (standing, running, walking or badminton, from a
            smart watch) or ``airline`` (forecasts monthly passengers).
        device: where it computes.

    Raises:
        OptionError: there is no such model.
        MissingExtraError: ``integrand-models`` is not installed.
    """
    if name not in SOURCES:
        raise OptionError(f"got the model {name!r}; expected one of {', '.join(SOURCES)}.")
    file = shipped(f"series-{name}.safetensors", "explaining a series with a shipped model", extra="series")
    tensors, header = read_safetensors(file, what="weights")
    about = json.loads(header["about"])
    kind, channels, classes = about["kind"], tuple(about["channels"]), tuple(about["classes"])
    module: nn.Module
    if kind == "classifier":
        module = SeriesFCN(len(channels), len(classes))
    else:
        module = SeasonalForecaster(about["length"], about["horizons"])
    weights = {key.removeprefix("network."): value for key, value in tensors.items() if key.startswith("network.")}
    module.load_state_dict(weights)
    module = module.eval().requires_grad_(False).to(device)
    rate = about["rate"]
    examples: tuple[tuple[TimeSeries, str], ...]
    units = tuple(about["units"])
    if kind == "classifier":
        series = tensors["examples"].double().numpy()
        axis = TimeAxis.numbers(np.arange(series.shape[1]) / rate, "s")
        labels = [classes[i] for i in tensors["labels"].tolist()]
        examples = tuple((TimeSeries(one, axis, channels, units), label) for one, label in zip(series, labels, strict=True))
    else:
        axis = TimeAxis.dates_of(tensors["months"].numpy().astype("datetime64[M]"))
        examples = ((TimeSeries(tensors["examples"].double().numpy(), axis, channels, units), ""),)
    layout: Layout = "channels-time" if kind == "classifier" else "time-channels"
    return SeriesModel(
        name,
        module,
        kind,
        layout,
        classes,
        channels,
        units,
        rate,
        about["length"],
        about.get("horizons", 0),
        about.get("baseline", "mean"),
        examples,
        SOURCES[name],
    )
