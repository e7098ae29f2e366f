"""What CUDA graphs bring: the same calls with and without them, in one run, for every network of benchmarks.speed.

python -m benchmarks.cuda_graphs --inputs FOLDER --out cuda_graphs.json

Each network is explained to 1% for 1 and 16 inputs: repeatedly with graphs, captured on the way, and repeatedly without them.
Printed are the medians in milliseconds, their ratio, how many graphs were captured, and whether calls before and after a
capture, give the same bits where torch's own kernels do (``torch.use_deterministic_algorithms``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

import integrand as ig
from integrand.functions.model_notes import notes_of

from .speed.cases import Case
from .speed.inputs import Missing, Sources
from .speed.networks import NETWORKS, batch

WARM, TIMED = 4, 7
"""Calls before anything is timed, in which graphs are captured, and calls that are."""


@contextmanager
def without_graphs() -> Iterator[None]:
    """No function can be captured while in this context."""
    with mock.patch("integrand.backends.cuda_graphs.capturable", return_value=False):
        yield


def timed(call: Callable[[], Tensor]) -> float:
    """The median time of a call in milliseconds, once it is warm."""
    seconds = []
    for number in range(WARM + TIMED):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if number >= WARM:
            seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds)


def same_bits(call: Callable[[], Tensor]) -> bool:
    """Whether calls before and after graphs are captured give the same bits, with kernels of torch that do."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # operations of the model that have no deterministic kernel
            values = [call().detach().cpu() for _ in range(WARM)]
    finally:
        torch.use_deterministic_algorithms(False)
    return all(torch.equal(values[0], other) for other in values[1:])


def measured(case: Case, precision: str) -> dict[str, float | int | bool | str]:
    """One row: with graphs and without, on fresh copies of the network, alternately warm."""

    def call(one: Case) -> Callable[[], Tensor]:
        return lambda: ig.integrated_gradients(one.score, one.x, one.baseline, precision=precision).values  # type: ignore[return-value]

    with_graphs, plain = case.afresh(), case.afresh()
    fast = timed(call(with_graphs))
    graphs = [one for one in notes_of(with_graphs.score).get("graphs", {}).values() if one is not None]
    with without_graphs():
        slow = timed(call(plain))
    return {
        "network": case.name,
        "weights": case.weights,
        "inputs": len(case.x),
        "precision": precision,
        "graphs_ms": fast,
        "without_ms": slow,
        "ratio": slow / fast,
        "graphs": len(graphs),
        "same_bits": same_bits(call(case.afresh())),
    }


def main() -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic matrix products ask for
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="where GoogLeNet's weights are")
    parser.add_argument("--inputs", type=Path, help="a folder that python -m benchmarks.speed --write-inputs wrote")
    parser.add_argument("--out", type=Path, help="where to write the rows as JSON")
    options = parser.parse_args()
    print(f"{'network':24} {'inputs':>6} {'graphs':>10} {'without':>10} {'ratio':>6}  captured  same bits", flush=True)
    rows = []
    for key in options.cases:
        for count in (1, 16):
            try:
                case = batch(key, count, Sources(options.data, options.inputs)).to("cuda")
            except Missing as error:
                print(f"{key}: not here ({error})", flush=True)
                break
            row = measured(case, "float32")
            rows.append(row)
            print(
                f"{row['network']:24} {count:6} {row['graphs_ms']:7.1f} ms {row['without_ms']:7.1f} ms {row['ratio']:6.2f}"
                f"  {row['graphs']:8}  {row['same_bits']}",
                flush=True,
            )
            del case
            torch.cuda.empty_cache()
    if options.out is not None:
        device = torch.cuda.get_device_name()
        options.out.write_text(
            json.dumps({"device": device, "torch": torch.__version__, "rows": rows}, indent=1), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
