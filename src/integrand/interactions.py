"""Interactions between features, by Integrated Hessians: :func:`integrated_hessians`.

The double integral of the paper is a single one over s = alpha * beta with weights -ln s and -s ln s. It is integrated
adaptively, a row of the matrix at a time by Hessian-vector products; scores that are piecewise linear are integrated by
finding their kinks.
"""

from __future__ import annotations

from .analysis.hessians import integrated_hessians
from .analysis.interaction_result import InteractionCertificate, Interactions, Pair

__all__ = ["InteractionCertificate", "Interactions", "Pair", "integrated_hessians"]
