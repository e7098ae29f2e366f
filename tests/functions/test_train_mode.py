"""A model in train mode that would answer at random, or change, is refused before it runs."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn

from integrand import integrated_gradients
from integrand.errors import TrainModeError
from tests.by_hand import X, squares


class Predictor:
    """A plain object around a module, as in many code bases."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        return self.module(x)

    def predict(self, x: Tensor) -> Tensor:
        return self.module(x)


def apply(module: nn.Module, x: Tensor) -> Tensor:
    return module(x)


HIDDEN = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)).train()

HIDES = {
    "module": lambda m: m,
    "lambda": lambda m: lambda x: m(x),
    "lambda over an object": lambda m: (lambda p: lambda x: p.predict(x))(Predictor(m)),
    "list in a closure": lambda m: (lambda ms: lambda x: sum(m(x) for m in ms))([m, m]),
    "partial": lambda m: functools.partial(apply, m),
    "bound method of the module": lambda m: m.forward,
    "bound method of an object": lambda m: Predictor(m).predict,
    "partial of a bound method": lambda m: functools.partial(Predictor(m).predict),
    "callable object": lambda m: Predictor(m),
    "default argument": lambda m: lambda x, m=m: m(x),
    "compiled": lambda m: torch.compile(m, backend="eager"),
}


@pytest.mark.parametrize("hide", HIDES.values(), ids=HIDES.keys())
def test_dropout_in_train_mode(hide):
    model = hide(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)).train())
    with pytest.raises(
        TrainModeError, match=r"train mode and its submodule '1' is a Dropout, which answers differently each time"
    ):
        integrated_gradients(model, X, target=0)


def test_dropout_in_a_global_module():
    with pytest.raises(TrainModeError, match=r"call model\.eval\(\) first"):
        integrated_gradients(lambda x: HIDDEN(x), X, target=0)


def test_an_attribute_with_the_name_of_a_global_is_not_that_global():
    class Holder:
        HIDDEN = staticmethod(squares)

    result = integrated_gradients(lambda x: Holder.HIDDEN(x), X)
    torch.testing.assert_close(result.values, integrated_gradients(squares, X).values)


@pytest.mark.parametrize("hide", HIDES.values(), ids=HIDES.keys())
def test_batch_norm_in_train_mode_leaves_its_statistics(hide):
    norm = nn.BatchNorm1d(3).train()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    with pytest.raises(
        TrainModeError, match=r"BatchNorm1d, which mixes the rows of a batch and changes its running statistics"
    ):
        integrated_gradients(hide(nn.Sequential(norm)), X, target=0)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    assert norm.training


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(("module", "name"), [(nn.Dropout(0.1), "Dropout"), (nn.BatchNorm1d(3), "BatchNorm1d")])
def test_scripted_modules_in_train_mode(module, name):
    model = torch.jit.script(nn.Sequential(module).train())
    with pytest.raises(TrainModeError, match=f"is a {name}, which"):
        integrated_gradients(model, X, target=0)


def test_dropout_inside_attention():
    layer = nn.MultiheadAttention(3, 1, dropout=0.1, batch_first=True).train()
    with pytest.raises(TrainModeError, match="it is a MultiheadAttention, which answers differently"):
        integrated_gradients(lambda x: layer(x, x, x)[0].sum((1, 2)), X[:, None])


def test_train_mode_is_fine_where_it_changes_nothing():
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.0)).train()
    weight = model[0].weight.detach()[0]
    torch.testing.assert_close(integrated_gradients(model, X).values, X * weight)
    assert model.training
    assert model[0].training
