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

import difflib

from ..errors import OptionError
from .deeplift import DeepLift
from .expected_gradients import ExpectedGradients
from .gradients import Gradient, GradientTimesInput
from .guided_backprop import Deconvnet, GuidedBackprop
from .lime import Lime
from .lrp import LRP, AlphaBeta, Epsilon, Gamma
from .method import Found, Method, Problem
from .path_methods import BlurIG, GuidedIG, IntegratedGradients, PathMethod
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

BY_NAME: dict[str, Method] = {
    "integrated-gradients": IntegratedGradients(),
    "path": PathMethod(),
    "blur-ig": BlurIG(),
    "guided-ig": GuidedIG(),
    "shapley": Shapley(),
    "expected-gradients": ExpectedGradients(),
    "gradient": Gradient(),
    "gradient-x-input": GradientTimesInput(),
    "smoothgrad": SmoothGrad(),
    "deeplift": DeepLift(),
    "deeplift-reveal-cancel": DeepLift("reveal-cancel"),
    "lrp": LRP(),
    "lrp-epsilon-plus": LRP(composite="epsilon-plus"),
    "deconvnet": Deconvnet(),
    "guided-backprop": GuidedBackprop(),
    "lime": Lime(),
}
"""Every method with its defaults, and some settings that have names of their own."""


def by_name(name: str) -> Method:
    """The method of a name, as used on the command line.

    >>> by_name("deeplift")
    DeepLift(rule='rescale', multipliers=False)
    """
    if name in BY_NAME:
        return BY_NAME[name]
    near = difflib.get_close_matches(name, BY_NAME, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise OptionError(f"there is no method {name!r}; expected one of {', '.join(BY_NAME)}.{hint}")
