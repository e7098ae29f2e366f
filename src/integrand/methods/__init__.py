"""The methods that the paper compares with, each a frozen value with one call.

>>> import torch
>>> from integrand.methods import Gradient, IntegratedGradients
>>> def f(x):
...     return 1 - torch.relu(1 - x).sum(1)
>>> x = torch.tensor([[2.0]])
>>> IntegratedGradients()(f, x).values, Gradient()(f, x).values.any(), Gradient()(f, x).certificate.broken
(tensor([[1.]]), tensor(False), ('completeness', 'sensitivity-a'))
"""

from __future__ import annotations

from .deeplift import DeepLift
from .expected_gradients import ExpectedGradients
from .gradients import Gradient, GradientTimesInput
from .guided_backprop import Deconvnet, GuidedBackprop
from .lime import Lime
from .lrp import LRP, AlphaBeta, Epsilon, Gamma
from .method import Found, Method, Problem
from .path_methods import BlurIG, GuidedIG, IntegratedGradients, PathMethod
from .registry import by_name
from .shapley import Shapley
from .smoothgrad import SmoothGrad

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
