"""Integrated Gradients and path methods for any differentiable model, to a tolerance, with an error estimate that holds.

>>> import torch, integrand as ig
>>> result = ig.integrated_gradients(lambda x: x[:, 0] * x[:, 1], torch.tensor([[2.0, 3.0]]))
>>> result.values
tensor([[3., 3.]])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        analysis,
        audio,
        axioms,
        baselines,
        batch,
        errors,
        graphs,
        methods,
        paths,
        quadrature,
        sequences,
        series,
        tables,
        targets,
        text,
    )
    from .analysis import compare, compare_models, integrated_hessians
    from .api import integrated_gradients, path_attribution
    from .attribution import Attribution
    from .batch import explain_many
    from .certificate import Certificate, CurveCertificate, ExampleCertificate, Promise, Status
    from .evaluation.progress import Progress
    from .onnx_models import from_onnx
    from .paths import Average, Curve, Polyline, Straight
    from .profile import Profile
    from .quadrature import Rule
    from .serving import serve

__all__ = [
    "Attribution",
    "Average",
    "Certificate",
    "Curve",
    "CurveCertificate",
    "ExampleCertificate",
    "Polyline",
    "Profile",
    "Progress",
    "Promise",
    "Rule",
    "Status",
    "Straight",
    "analysis",
    "audio",
    "axioms",
    "baselines",
    "batch",
    "compare",
    "compare_models",
    "errors",
    "explain_many",
    "from_onnx",
    "graphs",
    "integrated_gradients",
    "integrated_hessians",
    "methods",
    "path_attribution",
    "paths",
    "quadrature",
    "sequences",
    "series",
    "serve",
    "tables",
    "targets",
    "text",
]

_HOMES = {
    "analysis": ("compare", "compare_models", "integrated_hessians"),
    "api": ("integrated_gradients", "path_attribution"),
    "attribution": ("Attribution",),
    "batch": ("explain_many",),
    "certificate": ("Certificate", "CurveCertificate", "ExampleCertificate", "Promise", "Status"),
    "evaluation.progress": ("Progress",),
    "onnx_models": ("from_onnx",),
    "paths": ("Average", "Curve", "Polyline", "Straight"),
    "profile": ("Profile",),
    "quadrature": ("Rule",),
    "serving": ("serve",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name, or a room of the package, when it is first used (PEP 562)."""
    if name in _HOME:
        found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name in __all__:
        found = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_captum(name)}")
    globals()[name] = found
    return found


def _captum(name: str) -> str:
    """The import of a class of Captum's, as the end of a message; '' for other names."""
    if name.startswith("_") or name not in import_module(f"{__name__}.compat.captum").__all__:
        return ""
    function = f"{__name__}.integrated_gradients(model, x, baseline, target=...), or " if name == "IntegratedGradients" else ""
    return f". Write {function}from {__name__}.compat.captum import {name}"


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
