"""LRP against relevances by zennit (see benchmarks/zennit_references.py) and closed forms."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from integrand.errors import NonFiniteError, OperationError, OptionError
from integrand.methods import LRP, AlphaBeta, Epsilon, Gamma
from integrand.tracing.tracer import lstm_cell

from .zennit_networks import BIASES, COMPOSITES, EPSILON, NETWORKS, RULES, STORE, Residual, drawn

D = torch.float64

OURS = {
    "epsilon": LRP(Epsilon(EPSILON)),
    "epsilon 0.1": LRP(Epsilon(0.1)),
    "gamma 0.25": LRP(Gamma(0.25, EPSILON)),
    "gamma 1": LRP(Gamma(1.0, EPSILON)),
    "alpha2 beta1": LRP(AlphaBeta(2, 1, EPSILON)),
    "alpha1 beta0": LRP(AlphaBeta(1, 0, EPSILON)),
    "z+": LRP(AlphaBeta(1, 0, EPSILON)),
    "epsilon-plus": LRP(composite="epsilon-plus"),
    "epsilon-alpha2-beta1": LRP(composite="epsilon-alpha2-beta1"),
}


@pytest.fixture(scope="module")
def store():
    with np.load(STORE) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def loaded(name, store):
    net, _ = drawn(name)
    prefix = f"{name}/weights/"
    net.load_state_dict({key.removeprefix(prefix): value for key, value in store.items() if key.startswith(prefix)})
    return net, store[f"{name}/x"]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("rule", [*RULES, *COMPOSITES])
@pytest.mark.parametrize("name", NETWORKS)
def test_equals_zennit(name, rule, bias, store):
    net, x = loaded(name, store)
    result = dataclasses.replace(OURS[rule], bias=bias)(net, x, target=1)
    expected = store[f"{name}/{rule}/{bias}"]
    # zennit holds an epsilon of 0.1 in float32.
    tol = 1e-7 if rule == "epsilon 0.1" else 1e-12
    torch.testing.assert_close(result.values, expected, rtol=0, atol=tol * float(expected.abs().max()))


def test_a_residual_sum_written_with_plus_is_the_same(store):
    net, x = loaded("residual", store)

    class Plus(Residual):
        def forward(self, x):
            h = F.relu(self.first(x))
            return self.last(F.relu(h + self.inner(h)))

    plus = Plus().to(D)
    plus.load_state_dict(net.state_dict())
    for rule in RULES:
        torch.testing.assert_close(OURS[rule](plus, x, target=1).values, store[f"residual/{rule}/spread"], rtol=1e-6, atol=1e-7)


def test_gates_get_nothing_and_products_half_each():
    x = torch.tensor([[2.0, 3.0]], dtype=D)
    product = LRP()(lambda x: x[:, 0] * x[:, 1], x).values[0]
    assert product.tolist() == pytest.approx([3, 3])
    gated = LRP()(lambda x: x[:, 0] * torch.sigmoid(x[:, 1]), x).values[0]
    assert gated.tolist() == pytest.approx([2 * torch.sigmoid(torch.tensor(3.0)).item(), 0])
    either = LRP()(lambda x: torch.sigmoid(x[:, 1]) * x[:, 0], x).values[0]
    assert either.tolist() == pytest.approx(gated.tolist())
    divided = LRP()(lambda x: x[:, 0] / x[:, 1], x, torch.ones_like(x)).values[0]
    assert divided.tolist() == pytest.approx([2 / 3, 0])
    held = LRP()(lambda x: x[:, 0] * x[:, 1].detach(), x).values[0]
    assert held.tolist() == pytest.approx([6, 0])
    squared = LRP()(lambda x: (x * x).sum(1), x).values[0]
    assert squared.tolist() == pytest.approx([4, 9])
    complement = LRP()(lambda x: (1 - torch.sigmoid(x[:, 1])) * x[:, 0], x).values[0]
    assert complement.tolist() == pytest.approx([2 - gated[0].item(), 0])


def test_attention_weights_are_constants():
    """With the weights held fixed, attention is linear in the values: relevance is weight x value x what is read out."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(4, 4, dtype=D) for _ in range(3))
    out = torch.randn(4, dtype=D)
    x = torch.randn(1, 3, 4, dtype=D)

    def attend(x):
        return (F.scaled_dot_product_attention(x @ q, x @ k, x @ v) @ out).sum(1)

    weights = ((x @ q) @ (x @ k).transpose(1, 2) / 2).softmax(-1)
    expected = x * (weights.sum(1)[..., None] * (v @ out))
    torch.testing.assert_close(LRP()(attend, x).values, expected, rtol=1e-6, atol=1e-7)


