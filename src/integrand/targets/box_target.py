"""A number of one detection, of the candidate that made it or of what is matched with it by overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ..errors import OptionError, TargetError
from ..functions.target import Settled, some_rows
from ..words import number
from .callable_target import CallableTarget, box_words, class_index, class_words
from .found_boxes import Candidates, Detection, boxes_in, detections_in, matched

BoxPart = Literal["score", "logit", "objectness", "left", "top", "right", "bottom", "x", "y", "width", "height"]
"""What of a box is explained: its class score, the logit of the class, objectness, a side, its middle, its size."""

Following = Literal["candidate", "overlap"]

LEAST = 0.3
"""The score from which on a candidate counts as a detection, where the model did not pick any: a usual value."""

SAME = 0.5
"""The least overlap, as intersection over union, of what is taken for the same object: that of COCO's and Pascal's scoring."""

SUPPRESSION = (
    "the detector's threshold and non-maximum suppression, by which a detection comes and goes, and matching, by which one "
    "takes another's place; "
)
BY_CANDIDATE = "explain the candidate that made it: leave follow='overlap' out"
DENSE = (
    "explain the candidate that made it: a model that returns everything it considers before suppression, as targets.Candidates"
)


def detections(output: Any, *, least: float = LEAST, read: Callable[[Any], Any] | None = None) -> list[list[Detection]]:
    """What a detector found, picture by picture, in the order in which :func:`box` counts.

    Args:
        output: the model's raw output, of any family that :func:`box` knows.
        least: the score from which on a candidate is a detection.
        read: from the output to :class:`Candidates`, for another layout.
    """
    found = boxes_in(output if read is None else read(output))
    count = len(found.boxes) if isinstance(found, Candidates) else len(found)
    return [detections_in(found, row, least) for row in range(count)]


@dataclass
class MatchLog:
    """As what an object was found at the points of its path.

    Attributes:
        dense: whether what was found is known by the number of its candidate.
        met: for each example, the numbers of what was taken for the object; None among them where nothing was.
    """

    dense: bool
    met: dict[int, set[int | None]] = field(default_factory=lambda: defaultdict(set))

    def remark(self, example: int) -> str:
        """What happened to the object on the path, in words; '' where it was there all along."""
        met = self.met[example]
        said = []
        if None in met:
            said.append(
                "at some points of the path the detection is not there (threshold, non-maximum suppression): its score counts "
                "as 0 and jumps where it comes"
            )
        if self.dense and len(met - {None}) > 1:
            said.append(f"matching goes through {len(met - {None})} candidates on the path, where its score may jump")
        return "; ".join(said)


@dataclass(frozen=True)
class BoxTarget(CallableTarget):
    """A number of one detection; made by :func:`box`, which says what its attributes mean."""

    i: int
    what: BoxPart
    label: int | None
    follow: Following | None
    least: float
    enough: float
    names: tuple[str, ...]
    read: Callable[[Any], Any] | None

    def settle(self, output: Any, examples: int) -> Settled:
        """Find the detection of each example at the input."""
        found = self._boxes(output, examples)
        dense = isinstance(found, Candidates)
        if self.follow == "candidate" and not dense:
            raise TargetError(
                "targets.box: got follow='candidate' for a model that gives only what it picked; expected one that gives all "
                "candidates (targets.Candidates), or leave follow out: detections are then matched by overlap."
            )
        follow: Following = self.follow or ("candidate" if dense else "overlap")
        objects = [self._object(found, row) for row in range(examples)]
        self._check_part(found, follow)
        words = tuple(self._words(one, self._class_of(one)) for one in objects)
        if follow == "candidate":
            columns = torch.tensor([[one.candidate, self._class_of(one)] for one in objects])
            return Settled(lambda raw, rows: self._at(self._boxes(raw, len(rows)), columns, rows), words)
        jumps = SUPPRESSION + (BY_CANDIDATE if dense else DENSE)
        log = MatchLog(dense)
        read: Any = lambda raw, rows: self._followed(self._boxes(raw, len(rows)), objects, rows, log)  # noqa: E731
        return Settled(read, words, jumps, log.remark)

    def _boxes(self, raw: Any, count: int) -> Any:
        found = boxes_in(raw if self.read is None else self.read(raw))
        length = len(found.boxes) if isinstance(found, Candidates) else len(found)
        if length != count:
            raise TargetError(
                f"targets.box: the model gives boxes for {length} pictures; expected {count}, one for each "
                "row. If x is one picture without a batch dimension, pass batched=False."
            )
        return found

    def _object(self, found: Any, row: int) -> Detection:
        """The detection of one example, as the model calls it."""
        there = detections_in(found, row, self.least)
        if not 0 <= self.i < len(there):
            listed = "; ".join(f"{k}: {self._named(one.label)} ({number(one.score, 2)})" for k, one in enumerate(there[:8]))
            least = f" with a score of at least {self.least}" if isinstance(found, Candidates) else ""
            raise TargetError(
                f"got targets.box({self.i}) for example {row}, where the model finds {len(there)} object(s){least}"
                f"{f': {listed}' if listed else ''}; expected "
                + (f"0 to {len(there) - 1}." if there else "a picture in which it finds some; a smaller least= finds more.")
            )
        one = there[self.i]
        if self.label is None or self.label == one.label:
            return one
        if not isinstance(found, Candidates):
            raise TargetError(
                f"got label {self.label} for a detection that the model calls {self._named(one.label)}; a model that gives "
                "only what it picked says nothing of other classes. Leave label out."
            )
        if not 0 <= self.label < found.scores.shape[-1]:
            raise TargetError(f"got label {self.label}; the detector has classes 0 to {found.scores.shape[-1] - 1}.")
        return one

    def _class_of(self, one: Detection) -> int:
        """The class whose score is explained: the one asked for, or what the model calls the detection."""
        return one.label if self.label is None else self.label

    def _check_part(self, found: Any, follow: Following) -> None:
        if self.what in ("score", "logit", "objectness"):
            there = {"score": True, "logit": False, "objectness": False}
            if isinstance(found, Candidates):
                there = {"score": True, "logit": found.logits is not None, "objectness": found.objectness is not None}
            if not there[self.what]:
                known = ", ".join(repr(name) for name, given in there.items() if given)
                sides = " or a coordinate ('left', 'top', 'right', 'bottom', 'x', 'y', 'width', 'height')"
                raise TargetError(
                    f"got what={self.what!r}, which this detector does not give; expected {known}"
                    f"{sides if follow == 'candidate' else ''}."
                )
        elif follow == "overlap":
            raise TargetError(
                f"got what={self.what!r} of a detection that is matched by overlap: where on the path it is not found, it has "
                f"no coordinates. Expected 'score', or {'no follow=' if isinstance(found, Candidates) else 'a dense output'}: "
                "the candidate that made the box has coordinates everywhere"
                + ("." if isinstance(found, Candidates) else " (targets.Candidates).")
            )

    def _named(self, label: int) -> str:
        return class_words(label, self.names)

    def _words(self, one: Detection, label: int) -> str:
        box = "box " + box_words(one.box)
        if self.what in ("score", "logit"):
            return f"{self.what} of {self._named(label)} in the {box}"
        return f"{self.what} of the {self._named(label)} in the {box}"

    def _at(self, found: Candidates, columns: Tensor, rows: Tensor) -> Tensor:
        """What the candidates of the rows' examples have, (N,)."""
        candidate, label = columns.to(found.boxes.device)[rows.to(found.boxes.device)].T
        every = torch.arange(len(candidate), device=candidate.device)
        if self.what == "score":
            return found.scores[every, candidate, label]
        if self.what == "logit":
            assert found.logits is not None
            return found.logits[every, candidate, label]
        if self.what == "objectness":
            assert found.objectness is not None
            return found.objectness[every, candidate]
        left, top, right, bottom = found.boxes[every, candidate].unbind(-1)
        sides = {"left": left, "top": top, "right": right, "bottom": bottom}
        sides |= {"x": (left + right) / 2, "y": (top + bottom) / 2, "width": right - left, "height": bottom - top}
        return sides[self.what]

    def _followed(self, found: Any, objects: list[Detection], rows: Tensor, log: MatchLog) -> Tensor:
        """The scores of the objects where they are found, (N,), and 0 where they are not."""
        scores = []
        for row, owner in enumerate(rows.tolist()):
            wanted = objects[owner]
            k = matched(found, row, wanted, least=self.least, enough=self.enough)
            log.met[owner].add(k)
            if isinstance(found, Candidates):
                columns = torch.tensor([[0 if k is None else k, self._class_of(wanted)]])
                only: Candidates = some_rows(found, [row])
                here = self._at(only, columns, torch.zeros(1, dtype=torch.long))[0]
                scores.append(here * (k is not None))
            else:
                every = found[row]["scores"]
                scores.append(0 * every.sum() if k is None else every[k])
        return torch.stack(scores)


