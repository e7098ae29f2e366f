"""The same table on a Ray cluster as on one machine, whoever is killed on the way."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integrand import explain_many
from integrand.batch import ExplainedTable, ManyExplained
from integrand.batch.ray import ActorPool, InputReading, Maker, StopNotice
from integrand.errors import FileError, IntegrandError, MissingExtraError, OptionError
from tests.batch import ray_inputs
from tests.batch.ray_cluster import ROOT, cluster, environment

COUNT = 160
DEEDS = {50: "actor", 90: "machine", 130: "driver"}
JOB = """
source: {source}
key: id
carry: [label]
explain:
  function: tests.batch.ray_inputs:make
out: {out}
ray:
  actors: 2
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with cluster() as found:
        yield found


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, marks: Path) -> Path:
    path = tmp_path_factory.mktemp("source") / "numbers.jsonl"
    ray_inputs.write(path, ray_inputs.rows(COUNT, DEEDS, marks))
    return path


@pytest.fixture(scope="module")
def local(source: Path, marks: Path, tmp_path_factory: pytest.TempPathFactory) -> ManyExplained:
    """The table of one machine, on which nobody was killed."""
    done = [marks / f"{deed}-{i}" for i, deed in DEEDS.items()]
    for mark in done:
        mark.touch()
    found = explain_many(source, ray_inputs.make(), tmp_path_factory.mktemp("local"), key="id", carry=["label"])
    for mark in done:
        mark.unlink()
    return found


def command(folder: Path, source: Path, out: Path, *words: str) -> list[str]:
    job = folder / "job.yaml"
    job.write_text(JOB.format(source=source, out=out), encoding="utf-8")
    return [sys.executable, "-m", "integrand.cli", "run", str(job), "--trust", *words]


def started(words: list[str]) -> subprocess.Popen[str]:
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, cwd=ROOT, env=environment(), **how)


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a driver has printed; one that does not end, on however slow a machine, is killed."""
    try:
        return process.communicate(timeout=300)
    finally:
        process.kill()
        process.communicate()


def test_nobody_who_is_killed_changes_the_table(
    address: str, source: Path, marks: Path, local: ManyExplained, tmp_path: Path
) -> None:
    """An actor, a machine, then the driver; the run began on one machine, and the same command ends it."""
    out = tmp_path / "out"
    explain_many(ray_inputs.rows(16, DEEDS, marks), ray_inputs.make(), out, key="id", carry=["label"])
    words = command(tmp_path, source, out, "--ray", address)
    first = started(words)
    (marks / "driver-130.pid").write_text(str(first.pid))
    ended(first)
    assert first.returncode == -9
    second = started(words)
    said, notes = ended(second)
    assert second.returncode == 1, notes  # some inputs are bad
    assert {path.name for path in marks.iterdir()} == {"actor-50", "machine-90", "driver-130", "driver-130.pid"}
    assert f"{COUNT - 2} of {COUNT + 1} inputs explained" in said
    assert "not explained: r0009: ValueError: a bad input: r0009" in notes
    found, wanted = ExplainedTable.open(out), local.table
    assert found.manifest == wanted.manifest
    assert found.arrow().equals(wanted.arrow(), check_metadata=True)
    assert explain_many(source, ray_inputs.make(), out, key="id", carry=["label"]).summary.known == COUNT - 2


SCRIPT = """
import sys, warnings
import numpy as np
import ray
from integrand.batch.ray import explain_dataset
from integrand.errors import IntegrandError
from tests.batch import ray_inputs
ray.init(address=sys.argv[1], log_to_driver=False)
rows = [row | {"x": np.array(row["x"])} for row in ray_inputs.rows(48, {20: "always"})]
data = ray.data.from_items(rows + [rows[3] | {"label": 99}])
try:
    explain_dataset(data, ray_inputs.Numbers, sys.argv[2], key="id", actors=2)
except IntegrandError as error:
    print("refused:", error)
try:
    explain_dataset(data, ray_inputs.wrong, sys.argv[2], key="id")
except IntegrandError as error:
    print("stopped:", type(error).__name__, error)
