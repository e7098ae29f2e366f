"""Captum's ``IntegratedGradients`` and ``LayerIntegratedGradients``, computed by integrand.

Change one line::

    from captum.attr import IntegratedGradients, LayerIntegratedGradients              # before
    from integrand.compat.captum import IntegratedGradients, LayerIntegratedGradients  # after

Signatures, defaults, shapes and (within rounding) numbers are those of Captum 0.9, which is neither needed nor imported:

>>> import torch
>>> ig = IntegratedGradients(lambda x: x[:, 0] * x[:, 1])
>>> ig.attribute(torch.tensor([[2.0, 3.0]]), return_convergence_delta=True)
(tensor([[3., 3.]]), tensor([0.]))

What differs, and why:

* ``riemann_trapezoid`` has weights that sum to 1. Captum's sum to (n - 1)/n, so that with 50 steps even a linear model's
  attributions are 2% short.
* Weights are float64; Captum rounds them to float32, also for a model in float64.
* A layer that runs more than once gives a tuple, one tensor for each call. Captum feeds every call the same value and
  returns attributions that do not belong to the model's score.
* A :class:`~integrand.errors.ConvergenceWarning` says so when the estimated error is above 1%. A convergence delta of zero
  does not mean that attributions are right: errors of opposite sign cancel in it.
* What Captum answers with numbers that mean nothing is an error: a model with dropout or batch-norm in train mode, NaN,
  integer inputs, rows that influence each other. See :mod:`integrand.errors`.
* Memory does not grow with ``n_steps``, whether or not ``internal_batch_size`` is given.

What is new: ``n_steps=None`` integrates to a tolerance; ``attribute_with_certificate`` returns the values together with
how far they can be trusted; ``target`` may be a function of the output, and None means the top class of each input where
there are several outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, final, overload

from torch import Tensor, nn

from ..attribution import Attribution
from ..functions.target import Target
from .captum_call import CaptumOptions, CaptumProblem, explain, wants_graph

__all__ = ["IntegratedGradients", "LayerIntegratedGradients"]

Inputs = Tensor | tuple[Tensor, ...]
Baselines = float | Tensor | tuple[float | Tensor, ...] | None
Layered = Tensor | tuple[Tensor, ...] | list[Tensor | tuple[Tensor, ...]]
InputsT = TypeVar("InputsT", Tensor, tuple[Tensor, ...])


class _Complete:
    """What both classes say about completeness."""

    forward_func: Callable[..., Any]
    _multiply_by_inputs: bool

    def compute_convergence_delta(
        self,
        attributions: Layered,
        start_point: Baselines,
        end_point: Inputs,
        target: Target = None,
        additional_forward_args: object = None,
    ) -> Tensor:
        """What attributions sum to, minus F(end_point) - F(start_point), for each example."""
        return CaptumProblem.of(self.forward_func, end_point, start_point, target, additional_forward_args).delta(attributions)

    def has_convergence_delta(self) -> bool:
        """True: completeness says what the sum should be."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether gradients are multiplied by the values at ``inputs`` minus those at ``baselines``."""
        return self._multiply_by_inputs


