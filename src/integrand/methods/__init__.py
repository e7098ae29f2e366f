"""The methods that the paper compares with, each a frozen value with one call.

>>> import torch
>>> from integrand.methods import GradientTimesInput, IntegratedGradients
>>> def f(x):
...     return 1 - torch.relu(1 - x).sum(1)
>>> IntegratedGradients()(f, torch.tensor([[2.0]])).values, GradientTimesInput()(f, torch.tensor([[2.0]])).values
(tensor([[1.]]), tensor([[0.]]))
"""

from ._base import Found, Method, Problem
from ._deeplift import DeepLift
from ._engine import IntegratedGradients, PathMethod
from ._gradients import Gradient, GradientTimesInput
from ._guided import Deconvnet, GuidedBackprop
from ._lrp import LRP
from ._lrp_rules import AlphaBeta, Epsilon, Gamma

__all__ = [
    "LRP",
    "AlphaBeta",
    "Deconvnet",
    "DeepLift",
    "Epsilon",
    "Found",
    "Gamma",
    "Gradient",
    "GradientTimesInput",
    "GuidedBackprop",
    "IntegratedGradients",
    "Method",
    "PathMethod",
    "Problem",
]
