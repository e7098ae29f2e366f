"""One explanation of one photo in a process of its own, so that its peak memory and its time are its own."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

SHARE = 0.8
"""Of the machine's memory that a child may address: what needs more fails there, and takes nothing else down."""


def in_a_process(who: str, photo: str, options: dict[str, Any]) -> dict[str, Any]:
    """Seconds, peak memory above the loaded model and gradients of one explanation, or why it failed."""
    return spawned("benchmarks.child", who, photo, json.dumps(options), str(torch.get_num_threads()))


def spawned(module: str, *arguments: str) -> dict[str, Any]:
    """What a module prints as JSON in its last line when run as a program of its own, or why it failed."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        short = "memory" in done.stderr or done.returncode < 0
        return {"failed": f"out of memory ({SHARE:.0%} of the machine's)" if short else done.stderr[-500:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def confine(threads: int) -> None:
    """Of this process: threads and memory."""
    limit = int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")


def peak_above(run: Callable[[], object]) -> float:
    """Bytes by which this process outgrows what it holds now while something runs.

    Linux can forget earlier peaks. Elsewhere a peak of loading the model, or of the process that started this one, hides
    what is below it.
    """
    measure = _high_water if _forgets() else _largest
    before = measure()
    run()
    return measure() - before


def _forgets() -> bool:
    with suppress(OSError, AttributeError):  # what was freed goes back first, where the C library can
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _high_water() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _largest() -> float:
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(who: str, photo_name: str, options: dict[str, Any], threads: int) -> None:
    """In the child: load, explain once, print."""
    import integrand as ig
    from tests.honesty.networks import BLACK, efficientnet, photo

    confine(threads)
    model, x = efficientnet(), photo(photo_name)
    with torch.no_grad():
        target = int(model(x).argmax())  # also warms up
    if who == "integrand":
        explain: Callable[[], Any] = lambda: ig.integrated_gradients(  # noqa: E731
            model, x, BLACK, target=target, score="probability", progress=False, **options
        )
        gradients = None
    else:
        from captum.attr import IntegratedGradients  # not part of what is timed

        method = IntegratedGradients(lambda z: model(z).softmax(1))
        explain = lambda: method.attribute(x, BLACK, target=target, **options)  # noqa: E731
        gradients = int(options["n_steps"])
    found: list[Any] = []
    start = time.perf_counter()
    peak = peak_above(lambda: found.append(explain())) / 1e6
    seconds = time.perf_counter() - start
    if gradients is None:
        gradients = found[0].certificate.gradients
    print(json.dumps({"peak_mb": peak, "gradients": gradients, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4]))
