"""The retinopathy grader: its network, the grade it gives to a fundus photo, and the explanation of that grade.

The grader is no medical device: see the model card, ``retina.md`` in the distribution ``integrand-models``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...api import integrated_gradients
from ...attribution import Attribution
from ...functions.model_state import undisturbed
from ...loading import shipped
from ...render.notebook import text_table
from ...words import short_repr
from ..images.model import Network
from ..images.photo_files import Photo
from ..images.preprocess import Preprocess
from ..images.result import Answer, Explanation, PhotoCase
from ..images.sources import efficientnet_lite0
from .fundus import SIDE, BaselineName, Eye, Pixels, Values, see

WEIGHTS = "retina.safetensors"
PREPROCESS = Preprocess(size=(SIDE, SIDE), mean=(127.0,) * 3, scale=(128.0,) * 3, fit="pad")

GRADES = (
    "no apparent retinopathy",
    "mild non-proliferative diabetic retinopathy",
    "moderate non-proliferative diabetic retinopathy",
    "severe non-proliferative diabetic retinopathy",
    "proliferative diabetic retinopathy",
)
"""The grades 0 to 4 of the international clinical scale, in words."""

SCORES = (
    "no retinopathy, healthy",
    "mild or worse, any retinopathy",
    "moderate or worse, referable",
    "severe or worse",
    "proliferative",
)
"""What each output of the network is evidence for; the number of the output is that of the grade."""


class Evidence(nn.Module):
    """The network's outputs: its four logits for "the grade is at least 1, 2, 3, 4", and before them the negative of the first.

    So output g is the evidence for grade g or worse, and output 0 the evidence against any.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """The evidence for "no retinopathy" and for grades 1 to 4 or worse, from (N, 3, 512, 512) to (N, 5)."""
        logits = self.network(x)
        return torch.cat([-logits[:, :1], logits], dim=1)


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


@dataclass(frozen=True)
class Grade:
    """The grader's assessment of one photo.

    Attributes:
        grade: 0 to 4 on the international scale: the expected grade, rounded.
        expected: the expected grade, which is the sum of ``at_least``.
        at_least: the probabilities that the grade is at least 1, 2, 3, 4. Each comes from a logit of its own; where they rise
            with the grade, which probabilities cannot, neighbours share their mean, so that the sum stays.
        notes: what to know about the photo before trusting any of it.
    """

    grade: int
    expected: float
    at_least: tuple[float, float, float, float]
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(scores: Tensor | Sequence[float], notes: tuple[str, ...] = ()) -> Grade:
        """The grade from the network's five outputs for one photo, (5,)."""
        one, two, three, four = falling(torch.as_tensor(scores, dtype=torch.float64)[1:].sigmoid().tolist())
        expected = one + two + three + four
        return Grade(min(4, round(expected)), expected, (one, two, three, four), notes)

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
    def target(self) -> int:
        """The output that is explained by default: the evidence for this grade or worse.

        For grade 0 it is that for any retinopathy: what speaks for it, and what against.
        """
        return max(1, self.grade)

    __repr__ = short_repr
    _repr_html_ = text_table

    def __str__(self) -> str:
        lines = [f"grade {self.grade} of 4: {self.words}; probability of moderate or worse (referable): {self.at_least[1]:.0%}"]
        likely = int(np.argmax(self.probabilities))
        apart = "" if likely == self.grade else f" (the most probable alone is {likely}; {self.grade} is the mean, rounded)"
        lines.append("grades 0 to 4: " + "  ".join(f"{p:.0%}" for p in self.probabilities) + apart)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True, eq=False)
