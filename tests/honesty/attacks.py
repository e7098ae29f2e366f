"""Families of functions that were made to fool an error estimate, each with its exact attributions.

    python -m tests.honesty.attacks                      # the table of docs/method.md, some minutes on one core
    python -m tests.honesty.attacks --only twins --count 400 --seed 5

A family is a function from a random generator to a :class:`Trial`; the attributions are known in closed form, or from a grid
that is far finer than anything the engine looks at. Nothing here was drawn from outside: other draws give other functions.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import integrand as ig

from .honest import Claim, relative_error

Function = Callable[[Tensor], Tensor]
CELLS = 4096
"""Of a reference that is not known in closed form."""

FEWEST_CELLS = 128
"""Cells that the reference of a network starts with."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A score, where to explain it, and what the answer is.

    Attributes:
        name: the kind of function.
        function: from rows (N, ...) to scores (N,).
        x: (1, ...) in float64, as is the baseline.
        baseline: (1, ...).
        exact: (d,) its attributions.
    """

    name: str
    function: Function
    x: Tensor
    baseline: Tensor
    exact: np.ndarray


def gradients(function: Function, x: Tensor, baseline: Tensor, times: Tensor) -> Tensor:
    """Gradient times velocity at some times, (N, d)."""
    points = (baseline + times.view(-1, *[1] * (x.ndim - 1)) * (x - baseline)).requires_grad_(True)
    (found,) = torch.autograd.grad(function(points).sum(), points)
    return (found * (x - baseline)).flatten(1)


def smooth_reference(function: Function, x: Tensor, baseline: Tensor, cells: int = CELLS) -> np.ndarray:
    """The attributions by three Gauss nodes in each of many cells."""
    nodes, weights = (torch.tensor(part / 2) for part in np.polynomial.legendre.leggauss(3))
    times = ((torch.arange(cells)[:, None] + 0.5 + nodes) / cells).flatten()
    return (gradients(function, x, baseline, times).view(cells, 3, -1) * weights[:, None]).sum((0, 1)).numpy() / cells


def network_reference(function: Function, x: Tensor, baseline: Tensor, accuracy: float = 1e-4) -> np.ndarray:
    """The attributions of a network, whose gradients have no needles: cells are halved until that changes hardly anything."""
    cells, coarse = FEWEST_CELLS, smooth_reference(function, x, baseline, FEWEST_CELLS // 2)
    while True:
        fine = smooth_reference(function, x, baseline, cells)
        if np.abs(fine - coarse).sum() <= accuracy * np.abs(fine).sum():
            return fine
        cells, coarse = 2 * cells, fine


def kinked_reference(function: Function, x: Tensor, baseline: Tensor) -> np.ndarray:
    """The attributions of a piecewise linear score: cells in which the gradients differ are halved until they are nothing."""
    starts, width, total = torch.arange(CELLS, dtype=torch.float64) / CELLS, 1 / CELLS, torch.zeros(x.shape[1]).double()
    while len(starts) and width > 2.0**-44:
        # A quarter of a cell inside, as a kink may be just at a node.
        before, middle, after = (gradients(function, x, baseline, starts + s * width) for s in (0.01, 0.47, 0.99))
        size = before.abs().sum(1) + after.abs().sum(1) + 1e-300
        same = ((before - after).abs().sum(1) + (before - middle).abs().sum(1)) <= 1e-9 * size
        total += width * middle[same].sum(0)
        starts, width = torch.cat([starts[~same], starts[~same] + width / 2]), width / 2
    return total.numpy()


def singular_reference(function: Function, x: Tensor, baseline: Tensor, accuracy: float = 1e-5) -> np.ndarray:
    """The attributions where the start is singular: panels from t = 1e-40 on, each halved until its halves agree with it."""
    order, batch = 7, 64
    nodes, weights = (torch.tensor(part / 2) for part in np.polynomial.legendre.leggauss(order))
    grid = np.r_[0.0, np.geomspace(1e-40, 1 / 16, 160), np.linspace(1 / 16, 1, 16)[1:]]
    starts, widths = torch.tensor(grid[:-1]), torch.tensor(np.diff(grid))

    def integrals(starts: Tensor, widths: Tensor) -> Tensor:
        out = []
        for start, width in zip(starts.split(batch), widths.split(batch), strict=True):
            times = start[:, None] + width[:, None] * (0.5 + nodes)
            terms = gradients(function, x, baseline, times.flatten()).view(*times.shape, -1)
            out.append(torch.einsum("nkd,k,n->nd", terms, weights, width))
        return torch.cat(out)

    values, total = integrals(starts, widths), torch.zeros(x.numel(), dtype=torch.float64)
    while len(starts):
        halves = torch.stack([starts, starts + widths / 2], 1).flatten(), (widths / 2).repeat_interleave(2)
        parts = integrals(*halves)
        sums = parts.view(len(starts), 2, -1).sum(1)
        limit = accuracy * (total + sums.sum(0)).abs().sum() * torch.clamp(widths, min=0.003)
        done = ((sums - values).abs().sum(1) <= limit) | (widths < 1e-16 * starts)
        total += sums[done].sum(0)
        again = (~done).repeat_interleave(2)
        starts, widths, values = halves[0][again], halves[1][again], parts[again]
    return total.numpy()


# ---- shapes on a line, each with its derivative's integral known: phi(1) - phi(0) ---------------------------------------


def shapes(rng: np.random.Generator) -> tuple[str, Function]:
    """One of the shapes that a feature may go through as it runs from 0 to 1."""
    c, k = rng.uniform(0.05, 0.95), float(rng.integers(1, 200))
    steep, power = math.exp(rng.uniform(math.log(3), math.log(3000))), rng.uniform(1.1, 8)
    width, a, b = rng.uniform(0.01, 0.3), *np.sort(rng.uniform(0, 1, 2))
    every: dict[str, Function] = {
        "sine": lambda z: torch.sin(2 * math.pi * k * z) + z,
        "cosine": lambda z: torch.cos(k * z) + 2 * z,
        "sigmoid": lambda z: torch.sigmoid(steep * (z - c)),
        "tanh in a slope": lambda z: z + torch.tanh(steep * (z - c)),
        "power": lambda z: z.clamp_min(1e-300) ** power,
        "bell in a slope": lambda z: z + torch.exp(-(((z - c) / width) ** 2)),
        "error function": lambda z: torch.erf((z - c) / width),
        "kink": lambda z: torch.relu(z - c),
        "valley": lambda z: (z - c).abs(),
        "ramp": lambda z: torch.relu(z - a) - torch.relu(z - b),
        "ramp in a slope": lambda z: 0.5 * z + torch.relu(z - a) - torch.relu(z - b),
        "saturating": lambda z: 1 - torch.relu(1 - z / c),
        "exponential": lambda z: torch.expm1(min(steep, 30.0) * z) / math.expm1(min(steep, 30.0)),
        "logarithm": lambda z: torch.log1p(steep * z),
        "softplus": lambda z: nn.functional.softplus(steep * (z - c)) / steep,
        "arc tangent": lambda z: torch.atan(steep * (z - c)),
        "chirp": lambda z: torch.sin(min(k, 60.0) * z * z) + z,
        "staircase": lambda z: sum(torch.sigmoid(steep * (z - j / 7)) for j in range(1, 7)),
        "rational": lambda z: z / (z + width),
        "polynomial": lambda z: z**3 - 1.5 * z**2 + 0.7 * z,
        "gelu": lambda z: nn.functional.gelu(steep * (z - c)) / steep,
        "root": lambda z: torch.sqrt(z + width / 100),
        "beat": lambda z: torch.sin(k * z) * torch.cos(0.9 * k * z) + z,
        "capped": lambda z: torch.clamp(z, a, b),
        "leaky": lambda z: nn.functional.leaky_relu(z - c, 0.1),
        "hard sigmoid": lambda z: nn.functional.hardsigmoid(min(steep, 100.0) * (z - c)),
        "swish": lambda z: nn.functional.silu(steep * (z - c)) / steep,
    }
    name = list(every)[int(rng.integers(len(every)))]
    return name, every[name]


def _change(phi: Function) -> float:
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    return float(torch.diff(phi(ends)))


def twins(rng: np.random.Generator) -> Trial:
    """phi(x0) - phi(x1) on the diagonal: the score never changes, whatever the gradients do."""
    name, phi = shapes(rng)
    change = _change(phi)
    one = torch.ones(1, 2, dtype=torch.float64)
    return Trial(name, lambda rows: phi(rows[:, 0]) - phi(rows[:, 1]), one, 0 * one, np.array([change, -change]))


def narrow_shapes(rng: np.random.Generator) -> tuple[str, Function]:
    """A shape down to 0.003 wide, on a plain rest."""
    c, d, width = *rng.uniform(0.02, 0.98, 2), math.exp(rng.uniform(math.log(0.003), math.log(0.3)))
    size, k, phase = rng.uniform(0.2, 3), float(rng.integers(1, 60)), rng.uniform(0, 6.28)
    rests: tuple[Function, ...] = (lambda z: 0 * z, lambda z: z, lambda z: z * z, lambda z: torch.sin(3 * z))
    rest = rests[int(rng.integers(4))]
    every: dict[str, Function] = {
        "bump": lambda z: size * torch.exp(-(((z - c) / width) ** 2)),
        "step": lambda z: size * torch.sigmoid((z - c) / width * 4),
        "two steps": lambda z: size * torch.sigmoid((z - c) / width * 4) + torch.sigmoid((z - d) / width * 4),
        "ramp": lambda z: size * (torch.relu(z - d) - torch.relu(z - d - width)) / width,
        "wave": lambda z: size * torch.sin(2 * math.pi * k * z + phase),
        "packet": lambda z: size * torch.sin(2 * math.pi * k * z) * torch.exp(-(((z - c) / 0.1) ** 2)),
        "arc tangent": lambda z: torch.atan((z - c) / width),
        "tent": lambda z: size * torch.relu(1 - (z - c).abs() / width),
        "exponential": lambda z: torch.exp((z - 1) / width),
    }
    name = list(every)[int(rng.integers(len(every)))]
    return name, lambda z: rest(z) + every[name](z)


def narrow_twins(rng: np.random.Generator) -> Trial:
    """Twins of narrow shapes."""
    name, phi = narrow_shapes(rng)
    change = _change(phi)
    one = torch.ones(1, 2, dtype=torch.float64)
    return Trial(name, lambda rows: phi(rows[:, 0]) - phi(rows[:, 1]), one, 0 * one, np.array([change, -change]))


def in_step(rng: np.random.Generator) -> Trial:
    """Hundreds of features that switch together, and whose weights add up to zero: the score hardly moves."""
    d, steep = int(rng.choice([256, 512, 1024])), math.exp(rng.uniform(math.log(5), math.log(400)))
    centres = torch.tensor(rng.uniform(0.02, 0.98) + rng.choice([0, 0, 0.01, 0.05]) * rng.normal(size=d))
    weights, rest = torch.tensor(rng.normal(size=(2, d)))
    weights, rest = weights - weights.mean() * rng.choice([1, 1, 0.9]), (rest - rest.mean()) * rng.choice([0, 0, 0.1, 1])
    switch = (torch.sigmoid, torch.tanh, torch.erf)[int(rng.integers(3))]
    one = torch.ones(1, d, dtype=torch.float64)

    def function(rows: Tensor) -> Tensor:
        return switch(steep * (rows - centres)) @ weights + rows @ rest

    change = switch(steep * (one[0] - centres)) - switch(-steep * centres)
    return Trial(f"{d} x {steep:.0f}", function, one, 0 * one, (change * weights + rest).numpy())


def hard_feature(rng: np.random.Generator) -> Trial:
    """phi(x0) beside a smooth rest."""
    name, phi = shapes(rng)
    weights = torch.tensor(rng.normal(size=3))
    one = torch.ones(1, 4, dtype=torch.float64)

    def function(rows: Tensor) -> Tensor:
        return phi(rows[:, 0]) + (rows[:, 1:] ** 2) @ weights

    return Trial(name, function, one, 0 * one, np.array([_change(phi), *weights.tolist()]))


def four_relus(rng: np.random.Generator) -> Trial:
    """Four ReLUs with kinks anywhere on the line: of one feature each, two of two features each, twins, or of all features.

    The sine, whose weight is zero, keeps linear regions out: refinement has to do it.
    """
    kind = ("apart", "pairs", "twins", "mixed")[int(rng.integers(4))]
    heads = torch.tensor(rng.choice([-1.0, 1.0], 4) if rng.random() < 0.5 else rng.normal(size=4))
    kinks, signs = torch.tensor(rng.uniform(0, 1, 4)), torch.tensor(rng.choice([-1.0, 1.0], 4))
    if kind == "twins" or rng.random() < 0.5:
        heads[1], heads[3] = -heads[0], -heads[2]
    if kind == "twins":
        signs[1:], kinks[2:], heads[2:] = signs[0], kinks[:2], -heads[:2]
    matrix = torch.eye(4, dtype=torch.float64)
    if kind in ("pairs", "twins"):
        matrix = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]], dtype=torch.float64)
    elif kind == "mixed":
        matrix = torch.tensor(rng.normal(size=(4, 4)))
    along = matrix.sum(1)  # of each unit, from 0 to 1 of the path
    bias = -kinks * along
    one = torch.ones(1, matrix.shape[1], dtype=torch.float64)

    def function(rows: Tensor) -> Tensor:
        return torch.relu(signs * (rows @ matrix.T + bias)) @ heads + 0 * torch.sin(rows).sum(1)

    ends = torch.relu(signs * (along + bias)) - torch.relu(signs * bias)
    exact = ((heads * ends / along)[:, None] * matrix).sum(0)
    return Trial(kind, function, one, 0 * one, exact.numpy())


class CloseReLUs(nn.Module):
    """Two pairs of ReLUs whose kinks are closer than the grid, and which cancel beyond them as a rule."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        d, gap = int(rng.choice([1, 2, 4, 8, 16])), math.exp(rng.uniform(math.log(0.001), math.log(0.1)))
        first, second = rng.uniform(0.02, 0.9, 2)
        weights = rng.normal(size=(4, d))
        kind = int(rng.integers(3))
        if kind == 1:
            weights[1], weights[3] = weights[0], weights[2]
        elif kind == 2:
            weights = weights[:1] * rng.choice([1, 1, -1], (4, 1))
        along, heads = weights.sum(1), rng.choice([-1.0, 1.0], 4)
        if rng.random() < 0.7:
            heads[[1, 3]] = -heads[[0, 2]] * np.abs(along[[0, 2]] / along[[1, 3]])
        kinks = np.array([first, first + gap, second, second + gap * rng.uniform(0.5, 2)])
        self.units, self.head, self.skip = nn.Linear(d, 4), nn.Linear(4, 1), nn.Linear(d, 1, bias=False)
        skip = rng.normal(size=(1, d)) * rng.choice([0, 0, 0.3])
        given = {"units.weight": weights, "units.bias": -kinks * along, "head.weight": heads[None], "skip.weight": skip}
        self.double().load_state_dict({**self.state_dict(), **{name: torch.tensor(part) for name, part in given.items()}})
        self.requires_grad_(False)

    def forward(self, rows: Tensor) -> Tensor:
        return (self.head(self.units(rows).relu()) + self.skip(rows))[:, 0]


