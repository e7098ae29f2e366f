"""How many rows a model is run with at a time.

The size follows from what autograd saves for a row, which is counted on the first chunk, so that the same call has the same
chunks and gives the same bits. Trying other sizes and memory layouts by the clock is left to users who ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..functions.model_notes import release_graphs
from ..memory import SingleRows, smaller

ACTIVATION_BYTES = {"cpu": 512 << 20, "cuda": 8 << 30}
"""Saved activations per chunk, at the most; and no more than an eighth of a GPU's memory."""

CACHE_BYTES, FEW_ROWS = 4 << 20, 8
"""On a CPU, chunks beyond these bytes fall out of the caches and are slower, not faster; but so many rows always pay."""

SMALL_BYTES, MANY_ROWS = 1 << 20, 32
"""Models that save no more than this for a row are run with at least so many: most of their time passes between operations."""

FIRST_BYTES = 1 << 18
"""Inputs in the first chunk, on which the rest is measured."""

MOST_ROWS = 16384
"""Rows of any chunk, at the most."""

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The layout with channels last that an input with so many dimensions may have."""


@dataclass
class Chunks:
    """The number of rows to run at a time; see :class:`~integrand.memory.ChunkSizes`.

    Attributes:
        size: rows per chunk; starts small and is set by the first measurement.
        target: bytes of saved activations, at the most.
        few: rows beyond which only what fits the caches pays.
        measured: whether the size has been measured, or named by the user; then only lack of memory changes it.
        row_bytes: bytes that autograd saves for a row; 0 before they are measured.
        point_bytes: bytes that a row takes besides: the point itself, its gradient, and that times the velocity.
        tuning: what other sizes and layouts take, where the user asked for that to be found out; else None.
        tunes: whether to find that out.
        layouts: whether the inputs have channels, whose order in memory may matter.
        single: whether the model takes one row at a time only.
        limited: whether the user named the memory that a run may hold.
        lighter: lets rows take less memory from now on, at the cost of time; whether it could.
        named: whether the user named the size.
    """

    size: int
    target: int
    few: int
    measured: bool
    row_bytes: int = 0
    point_bytes: int = 0
    tuning: Tuning | None = None
    tunes: bool = False
    layouts: bool = False
    single: SingleRows = field(default_factory=SingleRows)
    limited: bool = False
    lighter: Callable[[], bool] | None = None
    named: bool = False

    @staticmethod
    def start(
        device: torch.device,
        *,
        rows: int | None,
        memory: int | None,
        input_bytes: int | None = None,
        share: int = 1,
        tunes: bool = False,
        layouts: bool = False,
    ) -> Chunks:
        """The chunks for a device and the user's options; small inputs start with more rows.

        Args:
            device: where the model runs.
            rows: the size that the user named.
            memory: bytes that the run may hold.
            input_bytes: bytes of one input, where they matter.
            share: how many chunks run at a time in the same memory.
            tunes: whether to try other sizes and layouts by the clock.
            layouts: whether the inputs have channels, whose order in memory may matter.
        """
        target = ACTIVATION_BYTES.get(device.type, 1 << 30)
        if device.type == "cuda":
            target = min(target, torch.cuda.get_device_properties(device).total_memory // 8)
        if memory is not None:
            target = min(target, memory // 3)
        first = rows or min(max(FIRST_BYTES // (input_bytes or 1 << 30), 2 if memory is None else 1), 256)
        few = FEW_ROWS if device.type == "cpu" else MOST_ROWS
        chunks = Chunks(first, max(target // share, 1), few, measured=rows is not None)
        chunks.point_bytes, chunks.layouts = 3 * (input_bytes or 0), layouts
        chunks.limited, chunks.named = memory is not None, rows is not None
        chunks.tunes = tunes and device.type == "cpu" and rows is None
        return chunks

    @contextmanager
    def measuring(self, rows: int) -> Iterator[None]:
        """Count the bytes that autograd saves for these rows, on the first chunk only, and set the size by it."""
        if self.row_bytes:
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
        self.set_row_bytes(max(1, sum(saved.values()) // rows))

    def measure_again(self) -> None:
        """Measure rows anew, which take about twice as much from now on."""
        self.row_bytes, self.measured, self.tuning = 0, self.named, None
        self.size = self.size if self.named else max(1, self.size // 2)

    def set_row_bytes(self, row_bytes: int) -> None:
        """Set the size by the bytes that autograd saves for a row, unless the user named the size."""
        self.row_bytes = row_bytes
        if self.measured:
            return
        self.measured = True
        few = max(self.few, MANY_ROWS) if row_bytes <= SMALL_BYTES else self.few
        self.size = min(self._most(), max(few, CACHE_BYTES // row_bytes))
        if self.tunes and self.tuning is None:
            self.tuning = Tuning(Setting(self.size), self._most(), self.layouts)
        elif self.tuning is not None:
            self.tuning.most = self._most()
            self.size = min(self.tuning.now.rows, self.tuning.most)

    def has_room(self, row_bytes: int) -> bool:
        """Whether a single row fits, for which autograd saves so many bytes."""
        return row_bytes + self.point_bytes <= self.target

    def _most(self) -> int:
        """Rows that memory has room for."""
        return int(min(max(self.target // (self.row_bytes + self.point_bytes), 1), MOST_ROWS))

    def hold(self) -> None:
        """Keep the size from now on: how long a chunk takes says nothing about other sizes."""
        self.tuning, self.tunes = None, False

    def rows(self, left: int) -> int:
        """The size of chunks for so many rows, none of which is much smaller than the others; all equal while tuning."""
        if self.tuning is not None and not self.tuning.done:
            return self.size
        return -(-left // -(-left // self.size))

    def shrink(self, tried: int, error: BaseException) -> None:
        """Halve the size after running out of memory, or let a single row take less; CUDA graphs make room, too."""
        release_graphs()
        self.size = smaller(tried, error, self.lighter)
        self.measured, self.tuning = True, None

    def took(self, rows: int, seconds: float) -> None:
        """Note that a chunk has run, and, where sizes are tuned, how long a whole one took."""
        self.single.took()
        if self.tuning is not None and rows == self.size == self.tuning.now.rows:
            self.tuning.took(seconds)
            self.size = self.tuning.now.rows

    def untimed(self) -> Untimed:
        """The same sizes for work whose time says nothing about a forward and backward pass."""
        return Untimed(self)

    def retry(self, tried: int, error: Exception) -> bool:
        """After an error: whether to go on in another way.

        Where channels came last, which models that use ``view`` refuse, they come first from now on; where the first rows of
        all do not run together, they run one by one, unless the user named a size.
        """
        if self.tuning is not None and self.tuning.refuse_channels_last():
            self.size = min(self.tuning.now.rows, self.tuning.most)
            return True
        named = self.measured and self.single.refused is None
        if named or not self.single.try_one(tried, error):
            return False
        self.size, self.measured = 1, True
        self.hold()
        return True

    @property
    def channels_last(self) -> bool:
        """Whether to hand the model inputs with their channels last in memory."""
        return self.tuning is not None and self.tuning.now.channels_last


@dataclass(frozen=True)
class Untimed:
    """The sizes of some chunks, for work that is not to be timed."""

    chunks: Chunks

    def rows(self, left: int) -> int:
        """The number of rows of the next chunk, where so many are left."""
        return self.chunks.rows(left)

    def shrink(self, tried: int, error: BaseException) -> None:
        """Take fewer rows from now on, after so many did not fit into memory."""
        self.chunks.shrink(tried, error)

    def took(self, rows: int, seconds: float) -> None:
        """Nothing is learnt from the time but that the chunk has run."""
        self.chunks.single.took()

    def retry(self, tried: int, error: Exception) -> bool:
        """Whether to run the chunk again, with channels first or row by row."""
        return self.chunks.retry(tried, error)


TRIALS = 2
"""Chunks by which a setting is judged: the first of its kind often takes longer, and the faster one counts."""

CLOSE = 1.05
"""Within this factor of the best, fewer rows are better: they take less memory."""

LEAST_SECONDS = 2e-3
"""Chunks that take less than this are not worth tuning, nor can they be told apart."""


@dataclass(frozen=True, order=True)
class Setting:
    """Rows at a time, and whether channels come last in memory."""

    rows: int
    channels_last: bool = False


@dataclass
class Tuning:
    """Finds the chunk size and layout that take least time per row, on chunks that have to be evaluated anyway.

    On a CPU that depends on caches, on the number of cores and on how well a model's operations are threaded, and no rule gets
    it right: for image networks 4 to 16 rows are best, recurrent networks want all there are, and convolutions may be faster
    with channels last. What is next to the best so far is tried until nothing is left to try; with ``tune=True`` the next run
    with the same model goes on from there.

    >>> tuning = Tuning(Setting(8), most=32)
    >>> while not tuning.done: tuning.took(0.1 + 0.01 * tuning.now.rows)  # nearly half as long a row for twice the rows
    >>> tuning.now
    Setting(rows=32, channels_last=False)

    Attributes:
        now: the setting to use.
        most: rows that fit into memory.
        layouts: whether the order in memory may matter.
        seconds: times per row, by setting.
        done: whether there is nothing left to try.
    """

    now: Setting
    most: int
    layouts: bool = False
    seconds: dict[Setting, list[float]] = field(default_factory=dict)
    done: bool = False

    def took(self, seconds: float) -> None:
        """Note what a whole chunk took, and choose what to run next."""
        if self.done or seconds < LEAST_SECONDS:
            return
        tried = self.seconds.setdefault(self.now, [])
        tried.append(seconds / self.now.rows)
        if len(tried) < TRIALS:
            return
        best = self._best()
        left = [setting for setting in self._beside(best) if setting not in self.seconds]
        self.now, self.done = (left[0], False) if left else (best, True)

    def refuse_channels_last(self) -> bool:
        """Do without channels last, which the model does not take; False where that was not what ran."""
        if not self.now.channels_last:
            return False
        self.seconds = {setting: tried for setting, tried in self.seconds.items() if not setting.channels_last}
        self.layouts = False
        self.now, self.done = (self._best() if self.seconds else Setting(self.now.rows)), False
        return True

    def _best(self) -> Setting:
        least = min(map(min, self.seconds.values()))
        return min(setting for setting, tried in self.seconds.items() if min(tried) <= CLOSE * least)

    def _beside(self, best: Setting) -> list[Setting]:
        """The settings next to the best one, in the order in which to try them."""
        rows = [2 * best.rows] * (2 * best.rows <= self.most) + [best.rows // 2] * (best.rows >= 4)
        return [Setting(count, best.channels_last) for count in rows] + [
            Setting(best.rows, not best.channels_last)
        ] * self.layouts
