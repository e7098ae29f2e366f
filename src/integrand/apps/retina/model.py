"""The retinopathy grader: its network, the grade it gives to a fundus photo, and the explanation of that grade.

The grader is not a medical device: it is for research, not for diagnosing or treating anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...api import integrated_gradients
from ...attribution import Attribution
from ...functions.model_state import undisturbed
from ...loading import shipped
from ..images.model import Network
from ..images.photo_files import Photo
from ..images.preprocess import Preprocess
from ..images.result import Answer, PhotoCase, explained_together, packed, packs
from ..images.sources import efficientnet_lite0
from .fundus import BASELINES, SIDE, BaselineName, Eye, Pixels, Values, see
from .result import GRADES, ExaminedEye, Grade

if TYPE_CHECKING:
    from ...analysis.inquiry import Inquiry

WEIGHTS = "retina.safetensors"
PREPROCESS = Preprocess(size=(SIDE, SIDE), mean=(127.0,) * 3, scale=(128.0,) * 3, fit="pad")

SCORES = (
    "no retinopathy, healthy",
    "any retinopathy, mild or worse",
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
            return Grade.of(self.network.module(self.input(eye))[0].float().cpu(), eye.notes, fundus=eye.fundus)

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
    ) -> ExaminedEye:
        """Grade a photo and explain the grade; the result can be drawn and saved as a page, a picture or numbers.

        Args:
            photo: an :class:`Eye`, or what :meth:`see` takes.
            target: see :meth:`find`; None explains the grade that the network gives.
            baseline: see :meth:`Eye.baseline`.
            options: ``tol``, ``max_evaluations``, ``progress`` and so on, as in :func:`integrand.integrated_gradients`.
        """
        case, grade = self._case(photo if isinstance(photo, Eye) else self.see(photo), target, baseline)
        return ExaminedEye.of(case.explained(**options), grade)

    def inquiry(
        self, photo: Eye | Photo | Pixels | str | Path, *, target: str | int | None = None, baseline: BaselineName = "blurred"
    ) -> Inquiry:
        """What is asked about an eye, for other methods and baselines; arguments as in :meth:`examine`."""
        eye = photo if isinstance(photo, Eye) else self.see(photo)
        asked = self._case(eye, target, baseline)[0].inquiry()
        return replace(asked, candidates={name: self.baseline(eye, name) for name in BASELINES}, classes=None)

    def examine_photos(
        self,
        photos: Sequence[Eye | Photo | Pixels | str | Path],
        *,
        target: str | int | None = None,
        baseline: BaselineName = "blurred",
        together: int | None = None,
        **options: Any,
    ) -> list[ExaminedEye]:
        """Grade photos and explain their grades; the numbers are those of :meth:`examine`, to rounding.

        For a whole folder, into a table: ``integrand.explain_many("photos/", grader.examine_photos, "out")``. All photos are
        read and graded before the first grade is explained.

        Args:
            photos: each as :meth:`examine` takes it.
            target: see :meth:`find`; None explains the grade that the network gives to each.
            baseline: see :meth:`Eye.baseline`.
            together: photos of which the integrals share the network's chunks. Default: 32 on a GPU, 1 on a CPU.
            options: as in :meth:`examine`.
        """
        if target is not None:
            self.find(target)
        seen = (photo if isinstance(photo, Eye) else self.see(photo) for photo in photos)
        cases = [self._case(eye, target, baseline) for eye in seen]
        found: list[ExaminedEye] = []
        for pack in packs(cases, packed(self.network) if together is None else together):
            explained = explained_together([case for case, _ in pack], **options)
            found += [ExaminedEye.of(one, grade) for one, (_, grade) in zip(explained, pack, strict=True)]
        return found

    def _case(self, eye: Eye, target: str | int | None, baseline: BaselineName) -> tuple[PhotoCase, Grade]:
        """What is explained of an eye, and its grade."""
        grade = self.grade(eye)
        index = grade.target if target is None else self.find(target)
        answers = tuple(Answer(k, f"grade {k}: {GRADES[k]}", chance) for k, chance in enumerate(grade.probabilities))
        sure = 1 - grade.at_least[0] if index == 0 else grade.at_least[index - 1]
        answer = Answer(index, self.network.label(index), sure)
        start = self.baseline(eye, baseline)
        return PhotoCase(eye.photo, self.network, self.input(eye), answers, answer, "logit", baseline, start), grade


def load(device: torch.device | str | None = None) -> Grader:
    """Load the grader onto a device, by default a GPU where torch finds one."""
    weights = shipped(WEIGHTS, "grading a retina", extra="images")
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    network = efficientnet_lite0(str(weights)).module
    assert isinstance(network, nn.Module)
    module = Evidence(network.float()).eval().requires_grad_(False).to(place)
    source = "integrand's own, trained on DeepDRiD (CC BY-SA 4.0) by training/retina.py"
    return Grader(Network("retina", module, PREPROCESS, SCORES, source, outputs=len(SCORES)))
