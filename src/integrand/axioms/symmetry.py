"""Symmetry-preserving: features that the score treats alike, and that are alike, get the same.

    F(.., x_i, .., x_j, ..) = F(.., x_j, .., x_i, ..) for all x,  x_i = x_j,  x'_i = x'_j   =>   a_i = a_j

Section 4 of the paper; theorem 1: of all path methods, only the straight line keeps it on every function.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..arrays import Floats
from ..methods.method import Method
from .evidence import AxiomCase, ExplainedCase, Finding, allowance, explain_case, rounded, same, values_of
from .own_model import OwnExample, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NAME = "symmetry"

RULE = "features that are alike, and that the score treats alike, get the same"


def cases() -> SearchStrategy[AxiomCase]:
    """Draw small networks that do not change when two inputs are swapped."""
    from .search_networks import symmetric

    return symmetric()


def premise(case: AxiomCase, points: Floats) -> bool:
    """Whether swapping the two inputs changes nothing, and they are equal in the input and in the baseline."""
    i, j = case.features
    swapped = points.copy()
    swapped[:, [i, j]] = points[:, [j, i]]
    alike = case.x[i] == case.x[j] and case.baseline[i] == case.baseline[j]
    return alike and same(values_of(case, points)[0], values_of(case, swapped)[0])


def judge(method: Method, case: AxiomCase) -> Finding:
    """Compare the attributions of the two inputs that are alike."""
    i, j = case.features
    one = explain_case(method, case)["f"]
    return _finding(one, torch.tensor([i]), torch.tensor([j]), (f"x{i + 1}", f"x{j + 1}"), "f")


def on_model(method: Method, own: OwnExample) -> Iterator[Trial]:
    """Judge F(x) + F(x with two features swapped), at an input where both features have the mean of their values."""
    for first, second, model, x, start in own.symmetrised():
        one = own.explain(method, model, x=x, start=start)
        names = own.name_of(first), own.name_of(second)
        where = torch.tensor([first]), torch.tensor([second])
        finding = _finding(one, *where, names, "F(x) + F(x swapped)")
        yield Trial(finding, {"features": [first, second]}, x=x, start=start)


def _finding(one: ExplainedCase, first: Tensor, second: Tensor, features: tuple[str, str], name: str) -> Finding:
    gap = float((one.values[first] - one.values[second]).abs().sum())
    statement = f"{features[0]} and {features[1]} are alike for the score and in value; their attributions differ by {gap:.6g}"
    return Finding(gap, allowance(one), statement, ((name, rounded(one.values)),))
