"""Paths: each is complete, equal paths are equal, and the straight one alone keeps symmetry."""

from __future__ import annotations

import math
import signal

import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.errors import InputError, OptionError
from integrand.paths import Path

TOL = 1e-6
"""What the curves below are integrated to. They are smooth, so that this takes some dozen evaluations."""

X = torch.tensor([[0.8, -1.1, 0.4], [1.5, 0.3, -0.9]], dtype=torch.float64)
START = torch.tensor([[-0.2, 0.5, 0.1], [0.0, 0.0, 0.0]], dtype=torch.float64)


def score(x: Tensor) -> Tensor:
    return torch.sin(x[:, 0]) * torch.exp(x[:, 1]) + x[:, 2] ** 3 * x[:, 0]


def attribute(path: Path, **options: object) -> Tensor:
    values = ig.path_attribution(score, path, **{"tol": TOL} | options).values  # type: ignore[arg-type]
    assert isinstance(values, Tensor)
    return values


def change(end: Tensor = X, start: Tensor = START) -> Tensor:
    return score(end) - score(start)


def line(t: Tensor) -> Tensor:
    return START + t * (X - START)


def bent(t: Tensor) -> Tensor:
    """From START to X, with a detour that is zero at both ends."""
    return line(t) + torch.sin(math.pi * t) * torch.tensor([0.3, -0.2, 0.7], dtype=torch.float64)


def bent_velocity(t: Tensor) -> Tensor:
    return X - START + math.pi * torch.cos(math.pi * t) * torch.tensor([0.3, -0.2, 0.7], dtype=torch.float64)


def corner(t: Tensor) -> Tensor:
    """First x1 alone, from a corner at t = 0.3 on the rest."""
    first, rest = torch.clamp(t / 0.3, max=1.0), torch.clamp((t - 0.3) / 0.7, min=0.0)
    return START + torch.stack([first, rest, rest]) * (X - START)


