"""Comparing methods on a user's own model: maps side by side, what they miss, how alike they are, what they cost.

:func:`compare` sets methods side by side. :func:`deletion_curve`, :func:`insertion_curve` and :func:`sensitivity_n` perturb
the input, which people ask for; read what they do and do not show in their ``caution`` first.

>>> import torch
>>> from integrand.methods import GradientTimesInput, IntegratedGradients
>>> def f(x):
...     return 1 - torch.relu(1 - x).sum(1)
>>> both = compare(f, torch.tensor([[2.0]]), methods=[IntegratedGradients(), GradientTimesInput()])
>>> {name: gap.tolist() for name, gap in both.gaps.items()}
{'integrated gradients': [0.0], 'gradient x input': [-1.0]}
"""

from ._compare import DEFAULTS, compare
from ._comparison import Comparison, Cost
from ._curve import PerturbationCurve
from ._curves import deletion_curve, insertion_curve
from ._removal import CAUTION
from ._sensitivity import SensitivityN, sensitivity_n
from ._settings import Settings

__all__ = [
    "CAUTION",
    "DEFAULTS",
    "Comparison",
    "Cost",
    "PerturbationCurve",
    "SensitivityN",
    "Settings",
    "compare",
    "deletion_curve",
    "insertion_curve",
    "sensitivity_n",
]
