"""``integrand run``: what a job file may say, and that what it says is done."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from integrand.batch import ExplainedTable, explain_many
from integrand.cli.app import app
from integrand.cli.run_command import APPLICATIONS, JobExplain, read_job
from integrand.errors import FileError, IntegrandError, OptionError, TrustError

WHOLE = """
source: numbers.jsonl
key: id
carry: [label]
explain:
  function: tests.batch.ray_inputs:make
out: table
together: 8
title: numbers
ray: {address: "10.0.0.1:6379", actors: [1, 8], num_gpus: 0.5, num_cpus: 2}
"""


def job(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_all_that_a_job_may_say(tmp_path: Path) -> None:
    what, explain = read_job(job(tmp_path, WHOLE), trust=True)
    assert (what.source, what.out, what.key, what.carry, what.together) == (
        "numbers.jsonl",
        "table",
        "id",
        {"label": "label"},
        8,
    )
    assert (what.ray.actors, what.ray.num_gpus, what.ray.num_cpus, what.ray.address) == ((1, 8), 0.5, 2.0, "10.0.0.1:6379")
    assert explain == JobExplain("", "tests.batch.ray_inputs:make", {}, True)
    short, explain = read_job(job(tmp_path, "{source: a.csv, out: b, explain: questions, ray: {actors: 2}}"))
    assert short.ray.actors == (2,)
    assert explain == JobExplain("questions", "", {})
    assert read_job(job(tmp_path, "{source: a.csv, out: b, explain: 'a.b:c', ray: }"))[1].function == "a.b:c"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("source: [", "is no YAML"),
        ("just a text", "holds 'just a text'; expected a job"),
        ("source: a\nout: b", "has no 'explain'; expected at least source, explain and out"),
        ("source: a\nsource: b", "the name 'source' comes twice"),
        (
            "{source: a, out: b, explain: questions, actors: 2}",
            "has 'actors', which nobody knows; expected some of source, out",
        ),
        (
            "{source: a, out: b, explain: questions, ray: {gpus: 2}}",
            "ray has 'gpus', which nobody knows; expected some of address",
        ),
        ("{source: a, out: b, explain: questions, ray: 7}", ".ray is 7; expected an object with the fields address, actors"),
        ("{source: a, out: b, explain: questions, ray: {actors: 0}}", r".ray.actors\[0\] is 0; expected a whole number from 1"),
        ("{source: a, out: b, explain: questions, ray: {actors: [3, 2]}}", "expected the least and the most, in this order"),
        ("{source: a, out: b, explain: questions, carry: label}", r"carry is 'label'; expected a list of columns: \[label\]"),
        ("{source: a, out: b, explain: questions, together: 0}", ".together is 0; expected a whole number from 1"),
        ("{source: a, out: b, explain: questions, attributions: all}", "expected one of 'auto', 'values'"),
        ("{source: no, out: b, explain: questions}", ".source is False; expected a text"),
        ("{source: a, out: b, explain: weather}", "explain.application is 'weather'; expected one of image, retina"),
        ("{source: a, out: b, explain: {model: trec}}", "explain has neither application nor function"),
        ("{source: a, out: b, explain: {application: image, function: 'a:b'}}", "explain has both application and function"),
        ("{source: a, out: b, explain: [1]}", "explain is a list of 1; expected application"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "has 'a', which nobody knows"),
    ],
)
def test_what_a_job_may_not_say(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FileError, match=said):
        read_job(job(tmp_path, text))


def test_code_runs_only_if_it_is_trusted(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match=r"explain\.function tests\.batch.ray_inputs:make would import"):
        read_job(job(tmp_path, WHOLE))[1]()


def test_an_option_that_the_application_does_not_have() -> None:
    with pytest.raises(OptionError, match=r"explain\.colour is no option of questions; expected some of .*device.*model.*tol"):
        JobExplain("questions", "", {"model": "trec", "colour": "red"})()
    explain = JobExplain("questions", "", {"model": "trec", "tol": 0.1})()
    assert [one.certificate.tol for one in explain(["Who wrote Hamlet ?"])] == [0.1]


@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_application_is_there(name: str) -> None:
    from integrand.cli.run_command import _found

    chosen = APPLICATIONS[name]
    assert callable(_found(chosen.load))
    if ":" in chosen.explain:
        assert callable(_found(chosen.explain))


def test_a_job_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.batch import ray_inputs

    monkeypatch.chdir(tmp_path)
    ray_inputs.write(tmp_path / "numbers.jsonl", ray_inputs.rows(12))
    job(tmp_path, WHOLE)
    ran = CliRunner().invoke(app, ["run", "job.yaml", "--trust"])
    assert ran.exit_code == 1, ran.output  # a line is no JSON, a row is bad
    assert "11 of 13 inputs explained, 2 failed (--retry-failed tries them again)" in " ".join(ran.output.split())
    table = ExplainedTable.open("table")
    assert table.manifest.title == "numbers"
    assert [row.columns["label"] for row in table.rows()] == [*(i % 3 for i in range(12)), None]
    again = CliRunner().invoke(app, ["run", "job.yaml", "--trust", "--out", "table"])
    assert "11 of them before" in again.output
    typo: Any = CliRunner().invoke(app, ["run", "job.yaml", "--trust", "--out", "tabel/inside"])
    assert "there is no folder" in str(typo.exception)
    assert not Path("tabel").exists()


def test_inputs_whose_key_another_one_has_are_not_said_to_be_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vectors.jsonl").write_text('{"id": "a", "x": [1.0]}\n{"id": "a", "x": [2.0]}\n{"id": "b", "x": [1.0]}\n')
    job(tmp_path, "{source: vectors.jsonl, key: id, out: table, explain: 'tests.cli.test_run_command:summed'}")
    ran = CliRunner().invoke(app, ["run", "job.yaml", "--trust"])
    assert ran.exit_code == 1
    assert "left out, as another input has its key: a" in ran.output
    assert "2 of 3 inputs explained, 1 left out, as key= gives them that of another input;" in " ".join(ran.output.split())


def test_rows_of_inputs_that_are_gone_from_the_source_are_said(tmp_path: Path) -> None:
    """They stay, so that tables grow with new inputs; but whoever counts rows must know."""
    rows = [{"x": [float(i)]} for i in range(10)]
    assert "earlier runs" not in explain_many(rows, summed, tmp_path / "table").sentence
    found = explain_many(rows[:8], summed, tmp_path / "table")
    assert (found.others, len(found.table)) == (2, 10)
    assert "8 of 8 inputs explained, 8 of them before, 2 more rows are of inputs of earlier runs (" in found.sentence


def summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What explains in a job of the tests."""
    return [{"score": sum(row["x"])} for row in rows]


