"""Functions whose attributions are known in closed form.

Every family below is a function of one problem's numbers to a :class:`Problem`; :func:`cases` calls them with many. The
exact values are computed in float64 from the numbers *after* they were rounded to the problem's dtype, by a formula that
never evaluates a gradient along the path (but for :func:`deep_relu`, where the gradient is constant between breakpoints
that are solved for).

>>> problem = cases()[0]
>>> problem.x.shape == problem.baseline.shape == problem.exact.shape
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

Function = Callable[[Tensor], Tensor]
Kind = Literal["linear", "polynomial", "smooth", "kinked", "needle", "hard"]


@dataclass(frozen=True, eq=False)
class Problem:
    """A score and its exact straight-line attribution.

    Attributes:
        name: unique, with the dtype at its end.
        function: from rows (N, d) to scores (N,); usable in float32 and float64.
        x: (1, d) the input.
        baseline: (1, d) where the line starts.
        exact: (1, d) in float64, the attribution to the precision of float64.
        kind: what makes it difficult. ``needle`` is a feature much narrower than the line, ``hard`` a gradient without
            bound: a rule may fail there, and has to say so.
    """

    name: str
    function: Function
    x: Tensor
    baseline: Tensor
    exact: Tensor
    kind: Kind

    @property
    def dtype(self) -> torch.dtype:
        """What the model computes in."""
        return self.x.dtype

    def error(self, values: Tensor) -> float:
        """The true relative L1 error of an attribution, the unit of the tolerance."""
        size = float(self.exact.abs().sum())
        return float((values.detach().double() - self.exact).abs().sum()) / size if size else float(values.abs().sum())

    @property
    def change(self) -> float:
        """F(x) - F(x') in float64."""
        return float(self.function(self.x.double()) - self.function(self.baseline.double()))


@dataclass(frozen=True, eq=False)
class Jump:
    """A score that jumps on the line from 0 to 1 (d = 1), where no integral of its gradient can be complete.

    Attributes:
        name: for the test's id.
        function: from rows (N, 1) to scores (N,).
        at: where it jumps.
        size: by how much.
    """

    name: str
    function: Function
    at: float
    size: float


def build(name: str, function: Function, x: Tensor, baseline: Tensor, exact: Tensor, kind: Kind) -> Problem:
    """A problem in the dtype of x, from vectors."""
    label = f"{name}-{str(x.dtype).removeprefix('torch.')}"
    return Problem(label, function, x[None], baseline.to(x.dtype)[None], exact.double()[None], kind)


# ---- families ---------------------------------------------------------------------------------------------------------


def separable(name: str, phi: Function, weights: Tensor, x: Tensor, baseline: Tensor, kind: Kind) -> Problem:
    """F = sum_i w_i phi(x_i): feature i gets w_i (phi(x_i) - phi(x'_i))."""

    def function(rows: Tensor) -> Tensor:
        return (weights.to(rows.dtype) * phi(rows)).sum(1)

    exact = weights.double() * (phi(x.double()) - phi(baseline.double()))
    return build(name, function, x, baseline, exact, kind)


def ridges(
    name: str, phi: Function, matrix: Tensor, bias: Tensor, heads: Tensor, x: Tensor, baseline: Tensor, kind: Kind
) -> Problem:
    """F = sum_k v_k phi(w_k x + b_k), a network with one hidden layer.

    With u_k running from u_k' to u_k, unit k gives feature i its share w_ki (x_i - x'_i) / (u_k - u_k') of what it changes.
    """

    def function(rows: Tensor) -> Tensor:
        w, b, v = (part.to(rows.dtype) for part in (matrix, bias, heads))
        return phi(rows @ w.T + b) @ v

    w, b, v, stop, start = (part.double() for part in (matrix, bias, heads, x, baseline))
    before, after = w @ start + b, w @ stop + b
    shares = w * (stop - start) / (after - before)[:, None]
    return build(name, function, x, baseline, (v * (phi(after) - phi(before))) @ shares, kind)


def polynomial(name: str, terms: Sequence[tuple[float, dict[int, int]]], x: Tensor, baseline: Tensor) -> Problem:
    """F = sum of c prod_j x_j^p_j. On the line each factor is a polynomial in t, and so is the integrand."""

    def function(rows: Tensor) -> Tensor:
        return sum(
            (c * math.prod(rows[:, j] ** p for j, p in powers.items()) for c, powers in terms), rows.new_zeros(len(rows))
        )

    start, step = baseline.double().numpy(), (x.double() - baseline.double()).numpy()
    lines = [Polynomial([a, d]) for a, d in zip(start, step, strict=True)]
    exact = np.zeros(len(start))
    for c, powers in terms:
        for i, p in powers.items():
            rest = math.prod((lines[j] ** (q - (i == j)) for j, q in powers.items()), start=Polynomial([1.0]))
            exact[i] += c * p * step[i] * rest.integ()(1.0)
    return build(name, function, x, baseline, torch.from_numpy(exact), "polynomial")


def quadratic(name: str, matrix: Tensor, x: Tensor, baseline: Tensor) -> Problem:
    """F = x Q x: the gradient is linear in t, so its mean is its value at the middle."""

    def function(rows: Tensor) -> Tensor:
        return ((rows @ matrix.to(rows.dtype)) * rows).sum(1)

    q, stop, start = matrix.double(), x.double(), baseline.double()
    return build(name, function, x, baseline, (stop - start) * ((q + q.T) @ (stop + start) / 2), "polynomial")


def gaussian(name: str, centre: Tensor, x: Tensor, baseline: Tensor) -> Problem:
    """F = exp(-|x - c|^2). On the line the exponent is A s^2 + const, s = t + B/A: the integrals are erf and exp."""

    def function(rows: Tensor) -> Tensor:
        return torch.exp(-(rows - centre.to(rows.dtype)).square().sum(1))

    offset, step = baseline.double() - centre.double(), x.double() - baseline.double()
    a, b, c = float(step @ step), float(offset @ step), float(offset @ offset)
    first, last = b / a, 1 + b / a
    root = math.sqrt(a)
    flat = math.sqrt(math.pi) / (2 * root) * (math.erf(root * last) - math.erf(root * first))
    slope = (math.exp(-a * first**2) - math.exp(-a * last**2)) / (2 * a)
    exact = -2 * step * ((offset - step * b / a) * flat + step * slope) * math.exp(b * b / a - c)
    return build(name, function, x, baseline, exact, "smooth")


def ratio(x: Tensor, baseline: Tensor) -> Problem:
    """F = x1 / x2. With u = x2 on the line from p to p + q: integrals of 1/u and 1/u^2."""
    (a, p), (b, q) = baseline.double().tolist(), (x.double() - baseline.double()).tolist()
    log = math.log((p + q) / p)
    second = ((a - b * p / q) * (1 / p - 1 / (p + q)) + b / q * log) / q
    exact = torch.tensor([b * log / q, -q * second], dtype=torch.float64)
    return build("ratio", lambda rows: rows[:, 0] / rows[:, 1], x, baseline, exact, "smooth")


def extreme(name: str, which: Literal["min", "max"], x: Tensor, baseline: Tensor) -> Problem:
    """F = min or max of the features: between the times where two of them cross, one feature has the whole gradient."""
    start, step = baseline.double().numpy(), (x.double() - baseline.double()).numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        times = ((start[:, None] - start) / (step - step[:, None])).ravel()
    cuts = np.unique(np.r_[0.0, times[(times > 0) & (times < 1)], 1.0])
    exact = np.zeros(len(start))
    for a, b in pairwise(cuts):
        here = start + step * (a + b) / 2
        chosen = here.argmin() if which == "min" else here.argmax()
        exact[chosen] += step[chosen] * (b - a)
    function: Function = (lambda rows: rows.amin(1)) if which == "min" else (lambda rows: rows.amax(1))
    return build(name, function, x, baseline, torch.from_numpy(exact), "kinked")


def deep_relu(name: str, layers: Sequence[tuple[Tensor, Tensor]], x: Tensor, baseline: Tensor, *, sigmoid: bool) -> Problem:
    """A ReLU network of any depth, with or without a sigmoid on top.

    The line is cut where a unit turns on or off, layer by layer; in between the logit is linear in t and its gradient
    constant, so a sigmoid on top gives a feature its constant share of what the sigmoid changes.
    """

    def logit(rows: Tensor) -> Tensor:
        for number, (w, b) in enumerate(layers):
            rows = (rows.relu() if number else rows) @ w.T.to(rows.dtype) + b.to(rows.dtype)
        return rows[:, 0]

    head: Function = torch.sigmoid if sigmoid else (lambda z: z)
    start, step = baseline.double(), x.double() - baseline.double()
    cuts = torch.tensor([0.0, 1.0], dtype=torch.float64)
    for depth in range(1, len(layers)):
        z = start + cuts[:, None] * step
        for number, (w, b) in enumerate(layers[:depth]):
            z = (z.relu() if number else z) @ w.double().T + b.double()
        crossed = z[:-1] * z[1:] < 0
        share = (z[:-1] / (z[:-1] - z[1:]))[crossed]
        gap, first = (cuts[1:] - cuts[:-1])[:, None].expand_as(crossed)[crossed], cuts[:-1, None].expand_as(crossed)[crossed]
        cuts = torch.cat([cuts, first + share * gap]).unique()
    middles = (start + ((cuts[1:] + cuts[:-1]) / 2)[:, None] * step).requires_grad_(True)
    (slopes,) = torch.autograd.grad(logit(middles).sum(), middles)
    terms = slopes * step
    at = logit(start + cuts[:, None] * step).detach()
    rise = at[1:] - at[:-1]
    share = torch.where(rise == 0, 0.0, (head(at[1:]) - head(at[:-1])) / torch.where(rise == 0, 1.0, rise))
    exact = (terms * ((cuts[1:] - cuts[:-1]) * share)[:, None]).sum(0)
    return build(name, lambda rows: head(logit(rows)), x, baseline, exact, "kinked")


# ---- numbers ----------------------------------------------------------------------------------------------------------


def _vector(rng: np.random.Generator, *shape: int, scale: float = 1.0, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape) * scale).to(dtype)


