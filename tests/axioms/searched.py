"""Searches that several tests read, each done once."""

from __future__ import annotations

from functools import cache

from integrand.axioms import Verdict, check
from integrand.methods import Method


@cache
def searched(method: Method, axiom: str) -> Verdict:
    """What up to 200 examples find, which takes seconds: most of that is to make a counter-example small."""
    return check(method, axiom, max_examples=200)
