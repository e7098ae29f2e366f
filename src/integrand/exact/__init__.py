"""Integrated gradients of piecewise linear scores without quadrature error.

The straight line from baseline to input crosses the linear regions of a ReLU network; its break points are found by sending
the line through the network, operation by operation (Sotoudeh and Thakur 2019), and one gradient is taken in each region.
"""

from ._integrate import Exact, integrate_exactly
from ._refusal import Refusal

__all__ = ["Exact", "Refusal", "integrate_exactly"]
