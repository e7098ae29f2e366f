"""The paper's axioms as runnable checks: on a model of yours, or by a search for a counter-example.

>>> import torch
>>> from integrand.axioms import check, network
>>> from integrand.methods import Gradient, IntegratedGradients
>>> f, x = network("1 - relu(1 - x1)"), torch.tensor([[2.0]])
>>> check(Gradient(), "sensitivity-a", f, x).kept, check(IntegratedGradients(), "sensitivity-a", f, x).kept
(False, True)
"""

from ..attribution import AXIOMS
from ._check import check
from ._formula import Network
from ._network import FormulaModule, network
from ._parse import parse
from ._table import METHODS, Step, Table, table
from ._verdict import Counterexample, Verdict

__all__ = [
    "AXIOMS",
    "METHODS",
    "Counterexample",
    "FormulaModule",
    "Network",
    "Step",
    "Table",
    "Verdict",
    "check",
    "network",
    "parse",
    "table",
]
