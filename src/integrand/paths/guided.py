"""Paths that are laid on the way, by the gradients met there; and the one that takes the flattest features first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..certificate import Promise, promised
from ..errors import OptionError
from ..trees import Leaves, Tensors, flat, flatten, unflat
from ..words import short_repr
from .base import Polyline, batch_of, same_shape, wide

Gradient = Callable[[Leaves], Leaves]
"""From points, one row per example, to the score's finite gradients there."""


STEERED_BREAK = {
    "implementation_invariance": "where gradients tie, rounding decides where the path goes",
    "linearity": "the path depends on the model",
    "symmetry": "where gradients tie, rounding decides where the path goes",
}


@dataclass(frozen=True, eq=False)
class Guided:
    """Features with the smallest gradients move first: guided integrated gradients (Kapishnikov et al., 2021).

    At every step the gradient is looked at, and the ``fraction`` of the features where it is smallest moves ahead, then the
    next, until a ``steps``-th of the distance (L1) to the next anchor is covered. Between the points found so the path is
    straight. It avoids where gradients are large for as long as it can, and with them the noise they bring.

    Attributions are complete for the path that was laid, however coarse the steps. But gradients of deep networks are
    rough, and the path as fickle as they are: with many steps between anchors, a rounding of the input can lead elsewhere.
    On EfficientNet-Lite0 it does so without anchors, and not with the 7 of the default.

    >>> path = Guided(torch.zeros(1, 2), torch.ones(1, 2), steps=2, fraction=0.5, anchors=0)
    >>> path.steer(lambda points: (torch.tensor([[10.0, 1.0]]),), batched=True).points[1]
    tensor([[0., 1.]])

    Attributes:
        baseline: where it starts.
        x: where it ends.
        steps: how often the gradient is looked at from one anchor to the next. Each time makes a straight piece of its own,
            which takes some ten evaluations at least to integrate.
        fraction: the share of the features that move at a time, above 0; with 1 the path is the straight line.
        anchors: how many points of the straight line, at equal distances, the path is made to pass through.
    """

    promises: ClassVar[tuple[Promise, ...]] = promised(**STEERED_BREAK)
    baseline: Tensors
    x: Tensors
    steps: int = 2
    fraction: float = 0.1
    anchors: int = 7

    __repr__ = short_repr

    def __post_init__(self) -> None:
        same_shape("baseline", *flatten(self.baseline, what="baseline"), *flatten(self.x, what="x"))
        check_guided(self.steps, self.fraction, self.anchors)

    def end(self) -> Tensors:
        """The input."""
        return self.x

    def steer(self, gradient: Gradient, *, batched: bool) -> Polyline:
        """The points after each step, and both ends."""
        tree, ends = flatten(self.x, what="x")
        start = batch_of(flatten(self.baseline, what="baseline")[1], batched)
        stop = batch_of(ends, batched)
        stretches = self.anchors + 1
        shares = [
            part for i in range(stretches) for part in self._stretch(start, stop, gradient, i / stretches, (i + 1) / stretches)
        ]
        between = [_between(start, stop, share) for share in shares[:-1]]
        points = [tuple(leaf if batched else leaf[0] for leaf in point) for point in between]
        return Polyline([self.baseline, *map(tree.build, points), self.x])

    def _stretch(self, start: Leaves, stop: Leaves, gradient: Gradient, low: float, high: float) -> list[Tensor]:
        """How far every feature is after each step of the way from one anchor to the next."""
        size = flat([(b.to(wide(b)) - a.to(wide(a))).abs() for a, b in zip(start, stop, strict=True)]).to(_exact(stop[0]))
        share = (size == 0).to(size.dtype)  # what has no way to go has arrived
        count = int(self.fraction * (size.shape[1] - 1)) + 1
        out = []
        for step in range(self.steps):
            slope = flat(gradient(_between(start, stop, low + share * (high - low)))).abs().to(size.dtype)
            share = _moved(share, size, slope, (1 - (step + 1) / self.steps) * size.sum(1), count)
            out.append(low + share * (high - low))
        out[-1] = torch.full_like(share, high)
        return out


def check_guided(steps: int, fraction: float, anchors: int) -> None:
    """Numbers that make sense, or an error."""
    for name, value, least in (("steps", steps, 1), ("anchors", anchors, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise OptionError(f"got {name}={value!r} for a guided path; expected a whole number from {least} on.")
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
        raise OptionError(
            f"got fraction={fraction!r}; expected the share of the features that move at a time, above 0 and up to 1."
        )


def _exact(leaf: Tensor) -> torch.dtype:
    """Distances are sums over all features: float64, where a device has it."""
    return torch.float32 if leaf.device.type == "mps" else torch.float64


def _between(start: Leaves, stop: Leaves, share: Tensor) -> Leaves:
    """Points (examples, ...) whose features have gone the given shares (examples, features) of their way."""
    parts = unflat(share, [leaf.shape[1:] for leaf in stop])
    return tuple(
        torch.lerp(a.to(wide(a)), b.to(wide(b)), part.to(wide(b))).to(b.dtype)
        for a, b, part in zip(start, stop, parts, strict=True)
    )


def _moved(share: Tensor, size: Tensor, slope: Tensor, goal: Tensor, count: int) -> Tensor:
    """Move the flattest features, ``count`` at a time and those that tie with them, until the way left is ``goal``.

    Args:
        share: (examples, features) how far each feature is, from 0 to 1.
        size: (examples, features) how long its way is.
        slope: (examples, features) its gradient's magnitude.
        goal: (examples,) the way left to all features together.
        count: how many move at a time.
    """
    near = size.sum(1) * torch.finfo(size.dtype).eps ** 0.5
    while True:
        left = size * (1 - share)
        short = left.sum(1) - goal
        going = short > near
        if not bool(going.any()):
            return share
        waiting = torch.where(share < 1, slope, torch.inf)
        chosen = (share < 1) & (waiting <= _smallest(waiting, count))
        reach = (left * chosen).sum(1)
        move = torch.where(reach > short, short / reach, 1.0).clamp_min(0) * going
        share = torch.where(chosen, torch.lerp(share, torch.ones_like(share), move[:, None]), share)


def _smallest(values: Tensor, count: int) -> Tensor:
    """The ``count``-th smallest of each row, (rows, 1)."""
    if values.is_cuda and torch.are_deterministic_algorithms_enabled():  # which refuse kthvalue, for the places that it gives
        return values.sort(1).values[:, count - 1 : count]
    return values.kthvalue(count, 1, keepdim=True).values
