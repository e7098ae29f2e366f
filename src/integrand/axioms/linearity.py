"""Linearity: the attributions of a weighted sum of networks are the weighted sum of their attributions.

    a(u f + v g) = u a(f) + v a(g)

Section 3 of the paper (proposition 2): attributions should not break the linearity that a model has. The sum is one more
unit on top of both networks, each as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..arrays import Floats
from ..methods.method import Method
from .evidence import AxiomCase, ExplainedCase, Finding, allowance, explain_case, rounded, same, values_of
from .own_model import OwnExample, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NAME = "linearity"

RULE = "a weighted sum of networks gets the weighted sum of their attributions"


def cases() -> SearchStrategy[AxiomCase]:
    """Draw two small networks and their weighted sum."""
    from .search_networks import weighted_sums

    return weighted_sums()


def premise(case: AxiomCase, points: Floats) -> bool:
    """Whether the third network's values are the weighted sum of the values of the other two."""
    f, g, total = values_of(case, points)
    return same(case.weights[0] * f + case.weights[1] * g, total)


def judge(method: Method, case: AxiomCase) -> Finding:
    """Compare the attributions of a weighted sum of networks with the weighted sum of their attributions."""
    by_name = explain_case(method, case)
    return _finding(by_name["f"], by_name["g"], by_name["sum"], (case.weights[0], case.weights[1]), ("f", "g"))


def on_model(method: Method, own: OwnExample) -> Iterator[Trial]:
    """Judge weighted sums of the score and another output of the model, or a random linear function of the input."""
    one = own.explain(method)
    for name, other, total, weights in own.weighted_sums():
        parts = own.explain(method, other), own.explain(method, total)
        yield Trial(_finding(one, *parts, weights, ("the model", name)))


def _finding(
    f: ExplainedCase, g: ExplainedCase, total: ExplainedCase, weights: tuple[float, float], names: tuple[str, str]
) -> Finding:
    u, v = weights
    wanted = u * f.values + v * g.values
    gap = float((total.values - wanted).abs().sum())
    formula = f"{u:g} times {names[0]} {'plus' if v >= 0 else 'minus'} {abs(v):g} times {names[1]}"
    statement = f"the attributions of {formula} differ from the same sum of their attributions by {gap:.6g} in all"
    shown = ((formula, rounded(total.values)), ("both, summed with these weights", rounded(wanted)))
    return Finding(gap, allowance(f, g, total, weights=(u, v, 1.0)), statement, shown)
