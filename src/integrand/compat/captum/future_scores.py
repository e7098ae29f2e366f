"""Scores from a model that answers with futures: all calls are made at once, and their answers are put together later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.futures import Future, collect_all

from ...errors import InputError, OptionError
from ...functions.target import main_tensor, make_scorer
from ...trees import Leaves, Tensors
from .captum_call import CaptumProblem
from .captum_errors import in_captums_words
from .perturbation_call import PerturbationCall, labels_of, number_as_tensor, selected

Combine = Callable[[Tensor], Tensor]
"""From scores, (coalitions, rows, outputs), to the attributions of features, (rows, outputs, features)."""

Build = Callable[[PerturbationCall, list[Tensor]], Tensors]
"""From a call and its attributions, (rows, outputs, ...) for each input, to what the user gets."""


@dataclass(frozen=True)
class FutureCall:
    """A model that answers with futures, its inputs and their features.

    Attributes:
        problem: the model, its inputs and baselines, and the target.
        target: the target as the user gave it.
        labels: the feature of every number, (1, ...) or (examples, ...) each.
        per_eval: how many coalitions of features one call of the model gets.
    """

    problem: CaptumProblem
    target: Any
    labels: Leaves
    per_eval: int

    @staticmethod
    def of(
        model: Callable[..., Any],
        inputs: Any,
        baselines: Any,
        target: Any,
        further: Any,
        feature_mask: Any,
        perturbations_per_eval: int,
    ) -> FutureCall:
        """Settle what Captum leaves open, without a run of the model."""
        per_eval = perturbations_per_eval
        if isinstance(per_eval, bool) or not isinstance(per_eval, int) or per_eval < 1:
            raise OptionError(f"got perturbations_per_eval={per_eval!r}; expected a whole number from 1 on.")
        problem = CaptumProblem.of(model, inputs, baselines, target, further)
        return FutureCall(problem, target, labels_of(feature_mask, problem.end), per_eval)

    @property
    def features(self) -> int:
        """Number of features."""
        return max(int(mask.max()) for mask in self.labels if mask.numel()) + 1

    @property
    def examples(self) -> int:
        """Number of rows of the inputs."""
        return len(self.problem.end[0])

    def attributions(self, coalitions: Tensor, combine: Combine, build: Build) -> Future[Tensors]:
        """Call the model for all coalitions; the attributions follow when it has answered all calls.

        Args:
            coalitions: which features are at the input, (coalitions, features); the others are at the baseline.
            combine: makes attributions of the scores.
            build: makes the result of the attributions.
        """
        result: Future[Tensors] = Future()

        def put_together(answers: Future[list[Future[Any]]]) -> None:
            try:
                with in_captums_words(), torch.no_grad():
                    outputs = [number_as_tensor(answer.value()) for answer in answers.value()]
                    call, scores = self._scores(outputs, coalitions)
                    shares = combine(scores)
                    result.set_result(build(call, [self._spread(shares, mask) for mask in self.labels]))
            except Exception as error:  # raised by wait(), where somebody can see it
                result.set_exception(error)  # type: ignore[arg-type]  # torch's annotation is that of a result

        with torch.no_grad():
            collect_all([self._asked(part) for part in coalitions.split(self.per_eval)]).add_done_callback(put_together)
        return result

    def _asked(self, coalitions: Tensor) -> Future[Any]:
        """The model's answer for some coalitions, those of an example a block of rows apart."""
        count, problem = len(coalitions), self.problem
        points = []
        for leaf, start, labels in zip(problem.end, problem.start, self.labels, strict=True):
            present = coalitions.to(labels.device)[:, labels]
            points.append(torch.where(present, leaf, start).flatten(0, 1))
        rows = [isinstance(arg, Tensor) and arg.ndim > 0 and arg.shape[0] == self.examples for arg in problem.args]
        args = [arg.repeat(count, *[1] * (arg.ndim - 1)) if row else arg for arg, row in zip(problem.args, rows, strict=True)]
        answer = problem.model(*problem.tree.arguments(tuple(points))[0], *args)
        if not isinstance(answer, Future):
            raise OptionError(
                f"the model returns a {type(answer).__name__}; expected a torch.futures.Future of a tensor. Call attribute for "
                "models that return tensors."
            )
        return answer

    def _scores(self, answers: list[Any], coalitions: Tensor) -> tuple[PerturbationCall, Tensor]:
        """The scores, (coalitions, rows, outputs), and the call in which they are the answers."""
        index = self.target if isinstance(self.target, tuple) else (self.target,) if isinstance(self.target, int) else ()
        blocks = list[Tensor]()
        outputs: tuple[int, ...] = ()
        aggregate, kind = False, None
        for answer, part in zip(answers, coalitions.split(self.per_eval), strict=True):
            if self.target is not None and not isinstance(self.target, (int, tuple)):
                blocks += self._targets(answer, len(part))
                continue
            out = main_tensor(answer)
            aggregate = out.ndim <= len(index) or out.shape[0] != len(part) * self.examples
            if aggregate and (self.per_eval > 1 or any(len(mask) > 1 for mask in self.labels)):
                raise OptionError(
                    f"got an output of shape {tuple(out.shape)} for {len(part) * self.examples} rows; expected a row for each, "
                    "or, for one output of a whole batch, perturbations_per_eval=1 and one mask for all examples."
                )
            try:
                chosen = selected(out, index, rows=not aggregate)
            except IndexError as error:
                shape = tuple(out.shape)
                raise InputError(
                    f"got target={self.target!r} for an output of shape {shape}; expected an index within it, or None."
                ) from error
            outputs, kind = tuple(chosen.shape if aggregate else chosen.shape[1:]), out.dtype
            blocks.append(chosen.double().reshape(len(part), 1 if aggregate else self.examples, -1))
        kinds = tuple(leaf.dtype if leaf.dtype.is_floating_point else torch.float32 for leaf in self.problem.end)
        call = PerturbationCall(
            self.problem, self.labels, self.features, kinds, index, outputs, aggregate, None, None, output_kind=kind
        )
        return call, torch.cat(blocks)

    def _targets(self, answer: Any, count: int) -> Iterator[Tensor]:
        """The scores of targets that differ by example, (1, examples, 1) for each coalition."""
        rows = torch.arange(self.examples)
        for block in main_tensor(answer).split(self.examples):
            scorer = make_scorer(self.problem.target, "logit", [block], self.examples, batched=True)
            yield scorer([block], rows).double().reshape(1, -1, 1)

    def _spread(self, shares: Tensor, labels: Tensor) -> Tensor:
        """Attributions of features, (rows, outputs, features), for all numbers of each feature, (rows, outputs, ...)."""
        labels = labels.to(shares.device)
        if len(labels) == 1:
            return shares[:, :, labels[0]]
        return torch.stack([share[:, mask] for share, mask in zip(shares, labels, strict=True)])


