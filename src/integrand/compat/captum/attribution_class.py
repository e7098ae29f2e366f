"""What all classes with Captum's names have in common.

A class here is written as ``class CaptumSaliency(GradientClass, name="Saliency")``: people and ``get_name()`` see Captum's
name, and where Captum has been imported, instances are instances of Captum's class of that name too, so that what Captum builds
around a method (``NoiseTunnel``, ``TCAV``, ``LLMGradientAttribution``, ``captum.metrics``) takes them. Captum is never imported
from here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...functions.target import Target
from .captum_call import Baselines, CaptumProblem, Inputs
from .captum_errors import CaptumOptionError, worded


def join_captum(cls: type) -> type:
    """Make Captum's class of the same name a base of one of ours, if Captum has been imported.

    Captum's own class comes last, so that whatever is defined here is used.

    Args:
        cls: a subclass of :class:`AttributionClass`.

    Returns:
        The class; where it has become Captum's with this very call, an empty subclass of it, since isinstance() has looked at
        the class itself before it asked.
    """
    library: Any = sys.modules.get("captum.attr")
    joined = False
    for base in reversed(cls.__mro__):
        twin = getattr(library, base.__dict__.get("_twin") or "", None)
        if isinstance(twin, type) and not issubclass(base, twin) and not hasattr(twin, "_twin"):
            base.__bases__ = (*base.__bases__, twin)
            joined = True
    return type(cls.__name__, (cls,), {}) if joined else cls


class AttributionClass:
    """A method as an object: a model at construction, the rest with :meth:`attribute`.

    Args:
        forward_func: the model, or any function of tensors.
    """

    forward_func: Callable[..., Any]
    attribute: Callable[..., Any]
    _twin: str | None = None  # the name of Captum's class that this one is also to be

    def __init__(self, forward_func: Callable[..., Any]) -> None:
        self.forward_func = forward_func

    def __init_subclass__(cls, name: str | None = None) -> None:
        """Take Captum's name, and let ``attribute`` have a ``__wrapped__``, which Captum calls on the methods it is given.

        Args:
            name: that of Captum's class; a user's own subclass has none.
        """
        super().__init_subclass__()
        cls._twin = name
        if name is not None:
            cls.__name__ = cls.__qualname__ = name
        for method in ("attribute", "attribute_with_certificate", "attribute_future", "compute_convergence_delta"):
            if method in cls.__dict__:
                setattr(cls, method, worded(cls.__dict__[method]))
        join_captum(cls)

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Be an instance of Captum's class too, where there is one."""
        join_captum(cls)
        return super().__new__(cls)

    @property
    def __class__(self) -> type:  # isinstance() asks for it where the type itself says no
        return join_captum(type(self))

    @__class__.setter
    def __class__(self, _: type) -> None:
        raise TypeError("the class of an attribution method cannot be changed")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by the class that was exported."""
        join_captum(type(self))
        return super().__reduce_ex__(protocol)

    def attribute_future(self, *_: Any, **__: Any) -> Any:
        """Refuse: in Captum, too, only FeatureAblation and ShapleyValueSampling have it."""
        raise NotImplementedError(f"attribute_future is not implemented for {type(self).__name__}. Call attribute.")

    def has_convergence_delta(self) -> bool:
        """Whether ``attribute`` takes ``return_convergence_delta``."""
        return False

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether what is returned has been multiplied by inputs minus baselines."""
        return False

    @classmethod
    def get_name(cls) -> str:
        """The name of the class in words: ``Integrated Gradients``."""
        return "".join(char if char.islower() or i == 0 else f" {char}" for i, char in enumerate(cls.__name__))


class GradientClass(AttributionClass):
    """A method that uses gradients.

    Args:
        forward_func: the model, or any function of tensors.
    """

    @property
    def gradient_func(self) -> Callable[..., tuple[Tensor, ...]]:
        """The gradients that Captum would use; what is computed here does not go through it."""
        return gradients

    @gradient_func.setter
    def gradient_func(self, _: Callable[..., Any]) -> None:
        raise CaptumOptionError(
            "got a gradient_func of your own; expected none, since gradients are those of forward_func. Put what should have "
            "these gradients into forward_func, or pass a function of the output as target."
        )

    def compute_convergence_delta(
        self,
        attributions: Any,
        start_point: Baselines,
        end_point: Inputs,
        target: Target = None,
        additional_forward_args: object = None,
    ) -> Tensor:
        """What attributions sum to, minus F(end_point) - F(start_point), for each example.

        Args:
            attributions: tensors with one row per example, in any structure.
            start_point: the baselines.
            end_point: the inputs.
            target: the output that was explained.
            additional_forward_args: further arguments of the model.
        """
        return CaptumProblem.of(self.forward_func, end_point, start_point, target, additional_forward_args).delta(attributions)


class LayerClass(AttributionClass):
    """A method that looks at what a layer gives or gets.

    Args:
        forward_func: the model, or any function of tensors that runs the layer.
        layer: a module, or a list of modules where the method takes several.
        device_ids: accepted for Captum's sake, and not used.
    """

    def __init__(self, forward_func: Callable[..., Any], layer: Any, device_ids: Sequence[int] | None = None) -> None:
        super().__init__(forward_func)
        self.layer: nn.Module | list[nn.Module] = layer
        self.device_ids = device_ids

    @staticmethod
    def interpolate(
        layer_attribution: Tensor, interpolate_dims: int | tuple[int, ...], interpolate_mode: str = "nearest"
    ) -> Tensor:
        """Attributions of a convolutional layer (N, C, ...) at another size, such as the input's.

        Args:
            layer_attribution: with one to three dimensions of space.
            interpolate_dims: the new size of these.
            interpolate_mode: as in ``torch.nn.functional.interpolate``.
        """
        size: Any = interpolate_dims
        return functional.interpolate(layer_attribution, size, mode=interpolate_mode)


def gradients(
    forward_fn: Callable[..., Any], inputs: Inputs, target_ind: Target = None, additional_forward_args: object = None
) -> tuple[Tensor, ...]:
    """Gradients of each example's score with respect to its inputs.

    Args:
        forward_fn: the model.
        inputs: a tensor or a tuple of them, with one row per example.
        target_ind: the output to differentiate.
        additional_forward_args: further arguments of the model.
    """
    problem = CaptumProblem.of(forward_fn, inputs, None, target_ind, additional_forward_args)
    points = tuple(leaf.detach().requires_grad_() for leaf in problem.end)
    with torch.enable_grad():
        [scores] = problem.scores(points)
        return torch.autograd.grad(scores.sum(), points)
