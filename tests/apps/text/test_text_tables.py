"""Many texts: every kind of result as a row and back, and ``integrand text --file`` into tables that resume."""

from __future__ import annotations

import functools
import json
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("typer")

from typer.testing import CliRunner

import integrand as ig
from integrand import text
from integrand.apps.text import cli, text_tasks
from integrand.apps.text.stored_text import result_of
from integrand.batch import ExplainedTable, many
from integrand.cli.app import app
from integrand.errors import FileError, OptionError

from .tiny import answerer, classifier, writer

pytestmark = pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")

STORY = "The unbelievable film was not bad."


@pytest.fixture(scope="module")
def results():
    """A result of each kind."""
    bert = classifier("bert")
    return {
        "class": text.explain(*bert, STORY, tol=0.1),
        "other class": text.explain(*bert, STORY, target=0, tol=0.1),
        "difference": text.explain(*bert, STORY, target=0, against=1, tol=0.1),
        "answer": text.explain(*answerer(), "Is it good?", context="The film is bad.", tol=0.1),
        "similar": text.similarity(bert[0].bert, bert[1], "The film", "not bad", tol=0.1),
        "written": text.generated(*writer("gpt2"), "The film is", continuation=" not bad", tol=0.1),
    }


@pytest.mark.parametrize("name", ["class", "other class", "difference", "answer", "similar", "written"])
def test_a_result_is_drawn_again_from_its_row(results, name):
    one = results[name]
    row = one.row()
    again = type(one).of_details(row.details)
    assert str(again) == str(one)
    assert again.html() == one.html()
    assert again.row().details == row.details
    assert str(result_of(row.details)) == str(one)
    other = text.Generated if name != "written" else text.Explained
    with pytest.raises(FileError, match=f"of the kind {type(one).__name__}; expected {other.__name__}"):
        other.of_details(row.details)


def test_rows_are_by_words_without_markers(results):
    one, row = results["class"], results["class"].row()
    assert row.features == ("The", "unbelievable", "film", "was", "not", "bad", ".")
    assert row.attributions.sum() == pytest.approx(one.values.sum(), rel=1e-12)
    assert len(row.attribution_errors) == 7
    other = results["other class"].row()
    assert (other.prediction, other.probability) == (row.prediction, row.probability) == (one.label, one.probability)
    assert other.target == "NEGATIVE"
    assert results["answer"].row().prediction == results["answer"].label
    pair = results["similar"].row()
    assert pair.features == ("The", "film", "not", "bad")
    assert pair.prediction.startswith("similarity ")


def test_the_row_of_what_was_written_adds_up_its_outputs(results):
    one, row = results["written"], results["written"].row()
    assert row.features == ("The", "film", "is")
    assert row.prediction == "not bad"
    assert row.probability == pytest.approx(np.prod(one.probabilities))
    assert sum(row.group_sums) == pytest.approx(one.values.sum())
    assert sum(row.group_sums) == pytest.approx(row.score - row.baseline_score + row.residual, abs=1e-9)
    assert row.attributions.sum() == pytest.approx(row.group_sums[0])
    assert row.error == max(example.error for example in one.certificate)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("class", {"special": [True]}, "contradicts itself: got .* of tokens, markers and parts"),
        ("class", {"kind": "poem"}, "of no kind that is known here; expected one of text, texts, generated"),
        ("class", {"meta": {"a": 1}}, "is 1; expected a text"),
        ("similar", {"texts": []}, "expected at least 1"),
        ("written", {"prompt": 99}, "reaches beyond the"),
        ("written", {"examples": []}, "of outputs and what is known of each"),
    ],
)
def test_details_from_elsewhere_are_checked(results, name, changed, message):
    details = json.dumps(json.loads(results[name].row().details) | changed)
    with pytest.raises(FileError, match=message):
        result_of(details)
    with pytest.raises(FileError, match="has nothing in this row"):
        result_of(None)


