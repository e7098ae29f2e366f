"""How a layer with weights shares its relevance among its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import OptionError
from ..operations import Step, vjp
from ..operations._signed import Points, hand_signed, signed_parts, without_constant

Shares = list[tuple[int, Tensor]]


def stabilised(value: Tensor, epsilon: float) -> Tensor:
    """A denominator kept away from zero, on its own side of it."""
    return value + torch.where(value >= 0, epsilon, -epsilon)


def _checked(name: str, value: float) -> None:
    if not value >= 0:
        raise OptionError(f"got {name}={value!r}; expected a number from 0 on.")


@dataclass(frozen=True)
class Epsilon:
    """In proportion to the contributions, with denominators kept away from zero.

    Attributes:
        epsilon: what is added to the size of a denominator; it takes its share of the relevance away.
    """

    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        _checked("epsilon", self.epsilon)

    def hand(self, step: Step, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Relevance for each argument."""
        with torch.no_grad():
            total = without_constant(step)(points) + constant
        slopes = vjp(step, points, arrived / stabilised(total, self.epsilon))
        return [(i, points[i] * slope) for i, slope in slopes]


@dataclass(frozen=True)
class Gamma:
    """Contributions on the side of the sum count (1 + gamma)-fold.

    Attributes:
        gamma: by how much more they count.
        epsilon: as in :class:`Epsilon`.
    """

    gamma: float = 0.25
    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        _checked("gamma", self.gamma)
        _checked("epsilon", self.epsilon)

    def hand(self, step: Step, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Relevance for each argument."""
        up, down = signed_parts(step, points)
        up, down = up + constant.clamp(min=0), down + constant.clamp(max=0)
        with torch.no_grad():
            positive = step(points) >= 0  # the unit's own sign, its bias included whether or not that gets a share
        total = up + down + self.gamma * torch.where(positive, up, down)
        share = arrived / stabilised(total, self.epsilon)
        more = (1 + self.gamma) * share
        slopes = hand_signed(step, points, torch.where(positive, more, share), torch.where(positive, share, more))
        return [(i, points[i] * slope) for i, slope in slopes]


@dataclass(frozen=True)
class AlphaBeta:
    """Positive contributions get alpha times the relevance, negative ones take beta times of it; z+ is (1, 0).

    Attributes:
        alpha: share of the positive ones.
        beta: share of the negative ones; alpha - beta must be 1.
        epsilon: as in :class:`Epsilon`.
    """

    alpha: float = 2.0
    beta: float = 1.0
    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "epsilon"):
            _checked(name, getattr(self, name))
        if abs(self.alpha - self.beta - 1) > 1e-9:
            raise OptionError(
                f"got alpha={self.alpha} and beta={self.beta}; expected alpha - beta = 1, so that relevance is kept."
            )

    def hand(self, step: Step, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Relevance for each argument."""
        up, down = signed_parts(step, points)
        up, down = up + constant.clamp(min=0), down + constant.clamp(max=0)
        to_positive = self.alpha * arrived / stabilised(up, self.epsilon)
        to_negative = -self.beta * arrived / (down - self.epsilon)
        slopes = hand_signed(step, points, to_positive, to_negative)
        return [(i, points[i] * slope) for i, slope in slopes]


LayerRule = Epsilon | Gamma | AlphaBeta
"""The rules of layers."""
