"""Captum's classes that look inside a model: at what passes through a layer or a neuron, and at a layer's gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...attribution import Attribution
from ...certificate import Certificate
from ...engine import EngineOptions, opened, version_of, warn_if_missed
from ...errors import ModelError, OptionError, ZeroAttributionWarning, warn
from ...functions.layer import LayerSide
from ...functions.model_state import undisturbed
from ...functions.neuron import NeuronReader, NeuronSplit, Selector
from ...functions.target import Target
from ...integration.fixed import WeightedSums
from ...methods.conductance import LayerPath, PartialIntegral, PartialPath, certified, integrate_part, mean_part, raised
from ...methods.gradients import Gradient, GradientTimesInput
from ...paths.base import Piece, segment
from ...quadrature.fixed_rules import Rule
from ...trees import Leaves, flat, unflat
from .attribution_class import GradientClass, LayerClass
from .captum_call import Baselines, CaptumOptions, CaptumProblem, Inputs, wants_graph
from .captum_errors import KNOB
from .certified_class import CertifiedClass, by_method
from .mean_gradients import explain
from .path_classes import InputsT, Layered


class CaptumLayerConductance(CertifiedClass, LayerClass, GradientClass, name="LayerConductance"):
    """Conductance: how much of the change of the target output passes through each neuron of a layer.

    Args:
        forward_func: the model, or any function of tensors that runs the layer.
        layer: a module.
        device_ids: accepted for Captum's sake, and not used.
    """

    def __init__(self, forward_func: Callable[..., Any], layer: nn.Module, device_ids: Sequence[int] | None = None) -> None:
        super().__init__(forward_func, layer, device_ids)

    def has_convergence_delta(self) -> bool:
        """True: what passes through a layer that everything passes through sums to the change of the output."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """True."""
        return True

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
    ) -> Any:
        """Attribute the target output to the neurons of the layer.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            baselines: where the path starts, as in :meth:`IntegratedGradients.attribute`.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            n_steps: steps of Captum's sum of gradients times differences of the layer's values, or None to integrate
                gradients times derivatives to a relative error of 1%.
            method: where the steps are; not used without ``n_steps``.
            internal_batch_size: rows to run at a time; chosen to fit the memory if not given.
            return_convergence_delta: also return what the sum of the attributions misses.
            attribute_to_layer_input: explain what the layer gets instead of what it gives.
            grad_kwargs: unused neurons get zero without ``allow_unused`` or ``materialize_grads``.

        Returns:
            A tensor of the layer's shape, or a tuple of them where it gives (or gets) several or runs several times; with
            ``return_convergence_delta``, a pair of these and a tensor with one number per example.
        """
        found = self._attribution(
            inputs, baselines, target, additional_forward_args, n_steps, method, internal_batch_size,
            attribute_to_layer_input, grad_kwargs,
        ).values  # fmt: skip
        if not return_convergence_delta:
            return found
        return found, self.compute_convergence_delta(found, baselines, inputs, target, additional_forward_args)

    def _attribution(
        self,
        inputs: Inputs,
        baselines: Baselines,
        target: Target,
        additional_forward_args: object,
        n_steps: int | None,
        method: str,
        internal_batch_size: int | None,
        attribute_to_layer_input: bool,
        grad_kwargs: Mapping[str, Any] | None,
        tol: float = 0.01,
    ) -> Attribution:
        refuse_graph(grad_kwargs)
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        how = _how(n_steps, method, internal_batch_size, tol, self.layer, attribute_to_layer_input)
        options = _options(how, one_more=True)
        with undisturbed(problem.model):
            function = problem.function(how)
            path = LayerPath.of(function, problem.start)
            if options.rule is None:
                found = integrate_part(path.part(), options)
            else:
                found = _by_differences(path, options, options.rule)
        dressed = _dressed(found, function.inputs, "layer conductance", tuple_of=len(function.inputs) > 1)
        if len({call for _, call, _ in path.run.slots}) == 1:
            _warn_if_unused(dressed.values)
        return dressed


def _warn_if_unused(values: Any) -> None:
    """Warn of a tensor that a layer gives beside others and nothing after the layer uses."""
    for i, value in enumerate(values if isinstance(values, tuple) else ()):
        if not value.any():
            warn(
                f"every conductance of tensor {i} of the {len(values)} that the layer gives is zero: nothing after the layer "
                "uses it. Where others of them are made from it inside the layer, as the outputs of attention are from its "
                "weights, what passes through it is counted with them. Explain a submodule that gives it, or use "
                "captum.attr.LayerConductance, which counts it once more.",
                ZeroAttributionWarning,
            )


def _by_differences(path: LayerPath, options: EngineOptions, rule: Rule) -> PartialIntegral:
    """Captum's sum: gradients at n + 1 points of the path, times how far the layer's values move to the next point.

    The same gradients times derivatives, weighed by the rule, are the integral to the rule's own order: the two are compared
    for the error.
    """
    part = path.part()
    examples, count = path.function.examples, flat(path.function.inputs[: part.part]).shape[1]
    after = np.append(rule.nodes[1:], rule.nodes[-1])
    weights = np.stack([rule.weights, rule.weights - (rule.weights if rule.embedded is None else rule.embedded)])
    known = rule.embedded is not None
    with ExitStack() as stack:
        evaluator = opened(stack, path.function, [part.still], options)
        taken, exact = (WeightedSums(columns, examples, count, evaluator.device) for columns in (1, 2))

        def on_device(numbers: Any) -> Tensor:
            return torch.tensor(numbers, device=evaluator.device).to(evaluator.dtype)

        for steps, rows, gradients in evaluator.gradients_on_grid(0, rule.nodes):
            which = torch.arange(examples, device=evaluator.device)[rows]
            now, later = (on_device(t[steps]).repeat_interleave(len(which)) for t in (rule.nodes, after))
            moved, speeds = _changes(path, now, later, which.repeat(len(gradients)))
            slopes = gradients[:, :, :count]
            taken.add(rows, on_device(np.ones((1, len(gradients)))), slopes * flat(moved).reshape(slopes.shape))
            known = known and speeds is not None
            if speeds is not None:
                exact.add(rows, on_device(weights[:, steps]), slopes * flat(speeds).reshape(slopes.shape))
        values, [integral, difference] = taken.total()[0], exact.total()
        errors = (values - integral).abs().sum(1).double().cpu().numpy() + raised(difference)
        found = certified(evaluator, rule, values, errors if known else np.full(examples, np.nan), options.tol)
    return PartialIntegral(values, found)


def _changes(path: LayerPath, now: Tensor, later: Tensor, rows: Tensor) -> tuple[Leaves, Leaves | None]:
    """How far the layer's values move from one time to another, (N,) each, and how fast at the first, if that is known."""
    inputs, velocities = path.line.at(now, rows)
    try:
        values, speeds = path.speeds(inputs, velocities, rows)
    except ModelError:
        values, speeds = path.values(inputs, rows), None
    then = path.values(path.line.points_at(later, rows), rows)
    return tuple(b - a for a, b in zip(values, then, strict=True)), speeds