def _ones(count: int, dtype: torch.dtype, value: float = 1.0) -> Tensor:
    return torch.full((count,), value, dtype=dtype)


def _paper(dtype: torch.dtype) -> list[Problem]:
    """The examples of the paper: sections 2 and 3, figure 7, and the remark on min."""
    relu = torch.relu

    def of(name: str, function: Function, x: Sequence[float], exact: Sequence[float]) -> Problem:
        end = torch.tensor(x, dtype=dtype)
        return build(f"paper-{name}", function, end, torch.zeros_like(end), torch.tensor(exact, dtype=torch.float64), "kinked")

    return [
        of("saturated", lambda r: 1 - relu(1 - r[:, 0]), [2.0], [1.0]),
        of("f", lambda r: relu(relu(r[:, 0]) - 1 - relu(r[:, 1])), [3.0, 1.0], [1.5, -0.5]),
        of("g", lambda r: relu(relu(r[:, 0] - 1) - relu(r[:, 1])), [3.0, 1.0], [1.5, -0.5]),
        of("min", lambda r: torch.minimum(r[:, 0], r[:, 1]), [1.0, 3.0], [1.0, 0.0]),
    ]


def _needles(dtype: torch.dtype) -> list[Problem]:
    """Features much narrower than the line. Those apart are equal and opposite: completeness is 0 whatever is missed."""

    def step(slope: float, at: float) -> Function:
        return lambda z: torch.sigmoid(slope * (z - at))

    def bump(width: float, at: float) -> Function:
        return lambda z: z + torch.exp(-(((z - at) / width) ** 2))

    one, zero = _ones(1, dtype), torch.zeros(1, dtype=dtype)
    both, nil = _ones(2, dtype), torch.zeros(2, dtype=dtype)
    opposite = torch.tensor([1.0, -1.0], dtype=dtype)
    plain = [(50.0, 0.5), (200.0, 0.9), (800.0, 0.618), (2000.0, 0.97), (3000.0, 0.123)]
    blind = [(200.0, 0.9), (400.0, 0.37)]
    return [
        *(separable(f"needle-{k:g}-at-{c:g}", step(k, c), one, one, zero, "needle") for k, c in plain),
        *(separable(f"needles-apart-{k:g}-at-{c:g}", step(k, c), opposite, both, nil, "needle") for k, c in blind),
        # Up and down again within a hundredth of the line: it leaves no trace in the attribution.
        separable("bump-0.01-at-0.43", bump(0.01, 0.43), one, one, zero, "needle"),
    ]


