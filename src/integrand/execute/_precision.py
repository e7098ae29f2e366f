"""In which precision the model runs: float32, or less, with proof.

TF32 and half precision are several times as fast on a GPU, and they move attributions: those of transformers by a fraction of
a per cent, those of convolutional networks by several (docs/speed.md). So neither is taken on trust: at two or three nodes of
every path the model runs in both. The mean difference is added to the result, since what comes of rounded weights is the same
all along the path; how much the differences vary counts into the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from .._trees import Leaves, flat
from ..errors import OptionError
from ..functions import Function
from ..functions._call import Runs
from ._record import Recordings
from ._remember import known_of

if TYPE_CHECKING:
    from ._evaluate import Evaluator
    from ._nodes import Floats, Ints, Nodes

Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]
"""``auto``: one of :data:`TRIED` on a GPU, where that pays and keeps the tolerance, as measured; else as the model is."""

TRIED = ("float16", "tf32")
"""The faster one first; where its range is too small, the other has that of float32."""

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}

COARSE = {"tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance of neighbouring numbers at 1."""

SAFETY = 1.5
"""Differences at nodes that were not checked may vary by more than at those that were."""

SHARE = 0.4
"""Of the tolerance: what a lower precision may take up to be chosen without being asked for."""

FEW_LINES = 4
"""Fewer lines than these are checked at three nodes each, others at two."""

WORTH = 4 << 30
"""Bytes of activations of a first wave, from which on arithmetic outweighs the check on a GPU."""

LARGEST = 16.0
"""What the largest gradient is scaled to in float16, whose smallest numbers are not small."""