class NeuronClass(CertifiedClass, GradientClass):
    """A method that looks at one neuron of a layer.

    Args:
        forward_func: the model, or any function of tensors that runs the layer.
        layer: a module.
        device_ids: accepted for Captum's sake, and not used.
        multiply_by_inputs: whether gradients are multiplied by ``inputs - baselines``; without it, the mean gradient along
            the path.
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        layer: nn.Module,
        device_ids: Sequence[int] | None = None,
        multiply_by_inputs: bool = True,
    ) -> None:
        super().__init__(forward_func)
        self.layer = layer
        self.device_ids = device_ids
        self._multiply_by_inputs = multiply_by_inputs

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether gradients are multiplied by ``inputs - baselines``."""
        return self._multiply_by_inputs


class CaptumNeuronConductance(NeuronClass, name="NeuronConductance"):
    """Conductance: how much of the change of the target output passes from each input through one neuron.

    Args:
        forward_func: the model, or any function of tensors that runs the layer.
        layer: a module.
        device_ids: accepted for Captum's sake, and not used.
        multiply_by_inputs: whether gradients are multiplied by ``inputs - baselines``.
    """

    def attribute(
        self,
        inputs: InputsT,
        neuron_selector: Selector,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        n_steps: int | None = 50,
        method: str = "riemann_trapezoid",
        internal_batch_size: int | None = None,
        attribute_to_neuron_input: bool = False,
        grad_kwargs: Mapping[str, Any] | None = None,
    ) -> InputsT:
        """Attribute the target output to the inputs, as far as it passes through a neuron.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            neuron_selector: an index into the layer's shape without its first dimension, a tuple of indices and slices, whose
                neurons are added up, or a function from what the layer gives to one number per example.
            baselines: where the path starts, as in :meth:`IntegratedGradients.attribute`.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            n_steps: gradient evaluations, or None to integrate to a relative error of 1%.
            method: the rule, as in :meth:`IntegratedGradients.attribute`; not used without ``n_steps``.
            internal_batch_size: rows to run at a time; chosen to fit the memory if not given.
            attribute_to_neuron_input: look at what the layer gets instead of what it gives.
            grad_kwargs: unused inputs get zero without ``allow_unused`` or ``materialize_grads``.

        Returns:
            Attributions in the structure of the inputs.
        """
        found = self._attribution(
            inputs, neuron_selector, baselines, target, additional_forward_args, n_steps, method, internal_batch_size,
            attribute_to_neuron_input, grad_kwargs,
        )  # fmt: skip
        return cast("InputsT", found.values)

    def _attribution(
        self,
        inputs: Inputs,
        neuron_selector: Selector,
        baselines: Baselines,
        target: Target,
        additional_forward_args: object,
        n_steps: int | None,
        method: str,
        internal_batch_size: int | None,
        attribute_to_neuron_input: bool,
        grad_kwargs: Mapping[str, Any] | None,
        tol: float = 0.01,
    ) -> Attribution:
        refuse_graph(grad_kwargs)
        one = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        reader = NeuronReader(one.model, self.layer, _side(attribute_to_neuron_input), neuron_selector)
        split = NeuronSplit(reader, len(one.end))
        how = _how(n_steps, method, internal_batch_size, tol)
        both = CaptumProblem.of(split, (*one.end, *one.end), (*one.start, *one.start), one.target, one.args)
        with undisturbed(both.model):
            function = replace(both.function(how), layered=True)  # the hooks are not for CUDA graphs
            path = _line_of_first(function, both.start, len(one.end))
            found = (integrate_part if self._multiply_by_inputs else mean_part)(path, _options(how))
        return _dressed(found, one.end, "neuron conductance", tuple_of=one.tree.kind == "tuple")