def losses_without_each(features: int) -> tuple[Tensor, Combine]:
    """The coalitions that feature ablation takes, and what it makes of their scores."""
    coalitions = torch.cat([torch.zeros(1, features, dtype=torch.bool), torch.eye(features, dtype=torch.bool)]).logical_not()

    def combine(scores: Tensor) -> Tensor:
        return (scores[0] - scores[1:]).movedim(0, -1)

    return coalitions, combine


def mean_over_orders(orders: Tensor) -> tuple[Tensor, Combine]:
    """The coalitions that Shapley values take, by random orders, (orders, features), and what they make of their scores."""
    count, features = orders.shape
    # In each order, the features before a place: none at the first one, all of them after the last one.
    preceding = orders.argsort(1)[:, None] < torch.arange(1, features)[None, :, None]
    ends = torch.stack([torch.zeros(features, dtype=torch.bool), torch.ones(features, dtype=torch.bool)])
    coalitions = torch.cat([ends, preceding.flatten(0, 1)])

    def combine(scores: Tensor) -> Tensor:
        inner = scores[2:].reshape(count, features - 1, *scores.shape[1:])
        first, last = (end.expand(count, 1, *scores.shape[1:]) for end in scores[:2])
        steps = torch.cat([first, inner, last], 1).diff(dim=1)
        places = orders.argsort(1).to(scores.device)
        return torch.stack([step[place] for step, place in zip(steps, places, strict=True)]).mean(0).movedim(0, -1)

    return coalitions, combine
