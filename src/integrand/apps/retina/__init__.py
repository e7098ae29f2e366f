"""Diabetic retinopathy (section 6.2 of the paper): a fundus photo in, its grade and the evidence for it out.

    grader = retina.load()
    eye = grader.see("eye.jpg")                       # the retina found and framed
    print(grader.grade(eye))                          # grade 2: moderate non-proliferative diabetic retinopathy, ...
    why = grader.explain(eye, target="referable")     # which pixels speak for it

The grader is not a medical device: it is for research, not for diagnosing or treating anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .fundus import BASELINES, BaselineName, Eye, see
    from .model import SCORES, Evidence, Grader, load
    from .result import GRADES, NOTICE, ExaminedEye, Grade
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "BASELINES": "fundus",
            "BaselineName": "fundus",
            "Eye": "fundus",
            "see": "fundus",
            "SCORES": "model",
            "Evidence": "model",
            "Grader": "model",
            "GRADES": "result",
            "NOTICE": "result",
            "ExaminedEye": "result",
            "Grade": "result",
            "load": "model",
        },
    )

__all__ = [
    "BASELINES",
    "GRADES",
    "NOTICE",
    "SCORES",
    "BaselineName",
    "Evidence",
    "ExaminedEye",
    "Eye",
    "Grade",
    "Grader",
    "load",
    "see",
]
