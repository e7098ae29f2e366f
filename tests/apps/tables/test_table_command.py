"""``integrand table``: shipped tables, files, models of one's own, outputs, and mistakes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from integrand.cli.app import app
from tests.apps.tables.people import people

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("integrand_models")

MODEL = """
import torch
from torch import nn
from integrand import tables

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))

def both():
    torch.manual_seed(0)
    return nn.Linear(4, 2), {"age": (50.0, 20.0), "city": ["Bergen", "Oslo", "Tromsø"]}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "my_table_model.py").write_text(MODEL, encoding="utf-8")
    people().to_csv("people.csv", index_label="name")
    yield tmp_path
    sys.modules.pop("my_table_model", None)


def run(*words):
    return CliRunner().invoke(app, ["table", *map(str, words)])


def said(*words):
    done = run(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def refused(*words):
    done = run(*words)
    assert done.exit_code != 0
    return f"{done.output}{done.exception}"


def test_a_shipped_table_needs_no_code(place):
    out = said("breast-cancer", "--row", 17, "--out", "row.html")
    assert out.startswith("Row 17: probability of malignant 0.9")
    page = Path("row.html").read_text(encoding="utf-8")
    assert "worst smoothness" in page
    assert "integrand" in page
    everything = said("diabetes")
    assert "Over 442 rows" in everything
    assert "bmi" in everything
    found = json.loads(said("diabetes", "--row", 3, "--row", 5, "--baseline", "sample:20", "--json"))
    assert [row["row"] for row in found["rows"]] == [3, 5]
    assert "20 rows drawn from 442" in found["baseline"]
    verbose = said("diabetes", "--row", 3, "--verbose")
    assert "Score at the baseline" in verbose


def test_a_file_and_a_model_of_ones_own(place):
    given = ["people.csv", "--index", "name", "--model", "my_table_model:network", "--columns", "age,income"]
    assert "--trust" in refused(*given, "--row", "p3")
    assert said(*given, "--row", "p3", "--trust").startswith("Row p3: ")
    said(*given, "--trust", "--out", "all.csv", "--baseline", "row:p1")
    assert len(Path("all.csv").read_text(encoding="utf-8").splitlines()) == 81
    pair = said(
        "people.csv", "--model", "my_table_model:both", "--trust", "--row", "2", "--target", "0", "--score", "probability"
    )
    assert pair.startswith("Row 2: probability of output 0")
    pair = ["people.csv", "--model", "my_table_model:both", "--trust", "--row", "2", "--target"]
    assert "pass --classes" in refused(*pair, "young")
    named = said(*pair, "young", "--classes", "young, old", "--score", "probability")
    assert named.startswith("Row 2: probability of young")
    assert named.split("\n")[1:] == said(*pair, "0", "--score", "probability").split("\n")[1:]


def test_errors_speak_of_options(place):
    told = refused("people.csv", "--model", "my_table_model:network", "--trust")
    assert "Leave the column out with --columns, or say which categories it has: the columns that --model may give" in told
    assert "columns=" not in told
    told = refused("people.csv", "--model", "my_table_model:network", "--trust", "--columns", "age")
    assert "in their order (--columns), or --model to give both" in told


def test_pictures_and_folders(place):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pyarrow")
    said("diabetes", "--row", 3, "--out", "row.png")
    said("diabetes", "--out", "bars.svg", "--picture", "bar")
    assert all(Path(name).stat().st_size > 5000 for name in ("row.png", "bars.svg"))
    first = said("diabetes", "--out", "folder")
    assert "442 of 442 inputs explained" in first
    assert "442 of them before" in said("diabetes", "--out", "folder")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing.csv", "--model", "my_table_model:network", "--trust"], "nothing.csv"),
        (["people.csv", "--row", "1"], "without a model"),
        (["people.xlsx"], "ends in .csv or .tsv"),
        (["breast-cancer", "--row", "900"], "there is no row 900; expected a number from 0 to 568"),
        (["breast-cancer", "--row", "first"], "got the row 'first'"),
        (["breast-cancer", "--baseline", "median"], "expected mean, rows, row:N or sample:100"),
        (["breast-cancer", "--baseline", "sample:no"], "sample:100"),
        (["breast-cancer", "--index", "a"], "got --index with a shipped table"),
        (["breast-cancer", "--picture", "pie", "--out", "a.png"], "got --picture 'pie'"),
        (["breast-cancer", "--picture", "bar"], "without a picture to write"),
        (["breast-cancer", "--row", "1", "--out", "folder"], "got --row and a folder"),
        (["breast-cancer", "--out", "a.docx"], "a.docx"),
        (["people.csv", "--index", "id", "--model", "diabetes"], "no column 'id'"),
        (["people.csv", "--model", "diabetes"], "no column 'sex'"),
        (["people.csv", "--model", "my_table_model:network", "--trust", "--columns", "age,city"], "column 'city' holds"),
        (["people.csv", "--model", "my_table_model:nothing", "--trust"], "nothing"),
        (["bad.csv", "--model", "diabetes"], "cannot be read as a table"),
        (["gap.csv", "--model", "my_table_model:network", "--trust"], "column 'b' is empty in row 1"),
        (["empty.csv", "--model", "diabetes"], "empty.csv"),
        (["breast-cancer", "--row", "1", "--target", "3"], "3"),
    ],
)
def test_mistakes(place, words, says):
    Path("bad.csv").write_text('a,b\n1,2,3,4\n"', encoding="utf-8")
    Path("gap.csv").write_text("a,b\n1,2\n3,\n", encoding="utf-8")
    Path("empty.csv").write_text("", encoding="utf-8")
    assert says in refused(*words)


def test_a_foreign_file_is_not_replaced(place):
    Path("mine.html").write_text("mine", encoding="utf-8")
    assert "--force" in refused("diabetes", "--row", 1, "--out", "mine.html")
    said("diabetes", "--row", 1, "--out", "mine.html", "--force")
    said("diabetes", "--row", 2, "--out", "mine.html")
