"""What a run checks before it trusts a model: finite numbers, independent rows, no randomness, and what rounding does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..backends.precision import ROUNDING
from ..errors import NonFiniteError, RowsError
from ..functions.function import Function
from ..functions.layer import uncompiled
from ..functions.randomness import FEWEST_CALLS, SHRINKS, SumsRounded, in_float64, refuse_randomness, scores_again
from ..paths.base import Nodes
from ..trees import Leaves, on_device

if TYPE_CHECKING:
    from .evaluator import Evaluator

DEEPER = 3.0
"""Rounding inside the model over rounding of its input, in what it does to gradients."""

HALF_PLACES = (0.1371, 0.3629, 0.6371, 0.8629)
"""Where on the path half precision is looked at."""

LOOKED_AT = 1 << 20
"""Features, at about the most, by which half precision is judged."""

SURE = 1.5
"""What was measured at a few nodes is raised by this: others may be worse."""

ROUNDING_DRAWS = 16
"""Draws of rounding in every sum of a model. Two terms that cancel to exactly 0 are rounded alike in every second draw, which
leaves the 0 unchanged: four draws missed it in 1 of 60 models, 16 miss it in one of 65,000."""

ROUGHLY = 0.25
"""What rounding to nearest changes a number by, over the distance between neighbouring numbers: the root mean square."""


def check_finite(names: Sequence[str], nodes: Nodes, scores: Floats, slopes: Floats, gradients: Leaves) -> None:
    """Refuse scores and gradients that are not finite, with the place.

    Args:
        names: of the explained tensors.
        nodes: where they were evaluated.
        scores: F, (N,).
        slopes: dF/dt, (N,).
        gradients: (N, ...) each, to say which feature it is; none where they are not at hand.
    """
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        where = f"example {nodes.rows[bad[0]]}, t = {nodes.t[bad[0]]:.6g} of the path"
        raise NonFiniteError(
            f"the score is {scores[bad[0]]} at {where}; expected a finite number everywhere on the path. Choose a "
            "baseline within the model's domain, or look for overflow, log of 0 or division by 0 in the model."
        )
    bad = np.flatnonzero(~np.isfinite(slopes))
    if not len(bad):
        return
    row = bad[0]
    for name, leaf in zip(names, gradients, strict=False):
        places = (~torch.isfinite(leaf[row])).nonzero()
        if len(places):
            place = tuple(places[0].tolist())
            raise NonFiniteError(
                f"the gradient is {leaf[row][place].item()} at feature {place} of x{name}, example {nodes.rows[row]}, t = "
                f"{nodes.t[row]:.6g} of the path; expected finite gradients. Square roots, norms and logs at exactly 0 do "
                "this: start from a baseline slightly off 0, or add an epsilon inside the model."
            )
    raise NonFiniteError(f"gradient times velocity overflows for example {nodes.rows[row]}; scale the input or the score.")


def score_rounding(function: Function) -> Floats:
    """By how much the scores change when x changes by one rounding, (examples,).

    Where large terms cancel, that is far more than a rounding of the score; and other rows in a batch may change the score by
    as much, since sums are then taken in another order.
    """
    generator = torch.Generator().manual_seed(0)

    def rounded(leaf: Tensor) -> Tensor:
        sign = torch.randint(0, 2, leaf.shape, generator=generator).to(leaf) * 2 - 1
        return leaf + sign * torch.finfo(leaf.dtype).eps * (float(leaf.abs().max()) or 1.0)

    here = scores_again(function)
    changes = [np.abs(scores_again(function, tuple(map(rounded, function.inputs))) - here) for _ in range(4)]
    return np.asarray(np.max(changes, axis=0))


def score_rounding_along(evaluator: Evaluator, examples: Ints) -> Floats:
    """By how much F changes along the path when a point changes by one rounding, at most, (examples,).

    As :func:`score_rounding`, but away from x, where a score may jump by the user's choice of x.
    """
    places = np.array([0.3147, 0.6173, 0.7219, 0.8371, 0.9293])
    many = np.repeat(examples, len(places))
    nodes = Nodes(np.tile(places, len(examples)), many, np.full(len(many), len(evaluator.pieces) - 1))

    def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Floats]:
        leaves, rows = evaluator.points_alone(here), evaluator.rows_of(here)
        changes = []
        with torch.no_grad():
            before = evaluator.runner.scores(leaves, rows).double()
            for draw in range(2):
                moved = tuple(_one_rounding(leaf, draw) for leaf in leaves)
                changes.append((evaluator.runner.scores(moved, rows).double() - before).abs())
        return index, torch.stack(changes).amax(0).cpu().numpy()

    out = np.zeros(len(nodes))
    for index, change in evaluator.in_chunks(nodes, evaluate):
        out[index] = change
        np.add.at(evaluator.forwards, nodes.rows[index], 3)
    return np.asarray(out.reshape(-1, len(places)).max(1))


def _one_rounding(leaf: Tensor, draw: int) -> Tensor:
    """Points with every number changed by one rounding, up or down; equal numbers are changed alike.

    Pixels that are equal stay so along the path, and a maximum over them goes to the first one: breaking such ties would
    change gradients as no rounding does.
    """
    bits = leaf.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[leaf.element_size()]).long()
    mixed = (bits ^ (bits >> 17)) * (0x9E3779B1 + 2 * draw)
    up = (mixed >> 15) & 1
    return leaf * (1 + torch.finfo(leaf.dtype).eps * (2 * up - 1).to(leaf.dtype))


def noise(evaluator: Evaluator, examples: Ints) -> tuple[Floats, Floats]:
    """Rounding of gradient times velocity (L1) and of the score: how far both move when the point moves by one rounding.

    It is measured at three times on the first piece. Of the gradients' three changes the middle one counts, tripled: where a
    kink is next to one of the times, a gradient changes by as much as the kink does, and nested differences account for that.
    Scores have no jumps at kinks; their largest change counts.

    Returns:
        Rounding of gradients and of scores, (examples,) each.
    """
    times = np.array([0.2871, 0.5419, 0.7129])
    gradients, scores = np.zeros((2, len(examples), len(times)))
    for rows, columns, rise, change in _changes(evaluator, examples, times, lambda leaf: _one_rounding(leaf, 0)):
        gradients[rows, columns] = DEEPER * change.abs().sum(1).double().cpu().numpy()
        scores[rows, columns] = rise.abs().double().cpu().numpy()
    return np.asarray(np.median(gradients, axis=1)), np.asarray(scores.max(1))


def half_precision_noise(evaluator: Evaluator, examples: Ints) -> tuple[Floats, Floats]:
    """What rounding to half precision does to the integral of gradient times velocity (L1), at a few places along the path.

    Where the model can be run as in float32, by the difference to that; elsewhere by what scaling every feature by a little
    more or less than 1 changes, as rounding its weights would do, equally at all places.

    Returns:
        What stays, however many nodes there are, and what averages out: of one node, to be divided by the root of their number;
        raised, and (examples,) each. Where nothing is compared with float32, nested differences show the latter.
    """
    times = np.array(HALF_PLACES)
    step = evaluator.features // LOOKED_AT | 1  # each of so many features stands for the others
    changes = torch.zeros(len(examples), len(times), -(-evaluator.features // step), dtype=torch.float64)
    if evaluator.full is not None:
        many = np.repeat(examples, len(times))
        nodes = Nodes(np.tile(times, len(examples)), many, np.zeros_like(many))
        for sign in (1, -1):
            with evaluator.in_full() if sign > 0 else nullcontext():
                for done in evaluator.gradients_at(nodes):
                    rows, columns = np.divmod(done.index, len(times))
                    changes[rows, columns] += sign * done.terms[:, ::step].double().cpu()
        stays, averages = (SURE * step * part.numpy() for part in two_parts(changes))
        return stays, averages
    generator = torch.Generator().manual_seed(0)
    signs = [torch.randint(0, 2, leaf.shape[1:], generator=generator) * 2 - 1 for leaf in evaluator.function.inputs]
    factors = cycle(signs)  # one leaf after the other

    def scaled(leaf: Tensor) -> Tensor:
        return leaf * (1 + ROUGHLY * evaluator.epsilon * next(factors).to(leaf.device, leaf.dtype))

    for rows, columns, _, change in _changes(evaluator, examples, times, scaled):
        changes[rows, columns] = change[:, ::step].double().cpu()
    stays = DEEPER * step * two_parts(changes, surely=False)[0].numpy()
    return stays, np.zeros_like(stays)


def two_parts(change: Tensor, *, surely: bool = True) -> tuple[Tensor, Tensor]:
    """What rounding errors at a few nodes, (lines, k, features), have in common, and what they do not, (lines,) each in L1.

    Rounding errors of different nodes are nearly independent and average out; what they have in common does not. Its square is
    the mean of the products of different nodes' errors; the square of the other part is what remains of the mean of their
    squares.

    Args:
        change: the errors.
        surely: whether the first part is raised by what the mean of few products over few features may be off by.
    """
    wide, count = change.double(), change.shape[1]
    squares = wide.square().sum(2)
    own, pairs = squares.mean(1), count * (count - 1)
    spread = wide.abs().sum((1, 2)) / squares.sqrt().sum(1).clamp_min(1e-300)  # from L2 to L1: the root of how many differ
    common = ((wide.sum(1).square().sum(1) - squares.sum(1)) / pairs).clamp_min(0)
    if surely:
        common = torch.minimum(common + own / (spread * (pairs / 2) ** 0.5).clamp_min(1.0), own)
    return common.sqrt() * spread, (own - common).clamp_min(0).sqrt() * spread


def _changes(
    evaluator: Evaluator, examples: Ints, times: Floats, moved: Callable[[Tensor], Tensor]
) -> Iterator[tuple[Ints, Ints, Tensor, Tensor]]:
    """Changes of the score and of gradient times velocity where points move a little, at some times on the first piece.

    Args:
        evaluator: evaluates the gradients, two at each point.
        examples: whose paths.
        times: where on the path.
        moved: from a leaf at some points, (N, ...), to where it is moved to.

    Returns:
        Chunk by chunk which of the examples, which of the times, and the changes, (N,) and (N, features).
    """
    many = np.repeat(examples, len(times))
    nodes = Nodes(np.tile(times, len(examples)), many, np.zeros_like(many))

    def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Tensor, Tensor]:
        leaves, velocities = evaluator.points(here)
        rows, sides = on_device(here.rows, evaluator.device), [leaves, tuple(map(moved, leaves))]
        if 2 * len(here) <= evaluator.chunks.size:
            both = tuple(map(torch.cat, zip(*sides, strict=True)))
            scores, gradients = evaluator.runner(both, rows.repeat(2))
            halves = slice(len(here)), slice(len(here), None)
            first, second = ((scores[half], tuple(leaf[half] for leaf in gradients)) for half in halves)
        else:
            first, second = (evaluator.runner(side, rows) for side in sides)
        change = tuple(b.to(evaluator.dtype) - a.to(evaluator.dtype) for a, b in zip(first[1], second[1], strict=True))
        return index, second[0].double() - first[0].double(), evaluator.terms_of(change, velocities, here)

    for index, rise, change in evaluator.in_chunks(nodes, evaluate):
        np.add.at(evaluator.gradients, nodes.rows[index], 2)
        yield *np.divmod(index, len(times)), rise, change


def graphs_outdated(evaluator: Evaluator, found: Floats, examples: Ints) -> bool:
    """Whether CUDA graphs give another F(x) than the model itself: it has changed since they were captured.

    They are then forgotten, and what was evaluated with them has to be evaluated again.
    """
    graphs = evaluator.runner.graphs
    if graphs is None or not graphs.used:
        return False
    alone = evaluator.function.at_input.double().cpu().numpy()[examples]
    if (np.abs(found - alone) <= _slack(evaluator, examples)).all():
        return False
    graphs.forget()
    return True


def graphs_outdated_along(evaluator: Evaluator) -> bool:
    """As :func:`graphs_outdated` where F(x) was not among the nodes: by the first and the last node of each example."""
    graphs = evaluator.runner.graphs
    seen = evaluator.profile() if graphs is not None and graphs.used else None
    if graphs is None or seen is None:
        return False
    new = np.flatnonzero(np.diff(seen.example)) + 1
    ends = np.r_[0, new, new - 1, len(seen) - 1]
    rows = seen.example[ends]
    counted = evaluator.forwards.copy()
    alone = evaluator.scores_at(Nodes(seen.t[ends], rows, seen.piece[ends]))
    evaluator.forwards = counted  # as capturing does, this belongs to the graphs: a call without them is certified alike
    if (np.abs(seen.score[ends] - alone) <= _slack(evaluator, rows)).all():
        return False
    graphs.forget()
    return True


def _slack(evaluator: Evaluator, examples: Ints) -> Floats:
    """By how much F may differ between batches, as far as rounding goes, (examples,)."""
    epsilon = max(evaluator.epsilon, torch.finfo(evaluator.function.at_input.dtype).eps)
    share = max(float(np.clip(4e3 * epsilon, 1e-6, 0.2)), 64 * ROUNDING.get(evaluator.runner.mode.name, 0.0))
    return np.asarray(share * evaluator.function.scale[examples])


def check_rows(evaluator: Evaluator, found: Floats, examples: Ints) -> None:
    """Compare F(x) as found among other rows with F(x) as the user's batch gives it, and refuse rows that influence others.

    Args:
        evaluator: of the function; runs it again where the two differ.
        found: F(x) of some examples, as found among other rows, (n,).
        examples: which ones, (n,).
    """
    function = evaluator.function
    alone = function.at_input.double().cpu().numpy()[examples]
    slack = _slack(evaluator, examples)
    if (np.abs(found - alone) <= slack).all():
        return
    refuse_randomness(function, 1)
    # Where large terms cancel, their rounding, which changes with the batch, is not small beside the score.
    bad = np.flatnonzero(np.abs(found - alone) > np.maximum(slack, 100 * score_rounding(function)[examples]))
    bad = np.array([i for i in bad if not _by_rounding(evaluator, int(examples[i]), abs(found[i] - alone[i]))], np.int64)
    if not len(bad):
        return
    refuse_randomness(function, FEWEST_CALLS)  # two calls of a random model may have agreed by chance
    i = int(bad[0])
    raise RowsError(
        f"example {examples[i]} scores {alone[i]:.6g} in its own batch and {found[i]:.6g} among other rows: rows "
        "influence each other. Expected one score per row that depends on that row alone (batch statistics and attention "
        "across the batch break that). Explain one example at a time, or pass batched=False if the whole of x is one "
        f"object, such as a graph.{function.call.split_words()}"
    )


def _by_rounding(evaluator: Evaluator, example: int, difference: float) -> bool:
    """Whether F(x) differs between batches by rounding alone: in float64 it hardly does any more.

    Saturated units in front of large weights hide that from :func:`score_rounding`: x then changes nothing, but the order of
    a sum of large terms, which changes with the number of rows, does. The smallest distance of two equal points hides it, too.
    A model that is in float64 already is run with its sums rounded at random. False where it cannot be told.
    """
    function, last = evaluator.function, len(evaluator.pieces) - 1
    rows = np.r_[np.arange(example, example + 7) % function.examples, example]
    nodes = Nodes(np.r_[np.linspace(0.0, 1.0, 7), 1.0], rows, np.full(8, last))
    among = evaluator.points(nodes)[0]
    try:
        if all(tensor.dtype == torch.float64 for tensor in (function.at_input, *function.inputs)):
            return bool(difference <= 100 * _sum_rounding(function)[example])
        with in_float64(function.call.model):
            own = scores_again(function)[example]
            other = function.scores(among, on_device(rows, evaluator.device))[-1]
    except Exception:  # an operation that knows no float64, or a tensor that cannot be rounded
        return False
    return other.dtype == torch.float64 and abs(float(other) - own) <= SHRINKS * difference


def _sum_rounding(function: Function) -> Floats:
    """By how much the scores change when every sum inside the model changes by one rounding, (examples,).

    Where terms cancel, the rounding of these terms is what remains; a score of exactly 0 has no size to compare with.
    """
    here, changes = scores_again(function), []
    for seed in range(ROUNDING_DRAWS):
        with SumsRounded(seed), uncompiled():
            changes.append(np.abs(scores_again(function) - here))
    return np.asarray(np.max(changes, axis=0))
