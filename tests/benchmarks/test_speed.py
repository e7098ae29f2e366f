"""The harness of the speed table: that it counts, searches, keeps and draws rightly; never how long something takes."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.speed import __main__ as program
from benchmarks.speed import contest, inputs, llama2c, measure, peers, reference, resnet
from benchmarks.speed.cases import Case, Scored, batch_of, spread
from benchmarks.speed.contest import Contest, Settings
from benchmarks.speed.inputs import Missing, Sources
from benchmarks.speed.ladder import RUNGS, Climb, OutOfTime, for_all, next_rung
from benchmarks.speed.networks import NEEDS, NETWORKS, batch
from benchmarks.speed.reference import Effort
from benchmarks.speed.rules import RULES, gauss_legendre, integrated
from benchmarks.speed.store import Results
from benchmarks.speed.table import goal, honesty, over, ratios, runs_of, table

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


class Exponential(nn.Module):
    """exp(2 sum x): every feature's attribution is (exp(2 sum) - 1) x_i / sum."""

    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(3, 1, bias=False)
        nn.init.constant_(self.twice.weight, 2.0)

    def forward(self, x):
        return torch.exp(self.twice(x))


def exponential(scale=1.0, model=None, label="one"):
    x = scale * torch.tensor([[0.5, 0.25, 0.75]])
    case = Case("exponential", "closed form", Scored(model or Exponential(), 0), x, torch.zeros(1, 3), label)
    total = 1.5 * scale
    return case, (math.exp(2 * total) - 1) * x.double().numpy() / total


def kinked():
    """relu(x - 0.3) + relu(x - 0.55) of each of two features, from zero to one: 0.7 + 0.45 each."""

    class Hinges(nn.Module):
        def forward(self, x):
            return sum(torch.relu(x - at).sum(1, keepdim=True) for at in (0.3, 0.55))

    return Case("hinges", "closed form", Scored(Hinges(), 0), torch.ones(1, 2), torch.zeros(1, 2), "one", kinked=True)


def settings(tmp_path, **changes):
    effort = Effort(wanted=1e-6, nodes=64, seconds=30.0, chunk=8)
    options = {"peers": ("captum",), "effort": effort, "rounds": 1, "tolerances": (0.05, 0.001)}
    return Settings("cpu", Sources(), tmp_path, **(options | changes))