@dataclass(frozen=True)
class Way:
    """How the model runs: in a precision, the score scaled by a power of two before it is differentiated."""

    name: str = "float32"
    scale: float = 1.0

    @contextmanager
    def switched(self) -> Iterator[None]:
        """With TF32 switched on where that is meant."""
        if self.name != "tf32":
            yield
            return
        cudnn = torch.backends.cudnn
        options = {"enabled": cudnn.enabled, "benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
        before = torch.get_float32_matmul_precision()
        with cudnn.flags(**options, allow_tf32=True):
            torch.set_float32_matmul_precision("high")
            try:
                yield
            finally:
                torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class _Autocast:
    """Runs a model under autocast."""

    inner: Runs
    dtype: torch.dtype

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[object]:
        with torch.autocast(leaves[0].device.type, self.dtype):
            return self.inner(leaves, rows)


class Runner:
    """Scores and gradients of rows, in a precision.

    Args:
        function: what is explained.
        recorded: whether recordings may be made and used, which no two threads may do at a time.
    """

    def __init__(self, function: Function, *, recorded: bool = True) -> None:
        self.function = function
        self.way = Way()
        self.recordings = Recordings(function, self.run, allowed=recorded)

    def take(self, way: Way) -> None:
        """From now on, run like this."""
        self.way = way

    @contextmanager
    def taking(self, way: Way) -> Iterator[None]:
        """Run like this for a while."""
        before = self.way
        self.take(way)
        try:
            yield
        finally:
            self.take(before)

    @property
    def low(self) -> bool:
        """Whether this is less than what the model and its input are in."""
        return self.way.name != "float32"

    def __call__(self, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """Scores (N,) and gradients (N, ...) at points (N, ...), row i of example ``rows[i]``."""
        recording = self.recordings.find(self.way, leaves, rows)
        if recording is not None:
            return recording.replay(self.function, leaves, rows)
        with self.recordings.watching():
            return self.run(self.function, leaves, rows)

    def run(self, function: Function, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """The same for a function of this kind, operation by operation."""
        if not self.low:
            return function.value_and_grad(leaves, rows)
        half = HALF.get(self.way.name)
        lower = function if half is None else replace(function, run=_Autocast(function.run, half))
        with self.way.switched():
            scores, gradients = lower.value_and_grad(leaves, rows, scale=self.way.scale)
        return scores.float(), gradients


def settle(evaluator: Evaluator, wanted: Precision, tol: float) -> None:
    """Choose how the evaluator runs the model, and note what that moves.

    Args:
        evaluator: of whose examples a few nodes are evaluated in both precisions.
        wanted: what the user asked for.
        tol: the tolerance, which must leave room for it unless it was asked for.
    """
    if wanted not in get_args(Precision):
        raise OptionError(f"got precision={wanted!r}; expected one of {', '.join(map(repr, get_args(Precision)))}.")
    if wanted == "float32" or (wanted == "auto" and not _worth_trying(evaluator, tol)):
        return
    if wanted != "auto":
        _check_possible(evaluator, wanted)
    notes = known_of(evaluator.function)
    for name in _in_order(notes) if wanted == "auto" else (wanted,):
        found = _compared(evaluator, name)
        shifts = SAFETY * np.maximum(found.varies, found.varies.mean())
        if wanted != "auto" or shifts.max() <= SHARE * tol:
            evaluator.runner.take(found.way)
            # What overflows is evaluated in float32 and needs no correction.
            evaluator.shifts, evaluator.corrections = shifts, found.mean.nan_to_num(0.0, 0.0, 0.0)
            notes["way"] = name
            return
        notes["moved", name] = float(shifts.max())


def settle_again(evaluator: Evaluator, tol: float) -> None:
    """Measure once more what the precision in use moves: it was measured with recordings that turned out to be outdated."""
    name = evaluator.runner.way.name
    if evaluator.runner.low:
        evaluator.runner.take(Way())
        settle(evaluator, cast(Precision, name), tol)


def _in_order(notes: dict[Any, Any]) -> list[str]:
    """What to try: first what was taken the last time."""
    return sorted(TRIED, key=lambda name: name != notes.get("way"))


def _worth_trying(evaluator: Evaluator, tol: float) -> bool:
    """Whether less than float32 may save time: on a GPU, with enough to do, and unless it is known to move too much."""
    if evaluator.device.type != "cuda" or not evaluator.plain() or evaluator.dtype != torch.float32:
        return False
    notes, lines = known_of(evaluator.function), evaluator.function.examples * len(evaluator.pieces)
    if all(notes.get(("moved", name), 0.0) > tol for name in TRIED):
        return False
    each = notes.get("bytes")  # of a row; known from the second call on
    return lines >= 2 * FEW_LINES if each is None else bool(17 * lines * each >= WORTH)


def _check_possible(evaluator: Evaluator, name: str) -> None:
    if name == "tf32" and evaluator.device.type != "cuda":
        raise OptionError(f"got precision='tf32' on a {evaluator.device.type}; expected a CUDA GPU. Leave precision out.")
    dtypes = {leaf.dtype for leaf in evaluator.function.inputs}
    if dtypes != {torch.float32} or evaluator.precision != "float32":
        raise OptionError(
            f"got precision={name!r} for a model that runs in {evaluator.precision}; expected float32 to start from. Leave "
            "precision out, or pass model and x in float32."
        )


@dataclass(frozen=True)
class _Difference:
    """Float32 minus a lower precision, in gradient times velocity.

    Attributes:
        way: the lower precision.
        mean: over the nodes of each path, summed over its pieces with their weights, (examples, features).
        varies: how far single nodes are from it, over the size of the gradients: the mean over nodes, (examples,).
    """

    way: Way
    mean: Tensor
    varies: Floats


def _compared(evaluator: Evaluator, name: str) -> _Difference:
    """Evaluate a few nodes of every line in float32 and in a lower precision; all nodes of a line at a time."""
    from ._nodes import Nodes

    examples, pieces = evaluator.function.examples, len(evaluator.pieces)
    times = (np.arange(3) + 0.5) / 3 if examples * pieces < FEW_LINES else np.array([0.25, 0.75])
    lines, many = np.arange(examples * pieces), max(1, evaluator.chunks.size // len(times))
    total = torch.zeros(examples, evaluator.features, dtype=evaluator.dtype, device=evaluator.device)
    size, off, way = np.zeros(examples), np.zeros(examples), None
    for part in np.split(lines, range(many, len(lines), many)):
        rows, place = part % examples, part // examples
        nodes = Nodes(np.tile(times, len(part)), np.repeat(rows, len(times)), np.repeat(place, len(times)))
        fine, low, way = _terms(evaluator, nodes, name, way)
        np.add.at(evaluator.gradients, nodes.rows, 2)
        change, shares = (fine - low).unflatten(0, (len(part), -1)), np.array([evaluator.pieces[p].weight for p in place])
        mean = change.mean(1)
        weights = torch.as_tensor(shares, device=mean.device, dtype=mean.dtype)[:, None]
        total.index_add_(0, torch.as_tensor(rows, device=mean.device), weights * mean)
        mass = fine.unflatten(0, change.shape[:2]).abs().sum(2).mean(1).double().cpu().numpy()
        far = (change - mean[:, None]).abs().sum(2).mean(1).double().cpu().numpy()
        np.add.at(size, rows, np.abs(shares) * mass)
        np.add.at(off, rows, np.abs(shares) * np.where(np.isfinite(far), far, np.inf))
    assert way is not None
    return _Difference(way, total, off / np.where(size > 0, size, 1.0))


def _terms(evaluator: Evaluator, nodes: Nodes, name: str, way: Way | None) -> tuple[Tensor, Tensor, Way]:
    """Gradient times velocity at nodes, (N, features), in float32 and in a lower precision; and how that is run."""
    ways = [] if way is None else [way]

    def evaluate(index: Ints, here: Nodes) -> tuple[Ints, list[Tensor]]:
        leaves, speeds = evaluator.points(here)
        labels = torch.as_tensor(here.rows, device=evaluator.device)
        with evaluator.chunks.measuring(len(here)):
            _, fine = evaluator.runner(leaves, labels)
        if not ways:
            ways.append(Way(name, _scale(evaluator, fine) if name == "float16" else 1.0))
        with evaluator.runner.taking(ways[0]):
            _, low = evaluator.runner(tuple(leaf.detach() for leaf in leaves), labels)
        return index, [evaluator.added(flat(part).to(evaluator.dtype) * flat(speeds)) for part in (fine, low)]

    done = list(evaluator.in_chunks(nodes, evaluate))
    order = torch.as_tensor(np.argsort(np.concatenate([index for index, _ in done])), device=evaluator.device)
    fine, low = (torch.cat(column)[order] for column in zip(*(terms for _, terms in done), strict=True))
    return fine, low, ways[0]


def _scale(evaluator: Evaluator, gradients: Leaves) -> float:
    """A power of two that brings the largest gradient near :data:`LARGEST`; the same as last time if that will do."""
    largest = max(float(leaf.abs().max()) for leaf in gradients)
    wanted = float(2.0 ** np.floor(np.log2(LARGEST / largest))) if largest > 0 else 1.0
    notes = known_of(evaluator.function)
    before: float = notes.get("scale", 0.0)
    if not wanted / 64 <= before <= wanted * 4:
        before = notes["scale"] = wanted
    return before
