"""Scores that change where no gradient flows are named for what they do, soon, and honest functions never are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.errors import BaselineWarning, ConvergenceWarning, ZeroAttributionWarning

Function = Callable[[Tensor], Tensor]

FEW = 60
"""Gradients that naming it may take on smooth functions."""


def warned(model: Any, x: Any, *args: Any, **options: Any) -> ig.Attribution:
    """The attribution of what is expected to miss its tolerance, from a baseline that nobody chose for it."""
    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, BaselineWarning):
            warnings.simplefilter("ignore", kind)
        return ig.integrated_gradients(model, x, *args, **options)


def quietly(model: Any, x: Any, *args: Any, **options: Any) -> ig.Attribution:
    """The same where all attributions may be zero."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroAttributionWarning)
        return warned(model, x, *args, **options)


def smooth(*, seed: int = 0, kind: type[nn.Module] = nn.GELU) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 32), kind(), nn.Linear(32, 32), kind(), nn.Linear(32, 3)).eval()


def drawn(rows: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))


# Jumps


STEPS: dict[str, Function] = {
    "floor": lambda z: z.floor(),
    "ceil": lambda z: z.ceil(),
    "reached": lambda z: (z >= 3).to(z),
    "left": lambda z: (z > 0).to(z),
    "round": lambda z: (z + 0.5).floor(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", STEPS)
def test_a_step_exactly_at_an_end_is_no_accuracy(name: str, dtype: torch.dtype) -> None:
    """All attributions are zero, and the score changes: nothing over nothing is not 'converged'."""
    step = STEPS[name]
    with pytest.warns(ZeroAttributionWarning, match="exactly zero: no gradient reaches it, though the score changes"):
        result = warned(lambda x: step(x).sum(1) + 0 * x.sum(1), torch.tensor([[3.0]], dtype=dtype))
    found = result.certificate.only
    assert not result.values.any()
    assert found.status is ig.Status.JUMP
    assert found.unseen == "jump"
    assert found.error == float("inf")
    assert found.residual == found.baseline_score - found.score != 0
    assert found.gradients <= FEW


@pytest.mark.parametrize("options", [{}, {"steps": 50}, {"steps": 64, "rule": "trapezoid"}, {"max_evaluations": 20}])
@pytest.mark.parametrize(("at", "where"), [(0.0, 0.0), (0.75, 0.25), (3.0, 1.0)])
def test_a_jump_beside_a_smooth_part_is_found_and_the_rest_is_right(at: float, where: float, options: dict[str, Any]) -> None:
    def model(x: Tensor) -> Tensor:
        passed = x[:, 1] > at if at == 0 else x[:, 1] >= at
        return x[:, 0] ** 2 + 5 * passed

    x = torch.tensor([[1.0, 3.0]])
    result = quietly(model, x, **options)
    found = result.certificate.only
    assert found.status is ig.Status.JUMP
    assert found.unseen == "jump"
    assert found.jump_at == pytest.approx(where, abs=1e-5)
    assert found.jump_size == pytest.approx(5, abs=1e-3)
    assert "explain a score before the threshold" in found.remedy
    assert found.gradients <= (FEW if not options else options.get("steps", 20))
    # x0 gets x0^2 to the tolerance, x1 nothing, and the error is not below what the sum misses.
    torch.testing.assert_close(result.values, torch.tensor([[1.0, 0.0]]), atol=0.01, rtol=0)
    assert found.error >= 4.9


def test_several_jumps_are_said_to_be_several() -> None:
    found = quietly(lambda x: x[:, 0] ** 2 + x[:, 1].floor(), torch.tensor([[1.0, 3.0]])).certificate.only
    assert found.jump_size == pytest.approx(1, abs=1e-3)
    assert "of the path and elsewhere" in found.remedy


# Cut from autograd, quantised


class Straight(torch.autograd.Function):
    """Rounds to eighths, or to other steps, and hands gradients through as if it did not."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, levels: float = 8) -> Tensor:
        return torch.round(levels * z) / levels

    @staticmethod
    def backward(ctx: Any, seed: Tensor) -> tuple[Tensor, None]:
        return seed, None


def cut() -> dict[str, Function]:
    """Models of which part is cut from autograd, or has another backward pass than its derivative."""
    model, other = smooth(), smooth(seed=1)

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor) -> Tensor:
            return z.sin()

        @staticmethod
        def backward(ctx: Any, seed: Tensor) -> Tensor:
            return 2 * seed

    def by_numpy(x: Tensor) -> Tensor:
        return x[:, 0] ** 2 + torch.from_numpy(x.detach().numpy().sum(1))

    return {
        "detach": lambda x: 30 * model(x).detach()[:, 0] + x[:, 0] ** 2,
        "inside": lambda x: model[2:](model[:2](x).detach() + 0.5 * model[:2](x))[:, 0],
        "numpy": by_numpy,
        "backward": lambda x: Doubled.apply(x).sum(1),
        "softmax": lambda x: torch.softmax(model(x) + 3 * other(x).detach(), 1)[:, 0],
    }


@pytest.mark.parametrize("options", [{}, {"steps": 50}, {"max_evaluations": 20}])
@pytest.mark.parametrize("name", cut())
def test_what_is_cut_from_autograd_is_named(name: str, options: dict[str, Any]) -> None:
    model, x = cut()[name], drawn(3)
    result = quietly(model, x, **options)
    for found in result.certificate:
        assert found.status is ig.Status.JUMP, found
        assert found.unseen == "throughout", found
        assert "cut from autograd (.detach()" in found.remedy
        assert found.gradients <= (FEW if not options else options.get("steps", 20))
        assert found.error * found.magnitude >= 0.99 * abs(found.residual)


def test_the_gradients_that_flow_are_integrated_all_the_same() -> None:
    model, x = smooth(), drawn(3)
    result = quietly(lambda z: model(z).detach()[:, 0] + (z**3).sum(1), x)
    torch.testing.assert_close(result.values, x**3, atol=0, rtol=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_kinked_networks_with_a_part_cut_off(seed: int) -> None:
    """The gradients themselves are rough; hundreds of them, not thousands."""
    model, other = smooth(seed=seed, kind=nn.ReLU), smooth(seed=seed + 10, kind=nn.ReLU)
    x = drawn(2, seed)
    for found in quietly(lambda z: model(z)[:, 0] + 2 * other(z).detach()[:, 1], x).certificate:
        assert found.status is ig.Status.JUMP, found
        assert found.unseen == "throughout", found
        assert found.gradients <= 700


def test_a_curve_that_autograd_cannot_follow() -> None:
    """t.item() makes a constant of the time: the velocity is zero."""
    model, x = smooth(), drawn(1)
    for function in (lambda t: t.item() * x, lambda t: torch.cat([float(t) * x[:, :2], t * x[:, 2:]], 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ig.path_attribution(model, ig.paths.Curve(function), target=0).certificate.only
        assert found.status is ig.Status.JUMP
        assert found.unseen == "throughout"
        assert ".item()" in found.remedy
        assert found.gradients <= FEW


def quantised(model: nn.Module) -> Function:
    """The model as a few bits would have it: inputs of every layer rounded to 1/64, without a gradient of their own."""

    def run(x: Tensor) -> Tensor:
        for layer in model:
            x = layer(torch.round(64 * x) / 64) if isinstance(layer, nn.Linear) else layer(x)
        return 10 * x[:, 0]

    return run


@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_a_quantised_model_is_named(kept: float) -> None:
    """As the whole model and beside one that has gradients."""
    model, other, x = smooth(), smooth(seed=1), 3 * drawn(2)
    steps = quantised(model)
    for found in quietly(lambda z: steps(z) + kept * other(z)[:, 0] + 0 * z.sum(1), x).certificate:
        assert found.status is ig.Status.JUMP, found
        assert found.unseen == "steps", found
        assert "explain the model before it is quantised" in found.remedy
        assert found.gradients <= 200


def test_rounding_that_gradients_follow_is_a_noise_floor_and_its_remedy_helps() -> None:
    model, x = smooth(), drawn(3)
    rounded, options = (lambda z: model(Straight.apply(3 * z))[:, 0]), {"tol": 1e-4}
    result = quietly(rounded, x, **options)
    exact = ig.integrated_gradients(lambda z: model(3 * z)[:, 0], x, tol=1e-5).values
    for i, found in enumerate(result.certificate):
        assert found.status is ig.Status.NOISE, found
        assert found.unseen == "rounding"
        assert "something inside the model rounds" in found.remedy
        assert found.gradients <= 400
        again = ig.integrated_gradients(rounded, x[i : i + 1], tol=1.5 * found.error)
        assert again.certificate.converged
    # Rounding to eighths is coarse: the attributions of the model without it are within a few per cent.
    assert float((result.values - exact).abs().sum() / exact.abs().sum()) < 0.05


@pytest.mark.parametrize(
    ("place", "levels", "score"), [(0, 64, "logit"), (2, 64, "probability"), (2, 8, "logit"), (5, 1000, "logit")]
)
@pytest.mark.parametrize("seed", range(2))
def test_a_straight_through_model_with_kinks_stops_at_its_tolerance(place: int, levels: float, score: str, seed: int) -> None:
    """Its steps stay as large as they are: refinement went on to 4,000 gradients, for errors that had long been met."""
    torch.manual_seed(seed)
    layers = [nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)]

    def model(z: Tensor) -> Tensor:
        for number, layer in enumerate(layers):
            z = layer(Straight.apply(z, levels) if number == place else z)
        return Straight.apply(z, levels) if place == len(layers) else z

    x = 3 * torch.randn(1, 16)
    found = quietly(model, x, target=0, score=score)
    points = ((torch.arange(8192)[:, None] + 0.5) / 8192 * x).requires_grad_()
    outputs = model(points).softmax(1) if score == "probability" else model(points)
    exact = x[0] * torch.autograd.grad(outputs[:, 0].sum(), points)[0].double().mean(0)
    only = found.certificate.only
    assert only.gradients <= 600
    assert only.error <= 0.011  # the reference has some of it too
    assert float((found.values[0] - exact).abs().sum() / exact.abs().sum()) <= 0.01


# One among others


def test_one_bad_example_leaves_the_others_as_they_were() -> None:
    model, x = smooth(), drawn(4)
    x[2, 1] = 4.0

    def jumps(z: Tensor) -> Tensor:
        return model(z)[:, 0] + (z[:, 1] > 2.5).to(z)

    result, good = quietly(jumps, x), [0, 1, 3]
    alone = ig.integrated_gradients(jumps, x[good])
    assert [one.status for one in result.certificate] == [ig.Status.JUMP if i == 2 else ig.Status.CONVERGED for i in range(4)]
    torch.testing.assert_close(result.values[good], alone.values, atol=1e-6, rtol=1e-5)
    assert [result.certificate[i].gradients for i in good] == [one.gradients for one in alone.certificate]


def test_several_pieces_layers_and_groups() -> None:
    model, x = smooth(), drawn(2)

    def jumps(z: Tensor) -> Tensor:
        return model(z)[:, 0] + 3 * (z[:, 0].abs() > 0.1).to(z)

    x[:, 0] = torch.tensor([1.0, -1.0])
    line = ig.paths.Polyline([torch.zeros(2, 4), x * torch.tensor([1.0, 0, 0, 1]), x])
    with pytest.warns(ConvergenceWarning, match="not complete: the score jumps by 3"):
        by_line = ig.path_attribution(jumps, line)
    for result in (by_line, quietly(jumps, x, groups=torch.tensor([0, 0, 1, 1])), quietly(jumps, x, torch.zeros(2, 4))):
        for found in result.certificate:
            assert found.status is ig.Status.JUMP
            assert found.jump_at == pytest.approx(0.1, abs=1e-5)
            assert found.jump_size == pytest.approx(3, abs=1e-3)

    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = model[0], model[4]

        def forward(self, z: Tensor) -> Tensor:
            hidden = self.first(z)
            return self.last(hidden.tanh()) + self.last(hidden.sin()).detach()

    network = Cut()
    for found in quietly(network, x, target=0, layer=network.first).certificate:
        assert found.unseen == "throughout"


# Never an honest function


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steep", [1e2, 1e4, 1e5, 1e6])
@pytest.mark.parametrize("where", [0.0, 0.123, 0.5, 0.618, 1.0])
def test_steep_functions_are_not_taken_for_jumps(where: float, steep: float, dtype: torch.dtype) -> None:
    """Sigmoids, ramps and bumps, down to a few numbers wide; also where points have few digits left."""
    x, start = torch.ones(1, 2, dtype=dtype), -3.0 if dtype == torch.float64 else 0.0
    shapes: list[Function] = [
        lambda u: torch.sigmoid(steep * u),
        lambda u: torch.relu(steep * u).clamp(max=1),
        lambda u: torch.exp(-((steep * u) ** 2)),
    ]
    for shape in shapes:
        result = quietly(lambda z, f=shape: f(z[:, 0] - start - where) + (z[:, 1] - start) ** 2, x + start, 0 * x + start)
        found = result.certificate.only
        assert not found.unseen, found
        assert found.status is not ig.Status.JUMP


@pytest.mark.parametrize("cycles", [10, 64, 150, 1024, 5000])
def test_oscillations_are_not_taken_for_a_cut(cycles: int) -> None:
    """Aliased on the nodes or not: what looks smooth and misses much of the score, and has honest gradients."""
    for size in (1.0, 5.0 / cycles):
        for options in ({}, {"steps": 64, "rule": "midpoint"}, {"steps": 65, "rule": "trapezoid"}):
            model = lambda z, a=size: a * torch.sin(2 * torch.pi * cycles * z[:, 0]) + z.sum(1)  # noqa: E731
            assert not quietly(model, torch.ones(1, 2, dtype=torch.float64), **options).certificate.only.unseen


def test_networks_are_never_named() -> None:
    for seed in range(3):
        for kind in (nn.ReLU, nn.Hardtanh, nn.GELU):
            model = smooth(seed=seed, kind=kind)
            with torch.no_grad():
                for weights in model.parameters():
                    weights *= 3
            for options in ({"tol": 1e-2}, {"tol": 1e-4}, {"steps": 20}, {"score": "probability"}):
                assert not any(one.unseen for one in quietly(model, 3 * drawn(3, seed), target=0, **options).certificate)


@pytest.mark.parametrize("margin", [140.0, 200.0])
def test_a_saturated_logarithm_is_no_cut(margin: float) -> None:
    """log(1) stays 0 where its gradient is 1e-60: the score cannot show what happens there, and no part of the model is cut."""

    def score(rows: Tensor) -> Tensor:
        other = torch.relu(3 * rows[:, 0] - 1) - torch.relu(2 - 4 * rows[:, 1]) + torch.relu(rows[:, 0] - rows[:, 1] + 0.1)
        return torch.log_softmax(torch.stack([margin + 0 * other, 5 * other], 1), 1)[:, 0]

    result = quietly(score, torch.tensor([[1.0, 0.8]], dtype=torch.float64))
    assert 0 < float(result.values.abs().sum()) < 1e-50
    only = result.certificate.only
    assert only.status is ig.Status.UNKNOWN
    assert "saturated" in only.remedy
    assert "input in float64" not in only.remedy  # which it is already
