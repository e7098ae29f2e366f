"""Half-precision models computed as in float32: the same numbers, no copy of the weights, honest where that is not possible."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.backends.full_precision import FullPrecision, in_full_precision, split_product
from integrand.backends.torch_function import build, undisturbed
from integrand.evaluation.checks import two_parts

HALVES = [torch.bfloat16, torch.float16]


class Layered(nn.Module):
    """What models of language are made of: products, norms, attention, casts in between."""

    def __init__(self, *, casts: bool = True) -> None:
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(32), nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.down, self.casts = nn.Linear(32, 64), nn.Parameter(torch.randn(64, 32) / 8), casts
        self.place, self.head = nn.Parameter(torch.randn(1, 12, 32) / 4), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.place
        y = self.norm(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        hidden = nn.functional.silu(self.up(x))
        if self.casts:
            hidden = hidden.to(self.down.dtype)
        x = x + torch.addmm(self.down.new_zeros(32), hidden.flatten(0, 1), self.down).view_as(x)
        return self.head(x.mean(1))


def made(dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Layered().to(dtype).eval(), torch.randn(2, 12, 32).to(dtype)


def off(values: Tensor, exact: Tensor) -> float:
    return float((values.double() - exact.double()).abs().sum() / exact.double().abs().sum())


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_are_those_of_float32(dtype: torch.dtype) -> None:
    model, x = made(dtype)
    with undisturbed(model):
        function = in_full_precision(build(model, x, target=1))
        assert function is not None
        scores, (found,) = function.value_and_grad(tuple(leaf.clone() for leaf in function.inputs), torch.arange(2))
    point = x.float().requires_grad_(True)
    expected = copy.deepcopy(model).float()(point)[:, 1]
    (gradient,) = torch.autograd.grad(expected.sum(), point)
    assert scores.dtype == found.dtype == torch.float32
    assert off(scores, expected.detach()) <= 1e-5
    assert off(found, gradient) <= 1e-5
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("tol", [0.05, 0.01, 1e-3, 1e-4])
def test_the_tolerance_is_kept_against_float32(dtype: torch.dtype, tol: float) -> None:
    """In half precision while that will do, and in float32 from then on."""
    model, x = made(dtype)
    exact = ig.integrated_gradients(copy.deepcopy(model).double(), x.double(), target=1, tol=1e-8).values
    result = ig.integrated_gradients(model, x, target=1, tol=tol)
    assert isinstance(result.values, Tensor)
    assert isinstance(exact, Tensor)
    for i, one in enumerate(result.certificate):
        assert one.converged
        # What is handed back in half precision is rounded to it.
        assert off(result.values[i], exact[i]) <= one.error + torch.finfo(result.values.dtype).eps / 2
    assert (result.values.dtype == torch.float32) == (one.precision == f"float32 with {str(dtype)[6:]} weights")
    if tol == 1e-4:
        assert result.values.dtype == torch.float32
    again = ig.integrated_gradients(model, x, target=1, tol=tol)
    assert torch.equal(again.values, result.values)  # type: ignore[arg-type]


def test_float32_can_be_asked_for() -> None:
    model, x = made(torch.bfloat16)
    result = ig.integrated_gradients(model, x, target=1, tol=0.05, precision="float32")
    assert result.certificate[0].precision == "float32 with bfloat16 weights"


def test_several_outputs_share_forward_passes() -> None:
    model, x = made(torch.bfloat16)
    rows: list[int] = []
    model.register_forward_pre_hook(lambda _, args: rows.append(len(args[0]) if torch.is_grad_enabled() else 0))
    shared = ig.integrated_gradients(model, x[:1].expand(3, -1, -1), target=[0, 1, 2], tol=1e-3, batched=True)
    assert sum(rows) < sum(one.gradients for one in shared.certificate)
    assert {one.precision for one in shared.certificate} == {"float32 with bfloat16 weights"}
    for target in range(3):
        alone = ig.integrated_gradients(model, x[:1], target=target, tol=1e-3).values
        assert off(shared.values[target : target + 1], alone) <= 2e-3  # type: ignore[arg-type, index]


def test_autocast_inside_is_measured_against_float32() -> None:
    """Rounding that averages out over the nodes is not counted as if it did not."""
    model, x = made(torch.float32)

    class Inside(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return model(x).float()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.errors.ConvergenceWarning)
        result = ig.integrated_gradients(Inside().eval(), x, target=1, tol=0.05)
    exact = ig.integrated_gradients(model, x, target=1, tol=1e-4).values
    for i, one in enumerate(result.certificate):
        assert one.precision == "bfloat16"
        assert off(result.values[i], exact[i]) <= one.error <= 0.05  # type: ignore[index]


class HalfOnly(torch.autograd.Function):
    """A kernel that knows half precision only."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        if x.dtype != torch.bfloat16:
            raise RuntimeError("bfloat16 only")
        return 2 * x

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0]