def _separable(dtype: torch.dtype) -> list[Problem]:
    rng = np.random.default_rng(11)
    curves: dict[str, tuple[Function, Kind]] = {
        "sigmoid": (lambda z: torch.sigmoid(3 * z), "smooth"),
        "tanh": (torch.tanh, "smooth"),
        "exp": (torch.exp, "smooth"),
        "softplus": (torch.nn.functional.softplus, "smooth"),
        "cubic": (lambda z: z**3 - z, "polynomial"),
        "abs": (torch.abs, "kinked"),
        "relu": (torch.relu, "kinked"),
        "hinge": (lambda z: torch.relu(z - 0.3) - 2 * torch.relu(-z - 0.7), "kinked"),
        "cusp": (lambda z: (z - 0.31).abs() ** 1.5, "kinked"),
    }
    out = []
    for name, (phi, kind) in curves.items():
        for d in (1, 7, 300):
            w, x, start = _vector(rng, d, dtype=dtype), _vector(rng, d, dtype=dtype), _vector(rng, d, scale=0.3, dtype=dtype)
            x = x.abs() + 1 if d == 1 else x  # so that the only feature is not where the curve is flat
            out.append(separable(f"{name}-{d}", phi, w, x, start, kind))
    opposite, both, nil = torch.tensor([1.0, -1.0], dtype=dtype), _ones(2, dtype), torch.zeros(2, dtype=dtype)
    for omega in (5, 40, 130):
        out.append(separable(f"sines-{omega}", lambda z, omega=omega: torch.sin(omega * z), opposite, both, nil, "smooth"))
    return out


