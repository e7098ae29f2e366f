"""What a check works with: cases, one attribution with the error that its certificate allows, and the finding on a case."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..attribution import Attribution
from ..certificate import Status
from ..errors import IntegrandWarning, quiet
from ..methods.method import Method
from ..trees import Tensors, flat, flatten
from .formula import FormulaNetwork
from .formula_network import evaluate, network

SIGMAS = 6.0
"""How many standard errors a sampled value may be off before its method is blamed: chance exceeds six once in 500 million."""

NEGLIGIBLE, NEGLIGIBLE_IN_SEARCH = 1e-6, 1e-3
"""Gaps below this share of the attributions come from the stabilisers of a method, not from a broken axiom. The second is
for a search, which is free to look for a counter-example that convinces."""

ROUNDING = 1e-5
"""The gap that rounding and stabilisers may leave where the values inside a small network, of the order of 1, cancel."""

GENERIC_TIMES = (0.1372549, 0.3819660, 0.6180340, 0.8914027)
"""Times (0 at the baseline, 1 at the input) at which a path between points with short decimals meets no kink by chance."""

NEAR, ZERO, MOVED = 1e-4, 1e-9, 1e-8
"""How far to step away from a point, below what a unit's argument counts as zero, and above what it has left zero: a step
times the smallest weight of a drawn network is well above the last."""


@dataclass(frozen=True)
class AxiomCase:
    """One instance of an axiom among small networks.

    Attributes:
        networks: the networks, by the names that the evidence uses.
        x: the input.
        baseline: the baseline.
        features: the features that the axiom speaks of: the one that differs, those that do nothing, or the two alike.
        weights: the weights of the sum, for linearity.
    """

    networks: tuple[tuple[str, FormulaNetwork], ...]
    x: tuple[float, ...]
    baseline: tuple[float, ...]
    features: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def point(self) -> Tensor:
        """The input as a batch of one, in float64."""
        return torch.tensor([self.x], dtype=torch.float64)

    @property
    def start(self) -> Tensor:
        """The baseline as a batch of one, in float64."""
        return torch.tensor([self.baseline], dtype=torch.float64)


@dataclass(frozen=True)
class ExplainedCase:
    """One attribution of one example, flattened, and the error that its certificate allows.

    Attributes:
        values: (features,) in float64, or (groups,).
        slack: by how much the values may be off in all, sum|a - a*|, as the certificate says; NaN where it cannot tell.
        magnitude: sum|a|.
        score: F(x), the score at the input.
        start: F(x'), the score at the baseline.
        jumps: whether the certificate says that the score changes where it has no gradient. Its error then is what the
            attributions miss of that change.
    """

    values: Tensor
    slack: float
    magnitude: float
    score: float
    start: float
    jumps: bool = False

    @property
    def change(self) -> float:
        """F(x) - F(x'), the change of the score from the baseline to the input."""
        return self.score - self.start


@dataclass(frozen=True)
class Finding:
    """What was found on one case of an axiom.

    Attributes:
        gap: by how much the axiom is missed.
        allowed: the gap that errors and rounding can explain; NaN where nobody can tell.
        statement: what should hold, and what does.
        attributions: the attributions at stake, by name.
    """

    gap: float
    allowed: float
    statement: str
    attributions: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @property
    def broken(self) -> bool:
        """Whether the gap is larger than errors and rounding explain."""
        return self.gap > self.allowed

    @property
    def decided(self) -> bool:
        """Whether the certificates say enough to decide the case."""
        return not math.isnan(self.allowed)


def explain(
    method: Method, model: Callable[..., Any], x: Tensors, baseline: Tensors, groups: Tensors | None = None
) -> ExplainedCase:
    """Attribute the only score of a single example, without warnings: a check looks at the certificate itself."""
    with quiet(IntegrandWarning):
        result = method(model, x, baseline, groups=groups)
    one = result.certificate.only
    values = flat(flatten(result.values, what="values")[1])[0].detach().double().cpu()
    size = one.magnitude + abs(one.score) + abs(one.baseline_score)
    slack = slack_of(result) + (rounding(result) + NEGLIGIBLE) * size
    return ExplainedCase(values, slack, one.magnitude, one.score, one.baseline_score, one.status is Status.JUMP)


def explain_case(method: Method, case: AxiomCase) -> dict[str, ExplainedCase]:
    """The attribution of every network of a case, by name; the slack includes what a search neglects."""
    found = {name: explain(method, network(net), case.point, case.start) for name, net in case.networks}
    return {
        name: replace(one, slack=one.slack + ROUNDING + NEGLIGIBLE_IN_SEARCH * (one.magnitude + abs(one.change)))
        for name, one in found.items()
    }


def slack_of(result: Attribution) -> float:
    """How far the values of a single example may be off in all, sum|a - a*|, by the method's own account."""
    one = result.certificate.only
    own = one.error * one.magnitude
    if "standard_error" not in result.extras:
        return own
    spread = flat(flatten(result.extras["standard_error"], what="standard_error")[1])[0].double()
    return max(own, SIGMAS * float(spread.abs().sum())) if not math.isnan(own) else SIGMAS * float(spread.abs().sum())


def rounding(result: Attribution) -> float:
    """The relative error from the precision of the values: 1e4 units in float64, 1e3 in float32, 16 in half precision."""
    dtype = flatten(result.values, what="values")[1][0].dtype
    eps = torch.finfo(dtype).eps
    return {torch.float64: 1e4, torch.float32: 1e3}.get(dtype, 16.0) * eps


def allowance(*parts: ExplainedCase, weights: tuple[float, ...] = ()) -> float:
    """The gap between weighted sums of attributions that their errors can explain."""
    return sum(abs(w) * part.slack for w, part in zip(weights or (1.0,) * len(parts), parts, strict=True))


def rounded(values: Tensor, digits: int = 6) -> tuple[float, ...]:
    """The values as floats rounded to a number of significant digits, for display."""
    return tuple(float(f"{value:.{digits}g}") + 0.0 for value in values.tolist())


def listed(values: tuple[float, ...], most: int = 8) -> str:
    """The values as text in parentheses, cut off after ``most`` of them."""
    shown = ", ".join(f"{value:.6g}" for value in values[:most])
    return f"({shown}{', ...' if len(values) > most else ''})"


def smooth(case: AxiomCase, method: Method) -> bool:
    """Whether the gradient exists at the input, and almost everywhere on the straight line or the method's own path to it."""
    points = _points_on_paths(case, method)
    return not any(_kinked(net, points) for _, net in case.networks)


def same(first: Floats, second: Floats) -> bool:
    """Whether two arrays are equal up to rounding."""
    return bool(np.allclose(first, second, rtol=1e-9, atol=1e-9))


def values_of(case: AxiomCase, points: Floats) -> list[Any]:
    """The values of every network of a case at points (N, inputs), an array (N,) each."""
    return [evaluate(net, points)[0] for _, net in case.networks]


def _points_on_paths(case: AxiomCase, method: Method) -> Floats:
    """The input, points on the straight line to it, and points on the method's own path where it has one, (N, inputs)."""
    x, start = np.array(case.x), np.array(case.baseline)
    points = [x[None], start + np.array(GENERIC_TIMES)[:, None] * (x - start)]
    route = getattr(method, "route", None)
    if callable(route):
        t, rows = torch.tensor(GENERIC_TIMES, dtype=torch.float64), torch.zeros(len(GENERIC_TIMES), dtype=torch.long)
        pieces = route(case.start, case.point).pieces(batched=True)
        points += [piece.points_at(t, rows)[0].numpy() for piece in pieces]
    return np.concatenate(points)


def _kinked(net: FormulaNetwork, points: Floats) -> bool:
    """Whether a unit's argument is zero at a point and does not stay zero around it."""
    steps = np.random.default_rng(0).standard_normal((3, points.shape[1])) * NEAR
    here = np.abs(evaluate(net, points)[1]) < ZERO
    if not here.any():
        return False
    around = np.concatenate([steps, -steps])
    nonzero = [np.abs(evaluate(net, points + step)[1]) > MOVED for step in around]
    return bool((here & np.any(nonzero, axis=0)).any())
