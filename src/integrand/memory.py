"""Running work chunk by chunk, and trying again with smaller chunks: the only loop that does so.

Smaller chunks are tried after running out of memory, and single rows where a model takes no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .errors import IntegrandError, MemoryBackoffWarning, MemoryLimitError, warn

T = TypeVar("T")


class ChunkSizes(Protocol):
    """How many rows go into a chunk, which may change while chunks run."""

    def rows(self, left: int) -> int:
        """The number of rows of the next chunk, where so many are left."""
        ...

    def shrink(self, tried: int, error: BaseException) -> None:
        """Take fewer rows from now on, after so many did not fit into memory."""
        ...

    def took(self, rows: int, seconds: float) -> None:
        """Note how long a chunk took, for those that choose their size by the clock."""
        ...

    def retry(self, tried: int, error: Exception) -> bool:
        """After an error other than lack of memory with so many rows: whether to run them again, in another way."""
        ...


@dataclass
class SingleRows:
    """Whether a model takes single rows only, as one does that was traced with one or that reshapes to ``(1, -1)``.

    Attributes:
        ran: whether any chunk has run.
        refused: the error of the first chunk of several rows, until a single row has run.
    """

    ran: bool = False
    refused: Exception | None = None

    def took(self) -> None:
        """Note that a chunk has run."""
        self.ran, self.refused = True, None

    def try_one(self, tried: int, error: Exception) -> bool:
        """After an error with the very first chunk: whether to try one row. Where that fails too, raises the first error."""
        if self.refused is not None:
            raise self.refused
        if self.ran or tried < 2 or isinstance(error, IntegrandError):
            return False
        self.refused = error
        return True


@dataclass
class Halving:
    """The simplest chunk sizes: a number of rows that is halved whenever they do not fit into memory.

    Attributes:
        size: rows of a chunk.
        whole: whether an error with several rows is the user's to see, rather than a reason to try one row at a time.
    """

    size: int
    whole: bool = False
    single: SingleRows = field(default_factory=SingleRows)

    def rows(self, left: int) -> int:
        """The number of rows of the next chunk, whatever is left."""
        return self.size

    def shrink(self, tried: int, error: BaseException) -> None:
        """Halve the number of rows."""
        self.size = smaller(tried, error)

    def took(self, rows: int, seconds: float) -> None:
        """Nothing is chosen by the clock."""
        self.single.took()

    def retry(self, tried: int, error: Exception) -> bool:
        """Whether to go on with one row at a time."""
        if self.whole or not self.single.try_one(tried, error):
            return False
        self.size = 1
        return True


def in_chunks(run: Callable[[slice], T], part: slice, sizes: ChunkSizes, *, step: int | None = None) -> Iterator[T]:
    """What ``run`` gives for one chunk of rows after the other.

    A chunk that does not fit into memory is run again in smaller ones, and a first chunk that fails otherwise is run again row
    by row; at a single row that fails, too, this gives up.

    >>> list(in_chunks(lambda rows: rows.stop - rows.start, slice(0, 10), Halving(4)))
    [4, 4, 2]

    Args:
        run: evaluates a slice of the rows.
        part: all rows.
        sizes: how many rows at a time.
        step: let chunks hold whole steps of so many rows, or parts of one step.
    """
    start = part.start
    while start < part.stop:
        here = cut(start, part.stop, sizes.rows(part.stop - start), step)
        began = time.perf_counter()
        try:
            done = run(here)
        except Exception as error:
            if out_of_memory(error):
                sizes.shrink(here.stop - start, error)
            elif not sizes.retry(here.stop - start, error):
                raise
            continue
        sizes.took(here.stop - start, time.perf_counter() - began)
        yield done
        start = here.stop


def cut(start: int, stop: int, size: int, step: int | None) -> slice:
    """The next chunk of about ``size`` rows; with ``step``, whole steps of so many rows, or part of one step."""
    if step is not None:
        begun = start % step
        size = min(size, step - begun) if begun or size < step else size // step * step
    return slice(start, min(start + size, stop))


def all_rows(run: Callable[[Tensor], T], examples: int, device: torch.device, *, whole: bool = True) -> list[T]:
    """Call ``run`` once with the indices of all examples; in parts only where they do not fit into memory together.

    Args:
        run: gives something for some examples.
        examples: how many there are.
        device: where their indices are wanted.
        whole: whether any other error with several examples is the user's to see, rather than a reason to try them one by one.
    """

    def some(part: slice) -> T:
        return run(torch.arange(part.start, part.stop, device=device))

    return list(in_chunks(some, slice(0, examples), Halving(examples, whole=whole)))


def joined(parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Outputs of parts of a batch as one: tensors with a row per example are concatenated, the rest comes from the first.

    >>> joined([(torch.tensor([1, 2]), "a"), (torch.tensor([3]), "a")], [2, 1])
    (tensor([1, 2, 3]), 'a')
    """
    if len(parts) == 1:
        return parts[0]
    flat = [pytree.tree_flatten(part) for part in parts]
    leaves = []
    for column in zip(*(found for found, _ in flat), strict=True):
        rows = all(isinstance(t, Tensor) and t.ndim and t.shape[0] == n for t, n in zip(column, sizes, strict=True))
        leaves.append(torch.cat(column) if rows else column[0])
    return pytree.tree_unflatten(leaves, flat[0][1])


def repeated(output: Any, count: int) -> Any:
    """The output for one row as that for ``count`` equal rows: tensors with one row are expanded, which takes no memory.

    >>> repeated((torch.tensor([[1, 2]]), "a"), 3)[0].shape
    torch.Size([3, 2])
    """

    def wide(leaf: Any) -> Any:
        rows = isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == 1
        return leaf.expand(count, *leaf.shape[1:]) if rows else leaf

    return pytree.tree_map(wide, output)


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on any device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) and not isinstance(error, MemoryLimitError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def warn_lighter() -> None:
    """Say that a single row takes less memory from now on, at the cost of time; and give back what nobody uses."""
    warn(
        "out of memory with a single row at a time; going on with activations recomputed block by block. Pass memory= "
        "(bytes) to start there.",
        MemoryBackoffWarning,
    )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def smaller(tried: int, error: BaseException, lighter: Callable[[], bool] | None = None) -> int:
    """How many rows to try after running out of memory with ``tried`` of them; an error at a single row.

    Args:
        tried: rows that did not fit.
        error: what was raised.
        lighter: lets a row take less memory from now on; whether it could.
    """
    if tried <= 1 and lighter is not None and lighter():
        warn_lighter()
        return 1
    if tried <= 1:
        raise MemoryLimitError(
            f"out of memory with a single row at a time ({error}). Expected room for one forward and backward pass, where "
            "possible with activations recomputed block by block; use a smaller input (a shorter text), a device with more "
            "memory, a model spread over several (device_map), or smaller blocks in one nn.ModuleList or nn.Sequential."
        ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    size = max(1, tried // 2)
    warn(
        f"out of memory with {tried} rows at a time; going on with {size}. Pass chunk={size} to start there.",
        MemoryBackoffWarning,
    )
    return size
