"""Other libraries' interfaces over this package's engine, so that one import line is all that changes.

:mod:`integrand.compat.captum` has Captum's classes with their signatures. The other library is neither needed nor imported.
"""

from __future__ import annotations
