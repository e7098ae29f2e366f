"""How many rows at a time, and in which order in memory: what takes least time on this machine, for this model.

On a CPU that depends on caches, on the number of cores and on how well a model's operations are threaded, and no rule gets it
right: for image networks 4 to 16 rows are best, recurrent networks want all there are, and convolutions may be faster with
channels last. So a run tries what is next to the best so far, on chunks that it has to evaluate anyway, until nothing is left
to try; the next run with the same model goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TRIALS = 2
"""Chunks by which a setting is judged: the first of its kind often takes longer, and the faster one counts."""

CLOSE = 1.05
"""Within this of the best, fewer rows are better: they take less memory."""

LEAST_SECONDS = 2e-3
"""Chunks that take less are not worth the trouble, nor can they be told apart."""


@dataclass(frozen=True, order=True)
class Setting:
    """Rows at a time, and whether channels come last in memory."""

    rows: int
    last: bool = False


@dataclass
class Tuning:
    """What was tried, and what comes next.

    >>> tuning = Tuning(Setting(8), most=32)
    >>> while not tuning.settled: tuning.took(0.1 + 0.01 * tuning.now.rows)  # half as long a row for twice the rows, nearly
    >>> tuning.now
    Setting(rows=32, last=False)

    Attributes:
        now: the setting to use.
        most: rows that fit into memory.
        layouts: whether the order in memory may matter.
        seconds: the least time per row, by setting.
        settled: whether there is nothing left to try.
    """

    now: Setting
    most: int
    layouts: bool = False
    seconds: dict[Setting, list[float]] = field(default_factory=dict)
    settled: bool = False

    def took(self, seconds: float) -> None:
        """Note what a whole chunk took, and choose what to run next."""
        if self.settled or seconds < LEAST_SECONDS:
            return
        tried = self.seconds.setdefault(self.now, [])
        tried.append(seconds / self.now.rows)
        if len(tried) < TRIALS:
            return
        best = self._best()
        left = [setting for setting in self._beside(best) if setting not in self.seconds]
        self.now, self.settled = (left[0], False) if left else (best, True)

    def refuse_last(self) -> bool:
        """Do without channels last, which the model does not take; False where that was not what ran."""
        if not self.now.last:
            return False
        self.seconds = {setting: tried for setting, tried in self.seconds.items() if not setting.last}
        self.layouts = False
        self.now, self.settled = (self._best() if self.seconds else Setting(self.now.rows)), False
        return True

    def _best(self) -> Setting:
        least = min(map(min, self.seconds.values()))
        return min(setting for setting, tried in self.seconds.items() if min(tried) <= CLOSE * least)

    def _beside(self, best: Setting) -> list[Setting]:
        """What to try next to the best, in order."""
        rows = [2 * best.rows] * (2 * best.rows <= self.most) + [best.rows // 2] * (best.rows >= 4)
        return [Setting(count, best.last) for count in rows] + [Setting(best.rows, not best.last)] * self.layouts