def test_a_column_that_the_table_has_of_its_own_is_carried_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vectors.jsonl").write_text('{"id": "a", "x": [1.0], "target": "cat"}\n')
    text = "{source: vectors.jsonl, out: table, explain: 'tests.cli.test_run_command:summed', carry: "
    job(tmp_path, text + "[target]}")
    refused = CliRunner().invoke(app, ["run", "job.yaml", "--trust"])
    assert "carry={'target': 'own_target'}" in str(refused.exception)
    job(tmp_path, text + "{'target': 'own_target'}}")  # what the message says
    assert CliRunner().invoke(app, ["run", "job.yaml", "--trust"]).exit_code == 0
    assert [row.columns for row in ExplainedTable.open("table").rows()] == [{"own_target": "cat"}]


def test_an_address_at_which_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers.jsonl").write_text(json.dumps({"id": "a", "label": 1}) + "\n", encoding="utf-8")
    job(tmp_path, WHOLE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ran: Any = CliRunner().invoke(app, ["run", "job.yaml", "--trust", "--ray", f"127.0.0.1:{port}"])
    assert isinstance(ran.exception, IntegrandError)
    assert f"got --ray 127.0.0.1:{port}, where no cluster answers" in str(ran.exception)


def test_ctrl_c_says_what_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers.jsonl").write_text("{}\n", encoding="utf-8")
    job(tmp_path, WHOLE)
    monkeypatch.setattr("integrand.cli.run_command._here", stopped)
    ran = CliRunner().invoke(app, ["run", "job.yaml", "--trust"])
    assert ran.exit_code == 130
    assert "stopped; the same command goes on where it was" in ran.output
