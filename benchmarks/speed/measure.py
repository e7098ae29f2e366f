"""Seconds, peak memory and operations of a run."""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from .cases import Case
from .peers import FLOAT32, Peer, conditions

Run = Callable[[], object]


@dataclass(frozen=True)
class Cost:
    """What a run took.

    Attributes:
        seconds: the median of the rounds.
        peak: bytes above what was held before, on the device; NaN on a CPU, where processes are compared instead.
    """

    seconds: float
    peak: float


def once(run: Run, device: torch.device) -> Cost:
    """One run."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if cuda else 0
    start = time.perf_counter()
    run()
    if cuda:
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    return Cost(seconds, float(torch.cuda.max_memory_allocated(device) - before) if cuda else float("nan"))


def timed(runs: dict[str, Run], first: dict[str, Cost], device: torch.device, rounds: int, patience: float) -> dict[str, Cost]:
    """The competitors take turns, after their first runs, in which things are set up.

    What takes longer than half the patience is run once more only; if it took four times the patience, not at all.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            least = min(cost.seconds for cost in (first[name], *costs[name]))
            if least > (patience / 2 if number else 4 * patience):
                continue
            with suppress(torch.OutOfMemoryError):  # beside what the others keep; the first run stands
                costs[name].append(once(run, device))
    kept = {name: found or [first[name]] for name, found in costs.items()}
    return {
        name: Cost(statistics.median(one.seconds for one in found), max(one.peak for one in found))
        for name, found in kept.items()
    }


def kept(device: torch.device) -> float:
    """Bytes that recordings hold on to on a GPU between runs, which no peak of a run shows."""
    if device.type != "cuda":
        return 0.0
    segments = torch.cuda.memory_snapshot()
    return float(sum(one["total_size"] for one in segments if tuple(one.get("segment_pool_id", (0, 0))) != (0, 0)))


def release(device: torch.device) -> None:
    """Give back the memory that nobody uses."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    """Whether that is what an error says."""
    return isinstance(error, MemoryError) or "memory" in str(error)


def chunks(peer: Peer, case: Case, steps: int, precision: str) -> list[int | None]:
    """Rows at a time, the fastest first; those that run out of memory are out."""
    candidates = peer.chunks[case.x.device.type]
    if peer.together:
        candidates = tuple(dict.fromkeys(chunk and max(chunk, len(case.x)) for chunk in candidates))
    least = min((chunk for chunk in candidates if chunk), default=0)
    candidates = tuple(chunk for chunk in candidates if chunk is None or chunk <= max(steps * len(case.x), least))
    if len(candidates) == 1:
        return list(candidates)
    found: list[tuple[float, int | None]] = []
    for chunk in candidates:
        run = partial(peer.run, case, steps, chunk)
        try:
            with conditions(case, precision):
                best = once(run, case.x.device).seconds
                if best < 0.5:
                    best = min(best, once(run, case.x.device).seconds)
            found.append((best, chunk))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            release(case.x.device)
    return [chunk for _, chunk in sorted(found, key=lambda pair: pair[0])]


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


@contextmanager
def _unfused() -> Iterator[None]:
    """Without oneDNN, into whose recurrent layers the counter does not see."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TF32 on other chips
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def operations(case: Case) -> tuple[float, float]:
    """Floating-point operations of one row: of the forward pass, and of it with the backward pass to the input."""
    x = case.x[:1].detach().clone().requires_grad_(True)
    with frozen(case), conditions(case, FLOAT32), _unfused():
        with FlopCounterMode(display=False) as forward:
            out = case.score(x).sum()
        with FlopCounterMode(display=False) as backward:
            out.backward()  # the counter does not take autograd.grad
    one = float(forward.get_total_flops())
    return one, one + float(backward.get_total_flops())


KINDS = ("tf32", "bfloat16", "float16", "float64", "float32")
"""Precisions whose rate can be measured."""


def kind(precision: str) -> str:
    """Which of them a certificate's precision is; the coarsest that it names."""
    return next((one for one in KINDS if one in precision.lower()), "float32")


def rate(device: torch.device, precision: str = "float32") -> float:
    """Operations per second of a large matrix product on this device."""
    size = 8192 if device.type == "cuda" else 1536
    dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        a, b = torch.randn(2, size, size, device=device).to(dtype)
        seconds = min(once(lambda: a @ b, device).seconds for _ in range(6))
    finally:
        torch.set_float32_matmul_precision(before)
    return 2 * size**3 / seconds
