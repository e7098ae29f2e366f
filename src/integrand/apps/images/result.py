"""The result of explaining a photo: the network's answer, its attributions, and what separates it from the runner-up.

:func:`explain` makes an :class:`Explanation`, which draws itself and saves itself as a picture, a page or numbers, from
a :class:`PhotoCase`: a photo, a network and the answer to explain. :func:`explain_photos` makes many.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from ...batch.rows import Row, example_of
from ...errors import InputError, OptionError
from ...evaluation.progress import ProgressOption
from ...files import write
from ...functions.model_state import undisturbed
from ...functions.probabilities import adds_up_to_one, squashed
from ...functions.target import main_tensor
from ...methods.gradients import GradientTimesInput
from ...methods.method import Method
from ...words import finite, percent, short_repr, shown
from .model import Network
from .photo_files import Photo, as_photo, read

if TYPE_CHECKING:
    from anywidget import AnyWidget

    from ...analysis.inquiry import Inquiry
    from ...render.image.whereabouts import Focus

BASELINES = ("black", "white", "mean", "blurred", "uniform", "gaussian")
"""The names of baselines; several joined by ``+`` are averaged."""

PATHS = ("straight", "blur", "guided")

DRAWS = 10
"""The number of noise samples that are averaged in random baselines."""

FURTHER, LEAST = 5, 0.01
"""The most further answers of a network that are named, and the probability from which on one is."""

GRID = 16
"""A photo's row in a table has the sums of its attributions over so many by so many fields: 256 numbers instead of 150,000."""

PACKED = 32
"""Photos that a GPU integrates in one call: an H200 explains 28, 39 and 42 a second with 8, 32 and 64 together (to 5%,
EfficientNet-Lite0: ``python -m benchmarks.many_gpu``). A CPU takes one at a time: its chunks are full with one photo, and 4 or
8 are not faster, but take 0.2 GB more (``python -m benchmarks.photo_packs``)."""

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
        starts: the baseline itself, (1, 3, H, W), or several that average, (number, 1, 3, H, W); None where it was not kept.
        aim: the pixels of what is explained, (H, W) bool, where it is a part of the photo such as a box; None for all of it.
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
    starts: Tensor | None = field(default=None, kw_only=True, compare=False, repr=False)
    aim: Array | None = field(default=None, kw_only=True, compare=False, repr=False)

    @cached_property
    def shown(self) -> Array:
        """The part of the photo that the network saw, (H, W, 3) uint8."""
        return seen_by(self.network, self.x)

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

    def _small_html_(self) -> str:
        from ...render.notebook import photo_view

        return photo_view(self.sentence, self.shown, self.result, self.title, self.aim)

    def _repr_html_(self) -> str:
        from ...render.notebook import notebook_view

        return notebook_view(self, self.page, self._small_html_)

    def widget(self) -> AnyWidget:
        """The page in a notebook, with controls to explain another answer, by another method or to another tolerance.

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        from ..result_widgets import photo_widget

        surest = [one for i, one in enumerate(self.answers) if i < FURTHER or one is self.answer]
        return photo_widget(self, surest)

    def figure(self, **options: Any) -> Any:
        """The photo, where the answer comes from and what each region gives, drawn with matplotlib.

        Args:
            **options: those of :func:`integrand.render.figure`; with ``views=``, each also of gradient × image.
        """
        from ...render import figure
        from ...render.image.viewer import DRAWN

        drawn: dict[str, Any] = {"labels": self.title, "notice": self.notice, "aim": self.aim}
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

    def row(self) -> Row:
        """The explanation as a row of a table of many inputs, with signed sums of the attributions over a grid of 16 x 16."""
        surest = self.answers[0]
        sums, errors = grid_sums(self.result)
        return Row.of(
            self.result.certificate.only,
            prediction=surest.label,
            probability=finite(surest.probability),
            target=self.answer.label,
            sentence=self.sentence,
            notes=self.notes,
            attributions=sums,
            attribution_errors=errors,
            whole=self.result,
        )

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
    case = photo_case(photo, network, target=target, baseline=baseline, path=path, score=score)
    return case.explained(case.other(rival), tol=tol, max_evaluations=max_evaluations, memory=memory, progress=progress)


def inquiry(
    photo: Photo | str | PathLike[str] | Array,
    network: Network,
    *,
    target: int | str | None = None,
    baseline: BaselineName | Tensor | None = None,
) -> Inquiry:
    """What is asked about a photo, for other methods and baselines: the logit of a class, for which every method has rules.

    Args:
        photo: as :func:`explain` takes it.
        network: from :func:`integrand.apps.networks.load`.
        target: the class; the surest one if not given.
        baseline: as in :func:`explain`.
    """
    return photo_case(photo, network, target=target, baseline=baseline, score="logit").inquiry()


def photo_case(
    photo: Photo | str | PathLike[str] | Array,
    network: Network,
    *,
    target: int | str | None = None,
    baseline: BaselineName | Tensor | None = None,
    path: PathName = "straight",
    score: ScoreName = "probability",
) -> PhotoCase:
    """What the network says of a photo, before anything of it is explained; arguments as in :func:`explain`."""
    check(network, target=target, baseline=baseline, path=path)
    [case] = _cases([as_photo(photo)], network, target, baseline, path, score)
    return case


def explain_photos(
    photos: Sequence[Photo | str | PathLike[str] | Array],
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
    together: int | None = None,
) -> list[Explanation]:
    """Explain what a network says of many photos; the numbers are those of :func:`explain`, to rounding.

    For a whole folder, into a table: ``integrand.explain_many("photos/", functools.partial(images.explain_photos,
    network=network), "out")``. All photos are read before the first is explained, and the results hold what the network saw of
    each, not its whole photo.

    Args:
        photos: each as :func:`explain` takes it.
        network: from :func:`integrand.apps.networks.load`.
        target: the class to explain, the same for all; the surest one of each if not given.
        baseline: as in :func:`explain`.
        path: straight, blur or guided.
        score: probability, logit or log-probability.
        tol: the relative error to integrate to; each photo stops on its own.
        rival: as in :func:`explain`.
        max_evaluations: gradients that each attribution may take.
        memory: bytes that the run may hold.
        progress: a bar or a callback.
        together: photos of which the integrals share the network's chunks. Default: 32 on a GPU, and 1 on a CPU, which more
            do not make faster. On a straight path only; others are integrated one by one.

    Returns:
        One explanation for each photo, in the same order.
    """
    check(network, target=target, baseline=baseline, path=path, rival=rival)
    size = packed(network) if together is None else together
    said = (network, target, baseline, path, score)
    cases = [case for part in packs(photos, size) for case in _cases(part, *said, light=True)]
    options: dict[str, Any] = {"tol": tol, "max_evaluations": max_evaluations, "memory": memory, "progress": progress}
    found: list[Explanation] = []
    for pack in packs(cases, size):
        others = [_other(case.answers, case.answer, rival, network) for case in pack]
        found += explained_together(pack, others, **options)
    return found


def packed(network: Network) -> int:
    """How many photos a network's device integrates in one call at best."""
    return 1 if network.device.type == "cpu" else PACKED


