"""Integrated Gradients and path methods for any differentiable model, to a tolerance, with an error estimate that holds.

>>> import torch, integrand as ig
>>> result = ig.integrated_gradients(lambda x: x[:, 0] * x[:, 1], torch.tensor([[2.0, 3.0]]))
>>> result.values
tensor([[3., 3.]])
"""

from . import baselines, errors, paths, quadrature
from ._api import integrated_gradients, path_attribution
from .attribution import Attribution, Certificate, CurveCertificate, ExampleCertificate, Status
from .execute import Progress
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
    "Progress",
    "Rule",
    "Status",
    "Straight",
    "baselines",
    "errors",
    "integrated_gradients",
    "path_attribution",
    "paths",
    "quadrature",
]
