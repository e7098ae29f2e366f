"""What is drawn of a diagnosis, as data: the photo, and a baseline with its map or bars for every candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._trees import Tensors, flatten
from ..baselines._constructors import spread
from ..baselines._diagnosis import Diagnosis, Row, plain
from ..comparison import Comparison
from ..comparison._plain import share_of
from ..comparison._scene import View
from ..comparison._scene import compose as side_by_side
from ._pixels import Array, photo_pixels
from ._scene import Bars, Panel


@dataclass(frozen=True, slots=True)
class Cell:
    """One candidate.

    Attributes:
        title: its name.
        note: what was found, in a few words.
        thumbnail: the baseline itself, where it can be seen.
        part: its attributions.
        lines: the numbers.
    """

    title: str
    note: str
    thumbnail: Panel | None
    part: Panel | Bars
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is drawn, what to know of its colours, and the ends of the scale that bars have in common."""

    title: str
    label: str
    photo: Panel | None
    cells: tuple[Cell, ...]
    legend: str
    ends: tuple[float, float] | None = None


def compose(
    diagnosis: Diagnosis,
    image: Any,
    pixels: Callable[[Any], Any] | None,
    label: str | None,
    features: Sequence[str] | None,
    title: str | None,
    signed: bool,
    share: float,
    top: int,
) -> Scene:
    """Decide what is drawn; arguments as in :meth:`Diagnosis.figure`."""
    visible = _visible(diagnosis, pixels)
    if image is None and visible is not None and features is None:
        image = visible(diagnosis.x)
    view = View(image, label, features, None, "each", signed, share, top, 1)
    comparison = Comparison({row.name: row.attribution for row in diagnosis.rows})
    scene = side_by_side(comparison, view)
    if scene.rows[0].bars:  # all are in units of one score; only maps need a scale each to be seen
        scene = side_by_side(comparison, replace(view, scale="common"))
    row = scene.rows[0]
    parts: tuple[Panel | Bars, ...] = (*row.maps, *row.bars)
    cells = tuple(_cell(diagnosis, one, part, visible) for one, part in zip(diagnosis.rows, parts, strict=True))
    return Scene(title or "Which baseline?", row.label, row.photo, cells, scene.legend, row.ends)


def _cell(diagnosis: Diagnosis, row: Row, part: Panel | Bars, visible: Callable[[Tensors], Array] | None) -> Cell:
    name = f"{row.name} (recommended)" if row.name == diagnosis.recommended else row.name
    thumbnail = None
    if visible is not None:
        drawn = photo_pixels(visible(row.baseline))[0]
        thumbnail = Panel(row.name, "", np.rint(drawn * 255).astype(np.uint8))
    draws = f"{row.draws} draws" if thumbnail is None else f"first of {row.draws} draws"
    return Cell(name, row.verdict, thumbnail, part, (*numbers(diagnosis, row), *([draws] if row.draws > 1 else [])))


def numbers(diagnosis: Diagnosis, row: Row) -> tuple[str, ...]:
    """What was found about a candidate, line by line."""
    known = not np.isnan(row.probability)
    lines = [f"p of the class {plain(row.probability, '.2g')}" if known else f"F(x') {row.score:.2g}"]
    lines.append(f"head start {share_of(row.head_start)}")
    if row.top is not None:
        lines += [f"sees {diagnosis.names(row.top)} ({row.confidence:.2g})", f"entropy {row.entropy:.2f}"]
    lines += [f"agreement {plain(row.agreement, '.2f')}", f"sum|a| {row.certificate.magnitude:.3g}"]
    if not row.certificate.converged:
        lines.append(row.certificate.status.value)
    return tuple(lines)


def _visible(diagnosis: Diagnosis, pixels: Callable[[Any], Any] | None) -> Callable[[Tensors], Array] | None:
    """From an input to what can be seen, (H, W, 3) from 0 to 1; None where inputs are no images or a layer was explained."""
    x, values = diagnosis.x, diagnosis.rows[0].attribution.values
    if not isinstance(x, Tensor) or not isinstance(values, Tensor) or x.shape != values.shape:
        return None
    one = x.shape[1:] if diagnosis.rows[0].attribution.batched else x.shape
    if len(one) != 3 or (one[0] not in (1, 3) and pixels is None):
        return None

    def shown(value: Tensors) -> Array:
        leaf = flatten(value)[1][0].detach().reshape(one)
        if pixels is not None:
            found = pixels(leaf)
            return np.asarray(found.detach().cpu() if isinstance(found, Tensor) else found, float).reshape(*one[1:], -1)
        low, high = (spread(end, leaf, "low and high").double() for end in (diagnosis.low, diagnosis.high))
        scaled = (leaf.double() - low) / torch.where(high == low, torch.ones_like(high), high - low)
        return np.asarray(scaled.clamp(0, 1).permute(1, 2, 0).cpu().numpy(), float)

    return shown