def close_relus(rng: np.random.Generator) -> Trial:
    """Four ReLUs with kinks closer than the grid, which linear regions can follow."""
    network = CloseReLUs(rng)
    one = torch.ones(1, network.units.in_features, dtype=torch.float64)
    return Trial(f"{one.shape[1]} features", network, one, 0 * one, kinked_reference(network, one, 0 * one))


def opposite_needles(rng: np.random.Generator, steepness: float = 3000.0) -> Trial:
    """A plain slope with two opposite steps in two features, at two places."""
    c, d = rng.uniform(0.02, 0.98, 2)
    one = torch.ones(1, 2, dtype=torch.float64)

    def step(z: Tensor, at: float) -> Tensor:
        return torch.sigmoid(steepness * (z - at))

    exact = np.array([1 + _change(lambda z: step(z, c)), 1 - _change(lambda z: step(z, d))])
    return Trial("needles", lambda r: r.sum(1) + step(r[:, 0], c) - step(r[:, 1], d), one, 0 * one, exact)


def flashes(rng: np.random.Generator) -> Trial:
    """A probability that flashes up between far lower values, moved by two features; a third one raises it at the end."""
    c, height, steep = rng.uniform(0.05, 0.9), rng.uniform(-3, 3), math.exp(rng.uniform(math.log(50), math.log(1000)))
    # At the first nodes the flash is what there is; below a floor of its own nothing could tell of it.
    bend, level = rng.uniform(0.002, 0.02), steep / 8 + rng.uniform(10, 100)
    one = torch.ones(1, 3, dtype=torch.float64)

    def ramp(z: Tensor) -> Tensor:
        return bend * nn.functional.softplus(z / bend)

    def function(rows: Tensor) -> Tensor:
        tent = height - steep * (ramp(c - rows[:, 0]) + ramp(rows[:, 1] - c))
        late = level * (rows[:, 2] ** 4 - 1) + 1
        return torch.stack([torch.logaddexp(tent, late), 0 * tent], 1).softmax(1)[:, 0]

    return Trial(f"steep {steep:.0f}", function, one, 0 * one, smooth_reference(function, one, 0 * one))


