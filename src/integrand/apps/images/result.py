"""The result of explaining a photo: the network's answer, its attributions, and what separates it from the runner-up.

:func:`explain` makes an :class:`Explanation`, which draws itself and saves itself as a picture, a page or numbers, from
a :class:`PhotoCase`: a photo, a network and the answer to explain.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from ... import paths
from ...analysis.baseline_diagnosis import Builtins
from ...api import integrated_gradients, path_attribution
from ...attribution import Attribution
from ...errors import OptionError
from ...evaluation.progress import ProgressOption
from ...files import write
from ...functions.model_state import undisturbed
from ...functions.probabilities import adds_up_to_one, squashed
from ...functions.target import main_tensor
from ...methods.gradients import GradientTimesInput
from ...words import percent, short_repr, shown
from .model import Network
from .photo_files import Photo, as_photo, read

if TYPE_CHECKING:
    from ...render.image.whereabouts import Focus

BASELINES = ("black", "white", "mean", "blurred", "uniform", "gaussian")
"""The names of baselines; several joined by ``+`` are averaged."""

PATHS = ("straight", "blur", "guided")

DRAWS = 10
"""The number of noise samples that are averaged in random baselines."""

FURTHER, LEAST = 5, 0.01
"""The most further answers of a network that are named, and the probability from which on one is."""

Array = np.ndarray[Any, np.dtype[Any]]
BaselineName = str
PathName = Literal["straight", "blur", "guided"]
ScoreName = Literal["probability", "logit", "log-probability"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One possible answer of a network to a photo, with its probability.

    Attributes:
        index: its place in the output.
        label: in words.
        probability: from 0 to 1; NaN where the network gives no probabilities.
    """

    index: int
    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class Rival:
    """Another answer, and the attribution of the difference between the two answers' outputs, the explained one first.

    Attributes:
        answer: the other one.
        result: attributions of the difference; they add up to how much it changes from baseline to photo.
    """

    answer: Answer
    result: Attribution

    __repr__ = short_repr


