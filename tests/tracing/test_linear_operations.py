"""Folding and fusing never change what a program computes, nor its gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from integrand.tracing.linear_operations import folded, fused

from .traced_models import D, drawn, gradient, names, program_of


class Drawn:
    """A random network of 2-d values: layers, norms, scaled sums, products, values with several consumers."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.recipe = [(self._pick(14), self._pick(5), self._pick(5)) for _ in range(2 + self._pick(9))]
        self.constants = [self._normal(4, 4) for _ in self.recipe]
        self.rows = [self._normal(4) for _ in self.recipe]

    def _pick(self, n):
        return int(torch.randint(n, (1,), generator=self.generator))

    def _normal(self, *shape):
        return torch.randn(*shape, generator=self.generator, dtype=D)

    def __call__(self, x):
        values = [x]
        for (kind, i, j), w, b in zip(self.recipe, self.constants, self.rows, strict=True):
            a, c = values[-1 - i % len(values)], values[-1 - j % len(values)]
            made = [
                lambda a=a, w=w, b=b: torch.addmm(b, a, w),
                lambda a=a, w=w: a @ w,
                lambda a=a, b=b: a * b,
                lambda a=a, b=b: b * a,
                lambda a=a, b=b: a + 1e3 * b,
                lambda a=a, b=b: 2.5 - a / (b.abs() + 1),
                lambda a=a, c=c: a - 0.5 * c,
                lambda a=a, c=c: torch.add(a, c, alpha=-2),
                lambda a=a: torch.relu(a),
                lambda a=a: torch.tanh(a),
                lambda a=a, c=c: torch.tanh(a) * c,
                lambda a=a, b=b: nn.functional.batch_norm(a, b, b.abs() + 0.5, b - 1, b),
                lambda a=a, w=w, b=b: torch.addmm(b, a, w, beta=0.5, alpha=-2),
                lambda a=a: -a + a.sum(1, keepdim=True),
            ][kind]()
            values.append(made)
        return (values[-1] + values[len(values) // 2]).sum(1)


def same(program, other, points):
    for point in points:
        expected = program.scores(program.run((point,)))
        found = other.scores(other.run((point,)))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * max(1.0, float(expected.abs().max())))
        slopes = gradient(program, (point,))[0]
        torch.testing.assert_close(
            gradient(other, (point,))[0], slopes, rtol=1e-9, atol=1e-9 * max(1.0, float(slopes.abs().max()))
        )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_rewrites_keep_scores_and_gradients(seed):
    model, x = Drawn(seed), drawn(2, 4, seed=seed)
    program = program_of(model, x)
    points = (x, drawn(2, 4, seed=seed + 1))
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(leaf).sum(), leaf)
    torch.testing.assert_close(
        gradient(program, (x,))[0], expected, rtol=1e-9, atol=1e-9 * max(1.0, float(expected.abs().max()))
    )
    for other in (folded(program), fused(program), fused(folded(program))):
        same(program, other, points)


def conv_norm(dims, seed):
    torch.manual_seed(seed)
    conv, norm = {1: (nn.Conv1d, nn.BatchNorm1d), 2: (nn.Conv2d, nn.BatchNorm2d)}[dims]
    net = nn.Sequential(conv(4, 6, 3, groups=2, padding=1, bias=bool(seed % 2)), norm(6), nn.ReLU(), nn.Flatten(1)).to(D).eval()
    with torch.no_grad():
        for value in (net[1].weight, net[1].bias, net[1].running_mean):
            value.normal_()
        net[1].running_var.uniform_(0.1, 2)
    return net.requires_grad_(False), drawn(2, 4, *[5] * dims)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dims", [1, 2])
def test_a_norm_after_a_convolution_becomes_one_layer(dims, seed):
    net, x = conv_norm(dims, seed)
    program = program_of(net, x, target=lambda out: out.sum(1))
    one = folded(program)
    same(program, one, (x, drawn(*x.shape, seed=5)))
    assert [n for n in names(one) if n not in ("view", "unsqueeze", "squeeze")] == ["convolution", "relu", "sum"]


