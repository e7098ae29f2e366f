"""Graded paths: where the score is singular at the start of a path, nodes lie at t = s^power and gather there.

A normalisation divides by the size of what it sees. Where a path starts at zero in front of one, the model sees x / |x| of
t * x: within t = 1e-3, or 1e-11 after ten of them, the representation turns, and with it goes much of what the score changes
by. Equal steps in t miss that turn. With t = s^power they do not, and the start itself, where the gradient may be 1e13 and
belongs to a stretch of length 1e-11, has the weight zero.

The mesh integrates over s. Evaluations, profiles and the places of jumps are in t, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from ..arrays import Bools, Floats, Ints
from ..evaluation.evaluator import Evaluated, Evaluator
from ..paths.base import Nodes
from ..trees import flat, on_device

OCTAVES = 4
"""Each of the times at which the start is looked at is 2^-OCTAVES of the one before."""

DEEPEST = 25
"""Times that a singular start is looked at, down to 2^-100: float32 ends at 2^-126."""

TURNED = 0.25
"""How far the output at t = 2^-8 is from that at the start, over how far it is at 2^-4. A smooth function has 1/16."""

STEEP = 16.0
"""The gradient at the start over the largest one at other first nodes, from which on the start is singular."""

STIRS = 0.01
"""A stretch of the path matters if the output changes there by this share of the largest change."""

NARROW = 12
"""Octaves down to the shortest stretch that matters, where the output does not show it."""

PLACED = 3.0
"""The power places the narrowest stretch that matters at s = 2^-PLACED."""

POWERS = (2.0, 34.0)
"""The smallest and the largest power."""


class GradedPaths:
    """Evaluates scores and gradients along paths in the mesh's own time s, from 0 to 1.

    Args:
        evaluator: evaluates them in t.

    Attributes:
        powers: t = s^power on each line, piece * examples + example, (pieces * examples,).
        known: whether an example's first round has told what powers its lines need, (examples,).
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.examples = evaluator, evaluator.function.examples
        self.powers = np.ones(len(evaluator.pieces) * self.examples)
        self.known = np.zeros(self.examples, bool)

    def graded(self, example: int) -> bool:
        """Whether any line of an example is graded."""
        return bool((self.powers[example :: self.examples] > 1).any())

    @property
    def any_graded(self) -> bool:
        """Whether any line is graded."""
        return bool((self.powers > 1).any())

    def in_t(self, nodes: Nodes) -> tuple[Nodes, Floats]:
        """Nodes in t, and dt/ds there, (K,)."""
        power = self.powers[nodes.pieces * self.examples + nodes.rows]
        if (power == 1).all():
            return nodes, power
        return Nodes(nodes.t**power, nodes.rows, nodes.pieces), power * nodes.t ** (power - 1)

    def gradients_at(self, nodes: Nodes) -> Iterator[Evaluated]:
        """Scores, dF/ds and gradient times dx/ds at nodes, chunk by chunk; see :meth:`Evaluator.gradients_at`."""
        timed, speed = self.in_t(nodes)
        if timed is nodes:
            yield from self.evaluator.gradients_at(nodes)
            return
        # A start has no weight, and a gradient that may overflow: it is not asked for.
        starts = (speed < 1) & (timed.t < torch.finfo(self.evaluator.dtype).tiny)
        where = np.flatnonzero(~starts)
        for done in self.evaluator.gradients_at(timed[where]):
            index = where[done.index]
            factor = on_device(speed[index], done.terms.device, done.terms.dtype)
            yield Evaluated(index, done.scores, done.slopes * speed[index], done.terms * factor[:, None])
        index = np.flatnonzero(starts)
        if len(index):
            scores, nothing = self.evaluator.scores_at(timed[index]), np.zeros(len(index))
            terms = torch.zeros(len(index), self.evaluator.features, dtype=self.evaluator.dtype, device=self.evaluator.device)
            yield Evaluated(index, scores, nothing, terms)

    def scores_at(self, nodes: Nodes) -> Floats:
        """Scores at nodes, (K,)."""
        return self.evaluator.scores_at(self.in_t(nodes)[0])

    def grade(self, examples: Ints, start: Floats, elsewhere: Floats) -> Ints:
        """Grade lines with a singular start: the output turns there, or gradients overflow or are far larger than elsewhere.

        Args:
            examples: that have been through their first round.
            start: L1 norms of gradients times velocity at the start of every line, (pieces * all examples,).
            elsewhere: the largest of the other nodes, likewise.

        Returns:
            The examples that have to start again.
        """
        fresh = examples[~self.known[examples]]
        self.known[fresh] = True
        lines = (fresh + self.examples * np.arange(len(self.evaluator.pieces))[:, None]).ravel()
        singular = ~np.isfinite(start[lines]) | ((start[lines] > STEEP * elsewhere[lines]) & (elsewhere[lines] > 0))
        if self.evaluator.normalises:
            singular |= self._turns(lines)
        if singular.any():
            self.powers[lines[singular]] = self._powers(lines[singular])
        return np.unique(lines[singular] % self.examples)

    def _turns(self, lines: Ints) -> Bools:
        """Whether lines start at a zero in some feature, and the output turns right there, (lines,)."""
        turns = self._from_zero(lines)
        if turns.any():
            outputs = self._outputs(lines[turns], np.r_[0.0, 2.0 ** -np.array([OCTAVES, 2 * OCTAVES])])
            far, near = np.linalg.norm(outputs[:, 1:] - outputs[:, :1], axis=2).T
            turns[turns] = near > TURNED * far
        return turns

    def _from_zero(self, lines: Ints) -> Bools:
        """Whether some feature starts at zero and moves, (lines,)."""
        evaluator, (piece, example) = self.evaluator, np.divmod(lines, self.examples)
        nodes = Nodes(np.zeros(len(lines)), example, piece)

        def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Bools]:
            points, velocities = (flat(leaves) for leaves in evaluator.points(here))
            return index, np.asarray(((points == 0) & (velocities != 0)).any(1).cpu().numpy())

        zero = np.zeros(len(lines), bool)
        for index, found in evaluator.in_chunks(nodes, evaluate):
            zero[index] = found
        return zero

    def _powers(self, lines: Ints) -> Floats:
        """The powers of lines with a singular start: by the shortest stretch on which the output still changes, (lines,)."""
        outputs = self._outputs(lines, 2.0 ** -(OCTAVES * np.arange(DEEPEST + 1.0)))
        change = np.linalg.norm(np.diff(outputs, axis=1), axis=2)
        matters = change > STIRS * change.max(1, keepdims=True)
        shortest = np.where(matters.any(1), OCTAVES * (DEEPEST - matters[:, ::-1].argmax(1)), NARROW)
        return np.asarray(np.clip(np.ceil(shortest / PLACED), *POWERS))

    def _outputs(self, lines: Ints, times: Floats) -> Floats:
        """Outputs of the model on lines at times, (lines, times, numbers)."""
        piece, example = np.divmod(np.repeat(lines, len(times)), self.examples)
        outputs = self.evaluator.outputs_at(Nodes(np.tile(times, len(lines)), example, piece))
        return np.asarray(outputs.reshape(len(lines), len(times), -1))
