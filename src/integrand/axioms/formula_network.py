"""A formula as a network: its units, the torch module that computes it, its values in numpy, and its drawing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arrays import Floats
from ..errors import InputError
from ..render.escaping import escape
from .formula import KINKED, Affine, FormulaNetwork, FunctionCall, Input, Node, parse, plain, walk

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda z: z,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}

PAIRS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"max": torch.maximum, "min": torch.minimum, "mul": torch.mul}

NUMPY_ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "linear": lambda z: z,
    "relu": lambda z: np.maximum(z, 0.0),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "tanh": np.tanh,
}

COLUMN, ROW, HALF, TALL = 132, 58, 34, 17
"""In a drawing: the distances between columns and between rows, and half the width and height of a box, in pixels."""

GRAPH_STYLE = (
    "svg.net{font:13px system-ui,-apple-system,Segoe UI,Roboto,sans-serif;max-width:100%;height:auto}"
    ".net rect{fill:var(--card,transparent);stroke:var(--soft,currentColor)}.net .in rect{fill:none}"
    ".net text{fill:var(--ink,currentColor);text-anchor:middle;dominant-baseline:central}"
    ".net .w{font-size:12px;paint-order:stroke;stroke:var(--paper,Canvas);stroke-width:4px}"
    ".net .b{font-size:11px;fill:var(--soft,currentColor)}"
    ".net path{fill:none;stroke:#3b6fb6;stroke-width:1.6}.net path.neg{stroke:#c2572b;stroke-dasharray:6 3}"
)

Point = tuple[float, float]

Stop = tuple[int, int]
"""A place in a drawing: a value's box, (value, -1), or the gap where the edge from a value to a later one passes a column,
(value, column)."""


@dataclass(frozen=True, slots=True)
class FormulaUnit:
    """One unit of a formula network: an activation of a weighted sum, or a function of two values.

    Attributes:
        kind: the activation or function; ``linear`` for none.
        sources: the values it takes; numbers below the number of inputs are inputs, others earlier units.
        weights: the weights of its sources; ones for functions of two values.
        bias: the constant in its sum.
        depth: the length of the longest path from an input.
    """

    kind: str
    sources: tuple[int, ...]
    weights: tuple[float, ...]
    bias: float
    depth: int

    @property
    def bare(self) -> bool:
        """Whether the unit takes one value as it is, with weight 1 and no bias."""
        return self.weights == (1.0,) and self.bias == 0


@lru_cache(maxsize=4096)
def units(network: FormulaNetwork) -> tuple[tuple[FormulaUnit, ...], int]:
    """The units of a formula network, each after its sources, and the number of the value that is the output."""
    numbers: dict[Node, int] = {Input(i): i for i in range(network.inputs)}
    out: list[FormulaUnit] = []

    def make(kind: str, sources: list[int], weights: list[float], bias: float) -> int:
        depth = 1 + max((out[s - network.inputs].depth for s in sources if s >= network.inputs), default=0)
        out.append(FormulaUnit(kind, tuple(sources), tuple(weights), bias, depth))
        return network.inputs + len(out) - 1

    def number(node: Node) -> int:
        if node not in numbers:  # a sum that no activation takes: a linear unit of its own
            assert isinstance(node, Affine)
            numbers[node] = make("linear", *_weighted_sum(node, number))
        return numbers[node]

    for node in walk(network.output):
        if isinstance(node, FunctionCall) and node.name in PAIRS:
            numbers[node] = make(node.name, [number(part) for part in node.args], [1.0, 1.0], 0.0)
        elif isinstance(node, FunctionCall):
            numbers[node] = make(node.name, *_weighted_sum(node.args[0], number))
    output = number(network.output)
    return tuple(out), output


class FormulaModule(nn.Module):
    """A torch module that computes a formula, (N, inputs) to (N,), in float64.

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
        """The values of the formula for rows of inputs, (N, inputs) to (N,)."""
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