POINT = torch.tensor([[0.1, 0.9, -0.3], [0.5, -0.2, 0.2]], dtype=torch.float64)
PATHS: dict[str, Path] = {
    "straight": ig.Straight(START, X),
    "polyline": ig.Polyline([START, POINT, X]),
    "polyline that stands still": ig.Polyline([START, START, POINT, POINT, X]),
    "curve": ig.Curve(bent),
    "curve with velocity": ig.Curve(bent, bent_velocity),
    "curve with a corner": ig.Curve(corner, knots=[0.3]),
    "average": ig.Average([ig.Straight(START, X), ig.Curve(bent), ig.Polyline([START, POINT, X])], weights=[0.5, 0.2, 0.3]),
    "average of averages": ig.Average([ig.Average([ig.Straight(START, X)]), ig.Curve(bent)]),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_every_path_is_complete(path: Path) -> None:
    result = ig.path_attribution(score, path, tol=TOL)
    assert isinstance(path, Path)
    missing = result.values.sum(1) - change()
    assert (missing.abs() <= TOL * result.values.abs().sum(1)).all()
    for i, certificate in enumerate(result.certificate):
        assert certificate.converged
        assert certificate.score == pytest.approx(float(score(X)[i]), abs=1e-12)
        assert certificate.baseline_score == pytest.approx(float(score(START)[i]), abs=1e-12)
        assert certificate.residual == pytest.approx(float(missing[i]), abs=1e-12)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_every_path_is_complete_with_a_fixed_rule(path: Path) -> None:
    """Twenty Gauss nodes on each smooth piece of these analytic curves leave no more than 1e-10."""
    result = ig.path_attribution(score, path, steps=20)
    torch.testing.assert_close(result.values.sum(1), change(), rtol=0, atol=1e-10)


def test_straight_is_integrated_gradients() -> None:
    expected = ig.integrated_gradients(score, X, START, tol=TOL)
    torch.testing.assert_close(attribute(ig.Straight(START, X)), expected.values, rtol=1e-14, atol=1e-15)


def test_a_curve_along_the_line_is_the_line() -> None:
    """The same nodes and the same points, to rounding."""
    expected = attribute(ig.Straight(START, X))
    torch.testing.assert_close(attribute(ig.Curve(line)), expected, rtol=1e-12, atol=1e-13)
    given = attribute(ig.Curve(line, lambda t: X - START + 0 * t))
    torch.testing.assert_close(given, expected, rtol=1e-12, atol=1e-13)


def test_how_fast_a_path_is_run_through_does_not_matter() -> None:
    """gamma(t^2) is the same curve as gamma(t): each within its tolerance."""
    for function in (line, bent):
        slow, fast = attribute(ig.Curve(lambda t, f=function: f(t * t))), attribute(ig.Curve(function))
        assert float((slow - fast).abs().sum() / fast.abs().sum()) <= 2 * TOL


def test_forward_mode_velocity_is_the_given_one() -> None:
    torch.testing.assert_close(attribute(ig.Curve(bent)), attribute(ig.Curve(bent, bent_velocity)), rtol=1e-12, atol=1e-13)
    piece, given = (curve.pieces(batched=True)[0] for curve in (ig.Curve(bent), ig.Curve(bent, bent_velocity)))
    t, rows = torch.tensor([0.0, 0.25, 0.25, 1.0], dtype=torch.float64), torch.tensor([0, 1, 0, 1])
    for found, expected in zip(piece.at(t, rows), given.at(t, rows), strict=True):
        torch.testing.assert_close(found[0], expected[0], rtol=1e-14, atol=1e-15)
        assert found[0].shape == (4, 3)
    expected_points = torch.stack([bent(time)[row] for time, row in zip(t, rows, strict=True)])
    torch.testing.assert_close(piece.at(t, rows)[0][0], expected_points, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("share", [0.5, 0.37])
def test_a_polyline_through_a_point_on_the_line_is_the_line(share: float) -> None:
    between = START + share * (X - START)
    straight, poly = attribute(ig.Straight(START, X)), attribute(ig.Polyline([START, between, X]))
    assert float((poly - straight).abs().sum() / straight.abs().sum()) <= 2 * TOL


def test_a_corner_at_a_knot_is_no_kink() -> None:
    """With the knot the pieces are smooth, and as cheap as that; a polyline of the same corners agrees."""
    middle = torch.cat([X[:, :1], START[:, 1:]], 1)
    expected = attribute(ig.Polyline([START, middle, X]))
    result = ig.path_attribution(score, ig.Curve(corner, knots=[0.3]), tol=TOL)
    assert float((result.values - expected).abs().sum() / expected.abs().sum()) <= 2 * TOL
    # Two pieces of a smooth function: some dozen nodes each, where an unknown corner takes some hundred.
    assert max(c.gradients for c in result.certificate) <= 100
    # Along the first piece only x1 moves, so it alone gets what the score changes.
    first = result.certificate[0].curves[0]
    assert first.end_score - first.start_score == pytest.approx(float(score(middle)[0] - score(START)[0]), abs=1e-9)


def test_average_is_the_mean_of_its_paths() -> None:
    parts = [ig.Straight(START, X), ig.Curve(bent), ig.Polyline([START, POINT, X])]
    alone = [attribute(part, steps=12, tol=1.0) for part in parts]
    equal = attribute(ig.Average(parts), steps=12, tol=1.0)
    torch.testing.assert_close(equal, sum(alone) / 3, rtol=1e-12, atol=1e-13)
    weighted = attribute(
        ig.Average(parts, weights=torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).numpy()), steps=12, tol=1.0
    )
    torch.testing.assert_close(weighted, 0.5 * alone[0] + 0.2 * alone[1] + 0.3 * alone[2], rtol=1e-12, atol=1e-13)


def test_an_average_over_baselines_is_a_list_of_them() -> None:
    starts = [START, torch.zeros_like(X), POINT]
    expected = ig.integrated_gradients(score, X, starts, tol=TOL)
    found = ig.path_attribution(score, ig.Average([ig.Straight(start, X) for start in starts]), tol=TOL)
    torch.testing.assert_close(found.values, expected.values, rtol=1e-12, atol=1e-13)
    mean = float(torch.stack([score(start)[0] for start in starts]).mean())
    assert found.certificate[0].baseline_score == pytest.approx(mean, abs=1e-12)
    assert [curve.weight for curve in found.certificate[0].curves] == pytest.approx([1 / 3] * 3)


def test_only_the_straight_path_keeps_symmetry() -> None:
    """Theorem 1: x1 x2 is symmetric, and both run from 0 to 1; a path above the diagonal prefers one of them.

    Along (t, t^a) feature 1 gets the integral of x2 dx1 = t^a, which is 1 / (a + 1), and feature 2 the rest.
    """
    ones, zeros = torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)

    def product(x: Tensor) -> Tensor:
        return x[:, 0] * x[:, 1]

    straight = ig.path_attribution(product, ig.Straight(zeros, ones), tol=TOL).values
    torch.testing.assert_close(straight, torch.full_like(ones, 0.5), rtol=1e-12, atol=0)
    for power in (2, 3):
        path = ig.Curve(lambda t, a=power: torch.stack([t, t**a])[None])
        found = ig.path_attribution(product, path, tol=TOL).values
        share = 1 / (power + 1)
        torch.testing.assert_close(found, torch.tensor([[share, 1 - share]], dtype=torch.float64), rtol=0, atol=1e-6)
    # Averaged with its mirror image, it is symmetric again.
    both = ig.Average([ig.Curve(lambda t: torch.stack([t, t**2])[None]), ig.Curve(lambda t: torch.stack([t**2, t])[None])])
    torch.testing.assert_close(ig.path_attribution(product, both, tol=TOL).values, straight, rtol=0, atol=1e-6)