def _networks(dtype: torch.dtype) -> list[Problem]:
    rng = np.random.default_rng(12)
    units: dict[str, tuple[Function, Kind]] = {
        "relu": (torch.relu, "kinked"),
        "gelu": (torch.nn.functional.gelu, "smooth"),
        "tanh": (torch.tanh, "smooth"),
        "sine": (torch.sin, "smooth"),
        "leaky": (torch.nn.functional.leaky_relu, "kinked"),
        "hardtanh": (torch.nn.functional.hardtanh, "kinked"),
    }
    out = []
    for name, (phi, kind) in units.items():
        for d, width in ((1, 3), (2, 8), (10, 40), (1000, 100)):
            matrix, bias = _vector(rng, width, d, scale=2 / math.sqrt(d), dtype=dtype), _vector(rng, width, dtype=dtype)
            heads, x = _vector(rng, width, dtype=dtype), _vector(rng, d, dtype=dtype)
            start = _vector(rng, d, scale=0.5, dtype=dtype)
            out.append(ridges(f"layer-{name}-{d}x{width}", phi, matrix, bias, heads, x, start, kind))
    for d, widths in ((2, (6, 5)), (5, (12, 12, 8)), (30, (32, 24)), (784, (48, 32, 16))):
        sizes = (d, *widths, 1)
        layers = [
            (_vector(rng, n, m, scale=math.sqrt(3 / m), dtype=dtype), _vector(rng, n, scale=0.3, dtype=dtype))
            for m, n in pairwise(sizes)
        ]
        x, start = _vector(rng, d, dtype=dtype), _vector(rng, d, scale=0.2, dtype=dtype)
        for head in (False, True):
            out.append(deep_relu(f"deep-{d}-{len(widths)}{'-sigmoid' if head else ''}", layers, x, start, sigmoid=head))
    return out