def packs(items: Sequence[Any], together: int) -> list[Sequence[Any]]:
    """A sequence in pieces of so many; the last may be shorter."""
    if together < 1:
        raise OptionError(f"got together={together}; expected how many photos are integrated in one call, at least 1.")
    return [items[i : i + together] for i in range(0, len(items), together)]


def _cases(
    photos: Sequence[Photo | str | PathLike[str] | Array],
    network: Network,
    target: int | str | None,
    baseline: BaselineName | Tensor | None,
    path: str,
    score: ScoreName,
    *,
    light: bool = False,
) -> list[PhotoCase]:
    """Photos with what the network says of them, which it is asked once for all; with ``light``, without their whole pixels."""
    read_in: list[Photo] = []
    inputs: list[Tensor] = []
    for given in photos:
        photo = as_photo(given)
        x = network.preprocess(photo.pixels).to(network.device)
        inputs.append(x)
        read_in.append(replace(photo, pixels=seen_by(network, x)) if light else photo)
    named = None if target is None else network.find(str(target))
    cases = []
    for photo, x, (answers, scale, unit) in zip(read_in, inputs, all_answers(network, torch.cat(inputs), score), strict=True):
        index = answers[0].index if named is None else named
        answer = next(one for one in answers if one.index == index)
        if path == "blur":
            words, start = _blurred(x)
        else:
            words = baseline or "black" if not isinstance(baseline, Tensor) else "a tensor"
            start = start_of("black" if baseline is None else baseline, x, network)
        cases.append(PhotoCase(photo, network, x, answers, answer, scale, words, start, path, unit))
    return cases


def seen_by(network: Network, x: Tensor) -> Array:
    """What the network sees of a photo, (H, W, 3) uint8."""
    return np.rint(network.preprocess.pixels(x[0]) * 255).astype(np.uint8)


