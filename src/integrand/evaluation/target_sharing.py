"""Targets of one input: examples that are the same input on the same path share forward passes.

A user who explains K outputs of one input passes a batch of K equal rows and K targets. Such examples pass through the same
points, so that the model is run there once, and a backward pass is taken for each target. Where their panels are halved
differently there is less to share, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from ..backends.checkpointing import CheckpointedRun
from ..backends.torch_function import TorchFunction
from ..errors import GradientError, IntegrandError
from ..functions.call import ModelCall, take
from ..functions.layer import LayerCall
from ..paths.base import Piece
from ..trees import Leaves, on_device
from .checks import check_finite

if TYPE_CHECKING:
    from ..arrays import Floats, Ints
    from ..paths.base import Nodes
    from .evaluator import Evaluated, Evaluator, Mixture

LOOKED_AT = 512
"""Features of each row, at the most, that tell different rows apart before any two are compared as a whole."""

TRIES = 8
"""Others that an example is compared with."""

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class TargetSharing:
    """Evaluates nodes of examples that share forward passes.

    Attributes:
        lead: the first example that is the same input on the same path, (examples,).
        refused: whether the model turned out not to allow a second backward pass.
    """

    lead: Ints
    refused: bool = False

    def gradients_at(self, evaluator: Evaluator, nodes: Nodes) -> Iterator[Evaluated]:
        """Scores and gradients at nodes: those at one point from one forward pass, the others one by one."""
        left = np.ones(len(nodes), bool)
        # Scores in a lower precision are checked pass by pass; several workers have the nodes dealt out to them.
        alone = self.refused or evaluator.runner.mode.low_scores or evaluator.workers is not None
        for points in () if alone else _gathered(nodes, self.lead, _room(evaluator)):
            for done in self._together(evaluator, nodes, points):
                left[done.index] = False
                np.add.at(evaluator.gradients, nodes.rows[done.index], 1)
                yield done
        index = np.flatnonzero(left)
        if len(index):
            for done in evaluator.gradients_at(nodes[index], shared=False):
                yield replace(done, index=index[done.index])

    def on_grid(self, evaluator: Evaluator, nodes: Nodes) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """The same at every example at every time; see :meth:`Evaluator.gradients_on_grid`."""
        for done in evaluator.gradients_at(nodes):
            steps = done.index // len(self.lead)
            for step in np.unique(steps):
                here = np.flatnonzero(steps == step)
                which = on_device(nodes.rows[done.index[here]], evaluator.device)
                yield slice(step, step + 1), which, done.terms[on_device(here, evaluator.device)][None]

    def scores_at(self, evaluator: Evaluator, nodes: Nodes, mixture: Mixture | None) -> Floats:
        """Scores at nodes, (N,), from forward passes alone: one for all nodes at a point."""
        beside = () if mixture is None else (mixture.rest, mixture.choice)
        keys = np.stack([nodes.t, *beside, self.lead[nodes.rows], nodes.pieces], 1)
        _, place, sizes = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(place.ravel(), kind="stable")
        there = np.arange(sizes.max()) < sizes[:, None]
        points = np.full(there.shape, -1)
        points[there] = order  # (points, targets), -1 where a point has fewer
        out = np.empty(len(nodes))

        def evaluate(index: Ints, here: Nodes) -> None:
            asked = np.where(there[index], nodes.rows[points[index]], -1)
            with torch.no_grad():
                leaves = evaluator.mixed_points(here, points[index, 0], mixture)
                targets = on_device(asked.T.copy(), evaluator.device)
                scores = evaluator.runner.several_scores(leaves, evaluator.rows_of(here), targets)
            mine = points[index][there[index]]
            out[mine] = scores.T.double().cpu().numpy()[there[index]]
            if mixture is None:  # points beside the path may be outside the model's domain
                check_finite(evaluator.function.tree.names, nodes[mine], out[mine], np.zeros(len(mine)), ())

        for _ in evaluator.in_chunks(nodes[points[:, 0]], evaluate):
            pass
        np.add.at(evaluator.forwards, nodes.rows, 1)
        return out

    def _together(self, evaluator: Evaluator, nodes: Nodes, points: Ints) -> Iterator[Evaluated]:
        """Nodes at the same points, (points, targets) with -1 where a point has fewer."""
        rows = np.where(points < 0, -1, nodes.rows[points])

        def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Leaves, list[tuple[Tensor, Leaves]]]:
            leaves, velocities = evaluator.points(here)
            mine = rows[index][:, (rows[index] >= 0).any(0)]
            asked = on_device(mine.T.copy(), evaluator.device)
            with evaluator.chunks.measuring(len(here)):
                found = evaluator.runner.several_targets(leaves, evaluator.rows_of(here), asked)
            return index, velocities, found

        chunks = () if self.refused else evaluator.in_chunks(nodes[points[:, 0]], evaluate)
        try:
            for index, velocities, found in chunks:
                for number in range(len(found)):
                    done = _one_target(evaluator, nodes, points[index, number], velocities, *found[number])
                    if done is not None:
                        yield done
                    found[number] = (torch.empty(0), ())  # let go: the next target needs the room
        # Compiled models, and functions that give up what they saved, allow one backward pass only; and several targets of a
        # row may need more memory than one. What else is wrong comes up again one by one.
        except (MemoryError, GradientError):
            self.refused = True
        except RuntimeError as error:
            if isinstance(error, IntegrandError):
                raise
            self.refused = True


def _one_target(
    evaluator: Evaluator, nodes: Nodes, index: Ints, velocities: Leaves, scores: Tensor, gradients: Leaves
) -> Evaluated | None:
    """What came of one backward pass; points that have fewer targets are left out."""
    there = np.flatnonzero(index >= 0)
    if len(there) < len(index):
        kept = on_device(there, scores.device)
        scores = scores[kept]
        gradients, velocities = (tuple(leaf[kept] for leaf in side) for side in (gradients, velocities))
    mine = index[there]
    return evaluator.finish(evaluator.pending(slice(0, 0), mine, nodes[mine], scores, gradients, velocities))


def _room(evaluator: Evaluator) -> int:
    """Gradients that may be held at a time besides what autograd saves: a quarter of its share."""
    return max(1, evaluator.chunks.target // 4 // sum(leaf[0].nbytes for leaf in evaluator.function.inputs))


def _gathered(nodes: Nodes, lead: Ints, room: int) -> Iterator[Ints]:
    """Nodes at the same points, in blocks of points with similar numbers of targets; points with one target are left out.

    A chunk takes as many backward passes as the row with most targets: so those with 2 or 3 are apart from those with 4 to 7,
    and so on.

    Args:
        nodes: all of them.
        lead: which examples are the same.
        room: nodes that a block may hold.

    Returns:
        For each block, which nodes: (points, targets), -1 where a point has fewer.
    """
    keys = (nodes.t, lead[nodes.rows], nodes.pieces)
    order = np.lexsort(keys)
    new = np.ones(len(order), bool)
    new[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    start = np.flatnonzero(new)
    new |= (np.arange(len(order)) - np.repeat(start, np.diff([*start, len(order)]))) % room == 0
    start = np.flatnonzero(new)
    sizes = np.diff([*start, len(order)])
    kinds = np.frexp(sizes)[1]
    for kind in np.unique(kinds[sizes > 1]):
        mine = np.flatnonzero(kinds == kind)
        mine = mine[np.argsort(sizes[mine], kind="stable")]
        for first in range(0, len(mine), fit := max(1, room // int(sizes[mine].max()))):
            block = mine[first : first + fit]
            places = start[block, None] + np.arange(sizes[block].max())
            there = np.arange(places.shape[1]) < sizes[block, None]
            yield np.where(there, order[np.where(there, places, 0)], -1)


def find_sharing(function: TorchFunction, pieces: Sequence[Piece]) -> TargetSharing | None:
    """Which examples have the same path and other arguments, but other targets; None if there are none."""
    run, call = function.run, function.call
    run = run.inner if isinstance(run, CheckpointedRun) else run
    if function.examples == 1 or not function.scorer.by_example or not isinstance(run, (ModelCall, LayerCall)):
        return None
    if not all(piece.made_of for piece in pieces):
        return None
    own = run.inputs if isinstance(run, LayerCall) else ()
    tensors = [*function.inputs, *own, *chain.from_iterable(piece.made_of for piece in pieces)]
    further = [part for part in pytree.tree_leaves((call.args, dict(call.kwargs))) if isinstance(part, Tensor)]
    tensors += [part for part in further if part.layout == torch.strided and part.ndim and not part.is_complex()]
    lead = _same_rows(tensors, function.examples)
    if (lead == np.arange(len(lead))).all():
        return None
    lead = _regrouped(lead, lambda one, other: _same_arguments(call, one, other))
    return TargetSharing(lead) if (lead < np.arange(len(lead))).any() else None


def _same_rows(tensors: Sequence[Tensor], examples: int) -> Ints:
    """The first row that is equal in all tensors, for each row, (examples,)."""
    different = {id(t): t.detach() for t in tensors if t.shape[0] == examples and t.stride(0) != 0}.values()
    lead = np.zeros(examples, np.int64)
    for tensor in different:
        _, first, which = np.unique(np.stack([lead, _marks(tensor)]), axis=1, return_index=True, return_inverse=True)
        lead = first[which.ravel()]
        if (lead == np.arange(examples)).all():
            return lead
    return _regrouped(lead, lambda one, other: all(torch.equal(tensor[one], tensor[other]) for tensor in different))


def _regrouped(lead: Ints, same: Callable[[int, int], bool]) -> Ints:
    """Groups whose members may be the same, cut into those that are: the first of its group for each, (examples,).

    Whoever differs from several others is left alone, so that a batch in which all differ takes no time.
    """
    found: dict[int, list[int]] = {}
    out = np.arange(len(lead))
    for example, group in enumerate(lead.tolist()):
        others = found.setdefault(group, [])
        out[example] = next((other for other in others[:TRIES] if same(example, other)), example)
        if out[example] == example:
            others.append(example)
    return out


def _marks(tensor: Tensor) -> NDArray[np.int64]:
    """A number for each row, the same for equal rows, from the bits of some of its features."""
    rows = tensor.reshape(len(tensor), -1)
    rows = rows[:, :: max(1, rows.shape[1] // LOOKED_AT)]
    bits = rows.view(BITS[rows.dtype.itemsize]) if rows.dtype.is_floating_point else rows
    odd = 2 * torch.arange(bits.shape[1], device=bits.device) + 0x1E3779B97F4A7C15  # whatever overflows wraps around
    return np.asarray((bits.long() * odd).sum(1).cpu().numpy())


def _same_arguments(call: ModelCall, one: int, other: int) -> bool:
    """Whether two examples are run with the same further arguments."""
    for value in (*call.args, *call.kwargs.values()):
        mine, its = (take(value, torch.tensor([row]), call.examples) for row in (one, other))
        if mine is value:  # not split
            continue
        (parts, spec), (others, other_spec) = pytree.tree_flatten(mine), pytree.tree_flatten(its)
        if spec != other_spec or not all(map(_same, parts, others)):
            return False
    return True


def _same(a: Any, b: Any) -> bool:
    """Whether two values are certainly the same."""
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.layout == b.layout == torch.strided:
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.dtype != object and np.array_equal(a, b)
    return type(a) is type(b) and isinstance(a, (str, bytes, int, float)) and a == b
