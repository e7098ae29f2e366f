"""Evaluating gradients along paths, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..backends.precision import PrecisionMode, PrecisionShift
from ..backends.torch_function import TorchFunction
from ..certificate import ExampleCertificate
from ..paths.base import Piece
from ..profile import Profile, ProfileRecorder
from ..trees import Leaves, flat
from .chunks import Chunks, in_turn
from .nodes import Nodes, check_finite
from .pipeline import PendingTransfer, one_behind
from .progress import Progress, Reporter
from .runner import Runner
from .target_sharing import Sharing, find_sharing
from .workers import WorkerPool

A = TypeVar("A")
T = TypeVar("T")

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""What an input with so many dimensions may be laid out as."""


@dataclass(frozen=True)
class Evaluated:
    """What came of some nodes.

    Attributes:
        index: which nodes, (N,).
        scores: F, (N,) in float64.
        slopes: dF/dt, (N,) in float64.
        terms: gradient times velocity, (N, features).
    """

    index: Ints
    scores: Floats
    slopes: Floats
    terms: Tensor


@dataclass(frozen=True)
class PendingEvaluation:
    """What a device was asked for at some nodes.

    Attributes:
        index: which nodes, (N,).
        nodes: the nodes themselves.
        gradients: (N, ...) each.
        terms: gradient times velocity, (N, features); where that is multiplied later, gradients alone.
        sums: F, the sum of gradient times velocity, and that of its size, (3, N).
        strict: whether that sum must be a number, or may overflow.
    """

    index: Ints
    nodes: Nodes
    gradients: Leaves
    terms: Tensor
    sums: PendingTransfer
    strict: bool = True


