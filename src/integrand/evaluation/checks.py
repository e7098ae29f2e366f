"""What a run looks at before it trusts a model: rows that influence each other, chance, and what rounding does."""

from __future__ import annotations

import numpy as np
import torch

from ..arrays import Floats, Ints
from ..backends.precision import COARSE
from ..errors import RandomnessError, RowsError
from ..trees import flat
from .evaluator import Evaluator
from .nodes import Nodes

DEEPER = 3.0
"""Rounding inside the model over rounding of its input, in what it does to gradients."""


def noise(evaluator: Evaluator, examples: Ints) -> Floats:
    """What rounding does to gradient times velocity (L1): three times its change when the point moves by one rounding.

    Measured at two times on the first piece where no kink is likely to be, the larger of the two.
    """
    twice = np.repeat(examples, 2)
    nodes = Nodes(np.tile([0.2871, 0.7129], len(examples)), twice, np.zeros_like(twice))
    generator = torch.Generator().manual_seed(0)

    def evaluate(index: Ints, here: Nodes) -> tuple[Ints, Floats]:
        leaves, velocities = evaluator.points(here)
        moved = []
        for leaf in leaves:
            sign = torch.randint(0, 2, leaf.shape, generator=generator).to(leaf.device, leaf.dtype) * 2 - 1
            moved.append(leaf * (1 + torch.finfo(leaf.dtype).eps * sign))
        rows, sides = torch.as_tensor(here.rows, device=evaluator.device), [leaves, tuple(moved)]
        if 2 * len(here) <= evaluator.chunks.size:
            both = tuple(map(torch.cat, zip(*sides, strict=True)))
            first, second = flat(evaluator.runner(both, rows.repeat(2))[1]).to(evaluator.dtype).chunk(2)
        else:
            first, second = (flat(evaluator.runner(side, rows)[1]).to(evaluator.dtype) for side in sides)
        change = evaluator.added((second - first) * flat(velocities)).abs().sum(1)
        return index, DEEPER * change.double().cpu().numpy()

    out = np.zeros(len(nodes))
    for index, change in evaluator.in_chunks(nodes, evaluate):
        out[index] = change
        np.add.at(evaluator.gradients, nodes.rows[index], 2)
    return np.asarray(out.reshape(-1, 2).max(1))


def outdated(evaluator: Evaluator, found: Floats, examples: Ints) -> bool:
    """Whether a recording gives another F(x) than the model itself: the model has changed, and it is forgotten."""
    if not evaluator.runner.recordings.used:
        return False
    alone = evaluator.function.at_input.double().cpu().numpy()[examples]
    if (np.abs(found - alone) <= _slack(evaluator, examples)).all():
        return False
    evaluator.runner.recordings.forget()
    return True


def outdated_along(evaluator: Evaluator) -> bool:
    """The same where F(x) itself was not among the nodes: at the first and at the last node of each example."""
    seen = evaluator.profile() if evaluator.runner.recordings.used else None
    if seen is None:
        return False
    new = np.flatnonzero(np.diff(seen.example)) + 1
    ends = np.r_[0, new, new - 1, len(seen) - 1]
    rows = seen.example[ends]
    alone = evaluator.scores_at(Nodes(seen.t[ends], rows, seen.piece[ends]))
    if (np.abs(seen.score[ends] - alone) <= _slack(evaluator, rows)).all():
        return False
    evaluator.runner.recordings.forget()
    return True


def _slack(evaluator: Evaluator, examples: Ints) -> Floats:
    """By how much F may differ between batches, as far as rounding goes, (examples,)."""
    epsilon = max(evaluator.epsilon, torch.finfo(evaluator.function.at_input.dtype).eps)
    share = max(float(np.clip(4e3 * epsilon, 1e-6, 0.2)), 64 * COARSE.get(evaluator.runner.way.name, 0.0))
    return np.asarray(share * evaluator.function.scale[examples])


def check_rows(evaluator: Evaluator, found: Floats, examples: Ints) -> None:
    """Compare F(x) as found among other rows with F(x) as the user's batch gives it."""
    alone = evaluator.function.at_input.double().cpu().numpy()[examples]
    epsilon = max(evaluator.epsilon, torch.finfo(evaluator.function.at_input.dtype).eps)
    slack = _slack(evaluator, examples)
    if (np.abs(found - alone) <= slack).all():
        return
    again = evaluator.function.again()[examples]
    i = int(np.argmax(np.abs(again - alone) - slack))
    if abs(again[i] - alone[i]) > max(slack[i], 100 * epsilon * _cancelling(evaluator, examples[i])):
        raise RandomnessError(
            f"two identical calls give {alone[i]:.6g} and {again[i]:.6g} for example {examples[i]}; expected the same "
            "score each time. Turn off dropout and sampling in the model (model.eval(), a fixed seed inside)."
        )
    # Where large terms cancel, their rounding, which changes with the batch, is not small beside the score.
    bad = np.flatnonzero(np.abs(found - alone) > np.maximum(slack, 100 * evaluator.function.rounding()[examples]))
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
    _, gradients = evaluator.function.value_and_grad(here, rows)
    return float((flat(here).detach() * flat(gradients))[example].abs().sum())
