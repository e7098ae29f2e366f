"""What belongs to a thread in torch, carried over to another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Caller:
    """What is thread-local in torch, as it was in the caller."""

    grad: bool
    inference: bool
    default: torch.device
    casts: tuple[tuple[str, torch.dtype, bool], ...]
    cache: bool
    cuda: int | None
    streams: tuple[torch.cuda.Stream, ...]

    @staticmethod
    def now(devices: set[torch.device]) -> Caller:
        """The state of the thread that asks, as far as it matters on some devices."""
        kinds = sorted({"cpu", *(device.type for device in devices)})
        casts = [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds]
        cuda = [device for device in devices if device.type == "cuda"]
        return Caller(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_device(),
            tuple(cast for cast in casts if cast[2]),
            torch.is_autocast_cache_enabled(),
            torch.cuda.current_device() if cuda else None,
            tuple(torch.cuda.current_stream(device) for device in cuda),
        )

    @contextmanager
    def state(self) -> Iterator[None]:
        """The same state in another thread."""
        with ExitStack() as stack:
            for stream in self.streams:
                stack.enter_context(torch.cuda.stream(stream))
            if self.cuda is not None:
                stack.enter_context(torch.cuda.device(self.cuda))
            if self.default.type != "cpu":
                stack.enter_context(self.default)
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, dtype, enabled in self.casts:
                stack.enter_context(torch.autocast(kind, dtype, enabled, self.cache))
            yield
