"""``integrand axioms``, as a user types it."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from integrand.cli import main
from integrand.cli.app import app
from integrand.cli.axioms_command import load_tensors, random_input
from integrand.errors import FileError, OptionError, TrustError

SOURCE = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

def saturated(x):
    return 1 - torch.relu(1 - x).sum(1)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "nets_for_axioms.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def invoke(*words):
        monkeypatch.setattr(sys, "argv", ["integrand", *words])
        return CliRunner().invoke(app, list(words))

    yield invoke
    sys.modules.pop("nets_for_axioms", None)


FEW = ("axioms", "--examples", "8", "--method", "gradient", "--axiom", "completeness", "--axiom", "sensitivity-a")


def test_a_place_that_cannot_be_written_is_said_before_the_search(run, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("the search was begun")

    monkeypatch.setattr("integrand.axioms.axiom_table.table", never)
    (tmp_path / "file").write_text("")
    found = run(*FEW, "--out", str(tmp_path / "file" / "table.html"))
    assert isinstance(found.exception, FileError)
    assert "cannot be written" in str(found.exception)


def test_a_search_prints_the_table_and_the_evidence(run):
    done = run(*FEW)
    assert done.exit_code == 0, done.output
    assert "complete" in done.output
    assert "sens. (a)" in done.output
    assert "broken" in done.output
    assert "at x = " in done.output
    assert "--format json" in done.output
    assert "at x = " not in run(*FEW, "--no-evidence").output


def test_json_to_a_file_holds_code_that_runs(run, tmp_path, capsys):
    done = run(*FEW, "--out", str(tmp_path / "deep" / "table.json"), "--force")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "deep" / "table.json").read_text())
    broken = [verdict for verdict in found["verdicts"] if verdict["kept"] is False]
    assert {verdict["axiom"] for verdict in broken} == {"completeness", "sensitivity-a"}
    for verdict in broken:
        exec(compile(verdict["counterexample"]["code"], "<counter-example>", "exec"), {})
    assert capsys.readouterr().out


def test_html_is_one_page_with_the_command(run, tmp_path):
    done = run(*FEW, "--format", "html", "--out", str(tmp_path / "table.html"))
    assert done.exit_code == 0, done.output
    page = (tmp_path / "table.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert "integrand axioms --examples 8" in page


def test_a_model_of_the_user(run, tmp_path):
    torch.save(torch.tensor([[2.0]]), tmp_path / "x.pt")
    words = (
        "axioms",
        "--model",
        "nets_for_axioms:saturated",
        "--trust",
        "--input",
        "x.pt",
        "--axiom",
        "sensitivity-a",
        "--format",
        "json",
    )
    broken = run(*words, "--method", "gradient")
    kept = run(*words, "--method", "integrated-gradients")
    assert [verdict["kept"] for verdict in json.loads(broken.output)["verdicts"]] == [False]
    assert [verdict["kept"] for verdict in json.loads(kept.output)["verdicts"]] == [True]


def test_a_made_model_with_random_numbers(run):
    done = run(
        *("axioms", "--model", "nets_for_axioms:make", "--trust", "--shape", "4", "--target", "1", "--format", "json"),
        *("--method", "integrated-gradients", "--method", "deeplift", "--axiom", "completeness"),
        *("--axiom", "implementation-invariance"),
    )
    assert done.exit_code == 0, done.output
    kept = {(v["method"], v["axiom"]): v["kept"] for v in json.loads(done.output)["verdicts"]}
    assert kept == {
        ("integrated gradients", "completeness"): True,
        ("integrated gradients", "implementation-invariance"): True,
        ("deeplift", "completeness"): True,
        ("deeplift", "implementation-invariance"): False,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("axioms", "--method", "deeplfit"), "Did you mean 'deeplift'?"),
        (("axioms", "--axiom", "beauty"), "completeness"),
        (("axioms", "--input", "x.pt"), "without --model"),
        (("axioms", "--score", "probability", "--baseline", "1"), "got --baseline, --score without --model"),
        (
            ("axioms", "--model", "nets_for_axioms:make", "--trust", "--shape", "5"),
            "got --shape 5, and nets_for_axioms:make fails on an input of shape (1, 5): ",
        ),
        (("axioms", "--model", "nets_for_axioms:make"), "--model needs an input"),
        (("axioms", "--model", "nets_for_axioms:make", "--input", "none.pt"), "there is no file"),
    ],
)
def test_mistakes_are_answered_in_words(run, words, message):
    assert message in str(run(*words).exception)


@pytest.mark.parametrize("option", ["--model", "--equivalent"])
def test_a_model_runs_only_if_it_is_trusted(run, tmp_path, option):
    (tmp_path / "nets_for_axioms.py").write_text("import pathlib\npathlib.Path('bait').mkdir()\n" + SOURCE)
    words = ("axioms", "--model", "nets_for_axioms:make", "--shape", "4")
    done = run(*words, *(() if option == "--model" else (option, "nets_for_axioms:make")))
    assert isinstance(done.exception, TrustError)
    assert "--model nets_for_axioms:make would import the module nets_for_axioms" in str(done.exception)
    assert not (tmp_path / "bait").exists()


def test_main_prints_errors_without_a_traceback(run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["integrand", "axioms", "--method", "none"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("integrand: there is no method 'none'")


# ---- inputs from files ------------------------------------------------------------------------------------------------------


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
    (tmp_path / "y.npy").symlink_to("/dev/zero")
    with pytest.raises(FileError, match="is a device"):
        load_tensors(str(tmp_path / "y.npy"), what="--baseline")


def test_random_input_is_the_same_for_the_same_seed():
    assert random_input("3,4,5").shape == (1, 3, 4, 5)
    assert torch.equal(random_input("7", seed=1), random_input("7", seed=1))
    assert not torch.equal(random_input("7", seed=1), random_input("7", seed=2))
    for bad in ("", "3,x", "0,2", "-1"):
        with pytest.raises(OptionError, match="expected the shape of one example"):
            random_input(bad)
