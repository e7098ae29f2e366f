"""Captum's ``Lime`` and ``KernelShap``: linear models fitted to the scores of inputs with some features at the baseline.

Samples come from torch's global generator, in Captum's order: the same seed gives Captum's samples. What is fitted to them is
solved to rounding, in float64; how well the coefficients are known is estimated by leaving out a tenth of the samples at a
time.
"""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical
from torch.utils.data import DataLoader, TensorDataset

from ...arrays import Floats
from ...attribution import Attribution
from ...errors import InputError
from ...functions.target import Target
from ...methods.lime import Lime as LimeMethod
from ...methods.method import Found, Problem
from ...methods.sampling import Players, coalition_scores
from ...methods.shapley import Shapley
from .captum_call import Baselines, Inputs
from .path_classes import InputsT
from .perturbation_call import PerturbationCall, PerturbationClass, bar_of, spread
from .reference_classes import check_count

Mask = Tensor | tuple[Tensor, ...] | None
Fit = Callable[[Floats, Floats, Floats], Floats]
"""From points (N, features), scores (N,) and weights (N,) to coefficients (features,)."""

FOLDS = 10
"""Parts of the samples that are left out in turn to see how well coefficients are known."""

FEW, MOST = 12, 8192
"""Without n_samples: features up to which all points are used, and points that are drawn at the most."""

ALPHA = 0.01
"""The penalty of Captum's Lasso."""

LARGE = 1e6
"""The weight of the points that a KernelShap must pass through: all features at the input, or none."""


