"""Whatever happens, the model and the process are afterwards as they were before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from integrand import Straight, integrated_gradients, path_attribution
from integrand.errors import (
    InPlaceWarning,
    MemoryBackoffWarning,
    NonFiniteError,
    RandomnessError,
    RowsError,
    TargetError,
    TrainModeError,
)
from integrand.functions import model_state
from tests.by_hand import X, net
from tests.undisturbed import Model, unchanged

RUNS = {
    "tolerance": {},
    "steps": {"steps": 9},
    "top class": {"target": None},
    "layer": {"layer": "norm"},
    "layer input": {"layer": "outer", "layer_side": "input"},
    "layer that runs twice": {"layer": "twice"},
    "several layers": {"layer": ["skip", "twice"]},
    "layer with a baseline": {"layer": "norm", "baseline": torch.zeros(3)},
    "differentiable": {"create_graph": True},
    "one example": {"batched": False, "target": lambda out: out.sum()},
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS.keys())
def test_after_success(options):
    model = Model()
    with unchanged(model):
        integrated_gradients(model, X, **{"target": 0} | options)


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS.keys())
@pytest.mark.parametrize("runs", [0, 1, 2])
def test_after_an_error_in_the_model(options, runs):
    model = Model()
    model.fail_after = runs
    with unchanged(model), pytest.raises(ValueError, match="in the middle"):
        integrated_gradients(model, X, **{"target": 0, "tol": 1e-5} | options)


def test_after_an_interrupt():
    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    model = Model()
    with unchanged(model), pytest.raises(KeyboardInterrupt):
        integrated_gradients(model, X, target=0, layer="norm", progress=stop)


def test_after_an_error_of_the_users():
    model = Model()
    with unchanged(model), pytest.raises(TargetError):
        integrated_gradients(model, X, target=9, layer="norm")


def test_after_infinite_scores():
    model = Model()
    with unchanged(model), pytest.raises(NonFiniteError):
        integrated_gradients(lambda x: model(x)[:, 0] + x[:, 0].log(), X.abs())


def test_after_randomness():
    model = Model()
    with unchanged(model), pytest.raises(RandomnessError):
        integrated_gradients(lambda x: model(F.dropout(x, training=True)), X, target=0)


def test_after_train_mode_was_refused():
    model = Model().train()
    with unchanged(model), pytest.raises(TrainModeError):
        integrated_gradients(model, X, target=0)


def test_a_module_inside_an_object_with_slots_is_found():
    class Holder:
        __slots__ = ("module",)

        def __init__(self, module):
            self.module = module

        def __call__(self, x):
            return self.module(x)

    with pytest.raises(TrainModeError):
        integrated_gradients(Holder(nn.Sequential(nn.Linear(2, 1), nn.Dropout())), torch.ones(1, 2))


def test_after_running_out_of_memory():
    model = Model()

    def small(x: Tensor) -> Tensor:
        if len(x) > 3:
            raise torch.OutOfMemoryError("too many rows")
        return model(x)

    with unchanged(model), pytest.warns(MemoryBackoffWarning):
        integrated_gradients(small, X, target=0)


def test_running_statistics_that_are_updated_in_eval_mode():
    class Norm(nn.BatchNorm1d):
        def forward(self, x: Tensor) -> Tensor:
            return F.batch_norm(x, self.running_mean, self.running_var, training=True)

    model = nn.Sequential(Norm(3), nn.Linear(3, 1)).eval()
    with unchanged(model), pytest.raises(RowsError):
        integrated_gradients(model, X)


def test_along_a_path():
    model = Model()
    with unchanged(model):
        path_attribution(model, Straight(torch.zeros_like(X), X), target=0)


def test_the_users_tensors():
    model = net()
    x, baseline = X.clone().requires_grad_(), torch.zeros(3, requires_grad=True)
    scale = torch.ones(3, requires_grad=True)
    result = integrated_gradients(lambda x, scale: model(x * scale), x, baseline, target=0, kwargs={"scale": scale})
    for tensor, before in ((x, X), (baseline, torch.zeros(3)), (scale, torch.ones(3))):
        assert torch.equal(tensor, before)
        assert tensor.grad is None
        assert tensor.requires_grad
    assert not result.values.requires_grad


def test_a_graph_that_the_user_still_needs():
    """An attribution prior: the loss was computed before, and is differentiated after."""
    model = nn.Sequential(nn.Linear(3, 4), nn.InstanceNorm1d(4, track_running_stats=True), nn.Linear(4, 1)).train()
    scale = nn.Module()
    scale.register_buffer("factor", torch.full((3,), 2.0))
    model.append(scale)
    loss = (model[0].weight * scale.factor).square().sum()
    integrated_gradients(lambda x: model[2](model[0](x)).tanh(), X)
    loss.backward()
    torch.testing.assert_close(model[0].weight.grad, 8 * model[0].weight.detach())


# Where the caller has turned gradients off


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS.keys())
def test_caller_without_gradients(context, options):
    model = Model()
    options = {"target": 0} | options
    expected = integrated_gradients(model, X, **options)
    with context():
        before = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        result = integrated_gradients(model, X, **options)
        assert (torch.is_inference_mode_enabled(), torch.is_grad_enabled()) == before
    torch.testing.assert_close(result.values, expected.values, rtol=0, atol=0)


def test_tensors_made_in_inference_mode():
    model = net()
    with torch.inference_mode():
        x, baseline, scale = X * 1, X * 0, torch.tensor([1.0, 2.0, 3.0])
        inside = integrated_gradients(lambda x, s: model(x * s), x, baseline, target=0, kwargs={"s": scale})
        along = path_attribution(lambda x, s: model(x * s), Straight(baseline, x), target=0, kwargs={"s": scale})
    outside = integrated_gradients(lambda x, s: model(x * s), x, baseline, target=0, kwargs={"s": scale})
    expected = integrated_gradients(lambda x: model(x * torch.tensor([1.0, 2.0, 3.0])), X, target=0)
    for result in (inside, along, outside):
        torch.testing.assert_close(result.values, expected.values, rtol=0, atol=0)
        assert not result.values.is_inference()


def test_sums_in_no_fixed_order_are_not_randomness():
    """As a GPU adds: two terms of a million that cancel, and their rounding, which differs from call to call."""
    calls = 0

    def model(x):
        nonlocal calls
        calls += 1
        return (x[:, 0] - x[:, 1]) * 1e6 + x[:, 2] + 0.06 * (calls % 3)

    result = integrated_gradients(model, torch.tensor([[1.0, 1.0, 0.5]]), tol=1.0)
    torch.testing.assert_close(result.values, torch.tensor([[1e6, -1e6, 0.5]]))


# Buffers of any size


class Counts(nn.Module):
    """Squares, with a buffer of some size that every forward pass writes to."""

    def __init__(self, size: int, write: str = "add_") -> None:
        super().__init__()
        self.register_buffer("seen", torch.arange(size, dtype=torch.float32))
        self.write = write
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if self.write == "data":
            self.seen.data[0] += 1
        elif self.write == "new":
            self.seen = self.seen + 1
        else:
            self.seen += 1
        return x.square().sum(1)


@pytest.mark.parametrize("size", [65536, 65537, 300_000])
@pytest.mark.parametrize("write", ["add_", "data", "new"])
def test_buffers_that_a_forward_pass_writes_to(size, write):
    model = Counts(size, write)
    with unchanged(model):
        integrated_gradients(model, X)


@pytest.mark.parametrize("write", ["add_", "new"])
def test_buffers_too_large_to_keep_are_told(monkeypatch, write):
    monkeypatch.setattr(model_state, "KEPT_BYTES", 4 * 70_000)
    model = nn.Sequential(Counts(80_000, write), nn.Unflatten(0, (-1, 1)), nn.Flatten(0))
    model[2].register_buffer("small", torch.zeros(70_000))
    before = model[0].seen
    if write == "new":  # nothing was written, and the old one is put back
        with unchanged(model):
            integrated_gradients(model, X)
        return
    with pytest.warns(InPlaceWarning, match=r"its buffer\(s\) 'seen' \(80000 entries\), too large.*explain copy\.deepcopy"):
        integrated_gradients(model, X)
    assert model[0].seen is before


def test_large_buffers_that_nobody_writes_to_are_not_told(monkeypatch):
    monkeypatch.setattr(model_state, "KEPT_BYTES", 0)
    model = net()
    model.register_buffer("mask", torch.zeros(70_000))
    with unchanged(model):
        integrated_gradients(model, X, target=0)


# Attention


def test_attention_without_gradients_is_that_with_gradients(monkeypatch):
    """PyTorch's kernels for whole encoder layers without gradients: on a GPU their GELU is up to 1e-4 off, here by more."""
    fast = torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *args, **kwargs: fast(*args, **kwargs) + 0.01)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, dtype=torch.float64).eval()
    layer.requires_grad_(False)
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    with torch.no_grad():
        assert float((layer(x) - layer(x.requires_grad_())).abs().max()) < 0.1  # both run
    before = torch.backends.mha.get_fastpath_enabled()
    for options in ({}, {"steps": 20, "tol": 1e9}):
        result = integrated_gradients(lambda x: layer(x)[:, 0, 0], x.detach(), **options)
        with torch.enable_grad():
            exact = layer(x.detach().requires_grad_())[:, 0, 0]
        assert [one.score for one in result.certificate] == pytest.approx(exact.tolist(), rel=1e-12)
    assert torch.backends.mha.get_fastpath_enabled() is before is True


# Several threads


def together(work, count: int = 4) -> None:
    """Run the same work in several threads at once; the first error of any of them."""
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(work) for _ in range(count)]:
            future.result()


@pytest.mark.parametrize("options", [{"layer": "norm"}, {"layer": "skip"}, {"create_graph": True}, {}], ids=str)
def test_several_threads_explain_the_same_model(options):
    model = Model()
    expected = integrated_gradients(model, X, target=0, tol=1e-5, **options).values

    def work() -> None:
        for _ in range(5):
            values = integrated_gradients(model, X, target=0, tol=1e-5, **options).values
            assert torch.equal(values, expected)
            assert values.requires_grad == expected.requires_grad

    with unchanged(model):
        together(work)


def test_the_switch_for_attention_after_several_threads():
    models = iter([nn.Linear(3, 1) for _ in range(4)])  # of their own, so that nobody waits

    def work() -> None:
        model = next(models)
        for _ in range(5):
            integrated_gradients(model, X, tol=1e-5)

    assert torch.backends.mha.get_fastpath_enabled()
    together(work)
    assert torch.backends.mha.get_fastpath_enabled()