found = explain_dataset(data, ray_inputs.Numbers, sys.argv[2], key="id", carry=["label"])
print(found)
"""


def test_rows_of_a_ray_data_set_and_one_that_kills_everybody(address: str, tmp_path: Path) -> None:
    process = started([sys.executable, "-c", SCRIPT, address, str(tmp_path / "out")])
    said, notes = ended(process)
    assert process.returncode == 0, notes
    assert "refused: got 2 actors that take 2 of the cluster's 2 CPUs; expected one to be left to read" in said
    stopped = next(line for line in said.splitlines() if line.startswith("stopped: "))
    assert "stopped: OptionError got tol=-1.0" in stopped  # as if it had been found in this process
    assert "45 of 49 inputs explained, 3 failed" in said, said
    table = ExplainedTable.open(tmp_path / "out")
    rows = {row.key: row for row in table.rows()}
    assert list(rows) == [f"r{i:04d}" for i in range(48)]
    assert {key for key, row in rows.items() if not row.ok} == {"r0009", "r0020", "r0041"}
    assert "the process that explains it dies of it" in (rows["r0020"].failure or "")
    assert "left out, as another input has its key: r0003" in said
    assert rows["r0003"].columns == {"label": 0}


def test_windows_are_those_of_the_local_run(source: Path) -> None:
    reading = InputReading(source, "id", None, ("label",), 16)
    windows = [pickle.loads(block.column(0)[0].as_py()) for block in reading.windows()]
    assert [len(window.inputs) for window in windows] == [16] * 10 + [1]
    assert [one.key for window in windows for one in window.inputs][:2] == ["r0000", "r0001"]
    twice = InputReading(["a", "b", "a", "c", "b"], str, None, (), 2)
    assert [pickle.loads(block.column(0)[0].as_py()).repeated for block in twice.windows()] == [set(), {0}, {0}]


def test_a_source_that_cannot_be_read_stops_the_run(tmp_path: Path) -> None:
    (block,) = InputReading(tmp_path / "none.csv", None, None, (), 16).windows()
    stop = pickle.loads(block.column(0)[0].as_py()).stop
    assert isinstance(stop.error(), FileError)
    assert "none.csv" in str(stop.error())


def test_errors_travel_with_their_kind() -> None:
    for error in (OptionError("a"), FileError("b"), MissingExtraError("ray", "ray", "a run")):
        again = pickle.loads(pickle.dumps(StopNotice.of(error, ""))).error()
        assert type(again) is type(error)
        assert str(again) == str(error)
    other = StopNotice.of(ZeroDivisionError("division by zero\nmore"), "it failed").error()
    assert type(other) is IntegrandError
    assert str(other) == "it failed (ZeroDivisionError: division by zero)."


def test_what_explains_or_makes_what_explains() -> None:
    assert Maker.of(ray_inputs.Numbers).makes
    assert Maker.of(ray_inputs.make).makes
    assert Maker.of(lambda: ray_inputs.make()).makes
    assert not Maker.of(ray_inputs.Numbers()).makes
    assert not Maker.of(lambda items, tol=1: items).makes
    assert isinstance(Maker.of(ray_inputs.make).made(), ray_inputs.Numbers)
    lock = threading.Lock()
    with pytest.raises(OptionError, match=r"cannot be sent to the actors .*explain=lambda: load"):
        Maker.of(lambda items: lock)
    with pytest.raises(OptionError, match="explain= made a int"):
        Maker.of(lambda: 5).made()
    with pytest.raises(OptionError, match="can be called with a list"):
        Maker.of(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("actors", [0, (0, 2), (3, 2), (1, 2, 3), (1.5, 2)])
def test_impossible_numbers_of_actors(actors: Any) -> None:
    with pytest.raises(OptionError, match="expected how many, at least 1, or the least and the most"):
        ActorPool.of(actors, 1, 0)


def test_resources_of_actors() -> None:
    assert ActorPool.of((1, 8), 2, 0).resources == {"num_cpus": 2, "num_gpus": 0}
    assert ActorPool.of(2, 1, 0.5).resources == {"num_gpus": 0.5}
    with pytest.raises(OptionError, match="num_gpus=-1"):
        ActorPool.of(1, 1, -1)
