"""A path that moves one feature, or one block of features, at a time."""

from __future__ import annotations

import torch

from .._trees import Tensors, flat, flatten, unflat
from ._paths import Polyline, same_shape

MOST_STEPS = 16


def stairs(baseline: Tensors, x: Tensors, *, most: int = MOST_STEPS) -> Polyline:
    """From baseline to x feature by feature, in their order; beyond ``most`` features, block by block.

    Its attributions say how the score changes when the features arrive in this order: complete, but features that
    the model treats alike may get different shares. Shapley-Shubik is the mean over all orders.

    >>> stairs(torch.zeros(1, 2), torch.tensor([[1.0, 3.0]])).points[1]
    tensor([[1., 0.]])

    Args:
        baseline: where it starts, one row per example.
        x: where it ends.
        most: the number of moves at the most.
    """
    tree, stop = flatten(x, what="x")
    start_tree, start = flatten(baseline, what="baseline")
    same_shape("baseline", start_tree, start, tree, stop)
    here, there = flat(start), flat(stop)
    features = there.shape[1]
    moves = min(features, most)
    cuts = [round(i * features / moves) for i in range(moves + 1)]
    shapes = [leaf.shape[1:] for leaf in stop]
    rows = [torch.cat([there[:, :cut], here[:, cut:]], 1) for cut in cuts]
    return Polyline([tree.build(unflat(row, shapes)) for row in rows])
