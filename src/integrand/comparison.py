"""Comparing methods on a user's own model: maps side by side, what they miss, how alike they are, what they cost.

>>> import torch
>>> from integrand.methods import GradientTimesInput, IntegratedGradients
>>> def f(x):
...     return 1 - torch.relu(1 - x).sum(1)
>>> both = compare(f, torch.tensor([[2.0]]), methods=[IntegratedGradients(), GradientTimesInput()])
>>> {name: gap.tolist() for name, gap in both.gaps.items()}
{'integrated gradients': [0.0], 'gradient x input': [-1.0]}
"""

from __future__ import annotations

from .analysis.comparison_result import Comparison, Cost
from .analysis.method_comparison import DEFAULTS, Settings, compare

__all__ = [
    "DEFAULTS",
    "Comparison",
    "Cost",
    "Settings",
    "compare",
]
