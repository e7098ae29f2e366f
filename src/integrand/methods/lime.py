"""LIME: a line through the scores of inputs with some features at the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..errors import InputError, OptionError
from ..superpixels import grid, slic
from ..trees import flat
from .method import Found, Method, Problem
from .sampling import (
    FIRST_LOOK,
    HELD,
    Players,
    as_array,
    because,
    check_counts,
    check_numbers,
    coalition_scores,
    hold,
    players_of,
)

RULES = {"switch": "on or off at random", "nearby": "points near the input"}

Features = Literal["auto", "columns", "tokens", "superpixels"]

WIDTHS = {"cosine": 0.25, "l2": 0.75}
"""LIME's own kernel widths; that of l2 is in units of the longest distance, sqrt(features)."""


@final
@dataclass(frozen=True)
class Lime(Method):
    """The coefficients of a weighted ridge regression of the score on which features are on (Ribeiro et al. 2016).

    Features are off when they have the baseline's value. Each is on or off by the toss of a coin; inputs with more
    features on count more, by LIME's kernel exp(-distance**2 / (2 width**2)). The features are the groups of ``groups=``
    (those labelled -1 stay as they are in x, also in the F(x') of the certificate); without groups they are every number,
    the tokens of embeddings, or segments of an image. The coefficient of a feature is shared out equally among its
    numbers. With several baselines, the score is the mean of theirs. With ``sample="nearby"`` features are not switched but
    moved a little on the line from baseline to input, as LIME does for numbers in tables.

    If there are no more than ``samples`` ways to turn features on and off, all of them are used and nothing is left to
    chance. Otherwise sampling goes on until the sum of the coefficients' standard errors (heteroscedasticity-consistent,
    since what a line misses is no even noise) is within ``tol`` of the sum of absolute values. That says how well the
    *line* is known, by what to expect and not by a bound. How well the line describes the *model* is its weighted R2, in
    the certificate's note and in ``extras["fit"]``; a small one means that the coefficients describe little. Standard
    errors are in ``extras["standard_error"]``.

    >>> result = Lime(ridge=0)(lambda x: x @ torch.tensor([1.0, -2.0, 0.0]), torch.tensor([[3.0, 1.0, 1.0]]))
    >>> result.values.round(decimals=4), result.certificate.only.note
    (tensor([[ 3., -2.,  0.]]), 'straight-line fit: R2 1.00, in 3 features')

    Attributes:
        features: what is turned off at a time: ``columns`` (every number), ``tokens`` (the first dimension of one example),
            ``superpixels`` (segments of an image, all channels together), or by the shape of one example: three dimensions
            are an image, two are tokens.
        superpixels: ``slic`` segments by colour (needs scikit-image), ``grid`` cuts rectangles.
        segments: about how many superpixels an image has.
        sample: ``switch`` features off, or look ``nearby``.
        sigma: how far nearby is, as a share of the way to the baseline.
        kernel: the distance from all features on: ``cosine``, as LIME for images and text, or ``l2``, as for tables.
        width: the width of the kernel; LIME's own if not given (0.25 for cosine, 0.75 sqrt(features) for l2).
        ridge: the penalty on squared coefficients, against the weighted mean of squared residuals.
        tol: the relative L1 error of the coefficients to sample to.
        samples: how many inputs to score per example, at most.
        seed: the seed of what is turned off, which is the same for every example.
    """

    name: ClassVar[str] = "lime"
    promises: ClassVar[tuple[Promise, ...]] = because(
        promised(
            sensitivity_a="points near an input where the score is flat show no slope",
            completeness="coefficients are the slopes of a fit, which passes through neither end",
            sensitivity_b="the kernel ties features together, so that one without effect takes part of what the line misses",
            symmetry="features that are alike differ by the chance of the sample, within its error",
        ),
        linearity="within the error, where two models take different numbers of samples",
    )
    features: Features = "auto"
    superpixels: Literal["slic", "grid"] = "slic"
    segments: int = 50
    sample: Literal["switch", "nearby"] = "switch"
    sigma: float = 0.1
    kernel: Literal["cosine", "l2"] = "cosine"
    width: float | None = None
    ridge: float = 1e-6
    tol: float = 0.1
    samples: int = 5000
    seed: int = 0

    def __post_init__(self) -> None:
        choices = {
            "features": ("auto", "columns", "tokens", "superpixels"),
            "superpixels": ("slic", "grid"),
            "kernel": ("cosine", "l2"),
            "sample": ("switch", "nearby"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise OptionError(f"got {name}={getattr(self, name)!r}; expected one of {', '.join(map(repr, known))}.")
        check_numbers(tol=self.tol, ridge=self.ridge, sigma=self.sigma, width=1.0 if self.width is None else self.width)
        check_counts(1, segments=self.segments, samples=self.samples)
        check_counts(0, seed=self.seed)

    def attribute(self, problem: Problem) -> Attribution:
        """Fit a line to the scores of each example."""
        grouped = problem.labels is not None
        given = players_of(problem) if grouped else None
        held = problem if given is None else hold(problem, given)
        fits = []
        for example in range(problem.examples):
            players = self._players(problem, example) if given is None else given
            fits.append((players, self._fit(held, players, torch.tensor([example], device=problem.device))))
        values, errors = (
            torch.cat([_per_column(players, getattr(fit, what), grouped) for players, fit in fits])
            for what in ("slopes", "standard_error")
        )
        fit = torch.tensor([one.r2 for _, one in fits], dtype=torch.float64, device=problem.device)
        sampled = any(one.sampled for _, one in fits)
        more = "" if held is problem else f"; {HELD}"
        return held.dress(
            Found(
                values,
                self.promises,
                rule=RULES[self.sample] if sampled else "all ways to be on or off",
                forwards=torch.tensor([one.count * len(problem.starts) for _, one in fits]).numpy(),
                error=as_array(torch.stack([one.error for _, one in fits])),
                tol=self.tol if sampled else math.nan,
                grouped=grouped,
                knob="raise samples, or use fewer features",
                notes=tuple(f"straight-line fit: R2 {one.r2:.2f}, in {len(one.slopes)} features{more}" for _, one in fits),
                extras={"standard_error": errors, "fit": fit},
            )
        )

    def _fit(self, problem: Problem, players: Players, example: Tensor) -> LineFit:
        """Fit the line of one example, to as many points as the tolerance takes."""
        n, device = players.count, problem.device
        if self.sample == "switch" and n < 60 and 2**n <= self.samples:
            masks = (torch.arange(2**n)[:, None] >> torch.arange(n)) & 1 == 1
            scores = coalition_scores(problem, players, masks.to(device).__getitem__, len(masks), example)[:, 0]
            return self._line(masks.to(scores), scores, sampled=False)
        if self.samples < 2 * (n + 1):
            raise OptionError(
                f"got samples={self.samples} for {n} features; expected at least {2 * (n + 1)}, twice the coefficients of the "
                "line. Raise samples, or use fewer features: groups=, or features='superpixels' or 'tokens'."
            )
        generator = torch.Generator().manual_seed(self.seed)
        points = torch.ones(0, n, dtype=torch.bool if self.sample == "switch" else torch.float64)
        scores = torch.zeros(0, dtype=torch.float64, device=device)
        goal = min(max(16 * FIRST_LOOK, 4 * (n + 1)), self.samples)
        while True:
            more = self._points(goal - len(points), n, generator)
            if not len(points):
                more[0] = 1  # the input itself comes first
            points = torch.cat([points, more])
            found = coalition_scores(problem, players, more.to(device).__getitem__, len(more), example)[:, 0]
            scores = torch.cat([scores, found])
            fit = self._line(points.to(scores), scores, sampled=True)
            if float(fit.error) <= self.tol or goal == self.samples:
                return fit
            goal = min(2 * goal, self.samples)

    def _points(self, count: int, features: int, generator: torch.Generator) -> Tensor:
        """Random points to score: how far each feature is from the baseline (0) to the input (1), (count, features)."""
        if self.sample == "switch":
            return torch.randint(0, 2, (count, features), generator=generator).bool()
        return 1 + self.sigma * torch.randn(count, features, generator=generator, dtype=torch.float64)

    def _line(self, points: Tensor, scores: Tensor, *, sampled: bool) -> LineFit:
        return fitted(points, scores, self._weights(points), self.ridge, sampled=sampled)

    def _weights(self, points: Tensor) -> Tensor:
        if self.sample == "nearby":
            return torch.ones_like(points[:, 0])  # the points are drawn by their distance already
        n, on = points.shape[1], points.sum(1)
        distance = 1 - (on / n).sqrt() if self.kernel == "cosine" else (n - on).sqrt()
        unit = 1.0 if self.kernel == "cosine" else math.sqrt(n)
        width = WIDTHS[self.kernel] * unit if self.width is None else self.width
        return torch.exp(-((distance / width) ** 2) / 2)

    def _players(self, problem: Problem, example: int) -> Players:
        """The features of an example as players: those of its tensors, one tensor after the other."""
        labels, count = [], 0
        for leaf, name in zip(problem.function.inputs, problem.function.tree.names, strict=True):
            own = self._labels(leaf[example], name)
            labels.append(own + count)
            count += int(own.max()) + 1
        every = torch.arange(count, device=problem.device)
        return Players(flat([label[None] for label in labels])[0], every, count)

    def _labels(self, value: Tensor, name: str) -> Tensor:
        """The number of the feature, from 0 on, that each number of one tensor of an example belongs to."""
        kind = self.features
        if kind == "auto":
            kind = {2: "tokens", 3: "superpixels"}.get(value.ndim, "columns")  # type: ignore[assignment]
        wanted = {"superpixels": 3, "tokens": 2}.get(kind, value.ndim)
        if value.ndim != wanted and not (kind == "tokens" and value.ndim > 2):
            shape = "(channels, height, width)" if kind == "superpixels" else "(tokens, numbers)"
            raise InputError(
                f"got features={kind!r} for x{name} with shape {tuple(value.shape)} per example; expected {shape}. Use "
                "features='auto' or 'columns', or groups=."
            )
        if kind == "columns":
            return torch.arange(value.numel(), device=value.device).reshape(value.shape)
        if kind == "tokens":
            own = torch.arange(len(value), device=value.device)
            return own.reshape(-1, *[1] * (value.ndim - 1)).expand(value.shape)
        cut = slic if self.superpixels == "slic" else grid
        return cut(value, self.segments).to(value.device).expand(value.shape)


@dataclass(frozen=True)
class LineFit:
    """A line fitted to scores.

    Attributes:
        slopes: the coefficient of each feature, (features,).
        standard_error: the standard errors of the slopes, (features,).
        r2: the share of the weighted variance of the scores that the line explains.
        count: how many points the line was fitted to.
        sampled: whether the points are a sample rather than all there are.
    """

    slopes: Tensor
    standard_error: Tensor
    r2: float
    count: int
    sampled: bool

    @property
    def error(self) -> Tensor:
        """The relative L1 error of the slopes: the sum of their standard errors by that of their sizes; 0 where both are 0."""
        total = self.standard_error.sum()
        return torch.where(total == 0, 0.0, total / self.slopes.abs().sum())


def fitted(points: Tensor, scores: Tensor, weights: Tensor, ridge: float, *, sampled: bool) -> LineFit:
    """Weighted ridge regression of scores (N,) on points (N, features), solved directly; the intercept is not penalised."""
    n = points.shape[1]
    weights = weights / weights.sum()
    counted = 1 / float((weights**2).sum())
    if sampled and counted < n + 2:
        raise OptionError(
            f"the kernel is so narrow that about {counted:.0f} of {len(points)} samples count; expected more than the "
            f"{n + 1} coefficients of the line. Use a larger width, or raise samples."
        )
    design = torch.cat([torch.ones_like(points[:, :1]), points], 1)
    penalty = torch.full((n + 1,), ridge).to(scores)
    penalty[0] = 0
    normal = (design * weights[:, None]).T @ design + penalty.diag()
    inverse, singular = torch.linalg.inv_ex(normal)
    if singular:
        raise OptionError("the kernel is too narrow to tell the features apart; use a larger width, or a ridge.")
    coefficients = torch.linalg.solve(normal, design.T @ (weights * scores))
    off = scores - design @ coefficients
    r2 = _r2(scores, off, weights)
    if not sampled:
        return LineFit(coefficients[1:], torch.zeros_like(coefficients[1:]), r2, len(points), sampled)
    # HC3: a point with leverage pulls the line to itself, so that its residual is too small by 1 - leverage.
    leverage = weights * ((design @ inverse) * design).sum(1)
    pull = weights * off / (1 - leverage).clamp(min=1e-6)
    variance = ((design * pull[:, None]) @ inverse).square().sum(0)
    return LineFit(coefficients[1:], variance[1:].sqrt(), r2, len(points), sampled)


def _per_column(players: Players, values: Tensor, grouped: bool) -> Tensor:
    """A value per player as one row of the result: unchanged for groups, else divided equally among the player's numbers."""
    if grouped:
        return players.spread(values[None])
    return (values / players.labels.bincount(minlength=players.count))[players.labels][None]


def _r2(scores: Tensor, off: Tensor, weights: Tensor) -> float:
    """The share of the weighted variance of the scores that the line explains; 1 where the variance is only rounding."""
    spread = float((weights * (scores - (weights * scores).sum()).square()).sum())
    rounding = (1e-6 * float(scores.abs().max())) ** 2
    return 1.0 if spread <= rounding else 1 - float((weights * off.square()).sum()) / spread
