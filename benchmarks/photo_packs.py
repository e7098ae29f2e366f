"""Photos integrated in one call: does a device explain more of them in a second if their integrals share the network's chunks?

    python -m benchmarks.photo_packs FOLDER                      # 8 photos, together = 1, 4, 8, on one CPU core
    python -m benchmarks.photo_packs FOLDER --device cuda --together 1 8 32

Prints, for each number of photos together: seconds (of the processor on a CPU, so that other work there counts little), photos
a second, gradients, the peak of memory, and the largest difference from photos one by one, relative to the sum of magnitudes.
Each number runs in a process of its own, ``--rounds`` times; the fastest round counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from integrand.apps import images, networks
from integrand.apps.images.photo_files import photos


def measured(
    files: Sequence[Path], together: int, tol: float, device: str, rounds: int
) -> tuple[float, int, int, torch.Tensor]:
    """Seconds of the fastest round, gradients, peak memory in MB, and the attributions."""
    torch.set_num_threads(1)
    network = networks.load("efficientnet-lite0", device=device)
    clock = time.process_time if device == "cpu" else time.perf_counter
    images.explain_photos(files[:1], network, tol=1.0)  # what is done once
    best = float("inf")
    for _ in range(rounds):
        begin = clock()
        found = images.explain_photos(files, network, tol=tol, together=together)
        best = min(best, clock() - begin)
    values = torch.cat([one.result.values.cpu() for one in found])
    peak = torch.cuda.max_memory_allocated() if device != "cpu" else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return best, sum(one.result.certificate.only.gradients for one in found), peak >> 20, values


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photos", type=int, default=8)
    parser.add_argument("--together", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--tol", type=float, default=0.05)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(given)
    files = photos([options.folder])[: options.photos]
    first: torch.Tensor | None = None
    for together in options.together:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            said = (files, together, options.tol, options.device, options.rounds)
            seconds, gradients, peak, values = pool.apply(measured, said)
        first = values if first is None else first
        apart = ((values - first).abs().flatten(1).sum(1) / first.abs().flatten(1).sum(1)).max()
        print(
            f"together {together}: {seconds:.1f} s, {len(files) / seconds:.3f} photos a second, {gradients} gradients, "
            f"{peak} MB, differs by {apart:.1e}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
