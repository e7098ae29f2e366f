"""Two networks, or more, on one photo: each sees it as it was trained to, and they are compared on the photo itself."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...analysis.model_comparison import ModelAnswer, ModelComparison
from ...api import integrated_gradients
from ...attribution import Attribution
from ...errors import OptionError, TargetError
from ...evaluation.progress import ProgressOption
from ...render.image.image_regions import regions_of
from ...words import percent
from .model import Network
from .photo_files import Photo, as_photo
from .preprocess import Preprocess
from .result import BaselineName, PhotoCase, ScoreName, answers_of, check, start_of

REGIONS = 40
"""About how many regions of the photo are compared; attributions of single pixels are grain, in any two networks another."""

DRAWN = 448
"""The longer side of the photo as it is drawn, in pixels."""

LISTED = 5
"""The answers of each network that are kept."""


def compare(
    photo: Photo | str | PathLike[str] | NDArray[np.uint8],
    networks: Mapping[str, Network],
    *,
    target: int | str | Mapping[str, int | str] | None = None,
    baseline: BaselineName | None = None,
    score: ScoreName = "probability",
    tol: float = 0.05,
    regions: int = REGIONS,
    max_evaluations: int = 4000,
    memory: int | None = None,
    progress: ProgressOption = None,
) -> ModelComparison:
    """Explain one class of several networks on the same photo, and how their reasons differ.

    Each network gets the photo with the preprocessing it was trained with: other sizes, other crops. Attributions add up, so
    those of each network are summed over the same regions of the photo, in units of the same score, and it is these sums that
    are accurate to the tolerance. What one network does not see of the photo counts nothing in it.

    Args:
        photo: a file, a photo, or pixels (H, W, 3) uint8.
        networks: two or more by name, from :func:`integrand.apps.networks.load`.
        target: the class to explain, by name or number, or a mapping from the networks' names to theirs. None means the surest
            class of the first network; in the others it is found by its name.
        baseline: the name of a baseline, as in :func:`integrand.apps.images.explain`; black if not given.
        score: probability, logit or log-probability.
        tol: the relative error to integrate each network to.
        regions: about how many regions of like colour the photo is divided into.
        max_evaluations: gradients that each network may take.
        memory: bytes that the run may hold.
        progress: a bar or a callback, told about each network in turn.

    Returns:
        The comparison; ``values`` and ``difference`` are sums by region, (1, regions), and ``segments`` says where they are.
    """
    if not isinstance(networks, Mapping) or len(networks) < 2:
        raise OptionError(
            "expected two or more networks by name: {'lite0': networks.load(), 'googlenet': networks.load('googlenet', "
            "weights=...)}."
        )
    photo = as_photo(photo)
    if isinstance(target, Mapping) and set(target) != set(networks):
        raise OptionError(f"got targets for {sorted(map(str, target))}; expected one for each network: {sorted(networks)}.")
    for name, network in networks.items():
        check(network, target=target[name] if isinstance(target, Mapping) else target, baseline=baseline, path="straight")
    cases: dict[str, PhotoCase] = {}
    for name, network in networks.items():
        chosen = target[name] if isinstance(target, Mapping) else target
        x = network.preprocess(photo.pixels).to(network.device)
        answers, scale, _ = answers_of(network, x, score)
        if chosen is None:
            first = next(iter(cases.values()), None)
            index = answers[0].index if first is None else _same_class(first, network, name)
        else:
            index = network.find(str(chosen))
        answer = next(one for one in answers if one.index == index)
        start = start_of(baseline or "black", x, network)
        cases[name] = PhotoCase(photo, network, x, answers, answer, scale, baseline or "black", start)
    unit = _unit(cases, score)
    options: dict[str, Any] = {"tol": tol, "max_evaluations": max_evaluations, "memory": memory, "progress": progress}
    drawn = _drawn(photo.pixels)
    found = regions_of(np.zeros(drawn.shape[:2]), drawn / 255, count=regions)
    places = {name: regions_seen(case, found.labels) for name, case in cases.items()}
    kept = sorted(set().union(*(set(labels.unique().tolist()) for labels in places.values())))
    number = torch.full((len(found),), -1)
    number[kept] = torch.arange(len(kept))
    results = {name: _attributed(case, number[places[name]], options) for name, case in cases.items()}
    aligned = {name: _all_regions(one.values, len(kept)) for name, one in results.items()}
    said = {name: (_answer(case, results[name], unit),) for name, case in cases.items()}
    meta = {"photo": photo.name, "method": "integrated gradients", "tolerance": percent(tol), "baseline": baseline or "black"}
    meta |= {"regions": f"{len(kept)} {found.kind}"} | {name: _about(case) for name, case in cases.items()}
    names = tuple(f"region {i + 1} ({found.place(k)})" for i, k in enumerate(kept))
    return ModelComparison(results, said, unit, aligned, names, drawn, meta, number[torch.from_numpy(found.labels)].numpy())


def _attributed(case: PhotoCase, labels: Tensor, options: Mapping[str, Any]) -> Attribution:
    """The attributions of a network's answer, summed over the regions that its pixels lie in, with the error of these sums."""
    how: dict[str, Any] = {"target": case.answer.index, "score": case.score, "groups": labels[None]}
    return integrated_gradients(case.network.module, case.x, case.starts, **how, **options)


