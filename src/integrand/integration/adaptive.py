"""Integrating to a tolerance: waves of new nodes for all unfinished examples, each of which stops on its own.

Every path starts with two panels of five nodes. After each wave an example's panels are judged (:mod:`._judge`); those
that a plan says will be needed are halved, and every node that was evaluated is used again. While all panels of an
example have the same width, Romberg's rule on its nodes is judged too: on smooth networks it converges fastest. Where a
wave costs more than its nodes (:mod:`._pace`), waves are fewer and larger.

Memory: gradients are kept for the nodes of open panels, up to a budget. Examples wait until there is room for them; when
there is no room to go on, panels with the smallest errors forget their nodes (their share of the sum stays) and are
evaluated again should they ever be halved.

Examples whose first waves show kinks, and far to go, are handed over (:mod:`._handover`) to their linear regions
(:mod:`..exact`), if the model is small and its operations can be followed. Those that come back are sampled to the end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..backends.precision import COARSE, Precision, PrecisionMode
from ..certificate import ExampleCertificate, Status
from ..errors import ModelError
from ..evaluation.checks import check_rows, noise, outdated
from ..evaluation.evaluator import Evaluator
from ..evaluation.nodes import Nodes
from ..evaluation.precision_choice import choose_precision, choose_precision_again, note_failure
from ..quadrature.panel_rules import SPLIT
from ..quadrature.refinement import playthrough
from .certify import CertificateWriter
from .error import FIRST, NONE, WITNESS, Estimate, Judge, OpenExample, RefinementStep
from .fixed import full_ends
from .linear_regions import Handover, kinked
from .mesh import Grouped, Mesh
from .outcome import Outcome


class Adaptive:
    """One run of the adaptive control over a batch."""

    def __init__(
        self, evaluator: Evaluator, tol: float, max_evaluations: int, memory: int | None, *, handover: bool, asked: bool
    ) -> None:
        self.evaluator = evaluator
        self.asked = asked
        self.tol = tol
        self.limit = max_evaluations
        self.handover = Handover(evaluator, tol, max_evaluations, memory, allowed=handover)
        self.examples, self.pieces = evaluator.function.examples, len(evaluator.pieces)
        self.shares = np.array([piece.weight for piece in evaluator.pieces])
        self.pace = Pace.of(evaluator)
        # Room for an example: two waves of nodes on each piece, and its sums (four float64 rows a piece).
        nodes, sums = 8 * 2**self.pace.first + self.pace.first, 4 * 8 // evaluator.dtype.itemsize
        self.per_example = self.pieces * (nodes + sums)
        self.table = Mesh(evaluator, memory, self.pieces * nodes + 8)
        self.judge = Judge(self.table, self.shares)
        self.writer = CertificateWriter(evaluator, self.table, self.shares)
        self.waiting = deque(range(self.examples))
        self.active: list[OpenExample] = []
        self.groups: Grouped  # of the last wave
        self.values = torch.zeros(self.examples, evaluator.features, dtype=evaluator.dtype, device=evaluator.device)
        self.records: dict[int, ExampleCertificate] = {}
        none = np.zeros(0, np.int64)
        self.used: list[tuple[Nodes, Floats]] = [(Nodes(np.zeros(0), none, none), np.zeros(0))]
        self.expected = np.full(self.examples, 17 * self.pieces)
        self.end_scores = np.zeros((2, self.pieces, self.examples))
        self.moved = np.zeros(self.examples)  # by a lower precision (L1)
        self.free = evaluator.gradients.copy()  # gradients of checks and of attempts given up, which the limit is not for
        self.epsilon = evaluator.epsilon
        self.check_noise = tol < 1e4 * self.epsilon
        self.narrowest = 2.0**-20 if self.epsilon > 1e-10 else 2.0**-46  # times closer than this are the same point

    def run(self) -> Outcome:
        """Waves until every example has ended, or was ended by what it was handed over to."""
        self._waves()
        parts = [np.concatenate([getattr(nodes, part) for nodes, _ in self.used]) for part in ("t", "rows", "pieces")]
        records = [self.records[i] for i in range(self.examples)]
        return Outcome(self.values, records, Nodes(*parts), np.concatenate([weights for _, weights in self.used]))

    def _waves(self) -> None:
        halve = depths = np.zeros(0, np.int64)
        while self.waiting or self.active:
            fresh = self._admit(int((4 * 2**depths - 4).sum()))
            self._refine(halve, depths, fresh)
            self._look_at_fresh(fresh)
            halve, depths = self._judge_all() if self.active else (halve[:0], depths[:0])
            self.evaluator.tell(len(self.records), int(self.expected.sum()))

    def _admit(self, taken: int) -> Ints:
        """Examples to start with this wave: as many as there is room for, at least one if nothing else runs."""
        room = self.table.store.room - taken
        count = max(room // self.per_example, 0 if self.active else 1)
        fresh = np.array([self.waiting.popleft() for _ in range(min(int(count), len(self.waiting)))], np.int64)
        self.table.admit(fresh)
        self.active += [OpenExample(int(example), self.pace.first - 1) for example in fresh]
        return fresh

    def _refine(self, halve: Ints, depths: Ints, fresh: Ints) -> None:
        """Halve panels and start fresh examples, in as many parts as the memory for gradients asks for."""
        while True:
            count = self._fitting(halve, depths)
            witness = WITNESS if self.pace.first > 1 else None  # claims of the first wave are checked there in any case
            moved = self.table.refine(halve[:count], depths[:count], fresh, self.pace.first, witness)
            halve, depths, fresh = moved[halve[count:]], depths[count:], np.zeros(0, np.int64)
            if not len(halve):
                return

    def _fitting(self, halve: Ints, depths: Ints) -> int:
        """How many of the panels there is room to halve now; what is not needed is let go first."""
        store = self.table.store

        def needs() -> Ints:
            return np.asarray(np.cumsum(_costs(self.table.panels.slots[halve, 0], depths)))

        if not len(halve):
            return 0
        for spare in (halve, halve[:1]):
            want = needs()[len(spare) - 1]
            if want > store.room:
                self.table.let_go(int(want) - store.room, spare)
        return max(1, int(np.searchsorted(needs(), store.room, side="right")))

    def _look_at_fresh(self, fresh: Ints) -> None:
        """On the first wave: does F(x) come out as in the user's own batch, and how noisy are the gradients?"""
        if not len(fresh):
            return
        panels, scores = self.table.panels, self.table.store.scores
        mine = np.isin(panels.line % self.examples, fresh)
        for side, at_end, node in ((0, panels.start == 0, 0), (1, panels.start + panels.width == 1, 4)):
            index = np.flatnonzero(mine & at_end)
            line = panels.line[index]
            self.end_scores[side, line // self.examples, line % self.examples] = scores[panels.slots[index, node]]
        if outdated(self.evaluator, self.end_scores[1, -1, fresh], fresh):
            self._again()
            choose_precision_again(self.evaluator, self.tol)
            return
        try:
            check_rows(self.evaluator, self.end_scores[1, -1, fresh], fresh)
        except ModelError:
            if self.asked or not self.evaluator.runner.low:
                raise
            self._give_up()  # in float32 it will show whether it is the model or the precision
            return
        if self.evaluator.lowered is not None and self.evaluator.runner.low:
            full = full_ends(self.evaluator, fresh)
            slipped = self.shares @ ((full[1] - full[0]) - (self.end_scores[1] - self.end_scores[0])[:, fresh])
            self.evaluator.lowered.slip(fresh, slipped, self.evaluator.function.scale[fresh])
            self.end_scores[:, :, fresh] = full
        if self.check_noise:
            found = noise(self.evaluator, fresh)
            for one, value in zip(self.active[-len(fresh) :], found, strict=True):
                one.noise = float(value)

    def _judge_all(self) -> tuple[Ints, Ints]:
        """End what has ended; the panels to halve of the rest, and how often."""
        self.groups = Grouped.of(self.table.panels, self.examples, self.shares)
        verdicts = self.judge.verdicts(self.active, self.groups)
        self.moved = self.evaluator.moved()
        if self._too_coarse(verdicts):
            return self._give_up()
        steps = [self._next(one, verdict) for one, verdict in zip(self.active, verdicts, strict=True)]
        if self._unasked() and not {step.status for step in steps} <= {None, Status.CONVERGED}:
            return self._give_up()
        steps = self._doubted(steps)
        for one in self.active:
            one.waves += 1
        steps = self._handed_over(steps)
        self._end([step for step in steps if step.status is not None])
        going = [step for step in steps if step.status is None]
        kept = {step.one.example for step in going}
        where = self.table.remove(np.array([one.example for one in self.active if one.example not in kept], np.int64))
        self.active = [step.one for step in going]
        halve, depths = (np.concatenate([NONE, *parts]) for parts in ([s.halve for s in going], [s.depths for s in going]))
        return where[halve], depths

    def _too_coarse(self, verdicts: list[Estimate]) -> bool:
        """Whether a precision that nobody asked for turns out to move attributions by too much after all."""
        pairs = zip(self.active, verdicts, strict=True)
        return self._unasked() and any(2 * self.moved[one.example] > self.tol * verdict.size for one, verdict in pairs)

    def _unasked(self) -> bool:
        return self.evaluator.runner.low and not self.asked

    def _give_up(self) -> tuple[Ints, Ints]:
        """Go on in float32: a precision that nobody asked for does not do."""
        note_failure(self.evaluator, self.tol)
        self.evaluator.runner.take(PrecisionMode())
        return self._again()

    def _again(self) -> tuple[Ints, Ints]:
        """Start all unfinished examples once more."""
        unfinished = np.array([one.example for one in self.active], np.int64)
        self.evaluator.forget(unfinished)
        self.free[unfinished] = self.evaluator.gradients[unfinished]
        self.waiting.extend(unfinished.tolist())
        self.table.remove(unfinished)
        self.active = []
        return np.zeros(0, np.int64), np.zeros(0, np.int64)

    def _doubted(self, steps: list[RefinementStep]) -> list[RefinementStep]:
        """The same steps, but for claims of few nodes that a node off the grid does not bear out: all panels are halved."""
        claims = {s.one.example: s.verdict for s in steps if s.status is Status.CONVERGED and s.one.early()}
        doubted = self.judge.doubted(claims, self.tol)

        def again(step: RefinementStep) -> RefinementStep:
            if step.one.example not in doubted:
                return step
            verdict = replace(step.verdict, error=doubted[step.one.example])
            needed = self._spent(step.one.example) + 4 * len(step.index)
            status = None if needed <= self.limit else Status.BUDGET
            return replace(
                step, verdict=verdict, halve=step.index, depths=np.ones_like(step.index), status=status, needed=needed
            )

        return [again(step) for step in steps]

    def _handed_over(self, steps: list[RefinementStep]) -> list[RefinementStep]:
        """The steps of those that are sampled on, or have ended."""
        exact, tried = self.handover.exact([step for step in steps if step.status is None])
        for example, found in exact.items():
            self.values[example] = found.values.to(self.values.device, self.values.dtype)
            self.records[example] = found.certificate
            self.expected[example] = self.evaluator.gradients[example]
        out = []
        for step in steps:
            example = step.one.example
            if example in exact:
                continue
            if example in tried:  # which may have taken gradients
                step = self._next(step.one, step.verdict)
            out.append(step)
        return out

    def _next(self, one: OpenExample, verdict: Estimate) -> RefinementStep:
        """What to halve, or how the example ended."""
        part = self.groups.parts[one.example]
        index, panels, rule = self.groups.order[part], self.groups.panels[part], verdict.panel_rule
        goal, moved = self.tol * verdict.size, float(self.moved[one.example])
        one.floor = max(one.noise, self._score_noise(one.example, len(index)), self.epsilon * verdict.size, 2 * moved)
        verdict = replace(verdict, error=verdict.error + moved) if moved else verdict
        step = RefinementStep(one, verdict, index, panels)
        if verdict.error <= max(goal, one.floor):
            exact = verdict.error == verdict.size == 0
            return replace(step, status=Status.CONVERGED if one.floor <= goal or exact else Status.NOISE)
        squares = self.groups.squares[rule][part]
        # What the estimate is over the root of the summed squares, without the caution of the first wave.
        root = max(math.sqrt(squares.sum()), 1e-300)
        raised = max(verdict.panel_error / (FIRST if one.waves == 0 else 1.0) / root, 1.0)
        aim = (self.pace.aim * (max(goal, one.floor) - moved) / raised) ** 2
        jumps = self.writer.jumps(panels, rule, one.example)
        stuck = jumps | (panels.width <= self.narrowest)
        rest = float(squares[stuck].sum())
        if rest > aim:
            one.floor = max(one.floor, verdict.error)
            if jumps.any() and verdict.error <= 100 * self.evaluator.function.rounding()[one.example]:
                # Large terms that cancel: no jump, but their rounding. Nothing at all remains where no gradient does.
                return replace(step, status=Status.CONVERGED if verdict.size == 0 else Status.NOISE)
            return replace(step, status=Status.JUMP if jumps.any() else Status.NOISE)
        chosen, times = playthrough(np.where(stuck, 0.0, squares), aim - rest, SPLIT[rule], 4 * self.limit)
        spent, count = self._spent(one.example), int(times.sum())
        depths = np.ones_like(chosen)
        if self.pace.deepest > 1:
            deepest = self.pace.depth(one.waves, kinked=rule == "trapezoid" and kinked(panels))
            depths = np.clip(np.log2(times + 1).astype(np.int64), 1, deepest)
        if self.judge.doubling_pays(one, self.tol, count) or not len(chosen):
            chosen = np.flatnonzero(~stuck)
            depths = np.ones_like(chosen)
        self.expected[one.example] = self.free[one.example] + spent + 4 * min(count, (self.limit - spent) // 4)
        slots = panels.slots[chosen, 0]
        for depth in (depths, np.ones_like(depths)):  # by single halvings, should the budget be short
            within = int(np.searchsorted(np.cumsum(_costs(slots, depth)), self.limit - spent, side="right"))
            if within == len(chosen):
                break
        if not within:
            return replace(step, status=Status.BUDGET, needed=spent + 4 * count)
        return replace(step, halve=index[chosen[:within]], depths=depth[:within])

    def _spent(self, example: int) -> int:
        """Gradients that count towards the limit."""
        return int(self.evaluator.gradients[example] - self.free[example])

    def _score_noise(self, example: int, panels: int) -> float:
        """Rounding of F, half a unit in the last place at either end of each panel, in the root of summed squares."""
        epsilon = max(self.epsilon, COARSE.get(self.evaluator.runner.way.name, 0.0))
        return 0.5 * epsilon * float(self.evaluator.function.scale[example]) * math.sqrt(2 * panels)

    def _end(self, steps: list[RefinementStep]) -> None:
        """Write the values and records of examples that have ended."""
        if not steps:
            return
        examples = [step.one.example for step in steps]
        values = torch.stack([step.verdict.values for step in steps])
        steps = self._corrected(steps, values)
        self.values[torch.as_tensor(examples, device=self.values.device)] = values.to(self.values.device, self.values.dtype)
        for example, step in zip(examples, steps, strict=True):
            ends = self.end_scores[:, :, example]
            self.records[example] = self.writer.certificate(step, self.tol, ends)
            self.used.append(self.writer.weights_used(step))
        self.expected[examples] = self.evaluator.gradients[examples]

    def _corrected(self, steps: list[RefinementStep], values: Tensor) -> list[RefinementStep]:
        """With the scores of full precision, and without the part of what a lower one moves that is known.

        That part is added to the values (steps, features).
        """
        lowered, examples = self.evaluator.lowered, [step.one.example for step in steps]
        if lowered is None or not self.evaluator.runner.low:
            return steps
        if lowered.corrections is not None:
            values += lowered.corrections[examples].to(values)
        sums, sizes = torch.stack([values.sum(1), torch.linalg.vector_norm(values, 1, 1)]).tolist()
        starts, ends = self.end_scores[:, :, examples]
        residuals = (np.array(sums) - self.shares @ (ends - starts)).tolist()
        found = zip(steps, sizes, residuals, strict=True)
        return [replace(step, verdict=replace(step.verdict, size=size, residual=rest)) for step, size, rest in found]


def _costs(first_slots: Ints, depths: Ints) -> Ints:
    """New nodes of panels that are halved so often; those whose nodes were let go need all of them."""
    return np.asarray(4 * 2**depths + np.where(first_slots < 0, 1, -4))


def integrate_to_tolerance(
    evaluator: Evaluator,
    tol: float,
    *,
    max_evaluations: int,
    memory: int | None,
    handover: bool = True,
    precision: Precision = "float32",
) -> Outcome:
    """Integrate every example until its estimated error is within the tolerance, or say why not.

    Args:
        evaluator: evaluates gradients along the paths.
        tol: the relative L1 error to reach.
        max_evaluations: gradients that one example may take.
        memory: bytes that may be held.
        handover: whether linear regions may be used; those of probabilities leave no nodes and weights that the values are
            the sum of.
        precision: what to run the model in, see :func:`settle`.
    """
    choose_precision(evaluator, precision, tol)
    run = Adaptive(evaluator, tol, max_evaluations, memory, handover=handover, asked=precision != "auto")
    beside = run.table.device.type == "cpu" and evaluator.device.type != "cpu"
    with _alone(beside):
        return run.run()


@contextmanager
def _alone(wanted: bool) -> Iterator[None]:
    """Let one thread do what is left for the CPU beside a GPU: it is little, and many would wait for each other."""
    threads = torch.get_num_threads()
    try:
        if wanted:
            torch.set_num_threads(1)
        yield
    finally:
        if wanted:
            torch.set_num_threads(threads)


FREE, FREE_SMALL, SMALL = 136, 4352, 1 << 15
"""Rows that a GPU runs in hardly more time than one; those of networks with few features, which are small mostly; how few."""


@dataclass(frozen=True)
class Pace:
    """How far a wave goes before it is judged.

    Attributes:
        first: how many times a path is halved at first.
        deepest: how many times a panel is halved at the most, where a wave costs more than its nodes and the plan says so.
        aim: what plans aim for, over the tolerance: a little below, so that the last wave is not missed by a hair.
    """

    first: int
    deepest: int
    aim: float

    @staticmethod
    def of(evaluator: Evaluator) -> Pace:
        """Few nodes at first where smooth networks need no more; a GPU takes as long for a few rows as for dozens."""
        if evaluator.device.type == "cpu":
            return Pace(1, 1, 0.99)
        lines = evaluator.function.examples * len(evaluator.pieces)
        free = FREE if evaluator.features > SMALL else FREE_SMALL
        return Pace(2 if 17 * lines <= free else 1, 3, 0.97)

    def depth(self, waves: int, *, kinked: bool) -> int:
        """How many times a panel may be halved after so many waves.

        Two panels are little to plan by, and where gradients turn out smooth the plan was for far too many.
        """
        return self.deepest if waves and kinked else 1
