"""All competitors on one case."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from . import measure
from .cases import Case, spread
from .child import Task, in_a_process
from .inputs import Sources
from .ladder import Climb
from .measure import Cost, once
from .peers import DEFAULT, NAMED, Peer, conditions, integrand, precisions, remark
from .reference import Reference
from .store import Results

MINE, STEPS = "integrand", 50
WARM = 3
"""Further calls of integrand before it is timed: recordings, and sizes of chunks, are settled by then."""

USUAL = f"captum, {STEPS} steps"
"""Captum as it is mostly called: with its default."""


@dataclass(frozen=True)
class Settings:
    """How much is measured; see ``--help``."""

    device: str
    sources: Sources
    out: Path
    tolerances: tuple[float, ...]
    batches: tuple[int, ...]
    peers: tuple[str, ...]
    nodes: int
    reference_seconds: float
    checked: int
    rounds: int
    limit: float
    patience: float
    memory: bool
    usual: bool = True


@dataclass(frozen=True)
class Ready:
    """A competitor that has run once.

    Attributes:
        entry: what the table says of it, but for time and memory.
        run: once more.
        first: what the first run took; None where it failed.
        scale: how many times longer the whole takes than the run, which has fewer steps where there are too many.
        task: the same for a process of its own.
    """

    entry: dict[str, Any]
    run: Callable[[], object] = lambda: None
    first: Cost | None = None
    scale: float = 1.0
    task: Task | None = None


def failed(error: BaseException | str) -> Ready:
    """A competitor that cannot take the case: a finding, not a crash."""
    if isinstance(error, str):
        return Ready({"failed": error})
    if measure.out_of_memory(error):
        return Ready({"failed": "out of memory"})
    return Ready({"failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}"})


class Contest:
    """One case, on its device.

    Args:
        key: of the case.
        case: with the largest batch.
        reference: of its first examples.
        settings: how much is measured.
        results: what is known already, and where what is found goes.
    """

    def __init__(self, key: str, case: Case, reference: Reference, settings: Settings, results: Results) -> None:
        self.key, self.case, self.reference, self.settings, self.results = key, case, reference, settings, results
        self.device = case.x.device
        self.operations = measure.operations(case)

    def hold(self, deadline: float, say: Callable[[str], None]) -> bool:
        """Measure what is not known yet, integrand and Captum first; whether there was time for all of it."""
        others = [(name,) for name in self.settings.peers if name != "captum"]
        first = (MINE, "captum") if "captum" in self.settings.peers else (MINE,)
        for group in (first, *others):
            for batch in self.settings.batches:
                usual = (None,) if "captum" in group and self.settings.usual else ()
                for tol in (*self.settings.tolerances, *usual):
                    if time.perf_counter() > deadline:
                        return False
                    start = time.perf_counter()
                    who = (USUAL,) if tol is None else group
                    if self._measure(batch, tol, who):
                        self.results.save()
                        to = "" if tol is None else f" to {tol:.1%}"
                        say(f"  {self.key}, batch {batch}: {' and '.join(who)}{to}; {time.perf_counter() - start:.1f} s")
        return True

    def _measure(self, batch: int, tol: float | None, group: tuple[str, ...]) -> bool:
        known = {"doubt": self.reference.doubt, "nodes": self.reference.nodes, "precision": self.reference.precision}
        facts = {"case": self.case.name, "weights": self.case.weights, "reference": known, "operations": self.operations}
        row = self.results.row(self.key, batch, tol, **facts)
        case = self.case.rows(batch)
        measure.release(self.device)
        before = measure.kept(self.device)
        ready = {who: self._prepare(case, tol, who) for who in group if who not in row["who"]}
        row["who"] |= {who: one.entry for who, one in ready.items()}
        runs = {who: one for who, one in ready.items() if one.first is not None}
        costs = measure.timed(
            {who: one.run for who, one in runs.items()},
            {who: one.first for who, one in runs.items() if one.first is not None},
            self.device,
            self.settings.rounds,
            self.settings.patience,
        )
        for who, cost in costs.items():
            row["who"][who] |= {"seconds": cost.seconds * runs[who].scale, **self._peak(cost, runs[who].task)}
            if who == MINE and "peak" in row["who"][who]:
                held = max(0.0, measure.kept(self.device) - before)
                row["who"][who] |= {"peak": row["who"][who]["peak"] + held, "kept": held}
        return bool(ready)

    def _peak(self, cost: Cost, task: Task | None) -> dict[str, Any]:
        if not math.isnan(cost.peak):
            return {"peak": cost.peak}
        if task is None or not self.settings.memory:
            return {}
        found = in_a_process(task)
        return {"peak": found["peak"]} if "peak" in found else {"no_peak": found["failed"]}

    def _prepare(self, case: Case, tol: float | None, who: str) -> Ready:
        try:
            if tol is None:
                return self._usual(case)
            return self._mine(case, tol) if who == MINE else self._peer(case, tol, NAMED[who])
        except Exception as error:
            return failed(error)

    def _task(self, case: Case, who: str, **options: Any) -> Task:
        data, inputs = (None if one is None else str(one) for one in (self.settings.sources.data, self.settings.sources.inputs))
        return Task(self.key, len(case.x), who, data=data, inputs=inputs, **options)

    def _mine(self, case: Case, tol: float) -> Ready:
        """Integrand: a first call on a network it has never seen, then a few more, since things are remembered."""
        measure.release(self.device)  # it may look at what is free
        case = case.afresh()
        case.score(case.x[:1])  # what torch loads late is nobody's time
        found: list[Any] = []
        run = lambda: found.append(integrand(case, tol))  # noqa: E731
        cold, second = once(run, self.device), once(run, self.device)
        for _ in range(WARM if second.seconds < self.settings.patience / 8 else 0):
            second = once(run, self.device)
        result, expected = found[-1], self.reference.values
        found.clear()
        told = result.certificate
        gradients, forwards = (sum(getattr(one, name) for one in told) for name in ("gradients", "forwards"))
        forward, both = self.operations
        entry = {
            "gradients": gradients,
            "forwards": forwards,
            "measured": spread(result.values[: len(expected)], expected[: len(case.x)]),
            "claimed": max(one.error for one in told),
            "status": ", ".join(sorted({one.status.value for one in told})),
            "rule": told[0].rule,
            "precision": told[0].precision,
            "cold": cold.seconds,
            "limit": (gradients * both + forwards * forward) / self._rate(measure.kind(told[0].precision)),
        }
        return Ready(entry, lambda: integrand(case, tol), second, task=self._task(case, MINE, tol=tol))

    def _rate(self, kind: str) -> float:
        rates = self.results.content["rates"]
        if kind not in rates:
            rates[kind] = measure.rate(self.device, kind)
        return float(rates[kind])

    def _peer(self, case: Case, tol: float, peer: Peer) -> Ready:
        if not peer.available():
            return failed(f"{peer.name} is not installed")
        ladder = self._ladder(peer)
        if "failed" in ladder:
            return failed(ladder["failed"])
        if str(tol) not in ladder:
            steps, error = ladder["closest"]
            missed = failed(
                f"{error:.2%} with {steps} steps; no more than {peer.most}, or {self.settings.limit:.0f} s of trials"
            )
            return Ready(missed.entry | {"closest": [steps, error]})
        steps, error, precision = ladder[str(tol)]
        allowed = max(int(self.settings.patience / max(ladder["pace"] * len(case.x), 1e-9)), 4)
        for chunk in self._chunks(peer, case, min(ladder[self._middle(ladder)][0], allowed), precision):
            try:
                return self._timed(case, peer, steps, chunk, precision, allowed, error)
            except (RuntimeError, MemoryError) as problem:
                if not measure.out_of_memory(problem):
                    raise
                measure.release(self.device)
        return failed("out of memory")

    def _timed(
        self, case: Case, peer: Peer, steps: int, chunk: int | None, precision: str, allowed: int, error: float
    ) -> Ready:
        """A peer's first run, with fewer steps where all of them would take too long: its time grows with them."""
        full = 1 if chunk is None else math.ceil(chunk / len(case.x))  # steps that fill the rows at a time
        few = full * max(allowed // full, 2)
        if 1.5 * few >= steps or (chunk is None and peer.together):
            few = steps

        def run() -> None:
            with conditions(case, precision):
                peer.run(case, few, chunk)

        entry = self._entry(case, peer, steps, error, chunk, precision)
        if few < steps:
            entry["timed_steps"] = few
        return Ready(entry, run, once(run, self.device), steps / few, self._task(case, peer.name, steps=few, chunk=chunk))

    def _entry(self, case: Case, peer: Peer, steps: int, error: float, chunk: int | None, precision: str) -> dict[str, Any]:
        found = {"steps": steps, "gradients": steps * len(case.x), "measured": error, "precision": precision}
        return found | {"chunk": chunk, "rows": peer.rows(chunk), "remark": remark(case)}

    def _middle(self, ladder: dict[str, Any]) -> str:
        """The tolerance nearest to 1% that is reached."""
        reached = [tol for tol in self.settings.tolerances if str(tol) in ladder]
        return str(min(reached, key=lambda tol: abs(math.log(tol / 0.01))))

    def _ladder(self, peer: Peer) -> dict[str, Any]:
        """Steps, error and precision by tolerance; ``closest`` and ``pace`` (seconds per step of one example)."""
        at, kept = f"{self.key}/{peer.name}", self.results.content["ladders"]
        sought = list(self.settings.tolerances)
        if not set(sought) <= set(kept.get(at, {}).get("sought", [])):
            try:
                kept[at] = self._climbed(peer) | {"sought": sought}
            except Exception as error:  # the same for every tolerance and batch
                kept[at] = failed(error).entry | {"sought": sought}
        found: dict[str, Any] = kept[at]
        return found

    def _climbed(self, peer: Peer) -> dict[str, Any]:
        found: dict[str, Any] = {}
        kinds, sought = precisions(self.case), self.settings.tolerances
        for precision in kinds:
            climb = Climb(partial(self._error, peer, precision), peer.most, self.settings.limit, plateau=precision != kinds[-1])
            reached = climb.fewest([tol for tol in sought if str(tol) not in found])
            found |= {str(tol): [steps, climb.tried[steps], precision] for tol, steps in reached.items()}
            found |= {"closest": list(climb.closest), "pace": climb.pace}
            if all(str(tol) in found for tol in sought):
                break
        return found

    def _error(self, peer: Peer, precision: str, steps: int) -> float:
        return peer.error(self.case, steps, self.reference.values, precision)

    def _chunks(self, peer: Peer, case: Case, steps: int, precision: str) -> list[int | None]:
        at, kept = f"{self.key}/{peer.name}/{len(case.x)}", self.results.content["chunks"]
        if at not in kept:
            kept[at] = measure.chunks(peer, case, steps, precision)
        found: list[int | None] = kept[at]
        return found

    def _usual(self, case: Case) -> Ready:
        """Captum's default: 50 steps, all rows at once if they fit."""
        peer = NAMED["captum"]
        if not peer.available():
            return failed("captum is not installed")
        error = self._error(peer, DEFAULT, STEPS)
        if self.device.type == "cuda":
            try:
                return self._timed(case, peer, STEPS, None, DEFAULT, STEPS, error)
            except torch.cuda.OutOfMemoryError:
                measure.release(self.device)
                return self._timed(case, peer, STEPS, max(64, len(case.x)), DEFAULT, STEPS, error)
        task = self._task(case, peer.name, steps=STEPS)  # alone, since it may take more memory than there is
        entry = self._entry(case, peer, STEPS, error, None, DEFAULT)
        return Ready(entry | in_a_process(task))
