"""Explanations of image classifiers: why a network said what it said of a photo (section 6.1 of the paper).

:func:`explain` takes a photo and a :class:`~integrand.apps.networks.Network` and gives an :class:`Explanation`: what the
network answered, the integrated gradients of that answer with their certificate, gradient x image next to them, where in the
photo the evidence lies and, on request, what separates the answer from another. It draws itself, and saves itself as a
picture, a page or numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
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
        explain_photos,
        inquiry,
    )
    from .result import PhotoCase as Case
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "BASELINES": "result",
            "DRAWS": "result",
            "PATHS": "result",
            "Answer": "result",
            "Array": "result",
            "BaselineName": "result",
            "Explanation": "result",
            "PathName": "result",
            "Rival": "result",
            "ScoreName": "result",
            "check": "result",
            "compare": "model_pair",
            "explain": "result",
            "explain_photos": "result",
            "inquiry": "result",
            "Case": "result:PhotoCase",
        },
    )

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
    "explain_photos",
    "inquiry",
]
