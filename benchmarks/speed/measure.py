"""Seconds of a run, and rows at a time."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from .cases import Case
from .peers import FLOAT32, Peer, conditions

Run = Callable[[], object]


def once(run: Run, device: torch.device) -> float:
    """Seconds of one run."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    run()
    if cuda:
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def timed(
    runs: dict[str, Run], first: dict[str, float], device: torch.device, rounds: int, patience: float
) -> dict[str, float]:
    """The median of the rounds, in which the competitors take turns, after their first runs, in which things are set up.

    What takes longer than the patience is run once more only; if it took four times the patience, not at all.
    """
    took: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            if min(first[name], *took[name], first[name]) <= (patience if number else 4 * patience):
                took[name].append(once(run, device))
    return {name: statistics.median(found or [first[name]]) for name, found in took.items()}


def release(device: torch.device) -> None:
    """Give back the memory that nobody uses."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    """Whether that is what an error says."""
    return isinstance(error, MemoryError) or "memory" in str(error)


def rows_at_a_time(peer: Peer, case: Case, steps: int) -> int:
    """The fastest number of rows at a time, a first run aside; those that run out of memory are out."""
    candidates = peer.chunks[case.x.device.type]
    found: dict[int, float] = {}
    for chunk in [one for one in candidates if one < 2 * steps] or candidates[:1]:
        some = max(steps // chunk, 1) * chunk if steps > chunk else steps  # whole chunks
        run = partial(peer.run, case, some, chunk)
        try:
            with conditions(case, FLOAT32):
                once(run, case.x.device)
                found[chunk] = once(run, case.x.device) / some
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            release(case.x.device)
    return min(found, key=lambda chunk: found[chunk])


def saved_bytes(case: Case) -> int:
    """What autograd keeps for one row between forward and backward pass."""
    seen: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    own = {p.untyped_storage().data_ptr() for p in case.score.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        case.score(case.x[:1].detach().clone().requires_grad_(True))
    return sum(size for at, size in seen.items() if at not in own)


@contextmanager
def frozen(case: Case) -> Iterator[None]:
    """Without gradients of the weights."""
    asking = [p for p in case.score.parameters() if p.requires_grad]
    for parameter in asking:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asking:
            parameter.requires_grad_(True)