def test_layer_norm_shares_by_the_centred_sum():
    """Its scale is a constant; what is left, x - mean(x), is linear."""
    x = torch.tensor([[1.0, 2.0, 6.0]], dtype=D)
    w = torch.tensor([1.0, -1.0, 0.5], dtype=D)
    scale = 1 / (x.var(correction=0) + 1e-5).sqrt()
    centred = x - x.mean()
    # The unit i hands w_i centred_i scale back to x in the shares of x_j (1[i = j] - 1/3) / centred_i.
    matrix = torch.eye(3, dtype=D) - 1 / 3
    expected = x * ((w * scale) @ matrix)
    torch.testing.assert_close(LRP()(lambda x: F.layer_norm(x, (3,)) @ w, x).values, expected, rtol=1e-6, atol=1e-8)
    assert float(centred.sum()) == pytest.approx(0)


def test_lstm_gates_get_nothing():
    """One step from a zero state: h = o tanh(i g); relevance goes through g only, in the shares of W_g x."""
    torch.manual_seed(0)
    net = nn.LSTM(3, 2, batch_first=True).to(D)
    x = torch.randn(1, 1, 3, dtype=D)
    w = net.weight_ih_l0.detach()[4:6]  # input, forget, cell, output
    h = net(x)[0][0, 0].detach()
    z = w @ x[0, 0]
    expected = (h[:, None] * w * x[0, 0] / z[:, None]).sum(0)
    found = LRP()(lambda x: net(x)[0][:, -1].sum(1), x).values[0, 0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_max_pooling_gives_all_to_the_winner():
    x = torch.tensor([[[1.0, 5.0, 2.0, 3.0]]], dtype=D)
    found = LRP()(lambda x: F.max_pool1d(x, 2).sum((1, 2)), x).values
    assert found.flatten().tolist() == pytest.approx([0, 5, 0, 3])


def test_bias_spread_keeps_the_score_and_bias_kept_has_its_share():
    x = torch.tensor([[1.0, 2.0]], dtype=D)
    w, b = torch.tensor([[3.0], [1.0]], dtype=D), torch.tensor([5.0], dtype=D)

    def score(x):
        return torch.addmm(b, x, w).sum(1)

    assert LRP()(score, x).values[0].tolist() == pytest.approx([6, 4])  # 10 in shares of 3 and 2
    assert LRP(bias="keep")(score, x).values[0].tolist() == pytest.approx([3, 2])
    assert LRP(bias="keep")(lambda x: (x @ w).sum(1) + 5.0, x).values[0].tolist() == pytest.approx([3, 2])


def test_a_factor_and_shift_hand_on_everything_even_at_zero():
    """Units that are zero before a norm that cannot be merged still get what the shifted unit hands back."""
    x = torch.tensor([[2.0, 1.0]], dtype=D)
    scale, shift = torch.tensor([2.0, -3.0], dtype=D), torch.tensor([1.0, 4.0], dtype=D)
    found = LRP()(lambda x: (torch.relu(x) * scale + shift).sum(1), x)
    assert found.values[0].tolist() == pytest.approx([5, 1])


def test_factors_in_either_order_and_addmm_factors():
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 3, dtype=D), torch.randn(3, 4, dtype=D), torch.randn(4, dtype=D)
    scale = torch.tensor([1.0, -2.0, 0.5, -1.0], dtype=D)
    for rule in (Epsilon(), Gamma(), AlphaBeta(), AlphaBeta(1, 0)):
        expected = LRP(rule)(lambda x: torch.relu(x @ (w * scale) + b * scale).sum(1), x).values
        for written in (
            lambda x: torch.relu((x @ w + b) * scale).sum(1),
            lambda x: torch.relu(scale * (x @ w + b)).sum(1),
            lambda x: torch.relu((x @ w + b) / (1 / scale)).sum(1),
        ):
            torch.testing.assert_close(LRP(rule)(written, x).values, expected, rtol=1e-7, atol=1e-7)
    half = LRP()(lambda x: torch.relu(torch.addmm(b, x, w, beta=2.0, alpha=0.5)).sum(1), x).values
    plain = LRP()(lambda x: torch.relu(x @ (w / 2) + 2 * b).sum(1), x).values
    torch.testing.assert_close(half, plain, rtol=1e-6, atol=1e-7)