# ---- networks ---------------------------------------------------------------------------------------------------------

ACTIVATIONS = (nn.ReLU, nn.ReLU, nn.Tanh, nn.GELU, nn.Softplus, nn.Sigmoid, nn.SiLU, nn.LeakyReLU)


def _network(rng: np.random.Generator, sizes: list[int], activation: type[nn.Module], gain: float = 1.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layer = nn.Linear(before, after).double()
        layer.weight.data = torch.tensor(rng.normal(size=(after, before)) * gain * math.sqrt(2 / before))
        layer.bias.data = torch.tensor(rng.normal(size=after) * 0.3 * gain)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1]).requires_grad_(False)


def _trial(activation: type[nn.Module], function: Function, x: Tensor, baseline: Tensor, name: str = "") -> Trial:
    reference = kinked_reference if activation in (nn.ReLU, nn.LeakyReLU) else smooth_reference
    return Trial(name or activation.__name__, function, x, baseline, reference(function, x, baseline))


def ordinary(rng: np.random.Generator) -> Trial:
    """A multilayer perceptron with any activation, of any size."""
    d, depth, width = int(rng.choice([4, 16, 64])), int(rng.integers(1, 4)), int(rng.choice([8, 32, 64]))
    activation = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]
    network = _network(rng, [d, *[width] * depth, 1], activation, float(rng.choice([0.7, 1.0, 2.0])))
    x, start = torch.tensor(rng.normal(size=(1, d))), torch.tensor(rng.normal(size=(1, d)) * rng.choice([0.0, 1.0]))
    return _trial(activation, lambda rows: network(rows)[:, 0], x, start)


