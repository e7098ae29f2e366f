"""``integrand text``, as a user types it, on models saved to a folder."""

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings

import pytest

pytest.importorskip("transformers")
pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from integrand.apps.text.cli import text
from integrand.errors import FileError, InputError, ModelError, OptionError, TargetError

from .tiny import answerer, classifier, writer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folders of four models."""
    made = {"classify": classifier("bert"), "answer": answerer(), "generate": writer("gpt2"), "both": writer("t5")}
    made["similar"] = (classifier("bert")[0].bert, made["classify"][1])
    folders = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (model, tokenizer) in made.items():
            folders[name] = tmp_path_factory.mktemp(name)
            model.float().save_pretrained(folders[name])
            tokenizer.save_pretrained(folders[name])
    return folders


@pytest.fixture
def run(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(text)

    def invoke(name, *words, fails=False):
        monkeypatch.setattr(sys, "argv", ["integrand", "text", *words])
        found = CliRunner().invoke(app, ["--device", "cpu", *words, "--model", str(saved.get(name, name))])
        if not fails:
            assert found.exit_code == 0, found.output
        return found

    return invoke


def test_classify(run, tmp_path):
    found = run("classify", "The film was not bad.", "Good!", "--target", "positive", "--out", "deep/a.html", "--tol", "0.05")
    lines = found.stdout.splitlines()
    assert "film" in lines[0]
    assert "[POSITIVE " in lines[0]
    assert "the words add up to" in lines[1]
    assert "integrand text" in (tmp_path / "deep" / "a.html").read_text(encoding="utf-8")


def test_json_and_pieces(run):
    (one,) = json.loads(run("classify", "Unbelievable", "--against", "neutral", "--target", "0", "--json", "--pieces").stdout)
    assert one["label"] == "NEGATIVE against NEUTRAL"
    assert len(one["tokens"]) > 3
    assert sum(row["value"] for row in one["tokens"]) == pytest.approx(one["score"] - one["baseline_score"], abs=0.01)


def test_answer(run):
    assert "[bad " in run("answer", "Is it good?", "--context", "The film is bad.", "--target", "bad").stdout


@pytest.mark.parametrize("name", ["generate", "both"])
def test_generate(run, name):
    assert len(json.loads(run(name, "The film", "--max-new-tokens", "2", "--json").stdout)) in (1, 2)
    given = ("The film", "--continuation", " is bad", "--span", "bad", "--baseline", "mean", "--out", "deep/a.html")
    head, columns, row, *_ = run(name, *given).stdout.splitlines()
    assert head == "The film → bad"
    assert columns.split() == ["The", "film", "so", "far", "F(x′)", "F(x)"]
    assert row.split()[0] == "bad"


def test_similar(run):
    found = run("similar", "Good morning.", "The film is bad.", "--baseline", "pad")
    assert found.stdout.count("[similarity ") == 2


@pytest.mark.parametrize(
    ("name", "words", "error", "message"),
    [
        ("no/such/folder", ["good"], FileError, "--model 'no/such/folder' cannot be loaded"),
        ("classify", ["good", "--out", "a.txt"], OptionError, r"expected a file that ends in \.html"),
        ("classify", ["good", "--target", "angry"], TargetError, "got target 'angry'"),
        ("classify", [""], InputError, "is empty"),
        ("similar", ["good"], OptionError, "expected two sentences"),
        ("generate", ["good", "bad"], OptionError, "expected one prompt"),
        ("answer", ["good"], OptionError, "got no --context"),
        ("answer", ["good", "--task", "classify"], ModelError, r"no trained weights for --task classify .*and 3 more missing"),
        ("similar", ["good", "--task", "answer"], ModelError, r"--task answer \(qa_outputs.bias and 1 more missing"),
        ("generate", ["good", "--task", "classify"], ModelError, r"\(score.weight missing in the file\); expected a model"),
        ("generate", ["good", "--target", "bad"], OptionError, "got --target, which means nothing for --task generate"),
        ("generate", ["good", "--context", "bad"], OptionError, "got --context.*expected it for classify, answer only"),
        ("answer", ["good", "--context", "a", "--against", "b"], OptionError, "got --against.*for classify, generate only"),
        ("classify", ["good", "--span", "a"], OptionError, "got --span"),
        ("classify", ["good", "--continuation", "a"], OptionError, "got --continuation.*expected it for generate only"),
        ("classify", ["good", "--max-new-tokens", "20"], OptionError, "got --max-new-tokens"),
        ("similar", ["good", "bad", "--score", "logit"], OptionError, "got --score"),
        ("similar", ["good", "bad", "--target", "0"], OptionError, "got --target"),
        ("no/such", ["good", "--task", "similar", "--part", "end"], OptionError, "got --part"),  # before anything is loaded
        ("classify", ["good", "--device", "nowhere"], OptionError, "got --device 'nowhere', which cannot be used"),
    ],
)
def test_mistakes(run, name, words, error, message):
    found = run(name, *words, fails=True)
    assert isinstance(found.exception, error)
    assert re.search(message, str(found.exception))
    assert "\n" not in str(found.exception)


def test_a_vector_without_its_pooler(run):
    assert run("answer", "good", "bad", "--task", "similar").stdout.count("[similarity ") == 2


def test_broken_folders(run, saved, tmp_path):
    for name in ("untold", "cut", "pickled"):
        shutil.copytree(saved["classify"], tmp_path / name)
    for file in (tmp_path / "untold").glob("*token*"):
        file.unlink()
    config = json.loads((tmp_path / "untold" / "config.json").read_text())
    assert config["vocab_size"] > 10
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    (tmp_path / "pickled" / "model.safetensors").unlink()
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"no weights")
    for name, message in (("untold", "has a tokenizer of 5 tokens"), ("cut", "cannot be"), ("pickled", "cannot be loaded")):
        found = run(str(tmp_path / name), "good", fails=True)
        assert isinstance(found.exception, FileError), found.exception
        assert message in str(found.exception)
        assert "\n" not in str(found.exception)
