"""Where paths start: baselines to choose from, and how to choose.

:func:`black`, :func:`white`, :func:`mean`, :func:`blurred`, :func:`uniform`, :func:`gaussian` and :func:`drawn` make what the
front door takes as ``baseline=``; any tensor of your own will do as well. :func:`diagnose` compares them on a model and an
input. What the front door is given is settled here into rows in the space that is explained.
"""

from ._constructors import black, blurred, gaussian, mean, uniform, white
from ._data import drawn
from ._diagnose import diagnose
from ._diagnosis import Diagnosis
from ._settle import Baseline, settle_baselines

__all__ = [
    "Baseline",
    "Diagnosis",
    "black",
    "blurred",
    "diagnose",
    "drawn",
    "gaussian",
    "mean",
    "settle_baselines",
    "uniform",
    "white",
]
