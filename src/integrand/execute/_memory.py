"""How many rows at a time: measured on the first chunk, made smaller when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..functions._parts import smaller
from ._remember import release
from ._tune import Setting, Tuning

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
