"""The harness of the speed table: that it counts, searches and draws rightly; never how long something takes."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.speed import __main__ as program
from benchmarks.speed import contest, inputs, measure, reference
from benchmarks.speed.cases import Case, Scored, spread
from benchmarks.speed.contest import Contest, Settings
from benchmarks.speed.inputs import Sources
from benchmarks.speed.ladder import RUNGS, Climb
from benchmarks.speed.peers import DEFAULT, FLOAT32, NAMED
from benchmarks.speed.store import Results
from benchmarks.speed.table import shown, summary, table


class Exponential(nn.Module):
    """exp(2 sum x): every feature's attribution is (exp(2 sum) - 1) x_i / sum."""

    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(3, 1, bias=False)
        nn.init.constant_(self.twice.weight, 2.0)

    def forward(self, x):
        return torch.exp(self.twice(x))


def exponential(rows=2):
    x = torch.tensor([[0.5, 0.25, 0.75]]).repeat(rows, 1)
    model = Exponential()
    case = Case("exponential", "closed form", model, Scored(model, 0, probability=False), x, torch.zeros(1, 3))
    exact = (math.exp(3) - 1) * np.array([[0.5, 0.25, 0.75]]) / 1.5
    return case, exact


def settings(tmp_path, **changes):
    options = {"peers": ("captum",), "tolerances": (0.05, 0.001), "batches": (1, 2), "nodes": 64, "checked": 1, "rounds": 1}
    options |= {"limit": 30.0, "patience": 30.0, "reference_seconds": 30.0, "memory": False, "usual": False}
    return Settings("cpu", Sources(), tmp_path, **(options | changes))


@pytest.fixture(autouse=True)
def memory_stays(monkeypatch):
    """Memory is given back before each measurement, half a second each beside a thousand tests; none is measured here."""
    monkeypatch.setattr(measure, "release", lambda device: None)


def test_the_ladder_begins_at_three_and_rises():
    assert RUNGS[0] == 3
    assert list(RUNGS) == sorted(set(RUNGS))


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("tol", [0.05, 0.01, 0.001])
def test_the_fewest_steps_are_those_of_a_full_search(order, tol):
    def error_at(steps):
        return 2.0 / steps**order

    expected = next((steps for steps in RUNGS if error_at(steps) <= tol), None)
    assert Climb(error_at).fewest([tol]).get(tol) == expected


def test_rungs_that_were_leapt_over_are_looked_at():
    def error_at(steps):  # a slow start, then much faster than it promised
        return 1 / steps if steps < 40 else 1 / steps**3

    climb = Climb(error_at)
    assert climb.fewest([0.02]) == {0.02: 40}
    assert len(climb.tried) < len([rung for rung in RUNGS if rung <= 100])


def test_smooth_functions_are_found_with_few_steps():
    case, exact = exponential()
    pytest.importorskip("captum")
    climb = Climb(lambda steps: NAMED["captum"].error(case, steps, exact, DEFAULT))
    t = {}
    for steps in RUNGS[:8]:  # Gauss-Legendre of exp(3 t) by hand
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        t[steps] = abs((weights / 2 * 3 * np.exp(3 * (nodes + 1) / 2)).sum() / (math.exp(3) - 1) - 1)
    expected = {tol: next(steps for steps in RUNGS if t[steps] <= tol) for tol in (0.01, 1e-4)}
    assert climb.fewest([1e-4, 0.01]) == expected


def test_a_search_ends_at_the_most_steps_at_its_limit_and_on_a_plateau():
    assert Climb(lambda steps: 1 / steps, most=50).fewest([0.01]) == {}
    assert Climb(lambda steps: 1 / steps, limit=-1.0).fewest([0.01]) == {}
    flat = Climb(lambda steps: max(1 / steps, 0.03), plateau=True)
    assert flat.fewest([0.05, 0.01]) == {0.05: 20}
    assert max(flat.tried) < 1000
    assert flat.closest[1] == 0.03


