"""Exact integrals against closed forms, and against kinks found by bisection."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from integrand.certificate import Status
from tests.honesty.networks import digits, trained
from tests.networks import Case, networks
from tests.problems import Problem, cases

from .common import D, Exact, drawn, exactly, off, reference, values

ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-6}


PROBLEMS = [problem for problem in cases() if problem.dtype == D or problem.kind == "kinked"]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_what_is_not_refused_is_exact_to_rounding_and_says_so(problem: Problem) -> None:
    (found,) = exactly(problem.function, problem.x, problem.baseline)
    if not isinstance(found, Exact):
        assert problem.kind not in {"linear", "kinked"} or "cusp" in problem.name or "sigmoid" in problem.name
        assert "is not piecewise linear" in found.reason
        return
    assert problem.error(found.values) <= ROUNDING[problem.dtype]
    assert problem.error(found.values) <= found.certificate.error + 8 * torch.finfo(problem.dtype).eps
    assert found.certificate.status is Status.EXACT


@pytest.mark.parametrize(
    ("model", "x", "expected"),
    [
        # The paper's sections 1 and 2: saturation, and two networks that are the same function.
        (lambda x: 1 - torch.relu(1 - x).sum(1), [2.0], [1.0]),
        (lambda x: torch.relu(torch.relu(x[:, 0]) - 1 - torch.relu(x[:, 1])), [3.0, 1.0], [1.5, -0.5]),
        (lambda x: torch.relu(torch.relu(x[:, 0] - 1) - torch.relu(x[:, 1])), [3.0, 1.0], [1.5, -0.5]),
        # min(x1, x2) grows with x1 alone where that is the smaller all the way; so does max with x2.
        (lambda x: torch.minimum(x[:, 0], x[:, 1]), [1.0, 3.0], [1.0, 0.0]),
        (lambda x: x.min(1).values, [1.0, 3.0], [1.0, 0.0]),
        (lambda x: x.amax(1), [1.0, 3.0], [0.0, 3.0]),
        # max(x1, 1 - x1): falls up to 1/2, rises from there.
        (lambda x: torch.maximum(x, 1 - x)[:, 0], [1.0], [0.0]),
        (lambda x: x.abs().sum(1) + torch.relu(x[:, 0] - 0.25), [1.0, -2.0], [1.75, 2.0]),
    ],
)
def test_the_papers_examples(model: object, x: list[float], expected: list[float]) -> None:
    found = values(model, torch.tensor([x], dtype=D))  # type: ignore[arg-type]
    assert found.tolist() == [pytest.approx(expected, abs=1e-15)]


@given(networks(relu=True))
@settings(max_examples=25, deadline=None)
def test_random_relu_networks(case: Case) -> None:
    found, ends = values(case.model, case.x, case.baseline), (case.model, case.x, case.baseline)
    # A network of one input may go up and down again by next to the same.
    assert float((found - reference(*ends)).abs().sum()) <= 1e-12 * float(reference(*ends, unsigned=True).sum())


class Residual(nn.Module):
    """Two convolutional blocks with a skip each, batch norms with statistics of their own, and an average pool."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)) for _ in range(2))
        self.activation, self.head = activation, nn.Linear(4, 3)
        for block in self.blocks:
            nn.init.normal_(block[1].weight), nn.init.normal_(block[1].running_mean)
            nn.init.uniform_(block[1].running_var, 0.5, 2)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = self.activation(x + block(x))
        return self.head(F.avg_pool2d(x, 2).mean((2, 3)))


@pytest.mark.parametrize(
    "activation", [nn.ReLU(), nn.ReLU(inplace=True), nn.LeakyReLU(0.2), nn.Hardtanh(), nn.ReLU6(), nn.PReLU()], ids=repr
)
def test_residual_networks(activation: nn.Module) -> None:
    model, x, baseline = Residual(activation), 2 * drawn(1, 2, 4, 4), 2 * drawn(1, 2, 4, 4, seed=2)
    found = values(model, x, baseline, target=1)
    assert off(found, reference(model, x, baseline, target=1)) <= 1e-12