def ranking(rng: np.random.Generator) -> Trial:
    """g(u) - g(v), as networks that rank pairs are: what both sides share cancels in the score."""
    d, depth, width = int(rng.choice([3, 8, 32])), int(rng.integers(1, 4)), int(rng.choice([4, 16, 32]))
    activation = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]
    network = _network(rng, [d, *[width] * depth, 1], activation, float(rng.choice([0.7, 1.0, 2.0])))
    u = rng.normal(size=(1, d))
    v = u + rng.choice([0.01, 0.1, 1.0]) * rng.normal(size=(1, d))
    x = torch.tensor(np.concatenate([u, v], 1))
    return _trial(activation, lambda rows: (network(rows[:, :d]) - network(rows[:, d:]))[:, 0], x, torch.zeros_like(x))


def narrow(rng: np.random.Generator) -> Trial:
    """A deep ReLU network with few units a layer."""
    d, width, depth = int(rng.choice([5, 50, 500])), int(rng.choice([2, 3, 4, 6])), int(rng.integers(2, 6))
    network = _network(rng, [d, *[width] * depth, 1], nn.ReLU, float(rng.choice([1.0, 1.5])))
    x = torch.tensor(rng.normal(size=(1, d)))
    return _trial(nn.ReLU, lambda rows: network(rows)[:, 0], x, torch.zeros_like(x), f"{d}-{width}x{depth}")


