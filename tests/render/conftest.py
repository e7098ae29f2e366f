"""Results to draw, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from integrand import Attribution, Certificate, ExampleCertificate, Status


def certified(**changes: Any) -> ExampleCertificate:
    fields: dict[str, Any] = {
        "score": 0.94,
        "baseline_score": 0.01,
        "residual": 1e-4,
        "magnitude": 2.5,
        "error": 0.004,
        "tol": 0.01,
        "gradients": 63,
        "forwards": 4,
        "status": Status.CONVERGED,
        "rule": "midpoint",
        "precision": "float32",
        "target": "output [3] (logit)",
    }
    return ExampleCertificate(**fields | changes)


@pytest.fixture
def certificate() -> Callable[..., ExampleCertificate]:
    """A certificate with some fields changed."""
    return certified


@pytest.fixture
def attribution() -> Callable[..., Attribution]:
    """A result with given values: ``attribution(values, batched=True, **certificate fields)``."""

    def make(values: Any, batched: bool = True, **changes: Any) -> Attribution:
        first = values if isinstance(values, torch.Tensor) else next(iter(values.values()))
        count = len(first) if batched else 1
        return Attribution(values, Certificate((certified(**changes),) * count), batched, {"method": "integrated gradients"})

    return make
