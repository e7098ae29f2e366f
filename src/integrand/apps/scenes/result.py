"""A scene explained: one box of a detector or one mask of a segmenter, and how much of what it is due to lies inside it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor

from ... import targets
from ...api import integrated_gradients
from ...attribution import Attribution
from ...batch.rows import Row
from ...errors import OptionError, TargetError
from ...evaluation.progress import ProgressOption
from ...functions.model_state import undisturbed
from ...methods.gradients import GradientTimesInput
from ...targets.box_target import BoxPart
from ...targets.callable_target import box_words
from ...targets.mask_target import MaskScale
from ...words import finite, number, percent, plus_minus, short_repr
from ..images.photo_files import Photo, as_photo
from ..images.result import Answer, Array, BaselineName, Explanation, is_named, start_of
from .model import SceneNetwork

if TYPE_CHECKING:
    from anywidget import AnyWidget

SIDES = {
    "left": "left side",
    "top": "upper side",
    "right": "right side",
    "bottom": "lower side",
    "x": "middle from left to right",
    "y": "middle from top to bottom",
    "width": "width",
    "height": "height",
}
"""Coordinates of a box in words."""

VIEW = "regions"
"""The view that is shown first. Attributions of detectors and segmenters come to hundreds of times the change of the score and
nearly cancel; sums over regions have the colour of what is left."""

VAGUE = 0.25
"""With a larger error of the share inside, nothing is said about it."""

SMALLEST = 0.01
"""The share of a picture from which on a class is listed as a part of it."""

BOX_READING = (
    "What is explained is one number of one box: the detector proposes a box for every cell of a grid, and the cell whose box "
    "won here is followed from the baseline to the photo. No suppression of overlapping boxes takes part in that, so that "
    "nothing jumps.",
    "Numbers inside and outside the box are sums over all their pixels. What lies outside is context: pixels that the detector "
    "used and did not draw its box around.",
)
MATCHED_READING = (
    "What is explained is the score of one detection. On the way from the baseline it is found again by the overlap of its "
    "box; where the detector does not find it, its score counts as 0, and where it comes the score jumps, which no pixel gets.",
    *BOX_READING[1:],
)
MASK_READING = (
    "What is explained is one number of one mask: the mean of what the segmenter says of a class over the pixels inside the "
    "yellow line. The pixels are held fixed from the baseline to the photo.",
    "Numbers inside and outside the mask are sums over all their pixels. What lies outside is context: pixels by which the "
    "segmenter knew what the others are a part of.",
)


@dataclass(frozen=True, repr=False)
class SceneAim:
    """What of a scene is explained.

    Attributes:
        kind: ``box``, ``mask`` or ``region``.
        name: the class, in words.
        what: which number of it: ``score``, ``left``, ``logit`` and so on.
        place: where it is, in words such as "in the box 120,40-310,330"; '' for a mask.
        target: the same for :func:`integrand.integrated_gradients`.
        inside: its pixels on the network's input, (H, W) bool.
        sure: the score of a box; NaN for masks.
        reading: how to read the page.
    """

    kind: str
    name: str
    what: str
    place: str
    target: Any
    inside: Array
    sure: float = math.nan
    reading: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def area(self) -> float:
        """The share of the picture that it covers."""
        return float(self.inside.mean())

    @property
    def number(self) -> str:
        """The explained number in words, such as "its score"."""
        if self.what in SIDES:
            return "it (in pixels of what the network got)"
        return f"its mean {self.what} there" if self.kind != "box" else f"its {self.what}"

    @property
    def headline(self) -> str:
        """What is explained, in words."""
        if self.what in SIDES:
            return f"{SIDES[self.what]} of {self.name}"
        return self.name if self.what in ("score", "logit", "probability") else f"{self.what} of {self.name}"


@dataclass(frozen=True, repr=False)
class ExplainedScene(Explanation):
    """A photo with one of its boxes or masks explained: an explained photo, and what of it.

    Attributes:
        scene: what is explained.
    """

    scene: SceneAim = field(kw_only=True)

    __repr__ = short_repr

    @cached_property
    def sums(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """What the pixels inside and those outside add up to, each with its error."""
        labels = torch.as_tensor(~self.scene.inside).long()
        found = self.result.sums(labels.expand(self.x.shape[1:]))
        # Without a pixel outside there is no second sum.
        both = [(float(a), float(e)) for a, e in zip(found.values[0], found.errors[0], strict=True)]
        return both[0], both[1] if len(both) > 1 else (0.0, 0.0)

    @cached_property
    def held(self) -> tuple[float, float]:
        """The share of all that raises the score that lies inside, and by how much it may be off."""
        from ...render.image.photo_page import values_of
        from ...render.image.whereabouts import held_by

        return held_by(values_of(self.result, "result"), self.scene.inside, self.result.certificate.only)

    @property
    def sentence(self) -> str:
        """What was found, how much of it is due to the pixels inside, and how far the numbers can be trusted, in one line."""
        from ...render.certificate_text import trust
        from ...render.image.whereabouts import chance

        scene, one = self.scene, self.result.certificate.only
        change = one.score - one.baseline_score
        sure = "" if math.isnan(scene.sure) else f" ({chance(scene.sure, digits=0 if 0.01 <= scene.sure < 0.995 else 1)})"
        whose = "its" if scene.kind == "mask" else "the"
        inside = f"{whose} {scene.kind}, {percent(scene.area)} of the picture, accounts for {plus_minus(*self.sums[0])} of the "
        moved = f"{number(change, 3).replace('-', '−')} by which {scene.number} changes"
        share, off = self.held
        what = "raises it" if scene.what in SIDES else "speaks for it"
        held = f"and holds {percent(share)} (± {percent(off)}) of what {what}"
        if not off <= VAGUE:
            held = f"and its share of what {what} is too uncertain to state"
        if scene.inside.all():
            held = "and there is nothing outside it"
        place = f" {scene.place}" if scene.place else ""
        return f"{scene.headline}{sure}{place}: {inside}{moved}, {held}; {trust(one)}."

    @property
    def beside(self) -> list[str]:
        """What else the network found, in lines for a terminal."""
        from ...render.image.whereabouts import chance

        said = "found" if self.scene.kind == "box" else "parts, by area"
        return [f"{said}: {', '.join(f'{one.label} ({chance(one.probability, digits=0)})' for one in self.answers)}"]

    def page(self, *, command: str | None = None, file: str | None = None) -> str:
        """The explanation as one self-contained HTML page.

        Args:
            command: the command that makes it again.
            file: where the photo is, which tells it from others of the same name.
        """
        from ..images.page import page

        scene = self.scene
        heading = "What the detector found" if scene.kind == "box" else "What the segmenter sees, by area"
        told = {
            "label": scene.headline,
            "score_name": f"{SIDES[scene.what]} of “{scene.name}”"
            if scene.what in SIDES
            else f"the {self.unit} of “{scene.name}”",
            "aim_name": f"the {scene.kind} that is explained, “{scene.name}”",
            "heading": heading,
            "reading": scene.reading,
        }
        return page(self, command=command, file=file, **told)

    def numbers(self) -> dict[str, Any]:
        """Everything but the pixels, as a dictionary for JSON."""
        scene, (inside, outside) = self.scene, self.sums
        rows, columns = np.nonzero(scene.inside)
        box = [int(v) for v in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)] if rows.size else None
        told = {
            "kind": scene.kind,
            "class": scene.name,
            "what": scene.what,
            "place": scene.place,
            "score": finite(scene.sure),
            "area": scene.area,
            "box_in_input": box,
            "inside": {"sum": finite(inside[0]), "error": finite(inside[1])},
            "outside": {"sum": finite(outside[0]), "error": finite(outside[1])},
            "share_of_evidence_inside": {"share": finite(self.held[0]), "error": finite(self.held[1])},
        }
        return super().numbers() | {"sentence": self.sentence, "scene": told}

    def row(self) -> Row:
        """The scene as a row of a table: what every explained photo has, and columns of what is explained."""
        scene, (inside, _) = self.scene, self.sums
        columns: dict[str, bool | int | float | str | None] = {
            "explained": scene.kind,
            "area": scene.area,
            "sum_inside": inside[0],
            "error_inside": inside[1],
            "evidence_inside": self.held[0],
        }
        sure = None if math.isnan(scene.sure) else scene.sure
        said: dict[str, Any] = {"prediction": scene.name, "probability": sure, "target": self.result.certificate.only.target}
        return replace(super().row(), **said, sentence=self.sentence, columns=columns)

    def widget(self) -> AnyWidget:
        """Refused: scenes have a page and no widget.

        Raises:
            OptionError: always; it says what to do instead.
        """
        raise OptionError(
            "a scene has no widget; expected its page: show it by its name at the end of a cell, or explain another box with "
            "scenes.explain(photo, network, box=1)."
        )


def explain(
    photo: Photo | str | PathLike[str] | Array,
    network: SceneNetwork,
    *,
    box: int | str | None = None,
    mask: int | str | None = None,
    region: Sequence[float] | None = None,
    what: str | None = None,
    baseline: BaselineName | Tensor | None = None,
    tol: float = 0.05,
    max_evaluations: int = 4000,
    memory: int | None = None,
    progress: ProgressOption = None,
) -> ExplainedScene:
    """Explain one box or one mask of a photo.

    Args:
        photo: a file, a :class:`~integrand.apps.photos.Photo`, or pixels (H, W, 3) uint8.
        network: from :func:`integrand.apps.scenes.load`.
        box: for a detector, which object: its number, surest first, or a class, whose surest object is taken; the surest of all
            if not given.
        mask: for a segmenter, the class; the one with the largest area if not given.
        region: for a segmenter, left, top, right, bottom in pixels of the photo: explain the class there, whatever the
            segmenter says there.
        what: ``score`` (the default), ``logit``, ``objectness``, ``left``, ``top``, ``right``, ``bottom``, ``x``, ``y``,
            ``width`` or ``height`` of a box; ``logit`` (the default) or ``probability`` of a mask.
        baseline: a name of :data:`integrand.apps.images.BASELINES`, several joined by ``+``, an image file, or a tensor in the
            network's input space; black if not given.
        tol: the relative error to integrate to.
        max_evaluations: gradients that the attribution may take.
        memory: bytes that the run may hold.
        progress: a bar or a callback.
    """
    check(network, box=box, mask=mask, region=region, what=what, baseline=baseline)
    seen = as_photo(photo)
    fitted = network.fitted(seen)
    x = fitted.preprocess(seen.pixels).to(fitted.device)
    with undisturbed(fitted.module), torch.no_grad():
        output = fitted.module(x)
    if fitted.kind == "boxes":
        scene, answers, stated = _box(fitted, seen, output, box, what or "score")
    else:
        scene, answers, stated = _mask(fitted, seen, output, mask, region, what or "logit")
    starts = start_of("black" if baseline is None else baseline, x, fitted)
    asked: dict[str, Any] = {"target": scene.target}
    limits = {"tol": tol, "max_evaluations": max_evaluations, "memory": memory, "progress": progress}
    result = integrated_gradients(fitted.module, x, starts, **asked, **limits)  # type: ignore[arg-type]
    gradient: Attribution = GradientTimesInput()(fitted.module, x, starts, **asked)
    words = "a tensor" if isinstance(baseline, Tensor) else baseline or "black"
    said = (seen, fitted, x, answers, next(one for one in answers if one.index == stated), scene.what, words, "straight")
    unit = f"mean {scene.what}" if scene.kind != "box" else scene.what
    found = ExplainedScene(
        *said,
        result,
        gradient,
        headline=scene.headline,
        view=VIEW,
        stated=stated,
        unit=unit,
        starts=starts,
        aim=scene.inside,
        scene=scene,
    )
    (inside, outside) = found.sums
    return replace(found, rule=f"Inside the {scene.kind}: {plus_minus(*inside)}; outside: {plus_minus(*outside)}.")


def explain_scenes(
    photos: Sequence[Photo | str | PathLike[str] | Array], network: SceneNetwork, **how: Any
) -> list[ExplainedScene]:
    """Explain one box or one mask of each of several photos.

    For a whole folder, into a table: ``integrand.explain_many("photos/", functools.partial(scenes.explain_scenes,
    network=network), "out")``.

    Args:
        photos: each as :func:`explain` takes it.
        network: from :func:`integrand.apps.scenes.load`.
        **how: options of :func:`explain`.
    """
    return [explain(photo, network, **how) for photo in photos]


def check(
    network: SceneNetwork,
    *,
    box: int | str | None = None,
    mask: int | str | None = None,
    region: Sequence[float] | None = None,
    what: str | None = None,
    baseline: Any = None,
    **_: Any,
) -> None:
    """Refuse options that are wrong whatever the photo is, before any work is done."""
    boxes = network.kind == "boxes"
    if boxes and (mask is not None or region is not None):
        raise OptionError(f"got mask or region for {network.name}, which finds boxes; expected box= (--box), one's number.")
    if not boxes and box is not None:
        raise OptionError(f"got box for {network.name}, which gives masks; expected mask= (--mask), a class.")
    known = get_args(BoxPart) if boxes else get_args(MaskScale)
    if what is not None and what not in known:
        raise OptionError(f"got what={what!r} for {network.name}; expected one of {', '.join(known)}.")
    if isinstance(box, bool) or (box is not None and re.fullmatch(r"\s*-\s*\d+\s*|\d*\.\d+", str(box))):
        raise OptionError(f"got box {box!r}; expected the number of an object, from 0 on, or a class.")
    for name in (mask, None if box is None or str(box).isdigit() else box):
        if name is not None:
            network.find(str(name))
    if region is not None and len(region) != 4:
        raise OptionError(f"got the region {tuple(region)}; expected left, top, right, bottom in pixels of the photo.")
    if isinstance(baseline, str) and not is_named(baseline):
        start_of(baseline, torch.zeros(1, 3, *network.preprocess.size), network)  # refuses a file that is none


def _box(
    network: SceneNetwork, photo: Photo, output: Any, box: int | str | None, what: Any
) -> tuple[SceneAim, tuple[Answer, ...], int]:
    """The box that is asked for, and all objects that the detector found."""
    there = network.detections(output)
    if not there:
        raise TargetError(
            f"{network.name} finds no object in {photo.name} with a score of at least {network.least}; expected a photo with "
            "one of its classes."
        )
    answers = tuple(Answer(k, f"{k}: {network.label(one.label)}", one.score) for k, one in enumerate(there))
    listed = "; ".join(f"{one.label} ({number(one.probability, 2)})" for one in answers[:12])
    k = 0
    if isinstance(box, str) and not box.isdigit():
        label = network.find(box)
        k = next((i for i, one in enumerate(there) if one.label == label), -1)
    elif box is not None:
        k = int(box)
    if not 0 <= k < len(there):
        raise TargetError(
            f"got box {box!r}, which {network.name} does not find in {photo.name}; it finds {listed}. Expected one of these."
        )
    one, size = there[k], network.preprocess.size
    corners = _on_input(one.box, size)
    inside = np.zeros(size, bool)
    left, top, right, bottom = corners
    inside[math.floor(top) : math.ceil(bottom), math.floor(left) : math.ceil(right)] = True
    known: dict[str, Any] = {"least": network.least, "names": network.classes or ()}
    picked = not isinstance(output, targets.Candidates) and isinstance(output, (list, tuple))
    whose = "" if network.preprocess.fit == "stretch" else " of what the network got"
    place = f"in the box {box_words(_on_photo(corners, network, photo))}{whose}"
    scene = SceneAim(
        "box",
        network.label(one.label),
        what,
        place,
        targets.box(k, what, **known),
        inside,
        one.score,
        MATCHED_READING if picked else BOX_READING,
    )
    return scene, answers, k


def _on_input(box: Sequence[float], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """A box in pixels of the network's input, cut off at its edges; shares of the picture are scaled."""
    height, width = size
    scale = (width, height) if max(map(abs, box)) <= 2 else (1, 1)
    left, right = (min(max(side * scale[0], 0.0), float(width)) for side in box[0::2])
    top, bottom = (min(max(side * scale[1], 0.0), float(height)) for side in box[1::2])
    return left, top, right, bottom


