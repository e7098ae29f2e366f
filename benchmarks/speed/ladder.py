"""The fewest steps with which a fixed rule reaches an error, which its user would have to find by trial."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

RUNGS: tuple[int, ...] = (3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 400, 600, 800)
RUNGS += (1000, 1400, 2000)
SHARE = 0.95
"""Of the inputs that one number of steps is to bring within the error."""


class OutOfTime(Exception):
    """The next trial would take longer than what is left."""


@dataclass
class Climb:
    """Trials on one input.

    Attributes:
        error_at: the error with so many steps.
        tried: steps to error, what is known already.
        limit: seconds for new trials.
        spent: seconds.
        pace: seconds per step of the last trial.
    """

    error_at: Callable[[int], float]
    tried: dict[int, float] = field(default_factory=dict)
    limit: float = math.inf
    spent: float = 0.0
    pace: float = 0.0

    def fewest(self, tol: float, start: int = RUNGS[0]) -> int | None:
        """The fewest steps that reach the error; None if the last rung does not.

        From ``start`` up until the error is reached, then down until two rungs in a row do not reach it: errors of networks
        with kinks do not fall evenly, and a lucky rung is Captum's luck.

        Raises:
            OutOfTime: before a rung was found.
        """
        at = min(range(len(RUNGS)), key=lambda i: abs(math.log(RUNGS[i] / start)))
        while self.error(RUNGS[at]) > tol:
            at += 1
            if at == len(RUNGS):
                return None
        best, missed = at, 0
        try:
            while at > 0 and missed < 2:
                at -= 1
                if self.error(RUNGS[at]) <= tol:
                    best, missed = at, 0
                else:
                    missed += 1
        except OutOfTime:
            pass
        return RUNGS[best]

    def error(self, steps: int) -> float:
        """The error with so many steps, remembered."""
        if steps not in self.tried:
            if self.spent + self.pace * steps > self.limit:
                raise OutOfTime
            start = time.perf_counter()
            self.tried[steps] = self.error_at(steps)
            seconds = time.perf_counter() - start
            self.spent, self.pace = self.spent + seconds, seconds / steps
        return self.tried[steps]


def for_all(fewest: Sequence[int | None]) -> int | None:
    """The one number of steps that suffices for :data:`SHARE` of the inputs; None if no rung does."""
    ranked = sorted(math.inf if one is None else one for one in fewest)
    steps = ranked[math.ceil(SHARE * len(ranked)) - 1] if ranked else math.inf
    return None if math.isinf(steps) else int(steps)


def next_rung(steps: int) -> int | None:
    """The rung above."""
    return next((rung for rung in RUNGS if rung > steps), None)
