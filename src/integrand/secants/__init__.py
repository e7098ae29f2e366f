"""Going back through a model with slopes between two points of a path instead of the slopes at one of them.

On a segment of the path every nonlinearity has a mean slope: of a pointwise function the secant between its two values, of
a product the mean of the factors, of a maximum the share of the way on which each argument is the largest. Handing these
back gives the segment's attributions; they add up to the change of the score on it, and as segments shrink they become
integrated gradients: the error falls like a power of the width that kinks lower to about 3/2, and to 1 for gradients that are
merely sampled.
"""

from ._program import SecantProgram
from ._rules import NO_RULE, mean_slopes

__all__ = ["NO_RULE", "SecantProgram", "mean_slopes"]
