"""What one evaluation (forward and backward of one row) costs, and what a precision moves.

python -m benchmarks.evaluations                                       # the networks of benchmarks.speed that can be built here
python -m benchmarks.evaluations --cases vit bert --device cuda
python -m benchmarks.evaluations --cases resnet50 --device cuda --compile

Differences are those of gradient times velocity at 64 nodes of the straight line, L1, over its mean size in float32: the median
node, the largest, and the mean of all nodes, which is what integrated gradients would be off by.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .speed.cases import Case
from .speed.inputs import Missing, Sources
from .speed.measure import frozen
from .speed.networks import NETWORKS, batch

ROWS = {"cuda": (1, 4, 16, 64, 128), "cpu": (1, 2, 4, 8, 16)}
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
SCALE = 2.0**14
"""Of scores in float16, so that small gradients do not vanish."""

Gradient = Callable[[np.ndarray], Tensor]


@contextmanager
def switched(precision: str) -> Iterator[None]:
    """With TF32 on or off."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=precision == "tf32"):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def gradient(case: Case, precision: str, *, last: bool = False, score: Callable[[Tensor], Tensor] | None = None) -> Gradient:
    """From times (N,) to gradient times velocity (N, features) of the first example."""
    device, half = case.x.device, HALF.get(precision)
    speed = (case.x[:1] - case.baseline).detach()
    scale = SCALE if precision == "float16" else 1.0

    def at(times: np.ndarray) -> Tensor:
        t = torch.as_tensor(times, dtype=torch.float32, device=device).reshape(-1, *[1] * (case.x.ndim - 1))
        points = (case.baseline + t * speed).detach()
        if last and points.ndim == 4:
            points = points.contiguous(memory_format=torch.channels_last)
        points.requires_grad_(True)
        with switched(precision), torch.autocast(device.type, half) if half else nullcontext():
            scores = (score or case.score)(points)
        with switched(precision):
            (found,) = torch.autograd.grad(scale * scores.float().sum(), points)
        return (found / scale * speed).flatten(1)

    return at


def seconds(run: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """The first run, and the fastest of three more."""
    took = []
    for _ in range(4):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - start)
    return took[0], min(took[1:])


def costs(case: Case, name: str, at: Gradient) -> None:
    """Milliseconds a row, by rows at a time."""
    device = case.x.device
    for rows in ROWS[device.type]:
        first, best = seconds(lambda rows=rows: at(np.linspace(0.01, 1, rows)), device)
        print(f"{case.name}  {name}  {rows} rows: {best / rows * 1e3:.3f} ms a row, the first time {first:.2f} s", flush=True)


def moves(case: Case, ways: dict[str, Gradient]) -> None:
    """What each way of running the network moves, against float32 operation by operation."""
    times = (np.arange(64) + 0.5) / 64
    parts = np.split(times, 8)
    exact = torch.cat([gradient(case, "float32")(part).double() for part in parts])
    size = exact.abs().sum(1).mean()
    for name, at in ways.items():
        found = torch.cat([at(part).double() for part in parts])
        off = (found - exact).abs().sum(1) / size
        mean = (found - exact).mean(0).abs().sum() / exact.mean(0).abs().sum()
        print(f"{case.name}  {name}  median {off.median():.2%}, largest {off.max():.2%}, of the mean {mean:.2%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="where GoogLeNet's weights are")
    parser.add_argument("--inputs", type=Path, help="a folder that python -m benchmarks.speed --write-inputs wrote")
    parser.add_argument("--compile", action="store_true", help="with torch.compile, too: minutes")
    options = parser.parse_args()
    lower = ["tf32", "bfloat16", "float16"] if options.device.startswith("cuda") else ["bfloat16", "float16"]
    for key in options.cases:
        try:
            case = batch(key, 1, Sources(options.data, options.inputs)).to(options.device)
        except Missing as error:
            print(f"{key}: not here ({error})", flush=True)
            continue
        recurrent = any(isinstance(module, torch.nn.RNNBase) for module in case.score.modules())
        with frozen(case), torch.backends.cudnn.flags(enabled=not recurrent):  # whose backward needs train mode otherwise
            for precision in ("float32", *lower):
                costs(case, precision, gradient(case, precision))
            if case.x.ndim == 4:
                costs(case, "float32, channels last", gradient(case, "float32", last=True))
            ways = {precision: gradient(case, precision) for precision in lower}
            if options.compile:
                ways["compiled"] = gradient(case, "float32", score=torch.compile(case.score, dynamic=True))
                costs(case, "compiled", ways["compiled"])
            moves(case, ways)


if __name__ == "__main__":
    main()
