"""Peak memory of one competitor on a CPU, in a process of its own."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.child import confine, peak_above, spawned

from .cases import CASES
from .inputs import Sources
from .peers import DEFAULT, NAMED, conditions, integrand


@dataclass(frozen=True)
class Task:
    """What the child does.

    Attributes:
        key: of the case.
        batch: examples.
        who: integrand or a peer.
        tol: for integrand.
        steps: for a peer.
        chunk: for a peer.
        data: as in :class:`~benchmarks.speed.inputs.Sources`.
        inputs: as there.
    """

    key: str
    batch: int
    who: str
    tol: float | None = None
    steps: int | None = None
    chunk: int | None = None
    data: str | None = None
    inputs: str | None = None


def in_a_process(task: Task) -> dict[str, Any]:
    """``peak`` in bytes above the loaded case and ``seconds`` of a first run, or why it ``failed``."""
    return spawned("benchmarks.speed.child", json.dumps(asdict(task)), str(torch.get_num_threads()))


def main(task: Task, threads: int) -> None:
    """In the child: build, run once, print."""
    confine(threads)
    folders = [None if one is None else Path(one) for one in (task.data, task.inputs)]
    case = CASES[task.key](task.batch, Sources(*folders))

    def run() -> None:
        if task.who == "integrand":
            assert task.tol is not None
            integrand(case, task.tol)
            return
        assert task.steps is not None
        with conditions(case, DEFAULT):
            NAMED[task.who].run(case, task.steps, task.chunk)

    if task.who != "integrand":  # a package's own size is not its method's
        NAMED[task.who].run(case.rows(1), 2, 1)
    else:
        torch.autograd.grad(case.score(case.x[:1]).sum(), next(case.score.parameters()))  # so that all have run once
    start = time.perf_counter()
    peak = peak_above(run)
    print(json.dumps({"peak": peak, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])), int(sys.argv[2]))
