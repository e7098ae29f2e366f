"""Integrating by segment secants: for examples whose gradients move too wildly to be sampled cheaply.

An example comes here from the adaptive control, which has looked at a few of its gradients. Every piece of its path starts
with four segments and their halves; segments whose halves differ from them are halved on, until the estimate
(:mod:`..quadrature._secants`) is within the tolerance. Secants are exact about the score by construction, so what sampling
leans on, the part of the score's change that a sum misses, says nothing here. Instead:

- the operations that were followed must give the model's scores at the ends of the path, and its gradient at a point;
- where few features are explained, or few segments hold the error, the widest are halved once more before a claim is
  believed: a unit may flip and flip back inside a segment, and leave no trace at its ends;
- what comes out must be as far from what sampling said as sampling said it was off.

Whatever fails one of these is sampled after all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..attribution import CurveCertificate, ExampleCertificate, Status
from ..errors import IntegrandError
from ..functions._parts import out_of_memory
from ..quadrature._plan import plan
from ..quadrature._secants import SPLIT, estimate, features, segments
from ._evaluate import Evaluator
from ._families import Tree
from ._fixed import path_ends
from ._judge import Progressing
from ._nodes import Floats, Ints
from ._outcome import relative
from ._segments import SegmentRunner, Spanned, Spans
from ._table import Table

RULE = "adaptive segment secants"

AIM = 0.99
"""Plans aim a little below the tolerance, so that the last wave is not missed by a hair."""

NARROW = 2.0**-16
"""Segments are not halved beyond this: what has not settled there will not, and sampling can say why."""

MANY = 1000.0
"""Effective features from which on a claim needs no second look, if it rests on many segments."""

MANY_SEGMENTS = 8.0
"""And so many are many."""

LEAST = 0.5
"""Of the tolerance: less than this is not claimed on the word of few features or segments."""

FEW = 4
"""As many as this are halved at a time, if as many are to be halved at all."""

WITNESSES = 3
"""Of so many segments, the widest is halved for that."""

APART = 2.0
"""How many times what sampling said it was off its answer may be from this one."""

SIDE_BY_SIDE = {"cpu": 4}
"""Rows per example in a program; elsewhere, :data:`WIDE`."""

WIDE = 16


@dataclass
class Handed:
    """An example that the adaptive control hands over.

    Attributes:
        one: what its waves have shown.
        error: what sampling says it is off by, absolute.
        starts: F at the start of each piece, (pieces,).
        ends: F at the end of each.
        witnessed: whether the widest segments were halved to see whether a claim holds.
    """

    one: Progressing
    error: float
    starts: Floats
    ends: Floats
    witnessed: bool = False


@dataclass(frozen=True)
class Judged:
    """An example after a wave: absolute error, L1 norm, values, residual, and whether many numbers say so."""

    error: float
    size: float
    values: Tensor
    residual: float
    many: bool


@dataclass
class Done:
    """What became of the examples that were handed over: certificates, and why others are to be sampled."""

    records: dict[int, ExampleCertificate] = field(default_factory=dict)
    back: dict[int, str] = field(default_factory=dict)


class Secants:
    """One run over the examples that were handed over.

    Args:
        evaluator: knows the paths, and counts.
        tol: the tolerance.
        limit: gradient evaluations that one example may take.
        table: lends its store, which is empty by now.
        values: (examples, features) of the whole batch: holds what sampling found so far, and is filled.
        expected: (examples,) gradients that each is expected to take, kept up to date.
    """

    def __init__(self, evaluator: Evaluator, tol: float, limit: int, table: Table, values: Tensor, expected: Ints) -> None:
        self.evaluator, self.tol, self.limit, self.table = evaluator, tol, limit, table
        self.values, self.expected = values, expected
        self.shares = np.array([piece.weight for piece in evaluator.pieces])
        self.examples = evaluator.function.examples
        self.done = Done()

    def run(self, handed: list[Handed]) -> Done:
        """Integrate what was handed over."""
        try:
            self._prepare(handed)
            tree = Tree(self.evaluator, self.table.store, self.table.block_bytes, self._run)
            count = tree.at_once
            for first in range(0, len(handed), count):
                self._together(tree, handed[first : first + count])
        except (IntegrandError, RuntimeError, MemoryError) as error:
            for one in handed:
                if one.one.example not in self.done.records:
                    self.done.back.setdefault(one.one.example, _reason(error))
        finally:
            self.table.store.clear()
        return self.done

    def _prepare(self, handed: list[Handed], rows: int | None = None) -> None:
        """Follow the model's operations; what that takes is shared by all, and counted as if there were room for all."""
        evaluator, each = self.evaluator, SIDE_BY_SIDE.get(self.evaluator.device.type, WIDE)
        examples = np.array([one.one.example for one in handed])
        evaluator.forwards[examples] += each
        evaluator.gradients[examples] += each
        evaluator.gradients[examples[0]] += 1
        rows = min(evaluator.chunks.size, each * len(examples)) if rows is None else rows
        self.handed = handed
        try:
            self.runner = SegmentRunner(evaluator, np.resize(examples, rows))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error) or rows == 1:
                raise
            self._prepare(handed, rows // 2)

    def _run(self, spans: Spans) -> Iterator[Spanned]:
        """Run segments; in fewer rows, where there is no memory for as many."""
        left = np.arange(len(spans))
        while len(left):
            seen: list[Ints] = []
            try:
                for done in self.runner.run(spans[left]):
                    seen.append(done.index)
                    yield Spanned(left[done.index], done.before, done.after, done.terms)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error) or self.runner.rows == 1:
                    raise
                self._prepare(self.handed, self.runner.rows // 2)
            left = np.delete(left, np.concatenate(seen)) if seen else left

    def _together(self, tree: Tree, handed: list[Handed]) -> None:
        """Waves over some examples until all have ended."""
        found = tree.start(np.array([one.one.example for one in handed]))
        active = []
        for one in handed:
            if self._same(one, *found[one.one.example]):
                active.append(one)
            else:
                self.done.back[one.one.example] = "the operations that were followed give other scores than the model"
        tree.remove(np.array(list(self.done.back), np.int64))
        while active:
            chosen, ended = [], []
            for one in active:
                halve = self._next(tree, one)
                if halve is None:
                    ended.append(one.one.example)
                else:
                    chosen.append(halve)
            active = [one for one in active if one.one.example not in ended]
            where = tree.remove(np.array(ended, np.int64))
            if active:
                tree.refine(where[np.concatenate(chosen)])
            self._tell()

    def _tell(self) -> None:
        finished = self.examples - len(self.handed) + len(self.done.records)
        self.evaluator.tell(finished, int(np.maximum(self.expected, self.evaluator.gradients).sum()))

    def _same(self, one: Handed, starts: Floats, ends: Floats) -> bool:
        """Whether the program gives the scores at the ends of the path that the model gave."""
        slack = float(np.clip(4e3 * self.evaluator.epsilon, 1e-6, 0.2)) * self.evaluator.function.scale[one.one.example]
        return bool(max(np.abs(starts - one.starts).max(), np.abs(ends - one.ends).max()) <= slack)

    def _next(self, tree: Tree, one: Handed) -> Ints | None:
        """The families to halve; None where the example has ended, or is given back."""
        example, index = one.one.example, tree.of(one.one.example)
        family = tree.families[index]
        share = self.shares[family.line // self.examples]
        norms = share * family.change
        judged = self._judge(tree, example, norms, float((share * family.missing).sum()))
        goal = self.tol * judged.size
        floor = one.one.floor = max(one.one.noise, self._score_noise(example, len(index)), self.evaluator.epsilon * judged.size)
        reached = judged.error <= max(goal, floor)
        if reached and (judged.many or one.witnessed):
            self._end(tree, one, judged, Status.CONVERGED if floor <= goal else Status.NOISE)
            return None
        if reached:
            one.witnessed = True
            count = max(FEW, -(-len(family) // WITNESSES))
            chosen = np.lexsort((-norms, -family.width))[:count]
        else:
            chosen, count = self._plan(norms, judged.error, max(goal, floor))
        stuck = not reached and judged.error <= abs(judged.residual)  # halving changes nothing about that
        if stuck or (family.width[chosen] <= NARROW).any():
            self.done.back[example] = "they do not settle"
            return None
        spent = int(self.evaluator.gradients[example])
        costs = np.cumsum(np.where(family.slots[chosen, 0] < 0, 7, 4))
        chosen = chosen[: int(np.searchsorted(costs, self.limit - spent, side="right"))]
        if not len(chosen):
            self._end(tree, one, judged, Status.BUDGET, spent + 4 * count)
            return None
        self.expected[example] = min(spent + 4 * count, self.limit)
        return index[chosen]

    def _plan(self, norms: Floats, error: float, goal: float) -> tuple[Ints, int]:
        """The families to halve now, and how many halvings it will take."""
        raised = max(error / max(float(np.sqrt((norms**2).sum())), 1e-300), 1.0)
        chosen, count = plan(norms**2, (AIM * goal / raised) ** 2, SPLIT, self.limit)
        if not len(chosen):
            return np.array([np.argmax(norms)]), 1
        # The more even the segments become, the less caution is left in the estimate: plans ask for too much.
        return chosen[: max(FEW, -(-len(chosen) // 2))], count

    def _judge(self, tree: Tree, example: int, norms: Floats, missing: float) -> Judged:
        values, change = tree.pooled(example, self.shares)
        size = float(values.abs().sum())
        many = features(change) >= MANY and segments(norms) >= MANY_SEGMENTS
        return Judged(estimate(change, norms, missing, size), size, values, -missing, many)

    def _score_noise(self, example: int, families: int) -> float:
        """Rounding of F at the ends of each segment."""
        return 0.5 * self.evaluator.epsilon * float(self.evaluator.function.scale[example] * np.sqrt(2 * families))

    def _end(self, tree: Tree, one: Handed, judged: Judged, status: Status, needed: int | None = None) -> None:
        """Write an example's values and certificate, unless they are too far from what sampling said."""
        example = one.one.example
        sampled = self.values[example].to(judged.values.device, torch.float64)
        apart = float((judged.values - sampled).abs().sum())
        if not apart <= APART * (one.error + judged.error):
            self.done.back[example] = "what they gave is too far from what a few gradients say"
            return
        self.values[example] = judged.values.to(self.values.device, self.values.dtype)
        self.expected[example] = self.evaluator.gradients[example]
        start, end = path_ends(self.shares, one.starts, one.ends)
        floor = one.one.floor if status is Status.NOISE else self.evaluator.epsilon * judged.size
        self.done.records[example] = self.evaluator.certificate(
            example,
            self.tol,
            score=float(end),
            baseline_score=float(start),
            residual=judged.residual,
            magnitude=judged.size,
            error=relative(max(judged.error, floor, 0.0 if judged.many else LEAST * self.tol * judged.size), judged.size),
            status=status,
            rule=RULE,
            needed=needed,
            curves=tuple(self._curve(tree, one, p) for p in range(len(self.shares))) if len(self.shares) > 1 else (),
        )

    def _curve(self, tree: Tree, one: Handed, piece: int) -> CurveCertificate:
        """The certificate of one piece."""
        family = tree.families[tree.of(one.one.example)]
        family = family[family.line // self.examples == piece]
        values, change = tree.sums[tree.place[one.one.example], piece]
        missing, size = float(family.missing.sum()), float(values.abs().sum())
        error = relative(estimate(change, family.change, missing, size), size)
        segments = 4 * len(family) - 4  # the tree's: 3 for each of the first four, 4 for each halving
        share, start, end = self.shares[piece], one.starts[piece], one.ends[piece]
        return CurveCertificate(float(share), float(start), float(end), -missing, error, segments)


def _reason(error: BaseException) -> str:
    """The first sentence of what went wrong."""
    return str(error).split(". ")[0].splitlines()[0]