class Evaluator:
    """Runs the function at nodes of the path.

    Args:
        function: what is explained.
        pieces: the smooth pieces of the path.
        chunks: how many rows at a time.
        reporter: whom to tell about progress.
        columns: the column of every feature, (features,), where features are added up; each on its own if not given.
    """

    def __init__(
        self,
        function: TorchFunction,
        pieces: Sequence[Piece],
        chunks: Chunks,
        reporter: Reporter,
        columns: Tensor | None = None,
    ) -> None:
        self.pieces = pieces
        self.chunks = chunks
        self.reporter = reporter
        self.device = function.inputs[0].device
        self.dtype = reduce(torch.promote_types, (leaf.dtype for leaf in function.inputs), torch.float32)
        used = [leaf.dtype for leaf in function.inputs]
        if torch.is_autocast_enabled(self.device.type):
            used.append(torch.get_autocast_dtype(self.device.type))
        coarsest = max(used, key=lambda dtype: torch.finfo(dtype).eps)
        self.precision = str(coarsest).removeprefix("torch.")
        self.epsilon = float(torch.finfo(coarsest).eps)
        self.gradients = np.zeros(function.examples, np.int64)
        self.forwards = np.zeros(function.examples, np.int64)
        self.columns = columns
        self._runner = Runner(function)
        self.crew: WorkerPool | None = None  # see execute._devices.sharing
        self.lowered: PrecisionShift | None = None  # what a lower precision does, where one is or was used
        self._seen = ProfileRecorder()
        self.features = sum(leaf[0].numel() for leaf in function.inputs) if columns is None else int(columns.max()) + 1

    @property
    def runner(self) -> Runner:
        """Runs the model: in a worker, its own copy."""
        return self._runner if self.crew is None else self.crew.runner

    @property
    def function(self) -> TorchFunction:
        """What is explained, likewise."""
        return self.runner.function

    @cached_property
    def sharing(self) -> Sharing | None:
        """Which examples are the same but for their targets; None if there are none."""
        found = find_sharing(self.function, self.pieces)
        if found is not None:
            self.chunks.fix()  # a row takes as long as it has targets
        return found

    def gradients_at(self, nodes: Nodes) -> Iterator[Evaluated]:
        """Scores and gradients at nodes, in chunks of the evaluator's choosing; targets of one input share forward passes."""
        for done in self.one_by_one(nodes) if self.sharing is None else self.sharing.gradients_at(self, nodes):
            np.add.at(self.gradients, nodes.rows[done.index], 1)
            yield done

    def one_by_one(self, nodes: Nodes) -> Iterator[Evaluated]:
        """The same with a forward pass for each node, and without counting."""

        def ask(index: Ints, here: Nodes) -> PendingEvaluation:
            leaves, velocities = self.points(here)
            with self.chunks.measuring(len(here)):
                scores, gradients = self.runner(leaves, self._rows(here))
            return self.asked(index, here, scores, gradients, velocities)

        return self._overlapped(nodes, ask, self.evaluated)

    def asked(self, index: Ints, here: Nodes, scores: Tensor, gradients: Leaves, velocities: Leaves) -> PendingEvaluation:
        """What the model was asked for at nodes, times the velocity."""
        terms = self.added(flat(gradients).to(self.dtype) * flat(velocities))
        return PendingEvaluation(index, here, gradients, terms, self._sums(scores, terms, self.wide))

    def evaluated(self, asked: PendingEvaluation) -> Evaluated | None:
        """What came of nodes, checked and written down for the profile; None where a lower precision has no numbers for it."""
        values, slopes, mass = asked.sums.numpy()
        if self.runner.low and not (np.isfinite(values) & np.isfinite(slopes)).all():
            return None
        here = asked.nodes
        check_finite(self.function.tree.names, here, values, slopes if asked.strict else np.zeros(len(here)), asked.gradients)
        self._seen.add(here.rows, here.pieces, here.t, values, slopes, mass)
        return Evaluated(asked.index, values, slopes, asked.terms)

    def _overlapped(
        self, nodes: Nodes, ask: Callable[[Ints, Nodes], A], finish: Callable[[A], T | None], *, step: int | None = None
    ) -> Iterator[T]:
        """What comes of nodes in chunks; a GPU is asked for the next one before one is finished.

        Args:
            nodes: what to evaluate.
            ask: what to do with a chunk, without waiting for it.
            finish: what to do with what came of it; gives None where a lower precision has no numbers for it.
            step: keep the order, and let chunks hold whole steps of so many nodes, or parts of one step.
        """
        order = _order(nodes, step)

        def asked(part: slice) -> A:
            return ask(order[part], nodes[order[part]])

        def in_full(part: slice) -> T:
            with self.runner.taking(PrecisionMode()):
                done = finish(asked(part))
            assert done is not None
            return done

        def whole(part: slice) -> T:
            done = finish(asked(part))
            return in_full(part) if done is None else done

        everything = slice(0, len(order))
        if self.crew is not None:
            yield from self.crew.spread(whole, len(order), self.chunks, step)
        elif not self.ahead:
            yield from in_turn(whole, everything, self.chunks, step)
        else:
            for part, one in one_behind(in_turn(lambda part: (part, asked(part)), everything, self.chunks, step)):
                done = finish(one)
                yield from in_turn(in_full, part, self.chunks, step) if done is None else [done]

    @property
    def ahead(self) -> bool:
        """Whether the device works by itself once it is asked."""
        return self.device.type == "cuda"

    @property
    def wide(self) -> torch.dtype | None:
        """What to add up in, where that matters; None for the terms' own."""
        return torch.float64 if has_float64(self.device) else None

    def _sums(self, scores: Tensor, terms: Tensor, wide: torch.dtype | None) -> PendingTransfer:
        """Scores, and what terms (N, features) add up to with their signs and without; (3, N)."""
        sums = [terms.sum(1, dtype=wide), terms.abs().sum(1, dtype=wide)]
        kind = torch.promote_types(scores.dtype, sums[0].dtype)
        return PendingTransfer.of(torch.stack([part.to(terms.device, kind) for part in (scores, *sums)]))

    def note(self, nodes: Nodes, scores: Floats, terms: Tensor) -> None:
        """Check rows of gradient times velocity, or of their means over segments, and write them down for the profile."""
        _, slopes, mass = self._sums(terms[:, 0], terms, self.wide).numpy()
        check_finite(self.function.tree.names, nodes, scores, slopes, ())
        self._seen.add(nodes.rows, nodes.pieces, nodes.t, scores, slopes, mass)

    def known(self, nodes: Nodes, scores: Floats, slopes: Floats, mass: Floats) -> None:
        """Write down for the profile what is known without having been evaluated."""
        self._seen.add(nodes.rows, nodes.pieces, nodes.t, scores, slopes, mass)

    def plain(self) -> bool:
        """Whether all is straight and in one precision, from the input on."""
        kinds = {leaf.dtype for leaf in self.function.inputs}
        whole = kinds <= {torch.float32, torch.float64} and len(kinds) == 1 and self.precision == str(self.dtype).split(".")[1]
        return whole and not self.runner.low and self.function.batched and all(piece.straight for piece in self.pieces)

    def forget(self, examples: Ints) -> None:
        """These examples start again: their points so far count for nothing, though they were evaluated."""
        if self.lowered is not None and not self.runner.low:
            self.lowered.stop(examples)
        self._seen.forget(examples)

    def moved(self) -> Floats:
        """What a lower precision than the model's moves the attributions of each example by still (L1)."""
        seen = None if self.lowered is None else self.profile()
        if seen is None or self.lowered is None:
            return np.zeros(self.function.examples)
        joined = (np.diff(seen.example) == 0) & (np.diff(seen.piece) == 0)
        before, after = np.r_[0.0, np.where(joined, seen.t[:-1], 0.0)], np.r_[np.where(joined, seen.t[1:], 1.0), 1.0]
        # Each node stands for its half of the way to the next one, or for all of the way to the end.
        first, last = np.r_[True, ~joined], np.r_[~joined, True]
        width = np.where(last, after - seen.t, (after - seen.t) / 2) + np.where(first, seen.t - before, (seen.t - before) / 2)
        weights = np.abs([piece.weight for piece in self.pieces])[seen.piece]
        mass = np.bincount(seen.example, weights * width * seen.mass, self.function.examples)
        return self.lowered.moved(mass.astype(np.float64))

    def profile(self) -> Profile | None:
        """All points where gradients were evaluated, as far as their velocities were known."""
        return self._seen.profile()

    def differentiable_at(self, nodes: Nodes) -> Iterator[tuple[Ints, Tensor]]:
        """The terms at nodes with their graph, for results that are differentiated further."""

        def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Tensor]:
            leaves, velocities = self.points(here)
            _, gradients = self.function.value_and_grad(leaves, self._rows(here), create_graph=True)
            return index, self.added(flat(gradients) * flat(velocities))

        for index, terms in self.in_chunks(nodes, evaluate):
            np.add.at(self.gradients, nodes.rows[index], 1)
            yield index, terms

    def scores_at(self, nodes: Nodes) -> Floats:
        """Scores alone, without gradients."""

        def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Floats]:
            with torch.no_grad():
                scores = self.function.scores(self.points_alone(here), self._rows(here)).double().cpu().numpy()
            check_finite(self.function.tree.names, here, scores, np.zeros(len(here)), ())
            return index, scores

        out = np.empty(len(nodes))
        for index, scores in self.in_chunks(nodes, evaluate, shared=True):
            out[index] = scores
            np.add.at(self.forwards, nodes.rows[index], 1)
        return out

    def gradients_on_grid(self, piece: int, times: Floats) -> Iterator[tuple[slice, slice | Tensor, Tensor]]:
        """Gradients of every example at every time on a piece, in blocks of whole steps, or of parts of one step.

        Where :meth:`multiplied_later`, they are not multiplied by the velocity: that can be done once, to their sum.

        Returns:
            Which times, which examples, and (times, examples, features).
        """
        examples = self.function.examples
        label = np.tile(np.arange(examples), len(times))
        nodes = Nodes(np.repeat(times, examples), label, np.full(len(label), piece))
        if self.sharing is not None:
            yield from self.sharing.on_grid(self, nodes)
            return
        velocity = self.velocity(piece) if self.multiplied_later(piece) else None

        def ask(index: Ints, here: Nodes) -> PendingEvaluation:
            leaves, velocities = self.points(here) if velocity is None else (self._grid_points(here), ())
            with self.chunks.measuring(len(here)):
                scores, gradients = self.runner(leaves, self._rows(here))
            if velocity is None:
                return self.asked(index, here, scores, gradients, velocities)
            terms = flat(gradients).to(self.dtype)
            sums = self._sums(scores, self._multiplied(terms, velocity, here), None)
            return PendingEvaluation(index, here, gradients, terms, sums, strict=False)

        for done in self._overlapped(nodes, ask, self.evaluated, step=examples):
            first, terms = int(done.index[0]), done.terms
            self.gradients += np.bincount(nodes.rows[first : first + len(terms)], minlength=examples)
            step, example = divmod(first, examples)
            steps = max(1, len(terms) // examples)
            yield slice(step, step + steps), slice(example, example + len(terms) // steps), terms.unflatten(0, (steps, -1))

    def _multiplied(self, terms: Tensor, velocity: Tensor, nodes: Nodes) -> Tensor:
        """Gradients (N, features) at whole steps, or at part of one, times the velocity of their examples."""
        if len(nodes) % len(velocity):
            return terms * velocity.index_select(0, self._rows(nodes))
        return (terms.reshape(-1, *velocity.shape) * velocity).reshape(terms.shape)

    def _grid_points(self, nodes: Nodes) -> Leaves:
        """Points at nodes of one piece: whole steps, which need no gathering, or part of one."""
        examples, points = self.function.examples, self.pieces[int(nodes.pieces[0])].points
        if points is None or len(nodes) % examples:
            return self.points_alone(nodes)
        t = torch.as_tensor(nodes.t[::examples]).to(self.device, self.dtype)
        return self._laid_out(points(t, None))

    def multiplied_later(self, piece: int) -> bool:
        """Whether the velocity is the same at all times, and for all that is added up on a grid."""
        return self.pieces[piece].straight and self.columns is None and self.sharing is None

    def added(self, terms: Tensor) -> Tensor:
        """Terms of features, (N, features), added up by column."""
        if self.columns is None:
            return terms
        return terms.new_zeros(len(terms), self.features).index_add(1, self.columns, terms)

    def velocity(self, piece: int) -> Tensor:
        """The velocity of every example on a straight piece, (examples, features)."""
        rows = torch.arange(self.function.examples, device=self.device)
        return flat(self.pieces[piece].at(torch.zeros(len(rows), device=self.device, dtype=self.dtype), rows)[1])

    def _rows(self, nodes: Nodes) -> Tensor:
        return torch.as_tensor(nodes.rows, device=self.device)

    def in_chunks(self, nodes: Nodes, evaluate: Callable[[Ints, Nodes], T], *, shared: bool = False) -> Iterator[T]:
        """What comes of chunks of nodes, sorted by piece; one that does not fit into memory is tried again in smaller ones.

        Args:
            nodes: what to evaluate.
            evaluate: what to do with a chunk.
            shared: whether ``evaluate`` may run in several threads at a time.
        """
        order = _order(nodes, None)

        def run(part: slice) -> T:
            return evaluate(order[part], nodes[order[part]])

        if shared and self.crew is not None:
            return self.crew.spread(run, len(order), self.chunks, None)
        return in_turn(run, slice(0, len(order)), self.chunks, None, timed=False)

    def points(self, nodes: Nodes) -> tuple[Leaves, Leaves]:
        """Points and velocities at nodes, which are sorted by piece."""
        found = [piece.at(t, rows) for piece, t, rows in self._by_piece(nodes)]
        points, velocities = (_joined(side) for side in zip(*found, strict=True))
        return self._laid_out(points), velocities

    def _laid_out(self, points: Leaves) -> Leaves:
        """Points to start a graph from, in the order in memory that the model is fastest with."""
        if not self.chunks.last:
            return tuple(leaf.detach() for leaf in points)
        return tuple(leaf.detach().contiguous(memory_format=LAST.get(leaf.ndim, torch.contiguous_format)) for leaf in points)

    def points_alone(self, nodes: Nodes) -> Leaves:
        """Points at nodes, which are sorted by piece."""
        return self._laid_out(_joined([piece.points_at(t, rows) for piece, t, rows in self._by_piece(nodes)]))

    def _by_piece(self, nodes: Nodes) -> Iterator[tuple[Piece, Tensor, Tensor]]:
        cuts = np.flatnonzero(np.diff(nodes.pieces)) + 1
        for group in np.split(np.arange(len(nodes)), cuts):
            t = torch.as_tensor(nodes.t[group]).to(self.device, self.dtype)
            yield self.pieces[int(nodes.pieces[group[0]])], t, torch.as_tensor(nodes.rows[group], device=self.device)

    def certificate(self, example: int, tol: float, **found: Any) -> ExampleCertificate:
        """The certificate of an example: what was found, and what the evaluator knows."""
        moved = float(self.moved()[example] / found["magnitude"]) if found["magnitude"] and self.lowered is not None else 0.0
        return ExampleCertificate(
            **found,
            tol=tol,
            moved=moved,
            gradients=int(self.gradients[example]),
            forwards=int(self.forwards[example]) + 1,  # and the one at the input that settled the target
            precision=self.runner.way.name if self.runner.low else self.precision,
            target=self.function.scorer.words[example],
        )

    def tell(self, finished: int, expected: int) -> None:
        """Report progress."""
        self.reporter.tell(Progress(self.function.examples, finished, int(self.gradients.sum()), expected))


def _order(nodes: Nodes, step: int | None) -> Ints:
    """Which nodes come first: as they are where steps are to be kept together, else by piece, backwards.

    x itself, the last node of a path, then runs among other rows, where check_rows sees their influence.
    """
    return np.arange(len(nodes)) if step is not None else np.argsort(nodes.pieces, kind="stable")[::-1]


def _joined(parts: Sequence[Leaves]) -> Leaves:
    """Rows of several batches of leaves, one after the other."""
    return parts[0] if len(parts) == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))


def has_float64(device: torch.device) -> bool:
    """Whether a device computes in float64."""
    return device.type not in {"mps"}
