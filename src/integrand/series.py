"""Time series: :mod:`integrand.apps.series` under a shorter name."""

from .apps.series import (
    ForecastExplanation,
    SeriesExplanation,
    SeriesModel,
    SeriesSum,
    TimeSeries,
    explain,
    forecast,
    inquiry,
    load,
    time_series,
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
