"""Conductance: how much of a score passes through a layer's neurons while the input moves from the baseline to x.

While x runs along a line, the layer's values run along a curve y(t), and dF/dt = sum_j dF/dy_j dy_j/dt + what reaches the score
past the layer. So the layer's values and the inputs together move on one path, on which gradients times velocities sum to the
change of the score: integrated gradients on that path, of which conductance is the part of the layer (Dhamdhere et al. 2018).
The rest is integrated with it, as one number, so that the engine's checks have the whole score to go by.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..backends.torch_function import TorchFunction, refuse_once_differentiable
from ..certificate import ExampleCertificate, Status
from ..engine import EngineOptions, opened
from ..errors import ModelError
from ..evaluation.checks import check_rows
from ..evaluation.evaluator import Evaluator
from ..functions.layer import LayerCall, uncompiled
from ..integration.adaptive import integrate_to_tolerance
from ..integration.certify import Outcome, relative
from ..integration.fixed import contract, end_scores, integrate_fixed
from ..memory import out_of_memory
from ..paths.base import Piece, forward_mode, segment
from ..quadrature.fixed_rules import Rule
from ..quadrature.panel_rules import norms_of, raising
from ..trees import Leaves, Tree, flat

SHARE = 0.9
"""The part of the tolerance that a second integration aims at, where the first one's error was mostly beside the layer."""


@dataclass(frozen=True)
class PartialPath:
    """A score, and a path of all its tensors, of which some are wanted.

    Attributes:
        function: the score.
        part: how many of its tensors, from the first on, are wanted.
        moving: the path of all tensors, with their velocities.
        still: the same points, with ones for the velocities of the wanted tensors and zeros for those of the others.
        reach: how far the wanted tensors move, at the most, (examples,).
    """

    function: TorchFunction
    part: int
    moving: Piece
    still: Piece
    reach: Tensor


@dataclass(frozen=True)
class LayerAndInputs:
    """A call whose explained tensors are a layer's values, and after them the model's inputs.

    Attributes:
        run: the call that replaces the layer's values.
    """

    run: LayerCall

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """Run the model on the inputs with the layer's values replaced; both are (N, ...) each."""
        layer = len(self.run.slots)
        return self.run.at(leaves[:layer], leaves[layer:], rows)


