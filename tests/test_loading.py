"""Models that are named on a command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from integrand.errors import OptionError, TrustError
from integrand.loading import is_path, load_model

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
    model = load_model(f"{module}:{name}", trust=True)
    assert isinstance(model, nn.Module)
    assert not model.training
    assert model(torch.zeros(1, 3)).shape == (1, width)


def test_a_function_of_tensors_is_the_model_itself(module):
    assert load_model(f"{module}:score", trust=True)(torch.ones(2, 3)).tolist() == [3.0, 3.0]


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
        load_model(name, trust=True)


def test_a_module_that_fails_to_import_shows_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "needs_something.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        load_model("needs_something:make", trust=True)


def test_nothing_is_imported_that_is_not_trusted(module, tmp_path):
    """Before, whatever the name led to in the current folder was imported and run."""
    (tmp_path / "models_of_mine.py").write_text("import pathlib\npathlib.Path('bait').mkdir()\n" + SOURCE)
    before = list(sys.path)
    with pytest.raises(
        TrustError, match=r"would import the module models_of_mine from .*add --trust \(in Python: trust=True\)"
    ):
        load_model("models_of_mine:make")
    assert not (tmp_path / "bait").exists()
    assert sys.path == before
    assert "models_of_mine" not in sys.modules
    load_model("models_of_mine:make", trust=True)
    assert (tmp_path / "bait").exists()


@pytest.mark.parametrize(
    ("name", "path"),
    [("resnet50", False), ("net.pt2", False), ("a.b:c", False), (Path("net.pt2"), True), ("./net.pt2", True), ("../a", True)],
)
def test_names_and_paths_are_told_apart(name, path):
    assert is_path(name) is path


def test_the_command_line_imports_nothing_from_the_current_folder(tmp_path):
    """``python -m`` puts the current folder first; before, a file typer.py there was run."""
    for name in ("typer", "torch", "transformers"):
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('bait').mkdir()\n")
    words = [sys.executable, "-m", "integrand.cli", "--version"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONSAFEPATH": ""})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("integrand ")
    assert not (tmp_path / "bait").exists()
