"""What everybody is measured against: Gauss-Legendre by hand, with more nodes until it does not change any more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .cases import Case, spread
from .measure import frozen, out_of_memory, release
from .peers import FLOAT32, Floats, conditions

FIRST = 32
"""Nodes to begin with."""


@dataclass(frozen=True)
class Reference:
    """A converged answer.

    Attributes:
        values: (N, features) float64, of the first examples.
        doubt: how far half as many nodes are from it (relative L1), an estimate from above of its error.
        nodes: of Gauss-Legendre.
        precision: of the network; sums are in float64.
    """

    values: Floats
    doubt: float
    nodes: int
    precision: str


def gauss_legendre(case: Case, nodes: int, chunk: int) -> Floats:
    """In the case's own precision, (N, features) in float64; on 64 equal panels where there are nodes enough."""
    panels = 64 if nodes >= 512 else 1
    t, weights = np.polynomial.legendre.leggauss(max(nodes // panels, 1))
    starts = np.arange(panels)[:, None] / panels
    t, weights = ((t + 1) / 2 / panels + starts).ravel(), np.tile(weights / 2 / panels, panels)
    out = []
    for row in case.x:
        total = torch.zeros_like(row, dtype=torch.float64)
        for at in range(0, len(t), chunk):
            times = torch.as_tensor(t[at : at + chunk], device=row.device, dtype=row.dtype)
            shape = (-1, *[1] * row.ndim)
            points = (case.baseline + times.reshape(shape) * (row - case.baseline)).requires_grad_(True)
            (gradients,) = torch.autograd.grad(case.score(points).sum(), points)
            factor = torch.as_tensor(weights[at : at + chunk], device=row.device).reshape(shape)
            total += (gradients.double() * factor).sum(0)
        out.append((total * (row - case.baseline[0]).double()).flatten().cpu().numpy())
    return np.stack(out)


def converged(case: Case, device: str, *, wanted: float, most: int, seconds: float, chunk: int) -> Reference:
    """Twice the nodes until the change is as small as wanted, in float64 as long as that takes no longer than allowed.

    Args:
        case: whose rows are all wanted; its network is in float32 on the device afterwards.
        device: where.
        wanted: the change from half the nodes.
        most: nodes.
        seconds: for the last doubling; float32 goes on where float64 would take longer.
        chunk: rows at a time; fewer where memory ends.
    """
    found: Reference | None = None
    pace = {torch.float64: 0.0, torch.float32: 0.0}  # seconds per node
    nodes = max(min(FIRST, most // 2), 1)  # two runs at least, or there is no doubt to tell
    with frozen(case):
        while nodes <= most:
            kinds = [kind for kind in pace if pace[kind] * nodes <= seconds]
            if not kinds:
                break
            start = time.perf_counter()
            values, chunk = _summed(case.to(device, kinds[0]), nodes, chunk)
            pace[kinds[0]] = (time.perf_counter() - start) / nodes if found else 0.0  # the first run also warms up
            doubt = float("nan") if found is None else spread(torch.as_tensor(found.values), values)
            found = Reference(values, doubt, nodes, str(kinds[0]).removeprefix("torch."))
            if doubt <= wanted:
                break
            nodes *= 2
    case.to(device)
    assert found is not None
    return found


def _summed(case: Case, nodes: int, chunk: int) -> tuple[Floats, int]:
    """The sum, and the rows at a time that memory allowed."""
    while True:
        try:
            with conditions(case, FLOAT32):
                return gauss_legendre(case, nodes, chunk), chunk
        except RuntimeError as error:
            if not out_of_memory(error) or chunk == 1:
                raise
        chunk //= 2
        release(case.x.device)


def remembered(file: Path, case: Case, **options: Any) -> Reference:
    """The answer from a file if that is of the same network and input and no less was tried for it; else found, and written."""
    with torch.no_grad():
        mark = np.array([float(case.score(case.x[:1])[0]), float(case.x.double().abs().sum())])
    effort = np.array([options["most"], options["seconds"], 1 / options["wanted"]])
    if file.is_file():
        with np.load(file) as kept:
            enough = kept["doubt"] <= options["wanted"] or (kept["effort"] >= effort).all()
            if enough and np.allclose(kept["mark"], mark, rtol=1e-3, atol=0):
                return Reference(kept["values"], float(kept["doubt"]), int(kept["nodes"]), str(kept["precision"]))
    found = converged(case, **options)
    file.parent.mkdir(parents=True, exist_ok=True)
    facts = {"doubt": found.doubt, "nodes": found.nodes, "precision": found.precision}
    np.savez(file, values=found.values, mark=mark, effort=effort, **{name: np.array(fact) for name, fact in facts.items()})
    return found
