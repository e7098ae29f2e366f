"""The path through scale space: exact blurs and velocities, closed forms, completeness, and errors that hold."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.axioms import check
from integrand.errors import InputError, OptionError, ZeroAttributionWarning
from integrand.methods import BlurIG, by_name
from integrand.paths import Blur, Path

from ..honesty.honest import Claim, assert_honest, relative_error
from ..honesty.networks import trained
from ..honesty.references import digit_batches

D = torch.float64


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = D) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def laplacian(side: int) -> Tensor:
    """Second differences on a line of pixels with walls: what flows in less what flows out, (side, side)."""
    steps = torch.diff(torch.eye(side, dtype=D), dim=0)
    return -steps.T @ steps


def blurred(x: Tensor, sigma: float) -> Tensor:
    """Diffusion by the matrix exponential: rows and columns of the last two dimensions, one after the other."""
    rows, columns = (torch.matrix_exp(sigma**2 / 2 * laplacian(side)) for side in x.shape[-2:])
    return rows @ x @ columns.T


def at(path: Path, times: list[float], rows: list[int]) -> tuple[Tensor, Tensor]:
    (points,), (velocities,) = path.pieces(batched=True)[0].at(torch.tensor(times, dtype=D), torch.tensor(rows))
    return points, velocities


# ---- the path itself ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.7, 40.0])
@pytest.mark.parametrize("shape", [(1, 5, 4), (2, 3, 7, 8), (2, 1, 9)])
def test_the_start_is_the_image_after_diffusion(shape: tuple[int, ...], sigma: float) -> None:
    x = drawn(*shape)
    torch.testing.assert_close(Blur(x, sigma).start(), blurred(x, sigma), rtol=0, atol=1e-12)


def test_a_series_is_blurred_along_its_own_dimension() -> None:
    x = drawn(3, 2, 11)
    expected = x @ torch.matrix_exp(2.0**2 / 2 * laplacian(11)).T
    torch.testing.assert_close(Blur(x, 2.0, dims=(-1,)).start(), expected, rtol=0, atol=1e-13)
    channels_last = x.movedim(1, 2)
    torch.testing.assert_close(Blur(channels_last, 2.0, dims=(-2,)).start(), expected.movedim(1, 2), rtol=0, atol=1e-13)


def test_away_from_the_border_it_is_the_gaussian() -> None:
    """The variance of a blurred point is sigma squared, and its profile that of the normal distribution."""
    x = torch.zeros(1, 1, 61, 61, dtype=D)
    x[..., 30, 30] = 1.0
    spot = Blur(x, 4.0).start()[0, 0]
    place = torch.arange(61, dtype=D) - 30
    assert float(spot.sum()) == pytest.approx(1, abs=1e-12)
    assert float((spot.sum(0) * place**2).sum()) == pytest.approx(16, rel=1e-9)
    gauss = torch.exp(-(place**2) / 32) / (2 * torch.pi * 16) ** 0.5
    torch.testing.assert_close(spot, gauss[:, None] * gauss, rtol=0, atol=0.02 * float(spot.max()))


def test_blurs_add_up() -> None:
    """Blurring twice is blurring once by the root of the summed squares."""
    x = drawn(2, 3, 6, 9)
    twice = Blur(Blur(x, 1.5).start(), 2.0).start()
    torch.testing.assert_close(twice, Blur(x, 2.5).start(), rtol=0, atol=1e-13)


def test_light_is_kept_and_nothing_gets_lighter_or_darker() -> None:
    x = drawn(2, 3, 8, 8)
    points, _ = at(Blur(x, 3.0), np.linspace(0, 1, 9).tolist(), [1] * 9)
    torch.testing.assert_close(points.mean((2, 3)), x[1].mean((1, 2)).expand(9, 3), rtol=0, atol=1e-14)
    tops, bottoms = points.amax((2, 3)), points.amin((2, 3))
    assert bool((tops.diff(dim=0) >= -1e-13).all())
    assert bool((bottoms.diff(dim=0) <= 1e-13).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_ends_at_the_image_to_the_last_bit(dtype: torch.dtype) -> None:
    x = drawn(2, 3, 7, 10).to(dtype)
    (points,), _ = Blur(x).pieces(batched=True)[0].at(torch.ones(2), torch.tensor([1, 0]))
    assert points.dtype == dtype
    assert torch.equal(points, x[[1, 0]])


def test_velocities_are_the_derivatives_of_the_points() -> None:
    path, step = Blur(drawn(2, 3, 6, 7)), 1e-5
    times, rows = [0.1, 0.5, 0.83, 0.99], [0, 1, 1, 0]
    _, velocities = at(path, times, rows)
    later, earlier = (at(path, [t + sign * step for t in times], rows)[0] for sign in (1, -1))
    torch.testing.assert_close(velocities, (later - earlier) / (2 * step), rtol=0, atol=1e-8)


def test_the_default_blur_grows_with_the_image() -> None:
    for side in (8, 16):
        x = drawn(1, side, 2 * side)
        torch.testing.assert_close(Blur(x).start(), blurred(x, side * 50 / 224), rtol=0, atol=1e-13)


# ---- attributions ---------------------------------------------------------------------------------------------------------


def test_of_a_linear_score_every_pixel_gets_its_detail() -> None:
    """The gradient is w everywhere: w (x - blurred x), exactly."""
    x, w = drawn(2, 3, 6, 8), drawn(3, 6, 8, seed=1)
    result = ig.path_attribution(lambda z: (z * w).sum((1, 2, 3)), Blur(x, 2.0), tol=1e-9)
    torch.testing.assert_close(result.values, w * (x - blurred(x, 2.0)), rtol=0, atol=1e-8)
    assert result.certificate.broken == ("symmetry",)
    assert result.meta["method"] == "path attribution (Blur)"


def test_of_a_quadratic_score_as_computed_by_hand() -> None:
    """F = z'Az / 2, with z = sum_k c_k exp(-v r_k) e_k in the waves e_k: products of exponentials, which have an integral."""
    side, sigma = 6, 1.7
    x, a = drawn(1, side), drawn(side, side, seed=1)
    a = a + a.T
    rates, waves = torch.linalg.eigh(-laplacian(side) / 2)
    c = waves.T @ x[0]
    sums = rates[:, None] + rates
    grown = torch.where(sums > 1e-12, -torch.expm1(-(sigma**2) * sums) / sums.clamp_min(1e-12), sigma**2)
    expected = torch.einsum("ik,il,k,l,l,kl->i", a @ waves, waves, c, c, rates, grown)
    result = ig.path_attribution(lambda z: ((z @ a) * z).sum(1) / 2, Blur(x, sigma, dims=(-1,)), tol=1e-9)
    torch.testing.assert_close(result.values[0], expected, rtol=0, atol=1e-8)


