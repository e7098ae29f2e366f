"""The operations that a model is made of, and sweeping back through them by other rules than the gradient's.

A model is run once under torch's own tracer, below modules and functionals: ``F.relu``, ``x.relu()``, ``nn.ReLU`` used
twice and a ReLU inside a compiled kernel are all the one operation ``relu``. What depends on the input is kept as a list
of steps, a :class:`Program`; a rule says for each step how what arrives at its output is handed to its inputs.
"""

from ._bound import bound
from ._fold import folded
from ._fuse import fused
from ._kinds import Kind, kind_of
from ._program import Program, Ref, Step
from ._slopes import product, secant
from ._sweep import Rule, sweep, vjp
from ._trace import check_at, trace

__all__ = [
    "Kind",
    "Program",
    "Ref",
    "Rule",
    "Step",
    "bound",
    "check_at",
    "folded",
    "fused",
    "kind_of",
    "product",
    "secant",
    "sweep",
    "trace",
    "vjp",
]