POOLS = {
    "max-pool": nn.MaxPool2d(2),
    "overlapping": nn.MaxPool2d(3, stride=1, padding=1),
    "adaptive": nn.AdaptiveMaxPool2d(2),
    "amax": lambda x: x.amax((2, 3), keepdim=True),
    "max": lambda x: x.max(2, keepdim=True).values,
    "min": lambda x: x.min(3).values,
    "average of maxima": lambda x: F.avg_pool2d(F.max_pool2d(x, 2, stride=1), 2),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(name: str) -> None:
    torch.manual_seed(4)
    conv, x, baseline = nn.Conv2d(1, 3, 3).double(), 3 * drawn(1, 1, 7, 7), drawn(1, 1, 7, 7, seed=2)
    weights = drawn(1000)

    def model(x: Tensor) -> Tensor:
        pooled = POOLS[name](conv(x).relu()).flatten(1)
        return (pooled * weights[: pooled.shape[1]]).sum(1)

    assert off(values(model, x, baseline), reference(model, x, baseline)) <= 1e-12


UNITS = {
    "clamp": lambda z: z.clamp(-0.3, 0.4),
    "clamp by tensors": lambda z: torch.clamp(z, drawn(6) - 1, drawn(6) + 1),
    "clamp by itself": lambda z: torch.clamp(z, max=z.flip(1)),
    "abs": torch.abs,
    "where": lambda z: torch.where(z > 0, z, 0.1 * z),
    "masked": lambda z: z.masked_fill(z < 0, 0.0),
    "maximum": lambda z: torch.maximum(z, z.flip(1) / 2),
    "minimum of a constant": lambda z: torch.minimum(z, torch.tensor(0.2, dtype=D)),
    "softshrink": F.softshrink,
    "threshold": lambda z: F.threshold(z, 0.1, 0.1),
    "concatenated": lambda z: torch.cat([z.relu(), (-z).relu()], 1),
    "relu of relu": lambda z: (z.relu() - 0.2 * z.flip(1).relu()).relu(),
}


@pytest.mark.parametrize("name", UNITS)
def test_units(name: str) -> None:
    first, second = drawn(4, 6, seed=5), drawn(12, 6, seed=6)

    def model(x: Tensor) -> Tensor:
        z = UNITS[name](x @ first)
        return UNITS[name](z @ second[: z.shape[1]]) @ drawn(12 if name == "concatenated" else 6, seed=7)

    x, baseline = 2 * drawn(1, 4), 2 * drawn(1, 4, seed=2)
    assert off(values(model, x, baseline), reference(model, x, baseline)) <= 1e-12


@pytest.mark.parametrize("score", ["logit", "probability", "log-probability"])
def test_a_trained_digits_network(score: str) -> None:
    model, x = trained("relu", D), digits()[0][1500:1503].double()
    targets = model(x).argmax(1).tolist()
    found = values(model, x, score=score)
    for i, target in enumerate(targets):
        row = x[i : i + 1]
        assert off(found[i : i + 1], reference(model, row, torch.zeros_like(row), score, target)) <= 1e-13


def test_a_trained_convolutional_digits_network_is_complete_in_every_region() -> None:
    model, x = trained("cnn", D), digits()[0][1500:1501].double()
    (found,) = exactly(model, x)
    assert isinstance(found, Exact)
    certificate = found.certificate
    assert found.regions > 500
    assert certificate.error <= 1e-12  # from what is missing region by region
    with torch.no_grad():
        change = model(x).max() - model(torch.zeros_like(x))[0, model(x).argmax()]
    assert found.values.sum().item() == pytest.approx(change.item(), abs=1e-12)


@pytest.mark.parametrize(("name", "rows"), [("relu", slice(1500, 1505)), ("cnn", slice(1502, 1503))])
def test_a_float32_model_is_off_by_its_own_rounding(name: str, rows: slice) -> None:
    """On digit 1502 float32 puts the convolutional network on the other side of a kink in a region 3e-5 wide."""
    x = digits()[0][rows]
    exact = values(trained(name, D), x.double(), score="log-probability")
    for i, one in enumerate(exactly(trained(name), x, score="log-probability")):
        assert isinstance(one, Exact)
        assert off(one.values[None], exact[i : i + 1]) <= min(1e-5, one.certificate.error)


def test_a_tolerance_below_the_rounding_of_the_model_is_not_promised() -> None:
    (found,) = exactly(trained("relu"), digits()[0][1500:1501], tol=1e-9)
    assert isinstance(found, Exact)
    assert found.certificate.status is Status.NOISE


@given(st.floats(0.1, 1e4), st.integers(2, 5))
@settings(max_examples=20, deadline=None)
def test_probabilities_of_linear_models(scale: float, classes: int) -> None:
    """One region; with two classes the mean of p (1 - p) along the line is the change of p over that of the logit."""
    weights = scale * drawn(3, classes, seed=8)
    x, baseline = drawn(1, 3), drawn(1, 3, seed=2)

    def model(rows: Tensor) -> Tensor:
        return rows @ weights

    (found,) = exactly(model, x, baseline, score="probability", target=0)
    assert isinstance(found, Exact)
    assert found.regions == 1
    assert found.certificate.residual == pytest.approx(0, abs=1e-13)
    if classes == 2:
        gap = weights[:, 0] - weights[:, 1]
        rise = (model(x).softmax(1) - model(baseline).softmax(1))[0, 0] / ((x - baseline) @ gap)
        assert torch.allclose(found.values, rise * gap * (x - baseline)[0], rtol=1e-11, atol=1e-14)