def test_operations_of_a_linear_layer():
    model = nn.Linear(20, 30)
    case = Case("linear", "random", model, Scored(model, 3, probability=False), torch.randn(2, 20), torch.zeros(1, 20))
    forward, both = measure.operations(case)
    assert forward == 2 * 20 * 30
    assert both == 2 * forward  # to the input only: none for the weights
    assert all(p.requires_grad for p in model.parameters())


def test_operations_of_a_recurrent_layer():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.read = nn.LSTM(6, 10, batch_first=True)

        def forward(self, x):
            return self.read(x)[0][:, -1]

    model = Last()
    case = Case("lstm", "random", model, Scored(model, 3, probability=False), torch.randn(2, 7, 6), torch.zeros(1, 7, 6))
    assert measure.operations(case)[0] == 7 * 2 * 4 * 10 * (6 + 10)  # four gates of ten, from six inputs and ten states


@pytest.mark.parametrize(
    ("precision", "kind"),
    [
        ("float32", "float32"),
        ("TF32, checked in float32", "tf32"),
        ("bfloat16", "bfloat16"),
        ("float16", "float16"),
        ("", "float32"),
    ],
)
def test_precisions_are_recognised(precision, kind):
    assert measure.kind(precision) == kind


def test_the_reference_is_the_integral_and_is_remembered(tmp_path, monkeypatch):
    case, exact = exponential()
    options = {"device": "cpu", "wanted": 1e-9, "most": 64, "seconds": 30.0, "chunk": 8}
    found = reference.remembered(tmp_path / "one.npz", case.rows(1), **options)
    assert spread(torch.as_tensor(found.values), exact) < 1e-6
    assert found.doubt <= 1e-9
    assert found.precision == "float64"
    assert case.score.model.twice.weight.dtype == torch.float32
    monkeypatch.setattr(reference, "converged", lambda *a, **k: pytest.fail("not from the file"))
    for changed in ({}, {"wanted": 1e-3}, {"seconds": 60.0}):  # already as sure as wanted
        again = reference.remembered(tmp_path / "one.npz", case.rows(1), **options | changed)
        assert np.array_equal(again.values, found.values)


def test_a_contest_is_held_kept_and_told(tmp_path, monkeypatch, capsys):
    pytest.importorskip("captum")
    case, exact = exponential()
    truth = reference.Reference(exact, 1e-12, 64, "float64")
    results = Results(tmp_path / "speed.json", {"machine": "test"})
    said = []
    assert Contest("exponential", case, truth, settings(tmp_path), results).hold(math.inf, said.append)
    assert {(row["batch"], row["tol"]) for row in results.rows} == {(1, 0.05), (1, 0.001), (2, 0.05), (2, 0.001)}
    for row in results.rows:
        mine, captum = row["who"]["integrand"], row["who"]["captum"]
        assert mine["measured"] <= row["tol"]
        assert mine["claimed"] <= row["tol"]
        assert captum["measured"] <= row["tol"]
        assert captum["gradients"] == captum["steps"] * row["batch"]
        assert len(shown(row)) == 3
    again = Results(tmp_path / "speed.json", {"machine": "test"})
    said.clear()
    assert Contest("exponential", case, truth, settings(tmp_path), again).hold(math.inf, said.append)
    assert not said  # nothing was left to do
    again.forget(["exponential"], [2], [0.05], ["integrand"])
    assert [(row["batch"], row["tol"]) for row in again.rows if "integrand" not in row["who"]] == [(2, 0.05)]
    assert all("captum" in row["who"] for row in again.rows)
    with pytest.raises(SystemExit, match="give another --out"):
        Results(tmp_path / "speed.json", {"machine": "another"})
    assert "| exponential | 2 |" in summary(results.rows, results.content["rates"])
    monkeypatch.setattr(sys, "argv", ["speed", "--replot", str(tmp_path / "speed.json")])
    program.main()
    assert table(results.rows) in capsys.readouterr().out
    assert (tmp_path / "time.png").stat().st_size > 5000


