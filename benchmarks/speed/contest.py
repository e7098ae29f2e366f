"""All competitors on one network: first the steps that fixed rules need on each input, then everybody's time, side by side.

- ``integrand TOL``: to a tolerance, with default options.
- ``default``: Captum's 50 steps, all rows at once, in PyTorch's default precision: as it is mostly called.
- ``oracle TOL``: Captum with the fewest steps for that very input, which its user cannot know.
- ``fixed TOL``: Captum with the one number of steps that brings 95% of the inputs within the error; ``saliency TOL``
  likewise.

Fixed rules run in float32 (where PyTorch's default, TF32 in convolutions, may not reach the error) and with their best
number of rows at a time.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import measure, reference
from .cases import Case, spread
from .inputs import Sources
from .ladder import RUNGS, SHARE, Climb, OutOfTime, for_all, next_rung
from .measure import once
from .peers import DEFAULT, FLOAT32, NAMED, Peer, conditions, integrand
from .reference import Effort, Reference
from .rules import RULES, gauss_legendre, integrated
from .store import Results, Row
from .table import SURE

STEPS = 50
"""Captum's default."""
SEARCHING = 0.65
"""Of the time of a network, for references and steps."""
CHECKING = 0.4
"""Of what is left then, for the errors of the one number of steps for all; the rest is for timing."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How much is measured; see ``--help``."""

    device: str
    sources: Sources
    out: Path
    tolerances: tuple[float, ...] = (0.05, 0.01)
    peers: tuple[str, ...] = ("captum", "saliency")
    effort: Effort = field(default_factory=Effort)
    limit: float = math.inf
    rounds: int = 3
    patience: float = 10.0


@dataclass(frozen=True)
class Ready:
    """A competitor that has run once.

    Attributes:
        entry: what the table says of it, but for the time.
        run: once more.
        first: seconds of the first run.
        scale: how many times longer the whole takes than the run, which has fewer steps where there are too many.
    """

    entry: dict[str, Any]
    run: Callable[[], object]
    first: float
    scale: float = 1.0