@dataclass(frozen=True)
class Explanation:
    """An explained photo.

    Attributes:
        photo: as it was read.
        network: what answered.
        x: what the network saw, (1, 3, H, W).
        answers: what it said, surest first.
        answer: what is explained.
        score: the scale on which it is explained.
        baseline: in words.
        path: straight, blur or guided.
        result: its attributions and their certificate.
        gradient: gradient x image, which the paper compares with.
        rival: what speaks for it against another answer, where that was asked for and there is one.
        headline: the answer in words, where what is explained is the evidence for it rather than the answer itself: a grade.
        view: the view that pages and figures show first, a name of :data:`integrand.render.image.VIEWS`.
        ordered: whether the answers are the steps of a scale, such as grades, listed in their own order and not by probability.
        stated: the index of the answer that the headline states, which lists mark; None for that of ``answer``.
        rule: how the stated answer comes about, in a sentence; '' where it is simply the surest.
        notice: what every reader must know before anything else, in a sentence that stands on every page and picture.
        telling: the sentence that sums it all up, where it is not the usual one.
        unit: what the attributions are measured in: "probability", "log-probability", "logit", or "output" for a number of
            another kind, as of a regression; '' for what ``score`` says.
    """

    photo: Photo
    network: Network
    x: Tensor
    answers: tuple[Answer, ...]
    answer: Answer
    score: str
    baseline: str
    path: str
    result: Attribution
    gradient: Attribution
    rival: Rival | None = None
    headline: str = ""
    view: str = "outlines"
    ordered: bool = False
    stated: int | None = None
    rule: str = ""
    notice: str = ""
    telling: str = ""
    unit: str = ""

    @cached_property
    def shown(self) -> Array:
        """The part of the photo that the network saw, (H, W, 3) uint8."""
        return np.rint(self.network.preprocess.pixels(self.x[0]) * 255).astype(np.uint8)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the photo and the network that a reader should know."""
        return (*self.photo.notes, *self.network.notes)

    @property
    def title(self) -> str:
        """The network's answer in words."""
        return self.headline or self.answer.label

    def __repr__(self) -> str:
        return short_repr(self)

    @cached_property
    def focus(self) -> Focus:
        """Where in the picture the evidence lies: the smallest smooth area that holds half of what speaks for the answer."""
        from ...render.image.photo_page import values_of
        from ...render.image.whereabouts import focus_of

        return focus_of(values_of(self.result, "result"), self.result.certificate.only)

    @property
    def sentence(self) -> str:
        """What the network said, where that lies in the picture, and how far the numbers can be trusted, in one line."""
        from ...render.certificate_text import trust
        from ...render.image.whereabouts import photo_sentence

        if self.telling:
            return self.telling
        certificate = self.result.certificate.only
        if self.headline:
            return f"{self.headline}; {self.focus.told(f'“{self.answer.label}”')}; {trust(certificate)}."
        rank = self.answers.index(self.answer) + 1
        return photo_sentence(self.title, self.focus, certificate, probability=self.answer.probability, rank=rank)

    @property
    def beside(self) -> list[str]:
        """What else the network said, in lines for a terminal: its next answers, as far as it takes them for possible."""
        others = [one for one in self.answers if one is not self.answer and one.probability >= LEAST][:FURTHER]
        named = ", ".join(f"{one.label} ({percent(one.probability)})" for one in others)
        return [f"other answers: {named}"] if others and not self.headline else []

    def __str__(self) -> str:
        return "\n".join([f"{shown(self.photo.name)}: {self.sentence}", *self.beside, str(self.result.certificate)])

    def _repr_html_(self) -> str:
        from ...render.notebook import photo_view

        said = getattr(self, "sentence", f"{self.photo.name}: {self.title}")
        return photo_view(said, self.shown, self.result, self.title)

    def figure(self, **options: Any) -> Any:
        """The photo, where the answer comes from and what each region gives, drawn with matplotlib.

        Args:
            **options: those of :func:`integrand.render.figure`; with ``views=``, each also of gradient × image.
        """
        from ...render import figure
        from ...render.image.viewer import DRAWN

        drawn: dict[str, Any] = {"labels": self.title, "notice": self.notice}
        if "views" in options or "others" in options:
            drawn["others"] = {"gradient × image": self.gradient}
        else:
            drawn["views"] = [DRAWN[name] for name in dict.fromkeys((self.view, "regions"))]  # as on the page
        return figure(self.result, image=self.shown, **drawn | options)

    def show(self, **options: Any) -> Any:
        """Draw :meth:`figure`, with its options, let people see it, and return it.

        A notebook shows it; a script opens a window, or, without a display, saves ``integrand-photo.png`` in the current folder
        and prints that.
        """
        drawn = self.figure(**options)
        from ...render.figures import present

        return present(drawn, "integrand-photo")

    def page(self, *, command: str | None = None, file: str | None = None) -> str:
        """The explanation as one self-contained HTML page.

        Args:
            command: the command that makes it again.
            file: where the photo is, which tells it from others of the same name.
        """
        from .page import page

        return page(self, command=command, file=file)

    def numbers(self) -> dict[str, Any]:
        """Everything but the pixels, as a dictionary for JSON."""
        from .page import numbers

        return numbers(self)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write a page (``.html``), a picture (``.png``, ``.svg``, ``.pdf``), ``.json`` numbers or ``.safetensors`` values.

        Args:
            path: where to; the ending decides.
            **options: ``command=`` for pages; those of :meth:`figure` for pictures.
        """
        where = Path(path)
        if where.suffix.lower() == ".safetensors":
            return self.result.save(where, **options)
        return write(where, options, picture=self.figure, numbers=self.numbers, report=self.page)


def explain(
    photo: Photo | str | PathLike[str] | Array,
    network: Network,
    *,
    target: int | str | None = None,
    baseline: BaselineName | Tensor | None = None,
    path: PathName = "straight",
    score: ScoreName = "probability",
    tol: float = 0.01,
    rival: bool | int | str = False,
    max_evaluations: int = 4000,
    memory: int | None = None,
    progress: ProgressOption = None,
) -> Explanation:
    """Explain what a network says of a photo.

    Args:
        photo: a file, a :class:`~integrand.apps.photos.Photo`, or pixels (H, W, 3) uint8.
        network: from :func:`integrand.apps.networks.load`.
        target: the class to explain, by number or name; the surest one if not given.
        baseline: a name of :data:`BASELINES`, several of them joined by ``+``, an image file, or a tensor in the network's
            input space; black if not given. The blur path starts at the photo, blurred, and takes none.
        path: the straight line of integrated gradients, from blurred to sharp, or guided by small gradients.
        score: probability, logit or log-probability.
        tol: the relative error to integrate to.
        rival: also explain why it is this class and not another: True for the surest other one, or a class by number or name.
            Takes as long again.
        max_evaluations: gradients that each attribution may take.
        memory: bytes that the run may hold.
        progress: a bar or a callback.
    """
    check(network, target=target, baseline=baseline, path=path, rival=rival)
    photo = as_photo(photo)
    x = network.preprocess(photo.pixels).to(network.device)
    answers, score, unit = answers_of(network, x, score)
    index = answers[0].index if target is None else network.find(str(target))
    answer = next(one for one in answers if one.index == index)
    other = _other(answers, answer, rival, network)
    if path == "blur":
        words, start = "the photo, blurred", cast(Tensor, paths.Blur(x).start())
    else:
        words = baseline or "black" if not isinstance(baseline, Tensor) else "a tensor"
        start = start_of("black" if baseline is None else baseline, x, network)
    case = PhotoCase(photo, network, x, answers, answer, score, words, start, path, unit)
    return case.explained(other, tol=tol, max_evaluations=max_evaluations, memory=memory, progress=progress)


def is_named(baseline: str) -> bool:
    """Whether a baseline is given by its name, or by several joined by '+', which is then never taken for a file."""
    return set(baseline.split("+")) <= set(BASELINES)


def check(
    network: Network,
    *,
    target: int | str | None,
    baseline: BaselineName | Tensor | None,
    path: str,
    rival: bool | int | str = False,
    **_: Any,
) -> None:
    """Refuse options that are wrong whatever the photo is, before any work is done."""
    if path not in PATHS:
        raise OptionError(f"got path={path!r}; expected one of {', '.join(PATHS)}.")
    if path == "blur" and baseline is not None:
        raise OptionError(f"got a baseline ({baseline!r}) for the blur path, which starts at the photo, blurred; leave it out.")
    for name in (target, None if isinstance(rival, bool) else rival):
        if name is not None:
            network.find(str(name))
    if isinstance(baseline, str) and not is_named(baseline) and not os.path.isfile(baseline):
        raise OptionError(
            f"got baseline {baseline!r}; expected {', '.join(BASELINES)}, several joined by '+', or an image file that exists."
        )


@dataclass(frozen=True)
class PhotoCase:
    """A photo, a network and the answer to explain; the attributes are those of :class:`Explanation`.

    Attributes:
        starts: the baseline, (1, 3, H, W), or several that average, (number, 1, 3, H, W).
    """

    photo: Photo
    network: Network
    x: Tensor
    answers: tuple[Answer, ...]
    answer: Answer
    score: str
    baseline: str
    starts: Tensor
    path: str = "straight"
    unit: str = ""

    __repr__ = short_repr

    def explained(self, other: Answer | None = None, **options: Any) -> Explanation:
        """Attribute the answer, and its difference from another answer.

        Args:
            other: the other answer.
            **options: how to integrate, as in :func:`integrand.integrated_gradients`.
        """
        model, index = self.network.module, self.answer.index
        result = self._attributed(target=index, score=self.score, **options)
        gradient = GradientTimesInput()(model, self.x, self.starts, target=index, score=self.score)  # type: ignore[arg-type]
        rival = None
        if other is not None:
            rival = Rival(other, self._attributed(target=_difference(index, other.index), **options))
        said = (self.photo, self.network, self.x, self.answers, self.answer, self.score, self.baseline, self.path)
        return Explanation(*said, result, gradient, rival, unit=self.unit)

    def _attributed(self, **options: Any) -> Attribution:
        model = self.network.module
        if self.path == "straight":
            return integrated_gradients(model, self.x, self.starts, **options)
        if self.path == "blur":
            return path_attribution(model, paths.Blur(self.x), **options)
        if self.starts.ndim == self.x.ndim:
            return path_attribution(model, paths.Guided(self.starts, self.x), **options)
        raise OptionError(
            f"a guided path starts at one baseline; got {len(self.starts)} that average. Choose one, such as black."
        )


def answers_of(network: Network, x: Tensor, score: ScoreName) -> tuple[tuple[Answer, ...], ScoreName, str]:
    """The network's answers, most probable first, the scale to explain them on, and what that scale measures."""
    with undisturbed(network.module):
        output = main_tensor(network.module(x.detach().clone().requires_grad_()))
    values = output.detach()[0].double().cpu().reshape(-1)
    unit: str = score
    if squashed(output) or adds_up_to_one(output.detach()):
        probabilities = values  # the network ends in a softmax or a sigmoid of its own
        score = "logit" if score == "probability" else score
        unit = "probability" if score == "logit" else score
    elif values.numel() > 1:
        probabilities = values.softmax(0)
    elif score == "logit":  # one number, taken as it is: nothing says that it has anything to do with a probability
        probabilities, unit = torch.full_like(values, math.nan), "output"
    else:
        probabilities = values.sigmoid()
    order = probabilities.argsort(descending=True, stable=True).tolist()
    return tuple(Answer(k, network.label(k), float(probabilities[k])) for k in order), score, unit


