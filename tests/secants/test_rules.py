"""What operations hand back over a segment, against closed forms and against the integral along it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from integrand.errors import OperationError

from .segments import integrated, segments

WIDTH = 6


def seeded(module: nn.Module, *, fill: float | None = None) -> nn.Module:
    """A module with weights from a fixed seed, in float64."""
    generator = torch.Generator().manual_seed(3)
    for tensor in (*module.parameters(), *(b for b in module.buffers() if b.dtype.is_floating_point)):
        tensor.data = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).mul_(0.7)
        if fill is not None:
            tensor.data.abs_().add_(fill)
    return module.double().eval().requires_grad_(False)


X = torch.tensor([[1.3, -2.0, 0.7, 2.1, -0.4, 1.1]], dtype=torch.float64)
START = torch.tensor([[-0.9, 0.8, 0.2, -1.0, 0.6, -1.7]], dtype=torch.float64)
LAYER = seeded(nn.Linear(WIDTH, WIDTH))
OUT = seeded(nn.Linear(WIDTH, 1))
PICTURE = seeded(nn.Sequential(nn.Conv2d(1, 3, 2, padding=1), nn.BatchNorm2d(3)), fill=0.1)
MIXED = torch.tensor([[0.4, -1.0, 2.0]], dtype=torch.float64)


def through(operation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A layer, an operation on each of its units, and a weighted sum."""
    return lambda x: OUT(operation(LAYER(x))).squeeze(1)


POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu6": lambda z: F.relu6(3 * z),
    "leaky": lambda z: F.leaky_relu(z, 0.2),
    "prelu": lambda z: F.prelu(z, torch.tensor([0.3], dtype=z.dtype)),
    "hardtanh": F.hardtanh,
    "clamp": lambda z: z.clamp(-0.3, 0.9),
    "clamp from below": lambda z: z.clamp(min=0.2),
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "exp": lambda z: (z / 3).exp(),
    "square": torch.square,
    "root": lambda z: (z.square() + 1).sqrt(),
    "absolute": torch.abs,
}


@pytest.mark.parametrize("operation", POINTWISE.values(), ids=POINTWISE)
def test_one_layer_is_exact_on_one_segment(operation: Callable[[Tensor], Tensor]) -> None:
    """What goes into the units moves on a straight line: the mean slope is the secant, whatever the function."""
    function = through(operation)
    found, rise = segments(function, X, START, 1)
    torch.testing.assert_close(found, integrated(function, X, START), rtol=0, atol=2e-4)
    torch.testing.assert_close(found.sum(1), rise, rtol=1e-12, atol=1e-12)


OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "largest": lambda x: LAYER(x).amax(1),
    "largest with its place": lambda x: LAYER(x).max(1).values,
    "smallest": lambda x: LAYER(x).min(1, keepdim=True)[0].squeeze(1),
    "larger of two": lambda x: torch.maximum(LAYER(x)[:, :3], LAYER(x)[:, 3:]).sum(1),
    "smaller of two": lambda x: torch.minimum(LAYER(x)[:, :3], LAYER(x)[:, 3:]).sum(1),
    "max-pool": lambda x: (F.max_pool2d(PICTURE(x.view(-1, 1, 2, 3)), 2).flatten(1)).sum(1),
    "max-pool in one dimension": lambda x: (F.max_pool1d(LAYER(x)[:, None], 3)[:, 0]).sum(1),
    "product": lambda x: (LAYER(x)[:, :3] * LAYER(x)[:, 3:]).sum(1),
    "softmax": lambda x: LAYER(x).softmax(1)[:, 2],
    "log softmax": lambda x: LAYER(x).log_softmax(1)[:, 1],
    "log of summed exponentials": lambda x: LAYER(x).logsumexp(1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_operations_are_exact_on_one_segment_too(name: str) -> None:
    """Two winners of a maximum share the segment where they cross; products are exact by the mean of their factors."""
    function = OTHERS[name]
    count = 64 if "pool" in name or "argest" in name or "mallest" in name else 1  # more than two may win on the whole way
    found, rise = segments(function, X, START, count)
    torch.testing.assert_close(found.sum(0, keepdim=True), integrated(function, X, START), rtol=0, atol=3e-4)
    torch.testing.assert_close(found.sum(1), rise, rtol=0, atol=1e-9)


class Attention(nn.Module):
    """Layer norm, attention, a gate and a quotient."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.one, self.two, self.value = nn.LayerNorm(2), nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """One number for each of (N, 6)."""
        z = self.norm(x.view(-1, 3, 2))
        weights = (self.one(z) @ self.two(z).transpose(1, 2)).softmax(2)
        z = (weights @ self.value(z)) * torch.sigmoid(z)
        return (z / (z.square().sum(2, keepdim=True) + 1).sqrt()).sum((1, 2))


class Recurrent(nn.Module):
    """An LSTM over three steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(2, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """One number for each of (N, 6)."""
        return self.cell(x.view(-1, 3, 2))[0][:, -1].sum(1)


DEEP: dict[str, nn.Module | Callable[[Tensor], Tensor]] = {
    "attention": seeded(Attention()),
    "lstm": seeded(Recurrent()),
    "local response norm": lambda x: (F.local_response_norm(PICTURE(x.view(-1, 1, 2, 3)), 2, 0.5) ** 2).flatten(1).sum(1),
    "smooth network": through(lambda z: torch.tanh(LAYER(F.gelu(z)))),
}


@pytest.mark.parametrize("function", DEEP.values(), ids=DEEP)
def test_deep_smooth_functions_converge_like_the_square_of_the_width(function: Callable[[Tensor], Tensor]) -> None:
    exact = integrated(function, X, START, 4000)
    errors = []
    for count in (8, 16, 32):
        found, rise = segments(function, X, START, count)
        torch.testing.assert_close(found.sum(1), rise, rtol=0, atol=1e-6)
        errors.append(float((found.sum(0) - exact).abs().sum()))
    assert errors[0] / errors[1] > 3
    assert errors[1] / errors[2] > 3


def test_the_papers_g() -> None:
    """ReLU(ReLU(x1 - 1) - x2) at (3, 1): DeepLift's answer with one segment, integrated gradients from two on."""
    x, start = torch.tensor([[3.0, 1.0]]), torch.zeros(1, 2)

    def g(x: Tensor) -> Tensor:
        return torch.relu(torch.relu(x[:, 0] - 1) - x[:, 1])

    for count, exact in ((1, [2.0, -1.0]), (2, [1.5, -0.5]), (3, [1.5, -0.5]), (7, [1.5, -0.5])):
        torch.testing.assert_close(segments(g, x, start, count)[0].sum(0), torch.tensor(exact))


def test_where_nothing_moves_the_derivative_is_handed_back() -> None:
    """The unit x1 - x2 stays at 1 all along, and passes on what its two features do."""
    x, start = torch.tensor([[3.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    for unit in (torch.relu, torch.abs, lambda z: z.clamp(0, 5), lambda z: z.square() / 2):
        found, _ = segments(lambda x, unit=unit: unit(x[:, 0] - x[:, 1]), x, start, 2)
        torch.testing.assert_close(found.sum(0), torch.tensor([2.0, -2.0]))


def test_a_network_with_kinks_converges_faster_than_first_order() -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 1)]
    model = nn.Sequential(*layers).double().requires_grad_(False)
    x, start = torch.randn(2, 1, 20, dtype=torch.float64)
    exact = integrated(lambda x: model(x)[:, 0], x, start, 20_000)
    errors = []
    for count in (16, 128):
        found, rise = segments(lambda x: model(x)[:, 0], x, start, count)
        torch.testing.assert_close(found.sum(1), rise, rtol=0, atol=1e-10)
        errors.append(float((found.sum(0) - exact).abs().sum()))
    assert errors[0] / errors[1] > 8**1.2  # 8 for a first-order rule


REFUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "sign": lambda x: (x * x.sign()).sum(1),
    "a condition": lambda x: torch.where(x > 0, x, 0 * x).sum(1),
    "sorting": lambda x: (x.sort(1).values * torch.arange(WIDTH)).sum(1),
    "detach": lambda x: (x * x.detach()).sum(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_jumps_is_refused(name: str) -> None:
    with pytest.raises(OperationError, match="segment secants has no rule"):
        segments(REFUSED[name], X, START, 2)


def test_rows_that_are_bound_later_have_their_own_targets() -> None:
    """A program that was followed for the rows 0, 0, 1 serves the rows 1, 1, 0."""
    from integrand.functions import build
    from integrand.operations import trace
    from integrand.secants import SecantProgram

    x = torch.cat([X, -X])
    scale = torch.tensor([2.0, 5.0], dtype=torch.float64)
    function = build(lambda x, scale: torch.relu(LAYER(x)) * scale[:, None], x, target=[2, 4], args=(scale,))
    rows = torch.tensor([0, 0, 1])
    points = x[rows]
    prepared, _ = SecantProgram.prepare(trace(function, rows, open_rows=True), (points, rows))
    other = torch.tensor([1, 1, 0])
    bound = prepared.bind(other)
    first, last = bound.forward((0 * points,)), bound.forward((x[other],))
    (slopes,) = bound.back(first, last, (points,))
    expected = torch.relu(LAYER(x[other]))[torch.arange(3), torch.tensor([4, 4, 2])] * scale[other]
    torch.testing.assert_close(bound.scores(last), expected)
    torch.testing.assert_close((slopes * x[other]).sum(1), expected - bound.scores(first))
