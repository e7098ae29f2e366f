"""Completeness: the attributions add up to what the score gained between baseline and input.

    sum_i a_i = F(x) - F(x')

Proposition 1 of the paper for integrated gradients and all path methods. Attributions are then shares of a prediction, in
its own unit, and sums of them mean something.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..arrays import Floats
from ..methods.method import Method
from .evidence import AxiomCase, ExplainedCase, Finding, allowance, explain_case, rounded
from .own_model import OwnExample, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NAME = "completeness"

RULE = "the attributions add up to F(x) - F(x')"


def cases() -> SearchStrategy[AxiomCase]:
    """Draw small networks, each with an input and a baseline."""
    from .search_networks import one_network

    return one_network()


def premise(case: AxiomCase, points: Floats) -> bool:
    """True: completeness takes nothing for granted."""
    return True


def judge(method: Method, case: AxiomCase) -> Finding:
    """Compare the sum of the attributions of a small network with the change of its score."""
    return _finding(explain_case(method, case)["f"], "f")


def on_model(method: Method, own: OwnExample) -> Iterator[Trial]:
    """Compare the sum of the attributions of the user's model with the change of its score."""
    yield Trial(_finding(own.explain(method), "the model"))


def _finding(one: ExplainedCase, name: str) -> Finding:
    total = float(one.values.sum())
    statement = f"the attributions add up to {total:.6g}; F(x) - F(x') is {one.change:.6g}"
    allowed = allowance(one)
    if one.jumps:  # the certificate's error is then the very gap that is looked for, and excuses nothing of it
        allowed, statement = 0.0, f"{statement}, for the score changes where it has no gradient"
    return Finding(abs(total - one.change), allowed, statement, ((name, rounded(one.values)),))
