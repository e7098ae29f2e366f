"""What the grader says of a photo: a grade with its certainty, and the photo examined, with the evidence for that grade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...batch.rows import Row
from ...render.notebook import text_table
from ...render.text.word_sentences import capital
from ...words import shown
from ..images.result import Answer, Explanation

if TYPE_CHECKING:
    from anywidget import AnyWidget

NOTICE = "Not a medical device: for research, not for diagnosing, treating or reassuring anybody."
"""What every reader of a grade must know."""

GRADES = (
    "no apparent retinopathy",
    "mild non-proliferative diabetic retinopathy",
    "moderate non-proliferative diabetic retinopathy",
    "severe non-proliferative diabetic retinopathy",
    "proliferative diabetic retinopathy",
)
"""The grades 0 to 4 of the international clinical scale, in words."""

SHORT = ("no retinopathy", "mild", "moderate", "severe", "proliferative")
"""The same, for the middle of a sentence."""

VIEW = "regions"
"""The view that is shown first. Brightness without signs, and outlines of what speaks for a disease, light up the optic disc
of every eye, a healthy one too, where pluses and minuses cancel; sums over regions have the colour of what is left of them."""

REGIONS = 40
"""The number of regions over which attributions are added up before it is said where the evidence lies."""

VAGUE = 0.5
"""With errors of a larger share of the regions' sums, nothing is said about where the evidence lies."""

SURE = 0.5
"""The probability that the stated grade must have by itself; with less it is called uncertain."""

HELD = 0.8
"""The probability that the grades together have which an uncertain grade is said to lie between."""


def falling(values: Sequence[float]) -> list[float]:
    """The nearest sequence that does not rise and has the same sum; neighbours that rise are replaced by their mean.

    >>> falling([0.9, 0.2, 0.4, 0.1])
    [0.9, 0.30000000000000004, 0.30000000000000004, 0.1]
    """
    pools: list[list[float]] = []
    for value in values:
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-2]) < np.mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    return [float(np.mean(pool)) for pool in pools for _ in pool]


def _chance(value: float) -> str:
    """A probability for people, in whole percent; never 0% or 100%, which nobody can know of an eye."""
    return "under 1%" if value < 0.005 else "over 99%" if value >= 0.995 else f"{value:.0%}"