class SurrogateClass(PerturbationClass):
    """A class that fits a linear model to the scores of inputs with some features at the baseline.

    Args:
        forward_func: the model, or any function of tensors, with one output for each example or one for the whole batch.
    """

    _tol: float

    def attribute(
        self,
        inputs: InputsT,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        feature_mask: Mask = None,
        n_samples: int | None = 25,
        perturbations_per_eval: int = 1,
        return_input_shape: bool = True,
        show_progress: bool = False,
    ) -> Any:
        """Attribute the target output to the features.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example; of any dtype.
            baselines: what features are set to, as in :meth:`IntegratedGradients.attribute`.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            feature_mask: the features, as in :meth:`FeatureAblation.attribute`.
            n_samples: how many points to score for each example. None for all of them where there are up to 12 features, and
                for as many as a relative error of 10% (5% for ``KernelShap``) takes where there are more.
            perturbations_per_eval: how many of them to run at a time; chosen here if it is 1.
            return_input_shape: whether to give each number the coefficient of its feature; else the coefficients are returned.
            show_progress: show a progress bar.

        Returns:
            Attributions in the structure of the inputs, or coefficients, (examples, features). Where there is one output for
            the whole batch, the first dimension is 1.
        """
        found, coefficients = self._explained(
            inputs, baselines, target, additional_forward_args, feature_mask, n_samples, perturbations_per_eval, show_progress,
            self._tol,
        )  # fmt: skip
        return found.values if return_input_shape else coefficients

    def _attribution(
        self,
        inputs: Inputs,
        baselines: Baselines,
        target: Target,
        additional_forward_args: object,
        feature_mask: Mask,
        n_samples: int | None,
        perturbations_per_eval: int,
        return_input_shape: bool,
        show_progress: bool,
        tol: float | None = None,
    ) -> Attribution:
        found, _ = self._explained(
            inputs, baselines, target, additional_forward_args, feature_mask, n_samples, perturbations_per_eval, show_progress,
            self._tol if tol is None else tol,
        )  # fmt: skip
        return found

    def _explained(
        self,
        inputs: Inputs,
        baselines: Baselines,
        target: Target,
        further: object,
        mask: Mask,
        n_samples: int | None,
        per_eval: int,
        show_progress: bool,
        tol: float,
    ) -> tuple[Attribution, Tensor]:
        """The attribution, and the coefficients of each example, (examples, features)."""
        call = PerturbationCall.of(
            self.forward_func, inputs, baselines, target, further, _from_zero(mask), per_eval, self._bar(show_progress)
        )
        questions = [SurrogateQuestion.of(call, i) for i in range(1 if call.aggregate else call.examples)]
        # Before the model is run, after which torch's generator is put back.
        drawn = None if n_samples is None else [self._drawn(one, check_count(n_samples)) for one in questions]
        waiting = iter(questions if drawn is None else drawn)
        coefficients: list[Tensor] = []

        def explain(problem: Problem, players: Players) -> Found:
            mine = list(islice(waiting, problem.examples))
            found = self._limit(problem, players, mine, tol) if drawn is None else self._fitted(problem, players, mine, tol)
            coefficients.append(found.values)
            return spread(found, players)

        return call.attribution(explain), torch.cat(coefficients).to(call.kinds[0])

    @abstractmethod
    def _limit(self, problem: Problem, players: Players, asked: list[Any], tol: float) -> Found:
        """What the coefficients tend to as samples grow in number, for the questions about all examples."""

    @abstractmethod
    def _samples(self, asked: SurrogateQuestion, generator: torch.Generator | None = None) -> Iterator[Tensor]:
        """Which features are at the input, (1, features) of zeros and ones, without end; by torch's own generator if None."""

    @abstractmethod
    def _weight(self, asked: SurrogateQuestion, point: Tensor) -> float:
        """How much a point counts."""

    @abstractmethod
    def _fit(self, points: Floats, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Coefficients and their standard errors, (features,) each; NaN where these are not known."""

    def _drawn(self, asked: SurrogateQuestion, count: int, generator: torch.Generator | None = None) -> WeighedPoints:
        """Random points for one example, and what they weigh."""
        points = torch.cat(list(islice(self._samples(asked, generator), count)))
        if points.shape[1] != asked.features:
            raise InputError(
                f"perturb_func gave samples of shape (1, {points.shape[1]}); expected (1, {asked.features}), a number for each "
                "feature."
            )
        weights = np.array([self._weight(asked, point[None]) for point in points])
        if generator is None:
            _draw_as_captum_fits(asked.features)
        return WeighedPoints(points, weights)

    def _fitted(self, problem: Problem, players: Players, drawn: list[Any], tol: float) -> Found:
        """The coefficients of all examples from points of each."""
        scored = [one.scored(problem, players, i) for i, one in enumerate(drawn)]
        fits = [self._fit(points, scores, one.weights) for one, (points, scores) in zip(drawn, scored, strict=True)]
        values, errors = (np.stack(part) for part in zip(*fits, strict=True))
        sizes = np.abs(values).sum(1)
        chance = np.where(errors.sum(1) == 0, 0.0, errors.sum(1) / np.where(sizes > 0, sizes, np.nan))
        tensor, standard = (torch.as_tensor(part, device=problem.device) for part in (values, errors))
        extras = {} if np.isnan(errors).any() else {"standard_error": standard}
        rule, forwards = "random features at the baseline", len(drawn[0].points)
        return Found(tensor, LimeMethod.promises, rule, forwards=forwards, error=chance, tol=tol, extras=extras)


def _draw_as_captum_fits(features: int) -> None:
    """Take from torch's generator what Captum takes for a fit, so that the next example has the same samples as there."""
    torch.empty((), dtype=torch.int64).random_()  # the seed of a data loader
    torch.nn.Linear(features, 1)  # weights that are overwritten


def _from_zero(mask: Mask) -> Mask:
    """Masks whose smallest number is 0, as Captum shifts them."""
    masks = mask if isinstance(mask, tuple) else (mask,)
    if mask is None or not all(isinstance(one, Tensor) and one.numel() for one in masks):
        return mask
    least = min(int(one.min()) for one in masks if one is not None)
    moved = tuple(one - least for one in masks if one is not None)
    return moved if isinstance(mask, tuple) else moved[0]


@dataclass(frozen=True)
class SurrogateQuestion:
    """One example, or a batch with one output, as Captum's functions for samples and similarities see it.

    Attributes:
        inputs: the inputs, with one row; for a batch with one output, all rows.
        features: how many features there are.
        kwargs: what Captum passes to such functions: ``baselines``, ``feature_mask`` and ``num_interp_features``.
    """

    inputs: Any
    features: int
    kwargs: dict[str, Any]

    @staticmethod
    def of(call: PerturbationCall, example: int) -> SurrogateQuestion:
        """The question about one example of a call."""
        one = call if call.aggregate else call.only(example)
        kinds, build = one.problem.model.kinds, one.problem.tree.build  # type: ignore[attr-defined]
        inputs, starts = (
            build([leaf.to(kind) for leaf, kind in zip(side, kinds, strict=True)])
            for side in (one.problem.end, one.problem.start)
        )
        kwargs = {"baselines": starts, "feature_mask": build(one.labels), "num_interp_features": call.features}
        return SurrogateQuestion(inputs, call.features, kwargs)

    def perturbed(self, point: Tensor) -> Any:
        """The inputs with the features that are off in a point (1, features) at the baseline."""
        tensors = [
            part if isinstance(part, tuple) else (part,)
            for part in (self.inputs, self.kwargs["baselines"], self.kwargs["feature_mask"])
        ]
        on = point[0].bool().to(tensors[0][0].device)
        made = tuple(torch.where(on[mask], x, start) for x, start, mask in zip(*tensors, strict=True))
        return made if isinstance(self.inputs, tuple) else made[0]


@dataclass(frozen=True)
class WeighedPoints:
    """Points with some features at the baseline, for one example.

    Attributes:
        points: zeros and ones, (N, features).
        weights: how much each counts, (N,).
    """

    points: Tensor
    weights: Floats

    def scored(self, problem: Problem, players: Players, example: int) -> tuple[Floats, Floats]:
        """The points, (N, features), and their scores, (N,), in float64."""
        on = self.points.bool().to(problem.device)
        one = torch.tensor([example], device=problem.device)
        scores = coalition_scores(problem, players, on.__getitem__, len(on), one, bar_of(problem))
        return self.points.double().cpu().numpy(), scores[:, 0].cpu().numpy()


class CaptumLime(SurrogateClass, name="Lime"):
    """The coefficients of a linear model of the score in which features are at the input; by default a Lasso.

    Args:
        forward_func: the model, or any function of tensors, with one output for each example or one for the whole batch.
        interpretable_model: a model with Captum's ``fit`` and ``representation``; a Lasso with alpha = 0.01 if not given.
        similarity_func: from inputs, perturbed inputs, the sample and keywords, to the weight of a sample;
            exp(-d^2 / 2) of the cosine distance d of the inputs if not given.
        perturb_func: from inputs and keywords to a sample, (1, features) of zeros and ones, or a generator of them; a coin is
            tossed for each feature if not given.
    """

    _tol = 0.1

    def __init__(
        self,
        forward_func: Callable[..., Any],
        interpretable_model: Any = None,
        similarity_func: Callable[..., Any] | None = None,
        perturb_func: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(forward_func)
        self.interpretable_model = interpretable_model
        self.similarity_func = similarity_func
        self.perturb_func = perturb_func

    def _samples(self, asked: SurrogateQuestion, generator: torch.Generator | None = None) -> Iterator[Tensor]:
        if self.perturb_func is not None and inspect.isgeneratorfunction(self.perturb_func):
            yield from self.perturb_func(asked.inputs, **asked.kwargs)
            return
        half = torch.full((1, asked.features), 0.5)
        while True:
            if self.perturb_func is None:
                yield torch.bernoulli(half, generator=generator).long()
            else:
                yield self.perturb_func(asked.inputs, **asked.kwargs)

    def _weight(self, asked: SurrogateQuestion, point: Tensor) -> float:
        perturbed = asked.perturbed(point)
        if self.similarity_func is None:
            return _cosine_kernel(asked.inputs, perturbed)
        return float(self.similarity_func(asked.inputs, perturbed, point, **asked.kwargs))

    def _fit(self, points: Floats, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        if self.interpretable_model is None:
            return _with_errors(lasso, points, scores, weights)
        data = TensorDataset(*(torch.as_tensor(part).float() for part in (points, scores, weights)))
        self.interpretable_model.fit(DataLoader(data, batch_size=len(points)))
        value = self.interpretable_model.representation().detach().double().cpu().flatten().numpy()
        return value, np.full(points.shape[1], np.nan)

    def _limit(self, problem: Problem, players: Players, asked: list[Any], tol: float) -> Found:
        if players.count <= FEW and self.perturb_func is None:
            every = (torch.arange(2**players.count)[:, None] >> torch.arange(players.count)) & 1
            all_points = [WeighedPoints(every, np.array([self._weight(one, point[None]) for point in every])) for one in asked]
            found = self._fitted(problem, players, all_points, math.nan)
            return Found(found.values, found.promises, "all ways to set features to the baseline", forwards=len(every))
        count = 256
        while True:
            # The same points for the same call, whatever was called before.
            drawn = [self._drawn(one, count, torch.Generator().manual_seed(0)) for one in asked]
            found = self._fitted(problem, players, drawn, tol)
            if count >= MOST or np.all(found.error <= tol):
                return found
            count = min(2 * count, MOST)


def _cosine_kernel(inputs: Any, perturbed: Any) -> float:
    """exp(-d^2 / 2) of the cosine distance of the inputs and the perturbed inputs."""
    a, b = (
        torch.cat([leaf.flatten().float() for leaf in (side if isinstance(side, tuple) else (side,))])
        for side in (inputs, perturbed)
    )
    distance = 1 - torch.nn.functional.cosine_similarity(a, b, 0).item()
    return math.exp(-(distance**2) / 2)


class CaptumKernelShap(CaptumLime, name="KernelShap"):
    """Shapley values as the coefficients of a weighted regression.

    Args:
        forward_func: the model, or any function of tensors, with one output for each example or one for the whole batch.
    """

    _tol = 0.05

    def __init__(self, forward_func: Callable[..., Any]) -> None:
        super().__init__(forward_func)

    def _samples(self, asked: SurrogateQuestion, generator: torch.Generator | None = None) -> Iterator[Tensor]:
        count = asked.features
        yield torch.ones(1, count, dtype=torch.long)
        yield torch.zeros(1, count, dtype=torch.long)
        if count == 1:
            return
        sizes = torch.arange(count, dtype=torch.float)
        chances = (count - 1) / (sizes * (count - sizes))
        chances[0] = 0.0
        size = Categorical(chances)
        while True:
            chosen = int(size.sample())
            numbers = torch.randn(1, count)
            yield (numbers > torch.kthvalue(numbers, count - chosen).values).long()

    def _weight(self, asked: SurrogateQuestion, point: Tensor) -> float:
        return LARGE if int(point.sum()) in (0, asked.features) else 1.0

    def _fit(self, points: Floats, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        return _with_errors(least_squares, points, scores, weights, kept=weights == LARGE)

    def _limit(self, problem: Problem, players: Players, asked: list[Any], tol: float) -> Found:
        return Shapley(tol=tol).found(problem, players)


def _with_errors(
    fit: Fit, points: Floats, scores: Floats, weights: Floats, kept: Floats | None = None
) -> tuple[Floats, Floats]:
    """Coefficients, and their standard errors by the jackknife: fits that leave out a part of the samples each.

    Args:
        fit: the fit.
        points: (N, features).
        scores: (N,).
        weights: (N,).
        kept: which samples are never left out, (N,).
    """
    value = fit(points, scores, weights)
    free = np.arange(len(points)) if kept is None else np.flatnonzero(~kept.astype(bool))
    folds = min(FOLDS, len(free))
    if folds < 2:
        exact = len(free) == 0 and len(points) > 1
        return value, np.zeros_like(value) if exact else np.full_like(value, np.nan)
    parts = []
    for fold in range(folds):
        left = np.ones(len(points), bool)
        left[free[fold::folds]] = False
        parts.append(fit(points[left], scores[left], weights[left]))
    spread_out = np.stack(parts) - np.mean(parts, 0)
    return value, np.sqrt((folds - 1) / folds * (spread_out**2).sum(0))


def lasso(points: Floats, scores: Floats, weights: Floats) -> Floats:
    """The coefficients b that minimise sum w (y - X b - c)^2 / 2 sum w + 0.01 |b|, by coordinate descent, to rounding.

    >>> points = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> lasso(points, points @ [1.0, 0.03], np.ones(4)).round(6)
    array([0.96, 0.  ])
    """
    share = weights / weights.sum()
    x, y = points - share @ points, scores - share @ scores
    gram, pull = (x * share[:, None]).T @ x, (x * share[:, None]).T @ y
    out = np.zeros(points.shape[1])
    sizes = np.diag(gram)
    active = np.flatnonzero(sizes > 0)
    for _ in range(10_000):
        before = out.copy()
        for j in active:
            rest = pull[j] - gram[j] @ out + sizes[j] * out[j]
            out[j] = math.copysign(max(abs(rest) - ALPHA, 0.0), rest) / sizes[j]
        if np.abs(out - before).max() <= 1e-13 * max(np.abs(out).max(), 1e-300):
            break
    return out


def least_squares(points: Floats, scores: Floats, weights: Floats) -> Floats:
    """The coefficients of a weighted regression with an intercept; the smallest ones where several fit equally well.

    >>> least_squares(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([1.0, 3.0]), np.ones(2))
    array([1., 1.])
    """
    share = weights / weights.sum()
    x, y = points - share @ points, scores - share @ scores
    root = np.sqrt(share)
    return np.asarray(np.linalg.lstsq(x * root[:, None], y * root, rcond=None)[0])


# Captum's own names, so that one import line is all that changes.
Lime = CaptumLime
KernelShap = CaptumKernelShap