def grid_sums(result: Attribution) -> tuple[Array, tuple[float, ...]]:
    """The attributions of a photo, (1, channels, H, W), added up over the fields of a grid.

    Returns:
        The sums with their signs, (:data:`GRID`, :data:`GRID`) float32, and the error of each, row by row.
    """
    values = result.values
    if not isinstance(values, Tensor) or values.ndim != 4 or len(values) != 1:
        raise InputError(
            "got attributions that are not those of one picture; expected one tensor, (1, channels, height, width)."
        )
    down, across = (torch.arange(side) * GRID // side for side in values.shape[2:])
    sums = result.sums((GRID * down[:, None] + across).expand(values.shape[1:]))
    empty = GRID * GRID - sums.values.shape[1]  # a picture of fewer pixels than the grid has fields
    both = [torch.nn.functional.pad(part[0], (0, empty)) for part in (sums.values, sums.errors)]
    return both[0].reshape(GRID, GRID).float().numpy(), tuple(both[1].tolist())


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
        return explained_together([self], [other], **options)[0]

    def other(self, rival: bool | int | str) -> Answer | None:
        """The answer that the explained one is compared with: True for the surest other one, or a class; None for False."""
        return _other(self.answers, self.answer, rival, self.network)

    def inquiry(self) -> Inquiry:
        """What is asked about the photo, for other methods and baselines."""
        from ...analysis.inquiry import Inquiry

        preprocess = self.network.preprocess
        return Inquiry(
            self.network.module,
            self.x,
            self.starts,
            {"target": self.answer.index, "score": self.score},
            self.answer.label,
            image=seen_by(self.network, self.x),
            ends={"low": preprocess.low.to(self.x), "high": preprocess.high.to(self.x), "pixels": preprocess.pixels},
            classes=self.network.label,
        )


def asked_again(found: Explanation, answer: Answer, path: str) -> PhotoCase:
    """The case of an explained photo, for another answer or along another path, from the same baseline.

    Args:
        found: what was explained; holds its baseline.
        answer: what to explain.
        path: straight, blur or guided. The blur path starts at the photo, blurred.
    """
    assert found.starts is not None
    words, starts = (found.baseline, found.starts) if path != "blur" else _blurred(found.x)
    said = (found.photo, found.network, found.x, found.answers, answer, found.score, words, starts)
    return PhotoCase(*said, path, found.unit)


def _blurred(x: Tensor) -> tuple[str, Tensor]:
    """Where the blur path starts, in words and as a tensor."""
    return "the photo, blurred", cast(Tensor, paths.Blur(x).start())


def explained_together(
    cases: Sequence[PhotoCase], others: Sequence[Answer | None] = (), *, method: Method | None = None, **options: Any
) -> list[Explanation]:
    """Attribute the answers to photos of one network, in one call if their paths are straight; each stops on its own.

    Args:
        cases: the photos, all with the same network and path.
        others: for each, another answer that its own is compared with, or None; left out for none.
        method: what attributes instead of integrated gradients along the path; brings its own options.
        **options: how to integrate, as in :func:`integrand.integrated_gradients`.
    """
    first, others = cases[0], others or [None] * len(cases)
    alike = {(case.score, case.path, case.starts.shape) for case in cases}
    if len(cases) > 1 and (len(alike) > 1 or first.path != "straight"):
        how: dict[str, Any] = {"method": method, **options}
        return [explained_together([case], [other], **how)[0] for case, other in zip(cases, others, strict=True)]
    model, index = first.network.module, [case.answer.index for case in cases]
    what: dict[str, Any] = {"target": index if len(cases) > 1 else index[0], "score": first.score}
    x = torch.cat([case.x for case in cases])
    starts = torch.cat([case.starts for case in cases], dim=first.starts.ndim - x.ndim)
    result = (
        method(model, x, starts, **what, **options)
        if method is not None
        else _attributed(model, first.path, x, starts, **what, **options)
    )
    gradient = GradientTimesInput()(model, x, starts, **what)
    found = []
    for i, (case, other) in enumerate(zip(cases, others, strict=True)):
        rival = None
        if other is not None:
            apart = _difference(case.answer.index, other.index)
            rival = Rival(other, _attributed(model, case.path, case.x, case.starts, target=apart, **options))
        said = (case.photo, case.network, case.x, case.answers, case.answer, case.score, case.baseline, case.path)
        known: dict[str, Any] = {"unit": case.unit, "starts": case.starts if method is None else None}
        found.append(Explanation(*said, example_of(result, i), example_of(gradient, i), rival, **known))
    return found


def _attributed(model: Callable[..., Any], path: str, x: Tensor, starts: Tensor, **options: Any) -> Attribution:
    if path == "straight":
        return integrated_gradients(model, x, starts, **options)
    if path == "blur":
        return path_attribution(model, paths.Blur(x), **options)
    if starts.ndim == x.ndim:
        return path_attribution(model, paths.Guided(starts, x), **options)
    raise OptionError(f"a guided path starts at one baseline; got {len(starts)} that average. Choose one, such as black.")


def answers_of(network: Network, x: Tensor, score: ScoreName) -> tuple[tuple[Answer, ...], ScoreName, str]:
    """The network's answers, most probable first, the scale to explain them on, and what that scale measures."""
    return all_answers(network, x, score)[0]


def all_answers(network: Network, x: Tensor, score: ScoreName) -> list[tuple[tuple[Answer, ...], ScoreName, str]]:
    """What :func:`answers_of` says of each of several inputs, (N, 3, H, W), in one forward pass."""
    with undisturbed(network.module):
        output = main_tensor(network.module(x.detach().clone().requires_grad_()))
    ends_in_one = squashed(output)
    rows = output.detach()
    return [_answers(network, rows[i : i + 1], score, probable=ends_in_one) for i in range(len(rows))]


def _answers(
    network: Network, output: Tensor, score: ScoreName, *, probable: bool
) -> tuple[tuple[Answer, ...], ScoreName, str]:
    """The answers in one row of a network's output; ``probable`` if it is known to end in a softmax or a sigmoid."""
    values = output[0].double().cpu().reshape(-1)
    unit: str = score
    if probable or adds_up_to_one(output):
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
