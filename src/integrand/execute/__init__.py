"""Running the evaluations: chunks that fit, sums that stay exact, progress, and both ways to integrate."""

from ._adaptive import integrate_to_tolerance
from ._evaluate import Evaluator
from ._fixed import contract, integrate_fixed
from ._nodes import Nodes
from ._outcome import Outcome
from ._precision import Precision
from ._progress import Progress
from ._settle import settle

__all__ = [
    "Evaluator",
    "Nodes",
    "Outcome",
    "Precision",
    "Progress",
    "contract",
    "integrate_fixed",
    "integrate_to_tolerance",
    "settle",
]
