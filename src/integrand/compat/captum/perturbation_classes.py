"""Captum's ``FeatureAblation``, ``Occlusion`` and ``ShapleyValueSampling``; ``Lime`` and ``KernelShap`` are imported."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.futures import Future

from ...attribution import Attribution
from ...certificate import promised
from ...errors import OptionError
from ...functions.target import Target
from ...methods.method import Found, Problem
from ...methods.sampling import Players, Sampled, as_array, coalition_scores
from ...methods.shapley import Shapley, marginals
from ...trees import Tensors, flat
from .captum_call import Baselines, Inputs
from .future_scores import FutureCall, losses_without_each, mean_over_orders
from .path_classes import InputsT
from .perturbation_call import Explain, PerturbationCall, PerturbationClass, bar_of, exact_shapley, spread
from .reference_classes import check_count
from .surrogate_classes import KernelShap, Lime

__all__ = ["FeatureAblation", "KernelShap", "Lime", "Occlusion", "ShapleyValueSampling"]

Mask = Tensor | tuple[Tensor, ...] | None

ABLATION = promised(
    completeness="what each feature changes alone does not add up to what all of them change",
    sensitivity_a="a feature that another one can stand in for changes nothing alone",
)
"""What ablation promises of each axiom."""


class ComparisonClass(PerturbationClass):
    """A class that compares the inputs with baselines.

    Args:
        forward_func: the model, or any function of tensors.
    """

    @property
    def multiplies_by_inputs(self) -> bool:
        """True: what is returned is about the whole step from baseline to input."""
        return True


class CaptumFeatureAblation(ComparisonClass, name="FeatureAblation"):
    """What the output loses when a feature is set to its baseline.

    Args:
        forward_func: the model, or any function of tensors. It may give one output for the whole batch, several outputs for
            each example, or a number.
    """

    def attribute(
        self,
        inputs: InputsT,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        feature_mask: Mask = None,
        perturbations_per_eval: int = 1,
        show_progress: bool = False,
        **kwargs: Any,
    ) -> InputsT:
        """Attribute the target output to the features.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example; of any dtype.
            baselines: what features are set to, as in :meth:`IntegratedGradients.attribute`.
            target: the output to explain; without one, all outputs are explained.
            additional_forward_args: one further argument of the model, or a tuple of them.
            feature_mask: the number of the feature, from 0 on, that each number of the inputs belongs to; in the shape of the
                inputs or one that broadcasts to it. Each number is a feature if not given.
            perturbations_per_eval: how many features to ablate at a time; chosen here if it is 1.
            show_progress: show a progress bar.
            **kwargs: none.

        Returns:
            Attributions in the structure of the inputs; each number has that of its feature. Where there are several outputs,
            or one for the whole batch, the first dimension counts outputs.
        """
        _refuse(kwargs)
        call = PerturbationCall.of(
            self.forward_func, inputs, baselines, target, additional_forward_args, feature_mask, perturbations_per_eval,
            self._bar(show_progress),
        )  # fmt: skip
        return cast("InputsT", _losses(call, call.values(_ablated)))

    def attribute_future(
        self,
        inputs: InputsT,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        feature_mask: Mask = None,
        perturbations_per_eval: int = 1,
        show_progress: bool = False,
        **kwargs: Any,
    ) -> Future[InputsT]:
        """Attribute the output of a model that returns ``torch.futures.Future`` objects; returns one itself.

        All calls are made before this returns, and the attributions follow when all are answered. The model is called as it is:
        it is not checked, and its state is not restored.

        Args:
            inputs: as in :meth:`attribute`, and so for what is not described here.
            baselines: what features are set to.
            target: the output to explain.
            additional_forward_args: further arguments of the model.
            feature_mask: the features.
            perturbations_per_eval: how many features to ablate in one call.
            show_progress: accepted for Captum's sake, and not used.
            **kwargs: none.
        """
        _refuse(kwargs)
        call = FutureCall.of(
            self.forward_func, inputs, baselines, target, additional_forward_args, feature_mask, perturbations_per_eval
        )
        return cast("Future[InputsT]", call.attributions(*losses_without_each(call.features), _losses))

    def _attribution(
        self,
        inputs: Inputs,
        baselines: Baselines,
        target: Target,
        additional_forward_args: object,
        feature_mask: Mask,
        perturbations_per_eval: int,
        show_progress: bool,
        kwargs: dict[str, Any] | None = None,
    ) -> Attribution:
        _refuse(kwargs or {})
        return PerturbationCall.of(
            self.forward_func, inputs, baselines, target, additional_forward_args, feature_mask, perturbations_per_eval,
            self._bar(show_progress),
        ).attribution(_ablated)  # fmt: skip


def _losses(call: PerturbationCall, leaves: Iterable[Tensor]) -> Tensors:
    """Losses, (rows, outputs, ...) each, as Captum gives them: rows and outputs in one dimension, of the output's dtype."""
    return call.built([leaf.flatten(0, 1) for leaf in leaves], call.output_kind)


