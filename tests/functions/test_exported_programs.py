"""Programs of torch.export for a number of rows: as many at a time, whatever is asked, and the values of the module itself."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

import integrand as ig
from integrand.functions.call import exported_rows
from integrand.methods import IntegratedGradients, Shapley
from integrand.trees import Tree

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Net(nn.Module):
    """A second input with a row per example, and a setting that is one for all."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))

    def forward(self, x, shift=None, *, scale=None):
        x = x if shift is None else x + shift
        return {"logits": self.net(x if scale is None else x * scale)}


NET = Net().eval()
X = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))


def exported(rows, *args, **options):
    return torch.export.export(NET, (torch.randn(rows, 6), *args), **options).module()


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_number_of_examples(rows, count):
    program, x = exported(rows), X[:count]
    result, expected = (ig.integrated_gradients(model, x, target=1) for model in (program, NET))
    torch.testing.assert_close(result.values, expected.values, rtol=1e-4, atol=1e-6)
    assert result.certificate.converged


def test_after_it_was_saved():
    file = io.BytesIO()
    torch.export.save(torch.export.export(NET, (torch.randn(2, 6),)), file)
    file.seek(0)
    program = torch.export.load(file).module()
    expected = ig.integrated_gradients(NET, X, target=[0, 1, 2, 0, 1, 2, 0]).values
    result = ig.integrated_gradients(program, X, target=[0, 1, 2, 0, 1, 2, 0])
    torch.testing.assert_close(result.values, expected, rtol=1e-4, atol=1e-6)


def test_further_arguments_go_with_their_rows():
    program = exported(2, torch.randn(2, 6), kwargs={"scale": torch.randn(1, 6)})
    shift, scale = torch.randn(7, 6), torch.rand(1, 6)
    options = {"args": (shift,), "kwargs": {"scale": scale}, "target": 0}
    result, expected = (ig.integrated_gradients(model, X, **options) for model in (program, NET))
    torch.testing.assert_close(result.values, expected.values, rtol=1e-4, atol=1e-6)
    both, alone = (ig.integrated_gradients(model, (X, shift), kwargs={"scale": scale}, target=0) for model in (program, NET))
    torch.testing.assert_close(both.values, alone.values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [IntegratedGradients(), Shapley()])
def test_methods(method):
    torch.testing.assert_close(
        method(exported(2), X[:3], target=1).values, method(NET, X[:3], target=1).values, rtol=1e-4, atol=1e-6
    )


def test_the_number_of_rows_is_that_of_the_program():
    tensor, x = Tree("tensor"), (X,)
    dynamic = exported(2, dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    assert exported_rows(exported(3), tensor, x) == 3
    for model in (exported(1), dynamic, NET, torch.fx.symbolic_trace(NET.net), lambda x: x):
        assert exported_rows(model, tensor, x) is None
    calls = []
    dynamic.register_forward_hook(lambda module, args, kwargs, out: calls.append(len(args[0])), with_kwargs=True)
    ig.integrated_gradients(dynamic, X, target=1)
    assert max(calls) > 7  # many rows at a time


def test_one_example_without_a_batch_dimension():
    net = nn.Sequential(nn.Linear(6, 3), nn.Tanh())
    program = torch.export.export(net, (torch.randn(6),)).module()
    result, expected = (ig.integrated_gradients(model, X[0], target=1) for model in (program, net))
    torch.testing.assert_close(result.values, expected.values)
    pairs = torch.export.export(nn.Sequential(nn.Flatten(0), nn.Linear(12, 3)), (torch.randn(2, 6),)).module()
    values = ig.integrated_gradients(pairs, X[:2], target=1, batched=False).values
    assert values.shape == (2, 6)
    assert values.abs().sum(1).min() > 0
