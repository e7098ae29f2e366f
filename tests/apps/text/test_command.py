"""``integrand text``, as a user types it, on models saved to a folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import warnings

import pytest

pytest.importorskip("transformers")
pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from benchmarks import fuzz_weights as fuzz
from integrand.apps.text.cli import load, text
from integrand.errors import FileError, InputError, ModelError, OptionError, TargetError, TrustError

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
        words = ["--device", "cpu", *words, "--model", str(saved.get(name, name))]
        found = CliRunner().invoke(app, words, input="y\n" * 100)  # as from `yes |`
        if not fails:
            assert found.exit_code == 0, found.output
        return found

    return invoke


def test_classify(run, tmp_path):
    found = run(
        "classify", "The film was not bad.", "Good!", "--target", "positive", "--out", "a.html", "--tol", "0.05", "--verbose"
    )
    lines = found.stdout.splitlines()
    assert lines[0].startswith("POSITIVE (")
    assert "film" in lines[1]
    assert "[POSITIVE (" in lines[1]
    assert "the words add up to" in lines[2]
    assert "integrand text" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_json_and_pieces(run):
    (one,) = json.loads(run("classify", "Unbelievable", "--against", "neutral", "--target", "0", "--json", "--pieces").stdout)
    assert one["label"] == "NEGATIVE against NEUTRAL"
    assert len(one["tokens"]) > 3
    assert sum(row["value"] for row in one["tokens"]) == pytest.approx(one["score"] - one["baseline_score"], abs=0.01)


def test_answer(run):
    assert "[answers 'bad' (" in run("answer", "Is it good?", "--context", "The film is bad.", "--target", "bad").stdout


@pytest.mark.parametrize("name", ["generate", "both"])
def test_generate(run, name):
    assert len(json.loads(run(name, "The film", "--max-new-tokens", "2", "--json").stdout)) in (1, 2)
    given = ("The film", "--continuation", " is bad", "--span", "bad", "--baseline", "mean", "--out", "a.html")
    said, head, columns, row, *_ = run(name, *given).stdout.splitlines()
    assert said.startswith("The film → bad: ")
    assert head == "The film → bad"
    assert columns.split() == ["The", "film", "so", "far", "baseline", "score"]
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
    for name, message in (("untold", "has a tokenizer of 5 tokens"), ("cut", "cannot be"), ("pickled", "cannot be read")):
        found = run(str(tmp_path / name), "good", fails=True)
        assert isinstance(found.exception, FileError), found.exception
        assert message in str(found.exception)
        assert "\n" not in str(found.exception)


OWN = """
import pathlib
pathlib.Path({bait!r}).mkdir(exist_ok=True)
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
class OwnConfig(BertConfig):
    model_type = "own"
class OwnModel(BertForSequenceClassification):
    config_class = OwnConfig
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def own(saved, tmp_path, monkeypatch):
    """The folder of a model that brings code of its own: for all, or for the tokenizer only, of which transformers has one."""
    cache = str(tmp_path / "cache")
    monkeypatch.setattr(sys.modules["transformers.dynamic_module_utils"], "HF_MODULES_CACHE", cache)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def make(*, all_of_it):
        folder = tmp_path / "own"
        shutil.copytree(saved["classify"], folder)
        (folder / "code_of_mine.py").write_text(OWN.format(bait=str(tmp_path / "bait")))
        code = {"AutoConfig": "code_of_mine.OwnConfig", "AutoModelForSequenceClassification": "code_of_mine.OwnModel"}
        more = {"config.json": {"model_type": "own", "auto_map": code}} if all_of_it else {}
        more["tokenizer_config.json"] = {"auto_map": {"AutoTokenizer": [None, "code_of_mine.OwnTokenizer"]}}
        for name, changed in more.items():
            (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changed))
        return str(folder)

    return make


def test_code_in_a_folder_runs_only_if_it_is_trusted(run, own, tmp_path):
    """Before, transformers asked on standard input, and whatever stood there answered: ``yes |`` ran the code."""
    folder = own(all_of_it=True)
    found = run(folder, "good", fails=True)
    assert isinstance(found.exception, TrustError), found.exception
    assert "brings Python code of its own, which transformers would run. That is code" in str(found.exception)
    assert "[y/N]" not in found.output
    assert not (tmp_path / "bait").exists()
    run(folder, "good", "--trust", "--tol", "0.1")
    assert (tmp_path / "bait").exists()


def test_code_that_is_not_needed_does_not_run(run, own, tmp_path):
    run(own(all_of_it=False), "good", "--tol", "0.1")
    assert not (tmp_path / "bait").exists()


def test_a_name_is_never_a_folder(run, saved, tmp_path):
    """transformers takes a folder of the current folder for any name; a model of the hub that is meant is another."""
    shutil.copytree(saved["classify"], tmp_path / "org" / "name")
    for name in ("org/name", "org"):
        found = run(name, "good", fails=True)
        assert isinstance(found.exception, OptionError)
        assert f"got --model '{name}', a name, and the current folder has something" in str(found.exception)
        assert f"./{name}, if that is meant" in str(found.exception)
    run("./org/name", "good", "--tol", "0.1")


@pytest.mark.parametrize("name", ["./none", "../none", "/none", "."])
def test_paths_that_are_no_models(run, name):
    assert isinstance(run(name, "good", fails=True).exception, FileError)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_hostile_folders(run, saved, tmp_path):
    """Pipes, pickles that run code, deep JSON, bombs: each a FileError in one line, before transformers reads it."""

    def folder(name, file, data=None):
        shutil.copytree(saved["classify"], tmp_path / name)
        (tmp_path / name / file).unlink(missing_ok=True)
        if data is None:
            os.mkfifo(tmp_path / name / file)
        else:
            (tmp_path / name / file).write_bytes(data)
        return tmp_path / name

    folders = [
        folder("pipe", "config.json"),
        folder("weights", "model.safetensors"),
        folder("deep", "config.json", b"[" * 100_000),
    ]
    pickled = folder("pickled", "pytorch_model.bin", fuzz.pickled(tmp_path / "bait"))
    (pickled / "model.safetensors").unlink()
    for place in [*folders, pickled]:
        found = run(str(place), "good", fails=True)
        assert isinstance(found.exception, FileError), (place, found.exception)
        assert "\n" not in str(found.exception)
    assert not (tmp_path / "bait").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": 10**6}, "asks for 1,000,000 as 'num_hidden_layers'; expected at most 10,000"),
        ({"inner": [{"num_labels": 10**8}]}, "asks for 100,000,000 as 'num_labels'"),
    ],
)
def test_settings_that_ask_for_too_much(run, saved, tmp_path, change, words):
    """transformers makes the layers one by one, and the names of all labels; before, that took all time and memory."""
    shutil.copytree(saved["classify"], tmp_path / "own")
    config = tmp_path / "own" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    found = run("./own", "good", fails=True)
    assert isinstance(found.exception, FileError)
    assert words in str(found.exception)


def test_kernels_of_somebody_need_trust(saved, tmp_path):
    """A model's settings can name kernels on the hub, which transformers fetches and runs."""
    shutil.copytree(saved["classify"], tmp_path / "own")
    config = tmp_path / "own" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"attn_implementation": "somebody/kernel"}))
    with pytest.raises(TrustError, match="asks for kernels of somebody/kernel, which transformers would run"):
        load(str(tmp_path / "own"), None, device="cpu")


def test_two_baselines_at_once_are_refused(run):
    refused = run("./nowhere", "The film", "--like", "The book", "--baseline", "mean", fails=True)
    assert refused.exit_code == 2
    assert "--like" in refused.output
