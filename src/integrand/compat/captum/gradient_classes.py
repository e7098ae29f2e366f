"""Captum's ``Saliency``, ``InputXGradient``, ``GuidedBackprop`` and ``Deconvolution``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

from torch import nn

from ...attribution import Attribution
from ...errors import ModelError
from ...functions.target import Target
from ...methods import guided_backprop as rectifiers
from ...methods.gradients import Gradient, GradientTimesInput
from ...trees import flatten
from .attribution_class import GradientClass
from .captum_call import CaptumProblem, Inputs
from .certified_class import CertifiedClass, by_method
from .path_classes import InputsT


class CaptumSaliency(CertifiedClass, GradientClass, name="Saliency"):
    """The gradient of the target output at the inputs.

    Args:
        forward_func: the model, or any function of tensors.
    """

    def attribute(
        self, inputs: InputsT, target: Target = None, abs: bool = True, additional_forward_args: object = None
    ) -> InputsT:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            target: the output to explain: an int, a tuple for outputs with more dimensions, or a list or 1-D tensor with
                one per example.
            abs: return the absolute values of the gradient.
            additional_forward_args: one further argument of the model, or a tuple of them.

        Returns:
            Attributions in the structure of the inputs.
        """
        return cast("InputsT", self._attribution(inputs, target, abs, additional_forward_args).values)

    def _attribution(self, inputs: Inputs, target: Target, abs: bool, additional_forward_args: object) -> Attribution:
        problem = CaptumProblem.of(self.forward_func, inputs, None, target, additional_forward_args)
        found = by_method(Gradient(), problem)
        if not abs:
            return found
        values = problem.tree.build([leaf.abs() for leaf in flatten(found.values, what="values")[1]])
        return dataclasses.replace(found, values=values)


class CaptumInputXGradient(CertifiedClass, GradientClass, name="InputXGradient"):
    """The gradient of the target output at the inputs, times the inputs.

    Args:
        forward_func: the model, or any function of tensors.
    """

    @property
    def multiplies_by_inputs(self) -> bool:
        """True."""
        return True

    def attribute(self, inputs: InputsT, target: Target = None, additional_forward_args: object = None) -> InputsT:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            target: the output to explain, as in :meth:`Saliency.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.

        Returns:
            Attributions in the structure of the inputs.
        """
        return cast("InputsT", self._attribution(inputs, target, additional_forward_args).values)

    def _attribution(self, inputs: Inputs, target: Target, additional_forward_args: object) -> Attribution:
        problem = CaptumProblem.of(self.forward_func, inputs, None, target, additional_forward_args)
        return by_method(GradientTimesInput(), problem)


class RectifierClass(CertifiedClass, GradientClass):
    """A gradient with another rule at rectifiers; other activations keep their gradient, and the certificate names them.

    Args:
        model: the model; functional rectifiers count as its modules do.
    """

    _method: rectifiers.GuidedBackprop | rectifiers.Deconvnet

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        check_module(model)
        self.model = model

    def attribute(self, inputs: InputsT, target: Target = None, additional_forward_args: object = None) -> InputsT:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            target: the output to explain, as in :meth:`Saliency.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.

        Returns:
            Attributions in the structure of the inputs.
        """
        return cast("InputsT", self._attribution(inputs, target, additional_forward_args).values)

    def _attribution(self, inputs: Inputs, target: Target, additional_forward_args: object) -> Attribution:
        problem = CaptumProblem.of(self.forward_func, inputs, None, target, additional_forward_args)
        return by_method(self._method, problem)


class CaptumGuidedBackprop(RectifierClass, name="GuidedBackprop"):
    """Guided back-propagation: rectifiers drop negative gradients, and those of inputs that are off.

    Args:
        model: the model.
    """

    _method = rectifiers.GuidedBackprop(others="gradient")


class CaptumDeconvolution(RectifierClass, name="Deconvolution"):
    """DeconvNet: rectifiers drop negative gradients, whether or not their input is on.

    Args:
        model: the model.
    """

    _method = rectifiers.Deconvnet(others="gradient")


class NotAModuleError(ModelError, AssertionError):
    """A function where a module is needed."""


def check_module(model: Callable[..., Any]) -> None:
    """Refuse what is no module, for methods that have rules for its operations."""
    if not isinstance(model, nn.Module):
        raise NotAModuleError(
            f"got a {type(model).__name__} as model; expected a torch.nn.Module, whose forward method may call any function."
        )


# Captum's own names, so that one import line is all that changes.
Saliency = CaptumSaliency
InputXGradient = CaptumInputXGradient
GuidedBackprop = CaptumGuidedBackprop
Deconvolution = CaptumDeconvolution
