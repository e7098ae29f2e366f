"""Where paths start: baselines to choose from, and how to choose.

:func:`black`, :func:`white`, :func:`mean`, :func:`blurred`, :func:`uniform`, :func:`gaussian` and :func:`drawn` make
baselines to pass as ``baseline=``, for series also :func:`time_mean` and :func:`trend`; any tensor of your own will do as well.
:func:`diagnose` compares baselines on a model and an input; it lives in :mod:`integrand.analysis` and is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .constructors import black, blurred, drawn, gaussian, mean, time_mean, trend, uniform, white
from .resolve import Baseline, resolve_baselines

if TYPE_CHECKING:
    from ..analysis.baseline_diagnosis import diagnose
    from ..analysis.diagnosis_result import Diagnosis

__all__ = [
    "Baseline",
    "Diagnosis",
    "black",
    "blurred",
    "diagnose",
    "drawn",
    "gaussian",
    "mean",
    "resolve_baselines",
    "time_mean",
    "trend",
    "uniform",
    "white",
]


def __getattr__(name: str) -> Any:
    if name in ("Diagnosis", "diagnose"):
        from .. import analysis

        return getattr(analysis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
