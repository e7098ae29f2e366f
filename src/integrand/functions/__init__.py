"""What is explained: a model, what it is called with, and which number of its output is the score.

A :class:`~integrand.functions._call.Call` runs the model on rows of explained tensors; a layer wraps a call; a
:class:`~integrand.functions._scores.Scorer` picks one score per row from what comes out.
"""

from ._build import Function, build
from ._scores import ReadOut, Score, Target
from ._state import undisturbed

__all__ = ["Function", "ReadOut", "Score", "Target", "build", "undisturbed"]