def few_units(rng: np.random.Generator) -> Trial:
    """A few ReLUs that see many features, and a smooth network on top: few kinks, and no linear regions to follow.

    Between the times at which a ReLU turns, which are known, gradients are smooth.
    """
    d, units = 512, int(rng.choice([6, 12, 24, 48]))
    kinks, head = _network(rng, [d, units], nn.ReLU), _network(rng, [units, 16, 1], nn.Tanh)
    x = torch.tensor(rng.normal(size=(1, d)))

    def function(rows: Tensor) -> Tensor:
        return head(kinks(rows).relu())[:, 0]

    at_zero, at_one = kinks(torch.cat([0 * x, x])).numpy()
    turns = at_zero / (at_zero - at_one)
    ends = np.r_[0.0, np.sort(turns[(turns > 0) & (turns < 1)]), 1.0]
    nodes, weights = (part / 2 for part in np.polynomial.legendre.leggauss(32))
    times = torch.tensor(ends[:-1, None] + np.diff(ends)[:, None] * (0.5 + nodes)).flatten()
    exact = (gradients(function, x, 0 * x, times) * torch.tensor(np.outer(np.diff(ends), weights)).view(-1, 1)).sum(0)
    return Trial(f"{units} units", function, x, 0 * x, exact.numpy())