def test_an_even_image_has_no_detail() -> None:
    x = torch.full((1, 3, 8, 8), 0.37)
    with pytest.warns(ZeroAttributionWarning):
        result = ig.path_attribution(lambda z: z.square().sum((1, 2, 3)), Blur(x))
    assert not result.values.any()
    assert result.certificate.converged
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BlurIG()(lambda z: z.square().sum((1, 2, 3)), x)
    assert any("the input equals the baseline for example(s) [0]" in str(one.message) for one in caught)


def digits(network: str, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    batch = next(b for b in digit_batches(dtype) if b.network == network)
    return nn.Sequential(nn.Flatten(), trained(network, dtype)), batch.x[:8].reshape(-1, 1, 8, 8)


@pytest.mark.parametrize("score", ["logit", "probability"])
def test_complete_on_a_convolutional_network(score: str) -> None:
    model, x = digits("cnn", torch.float32)
    result = ig.path_attribution(model, Blur(x), score=score)
    link: Callable[[Tensor], Tensor] = (lambda z: z) if score == "logit" else (lambda z: z.softmax(1))
    with torch.no_grad():
        target = model(x).argmax(1, keepdim=True)
        change = (link(model(x)) - link(model(blurred(x.to(D), 8 * 50 / 224).float()))).gather(1, target)[:, 0]
    gap = (result.values.sum((1, 2, 3)) - change).abs()
    assert bool((gap <= 0.01 * result.values.abs().sum((1, 2, 3)) + 1e-6).all())
    assert result.certificate.converged
    torch.testing.assert_close(BlurIG()(model, x, score=score).values, result.values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("network", "count", "reference"), [("gelu", 8, 1e-6), ("lstm", 8, 1e-6), ("cnn", 3, 3e-5)])
def test_errors_are_as_stated(network: str, count: int, reference: float) -> None:
    """Against converged results in float64; rectifiers, where a digit more costs ten times as much, to less than the smooth."""
    model, x = digits(network, D)
    x = x[:count]
    exact = ig.path_attribution(model, Blur(x), tol=reference, max_evaluations=100_000).values.flatten(1).numpy()
    claims = []
    for tol in (0.1, 0.03, 0.01):
        result = ig.path_attribution(model, Blur(x), tol=tol)
        for i, one in enumerate(result.certificate):
            measured = relative_error(result.values[i].flatten().numpy(), exact[i])
            claims.append(Claim(f"{network}[{i}]", tol, one.converged, one.error, measured, one.gradients))
    assert all(claim.converged for claim in claims)
    assert_honest(claims, share=0.95, worst=1.5)


def test_rows_do_not_depend_on_the_batch() -> None:
    model, x = digits("cnn", D)
    together = ig.path_attribution(model, Blur(x, 2.0), target=3, tol=1e-3).values
    for i in (0, 5):
        alone = ig.path_attribution(model, Blur(x[i : i + 1], 2.0), target=3, tol=1e-3).values
        torch.testing.assert_close(alone[0], together[i], rtol=1e-9, atol=1e-12)


def test_structures_single_examples_and_groups() -> None:
    x, y = drawn(2, 3, 6, 6), drawn(2, 4, 5, seed=2)

    def score(a: Tensor, b: Tensor) -> Tensor:
        return a.square().sum((1, 2, 3)) * b.sin().sum((1, 2)) / 100

    whole = ig.path_attribution(score, Blur((x, y), 1.5), tol=1e-6)
    named = ig.path_attribution(score, Blur({"a": x, "b": y}, 1.5), tol=1e-6)
    torch.testing.assert_close(named.values["a"], whole.values[0])
    one = ig.path_attribution(lambda a, b: score(a[None], b[None])[0], Blur((x[0], y[0]), 1.5), tol=1e-6, batched=False)
    torch.testing.assert_close(one.values[1], whole.values[1][0])
    labels = (torch.zeros(3, 6, 6, dtype=torch.long), torch.ones(4, 5, dtype=torch.long))
    grouped = ig.path_attribution(score, Blur((x, y), 1.5), groups=labels, tol=1e-6).values
    expected = torch.stack([v.flatten(1).sum(1) for v in whole.values], 1)
    torch.testing.assert_close(grouped, expected, rtol=1e-5, atol=1e-7)
    fixed = ig.path_attribution(score, Blur((x, y), 1.5), steps=40)
    torch.testing.assert_close(fixed.values[0], whole.values[0], rtol=1e-4, atol=1e-6)
    mask = (torch.ones(6, 6, dtype=torch.bool), torch.zeros(4, 5, dtype=torch.bool))
    assert not ig.path_attribution(score, Blur((x, y), 1.5), mask=mask).values[1].any()


def test_an_input_that_asks_for_gradients_is_left_alone() -> None:
    x = drawn(1, 1, 4, 4).requires_grad_()
    result = ig.path_attribution(lambda z: z.square().sum((1, 2, 3)), Blur(x, 1.0), tol=1e-6)
    expected = x.detach() ** 2 - blurred(x.detach(), 1.0) ** 2
    torch.testing.assert_close(result.values, expected, rtol=0, atol=1e-5)
    assert x.grad is None


def test_the_method_by_name_pickles_and_says_what_it_is() -> None:
    assert by_name("blur-ig") == BlurIG()
    assert repr(BlurIG(3.0)) == "BlurIG(sigma=3.0, dims=(-2, -1), tol=0.01, max_evaluations=4000)"
    result = BlurIG(1.0, tol=1e-6)(lambda z: z.square().sum((1, 2)), drawn(1, 4, 4))
    assert result.meta["method"] == "blur integrated gradients"
    assert abs(result.certificate.only.residual) <= 1e-6 * result.certificate.only.magnitude


@pytest.mark.parametrize("axiom", ["completeness", "sensitivity-b", "implementation-invariance", "linearity"])
def test_no_promise_is_refuted(axiom: str) -> None:
    """On drawn networks, whose features are taken for a series."""
    verdict = check(BlurIG(1.0, dims=(-1,), tol=1e-4), axiom, max_examples=8)
    assert verdict.kept is not False, verdict


def test_symmetry_is_broken_and_not_promised() -> None:
    """z1 z3 with x = (1, 0, 1, 2): both are 1, but the wall is beside one and the light beside the other."""
    x = torch.tensor([[1.0, 0.0, 1.0, 2.0]], dtype=D)
    first, _, third, _ = ig.path_attribution(lambda z: z[:, 0] * z[:, 2], Blur(x, 1.0, dims=(-1,)), tol=1e-6).values[0].tolist()
    assert abs(first - third) > 0.1


# ---- what makes no sense --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sigma": 0.0}, "got sigma=0.0; expected a positive number"),
        ({"sigma": float("nan")}, "got sigma=nan"),
        ({"sigma": True}, "got sigma=True"),
        ({"dims": ()}, r"got dims=\(\); expected dimensions counted from the last"),
        ({"dims": (2, 3)}, r"got dims=\(2, 3\); expected dimensions counted from the last"),
        ({"dims": (-1, -1)}, "each once"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, object], text: str) -> None:
    for make in (lambda: Blur(drawn(1, 4, 4), **options), lambda: BlurIG(**options)):  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=text):
            make()


def test_features_without_two_dimensions_are_refused() -> None:
    with pytest.raises(InputError, match=r"x has shape \(4,\) in all; expected at least 2 dimension"):
        Blur(drawn(4))
    with pytest.raises(InputError, match=r"x has shape \(4,\) for each example; expected at least 2 .* Use dims=\(-1,\)"):
        ig.path_attribution(lambda z: z.sum(1), Blur(drawn(3, 4)))


def test_the_promises_are_those_of_the_path() -> None:
    kept = {promise.axiom for promise in Blur.promises if promise.kept}
    assert kept == set(itertools.chain(ig.axioms.AXIOMS)) - {"symmetry"}
