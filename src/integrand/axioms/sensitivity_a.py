"""Sensitivity(a): where a single feature makes the difference, it gets a share.

    x and x' differ in feature i alone and F(x) != F(x')   =>   a_i != 0

Section 2.1 of the paper. Gradients break it where the score has levelled off: F(x) = 1 - relu(1 - x) climbs from 0 to 1
between 0 and 2, and its gradient at 2 is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..arrays import Floats
from ..methods.method import Method
from .evidence import AxiomCase, ExplainedCase, Finding, explain_case, rounded
from .own_model import OwnExample, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NAME = "sensitivity-a"

RULE = "a feature that alone makes a difference gets a share"

NOTHING = 1e-9
"""Attributions below this share of the score's change count as zero: well above rounding in float64."""


def cases() -> SearchStrategy[AxiomCase]:
    """Draw small networks, with an input and a baseline that differ in one feature."""
    from .search_networks import one_feature_moves

    return one_feature_moves()


def premise(case: AxiomCase, points: Floats) -> bool:
    """Whether input and baseline differ in the case's feature and no other."""
    return [i for i, (a, b) in enumerate(zip(case.x, case.baseline, strict=True)) if a != b] == list(case.features)


def judge(method: Method, case: AxiomCase) -> Finding:
    """Compare the attribution of the only feature that differs with zero."""
    (feature,) = case.features
    return _finding(explain_case(method, case)["f"], torch.tensor([feature]), f"x{feature + 1}", "f")


def on_model(method: Method, own: OwnExample) -> Iterator[Trial]:
    """Judge inputs that differ from a baseline in one feature (or group): those with the largest effect on the score."""
    for part, x, start in own.single_feature_moves():
        one = own.explain(method, x=x, start=start)
        finding = _finding(one, torch.tensor([part]), own.name_of(part), "the model")
        yield Trial(finding, {"features": [part]}, x=x, start=start)


def _finding(one: ExplainedCase, where: Tensor, feature: str, name: str) -> Finding:
    share = float(one.values[where].abs().sum())
    change = abs(one.change)
    statement = f"only {feature} moves and the score changes by {one.change:.6g}; its attribution is {share:.6g}"
    shown = ((name, rounded(one.values)),)
    if share > NOTHING * change:
        # A share of about the size of its own error may as well be none: then nobody can tell.
        return Finding(0.0, float("nan") if not share > one.slack else one.slack, statement, shown)
    return Finding(change, one.slack, statement, shown)
