"""Sensitivity(b), or dummy: what the score does not depend on gets nothing.

    F does not depend on feature i   =>   a_i = 0

Section 2.1 of the paper, from Friedman's work on cost sharing. "Does not depend" is said of the function, not of its
code: an input that goes through f - g, where f and g compute the same, is a dummy as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..methods import Method
from ._evidence import Case, Explained, Finding, allowance, explain_case, rounded
from ._network import Floats
from ._own import Own, Trial
from ._search import same, values_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NAME = "sensitivity-b"
RULE = "a feature that the score does not depend on gets nothing"


def cases() -> SearchStrategy[Case]:
    """Small networks with inputs that do nothing."""
    from ._strategies import with_dummies

    return with_dummies()


def premise(case: Case, points: Floats) -> bool:
    """Moving the dummies changes nothing."""
    moved = points.copy()
    moved[:, list(case.features)] = np.random.default_rng(2).uniform(-4, 4, (len(points), len(case.features)))
    return same(values_of(case, points)[0], values_of(case, moved)[0])


def judge(method: Method, case: Case) -> Finding:
    """What the dummies get."""
    one = explain_case(method, case)["f"]
    names = " and ".join(f"x{i + 1}" for i in case.features)
    return _finding(one, torch.tensor(case.features), f"f does not depend on {names}", "f")


def on_model(method: Method, own: Own) -> Iterator[Trial]:
    """Features that the user names, or that no probe moves the score by."""
    dummies, how = own.dummies()
    if not dummies:
        return
    one = own.explain(method)
    for part in dummies:
        said = f"the score does not depend on {own.name_of(part)}{how}"
        yield Trial(_finding(one, own.features_of(part), said, "the model"), {"dummy": [part]})


def _finding(one: Explained, where: Tensor, said: str, name: str) -> Finding:
    share = float(one.values[where].abs().sum())
    statement = f"{said}; attributed there: {share:.6g}"
    return Finding(share, allowance(one), statement, ((name, rounded(one.values)),))
