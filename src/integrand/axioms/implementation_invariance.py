"""Implementation invariance: networks that compute the same get the same attributions.

    f(x) = g(x) for every x   =>   a(f) = a(g)

Section 2.2 of the paper. Gradients obey the chain rule, so they do not see how a function is computed; methods that hand
discrete differences back from layer to layer (DeepLift, LRP) do: relu(relu(x1) - 1 - relu(x2)) and
relu(relu(x1 - 1) - relu(x2)) are one function, and get (1.5, -0.5) and (2, -1) at (3, 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..arrays import Floats
from ..methods.method import Method
from .evidence import AxiomCase, ExplainedCase, Finding, allowance, explain_case, rounded, same, values_of
from .own_model import OwnExample, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NAME = "implementation-invariance"

RULE = "networks that compute the same get the same attributions"


def cases() -> SearchStrategy[AxiomCase]:
    """Draw pairs of small networks, one rewritten from the other."""
    from .search_networks import equivalent

    return equivalent()


def premise(case: AxiomCase, points: Floats) -> bool:
    """Whether the two networks have the same values at the points."""
    return same(*values_of(case, points))


def judge(method: Method, case: AxiomCase) -> Finding:
    """Compare the attributions of two small networks that compute the same."""
    both = explain_case(method, case)
    return _finding(both["f"], both["g"], "f", "g")


def on_model(method: Method, own: OwnExample) -> Iterator[Trial]:
    """Compare the attributions of the model with those of the user's equivalent one, or of wrappers that compute the same."""
    one = own.explain(method)
    for name, other in own.equivalents():
        finding = _finding(one, own.explain(method, other), "the model", name)
        if finding.broken:  # rounding of the input may put units on the other side of their kinks
            finding = replace(finding, allowed=finding.allowed + own.rounding_change(method))
        yield Trial(finding)


def _finding(first: ExplainedCase, second: ExplainedCase, name: str, other: str) -> Finding:
    gap = float((first.values - second.values).abs().sum())
    statement = f"{name} and {other} compute the same; their attributions differ by {gap:.6g} in all"
    shown = ((name, rounded(first.values)), (other, rounded(second.values)))
    return Finding(gap, allowance(first, second), statement, shown)