def _all_regions(values: Any, count: int) -> Tensor:
    """Sums by region, (1, regions); regions beyond the last that the network sees count nothing."""
    out = torch.zeros(1, count, dtype=torch.float64)
    out[:, : values.shape[1]] = values.detach().double().cpu()
    return out


def regions_seen(case: PhotoCase, labels: NDArray[Any]) -> Tensor:
    """The region of the photo that each pixel of the network's input lies in, by its middle, (H, W).

    A pixel of a border that the preprocessing added belongs to the region next to it.

    Args:
        case: the photo and the network.
        labels: the region of each pixel of the whole photo, at any size, (h, w).
    """
    photo = case.photo.pixels.shape[:2]
    top, left, bottom, right = seen(case.network.preprocess, *photo)
    at = []
    for start, end, count, length, size in zip(
        (top, left), (bottom, right), case.network.preprocess.size, photo, labels.shape, strict=True
    ):
        middle = start + (np.arange(count) + 0.5) * (end - start) / count
        at.append(np.clip(np.floor(middle * size / length), 0, size - 1).astype(np.int64))
    return torch.from_numpy(labels[at[0][:, None], at[1]].astype(np.int64))


def seen(preprocess: Preprocess, height: int, width: int) -> tuple[float, float, float, float]:
    """The part of a photo that a network sees, as (top, left, bottom, right) in the photo's pixels; beyond it, with a border.

    >>> seen(Preprocess((224, 224), (0, 0, 0), (1, 1, 1), crop=0.5), 448, 896)
    (112.0, 336.0, 336.0, 560.0)
    """
    (tall, wide), whole = preprocess.size, (0.0, 0.0, float(height), float(width))
    if preprocess.fit == "stretch" or (
        (height, width) == preprocess.size and (preprocess.crop == 1 or preprocess.fit != "crop")
    ):
        return whole
    if preprocess.fit == "pad":
        share = min(tall / height, wide / width)
        rows, columns = max(1, round(height * share)), max(1, round(width * share))
        down, across = -((tall - rows) // 2) * height / rows, -((wide - columns) // 2) * width / columns
        return down, across, down + tall * height / rows, across + wide * width / columns
    # As Preprocess crops: resized so that the middle has the size wanted, then cut, with the same rounding. What it cuts from
    # very long photos before that changes their shape, but not where the middle is.
    rows, columns = round(tall / preprocess.crop), round(wide / preprocess.crop)
    if rows * width >= columns * height:
        columns = max(columns, rows * width // height)
    else:
        rows = max(rows, columns * height // width)
    down, across = height / rows, width / columns
    top, left = round((rows - tall) / 2) * down, round((columns - wide) / 2) * across
    return top, left, top + tall * down, left + wide * across


def _same_class(first: PhotoCase, network: Network, name: str) -> int:
    """The class of another network that means what was explained in the first."""
    answer, classes = first.answer, first.network.classes
    if classes is not None and network.classes is not None and classes != network.classes:
        for text in (classes[answer.index], *classes[answer.index].split(", ")):
            try:
                return network.find(text)
            except TargetError:
                continue
        raise OptionError(
            f"the first network says {answer.label!r}, and {name!r} has no class of that name; expected a class that all know. "
            f"Name it in each: target={{... , {name!r}: 'its name'}}."
        )
    if first.network.outputs != network.outputs:
        raise OptionError(
            f"the first network has {first.network.outputs} classes and {name!r} has {network.outputs}, and without names for "
            "both nobody can tell which mean the same. Load them with classes=, or give a target for each."
        )
    return answer.index


def _unit(cases: Mapping[str, PhotoCase], score: ScoreName) -> str:
    """The scale that all are explained on; refuses networks that give probabilities where logits are asked for."""
    if score != "logit":
        return score
    sure = [n for n, case in cases.items() if answers_of(case.network, case.x, "probability")[1] == "logit"]
    if sure and len(sure) < len(cases):
        raise OptionError(
            f"{', '.join(map(repr, sure))} gives probabilities and the other network(s) logits; expected the same unit. Pass "
            "score='probability'."
        )
    return "probability" if sure else "logit"


def _answer(case: PhotoCase, result: Attribution, unit: str) -> ModelAnswer:
    first, score = case.answers[0], result.certificate.only.score
    likely = tuple((one.label, one.probability) for one in case.answers[:LISTED])
    if unit == "probability":
        return ModelAnswer(first.label, first.probability, score, case.answer.label, likely)
    return ModelAnswer(case.answer.label, score, score, case.answer.label)


def _about(case: PhotoCase) -> str:
    height, width = case.photo.pixels.shape[:2]
    top, left, bottom, right = seen(case.network.preprocess, height, width)
    high, wide = min(bottom, height) - max(top, 0), min(right, width) - max(left, 0)
    return f"{case.network.source}; sees {percent(high * wide / (height * width))} of the photo"


def _drawn(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The whole photo, small enough for a page."""
    from PIL import Image

    height, width = pixels.shape[:2]
    share = min(1.0, DRAWN / max(height, width))
    size = (max(1, round(width * share)), max(1, round(height * share)))
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).resize(size, Image.Resampling.BOX))