def box(
    i: int = 0,
    what: BoxPart = "score",
    *,
    label: int | str | None = None,
    follow: Following | None = None,
    least: float = LEAST,
    enough: float = SAME,
    names: Sequence[str] = (),
    read: Callable[[Any], Any] | None = None,
) -> BoxTarget:
    """A number of the i-th detection: its class score, objectness, or a coordinate.

    Where the model gives everything it considers (:class:`Candidates`, a Hugging Face detector), the candidate that made the
    detection is explained: a grid cell, an anchor, a query, which is there at every point of the path, so that nothing jumps.
    Where it gives only what it picked (torchvision), the same object is found again by overlap: of the detections of its class
    the one that overlaps most with its box at the input, by at least ``enough``. Where there is none its score counts as 0,
    so that the score jumps where a detection comes and goes; the certificate then says so.

    Args:
        i: which detection, surest first; of models that pick, in the order they give.
        what: ``score``, the class score; ``logit`` of the class; ``objectness``; or ``left``, ``top``, ``right``, ``bottom``,
            the middle ``x`` and ``y``, ``width`` or ``height``, in the model's unit.
        label: the class whose score is explained, by number or, with ``names``, by name; that of the detection if not given.
            Which object it is still goes by what the model calls it.
        follow: ``candidate`` or ``overlap``, where both are possible.
        least: the score from which on a candidate is a detection.
        enough: the overlap (intersection over union) from which on two boxes are one object.
        names: of the classes, for the words in the certificate.
        read: from the model's output to :class:`Candidates`, for another layout.
    """
    if what not in get_args(BoxPart):
        raise OptionError(f"got what={what!r}; expected one of {', '.join(map(repr, get_args(BoxPart)))}.")
    if follow not in (None, *get_args(Following)):
        raise OptionError(f"got follow={follow!r}; expected 'candidate', 'overlap' or None.")
    if isinstance(i, bool) or not isinstance(i, (int, np.integer)) or i < 0:
        raise TargetError(f"got box {i!r}; expected the number of a detection, from 0 on.")
    for name, share in (("least", least), ("enough", enough)):
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise OptionError(f"got {name}={share!r}; expected a number from 0 to 1.")
    wanted = None if label is None else class_index(label, names)
    return BoxTarget(int(i), what, wanted, follow, least, enough, tuple(names), read)