def test_structures_and_single_examples() -> None:
    """Tuples, dicts, and models without a batch dimension."""

    def split(a: Tensor, b: Tensor) -> Tensor:
        return score(torch.cat([a, b], 1))

    expected = attribute(ig.Straight(START, X))
    pairs = [(part[:, :1], part[:, 1:]) for part in (START, X)]
    found = ig.path_attribution(split, ig.Straight(*pairs), tol=TOL).values
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=1e-12, atol=1e-13)
    named = [{"a": a, "b": b} for a, b in pairs]
    for path in (ig.Polyline(named), ig.Curve(lambda t: {"a": line(t)[:, :1], "b": line(t)[:, 1:]})):
        values = ig.path_attribution(split, path, tol=TOL).values
        assert list(values) == ["a", "b"]
        torch.testing.assert_close(torch.cat(list(values.values()), 1), expected, rtol=1e-11, atol=1e-12)

    def one(x: Tensor) -> Tensor:
        return score(x[None])[0]

    for path in (ig.Straight(START[0], X[0]), ig.Curve(lambda t: line(t)[0])):
        alone = ig.path_attribution(one, path, tol=TOL, batched=False).values
        torch.testing.assert_close(alone, expected[0], rtol=1e-12, atol=1e-13)


def test_float32_curves_stay_float32() -> None:
    """Time is a float64 scalar that takes the dtype of what it scales."""
    x = X.float()
    result = ig.path_attribution(score, ig.Curve(lambda t: t * t * x), tol=1e-3)
    assert result.values.dtype == torch.float32
    assert result.certificate.converged
    exact = ig.integrated_gradients(score, X, tol=TOL).values
    assert float((result.values - exact).abs().sum() / exact.abs().sum()) <= 2e-3


# ---- what makes no sense --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ig.Straight(START[:1], X), InputError, r"baseline has shape \(1, 3\); expected \(2, 3\), the shape of x"),
        (lambda: ig.Straight(START.float(), X), InputError, r"baseline has dtype torch.float32; expected torch.float64"),
        (lambda: ig.Straight((START,), X), InputError, "baseline is a tuple with 1 .* expected the structure of x, a tensor"),
        (lambda: ig.Straight(START.tolist(), X), InputError, r"baseline\[0\] is a list; expected a torch tensor"),
        (lambda: ig.Polyline([X]), InputError, "got 1 point.* expected at least two"),
        (lambda: ig.Polyline([START[:, :2], X]), InputError, r"points\[0\] has shape \(2, 2\); expected \(2, 3\)"),
        (lambda: ig.Polyline([{"a": START}, X]), InputError, r"points\[0\] is a dict with 1"),
        (lambda: ig.Curve(line, knots=[0.5, 0.2]), OptionError, r"got knots=\[0.5, 0.2\]; expected increasing times"),
        (lambda: ig.Curve(line, knots=[0.0]), OptionError, "between 0 and 1, ends left out"),
        (lambda: ig.Average([]), InputError, "an average got no paths"),
        (lambda: ig.Average([X]), InputError, "path 0 of the average is a Tensor; expected one of integrand.paths"),
        (lambda: ig.Average([ig.Straight(START, X)], weights=[0.5]), OptionError, "expected one each, adding up to 1"),
        (lambda: ig.Average([ig.Straight(START, X)], weights=[0.5, 0.5]), OptionError, "for 1 paths; expected one each"),
    ],
)
def test_paths_that_cannot_be(make: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (ig.Average([ig.Straight(START, X), ig.Straight(START, POINT)]), "path 1 of the average ends at another point"),
        (ig.Average([ig.Straight(START, X), ig.Straight(START[:1], X[:1])]), "the end of path 1 has shape"),
        (ig.Curve(line, lambda t: X[:1]), "the path's velocity has shape"),
        (ig.Curve(line, lambda t: (X,)), "the path's velocity is a tuple"),
        (ig.Curve(lambda t: float(t)), "the path's .* is a float; expected a torch tensor"),
        (X, "got a Tensor as path; expected one of integrand.paths"),
    ],
)
def test_paths_that_fail_when_run(path: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ig.path_attribution(score, path)  # type: ignore[arg-type]


def test_a_path_of_ones_own() -> None:
    """Any object with the two methods will do: here, straight lines from several points with weights."""

    class Fan:
        def end(self) -> Tensor:
            return X

        def pieces(self, *, batched: bool) -> list[ig.paths.Piece]:
            inner = [ig.Straight(start, X).pieces(batched=batched)[0] for start in (START, POINT)]
            return [ig.paths.Piece(0.5, piece.at, straight=True) for piece in inner]

    expected = ig.Average([ig.Straight(START, X), ig.Straight(POINT, X)])
    torch.testing.assert_close(attribute(Fan()), attribute(expected), rtol=1e-13, atol=1e-14)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("place", ["enter_dual_level", "exit_dual_level"])
def test_a_signal_while_torch_changes_its_level_breaks_no_later_curve(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Ctrl-C in sixty left torch's level entered, and every later curve failed until the process ended."""
    path = ig.paths.Curve(bent)
    expected = attribute(path)
    change_level = getattr(torch.autograd.forward_ad, place)

    def interrupted() -> object:
        signal.raise_signal(signal.SIGINT)
        return change_level()

    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd.forward_ad, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            attribute(path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert torch.equal(attribute(path), expected)


@pytest.mark.usefixtures("usual_signals")
def test_a_second_signal_ends_a_curve_that_does_not_end() -> None:
    def endless(t: Tensor) -> Tensor:
        while True:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        attribute(ig.paths.Curve(endless))
