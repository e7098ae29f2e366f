"""Scores and gradients along paths, chunk by chunk: what every integration asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..backends.checkpointing import NOTE, saved_bytes
from ..backends.precision import ROUNDING, PrecisionMode, PrecisionShift
from ..backends.torch_function import TorchFunction
from ..certificate import ExampleCertificate, final_status
from ..functions.model_notes import notes_at
from ..memory import in_chunks, out_of_memory
from ..paths.base import Nodes, Piece
from ..profile import Profile
from ..trees import Leaves, add_columns, flat, on_device
from .checks import check_finite
from .chunks import CHANNELS_LAST, Chunks
from .progress import Progress, Reporter
from .runner import Runner

if TYPE_CHECKING:
    from .target_sharing import TargetSharing
    from .workers import WorkerPool

T = TypeVar("T")

EACH = 0.4
"""What an operation in half precision adds to the rounding of gradients, over the distance between neighbouring numbers."""


@dataclass(frozen=True)
class Mixture:
    """Points beside a path: some features are as at the times of nodes, the rest as at other times.

    Attributes:
        rest: times of the rest of the features, (K,), for K nodes.
        choice: the choice of features at each node, an index into the masks, (K,).
        masks: the features at the times of the nodes, (choices, ...) for each input.
    """

    rest: Floats
    choice: Ints
    masks: Leaves


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
class PendingTransfer:
    """Numbers on their way from a device to the host.

    Attributes:
        host: the tensor that they are written to.
        there: the event after which they are there; None where they are already.
    """

    host: Tensor
    there: torch.cuda.Event | None = None

    @staticmethod
    def of(tensor: Tensor) -> PendingTransfer:
        """Start the transfer, after what the device was asked for so far and before what it is asked for from now on."""
        if tensor.device.type != "cuda":
            return PendingTransfer(tensor.cpu())
        host = tensor.to("cpu", non_blocking=True)  # into pinned memory
        there = torch.cuda.Event()
        there.record(torch.cuda.current_stream(tensor.device))
        return PendingTransfer(host, there)

    def numpy(self) -> Floats:
        """Wait for the numbers, as float64."""
        if self.there is not None:
            self.there.synchronize()
        return np.asarray(self.host.double().numpy())


@dataclass(frozen=True)
class PendingEvaluation:
    """What a device was asked for at some nodes, and may not have computed yet.

    Attributes:
        part: the slice of the nodes in the order of evaluation.
        index: which nodes these are, (N,).
        nodes: the nodes themselves.
        gradients: (N, ...) each.
        terms: gradient times velocity, (N, features); gradients alone where they are multiplied after summing.
        sums: F, the sum of gradient times velocity, and the sum of its absolute values, (3, N).
        strict: whether the second of these must be finite, or may overflow.
    """

    part: slice
    index: Ints
    nodes: Nodes
    gradients: Leaves
    terms: Tensor
    sums: PendingTransfer
    strict: bool = True


@dataclass(frozen=True)
class AskedAhead:
    """Nodes that a GPU was asked for before anybody needs them: what asked for them, and what it gave for each chunk."""

    nodes: Nodes
    ask: Callable[[slice], PendingEvaluation]
    asked: list[PendingEvaluation]


class Evaluator:
    """Evaluates a function at nodes of the path, counts evaluations, and keeps what they show along the path.

    Args:
        function: what is explained.
        pieces: the smooth pieces of the path.
        chunks: how many rows at a time.
        reporter: whom to tell about progress, if anybody.
        columns: the column of every feature, (features,), where features are added up; each on its own if not given.
        factors: what gradients are multiplied by instead of the velocity, (examples,) or (examples, features); see
            :mod:`integrand.compat` and :mod:`integrand.methods.conductance`.
    """

    def __init__(
        self,
        function: TorchFunction,
        pieces: Sequence[Piece],
        chunks: Chunks,
        reporter: Reporter | None = None,
        columns: Tensor | None = None,
        factors: Tensor | None = None,
    ) -> None:
        self.pieces = pieces
        self.chunks = chunks
        self.reporter = reporter
        self.columns, self.factors = columns, factors
        self.device = function.inputs[0].device
        self.dtype = reduce(torch.promote_types, (leaf.dtype for leaf in function.inputs), torch.float32)
        used = [leaf.dtype for leaf in function.inputs]
        if torch.is_autocast_enabled(self.device.type):
            used.append(torch.get_autocast_dtype(self.device.type))
        coarsest = max(used, key=lambda dtype: torch.finfo(dtype).eps)
        self.precision = str(coarsest).removeprefix("torch.")
        self.epsilon = float(torch.finfo(coarsest).eps)
        self.operations = 1  # that gradients go through in this precision
        self.gradients = np.zeros(function.examples, np.int64)
        self.forwards = np.zeros(function.examples, np.int64)
        self.features = sum(leaf[0].numel() for leaf in function.inputs) if columns is None else int(columns.max()) + 1
        self.workers: WorkerPool | None = None  # see evaluation.workers.shared_among
        self.singular_starts = False  # gradients at the start of a piece may overflow: it is graded then
        self.shift: PrecisionShift | None = None  # what a lower precision does, where one is or was used
        self._runner = Runner(function)
        chunks.lighter = lambda: self._runner.recompute()  # of whichever runs
        self._seen = ProfileRecorder()
        self._soon: Nodes | None = None
        self._ahead: AskedAhead | None = None

    def note_precision(self) -> float:
        """Take note of what the model turned out to compute in, once it has been differentiated; its relative rounding."""
        if self.widened:
            return self.epsilon
        for dtype in self.function.inside:
            if torch.finfo(dtype).eps > self.epsilon:
                self.precision, self.epsilon = str(dtype).removeprefix("torch."), float(torch.finfo(dtype).eps)
        self.operations = self.function.inside.get(getattr(torch, self.precision), 1)
        return self.epsilon

    @cached_property
    def full(self) -> tuple[Runner, Sequence[Piece]] | None:
        """Runs a half-precision model as in float32, along the same paths; None where that cannot be done, or need not be."""
        from ..backends.full_precision import widened_piece

        pieces = [widened_piece(piece) for piece in self.pieces]
        if self.workers is not None or self.runner.low or None in pieces:
            return None
        runner = self._runner.in_full_precision()
        return None if runner is None else (runner, [piece for piece in pieces if piece is not None])

    @contextmanager
    def in_full(self) -> Iterator[None]:
        """Points and gradients of a half-precision model as in float32 while in this context."""
        assert self.full is not None
        before, (self._runner, self.pieces) = (self._runner, self.pieces), self.full
        try:
            yield
        finally:
            self._runner, self.pieces = before

    def widen(self) -> None:
        """Run a half-precision model as in float32 from now on."""
        assert self.full is not None
        weights = self.precision
        self._runner, self.pieces = self.full
        self.chunks.measure_again()
        self.precision, self.epsilon, self.operations = f"float32 with {weights} weights", torch.finfo(torch.float32).eps, 1

    def gradient_rounding(self) -> float:
        """What rounding does to gradients, over their size: it adds up over operations like the steps of a random walk."""
        return self.epsilon * max(1.0, EACH * math.sqrt(self.operations))

    @property
    def smooth(self) -> bool:
        """Whether no operation that gradients go through has one that jumps; False before that is known."""
        return self.function.kinks[:1] == [False]  # several workers may have noted it

    @property
    def normalises(self) -> bool:
        """Whether some operation that gradients go through divides by the size of what it sees; False before that is known."""
        return self.function.normalises[:1] == [True]

    @property
    def widened(self) -> bool:
        """Whether a half-precision model runs as in float32."""
        return "weights" in self.precision

    @property
    def kinked(self) -> bool:
        """Whether some operation that gradients go through may have one that jumps; False before that is known."""
        return self.function.kinks[:1] == [True]

    @property
    def runner(self) -> Runner:
        """Runs the model; a worker has a runner of its own, with its own copy of the model."""
        return self._runner if self.workers is None else self.workers.runner

    @property
    def function(self) -> TorchFunction:
        """What is explained; a worker has a copy of its own."""
        return self.runner.function

    @cached_property
    def sharing(self) -> TargetSharing | None:
        """How examples that differ in their targets only share forward passes; None if there are none."""
        if self.function.examples == 1 or not self.function.targets_differ:
            return None
        from .target_sharing import find_sharing

        found = find_sharing(self.function, self.pieces)
        if found is not None:
            self.chunks.hold()  # a row takes as long as it has targets
        return found

    def gradients_at(self, nodes: Nodes, *, shared: bool = True) -> Iterator[Evaluated]:
        """Scores and gradients at nodes, chunk by chunk, counted; each chunk says which nodes it holds.

        Args:
            nodes: the points.
            shared: whether several targets of one input may share forward passes.
        """
        if shared and self.sharing is not None:
            self.measure_rows()
            yield from self.sharing.gradients_at(self, nodes)
            return
        ask = self._asking(nodes)
        for one in self.in_order(ask, len(nodes)):
            done = self.finished(ask, one)
            np.add.at(self.gradients, nodes.rows[done.index], 1)
            yield done

    def _asking(self, nodes: Nodes) -> Callable[[slice], PendingEvaluation]:
        """Asks for some of the nodes, in the order of evaluation."""
        order = by_piece(nodes)

        def ask(part: slice) -> PendingEvaluation:
            index = order[part]
            here = nodes[index]
            leaves, velocities = self.points(here)
            with self.chunks.measuring(len(here)):
                scores, gradients = self.runner(leaves, self.rows_of(here))
            return self.pending(part, index, here, scores, gradients, velocities)

        return ask

    def full_gradients_at(self, nodes: Nodes) -> Iterator[Evaluated]:
        """As :meth:`gradients_at`, in full precision; what was asked for ahead is only waited for."""
        ahead, self._ahead = self._ahead, None
        with self.runner.in_mode(PrecisionMode()):
            if ahead is None or not ahead.nodes.same(nodes):
                yield from self.gradients_at(nodes)
                return
            for one in ahead.asked:
                done = self.finished(ahead.ask, one)
                np.add.at(self.gradients, nodes.rows[done.index], 1)
                yield done

    def soon(self, nodes: Nodes) -> None:
        """Say that :meth:`full_gradients_at` will be asked for some nodes once the next gradients are there.

        A GPU is then asked for them while it is busy with those, so that launching them takes no time of its own.
        """
        if self.asynchronous and self.workers is None and self.sharing is None:
            self._soon = nodes

    def _ask_ahead(self) -> None:
        """Ask for what will be needed soon, without waiting for it."""
        nodes, self._soon = self._soon, None
        if nodes is None:
            return
        ask = self._asking(nodes)
        with self.runner.in_mode(PrecisionMode()):
            self._ahead = AskedAhead(nodes, ask, list(in_chunks(ask, slice(0, len(nodes)), self.chunks)))

    def in_order(
        self, ask: Callable[[slice], PendingEvaluation], count: int, *, step: int | None = None
    ) -> Iterator[PendingEvaluation]:
        """Run ``ask`` on nodes 0 to ``count`` chunk by chunk; a GPU is asked for the next chunk before one is handed on.

        Args:
            ask: runs the model on a chunk, without waiting for a GPU.
            count: how many nodes.
            step: let chunks hold whole steps of so many nodes, or parts of one step.
        """
        self.measure_rows()
        if self.workers is not None:
            return self.workers.spread(ask, count, self.chunks, step)
        asked = in_chunks(ask, slice(0, count), self.chunks, step=step)
        return one_behind(and_then(asked, self._ask_ahead)) if self.asynchronous else asked

    def finished(self, ask: Callable[[slice], PendingEvaluation], one: PendingEvaluation) -> Evaluated:
        """What came of a chunk; it is run again in full precision where a lower one gave no finite numbers."""
        done = self.finish(one)
        if done is None:
            with self.runner.in_mode(PrecisionMode()):
                done = self.finish(ask(one.part))
        assert done is not None
        return done

    def pending(
        self, part: slice, index: Ints, here: Nodes, scores: Tensor, gradients: Leaves, velocities: Leaves
    ) -> PendingEvaluation:
        """Gradients at nodes times the velocity, and what the host needs to know of them."""
        terms = self.terms_of(gradients, velocities, here)
        slopes = terms if self.factors is None else flat(gradients).to(self.dtype) * flat(velocities)
        return PendingEvaluation(part, index, here, gradients, terms, self._sums(scores, slopes, self.wide))

    def terms_of(self, gradients: Leaves, velocities: Leaves, here: Nodes) -> Tensor:
        """What is integrated at nodes, (N, features): gradients times the velocity, or times the factors of their examples."""
        if self.factors is None:
            return self.added(flat(gradients).to(self.dtype) * flat(velocities))
        factors = self.factors[self.rows_of(here)]
        return self.added(flat(gradients).to(self.dtype) * (factors[:, None] if factors.ndim == 1 else factors))

    def finish(self, asked: PendingEvaluation) -> Evaluated | None:
        """What came of nodes, checked and noted for the profile; None where a lower precision gave no finite numbers."""
        values, slopes, mass = asked.sums.numpy()
        if self.runner.low and not (np.isfinite(values) & np.isfinite(slopes)).all():
            return None
        here = asked.nodes
        checked = slopes if asked.strict else np.zeros(len(here))
        if self.singular_starts:
            checked = np.where(here.t == 0, 0.0, checked)
        check_finite(self.function.tree.names, here, values, checked, asked.gradients)
        self._seen.add(here.rows, here.pieces, here.t, values, slopes, mass)
        return Evaluated(asked.index, values, slopes, asked.terms)

    @property
    def asynchronous(self) -> bool:
        """Whether the device works by itself once it is asked, as a GPU does."""
        return self.device.type == "cuda"

    @property
    def wide(self) -> torch.dtype | None:
        """What to add up in, where that matters; None for the terms' own."""
        return torch.float64 if has_float64(self.device) else None

    def measure_rows(self) -> None:
        """On a GPU, count what autograd saves for a row on a forward pass of one row, once per model and shape of input.

        That pass also shows whether the model has kinks. A first chunk of a few rows, on which a CPU measures, would take a GPU
        as long as a full one. What is remembered is what would be measured again, so that the same call has the same chunks.
        Where the user limits the memory and the model has blocks, a CPU counts likewise, since one row may be too large
        already: if it is, activations are recomputed block by block from now on.
        """
        if self.chunks.row_bytes or not (self.asynchronous or self.chunks.limited):
            return
        blocks = () if self.workers is not None else self._runner.blocks
        if not self.asynchronous and not blocks:
            return
        function = self.function
        notes = notes_at(function.call.model, function.inputs, layered=function.layered)
        if "row_bytes" not in notes:
            rows = torch.zeros(1, dtype=torch.long, device=self.device)
            point = tuple(leaf[:1].clone().requires_grad_(True) for leaf in function.inputs)
            notes |= self._counted(point, rows) if blocks else {}
            if "row_bytes" not in notes:
                with self.chunks.measuring(1):
                    function.look_inside(self.runner.scores(point, rows))
                notes["row_bytes"] = self.chunks.row_bytes
            notes["kinks"] = list(function.kinks)
        function.kinks[:] = notes["kinks"]
        few, many = notes.get("light_bytes", math.inf), notes["row_bytes"]
        if self.chunks.limited and few < many and not self.chunks.has_room(many) and self._runner.recompute():
            self.chunks.set_row_bytes(few)
            return
        self.chunks.set_row_bytes(many)
        if self.runner.graphs is not None:
            self.runner.graphs.row_bytes = notes["row_bytes"]

    def _counted(self, point: Leaves, rows: Tensor) -> dict[str, int]:
        """What autograd saves for a row, in all and if blocks are recomputed, without holding it; nothing where that fails."""
        try:
            found = saved_bytes(lambda: self.function.look_inside(self.runner.scores(point, rows)), self._runner.blocks)
        except RuntimeError as error:  # a model that differentiates something itself
            if out_of_memory(error):
                raise
            return {}
        return {"row_bytes": max(1, found.plain), "light_bytes": max(1, found.light)}

    def _sums(self, scores: Tensor, terms: Tensor, wide: torch.dtype | None) -> PendingTransfer:
        """Scores, and what terms (N, features) add up to with their signs and without; (3, N)."""
        sums = [terms.sum(1, dtype=wide), terms.abs().sum(1, dtype=wide)]
        kind = torch.promote_types(scores.dtype, sums[0].dtype)
        return PendingTransfer.of(torch.stack([part.to(terms.device, kind) for part in (scores, *sums)]))

    def note_terms(self, nodes: Nodes, scores: Floats, terms: Tensor) -> None:
        """Check gradients times velocity, (N, features), that were evaluated elsewhere, and note them for the profile."""
        _, slopes, mass = self._sums(terms[:, 0], terms, self.wide).numpy()
        check_finite(self.function.tree.names, nodes, scores, slopes, ())
        self.note_known(nodes, scores, slopes, mass)

    def note_known(self, nodes: Nodes, scores: Floats, slopes: Floats, mass: Floats) -> None:
        """Note for the profile what is known at nodes without having been evaluated there."""
        self._seen.add(nodes.rows, nodes.pieces, nodes.t, scores, slopes, mass)

    def plain(self) -> bool:
        """Whether all paths are straight and everything is in one precision, from the input on."""
        kinds = {leaf.dtype for leaf in self.function.inputs}
        whole = kinds <= {torch.float32, torch.float64} and len(kinds) == 1 and self.precision == str(self.dtype).split(".")[1]
        return whole and not self.runner.low and self.function.batched and all(piece.straight for piece in self.pieces)

    def forget(self, examples: Ints) -> None:
        """Drop what was noted of examples that start again; their evaluations stay counted."""
        if self.shift is not None and not self.runner.low:
            self.shift.stop(examples)
        self._seen.forget(examples)
        self._soon = self._ahead = None

    @property
    def rounding(self) -> float:
        """The relative precision of scores in the precision mode that is in use."""
        return max(self.epsilon, ROUNDING.get(self.runner.mode.name, 0.0))

    def precision_shift(self) -> Floats:
        """The L1 shift that a lower precision than the model's still leaves in each example's attributions, (examples,)."""
        if self.shift is None or self.profile() is None:
            return np.zeros(self.function.examples)
        return self.shift.absolute(self.mass())

    def mass(self) -> Floats:
        """The mean size (L1) of gradient times velocity along each example's path, as far as it was evaluated, (examples,)."""
        seen = self.profile()
        if seen is None:
            return np.zeros(self.function.examples)
        joined = (np.diff(seen.example) == 0) & (np.diff(seen.piece) == 0)
        before, after = np.r_[0.0, np.where(joined, seen.t[:-1], 0.0)], np.r_[np.where(joined, seen.t[1:], 1.0), 1.0]
        # Each node stands for half of the distance to the next one, or for all of the distance to the end.
        first, last = np.r_[True, ~joined], np.r_[~joined, True]
        width = np.where(last, after - seen.t, (after - seen.t) / 2) + np.where(first, seen.t - before, (seen.t - before) / 2)
        weights = np.abs([piece.weight for piece in self.pieces])[seen.piece]
        return np.bincount(seen.example, weights * width * seen.mass, self.function.examples).astype(np.float64)

    def profile(self) -> Profile | None:
        """All points where gradients were evaluated and their velocities were known."""
        return self._seen.profile()

    def differentiable_at(self, nodes: Nodes) -> Iterator[tuple[Ints, Tensor]]:
        """Gradient times velocity at nodes with its graph, checked, for results that are differentiated further."""

        def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Tensor]:
            leaves, velocities = self.points(here)
            scores, gradients = self.runner.differentiable(leaves, self.rows_of(here))
            terms = self.added(flat(gradients) * flat(velocities))
            values, slopes, _ = self._sums(scores.detach(), terms.detach(), self.wide).numpy()
            check_finite(self.function.tree.names, here, values, slopes, gradients)
            return index, terms

        for index, terms in self.in_chunks(nodes, evaluate):
            np.add.at(self.gradients, nodes.rows[index], 1)
            yield index, terms

    def scores_at(self, nodes: Nodes, mixture: Mixture | None = None) -> Floats:
        """Scores at nodes, or where some features are as at other times, (N,), from forward passes alone."""
        if len(nodes) and self.sharing is not None and self.workers is None:
            return self.sharing.scores_at(self, nodes, mixture)

        def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Floats]:
            with torch.no_grad():
                points = self.mixed_points(here, index, mixture)
                scores = self.runner.scores(points, self.rows_of(here)).double().cpu().numpy()
            if mixture is None:  # points beside the path may be outside the model's domain
                check_finite(self.function.tree.names, here, scores, np.zeros(len(here)), ())
            return index, scores

        out = np.empty(len(nodes))
        for index, scores in self.in_chunks(nodes, evaluate, concurrent=True):
            out[index] = scores
            np.add.at(self.forwards, nodes.rows[index], 1)
        return out

    def outputs_at(self, nodes: Nodes) -> Floats:
        """Outputs of the model at nodes, or evenly spread samples of them, (N, numbers), from forward passes alone."""

        def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Floats]:
            with torch.no_grad():
                outputs = self.function.outputs(self.points_alone(here), self.rows_of(here)).double().cpu().numpy()
            return index, np.nan_to_num(outputs)

        order, rows = zip(*self.in_chunks(nodes, evaluate), strict=True)
        np.add.at(self.forwards, nodes.rows, 1)
        return np.concatenate(rows)[np.argsort(np.concatenate(order))]

    def gradients_on_grid(self, piece: int, times: Floats) -> Iterator[tuple[slice, slice | Tensor, Tensor]]:
        """Gradients of every example at every time on a piece, in blocks of whole steps, or of parts of one step.

        Where :meth:`multiplies_later`, they are not multiplied by the velocity: that can be done once, to their sum.

        Returns:
            Which times, which examples, and (times, examples, features).
        """
        examples = self.function.examples
        label = np.tile(np.arange(examples), len(times))
        nodes = Nodes(np.repeat(times, examples), label, np.full(len(label), piece))
        if self.sharing is not None:
            yield from self.sharing.on_grid(self, nodes)
            return
        velocity = self.velocity(piece) if self.multiplies_later(piece) else None

        def ask(part: slice) -> PendingEvaluation:
            index = np.arange(part.start, part.stop)
            here = nodes[index]
            leaves, velocities = self.points(here) if velocity is None else (self._grid_points(here), ())
            with self.chunks.measuring(len(here)):
                scores, gradients = self.runner(leaves, self.rows_of(here))
            if velocity is None:
                return self.pending(part, index, here, scores, gradients, velocities)
            terms = flat(gradients).to(self.dtype)
            sums = self._sums(scores, self._multiplied(terms, velocity, here), None)
            return PendingEvaluation(part, index, here, gradients, terms, sums, strict=False)

        for one in self.in_order(ask, len(nodes), step=examples):
            done = self.finished(ask, one)
            first, terms = int(done.index[0]), done.terms
            self.gradients += np.bincount(nodes.rows[first : first + len(terms)], minlength=examples)
            step, example = divmod(first, examples)
            steps = max(1, len(terms) // examples)
            yield slice(step, step + steps), slice(example, example + len(terms) // steps), terms.unflatten(0, (steps, -1))

    def _multiplied(self, terms: Tensor, velocity: Tensor, nodes: Nodes) -> Tensor:
        """Gradients (N, features) at whole steps, or at part of one, times the velocity of their examples."""
        if len(nodes) % len(velocity):
            return terms * velocity.index_select(0, self.rows_of(nodes))
        return (terms.reshape(-1, *velocity.shape) * velocity).reshape(terms.shape)

    def _grid_points(self, nodes: Nodes) -> Leaves:
        """Points at nodes of one piece: whole steps, which need no gathering, or part of one."""
        examples, points = self.function.examples, self.pieces[int(nodes.pieces[0])].points
        if points is None or len(nodes) % examples:
            return self.points_alone(nodes)
        t = on_device(nodes.t[::examples], self.device, self.dtype)
        return self._laid_out(points(t, None))

    def multiplies_later(self, piece: int) -> bool:
        """Whether the velocity is the same at all times of a piece, so that a sum of gradients can be multiplied once."""
        return self.pieces[piece].straight and self.columns is None and self.factors is None and self.sharing is None

    def added(self, terms: Tensor) -> Tensor:
        """Terms of features, (N, features), added up by column where the user groups features."""
        if self.columns is None:
            return terms
        return add_columns(terms, self.columns, self.features)

    def velocity(self, piece: int) -> Tensor:
        """The velocity of every example on a straight piece, (examples, features)."""
        rows = torch.arange(self.function.examples, device=self.device)
        return flat(self.pieces[piece].at(torch.zeros(len(rows), device=self.device, dtype=self.dtype), rows)[1])

    def rows_of(self, nodes: Nodes) -> Tensor:
        """The examples that nodes belong to, (N,), on the device."""
        return on_device(nodes.rows, self.device)

    def in_chunks(self, nodes: Nodes, evaluate: Callable[[Ints, Nodes], T], *, concurrent: bool = False) -> Iterator[T]:
        """What ``evaluate`` makes of chunks of nodes, sorted by piece; never by the clock.

        Args:
            nodes: what to evaluate.
            evaluate: gets which nodes a chunk holds and the nodes themselves.
            concurrent: whether ``evaluate`` may run in several threads at a time.
        """
        order = by_piece(nodes)

        def run(part: slice) -> T:
            return evaluate(order[part], nodes[order[part]])

        if concurrent and self.workers is not None:
            return self.workers.spread(run, len(order), self.chunks, None)
        return in_chunks(run, slice(0, len(order)), self.chunks.untimed())

    def points(self, nodes: Nodes) -> tuple[Leaves, Leaves]:
        """Points and velocities at nodes, which are sorted by piece."""
        found = [piece.at(t, rows) for piece, t, rows in self._by_piece(nodes)]
        points, velocities = (_concatenated(side) for side in zip(*found, strict=True))
        return self._laid_out(points), velocities

    def points_alone(self, nodes: Nodes) -> Leaves:
        """Points at nodes, which are sorted by piece, without velocities."""
        return self._laid_out(_concatenated([piece.points_at(t, rows) for piece, t, rows in self._by_piece(nodes)]))

    def mixed_points(self, nodes: Nodes, index: Ints, mixture: Mixture | None) -> Leaves:
        """Points at some of the nodes of a mixture, those with these indices; points on the path without a mixture."""
        points = self.points_alone(nodes)
        if mixture is None:
            return points
        rest, choice = self.points_alone(replace(nodes, t=mixture.rest[index])), on_device(mixture.choice[index], self.device)
        return tuple(torch.where(mask[choice], a, b) for mask, a, b in zip(mixture.masks, points, rest, strict=True))

    def _laid_out(self, points: Leaves) -> Leaves:
        """Points to start a graph from, with channels last in memory where tuning found that faster."""
        if not self.chunks.channels_last:
            return tuple(leaf.detach() for leaf in points)
        formats = (CHANNELS_LAST.get(leaf.ndim, torch.contiguous_format) for leaf in points)
        return tuple(leaf.detach().contiguous(memory_format=one) for leaf, one in zip(points, formats, strict=True))

    def _by_piece(self, nodes: Nodes) -> Iterator[tuple[Piece, Tensor, Tensor]]:
        """Each piece that some nodes lie on, with their times and examples."""
        cuts = np.flatnonzero(np.diff(nodes.pieces)) + 1
        for group in np.split(np.arange(len(nodes)), cuts):
            t = on_device(nodes.t[group], self.device, self.dtype)
            yield self.pieces[int(nodes.pieces[group[0]])], t, on_device(nodes.rows[group], self.device)

    def certificate(self, example: int, tol: float, **found: Any) -> ExampleCertificate:
        """The certificate of an example: what was found, and what the evaluator knows of precision and evaluations."""
        said = (found.get("note"), NOTE if self._runner.recomputes else "", self.function.remark(example))
        found["note"] = "; ".join(filter(None, said))
        found["status"], found["error"] = final_status(found["status"], found["error"])
        shift = float(self.precision_shift()[example] / found["magnitude"]) if found["magnitude"] and self.shift else 0.0
        return ExampleCertificate(
            **found,
            tol=tol,
            moved=shift,
            gradients=int(self.gradients[example]),
            forwards=int(self.forwards[example]) + 1,  # and the one at the input that determined the target
            precision=self.runner.mode.name if self.runner.low else self.precision,
            target=self.function.words[example],
            jumps=self.function.jumps,
        )

    def tell(self, finished: int, expected: int, error: float = math.nan) -> None:
        """Report progress, where anybody wants to know; ``error`` is the largest relative one as it stands."""
        if self.reporter is not None:
            self.reporter.tell(Progress(self.function.examples, finished, int(self.gradients.sum()), expected, error))


def by_piece(nodes: Nodes) -> Ints:
    """The order of evaluation: by piece, backwards.

    x itself, the last node of a path, then runs among other rows, where check_rows sees their influence.
    """
    return np.argsort(nodes.pieces, kind="stable")[::-1]


def one_behind(items: Iterable[T]) -> Iterator[T]:
    """The same items, each after the next one has been asked for.

    >>> def asked():
    ...     for number in range(3):
    ...         print("ask", number)
    ...         yield number
    >>> for number in one_behind(asked()):
    ...     print("look at", number)
    ask 0
    ask 1
    look at 0
    ask 2
    look at 1
    look at 2
    """
    last: list[T] = []
    for item in items:
        yield from last
        last = [item]
    yield from last


def and_then(items: Iterable[T], do: Callable[[], None]) -> Iterator[T]:
    """The same items, and something to do once all of them have been asked for."""
    yield from items
    do()


def _concatenated(parts: Sequence[Leaves]) -> Leaves:
    """The rows of several batches of leaves, one batch after the other."""
    return parts[0] if len(parts) == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))


