"""Running segments of paths: forwards at their ends, one way back for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .._trees import flat
from ..errors import ModelError
from ..operations import folded, trace
from ..secants import SecantProgram
from ._evaluate import Evaluator
from ._nodes import Floats, Ints, Nodes

LONGEST = 4
"""Segments in a row that share their ends; every strand of them costs one forward more than it has segments."""

FORWARD = 0.4
"""What a forward costs, over that of a forward and a way back."""

PROBE = 0.381966
"""Where on the path a program is tried: far from every node."""


@dataclass(frozen=True)
class Spans:
    """Segments from ``start`` to ``stop`` on ``pieces`` of the path of examples ``rows``, (K,) each."""

    start: Floats
    stop: Floats
    rows: Ints
    pieces: Ints

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, index: Ints) -> Spans:
        return Spans(self.start[index], self.stop[index], self.rows[index], self.pieces[index])


@dataclass(frozen=True)
class Spanned:
    """What came of some segments.

    Attributes:
        index: which, (N,).
        before: F at their starts, (N,).
        after: F at their ends, (N,).
        terms: their attributions, (N, features).
    """

    index: Ints
    before: Floats
    after: Floats
    terms: torch.Tensor


class SegmentRunner:
    """Runs segments, as many strands of them side by side as there are rows.

    Making it takes a forward for each row, a forward and a way back for each row, and one gradient of the model.

    Args:
        evaluator: knows the paths, and counts.
        examples: the example of each row to try the program with.

    Raises:
        IntegrandError: the model cannot be followed, an operation has no rule, or the operations that were followed have
            another gradient than the model.
    """

    def __init__(self, evaluator: Evaluator, examples: Ints) -> None:
        self.evaluator, self.rows = evaluator, len(examples)
        labels = torch.as_tensor(examples, device=evaluator.device)
        program = folded(trace(evaluator.function, labels, open_rows=True, check=False))
        leaves, _ = evaluator.points(Nodes(np.full(self.rows, PROBE), examples, np.zeros_like(examples)))
        self.program, values = SecantProgram.prepare(program, (*leaves, labels))
        bound = self.program.bind(labels)
        self._compare(bound.scores(values), flat(bound.back(values, values, leaves)), examples)

    def _compare(self, scores: torch.Tensor, slopes: torch.Tensor, examples: Ints) -> None:
        """Over a segment of length zero secants are the gradient: the model's own must be the same."""
        evaluator, first = self.evaluator, examples[:1]
        leaves, speeds = evaluator.points(Nodes(np.array([PROBE]), first, np.zeros_like(first)))
        value, gradients = evaluator.function.value_and_grad(leaves, torch.as_tensor(first, device=evaluator.device))
        # As they will be used: where x is as the baseline, gradients at kinks may differ and do no harm.
        mine, own = (part[0].double() * flat(speeds)[0].double() for part in (slopes, flat(gradients)))
        slack = 2e3 * evaluator.epsilon
        size = max(float(own.abs().sum()), float(mine.abs().sum()))
        same = abs(float(scores[0] - value[0])) <= slack * evaluator.function.scale[first[0]] + slack
        if not same or not float((mine - own).abs().sum()) <= max(5e-3 if slack > 1e-6 else 1e-6, slack) * size:
            raise ModelError("the model's operations, followed one by one, have another gradient than the model.")

    def run(self, spans: Spans) -> Iterator[Spanned]:
        """Attributions of segments, some at a time."""
        strands = _strands(spans, self.rows)
        for first in range(0, len(strands), self.rows):
            yield from self._side_by_side(spans, strands[first : first + self.rows])

    def _side_by_side(self, spans: Spans, strands: Sequence[Ints]) -> Iterator[Spanned]:
        """Strands in the rows of one program; rows that are left over repeat the first."""
        evaluator, used = self.evaluator, len(strands)
        lead = np.array([strand[0] for strand in strands] + [strands[0][0]] * (self.rows - used))
        examples, pieces = spans.rows[lead], spans.pieces[lead]
        bound = self.program.bind(torch.as_tensor(examples, device=evaluator.device))
        points, speeds = evaluator.points(Nodes(spans.start[lead], examples, pieces))
        values = bound.forward(points)
        before = bound.scores(values).double().cpu().numpy()
        np.add.at(evaluator.forwards, examples[:used], 1)
        for step in range(max(map(len, strands))):
            here = np.array([strand[min(step, len(strand) - 1)] for strand in strands] + list(lead[used:]))
            points, speeds = evaluator.points(Nodes(spans.stop[here], examples, pieces))
            ended = bound.forward(points)
            after = bound.scores(ended).double().cpu().numpy()
            slopes = bound.back(values, ended, points)
            active = np.array([i for i, strand in enumerate(strands) if step < len(strand)])
            terms = evaluator.added(flat(slopes).to(evaluator.dtype) * flat(speeds))[torch.as_tensor(active)]
            found = here[active]
            middle = Nodes((spans.start[found] + spans.stop[found]) / 2, examples[active], pieces[active])
            evaluator.note(middle, (before[active] + after[active]) / 2, terms)
            width = torch.as_tensor(spans.stop[found] - spans.start[found], device=evaluator.device)[:, None]
            np.add.at(evaluator.gradients, examples[active], 1)
            yield Spanned(found, before[active], after[active], terms * width.to(evaluator.dtype))
            values, before = ended, after


def _strands(spans: Spans, rows: int) -> list[Ints]:
    """Segments that follow each other, in strands of the length at which the rows are best used; the longest first."""
    order = np.lexsort((spans.start, spans.rows, spans.pieces))
    joined = (
        (spans.stop[order[:-1]] == spans.start[order[1:]])
        & (spans.rows[order[:-1]] == spans.rows[order[1:]])
        & (spans.pieces[order[:-1]] == spans.pieces[order[1:]])
    )
    chains = np.split(order, np.flatnonzero(~joined) + 1)

    def cut(longest: int) -> list[Ints]:
        parts = [part for chain in chains for part in np.array_split(chain, -(-len(chain) // longest))]
        return sorted(parts, key=len, reverse=True)

    def cost(strands: list[Ints]) -> float:
        return sum(FORWARD + len(strand) for strand in strands[::rows])

    return min((cut(longest) for longest in range(1, LONGEST + 1)), key=cost)
