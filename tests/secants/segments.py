"""Segments by hand: a function, a line, and the attributions of each of its segments."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from integrand.functions import build
from integrand.operations import folded, trace
from integrand.secants import SecantProgram


def segments(
    function: Callable[..., Tensor], x: Tensor, baseline: Tensor, count: int, *, rows: Tensor | None = None, **options: object
) -> tuple[Tensor, Tensor]:
    """Attributions (count, ...) of equal segments of the line to the one example x, and the changes of the score on them."""
    built = build(function, x, **options)  # type: ignore[arg-type]
    rows = torch.zeros(count, dtype=torch.long) if rows is None else rows
    program = folded(trace(built, rows, open_rows=True))
    times = torch.arange(count + 1, dtype=x.dtype).reshape(-1, *[1] * (x.ndim - 1)) / count
    nodes = baseline + times * (x - baseline)
    prepared, _ = SecantProgram.prepare(program, (nodes[1:], rows))
    bound = prepared.bind(rows)
    first, last = bound.forward((nodes[:-1],)), bound.forward((nodes[1:],))
    (slopes,) = bound.back(first, last, (nodes[1:],))
    return slopes * (nodes[1:] - nodes[:-1]), bound.scores(last) - bound.scores(first)


def integrated(function: Callable[..., Tensor], x: Tensor, baseline: Tensor, count: int = 20_000) -> Tensor:
    """Integrated gradients of one example by midpoints, in plain torch."""
    times = (torch.arange(count, dtype=x.dtype) + 0.5) / count
    points = (baseline + times.reshape(-1, *[1] * (x.ndim - 1)) * (x - baseline)).requires_grad_(True)
    (gradient,) = torch.autograd.grad(function(points).sum(), points)
    return gradient.mean(0, keepdim=True) * (x - baseline)