def _line_of_first(function: Any, start: Leaves, part: int) -> PartialPath:
    """A straight line of all tensors, of which the first ``part`` are wanted."""
    line = segment(start, function.inputs)

    def still(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
        points = line.points_at(t, rows)
        return points, (*map(torch.ones_like, points[:part]), *map(torch.zeros_like, points[part:]))

    reach = (flat(function.inputs[:part]) - flat(start[:part])).abs().amax(1)
    return PartialPath(function, part, line, Piece(1.0, still, straight=True), reach)


class CaptumNeuronIntegratedGradients(NeuronClass, name="NeuronIntegratedGradients"):
    """Integrated gradients of the value of one neuron.

    Args:
        forward_func: the model, or any function of tensors that runs the layer.
        layer: a module.
        device_ids: accepted for Captum's sake, and not used.
        multiply_by_inputs: whether gradients are multiplied by ``inputs - baselines``.
    """

    def attribute(
        self,
        inputs: InputsT,
        neuron_selector: Selector,
        baselines: Baselines = None,
        additional_forward_args: object = None,
        n_steps: int | None = 50,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        attribute_to_neuron_input: bool = False,
    ) -> InputsT:
        """Attribute the value of a neuron to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            neuron_selector: the neuron, as in :meth:`NeuronConductance.attribute`.
            baselines: where the path starts, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            n_steps: gradient evaluations, or None to integrate to a relative error of 1%.
            method: the rule, as in :meth:`IntegratedGradients.attribute`; not used without ``n_steps``.
            internal_batch_size: rows to run at a time; chosen to fit the memory if not given.
            attribute_to_neuron_input: look at what the layer gets instead of what it gives.

        Returns:
            Attributions in the structure of the inputs.
        """
        found = self._attribution(
            inputs, neuron_selector, baselines, additional_forward_args, n_steps, method, internal_batch_size,
            attribute_to_neuron_input,
        )  # fmt: skip
        return cast("InputsT", found.values)

    def _attribution(
        self,
        inputs: Inputs,
        neuron_selector: Selector,
        baselines: Baselines,
        additional_forward_args: object,
        n_steps: int | None,
        method: str,
        internal_batch_size: int | None,
        attribute_to_neuron_input: bool,
        tol: float = 0.01,
    ) -> Attribution:
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, None, additional_forward_args)
        reader = NeuronReader(problem.model, self.layer, _side(attribute_to_neuron_input), neuron_selector)
        how = CaptumOptions(n_steps, method, internal_batch_size, self._multiply_by_inputs, tol)
        return explain(replace(problem, model=reader), how)


