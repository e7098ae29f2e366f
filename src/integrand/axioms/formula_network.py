"""Where a network has no gradient: cases that ask for one there blame a method for torch's choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import InputError
from .formula import KINKED, Affine, FormulaNetwork, FunctionCall, Input, Node, parse, walk

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda z: z,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
PAIRS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"max": torch.maximum, "min": torch.minimum, "mul": torch.mul}


@dataclass(frozen=True, slots=True)
class FormulaUnit:
    """One unit of a network: an activation of a weighted sum, or a function of two values.

    Attributes:
        kind: the activation or function; ``linear`` for none.
        sources: the values it takes; numbers below the number of inputs are inputs, others earlier units.
        weights: of its sources; ones for functions of two values.
        bias: of its sum.
        depth: the longest way from an input.
    """

    kind: str
    sources: tuple[int, ...]
    weights: tuple[float, ...]
    bias: float
    depth: int

    @property
    def bare(self) -> bool:
        """Whether it takes one value as it is."""
        return self.weights == (1.0,) and self.bias == 0


@lru_cache(maxsize=4096)
def units(network: FormulaNetwork) -> tuple[tuple[FormulaUnit, ...], int]:
    """The units of a network, each after its sources, and the number of the value that is its output."""
    numbers: dict[Node, int] = {Input(i): i for i in range(network.inputs)}
    out: list[FormulaUnit] = []

    def make(kind: str, sources: list[int], weights: list[float], bias: float) -> int:
        depth = 1 + max((out[s - network.inputs].depth for s in sources if s >= network.inputs), default=0)
        out.append(FormulaUnit(kind, tuple(sources), tuple(weights), bias, depth))
        return network.inputs + len(out) - 1

    def number(node: Node) -> int:
        if node not in numbers:  # a sum that no activation takes: a linear unit of its own
            assert isinstance(node, Affine)
            numbers[node] = make("linear", *_sum(node, number))
        return numbers[node]

    for node in walk(network.output):
        if isinstance(node, FunctionCall) and node.name in PAIRS:
            numbers[node] = make(node.name, [number(part) for part in node.args], [1.0, 1.0], 0.0)
        elif isinstance(node, FunctionCall):
            numbers[node] = make(node.name, *_sum(node.args[0], number))
    output = number(network.output)
    return tuple(out), output


def _sum(node: Node, number: Callable[[Node], int]) -> tuple[list[int], list[float], float]:
    if isinstance(node, Affine):
        return [number(part) for _, part in node.terms], [weight for weight, _ in node.terms], node.bias
    return [number(node)], [1.0], 0.0


class FormulaModule(nn.Module):
    """A network that computes a formula, (N, inputs) to (N,), in float64.

    Attributes:
        formula: the network as a formula, which prints and draws itself.
    """

    def __init__(self, formula: FormulaNetwork) -> None:
        super().__init__()
        self.formula = formula
        self._units, self._output = units(formula)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for unit in self._units:
            weights = unit.weights or (0.0,) * formula.inputs  # a constant still is a function of the input
            self.weights.append(_fixed([weights]))
            self.biases.append(_fixed([unit.bias]))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """The formula's values for rows of inputs."""
        if x.ndim != 2 or x.shape[1] != self.formula.inputs:
            count = self.formula.inputs
            raise InputError(f"got x of shape {tuple(x.shape)} for {self.formula}; expected (N, {count}), a row per example.")
        if x.dtype != torch.float64:
            x = x.double()
        values = [x[:, i] for i in range(self.formula.inputs)]
        for unit, weight, bias in zip(self._units, self.weights, self.biases, strict=True):
            parts = [values[s] for s in unit.sources]
            if unit.kind in PAIRS:
                values.append(PAIRS[unit.kind](*parts))
            elif unit.bare:
                values.append(ACTIVATIONS[unit.kind](parts[0]))
            else:
                stacked = torch.stack(parts, 1) if parts else x
                values.append(ACTIVATIONS[unit.kind](F.linear(stacked, weight, bias).squeeze(1)))
        return values[self._output]

    def __repr__(self) -> str:
        return f"network({str(self.formula)!r})"

    def _repr_svg_(self) -> str:
        return self.formula.svg()


def _fixed(values: list[tuple[float, ...]] | list[float]) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64), requires_grad=False)


def network(formula: str | FormulaNetwork, *, inputs: int | None = None) -> FormulaModule:
    """A small network from its formula, ready to be explained.

    >>> f = network("relu(relu(x1) - 1 - relu(x2))")
    >>> f(torch.tensor([[3.0, 1.0]])).item()
    1.0

    Args:
        formula: a text as :func:`parse` reads it, or a parsed one.
        inputs: the number of inputs, where it is more than the formula uses.
    """
    return FormulaModule(formula if isinstance(formula, FormulaNetwork) else parse(formula, inputs=inputs))


Floats = NDArray[np.float64]


def evaluate(formula: FormulaNetwork, points: Floats) -> tuple[Floats, Floats]:
    """A formula's values at points (N, inputs), (N,), and the arguments of its kinked units, (N, units).

    In numpy, apart from the module: what the search relies on does not pass through what it tests.
    """
    parts, output = units(formula)
    values = [points[:, i] for i in range(formula.inputs)]
    kinks = []
    for unit in parts:
        taken = [values[s] for s in unit.sources]
        if unit.kind in PAIRS:
            first, second = taken
            kinked = first - second
            made = {"max": np.maximum, "min": np.minimum, "mul": np.multiply}[unit.kind](first, second)
        else:
            kinked = np.full(len(points), unit.bias)
            for weight, value in zip(unit.weights, taken, strict=True):
                kinked = kinked + weight * value
            made = _ACT[unit.kind](kinked)
        values.append(made)
        if unit.kind in KINKED:
            kinks.append(kinked)
    stacked = np.stack(kinks, 1) if kinks else np.ones((len(points), 1))
    return np.asarray(values[output]), stacked


_ACT: dict[str, Callable[[Floats], Floats]] = {
    "linear": lambda z: z,
    "relu": lambda z: np.maximum(z, 0.0),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "tanh": np.tanh,
}
