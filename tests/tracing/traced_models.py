"""What the tests of tracing share."""

from __future__ import annotations

import torch

from integrand.backends.torch_function import build
from integrand.tracing.backward import sweep, vjp
from integrand.tracing.tracer import trace

D = torch.float64


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def program_of(model, x, **options):
    """The program of a model at x."""
    function = build(model, x, **options)
    return trace(function, torch.arange(function.examples))


def gradient(program, leaves):
    """The gradient of the summed scores, operation by operation."""
    values = program.run(leaves)
    return sweep(
        program, torch.ones_like(program.scores(values)), lambda operation, arrived: vjp(operation, values, arrived), values
    )


def names(program):
    return [operation.name for operation in program.operations]
