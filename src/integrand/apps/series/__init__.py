"""Time series: what each value of a signal adds to what a model says of it, or forecasts, summed over windows of time.

    found = series.explain(model, frame, classes=["gun", "point"], layout="channels-time")   # any model, any series
    print(found.sentence)                            # It says 'gun' (97%), mostly because of 1.2–1.9 s ...
    found.save("why.html")                           # the signal, and what it adds beneath
    print(found.between(1.0, 2.0))                   # any stretch, with the error of its sum
    series.forecast(model, history, "trend", horizon=range(1, 13)).save("forecast.html")

    watch = series.load("motions")                   # a shipped network, with the series it was tested on
    print(watch.explain(watch.example(12)))

The shipped networks are described in the model card, ``series.md`` in the distribution ``integrand-models``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .forecast_result import ForecastExplanation
    from .model import explain, forecast, inquiry
    from .result import SeriesExplanation, SeriesSum
    from .series_input import TimeSeries, time_series
    from .shipped_models import SeriesModel, load
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "ForecastExplanation": "forecast_result",
            "SeriesExplanation": "result",
            "SeriesModel": "shipped_models",
            "SeriesSum": "result",
            "TimeSeries": "series_input",
            "explain": "model",
            "forecast": "model",
            "inquiry": "model",
            "load": "shipped_models",
            "time_series": "series_input",
        },
    )

__all__ = [
    "ForecastExplanation",
    "SeriesExplanation",
    "SeriesModel",
    "SeriesSum",
    "TimeSeries",
    "explain",
    "forecast",
    "inquiry",
    "load",
    "time_series",
]
