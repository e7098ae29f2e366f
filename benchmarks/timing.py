"""Timing side by side: the competitors take turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def alternate(contestants: dict[str, Callable[[], object]], rounds: int, warm_up: int = 1) -> dict[str, float]:
    """Median seconds of each, after warming up."""
    for run in contestants.values():
        for _ in range(warm_up):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