def has_float64(device: torch.device) -> bool:
    """Whether a device computes in float64."""
    return device.type not in {"mps"}


class ProfileRecorder:
    """Notes points of paths as they are evaluated, in one array that grows: many small arrays would scatter memory."""

    def __init__(self) -> None:
        self._rows = np.empty((len(fields(Profile)), 64))
        self._count = 0
        self._lock = Lock()  # workers write too

    def add(self, *columns: Ints | Floats) -> None:
        """Note points by their columns, (K,) each, in the order of :class:`Profile`."""
        with self._lock:
            last = self._count + len(columns[0])
            if last > self._rows.shape[1]:
                self._rows = np.concatenate([self._rows[:, : self._count], np.empty((len(self._rows), last))], 1)
            for row, column in zip(self._rows, columns, strict=True):
                row[self._count : last] = column
            self._count = last

    def forget(self, examples: Ints) -> None:
        """Drop the points of some examples."""
        kept = ~np.isin(self._rows[0, : self._count], examples)
        self._rows, self._count = self._rows[:, : self._count][:, kept], int(kept.sum())

    def profile(self) -> Profile | None:
        """The points noted so far, sorted; a point that came twice counts once."""
        if not self._count:
            return None
        columns = self._rows[:, : self._count]
        columns = columns[:, np.lexsort(columns[2::-1])]
        columns = columns[:, np.r_[True, (np.diff(columns[:3]) != 0).any(0)]]
        example, piece, *floats = np.ascontiguousarray(columns)
        return Profile(example.astype(np.int64), piece.astype(np.int64), *floats)
