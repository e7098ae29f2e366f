"""What everybody is measured against: an integral by hand, with so many nodes that half of them say the same.

Kinked networks get midpoints: no rule is better where gradients jump. Those with an even place in the middle of each four,
and the others, are two rules of half the nodes, so the change from half the nodes costs nothing. Smooth networks get
Gauss-Legendre with twice the nodes until it does not change any more.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .cases import Case, spread
from .peers import conditions
from .rules import Floats, gauss_legendre, integrated, midpoints

FIRST = 32
"""Nodes of Gauss-Legendre to begin with."""
CHEAP, MOST = 2.0, 32768
"""Seconds in which small networks get more midpoints than asked for, and how many at most."""


@dataclass(frozen=True)
class Effort:
    """How much is done for a reference.

    Attributes:
        wanted: change from half the nodes at which a smooth network's is good enough.
        nodes: of a kinked network; of a smooth one at most.
        seconds: for the last doubling, or for all midpoints; a longer one gets fewer nodes.
        chunk: rows at a time.
    """

    wanted: float = 1e-4
    nodes: int = 4096
    seconds: float = 300.0
    chunk: int = 8


@dataclass(frozen=True)
class Reference:
    """A converged answer.

    Attributes:
        values: (1, features), float64.
        doubt: how far half the nodes are from it (relative L1), an estimate from above of its error.
        nodes: how many.
        precision: of the network; sums are in float64.
        rule: in words.
    """

    values: Floats
    doubt: float
    nodes: int
    precision: str
    rule: str

    @property
    def facts(self) -> dict[str, object]:
        """Everything but the values."""
        return {"doubt": self.doubt, "nodes": self.nodes, "precision": self.precision, "rule": self.rule}


def found(case: Case, effort: Effort) -> Reference:
    """By hand."""
    return _midpoints(case, effort) if case.kinked else _converged(case, effort)


def _midpoints(case: Case, effort: Effort) -> Reference:
    """In float32: in float64 units would switch elsewhere, which is another function."""
    integrated(case, midpoints(effort.chunk), effort.chunk)
    start = time.perf_counter()
    integrated(case, midpoints(effort.chunk), effort.chunk)
    pace = (time.perf_counter() - start) / effort.chunk
    nodes = effort.nodes
    while nodes > 64 and nodes * pace > effort.seconds:
        nodes //= 2
    while effort.nodes <= nodes < MOST and 2 * nodes * pace < CHEAP:
        nodes *= 2
    t, weights = midpoints(nodes)
    outer = np.isin(np.arange(nodes) % 4, (0, 3))
    halves = [integrated(case, (t[part], 2 * weights[part]), effort.chunk) for part in (outer, ~outer)]
    values = (halves[0] + halves[1]) / 2
    return Reference(values, spread(halves[0], values), nodes, "float32", "midpoints")


def _converged(case: Case, effort: Effort) -> Reference:
    """In float64 as long as that takes no longer than allowed and the network can; its network is in float32 afterwards."""
    device = case.x.device
    last: Reference | None = None
    pace = {torch.float64: 0.0, torch.float32: 0.0}  # seconds per node
    nodes = max(min(FIRST, effort.nodes // 2), 1)  # two runs at least, or there is no doubt to tell
    while nodes <= effort.nodes:
        kinds = [kind for kind in pace if pace[kind] * nodes <= effort.seconds]
        if not kinds:
            break
        start = time.perf_counter()
        try:
            values = integrated(case.to(device, kinds[0]), gauss_legendre(nodes), effort.chunk)
        except RuntimeError:
            if len(kinds) == 1:
                raise
            del pace[torch.float64]  # the network says float32 somewhere
            continue
        pace[kinds[0]] = (time.perf_counter() - start) / nodes if last else 0.0  # the first run also warms up
        doubt = float("nan") if last is None else spread(last.values, values)
        last = Reference(values, doubt, nodes, str(kinds[0]).removeprefix("torch."), "Gauss-Legendre")
        if doubt <= effort.wanted:
            break
        nodes *= 2
    case.to(device)
    assert last is not None
    return last


def mark(case: Case) -> Floats:
    """Numbers by which a case is recognised: what it says at its input, the input, the baseline and the weights."""
    with torch.no_grad(), conditions(case):  # in float32, so that other devices say the same
        said = float(case.score(case.x)[0])
        weights = sum(float(p.double().abs().sum()) for p in case.score.parameters())
    return np.array([said, *(float(one.double().abs().sum()) for one in (case.x, case.baseline)), weights])


def remembered(folder: Path, case: Case, effort: Effort) -> Reference:
    """From a file, if that is of the same network, weights and input and no less was done for it; else found, and written."""
    name = "".join(c if c.isalnum() else "_" for c in case.label)[:40]
    file = folder / f"{name}-{hashlib.sha256(case.label.encode()).hexdigest()[:8]}.npz"
    mine = mark(case)
    tried = np.array([effort.nodes, effort.seconds])
    if file.is_file():
        with np.load(file) as kept:
            good = not case.kinked and kept["doubt"] <= effort.wanted
            enough = good or kept["nodes"] >= effort.nodes or (kept["tried"] >= tried).all()
            if enough and np.allclose(kept["mark"], mine, rtol=1e-3, atol=1e-6):
                facts = {name: kept[name].item() for name in ("doubt", "nodes", "precision", "rule")}
                return Reference(kept["values"].astype(np.float64), **facts)
    new = found(case, effort)
    file.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.array(fact) for name, fact in new.facts.items()}
    np.savez(file, values=new.values.astype(np.float32), mark=mine, tried=tried, **arrays)
    return new
