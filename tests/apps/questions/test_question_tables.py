"""Many questions: into a table that resumes, past those that cannot be explained, and into pages written from it."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import integrand as ig
from integrand.apps import questions
from integrand.apps.command_line import BatchBar
from integrand.apps.questions import WordAttribution, model
from integrand.apps.text import text_batch
from integrand.batch import ExplainedTable, many
from integrand.cli.app import app
from integrand.errors import FileError, OptionError

Run = Callable[..., Result]

TEXTS = ["who won the race ?", "how many people live there ?", "when was it ?", "what is an atom ?", "where is it ?"] * 2


@pytest.fixture(autouse=True)
def windows_of_four_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few inputs are several windows."""
    monkeypatch.setattr(many, "LOOKAHEAD", 4)


@pytest.fixture(scope="module")
def trec() -> questions.Classifier:
    return questions.load("trec", "cpu")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trec: questions.Classifier) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(questions, "load", lambda name, device=None: trec)
    monkeypatch.setattr(model, "BATCH", 2)  # windows of 8 questions

    def invoke(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["integrand", *words])
        return CliRunner().invoke(app, [*words, "--tol", "0.1"])

    return invoke


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ExplainedTable.open(folder).arrow().to_pylist()
    return found


def stopping(monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """Let the run stop as if by Ctrl-C after so many questions; what it was asked for is collected."""
    asked: list[str] = []
    explain = text_batch.TextTask.explain

    def cut(self: text_batch.TextTask, items: Sequence[text_batch.TextInput]) -> Any:
        if len(asked) >= after:
            raise KeyboardInterrupt
        asked.extend(item.text for item in items)
        return explain(self, items)

    monkeypatch.setattr(text_batch.TextTask, "explain", cut)
    return asked


def test_a_label_that_was_corrected_in_the_file_is_corrected_in_the_table(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "asked.csv"
    file.write_text("question,label\nwho won ?,place\nwhere is it ?,place\n")
    assert run("questions", "asked.csv", "--out", "table").exit_code == 0
    file.write_text("question,label\nwho won ?,person\nwhere is it ?,place\n")
    again = run("questions", "asked.csv", "--out", "table")
    assert "(1 done before)" in again.output
    assert {row["key"]: row["label"] for row in rows(tmp_path / "table")} == {"1": "person", "2": "place"}


def test_rows_of_questions_that_were_taken_out_of_the_file_are_told(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "asked.txt"
    file.write_text("who won ?\nwhere is it ?\nwhen was it ?\n")
    assert "earlier runs" not in run("questions", "asked.txt", "--out", "table").output
    file.write_text("who won ?\nwhen was it ?\n")  # known by their numbers: the last is in the table twice now
    assert (
        "note: in the table, 1 more row is of an input of earlier runs"
        in run("questions", "asked.txt", "--out", "table").output
    )
    assert len(rows(tmp_path / "table")) == 3


def test_without_a_table_too_a_text_that_fails_later_does_not_end_the_run(trec: questions.Classifier) -> None:
    def explain(texts: list[str]) -> Any:
        if "odd" in texts:
            raise OptionError("got an odd text")
        return trec.explain(texts, tol=0.5)

    task = text_batch.TextTask(explain, size=len)
    items = [text_batch.text_input(i, text) for i, text in enumerate(["who ?", "odd", "where ?"], 1)]
    found = list(text_batch.explained(task, items, None, BatchBar(None, 3), many.StopRequest()))
    assert [(one.key, one.failed) for one in found] == [("1", False), ("2", True), ("3", False)]


def test_a_result_is_drawn_again_from_its_row(trec: questions.Classifier) -> None:
    (one,) = trec.explain(["who is 花子 ?"], target="number", tol=0.1)
    row = one.row()
    assert (row.prediction, row.target, row.status) == ("person", "number", "converged")
    assert row.probability == one.probabilities["person"] > one.probability
    assert row.features == one.words
    assert row.attribution_errors == one.errors
    np.testing.assert_array_equal(row.attributions, one.values)
    assert row.notes == one.notes != ()
    again = WordAttribution.of_details(row.details)
    assert again == one
    assert again.tokens.numbers() == one.tokens.numbers()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"values": ["x"]}, r"details.values\[0\] is 'x'; expected a number"),
        ({"values": [1.0]}, "contradicts itself: got 1 values for 3 tokens"),
        ({"spans": [[0, 3], [4, 9], [8, 9]]}, "contradicts itself: a word is not where it should be"),
        ({"spans": [[0, 3, 4]]}, r"spans\[0\] is a list of 3; expected at most 2"),
        ({"label": None}, "label is None; expected a text"),
        ({"kind": "text"}, "kind is 'text'; expected one of 'question'"),
    ],
)
def test_details_from_elsewhere_are_checked(trec: questions.Classifier, changed: dict[str, Any], message: str) -> None:
    (one,) = trec.explain(["who won ?"], tol=0.5)
    details = json.dumps(json.loads(one.row().details or "") | changed)
    with pytest.raises(FileError, match=message):
        WordAttribution.of_details(details)


