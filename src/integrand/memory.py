"""Running something once on every row, in parts where all of them do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .errors import MemoryBackoffWarning, MemoryLimitError, warn

T = TypeVar("T")


def in_parts(run: Callable[[Tensor], T], examples: int, device: torch.device) -> list[T]:
    """Call ``run`` with rows 0, 1, ... of all examples: at once, or in halves and less after running out of memory."""
    done: list[T] = []
    size, start = examples, 0
    while start < examples:
        rows = torch.arange(start, min(start + size, examples), device=device)
        try:
            done.append(run(rows))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            size = smaller(len(rows), error)
            continue
        start += len(rows)
    return done


def joined(parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Outputs of parts of a batch as one: tensors with a row per example one after the other, the rest from the first.

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


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on any device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) and not isinstance(error, MemoryLimitError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def smaller(tried: int, error: BaseException) -> int:
    """How many rows to try after running out of memory with so many; gives up at one row."""
    if tried <= 1:
        raise MemoryLimitError(
            f"out of memory with a single row at a time ({error}). Expected room for one forward and backward pass; "
            "use a smaller input, a device with more memory, or activation checkpointing in the model."
        ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    size = max(1, tried // 2)
    warn(
        f"out of memory with {tried} rows at a time; going on with {size}. Pass chunk={size} to start there.",
        MemoryBackoffWarning,
    )
    return size
