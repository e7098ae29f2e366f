"""DeepLift's reveal-cancel rule: positive and negative contributions to a nonlinearity are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..operations import Kind, Program, Step, kind_of, vjp
from ..operations._program import Values
from ..operations._signed import NUMBER_BY_NUMBER, by_sign, hand_signed, points_of, signed_parts, without_constant
from ..operations._sweep import Handed


@dataclass(frozen=True)
class Both:
    """One multiplier for the positive contributions to a value, another for the negative ones."""

    positive: Tensor
    negative: Tensor

    def __add__(self, other: Tensor | Both) -> Both:
        if isinstance(other, Both):
            return Both(self.positive + other.positive, self.negative + other.negative)
        return Both(self.positive + other, self.negative + other)

    __radd__ = __add__


class RevealCancel:
    """The rule, with the values at the input and at the baseline.

    Args:
        program: the model.
        here: its values at the input.
        there: its values at the baseline.
    """

    def __init__(self, program: Program, here: Values, there: Values) -> None:
        self.here, self.there = here, there
        self.made_by = {step.out: step for step in program.steps}

    def parts(self, index: int) -> tuple[Tensor, Tensor]:
        """The positive and the negative part of a value's change: of its terms where it is a sum, else by its sign."""
        step = self.made_by.get(index)
        kind = None if step is None else kind_of(step, self.here)
        if step is not None and kind is Kind.LINEAR and not _passes(step):
            return signed_parts(step, self._changes(step))
        if step is not None and step.picks:
            whole = self.made_by[step.args[0].index]
            if kind_of(whole, self.here) is Kind.MOVE:
                up, down = (whole(dict(zip(whole.refs, side, strict=True)))[step.args[1]] for side in self._sides(whole))
                return up, down
        elif step is not None and kind in (Kind.MOVE, Kind.LINEAR):
            bare = without_constant(step)
            up, down = (bare(dict(zip(step.refs, side, strict=True))) for side in self._sides(step))
            return torch.maximum(up, down), torch.minimum(up, down)
        change = self.here[index] - self.there[index]
        return change.clamp(min=0), change.clamp(max=0)

    def at_nonlinearity(self, step: Step, arrived: Any) -> Handed:
        """The effect of each part, averaged over which of the two comes first."""
        seed = self.collapse(step.out, arrived)
        index = step.refs[0]
        base = self.there[index]
        up, down = self.parts(index)
        with torch.no_grad():
            at = {(u, d): step({index: base + u * up + d * down}) for u in (0, 1) for d in (0, 1)}
        by_up = ((at[1, 0] - at[0, 0]) + (at[1, 1] - at[0, 1])) / 2
        by_down = ((at[0, 1] - at[0, 0]) + (at[1, 1] - at[1, 0])) / 2
        # A part of no size has no effect; its slope multiplies nothing.
        slopes = (
            torch.where(part == 0, 0, by / torch.where(part == 0, 1, part)) for part, by in ((up, by_up), (down, by_down))
        )
        return [(index, Both(*((seed * slope).sum_to_size(base.shape) for slope in slopes)))]

    def at_sum(self, step: Step, arrived: Any, kind: Kind) -> Handed | None:
        """Where terms meet, each gets the multiplier of its sign; None where the step is neither sum nor move."""
        if kind is Kind.LINEAR and not _passes(step):
            return hand_signed(step, self._changes(step), arrived.positive, arrived.negative)
        if kind is Kind.MOVE:
            sides = [dict(vjp(step, self.here, _side(arrived, positive=side))) for side in (True, False)]
            return [(index, Both(part, sides[1][index])) for index, part in sides[0].items()]
        if kind is Kind.LINEAR:
            index = step.refs[0]
            with torch.no_grad():
                factor = without_constant(step)({index: torch.ones_like(self.here[index])})
            # A negative factor turns positive contributions into negative ones.
            seeds = (
                torch.where(factor < 0, *pair)
                for pair in ((arrived.negative, arrived.positive), (arrived.positive, arrived.negative))
            )
            return [(index, Both(*(dict(vjp(step, self.here, seed))[index] for seed in seeds)))]
        return None

    def collapse(self, index: int, arrived: Any) -> Any:
        """One multiplier for the whole of a value's change, by its sign."""
        if isinstance(arrived, dict):
            return {slot: _by_sign(part, self.here[index][slot], self.there[index][slot]) for slot, part in arrived.items()}
        return _by_sign(arrived, self.here[index], self.there[index])

    def _sides(self, step: Step) -> list[tuple[Tensor, ...]]:
        """The positive and the negative parts of a step's arguments."""
        return list(zip(*(self.parts(i) for i in step.refs), strict=True))

    def _changes(self, step: Step) -> dict[int, Tensor]:
        return {i: a - self.there[i] for i, a in points_of(step, self.here).items()}


def slots(arrived: Any) -> dict[int, Any]:
    """What arrived at each output of a step."""
    return arrived if isinstance(arrived, dict) else {0: arrived}


def _side(arrived: Any, *, positive: bool) -> Any:
    if isinstance(arrived, dict):
        return {slot: _side(part, positive=positive) for slot, part in arrived.items()}
    if not isinstance(arrived, Both):
        return arrived
    return arrived.positive if positive else arrived.negative


def _by_sign(arrived: Any, here: Tensor, there: Tensor) -> Any:
    return by_sign(here - there, arrived.positive, arrived.negative) if isinstance(arrived, Both) else arrived


def _passes(step: Step) -> bool:
    """Whether a linear step adds nothing up: one value, scaled or shifted by constants number by number."""
    return len(step.refs) == 1 and step.name in NUMBER_BY_NUMBER
