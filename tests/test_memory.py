"""Running out of memory makes chunks smaller, and is an error only where one row does not fit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand import integrated_gradients
from integrand.errors import MemoryBackoffWarning, MemoryLimitError
from tests.by_hand import X, squares


def fits(rows: int) -> object:
    def model(x: Tensor) -> Tensor:
        if len(x) > rows:
            raise torch.OutOfMemoryError(f"tried to allocate {len(x)} rows")
        return squares(x)

    return model


@pytest.mark.parametrize("options", [{}, {"steps": 9}, {"chunk": 6}])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_out_of_memory_backs_off(rows, options):
    x = torch.linspace(-1, 2, 21).reshape(7, 3)
    with pytest.warns(MemoryBackoffWarning, match=r"out of memory with \d+ rows at a time; going on with \d+\. Pass chunk=\d+"):
        result = integrated_gradients(fits(rows), x, **options)
    torch.testing.assert_close(result.values, x**2)


def test_out_of_memory_in_a_layer_backs_off():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(1), nn.Linear(6, 1))
    ids = torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8], [2, 1]])
    run = model.forward

    def small(x: Tensor) -> Tensor:
        if len(x) > 2:
            raise torch.OutOfMemoryError("too many")
        return run(x)

    model.forward = small
    with pytest.warns(MemoryBackoffWarning, match=r"out of memory with \d+ rows at a time"):
        result = integrated_gradients(model, ids, torch.zeros_like(ids), layer="0")
    weight = model[2].weight.detach().reshape(2, 3)
    change = model[0].weight.detach()[ids] - model[0].weight.detach()[0]
    torch.testing.assert_close(result.values, weight * change)


def test_a_single_row_that_does_not_fit():
    with pytest.raises(MemoryLimitError, match=r"out of memory with a single row at a time \(tried to allocate 1 rows\)"):
        integrated_gradients(fits(0), X[:1])


def test_no_row_that_fits():
    with pytest.warns(MemoryBackoffWarning), pytest.raises(MemoryLimitError, match="out of memory with a single row at a time"):
        integrated_gradients(fits(0), X)


def test_memory_that_is_only_short_in_the_backward_pass():
    class Hungry(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x**2).sum(1)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if len(x) > 2:
                raise torch.OutOfMemoryError("backward")
            return 2 * x * grad[:, None]

    with pytest.warns(MemoryBackoffWarning, match=r"out of memory with \d+ rows at a time"):
        result = integrated_gradients(Hungry.apply, X)
    torch.testing.assert_close(result.values, X**2)


# Models that take one row


def one_row(x: Tensor) -> Tensor:
    return x.reshape(1, 3).square().sum(1)


class Rows:
    """Squares of at most so many rows, and how many there were in each call."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, []

    def __call__(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        if len(x) > self.most:
            raise ValueError(f"{len(x)} rows are too many")
        return squares(x)


@pytest.mark.parametrize("options", [{}, {"steps": 9}, {"tol": 1e-6}, {"devices": ["cpu", "cpu"]}, {"create_graph": True}])
def test_a_model_that_takes_one_row_gets_one(options):
    torch.testing.assert_close(integrated_gradients(one_row, X[:1], **options).values.detach(), X[:1] ** 2)


def test_a_layer_of_a_model_that_takes_one_row():
    model = nn.Sequential(nn.Linear(3, 2), nn.Flatten(0), nn.Unflatten(0, (1, 2)), nn.Linear(2, 1))
    values = integrated_gradients(model, X[:1], layer="0").values
    with torch.no_grad():
        torch.testing.assert_close(values, model[0](X[:1]) * model[3].weight)


@pytest.mark.parametrize("method", [ig.methods.Shapley(), ig.methods.Lime(), ig.methods.GradientTimesInput()])
def test_other_methods_of_a_model_that_takes_one_row(method):
    found, expected = (method(model, X[:1]).values for model in (one_row, squares))
    torch.testing.assert_close(found, expected)


def test_several_rows_are_tried_once():
    model = Rows(1)
    integrated_gradients(model, X[:1], tol=1e-6)
    assert sum(rows > 1 for rows in model.seen) == 1


def test_an_error_that_is_not_about_rows_comes_as_it_is():
    """The first one, with what was called; not that of a single row, which the user would not have met."""
    model = Rows(0)
    with pytest.raises(ValueError, match="1 rows are too many"):  # the user's own call
        integrated_gradients(model, X[:1])
    model = Rows(0)
    run, model.most = model.__call__, 1

    def second(x: Tensor) -> Tensor:
        out = run(x)
        model.most = 0
        return out

    with pytest.raises(ValueError, match=r"^\d\d? rows are too many") as caught:
        integrated_gradients(second, X[:1])
    assert not str(caught.value).startswith("1 ")
    assert "if the model takes one row at a time, chunk=1" in caught.value.__notes__[0]


def test_rows_that_the_user_asks_for_are_not_taken_apart():
    with pytest.raises(ValueError, match="rows are too many"):
        integrated_gradients(Rows(1), X[:1], chunk=8)
    torch.testing.assert_close(integrated_gradients(Rows(1), X[:1], chunk=1).values, X[:1] ** 2)
