"""Choosing the precision mode a model runs in: float32, or less, with proof.

TF32 and half precision are several times as fast on a GPU, and they shift attributions: those of transformers by a fraction of
a per cent, those of convolutional networks by several (docs/speed.md), unless TF32 is kept to the backward pass. None of them
is taken on trust: at one node of every path
the model runs in both modes, and the difference counts into the error. Where that is too much, it runs in both at two nodes;
their mean difference is added to the result, since what comes of rounded weights is the same all along the path, and how much
the differences vary counts into the error. Nothing is remembered from one call to the next: the same call chooses the same
mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..backends.precision import BACKWARD, GRADIENT_ROUNDING, Precision, PrecisionMode, PrecisionShift
from ..errors import OptionError
from ..paths.base import Nodes
from ..quadrature.panel_rules import FIVE_POINT
from ..trees import Leaves, add_rows, flat, on_device
from .checks import two_parts
from .evaluator import Evaluator

TRIED = ("float16", "tf32")
"""The fastest one first; where its range is too small, the next has that of float32. Not for networks with kinks, whose units
change sides in a lower precision: of these only the backward pass is in TF32."""

SAFETY, UNSURE = 1.5, 2.0
"""Differences at nodes that were not checked may vary by more than at those that were; the more so where these are few."""

SHARE = 0.4
"""Of the tolerance: what a lower precision may take up to be chosen without being asked for."""

FEW_LINES = 4
"""Fewer lines than these are checked at two nodes in any case; and they have room for one more in the same pass, F(x')."""

HOPELESS = 10.0
"""Over what may be shifted: what two nodes would not mend either."""

ONE, TWO = (0.5,), (0.25, 0.75)
"""Where a path is checked."""

WORTH, WORTH_BACKWARD = 2 << 30, 256 << 20
"""Bytes of activations of a first refinement round, from which on arithmetic outweighs the check on a GPU: of a mode that makes
gradients several times as fast, and of one whose forward pass needs no check."""

LARGEST = 16.0
"""The most that the largest gradient is scaled to in float16, whose smallest numbers are not small."""


def choose_precision(evaluator: Evaluator, wanted: Precision, tol: float) -> None:
    """Choose the precision mode that the evaluator runs the model in, and note what it shifts.

    Args:
        evaluator: of whose examples a few nodes are evaluated in both precisions.
        wanted: what the user asked for.
        tol: the tolerance, which must leave room for it unless it was asked for.
    """
    if wanted not in get_args(Precision):
        raise OptionError(f"got precision={wanted!r}; expected one of {', '.join(map(repr, get_args(Precision)))}.")
    asked = wanted != "auto"
    tried = (wanted,) if asked else _worth_trying(evaluator)
    if wanted == "float32" or not tried:
        return
    if asked:
        _check_possible(evaluator, wanted)
        evaluator.measure_rows()  # which CUDA graphs need to know, and the checked nodes would measure without telling them
    few, room = evaluator.function.examples * len(evaluator.pieces) < FEW_LINES, SHARE * tol
    for name in tried:
        if name == BACKWARD and not asked:
            evaluator.runner.mode, evaluator.shift = PrecisionMode(BACKWARD), _not_checked(evaluator.function.examples)
            return
        for times in (TWO,) if asked or few or name == BACKWARD else (ONE, TWO):
            found = _compared(evaluator, name, times, start=few and not asked)
            shifts = (UNSURE if few or times is ONE else SAFETY) * np.maximum(found.varies, found.varies.mean())
            if asked or shifts.max() <= room:
                evaluator.runner.mode = found.mode
                nothing, every = np.zeros_like(shifts), np.ones(len(shifts), bool)
                evaluator.shift = PrecisionShift(
                    shifts, found.sizes, found.mean, found.starts, GRADIENT_ROUNDING[name], nothing, every
                )
                return
            if shifts.max() > HOPELESS * room:
                break


CHECKED = TWO
"""Where gradients of a backward pass in TF32 are compared with those of float32: at nodes that every path has."""


def _not_checked(examples: int) -> PrecisionShift:
    """What TF32 in backward passes shifts, before :func:`backward_checked` has looked."""
    nothing, everywhere = np.zeros(examples), np.full(examples, np.inf)
    return PrecisionShift(nothing, everywhere, None, None, GRADIENT_ROUNDING[BACKWARD], nothing.copy(), np.ones(examples, bool))


def checked_nodes(evaluator: Evaluator, examples: Ints) -> Nodes:
    """The nodes of some examples where gradients of a backward pass in TF32 are compared with those of float32."""
    every = np.arange(len(evaluator.pieces))
    piece, row, t = (part.ravel() for part in np.meshgrid(every, examples, np.array(CHECKED), indexing="ij"))
    return Nodes(t, row, piece)


def backward_checked(evaluator: Evaluator, examples: Ints, low: Tensor, tol: float) -> bool:
    """Compare gradients of backward passes in TF32 with those of float32, and note by how much they shift attributions.

    Args:
        evaluator: evaluates the latter, from forward passes that are the same.
        examples: which ones.
        low: gradient times velocity at the times ``CHECKED`` of all pieces, (examples, pieces, times, features).
        tol: the tolerance.

    Returns:
        Whether that leaves room for the tolerance.
    """
    pieces, nodes = low.shape[1], checked_nodes(evaluator, examples)
    fine = torch.zeros(len(nodes), low.shape[3], dtype=low.dtype, device=low.device)
    for done in evaluator.full_gradients_at(nodes):
        fine[on_device(done.index.copy(), fine.device)] = done.terms.to(fine)
    fine = fine.view(pieces, len(examples), len(CHECKED), -1).transpose(0, 1)
    stays, averages = two_parts((fine - low).flatten(0, 1))
    off = (stays.square() + averages.square() / FIVE_POINT.count(2)).sqrt().view(len(examples), pieces)
    weights = on_device([abs(one.weight) for one in evaluator.pieces], off.device, off.dtype)
    both = torch.stack([off @ weights, fine.double().abs().sum(3).mean(2) @ weights]).cpu().numpy()
    size = np.where(both[1] > 0, both[1], 1.0)
    shifts = UNSURE * both[0] / size
    assert evaluator.shift is not None
    evaluator.shift.shifts[examples], evaluator.shift.sizes[examples] = np.maximum(shifts, shifts.mean()), both[1]
    return bool(shifts.max() <= SHARE * tol)


def choose_precision_again(evaluator: Evaluator, tol: float) -> None:
    """Measure once more what the mode in use shifts: it was measured with CUDA graphs that turned out to be outdated."""
    name = evaluator.runner.mode.name
    if evaluator.runner.low:
        evaluator.runner.mode = PrecisionMode()
        choose_precision(evaluator, cast(Precision, name), tol)


def _worth_trying(evaluator: Evaluator) -> tuple[str, ...]:
    """What may save time, the fastest first: something where there is enough to do for a GPU."""
    if evaluator.device.type != "cuda" or not evaluator.plain() or evaluator.dtype != torch.float32:
        return ()
    evaluator.measure_rows()
    lines = evaluator.function.examples * len(evaluator.pieces)
    work = FIVE_POINT.count(2) * lines * evaluator.chunks.row_bytes
    # What a recomputed block computes again in a backward pass would be in TF32, too.
    backward = () if evaluator.runner.recomputes else (BACKWARD,)
    if not evaluator.smooth:
        return backward if work >= WORTH_BACKWARD else ()
    if work < WORTH:
        return ()
    # Few lines of a smooth network are done before a check of other modes has paid, which takes passes of its own.
    return (*TRIED, *backward) if lines >= FEW_LINES else backward


def _check_possible(evaluator: Evaluator, name: str) -> None:
    if name in ("tf32", BACKWARD) and evaluator.device.type != "cuda":
        raise OptionError(f"got precision={name!r} on a {evaluator.device.type}; expected a CUDA GPU. Leave precision out.")
    dtypes = {leaf.dtype for leaf in evaluator.function.inputs}
    if dtypes != {torch.float32} or evaluator.precision != "float32":
        raise OptionError(
            f"got precision={name!r} for a model that runs in {evaluator.precision}; expected float32 to start from. Leave "
            "precision out, or pass model and x in float32."
        )


@dataclass(frozen=True)
class _PrecisionDifference:
    """Float32 minus a lower precision, in gradient times velocity.

    Attributes:
        mode: the lower precision.
        mean: over the nodes of each path, summed over its pieces with their weights, (examples, features); None where there
            is one node only.
        sizes: of the gradients in float32, the mean over nodes, likewise, (examples,).
        varies: how far single nodes are from it (from nothing if None), over the size of the gradients, (examples,); of a
            backward pass in TF32, how far the mean over many nodes is from nothing.
        starts: F(x') in float32, (examples,), where that came with it.
    """

    mode: PrecisionMode
    mean: Tensor | None
    sizes: Floats
    varies: Floats
    starts: Floats | None


def _compared(evaluator: Evaluator, name: str, at: tuple[float, ...], *, start: bool) -> _PrecisionDifference:
    """Evaluate nodes of every line in float32 and in a lower precision; all nodes of a line at a time.

    Args:
        evaluator: of whose examples.
        name: the lower precision.
        at: where on each line.
        start: whether to find F(x') too, if the path is of one piece.
    """
    examples, pieces = evaluator.function.examples, len(evaluator.pieces)
    start &= pieces == 1
    times = np.array([*at, 0.0] if start else at)
    lines, many = np.arange(examples * pieces), max(1, evaluator.chunks.size // len(times))
    total = torch.zeros(examples, evaluator.features, dtype=evaluator.dtype, device=evaluator.device)
    size, off, starts, mode = np.zeros(examples), np.zeros(examples), np.zeros(examples), None
    for part in np.split(lines, range(many, len(lines), many)):
        rows, place = part % examples, part // examples
        nodes = Nodes(np.tile(times, len(part)), np.repeat(rows, len(times)), np.repeat(place, len(times)))
        here, mode = _in_two_precisions(evaluator, nodes, name, mode)
        starts[rows] = here.scores.reshape(len(part), -1)[:, -1]
        np.add.at(evaluator.gradients, nodes.rows, np.where(nodes.t > 0, 2, 1))
        change, shares = here.change.unflatten(0, (len(part), -1)), np.array([evaluator.pieces[p].weight for p in place])
        corrected = len(at) > 1 and name != BACKWARD
        mean = change.mean(1) if corrected else torch.zeros_like(change[:, 0])
        weights = on_device(shares, mean.device, mean.dtype)[:, None]
        add_rows(total, on_device(rows, mean.device), weights * mean)
        if name == BACKWARD:
            stays, averages = two_parts(change)
            left = (stays.square() + averages.square() / FIVE_POINT.count(2)).sqrt()
        else:
            left = (change - mean[:, None]).abs().sum(2).mean(1)
        far = left.double().cpu().numpy()
        np.add.at(size, rows, np.abs(shares) * here.sizes.reshape(len(part), -1).mean(1))
        np.add.at(off, rows, np.abs(shares) * np.where(np.isfinite(far), far, np.inf))
    assert mode is not None
    # What overflows is evaluated in float32 and needs no correction.
    mean = total.nan_to_num(0.0, 0.0, 0.0) if len(at) > 1 and name != BACKWARD else None
    return _PrecisionDifference(mode, mean, size, off / np.where(size > 0, size, 1.0), starts if start else None)


@dataclass(frozen=True)
class _TwoPrecisions:
    """Nodes in two precisions.

    Attributes:
        scores: F in float32, (N,).
        change: float32 minus the other, in gradient times velocity, at all nodes but those at the start, (M, features).
        sizes: of gradient times velocity in float32 there, (M,).
    """

    scores: Floats
    change: Tensor
    sizes: Floats


def _in_two_precisions(
    evaluator: Evaluator, nodes: Nodes, name: str, mode: PrecisionMode | None
) -> tuple[_TwoPrecisions, PrecisionMode]:
    """Evaluate nodes in float32 and, but for the start of the path, in a lower precision; and how that is run."""
    modes = [] if mode is None else [mode]

    def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Tensor, Tensor, Tensor]:
        leaves, speeds = evaluator.points(here)
        labels = on_device(here.rows, evaluator.device)
        with evaluator.chunks.measuring(len(here)):
            scores, fine = evaluator.runner(leaves, labels)
        some = on_device(np.flatnonzero(here.t > 0), evaluator.device)
        fine, speeds, points = (tuple(part.detach()[some] for part in side) for side in (fine, speeds, leaves))
        low = fine
        if len(some):
            if not modes:
                modes.append(PrecisionMode(name, _scale(fine) if name == "float16" else 1.0))
            with evaluator.runner.in_mode(modes[0]):
                _, low = evaluator.runner(points, labels[some])
        terms = [evaluator.added(flat(part).to(evaluator.dtype) * flat(speeds)) for part in (fine, low)]
        return index, scores, terms[0] - terms[1], terms[0].abs().sum(1)

    done = list(evaluator.in_chunks(nodes, evaluate))
    index = np.concatenate([one[0] for one in done])
    scores = np.empty(len(nodes))
    scores[index] = torch.cat([one[1] for one in done]).double().cpu().numpy()
    order = np.argsort(index[nodes.t[index] > 0])
    change = torch.cat([one[2] for one in done])[on_device(order, evaluator.device)]
    return _TwoPrecisions(scores, change, torch.cat([one[3] for one in done]).double().cpu().numpy()[order]), modes[0]


def _scale(gradients: Leaves) -> float:
    """A power of two that brings the largest gradient to 1/4 to 16; in steps of 64, so that CUDA graphs serve many inputs."""
    largest = max(float(leaf.abs().max()) for leaf in gradients)
    if not 0 < largest < np.inf:
        return 1.0
    return float(2.0 ** (6 * np.floor(np.log2(LARGEST / largest) / 6)))
