"""The installed version of the package; a leaf, so that asking for it loads nothing else."""

from __future__ import annotations

from functools import cache


@cache
def version_of() -> str:
    """The installed version of this package; "unknown" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("integrand")
    except PackageNotFoundError:
        return "unknown"


def generator() -> str:
    """What files say of where they come from, so that a command knows those that it may replace: ``integrand 0.9``."""
    return f"integrand {version_of()}"
