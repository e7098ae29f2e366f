"""Kinds of models, inputs and ways to run them; and that nothing is left behind."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import integrand as ig
from integrand.errors import (
    ConvergenceWarning,
    GradientError,
    NonFiniteError,
    RowsError,
    TrainModeError,
    ZeroAttributionWarning,
)
from integrand.interactions import integrated_hessians

from .interaction_references import distance, naive


class Attention(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        return self.head(functional.scaled_dot_product_attention(q, k, v)[:, 0].mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", batch_first=True, dropout=0.0)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(12, 2))


def convolution() -> nn.Module:
    net = nn.Sequential(nn.Conv1d(3, 4, 2), nn.BatchNorm1d(4), nn.GELU(), nn.Flatten(), nn.Linear(12, 2))
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2)
    return net


MODELS = {
    "attention": (Attention, (3, 4)),
    "lstm": (Recurrent, (4, 2)),
    "encoder": (encoder, (3, 4)),
    "convolution": (convolution, (3, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_kinds_of_networks(name):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    net = make().double().eval()
    x, b = torch.randn(2, 2, *shape, dtype=torch.float64)
    result = integrated_hessians(net, x, b, target=1, tol=1e-4)
    assert result.values.shape == (2, int(np.prod(shape)), *shape)
    assert torch.allclose(
        result.attributions.reshape(x.shape), ig.integrated_gradients(net, x, b, target=1, tol=1e-6).values, atol=1e-4
    )
    assert result.matrix().shape == (2, int(np.prod(shape)), int(np.prod(shape)))
    one = lambda p: net(p.reshape(-1, *shape))[:, 1]  # noqa: E731
    coarse, fine = (naive(one, x[0].flatten(), b[0].flatten(), steps) for steps in (4, 8))
    assert distance(result.matrix()[:1], ((4 * fine - coarse) / 3)[None]) < 0.05


def test_scores_of_classes():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()
    x = torch.randn(2, 3, dtype=torch.float64)
    for score in ("probability", "log-probability"):
        by_hand = lambda x, s=score: net(x).softmax(1)[:, 2] if s == "probability" else net(x).log_softmax(1)[:, 2]  # noqa: E731
        ours = integrated_hessians(net, x, target=2, score=score, tol=1e-6)
        assert distance(ours.values, integrated_hessians(by_hand, x, tol=1e-6).values) < 1e-6
        assert ours.certificate[0].target == f"output [2] ({score})"


class Two(nn.Module):
    def forward(self, a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
        return scale * torch.sin(a.sum(1) * b.flatten(1).prod(1))


def test_several_inputs_as_dict_and_tuple():
    torch.manual_seed(2)
    a, b = torch.randn(2, 2, dtype=torch.float64), torch.rand(2, 1, 2, dtype=torch.float64)
    scale = torch.tensor([1.0, 3.0], dtype=torch.float64)
    joined = lambda x: torch.sin(x[:, :2].sum(1) * x[:, 2:].prod(1))  # noqa: E731
    flat = integrated_hessians(joined, torch.cat([a, b[:, 0]], 1), tol=1e-8).values * scale[:, None, None]
    named = integrated_hessians(Two(), {"a": a, "b": b}, kwargs={"scale": scale}, tol=1e-8)
    assert named.rows == (("a", 0), ("a", 1), ("b", 0, 0), ("b", 0, 1))
    assert torch.allclose(named.values["a"], flat[:, :, :2])
    assert torch.allclose(named.values["b"][:, :, 0], flat[:, :, 2:])
    assert torch.allclose(named.matrix(), flat)
    some = integrated_hessians(Two(), (a, b), args=(scale,), features=[(1, 0, 1), (0, 0)], tol=1e-8)
    assert torch.allclose(some.values[0], flat[:, [3, 0], :2])
    assert torch.allclose(some.matrix(), flat[:, [3, 0]][:, :, [3, 0]])
    assert some.pairs(1)[0].first in {(1, 0, 1), (0, 0)}
    mask = {"b": torch.tensor([False, True]), "a": torch.tensor([True, False])}
    assert integrated_hessians(Two(), {"a": a, "b": b}, kwargs={"scale": scale}, features=mask).rows == (("a", 0), ("b", 0, 1))
    labels = (torch.tensor([0, 0]), torch.tensor([[1, 1]]))
    groups = integrated_hessians(Two(), (a, b), args=(scale,), groups=labels, tol=1e-8)
    assert torch.allclose(groups.values[:, 0, 1], flat[:, :2, 2:].sum((1, 2)))


def test_an_embedding():
    torch.manual_seed(3)

    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 3)
            self.attention = Attention(3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.attention(self.embedding(ids))

    net = Text().eval()
    ids = torch.tensor([[1, 4, 2, 6]])
    labels = torch.arange(4)[:, None].expand(4, 3)
    tokens = integrated_hessians(net, ids, layer="embedding", groups=labels, target=0)
    assert tokens.values.shape == (1, 4, 4)
    direct = integrated_hessians(lambda e: net.attention(e)[:, 0], net.embedding(ids).detach(), groups=labels)
    assert torch.allclose(tokens.values, direct.values, atol=1e-5)
    sums = ig.integrated_gradients(net, ids, layer="embedding", groups=labels, target=0).values
    assert torch.allclose(tokens.values.sum(2), sums, atol=0.02 * float(sums.abs().sum()))


def test_a_single_example_and_a_batch():
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 1)).double().eval()
    x = torch.randn(4, 3, dtype=torch.float64)
    batch = integrated_hessians(net, x)
    alone = [integrated_hessians(net, row, batched=False) for row in x]
    assert alone[0].values.shape == (3, 3)
    assert alone[0].attributions.shape == (3,)
    assert alone[0].matrix().shape == (3, 3)
    assert torch.allclose(batch.values, torch.stack([one.values for one in alone]), atol=1e-12)
    assert [one.gradients for one in batch.certificate] == [one.certificate[0].gradients for one in alone]


@pytest.mark.parametrize("options", [{"chunk": 1}, {"chunk": 7}, {"memory": 1}, {"memory": 10**5}])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_chunks_do_not_change_the_answer(options, activation):
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 8), activation(), nn.Linear(8, 1)).double().eval()
    x = torch.randn(3, 4, dtype=torch.float64) * 3
    if activation is nn.ReLU and "memory" in options:
        options = {"memory": 10**5}
    whole, split = integrated_hessians(net, x, tol=1e-5), integrated_hessians(net, x, tol=1e-5, **options)
    assert torch.allclose(whole.values, split.values, rtol=1e-9, atol=1e-12)


def test_progress_is_told():
    seen = []
    integrated_hessians(lambda x: x.prod(1), torch.ones(2, 2), progress=seen.append)
    assert seen[-1].finished == 2


def test_the_model_comes_back_as_it_was():
    torch.manual_seed(6)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 1)).eval()
    net[0].bias.requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    asked = [p.requires_grad for p in net.parameters()]
    fast, state = torch.backends.mha.get_fastpath_enabled(), torch.random.get_rng_state()
    x = torch.randn(2, 3)
    kept = x.clone()
    state = torch.random.get_rng_state()

    def check():
        assert [p.requires_grad for p in net.parameters()] == asked
        assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
        assert all(p.grad is None for p in net.parameters())
        assert torch.equal(torch.random.get_rng_state(), state)
        assert torch.backends.mha.get_fastpath_enabled() is fast
        assert torch.backends.cuda.flash_sdp_enabled()
        assert torch.equal(x, kept)
        assert not x.requires_grad

    integrated_hessians(net, x, tol=0.2)
    check()
    integrated_hessians(net, x, smooth=5)
    check()

    class Stopped(Exception):
        pass

    def stop(_):
        raise Stopped

    for options in ({}, {"smooth": 5}):
        with pytest.raises(Stopped):
            integrated_hessians(net, x, progress=stop, **options)
        check()


class OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


def test_what_has_no_second_derivative():
    with pytest.raises(GradientError, match=r"its gradient has none .* twice: replace"):
        integrated_hessians(lambda x: OnceOnly.apply(x).pow(2).sum(1), torch.ones(1, 2))


class Detached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = (3 * x**2).detach()
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return ctx.factor * gradient


@pytest.mark.parametrize("rest", [lambda x: 0 * x.detach(), lambda x: x**2, lambda x: torch.sin(3 * x)])
@pytest.mark.parametrize("hidden", [Detached, OnceOnly])
def test_a_backward_pass_that_hides_its_own_derivative_is_not_believed(hidden, rest):
    with pytest.warns(ConvergenceWarning, match="not complete: .* or where a backward pass is not itself differentiable"):
        result = integrated_hessians(lambda x: (hidden.apply(x) + rest(x)).sum(1), torch.ones(1, 2, dtype=torch.float64))
    assert result.certificate[0].status is ig.Status.JUMP


def test_other_errors_are_those_of_integrated_gradients():
    with pytest.raises(TrainModeError):
        integrated_hessians(nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.5)), torch.ones(1, 2))
    with pytest.raises(RowsError):
        integrated_hessians(lambda x: (x - x.mean(0)).pow(2).sum(1) + x.sum(1), torch.randn(3, 2))
    with pytest.raises(NonFiniteError, match="second derivative of row 0 is not finite for example 0"):
        integrated_hessians(lambda x: (x**1.5).sum(1), torch.tensor([[0.0, 1.0]]))
    with pytest.raises(GradientError):
        integrated_hessians(lambda x: x.detach().sum(1), torch.ones(1, 2))
    with pytest.warns(ZeroAttributionWarning, match="equals the baseline"):
        result = integrated_hessians(lambda x: x.prod(1), torch.zeros(1, 2))
    assert result.converged
    assert not result.values.any()


def test_a_compiled_model():
    """A model that torch.compile wrapped runs as written."""
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).eval()
    x = torch.randn(1, 2)
    assert torch.allclose(
        integrated_hessians(torch.compile(net, backend="eager"), x).values, integrated_hessians(net, x).values
    )