def test_explain_many_takes_a_classifier_as_it_is(trec: questions.Classifier, tmp_path: Path) -> None:
    lines = [f"{text},{i}" for i, text in enumerate(TEXTS[:4])]
    (tmp_path / "q.csv").write_text("\n".join(["question,label", *lines, ",bad", f"{'x ' * 6000},long"]))
    explain = functools.partial(trec.explain, tol=0.1)
    found = ig.explain_many(tmp_path / "q.csv", explain, tmp_path / "out", column="question", carry=["label"])
    assert (found.summary.explained, found.summary.failed) == (4, 2)
    assert [row["label"] for row in rows(tmp_path / "out")] == ["0", "1", "2", "3", "bad", "long"]
    assert [row["failure"] is None for row in rows(tmp_path / "out")] == [True] * 4 + [False] * 2
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["settings"]["together"] == 256  # as the classifier says, through the partial
    assert "weights" in manifest["settings"]["explain"]["of"]["network"]
    assert len(json.dumps(manifest)) < 2000  # the vocabulary counts by its digest
    other = replace(trec, vocabulary=replace(trec.vocabulary, words=(*trec.vocabulary.words[:-1], "another")))
    with pytest.raises(OptionError, match=r"holds results of another run: got .*explain\.of\.words"):
        ig.explain_many(tmp_path / "q.csv", functools.partial(other.explain, tol=0.1), tmp_path / "out", column="question")


def test_a_stopped_run_goes_on_to_the_same_table(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{text} {'again ' * i}" for i in range(3) for text in TEXTS[:5]]
    (tmp_path / "q.txt").write_text("\n".join([*texts, "x" * 10_001]))
    assert run("questions", "q.txt", "--out", "whole").exit_code == 1  # one is too long
    with monkeypatch.context() as patch:
        stopping(patch, 8)  # two windows of 8
        found = run("questions", "q.txt", "--out", "cut", "--again")
    assert found.exit_code == 130
    assert "without --again it goes on" in found.stderr
    assert "integrand questions q.txt --out cut" in found.stderr
    assert len(rows(tmp_path / "cut")) == 8
    with monkeypatch.context() as patch:
        asked = stopping(patch, 999)
        found = run("questions", "q.txt", "--out", "cut")
        assert len(asked) == 7
    assert "going on: 8 of 16 questions were done before" in found.stderr
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    with monkeypatch.context() as patch:
        assert stopping(patch, 0) == []  # nothing is asked again, and failures are not tried again
        found = run("questions", "q.txt", "--out", "cut", "--json")
    assert [one["text"] for one in json.loads(found.stdout)] == [text.strip() for text in texts]


def test_a_page_is_written_from_the_table_and_the_table_goes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "q.txt").write_text("\n".join(TEXTS))
    with monkeypatch.context() as patch:
        stopping(patch, 8)
        assert run("questions", "q.txt", "--out", "q.html").exit_code == 130
    assert {path.name for path in tmp_path.iterdir()} == {"q.txt", "q.table"}
    assert run("questions", "q.txt", "--out", "q.html", "--keep").exit_code == 0
    assert len(rows(tmp_path / "q.table")) == 10
    with monkeypatch.context() as patch:
        stopping(patch, 0)
        found = run("questions", "q.txt", "--out", "q.json")
    assert "explained 10 of 10 questions (10 done before); wrote q.json" in found.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"q.txt", "q.html", "q.json"}
    typed = json.loads(run("questions", *TEXTS, "--json").stdout)
    assert [one["text"] for one in json.loads((tmp_path / "q.json").read_text())] == [one["text"] for one in typed]
    assert (tmp_path / "q.html").read_text().count('class="text"') == 10


def test_a_page_has_an_end_and_says_so(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_batch, "MOST", 3)
    monkeypatch.setattr(text_batch, "PRINTED", 2)
    (tmp_path / "q.txt").write_text("\n".join([*TEXTS[:5], "x" * 10_001]))
    found = run("questions", "q.txt", "--out", "q.html")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[-1] == "and 3 more"
    page = (tmp_path / "q.html").read_text()
    assert "The first 3 of 5 questions; --out q.json has all. 1 of 6 questions could not be explained." in page
    assert page.count('class="text"') == 3
    assert (tmp_path / "q.table").is_dir()  # as some failed, to be tried again


def test_what_other_settings_left_beside_a_file_goes_with_again_and_a_link_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("\n".join(TEXTS[:3]))
    assert run("questions", "q.txt", "--out", "q.html", "--keep", "--score", "logit").exit_code == 0
    refused = run("questions", "q.txt", "--out", "q.json")
    assert str(refused.exception).endswith("That folder is what an earlier run kept: --again drops it and begins anew.")
    assert run("questions", "q.txt", "--out", "q.json", "--again").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"q.txt", "q.html", "q.json"}
    (tmp_path / "q.table").symlink_to(tmp_path)
    linked = run("questions", "q.txt", "--out", "q.json", "--force")
    assert "q.table cannot be written (it is a link)" in str(linked.exception)


