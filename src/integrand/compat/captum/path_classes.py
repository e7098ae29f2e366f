"""Captum's ``IntegratedGradients`` and ``LayerIntegratedGradients``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from torch import Tensor, nn

from ...attribution import Attribution
from ...functions.target import Target
from .attribution_class import GradientClass, LayerClass
from .captum_call import Baselines, CaptumOptions, CaptumProblem, Inputs, wants_graph
from .mean_gradients import explain

Layered = Tensor | tuple[Tensor, ...] | list[Tensor | tuple[Tensor, ...]]
InputsT = TypeVar("InputsT", Tensor, tuple[Tensor, ...])


class PathClass(GradientClass):
    """What both classes say about completeness."""

    _multiply_by_inputs: bool

    def has_convergence_delta(self) -> bool:
        """True: completeness says what the sum should be."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether gradients are multiplied by the values at ``inputs`` minus those at ``baselines``."""
        return self._multiply_by_inputs


class CaptumIntegratedGradients(PathClass, name="IntegratedGradients"):
    """Integrated gradients with respect to a model's inputs.

    Args:
        forward_func: the model, or any function of tensors.
        multiply_by_inputs: whether gradients are multiplied by ``inputs - baselines``; without it, the mean gradient along
            the path.
    """

    def __init__(self, forward_func: Callable[..., Any], multiply_by_inputs: bool = True) -> None:
        super().__init__(forward_func)
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


class CaptumLayerIntegratedGradients(LayerClass, PathClass, name="LayerIntegratedGradients"):
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
        super().__init__(forward_func, layer, device_ids)
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
