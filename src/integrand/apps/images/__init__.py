"""Explanations of image classifiers: why a network said what it said of a photo (section 6.1 of the paper).

:func:`explain` takes a photo and a :class:`~integrand.apps.networks.Network` and gives an :class:`Explanation`: what the
network answered, the integrated gradients of that answer with their certificate, gradient x image next to them, and what
separates the answer from the runner-up. It draws itself, and saves itself as a picture, a page or numbers.
"""

from .model_pair import compare
from .result import (
    BASELINES,
    DRAWS,
    PATHS,
    Answer,
    Array,
    BaselineName,
    Explanation,
    PathName,
    Rival,
    ScoreName,
    check,
    explain,
)
from .result import PhotoCase as Case

__all__ = [
    "BASELINES",
    "DRAWS",
    "PATHS",
    "Answer",
    "Array",
    "BaselineName",
    "Case",
    "Explanation",
    "PathName",
    "Rival",
    "ScoreName",
    "check",
    "compare",
    "explain",
]