def test_a_peer_that_cannot_is_a_row(tmp_path, monkeypatch):
    case, exact = exponential()
    truth = reference.Reference(exact, 1e-12, 64, "float64")
    monkeypatch.setattr(type(NAMED["captum"]), "error", lambda *a: 1 / 0)
    pytest.importorskip("captum")
    results = Results(tmp_path / "speed.json", {})
    Contest("exponential", case, truth, settings(tmp_path, batches=(1,)), results).hold(math.inf, lambda line: None)
    assert all("ZeroDivisionError" in row["who"]["captum"]["failed"] for row in results.rows)
    assert "ZeroDivisionError" in table(results.rows)


def test_coarse_precision_is_left_where_it_does_not_reach(tmp_path, monkeypatch):
    def error(self, case, steps, expected, precision):
        return max(1 / steps, 0.02 if precision == DEFAULT else 0.0)

    case, exact = exponential()
    monkeypatch.setattr(type(NAMED["captum"]), "error", error)
    monkeypatch.setattr(contest, "precisions", lambda case: (DEFAULT, FLOAT32))
    pytest.importorskip("captum")
    results = Results(tmp_path / "speed.json", {})
    one = settings(tmp_path, batches=(1,), tolerances=(0.05, 0.01))
    Contest("exponential", case, reference.Reference(exact, 1e-12, 64, "float64"), one, results).hold(
        math.inf, lambda line: None
    )
    found = {row["tol"]: (row["who"]["captum"]["steps"], row["who"]["captum"]["precision"]) for row in results.rows}
    assert found == {0.05: (20, DEFAULT), 0.01: (100, FLOAT32)}


def test_inputs_that_were_written_are_read(tmp_path, monkeypatch):
    molecule = {"atoms": np.ones((1, 2, 3), np.float32)}
    monkeypatch.setattr(inputs, "MADE", {"molecule": lambda: molecule})
    assert [file.name for file in inputs.write(tmp_path)] == ["molecule.npz"]
    monkeypatch.setattr(inputs, "MADE", {})
    assert torch.equal(Sources(inputs=tmp_path).molecule()["atoms"], torch.ones(1, 2, 3))
    with pytest.raises(ImportError, match="--write-inputs"):
        Sources(inputs=tmp_path).photos(1)


def test_the_weave_case_takes_one_tensor():
    pytest.importorskip("rdkit")
    pytest.importorskip("safetensors")
    from benchmarks.speed.cases import weave
    from integrand.apps.molecules.model import GraphModel

    case = weave(2, Sources())
    said = case.score(case.x)[0].sigmoid().item()
    assert said == pytest.approx(GraphModel(case.score.model.model).predict([inputs.MOLECULE])[0, 0], abs=1e-6)
    assert json.loads(json.dumps(case.x.shape)) == [2, case.x.shape[1]]


def test_slow_runs_are_repeated_once_and_very_slow_ones_never(monkeypatch):
    """Half the patience is 1 s: the first run, in which things are set up, counts only where there is no other."""
    from benchmarks.speed import measure

    took = {"fast": [5.0, 0.1, 0.3, 0.2], "slow": [3.0, 2.0], "very slow": [9.0]}
    first = {name: measure.Cost(seconds.pop(0), 0.0) for name, seconds in took.items()}
    monkeypatch.setattr(measure, "once", lambda run, device: measure.Cost(run(), 0.0))
    runs = {name: (lambda seconds=seconds: seconds.pop(0)) for name, seconds in took.items()}
    found = measure.timed(runs, first, torch.device("cpu"), rounds=3, patience=2.0)
    assert {name: cost.seconds for name, cost in found.items()} == {"fast": 0.2, "slow": 2.0, "very slow": 9.0}
    assert not any(took.values())
