"""A graded eye as an explanation that draws itself, like that of any photo."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..images.photo_files import Photo
from ..images.result import Answer, Explanation, PhotoCase

if TYPE_CHECKING:
    from .fundus import BaselineName, Eye, Pixels
    from .model import Grader


def examine(
    grader: Grader,
    photo: Eye | Photo | Pixels | str | Path,
    *,
    target: str | int | None,
    baseline: BaselineName,
    **options: Any,
) -> Explanation:
    """See :meth:`integrand.apps.retina.Grader.examine`."""
    from .fundus import Eye
    from .model import GRADES

    eye = photo if isinstance(photo, Eye) else grader.see(photo)
    grade = grader.grade(eye)
    index = grade.target if target is None else grader.find(target)
    likely = sorted(enumerate(grade.probabilities), key=lambda one: -one[1])
    answers = tuple(Answer(k, f"grade {k}: {GRADES[k]}", chance) for k, chance in likely)
    sure = 1 - grade.at_least[0] if index == 0 else grade.at_least[index - 1]
    answer = Answer(index, grader.network.label(index), sure)
    start = grader.baseline(eye, baseline)
    case = PhotoCase(eye.photo, grader.network, grader.input(eye), answers, answer, "logit", baseline, start)
    headline = str(grade).splitlines()[0]
    if not eye.fundus:
        headline = f"this does not look like a photo of a retina, and a grade of it means nothing ({grade.grade} of 4)"
    return dataclasses.replace(case.explained(**options), headline=headline)
