"""What a segmenter says of a class over a region of pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ..errors import OptionError, TargetError
from ..functions.target import Settled, main_tensor
from .callable_target import CallableTarget, class_index, class_words

MaskScale = Literal["logit", "probability"]
Region = Tensor | tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class MaskTarget(CallableTarget):
    """What a segmenter says of a class over a region; made by :func:`mask`, which says what its attributes mean."""

    label: int
    region: Region | None
    what: MaskScale
    mean: bool
    names: tuple[str, ...] = ()

    def settle(self, output: Any, examples: int) -> Settled:
        """Decide which pixels of each example are meant."""
        maps = maps_in(output).detach()
        if not 0 <= self.label < maps.shape[1]:
            raise TargetError(f"got class {self.label}; the segmenter has classes 0 to {maps.shape[1] - 1}.")
        inside = self._inside(maps, examples)
        counts = inside.flatten(1).sum(1)
        weights = inside.to(torch.promote_types(maps.dtype, torch.float32)) / (counts[:, None, None] if self.mean else 1)
        how = "mean" if self.mean else "sum"
        where = "where the model says it" if self.region is None else "of the region"
        words = tuple(
            f"{self.what} of {class_words(self.label, self.names)}, {how} over {count:,} pixels {where}"
            for count in counts.tolist()
        )
        return Settled(lambda raw, rows: self._over(maps_in(raw), weights, rows), words)

    def _over(self, maps: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
        # Sums over many pixels leave the range, and most digits, of half precision.
        maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
        if self.what == "logit":
            of_class = maps[:, self.label]
        else:
            of_class = (maps.sigmoid() if maps.shape[1] == 1 else maps.softmax(1))[:, self.label]
        return (of_class * weights.to(of_class)[rows.to(of_class.device)]).flatten(1).sum(1)

    def _inside(self, maps: Tensor, examples: int) -> Tensor:
        """Which pixels are meant, (examples, H, W) bool."""
        height, width = maps.shape[2:]
        name = class_words(self.label, self.names)
        if self.region is None:
            said = (maps[:, 0] > 0) if maps.shape[1] == 1 else maps.argmax(1) == self.label
            for row, one in enumerate(said):
                if not one.any():
                    raise TargetError(
                        f"the model says {name} at no pixel of example {row}; it says {_shares(maps[row], self.names)}. "
                        "Expected a class that it says somewhere, or region=, the pixels that are meant."
                    )
            return said
        if isinstance(self.region, Tensor):
            region = self.region.to(maps.device)
            known = ((height, width), (1, height, width), (examples, height, width))
            if region.dtype is not torch.bool or region.shape not in known:
                raise TargetError(
                    f"got a region of shape {tuple(region.shape)} and {region.dtype}; expected bool of shape ({height}, "
                    f"{width}), which the model's maps have, or one for each of {examples} example(s)."
                )
            region = region.expand(examples, height, width)
        else:
            left, top, right, bottom = self.region
            if not (0 <= left < right <= width and 0 <= top < bottom <= height):
                raise TargetError(
                    f"got the region {self.region}; expected left, top, right, bottom inside the model's maps, which are "
                    f"{width} wide and {height} high."
                )
            region = torch.zeros(examples, height, width, dtype=torch.bool, device=maps.device)
            region[:, top:bottom, left:right] = True
        if not bool(region.flatten(1).any(1).all()):
            raise TargetError("got a region without a pixel; expected True where the class is to be explained.")
        return region


def mask(
    label: int | str,
    region: Region | None = None,
    what: MaskScale = "logit",
    *,
    mean: bool = False,
    names: Sequence[str] = (),
) -> MaskTarget:
    """What a segmenter says of a class over a region: the sum of its logits or probabilities there.

    Args:
        label: the class, by number or, with ``names``, by name.
        region: (H, W) bool, or (N, H, W), on the grid of the model's maps; or left, top, right, bottom on that grid; None for
            where the model says that class at the input. Held fixed along the path.
        what: ``logit`` or ``probability``.
        mean: the mean over the region instead of the sum.
        names: of the classes, for the words in the certificate.
    """
    if what not in get_args(MaskScale):
        raise OptionError(f"got what={what!r}; expected 'logit' or 'probability'.")
    return MaskTarget(class_index(label, names), _region(region), what, mean, tuple(names))


def _region(region: Any) -> Region | None:
    """A region as it was given, or refused: numpy's arrays as tensors, corners as whole numbers."""
    if region is None or isinstance(region, Tensor):
        return region
    if isinstance(region, np.ndarray) and region.ndim > 1:
        return torch.as_tensor(region)
    try:
        left, top, right, bottom = (index(corner) for corner in region)
    except (TypeError, ValueError):
        raise TargetError(
            f"got the region {region}; expected left, top, right, bottom as whole numbers on the grid of the model's maps, or "
            "a bool tensor (H, W)."
        ) from None
    return left, top, right, bottom


def maps_in(raw: Any) -> Tensor:
    """The maps of a segmenter, (N, classes, H, W): its output, ``out`` (torchvision) or ``logits`` (Hugging Face)."""
    items = dict(raw.items()) if isinstance(raw, Mapping) else {}
    maps = items["out"] if isinstance(items.get("out"), Tensor) else main_tensor(raw)
    if maps.ndim != 4:
        raise TargetError(
            f"targets.mask: the model gives shape {tuple(maps.shape)}; expected maps (N, classes, height, width): a "
            "segmenter's output, its 'out' or its 'logits'. If x is one picture without a batch dimension, pass batched=False."
        )
    return maps


def _shares(maps: Tensor, names: Sequence[str], most: int = 4) -> str:
    """What a segmenter says of a picture, (classes, H, W), by area."""
    said = maps.argmax(0).flatten()
    counts = torch.bincount(said, minlength=maps.shape[0])
    order = counts.argsort(descending=True, stable=True)[:most].tolist()
    return ", ".join(f"{class_words(k, names)} ({int(counts[k]) / said.numel():.0%})" for k in order if counts[k])
