"""Captum's classes, computed by integrand.

Change one line::

    from captum.attr import IntegratedGradients, LayerIntegratedGradients              # before
    from integrand.compat.captum import IntegratedGradients, LayerIntegratedGradients  # after

Signatures, defaults, shapes and (within rounding) numbers are those of Captum 0.9, which is neither needed nor imported:

>>> import torch
>>> from integrand.compat.captum import IntegratedGradients
>>> ig = IntegratedGradients(lambda x: x[:, 0] * x[:, 1])
>>> ig.attribute(torch.tensor([[2.0, 3.0]]), return_convergence_delta=True)
(tensor([[3., 3.]]), tensor([0.]))

What differs, and why, is in docs/captum.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conductance_classes import (
        InternalInfluence,
        LayerConductance,
        LayerGradientXActivation,
        NeuronConductance,
        NeuronIntegratedGradients,
    )
    from .dataloader_attribution import DataLoaderAttribution
    from .gradient_classes import Deconvolution, GuidedBackprop, InputXGradient, Saliency
    from .noise_tunnel import NoiseTunnel
    from .path_classes import IntegratedGradients, LayerIntegratedGradients
    from .perturbation_classes import FeatureAblation, KernelShap, Lime, Occlusion, ShapleyValueSampling
    from .reference_classes import LRP, DeepLift, DeepLiftShap, GradientShap

__all__ = [
    "LRP",
    "DataLoaderAttribution",
    "Deconvolution",
    "DeepLift",
    "DeepLiftShap",
    "FeatureAblation",
    "GradientShap",
    "GuidedBackprop",
    "InputXGradient",
    "IntegratedGradients",
    "InternalInfluence",
    "KernelShap",
    "LayerConductance",
    "LayerGradientXActivation",
    "LayerIntegratedGradients",
    "Lime",
    "NeuronConductance",
    "NeuronIntegratedGradients",
    "NoiseTunnel",
    "Occlusion",
    "Saliency",
    "ShapleyValueSampling",
]

_HOMES = {
    "path_classes": ("IntegratedGradients", "LayerIntegratedGradients"),
    "noise_tunnel": ("NoiseTunnel",),
    "dataloader_attribution": ("DataLoaderAttribution",),
    "gradient_classes": ("Saliency", "InputXGradient", "GuidedBackprop", "Deconvolution"),
    "conductance_classes": (
        "LayerConductance",
        "NeuronConductance",
        "NeuronIntegratedGradients",
        "LayerGradientXActivation",
        "InternalInfluence",
    ),
    "reference_classes": ("DeepLift", "DeepLiftShap", "GradientShap", "LRP"),
    "perturbation_classes": ("Lime", "KernelShap", "ShapleyValueSampling", "FeatureAblation", "Occlusion"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a class when it is first used (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
