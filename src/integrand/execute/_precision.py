"""In which precision the model runs: float32, or less, with proof.

TF32 and half precision are several times as fast on a GPU, and they move attributions: those of transformers by a fraction of a
per cent, those of convolutional networks by several (docs/speed.md). So neither is taken on trust: at a few nodes of every
example the model runs in both, and the difference that is found counts into the error of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

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
    from ._evaluate import Evaluator, Floats

Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]
"""``auto``: one of :data:`TRIED` on a GPU, where that pays and keeps the tolerance, as measured; else as the model is."""

TRIED = ("float16", "tf32")
"""The faster one first; where its range is too small, the other has that of float32."""

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}

COARSE = {"tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance of neighbouring numbers at 1."""

SAFETY = 1.5
"""Nodes that were not checked may be off by more than those that were."""

SHARE = 0.4
"""Of the tolerance: what a lower precision may take up to be chosen without being asked for."""

FEW_LINES, CHECKS = 4, 3
"""Up to so many lines each is checked at so many nodes; where there are more, at one."""

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
    found = _compared(evaluator, TRIED if wanted == "auto" else (wanted,))
    known_of(evaluator.function)["moved"] = min(float(moved.max()) for moved in found.values())
    for way, moved in found.items():
        shifts = SAFETY * np.maximum(moved, moved.mean())
        if wanted != "auto" or shifts.max() <= SHARE * tol:
            evaluator.runner.take(way)
            evaluator.shifts = shifts
            return


def _worth_trying(evaluator: Evaluator, tol: float) -> bool:
    """Whether less than float32 may save time: on a GPU, with enough to do, and unless it is known to move too much."""
    if evaluator.device.type != "cuda" or not evaluator.plain() or evaluator.dtype != torch.float32:
        return False
    notes, lines = known_of(evaluator.function), evaluator.function.examples * len(evaluator.pieces)
    if SAFETY * notes.get("moved", 0.0) > tol:
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


def _compared(evaluator: Evaluator, names: Sequence[str]) -> dict[Way, Floats]:
    """How far off gradient times velocity is in each precision: relative L1, the largest of each example, (examples,)."""
    from ._evaluate import Ints, Nodes

    examples, pieces = evaluator.function.examples, len(evaluator.pieces)
    times = CHECKS if examples * pieces < FEW_LINES else 1
    rows = np.repeat(np.arange(examples), pieces * times)
    place = np.tile(np.repeat(np.arange(pieces), times), examples)
    t = np.asarray(0.1 + 0.8 * ((0.5 + 0.618034 * np.arange(len(rows))) % 1), np.float64)  # evenly, whatever their number
    ways: list[Way] = []

    def evaluate(index: Ints, here: Nodes) -> tuple[Ints, list[Floats]]:
        leaves, speeds = evaluator.points(here)
        labels = torch.as_tensor(here.rows, device=evaluator.device)
        with evaluator.chunks.measuring(len(here)):
            _, fine = evaluator.runner(leaves, labels)
        if not ways:
            ways.extend(Way(name, _scale(evaluator, fine) if name == "float16" else 1.0) for name in names)
        first = evaluator.added(flat(fine).to(evaluator.dtype) * flat(speeds)).double()
        size, off = first.abs().sum(1).cpu().numpy(), []
        for way in ways:
            with evaluator.runner.taking(way):
                _, coarse = evaluator.runner(tuple(leaf.detach() for leaf in leaves), labels)
            change = evaluator.added(flat(coarse).to(evaluator.dtype) * flat(speeds)) - first
            found = change.abs().sum(1).cpu().numpy()
            off.append(np.where(np.isfinite(found), found / np.where(size > 0, size, 1.0), np.inf))
        return index, off

    out = [np.zeros(examples) for _ in names]
    for index, off in evaluator.in_chunks(Nodes(t, rows, place), evaluate):
        np.add.at(evaluator.gradients, rows[index], 1 + len(names))
        for total, part in zip(out, off, strict=True):
            np.maximum.at(total, rows[index], part)
    return dict(zip(ways, out, strict=True))


def _scale(evaluator: Evaluator, gradients: Leaves) -> float:
    """A power of two that brings the largest gradient near :data:`LARGEST`; the same as last time if that will do."""
    largest = max(float(leaf.abs().max()) for leaf in gradients)
    wanted = float(2.0 ** np.floor(np.log2(LARGEST / largest))) if largest > 0 else 1.0
    notes = known_of(evaluator.function)
    before: float = notes.get("scale", 0.0)
    if not wanted / 64 <= before <= wanted * 4:
        before = notes["scale"] = wanted
    return before