class CaptumInternalInfluence(CertifiedClass, LayerClass, GradientClass, name="InternalInfluence"):
    """The mean gradient of the target output in a layer's values while the inputs move from the baselines.

    Args:
        forward_func: the model, or any function of tensors that runs the layer.
        layer: a module.
        device_ids: accepted for Captum's sake, and not used.
    """

    def __init__(self, forward_func: Callable[..., Any], layer: nn.Module, device_ids: Sequence[int] | None = None) -> None:
        super().__init__(forward_func, layer, device_ids)

    def attribute(
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
    ) -> Inputs:
        """Attribute the target output to the neurons of the layer.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            baselines: where the path starts, as in :meth:`IntegratedGradients.attribute`.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            n_steps: gradient evaluations, or None to integrate to a relative error of 1%.
            method: the rule, as in :meth:`IntegratedGradients.attribute`; not used without ``n_steps``.
            internal_batch_size: rows to run at a time; chosen to fit the memory if not given.
            attribute_to_layer_input: explain what the layer gets instead of what it gives.
            grad_kwargs: unused neurons get zero without ``allow_unused`` or ``materialize_grads``.

        Returns:
            A tensor of the layer's shape, or a tuple of them where it gives (or gets) several or runs several times.
        """
        found = self._attribution(
            inputs, baselines, target, additional_forward_args, n_steps, method, internal_batch_size,
            attribute_to_layer_input, grad_kwargs,
        )  # fmt: skip
        return cast("Inputs", found.values)

    def _attribution(
        self,
        inputs: Inputs,
        baselines: Baselines,
        target: Target,
        additional_forward_args: object,
        n_steps: int | None,
        method: str,
        internal_batch_size: int | None,
        attribute_to_layer_input: bool,
        grad_kwargs: Mapping[str, Any] | None,
        tol: float = 0.01,
    ) -> Attribution:
        refuse_graph(grad_kwargs)
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        how = _how(n_steps, method, internal_batch_size, tol, self.layer, attribute_to_layer_input)
        with undisturbed(problem.model):
            function = problem.function(how)
            found = mean_part(LayerPath.of(function, problem.start).part(), _options(how))
        return _dressed(found, function.inputs, "internal influence", tuple_of=len(function.inputs) > 1)


