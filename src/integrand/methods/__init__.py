"""The methods that the paper compares with, each a frozen value with one call.

>>> import torch
>>> from integrand.methods import Gradient, IntegratedGradients
>>> def f(x):
...     return 1 - torch.relu(1 - x).sum(1)
>>> x = torch.tensor([[2.0]])
>>> IntegratedGradients()(f, x).values, Gradient()(f, x).values.any(), Gradient()(f, x).certificate.broken
(tensor([[1.]]), tensor(False), ('completeness', 'sensitivity-a'))
"""

from ._base import Found, Method, Problem
from ._deeplift import DeepLift
from ._engine import BlurIG, GuidedIG, IntegratedGradients, PathMethod
from ._expected import ExpectedGradients
from ._gradients import Gradient, GradientTimesInput
from ._guided import Deconvnet, GuidedBackprop
from ._lime import Lime
from ._lrp import LRP
from ._lrp_rules import AlphaBeta, Epsilon, Gamma
from ._names import by_name
from ._shapley import Shapley
from ._smooth import SmoothGrad

__all__ = [
    "LRP",
    "AlphaBeta",
    "BlurIG",
    "Deconvnet",
    "DeepLift",
    "Epsilon",
    "ExpectedGradients",
    "Found",
    "Gamma",
    "Gradient",
    "GradientTimesInput",
    "GuidedBackprop",
    "GuidedIG",
    "IntegratedGradients",
    "Lime",
    "Method",
    "PathMethod",
    "Problem",
    "Shapley",
    "SmoothGrad",
    "by_name",
]
