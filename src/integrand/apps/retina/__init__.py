"""Diabetic retinopathy (section 6.2 of the paper): a fundus photo in, its grade and the evidence for it out.

    grader = retina.load()
    eye = grader.see("eye.jpg")                       # the retina found and framed
    print(grader.grade(eye))                          # grade 2: moderate non-proliferative diabetic retinopathy, ...
    why = grader.explain(eye, target="referable")     # which pixels speak for it

The grader is no medical device: see the model card, ``retina.md`` in the distribution ``integrand-models``.
"""

from .fundus import BASELINES, BaselineName, Eye, see
from .model import GRADES, SCORES, Evidence, Grade, Grader, load

__all__ = ["BASELINES", "GRADES", "SCORES", "BaselineName", "Evidence", "Eye", "Grade", "Grader", "load", "see"]
