"""What every method owes: inputs of every shape, the model as it was, values that can be kept."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from integrand import Attribution
from integrand.errors import InPlaceWarning, ModelError, OperationError
from integrand.methods import LRP, AlphaBeta, DeepLift, Gamma, GuidedBackprop
from tests.undisturbed import unchanged

from .shared import METHODS, OPERATED, REVEAL, D, Twice, drawn, each, each_operated

# One function, written in several ways

FORMS = {
    "functional": lambda: F.relu,
    "method": lambda: lambda x: x.relu(),
    "torch.relu_": lambda: lambda x: torch.relu_(x),
    "module in place": lambda: nn.ReLU(inplace=True),
    "one module used twice": lambda: nn.ReLU(),
    "clamp": lambda: lambda x: x.clamp(min=0),
    "clamp_": lambda: lambda x: x.clamp_(min=0),
    "maximum": lambda: lambda x: torch.maximum(x, torch.zeros_like(x)),
    "script": lambda: torch.jit.script(nn.ReLU()),
}


@each
def test_every_way_to_write_a_rectifier_gives_the_same(name):
    x, base = drawn(3, 4), drawn(3, 4, seed=2)
    torch.manual_seed(0)
    apart = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).to(D)
    expected = METHODS[name](apart, x, base, target=0).values
    assert expected.any()
    for form, make in FORMS.items():
        found = METHODS[name](Twice(make()), x, base, target=0).values
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14, msg=lambda m, form=form: f"{form}: {m}")


# Inputs of every shape


def masked_mean(x, mask, scale=1.0):
    return torch.tanh((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).sum(1) * scale


@each_operated
def test_masks_per_example_travel_with_it(name):
    method = DeepLift() if name in ("guided", "deconvnet") else METHODS[name]
    x, mask = drawn(3, 4, 2), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]], dtype=D)
    for options in ({"args": (mask,)}, {"kwargs": {"mask": mask, "scale": 2.0}}):
        values = method(masked_mean, x, **options).values
        assert not values[mask == 0].any()
        assert bool((values[mask == 1] != 0).all())
        torch.testing.assert_close(method(masked_mean, x, chunk=1, **options).values, values, rtol=1e-9, atol=1e-12)


@each
def test_tuples_dicts_and_single_examples(name):
    net = Twice(nn.ReLU())
    x, base = drawn(2, 4), drawn(2, 4, seed=2)
    whole = METHODS[name](net, x, base, target=1).values

    def two(left, right):
        return net(torch.cat([left, right], -1))

    close = {"rtol": 1e-5, "atol": 1e-12} if name in ("ig", "path") else {"rtol": 1e-9, "atol": 1e-12}
    if name != "path":  # whose steps go from one tensor to the next
        left, right = METHODS[name](two, (x[:, :1], x[:, 1:]), (base[:, :1], base[:, 1:]), target=1).values
        torch.testing.assert_close(torch.cat([left, right], 1), whole, **close)
        named = METHODS[name](
            two, {"right": x[:, 1:], "left": x[:, :1]}, {"left": base[:, :1], "right": base[:, 1:]}, target=1
        ).values
        torch.testing.assert_close(torch.cat([named["left"], named["right"]], 1), whole, **close)
    single = METHODS[name](net, x[0], base[0], target=1)
    assert single.values.shape == (4,)
    torch.testing.assert_close(single.values, whole[0], **close)


@each
def test_targets(name):
    net, x = Twice(nn.ReLU()), drawn(3, 4)
    columns = [METHODS[name](net, x, target=i).values for i in range(3)]
    per_example = METHODS[name](net, x, target=[2, 0, 1]).values
    torch.testing.assert_close(per_example, torch.stack([columns[2][0], columns[0][1], columns[1][2]]), rtol=1e-6, atol=1e-12)
    function = METHODS[name](net, x, target=lambda out: out[:, 1]).values
    torch.testing.assert_close(function, columns[1], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("score", ["probability", "log-probability"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_scores_after_a_link_function(score, outputs):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, outputs)).to(D)
    x, base = drawn(2, 4), drawn(2, 4, seed=2)
    for method in (DeepLift(), REVEAL):
        result = method(net, x, base, target=0, score=score)
        out = net(x)
        p = out.sigmoid()[:, 0] if outputs == 1 else out.softmax(1)[:, 0]
        expected = p if score == "probability" else p.log()
        assert [one.score for one in result.certificate] == pytest.approx(expected.tolist())
        assert all(abs(one.residual) < 1e-13 for one in result.certificate)


@each
def test_several_baselines_average(name):
    net, x = Twice(F.relu), drawn(2, 4)
    starts = [drawn(2, 4, seed=i) for i in (3, 4, 5)]
    parts = [METHODS[name](net, x, start, target=0).values for start in starts]
    found = METHODS[name](net, x, starts, target=0)
    torch.testing.assert_close(found.values, sum(parts) / 3, rtol=1e-5, atol=1e-10)
    with torch.no_grad():
        expected = torch.stack([net(start)[:, 0] for start in starts]).mean(0)
    assert [one.baseline_score for one in found.certificate] == pytest.approx(expected.tolist())


@each
def test_groups_are_sums(name):
    net, x = Twice(F.relu), drawn(2, 4)
    values = METHODS[name](net, x, target=0).values
    grouped = METHODS[name](net, x, target=0, groups=torch.tensor([0, 1, 1, 0])).values
    expected = torch.stack([values[:, 0] + values[:, 3], values[:, 1] + values[:, 2]], 1)
    torch.testing.assert_close(grouped, expected, rtol=1e-6, atol=1e-10)


@each_operated
def test_an_embedding_layer(name):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(15, 2)).to(D)
    ids = torch.tensor([[1, 5, 5], [0, 8, 2]])
    found = METHODS[name](net, ids, layer="0", target=1).values
    with torch.no_grad():
        expected = METHODS[name](net[1:], net[0](ids), target=1).values
    torch.testing.assert_close(found, expected)


# The model and the process are as before


class Disturbed(nn.Module):
    """Everything that could be disturbed, fused kernels included."""

    def __init__(self, act):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)
        self.lstm, self.norm, self.out = nn.LSTM(4, 5, batch_first=True), nn.BatchNorm1d(5), nn.Linear(5, 2)
        self.act = act
        self.register_buffer("calls", torch.zeros(()))
        self.eval()
        self.out.train()
        self.encoder.linear1.weight.requires_grad_(False)
        self.out.weight.grad = torch.ones(2, 5)
        self.out.register_forward_hook(lambda module, args, output: output * 1.0)
        self.fails_at = None

    def forward(self, x):
        self.calls = self.calls + 1
        if self.fails_at is not None and self.calls >= self.fails_at:
            raise ValueError("in the middle")
        torch.rand(1)
        return self.out(self.act(self.norm(self.lstm(self.encoder(x))[0][:, -1])))


def process():
    backends = torch.backends
    return (
        backends.mha.get_fastpath_enabled(),
        backends.mkldnn.enabled,
        backends.cuda.flash_sdp_enabled(),
        backends.cuda.math_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(),
        backends.cuda.cudnn_sdp_enabled(),
        backends.cudnn.enabled,
        torch.is_grad_enabled(),
        torch.get_rng_state().tolist(),
        torch.utils._python_dispatch._get_current_dispatch_mode(),
    )


@each_operated
@pytest.mark.parametrize("ends", ["well", "in the model", "in the model, later", "no rule"])
def test_nothing_is_disturbed(name, ends):
    method = METHODS[name]
    rectified = name in ("guided", "deconvnet")
    if rectified and ends != "no rule":
        method = dataclasses.replace(method, others="gradient")
    act = (lambda x: x.sort(1).values) if ends == "no rule" else F.relu
    model, x = Disturbed(act), drawn(2, 3, 4).float()
    model.fails_at = {"in the model": 2, "in the model, later": 3}.get(ends)
    around, given = process(), x.clone()
    with unchanged(model):
        if ends == "well":
            method(model, x, target=0)
        else:
            with pytest.raises((ValueError, OperationError)):
                method(model, x, target=0)
    assert process() == around
    assert torch.equal(x, given)
    assert not x.requires_grad


@each_operated
def test_a_model_that_writes_to_its_input_gets_a_copy(name):
    x = drawn(2, 4)
    given = x.clone()
    net = Twice(F.relu)

    def writes(x):
        x.mul_(2)
        return net(x)

    with pytest.warns(InPlaceWarning):
        found = METHODS[name](writes, x, target=0).values
    assert torch.equal(x, given)
    torch.testing.assert_close(found, METHODS[name](lambda x: net(2 * x), x, target=0).values)


def test_no_grad_and_inference_mode_around_the_call():
    net, x = Twice(F.relu), drawn(2, 4)
    for method in OPERATED.values():
        expected = method(net, x, target=0).values
        for around in (torch.no_grad(), torch.inference_mode()):
            with around:
                torch.testing.assert_close(method(net, x, target=0).values, expected)


def test_compiled_models_are_followed_as_written():
    net, x = Twice(F.relu), drawn(2, 4)
    compiled = torch.compile(net, backend="eager")
    for name, method in OPERATED.items():
        expected = method(net, x, target=0).values
        torch.testing.assert_close(method(compiled, x, target=0).values, expected, msg=lambda m, name=name: f"{name}: {m}")


# Methods are values


@each
def test_methods_are_values(name):
    method = METHODS[name]
    again = pickle.loads(pickle.dumps(method))
    assert again == method
    assert hash(again) == hash(method)
    assert repr(method).startswith(type(method).__name__ + "(")
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.name = "other"
    assert {p.axiom for p in method.promises} >= {"completeness", "symmetry"}


@each
def test_results_can_be_kept(name, tmp_path):
    result = METHODS[name](Twice(F.relu), drawn(2, 4), target=0)
    assert result.meta["method"] == METHODS[name].name
    assert result.meta["settings"] == repr(METHODS[name])
    loaded = Attribution.load(result.save(tmp_path / "kept.safetensors"))
    assert torch.equal(loaded.values, result.values)
    assert loaded.certificate.promises == result.certificate.promises
    assert str(loaded) == str(result)


def test_notes_are_kept(tmp_path):
    result = GuidedBackprop(others="gradient")(Twice(F.gelu), drawn(2, 4), target=0)
    loaded = Attribution.load(result.save(tmp_path / "kept.safetensors"))
    assert [one.note for one in loaded.certificate] == ["plain gradient at gelu, for which the method has no rule"] * 2


def test_composites_are_values_too():
    method = LRP(composite=(("linear", Gamma()), ("*", AlphaBeta(1, 0))))
    assert pickle.loads(pickle.dumps(method)) == method
    assert hash(method) == hash(LRP(composite=(("linear", Gamma()), ("*", AlphaBeta(1, 0)))))


def test_rows_that_influence_each_other_are_refused():
    for method in OPERATED.values():
        with pytest.raises(ModelError):
            method(lambda x: torch.relu(x - x.mean(0)).sum(1), drawn(3, 4))
