"""Questions from anybody: files and questions have limits, and every expression takes time by length alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.fuzz_inputs import class_seeds, class_trial, question_seeds, question_trial
from benchmarks.fuzz_inputs import short_run as fuzzed
from integrand.apps import translation
from integrand.apps.questions import load, question_files
from integrand.apps.questions.question_files import LONGEST, answer_type, parsed, read
from integrand.cli.app import app
from integrand.errors import FileError, InputError, OptionError


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_devices_folders_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "a.txt")
    for path, kind in ((tmp_path / "a.txt", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(FileError, match=f"is {kind}; expected a file with one question per line"):
            read(path)
    monkeypatch.setattr(question_files, "BYTES", 10)
    (tmp_path / "b.txt").write_text("who won the race?")
    with pytest.raises(FileError, match="17 bytes; expected a file with one question per line of at most 10 bytes"):
        read(tmp_path / "b.txt")


def test_a_question_has_a_length() -> None:
    assert parsed(f"who?\n{'x' * LONGEST}\n", "a").questions[1] == "x" * LONGEST
    with pytest.raises(InputError, match=r"the question has 10,001 characters; expected a question of at most 10,000"):
        load("wtq", "cpu").size("x" * (LONGEST + 1))


def test_typed_questions_and_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CliRunner().invoke(app, ["questions", "who? " * 3000, "--device", "cpu"])
    assert isinstance(found.exception, InputError)
    assert "it has 15,000 characters; expected at most 10,000" in str(found.exception)
    monkeypatch.setattr("integrand.apps.questions.cli.BYTES", 20)
    found = CliRunner().invoke(app, ["questions", "-", "--device", "cpu"], input="who won the race of 1994?")
    assert isinstance(found.exception, OptionError)
    assert "from standard input" in str(found.exception)


def test_a_text_to_translate_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "load", lambda _: pytest.fail("the network was loaded"))
    for words in (["x" * 2001], ["a house", "--target", "y" * 2001]):
        found = CliRunner().invoke(app, ["translate", *words])
        assert isinstance(found.exception, OptionError)
        assert "2,001 characters; expected at most 2,000" in str(found.exception)


@pytest.mark.parametrize(
    "text", ["may" + " " * 300_000 + "x", "-" + " " * 300_000 + "x", "1" * 300_000 + "x", "1,111" * 60_000 + "x"]
)
def test_long_answers_are_text_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces between the parts of a date or a number were tried in every division: a square of their number."""
    monkeypatch.setattr(question_files, "_DATE", None)  # no expression is asked
    assert answer_type(text) == "text"


def test_what_fuzzing_makes_is_read_or_one_of_our_errors(tmp_path: Path) -> None:
    assert fuzzed(question_seeds(), question_trial(tmp_path), count=400, seed=3) == []
    assert fuzzed(class_seeds(), class_trial(tmp_path), count=200, seed=3) == []


def test_words_are_shown_and_not_obeyed() -> None:
    found = CliRunner().invoke(app, ["questions", "who \x1b[2J won \u202e it \x9b2J?", "--device", "cpu"])
    assert found.exit_code == 0, found.output
    assert "won" in found.output
    assert not any(sign in found.output for sign in "\x1b\u202e\x9b")