# ---- networks of many features, whose claims may rest on few nodes ----------------------------------------------------------

SMOOTH = (nn.Tanh, nn.GELU, nn.Softplus, nn.Sigmoid, nn.SiLU)


def _wide(rng: np.random.Generator, d: int) -> tuple[str, Function]:
    """A smooth multilayer perceptron of many features, with few units or many."""
    width, depth, gain = int(rng.choice([2, 4, 16, 64, 256])), int(rng.integers(1, 5)), float(rng.choice([0.7, 1, 1.5, 2, 3]))
    activation = SMOOTH[int(rng.integers(len(SMOOTH)))]
    network = _network(rng, [d, *[width] * depth, 1], activation, gain)
    return f"{activation.__name__} {width}x{depth} gain {gain:g}", lambda rows: network(rows)[:, 0]


def wide(rng: np.random.Generator) -> Trial:
    """A smooth multilayer perceptron of many features."""
    d = int(rng.choice([256, 512, 1024]))
    name, function = _wide(rng, d)
    x, start = (torch.tensor(rng.normal(size=(1, d)) * rng.choice(scales)) for scales in ([1.0, 3.0], [0.0, 1.0]))
    return Trial(name, function, x, start, network_reference(function, x, start))


def wide_ranking(rng: np.random.Generator) -> Trial:
    """g(u) - g(v) of many features."""
    d = int(rng.choice([256, 512]))
    name, inner = _wide(rng, d)
    u = torch.tensor(rng.normal(size=(1, d)))
    x = torch.cat([u, u + rng.choice([0.01, 0.1, 1.0]) * torch.tensor(rng.normal(size=(1, d)))], 1)

    def function(rows: Tensor) -> Tensor:
        return inner(rows[:, :d]) - inner(rows[:, d:])

    return Trial(name, function, x, 0 * x, network_reference(function, x, 0 * x))