class Contest:
    """One network.

    Args:
        key: of the network.
        cases: its inputs.
        settings: how much is measured.
        results: what is known already, and where what is found goes.
        known: the network's row of another machine, whose steps and errors are taken over.
    """

    def __init__(
        self, key: str, cases: list[Case], settings: Settings, results: Results, known: dict[str, Any] | None = None
    ) -> None:
        first = cases[0]
        self.key, self.settings, self.results = key, settings, results
        self.cases = [case.to(settings.device) for case in cases]
        self.device = self.cases[0].x.device
        facts = {"kinked": first.kinked, "image": first.x.ndim == 4}
        self.row: Row = results.row(key, name=first.name, weights=first.weights, **facts)
        self.known = known if known and known["weights"] == first.weights else {}
        self.references: dict[str, Reference] = {}
        self.names = [name for name in settings.peers if not self.known or name in self.known["fixed"]]
        self.peers = [NAMED[name] for name in self.names if NAMED[name].available()]
        if self.known:
            self.row["fixed"] = self.known["fixed"]

    def hold(self, deadline: float, say: Say) -> bool:
        """Measure what is not known yet; whether there was time for all of it."""
        now = time.perf_counter()
        searched = [case for case in self.cases if self._before(now + SEARCHING * (deadline - now), case, self._search, say)]
        now = time.perf_counter()
        self._fix(now + CHECKING * (deadline - now))
        self._compare(say)
        self.results.save()
        done = [case for case in searched if self._before(deadline, case, self._time, say)]
        return len(done) == len(self.cases)

    def _before(self, deadline: float, case: Case, do: Callable[[Case], str], say: Say) -> bool:
        """Do something with an input and write it down, if there is time."""
        start = time.perf_counter()
        if start > deadline:
            return False
        if said := do(case):
            self.results.save()
            say(f"  {self.key}, {case.label[:40]}: {said}; {time.perf_counter() - start:.1f} s")
        return True

    def _entry(self, case: Case) -> dict[str, Any]:
        entry: dict[str, Any] = self.row["inputs"].setdefault(case.label, {"errors": {}, "fewest": {}, "runs": {}})
        return entry

    def _search(self, case: Case) -> str:
        """The reference, and the fewest steps of each rule."""
        entry = self._entry(case)
        found = reference.remembered(self.settings.out / "references" / self.key, case, self.settings.effort)
        self.references[case.label], entry["reference"] = found, found.facts
        told = self.known.get("inputs", {}).get(case.label, {})
        said = []
        for name in self.names:
            for where in ("errors", "fewest"):
                entry[where][name] = told.get(where, {}).get(name, {}) | entry[where].get(name, {})
            fewest = entry["fewest"][name]
            sure = [tol for tol in self.settings.tolerances if found.doubt <= SURE * tol]
            climb = self._climb(case, name)
            for tol in sorted((tol for tol in sure if str(tol) not in fewest), reverse=True):
                with suppress(OutOfTime):
                    fewest[str(tol)] = climb.fewest(tol, self._guess(case, name, tol))
                    said.append(f"{name} {fewest[str(tol)] or 'over ' + str(RUNGS[-1])} steps to {tol:.0%}")
            self._keep(case, name, climb)
        return ", ".join(said) and f"doubt {found.doubt:.2%} with {found.nodes} nodes, {', '.join(said)}"

    def _climb(self, case: Case, name: str) -> Climb:
        tried = {int(steps): error for steps, error in self._entry(case)["errors"].get(name, {}).items()}
        return Climb(lambda steps: self._error(case, name, steps), tried, self.settings.limit)

    def _keep(self, case: Case, name: str, climb: Climb) -> None:
        self._entry(case)["errors"][name] = {str(steps): error for steps, error in sorted(climb.tried.items())}

    def _error(self, case: Case, name: str, steps: int) -> float:
        values = integrated(case, RULES[name](steps), self.settings.effort.chunk)
        error = spread(values, self.references[case.label].values)
        return error if math.isfinite(error) else math.inf

    def _guess(self, case: Case, name: str, tol: float) -> int:
        """Where to begin: with what the other inputs needed, or in the middle."""
        others = [one["fewest"].get(name, {}).get(str(tol)) for one in self.row["inputs"].values()]
        if some := [one for one in others if one]:
            return int(statistics.median(some))
        before = [steps for steps in self._entry(case)["fewest"][name].values() if steps]
        return max(before) * (4 if case.kinked else 2) if before else 75 if case.kinked else 5

    def _fix(self, deadline: float) -> None:
        """The one number of steps for all inputs that are known, those of earlier runs too, and the errors that it has."""
        if self.known:
            return
        for name in self.names:
            for tol in self.settings.tolerances:
                # Those whose reference is good enough to tell.
                entries = [one for one in self.row["inputs"].values() if str(tol) in one["fewest"].get(name, {})]
                fewest = [one["fewest"][name][str(tol)] for one in entries]
                steps = for_all(fewest)
                found = {"reached": False, "steps": RUNGS[-1], "within": 0, "inputs": len(fewest)}
                while steps is not None:
                    self._try(name, steps, deadline)
                    within = sum(self._within(one, name, tol, steps) for one in entries)
                    found |= {"reached": within >= SHARE * len(fewest), "steps": steps, "within": within}
                    steps = None if found["reached"] else next_rung(steps)
                if fewest:
                    self.row["fixed"].setdefault(name, {})[str(tol)] = found

    def _try(self, name: str, steps: int, deadline: float) -> None:
        """The error with so many steps on each input, as far as there is time."""
        for case in self.cases:
            if case.label in self.references and time.perf_counter() < deadline:
                climb = self._climb(case, name)
                climb.error(steps)
                self._keep(case, name, climb)

    def _within(self, entry: dict[str, Any], name: str, tol: float, steps: int) -> bool:
        """Whether so many steps are known to suffice; where they were not tried, whether fewer do."""
        error = entry["errors"].get(name, {}).get(str(steps))
        fewest = entry["fewest"].get(name, {}).get(str(tol))
        return error <= tol if error is not None else fewest is not None and fewest <= steps

    def _time(self, case: Case) -> str:
        """Everybody's time on one input, in turns."""
        entry = self._entry(case)
        wanted = self._wanted(case)
        known = {name: run.get("steps") for name, run in entry["runs"].items()}
        if all(name in known and (steps is None or known[name] == steps) for name, (_, steps) in wanted.items()):
            return ""
        measure.release(self.device)
        ready = {f"integrand {tol:g}": self._mine(case, tol) for tol in self.settings.tolerances}
        if any(peer.name == "captum" for peer in self.peers):
            ready["default"] = self._default(case)
        pace = ready["default"].first / STEPS if "default" in ready else 0.0
        shared: dict[tuple[str, int], Ready] = {}
        for name, (peer, steps) in wanted.items():
            if peer is not None and steps is not None:
                ready[name] = self._fixed(case, name, peer, steps, pace, shared)
        runs = {name: one.run for name, one in ready.items()}
        twins = {name: first for name, one in ready.items() if (first := next(n for n in runs if runs[n] is one.run)) != name}
        alone = {name: run for name, run in runs.items() if name not in twins}
        first = {name: ready[name].first for name in alone}
        seconds = measure.timed(alone, first, self.device, self.settings.rounds, self.settings.patience)
        entry["runs"] = {
            name: one.entry | {"seconds": seconds[twins.get(name, name)] * one.scale} for name, one in ready.items()
        }
        return ", ".join(f"{name} {run['seconds'] * 1e3:.0f} ms" for name, run in entry["runs"].items())

    def _wanted(self, case: Case) -> dict[str, tuple[Peer | None, int | None]]:
        """The runs of an input: who, and with how many steps; not those whose steps were not found for want of time."""
        wanted: dict[str, tuple[Peer | None, int | None]] = {}
        for tol in self.settings.tolerances:
            wanted[f"integrand {tol:g}"] = None, None
            for peer in self.peers:
                name = "fixed" if peer.name == "captum" else peer.name
                if found := self.row["fixed"].get(peer.name, {}).get(str(tol)):
                    wanted[f"{name} {tol:g}"] = peer, found["steps"]
                if peer.name == "captum":
                    wanted["default"] = None, None
                    fewest = self._entry(case)["fewest"]["captum"]
                    if str(tol) in fewest:
                        wanted[f"oracle {tol:g}"] = peer, fewest[str(tol)] or RUNGS[-1]
        return wanted

    def _mine(self, case: Case, tol: float) -> Ready:
        """Integrand: on a GPU a few calls first, since CUDA graphs are captured when sizes come up again."""
        with torch.no_grad():
            case.score(case.x)  # what torch loads late is nobody's time
        found: list[Any] = []
        first = once(lambda: found.append(integrand(case, tol)), self.device)
        result, told = found[0], found[0].certificate[0]
        cold = first
        if self.device.type == "cuda":
            for _ in range(2 if first < 0.1 else 1):
                first = once(lambda: integrand(case, tol), self.device)
        entry = {
            "gradients": told.gradients,
            "forwards": told.forwards,
            "measured": spread(result.values, self.references[case.label].values),
            "claimed": told.error,
            "status": told.status.value,
            "rule": told.rule,
            "precision": told.precision,
            "first": cold,
        }
        return Ready(entry, lambda: integrand(case, tol), first)

    def _default(self, case: Case) -> Ready:
        """Captum as it is mostly called; fewer rows at a time where all of them would not fit."""
        peer, chunk = NAMED["captum"], self._fitting(case)
        found: list[torch.Tensor] = []

        def run() -> None:
            with conditions(case, DEFAULT):
                found[:] = [peer.run(case, STEPS, chunk)]

        try:
            first = once(run, self.device)
        except torch.OutOfMemoryError:
            chunk = 8
            first = once(run, self.device)
        values = found[0].detach().double().flatten(1).cpu().numpy()
        entry = {"steps": STEPS, "gradients": STEPS, "measured": spread(values, self.references[case.label].values)}
        if chunk is not None:
            entry["chunk"] = chunk
        if self.device.type == "cuda" and case.has(nn.Conv1d, nn.Conv2d):
            exact = integrated(case, gauss_legendre(STEPS), self.settings.effort.chunk)
            entry["shift"] = spread(values, exact)  # what TF32 moves
        return Ready(entry, run, first)

    def _fitting(self, case: Case) -> int | None:
        """Rows that fit into the memory of a CPU; None for all."""
        if self.device.type == "cuda":
            return None
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        rows = int(0.5 * free / max(measure.saved_bytes(case), 1))
        return None if rows >= STEPS else max(rows, 1)

    def _fixed(self, case: Case, name: str, peer: Peer, steps: int, pace: float, shared: dict[tuple[str, int], Ready]) -> Ready:
        """A fixed rule; with fewer steps where all of them would take too long, since its time grows with them."""
        allowed = int(self.settings.patience / pace) if pace else steps
        chunks = self.row.setdefault("chunks", {})
        if peer.name not in chunks:
            most = max(found["steps"] for found in self.row["fixed"][peer.name].values())
            chunks[peer.name] = measure.rows_at_a_time(peer, case, min(most, max(allowed, 32)))
        chunk = chunks[peer.name]
        few = chunk * max(allowed // chunk, 2)
        few = steps if 1.5 * few >= steps else few
        if (peer.name, few) not in shared:

            def run() -> None:
                with conditions(case, FLOAT32):
                    peer.run(case, few, chunk)

            shared[peer.name, few] = Ready({}, run, once(run, self.device))
        entry = {"steps": steps, "gradients": steps, "chunk": chunk}
        if (error := self._entry(case)["errors"][peer.name].get(str(steps))) is not None:
            entry["measured"] = error
        if few < steps:
            entry["timed_steps"] = few
        who, tol = name.split()[0], str(float(name.split()[1]))
        fixed = self.row["fixed"][peer.name].get(tol, {}).get("reached")
        if not (self._entry(case)["fewest"]["captum"][tol] if who == "oracle" else fixed):
            entry["reached"] = False
        one = shared[peer.name, few]
        return Ready(entry, one.run, one.first, steps / few)

    def _compare(self, say: Say, steps: int = 10) -> None:
        """Once per network: that a peer's own answer is that of the plain loop whose errors are used; one that fails is out."""
        agreement, case = self.row.setdefault("agreement", {}), self.cases[0]
        for peer in [peer for peer in self.peers if peer.name not in agreement]:
            try:
                with conditions(case, FLOAT32):
                    values = peer.run(case, steps, None)
            except Exception as error:  # a finding, not a crash
                say(f"  {self.key}: {peer.name} fails: {type(error).__name__}: {error}")
                self.peers.remove(peer)
                continue
            agreement[peer.name] = spread(values, integrated(case, RULES[peer.name](steps), self.settings.effort.chunk))
