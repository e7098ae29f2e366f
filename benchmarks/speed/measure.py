"""Seconds, peak memory and error of one competitor on one case."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from .cases import Case, spread
from .peers import Peer, gauss_legendre

STEPS = (5, 7, 10, 14, 20, 30, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000, 3000, 5000)


@dataclass(frozen=True)
class Cost:
    """What a run took.

    Attributes:
        seconds: the median of the rounds.
        peak: bytes above what was held before, on the device; NaN on a CPU, where processes are compared instead.
    """

    seconds: float
    peak: float


def synchronise(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(runs: dict[str, Callable[[], object]], device: torch.device, rounds: int) -> dict[str, Cost]:
    """The competitors take turns, after one run each to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    peaks: dict[str, float] = {}
    for name, run in runs.items():
        peaks[name] = _peak(run, device)
    for _ in range(rounds):
        for name, run in runs.items():
            synchronise(device)
            start = time.perf_counter()
            run()
            synchronise(device)
            seconds[name].append(time.perf_counter() - start)
    return {name: Cost(statistics.median(seconds[name]), peaks[name]) for name in runs}


def _peak(run: Callable[[], object], device: torch.device) -> float:
    gc.collect()
    if device.type != "cuda":
        run()
        return float("nan")
    run()
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return float(torch.cuda.max_memory_allocated(device) - before)


def reference(case: Case, device: str, nodes: int, chunk: int, checked: int) -> tuple[Any, float]:
    """A converged answer in float64 for the first examples, and how far half as many nodes are from it."""
    exact = case.rows(checked).to(device, torch.float64)
    fine = gauss_legendre(exact, nodes, chunk)
    coarse = gauss_legendre(exact, nodes // 2, chunk)
    case.to(device)
    return fine, spread(torch.as_tensor(coarse), fine)


def fewest(peer: Peer, case: Case, expected: Any, tolerances: Sequence[float], limit: float) -> dict[float, tuple[int, float]]:
    """For each tolerance the fewest steps that reach it, and the error then; none where a run takes longer than the limit."""
    found: dict[float, tuple[int, float]] = {}
    wanted = sorted(tolerances, reverse=True)
    chunk = peer.chunks[-1] if case.x.device.type == "cuda" else peer.chunks[min(1, len(peer.chunks) - 1)]
    few = case.rows(len(expected))
    for steps in STEPS:
        if steps > peer.most or not wanted:
            break
        start = time.perf_counter()
        error = spread(peer.run(few, steps, chunk), expected)
        while wanted and error <= wanted[0]:
            found[wanted.pop(0)] = (steps, error)
        if time.perf_counter() - start > limit:
            break
    return found


def best_chunk(peer: Peer, case: Case, steps: int) -> int | None:
    """The rows at a time with which a peer is fastest; those that run out of memory are out."""
    best: tuple[float, int | None] = (float("inf"), peer.chunks[0])
    for chunk in peer.chunks:
        try:
            peer.run(case, min(steps, 64), chunk)
            synchronise(case.x.device)
            start = time.perf_counter()
            peer.run(case, steps, chunk)
            synchronise(case.x.device)
            best = min(best, (time.perf_counter() - start, chunk), key=lambda pair: pair[0])
        except (RuntimeError, MemoryError) as error:
            if "memory" not in str(error) and not isinstance(error, MemoryError):
                raise
    return best[1]


def operations(case: Case) -> float:
    """Floating-point operations of one forward pass and one backward pass to the input, of one row."""
    x = case.x[:1].detach().clone().requires_grad_(True)
    frozen = [p for p in case.score.parameters() if p.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        with FlopCounterMode(display=False) as counter, torch.backends.cudnn.flags(enabled=False):
            case.score(x).sum().backward()  # the counter does not take autograd.grad
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
    return float(counter.get_total_flops())


def rate(device: torch.device, *, tf32: bool = False, size: int = 8192) -> float:
    """Operations per second of a large matrix product on this device."""
    if device.type != "cuda":
        size = 1536
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        a, b = torch.randn(2, size, size, device=device)
        cost = timed({"product": lambda: a @ b}, device, 5)["product"]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * size**3 / cost.seconds
