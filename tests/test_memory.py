"""Running out of memory makes chunks smaller, and is an error only where one row does not fit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

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
