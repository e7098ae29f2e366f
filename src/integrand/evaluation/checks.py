"""What a run checks before it trusts a model: finite numbers, independent rows, no randomness, and what rounding does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..backends.precision import ROUNDING, PrecisionMode
from ..errors import NonFiniteError, RandomnessError, RowsError
from ..functions.function import Function
from ..memory import all_rows
from ..paths.base import Nodes
from ..trees import Leaves, flat

if TYPE_CHECKING:
    from .evaluator import Evaluator

DEEPER = 3.0
"""Rounding inside the model over rounding of its input, in what it does to gradients."""


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


def scores_again(function: Function, leaves: Leaves | None = None) -> Floats:
    """The scores at the input once more, or at points near it, as in the user's own batch, (examples,)."""
    points = function.inputs if leaves is None else leaves

    def run(rows: Tensor) -> Tensor:
        return function.scores(tuple(leaf.index_select(0, rows) for leaf in points), rows)

    with torch.no_grad():
        return torch.cat(all_rows(run, function.examples, points[0].device)).double().cpu().numpy()


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


def noise(evaluator: Evaluator, examples: Ints) -> Floats:
    """What rounding does to gradient times velocity (L1): three times its change when the point changes by one rounding.

    Measured at two times on the first piece where no kink is likely to be, the larger of the two.
    """
    twice = np.repeat(examples, 2)
    nodes = Nodes(np.tile([0.2871, 0.7129], len(examples)), twice, np.zeros_like(twice))
    generator = torch.Generator().manual_seed(0)

    def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Floats]:
        leaves, velocities = evaluator.points(here)
        rounded = []
        for leaf in leaves:
            sign = torch.randint(0, 2, leaf.shape, generator=generator).to(leaf.device, leaf.dtype) * 2 - 1
            rounded.append(leaf * (1 + torch.finfo(leaf.dtype).eps * sign))
        rows, sides = torch.as_tensor(here.rows, device=evaluator.device), [leaves, tuple(rounded)]
        if 2 * len(here) <= evaluator.chunks.size:
            both = tuple(map(torch.cat, zip(*sides, strict=True)))
            found = evaluator.runner(both, rows.repeat(2))[1]
            first, second = (tuple(leaf[part] for leaf in found) for part in (slice(len(here)), slice(len(here), None)))
        else:
            first, second = (evaluator.runner(side, rows)[1] for side in sides)
        change = tuple(b.to(evaluator.dtype) - a.to(evaluator.dtype) for a, b in zip(first, second, strict=True))
        size = evaluator.terms_of(change, velocities, here).abs().sum(1)
        return index, DEEPER * size.double().cpu().numpy()

    out = np.zeros(len(nodes))
    for index, change in evaluator.in_chunks(nodes, evaluate):
        out[index] = change
        np.add.at(evaluator.gradients, nodes.rows[index], 2)
    return np.asarray(out.reshape(-1, 2).max(1))


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
    """Compare F(x) as found among other rows with F(x) as the user's batch gives it, and refuse rows that influence others."""
    alone = evaluator.function.at_input.double().cpu().numpy()[examples]
    epsilon = max(evaluator.epsilon, torch.finfo(evaluator.function.at_input.dtype).eps)
    slack = _slack(evaluator, examples)
    if (np.abs(found - alone) <= slack).all():
        return
    again = scores_again(evaluator.function)[examples]
    i = int(np.argmax(np.abs(again - alone) - slack))
    if abs(again[i] - alone[i]) > max(slack[i], 100 * epsilon * _cancelling(evaluator, examples[i])):
        raise RandomnessError(
            f"two identical calls give {alone[i]:.6g} and {again[i]:.6g} for example {examples[i]}; expected the same "
            "score each time. Turn off dropout and sampling in the model (model.eval(), a fixed seed inside)."
        )
    # Where large terms cancel, their rounding, which changes with the batch, is not small beside the score.
    bad = np.flatnonzero(np.abs(found - alone) > np.maximum(slack, 100 * score_rounding(evaluator.function)[examples]))
    if not len(bad):
        return
    i = int(bad[0])
    raise RowsError(
        f"example {examples[i]} scores {alone[i]:.6g} in its own batch and {found[i]:.6g} among other rows: rows "
        "influence each other. Expected one score per row that depends on that row alone (batch statistics and attention "
        "across the batch break that). Explain one example at a time, or pass batched=False if the whole of x is one "
        "object, such as a graph."
    )


def _cancelling(evaluator: Evaluator, example: int) -> float:
    """The sum of |x * dF/dx| at the input: where it is large beside F, sums in no fixed order, as on a GPU, show in F."""
    rows = torch.arange(evaluator.function.examples, device=evaluator.device)  # the user's own batch, as F was found
    here = tuple(leaf.detach().clone() for leaf in evaluator.function.inputs)
    with evaluator.runner.in_mode(PrecisionMode()):
        _, gradients = evaluator.runner(here, rows)
    return float((flat(here).detach() * flat(gradients))[example].abs().sum())