def _scored(rng: np.random.Generator, network: Function, size: int, scale: float) -> Function:
    """The logit or the probability of the first of three classes, from a network's features."""
    head, probability = torch.tensor(rng.normal(size=(size, 3)) * scale), rng.random() < 0.5

    def function(rows: Tensor) -> Tensor:
        logits = network(rows) @ head
        return logits.softmax(1)[:, 0] if probability else logits[:, 0]

    return function


def attention(rng: np.random.Generator) -> Trial:
    """A small transformer, whose weights are spread up to four times as widely as they start out."""
    size, length, depth = int(rng.choice([32, 64])), int(rng.choice([8, 24])), int(rng.integers(1, 5))
    scale = float(rng.choice([0.5, 1, 2, 4]))
    torch.manual_seed(int(rng.integers(1 << 30)))
    layer = nn.TransformerEncoderLayer(size, 4, 4 * size, 0.0, nn.functional.silu, batch_first=True, norm_first=True)
    network = nn.TransformerEncoder(layer, depth, nn.LayerNorm(size), enable_nested_tensor=False).double().eval()
    for parameter in network.requires_grad_(False).parameters():
        parameter *= scale if parameter.ndim > 1 else 1.0
    place = torch.tensor(0.3 * rng.normal(size=(1, length, size)))
    function = _scored(rng, lambda rows: network(rows + place)[:, 0], size, scale / math.sqrt(size))
    x, start = torch.tensor(rng.normal(size=(1, length, size))), torch.tensor(rng.normal(size=(1, 1, size)))
    start = (start * rng.choice([0.0, 0.5])).expand_as(x).contiguous()
    return Trial(f"{length} x {size}, {depth} layers x {scale:g}", function, x, start, network_reference(function, x, start))


def attention_at_zero(rng: np.random.Generator) -> Trial:
    """A small transformer without biases and places, from zero tokens: all of them, or all but the first."""
    size, length, depth = int(rng.choice([32, 64])), int(rng.choice([4, 8])), int(rng.integers(1, 5))
    scale = float(rng.choice([1, 2, 4]))
    torch.manual_seed(int(rng.integers(1 << 30)))
    layer = nn.TransformerEncoderLayer(
        size, 4, 2 * size, 0.0, nn.functional.silu, batch_first=True, norm_first=True, bias=False
    )
    network = nn.TransformerEncoder(layer, depth, nn.LayerNorm(size, bias=False), enable_nested_tensor=False).double().eval()
    for parameter in network.requires_grad_(False).parameters():
        parameter *= scale if parameter.ndim > 1 else 1.0
    function = _scored(rng, lambda rows: network(rows)[:, -1], size, scale / math.sqrt(size))
    x = torch.tensor(rng.normal(size=(1, length, size)))
    start = torch.zeros_like(x)
    if rng.random() < 0.5:
        start[:, 0] = x[:, 0]
    name = f"{length} x {size}, {depth} layers x {scale:g}"
    return Trial(name, function, x, start, singular_reference(function, x, start))


def recurrent(rng: np.random.Generator) -> Trial:
    """An LSTM, whose weights are spread up to four times as widely as they start out."""
    torch.manual_seed(int(rng.integers(1 << 30)))
    network, length, scale = nn.LSTM(32, 64, batch_first=True).double(), int(rng.choice([8, 16])), float(rng.choice([1, 2, 4]))
    for parameter in network.requires_grad_(False).parameters():
        parameter *= scale
    function = _scored(rng, lambda rows: network(rows)[0][:, -1], 64, 1.0)
    x = torch.tensor(rng.normal(size=(1, length, 32)))
    return Trial(f"{length} steps x {scale:g}", function, x, 0 * x, network_reference(function, x, 0 * x))


