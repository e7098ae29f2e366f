"""Whether a baseline carries a signal of its own: the model's class probabilities there, and the limits to judge them by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backends.torch_function import TorchFunction
from ..certificate import Certificate, ExampleCertificate
from ..errors import BaselineWarning, OutputError, warn
from ..functions.target import main_tensor
from ..trees import Leaves

NEAR_ZERO, HIGH_HEAD_START = 0.1, 0.5
"""Limits of the head start: up to the first the score of a baseline counts as near zero; above the second it counts as high,
since attributions then explain the smaller part of the rise above chance."""

OWN_SIGNAL = 0.75
"""A baseline carries a signal of its own where the model is more than this share as sure of its answer as at x. By hand,
between what BVLC's GoogLeNet says of plain images (for a photo of coffee 67% at black, below 54% at white, the mean, blur and
noise) and of another photo (91% at a cat): ``tests/analysis/test_baseline_diagnosis.py``."""

FLOOR = 0.5
"""Where x itself is hardly above chance, its baseline is judged as if x were halfway from chance to certainty."""


def head_start(base: float, here: float, chance: float) -> float:
    """The share of the rise of a probability above chance that the baseline has already, from 0 on.

    >>> head_start(0.5, 0.9, chance=0.5), round(head_start(0.7, 0.9, chance=0.5), 9)
    (0.0, 0.5)

    Args:
        base: the probability of the explained class at the baseline.
        here: the probability of the explained class at the input.
        chance: the probability from a model that knows nothing, 1 / classes.
    """
    return max(base - chance, 0.0) / max(here - chance, FLOOR * (1 - chance))


def certainty(entropy: float, classes: int) -> float:
    """The certainty of an answer by the probabilities of all its classes, from chance (0) to one certain class (1).

    It is that of the model with the same entropy that is so sure of one class and leaves the rest to chance. The top class
    alone does not tell: 0.44 for one breed of cats, with the rest on other breeds, is a cat; 0.5 with the rest spread over all
    classes is a guess.

    >>> round(certainty(1.0, 1000), 3), round(certainty(0.8112781, 2), 3), round(certainty(0.0, 1000), 3)
    (0.0, 0.5, 1.0)

    Args:
        entropy: the entropy of the classes as a share of the largest possible.
        classes: how many classes there are.
    """
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        other = (1 - middle) / classes
        mixture = -(middle + other) * math.log(middle + other) - (classes - 1) * other * math.log(other)
        low, high = (middle, high) if mixture > entropy * math.log(classes) else (low, middle)
    return low


def own_signal(at_baseline: float, at_x: float) -> float:
    """The share of the certainty at x that the model has at a baseline already, of whatever class.

    >>> own_signal(0.2, 0.8), own_signal(0.2, 0.1)
    (0.25, 0.4)

    Args:
        at_baseline: the certainty at the baseline.
        at_x: the certainty at x.
    """
    return at_baseline / max(at_x, FLOOR)


def class_probabilities(function: TorchFunction, leaves: Leaves, rows: Tensor) -> tuple[NDArray[np.float64], int | None] | None:
    """The probabilities of the classes at points, (N, classes), and the explained class (None for a target function).

    Outputs pass through softmax over their classes, unless they are probabilities already; a single output through sigmoid,
    as two classes of which the second is explained. None where the output has no classes: a single output that is explained
    as it is, or the user's own function of something else than rows of classes.
    """
    scorer = function.scorer
    with torch.no_grad():
        outputs = scorer.seen(function.run(leaves, rows), rows)
    try:
        tensor = main_tensor(outputs[0]) if scorer.batched else torch.stack([main_tensor(raw) for raw in outputs])
    except OutputError:
        return None  # what a target function picks its score from need not be classes
    tensor = tensor.detach().double().cpu()
    if tensor.ndim == 0 or tensor.shape[0] != len(rows):
        return None
    if tensor[0].numel() == 1:
        if scorer.score == "logit":
            return None
        p = tensor.reshape(-1).sigmoid().numpy()
        return np.stack([1 - p, p], 1), 1
    picked, explained = _class_rows(tensor, [int(column[int(rows[0])]) for column in scorer.index])
    if picked is None:
        return None
    given = scorer.score == "logit" and bool((picked >= 0).all()) and bool(((picked.sum(1) - 1).abs() < 1e-3).all())
    return (picked if given else picked.softmax(1)).numpy(), explained


@dataclass(frozen=True, slots=True)
class Signal:
    """What classes the model sees at a baseline, as means over its draws.

    Attributes:
        probability: the probability of the explained class; NaN where that is not known.
        top: the class that most draws put first.
        confidence: the probability of the top class of each draw.
        entropy: the entropy of the classes as a share of the largest possible: 1 where all are alike, 0 where one is certain.
        classes: how many classes there are.
    """

    probability: float
    top: int
    confidence: float
    entropy: float
    classes: int

    @property
    def chance(self) -> float:
        """The probability of every class from a model that knows nothing."""
        return 1 / self.classes

    @property
    def certainty(self) -> float:
        """The certainty of the answer, from chance (0) to one certain class (1)."""
        return certainty(self.entropy, self.classes)


def signal_of(points: Sequence[tuple[NDArray[np.float64], int | None] | None], *, side: int | None = None) -> Signal | None:
    """The mean signal over the draws of a baseline.

    Args:
        points: what :func:`class_probabilities` gives at each draw.
        side: the explained class, where the function itself cannot say.
    """
    if any(point is None for point in points):
        return None
    rows = np.concatenate([point[0] for point in points if point is not None])
    first = points[0]
    explained = side if side is not None else first[1] if first is not None else None
    logs = np.log(np.where(rows > 0, rows, 1.0))
    entropy = float((-(rows * logs).sum(1)).mean() / math.log(rows.shape[1]))
    tops = np.bincount(rows.argmax(1), minlength=rows.shape[1])
    probability = math.nan if explained is None else float(rows[:, explained].mean())
    return Signal(probability, int(tops.argmax()), float(rows.max(1).mean()), entropy, rows.shape[1])


def warn_if_high(certificate: Certificate, function: TorchFunction) -> None:
    """Warn where a baseline has the explained class already, by the scores in the certificate.

    Only probabilities have a known scale: warned of is more than half of the rise above chance, clearly above chance.
    """
    scorer = function.scorer
    if scorer.score == "logit" or scorer.function is not None:
        return
    ends = [_probabilities(one, single=not scorer.index, log=scorer.score == "log-probability") for one in certificate]
    differs = [one.magnitude > 0 for one in certificate]  # an input that equals its baseline is warned of already
    # A head start over a chance of zero is the largest there can be: most runs end here, at no cost.
    suspects = [i for i, (here, base) in enumerate(ends) if differs[i] and head_start(base, here, 0.0) > HIGH_HEAD_START]
    if not suspects:
        return
    chance = 1 / _classes(function)
    high = [i for i in suspects if head_start(ends[i][1], ends[i][0], chance) > HIGH_HEAD_START]
    if high:
        here, base = ends[high[0]]
        warn(
            f"the baseline has the explained class already for {len(high)} of {len(ends)} example(s): its probability is "
            f"{base:.2g} at the baseline of example {high[0]} and {here:.2g} at the input; expected a baseline near chance "
            f"({chance:.2g}), since attributions explain the difference only. Compare baselines with "
            "integrand.baselines.diagnose(model, x), or average several.",
            BaselineWarning,
        )


def _class_rows(tensor: Tensor, index: Sequence[int]) -> tuple[Tensor | None, int | None]:
    """The class scores at the explained position of an output, (N, classes), and the explained class."""
    if tensor.ndim == 2:
        return tensor, index[0] if index else None
    if not index:
        return None, None
    if tensor.ndim == 3:  # as in the scores: (rows, positions, classes), but (rows, classes, H, W)
        return tensor[:, index[0]], index[1]
    place = int(np.ravel_multi_index(tuple(index[1:]), tuple(tensor.shape[2:])))
    return tensor.flatten(2)[:, :, place], index[0]


def _probabilities(one: ExampleCertificate, *, single: bool, log: bool) -> tuple[float, float]:
    """The explained probability at the input and, on average, at the baselines."""
    starts = [curve.start_score for curve in one.curves] or [one.baseline_score]
    here, bases = one.score, np.array(starts)
    if log:
        here, bases = math.exp(here), np.exp(bases)
    base = float(bases.mean())
    # A single output stands for two classes, and the one that x belongs to is what is explained.
    return (1 - here, 1 - base) if single and here < 0.5 else (here, base)


def _classes(function: TorchFunction) -> int:
    """How many classes the model has, by its output for one row."""
    if not function.scorer.index:
        return 2
    rows = torch.zeros(1, dtype=torch.long, device=function.inputs[0].device)
    found = class_probabilities(function, tuple(leaf[:1] for leaf in function.inputs), rows)
    return 2 if found is None else found[0].shape[1]