def evaluate(formula: FormulaNetwork, points: Floats) -> tuple[Floats, Floats]:
    """A formula's values at points (N, inputs), (N,), and the arguments of its kinked units, (N, units).

    In numpy, independent of :class:`FormulaModule`: the search must not rely on the code that it tests.
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
            made = NUMPY_ACTIVATIONS[unit.kind](kinked)
        values.append(made)
        if unit.kind in KINKED:
            kinks.append(kinked)
    stacked = np.stack(kinks, 1) if kinks else np.ones((len(points), 1))
    return np.asarray(values[output]), stacked


def svg(network: FormulaNetwork) -> str:
    """A formula network as an SVG graph, inputs on the left: boxes with activation and bias, edges with their weights."""
    parts, output = units(network)
    places = _places(network, parts)
    rows = 1 + max(row for _, row in places.values())
    columns = 1 + max(column for column, _ in places.values())
    width, height = COLUMN * (columns - 1) + 2 * HALF + 24 + 40, round(ROW * (rows - 1)) + 2 * TALL + 28

    def at(stop: Stop) -> Point:
        column, row = places[stop]
        return 12 + HALF + COLUMN * column, 14 + TALL + ROW * row

    edges, boxes = [], [_box(at((i, -1)), f"x{i + 1}", "", "in") for i in range(network.inputs)]
    for i, unit in enumerate(parts, network.inputs):
        order = sorted(range(len(unit.sources)), key=lambda k: at(_route(places, unit.sources[k], i)[-2])[1])
        for rank, k in enumerate(order):
            route = [at(stop) for stop in _route(places, unit.sources[k], i)]
            route[-1] = (route[-1][0], route[-1][1] + (rank - (len(order) - 1) / 2) * min(9, 24 / len(order)))
            edges.append(_edge(route, unit.weights[k]))
        boxes.append(_box(at((i, -1)), _label(unit), _signed(unit.bias) if unit.bias else "", "unit"))
    x, y = at((output, -1))
    leave = f'<path d="M{x + HALF:g} {y:g}h28"/>'
    lines, labels = zip(*edges, strict=True) if edges else ((), ())
    title = escape(str(network))
    return (
        f'<svg class="net" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{title}"><title>{title}</title><style>{GRAPH_STYLE}</style>'
        f"{''.join(lines)}{leave}{''.join(boxes)}{''.join(labels)}</svg>"
    )


def drawing(network: FormulaNetwork) -> str:
    """A formula network as a tree of text, from its output to its inputs; a unit that is used again is named, not repeated.

    >>> from integrand.axioms import parse
    >>> print(drawing(parse("relu(relu(x1) - 1 - relu(x2))")))
    relu  bias -1
    ├─ 1 ─ relu
    │      └─ 1 ─ x1
    └─ -1 ─ relu
            └─ 1 ─ x2
    """
    parts, output = units(network)
    uses = [source for unit in parts for source in unit.sources]
    shared = [i for i in range(network.inputs, network.inputs + len(parts)) if uses.count(i) > 1]
    names = {number: f"h{k + 1}" for k, number in enumerate(shared)}
    lines: list[str] = []
    told: set[int] = set()

    def tell(number: int, lead: str, rest: str) -> None:
        if number < network.inputs:
            lines.append(f"{lead}x{number + 1}")
            return
        unit = parts[number - network.inputs]
        name = f"{names[number]}: " if number in names else ""
        if number in told:
            lines.append(f"{lead}{names[number]} (above)")
            return
        told.add(number)
        bias = f"  bias {plain(unit.bias)}" if unit.bias else ""
        lines.append(f"{lead}{name}{_label(unit)}{bias}")
        for k, (source, weight) in enumerate(zip(unit.sources, unit.weights, strict=True)):
            last = k == len(unit.sources) - 1
            edge = f"─ {plain(weight)} ─ "
            tell(source, rest + ("└" if last else "├") + edge, rest + (" " if last else "│") + " " * len(edge))

    tell(output, "", "")
    return "\n".join(lines)


def _weighted_sum(node: Node, number: Callable[[Node], int]) -> tuple[list[int], list[float], float]:
    if isinstance(node, Affine):
        return [number(part) for _, part in node.terms], [weight for weight, _ in node.terms], node.bias
    return [number(node)], [1.0], 0.0


def _fixed(values: list[tuple[float, ...]] | list[float]) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64), requires_grad=False)


def _route(places: dict[Stop, tuple[int, float]], source: int, target: int) -> list[Stop]:
    first, last = places[source, -1][0], places[target, -1][0]
    return [(source, -1), *((source, column) for column in range(first + 1, last)), (target, -1)]


def _places(network: FormulaNetwork, parts: tuple[FormulaUnit, ...]) -> dict[Stop, tuple[int, float]]:
    """Column and row of every stop in a drawing: columns by depth, rows near the mean of what feeds them and one apart."""
    depth = dict.fromkeys(range(network.inputs), 0) | {i: unit.depth for i, unit in enumerate(parts, network.inputs)}
    feeds: dict[Stop, list[Stop]] = {(i, -1): [] for i in depth}
    for i, unit in enumerate(parts, network.inputs):
        for source in unit.sources:
            stops = [(source, -1), *((source, column) for column in range(depth[source] + 1, unit.depth)), (i, -1)]
            for before, after in pairwise(stops):
                feeds.setdefault(after, []).append(before)
    places: dict[Stop, tuple[int, float]] = {(i, -1): (0, float(i)) for i in range(network.inputs)}
    for column in range(1, 1 + max(depth.values())):
        layer = [stop for stop in feeds if (depth[stop[0]] if stop[1] < 0 else stop[1]) == column]
        wish = {stop: _mean([places[before][1] for before in feeds[stop]]) for stop in layer}
        layer.sort(key=lambda stop: wish[stop])
        rows: list[float] = []
        for stop in layer:
            rows.append(max(wish[stop], rows[-1] + 1) if rows else wish[stop])
        shift = _mean([wish[stop] for stop in layer]) - _mean(rows)  # those above share the push of those pushed down
        places |= {stop: (column, row + shift) for stop, row in zip(layer, rows, strict=True)}
    top = min(row for _, row in places.values())
    return {stop: (column, row - top) for stop, (column, row) in places.items()}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _label(unit: FormulaUnit) -> str:
    return {"linear": "Σ", "mul": "×"}.get(unit.kind, unit.kind)


def _signed(value: float) -> str:
    return ("−" if value < 0 else "+") + _short(abs(value))


def _short(value: float) -> str:
    text = plain(value)
    return text if len(text) <= 6 else f"{value:.4g}"


def _box(at: Point, label: str, bias: str, kind: str) -> str:
    x, y = at
    below = f'<text class="b" x="{x:g}" y="{y + 9:g}">{escape(bias)}</text>' if bias else ""
    return (
        f'<g class="{kind}"><rect x="{x - HALF:g}" y="{y - TALL:g}" width="{2 * HALF}" height="{2 * TALL}" rx="8"/>'
        f'<text x="{x:g}" y="{y - (5 if bias else 0):g}">{escape(label)}</text>{below}</g>'
    )


def _edge(route: list[Point], weight: float) -> tuple[str, str]:
    """The SVG of an edge: a curve from box to box through the gaps between, and its label on the last stretch."""
    (x, y), *rest = route
    x += HALF
    path = f"M{x:g} {y:g}"
    for k, (stop, height) in enumerate(rest):
        end, reach = stop - HALF, (stop - HALF - x) / 2
        path += f"C{x + reach:g} {y:g} {end - reach:g} {height:g} {end:g} {height:g}"
        if k == len(rest) - 1:
            t = 0.36  # nearer to the source, where edges to the same box are still apart
            label = x + (end - x) * (1.5 * t - 1.5 * t**2 + t**3), y + (height - y) * (3 * t**2 - 2 * t**3)
        if k < len(rest) - 1:
            path += f"h{2 * HALF}"
        x, y = stop + HALF, height
    text = ("−" if weight < 0 else "") + _short(abs(weight))
    negative = ' class="neg"' if weight < 0 else ""
    return f'<path{negative} d="{path}"/>', f'<text class="w" x="{label[0]:g}" y="{label[1]:g}">{escape(text)}</text>'