def norms_at_zero(rng: np.random.Generator) -> Trial:
    """A residual network that normalises in front of every block, from zeros: all of them, or all but the first quarter."""
    size, depth, gain = int(rng.choice([16, 64, 256])), int(rng.integers(1, 6)), float(rng.choice([0.5, 1.0, 2.0]))
    epsilon, kind = float(rng.choice([1e-5, 1e-6, 1e-12])), ("rms", "layer")[int(rng.integers(2))]
    blocks = [torch.tensor(rng.normal(size=(3, size, size)) * gain / math.sqrt(size)) for _ in range(depth)]

    def norm(rows: Tensor) -> Tensor:
        centred = rows if kind == "rms" else rows - rows.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + epsilon)

    def network(rows: Tensor) -> Tensor:
        for gate, up, down in blocks:
            seen = norm(rows)
            rows = rows + (nn.functional.silu(seen @ gate) * (seen @ up)) @ down + seen @ gate @ down
        return norm(rows)

    function = _scored(rng, network, size, float(rng.choice([0.3, 1.0])))
    x = torch.tensor(rng.normal(size=(1, size)) * rng.choice([0.1, 1.0]))
    start = torch.zeros_like(x)
    if rng.random() < 0.5:
        start[:, : size // 4] = x[:, : size // 4]
    name = f"{kind} {size}x{depth} gain {gain:g} eps {epsilon:g}"
    return Trial(name, function, x, start, singular_reference(function, x, start))


FAMILIES: dict[str, Callable[[np.random.Generator], Trial]] = {
    "ordinary": ordinary,
    "ranking": ranking,
    "narrow": narrow,
    "few units": few_units,
    "hard feature": hard_feature,
    "twins": twins,
    "narrow twins": narrow_twins,
    "in step": in_step,
    "four ReLUs": four_relus,
    "close ReLUs": close_relus,
    "needles": opposite_needles,
    "flashes": flashes,
    "needles 2000": lambda rng: opposite_needles(rng, 2000.0),
    "wide": wide,
    "wide ranking": wide_ranking,
    "attention": attention,
    "recurrent": recurrent,
    "norms at zero": norms_at_zero,
    "attention at zero": attention_at_zero,
}


def claim(trial: Trial, tol: float, **options: Any) -> Claim:
    """Explain one trial and measure the result; warnings are what an honest failure gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = ig.integrated_gradients(trial.function, trial.x, trial.baseline, tol=tol, **options)
    only, values = result.certificate.only, result.values.numpy()[0].ravel()
    off = relative_error(values, trial.exact)
    if np.abs(values - trial.exact).sum() <= 1e-12:  # of numbers near 1: rounding
        off = 0.0
    return Claim(f"{trial.name} ({only.rule})", tol, only.converged, only.error, off, only.gradients)


def claims(family: str, tol: float, count: int, seed: int, **options: Any) -> list[Claim]:
    """So many trials of a family."""
    return [claim(FAMILIES[family](np.random.default_rng([seed, i])), tol, **options) for i in range(count)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--tol", type=float, nargs="*", default=[0.01, 0.001])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--show", type=int, default=0, help="so many of the worst claims")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| family | tol | claims | > tol | > 3 tol | worst | gradients |\n|---|---|---|---|---|---|---|")
    for family in options.only:
        for tol in options.tol:
            start = time.perf_counter()
            found = claims(family, tol, options.count, options.seed, steps=options.steps)
            claiming = sorted((c for c in found if c.converged), key=lambda c: -c.measured)
            ratios = np.array([c.measured / tol for c in claiming] or [0.0])
            print(
                f"| {family} | {tol:g} | {len(claiming)} of {len(found)} | {(ratios > 1.0001).sum()} | {(ratios > 3).sum()} | "
                f"{ratios.max():.3g} x tol | {np.median([c.gradients for c in found]):.0f} |"
                f" {time.perf_counter() - start:.0f} s",
                flush=True,
            )
            for c in claiming[: options.show]:
                print(f"    {c.name}: {c.measured:.3g}, claimed {c.claimed:.3g}, {c.gradients} gradients")


if __name__ == "__main__":
    main()