class Grader:
    """The grading network with its preprocessing; made by :func:`load`.

    Attributes:
        network: takes the photos that :meth:`see` gives; its outputs are :data:`SCORES`. They are no exclusive classes:
            explain them as they are (``score="logit"``), without a softmax.
    """

    network: Network

    def see(self, photo: Photo | Pixels | str | Path) -> Eye:
        """Find the retina and frame it as the photos that the grader was trained on: see :func:`see`."""
        return see(photo)

    def input(self, eye: Eye | Values | Pixels) -> Tensor:
        """The network's input for an eye, or for pixels framed as those of one, (1, 3, 512, 512)."""
        pixels = eye.values if isinstance(eye, Eye) else eye
        return self.network.preprocess.input(pixels).to(self.network.device)

    def baseline(self, eye: Eye, name: BaselineName = "blurred") -> Tensor:
        """A baseline of :meth:`Eye.baseline` as network input: (1, 3, 512, 512), or (3, 1, 3, 512, 512) for the average."""
        found = torch.stack([self.input(pixels) for pixels in eye.baseline(name)])
        return found if len(found) > 1 else found[0]

    def grade(self, photo: Eye | Photo | Pixels | str | Path) -> Grade:
        """Grade a photo, in full float32 on a GPU too."""
        eye = photo if isinstance(photo, Eye) else self.see(photo)
        with undisturbed(self.network.module), torch.no_grad():
            return Grade.of(self.network.module(self.input(eye))[0].float().cpu(), eye.notes)

    def find(self, target: str | int) -> int:
        """The output that a target names: ``referable``, ``any``, ``healthy``, or a grade ("3" is "severe or worse")."""
        return self.network.find(str(target).strip().lower().removeprefix("grade").strip())

    def explain(
        self,
        photo: Eye | Photo | Pixels | str | Path,
        *,
        target: str | int | None = None,
        baseline: BaselineName = "blurred",
        tol: float = 0.05,
        **options: Any,
    ) -> Attribution:
        """Integrated gradients of the evidence for a grade or worse.

        Args:
            photo: an :class:`Eye`, or what :meth:`see` takes.
            target: see :meth:`find`; None explains the grade that the network gives (:attr:`Grade.target`).
            baseline: see :meth:`Eye.baseline`.
            tol: the relative error to integrate to; 5% is enough for a picture.
            options: further ones of :func:`integrand.integrated_gradients`.

        Returns:
            Values of shape (1, 3, 512, 512).
        """
        eye = photo if isinstance(photo, Eye) else self.see(photo)
        output = self.grade(eye).target if target is None else self.find(target)
        start = self.baseline(eye, baseline)
        return integrated_gradients(self.network.module, self.input(eye), start, target=output, tol=tol, **options)

    def examine(
        self,
        photo: Eye | Photo | Pixels | str | Path,
        *,
        target: str | int | None = None,
        baseline: BaselineName = "blurred",
        **options: Any,
    ) -> Explanation:
        """Grade a photo and explain the grade; the result can be drawn and saved as a page, a picture or numbers.

        Args:
            photo: an :class:`Eye`, or what :meth:`see` takes.
            target: see :meth:`find`; None explains the grade that the network gives.
            baseline: see :meth:`Eye.baseline`.
            options: ``tol``, ``max_evaluations``, ``progress`` and so on, as in :func:`integrand.integrated_gradients`.
        """
        eye = photo if isinstance(photo, Eye) else self.see(photo)
        grade = self.grade(eye)
        index = grade.target if target is None else self.find(target)
        likely = sorted(enumerate(grade.probabilities), key=lambda one: -one[1])
        answers = tuple(Answer(k, f"grade {k}: {GRADES[k]}", chance) for k, chance in likely)
        sure = 1 - grade.at_least[0] if index == 0 else grade.at_least[index - 1]
        answer = Answer(index, self.network.label(index), sure)
        start = self.baseline(eye, baseline)
        case = PhotoCase(eye.photo, self.network, self.input(eye), answers, answer, "logit", baseline, start)
        headline = str(grade).splitlines()[0]
        if not eye.fundus:
            headline = f"this does not look like a photo of a retina, and a grade of it means nothing ({grade.grade} of 4)"
        return dataclasses.replace(case.explained(**options), headline=headline)


def load(device: torch.device | str | None = None) -> Grader:
    """Load the grader onto a device, by default a GPU where torch finds one."""
    weights = shipped(WEIGHTS, "grading a retina", extra="images")
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    network = efficientnet_lite0(str(weights)).module
    assert isinstance(network, nn.Module)
    module = Evidence(network.float()).eval().requires_grad_(False).to(place)
    source = "integrand's own, trained on DeepDRiD (CC BY-SA 4.0) by training/retina.py"
    notes = ("not a medical device: see the model card, retina.md in the package integrand-models",)
    return Grader(Network("retina", module, PREPROCESS, SCORES, source, notes, len(SCORES)))
