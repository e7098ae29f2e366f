"""The paper's axioms as runnable checks: on a model of yours, or by a search for a counter-example.

>>> import torch
>>> from integrand.axioms import check, network
>>> from integrand.methods import Gradient, IntegratedGradients
>>> f, x = network("1 - relu(1 - x1)"), torch.tensor([[2.0]])
>>> check(Gradient(), "sensitivity-a", f, x).kept, check(IntegratedGradients(), "sensitivity-a", f, x).kept
(False, True)
"""

from __future__ import annotations

from ..certificate import AXIOMS
from .axiom_table import METHODS, Step, Table, table
from .checking import check
from .formula import FormulaNetwork as Network
from .formula import parse
from .formula_network import FormulaModule, network
from .verdict import Counterexample, Verdict

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