@dataclass(frozen=True, repr=False)
class Grade:
    """The grader's assessment of one photo.

    Attributes:
        grade: 0 to 4 on the international scale: the expected grade, rounded.
        expected: the expected grade, which is the sum of ``at_least``.
        at_least: the probabilities that the grade is at least 1, 2, 3, 4. Each comes from a logit of its own; where they rise
            with the grade, which probabilities cannot, neighbours share their mean, so that the sum stays.
        notes: what to know about the photo before trusting any of it.
        fundus: whether the photo looks like one of a retina; if not, the grade means nothing.
        logits: what the network itself said of at least 1, 2, 3, 4, before neighbours shared their mean: these are what is
            explained, and the logit of a probability in ``at_least`` is another number where neighbours share.
    """

    grade: int
    expected: float
    at_least: tuple[float, float, float, float]
    notes: tuple[str, ...] = ()
    fundus: bool = True
    logits: tuple[float, ...] = ()

    @staticmethod
    def of(scores: Tensor | Sequence[float], notes: tuple[str, ...] = (), *, fundus: bool = True) -> Grade:
        """The grade from the network's five outputs for one photo, (5,)."""
        logits = torch.as_tensor(scores, dtype=torch.float64)[1:]
        one, two, three, four = falling(logits.sigmoid().tolist())
        expected = one + two + three + four
        return Grade(min(4, round(expected)), expected, (one, two, three, four), notes, fundus, tuple(logits.tolist()))

    @property
    def words(self) -> str:
        """The grade in words."""
        return GRADES[self.grade]

    @property
    def referable(self) -> bool:
        """Whether moderate retinopathy or worse is more likely than not."""
        return self.at_least[1] >= 0.5

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probabilities of the grades 0 to 4; they add up to 1."""
        return tuple(above - below for above, below in pairwise([1.0, *self.at_least, 0.0]))

    @property
    def between(self) -> tuple[int, int]:
        """The lowest and the highest of the fewest neighbouring grades, the stated one among them, with 80% of the probability.

        Of several such runs of grades the most probable one is taken.
        """
        chances = self.probabilities
        runs = [(low, high) for low in range(self.grade + 1) for high in range(self.grade, len(chances))]
        enough = [run for run in runs if sum(chances[run[0] : run[1] + 1]) >= HELD]
        return min(enough or [(0, 4)], key=lambda run: (run[1] - run[0], -sum(chances[run[0] : run[1] + 1])))

    @property
    def uncertain(self) -> bool:
        """Whether the stated grade is less likely than all others together; if not, it is also the likeliest one."""
        return self.probabilities[self.grade] < SURE

    @property
    def rule(self) -> str:
        """How the stated grade comes about, and why it is called uncertain, in one sentence."""
        low, high = self.between
        doubt = f", and uncertain: it has under {SURE:.0%} itself, and only grades {low} to {high} together have {HELD:.0%}"
        said = f"Grade {self.grade} is the mean of the grades weighted by their probabilities, {self.expected:.2f}, rounded"
        return f"{said}{doubt if self.uncertain else ''}."

    @property
    def headline(self) -> str:
        """The grade in words, or the grades between which the eye lies."""
        if not self.fundus:
            return f"this does not look like a photo of a retina, and a grade of it means nothing ({self.grade} of 4)"
        low, high = self.between
        return (
            f"between grades {low} and {high} of 4, uncertain" if self.uncertain else f"grade {self.grade} of 4: {self.words}"
        )

    @property
    def short(self) -> str:
        """The grade and the probability of referable disease in a few words, for the beginning of a sentence."""
        if not self.fundus:
            return self.headline
        said = self.headline if self.uncertain else f"grade {self.grade} of 4, {SHORT[self.grade]}"
        return f"{said} (referable: {_chance(self.at_least[1])})"

    @property
    def sentence(self) -> str:
        """What the grader says, in one line."""
        return capital(f"{self.short}.")

    @property
    def target(self) -> int:
        """The output that is explained by default: the evidence for this grade or worse.

        For grade 0 it is that for any retinopathy: what speaks for it, and what against.
        """
        return max(1, self.grade)

    @property
    def scale(self) -> str:
        """The five grades in their order with their probabilities, the stated one in brackets."""
        chances = [f"{k}: {_chance(chance)}" for k, chance in enumerate(self.probabilities)]
        return "grades " + "  ".join(f"[{one}]" if k == self.grade else one for k, one in enumerate(chances))

    def numbers(self) -> dict[str, Any]:
        """All of it as a dictionary for JSON."""
        return {
            "stated": self.grade,
            "words": self.words,
            "uncertain": self.uncertain,
            "between": list(self.between),
            "mean": self.expected,
            "probabilities": list(self.probabilities),
            "at_least": dict(zip(("1", "2", "3", "4"), self.at_least, strict=True)),
            "logits": dict(zip(("1", "2", "3", "4"), self.logits, strict=True)) if self.logits else None,
            "referable": self.referable,
            "looks_like_a_retina": self.fundus,
        }

    def __repr__(self) -> str:
        return f"{self.sentence} {NOTICE}"

    _repr_html_ = text_table

    def __str__(self) -> str:
        referable = f"probability of moderate or worse (referable): {_chance(self.at_least[1])}"
        return "\n".join([self.headline, referable, self.scale, self.rule, *(f"note: {note}" for note in self.notes), NOTICE])


@dataclass(frozen=True, repr=False)
class ExaminedEye(Explanation):
    """A graded photo of an eye with the evidence for its grade: an explained photo, and the grade.

    Attributes:
        grade: the grader's assessment.
    """

    grade: Grade = field(kw_only=True)

    @staticmethod
    def of(found: Explanation, grade: Grade) -> ExaminedEye:
        """The explanation of a grade, told as one: grades in their order, the stated one marked, the rule for it, the notice.

        Args:
            found: what explains the evidence for it.
            grade: the grade.
        """
        known = {item.name: getattr(found, item.name) for item in fields(found)}
        told = {"headline": grade.headline, "rule": grade.rule if grade.fundus else "", "notice": NOTICE}
        return ExaminedEye(**known | told | {"ordered": True, "stated": grade.grade, "view": VIEW}, grade=grade)

    @cached_property
    def sentence(self) -> str:
        """What the grader says, where the evidence for it lies, and how far the numbers can be trusted, in one line."""
        from ...render.certificate_text import trust

        if not self.grade.fundus:
            return self.grade.sentence
        return capital(f"{self.grade.short}: {self.whereabouts}; {trust(self.result.certificate.only)}.")

    @cached_property
    def whereabouts(self) -> str:
        """Where what speaks for the explained answer lies, or against it if the network says no, as the middle of a sentence.

        Attributions are added up by region first: single pixels of an eye have both signs side by side, most of all at the
        rim of the optic disc, where hardly anything is left of them in sum.
        """
        from ...render import image
        from ...render.image.whereabouts import EVERYWHERE, places

        found = image.regions(self.result, self.shown, count=REGIONS)
        labels = torch.as_tensor(found.labels).expand(self.x.shape[1:])
        sums = self.result.sums(labels)
        side = 1.0 if self.result.certificate.only.score >= 0 else -1.0
        totals, errors = (side * sums.values[0]).clamp(min=0).numpy(), sums.errors[0].numpy()
        what = f"what speaks {'for' if side > 0 else 'against'} “{self.answer.label}”"
        if not totals.sum() > 0:
            return f"nothing in the picture is {what}"
        if not errors[totals > 0].sum() <= VAGUE * totals.sum():
            return f"where in the picture {what} lies is too uncertain to say"
        where = places((totals / found.areas)[found.labels])
        return f"{what} lies {'all over the picture' if where == EVERYWHERE else f'most of all {where}'}"

    @property
    def beside(self) -> list[str]:
        """The grades in their order with their probabilities, and how the stated one comes about; nothing if it is no eye."""
        return [self.grade.scale, self.rule] if self.grade.fundus else []

    def row(self) -> Row:
        """The eye as a row of a table: what every explained photo has, and columns of the grade.

        What does not look like a retina has a number in ``grade`` too, but it is not counted among the eyes of that grade.
        """
        grade = self.grade
        columns = {
            "grade": grade.grade,
            "mean_grade": grade.expected,
            "referable": grade.referable,
            "referable_probability": grade.at_least[1],
            "uncertain": grade.uncertain,
            "looks_like_a_retina": grade.fundus,
        }
        said = (f"grade {grade.grade}", grade.probabilities[grade.grade]) if grade.fundus else ("no retina", None)
        return replace(super().row(), prediction=said[0], probability=said[1], columns=columns)

    def numbers(self) -> dict[str, Any]:
        """Everything but the pixels, as a dictionary for JSON."""
        said = {"sentence": self.sentence, "rule": self.rule, "notice": self.notice, "grade": self.grade.numbers()}
        return super().numbers() | said

    def widget(self) -> AnyWidget:
        """The page in a notebook, with controls to explain another grade, by another method or to another tolerance.

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        from ..result_widgets import OF_EYES, photo_widget

        sure = (1 - self.grade.at_least[0], *self.grade.at_least)
        outputs = [Answer(k, self.network.label(k), chance) for k, chance in enumerate(sure)]
        return photo_widget(self, outputs, OF_EYES, lambda found: ExaminedEye.of(found, self.grade))

    def __repr__(self) -> str:
        return f"{shown(self.photo.name)}: {self.sentence} {self.notice}"

    def __str__(self) -> str:
        sure = f"explained: {self.answer.label} ({self.answer.probability:.3f})"
        said = f"{shown(self.photo.name)}: {self.sentence}"
        return "\n".join([said, self.grade.scale, self.rule, sure, str(self.result), self.notice])
