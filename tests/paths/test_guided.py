"""Paths that are laid on the way: the published algorithm's points, completeness, and what steering costs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import integrand as ig
from integrand.axioms import check
from integrand.errors import ConvergenceWarning, InputError, NonFiniteError, OptionError, RowsError, ZeroAttributionWarning
from integrand.methods import GuidedIG, IntegratedGradients, PathMethod, by_name
from integrand.paths import Guided, Path, Polyline, Steered

from ..honesty.honest import Claim, assert_honest, relative_error
from ..honesty.networks import trained
from ..honesty.references import digit_batches

D = torch.float64
Floats = NDArray[np.float64]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def perceptron(features: int, outputs: int = 1) -> nn.Module:
    net = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, outputs)).double().eval()
    for i, parameter in enumerate(net.parameters()):
        parameter.data = drawn(*parameter.shape, seed=10 + i) * 0.7
    return net


def digits(network: str, dtype: torch.dtype, count: int = 4) -> tuple[nn.Module, Tensor, Tensor]:
    batch = next(b for b in digit_batches(dtype) if b.network == network)
    x = batch.x[:count]
    return trained(network, dtype), x, torch.zeros_like(x)


def published(start: Floats, stop: Floats, slope: Callable[[Floats], Floats], steps: int, fraction: float) -> list[Floats]:
    """The points after each step, by a plain loop over what Kapishnikov et al. describe (algorithm 1), one example."""
    point, points = start.copy(), []
    total = np.abs(stop - start).sum()
    for step in range(1, steps + 1):
        size = np.abs(slope(point))
        while True:
            left = np.abs(stop - point)
            over = left.sum() - total * (1 - step / steps)
            if over <= 1e-9 * total:
                break
            waiting = [i for i in range(len(point)) if point[i] != stop[i]]
            number = int(np.floor(fraction * (len(point) - 1))) + 1
            limit = sorted(size[waiting])[min(number, len(waiting)) - 1]
            chosen = [i for i in waiting if size[i] <= limit]
            share = over / left[chosen].sum()
            for i in chosen:
                point[i] = stop[i] if share >= 1 else point[i] + share * (stop[i] - point[i])
        points.append(point.copy())
    return points


def laid(path: Guided, model: Callable[[Tensor], Tensor]) -> Polyline:
    """The path as the engine would have it laid."""

    def gradient(points: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            at = points[0].clone().requires_grad_()
            return torch.autograd.grad(model(at).sum(), (at,))

    return path.steer(gradient, batched=True)


# ---- the path -------------------------------------------------------------------------------------------------------------


def test_the_flattest_feature_moves_first() -> None:
    """F = x1 + 10 x2 from (0, 0) to (2, 2): of the way of 4, half of it at each step, x1 takes the first."""
    path = Guided(torch.zeros(1, 2, dtype=D), torch.full((1, 2), 2.0, dtype=D), 2, 0.5, anchors=0)
    points = laid(path, lambda x: x[:, 0] + 10 * x[:, 1]).points
    assert torch.stack(list(points))[:, 0].tolist() == [[0, 0], [2, 0], [2, 2]]
    points = laid(path, lambda x: 10 * x[:, 0] + x[:, 1]).points
    assert torch.stack(list(points))[:, 0].tolist() == [[0, 0], [0, 2], [2, 2]]
    quarters = laid(Guided(path.baseline, path.x, steps=4, fraction=0.5, anchors=0), lambda x: x[:, 0] + 10 * x[:, 1]).points
    assert torch.stack(list(quarters))[:, 0].tolist() == [[0, 0], [1, 0], [2, 0], [2, 1], [2, 2]]


def test_features_that_tie_move_together() -> None:
    """Of F = x1 + x2 + 10 x3 half of three features are two, but a tenth of them takes both as well: they tie."""
    path = Guided(torch.zeros(1, 3, dtype=D), torch.ones(1, 3, dtype=D), steps=3, fraction=0.1, anchors=0)
    points = torch.stack(list(laid(path, lambda x: x[:, 0] + x[:, 1] + 10 * x[:, 2]).points))[:, 0]
    torch.testing.assert_close(points, torch.tensor([[0, 0, 0], [0.5, 0.5, 0], [1, 1, 0], [1, 1, 1]], dtype=D))


@pytest.mark.parametrize(("fraction", "steps"), [(0.1, 16), (0.25, 7), (0.02, 5), (0.9, 10)])
def test_the_points_are_those_of_the_published_algorithm(fraction: float, steps: int) -> None:
    net, x, start = perceptron(20), drawn(3, 20, seed=1), drawn(3, 20, seed=2)
    start[:, 4] = x[:, 4]  # a feature that has nowhere to go

    def slope(point: Floats) -> Floats:
        at = torch.tensor(point)[None].requires_grad_()
        return torch.autograd.grad(net(at).sum(), at)[0][0].numpy()

    points = laid(Guided(start, x, steps=steps, fraction=fraction, anchors=0), net).points
    for row in range(3):
        expected = np.stack(published(start[row].numpy(), x[row].numpy(), slope, steps, fraction))
        np.testing.assert_allclose(torch.stack(list(points[1:]))[:, row].numpy(), expected, atol=1e-7)
    # Its attributions are the left Riemann sums along these points: one gradient on each line, at its start.
    with pytest.warns(ConvergenceWarning, match="too few steps"):
        found = ig.path_attribution(
            net, Guided(start, x, steps=steps, fraction=fraction, anchors=0), steps=1, rule="left"
        ).values
    ends = [start[0].numpy(), *published(start[0].numpy(), x[0].numpy(), slope, steps, fraction)]
    expected = sum(slope(a) * (b - a) for a, b in pairwise(ends))
    np.testing.assert_allclose(found[0].numpy(), expected, atol=1e-7)


def test_the_whole_at_a_time_is_the_straight_line() -> None:
    net, x, start = perceptron(9), drawn(2, 9, seed=1), drawn(2, 9, seed=2)
    points = laid(Guided(start, x, steps=4, fraction=1.0, anchors=0), net).points
    for share, point in zip((0.25, 0.5, 0.75), points[1:-1], strict=True):
        torch.testing.assert_close(point, start + share * (x - start), rtol=0, atol=1e-14)
    found = ig.path_attribution(net, Guided(start, x, steps=1, fraction=1.0, anchors=0), tol=1e-6).values
    torch.testing.assert_close(found, ig.integrated_gradients(net, x, start, tol=1e-6).values, rtol=1e-13, atol=1e-14)


def test_anchors_lie_on_the_straight_line() -> None:
    net, x, start = perceptron(9), drawn(2, 9, seed=1), drawn(2, 9, seed=2)
    points = laid(Guided(start, x, steps=3, fraction=0.1, anchors=2), net).points
    assert len(points) == 10
    for share, point in ((1 / 3, points[3]), (2 / 3, points[6])):
        torch.testing.assert_close(point, start + share * (x - start), rtol=0, atol=1e-14)
    off = points[1] - (start + (x - start) / 9)
    assert float(off.abs().max()) > 0.1
    assert points[-1] is x
    # A single step from one to the next leaves no room to move.
    tied = laid(Guided(start, x, steps=1, fraction=0.1, anchors=2), net).points
    torch.testing.assert_close(tied[1], start + (x - start) / 3, rtol=0, atol=1e-14)


# ---- attributions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["logit", "probability"])
def test_complete_on_a_convolutional_network(score: str) -> None:
    model, x, start = digits("cnn", torch.float32)
    result = ig.path_attribution(model, Guided(start, x), score=score, target=[3, 1, 0, 8], tol=0.02)
    with torch.no_grad():
        both = [model(point) if score == "logit" else model(point).softmax(1) for point in (x, start)]
    target = torch.tensor([3, 1, 0, 8])[:, None]
    change = (both[0] - both[1]).gather(1, target)[:, 0]
    gap = (result.values.sum(1) - change).abs()
    assert bool((gap <= 0.02 * result.values.abs().sum(1) + 1e-6).all())
    assert result.certificate.converged
    assert result.certificate.broken == ("implementation-invariance", "linearity", "symmetry")
    assert all("finding the path took 16 gradients" in one.note for one in result.certificate)


@pytest.mark.parametrize("network", ["gelu", "cnn"])
def test_errors_are_as_stated(network: str) -> None:
    """Along the same path, against results converged to 1e-6 on a smooth network, and to 3e-4 on rectifiers."""
    model, x, start = digits(network, D, 4 if network == "gelu" else 2)
    path, reference = Guided(start, x, steps=4, anchors=1), 1e-6 if network == "gelu" else 3e-4
    exact = ig.path_attribution(model, path, tol=reference, max_evaluations=100_000).values.numpy()
    claims = []
    for tol in (0.1, 0.03, 0.01):
        result = ig.path_attribution(model, path, tol=tol)
        for i, one in enumerate(result.certificate):
            measured = relative_error(result.values[i].numpy(), exact[i])
            claims.append(Claim(f"{network}[{i}]", tol, one.converged, one.error, measured, one.gradients))
    assert all(claim.converged for claim in claims)
    assert_honest(claims, share=0.9, worst=1.5)


def test_steering_is_counted_and_told() -> None:
    calls = []

    def model(x: Tensor) -> Tensor:
        calls.append(len(x))
        return (x**2 * x.roll(1, 1)).sum(1)

    x = drawn(3, 6)
    one = ig.path_attribution(model, Guided(torch.zeros_like(x), x, steps=4, anchors=0), chunk=2, tol=1e-4).certificate[0]
    spent = sum(curve.gradients for curve in one.curves)
    assert one.gradients >= spent + 4
    assert one.note == "finding the path took 4 gradients; the error is that of the sum along it"
    assert one.note in str(one)
    assert max(calls[1:]) == 2  # the first call, at x, settles the target
    # The limit holds for both together.
    with pytest.warns(ConvergenceWarning, match="budget spent"):
        short = ig.path_attribution(
            lambda z: z.abs().sin().sum(1) ** 3, Guided(-x, x, steps=4, anchors=0), tol=1e-9, max_evaluations=120
        )
    assert all(60 < one.gradients <= 130 for one in short.certificate)


def test_rows_do_not_depend_on_the_batch() -> None:
    model, x, start = digits("gelu", D)
    together = ig.path_attribution(model, Guided(start, x, steps=6, anchors=0), target=2, tol=1e-3).values
    for i in (0, 3):
        alone = ig.path_attribution(
            model, Guided(start[i : i + 1], x[i : i + 1], steps=6, anchors=0), target=2, tol=1e-3, chunk=1
        ).values
        torch.testing.assert_close(alone[0], together[i], rtol=1e-9, atol=1e-12)


def test_groups_masks_structures_and_single_examples() -> None:
    net, x, start = perceptron(6, 3), drawn(2, 6, seed=1), drawn(2, 6, seed=2)
    options = {"target": [2, 0], "score": "probability", "tol": 1e-5}
    whole = ig.path_attribution(net, Guided(start, x, steps=4, anchors=0), **options)
    labels = torch.tensor([0, 1, 1, 0, -1, 2])
    grouped = ig.path_attribution(net, Guided(start, x, steps=4, anchors=0), groups=labels, **options).values
    expected = torch.stack([whole.values[:, labels == i].sum(1) for i in range(3)], 1)
    torch.testing.assert_close(grouped, expected, rtol=0, atol=1e-5)
    masked = ig.path_attribution(net, Guided(start, x, steps=4, anchors=0), mask=labels >= 0, **options).values
    torch.testing.assert_close(masked, whole.values * (labels >= 0), rtol=0, atol=1e-12)

    def split(a: Tensor, b: Tensor) -> Tensor:
        return net(torch.cat([a, b], -1))

    pairs = [(part[:, :2], part[:, 2:]) for part in (start, x)]
    found = ig.path_attribution(split, Guided(*pairs, steps=4, anchors=0), **options).values
    torch.testing.assert_close(torch.cat(found, 1), whole.values, rtol=0, atol=1e-10)
    named = [{"a": a, "b": b} for a, b in pairs]
    values = ig.path_attribution(split, Guided(*named, steps=4, anchors=0), **options).values
    torch.testing.assert_close(torch.cat([values["a"], values["b"]], 1), whole.values, rtol=0, atol=1e-10)
    one = ig.path_attribution(
        lambda z: net(z[None])[0], Guided(start[0], x[0], steps=4, anchors=0), batched=False, **options | {"target": 2}
    )
    torch.testing.assert_close(one.values, whole.values[0], rtol=0, atol=1e-10)


def test_an_input_that_stands_still_gets_nothing() -> None:
    net, x = perceptron(5), drawn(2, 5)
    start = x.clone()
    start[1] = 0
    with pytest.warns(ZeroAttributionWarning, match=r"the input equals the baseline for example\(s\) \[0\]"):
        result = ig.path_attribution(net, Guided(start, x, steps=4, anchors=0), tol=1e-6)
    assert not result.values[0].any()
    assert float(result.values[1].sum()) == pytest.approx(float((net(x) - net(start))[1].detach()), abs=1e-5)
    assert result.certificate.converged


def test_half_precision_and_gradients_of_the_result() -> None:
    net, x, start = perceptron(6).float(), drawn(2, 6).float(), torch.zeros(2, 6)
    result = ig.path_attribution(net, Guided(start, x, steps=3, anchors=0), tol=1e-3, create_graph=True)
    weight = next(iter(net.parameters()))
    (slope,) = torch.autograd.grad(result.values.abs().sum(), weight)
    assert bool(slope.isfinite().all())
    assert bool(slope.any())
    half = ig.path_attribution(lambda z: (z * z).sum(1), Guided(start.bfloat16(), x.bfloat16(), steps=3, anchors=0), tol=0.1)
    assert half.values.dtype == torch.bfloat16
    torch.testing.assert_close(half.values.float(), x**2, rtol=0.1, atol=0.02)


# ---- the method, and its promises -----------------------------------------------------------------------------------------


def test_the_method_is_the_path() -> None:
    net, x, start = perceptron(6, 3), drawn(2, 6, seed=1), drawn(2, 6, seed=2)
    assert by_name("guided-ig") == GuidedIG()
    path = ig.path_attribution(net, Guided(start, x, 4, 0.3, 0), target=1, tol=1e-5)
    found = GuidedIG(4, 0.3, 0, tol=1e-5)(net, x, start, target=1)
    torch.testing.assert_close(found.values, path.values, rtol=1e-10, atol=1e-12)
    assert [one.gradients for one in found.certificate] == [one.gradients for one in path.certificate]
    assert found.meta["settings"] == "GuidedIG(steps=4, fraction=0.3, anchors=0, tol=1e-05, max_evaluations=4000)"
    single = GuidedIG(4, 0.3, 0, tol=1e-5)(net, x[0], start[0], target=1)
    torch.testing.assert_close(single.values, path.values[0], rtol=1e-10, atol=1e-12)
    # Several baselines average, and the certificate has the mean of their scores.
    both = GuidedIG(4, 0.3, 0, tol=1e-6)(net, x, [start, torch.zeros_like(x)], target=1)
    zero = GuidedIG(4, 0.3, 0, tol=1e-6)(net, x, target=1)
    torch.testing.assert_close(both.values, (path.values + zero.values) / 2, rtol=0, atol=1e-4)
    assert both.certificate[0].note.startswith("finding the path took 8 gradients")
    mean = (net(start) + net(torch.zeros_like(x)))[0, 1] / 2
    assert both.certificate[0].baseline_score == pytest.approx(float(mean.detach()), abs=1e-9)
    straight = GuidedIG(1, 1.0, 0, tol=1e-6)(net, x, start, target=1).values
    torch.testing.assert_close(straight, IntegratedGradients(tol=1e-6)(net, x, start, target=1).values, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("axiom", ["completeness", "sensitivity-a", "sensitivity-b"])
def test_no_promise_is_refuted(axiom: str) -> None:
    verdict = check(GuidedIG(4, 0.3, 0, tol=1e-4), axiom, max_examples=8)
    assert verdict.kept is not False, verdict


def test_linearity_is_broken_and_not_promised() -> None:
    """f = x1 x2 alone moves both at once, g = 5 x2 alone moves x2 last, and so does f + g: then x1 gets nothing of f."""
    x, start = torch.ones(1, 2, dtype=D), torch.zeros(1, 2, dtype=D)

    def product(z: Tensor) -> Tensor:
        return z[:, 0] * z[:, 1]

    def line(z: Tensor) -> Tensor:
        return 5 * z[:, 1]

    method = GuidedIG(2, 0.5, 0, tol=1e-6)
    parts = method(product, x, start).values + method(line, x, start).values
    whole = method(lambda z: product(z) + line(z), x, start).values
    torch.testing.assert_close(parts, torch.tensor([[0.5, 5.5]], dtype=D), rtol=0, atol=1e-5)
    torch.testing.assert_close(whole, torch.tensor([[0.0, 6.0]], dtype=D), rtol=0, atol=1e-5)


def test_where_gradients_tie_rounding_decides() -> None:
    """0.1 * 3 is not 0.3: two ways to write 0.3 (x1 + x2) + x1 x2, one of which moves x2 first and gives x1 the product."""
    x, start = torch.ones(1, 2, dtype=D), torch.zeros(1, 2, dtype=D)
    method = GuidedIG(2, 0.5, 0, tol=1e-6)
    tied = method(lambda z: 0.3 * z[:, 0] + 0.3 * z[:, 1] + z[:, 0] * z[:, 1], x, start).values
    rounded = method(lambda z: 3 * (0.1 * z[:, 0]) + 0.3 * z[:, 1] + z[:, 0] * z[:, 1], x, start).values
    torch.testing.assert_close(tied, torch.tensor([[0.8, 0.8]], dtype=D), rtol=0, atol=1e-5)
    torch.testing.assert_close(rounded, torch.tensor([[1.3, 0.3]], dtype=D), rtol=0, atol=1e-5)
    assert {"symmetry", "implementation-invariance"} <= set(method(lambda z: z.sum(1), x, start).certificate.broken)


# ---- a path of one's own --------------------------------------------------------------------------------------------------


class Downhill:
    """From the baseline a step along the gradient, and then to x."""

    def __init__(self, start: Tensor, x: Tensor) -> None:
        self.start, self.x = start, x

    def end(self) -> Tensor:
        return self.x

    def steer(self, gradient: Callable[..., tuple[Tensor, ...]], *, batched: bool) -> Polyline:
        assert batched
        (slope,) = gradient((self.start,))
        return Polyline([self.start, self.start - 0.1 * slope, self.x])


def test_a_steered_path_of_ones_own() -> None:
    x, start = drawn(2, 3), drawn(2, 3, seed=1)
    path = Downhill(start, x)
    assert isinstance(path, Steered)
    assert not isinstance(path, Path)
    result = ig.path_attribution(lambda z: z.square().sum(1), path, tol=1e-6)
    torch.testing.assert_close(result.values, x**2 - start**2, rtol=0, atol=1e-5)
    assert result.certificate[0].note.startswith("finding the path took 1 gradient;")
    assert result.certificate.broken == ("implementation-invariance", "linearity", "symmetry")


class Lost(Downhill):
    def steer(self, gradient: Callable[..., tuple[Tensor, ...]], *, batched: bool) -> Polyline:
        return self.x  # type: ignore[return-value]


class Short(Downhill):
    def steer(self, gradient: Callable[..., tuple[Tensor, ...]], *, batched: bool) -> Polyline:
        gradient((self.start[:1],))
        raise AssertionError


# ---- what makes no sense --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"steps": 0}, "got steps=0 for a guided path; expected a whole number from 1 on"),
        ({"steps": 2.5}, "got steps=2.5"),
        ({"anchors": -1}, "got anchors=-1 for a guided path; expected a whole number from 0 on"),
        ({"fraction": 0.0}, "got fraction=0.0; expected the share of the features"),
        ({"fraction": 1.1}, "above 0 and up to 1"),
        ({"fraction": True}, "got fraction=True"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, object], text: str) -> None:
    for make in (lambda: Guided(drawn(1, 4), drawn(1, 4), **options), lambda: GuidedIG(**options)):  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=text):
            make()


def test_paths_that_cannot_be_laid() -> None:
    x, start = drawn(2, 3), drawn(2, 3, seed=1)

    def score(z: Tensor) -> Tensor:
        return z.square().sum(1)

    with pytest.raises(InputError, match=r"baseline has shape \(1, 3\); expected \(2, 3\)"):
        Guided(start[:1], x)
    with pytest.raises(InputError, match=r"steer\(\) of Lost returned a Tensor; expected a path"):
        ig.path_attribution(score, Lost(start, x))
    with pytest.raises(InputError, match=r"the steered path's point has shape \(1, 3\); expected \(2, 3\)"):
        ig.path_attribution(score, Short(start, x))
    with pytest.raises(InputError, match=r"got a Tensor as path; expected one of integrand.paths .*Guided.* steer"):
        ig.path_attribution(score, x)  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError, match="the gradient holds inf for example 1 at steering step 1"):
        ig.path_attribution(lambda z: z.sqrt().sum(1), Guided(torch.tensor([[1.0], [0.0]]), torch.ones(2, 1) * 2))
    with pytest.raises(OptionError, match=r"the route gave a Guided; expected a path .* use GuidedIG"):
        PathMethod(Guided)(score, x, start)  # type: ignore[arg-type]
    with pytest.raises(RowsError):
        ig.path_attribution(lambda z: (z - z.mean(0)).square().sum(1), Guided(start, x, steps=2, anchors=0))
