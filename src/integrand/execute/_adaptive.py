"""Integrating to a tolerance: waves of new nodes for all unfinished examples, each of which stops on its own.

Every path starts with two panels of five nodes. After each wave an example's panels are judged (:mod:`._judge`); those
that a plan says will be needed are halved, and every node that was evaluated is used again. While all panels of an
example have the same width, Romberg's rule on its nodes is judged too: on smooth networks it converges fastest.

Memory: gradients are kept for the nodes of open panels, up to a budget. Examples wait until there is room for them; when
there is no room to go on, panels with the smallest errors forget their nodes (their share of the sum stays) and are
evaluated again should they ever be halved.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..attribution import CurveCertificate, ExampleCertificate, Status
from ..quadrature import romberg
from ..quadrature._panels import SPLIT, estimate
from ..quadrature._plan import plan
from ._evaluate import Evaluator, Floats, Ints, Nodes
from ._fixed import path_ends
from ._judge import FIRST, RULES, Judge, Progressing, Verdict
from ._outcome import Outcome, relative
from ._table import Panels, Table

NARROW = 2.0**-16
"""Where a panel as narrow as this misses far more of the score than its gradients can account for, the score jumps."""

UNSEEN = 4.0
"""How many times more that is."""

AIM = 0.99
"""Plans aim a little below the tolerance, so that the last wave is not missed by a hair."""


class Adaptive:
    """One run of the adaptive control over a batch."""

    def __init__(self, evaluator: Evaluator, tol: float, max_evaluations: int, memory: int | None) -> None:
        self.evaluator = evaluator
        self.tol = tol
        self.limit = max_evaluations
        self.examples, self.pieces = evaluator.function.examples, len(evaluator.pieces)
        self.shares = np.array([piece.weight for piece in evaluator.pieces])
        # Room for an example: two waves of nodes on each piece, and its sums (four float64 rows a piece).
        sums = 4 * 8 // evaluator.dtype.itemsize
        self.per_example = self.pieces * (17 + sums)
        self.table = Table(evaluator, memory, self.pieces * 17 + 8)
        self.judge = Judge(self.table, self.shares)
        self.waiting = deque(range(self.examples))
        self.active: list[Progressing] = []
        self.values = torch.zeros(self.examples, evaluator.features, dtype=evaluator.dtype, device=evaluator.device)
        self.records: dict[int, ExampleCertificate] = {}
        self.used: list[tuple[Nodes, Floats]] = []
        self.expected = np.full(self.examples, 17 * self.pieces)
        self.end_scores = np.zeros((2, self.pieces, self.examples))
        self.epsilon = evaluator.epsilon
        self.check_noise = tol < 1e4 * self.epsilon
        self.narrowest = 2.0**-20 if self.epsilon > 1e-10 else 2.0**-46  # times closer than this are the same point

    def run(self) -> Outcome:
        """Waves until every example has ended."""
        halve = np.zeros(0, np.int64)
        while self.waiting or self.active:
            fresh = self._admit(len(halve))
            self._refine(halve, fresh)
            self._look_at_fresh(fresh)
            halve = self._judge_all()
            self.evaluator.tell(len(self.records), int(self.expected.sum()))
        parts = [np.concatenate([getattr(nodes, part) for nodes, _ in self.used]) for part in ("t", "rows", "pieces")]
        records = [self.records[i] for i in range(self.examples)]
        return Outcome(self.values, records, Nodes(*parts), np.concatenate([weights for _, weights in self.used]))

    def _admit(self, halving: int) -> Ints:
        """Examples to start with this wave: as many as there is room for, at least one if nothing else runs."""
        room = self.table.store.room - 4 * halving
        count = max(room // self.per_example, 0 if self.active else 1)
        fresh = np.array([self.waiting.popleft() for _ in range(min(int(count), len(self.waiting)))], np.int64)
        self.table.admit(fresh)
        self.active += [Progressing(int(example)) for example in fresh]
        return fresh

    def _refine(self, halve: Ints, fresh: Ints) -> None:
        """Halve panels and start fresh examples, in as many parts as the memory for gradients asks for."""
        while True:
            now, later = self._fitting(halve)
            moved = self.table.refine(now, fresh)
            halve, fresh = moved[later], np.zeros(0, np.int64)
            if not len(halve):
                return

    def _fitting(self, halve: Ints) -> tuple[Ints, Ints]:
        """The panels that there is room to halve now, and the others; what is not needed is let go first."""
        store = self.table.store

        def needs() -> Ints:
            slots = self.table.panels.slots[halve, 0] if len(halve) else np.zeros(0, np.int64)
            return np.asarray(np.cumsum(np.where(slots < 0, 9, 4)))

        for spare in (halve, halve[:1]):
            want = needs()[-1:] if spare is halve else needs()[:1]
            if len(want) and want[0] > store.room:
                self.table.let_go(int(want[0]) - store.room, spare)
        count = max(1, int(np.searchsorted(needs(), store.room, side="right")))
        return halve[:count], halve[count:]

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
        self.evaluator.check_rows(self.end_scores[1, -1, fresh], fresh)
        if self.check_noise:
            noise = self.evaluator.noise(fresh)
            for one, value in zip(self.active[-len(fresh) :], noise, strict=True):
                one.noise = float(value)

    def _judge_all(self) -> Ints:
        """End what has ended; the panels to halve of the rest."""
        panels = self.table.panels
        owner = panels.line % self.examples
        order = np.argsort(owner, kind="stable")
        found, starts = np.unique(owner[order], return_index=True)
        groups = dict(zip(found.tolist(), np.split(order, starts[1:]), strict=True))
        halve: list[Ints] = []
        ended: list[int] = []
        verdicts = self.judge.verdicts(self.active, groups)
        steps = [self._next(one, verdict, groups[one.example]) for one, verdict in zip(self.active, verdicts, strict=True)]
        claims = {
            one.example: v
            for one, v, s in zip(self.active, verdicts, steps, strict=True)
            if s[1] is Status.CONVERGED and one.early()
        }
        doubted = self.judge.doubted(claims, self.tol)
        for one, verdict, (chosen, status, needed) in zip(self.active, verdicts, steps, strict=True):
            one.waves += 1
            if one.example in doubted:
                verdict = replace(verdict, error=doubted[one.example])
                needed = int(self.evaluator.gradients[one.example]) + 4 * len(groups[one.example])
                chosen, status = groups[one.example], None if needed <= self.limit else Status.BUDGET
            if status is not None:
                self._end(one, verdict, groups[one.example], status, needed)
                ended.append(one.example)
            else:
                halve.append(chosen)
        self.active = [one for one in self.active if one.example not in set(ended)]
        where = self.table.remove(np.array(ended, np.int64))
        return where[np.concatenate(halve)] if halve else np.zeros(0, np.int64)

    def _next(self, one: Progressing, verdict: Verdict, index: Ints) -> tuple[Ints, Status | None, int | None]:
        """What to halve, or how the example ended."""
        none = np.zeros(0, np.int64)
        goal = self.tol * verdict.size
        one.floor = max(one.noise, self._score_noise(one.example, len(index)), self.epsilon * verdict.size)
        if verdict.error <= max(goal, one.floor):
            exact = verdict.error == verdict.size == 0
            return none, Status.CONVERGED if one.floor <= goal or exact else Status.NOISE, None
        panels, rule = self.table.panels[index], verdict.panel_rule
        squares = (panels.indicators(rule) * self.shares[panels.line // self.examples]) ** 2
        # What the estimate is over the root of the summed squares, without the caution of the first wave.
        raised = max(verdict.panel_error / (FIRST if one.waves == 0 else 1.0) / max(np.sqrt(squares.sum()), 1e-300), 1.0)
        aim = (AIM * max(goal, one.floor) / raised) ** 2
        jumps = self._jumps(panels, rule, one.example)
        stuck = jumps | (panels.width <= self.narrowest)
        if stuck.any() and squares[stuck].sum() > aim:
            one.floor = max(one.floor, verdict.error)
            if jumps.any() and verdict.error <= 100 * self.evaluator.function.rounding()[one.example]:
                # Large terms that cancel: no jump, but their rounding. Nothing at all remains where no gradient does.
                return none, Status.CONVERGED if verdict.size == 0 else Status.NOISE, None
            return none, Status.JUMP if jumps.any() else Status.NOISE, None
        chosen, count = plan(np.where(stuck, 0.0, squares), aim - squares[stuck].sum(), SPLIT[rule], 4 * self.limit)
        spent = int(self.evaluator.gradients[one.example])
        if self.judge.doubling_pays(one, self.tol, count) or not len(chosen):
            chosen = np.flatnonzero(~stuck)
        self.expected[one.example] = spent + 4 * min(count, (self.limit - spent) // 4)
        costs = np.cumsum(np.where(panels.slots[chosen, 0] < 0, 9, 4))
        chosen = chosen[: int(np.searchsorted(costs, self.limit - spent, side="right"))]
        if not len(chosen):
            return none, Status.BUDGET, spent + 4 * count
        return index[chosen], None, None

    def _jumps(self, panels: Panels, rule: str, example: int) -> NDArray[np.bool_]:
        """Where the score jumps: narrow panels that miss what their gradients, and rounding, cannot account for."""
        missing = np.abs(panels.missing(rule))
        norm = panels.trapezoid if rule == "trapezoid" else panels.simpson
        rounding = 50 * self.epsilon * self.evaluator.function.scale[example]
        return np.asarray((panels.width <= NARROW) & (missing > UNSEEN * norm) & (missing > rounding))

    def _score_noise(self, example: int, panels: int) -> float:
        """Rounding of F, half a unit in the last place at either end of each panel, in the root of summed squares."""
        return 0.5 * self.epsilon * float(self.evaluator.function.scale[example] * np.sqrt(2 * panels))

    def _end(self, one: Progressing, verdict: Verdict, index: Ints, status: Status, needed: int | None) -> None:
        """Write an example's values and record."""
        panels = self.table.panels[index]
        self.values[one.example] = verdict.values.to(self.values.device, self.values.dtype)
        starts, ends = self.end_scores[:, :, one.example]
        start, end = path_ends(self.shares, starts, ends)
        floor = one.floor if status is Status.NOISE else self.epsilon * verdict.size
        jump_at = jump_size = None
        if status is Status.JUMP:
            missing = panels.missing(verdict.panel_rule)
            jumps = self._jumps(panels, verdict.panel_rule, one.example)
            at = int(np.argmax(np.where(jumps, np.abs(missing), 0)))
            jump_at, jump_size = float(panels.start[at] + panels.width[at] / 2), float(missing[at])
        self.records[one.example] = self.evaluator.certificate(
            one.example,
            self.tol,
            score=float(end),
            baseline_score=float(start),
            residual=verdict.residual,
            magnitude=verdict.size,
            error=0.0
            if status is Status.CONVERGED and verdict.size == 0
            else relative(max(verdict.error, floor), verdict.size),
            status=status,
            rule=f"adaptive {verdict.rule}" + ("" if verdict.rule == "Romberg" else " panels"),
            needed=needed,
            jump_at=jump_at,
            jump_size=jump_size,
            curves=tuple(self._curve(p, one, verdict, panels) for p in range(self.pieces)) if self.pieces > 1 else (),
        )
        self.used.append(self._weights_used(one, verdict, panels))
        self.expected[one.example] = self.evaluator.gradients[one.example]

    def _curve(self, piece: int, one: Progressing, verdict: Verdict, panels: Panels) -> CurveCertificate:
        """The certificate of one piece, judged by the panel rule."""
        rule = verdict.panel_rule
        mine = panels[panels.line // self.examples == piece]
        sums = self.table.sums[self.table.place[one.example], piece, 2 * RULES.index(rule) :]
        missing = float(mine.missing(rule).sum())
        squares = np.array([(mine.indicators(rule) ** 2).sum()])
        error = float(estimate(rule, sums[1:2], squares, np.array([missing]))[0])
        starts, ends = self.end_scores[:, piece, one.example]
        share = float(self.shares[piece])
        relative_error = relative(error, float(sums[0].abs().sum()))
        return CurveCertificate(share, float(starts), float(ends), -missing, relative_error, 4 * len(mine) + 1)

    def _weights_used(self, one: Progressing, verdict: Verdict, panels: Panels) -> tuple[Nodes, Floats]:
        """The nodes and weights that the values are the sum of, ends of neighbouring panels listed twice."""
        if verdict.rule == "Romberg" and one.level is not None:
            rule = romberg(one.level)
            t, piece = np.tile(rule.nodes, self.pieces), np.repeat(np.arange(self.pieces), len(rule))
            weights = np.tile(rule.weights, self.pieces)
        else:
            t = (panels.start[:, None] + panels.width[:, None] * np.arange(5) / 4).ravel()
            piece = np.repeat(panels.line // self.examples, 5)
            weights = panels.weights[:, RULES.index(verdict.panel_rule)].ravel()
        return Nodes(t, np.full(len(t), one.example), piece), weights * self.shares[piece]


def integrate_to_tolerance(evaluator: Evaluator, tol: float, *, max_evaluations: int, memory: int | None) -> Outcome:
    """Integrate every example until its estimated error is within the tolerance, or say why not."""
    return Adaptive(evaluator, tol, max_evaluations, memory).run()
