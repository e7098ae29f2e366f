"""What detectors give, read as boxes: every candidate with its scores, or the few that were picked; which are one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ..errors import TargetError

SUPPRESSED = 0.45
"""Of two candidates of one class that overlap by more (intersection over union) only the surer one counts; a usual value."""

SOFTMAX = ("Detr", "Yolos", "TableTransformer")
"""Hugging Face detectors, by how the names of their outputs begin, that end in a softmax with a class for "no object" at the
end; all others there have a sigmoid for every class."""


class Candidates(NamedTuple):
    """Everything that a detector considers, before any of it is left out: its dense output.

    A model that returns this can be explained box by box without jumps, for the candidate that made a detection is there at
    every point of a path.

    Attributes:
        boxes: (N, candidates, 4): left, top, right, bottom, in any unit.
        scores: (N, candidates, classes), from 0 to 1.
        objectness: (N, candidates), that there is anything at all; None where the detector has none.
        logits: (N, candidates, classes), what the scores of the classes are made of; None where they are not given.
        overlapping: whether neighbours propose the same object, so that overlapping ones have to be suppressed before
            detections are counted. Detectors with a set of queries (DETR) propose each object once.
    """

    boxes: Tensor
    scores: Tensor
    objectness: Tensor | None = None
    logits: Tensor | None = None
    overlapping: bool = True


@dataclass(frozen=True)
class Detection:
    """An object that a detector found in one picture.

    Attributes:
        box: left, top, right, bottom.
        label: its class.
        score: how sure the detector is.
        candidate: which of the candidates, or which of those picked.
    """

    box: tuple[float, float, float, float]
    label: int
    score: float
    candidate: int


Picked = Sequence[Mapping[str, Tensor]]
"""What torchvision's detectors give: for each picture ``boxes`` (K, 4), ``labels`` (K,) and ``scores`` (K,)."""


def boxes_in(raw: Any) -> Candidates | Picked:
    """The boxes in a detector's output, whatever family it is of.

    Args:
        raw: :class:`Candidates`; a Hugging Face output, or a mapping, with ``logits`` and ``pred_boxes``; a mapping with
            ``boxes`` and ``scores`` for all candidates; or torchvision's list of one mapping per picture.

    Raises:
        TargetError: there are no boxes in it.
    """
    if isinstance(raw, Candidates):
        return raw
    items = dict(raw.items()) if isinstance(raw, Mapping) else {}
    if isinstance(items.get("pred_boxes"), Tensor) and isinstance(items.get("logits"), Tensor):
        return _queries(items["logits"], items["pred_boxes"], type(raw).__name__)
    if isinstance(items.get("boxes"), Tensor) and isinstance(items.get("scores"), Tensor) and items["boxes"].ndim == 3:
        return Candidates(items["boxes"], items["scores"], items.get("objectness"), items.get("logits"))
    if (
        isinstance(raw, (list, tuple))
        and raw
        and all(isinstance(one, Mapping) and {"boxes", "scores"} <= set(one) for one in raw)
    ):
        return cast(Picked, raw)
    held = f" with {sorted(items)}" if items else f" of shape {tuple(raw.shape)}" if isinstance(raw, Tensor) else ""
    raise TargetError(
        f"targets.box: the model returns a {type(raw).__name__}{held}, in which there are no boxes; expected what "
        "torchvision's detectors give (a list of dicts with boxes, labels and scores), a Hugging Face output with logits and "
        "pred_boxes, or targets.Candidates. For another layout give read=, a function from the model's output to "
        "targets.Candidates. If x is one picture without a batch dimension, pass batched=False."
    )


def _queries(logits: Tensor, boxes: Tensor, name: str) -> Candidates:
    """The queries of a DETR-like detector: centre, width and height as shares of the picture become corners."""
    known = name.endswith("Output") and not name.startswith(SOFTMAX)
    scores = logits.sigmoid() if known else logits.softmax(-1)[..., :-1]
    x, y, wide, tall = boxes.unbind(-1)
    corners = torch.stack([x - wide / 2, y - tall / 2, x + wide / 2, y + tall / 2], -1)
    return Candidates(corners, scores, logits=logits[..., : scores.shape[-1]], overlapping=False)


def overlap(boxes: Tensor, other: Tensor) -> Tensor:
    """Intersection over union of boxes, (K, 4), with one box, (4,): (K,), 0 where both are empty.

    >>> overlap(torch.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]]), torch.tensor([0.0, 0.0, 2.0, 2.0]))
    tensor([1.0000, 0.3333])
    """
    inner = (torch.minimum(boxes[:, 2:], other[2:]) - torch.maximum(boxes[:, :2], other[:2])).clamp(min=0).prod(1)
    areas = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(1)
    union = areas + (other[2:] - other[:2]).clamp(min=0).prod() - inner
    return torch.where(union > 0, inner / union, 0)


def detections_in(found: Candidates | Picked, row: int, least: float) -> list[Detection]:
    """What a detector found in one picture of a batch.

    Of candidates, those whose best class has a score of at least ``least``, surest first, and without those that overlap with a
    surer one of the same class. Those that were picked are listed as the model lists them.

    Args:
        found: what :func:`boxes_in` gave.
        row: which picture.
        least: the score from which on a candidate is a detection.
    """
    if not isinstance(found, Candidates):
        one = {name: found[row][name].detach() for name in ("boxes", "labels", "scores") if name in found[row]}
        count = len(one["boxes"])
        labels = one["labels"] if "labels" in one else torch.zeros(count, dtype=torch.long)
        return [_detection(one["boxes"][k], int(labels[k]), float(one["scores"][k]), k) for k in range(count)]
    boxes, scores = found.boxes[row].detach(), found.scores[row].detach()
    best, labels = scores.max(-1)
    left = [int(k) for k in best.argsort(descending=True, stable=True) if best[k] >= least]
    kept: list[Detection] = []
    while left:
        k, *left = left
        kept.append(_detection(boxes[k], int(labels[k]), float(best[k]), k))
        if found.overlapping and left:
            same = (overlap(boxes[left], boxes[k]) > SUPPRESSED) & (labels[left] == labels[k])
            left = [other for other, gone in zip(left, same.tolist(), strict=True) if not gone]
    return kept


def _detection(box: Tensor, label: int, score: float, candidate: int) -> Detection:
    left, top, right, bottom = (float(side) for side in box)
    return Detection((left, top, right, bottom), label, score, candidate)


def matched(found: Candidates | Picked, row: int, wanted: Detection, *, least: float, enough: float) -> int | None:
    """Which of a picture's detections is the object that was found elsewhere: the one of its class that overlaps most.

    Args:
        found: what :func:`boxes_in` gave.
        row: which picture.
        wanted: the object.
        least: the score from which on a candidate is a detection.
        enough: the least overlap with its box.

    Returns:
        The number of the candidate, or of the one picked; None where the object is not found.
    """
    there = [one for one in detections_in(found, row, least) if one.label == wanted.label]
    if not there:
        return None
    shares = overlap(torch.tensor([one.box for one in there]), torch.tensor(wanted.box))
    best = int(shares.argmax())
    return there[best].candidate if float(shares[best]) >= enough else None
