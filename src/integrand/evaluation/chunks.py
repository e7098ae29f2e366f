"""How many rows at a time: measured on the first chunk, made smaller when memory runs out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from ..functions.model_notes import release
from ..memory import out_of_memory, smaller

if TYPE_CHECKING:
    pass
T = TypeVar("T")
Run = Callable[[slice], T]
"""Evaluates the nodes of a slice."""


def in_turn(run: Run[T], part: slice, chunks: Chunks, step: int | None, *, timed: bool = True) -> Iterator[T]:
    """Evaluate nodes chunk by chunk; a chunk that does not fit into memory is tried again in smaller ones.

    Args:
        run: what to do with a slice of the nodes.
        part: all of them.
        chunks: how many at a time.
        step: see :func:`cut`.
        timed: whether what a chunk takes says what others will: forward and backward, once.
    """
    start = part.start
    while start < part.stop:
        here = cut(start, part.stop, chunks.even(part.stop - start), step)
        began = time.perf_counter()
        try:
            done = run(here)
        except Exception as error:
            if not out_of_memory(error):
                if chunks.refuse_last():
                    continue
                raise
            chunks.shrink(here.stop - start, error)
            continue
        if timed:
            chunks.took(here.stop - start, time.perf_counter() - began)
        yield done
        start = here.stop


def cut(start: int, stop: int, size: int, step: int | None) -> slice:
    """The next chunk of about ``size`` nodes: with ``step``, whole steps of so many nodes, or part of one step."""
    if step is not None:
        begun = start % step
        size = min(size, step - begun) if begun or size < step else size // step * step
    return slice(start, min(start + size, stop))


CHUNK_BYTES = {"cpu": 512 << 20, "cuda": 8 << 30}
"""Saved activations per chunk, at the most; and no more than an eighth of a GPU's memory."""

CACHE_BYTES = 4 << 20
"""On a CPU, chunks beyond this fall out of the caches and are slower, not faster; but eight rows always pay. There a run starts
from, until it knows better (:mod:`._tune`)."""

SMALL_BYTES, MANY = 1 << 20, 32
"""Models that save no more than this for a row are run with at least so many: most of their time passes between operations."""

FIRST_BYTES = 1 << 18
"""Inputs in the first chunk, on which the rest is measured."""

MOST_ROWS = 16384
STORE_BYTES = 1 << 30
"""Gradients that the adaptive control may keep, where the user names no limit."""

BLOCK_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}
"""Float64 copies of kept gradients that are worked on at a time, likewise; on a GPU small parts take as long as large ones."""


@dataclass
class Chunks:
    """The number of rows to run at a time.

    Attributes:
        size: rows per chunk; starts small and is settled by the first measurement.
        target: bytes of saved activations, at the most.
        few: rows beyond which only what fits the caches pays.
        settled: whether the size has been measured, or named by the user; then only lack of memory changes it.
        each: bytes that autograd saves for a row; 0 before they are measured.
        beside: bytes that a row takes besides: the point itself, its gradient, and that times the velocity.
        tuning: what other sizes take, where that is found out; None where the size is not to change.
        layouts: whether the inputs have channels, whose order in memory may matter.
        fixed: whether nothing is to be tried, see :meth:`fix`.
    """

    size: int
    target: int
    few: int
    settled: bool
    each: int = 0
    beside: int = 0
    tuning: Tuning | None = None
    layouts: bool = False
    fixed: bool = False

    @staticmethod
    def start(
        device: torch.device,
        *,
        rows: int | None,
        memory: int | None,
        row_bytes: int | None = None,
        each: int = 0,
        crowd: int = 1,
        layouts: bool = False,
    ) -> Chunks:
        """A policy for a device, with the user's wishes; small inputs start with more rows.

        Args:
            device: where the model runs.
            rows: what the user named.
            memory: bytes that the run may hold.
            row_bytes: of the input, where they matter.
            each: bytes that autograd saves for a row, where they are known from before.
            crowd: how many chunks run at a time, in the same memory.
            layouts: whether the inputs have channels, whose order in memory may matter.
        """
        target = CHUNK_BYTES.get(device.type, 1 << 30)
        if device.type == "cuda":
            target = min(target, torch.cuda.get_device_properties(device).total_memory // 8)
        if memory is not None:
            target = min(target, memory // 3)
        first = rows or min(max(FIRST_BYTES // (row_bytes or 1 << 30), 2 if memory is None else 1), 256)
        chunks = Chunks(first, max(target // crowd, 1), 8 if device.type == "cpu" else MOST_ROWS, settled=rows is not None)
        chunks.layouts, chunks.beside = layouts, 3 * (row_bytes or 0)
        if each:
            chunks._settle(each)
        return chunks

    @contextmanager
    def measuring(self, rows: int) -> Iterator[None]:
        """Count the bytes that autograd saves for these rows and settle the size by it."""
        if self.each:
            yield
            return
        saved: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            base = tensor if tensor._base is None else tensor._base
            if not isinstance(base, nn.Parameter):  # weights are there once, however many rows
                storage = tensor.untyped_storage()
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield
        self._settle(max(1, sum(saved.values()) // rows))

    def _settle(self, each: int) -> None:
        self.each = each
        if self.settled:
            return
        self.settled = True
        few = max(self.few, MANY) if self.each <= SMALL_BYTES else self.few
        wanted = max(few, CACHE_BYTES // self.each)
        self.size = min(self._most(), wanted)
        if self.few < MOST_ROWS and not self.fixed:
            self.tuning = Tuning(Setting(self.size), self._most(), self.layouts)

    def _most(self) -> int:
        """Rows that memory has room for."""
        return int(min(max(self.target // (self.each + self.beside), 1), MOST_ROWS))

    def resume(self, tuning: Tuning) -> None:
        """Go on from what was found before, with the memory of this run."""
        if self.tuning is None:
            return
        tuning.most = self._most()
        self.tuning, self.size = tuning, min(tuning.now.rows, tuning.most)

    def fix(self) -> None:
        """Stay with this size: what chunks take says nothing about others."""
        self.tuning, self.fixed = None, True

    def refuse_last(self) -> bool:
        """After an error: whether channels came last, which models that use ``view`` refuse. From now on they do not."""
        if self.tuning is None or not self.tuning.refuse_last():
            return False
        self.size = min(self.tuning.now.rows, self.tuning.most)
        return True

    @property
    def last(self) -> bool:
        """Whether to hand the model inputs with their channels last in memory."""
        return self.tuning is not None and self.tuning.now.last

    def even(self, rows: int) -> int:
        """The size of chunks for so many rows, none of which is much smaller than the others; all the same while trying."""
        if self.tuning is not None and not self.tuning.settled:
            return self.size
        return -(-rows // -(-rows // self.size))

    def took(self, rows: int, seconds: float) -> None:
        """Note what a chunk took."""
        if self.tuning is not None and rows == self.size == self.tuning.now.rows:
            self.tuning.took(seconds)
            self.size = self.tuning.now.rows

    def shrink(self, tried: int, error: BaseException) -> None:
        """Halve after running out of memory; give up at one row."""
        release()
        self.size = smaller(tried, error)
        self.settled, self.tuning = True, None


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