def test_explain_many_takes_the_functions_as_they_are(tmp_path):
    classify = functools.partial(text.explain, *classifier("bert"), tol=0.1)
    write = functools.partial(text.generated, *writer("gpt2"), max_new_tokens=1, tol=0.1)
    bert, tokenizer = classifier("bert")
    encoder = bert.bert
    tasks = {
        "classes": (["The film", "", "good"], classify),
        "written": (["The film", "good"], write),
        "similar": ([("The film", "good")], lambda pairs: [text.similarity(encoder, tokenizer, *p, tol=0.1) for p in pairs]),
    }
    for name, (source, explain) in tasks.items():
        found = ig.explain_many(source, explain, tmp_path / name)
        rows = [row for row in found.table.rows() if row.ok]
        assert len(rows) == sum(bool(one) for one in source)
        assert all(result_of(row.details).row().features == row.features for row in rows)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folders = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (model, tokenizer) in {"classify": classifier("bert"), "generate": writer("gpt2")}.items():
            folders[name] = tmp_path_factory.mktemp(name)
            model.float().save_pretrained(folders[name])
            tokenizer.save_pretrained(folders[name])
    return folders


@pytest.fixture
def run(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_tasks, "BLOCK", 2)  # windows of 8 texts

    def invoke(name, *words):
        words = ["text", *words, "--device", "cpu", "--model", str(saved[name]), "--tol", "0.1"]
        monkeypatch.setattr(sys, "argv", ["integrand", *words])
        return CliRunner().invoke(app, words)

    return invoke


def test_a_file_goes_on_after_a_stop_and_past_bad_rows(run, tmp_path, monkeypatch):
    monkeypatch.setattr(many, "LOOKAHEAD", 4)
    texts = ["The film", "good", "", "bad " * 100, "not bad", "walking", "the capital", "of", "all", "is good"]
    lines = [json.dumps({"review": one, "stars": i}) for i, one in enumerate(texts)]
    (tmp_path / "t.jsonl").write_text("\n".join([*lines[:9], "no json", lines[9]]))
    given = ("--file", "t.jsonl", "--column", "review", "--out")
    found = run("classify", *given, "whole")
    assert found.exit_code == 1, found.output
    assert "not explained: text 3: it is empty" in found.stderr
    assert "not explained: text 4: the text has 102 tokens; expected at most 64" in found.stderr
    assert "not explained: text 10: it is no JSON" in found.stderr
    explain, asked = cli.LoadedModel.explain, []

    def cut(self, texts, **how):
        if len(asked) >= 7:
            raise KeyboardInterrupt
        asked.extend(texts)
        return explain(self, texts, **how)

    with monkeypatch.context() as patch:
        patch.setattr(cli.LoadedModel, "explain", cut)
        stopped = run("classify", *given, "cut")
        assert stopped.exit_code == 130, stopped.output
    assert len(ExplainedTable.open(tmp_path / "cut")) == 8
    assert run("classify", *given, "cut").exit_code == 1
    tables = [ExplainedTable.open(tmp_path / name).arrow().to_pylist() for name in ("whole", "cut")]
    assert tables[0] == tables[1]
    assert [row["stars"] for row in tables[0]] == [0, 1, 2, 3, 4, 5, 6, 7, 8, None, 9]
    page = run("classify", *given, "t.html")
    assert page.exit_code == 1
    made = (tmp_path / "t.html").read_text()
    assert made.count('class="text"') == 8
    assert "3 of 11 texts could not be explained." in made


def test_several_that_are_typed_and_prompts_of_a_file(run, tmp_path):
    found = run("classify", "good", "  ", "The film", "--json")
    assert found.exit_code == 1
    assert [one["text"] for one in json.loads(found.stdout)] == ["good", "The film"]
    assert "not explained: text 2: it is empty" in found.stderr
    (tmp_path / "p.txt").write_text("The film\nGood morning\n")
    found = run("generate", "--file", "p.txt", "--max-new-tokens", "2", "--baseline", "mean", "--out", "p.html")
    assert found.exit_code == 0, found.output
    assert (tmp_path / "p.html").read_text().count("(the output so far)") >= 2
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".table"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "got no text"),
        (("good", "--file", "t.txt"), "got a text and --file"),
        (("good", "--column", "a"), "without a table"),
        (("--file", "t.txt", "--task", "similar"), "got --file for --task similar"),
        (("--file", "t.txt", "--model", "./other"), "got --file with 2 models"),
    ],
)
def test_mistakes(run, tmp_path, words, message):
    (tmp_path / "t.txt").write_text("good\n")
    raised = run("classify", *words).exception
    assert isinstance(raised, OptionError), raised
    assert message in str(raised)