class CaptumLayerGradientXActivation(CertifiedClass, LayerClass, GradientClass, name="LayerGradientXActivation"):
    """The gradient of the target output in a layer's values, times these values.

    Args:
        forward_func: the model, or any function of tensors that runs the layer.
        layer: a module, or a list of modules, each of which is explained by itself.
        device_ids: accepted for Captum's sake, and not used.
        multiply_by_inputs: whether gradients are multiplied by the layer's values.
        memory_efficient: accepted for Captum's sake, and not used: memory is bounded in any case.
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        layer: nn.Module | list[nn.Module],
        device_ids: Sequence[int] | None = None,
        multiply_by_inputs: bool = True,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__(forward_func, layer, device_ids)
        self._multiply_by_inputs = multiply_by_inputs
        self._memory_efficient = memory_efficient

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether gradients are multiplied by the layer's values."""
        return self._multiply_by_inputs

    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        additional_forward_args: object = None,
        attribute_to_layer_input: bool = False,
        grad_kwargs: Mapping[str, Any] | None = None,
    ) -> Layered:
        """Attribute the target output to the neurons of the layer.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example. Token ids are fine.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            attribute_to_layer_input: explain what the layer gets instead of what it gives.
            grad_kwargs: unused neurons get zero without ``allow_unused`` or ``materialize_grads``.

        Returns:
            For a module, a tensor of the layer's shape, or a tuple of them where it gives (or gets) several or runs several
            times; for a list of modules, a list of these.
        """
        refuse_graph(grad_kwargs)
        if not isinstance(self.layer, list):
            return cast(
                "Inputs", self._of(self.layer, inputs, target, additional_forward_args, attribute_to_layer_input).values
            )
        found = [self._of(one, inputs, target, additional_forward_args, attribute_to_layer_input) for one in self.layer]
        return [cast("Inputs", one.values) for one in found]

    def _attribution(
        self,
        inputs: Inputs,
        target: Target,
        additional_forward_args: object,
        attribute_to_layer_input: bool,
        grad_kwargs: Mapping[str, Any] | None,
    ) -> Attribution:
        refuse_graph(grad_kwargs)
        if isinstance(self.layer, list):
            raise OptionError(
                f"got a list of {len(self.layer)} layers; expected one module for a result with a certificate. Ask for each "
                "layer by itself."
            )
        return self._of(self.layer, inputs, target, additional_forward_args, attribute_to_layer_input)

    def _of(self, layer: nn.Module, inputs: Inputs, target: Target, further: object, to_input: bool) -> Attribution:
        problem = CaptumProblem.of(self.forward_func, inputs, None, target, further)
        method = GradientTimesInput() if self._multiply_by_inputs else Gradient()
        return by_method(method, problem, layer=[layer], layer_side=_side(to_input), baseline=None)


def refuse_graph(grad_kwargs: Mapping[str, Any] | None) -> None:
    """Refuse attributions that are to be differentiated further, which these classes do not offer."""
    if wants_graph(grad_kwargs):
        raise OptionError(
            "got create_graph in grad_kwargs; expected none of it here. The attributions of LayerIntegratedGradients can be "
            "differentiated."
        )


def _side(to_input: bool) -> LayerSide:
    return "input" if to_input else "output"


def _how(
    n_steps: int | None, method: str, chunk: int | None, tol: float, layer: Any = None, to_input: bool = False
) -> CaptumOptions:
    if isinstance(layer, (list, tuple)):
        raise OptionError(f"got a list of {len(layer)} layers; expected one module. Ask for each layer by itself.")
    layers = () if layer is None else (layer,)
    return CaptumOptions(n_steps, method, chunk, True, tol, layers, _side(to_input))


def _options(how: CaptumOptions, *, one_more: bool = False) -> EngineOptions:
    """The engine's options; ``one_more`` for Captum's sum of differences, which takes n + 1 points for n steps."""
    steps = None if how.n_steps is None else how.n_steps + one_more
    return EngineOptions.make(tol=how.tol, steps=steps, rule=how.rule, chunk=how.chunk)


def _dressed(found: PartialIntegral, like: Leaves, name: str, *, tuple_of: bool) -> Attribution:
    """Integrals of some tensors as an attribution in their shapes."""
    parts = unflat(found.values, [leaf.shape[1:] for leaf in like])
    leaves = tuple(part.to(leaf.dtype) for part, leaf in zip(parts, like, strict=True))
    certificate = Certificate(tuple(replace(one, knob=KNOB) for one in found.examples))
    warn_if_missed(certificate)
    meta = {"method": name, "integrand": version_of(), "torch": torch.__version__, "rule": certificate[0].rule}
    return Attribution(leaves if tuple_of else leaves[0], certificate, True, meta)


# Captum's own names, so that one import line is all that changes.
LayerConductance = CaptumLayerConductance
NeuronConductance = CaptumNeuronConductance
NeuronIntegratedGradients = CaptumNeuronIntegratedGradients
InternalInfluence = CaptumInternalInfluence
LayerGradientXActivation = CaptumLayerGradientXActivation
