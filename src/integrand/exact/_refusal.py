"""Why a score cannot be integrated exactly."""

from __future__ import annotations

from dataclasses import dataclass


class NotExactError(Exception):
    """Ends an attempt from within; the text is the reason. It never reaches a user: see :class:`Refusal`."""


@dataclass(frozen=True)
class Refusal:
    """An example that is left to sampling.

    Attributes:
        reason: why, in words.
    """

    reason: str
