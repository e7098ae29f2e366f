"""Calling the exact integration as the front door would, and references that know nothing of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from integrand.attribution import columns_of
from integrand.backends.torch_function import build
from integrand.evaluation.chunks import Chunks
from integrand.evaluation.evaluator import Evaluator
from integrand.evaluation.progress import Reporter
from integrand.functions.model_state import undisturbed
from integrand.integration.linear_regions import Exact, integrate_exactly
from integrand.integration.region_network import Refusal
from integrand.paths.base import Piece, segment
from integrand.trees import flatten

D = torch.float64
Model = Callable[..., Tensor]


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def evaluator_of(
    model: Model, x: Any, baselines: Sequence[Any], *, groups: Tensor | None = None, pieces: Any = None, **options: Any
) -> Evaluator:
    """What integrated_gradients would build for these options."""
    function = build(model, x, **options)
    starts = [flatten(baseline)[1] for baseline in baselines]
    if not function.batched:
        starts = [tuple(leaf[None] for leaf in start) for start in starts]
    lines: list[Piece] = pieces or [segment(start, function.inputs, 1 / len(starts)) for start in starts]
    chunks = Chunks.start(torch.device("cpu"), rows=None, memory=None, input_bytes=512)
    columns = None if groups is None else columns_of((groups,), function.inputs)[0]
    return Evaluator(function, lines, chunks, Reporter(False), columns)


def exactly(
    model: Model,
    x: Any,
    *baselines: Any,
    tol: float = 0.01,
    budget: int = 4000,
    memory: int | None = None,
    **options: Any,
) -> list[Exact | Refusal]:
    """The exact integral of every example, or why there is none."""
    with undisturbed(model):
        starts = baselines or (torch.zeros_like(x),)
        evaluator = evaluator_of(model, x, starts, **options)
        found = integrate_exactly(evaluator, tol, budget=budget, memory=memory)
    return [found[i] for i in range(evaluator.function.examples)]


def values(model: Model, x: Any, *baselines: Any, **options: Any) -> Tensor:
    """The values of examples none of which is refused, (examples, features)."""
    found = exactly(model, x, *baselines, **options)
    assert all(isinstance(one, Exact) for one in found), found
    return torch.stack([one.values for one in found if isinstance(one, Exact)])


def reason(model: Model, x: Any, *baselines: Any, **options: Any) -> str:
    """Why the first example is refused."""
    (first, *_) = exactly(model, x, *baselines, **options)
    assert isinstance(first, Refusal), first
    return first.reason


def bisected(model: Model, x: Tensor, baseline: Tensor) -> np.ndarray:
    """The kinks on one example's line, in float64, by halving wherever the gradient of the outputs is not constant."""
    outputs = model(x)
    mix = drawn(*outputs.shape[1:], seed=99)

    def gradients(t: np.ndarray) -> Tensor:
        parts = []
        for some in np.array_split(t, max(1, len(t) // 2000)):
            at = torch.as_tensor(some).reshape(-1, *[1] * (x.ndim - 1))
            points = (baseline + at * (x - baseline)).requires_grad_(True)
            parts.append(torch.autograd.grad((model(points) * mix).sum(), points)[0].flatten(1))
        return torch.cat(parts)

    edges = np.linspace(0, 1, 513)  # a unit that turns on and off again within one goes unseen
    low, high = edges[:-1], edges[1:]
    kinks = [edges]
    for _ in range(40):
        width = high - low
        looked = [gradients(low + share * width) for share in (0.0, 0.353, 0.718, 1.0)]
        size = sum(part.abs().sum(1) for part in looked)
        same = sum((part - looked[1]).abs().sum(1) for part in looked) <= 1e-10 * size + 1e-300
        low, high = low[~same.numpy()], high[~same.numpy()]
        if not len(low):
            break
        middle = (low + high) / 2
        kinks.append(middle)
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    return np.unique(np.concatenate([*kinks, low, high]))


def reference(
    model: Model, x: Tensor, baseline: Tensor, score: str = "logit", target: int | None = None, *, unsigned: bool = False
) -> Tensor:
    """One example's integrated gradients, (1, features): Gauss-Legendre between kinks found by bisection.

    With ``unsigned``, the integral of their magnitudes, of which rounding is a share however much cancels.
    """
    edges = bisected(model, x, baseline)
    width = np.diff(edges)
    nodes, weights = np.polynomial.legendre.leggauss(1 if score == "logit" else 6)
    times = (edges[:-1, None] + width[:, None] * (nodes + 1) / 2).ravel()
    shares = (width[:, None] * weights / 2).ravel()
    total = torch.zeros(1, x[0].numel(), dtype=D)
    for some in np.array_split(np.arange(len(times)), max(1, len(times) // 2000)):
        at = torch.as_tensor(times[some]).reshape(-1, *[1] * (x.ndim - 1))
        points = (baseline + at * (x - baseline)).requires_grad_(True)
        out = model(points)
        if score != "logit":
            out = out.softmax(1) if score == "probability" else out.log_softmax(1)
        picked = out.reshape(len(some)) if target is None else out[:, target]
        gradient = torch.autograd.grad(picked.sum(), points)[0] * (x - baseline)
        total += torch.as_tensor(shares[some]) @ (gradient.abs() if unsigned else gradient).flatten(1)
    return total


def off(found: Tensor, expected: Tensor) -> float:
    """The largest relative L1 error over the examples."""
    error = (found.double() - expected.double()).flatten(1).abs().sum(1)
    return float((error / expected.double().flatten(1).abs().sum(1).clamp_min(1e-300)).max())
