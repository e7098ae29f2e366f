"""``integrand questions`` and ``integrand rules``, as a user types them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from integrand.apps.questions.cli import questions, rules
from integrand.errors import FileError, InputError, OptionError, TargetError

Run = Callable[..., Result]

HOW = "how many townships have a population above 50?"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(questions)
    app.command()(rules)

    def invoke(*words: str, given: str | bytes | None = None) -> Result:
        monkeypatch.setattr(sys, "argv", ["integrand", *words])
        return CliRunner().invoke(app, [*words, "--device", "cpu"], input=given)

    return invoke


def test_questions(run: Run) -> None:
    found = run("questions", HOW, "who won?")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[1].startswith("  how(+")  # below a line that answers
    assert "[asks for a number (" in lines[1]
    assert "[asks for a text (" in lines[3]
    assert len(lines) == 4
    told = run("questions", HOW, "--verbose").stdout
    assert "the words add up to" in told
    assert "Gradients evaluated" in told
    assert "\x1b" not in found.stdout


def test_json_and_target(run: Run) -> None:
    (one,) = json.loads(run("questions", HOW, "--json", "--target", "text", "--tol", "0.05").stdout)
    assert one["label"] == "text"
    assert one["certificate"]["target"] == "text (probability)"
    assert sum(row["value"] for row in one["tokens"]) == pytest.approx(one["score"] - one["baseline_score"], abs=0.05)
    assert HOW[slice(*one["tokens"][2]["span"])] == "townships"


@pytest.mark.parametrize("name", ["q.html", "q.png", "q.json"])
def test_files(run: Run, name: str, tmp_path: Path) -> None:
    for force in (("--force",), ()):  # what was written here may be written again
        found = run("questions", HOW, "--out", f"deep/{name}", "--model", "trec", *force)
        assert found.exit_code == 0, found.output
    made = (tmp_path / "deep" / name).read_bytes()
    assert len(made) > 500
    if name == "q.html":
        assert b"integrand questions" in made
        assert b"It asks for a number (" in made


def test_from_a_file_and_from_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "asked.txt").write_text("who won?\n\nwhen was it?\n", encoding="utf-8")
    from_file, from_input = (
        run("questions", "asked.txt", "--json"),
        run("questions", "-", "--json", given="who won?\nwhen was it?"),
    )
    assert [one["text"] for one in json.loads(from_file.stdout)] == ["who won?", "when was it?"]
    assert json.loads(from_file.stdout) == json.loads(from_input.stdout)


def test_markup_in_a_question(run: Run, tmp_path: Path) -> None:
    assert run("questions", "who is <img src=x onerror=alert(1)>?", "--out", "q.html").exit_code == 0
    assert "<img" not in (tmp_path / "q.html").read_text()


def test_rules(run: Run, tmp_path: Path) -> None:
    things = ("men", "cats", "wins", "seas", "ships", "maps")
    text = "".join(f"5 How many {thing} are there ?\n3 Who found the {thing} ?\n" for thing in things)
    (tmp_path / "asked.txt").write_text(text)
    found = run("rules", "asked.txt", "--model", "trec", "--json")
    assert found.exit_code == 0, found.output
    made = json.loads(found.stdout)
    assert made["questions"] == 12
    assert made["accuracy"] == 1.0
    assert {"how many", "who"} <= {
        " ".join(rule["phrase"].split()[:2]) if rule["label"] == "number" else "who" for rule in made["rules"]
    }
    assert "number: usual" in run("rules", "asked.txt", "--model", "trec").stdout
    written = run("rules", "asked.txt", "--model", "wtq", "--out", "r.html")
    assert "labels of the file are not those" in written.stderr
    assert "How it was made" in (tmp_path / "r.html").read_text()


def test_what_is_no_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"who won?\n\x00\x01")
    (tmp_path / "b").write_bytes(b"\x89PNG\r\n\x1a\n\x11\xff")
    for name in ("a.txt", "b"):
        raised = run("questions", name).exception
        assert isinstance(raised, FileError)
        assert f"{name} is no text; expected one question per line" in str(raised)
    assert "standard input is no text" in str(run("rules", "-", given=b"\x1f\x8b\x08\x00").exception)
    (tmp_path / "c.txt").write_bytes("Where is San Jos\u00e9?".encode("latin-1"))
    (one,) = json.loads(run("questions", "c.txt", "--json").stdout)
    assert one["text"] == "Where is San Jos\u00e9?"


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("questions", "   "), InputError, "has no word"),
        (("questions", ""), InputError, "got the question '', which has no word"),
        (("rules", ""), OptionError, "got an empty name"),
        (("questions", HOW, "--running"), OptionError, "--running without a picture"),
        (("questions", HOW, "--running", "--out", "q.json"), OptionError, "--running without a picture"),
        (("questions", HOW, "--target", "numbr"), TargetError, "Did you mean"),
        (("questions", HOW, "--out", "q.doc"), OptionError, "expected a file that ends in"),
        (("questions", HOW, "--tol", "0"), OptionError, "positive number"),
        (("rules", "nowhere.txt"), FileError, "cannot be read"),
        (("questions", "nowhere.txt"), FileError, "nowhere.txt cannot be read (No such file"),
        (("questions", "data/nowhere"), FileError, "data/nowhere cannot be read (No such file"),
        (("questions", "."), FileError, "is a folder; expected"),
        (("rules", "nowhere.txt", "--out", "r.png"), OptionError, "expected a file that ends in"),
    ],
)
def test_mistakes_are_one_line(run: Run, words: tuple[str, ...], error: type[Exception], message: str) -> None:
    """The command line turns these into a line and the exit code 2."""
    raised = run(*words).exception
    assert isinstance(raised, error)
    assert message in str(raised)
    assert "\n" not in str(raised)