def test_models_that_know_half_precision_only_stay_in_it() -> None:
    torch.manual_seed(0)
    weight = torch.randn(8, 8).bfloat16()
    model = lambda x: HalfOnly.apply(x @ weight).tanh().sum(1)  # noqa: E731
    x = torch.randn(1, 8).bfloat16()
    assert in_full_precision(build(model, x)) is None
    with pytest.warns(ig.errors.ConvergenceWarning, match="gradients in bfloat16 are not precise enough"):
        result = ig.integrated_gradients(model, x, tol=1e-4)
    assert result.certificate.only.precision == "bfloat16"


class RoundsInside(torch.autograd.Function):
    """As quantised layers do: float32 in and out, and half precision where nobody sees it."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return torch.as_tensor(2 * x.detach().float().numpy().astype("float16").astype("float32")).to(x.dtype)

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0]


def test_what_others_compute_in_is_not_known() -> None:
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    x = torch.randn(1, 8, generator=torch.Generator().manual_seed(1)).bfloat16()
    with undisturbed(lambda x: x):
        assert in_full_precision(build(lambda x: (x @ weight).tanh().sum(1), x)) is not None
        assert in_full_precision(build(lambda x: RoundsInside.apply(x @ weight).tanh().sum(1), x)) is None


def test_the_context_is_this_threads_and_ends() -> None:
    assert not FullPrecision.active()
    with FullPrecision():
        assert FullPrecision.active()
        x = torch.randn(3, 4)
        assert x.to(torch.bfloat16).dtype == x.bfloat16().dtype == x.half().dtype == torch.float32
        assert x.to("cpu", torch.float16).dtype == torch.float32
        assert x.type_as(torch.ones(1, dtype=torch.bfloat16)).dtype == torch.float32  # of which there is one in many norms
        assert x.double().dtype == torch.float64
        assert (x * torch.ones(4, dtype=torch.float16)).dtype == torch.float32
        assert torch.ones(3, dtype=torch.bfloat16).add(1).dtype == torch.bfloat16  # nothing of float32 takes part
    assert not FullPrecision.active()
    assert x.bfloat16().dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", HALVES)
def test_products_on_leading_dimensions(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight = 100 * torch.randn(2, 3, 16), torch.randn(16, 5).to(dtype)
    torch.testing.assert_close(split_product(x, weight), x @ weight.float(), rtol=1e-5, atol=1e-4)


def test_rounding_errors_in_two_parts() -> None:
    """Errors with a common part and parts of their own, over many features and few."""
    torch.manual_seed(0)
    common, own = torch.randn(1, 1, 100_000), 10 * torch.randn(1, 4, 100_000)
    stays, averages = (float(part) for part in two_parts(common + own, surely=False))
    assert stays == pytest.approx(float(common.abs().sum()), rel=0.2)
    assert averages == pytest.approx(float(own.abs().sum()) / 4, rel=0.02)
    assert stays <= float(two_parts(common + own)[0]) <= 2 * stays
    # Twelve products over twenty features may come out as nothing by chance: they are not believed.
    few = torch.stack([two_parts((common + own)[..., at : at + 20])[0] for at in range(0, 20_000, 20)])
    true = common[0, 0, :20_000].view(-1, 1, 20).abs().sum(2)
    assert float((few < true).double().mean()) < 0.02
