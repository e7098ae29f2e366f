"""Sums carry errors of their own: what they cover, how they scale, and where nothing is known of them."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.errors import InputError, OptionError
from integrand.integration import certify
from integrand.words import plus_minus

HALVES = torch.arange(24) // 12


class Waves(nn.Module):
    """A ReLU network with kinks all along the path."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """One score per row."""
        return self.net(x)[:, 0].sin()  # no linear regions


@pytest.fixture(scope="module")
def x() -> Tensor:
    return 3 * torch.randn(6, 24, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def exact(x: Tensor) -> Tensor:
    """The values on a fine grid, in float64."""
    model, wide = Waves(torch.float64), x.double()
    times = (torch.arange(8192, dtype=torch.float64) + 0.5) / 8192
    out = []
    for row in wide:
        points = (times[:, None] * row).requires_grad_(True)
        out.append(torch.autograd.grad(model(points).sum(), points)[0].mean(0) * row)
    return torch.stack(out)


@pytest.mark.parametrize("options", [{"tol": 0.05}, {"tol": 0.01}, {"steps": 64, "tol": 0.2}], ids=str)
def test_errors_cover_what_sums_are_off_by(options: dict[str, float], x: Tensor, exact: Tensor) -> None:
    result = ig.integrated_gradients(Waves(), x, **options)
    sums = result.sums(HALVES)
    assert sums.values.shape == sums.errors.shape == (6, 2)
    torch.testing.assert_close(sums.values, result.sum(groups=HALVES).double(), rtol=1e-4, atol=1e-4)
    whole = torch.tensor([one.error * one.magnitude for one in result.certificate])[:, None]
    off = (sums.values - torch.stack([exact[:, :12].sum(1), exact[:, 12:].sum(1)], 1)).abs()
    assert sums.known
    assert bool((off <= sums.errors).all())
    assert bool((sums.errors <= 1.001 * whole).all())  # no sum is off by more than all features together
    assert float((sums.errors / whole).mean()) < 0.9  # and part of that cancels


def test_a_batch_says_what_its_examples_say(x: Tensor) -> None:
    together = ig.integrated_gradients(Waves(), x).sums(HALVES).errors
    alone = torch.cat([ig.integrated_gradients(Waves(), row[None]).sums(HALVES).errors for row in x])
    torch.testing.assert_close(together, alone, rtol=0.2, atol=1e-9)  # one byte a number


def test_without_a_batch_dimension() -> None:
    sums = ig.integrated_gradients(lambda z: torch.sin(z).sum(), torch.ones(3), batched=False).sums(torch.tensor([0, 1, 1]))
    assert sums.values.shape == sums.errors.shape == (2,)
    assert sums.values.tolist() == pytest.approx([math.sin(1), 2 * math.sin(1)], abs=float(sums.errors.max()))


def test_weights_share_a_value_between_sums(x: Tensor) -> None:
    result = ig.integrated_gradients(Waves(), x)
    labels = torch.nn.functional.one_hot(HALVES).T.double()
    one, other = result.sums(HALVES), result.sums(weights=labels)
    torch.testing.assert_close(other.values, one.values)
    torch.testing.assert_close(other.errors, one.errors)
    each = result.sums(weights=(0.5 * labels).expand(6, 2, 24))
    torch.testing.assert_close(2 * each.values, one.values)
    torch.testing.assert_close(2 * each.errors, one.errors)
    with pytest.raises(InputError, match=r"weights has shape \(2, 23\)"):
        result.sums(weights=torch.ones(2, 23))
    with pytest.raises(OptionError, match="both groups and weights="):
        result.sums(HALVES, weights=labels)


def test_sums_of_groups_that_were_integrated(x: Tensor) -> None:
    """Values that are sums already have errors too, and what belongs to no group takes no part."""
    result = ig.integrated_gradients(Waves(), x, groups=torch.where(HALVES > 0, -1, torch.arange(24) // 4))
    assert result.sums(torch.arange(3)).errors.shape == (6, 3)
    assert result.sums(torch.arange(3)).known


def test_what_is_masked_has_no_error(x: Tensor) -> None:
    sums = ig.integrated_gradients(Waves(), x, mask=HALVES == 0).sums(HALVES)
    assert bool((sums.errors[:, 0] > 0).all())
    assert not sums.values[:, 1].any()
    assert not sums.errors[:, 1].any()


def test_linear_regions_leave_rounding(x: Tensor) -> None:
    wide, narrow = (
        ig.integrated_gradients(Waves(dtype).net, x.to(dtype), tol=1e-4) for dtype in (torch.float64, torch.float32)
    )
    assert {one.status for one in (*wide.certificate, *narrow.certificate)} == {ig.Status.EXACT}
    sums = narrow.sums(HALVES)
    assert bool(((sums.values - wide.sums(HALVES).values).abs() <= sums.errors).all())
    assert float(sums.errors.max()) < 1e-4
    assert float(wide.sums(HALVES).errors.max()) < 1e-12


def test_what_no_gradient_accounts_for_may_belong_anywhere() -> None:
    with pytest.warns(ig.errors.ConvergenceWarning):
        result = ig.integrated_gradients(lambda z: (z**2).sum(1) + 3 * (z[:, 0] > 0.3).float(), torch.ones(1, 2))
    assert result.sums(torch.tensor([0, 1])).errors.min() >= 3.0


def test_other_methods_say_that_errors_are_not_known(x: Tensor) -> None:
    sums = ig.methods.Gradient()(Waves(), x).sums(HALVES)
    assert not sums.known
    assert sums.errors.isnan().all()
    assert plus_minus(float(sums.values[0, 0]), float(sums.errors[0, 0])).endswith("(error not known)")


def test_large_batches_keep_fewer_draws(x: Tensor, exact: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes as half of the values, and a wider error, which holds as well."""
    usual = ig.integrated_gradients(Waves(), x)
    monkeypatch.setattr(certify, "DRAWS_BYTES", 100)
    few = ig.integrated_gradients(Waves(), x)
    assert usual.draws is not None
    assert few.draws is not None
    assert (usual.draws.draws.shape[1], few.draws.draws.shape[1]) == (certify.DRAWS, certify.FEW_DRAWS_KEPT)
    assert 2 * few.draws.draws.nbytes <= few.values.nbytes  # type: ignore[union-attr]
    assert torch.equal(few.values, usual.values)  # type: ignore[arg-type]
    sums = few.sums(HALVES)
    assert bool(((sums.values - torch.stack([exact[:, :12].sum(1), exact[:, 12:].sum(1)], 1)).abs() <= sums.errors).all())


def test_regions_of_a_photo_have_errors() -> None:
    from integrand.render.image import regions

    photo = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    result = ig.integrated_gradients(lambda z: torch.sin(9 * z).sum((1, 2, 3)), photo, tol=0.05)
    segments = torch.arange(64).reshape(8, 8) // 32
    found, sums = regions(result, segments=segments.numpy()), result.sums(segments)
    assert found.errors.tolist() == sums.errors[0].tolist()
    finer = regions(result, segments=segments.repeat_interleave(2, 0).repeat_interleave(2, 1).numpy())
    assert finer.errors.tolist() == found.errors.tolist()
    other = dataclasses.replace(result, draws=None)
    assert all(math.isnan(error) for error in regions(other, segments=segments.numpy()).errors)