def _other(answers: tuple[Answer, ...], answer: Answer, rival: bool | int | str, network: Network) -> Answer | None:
    """The answer that another is compared with; None where that is not asked for, or there is none."""
    if isinstance(rival, bool):
        return next((one for one in answers if one is not answer), None) if rival else None
    index = network.find(str(rival))
    if index == answer.index:
        raise OptionError(
            f"got rival={rival!r}, which is {answer.label}, the class that is explained; expected another class, or True for "
            "the surest other one."
        )
    return next(one for one in answers if one.index == index)


def _difference(index: int, other: int) -> Callable[[Any], Tensor]:
    def apart(out: Any) -> Tensor:
        scores = main_tensor(out)
        return scores[:, index] - scores[:, other]

    return apart


def start_of(baseline: BaselineName | Tensor, x: Tensor, network: Network) -> Tensor:
    """The baseline, (1, 3, H, W), or several to average over, (number, 1, 3, H, W)."""
    if isinstance(baseline, Tensor):
        return baseline.to(x)
    if not is_named(baseline):
        return network.preprocess(read(baseline).pixels).to(x)
    low, high = network.preprocess.low.to(x), network.preprocess.high.to(x)
    make = Builtins(x, low, high, DRAWS, 0, batched=True)
    parts = [make(name) for name in baseline.split("+")]
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if len(tensors) == 1:
        return tensors[0]
    return torch.cat([part if part.ndim == x.ndim + 1 else part[None] for part in tensors])