@dataclass(frozen=True)
class LayerPath:
    """How a layer's values move while the model's inputs move on a line.

    Attributes:
        function: the score as a function of the layer's values, and after them of the inputs.
        run: the call that reads and replaces the layer's values.
        line: the line of the inputs.
    """

    function: TorchFunction
    run: LayerCall
    line: Piece

    @staticmethod
    def of(function: TorchFunction, start: Leaves) -> LayerPath:
        """The path of a layer.

        Args:
            function: the score as a function of the layer's values, with a batch dimension.
            start: the baseline, as inputs of the model with one row per example.
        """
        run = function.run
        assert isinstance(run, LayerCall)
        both = (*function.inputs, *run.inputs)
        whole = replace(function, run=LayerAndInputs(run), inputs=both, tree=Tree("tuple", (), len(both)))
        return LayerPath(whole, run, segment(start, run.inputs))

    def part(self) -> PartialPath:
        """The path of the layer's values and the inputs, of which the layer's values are wanted."""
        layers = len(self.run.slots)

        def moving(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
            inputs, velocities = self.line.at(t, rows)
            values, speeds = self.speeds(inputs, velocities, rows)
            return (*values, *inputs), (*speeds, *velocities)

        def still(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
            inputs = self.line.points_at(t, rows)
            values = self.values(inputs, rows)
            return (*values, *inputs), (*map(torch.ones_like, values), *map(torch.zeros_like, inputs))

        rows = torch.arange(self.function.examples, device=self.function.inputs[0].device)
        first = self.values(self.line.points_at(torch.zeros(len(rows), device=rows.device), rows), rows)
        reach = (flat(self.function.inputs[:layers]) - flat(first)).abs().amax(1)
        return PartialPath(self.function, layers, Piece(1.0, moving), Piece(1.0, still), reach)

    def values(self, inputs: Leaves, rows: Tensor) -> Leaves:
        """The layer's values at points of the inputs, (N, ...) each."""
        with torch.no_grad():
            return self.run.values_at(inputs, rows)

    def speeds(self, inputs: Leaves, velocities: Leaves, rows: Tensor) -> tuple[Leaves, Leaves]:
        """The layer's values at points of the inputs, and how fast they change there, (N, ...) each."""
        moved = tuple(v.to(p.dtype) for v, p in zip(velocities, inputs, strict=True))
        return derivative(lambda *points: self.run.values_at(points, rows), inputs, moved)


def derivative(function: Callable[..., Leaves], points: Leaves, velocities: Leaves) -> tuple[Leaves, Leaves]:
    """The values of a function at points, and its derivative along velocities, by forward-mode differentiation.

    An operation without a forward mode is differentiated backward twice: the backward pass is linear in what it starts with,
    and its derivative in that is the forward mode.

    >>> derivative(lambda x: (x**2,), (torch.tensor([3.0]),), (torch.tensor([2.0]),))
    ((tensor([9.]),), (tensor([12.]),))
    """
    try:
        # What the model runs inside waits for no switch while it holds back other threads' forward modes.
        with uncompiled():
            values, speeds = forward_mode(function, points, velocities)
    except RuntimeError as error:  # NotImplementedError is one, too
        if out_of_memory(error):
            raise
        values, speeds = _backward_twice(function, points, velocities)
    return tuple(v.detach() for v in values), tuple(s.detach() for s in speeds)


def _backward_twice(function: Callable[..., Leaves], points: Leaves, velocities: Leaves) -> tuple[Leaves, Leaves]:
    with torch.enable_grad():
        inputs = tuple(point.detach().requires_grad_() for point in points)
        values = function(*inputs)
        seeds = tuple(torch.zeros_like(value, requires_grad=True) for value in values)
        back = torch.autograd.grad(values, inputs, seeds, create_graph=True, allow_unused=True, materialize_grads=True)
        moving = [(one, v) for one, v in zip(back, velocities, strict=True) if one.requires_grad]
        if not moving:
            return values, tuple(map(torch.zeros_like, values))
        outs, weights = zip(*moving, strict=True)
        try:
            refuse_once_differentiable(outs)
            speeds = torch.autograd.grad(outs, seeds, weights, allow_unused=True, materialize_grads=True)
        except RuntimeError as error:
            raise ModelError(
                f"the layer's values cannot be differentiated along the path ({error}). Expected operations that can be "
                "differentiated forward, or backward twice: for attention, torch.nn.attention.sdpa_kernel(SDPBackend.MATH)."
            ) from error
    return values, tuple(speeds)


def integrate_part(path: PartialPath, options: EngineOptions) -> PartialIntegral:
    """Integrated gradients of some of a function's tensors on a path of all of them, with an error of their own.

    Args:
        path: the score, its tensors and how they move.
        options: how to integrate. Where the error is mostly that of the other tensors, it is done once more, as much more
            exactly as the wanted ones need.
    """
    count = _features(path.function, path.part)
    rest = _features(path.function, None) - count
    columns = torch.cat([torch.arange(count), torch.full((rest,), count)]).to(path.function.inputs[0].device)
    first = _integrated(path, options, columns)
    found = PartialIntegral.of(first, count, options.tol)
    pairs = list(zip(found.examples, first.examples, strict=True))
    if options.rule is not None or not any(whole.converged and not one.converged for one, whole in pairs):
        return found
    share = min(one.magnitude / whole.magnitude for one, whole in pairs if one.magnitude)
    again = _integrated(path, replace(options, tol=SHARE * options.tol * share), columns)
    return PartialIntegral.of(again, count, options.tol, first)


def _features(function: TorchFunction, part: int | None) -> int:
    return sum(leaf[0].numel() for leaf in function.inputs[:part])


def _integrated(path: PartialPath, options: EngineOptions, columns: Tensor) -> Outcome:
    with ExitStack() as stack:
        evaluator = opened(stack, path.function, [path.moving], options, columns)
        if options.rule is not None:
            return integrate_fixed(evaluator, options.rule, options.tol)
        return integrate_to_tolerance(evaluator, options.tol, max_evaluations=options.max_evaluations, memory=options.memory)


@dataclass(frozen=True)
class PartialIntegral:
    """The integrals of some of a function's tensors.

    Attributes:
        values: (examples, features) of these tensors, one tensor after the other.
        examples: their certificates. The residual is that of all tensors, the magnitude and the error are those of the values.
    """

    values: Tensor
    examples: tuple[ExampleCertificate, ...]

    @staticmethod
    def of(outcome: Outcome, count: int, tol: float, before: Outcome | None = None) -> PartialIntegral:
        """The first ``count`` columns of an outcome, held to a tolerance; ``before`` is counted as spent, too."""
        values = outcome.values[:, :count]
        sizes = values.abs().sum(1).tolist()
        examples = [_of_part(one, size, tol) for one, size in zip(outcome.examples, sizes, strict=True)]
        if before is not None:
            pairs = zip(examples, before.examples, strict=True)
            examples = [replace(a, gradients=a.gradients + b.gradients, forwards=a.forwards + b.forwards) for a, b in pairs]
        return PartialIntegral(values, tuple(examples))


def _of_part(whole: ExampleCertificate, size: float, tol: float) -> ExampleCertificate:
    """The certificate of all tensors as one of some: their error is at most that of all."""
    error = whole.error * whole.magnitude / size if size else 0.0  # nothing passes through: zero at every node
    status = Status.BUDGET if whole.converged and error > tol else whole.status
    return replace(whole, magnitude=size, error=error, tol=tol, status=status)


def mean_part(path: PartialPath, options: EngineOptions) -> PartialIntegral:
    """The mean gradients of some of a function's tensors along a path, with an error of their own.

    Completeness says nothing of mean gradients; but what they are multiplied by along the path makes them sum to the change of
    the score, and the adaptive loop goes by that too, as it does for :mod:`integrand.compat.captum.mean_gradients`.

    Args:
        path: the score, its tensors and how they move.
        options: how to integrate.
    """
    count = _features(path.function, path.part)
    if options.rule is not None:
        return _mean_by_rule(path, count, options, options.rule)
    reach = torch.where(path.reach > 0, path.reach, 1.0).double()
    factors = torch.zeros(path.function.examples, _features(path.function, None), device=reach.device, dtype=torch.float64)
    factors[:, :count] = reach[:, None]
    with ExitStack() as stack:
        kind = torch.promote_types(path.function.inputs[0].dtype, torch.float32)
        evaluator = opened(stack, path.function, [path.moving], options, factors=factors.to(kind))
        limit = options.max_evaluations
        outcome = integrate_to_tolerance(evaluator, options.tol, max_evaluations=limit, memory=options.memory, regions=False)
    values = outcome.values[:, :count] / reach[:, None].to(outcome.values)
    sizes = values.abs().sum(1).tolist()
    return PartialIntegral(
        values, tuple(replace(one, magnitude=size) for one, size in zip(outcome.examples, sizes, strict=True))
    )


def _mean_by_rule(path: PartialPath, count: int, options: EngineOptions, rule: Rule) -> PartialIntegral:
    embedded = rule.weights if rule.embedded is None else rule.weights - rule.embedded
    with ExitStack() as stack:
        evaluator = opened(stack, path.function, [path.still], options)
        sums = contract(evaluator, rule.nodes, np.stack([rule.weights, embedded], 1))[:, 0, :, :count]
        errors = raised(sums[1]) if rule.embedded is not None else np.full(path.function.examples, np.nan)
        return PartialIntegral(sums[0], certified(evaluator, rule, sums[0], errors, options.tol))


def raised(differences: Tensor) -> Floats:
    """An absolute L1 error, (examples,), from the difference of two rules, (examples, features)."""
    sizes, roots = norms_of(differences)
    return np.asarray(sizes * raising(sizes, roots))


def certified(evaluator: Evaluator, rule: Rule, values: Tensor, errors: Floats, tol: float) -> tuple[ExampleCertificate, ...]:
    """Certificates for values (examples, features) of a fixed rule, given their absolute L1 errors, (examples,)."""
    starts, ends = end_scores(evaluator)
    check_rows(evaluator, ends[-1], np.arange(len(values)))
    sums, sizes = (part.double().cpu().numpy() for part in (values.sum(1), values.abs().sum(1)))
    out = []
    for i, (before, after) in enumerate(zip(starts[0], ends[0], strict=True)):
        error = max(relative(errors[i], sizes[i]), evaluator.epsilon)
        done = error <= tol
        out.append(
            evaluator.certificate(
                i,
                tol,
                score=float(after),
                baseline_score=float(before),
                residual=float(sums[i] - (after - before)),
                magnitude=float(sizes[i]),
                error=error,
                status=Status.CONVERGED if done else Status.BUDGET,
                rule=rule.name,
                needed=None if done or not np.isfinite(error) else int(np.ceil(len(rule) * error / tol)),
            )
        )
    return tuple(out)
