"""Asking a GPU for the next chunk before the last one is looked at, so that neither waits for the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats

T = TypeVar("T")


@dataclass(frozen=True)
class PendingTransfer:
    """Numbers on their way from a device.

    Attributes:
        host: where they go.
        there: when they are there; None where they are already.
    """

    host: Tensor
    there: torch.cuda.Event | None = None

    @staticmethod
    def of(tensor: Tensor) -> PendingTransfer:
        """Send them, after what the device was asked for so far and before what it is asked for from now on."""
        if tensor.device.type != "cuda":
            return PendingTransfer(tensor.cpu())
        host = tensor.to("cpu", non_blocking=True)  # into pinned memory
        there = torch.cuda.Event()
        there.record(torch.cuda.current_stream(tensor.device))
        return PendingTransfer(host, there)

    def numpy(self) -> Floats:
        """Wait for them."""
        if self.there is not None:
            self.there.synchronize()
        return np.asarray(self.host.double().numpy())


def one_behind(items: Iterable[T]) -> Iterator[T]:
    """The same items, each after the next one has been asked for.

    >>> def asked():
    ...     for number in range(3):
    ...         print("ask", number)
    ...         yield number
    >>> for number in one_behind(asked()):
    ...     print("look at", number)
    ask 0
    ask 1
    look at 0
    ask 2
    look at 1
    look at 2
    """
    last: list[T] = []
    for item in items:
        yield from last
        last = [item]
    yield from last
