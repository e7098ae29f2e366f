"""Diabetic retinopathy (section 6.2 of the paper): a fundus photo in, its grade and the evidence for it out.

    grader = retina.load()
    eye = grader.see("eye.jpg")                       # the retina found and framed
    print(grader.grade(eye))                          # grade 2: moderate non-proliferative diabetic retinopathy, ...
    why = grader.explain(eye, target="referable")     # which pixels speak for it

The grader is no medical device: see the model card, ``retina.md`` in the distribution ``integrand-models``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .fundus import BASELINES, BaselineName, Eye, see
    from .model import GRADES, SCORES, Evidence, Grade, Grader, load
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "BASELINES": "fundus",
            "BaselineName": "fundus",
            "Eye": "fundus",
            "see": "fundus",
            "GRADES": "model",
            "SCORES": "model",
            "Evidence": "model",
            "Grade": "model",
            "Grader": "model",
            "load": "model",
        },
    )

__all__ = [
    "BASELINES",
    "GRADES",
    "SCORES",
    "BaselineName",
    "Evidence",
    "Eye",
    "Grade",
    "Grader",
    "load",
    "see",
]
