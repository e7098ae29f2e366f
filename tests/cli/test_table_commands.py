"""``integrand summary`` and ``integrand export``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from integrand.batch import ExplainedTable
from integrand.cli.app import app
from integrand.errors import IntegrandError
from tests.batch.tables import made, molecule_rows, photo_rows

WIDE = {"COLUMNS": "200", "TERMINAL_WIDTH": "200"}


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env=WIDE)


def refused(*words: object) -> str:
    """The message of a command that ends with an error of ours."""
    done = run(*words)
    assert isinstance(done.exception, IntegrandError), done.output
    return str(done.exception)


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    """The output of a command that keeps its table in a folder inside."""
    made(tmp_path / "out" / "table", photo_rows(30), title="Photos")
    return tmp_path / "out"


@pytest.fixture
def molecules(tmp_path: Path) -> ExplainedTable:
    return made(tmp_path / "molecules", molecule_rows(20))


def test_summary_says_it_in_words_and_writes_the_page(gallery: Path, molecules: ExplainedTable) -> None:
    done = run("summary", gallery, "--label", "label")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("29 of 30 inputs explained; ")
    assert "failed because:\n  1  photos/11.jpg is no photo" in done.stdout
    assert f"wrote {gallery / 'summary.html'}" in done.stderr
    page = (gallery / "summary.html").read_text(encoding="utf-8")
    assert "<title>Photos</title>" in page
    assert "Right and wrong" in page
    assert run("summary", gallery).exit_code == 0  # a page of ours may be replaced
    done = run("summary", molecules.folder)
    assert "groups that mattered most, on average:\n  nitro group" in done.stdout
    assert (molecules.folder / "_summary.html").is_file()


def test_summary_as_json(molecules: ExplainedTable, tmp_path: Path) -> None:
    done = run("summary", molecules.folder, "--json")
    numbers = json.loads(done.stdout)
    assert numbers["total"] == 20
    assert numbers["groups"][0]["name"] == "nitro group"
    assert not (molecules.folder / "_summary.html").exists()
    for _ in range(2):
        assert run("summary", molecules.folder, "--out", tmp_path / "a.json").exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text()) == numbers


def test_summary_replaces_nothing_of_the_users(gallery: Path) -> None:
    mine = gallery / "summary.html"
    mine.write_text("my own words")
    assert "was not written by integrand" in refused("summary", gallery)
    assert mine.read_text() == "my own words"
    assert run("summary", gallery, "--force").exit_code == 0
    assert "there is no folder" in refused("summary", gallery, "--out", gallery / "new" / "a.html")
    assert run("summary", gallery, "--out", gallery / "new" / "a.html", "--force").exit_code == 0
    assert "expected a file that ends in .html, .json" in refused("summary", gallery, "--out", gallery / "a.txt")


def test_a_folder_without_a_table(tmp_path: Path) -> None:
    for words in (("summary", tmp_path), ("export", tmp_path, "--csv", tmp_path / "a.csv")):
        assert "expected a folder that integrand.explain_many or a command wrote" in refused(*words)
    assert list(tmp_path.iterdir()) == []


def test_export_writes_csv(molecules: ExplainedTable, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    done = run("export", molecules.folder, "--csv", file)
    assert done.exit_code == 0, done.output
    assert f"wrote {file}: 20 lines" in done.stderr
    assert file.read_bytes().startswith(b"\xef\xbb\xbfkey,prediction,probability,")
    assert run("export", molecules.folder, "--csv", file, "--long").exit_code == 0  # a file of ours may be replaced
    assert b"\r\nmol0," in file.read_bytes()
    assert run("export", molecules.folder, "--csv", tmp_path / "b.csv", "--columns", "key, status").exit_code == 0
    assert (tmp_path / "b.csv").read_text(encoding="utf-8-sig").splitlines()[:2] == ["key,status", "mol0,exact"]


def test_export_says_what_is_wrong(molecules: ExplainedTable, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("mine")
    assert "was not written by integrand" in refused("export", molecules.folder, "--csv", file)
    assert "expected --csv FILE" in refused("export", molecules.folder)
    assert "expected a file that ends in .csv" in refused("export", molecules.folder, "--csv", tmp_path / "a.xlsx")
    assert "got the columns 'sore'" in refused("export", molecules.folder, "--csv", tmp_path / "b.csv", "--columns", "sore")
    assert file.read_text() == "mine"
    assert run("export", molecules.folder, "--csv", file, "--force").exit_code == 0
