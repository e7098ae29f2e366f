"""DeepLift's reveal-cancel rule against its definition written with loops, and closed forms."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from integrand.methods import DeepLift, Shapley

from .shared import REVEAL, D, drawn


def residuals(result):
    return max(abs(one.residual) for one in result.certificate)


def reveal_cancel(net, x, base):
    """Section 3.5.2 and 3.5.3 of DeepLift (Shrikumar 2017) for one example of a dense ReLU network with one output."""
    linears = [m for m in net if isinstance(m, nn.Linear)]
    a, b = [x], [base]
    befores = []
    for i, layer in enumerate(linears):
        za, zb = layer(a[-1]), layer(b[-1])
        befores.append((za, zb))
        last = i == len(linears) - 1
        a.append(za if last else za.clamp(min=0))
        b.append(zb if last else zb.clamp(min=0))
    # Multipliers of what a layer's units give, from the last layer down.
    above = dict.fromkeys(range(linears[-1].out_features), (1.0, 1.0))  # positive and negative part of the output
    for i in reversed(range(len(linears))):
        weight = linears[i].weight.tolist()
        change = (a[i] - b[i]).tolist()
        below = []
        for source in range(len(change)):
            total = 0.0
            for unit in range(len(weight)):
                term = weight[unit][source] * change[source]
                positive, negative = above[unit]
                share = positive if term > 0 else negative if term < 0 else (positive + negative) / 2
                total += weight[unit][source] * share
            below.append(total)
        if i == 0:
            return torch.tensor([m * c for m, c in zip(below, change, strict=True)], dtype=D)
        above = {}
        za, zb = befores[i - 1]
        previous = (a[i - 1] - b[i - 1]).tolist()
        for unit, m in enumerate(below):
            terms = [w * c for w, c in zip(linears[i - 1].weight.tolist()[unit], previous, strict=True)]
            up, down, start = sum(t for t in terms if t > 0), sum(t for t in terms if t < 0), float(zb[unit])
            relu = lambda z: max(0.0, z)  # noqa: E731
            by_up = (relu(start + up) - relu(start)) / 2 + (relu(start + down + up) - relu(start + down)) / 2
            by_down = (relu(start + down) - relu(start)) / 2 + (relu(start + up + down) - relu(start + up)) / 2
            above[unit] = (m * by_up / up if up else 0.0, m * by_down / down if down else 0.0)
            assert float(za[unit]) == pytest.approx(start + up + down)
    raise AssertionError


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_reveal_cancel_equals_its_definition(depth):
    for seed in range(4):
        torch.manual_seed(seed)
        sizes = [4, 6, 5, 4][: depth + 1]
        parts = [m for i in range(depth) for m in (nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU())]
        net = nn.Sequential(*parts, nn.Linear(sizes[-1], 1)).to(D).requires_grad_(False)
        x, base = drawn(3, 4, seed=seed), drawn(3, 4, seed=seed + 50)
        base[2, 1] = x[2, 1]  # a feature that does not move
        result = REVEAL(net, x, base)
        expected = torch.stack([reveal_cancel(net, a, b) for a, b in zip(x, base, strict=True)])
        torch.testing.assert_close(result.values, expected, rtol=1e-9, atol=1e-11)
        assert residuals(result) < 1e-13


@pytest.mark.parametrize("at", [(1.0, 3.0), (3.0, 1.0), (2.0, 2.0)])
def test_reveal_cancel_halves_a_minimum(at):
    """Figure 2 of the DeepLift paper: the smaller of two as x1 - relu(x1 - x2)."""
    x = torch.tensor([at], dtype=D)
    smaller = min(at)
    result = REVEAL(lambda x: x[:, 0] - torch.relu(x[:, 0] - x[:, 1]), x)
    assert result.values[0].tolist() == pytest.approx([smaller / 2, smaller / 2])
    assert result.values.tolist() == [pytest.approx(row) for row in Shapley()(lambda x: x.amin(1), x).values.tolist()]
    rescaled = DeepLift()(lambda x: x[:, 0] - torch.relu(x[:, 0] - x[:, 1]), x).values[0].tolist()
    assert rescaled == pytest.approx([smaller, 0] if at[0] <= at[1] else [0, smaller])


def test_the_papers_saturation_and_threshold():
    """Figure 1: i1 + i2 beyond 1 saturates; and a threshold at 10, where the gradient jumps."""
    x = torch.tensor([[1.0, 1.0]], dtype=D)
    for method in (DeepLift(), REVEAL):
        values = method(lambda x: 1 - torch.relu(1 - x[:, 0] - x[:, 1]), x).values[0].tolist()
        assert values == pytest.approx([0.5, 0.5])
        for past in (-0.01, 0.0, 0.01):
            only = method(lambda x: torch.relu(x - 10).sum(1), torch.tensor([[10 + past]], dtype=D)).values.item()
            assert only == pytest.approx(max(0, past), abs=1e-9)


def test_reveal_cancel_sees_a_chain_of_sums_as_one_unit():
    x, base = torch.tensor([[2.0, 3.0, 1.5]], dtype=D), torch.zeros(1, 3, dtype=D)
    net = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 1)).to(D).requires_grad_(False)
    net[0].weight.copy_(torch.tensor([[1.0, -0.5, 2.0]]))
    net[0].bias.fill_(0.25)
    net[2].weight.fill_(1.0)
    expected = reveal_cancel(net, x[0], base[0])[None]
    written = (
        lambda x: torch.relu(x[:, 0] - x[:, 1] * 0.5 + 2 * x[:, 2] + 0.25),
        lambda x: torch.relu(2 * x[:, 2] - (0.5 * x[:, 1] - x[:, 0]) + 0.25),
        lambda x: torch.relu(0.25 - (x[:, 1] / 2 - x[:, 0] - 2 * x[:, 2])),
    )
    for score in written:
        torch.testing.assert_close(REVEAL(score, x, base).values, expected)


def test_reveal_cancel_goes_through_a_batch_norm_with_negative_scales():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, -1.0, 2.0, -0.5, 1.0, -2.0]))
        norm.bias.normal_(), norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2)
    net = nn.Sequential(nn.Linear(4, 6), norm, nn.ReLU(), nn.Linear(6, 1)).to(D).eval()
    scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach()
    merged = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), net[3]).to(D)
    with torch.no_grad():
        merged[0].weight.copy_(net[0].weight * scale[:, None])
        merged[0].bias.copy_((net[0].bias - norm.running_mean) * scale + norm.bias)
    x, base = drawn(3, 4), drawn(3, 4, seed=2)
    torch.testing.assert_close(REVEAL(net, x, base).values, REVEAL(merged, x, base).values)


def test_constants_between_what_is_moved_are_no_change():
    x, base = drawn(2, 3), drawn(2, 3, seed=2)
    w = drawn(5, 2, seed=3)

    def score(x):
        ones = torch.full((len(x), 2), 7.0, dtype=D)
        return torch.relu(torch.cat([ones[:, :1], x, ones[:, 1:]], 1) @ w).sum(1)

    expected = REVEAL(lambda x: torch.relu(x @ w[1:4] + 7 * (w[0] + w[4])).sum(1), x, base).values
    torch.testing.assert_close(REVEAL(score, x, base).values, expected)
    padded = lambda x: torch.relu(F.pad(x, (1, 1), value=7.0)).sum(1)  # noqa: E731
    assert residuals(REVEAL(padded, x, base)) < 1e-14
