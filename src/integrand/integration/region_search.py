"""The linear regions of each example's lines: where the gradients are to be taken, and what they have to add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..backends.torch_function import TorchFunction
from ..evaluation.evaluator import Evaluator
from ..paths.base import Nodes
from ..trees import Leaves
from .region_lines import CLOSE, PathLine, RegionLimits, follow_lines, thinned
from .region_network import TRACED, NotExactError, PiecewiseLinearNetwork, network, scores_of, seeds, whole, whole_output

LOOKS = 2
"""In so many regions of each line, the widest, the gradient is taken at another place too: it must be the same."""

ELSEWHERE = 0.2113
"""Where in the region that is."""

LINES = 256
"""Lines to follow at a time, at the most."""


@dataclass(frozen=True)
class LinearRegions:
    """The regions of one piece of one example's path.

    Attributes:
        example: which example.
        piece: which piece.
        t: (R + 1,) break points.
        scores: (R + 1,) F there.
        expected: (R,) what is evaluated in the middle of each region has to be: F, or the outputs times the seeds.
        sizes: (R,) how large the numbers are that this is the sum of.
        seeds: (R, ...) what to multiply the outputs by before they are differentiated; None where the score is piecewise
            linear itself.
        along: F at the nodes.
    """

    example: int
    piece: int
    t: Floats
    scores: Floats
    expected: Floats
    sizes: Floats
    seeds: Tensor | None
    along: Floats

    def __len__(self) -> int:
        return len(self.t) - 1

    @property
    def looks(self) -> Ints:
        """The regions to look at twice."""
        return _looks(self.t)

    @property
    def nodes(self) -> Nodes:
        """The middle of each region, and then the second places."""
        widths = np.diff(self.t)
        again = self.t[self.looks] + ELSEWHERE * widths[self.looks]
        times = np.concatenate([self.t[:-1] + widths / 2, again])
        return Nodes(times, np.full(len(times), self.example), np.full(len(times), self.piece))


class Finder:
    """Finds the regions of examples; those that the model treats alike go through its operations side by side.

    Args:
        evaluator: what is explained, along which pieces.
        budget: the regions that each example may have, on all pieces of its path together.
        memory: bytes for the values at break points.
    """

    def __init__(self, evaluator: Evaluator, budget: Mapping[int, int], memory: int) -> None:
        self.evaluator, self.budget, self.memory = evaluator, budget, memory
        self.pieces = len(evaluator.pieces)
        scorer = evaluator.function.scorer
        self.seeded = scorer.score != "logit"
        # Examples with targets of their own share a program that gives all outputs.
        self.whole = self.seeded or (scorer.function is None and len(set(scorer.words)) > 1)
        self.function: TorchFunction = whole_output(evaluator.function) if self.whole else evaluator.function
        evaluator.forwards += int(self.whole)

    def find(self, examples: Sequence[int]) -> tuple[list[LinearRegions], dict[int, str]]:
        """The regions on all pieces of examples' paths, and why there are none for some examples."""
        found: list[LinearRegions] = []
        refused: dict[int, str] = {}
        groups = self._groups(examples)
        for i, alike in enumerate(groups):
            self.evaluator.forwards[alike[0]] += TRACED
            try:
                net = network(self.function, alike[0])
            except NotExactError as error:  # one model for all: that it is not followed is not found out again for each
                refused |= {example: str(error) for rest in groups[i:] for example in rest}
                break
            size = max(1, self._together() // self.pieces)
            for first in range(0, len(alike), size):
                for example, result in self._through(net, alike[first : first + size]).items():
                    if isinstance(result, NotExactError):
                        refused[example] = str(result)
                    else:
                        found += result
        return found, refused

    def _groups(self, examples: Sequence[int]) -> list[list[int]]:
        """Examples that share a program: all of them, unless something else of theirs than x goes into it."""
        call = self.function.call
        if call.args or call.kwargs or self.function.layered:
            return [[example] for example in examples]
        return [list(examples)]

    def _together(self) -> int:
        """Lines whose ends may be held at a time."""
        return max(1, min(LINES, self.memory // (64 * sum(leaf[0].numel() for leaf in self.function.inputs))))

    def _through(self, net: PiecewiseLinearNetwork, examples: list[int]) -> dict[int, list[LinearRegions] | NotExactError]:
        """What comes of examples that share a program."""
        evaluator = self.evaluator
        rows = torch.tensor(examples, device=evaluator.device)

        def points(t: float) -> Leaves:
            at = torch.full((len(examples),), t, dtype=evaluator.dtype, device=evaluator.device)
            parts = [piece.points_at(at, rows) for piece in evaluator.pieces]
            return tuple(torch.cat(leaves).detach().double() for leaves in zip(*parts, strict=True))

        most = np.array([self.budget[example] for example in examples]) - self.pieces + 1
        limits = RegionLimits(np.tile(most, self.pieces), self.memory)
        lines, spent = follow_lines(net, points(0), points(1), limits)
        out: dict[int, list[LinearRegions] | NotExactError] = {}
        for i, example in enumerate(examples):
            evaluator.forwards[example] += sum(spent[i :: len(examples)])
            try:
                out[example] = self._checked(example, lines[i :: len(examples)])
            except NotExactError as error:
                out[example] = error
        return out

    def _checked(self, example: int, lines: list[PathLine | NotExactError]) -> list[LinearRegions]:
        """The regions of one example's lines, one for each piece."""
        out: list[LinearRegions] = []
        for piece, line in enumerate(lines):
            if isinstance(line, NotExactError):
                raise line
            thin = thinned(line, max(CLOSE, 4 * self.evaluator.epsilon))
            if not bool(thin.values.isfinite().all()):
                raise NotExactError("the outputs are not finite everywhere on the line")
            outputs = thin.values.reshape(len(thin.t), *(self.shape if self.whole else ()))
            if self.seeded:
                out.append(self._seeded(thin.t, outputs, example, piece))
            else:
                out.append(_plain(thin.t, self._scores(outputs, example) if self.whole else outputs, example, piece))
        if sum(map(len, out)) > self.budget[example]:
            raise NotExactError(f"the lines cross more than {self.budget[example]} linear regions")
        return out

    def _scores(self, outputs: Tensor, example: int) -> Tensor:
        return scores_of(self.evaluator.function.scorer, outputs, example)

    def _seeded(self, t: Floats, outputs: Tensor, example: int, piece: int) -> LinearRegions:
        given, between = seeds(self.evaluator.function.scorer, outputs, example), (outputs[:-1] + outputs[1:]) / 2
        again = torch.lerp(outputs[:-1], outputs[1:], ELSEWHERE)[_looks(t)]
        scores, along = (self._scores(at, example).cpu().numpy() for at in (outputs, torch.cat([between, again])))
        parts = (given * between).flatten(1)
        expected, sizes = parts.sum(1).cpu().numpy(), parts.abs().sum(1).cpu().numpy()
        return LinearRegions(example, piece, t, scores, expected, sizes, given, along)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the model's output for one row."""
        function, row = self.function, torch.zeros(1, dtype=torch.long, device=self.evaluator.device)
        with torch.no_grad():
            outputs = function.run(tuple(leaf[:1] for leaf in function.inputs), row)
        return tuple(whole(outputs, batched=function.scorer.batched).shape[1:])


def _plain(t: Floats, at: Tensor, example: int, piece: int) -> LinearRegions:
    """The regions of a line on which the scores themselves are linear."""
    scores = at.cpu().numpy()
    middle = (scores[:-1] + scores[1:]) / 2
    again = (scores[:-1] + ELSEWHERE * np.diff(scores))[_looks(t)]
    return LinearRegions(example, piece, t, scores, middle, np.abs(middle), None, np.concatenate([middle, again]))


def _looks(t: Floats) -> Ints:
    """The widest regions."""
    return np.argsort(-np.diff(t), kind="stable")[:LOOKS]
