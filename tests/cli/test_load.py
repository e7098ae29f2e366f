"""Models and tensors that are named on a command line."""

import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from integrand.cli.axioms_command import load_tensors, random_input
from integrand.errors import FileError, OptionError
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


def test_tensors_from_every_kind_of_file(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = torch.from_numpy(array)
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "one.npz", x=array)
    np.savez(tmp_path / "two.npz", a=array, b=2 * array)
    torch.save(tensor, tmp_path / "x.pt")
    torch.save([tensor, 2 * tensor], tmp_path / "list.pt")
    save_file({"x": tensor}, tmp_path / "x.safetensors")
    for name in ("x.npy", "one.npz", "x.pt", "x.safetensors"):
        assert torch.equal(load_tensors(str(tmp_path / name)), tensor), name
    two = load_tensors(str(tmp_path / "two.npz"))
    assert set(two) == {"a", "b"}
    assert torch.equal(two["b"], 2 * tensor)
    several = load_tensors(str(tmp_path / "list.pt"))
    assert isinstance(several, tuple)
    assert torch.equal(several[1], 2 * tensor)


def test_files_that_are_not_tensors(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"not an array")
    with pytest.raises(OptionError, match=r"ends in \.npy"):
        load_tensors("x.txt")
    with pytest.raises(FileError, match="there is no file"):
        load_tensors(str(tmp_path / "none.npy"))
    with pytest.raises(FileError, match="cannot be read"):
        load_tensors(str(tmp_path / "x.npy"))


def test_random_input_is_the_same_for_the_same_seed():
    assert random_input("3,4,5").shape == (1, 3, 4, 5)
    assert torch.equal(random_input("7", seed=1), random_input("7", seed=1))
    assert not torch.equal(random_input("7", seed=1), random_input("7", seed=2))
    for bad in ("", "3,x", "0,2", "-1"):
        with pytest.raises(OptionError, match="expected the shape of one example"):
            random_input(bad)
