"""Integrating to a tolerance: rounds of new nodes for all unfinished examples, each of which stops on its own.

There is one loop, :func:`refine_until_done`, for gradients (here) and for Hessians (:mod:`integrand.analysis.hessian_panels`);
what is integrated, by which panel rule, and when an example has ended, is said by an :class:`AdaptiveIntegral`.

For gradients every path starts with two panels of the rule. After each round an example's error is estimated
(:mod:`integrand.integration.error`); the panels that a plan says will be needed are halved, and every node that was evaluated
is used again. While all panels of an example have the same width, Romberg's rule on its nodes is considered, too: on smooth
networks it converges fastest. On a GPU, where a round costs more than its nodes, rounds are fewer and larger.

Examples whose first rounds show kinks, and far to go, are integrated over their linear regions instead
(:mod:`integrand.integration.linear_regions`), if the model is small and its operations can be followed. The others are refined
to the end.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sized
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..backends.precision import BACKWARD, Precision, PrecisionMode
from ..certificate import MAX_KNOWN_ERROR, ExampleCertificate, Status
from ..errors import ModelError
from ..evaluation.checks import check_rows, graphs_outdated, half_precision_noise, noise
from ..evaluation.evaluator import Evaluator
from ..paths.base import Nodes
from ..quadrature.panel_rules import FIVE_POINT, PanelRule
from ..quadrature.refinement import plan
from ..trees import on_device
from .certify import CertificateWriter, Decision, Outcome, draws_kept, no_draws
from .error import (
    FEWEST_LOOKS,
    USUAL,
    Claim,
    ClaimTest,
    ErrorEstimator,
    Estimate,
    OpenExample,
    Refutation,
    may_be_broad,
    places,
)
from .mesh import NONE, GroupedPanels, Mesh, Split
from .unseen import HALF, MOST, UNSEEN, UnseenChange, find_unseen

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class Refinable(Protocol[S_contra]):
    """A mesh that can be refined."""

    def refine(self, split: S_contra, fresh: Ints) -> None:
        """Split panels, start the paths of fresh examples, and evaluate what that needs."""
        ...


class AdaptiveIntegral(Protocol[S]):
    """What the one adaptive loop needs to know of what it integrates."""

    waiting: deque[int]

    @property
    def mesh(self) -> Refinable[S]:
        """What is refined."""
        ...

    @property
    def active(self) -> Sized:
        """The examples that have started and not ended."""
        ...

    def admit(self, split: S) -> Ints:
        """The waiting examples to start with the next round, as many as there is room for."""
        ...

    def judge(self, fresh: Ints) -> S:
        """After a round: end the examples that have ended, and say which panels of the others to split."""
        ...


def refine_until_done(integral: AdaptiveIntegral[S], nothing: S) -> None:
    """The adaptive loop: refinement rounds until every example has ended.

    Args:
        integral: what is integrated.
        nothing: a split of no panels, to start with.
    """
    split = nothing
    while integral.waiting or integral.active:
        fresh = integral.admit(split)
        integral.mesh.refine(split, fresh)
        split = integral.judge(fresh)


LOOKS = (2, 4, 8, 16)
"""Rounds after which an example is looked into that misses far more of the score than its gradients account for. It is also
looked into after each round that leaves its error as large as before: steps that gradients do not follow do not shrink."""

FREE, FREE_SMALL, SMALL = 136, 4352, 1 << 15
"""Rows that a GPU runs in hardly more time than one; those of networks with few features, which are small mostly; how few."""

FREE_BYTES = 256 << 20
"""Activations up to which a GPU takes no longer for seventeen nodes of a smooth network than for five."""

SCORE_NOISE = 4.0
"""Rounding of the change of the score over a panel, in roundings of the score at one point."""

TIGHT = 0.012
"""The tolerance below which image networks with kinks take more than 65 gradients in any case, and start with these."""


@dataclass(frozen=True)
class Pacing:
    """How far a round goes before examples are judged.

    Attributes:
        first: how many times a path is halved at first.
        deepest: how many times a panel is halved at the most, where a round costs more than its nodes and the plan says so.
        aim: what plans aim for, over the tolerance: a little below, so that the last round does not miss it by a hair.
        checked: whether the gradients that claims are looked at by are evaluated at once, with the first round.
    """

    first: int
    deepest: int
    aim: float
    checked: bool = False

    @staticmethod
    def of(evaluator: Evaluator, rule: PanelRule, tol: float) -> Pacing:
        """Few nodes at first where smooth networks need no more; a GPU takes as long for a few rows as for dozens."""
        broad = may_be_broad(evaluator.features, len(evaluator.pieces))
        if evaluator.device.type == "cpu":
            return Pacing(0 if broad else 1, 1, 0.99)
        evaluator.measure_rows()
        lines = evaluator.function.examples * len(evaluator.pieces)
        if broad and evaluator.smooth:
            free = rule.count(2) * lines * evaluator.chunks.row_bytes <= FREE_BYTES
            return Pacing(2 if free else 0, 3, 0.97, checked=True)
        large = evaluator.features > SMALL
        if large and evaluator.kinked and rule.count(3) * lines <= FREE:  # whose networks always need more
            return Pacing(4 if tol <= TIGHT and rule.count(4) * lines <= FREE else 3, 3, 0.97)
        first = 2 if rule.count(2) * lines <= (FREE if large else FREE_SMALL) else 1
        return Pacing(first, 3, 0.97, checked=first == 2)

    def depth(self, rounds: int, *, kinked: bool) -> int:
        """How many times a panel may be halved after so many rounds.

        Two panels are little to plan by, and where gradients turn out smooth the plan was for far too many. A single panel that
        will not do is halved twice: then there is something to judge by.
        """
        if rounds < 0:
            return 2
        return self.deepest if rounds and kinked else 1


class GradientIntegral:
    """The integral of gradients along the paths of a batch.

    Args:
        evaluator: evaluates gradients along the paths.
        tol: the relative L1 error to reach.
        max_evaluations: gradients that one example may take.
        memory: bytes that may be held.
        regions: whether linear regions may be used.
        asked: whether the user asked for the precision mode in use.
        widens: whether a half-precision model may be run as in float32, where the tolerance asks for it.
        rule: the panel rule.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        tol: float,
        max_evaluations: int,
        memory: int | None,
        *,
        regions: bool = True,
        asked: bool = True,
        widens: bool = False,
        rule: PanelRule = FIVE_POINT,
    ) -> None:
        self.evaluator, self.asked_tol, self.limit, self.memory = evaluator, tol, max_evaluations, memory
        self.tol = min(tol, MAX_KNOWN_ERROR)
        self.asked, self.regions, self.widens = asked, regions, widens
        self.examples, self.pieces = evaluator.function.examples, len(evaluator.pieces)
        self.shares = np.array([piece.weight for piece in evaluator.pieces])
        self.pacing = Pacing.of(evaluator, rule, tol)
        # Where a round costs more than its nodes, those that claims are looked at by are evaluated at once.
        off_grid, at_once = places(evaluator.features, self.pieces)[:USUAL], self.pacing.checked
        self.mesh = Mesh(rule, evaluator, memory, halvings=self.pacing.first, off_grid=off_grid, at_once=at_once)
        self.errors = ErrorEstimator(self.mesh, self.shares)
        self.writer = CertificateWriter(evaluator, self.mesh, self.shares)
        self.waiting = deque(range(self.examples))
        self.active: list[OpenExample] = []
        self.groups: GroupedPanels  # of the last round
        self.values = torch.zeros(self.examples, evaluator.features, dtype=evaluator.dtype, device=evaluator.device)
        self.draws = no_draws(self.examples, draws_kept(self.values, memory), evaluator.features)
        self.records: dict[int, ExampleCertificate] = {}
        self.used: list[tuple[Nodes, Floats]] = [(Nodes(np.zeros(0), NONE, NONE), np.zeros(0))]
        self.expected = np.full(self.examples, rule.count(2) * self.pieces)
        self.end_scores = np.zeros((2, self.pieces, self.examples))
        self.shifts = np.zeros(self.examples)  # by a lower precision (L1)
        self.mass = np.zeros(self.examples)  # mean size of gradients (L1), where their rounding is coarse
        self.free = evaluator.gradients.copy()  # gradients of checks and of attempts given up, which the limit is not for
        self.epsilon = evaluator.epsilon
        evaluator.singular_starts = True
        self.narrowest = 2.0**-20 if self.epsilon > 1e-10 else 2.0**-46  # times closer than this are the same point

    def outcome(self) -> Outcome:
        """Values and certificates of all examples, once all have ended."""
        parts = [np.concatenate([getattr(nodes, part) for nodes, _ in self.used]) for part in ("t", "rows", "pieces")]
        records = [self.records[i] for i in range(self.examples)]
        weights = np.concatenate([weights for _, weights in self.used])
        return Outcome(self.values, records, Nodes(*parts), weights, self.draws)

    def admit(self, split: Split) -> Ints:
        """The waiting examples that there is room to start with the next round; at least one if nothing else runs."""
        count = max(self.mesh.room(split), 0 if self.active else 1)
        fresh = np.array([self.waiting.popleft() for _ in range(min(int(count), len(self.waiting)))], np.int64)
        self.active += [OpenExample(int(example), self.pacing.first - 1) for example in fresh]
        if len(fresh) and self._backward_unchecked():
            from ..evaluation.precision_choice import checked_nodes

            self.evaluator.soon(checked_nodes(self.evaluator, fresh))
        return fresh

    def judge(self, fresh: Ints) -> Split:
        """End the examples that have ended; the panels of the others to halve, and how often."""
        if not self._trusts(fresh):
            return Split()
        if len(fresh):
            self._grade(fresh)
        if not self.active:
            return Split()
        self.groups = GroupedPanels.of(self.mesh, self.shares, self._allowances())
        found = self.errors.estimates(self.active, self.groups)
        self.shifts = self.evaluator.precision_shift()
        self.mass = self.evaluator.mass() if self.epsilon > HALF else np.zeros(self.examples)
        if self._too_coarse(found):
            return self._give_up_precision()
        decisions = [self._decide(one, estimate) for one, estimate in zip(self.active, found, strict=True)]
        if self._unasked() and not {step.status for step in decisions} <= {None, Status.CONVERGED}:
            return self._give_up_precision()
        if self._too_coarse_inside(decisions):
            self.evaluator.widen()
            self.epsilon = self.evaluator.epsilon
            return self._start_again()
        decisions = self._looked_into(decisions)
        claims = [self._claim(step) for step in decisions if step.status is Status.CONVERGED]
        test = ClaimTest(self.mesh, self.shares, claims, self.tol)
        for done in self.mesh.source.gradients_at(test.nodes):
            test.note(done)
        test.note_scores(self.mesh.source.scores_at(test.scored))
        refuted = test.refuted()
        refuted |= self._flashes([claim for claim in claims if claim.one.example not in refuted])
        cancelling = [claim for claim in claims if claim.one.example not in refuted and test.cancelling(claim)]
        if cancelling:
            from .halves import HalvesTest

            refuted |= HalvesTest(self.mesh, self.shares, self.tol).refuted(cancelling)
        decisions = [self._halved(s, refuted[s.one.example]) if s.one.example in refuted else s for s in decisions]
        for one in self.active:
            one.rounds += 1
        decisions = self._by_linear_regions(decisions)
        self._end([step for step in decisions if step.status is not None])
        going = [step for step in decisions if step.status is None]
        kept = {step.one.example for step in going}
        where = self.mesh.remove(np.array([one.example for one in self.active if one.example not in kept], np.int64))
        self.active = [step.one for step in going]
        worst = max(one.error / one.size if one.size else 0.0 for one in found)
        self.evaluator.tell(len(self.records), int(self.expected.sum()), worst)
        panels = np.concatenate([NONE, *(step.split.panels for step in going)])
        return Split(where[panels], np.concatenate([NONE, *(step.split.depths for step in going)]))

    def _trusts(self, fresh: Ints) -> bool:
        """On an example's first round: does F(x) come out as in the user's own batch, and how noisy are the gradients?

        Returns:
            False where all unfinished examples start again: CUDA graphs were outdated, or a lower precision is given up.
        """
        if not len(fresh):
            return True
        panels, scores = self.mesh.panels, self.mesh.store.scores
        mine = np.isin(panels.line % self.examples, fresh)
        for side, at_end, node in ((0, panels.start == 0, 0), (1, panels.start + panels.width == 1, -1)):
            index = np.flatnonzero(mine & at_end)
            line = panels.line[index]
            self.end_scores[side, line // self.examples, line % self.examples] = scores[panels.slots[index, node]]
        if graphs_outdated(self.evaluator, self.end_scores[1, -1, fresh], fresh):
            from ..evaluation.precision_choice import choose_precision_again

            self._start_again()
            choose_precision_again(self.evaluator, self.tol)
            return False
        try:
            check_rows(self.evaluator, self.end_scores[1, -1, fresh], fresh)
        except ModelError:
            if not self._unasked():
                raise
            self._give_up_precision()  # in float32 it will show whether it is the model or the precision
            return False
        if self.evaluator.shift is not None and self.evaluator.runner.mode.low_scores:
            from .fixed import end_scores_in_full

            full = end_scores_in_full(self.evaluator, fresh)
            missing = self.shares @ ((full[1] - full[0]) - (self.end_scores[1] - self.end_scores[0])[:, fresh])
            self.evaluator.shift.note_scores(fresh, missing, self.evaluator.function.scale[fresh])
            self.end_scores[:, :, fresh] = full
        if self._backward_unchecked() and not self._backward_checked(fresh):
            self._give_up_precision()
            return False
        self._note_precision(fresh)
        return True

    def _backward_unchecked(self) -> bool:
        """Whether backward passes are in TF32 without anybody having asked for it, so that every example is to be checked."""
        return self._unasked() and self.evaluator.runner.mode.name == BACKWARD

    def _backward_checked(self, fresh: Ints) -> bool:
        """Whether TF32 in backward passes leaves room for the tolerance, by some nodes of examples that have just started."""
        from ..evaluation.precision_choice import CHECKED, backward_checked

        panels = self.mesh.panels
        t, slots = panels.start[:, None] + panels.width[:, None] * self.mesh.rule.nodes, panels.slots
        at = np.empty((len(fresh), self.pieces, len(CHECKED)), np.int64)
        for k, time in enumerate(CHECKED):
            panel, node = np.nonzero(t == time)
            place = np.full(self.examples * self.pieces, -1, np.int64)
            place[panels.line[panel]] = slots[panel, node]
            at[:, :, k] = place.reshape(self.pieces, self.examples)[:, fresh].T
        return backward_checked(self.evaluator, fresh, self.mesh.store.rows(at), self.tol)

    def _note_precision(self, fresh: Ints) -> None:
        """What rounding does to the gradients and the scores of examples that have just started."""
        started = self.active[-len(fresh) :]
        self.epsilon = self.evaluator.note_precision()
        half = self.epsilon > HALF
        if half:
            for one, stays, averages in zip(started, *half_precision_noise(self.evaluator, fresh), strict=True):
                one.half, one.measured = True, self.evaluator.full is not None
                one.noise, one.node_noise = float(stays), float(averages)
                # Two scores, each off by half a unit in the last place.
                one.allowance = self.epsilon * float(self.evaluator.function.scale[one.example])
        elif self.tol < 1e4 * self.epsilon:
            for one, gradients, scores in zip(started, *noise(self.evaluator, fresh), strict=True):
                one.noise, one.allowance = float(gradients), SCORE_NOISE * float(scores)

    def _allowances(self) -> Floats:
        """What panels of each example may miss of the score without that saying anything, (examples,)."""
        out = np.zeros(self.examples)
        for one in self.active:
            out[one.example] = one.allowance
        return out

    def _looked_into(self, decisions: list[Decision]) -> list[Decision]:
        """The decisions again, once it is known what examples do that miss more of the score than their gradients explain."""
        missed = (Status.BUDGET, Status.NOISE)
        due = [step for step in decisions if step.status in missed or (step.status is None and self._stalled(step))]
        odd = [step for step in due if not step.one.hidden and self._unexplained(step)]
        if not odd or self.evaluator.runner.mode.low_scores:
            return decisions
        examples = np.array([step.one.example for step in odd])
        room = np.array([self.limit - self._spent(example) >= MOST for example in examples])
        found: dict[int, UnseenChange] = {}
        for gradients in (True, False):
            mine = examples[room == gradients]
            found |= find_unseen(self.evaluator, mine, self.shares, gradients=gradients) if len(mine) else {}
        told = [step.one for step in odd if step.one.example in found]
        for one in told:
            one.unseen = found[one.example]
            one.allowance = max(one.allowance, one.unseen.allowance)
            del one.history[-1:]  # which estimates() is about to add once more
        if not told:
            return decisions
        self.groups = GroupedPanels.of(self.mesh, self.shares, self._allowances())
        again = zip(told, self.errors.estimates(told, self.groups), strict=True)
        redone = {one.example: self._decide(one, estimate) for one, estimate in again}
        return [redone.get(step.one.example, step) for step in decisions]

    def _stalled(self, step: Decision) -> bool:
        """Tell whether refinement may be in vain: after so many rounds, or where the last one left the error as large."""
        example, error = step.one, step.found.error
        previous, example.last_error = example.last_error, error
        return example.rounds in LOOKS or (example.rounds > LOOKS[0] and error >= previous)

    def _unexplained(self, step: Decision) -> bool:
        """Whether an example misses far more of the change of the score than its gradients account for."""
        part, number = self.groups.parts[step.one.example], step.found.candidate
        weights = self.shares[step.panels.line // self.examples]
        gradients = self.mesh.rule.candidates[number].kappa * weights * step.panels.norms[:, number]
        missed = abs(float(self.groups.missing[number][part].sum())) - step.one.allowance
        most = max(float(self.groups.squares[number][part].sum()), max(missed, 0.0) ** 2)
        return most > UNSEEN**2 * float((gradients**2).sum())

    def _too_coarse(self, found: list[Estimate]) -> bool:
        """Whether a precision that nobody asked for turns out to shift attributions by too much after all."""
        pairs = zip(self.active, found, strict=True)
        return self._unasked() and any(2 * self.shifts[one.example] > self.tol * estimate.size for one, estimate in pairs)

    def _too_coarse_inside(self, decisions: list[Decision]) -> bool:
        """Whether a half-precision model is not precise enough for the tolerance, and can be run as in float32."""
        coarse = any(step.one.half and not step.one.precise_enough(self.tol * step.found.size) for step in decisions)
        return coarse and self.widens and not self.evaluator.widened and self.evaluator.full is not None

    def _unasked(self) -> bool:
        return self.evaluator.runner.low and not self.asked

    def _give_up_precision(self) -> Split:
        """Go on in float32: a precision that nobody asked for does not do."""
        self.evaluator.runner.mode = PrecisionMode()
        return self._start_again()

    def _start_again(self) -> Split:
        """Start all unfinished examples once more."""
        self._restart(np.array([one.example for one in self.active], np.int64))
        return Split()

    def _restart(self, examples: Ints) -> None:
        """Start some unfinished examples once more."""
        self.evaluator.forget(examples)
        self.free[examples] = self.evaluator.gradients[examples]
        self.waiting.extend(examples.tolist())
        self.mesh.remove(examples)
        self.active = [one for one in self.active if one.example not in examples]

    def _grade(self, fresh: Ints) -> None:
        """Start examples again on graded paths if the start of their paths turns out to be singular."""
        panels = self.mesh.panels
        start, elsewhere = np.zeros((2, self.pieces * self.examples))
        first = panels.start == 0
        start[panels.line[first]] = panels.masses[first, 0]
        np.maximum.at(elsewhere, panels.line, np.where(first, panels.masses[:, 1:].max(1), panels.masses.max(1)))
        again = self.mesh.paths.grade(fresh, start, elsewhere)
        if len(again):
            if self._unasked():  # a lower precision was compared at other nodes
                self.evaluator.runner.mode, again = PrecisionMode(), np.array([one.example for one in self.active])
            self._restart(again)

    def _flashes(self, claims: list[Claim]) -> dict[int, Refutation]:
        """The claims about probabilities that flash between the nodes, by example."""
        scores = self.mesh.store.scores[self.mesh.panels.slots]
        outside = np.flatnonzero((scores.min(1) < 0) | (scores.max(1) > 1))
        claims = [claim for claim in claims if not np.isin(claim.index, outside).any()]
        if not claims:
            return {}
        from .odds import OddsTest

        odds = OddsTest(self.mesh, self.shares, claims, self.tol)
        return odds.refuted(self.mesh.source.scores_at(odds.nodes))

    def _claim(self, step: Decision) -> Claim:
        """What an example claims that has converged."""
        return Claim(step.one, step.found, step.index)

    def _halved(self, step: Decision, wrong: Refutation) -> Decision:
        """Halve the panels where the claim of an example did not hold, or say that the budget is spent."""
        needed = self._spent(step.one.example) + self.mesh.rule.cells * len(wrong.panels)
        return replace(
            step,
            found=replace(step.found, error=wrong.error),
            split=Split(wrong.panels, np.ones_like(wrong.panels)),
            status=None if needed <= self.limit else Status.BUDGET,
            needed=needed,
        )

    def _by_linear_regions(self, decisions: list[Decision]) -> list[Decision]:
        """The decisions that remain once examples with few linear regions are integrated over these."""
        kinked = [step for step in decisions if self._may_be_followed(step)]
        if not self.regions or self.evaluator.runner.low or not kinked:
            return decisions
        from .linear_regions import integrate_regions

        exact, tried = integrate_regions(self.evaluator, self.tol, self.limit, self.memory, kinked)
        self.regions = not tried or bool(exact)  # what is not piecewise linear is not followed again
        for example, found in exact.items():
            self.values[example] = found.values.to(self.values.device, self.values.dtype)
            self.records[example] = replace(found.certificate, tol=self.asked_tol)
            self.draws.scale[example] = 0.0
            self.expected[example] = self.evaluator.gradients[example]
        left = [step for step in decisions if step.one.example not in exact]
        # An attempt may have taken gradients, which count towards the limit.
        return [self._decide(step.one, step.found) if step.one.example in tried else step for step in left]

    def _may_be_followed(self, step: Decision) -> bool:
        """Tell whether to look for linear regions: there are kinks and far to go, or a claim rests on few of the kinks."""
        if step.one.hidden:
            return False
        if step.status is None:
            return step.one.rounds == 2 and step.panels.kinked
        doubtful = not step.panels.kinked or step.one.looks < FEWEST_LOOKS
        return step.status is Status.CONVERGED and doubtful and self.evaluator.kinked

    def _decide(self, one: OpenExample, found: Estimate) -> Decision:
        """How an example ended, or which of its panels to halve."""
        step = self._judged(one, found)
        # Where the score changes without a gradient, gradients that are integrated well cannot make the sum complete.
        return step.ended(Status.JUMP) if one.hidden and step.status is not None else step

    def _judged(self, one: OpenExample, found: Estimate) -> Decision:
        """How an example ended as far as its gradients go, or which of its panels to halve."""
        part = self.groups.parts[one.example]
        index, panels = self.groups.order[part], self.groups.panels[part]
        goal, shift = self.tol * found.size, float(self.shifts[one.example])
        rounding = self.epsilon * found.size
        if one.measured:
            rounding = 0.0
        elif one.half:  # gradients may cancel along the path, their rounding does not
            rounding = self.evaluator.gradient_rounding() * max(found.size, float(self.mass[one.example]))
        noise = math.hypot(one.noise, one.node_noise / math.sqrt(self.mesh.rule.cells * len(index)))
        one.floor = max(noise, self._score_noise(one.example, len(index)), rounding, 2 * shift)
        if one.unseen is not None and not one.hidden:  # whose rounding is not known but for its traces in the score
            one.floor = max(one.floor, abs(found.residual))
        elif not one.half and not one.hidden:  # what the sum misses is in the error, also where it is rounding
            one.floor = max(one.floor, min(abs(found.residual), one.allowance))
        found = replace(found, error=found.error + shift) if shift else found
        step = Decision(one, found, index, panels)
        if found.error <= one.target(goal):
            nothing = found.size == 0  # to attribute: what F changes by is rounding
            return step.ended(Status.CONVERGED if one.precise_enough(goal) or nothing else Status.NOISE)
        squares = self.groups.squares[found.candidate][part]
        # What the estimate is over the root of the summed squares, without the caution of the first round.
        root = max(math.sqrt(squares.sum()), 1e-300)
        raised = max(found.candidate_error / one.first_caution / root, 0.5)
        aim = (self.pacing.aim * (one.target(goal) - shift) / raised) ** 2
        stuck = panels.width <= self.narrowest
        free = np.where(stuck, 0.0, squares)
        rest = float(squares[stuck].sum())
        if rest > aim and free.sum() <= rest:  # as good as it gets
            one.floor = max(one.floor, found.error)
            return step.ended(Status.NOISE)
        return self._planned(step, free, aim - rest if rest <= aim else rest, ~stuck)

    def _planned(
        self, step: Decision, squares: Floats, goal: float, free: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> Decision:
        """Which panels to halve, and how often, to bring the sum of squares to a goal; or that the budget is spent."""
        rule, one, found = self.mesh.rule, step.one, step.found
        chosen, times = plan(squares, goal, rule.candidates[found.candidate].shrink, 4 * self.limit)
        spent, count = self._spent(one.example), int(times.sum())
        depths = np.ones_like(chosen)
        if self.pacing.deepest > 1 or one.rounds < 0:
            kinked = found.candidate == 0 and step.panels.kinked and not self.evaluator.smooth
            deepest = self.pacing.depth(one.rounds, kinked=kinked)
            depths = np.clip(np.log2(times + 1).astype(np.int64), 1, deepest)
        if self.errors.doubling_pays(one, self.tol, count) or not len(chosen):
            chosen = np.flatnonzero(free)
            depths = np.ones_like(chosen)
        cells = rule.cells
        self.expected[one.example] = self.free[one.example] + spent + cells * min(count, (self.limit - spent) // cells)
        panels = step.index[chosen]
        for depth in (depths, np.ones_like(depths)):  # by single halvings, should the budget be short
            costs = np.cumsum(self.mesh.cost(Split(panels, depth)))
            within = int(np.searchsorted(costs, self.limit - spent, side="right"))
            if within == len(chosen):
                break
        if not within:  # more gradients would not meet a tolerance that is below what rounding leaves
            enough = one.precise_enough(self.tol * found.size)
            return step.ended(Status.BUDGET if enough else Status.NOISE, spent + cells * count)
        return replace(step, split=Split(panels[:within], depth[:within]))

    def _spent(self, example: int) -> int:
        """Gradients that count towards the limit."""
        return int(self.evaluator.gradients[example] - self.free[example])

    def _score_noise(self, example: int, panels: int) -> float:
        """Rounding of F, half a unit in the last place at either end of each panel, in the root of summed squares."""
        if self.epsilon > HALF:
            return 0.0  # it is allowed for, panel by panel
        return 0.5 * self.evaluator.rounding * float(self.evaluator.function.scale[example]) * math.sqrt(2 * panels)

    def _end(self, ended: list[Decision]) -> None:
        """Write the values and certificates of examples that have ended."""
        if not ended:
            return
        examples = [step.one.example for step in ended]
        values = torch.stack([step.found.values for step in ended])
        ended = self._corrected(ended, values)
        self.values[on_device(examples, self.values.device)] = values.to(self.values.device, self.values.dtype)
        for example, step in zip(examples, ended, strict=True):
            self.records[example] = self.writer.certificate(step, self.asked_tol, self.end_scores[:, :, example])
            self.used.append(self.writer.weights_used(step))
        self.writer.draw_errors(ended, self.draws)
        self.expected[examples] = self.evaluator.gradients[examples]

    def _corrected(self, ended: list[Decision], values: Tensor) -> list[Decision]:
        """Add the known part of a lower precision's shift to the values, and judge sums by the scores of full precision."""
        shift, examples = self.evaluator.shift, [step.one.example for step in ended]
        if shift is None or not self.evaluator.runner.low:
            return ended
        if shift.corrections is not None:
            values += shift.corrections[examples].to(values)
        sums, sizes = torch.stack([values.sum(1), torch.linalg.vector_norm(values, 1, 1)]).tolist()
        starts, ends = self.end_scores[:, :, examples]
        residuals = (np.array(sums) - self.shares @ (ends - starts)).tolist()
        found = zip(ended, sizes, residuals, strict=True)
        return [replace(step, found=replace(step.found, size=size, residual=rest)) for step, size, rest in found]


def integrate_to_tolerance(
    evaluator: Evaluator,
    tol: float,
    *,
    max_evaluations: int,
    memory: int | None,
    regions: bool = True,
    precision: Precision = "float32",
    differentiable: bool = False,
) -> Outcome:
    """Integrate every example until its estimated error is within the tolerance, or say why not.

    Args:
        evaluator: evaluates gradients along the paths.
        tol: the relative L1 error to reach.
        max_evaluations: gradients that one example may take.
        memory: bytes that may be held.
        regions: whether linear regions may be used; those of probabilities leave no nodes and weights that the values are
            the sum of.
        precision: what to run the model in.
        differentiable: whether the values will be computed once more, with their graph.
    """
    half = any(torch.finfo(leaf.dtype).eps > HALF for leaf in evaluator.function.inputs) and not differentiable
    if half and precision == "float32" and evaluator.full is not None:
        evaluator.widen()
    if precision != "float32" and not (precision == "auto" and evaluator.device.type != "cuda"):
        from ..evaluation.precision_choice import choose_precision

        choose_precision(evaluator, precision, tol)
    asked = precision != "auto"
    with nullcontext() if evaluator.device.type == "cpu" else ONE_CORE:
        integral = GradientIntegral(
            evaluator, tol, max_evaluations, memory, regions=regions, asked=asked, widens=half and not asked
        )
        refine_until_done(integral, Split())
        return integral.outcome()


class OneCore:
    """A context in which one core does what is left for the CPU beside a GPU: it is little, and many would wait for each other.

    Each thread has a number of cores of its own, but one that starts later has what any thread asked for last: so all that are
    inside at the same time go back to what the first of them had.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._cores = threading.Lock(), 0, 1

    def __enter__(self) -> None:
        with self._lock:
            self._cores = self._cores if self._inside else torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            torch.set_num_threads(self._cores)


ONE_CORE = OneCore()
