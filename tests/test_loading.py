"""Models that are named on a command line."""

import sys

import pytest
import torch
from torch import nn

from integrand.errors import OptionError
from integrand.loading import load_model

SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.line = nn.Linear(3, width)
    def forward(self, x):
        return self.line(x)

def make(width=4):
    return Net(width)

def score(x):
    return x.sum(1)

net = Net(5)
number = 3
class holder:
    inner = Net(6)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "models_of_mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "models_of_mine"
    sys.modules.pop("models_of_mine", None)


@pytest.mark.parametrize(("name", "width"), [("make", 4), ("Net", 2), ("net", 5), ("holder.inner", 6)])
def test_modules_and_what_makes_them(module, name, width):
    model = load_model(f"{module}:{name}")
    assert isinstance(model, nn.Module)
    assert not model.training
    assert model(torch.zeros(1, 3)).shape == (1, width)


def test_a_function_of_tensors_is_the_model_itself(module):
    assert load_model(f"{module}:score")(torch.ones(2, 3)).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("models_of_mine", "expected package.module:function"),
        (":make", "expected package.module:function"),
        ("no_such_module_here:make", "no module 'no_such_module_here' to import"),
        ("models_of_mine:none", "has no 'none'"),
        ("models_of_mine:number", "is a int; expected a model"),
    ],
)
def test_what_cannot_be_loaded_says_why(module, name, words):
    with pytest.raises(OptionError, match=words):
        load_model(name)


def test_a_module_that_fails_to_import_shows_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "needs_something.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        load_model("needs_something:make")
