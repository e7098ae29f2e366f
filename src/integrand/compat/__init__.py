"""Other libraries' interfaces over this package's engine, so that one import line is all that changes.

:mod:`integrand.compat.captum` has ``IntegratedGradients`` and ``LayerIntegratedGradients`` with Captum's signatures. The
other library is neither needed nor imported.
"""

from __future__ import annotations