@pytest.fixture(autouse=True)
def memory_stays(monkeypatch):
    """Memory is given back before each measurement, half a second each beside a thousand tests; none is measured here."""
    monkeypatch.setattr(measure, "release", lambda device: None)


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("tol", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("start", [3, 30, 2000])
def test_the_fewest_steps_are_those_of_a_full_search(order, tol, start):
    def error_at(steps):
        return 2.0 / steps**order

    expected = next((steps for steps in RUNGS if error_at(steps) <= tol), None)
    assert Climb(error_at).fewest(tol, start) == expected


def test_a_search_tries_few_rungs_remembers_them_and_keeps_a_lucky_one():
    asked = []

    def error_at(steps):
        asked.append(steps)
        return 0.5 / steps if steps != 75 else 0.2  # above 1% at 50 only by bad luck at 75

    climb = Climb(error_at)
    assert climb.fewest(0.01, 100) == 50
    assert asked == [100, 75, 50, 40, 30]
    assert climb.fewest(0.01, 100) == 50
    assert len(asked) == 5


def test_a_search_without_time_says_so():
    climb = Climb(lambda steps: 1.0, {3: 1.0, 4: 1.0}, limit=-1.0)
    with pytest.raises(OutOfTime):
        climb.fewest(0.01)
    assert Climb(lambda steps: 1.0).fewest(0.01) is None


def test_one_number_of_steps_for_most_inputs():
    assert for_all([10] * 19 + [None]) == 10  # 19 of 20 are 95%
    assert for_all([10] * 18 + [400, None]) == 400
    assert for_all([10] * 18 + [None, None]) is None
    assert next_rung(10) == 12
    assert next_rung(RUNGS[-1]) is None


@pytest.mark.parametrize("name", ["captum", "saliency"])
def test_the_plain_loop_computes_what_a_peer_computes(name):
    pytest.importorskip(name)
    case, _ = exponential()
    for steps, chunk in ((7, None), (50, 8)):
        values = peers.NAMED[name].run(case, steps, chunk)
        assert spread(values, integrated(case, RULES[name](steps), 16)) < 1e-5


def test_a_peer_is_imported_without_what_it_draws_with(tmp_path, monkeypatch):
    (tmp_path / "peer_that_draws.py").write_text(
        "import not_installed\nfrom not_installed.deep.down import Figure\nfrom typing import Optional\n"
        "def draw(figure: Optional[Figure] = not_installed.NONE): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError):
        peers.imported("peer_that_draws")
    monkeypatch.setattr(peers, "DRAWING", ("not_installed", "numpy"))
    assert callable(peers.imported("peer_that_draws").draw)
    assert not any(name.startswith("not_installed") for name in sys.modules)
    assert sys.modules["numpy"] is np  # what is there is left alone


def test_a_smooth_reference_is_the_integral_and_is_remembered(tmp_path, monkeypatch):
    case, exact = exponential()
    effort = Effort(wanted=1e-9, nodes=128, seconds=30.0, chunk=8)
    found = reference.remembered(tmp_path, case, effort)
    assert spread(found.values, exact) < 1e-6
    assert found.doubt <= 1e-9
    assert (found.precision, found.rule) == ("float64", "Gauss-Legendre")
    assert case.score.model.twice.weight.dtype == torch.float32
    monkeypatch.setattr(reference, "found", lambda *a: pytest.fail("not from the file"))
    for changed in ({}, {"wanted": 1e-3}, {"seconds": 60.0}):  # already as sure as wanted
        again = reference.remembered(tmp_path, case, replace(effort, **changed))
        assert spread(again.values, exact) < 1e-6
        assert again.facts == found.facts


def test_a_reference_of_other_weights_is_not_taken(tmp_path):
    case, _ = exponential()
    effort = Effort(wanted=1e-9, nodes=64, seconds=30.0, chunk=8)
    reference.remembered(tmp_path, case, effort)
    with torch.no_grad():
        case.score.model.twice.weight.mul_(1.01)
    exact = (math.exp(3.03) - 1) * case.x.double().numpy() / 1.5
    assert spread(reference.remembered(tmp_path, case, effort).values, exact) < 1e-6


def test_the_two_halves_of_the_midpoints_tell_the_doubt(monkeypatch):
    monkeypatch.setattr(reference, "CHEAP", 0.0)
    case = kinked()
    found = reference.found(case, Effort(nodes=64, seconds=30.0, chunk=8))
    assert (found.nodes, found.rule) == (64, "midpoints")
    error = spread(found.values, np.full((1, 2), 1.15))
    assert error <= 1 / 64
    assert found.doubt <= 2 / 64
    assert found.doubt > 0
    monkeypatch.setattr(reference, "CHEAP", 30.0)  # a small network gets more than asked for
    assert reference.found(case, Effort(nodes=64, seconds=30.0, chunk=64)).nodes == reference.MOST


def test_a_contest_is_held_kept_and_told(tmp_path, monkeypatch, capsys):
    pytest.importorskip("captum")
    model = Exponential()
    pairs = [exponential(scale, model, f"input {scale}") for scale in (1.0, 2.0)]
    cases = [case for case, _ in pairs]
    results = Results(tmp_path / "speed.json", {"machine": "test"})
    said = []
    assert Contest("exponential", cases, settings(tmp_path), results).hold(math.inf, said.append)
    assert len(said) == 4  # steps and times of two inputs
    row = results.content["rows"]["exponential"]
    for case, exact in pairs:
        entry = row["inputs"][case.label]
        for tol in (0.05, 0.001):
            mine, oracle, fixed = (entry["runs"][f"{who} {tol:g}"] for who in ("integrand", "oracle", "fixed"))
            errors = {n: spread(integrated(case, gauss_legendre(n), 8), exact) for n in RUNGS[:10]}
            assert mine["measured"] <= tol
            assert mine["claimed"] <= tol
            assert oracle["steps"] == next(steps for steps, error in errors.items() if error <= tol)
            assert oracle["measured"] == pytest.approx(errors[oracle["steps"]], rel=1e-2, abs=1e-6)
            assert fixed["steps"] == max(one["fewest"]["captum"][str(tol)] for one in row["inputs"].values())
        assert entry["runs"]["default"]["measured"] < 1e-5
    assert row["fixed"]["captum"]["0.05"] | {"steps": 0} == {"reached": True, "steps": 0, "within": 2, "inputs": 2}
    assert row["agreement"]["captum"] < 1e-6

    again = Results(tmp_path / "speed.json", {"machine": "test"})
    said.clear()
    assert Contest("exponential", cases, settings(tmp_path), again).hold(math.inf, said.append)
    assert not said  # nothing was left to do
    again.forget(["exponential"])
    assert not any(one["runs"] for one in again.content["rows"]["exponential"]["inputs"].values())
    with pytest.raises(SystemExit, match="give another --out"):
        Results(tmp_path / "speed.json", {"machine": "another"})

    monkeypatch.setattr(sys, "argv", ["speed", "--replot", str(tmp_path / "speed.json")])
    program.main()
    out = capsys.readouterr().out
    for part in (table, ratios, honesty):
        assert part(results.content["rows"]) in out
    for name in ("time", "ratios"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_steps_of_another_machine_are_used(tmp_path, monkeypatch):
    pytest.importorskip("captum")
    model = Exponential()
    cases = [exponential(scale, model, f"input {scale}")[0] for scale in (1.0, 2.0)]
    there = Results(tmp_path / "there.json", {})
    Contest("exponential", cases, settings(tmp_path), there).hold(math.inf, lambda line: None)
    known = there.content["rows"]["exponential"]
    monkeypatch.setattr(contest, "RULES", {"captum": lambda steps: pytest.fail("looked for steps")})
    monkeypatch.setattr(Contest, "_compare", lambda *a: None)
    here = Results(tmp_path / "here.json", {})
    assert Contest("exponential", cases[:1], settings(tmp_path), here, known).hold(math.inf, lambda line: None)
    row = here.content["rows"]["exponential"]
    assert row["fixed"] == known["fixed"]
    assert (
        row["inputs"]["input 1.0"]["runs"]["oracle 0.05"]["steps"] == known["inputs"]["input 1.0"]["fewest"]["captum"]["0.05"]
    )


def test_the_number_for_all_is_raised_until_most_inputs_are_within(tmp_path):
    """An input with an error that rises again, as kinks make it."""
    case, _ = exponential()
    one = Contest("exponential", [case], settings(tmp_path, tolerances=(0.05,)), Results(tmp_path / "speed.json", {}))
    errors = {"20": 0.04, "25": 0.06, "30": 0.06, "40": 0.01}
    fewest = {"captum": {"0.05": 20}}
    for i in range(10):
        one.row["inputs"][f"even {i}"] = {"errors": {}, "fewest": {"captum": {"0.05": 25}}, "runs": {}}
        one.row["inputs"][f"uneven {i}"] = {"errors": {"captum": errors}, "fewest": fewest, "runs": {}}
    one._fix(math.inf)
    assert one.row["fixed"]["captum"]["0.05"] == {"reached": True, "steps": 40, "within": 20, "inputs": 20}
    for i in range(10):
        one.row["inputs"][f"even {i}"]["fewest"] = {"captum": {"0.05": None}}
    one._fix(math.inf)
    assert one.row["fixed"]["captum"]["0.05"] == {"reached": False, "steps": RUNGS[-1], "within": 0, "inputs": 20}


def test_without_time_the_rest_is_left_for_the_next_run(tmp_path):
    case, _ = exponential()
    results = Results(tmp_path / "speed.json", {})
    said = []
    assert not Contest("exponential", [case], settings(tmp_path, peers=()), results).hold(-math.inf, said.append)
    assert not said
    assert Contest("exponential", [case], settings(tmp_path, peers=()), results).hold(math.inf, said.append)
    assert set(results.content["rows"]["exponential"]["inputs"]["one"]["runs"]) == {"integrand 0.05", "integrand 0.001"}


def test_a_peer_that_fails_is_out(tmp_path, monkeypatch):
    case, _ = exponential()
    broken = replace(peers.NAMED["captum"], run=lambda *a: 1 / 0)
    monkeypatch.setitem(contest.NAMED, "captum", broken)
    pytest.importorskip("captum")
    results, said = Results(tmp_path / "speed.json", {}), []
    assert Contest("exponential", [case], settings(tmp_path), results).hold(math.inf, said.append)
    assert any("ZeroDivisionError" in line for line in said)
    assert "integrand 0.05" in results.content["rows"]["exponential"]["inputs"]["one"]["runs"]


def test_long_runs_are_timed_with_whole_chunks_and_scaled(tmp_path):
    pytest.importorskip("captum")
    case, _ = exponential()
    one = Contest("exponential", [case], settings(tmp_path, patience=1.0), Results(tmp_path / "speed.json", {}))
    one._search(one.cases[0])
    one.row["fixed"] = {"captum": {"0.05": {"reached": True, "steps": 1400}}}
    one.row["chunks"] = {"captum": 16}
    found = one._fixed(one.cases[0], "fixed 0.05", peers.NAMED["captum"], 1400, 0.01, {})
    assert found.entry["timed_steps"] == 96  # six chunks in the second that 100 steps take
    assert found.scale == 1400 / 96
    assert one._fixed(one.cases[0], "fixed 0.05", peers.NAMED["captum"], 120, 0.01, {}).scale == 1.0


def test_ratios_goals_and_broken_claims_are_told():
    def runs(mine, off):
        return {
            "integrand 0.01": {"seconds": mine, "measured": off, "claimed": 0.009},
            "default": {"seconds": 1.0, "measured": 0.1},
        }

    inputs_ = {str(i): {"runs": runs(mine, off), "reference": {"doubt": doubt}} for i, (mine, off, doubt) in enumerate(RUNS)}
    row = {"name": "net", "weights": "real", "kinked": True, "image": True, "fixed": {}, "inputs": inputs_}
    assert over(runs_of(row, "default", "0.01")) == [2.0, 4.0, 1.0]
    assert "2x (1 to 4), meets 0.33x" in ratios({"net": row})
    assert "| 1% | all | 2 | 2 | 1 | 1.30 x (1; reference ± 0.10) | 2 | 1, for doubt of the reference |" in honesty(
        {"net": row}
    )
    assert goal(row, "oracle") == 3.0
    assert goal(row | {"image": False}, "oracle") is None
    assert goal(row | {"kinked": False}, "default") == 4.0


RUNS = ((0.5, 0.011, 0.001), (0.25, 0.013, 0.001), (1.0, 0.5, 0.02))


def test_inputs_that_were_written_are_read(tmp_path, monkeypatch):
    from benchmarks.speed import make_inputs

    made = {"labels": np.array(["one"]), "weight": np.full((2, 3), 1 / 3, np.float32), "bias": np.full(2, 1 / 3, np.float32)}
    monkeypatch.setattr(
        make_inputs, "MADE", {"minilm": lambda sources: made, "photos": lambda sources: sources.folder("photos")}
    )
    said = inputs.write(tmp_path, ["minilm", "photos", "minilm"], Sources())
    assert "minilm.npz" in said[0]
    assert "left out: photos" in said[1]
    read = Sources(inputs=tmp_path).read("minilm")
    assert (read["weight"].dtype, read["bias"].dtype) == (np.float16, np.float32)  # rounded, but for what may be tiny
    assert str(read["labels"][0]) == "one"
    with pytest.raises(Missing, match="--write-inputs"):
        Sources(inputs=tmp_path).photos(1)
    pytest.importorskip("captum")
    assert (tmp_path / "packages" / "captum" / "attr" / "__init__.py").is_file()
    assert not list((tmp_path / "packages").rglob("__pycache__"))


def test_every_network_says_what_it_reads():
    from benchmarks.speed.make_inputs import MADE

    assert set(NEEDS) == set(NETWORKS)
    assert {name for names in NEEDS.values() for name in names} == set(MADE)


def test_batches_are_of_inputs_of_one_shape_or_scaled():
    model = Exponential()
    cases = [exponential(scale, model)[0] for scale in (1.0, 2.0)]
    assert torch.equal(batch_of(cases, 2).x, torch.cat([case.x for case in cases]))
    assert torch.equal(batch_of([exponential()[0], exponential()[0]], 2).x[1], 0.9 * cases[0].x[0])  # two networks


def test_the_weave_cases_take_one_tensor():
    pytest.importorskip("rdkit")
    pytest.importorskip("safetensors")
    from benchmarks.speed.make_inputs import MOLECULES
    from integrand.apps.molecules.model import GraphModel

    cases = NETWORKS["weave"](3, Sources())
    told = GraphModel(cases[0].score.model.model).predict(list(MOLECULES[:3]))[:, 0]
    assert [case.score(case.x).sigmoid().item() for case in cases] == pytest.approx(list(told), abs=1e-6)
    assert batch("weave", 2, Sources()).x.shape == (2, cases[0].x.shape[1])


def test_resnet_reads_kernels_of_eight_bits():
    """On random weights: a convolution of Keras's layout, scaled per output channel."""
    rng = np.random.default_rng(0)
    arrays = {}

    def fill(conv, norm, part):
        outside, inside, side, _ = part.conv.weight.shape
        arrays[f"{conv}/kernel:q"] = rng.integers(-127, 127, (side, side, inside, outside), dtype=np.int8)
        arrays[f"{conv}/kernel:s"] = rng.random((1, 1, 1, outside), dtype=np.float32) / 1e4
        arrays[f"{conv}/bias"] = rng.random(outside, dtype=np.float32)
        for name in ("gamma", "beta", "moving_mean", "moving_variance"):
            arrays[f"{norm}/{name}"] = rng.random(outside, dtype=np.float32)

    empty = resnet.KerasResNet50()
    fill("conv1", "bn_conv1", empty.conv1)
    for at, block in empty.blocks.items():
        for branch, part in block.named_children():
            if isinstance(part, resnet.Normed):
                fill(f"res{at}_{branch}", f"bn{at}_{branch}", part)
    arrays["fc1000/kernel:q"] = rng.integers(-127, 127, (2048, 1000), dtype=np.int8)
    arrays["fc1000/kernel:s"] = np.full((1, 1000), 1e-4, np.float32)
    arrays["fc1000/bias"] = np.zeros(1000, np.float32)
    model = resnet.load(arrays)
    kernel = arrays["res3a_branch2a/kernel:q"][0, 0].astype(np.float32) * arrays["res3a_branch2a/kernel:s"][0, 0]
    conv = model.blocks["3a"].branch2a.conv
    assert conv.stride == (2, 2)  # in the first convolution, as in Keras, not in the second, as in torchvision
    assert np.array_equal(conv.weight[:, :, 0, 0].detach().numpy(), kernel.T)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)


def test_words_of_llama2c_are_joined_by_score():
    import struct

    words = {0: (b"<unk>", 0.0), 1: (b"<s>", 0.0), 2: (b"</s>", 0.0)} | {3 + i: (b"<0x%02X>" % i, 0.0) for i in range(256)}
    words |= {259: (b" ", -9.0), 260: (b"a", -9.0), 261: (b"b", -9.0), 262: (b"ab", -2.0), 263: (b" a", -1.0)}
    data = struct.pack("i", 8) + b"".join(struct.pack("<fi", score, len(word)) + word for word, score in words.values())
    read = llama2c.Words(data, len(words))
    assert read.encode("ab") == [1, 263, 261]  # " a" before "ab"
    assert read.encode("é") == [1, 259, 3 + 0xC3, 3 + 0xA9]


@pytest.mark.skipif(not (DATA / "language-model").is_dir(), reason="needs ../shared/data/language-model")
def test_stories_are_told():
    pytest.importorskip("transformers")
    case = NETWORKS["stories"](1, Sources(DATA))[0]
    found = Sources(DATA).read("stories")
    words = llama2c.Words((DATA / "language-model" / "tok512.bin").read_bytes(), 512).words
    table_, ids = torch.as_tensor(found["model.embed_tokens.weight"]), list(found["ids0"])
    said = b""
    with torch.no_grad():
        for _ in range(8):
            ids.append(int(case.score.model(table_[torch.tensor(ids)][None])[0].argmax()))
            said += words[ids[-1]]
    assert said.decode().startswith(". She")  # "Once upon a time, there was a little girl named Lily"


@pytest.mark.skipif(not (DATA / "resnet50").is_dir(), reason="needs ../shared/data/resnet50")
def test_networks_agree_on_a_photo():
    first = [NETWORKS[key](1, Sources(DATA))[0] for key in ("googlenet", "resnet50")]
    assert {case.score.target for case in first} == {372}  # baboon
    assert all(case.score(case.x).item() > 0.5 > case.score(case.baseline).item() for case in first)


def test_slow_runs_are_repeated_once_and_very_slow_ones_never(monkeypatch):
    """The patience is 1 s: the first run, in which things are set up, counts only where there is no other."""
    took = {"fast": [5.0, 0.1, 0.3, 0.2], "slow": [3.0, 2.0], "very slow": [9.0]}
    first = {name: seconds.pop(0) for name, seconds in took.items()}
    monkeypatch.setattr(measure, "once", lambda run, device: run())
    runs = {name: (lambda seconds=seconds: seconds.pop(0)) for name, seconds in took.items()}
    first["fast"] = 3.0
    found = measure.timed(runs, first, torch.device("cpu"), rounds=3, patience=1.0)
    assert found == {"fast": 0.2, "slow": 2.0, "very slow": 9.0}
    assert not any(took.values())


def test_runs_on_one_machine_are_merged(tmp_path):
    for name, machine in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"machine": machine, "rows": {name: {}}}))
    a, b, c = (tmp_path / f"{name}.json" for name in "abc")
    assert program.merged([a, b]) == {"machine": "one", "rows": {"a": {}, "b": {}}}
    assert program.merged([]) == {"rows": {}}
    with pytest.raises(SystemExit, match="of another machine"):
        program.merged([a, c])


def test_results_are_plain_json(tmp_path):
    results = Results(tmp_path / "speed.json", {"machine": "test"})
    results.row("net", name="net", weights="real", kinked=True, image=False)
    results.save()
    assert json.loads((tmp_path / "speed.json").read_text())["rows"]["net"]["inputs"] == {}
