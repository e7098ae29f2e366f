"""Independent references: closed forms, tanh-sinh quadrature, a naive double loop, and ReLU networks unit by unit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

Along = Callable[[np.ndarray], np.ndarray]


def integral(function: Along) -> float:
    """Tanh-sinh quadrature over [0, 1], which takes a logarithm at an end in its stride."""
    u = np.arange(-4.2, 4.2, 1 / 64)
    s = 1 / (1 + np.exp(-np.pi * np.sinh(u)))
    weight = np.pi * np.cosh(u) * s * (1 - s) / 64
    return float(np.sum(weight * function(s)))


def naive(f: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor, steps: int = 40) -> Tensor:
    """The paper's double sum at midpoints, with full Hessians, for one example."""
    delta = x - baseline
    grid = (torch.arange(steps, dtype=x.dtype) + 0.5) / steps
    total = torch.zeros(len(x), len(x), dtype=x.dtype)
    with sdpa_kernel(SDPBackend.MATH):
        return _summed(f, baseline, delta, grid, total)


def _summed(f, baseline: Tensor, delta: Tensor, grid: Tensor, total: Tensor) -> Tensor:
    for alpha in grid:
        for beta in grid:
            point = baseline + alpha * beta * delta
            hessian = torch.autograd.functional.hessian(lambda p: f(p[None])[0], point)
            gradient = torch.autograd.functional.jacobian(lambda p: f(p[None])[0], point)
            total += alpha * beta * hessian * delta[:, None] * delta + torch.diag(gradient * delta)
    return total / len(grid) ** 2


def from_line(gradient: Along, hessian: Along, delta: np.ndarray) -> np.ndarray:
    """The matrix from gradients (points, features) and Hessians (points, features, features) along the line."""
    out = np.zeros((len(delta), len(delta)))
    for i in range(len(delta)):
        for j in range(len(delta)):
            out[i, j] = delta[i] * delta[j] * integral(lambda s, i=i, j=j: -s * np.log(s) * hessian(s)[:, i, j])
        out[i, i] += delta[i] * integral(lambda s, i=i: -np.log(s) * gradient(s)[:, i])
    return out


Kink = tuple[float, Tensor, Tensor]
Cell = tuple[float, float, Tensor]


def walk(layers: Sequence[nn.Linear], x: Tensor, baseline: Tensor) -> tuple[list[Kink], list[Cell]]:
    """Along the line from one sign change of a unit to the next: kinks (place, normal, slope), cells (ends, gradient).

    A unit whose input is n . x + b, and through which the output has slope c, adds c n n' delta(n . x + b) to the Hessian.
    """
    layers = [copy.deepcopy(layer).requires_grad_(False) for layer in layers]
    delta = x - baseline
    place, kinks, cells = 0.0, [], []
    while place < 1:
        point = baseline + (place + 1e-12) * delta
        value, jacobian = point, torch.eye(len(x), dtype=x.dtype)
        normals, signs, nearest, which = [], [], 1.0, None
        for number, layer in enumerate(layers[:-1]):
            value, jacobian = layer(value), layer.weight @ jacobian
            normals.append(jacobian)
            speed = jacobian @ delta
            for unit in range(len(value)):
                step = float(-value[unit] / speed[unit]) if speed[unit] != 0 else np.inf
                if step > 0 and place + 1e-12 + step < nearest:
                    nearest, which = place + 1e-12 + step, (number, unit)
            sign = (value > 0).to(x.dtype)
            signs.append(sign)
            value, jacobian = value * sign, jacobian * sign[:, None]
        gradient = (layers[-1].weight @ jacobian)[0]
        cells.append((place, nearest, gradient))
        if which is not None:
            number, unit = which
            slope = layers[-1].weight
            for later in range(len(layers) - 2, number, -1):
                slope = (slope * signs[later]) @ layers[later].weight
            kinks.append((nearest, normals[number][unit], slope[0, unit]))
        place = nearest
    return kinks, cells


def relu_network(layers: Sequence[nn.Linear], x: Tensor, baseline: Tensor) -> Tensor:
    """The matrix of a ReLU network with one output, unit by unit."""
    kinks, cells = walk(layers, x, baseline)
    delta = x - baseline
    total = torch.zeros(len(x), len(x), dtype=x.dtype)
    for s, normal, slope in kinks:
        total += -s * np.log(s) * slope * torch.outer(normal * delta, normal * delta) / (normal @ delta).abs()
    for start, stop, gradient in cells:
        lengths = [s - s * np.log(s) if s > 0 else 0.0 for s in (start, stop)]
        total += torch.diag(gradient * delta) * (lengths[1] - lengths[0])
    return total


def sigmoid_of_relu_network(layers: Sequence[nn.Linear], x: Tensor, baseline: Tensor) -> Tensor:
    """The same for the sigmoid of the network, which is curved between the kinks."""
    kinks, cells = walk(layers, x, baseline)
    delta, net = x - baseline, nn.Sequential(*[m for layer in layers for m in (layer, nn.ReLU())][:-1])

    def sigmoid(s: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return net(baseline + torch.as_tensor(s)[:, None] * delta)[:, 0].sigmoid().numpy()

    total = torch.zeros(len(x), len(x), dtype=x.dtype)
    for s, normal, slope in kinks:
        p = float(sigmoid(np.array([s]))[0])
        total += -s * np.log(s) * p * (1 - p) * slope * torch.outer(normal * delta, normal * delta) / (normal @ delta).abs()
    for start, stop, gradient in cells:
        g, width = gradient * delta, stop - start

        def second(u: np.ndarray, start: float = start, width: float = width) -> np.ndarray:
            s = start + width * u
            p = sigmoid(s)
            return -s * np.log(s) * p * (1 - p) * (1 - 2 * p)

        def first(u: np.ndarray, start: float = start, width: float = width) -> np.ndarray:
            s = start + width * u
            p = sigmoid(s)
            return -np.log(s) * p * (1 - p)

        total += width * (integral(second) * torch.outer(g, g) + integral(first) * torch.diag(g))
    return total


def distance(a: Tensor, b: Tensor) -> float:
    """The largest relative L1 distance over the examples."""
    pairs = zip(a.double().reshape(len(a), -1), b.double().reshape(len(b), -1), strict=True)
    return max(float((p - q).abs().sum() / q.abs().sum()) for p, q in pairs)
