"""Outputs without a usable score or gradient, rows that influence each other, and randomness are told apart."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from integrand import integrated_gradients
from integrand.errors import (
    ConvergenceWarning,
    GradientError,
    InPlaceWarning,
    ModelError,
    OutputError,
    RandomnessError,
    RowsError,
    ZeroAttributionWarning,
)
from tests.by_hand import X, net, squares

# Outputs


def test_output_of_another_length():
    with pytest.raises(OutputError, match=r"returned shape \(1,\) for a batch of 2; expected one row per example"):
        integrated_gradients(lambda x: (x**2).sum()[None], X)


def test_output_that_pools_the_rows_of_a_batch_of_one():
    with pytest.raises(OutputError, match=r"returned shape \(1,\) for \d+ rows; expected one row per example"):
        integrated_gradients(lambda x: (x**2).sum()[None], X[:1])


def test_output_of_classes():
    with pytest.raises(OutputError, match=r"output has dtype torch.int64; expected floating point scores.*before argmax"):
        integrated_gradients(lambda x: net()(x).argmax(1), X)


def test_output_with_several_tensors():
    with pytest.raises(OutputError, match=r"a dict with \['boxes', 'scores'\]; expected 'logits' or a single tensor"):
        integrated_gradients(lambda x: {"scores": x, "boxes": x}, X)


def test_output_of_another_kind():
    with pytest.raises(OutputError, match="returns a NoneType; expected a tensor, a tuple or dict of tensors"):
        integrated_gradients(lambda x: None, X)


# Gradients


def test_detached_output():
    with pytest.raises(GradientError, match=r"no gradient .*: something cuts the graph\. .*look for \.detach\(\)"):
        integrated_gradients(lambda x: net()(x).detach(), X, target=0)


def test_output_computed_without_gradients():
    with pytest.raises(GradientError, match=r"look for .*torch\.no_grad\(\)"):
        integrated_gradients(torch.no_grad()(squares), X)


@pytest.mark.parametrize("target", [None, 0])
def test_inference_mode_inside_the_model(target):
    with pytest.raises(GradientError, match="it was computed in inference mode"):
        integrated_gradients(torch.inference_mode()(squares if target is None else net()), X, target=target)


def test_model_built_in_inference_mode():
    with torch.inference_mode():
        model = net()
    with pytest.raises(ModelError, match=r"was built inside torch\.inference_mode\(\).*copy\.deepcopy\(model\)"):
        integrated_gradients(model, X, target=0)


def test_overwritten_value():
    def model(x: Tensor) -> Tensor:
        y = x.exp()
        z = y * y
        y.mul_(2)
        return z.sum(1)

    with pytest.raises(GradientError, match=r"writes in place to a value that its own gradient needs.*y = y \* 2"):
        integrated_gradients(model, X)


def writes_first(x: Tensor) -> Tensor:
    x *= 2
    return (x**2).sum(1)


def writes_through_a_view(x: Tensor) -> Tensor:
    x.view(-1).mul_(2)
    return (x**2).sum(1)


def writes_after_relu(x: Tensor) -> Tensor:
    return (F.relu(x, inplace=True) ** 2).sum(1) + (x**2).sum(1)


@pytest.mark.parametrize("model", [writes_first, writes_through_a_view, writes_after_relu])
@pytest.mark.parametrize("options", [{}, {"steps": 5}])
def test_writing_to_the_input(model, options):
    x = X.clone()
    with pytest.warns(InPlaceWarning, match=r"writes into its input in place; a copy is explained and x is left as it was"):
        result = integrated_gradients(model, x, **options)
    expected = 2 * X.relu() ** 2 if model is writes_after_relu else 4 * X**2
    torch.testing.assert_close(result.values, expected)
    assert torch.equal(x, X)


def test_writing_to_the_input_behind_autograd_is_seen_too():
    def model(x: Tensor) -> Tensor:
        x.data.clamp_(max=100)  # changes nothing here, so that the numbers are right
        x.data[:, 0] = 5.0
        return x[:, 1]

    with pytest.warns(InPlaceWarning, match="writes into its input"):
        result = integrated_gradients(model, X)
    torch.testing.assert_close(result.values, X * torch.tensor([0.0, 1.0, 0.0]))


def test_input_that_the_output_ignores():
    with pytest.warns(
        ZeroAttributionWarning, match=r"every attribution to x\[1\] is exactly zero.*does not depend on it"
    ) as caught:
        a, b = integrated_gradients(lambda a, b: squares(a), (X, X)).values
    assert len(caught) == 1
    torch.testing.assert_close(a, X**2)
    assert not b.any()


def test_score_that_ignores_every_input():
    bias = torch.zeros(3, requires_grad=True)
    with pytest.warns(ZeroAttributionWarning, match="every attribution to x is exactly zero"):
        result = integrated_gradients(lambda x: (bias**2).sum().expand(len(x)) * 1.0, X)
    assert not result.values.any()
    assert bias.grad is None


def test_column_that_is_cast_to_an_integer():
    def model(x: Tensor) -> Tensor:
        return x[:, 0] ** 2 + 10 * x[:, 2].long()

    with pytest.warns(ConvergenceWarning, match=r"not complete: the score jumps by 10 at t = 0\.62[45].* has no gradient"):
        result = integrated_gradients(model, torch.tensor([[2.0, 3.0, 1.6]]))
    torch.testing.assert_close(result.values, torch.tensor([[4.0, 0.0, 0.0]]))


# Rows and randomness


@pytest.mark.parametrize("options", [{}, {"steps": 7}, {"chunk": 2}, {"steps": 7, "chunk": 2}])
@pytest.mark.parametrize("rows", [1, 2])
def test_rows_that_influence_each_other(rows, options):
    with pytest.raises(
        RowsError, match=r"example \d scores .* in its own batch and .* among other rows: rows influence each other"
    ):
        integrated_gradients(lambda x: ((x - x.mean(0)) ** 2).sum(1) + x.sum(1), X[:rows], **options)


@pytest.mark.parametrize("seed", range(5))
def test_terms_that_cancel_are_not_other_rows(seed):
    """The score is the small difference of large terms, whose rounding changes with the number of rows."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    x = torch.randn(2, 64)
    with torch.no_grad():
        model[4].bias -= model(x)[0] - 1e-6
    result = integrated_gradients(model, x)
    change = float((model(x) - model(0 * x)).detach()[0])
    assert float(result.values[0].sum()) == pytest.approx(change, rel=1e-2)


def test_batch_statistics_in_eval_mode():
    norm = nn.BatchNorm1d(3, track_running_stats=False).eval()
    with pytest.raises(RowsError, match=r"Explain one example at a time, or pass batched=False"):
        integrated_gradients(lambda x: norm(x).sum(1), X)


@pytest.mark.parametrize("options", [{}, {"steps": 7}])
def test_random_model(options):
    model = net()
    with pytest.raises(RandomnessError, match=r"two identical calls give .*; expected the same score each time.*dropout"):
        integrated_gradients(lambda x: model(F.dropout(x, 0.5, training=True)), X, target=0, **options)