@final
class CaptumIntegratedGradients(_Complete):
    """Integrated gradients with respect to a model's inputs.

    Args:
        forward_func: the model, or any function of tensors.
        multiply_by_inputs: whether gradients are multiplied by ``inputs - baselines``; without it, the mean gradient along
            the path.
    """

    def __init__(self, forward_func: Callable[..., Any], multiply_by_inputs: bool = True) -> None:
        self.forward_func = forward_func
        self._multiply_by_inputs = multiply_by_inputs

    @overload
    def attribute(
        self,
        inputs: InputsT,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        n_steps: int | None = 50,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        *,
        return_convergence_delta: Literal[True],
    ) -> tuple[InputsT, Tensor]: ...

    @overload
    def attribute(
        self,
        inputs: InputsT,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        n_steps: int | None = 50,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        return_convergence_delta: Literal[False] = False,
    ) -> InputsT: ...

    def attribute(
        self,
        inputs: Any,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        n_steps: int | None = 50,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            baselines: where the path starts: None for zero, a number, a tensor of the input's shape or of one row, or a
                tuple of these, one per input.
            target: the output to explain: an int, a tuple for outputs with more dimensions, or a list or 1-D tensor with
                one per example.
            additional_forward_args: one further argument of the model, or a tuple of them. Tensors have one row per
                example; everything else is handed on as it is.
            n_steps: gradient evaluations, or None to integrate to a relative error of 1%.
            method: ``riemann_right``, ``riemann_left``, ``riemann_middle``, ``riemann_trapezoid`` or ``gausslegendre``;
                not used without ``n_steps``.
            internal_batch_size: rows to run at a time; chosen to fit the memory if not given.
            return_convergence_delta: also return what the sum of the attributions misses.

        Returns:
            Attributions in the structure of the inputs; with ``return_convergence_delta``, a pair of these and a tensor
            with sum(attributions) - (F(inputs) - F(baselines)) for each example.
        """
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        how = CaptumOptions(n_steps, method, internal_batch_size, self._multiply_by_inputs)
        values = explain(problem, how).values
        return (values, problem.delta(values)) if return_convergence_delta else values

    def attribute_with_certificate(
        self,
        inputs: Inputs,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        n_steps: int | None = 50,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        *,
        tol: float = 0.01,
    ) -> Attribution:
        """The same values with what is known of their error; not in Captum.

        Args:
            inputs: as in :meth:`attribute`, and so for what is not described here.
            baselines: where the path starts.
            target: the output to explain.
            additional_forward_args: further arguments of the model.
            n_steps: gradient evaluations, or None for as many as the tolerance takes.
            method: with ``n_steps``, the rule.
            internal_batch_size: rows to run at a time.
            tol: the relative L1 error to integrate to, or to warn beyond.
        """
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        return explain(problem, CaptumOptions(n_steps, method, internal_batch_size, self._multiply_by_inputs, tol))


@final
class CaptumLayerIntegratedGradients(_Complete):
    """Integrated gradients with respect to what a layer gives or gets.

    Args:
        forward_func: the model, or any function of tensors that runs the layer.
        layer: a module, or a list of modules that are replaced together.
        device_ids: accepted for Captum's sake, and not used.
        multiply_by_inputs: whether gradients are multiplied by the layer's values at ``inputs`` minus those at
            ``baselines``.
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        layer: nn.Module | list[nn.Module],
        device_ids: Sequence[int] | None = None,
        multiply_by_inputs: bool = True,
    ) -> None:
        self.forward_func = forward_func
        self.layer = layer
        self.device_ids = device_ids
        self._multiply_by_inputs = multiply_by_inputs

    def attribute(
        self,
        inputs: Inputs,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        n_steps: int | None = 50,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        attribute_to_layer_input: bool = False,
        grad_kwargs: Mapping[str, Any] | None = None,
    ) -> Layered | tuple[Layered, Tensor]:
        """Attribute the target output to the layer.

        Args:
            inputs: as in :meth:`IntegratedGradients.attribute`, and so for what is not described here. Token ids are fine.
            baselines: where the path starts, as inputs of the model (for token ids, other ids); None for zero.
            target: the output to explain.
            additional_forward_args: further arguments of the model.
            n_steps: gradient evaluations, or None to integrate to a relative error of 1%.
            method: the rule.
            internal_batch_size: rows to run at a time.
            return_convergence_delta: also return what the sum of the attributions misses.
            attribute_to_layer_input: explain what the layer gets instead of what it gives.
            grad_kwargs: ``create_graph`` makes the attributions differentiable; unused layers get zero without
                ``allow_unused`` or ``materialize_grads``.

        Returns:
            For a module, a tensor of the layer's shape, or a tuple of them where it gives (or gets) several or runs
            several times; for a list of modules, a list of these. With ``return_convergence_delta``, a pair as in
            :meth:`IntegratedGradients.attribute`.
        """
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        how = self._how(n_steps, method, internal_batch_size, attribute_to_layer_input, grad_kwargs)
        values = explain(problem, how).values
        found: Any = problem.by_layer(values, how) if isinstance(self.layer, list) else values
        return (found, problem.delta(values)) if return_convergence_delta else found

    def attribute_with_certificate(
        self,
        inputs: Inputs,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        n_steps: int | None = 50,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        attribute_to_layer_input: bool = False,
        grad_kwargs: Mapping[str, Any] | None = None,
        *,
        tol: float = 0.01,
    ) -> Attribution:
        """The same values with what is known of their error; not in Captum.

        Args:
            inputs: as in :meth:`attribute`, and so for what is not described here.
            baselines: where the path starts, as inputs of the model.
            target: the output to explain.
            additional_forward_args: further arguments of the model.
            n_steps: gradient evaluations, or None for as many as the tolerance takes.
            method: with ``n_steps``, the rule.
            internal_batch_size: rows to run at a time.
            attribute_to_layer_input: explain what the layer gets.
            grad_kwargs: see :meth:`attribute`.
            tol: the relative L1 error to integrate to, or to warn beyond.

        Returns:
            One tensor, or a tuple of all layers' tensors in the order in which the model computes them.
        """
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        return explain(problem, self._how(n_steps, method, internal_batch_size, attribute_to_layer_input, grad_kwargs, tol))

    def _how(
        self, n_steps: int | None, method: str, chunk: int | None, to_input: bool, grad: Any, tol: float = 0.01
    ) -> CaptumOptions:
        layers = tuple(self.layer) if isinstance(self.layer, list) else (self.layer,)
        side: Literal["input", "output"] = "input" if to_input else "output"
        return CaptumOptions(n_steps, method, chunk, self._multiply_by_inputs, tol, layers, side, wants_graph(grad))


# Captum's own names, so that one import line is all that changes.
IntegratedGradients = CaptumIntegratedGradients
LayerIntegratedGradients = CaptumLayerIntegratedGradients