def _refuse(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise OptionError(f"got {sorted(kwargs)}; expected no further options of attribute.")


def _ablated(problem: Problem, players: Players) -> Found:
    """What the score loses without each feature, for all numbers of the feature."""
    present = players.labels.unique()

    def without(index: Tensor) -> Tensor:
        return torch.ne(present[index][:, None], players.columns)

    scores = coalition_scores(problem, players, without, len(present), _every(problem), bar_of(problem))
    losses = torch.zeros(problem.examples, players.width, dtype=torch.float64, device=problem.device)
    losses[:, present] = _at_input(problem) - scores.T
    return Found(losses[:, players.labels], ABLATION, rule="one feature at a time", forwards=len(present), total=losses.sum(1))


def _every(problem: Problem) -> Tensor:
    return torch.arange(problem.examples, device=problem.device)


def _at_input(problem: Problem) -> Tensor:
    """The scores at the input, (examples, 1)."""
    return problem.function.at_input.double().to(problem.device)[:, None]


class CaptumOcclusion(ComparisonClass, name="Occlusion"):
    """What the output loses when a window is set to the baseline, averaged over the windows that a number is in.

    Args:
        forward_func: the model, or any function of tensors, as in :class:`FeatureAblation`.
    """

    def attribute(
        self,
        inputs: InputsT,
        sliding_window_shapes: tuple[int, ...] | tuple[tuple[int, ...], ...],
        strides: int | tuple[int, ...] | tuple[int | tuple[int, ...], ...] | None = None,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        perturbations_per_eval: int = 1,
        show_progress: bool = False,
    ) -> InputsT:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example; of any dtype.
            sliding_window_shapes: the shape of the window, without the dimension of examples; a tuple of shapes for a tuple
                of inputs.
            strides: how far the window moves in each dimension: a number, or a tuple of them; a tuple of these for a tuple of
                inputs. 1 if not given.
            baselines: what windows are set to, as in :meth:`IntegratedGradients.attribute`.
            target: the output to explain; without one, all outputs are explained.
            additional_forward_args: one further argument of the model, or a tuple of them.
            perturbations_per_eval: how many windows to run at a time; chosen here if it is 1.
            show_progress: show a progress bar.

        Returns:
            Attributions in the structure of the inputs. Where there are several outputs, or one for the whole batch, the first
            dimension counts outputs.
        """
        call, windows = self._asked(
            inputs, sliding_window_shapes, strides, baselines, target, additional_forward_args, perturbations_per_eval,
            show_progress,
        )  # fmt: skip
        return cast("InputsT", call.built([leaf.flatten(0, 1) for leaf in call.values(windows.occluded)]))

    def _attribution(self, *args: Any, **kwargs: Any) -> Attribution:
        asked: tuple[PerturbationCall, Windows] = self._asked(*args, **kwargs)
        return asked[0].attribution(asked[1].occluded)

    def _asked(
        self,
        inputs: Inputs,
        sliding_window_shapes: Any,
        strides: Any,
        baselines: Baselines,
        target: Target,
        additional_forward_args: object,
        perturbations_per_eval: int,
        show_progress: bool,
    ) -> tuple[PerturbationCall, Windows]:
        call = PerturbationCall.of(
            self.forward_func, inputs, baselines, target, additional_forward_args, None, perturbations_per_eval,
            self._bar(show_progress),
        )  # fmt: skip
        shapes = [tuple(leaf.shape[1:]) for leaf in call.problem.end]
        return call, Windows.of(shapes, sliding_window_shapes, strides)


@dataclass(frozen=True)
class Windows:
    """Windows on the tensors of an example.

    Attributes:
        shapes: the shape of each tensor.
        places: for every window, the number of its tensor and what it covers of it.
    """

    shapes: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, tuple[slice, ...]], ...]

    @staticmethod
    def of(shapes: list[tuple[int, ...]], windows: Any, strides: Any) -> Windows:
        """All windows that fit, and smaller ones at the far ends."""
        wanted = (windows,) if isinstance(windows, tuple) and windows and isinstance(windows[0], int) else windows
        steps: Any = tuple(1 for _ in shapes) if strides is None else strides
        if len(shapes) == 1 and not (isinstance(steps, tuple) and len(steps) == 1):
            steps = (steps,)
        if not isinstance(wanted, tuple) or not isinstance(steps, tuple) or not len(wanted) == len(steps) == len(shapes):
            raise OptionError(
                f"got sliding_window_shapes={windows!r} and strides={strides!r} for {len(shapes)} inputs; expected one of each "
                "for every input."
            )
        places = []
        for number, (shape, window, step) in enumerate(zip(shapes, wanted, steps, strict=True)):
            step = (step,) * len(shape) if isinstance(step, int) else step
            _check_window(number, shape, window, step)
            counts = [math.ceil((size - wide) / by) + 1 for size, wide, by in zip(shape, window, step, strict=True)]
            for index in np.ndindex(*counts):
                covered = zip(index, window, step, strict=True)
                places.append((number, tuple(slice(i * by, i * by + wide) for i, wide, by in covered)))
        return Windows(tuple(shapes), tuple(places))

    def occluded(self, problem: Problem, _: Players) -> Found:
        """What the score loses without each window, averaged for each number over its windows."""
        features = torch.arange(problem.features, device=problem.device)
        players = Players(features, features, problem.features)
        count, every = len(self.places), _every(problem)
        scores = coalition_scores(problem, players, lambda i: ~self._masks(problem, i), count, every, bar_of(problem))
        losses = _at_input(problem) - scores.T
        total = torch.zeros(problem.examples, problem.features, dtype=torch.float64, device=problem.device)
        windows = torch.zeros_like(features)
        for i in range(count):
            [mask] = self._masks(problem, torch.tensor([i]))
            total[:, mask] += losses[:, i : i + 1]
            windows += mask
        return Found(total / windows, ABLATION, rule="one window at a time", forwards=count, total=losses.sum(1))

    def _masks(self, problem: Problem, index: Tensor) -> Tensor:
        """Which numbers some windows cover, (N, features)."""
        batch = [leaf.shape[1:] for leaf in problem.function.inputs]  # for an aggregate, with a dimension of examples in front
        parts = [torch.zeros(len(index), *shape, dtype=torch.bool, device=problem.device) for shape in batch]
        for row, i in enumerate(index.tolist()):
            number, place = self.places[i]
            parts[number][row][(..., *place)] = True
        return flat(parts)


def _check_window(number: int, shape: tuple[int, ...], window: Any, step: Any) -> None:
    fits = isinstance(window, tuple) and isinstance(step, tuple) and len(window) == len(step) == len(shape)
    if not fits or not all(
        0 < wide <= size and (by <= wide or wide == size) and by > 0 for size, wide, by in zip(shape, window, step, strict=True)
    ):
        raise OptionError(
            f"got a sliding window of shape {window!r} with strides {step!r} for input {number}, whose examples have shape "
            f"{shape}; expected sliding_window_shapes within the input, and strides that are not larger than the window."
        )


class CaptumShapleyValueSampling(ComparisonClass, name="ShapleyValueSampling"):
    """Shapley values: what adding a feature to those at the baseline changes, averaged over random orders.

    Orders come from torch's global generator, as in Captum: the same seed gives Captum's numbers.

    Args:
        forward_func: the model, or any function of tensors, as in :class:`FeatureAblation`.
    """

    def attribute(
        self,
        inputs: InputsT,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        feature_mask: Mask = None,
        n_samples: int | None = 25,
        perturbations_per_eval: int = 1,
        show_progress: bool = False,
    ) -> InputsT:
        """Attribute the target output to the features.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example; of any dtype.
            baselines: what features start from, as in :meth:`IntegratedGradients.attribute`.
            target: the output to explain; without one, all outputs are explained.
            additional_forward_args: one further argument of the model, or a tuple of them.
            feature_mask: the features, as in :meth:`FeatureAblation.attribute`.
            n_samples: how many orders, or None for exact values where there are up to 12 features, and for as many orders as a
                relative error of 5% takes where there are more.
            perturbations_per_eval: how many points to run at a time; chosen here if it is 1.
            show_progress: show a progress bar.

        Returns:
            Attributions in the structure of the inputs; each number has that of its feature. Where there are several outputs,
            their dimensions follow the first one; where there is one for the whole batch, it is the first.
        """
        call, explain = self._asked(
            inputs, baselines, target, additional_forward_args, feature_mask, n_samples, perturbations_per_eval, show_progress
        )
        return cast("InputsT", _by_outputs(call, call.values(explain)))

    def attribute_future(
        self,
        inputs: InputsT,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        feature_mask: Mask = None,
        n_samples: int = 25,
        perturbations_per_eval: int = 1,
        show_progress: bool = False,
    ) -> Future[InputsT]:
        """Attribute the output of a model that returns futures, as :meth:`FeatureAblation.attribute_future` does.

        Args:
            inputs: as in :meth:`attribute`, and so for what is not described here.
            baselines: what features start from.
            target: the output to explain.
            additional_forward_args: further arguments of the model.
            feature_mask: the features.
            n_samples: how many orders.
            perturbations_per_eval: how many points one call of the model gets.
            show_progress: accepted for Captum's sake, and not used.
        """
        call = FutureCall.of(
            self.forward_func, inputs, baselines, target, additional_forward_args, feature_mask, perturbations_per_eval
        )
        return cast("Future[InputsT]", call.attributions(*mean_over_orders(_orders(call.features, n_samples)), _by_outputs))

    def _attribution(
        self,
        inputs: Inputs,
        baselines: Baselines,
        target: Target,
        additional_forward_args: object,
        feature_mask: Mask,
        n_samples: int | None,
        perturbations_per_eval: int,
        show_progress: bool,
        tol: float = 0.05,
    ) -> Attribution:
        call, explain = self._asked(
            inputs, baselines, target, additional_forward_args, feature_mask, n_samples, perturbations_per_eval, show_progress,
            tol,
        )  # fmt: skip
        return call.attribution(explain)

    def _asked(
        self,
        inputs: Inputs,
        baselines: Baselines,
        target: Target,
        further: object,
        mask: Mask,
        n_samples: int | None,
        per_eval: int,
        show_progress: bool,
        tol: float = 0.05,
    ) -> tuple[PerturbationCall, Explain]:
        call = PerturbationCall.of(
            self.forward_func, inputs, baselines, target, further, mask, per_eval, self._bar(show_progress)
        )
        if n_samples is None:
            return call, partial(exact_shapley, tol=tol)
        # Drawn once, so that all outputs and examples have the same orders, as in Captum.
        return call, partial(_from_orders, orders=_orders(call.features, n_samples), tol=tol)


def _orders(features: int, count: int) -> Tensor:
    """Random orders of the features, (count, features), in Captum's order of draws."""
    return torch.stack([torch.randperm(features) for _ in range(check_count(count))])


def _by_outputs(call: PerturbationCall, leaves: Iterable[Tensor]) -> Tensors:
    """Shapley values, (rows, outputs, ...) each, as Captum gives them: with the dimensions of the outputs."""
    return call.built(map(call.by_output, leaves))


def _from_orders(problem: Problem, players: Players, orders: Tensor, tol: float) -> Found:
    """Shapley values from given orders of the features, (orders, features)."""
    evaluator = problem.evaluator()
    score, base = (torch.as_tensor(end, device=problem.device) for end in problem.end_scores(evaluator))
    ranks = orders.argsort(1).to(problem.device)
    if players.count == 1:
        each = (score - base)[None, :, None].expand(len(orders), -1, -1)
    else:
        each = marginals(problem, players, ranks, _every(problem), (base, score), bar_of(problem))
    count = torch.full((problem.examples,), len(orders), device=problem.device)
    chance = each.std(0) / math.sqrt(len(orders)) if len(orders) > 1 else torch.full_like(each[0], math.nan)
    found = Sampled(each.mean(0), chance, count)
    alone = players.count == 1
    return spread(
        Found(
            found.mean,
            Shapley.promises,
            rule="random orders",
            forwards=len(orders) * (players.count - 1) + evaluator.forwards,
            error=0.0 if alone else as_array(found.error(1)),
            tol=math.nan if alone else tol,
            extras={"standard_error": chance} if len(orders) > 1 else {},
        ),
        players,
    )


# Captum's own names, so that one import line is all that changes.
FeatureAblation = CaptumFeatureAblation
Occlusion = CaptumOcclusion
ShapleyValueSampling = CaptumShapleyValueSampling
