"""The fewest steps with which a method reaches an error, which its user would have to find by trial."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

RUNGS: tuple[int, ...] = (
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    14,
    17,
    20,
    25,
    30,
    40,
    50,
    60,
    75,
    100,
    125,
    150,
    175,
    200,
    250,
    300,
    400,
    500,
    600,
    800,
)
RUNGS += (1000, 1250, 1500, 2000, 2500, 3000, 4000, 5000)


class OutOfTime(Exception):
    """The next trial would take longer than what is left."""


@dataclass
class Climb:
    """Trials so far.

    Attributes:
        error_at: the error with so many steps.
        most: steps.
        limit: seconds for all trials together.
        plateau: give up where more steps do not help, as with too coarse a precision.
        tried: steps to error.
        spent: seconds.
        pace: seconds per step of the last trial.
    """

    error_at: Callable[[int], float]
    most: int = RUNGS[-1]
    limit: float = math.inf
    plateau: bool = False
    tried: dict[int, float] = field(default_factory=dict)
    spent: float = 0.0
    pace: float = 0.0

    def fewest(self, tolerances: Sequence[float]) -> dict[float, int]:
        """For each tolerance that is reached the fewest steps of the ladder, if more steps are better."""
        found: dict[float, int] = {}
        for tol in sorted(tolerances, reverse=True):
            try:
                while self._first(tol) is None:
                    self._try(self._next(tol))
                while (middle := self._between(tol)) is not None:
                    self._try(middle)
            except OutOfTime:
                pass
            steps = self._first(tol)
            if steps is None:
                break
            found[tol] = steps
        return found

    @property
    def closest(self) -> tuple[int, float]:
        """Steps and error of the best trial; NaN before the first."""
        return min(self.tried.items(), key=lambda pair: pair[1], default=(0, math.nan))

    def _try(self, steps: int) -> None:
        if self.spent + self.pace * steps > self.limit:
            raise OutOfTime
        start = time.perf_counter()
        self.tried[steps] = self.error_at(steps)
        seconds = time.perf_counter() - start
        if len(self.tried) > 1:  # the first trial also imports and warms up
            self.spent, self.pace = self.spent + seconds, seconds / steps

    def _first(self, tol: float) -> int | None:
        return min((steps for steps, error in self.tried.items() if error <= tol), default=None)

    def _next(self, tol: float) -> int:
        """One rung up, or as far as half the progress that the last two trials promise."""
        if not self.tried:
            return RUNGS[0]
        steps = sorted(self.tried)[-3:]
        errors = [self.tried[one] for one in steps]
        last, target = steps[-1], 0.0
        if last >= self.most or (self.plateau and last >= 20 and errors[-1] > 0.9 * errors[0]):
            raise OutOfTime
        if last >= 10:
            order = math.log(errors[-2] / max(errors[-1], 1e-30)) / math.log(last / steps[-2])
            target = last * min((errors[-1] / tol) ** (0.5 / min(max(order, 0.5), 8.0)), 4.0)
        above = [rung for rung in RUNGS if last < rung <= self.most]
        return max([rung for rung in above if rung <= target], default=above[0])

    def _between(self, tol: float) -> int | None:
        """The middle of the rungs that were passed over on the way to the first that does."""
        high = self._first(tol)
        assert high is not None
        low = max((steps for steps in self.tried if steps < high), default=0)
        skipped = [rung for rung in RUNGS if low < rung < high]
        return skipped[len(skipped) // 2] if skipped and low else None
