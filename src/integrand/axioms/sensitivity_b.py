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

from ..methods.method import Method
from .evidence import AxiomCase, ExplainedCase, Finding, allowance, explain_case, rounded
from .formula_network import Floats
from .own_model import Own, Trial, dummies
from .search import same, values_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NAME = "sensitivity-b"
RULE = "a feature that the score does not depend on gets nothing"

NAMED = 8
"""Dummies that a note names, at the most."""


def cases() -> SearchStrategy[AxiomCase]:
    """Small networks with inputs that do nothing."""
    from .search import with_dummies

    return with_dummies()


def premise(case: AxiomCase, points: Floats) -> bool:
    """Moving the dummies changes nothing."""
    moved = points.copy()
    moved[:, list(case.features)] = np.random.default_rng(2).uniform(-4, 4, (len(points), len(case.features)))
    return same(values_of(case, points)[0], values_of(case, moved)[0])


def judge(method: Method, case: AxiomCase) -> Finding:
    """What the dummies get."""
    one = explain_case(method, case)["f"]
    names = " and ".join(f"x{i + 1}" for i in case.features)
    return _finding(one, torch.tensor(case.features), f"f does not depend on {names}", "f")


def on_model(method: Method, own: Own) -> Iterator[Trial]:
    """Features that the user names, or that no probe moves the score by."""
    found, how = dummies(own)
    if not found:
        return
    one = own.explain(method)
    names = [own.name_of(dummy.part) for dummy in found]
    note = f"taken for dummies{how}: {', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''}"
    for dummy in found:
        said = f"the score does not depend on {own.name_of(dummy.part)}{how}"
        finding = _finding(one, torch.tensor([dummy.part]), said, "the model", dummy.missed)
        yield Trial(finding, {"dummy": [dummy.part]}, note)


def _finding(one: ExplainedCase, where: Tensor, said: str, name: str, missed: float = 0.0) -> Finding:
    share, allowed = float(one.values[where].abs().sum()), allowance(one)
    statement = f"{said}; attributed there: {share:.6g}"
    if share > allowed:  # up to what the probes may have missed, it may be no dummy after all
        allowed = allowed + missed if share > allowed + missed else float("nan")
    return Finding(share, allowed, statement, ((name, rounded(one.values)),))
