"""``integrand series``, as a user types it: shipped examples, files of one's own, models of one's own, and mistakes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

import integrand as ig
from integrand.apps.series.cli import series
from integrand.errors import FileError, InputError, OptionError, TargetError, TrustError
from integrand.files import made_here

Run = Callable[..., Result]

MODEL = """
import torch
def classify():
    net = torch.nn.Conv1d(2, 3, 3, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.arange(18.0).reshape(3, 2, 3) / 18)
    return torch.nn.Sequential(net, torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten())
def ahead(x):
    return torch.stack([x[:, -1, 0] + 0.5 * x[:, -2, 1], 2 * x[:, -1, 0]], 1)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    app = typer.Typer()
    app.command()(series)

    def invoke(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["integrand", "series", *words])
        return CliRunner().invoke(app, [*words, "--device", "cpu"])

    return invoke


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = "\n".join(f"2026-01-{d + 1:02d},{np.sin(d):.4f},{d % 3}" for d in range(12))
    (tmp_path / "data.csv").write_text(f"date,load,temp\n{rows}\n")
    (tmp_path / "my_series_model.py").write_text(MODEL)
    return tmp_path / "data.csv"


def test_an_example(run: Run) -> None:
    found = run("gunpoint", "--row", "3", "--verbose")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[0].startswith("It says 'gun' (9")
    assert "The test set says: gun." in found.stdout
    assert "Gradients evaluated" in found.stdout


def test_json_is_the_same_as_python(run: Run) -> None:
    told = json.loads(run("motions", "--row", "35", "--json", "--tol", "0.05", "--window", "1 s").stdout)
    watch = ig.series.load("motions")
    found = watch.explain(watch.example(35), tol=0.05, window="1 s")
    assert np.allclose(told["attributions"], found.values)
    assert len(told["windows"]) == 10
    assert told["prediction"] == "badminton"


def test_a_forecast(run: Run) -> None:
    assert run("airline", "--horizon", "12").stdout.startswith("The forecast for Dec 1961 is ")
    assert run("airline").stdout.startswith("The 12 forecasts from Jan 1961 to Dec 1961 ")
    told = json.loads(run("airline", "--horizon", "1,3-4", "--json").stdout)
    assert [one["forecast"] for one in told["rows"]] == ["Jan 1961", "Mar 1961", "Apr 1961"]


@pytest.mark.parametrize("name", ["s.html", "s.png", "s.json", "s.csv"])
@pytest.mark.parametrize("words", [("gunpoint", "--tol", "0.1"), ("airline", "--horizon", "1-2")])
def test_files(run: Run, name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    for _ in range(2):  # what was written here may be written again
        found = run(*words, "--out", name)
        assert found.exit_code == 0, (found.output, found.exception)
    assert made_here(tmp_path / name)
    if name == "s.html":
        assert f"integrand series {words[0]}" in (tmp_path / name).read_text()


def test_a_model_of_ones_own(run: Run, table: Path) -> None:
    asked = ("data.csv", "--model", "my_series_model:classify", "--layout", "channels-time", "--classes", "low,mid,high")
    refused = run(*asked)
    assert isinstance(refused.exception, TrustError)
    found = run(*asked, "--trust", "--json", "--baseline", "zero", "--score", "logit")
    assert found.exit_code == 0, (found.output, found.exception)
    told = json.loads(found.stdout)
    assert told["prediction"] == "high"
    assert told["channels"] == ["load", "temp"]
    assert np.sum(told["attributions"]) == pytest.approx(told["score"] - told["baseline_score"], abs=1e-4)  # it is linear
    assert told["times"][0] == "2026-01-01T00:00:00"


def test_a_forecaster_of_ones_own(run: Run, table: Path) -> None:
    asked = ("data.csv", "--model", "my_series_model:ahead", "--trust", "--horizon", "1", "--unit", "kW", "--json")
    told = json.loads(run(*asked, "--baseline", "zero").stdout)
    (row,) = told["rows"]
    exact = np.zeros((12, 2))
    exact[-1, 0], exact[-2, 1] = round(np.sin(11), 4), 0.5 * (10 % 3)
    assert np.allclose(row["attributions"], exact, atol=1e-6)
    assert row["forecast"] == "2026-01-13"
    (table.parent / "other.csv").write_text(table.read_text())
    same = run(*asked, "--baseline", "other.csv")
    assert isinstance(same.exception, InputError)
    assert "equals it" in str(same.exception)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("x.csv",), OptionError, "got no --model"),
        (("x.csv", "--model", "gunpoint"), FileError, "is not there"),
        (("gunpoint", "--row", "150"), InputError, "expected 0 to 149"),
        (("gunpoint", "--target", "knife"), TargetError, "expected one of gun, point"),
        (("gunpoint", "--horizon", "2"), OptionError, "which classifies"),
        (("airline", "--horizon", "13"), OptionError, "from 1 to 12"),
        (("airline", "--horizon", "soon"), OptionError, "expected 3, or 1,3,6"),
        (("airline", "--target", "1"), OptionError, "expected --horizon"),
        (("gunpoint", "--baseline", "median"), OptionError, "expected mean, trend, zero, a number, or a file"),
        (("gunpoint", "--window", "soon"), OptionError, "expected a number of steps"),
        (("gunpoint", "--out", "x.txt"), OptionError, "expected a file that ends in"),
        (("gunpoint", "--rate", "3"), OptionError, "Leave them out"),
        (("gunpoint", "--channel", "x"), OptionError, "without --horizon"),
        (("gunpoint", "--classes", "a,b"), OptionError, "which has its own"),
        (("gunpoint", "--model", "nothing"), OptionError, "expected one of gunpoint, motions, airline"),
        (("data.csv", "--model", "motions"), InputError, "got 2 channels .load, temp.; expected 6"),
        (("data.csv", "--model", "airline", "--channels", "load"), InputError, "got 12 steps; expected at least 36"),
        (("data.csv", "--model", "airline", "--channels", "wind"), InputError, "the channel 'wind'; expected one of"),
        (("data.csv", "--model", "airline", "--channels", "load,"), OptionError, "empty name"),
        (("data.csv", "--model", "my_series_model:classify", "--trust"), InputError, "channels-time"),
    ],
)
def test_mistakes(run: Run, table: Path, words: tuple[str, ...], error: type[Exception], message: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, error), found.output
    assert message.replace(".load, temp.", "(load, temp)") in str(found.exception)


def test_advice_names_options(run: Run, table: Path) -> None:
    from integrand.apps.command_line import in_options

    text = str(run("data.csv", "--model", "my_series_model:classify", "--trust").exception)
    assert "give --layout channels-time" in in_options(text)
    table.write_text("date,load,temp\n2026-01-01,1,\n2026-01-02,2,3\n")
    text = str(run("data.csv", "--model", "my_series_model:classify", "--trust").exception)
    assert "give --gaps interpolate" in in_options(text)