def test_composites_find_layers_by_operation_and_name():
    torch.manual_seed(0)
    parts = {"features": nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 9)), "relu": nn.ReLU(), "head": nn.Linear(9, 2)}
    net = nn.Sequential(OrderedDict(parts)).to(D)
    x = torch.randn(2, 3, dtype=D)

    def of(**options):
        return LRP(**options)(net, x, target=0).values

    everywhere = of(rule=AlphaBeta())
    assert everywhere.any()
    torch.testing.assert_close(of(composite=(("linear", AlphaBeta()),)), everywhere)
    torch.testing.assert_close(of(composite=(("*", AlphaBeta()),)), everywhere)
    torch.testing.assert_close(of(composite=(("features.*", AlphaBeta()), ("head", AlphaBeta()))), everywhere)
    torch.testing.assert_close(of(rule=AlphaBeta(), composite=(("features.?", Epsilon()), ("head", Epsilon()))), of())
    mixed = of(composite=(("features.0", AlphaBeta()),))
    assert not torch.allclose(mixed, everywhere)
    assert not torch.allclose(mixed, of())
    torch.testing.assert_close(of(rule=AlphaBeta(), composite=(("convolution", Gamma()),)), everywhere)


@pytest.mark.parametrize("score", ["probability", "log-probability"])
def test_a_softmax_output_is_refused(score):
    net = nn.Linear(3, 3)
    with pytest.raises(OperationError, match=r"softmax'.*score='logit'"):
        LRP()(net, torch.ones(1, 3), target=0, score=score)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("sort", lambda x: x.sort(1).values[:, 0]),
        ("where", lambda x: torch.where(x > 0, x, 0.1 * x).sum(1)),
        ("abs", lambda x: torch.fft.rfft(x).abs().sum(1)),  # of complex numbers
        ("prod", lambda x: x.prod(1)),
        ("logsumexp", lambda x: x.logsumexp(1)),
        ("div", lambda x: torch.div(x, 2.0, rounding_mode="floor").sum(1) + x.sum(1)),
    ],
)
def test_undefined_operations_are_named(name, function):
    with pytest.raises(OperationError, match=f"'{name}'"):
        LRP()(function, torch.tensor([[1.0, -2.0, 3.5]], dtype=D))


def test_options():
    with pytest.raises(OptionError, match=r"composite='zplus'.*epsilon-plus"):
        LRP(composite="zplus")
    with pytest.raises(OptionError, match="alpha - beta = 1"):
        AlphaBeta(2, 2)
    with pytest.raises(OptionError, match="epsilon=-1"):
        Epsilon(-1)
    with pytest.raises(OptionError, match="gamma=nan"):
        Gamma(float("nan"))
    with pytest.raises(OptionError, match="bias='drop'"):
        LRP(bias="drop")
    with pytest.raises(OptionError, match="Epsilon, Gamma or AlphaBeta"):
        LRP(rule="epsilon")


def test_overflow_says_what_to_do():
    """Contributions of 1 and -1 to a sum of 0, which sigmoid hands back half a score."""
    w = torch.tensor([[1.0], [-1.0]])
    with pytest.raises(NonFiniteError, match="epsilon-plus"):
        LRP(Epsilon(0.0))(lambda x: (x @ w).sigmoid().sum(1), torch.tensor([[1.0, 1.0]]))


class FusedLSTM(nn.Module):
    """An LSTM as kernels on a GPU compute it: all steps' products at once, biases added in the cell."""

    def __init__(self, own):
        super().__init__()
        self.own = own

    def forward(self, x):
        own = self.own
        state = cell = x.new_zeros(len(x), own.hidden_size)
        gates = (x.transpose(0, 1) @ own.weight_ih_l0.T).unbind(0)
        for one in gates:
            hidden = state @ own.weight_hh_l0.T
            state, cell, _ = lstm_cell(one, hidden, cell, own.bias_ih_l0, own.bias_hh_l0)
        return state


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("rule", [Epsilon(0.01), Gamma(), AlphaBeta()])
def test_where_a_kernel_adds_its_biases_does_not_matter(rule, bias):
    torch.manual_seed(0)
    own = nn.LSTM(3, 4, batch_first=True).to(D).eval()
    x = torch.randn(2, 5, 3, dtype=D)
    method = LRP(rule, bias=bias)
    expected = method(lambda x: own(x)[0][:, -1], x, target=1).values
    torch.testing.assert_close(method(FusedLSTM(own), x, target=1).values, expected)
