"""Stretches of straight lines on their way through a piecewise linear network.

Everything that the network computes is linear in t between neighbouring break points, so it is held by its values at them.
Operation by operation, new break points are put in where a unit has its kink, and all that is still needed is interpolated
there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._trees import Leaves
from ..execute._nodes import Floats, Ints
from ..functions._parts import out_of_memory
from ..operations import Step
from ..operations._program import Ref
from ._kinks import COMPARISONS, kinked, shares
from ._network import Network, widened
from ._refusal import NotExactError

BITS = 52
GRID = 2.0**BITS
"""Break points are multiples of 1 / GRID, so that the widths between them are exact and add up to exactly 1."""

CLOSE = 2.0**-47
"""Break points closer than this are one."""

ROUNDS = 100
"""How often to look again for units that overtake others; each time a break point is found, or it ends."""


@dataclass(frozen=True)
class Line:
    """What a network gives along a line.

    Attributes:
        t: (P,) the break points, both ends included.
        values: (P, ...) what the network gives there, in float64.
    """

    t: Floats
    values: Tensor


@dataclass(frozen=True)
class Stretch:
    """A line, or a part of it."""

    line: int
    low: float = 0.0
    high: float = 1.0


class TooManyError(Exception):
    """Too many points to hold; with their middle, should they be those of a single stretch."""

    def __init__(self, middle: float) -> None:
        super().__init__(middle)
        self.middle = middle


class Part:
    """Stretches of lines on their way through a network.

    Each point has a whole number for a key, (P,) in rising order: which stretch, and t * GRID in the last bits.
    """

    def __init__(self, network: Network, start: Leaves, stop: Leaves, some: list[Stretch], memory: int, regions: Ints) -> None:
        self.network, self.memory, self.regions = network, memory, regions
        ends = np.array([[one.low, one.high] for one in some])
        self.key: Ints = ((np.arange(len(some))[:, None] << BITS + 1) + (ends * GRID).astype(np.int64)).ravel()
        at = torch.as_tensor(ends.ravel(), device=start[0].device)
        line = torch.tensor([one.line for one in some], device=at.device).repeat_interleave(2)
        pairs = enumerate(zip(start, stop, strict=True))
        # Each point is a batch of one, as the program was followed.
        self.values: dict[int, Any] = {i: torch.lerp(a[line], b[line], _along(at, a[0])).unsqueeze(1) for i, (a, b) in pairs}
        self.chosen: dict[int, Step] = {}
        self.sent: Ints = np.full(len(some), 2)  # points of each stretch, also of those that were given up

    @property
    def owner(self) -> Ints:
        """The stretch that each point is on."""
        return np.asarray(self.key >> BITS + 1)

    def run(self) -> dict[int, Line]:
        """What the network gives along each stretch, but for those with too many regions."""
        program = self.network.program
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # operations that torch runs row by row
            for number, step in enumerate(program.steps):
                wide = widened(step)
                if kinked(step):
                    self._break(wide)
                if not len(self.key):
                    return {}
                self._check_room(self.key, self.network.bytes[step.out])
                self.values[step.out] = self._apply(wide)
                for index in [*step.refs, step.out]:
                    if self.network.last.get(index, 0) <= number:
                        self.values.pop(index, None)
        t, values, owner = (self.key % (1 << BITS + 1)) / GRID, self.values[program.result], self.owner
        places = {int(i): np.flatnonzero(owner == i) for i in np.unique(owner)}
        return {i: Line(t[place], values[torch.as_tensor(place, device=values.device)]) for i, place in places.items()}

    def _apply(self, step: Step) -> Any:
        """What a step gives at every break point."""
        if step.picks:
            return self.values[step.args[0].index][step.args[1]]
        if step.name in COMPARISONS:  # its sides' difference, which can be interpolated; compared when it is used
            self.chosen[step.out] = step
            return _rows(step, self.values, lambda a, b: (a - b,))[0]
        given = {i: self._compared(i) for i in step.refs}
        out = _rows(step, given)
        return out[:1] if isinstance(out, tuple) and kinked(step) else out  # not the places of maxima: they are no numbers

    def _compared(self, index: int) -> Any:
        step = self.chosen.get(index)
        return self.values[index] if step is None else getattr(torch, step.name)(self.values[index], 0)

    def _break(self, step: Step) -> None:
        """Put in the kinks of a step."""
        for _ in range(ROUNDS):
            if not len(self.key):
                return
            new = self._new(shares(step, self.values, _rows))
            if not len(new):
                return
            every = np.sort(np.concatenate([self.key, new]))
            many = np.bincount(every >> BITS + 1, minlength=len(self.regions)) - 1 > self.regions
            if many.any():
                self._drop(many)
                new = new[~many[new >> BITS + 1]]
            if len(new):
                self._insert(new)
        raise NotExactError(f"the kinks of {step.name!r} lie too close to be told apart")

    def _drop(self, many: NDArray[np.bool_]) -> None:
        """Give up some stretches."""
        kept = np.flatnonzero(~many[self.owner])
        self.key = self.key[kept]

        def only(value: Any) -> Any:
            return tuple(map(only, value)) if isinstance(value, tuple) else value[torch.as_tensor(kept, device=value.device)]

        self.values = {index: only(value) for index, value in self.values.items()}

    def _check_room(self, keys: Ints, more: int = 0) -> None:
        """Whether twice all that is held fits at these points, with so many bytes more at each."""
        each = 2 * sum(self.network.bytes[index] for index in self.values) + more
        several = keys[0] >> BITS + 1 != keys[-1] >> BITS + 1
        if (several or len(keys) > 3) and each * len(keys) > self.memory:
            raise TooManyError(float(keys[len(keys) // 2] % (1 << BITS + 1)) / GRID)

    def _new(self, found: list[tuple[Tensor, Tensor]]) -> Ints:
        """Kinks that are not at break points already, (K,), sorted."""
        parts = []
        for stretch, share in found:
            index, place = stretch.cpu().numpy(), share.cpu().numpy()
            inside = self.owner[index] == self.owner[index + 1]  # not from the end of one line to the start of the next
            index, place = index[inside], place[inside]
            parts.append(self.key[index] + np.round((self.key[index + 1] - self.key[index]) * place).astype(np.int64))
        keys, near = np.unique(np.concatenate(parts)), int(CLOSE * GRID)
        left = np.clip(np.searchsorted(self.key, keys, side="right") - 1, 0, len(self.key) - 2)
        keys = keys[(keys - self.key[left] > near) & (self.key[left + 1] - keys > near)]
        return np.asarray(keys[np.diff(keys, prepend=-near - 1) > near])

    def _insert(self, new: Ints) -> None:
        """Put break points in, and interpolate everything there."""
        every = np.concatenate([self.key, new])
        order = np.argsort(every, kind="stable")
        self._check_room(every[order])
        left = np.searchsorted(self.key, new, side="right") - 1
        share = (new - self.key[left]) / (self.key[left + 1] - self.key[left])

        def filled(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(filled, value))
            here, weight, place = (torch.as_tensor(part, device=value.device) for part in (left, share, order))
            a, b = value[here], value[here + 1]
            between = torch.where(a == b, a, a + _along(weight, a[0]) * (b - a))  # equal: also where both are infinite
            return torch.cat([value, between])[place]

        self.values = {index: filled(value) for index, value in self.values.items()}
        self.key = every[order]
        self.sent = np.maximum(self.sent, np.bincount(self.owner, minlength=len(self.sent)))


def _along(t: Tensor, like: Tensor) -> Tensor:
    """Times (P,) in a shape that multiplies P values like this one."""
    return t.reshape(-1, *[1] * like.ndim)


def _rows(step: Step, values: dict[int, Any], function: Callable[..., Any] | None = None) -> Any:
    """Run a step, or another function of its arguments, at every point: values (P, ...) each."""
    refs = step.refs

    def one(*points: Any) -> Any:
        known = dict(zip(refs, points, strict=True))
        if function is None:
            return step(known)
        args, kwargs = _filled(step, known)
        return tuple(function(*args, **kwargs))

    try:
        return torch.func.vmap(one)(*(values[i] for i in refs))
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        raise NotExactError(
            f"the operation {step.name!r} cannot be run at many points: {str(error).splitlines()[0]}"
        ) from error


def _filled(step: Step, known: dict[int, Any]) -> tuple[list[Any], dict[str, Any]]:
    """A step's arguments with their values."""

    def value(arg: Any) -> Any:
        return known[arg.index] if isinstance(arg, Ref) else arg

    return [value(arg) for arg in step.args], {name: value(arg) for name, arg in step.kwargs.items()}