def test_a_norm_after_a_dense_layer_becomes_one_layer():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5)
    with torch.no_grad():
        norm.weight.normal_(), norm.bias.normal_(), norm.running_mean.fill_(1234.567)
    net = nn.Sequential(nn.Linear(4, 5), norm, nn.ReLU(), nn.Linear(5, 1)).eval().requires_grad_(False)
    x = drawn(2, 4).float()
    net[0].bias.add_(1234.567)
    program = program_of(net, x)
    one = folded(program)
    assert names(one)[:2] == ["addmm", "relu"]
    weight = one.operations[0].args[2]
    # To the last digits, although the norm shifts by far more than it scales.
    torch.testing.assert_close(
        weight, (net[0].weight.T * norm.weight / (norm.running_var + norm.eps).sqrt()), rtol=1e-6, atol=0
    )


LAYERS = {
    "mm": lambda x, w, b: x @ w + b,
    "mm, factor first": lambda x, w, b: b * (x @ w) - b,
    "addmm": lambda x, w, b: torch.addmm(b, x, w) * b,
    "rows of bias": lambda x, w, b: torch.addmm(b.expand(len(x), -1) * torch.arange(len(x))[:, None], x, w) * b,
    "3-d": lambda x, w, b: (x.reshape(-1, 1, 4).expand(-1, 2, 4) @ w) * b + 1,
    "transposed 3-d": lambda x, w, b: (x.reshape(-1, 1, 4).expand(-1, 2, 4).transpose(0, 1) @ w * b + 1).transpose(0, 1),
    "bmm": lambda x, w, b: torch.bmm(x[:, None], w.expand(len(x), 4, 3)) * b + b,
    "baddbmm": lambda x, w, b: torch.baddbmm(b, x[:, None], w.expand(len(x), 4, 3)) * b,
    "mv": lambda x, w, b: torch.stack([torch.mv(w.T, row) * b - 2 for row in x]),
    "addmv": lambda x, w, b: torch.stack([torch.addmv(b, w.T, row) / (b + 9) for row in x]),
    "view to other columns": lambda x, w, b: (x @ w).view(-1, 3, 1) * b,
    "a row": lambda x, w, b: torch.stack([row @ w * b + 3 for row in x]),
    "a row, squeezed": lambda x, w, b: torch.stack([(row[None] @ w)[0:1].squeeze(0) * b + 3 for row in x]),
    "unsqueezed": lambda x, w, b: (x @ w)[:, None] * b + 3,
    "one column": lambda x, w, b: (x @ w[:, :1]) * b[:1] + 2,
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_form_of_a_dense_layer(name):
    w, b, x = drawn(4, 3, seed=7), drawn(3, seed=8), drawn(3, 4)
    program = program_of(lambda x: LAYERS[name](x, w, b).tanh().flatten(1).sum(1), x)
    one = folded(program)
    same(program, one, (x, drawn(3, 4, seed=5)))
    same(program, fused(one), (x, drawn(3, 4, seed=5)))
    if name not in ("rows of bias", "view to other columns", "a row, squeezed"):
        assert not {"mul", "add", "sub", "div"} & set(names(one))


def test_a_layer_with_two_consumers_is_left_alone():
    w = drawn(4, 3)

    def model(x):
        h = x @ w
        return (h * 2).relu().sum(1) + h.sum(1)

    program = program_of(model, drawn(2, 4))
    assert names(folded(program)) == names(program)


def test_factors_along_other_dimensions_are_left_alone():
    conv = nn.Conv1d(2, 3, 1).to(D).requires_grad_(False)
    for factor in (drawn(5), drawn(2, 1, 1), drawn(3, 5)):
        program = program_of(lambda x, factor=factor: (conv(x) * factor).sum((1, 2)), drawn(2, 2, 5))
        assert "mul" in names(folded(program))
        same(program, folded(program), (drawn(2, 2, 5, seed=3),))


def test_terms_are_one_step():
    program = program_of(lambda x: torch.relu(torch.relu(x[:, 0]) - 1 - torch.relu(x[:, 1]) * 2), drawn(3, 2))
    assert names(fused(program)).count("sum of terms") == 1
    assert not {"sub", "mul"} & set(names(fused(program)))


def test_rounded_quotients_and_products_of_values_are_no_terms():
    program = program_of(lambda x: (torch.div(x, 2.0, rounding_mode="floor") + x).sum(1) + (x * x + 1).sum(1), drawn(3, 2))
    assert "div" in names(fused(program))
    same(program, fused(program), (drawn(3, 2, seed=2),))
