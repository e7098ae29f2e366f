"""Time for tests: it passes when told to, whatever machine they run on."""

from __future__ import annotations


class Clock:
    """Stands in for the module ``time`` where that is read.

    Args:
        tick: seconds that pass whenever somebody looks.
    """

    def __init__(self, tick: float = 0.0) -> None:
        self.now, self.tick = 0.0, tick

    def perf_counter(self) -> float:
        self.now += self.tick
        return self.now