def _others(dtype: torch.dtype) -> list[Problem]:
    rng = np.random.default_rng(13)

    def vector(*values: float) -> Tensor:
        return torch.tensor(values, dtype=dtype)

    def identity(z: Tensor) -> Tensor:
        return z

    out = []
    for d in (1, 3, 1000):
        w, x, start = (_vector(rng, d, dtype=dtype) for _ in range(3))
        out.append(separable(f"linear-{d}", identity, w, x, start, "linear"))
    for d in (2, 100):
        matrix, x, start = _vector(rng, d, d, dtype=dtype), _vector(rng, d, dtype=dtype), _vector(rng, d, dtype=dtype)
        out.append(quadratic(f"quadratic-{d}", matrix, x, start))
    product = [(1.0, {0: 1, 1: 1})]
    mixed = [(1.0, {0: 2, 1: 1}), (-0.5, {1: 3, 2: 2}), (0.25, {0: 1, 1: 1, 2: 1}), (2.0, {2: 4})]
    out += [
        polynomial("product", product, vector(2, 3), vector(0, 0)),
        polynomial("product-off-zero", product, vector(2, 3), vector(-1, 0.5)),
        polynomial("power-8", [(1.0, {0: 8})], vector(1), vector(0)),
        polynomial("mixed", mixed, vector(1.5, -1, 0.75), vector(-0.5, 0.25, 1)),
        ratio(vector(1.5, 0.5), vector(-1, 2)),
        separable("root", torch.sqrt, vector(1, 2), vector(1, 2), vector(0.01, 0.02), "smooth"),
        separable("root-inside", lambda z: (z - 0.2718).abs().sqrt(), vector(1), vector(1), vector(0), "hard"),
    ]
    for d, size in ((2, 1.5), (20, 0.5)):
        centre, x, start = (_vector(rng, d, scale=size, dtype=dtype) for _ in range(3))
        out.append(gaussian(f"gaussian-{d}", centre, x, start))
    for d in (2, 6, 50):
        x, start = _vector(rng, d, dtype=dtype), _vector(rng, d, dtype=dtype)
        out += [extreme(f"min-{d}", "min", x, start), extreme(f"max-{d}", "max", x, start)]
    return out


def cases(dtypes: Sequence[torch.dtype] = (torch.float64, torch.float32)) -> list[Problem]:
    """Every problem, in each dtype."""
    families = (_paper, _others, _separable, _networks, _needles)
    return [problem for dtype in dtypes for family in families for problem in family(dtype)]


def invisible(dtypes: Sequence[torch.dtype] = (torch.float64, torch.float32)) -> list[Problem]:
    """What few samples cannot see: the limits of any rule that stops early, kept apart from :func:`cases`.

    The sines have a period of nearly 1/24, so that nodes at multiples of 1/8 see a slow wave; the needles are opposite,
    lie between such nodes, and stand in a plain slope. The score sees neither: it is even in x1 and x2.
    """

    def needle(z: Tensor) -> Tensor:
        return torch.sigmoid(3000 * (z - 0.43))

    out = []
    for dtype in dtypes:
        opposite, both, nil = torch.tensor([1.0, -1.0], dtype=dtype), _ones(2, dtype), torch.zeros(2, dtype=dtype)
        out.append(separable("sines-150", lambda z: torch.sin(150 * z), opposite, both, nil, "needle"))

        def hidden(rows: Tensor) -> Tensor:
            return rows.sum(1) + needle(rows[:, 0]) - needle(rows[:, 1])

        out.append(build("needles-in-a-slope", hidden, both, nil, torch.tensor([2.0, 0.0]), "needle"))
    return out


def jumps() -> list[Jump]:
    """Scores that jump, on the line from 0 to 1."""

    def threshold(at: float, size: float) -> Function:
        return lambda rows: rows[:, 0] ** 2 + size * (rows[:, 0] > at).to(rows.dtype)

    return [
        Jump("up", threshold(0.3, 2.0), 0.3, 2.0),
        Jump("down", threshold(0.7071, -0.5), 0.7071, -0.5),
        Jump("small", threshold(0.0625, 0.05), 0.0625, 0.05),
    ]
