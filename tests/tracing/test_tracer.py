"""From a model to its program: what it holds, that it computes the same, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from integrand.errors import ModelError, RandomnessError
from integrand.tracing.tracer import decomposition_table

from .traced_models import D, drawn, gradient, names, program_of

FORMS = {
    "functional": lambda x: F.relu(x).sum(1),
    "method": lambda x: x.relu().sum(1),
    "in place": lambda x: torch.relu_(x * 1).sum(1),
    "module": nn.Sequential(nn.ReLU(), nn.Flatten(0)),
    "module in place": nn.Sequential(nn.Identity(), nn.ReLU(inplace=True)),
    "script": torch.jit.script(nn.Sequential(nn.ReLU())),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore::integrand.errors.InPlaceWarning")
def test_every_way_to_write_relu_is_relu(form):
    x = drawn(1, 1)
    assert "relu" in names(program_of(FORMS[form], x))


def test_what_does_not_depend_on_x_is_no_step():
    w = drawn(4, 4)

    def model(x):
        mask = torch.arange(4) > 1
        scale = (w @ w).softmax(1).sum(0)
        unused = x.sort(1).values  # noqa: F841
        if bool(mask.any()) and scale.max().item() > 0:  # branching on constants is fine
            x = torch.where(mask, x, torch.zeros_like(x))
        return (x * scale).sum(1)

    assert [n for n in names(program_of(model, drawn(2, 4))) if n != "view"] == ["where", "mul", "sum"]


WRITES = {
    "fill a new tensor": lambda x: _filled(x),
    "a slice": lambda x: _sliced(x),
    "a view": lambda x: _viewed(x),
    "out=": lambda x: torch.mul(x, 2, out=torch.empty_like(x)).square().sum(1),
    "a constant": lambda x: torch.ones(len(x), 4, dtype=D).add_(x).square().sum(1),
    "index_put": lambda x: _put(x),
    "masked_fill_": lambda x: (x * 2).masked_fill_(torch.tensor([True, False, True, False]), 3.0).square().sum(1),
}


def _filled(x):
    out = torch.zeros(len(x), 4, dtype=D)
    for i in range(4):
        out[:, i] = x[:, i].tanh() * i
    return out.square().sum(1)


def _sliced(x):
    y = x * 1
    y[:, 0] = 0
    y[:, 1:3] += x[:, :2]
    return y.square().sum(1)


def _viewed(x):
    y = x * 2
    y.view(-1, 2, 2)[:, 0].mul_(3)
    y[:, 3].relu_()
    return y.square().sum(1)


def _put(x):
    y = torch.zeros_like(x)
    y[:, torch.tensor([2, 0])] = x[:, :2]
    return y.square().sum(1) + x[:, 3]


@pytest.mark.parametrize("name", WRITES)
def test_writing_in_place_is_followed(name):
    x = drawn(3, 4)
    program = program_of(WRITES[name], x)
    for point in (x, drawn(3, 4, seed=2)):
        torch.testing.assert_close(program.scores(program.run((point,))), WRITES[name](point.clone()))
        leaf = point.clone().requires_grad_()
        if name != "out=":  # autograd refuses out=
            (expected,) = torch.autograd.grad(WRITES[name](leaf).sum(), leaf)
            torch.testing.assert_close(gradient(program, (point,))[0], expected)


MODELS = {
    "mlp": ((4,), lambda: [nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)]),
    "conv": ((2, 6), lambda: [nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(6, 3)]),
    "norms": ((4, 6), lambda: [nn.LayerNorm(6), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True), nn.Flatten()]),
    "rms": ((6,), lambda: [nn.RMSNorm(6), nn.Linear(6, 2)]),
    "attention": ((3, 4), lambda: [nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), nn.Flatten()]),
    "activations": ((4,), lambda: [nn.LogSigmoid(), nn.RReLU(), nn.Softshrink(), nn.GLU(), nn.PReLU(), nn.Mish()]),
    "softmax": ((4,), lambda: [nn.Softmax(-1), nn.LogSoftmax(-1), nn.Softmin(-1)]),
    "pools": ((2, 8), lambda: [nn.LPPool1d(2, 2), nn.AdaptiveAvgPool1d(2), nn.Upsample(5, mode="linear"), nn.Flatten()]),
}


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_gradients_are_those_of_the_model(name):
    torch.manual_seed(0)
    shape, parts = MODELS[name]
    net = nn.Sequential(*parts()).to(D).eval().requires_grad_(False)
    x = drawn(3, *shape)
    target = lambda out: out.square().sum(1)  # noqa: E731
    program = program_of(net, x, target=target)
    for point in (x, drawn(3, *shape, seed=2)):
        torch.testing.assert_close(program.scores(program.run((point,))), target(net(point)))
        leaf = point.clone().requires_grad_()
        (expected,) = torch.autograd.grad(target(net(leaf)).sum(), leaf)
        torch.testing.assert_close(gradient(program, (point,))[0], expected)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_recurrent_layers_are_taken_apart(kind, dtype):
    torch.manual_seed(0)
    net = kind(3, 4, num_layers=2, bidirectional=True, batch_first=True).to(dtype).requires_grad_(False)
    x = drawn(2, 3, 3).to(dtype)
    program = program_of(lambda x: net(x)[0].square().sum((1, 2)), x)
    assert not any("rnn" in name or "lstm" in name or "gru" in name for name in names(program))
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(net(leaf)[0].square().sum(), leaf)
    torch.testing.assert_close(gradient(program, (x,))[0], expected)


NORMS = {
    "1": lambda x: x.norm(1, dim=1),
    "2": lambda x: x.norm(dim=1),
    "std": lambda x: x.std(1) + x.var(1, correction=0),
    "std_mean": lambda x: sum(torch.std_mean(x, 1)) + sum(torch.var_mean(x, 1, correction=2)),
    "lerp": lambda x: torch.lerp(x, x.square(), 0.7).sum(1) + torch.lerp(x, x.exp(), torch.full((4,), 0.2, dtype=D)).sum(1),
    "addmm": lambda x: torch.addmm(x @ drawn(4, 2), x, drawn(4, 2, seed=3), beta=2.0, alpha=0.5).square().sum(1),
    "addcmul": lambda x: (torch.addcmul(x, x, x, value=2) + torch.addcdiv(x, x, x.exp(), value=3)).sum(1),
    "baddbmm": lambda x: torch.baddbmm(x[:, None], x[:, None], x.new_ones(len(x), 4, 4), beta=2, alpha=3).square().sum((1, 2)),
    "logsigmoid": lambda x: F.logsigmoid(100 * x).sum(1),
    "einsum": lambda x: torch.einsum("bi,bj,ij->b", x, x, drawn(4, 4)),
    "einsum twice": lambda x: torch.einsum("bi,bi->b", x, x),
}


@pytest.mark.parametrize("name", NORMS)
def test_what_is_taken_apart_is_the_same(name):
    x = drawn(3, 4)
    program = program_of(NORMS[name], x)
    leaf = x.clone().requires_grad_()
    scores = NORMS[name](leaf)
    torch.testing.assert_close(program.scores(program.run((x,))), scores.detach())
    torch.testing.assert_close(gradient(program, (x,))[0], torch.autograd.grad(scores.sum(), leaf)[0])


def test_inputs_that_are_not_used_get_zero():
    program = program_of(lambda a, b: a.sum(1), (drawn(2, 3), drawn(2, 4)))
    first, second = gradient(program, (drawn(2, 3), drawn(2, 4)))
    assert first.tolist() == [[1] * 3] * 2
    assert second.tolist() == [[0] * 4] * 2


def test_steps_know_the_module_of_their_weights():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 1, bias=False))).to(D)
    program = program_of(net, drawn(2, 3))
    assert [operation.module for operation in program.operations if operation.name in ("addmm", "mm")] == ["0", "2.0"]


BRANCHES = {
    "item": lambda x: x.sum(1) * x.max().item(),
    "if": lambda x: x.sum(1) if x.sum() > 0 else x.square().sum(1),
    "float": lambda x: x.sum(1) * float(x[0, 0]),
    "numpy": lambda x: x.sum(1) + torch.from_numpy(np.tanh(x.detach().numpy())).sum(1),
    "tolist": lambda x: x.sum(1) * torch.tensor(x.tolist(), dtype=D).sum(1),
    "equal": lambda x: x.sum(1) * (1 if torch.equal(x, x * 2) else 2),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branching_on_values_is_an_error_that_says_so(name):
    from integrand.methods import LRP, DeepLift, GuidedBackprop

    for method in (DeepLift(), LRP(), GuidedBackprop()):
        with pytest.raises(ModelError, match=r"numpy|\.item\(\)"):
            method(BRANCHES[name], torch.tensor([[1.0, 2.0]], dtype=D))


def test_shapes_that_depend_on_values_are_an_error():
    from integrand.methods import DeepLift

    x, base = torch.tensor([[1.0, 2.0, -1.0]], dtype=D), torch.tensor([[1.0, -2.0, -1.0]], dtype=D)
    with pytest.raises(ModelError):
        DeepLift()(lambda x: x[x > 0].sum().reshape(1).expand(len(x)), x, base, batched=True)


def test_an_error_of_the_model_stays_the_models():
    calls = []

    def fails_later(x):
        calls.append(0)
        if len(calls) > 1:
            raise KeyError("own words")
        return x.sum(1)

    with pytest.raises(KeyError, match="own words"):
        program_of(fails_later, drawn(1, 3))


def test_a_score_that_does_not_depend_on_x():
    with pytest.raises(ModelError, match="does not depend"):
        program_of(lambda x: torch.ones(len(x)), drawn(2, 3))


def test_what_torch_itself_writes_piece_by_piece_is_an_error_not_a_wrong_answer():
    """Circular padding fills a new tensor below what can be followed."""
    net = nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular").to(D)
    with pytest.raises(ModelError, match="writes to"):
        program_of(net, drawn(2, 2, 6), target=lambda out: out.flatten(1).sum(1))


def test_random_models_are_told():
    """Those that draw where nobody sees it; the others are refused before they are traced."""
    seeds = iter(range(10**6))

    def model(x):
        return (x * torch.rand(3, generator=torch.Generator().manual_seed(next(seeds)))).sum(1)

    with pytest.raises(ModelError, match="does the same each time"):
        program_of(model, drawn(2, 3))
    with pytest.raises(RandomnessError):
        program_of(lambda x: (x * torch.rand(3)).sum(1), drawn(2, 3))


def test_the_cells_that_are_one_kernel_on_a_gpu():
    """Only a GPU has the kernels; what they are taken apart into runs anywhere."""
    torch.manual_seed(0)
    aten = torch.ops.aten
    x, h, c = drawn(2, 3), drawn(2, 4, seed=2), drawn(2, 4, seed=3)
    for cell in (nn.LSTMCell(3, 4).to(D), nn.GRUCell(3, 4).to(D)):
        own, hidden = x @ cell.weight_ih.T, h @ cell.weight_hh.T
        if isinstance(cell, nn.LSTMCell):
            for biases, sums in (((cell.bias_ih, cell.bias_hh), (0, 0)), ((), (cell.bias_ih, cell.bias_hh))):
                found = decomposition_table()[aten._thnn_fused_lstm_cell.default](own + sums[0], hidden + sums[1], c, *biases)
                torch.testing.assert_close(found[:2], cell(x, (h, c)))
        else:
            found = decomposition_table()[aten._thnn_fused_gru_cell.default](own, hidden, h, cell.bias_ih, cell.bias_hh)
            torch.testing.assert_close(found[0], cell(x, h))
