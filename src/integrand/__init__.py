"""Integrated Gradients and path methods for any differentiable model, to a tolerance, with an error estimate that holds.

>>> import torch, integrand as ig
>>> result = ig.integrated_gradients(lambda x: x[:, 0] * x[:, 1], torch.tensor([[2.0, 3.0]]))
>>> result.values
tensor([[3., 3.]])
"""

from . import axioms, baselines, errors, methods, paths, quadrature
from ._api import integrated_gradients, path_attribution
from ._profile import Profile
from .attribution import Attribution, Certificate, CurveCertificate, ExampleCertificate, Promise, Status
from .comparison import compare
from .execute import Progress
from .interactions import integrated_hessians
from .paths import Average, Curve, Polyline, Straight
from .quadrature import Rule

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
    "axioms",
    "baselines",
    "compare",
    "errors",
    "integrated_gradients",
    "integrated_hessians",
    "methods",
    "path_attribution",
    "paths",
    "quadrature",
]
