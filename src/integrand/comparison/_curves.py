"""Deletion and insertion curves: how the score moves while features are taken out, or put in, the strongest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from .._trees import Tensors
from ..attribution import Attribution
from ..baselines import Baseline
from ..errors import OptionError
from ..functions import Score, Target
from ._curve import By, Kind, PerturbationCurve
from ._ranks import Floats
from ._removal import Removal, at_least, removing
from ._settings import Settings


def deletion_curve(
    model: Callable[..., Any],
    x: Tensors,
    attribution: Attribution | Tensors,
    baseline: Baseline = None,
    *,
    steps: int = 20,
    orders: int = 10,
    by: By = "value",
    seed: int = 0,
    target: Target = None,
    score: Score = "logit",
    groups: Tensors | None = None,
    **settings: Unpack[Settings],
) -> PerturbationCurve:
    """How the score falls while features are set to the baseline, those with the largest attribution first.

    What it measures is the model as much as the method: inputs with features missing are unlike what the network was
    trained on, so that a poor curve may come of a poor attribution or of a model that behaves oddly off its data, and
    nothing here tells which. "Missing" means set to the baseline, which is a choice of its own. Random orders are measured
    along, since an area means nothing alone.

    >>> import torch
    >>> weights = torch.tensor([3.0, 2.0, 1.0])
    >>> curve = deletion_curve(lambda x: x @ weights, torch.ones(1, 3), weights[None], steps=3)
    >>> curve.scores.tolist()
    [[6.0, 3.0, 1.0, 0.0]]

    Args:
        model: an ``nn.Module`` in eval mode, or any callable of tensors.
        x: the input.
        attribution: a result, or values in the structure of x; with ``groups``, one number per group will do, and
            numbers per feature are added up. Order among equals is random. A result has to be of the same target, score and
            baseline as asked here; plain values cannot be checked.
        baseline: what features are set to; zero if not given. Scores of several baselines are averaged.
        steps: how many times features are removed, in equal parts.
        orders: how many random orders to measure along.
        by: ``value``: what raises the score most goes first; ``magnitude``: what matters most, whatever its sign.
        seed: of the random orders.
        target: the output to explain; None means the only output, else the top class of x.
        score: logit, probability or log-probability.
        groups: integer labels in the structure of one example: what is removed together (for an image, the same label for
            all colours of a pixel: ``torch.arange(H * W).reshape(H, W)``); -1 always stays.
        **settings: how the model is called; see :class:`Settings`.
    """
    with removing(model, x, baseline, target, score, groups, **settings) as removal:
        return _curve("deletion", removal, attribution, steps, orders, by, seed)


def insertion_curve(
    model: Callable[..., Any],
    x: Tensors,
    attribution: Attribution | Tensors,
    baseline: Baseline = None,
    *,
    steps: int = 20,
    orders: int = 10,
    by: By = "value",
    seed: int = 0,
    target: Target = None,
    score: Score = "logit",
    groups: Tensors | None = None,
    **settings: Unpack[Settings],
) -> PerturbationCurve:
    """How the score rises while features go from the baseline to the input, those with the largest attribution first.

    What it measures is the model as much as the method, as with :func:`deletion_curve`: an input that is mostly baseline is
    nothing the network was trained on, and the baseline is a choice of its own.

    >>> import torch
    >>> weights = torch.tensor([3.0, 2.0, 1.0])
    >>> curve = insertion_curve(lambda x: x @ weights, torch.ones(1, 3), weights[None], steps=3)
    >>> curve.scores.tolist()
    [[0.0, 3.0, 5.0, 6.0]]

    Args:
        model: as in :func:`deletion_curve`, and so for what is not described here.
        x: the input.
        attribution: a result of the same question, or values in the structure of x, or one number per group.
        baseline: where features come from; zero if not given.
        steps: how many times features are inserted, in equal parts.
        orders: how many random orders to measure along.
        by: ``value`` or ``magnitude``.
        seed: of the random orders.
        target: the output to explain.
        score: logit, probability or log-probability.
        groups: what is inserted together.
        **settings: how the model is called; see :class:`Settings`.
    """
    with removing(model, x, baseline, target, score, groups, **settings) as removal:
        return _curve("insertion", removal, attribution, steps, orders, by, seed)


def _curve(
    kind: Kind, removal: Removal, attribution: Attribution | Tensors, steps: int, orders: int, by: By, seed: int
) -> PerturbationCurve:
    at_least("steps", steps, 1)
    at_least("orders", orders, 1)
    if by not in get_args(By):
        raise OptionError(f"got by={by!r}; expected 'value' or 'magnitude'.")
    generator = np.random.default_rng(seed)
    values = removal.values_of(attribution)
    counts = np.unique(np.rint(np.linspace(0, removal.units, min(steps, removal.units) + 1)).astype(np.int64))
    first = _measured(kind, removal, _places(np.abs(values) if by == "magnitude" else values, generator), counts)
    whole = first[:, 0] if kind == "deletion" else first[:, -1]
    removal.check_rows(whole)
    noise = np.where(removal.same, np.inf, removal.noise(whole))
    chance = [_measured(kind, removal, _places(np.zeros_like(values), generator), counts) for _ in range(orders)]
    words = removal.problem.function.scorer.words
    return PerturbationCurve(kind, counts / removal.units, first, np.stack(chance), removal.units, by, seed, words, noise)


def _places(values: Floats, generator: np.random.Generator) -> NDArray[np.int64]:
    """The place of every unit in its example's order, largest first, equal ones shuffled, (examples, units)."""
    order = np.lexsort((generator.random(values.shape), -values), axis=-1)
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(values.shape[1])[None], 1)
    return places


def _measured(kind: Kind, removal: Removal, places: NDArray[np.int64], counts: NDArray[np.int64]) -> Floats:
    """Scores after so many units of each example's order, (examples, points)."""
    examples = np.repeat(np.arange(len(places)), len(counts))
    steps = np.tile(counts, len(places))

    def removed(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        changed: NDArray[np.bool_] = places[examples[rows]] < steps[rows, None]
        return changed if kind == "deletion" else ~changed

    return removal.scores(examples, removed).reshape(len(places), len(counts))