def test_bad_lines_become_failures_and_are_tried_again_when_asked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trec: questions.Classifier
) -> None:
    lines = ["question,id", "who won ?,a", ",b", "one cell", '"when, and where ?",d']
    (tmp_path / "q.csv").write_text("\n".join(lines))
    found = run("questions", "q.csv", "--out", "out")
    assert found.exit_code == 1
    assert "not explained: question 2: got the question '', which has no word" in found.stderr
    assert "not explained: question 3: it has 1 cells; expected 2" in found.stderr
    assert "--retry-failed tries them again" in found.stderr
    table = rows(tmp_path / "out")
    assert [(row["key"], row["id"], row["status"]) for row in table] == [
        ("1", "a", "converged"),
        ("2", "b", "failed"),
        ("3", None, "failed"),
        ("4", "d", "converged"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(type(trec), "size", lambda self, text: 1.0)  # nothing is found beforehand: by explaining only
        assert run("questions", "q.csv", "--out", "out", "--retry-failed").exit_code == 1
    assert sorted(rows(tmp_path / "out"), key=lambda row: row["key"]) == table
    (tmp_path / "q.csv").write_text("\n".join([*lines[:2], "where is it ?,b", *lines[3:]]))  # corrected in its place
    assert run("questions", "q.csv", "--out", "out").exit_code == 1
    assert [row["status"] for row in rows(tmp_path / "out")].count("failed") == 1
    assert {row["key"] for row in rows(tmp_path / "out")} == {"1", "2", "3", "4"}
    (tmp_path / "bad.csv").write_text("question\n\"\"\n' '\n".replace("' '", '" "'))
    assert run("questions", "bad.csv", "--out", "none").exit_code == 2


def test_one_bad_question_does_not_lose_the_others(run: Run, tmp_path: Path) -> None:
    found = run("questions", "who won ?", "", "x" * 10_001, "when was it ?", "--json", "--out", "q.json")
    assert found.exit_code == 1
    assert [one["text"] for one in json.loads(found.stdout)] == ["who won ?", "when was it ?"]
    assert len(json.loads((tmp_path / "q.json").read_text())) == 2
    assert "not explained: question 2: got the question ''" in found.stderr
    assert "not explained: question 3: it has 10,001 characters" in found.stderr
    assert "--retry-failed" not in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["q.json"]  # a few that are typed need no table


def test_rules_go_on_and_are_the_same(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    things = ("men", "cats", "wins", "seas", "ships", "maps")
    text = "".join(f"5 How many {thing} are there ?\n3 Who found the {thing} ?\n" for thing in things)
    (tmp_path / "q.txt").write_text(text)
    assert run("rules", "q.txt", "--model", "trec", "--out", "whole.json").exit_code == 0
    with monkeypatch.context() as patch:
        stopping(patch, 8)
        found = run("rules", "q.txt", "--model", "trec", "--out", "cut.json")
        assert found.exit_code == 130
        assert "the same command goes on where it was" in found.stderr
    with monkeypatch.context() as patch:
        asked = stopping(patch, 999)
        assert run("rules", "q.txt", "--model", "trec", "--out", "cut.json").exit_code == 0
        assert len(asked) == 4
    assert (tmp_path / "cut.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert not (tmp_path / "cut.table").exists()
    (tmp_path / "q.txt").write_text(f"{text}3 {'x' * 10_001}\n")
    found = run("rules", "q.txt", "--model", "trec", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout) == json.loads((tmp_path / "whole.json").read_text())
    assert isinstance(run("rules", "q.txt", "--out", "folder").exception, OptionError)


def test_other_settings_and_other_folders_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("who won ?\n")
    assert run("questions", "q.txt", "--out", "out").exit_code == 0
    raised = run("questions", "q.txt", "--out", "out", "--target", "number").exception
    assert isinstance(raised, OptionError)
    assert 'got explain.options.target "number" (there: null)' in str(raised)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.doc").write_text("dear")
    assert "a folder with other things in it" in str(run("questions", "q.txt", "--out", "full").exception)
    assert "or a folder for a table" in str(run("questions", "q.txt", "--out", "q.doc").exception)
    assert "expected the name of a table" in str(run("questions", "who won ?", "--column", "a").exception)


def test_memory_holds_a_window_and_not_the_file(trec: questions.Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an output nothing is kept: rows of a window are let go before the next one is read."""
    taken = 0

    def inputs() -> Any:
        nonlocal taken
        for taken in range(1, 41):
            yield text_batch.text_input(taken, "who won ?")

    task = text_batch.TextTask(lambda texts: trec.explain(texts, tol=0.5), size=trec.size, together=2)
    outcomes = text_batch.explained(task, inputs(), None, many._Nobody(), many.StopRequest())
    next(outcomes)
    assert taken == 2 * many.LOOKAHEAD
