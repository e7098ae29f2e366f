"""Models whose attributions are known, and methods that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from integrand import Attribution
from integrand.certificate import Promise, promised
from integrand.errors import ModelError
from integrand.methods import Found, Method, Problem
from tests.clock import Clock

WEIGHTS = (3.0, -2.0, 1.0, 0.25)
SECONDS = 1 / 64
"""What every method takes."""


@pytest.fixture(scope="module", autouse=True)
def clock() -> Iterator[None]:
    """How long the times are that are printed, and whether they fit, does not hang on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("integrand.analysis.method_comparison.time", Clock(tick=SECONDS))
        yield


class Linear(nn.Module):
    """F(x) = 3 x0 - 2 x1 + x2 + x3 / 4 + 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(len(WEIGHTS), 1).double()
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([WEIGHTS]))
            self.layer.bias.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[:, 0]


@dataclass(frozen=True)
class Refuses(Method):
    """Raises what it is told to."""

    name: ClassVar[str] = "refuses"
    promises: ClassVar[tuple[Promise, ...]] = promised()
    error: Exception = ModelError("no rule for the operation <b>fancy</b>")  # noqa: RUF009 - only raised

    def attribute(self, problem: Problem) -> Attribution:
        raise self.error


@dataclass(frozen=True)
class Constant(Method):
    """One number for every feature."""

    name: ClassVar[str] = "constant"
    promises: ClassVar[tuple[Promise, ...]] = promised(completeness="one number for all")
    value: float = 0.5

    def attribute(self, problem: Problem) -> Attribution:
        values = torch.full((problem.examples, problem.features), self.value, dtype=torch.float64)
        return problem.dress(Found(values, self.promises))


@pytest.fixture
def linear() -> Linear:
    return Linear().eval()
