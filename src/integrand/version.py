"""The installed version of the package; a leaf, so that asking for it loads nothing else."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def version_of() -> str:
    """The installed version of this package; "unknown" if it is not installed."""
    try:
        return version("integrand")
    except PackageNotFoundError:
        return "unknown"
