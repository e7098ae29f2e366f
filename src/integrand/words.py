"""Numbers and lists as text for people. A leaf: the certificate prints itself with these."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def number(value: float | None, digits: int = 4) -> str:
    """A number for people."""
    return "?" if value is None else f"{value:.{digits}g}"


def percent(value: float) -> str:
    """A share as a percentage of any size, for people.

    >>> percent(0.0124), percent(0.114), percent(0.999), percent(1.0), percent(13.08)
    ('1.2%', '11%', '99.9%', '100%', '1308%')
    """
    if math.isnan(value):
        return "unknown"
    if 0.995 <= abs(value) < 1:
        return f"{100 * value:.1f}%"
    return f"{100 * value:.2g}%" if abs(value) < 0.095 else f"{100 * value:.0f}%"


def finite(value: Any) -> Any:
    """Numbers as JSON has them: None for what is NaN or infinite.

    >>> finite(np.array([1.0, np.nan]))
    [1.0, None]
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def share_of(value: float) -> str:
    """A gap as a share of the score's change, for people.

    >>> share_of(0.0), share_of(1e-7), share_of(0.0123), share_of(5.2), share_of(3466.0), share_of(math.inf)
    ('0%', '<0.01%', '1.2%', '520%', '3466 times', 'all: no change')
    """
    if math.isinf(value):
        return "all: no change"
    if 0 < value < 1e-4:
        return "<0.01%"
    if value >= 10:
        return f"{value:.0f} times"
    return f"{100 * value:.2g}%" if value < 0.1 else f"{100 * value:.0f}%"


def seconds(value: float) -> str:
    """A time for people.

    >>> seconds(0.0123), seconds(2.345), seconds(187.2), seconds(math.nan)
    ('0.012 s', '2.3 s', '187 s', '? s')
    """
    return "? s" if math.isnan(value) else f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