def _on_photo(box: Sequence[float], network: SceneNetwork, photo: Photo) -> tuple[float, ...]:
    """A box in pixels of the photo, where all of it was stretched to the network's input; else in pixels of that."""
    if network.preprocess.fit != "stretch":
        return tuple(box)
    (height, width), (tall, wide) = network.preprocess.size, photo.pixels.shape[:2]
    return tuple(side * (tall / height if i % 2 else wide / width) for i, side in enumerate(box))


def _mask(
    network: SceneNetwork,
    photo: Photo,
    output: Any,
    mask: int | str | None,
    region: Sequence[float] | None,
    what: Any,
) -> tuple[SceneAim, tuple[Answer, ...], int]:
    """The mask that is asked for, and the classes that the segmenter sees, by area."""
    from ...render.image.pixels import onto

    maps = network.maps(output)
    # A single map says its class where it is positive, and elsewhere that it is not there.
    said = maps.argmax(0) if len(maps) > 1 else (maps[0] <= 0).long()
    areas = torch.bincount(said.flatten(), minlength=len(maps))[: len(maps)].double() / said.numel()
    order = areas.argsort(descending=True, stable=True).tolist()
    label = order[0] if mask is None else network.find(str(mask))
    if not 0 <= label < len(maps):
        raise TargetError(f"got class {label}; {network.name} has classes 0 to {len(maps) - 1}.")
    answers = tuple(Answer(k, network.label(k), float(areas[k])) for k in order if areas[k] >= SMALLEST or k == label)
    name = network.label(label)
    if region is None and not areas[label]:
        listed = ", ".join(f"{one.label} ({percent(one.probability)})" for one in answers if one.probability)
        raise TargetError(
            f"{network.name} sees no {name} in {photo.name}; it sees {listed}. Expected one of these, or region= (--region): "
            "the part of the photo of which to explain why it is not."
        )
    where = said == label if region is None else _region(region, network, photo, (said.shape[0], said.shape[1]))
    inside = onto(where.cpu().numpy(), network.preprocess.size)
    target = targets.mask(label, where, what, mean=True, names=network.classes or ())
    place = "" if region is None else f"in the region {box_words([float(v) for v in region])}"
    kind = "mask" if region is None else "region"
    return SceneAim(kind, name, what, place, target, inside, reading=MASK_READING), answers, label


def _region(region: Sequence[float], network: SceneNetwork, photo: Photo, grid: tuple[int, int]) -> Tensor:
    """The cells of the segmenter's maps that lie in a region of the photo, (h, w) bool."""
    tall, wide = photo.pixels.shape[:2]
    left, top, right, bottom = region
    if not (0 <= left < right <= wide and 0 <= top < bottom <= tall):
        raise TargetError(
            f"got the region {box_words([float(v) for v in region])} of {photo.name}; expected left, top, right, bottom inside "
            f"its {wide} x {tall} pixels."
        )
    if network.preprocess.fit != "stretch":
        raise OptionError("got a region for a network that gets a part of the photo; expected one with fit='stretch'.")
    rows, columns = grid
    where = torch.zeros(grid, dtype=torch.bool)
    where[
        math.floor(top * rows / tall) : math.ceil(bottom * rows / tall),
        math.floor(left * columns / wide) : math.ceil(right * columns / wide),
    ] = True
    return where
