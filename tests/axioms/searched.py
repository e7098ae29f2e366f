"""Searches that several tests read, each done once."""

from __future__ import annotations

from functools import cache
from unittest import mock

from integrand.axioms import Verdict, check, search
from integrand.methods import Method

SHRINKS = 30
"""Cases judged to make a counter-example smaller, of the 200 by default: nine tenths of a search would go into that."""


@cache
def searched(method: Method, axiom: str) -> Verdict:
    """What up to 200 examples find, made a little smaller."""
    with mock.patch.object(search, "SHRINKS", SHRINKS):
        return check(method, axiom, max_examples=200)
