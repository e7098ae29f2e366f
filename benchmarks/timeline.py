"""Where the time of one call goes: passes of the model, waiting for the GPU, everything else; and how busy the GPU is.

python -m benchmarks.timeline --device cuda --cases googlenet resnet50 --inputs FOLDER
python -m benchmarks.timeline --device cuda --cases googlenet --lines      # every pass, one after the other

Nothing is waited for that a plain call does not wait for. "gradients" and "scores" are the time that Python takes to ask for
passes, "waiting" that until numbers are there, "busy" that of the GPU's kernels, by PyTorch's profiler in a run of its own.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from integrand.backends import torch_function
from integrand.evaluation.evaluator import PendingTransfer
from integrand.evaluation.runner import Runner
from integrand.integration.adaptive import GradientIntegral
from integrand.integration.certify import CertificateWriter
from integrand.integration.error import ErrorEstimator
from integrand.integration.mesh import Mesh

from .speed import inputs
from .speed.cases import Case
from .speed.inputs import Missing, Sources
from .speed.measure import once, release
from .speed.networks import NETWORKS
from .speed.peers import integrand

WARM = 4
"""Calls before the one that is looked at: CUDA graphs are captured when a size comes up for the third time."""


KINDS = ("F(x)", "gradients", "scores", "waiting")
"""What a call does, one after the other; everything else is its own work on the host."""


@dataclass(frozen=True)
class Span:
    """Something that took from one moment to another, in seconds since the start of the call."""

    kind: str
    start: float
    end: float
    rows: int = 0


def rows_of(args: tuple[Any, ...]) -> int:
    """Rows of a pass, by the second argument of what runs it."""
    return len(args[1]) if len(args) > 1 and isinstance(args[1], torch.Tensor) else 0


@contextmanager
def recorded() -> Iterator[list[Span]]:
    """What the engine does while in this context."""
    spans: list[Span] = []
    start = time.perf_counter()

    def noted(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(self, *args, **kwargs)
            finally:
                spans.append(Span(kind, began - start, time.perf_counter() - start, rows_of(args)))

        return run

    watched = [
        (torch_function, "build", "F(x)"),
        (Runner, "__call__", "gradients"),
        (Runner, "scores", "scores"),
        (PendingTransfer, "numpy", "waiting"),
        (GradientIntegral, "judge", "(judging)"),
        (Mesh, "refine", "(refining)"),
        (ErrorEstimator, "estimates", "(estimating)"),
        (CertificateWriter, "draw_errors", "(drawing errors)"),
    ]
    with ExitStack() as stack:
        for owner, name, kind in watched:
            stack.enter_context(mock.patch.object(owner, name, noted(kind, getattr(owner, name))))
        yield spans


def busy(run: Callable[[], object]) -> float:
    """Seconds of a GPU's kernels in a run."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    return sum(getattr(event, "self_device_time_total", 0.0) for event in seen.key_averages()) / 1e6


def told(case: Case, tol: float, *, lines: bool) -> dict[str, float]:
    """One input: seconds by kind."""
    device, calls = case.x.device, []

    def run() -> None:
        calls[:] = [integrand(case, tol)]

    for _ in range(WARM):
        once(run, device)
    whole = statistics.median(once(run, device) for _ in range(3))
    with recorded() as spans:
        seen = once(run, device)
    by_kind = {kind: sum(span.end - span.start for span in spans if span.kind == kind) for kind in KINDS}
    rest = seen - sum(by_kind.values())
    found = {"call": whole, "busy": busy(run) if device.type == "cuda" else seen, **by_kind, "rest": rest}
    certificate = calls[0].certificate[0]
    passes = " ".join(str(span.rows) for span in spans if span.kind == "gradients")
    evaluated = f"{certificate.gradients} + {certificate.forwards}, {certificate.error:.2%}, {certificate.precision}"
    print(f"  {case.label[:16]:16} {in_words(found)}  passes of {passes}: {evaluated}", flush=True)
    for span in sorted(spans, key=lambda span: span.start) if lines else ():
        print(f"    {1e3 * span.start:7.2f} to {1e3 * span.end:7.2f} ms  {span.kind} {span.rows or ''}")
    return found


def in_words(found: dict[str, float]) -> str:
    """Milliseconds by kind."""
    return "  ".join(f"{kind} {1e3 * seconds:6.1f}" for kind, seconds in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=list(NETWORKS), default=["googlenet", "resnet50", "efficientnet0"])
    parser.add_argument("--count", type=int, default=4, help="inputs of each network")
    parser.add_argument("--tol", type=float, default=0.01)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--inputs", type=Path, help="a folder that benchmarks.speed --write-inputs wrote")
    parser.add_argument("--lines", action="store_true", help="every pass of the first input")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.inputs:
        inputs.use_packages(options.inputs)
    for key in options.cases:
        try:
            cases = NETWORKS[key](options.count, Sources(options.data, options.inputs))
        except Missing as error:
            print(f"{key}: not here: {error}")
            continue
        print(f"{key}, {100 * options.tol:g}%, milliseconds", flush=True)
        found = [told(case.to(options.device), options.tol, lines=options.lines and not k) for k, case in enumerate(cases)]
        medians = {kind: statistics.median(one[kind] for one in found) for kind in found[0]}
        print(f"  {'median':16} {in_words(medians)}")
        release(torch.device(options.device))


if __name__ == "__main__":
    main()
