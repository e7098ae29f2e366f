"""What the ground truth of molecules says is true, and how maps of atoms are scored against it."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("rdkit")

from rdkit import Chem
from rdkit.Chem import Crippen
from scipy import stats
from sklearn.metrics import roc_auc_score

from benchmarks.molecule_truth import labels
from benchmarks.molecule_truth.__main__ import main
from benchmarks.molecule_truth.cells import PUBLISHED_HEAD, measure, table
from benchmarks.molecule_truth.labels import (
    PUBLISHED_TASKS,
    TASKS,
    Example,
    Pattern,
    Task,
    balanced,
    crippen_terms,
    example,
    explanations,
)
from benchmarks.molecule_truth.maps import ALONE, METHODS, NAMES, maps_of, per_atom
from benchmarks.molecule_truth.message_passing import KEPT, MessagePassing, bonds_only
from benchmarks.molecule_truth.packed import Sizes, load, pack
from benchmarks.molecule_truth.published import NETWORKS, PUBLISHED, figures
from benchmarks.molecule_truth.scores import aurocs, kendall, scores
from integrand.apps.molecules.molgraph import collate, graph

pytestmark = pytest.mark.slow  # a fixture that the tests share takes seconds

RNG = np.random.default_rng


def mol(smiles: str):
    return Chem.MolFromSmiles(smiles)


@pytest.fixture(scope="module")
def mols(data):
    return labels.read(data(f"molecules/{labels.FILE}").parent, 3000)


def test_crippen_terms_of_the_assays_molecules_sum_to_logp(mols):
    for one in mols[:200]:
        terms = crippen_terms(one)
        assert terms.shape == (one.GetNumAtoms(),)
        assert terms.sum() == pytest.approx(Crippen.MolLogP(one), abs=1e-9)


@pytest.mark.parametrize(
    "smiles", ["[H]C([H])([H])O", "[2H]OC", "[NH4+].[Cl-]", "C", "[H][H]", "C[C@H](N)C(=O)O", "CN(C)c1ccccc1"]
)
def test_crippen_terms_sum_to_logp_for_odd_molecules(smiles):
    assert crippen_terms(mol(smiles)).sum() == pytest.approx(Crippen.MolLogP(mol(smiles)), abs=1e-9)


def test_crippen_terms_are_those_of_the_paper_with_the_hydrogens_added():
    # Wildman and Crippen 1999, table 1: methane's carbon C1 0.1441; hydrogen on carbon H1 0.1230; water's oxygen is O2.
    assert crippen_terms(mol("C")) == pytest.approx([0.1441 + 4 * 0.1230])
    methyl, other = crippen_terms(mol("CC"))
    assert methyl == other == pytest.approx(0.1441 + 3 * 0.1230)
    # Aromatic CH is C18 0.1581.
    assert crippen_terms(mol("c1ccccc1")) == pytest.approx([0.1581 + 0.1230] * 6)


@pytest.mark.parametrize(
    ("task", "true", "false"),
    [
        ("benzene", ["Cc1ccccc1", "c1ccc2ccccc2c1", "OC(=O)c1ccccc1"], ["c1ccncc1", "C1CCCCC1", "c1ccsc1", "C1=CC=CC1"]),
        ("logic7", ["FCC(C)=O", "NC(=O)c1ccc(F)cc1"], ["CC(C)=O", "FCCO", "CCO", "FC1OCCO1"]),
        ("logic8", ["CCCC(C)=O", "CCCNC(=O)C"], ["CCCCO", "CC(C)=O", "O=C1CCCCC1", "CC(=O)C(C)(C)C"]),
        (
            "logic10",
            ["NCCOCc1ccccc1", "NC(=O)COCc1ccccc1"],
            ["CNCCOCc1ccccc1", "NCCOc1ccccc1", "NCCOCc1ccc(C)cc1", "NCCCc1ccccc1"],
        ),
        (
            "and3",
            ["NCCOc1ccccc1", "CN(C)CCOCc1ccccc1"],
            ["NC(=O)COc1ccccc1", "NCCOC1CCCCC1", "NCCOC(=O)c1ccccc1", "NCCc1ccccc1"],
        ),
        ("or2", ["CS(C)(=O)=O", "Cc1ccncc1", "NS(=O)(=O)c1ccncc1"], ["CS(C)=O", "c1cncnc1", "CC1CCNCC1", "CSC"]),
    ],
)
def test_labels_of_molecules_known_by_heart(task, true, false):
    for smiles in true:
        assert example(TASKS[task], mol(smiles)).label == 1, smiles
    for smiles in false:
        found = example(TASKS[task], mol(smiles))
        assert found.label == 0, smiles
        assert not found.true.any()
        assert not found.scored


def test_true_atoms_are_those_of_the_matches():
    found = example(TASKS["logic7"], mol("FCC(C)=O"))
    assert found.true.tolist() == [1, 0, 1, 0, 1]
    found = example(TASKS["or2"], mol("Cc1ccncc1"))
    assert found.true.tolist() == [0, 1, 1, 1, 1, 1, 1]
    two = example(TASKS["benzene"], mol("c1ccccc1Cc1ccccc1"))  # either ring explains it, and both do
    assert {tuple(np.flatnonzero(way)) for way in two.ways} == {
        tuple(range(6)),
        tuple(range(7, 13)),
        (*range(6), *range(7, 13)),
    }
    assert two.ways[-1].tolist() == two.true.astype(bool).tolist()


def test_explanations_against_every_subset_of_matches():
    rng = RNG(0)
    for every in (True, False):
        matches = [rng.random((k, 9)) < 0.3 for k in (2, 3)]
        flat = [(which, row) for which, rows in enumerate(matches) for row in rows]
        expected = set()
        for picked in itertools.product((False, True), repeat=len(flat)):
            chosen = [pair for pair, taken in zip(flat, picked, strict=True) if taken]
            if {which for which, _ in chosen} == {0, 1} or (chosen and not every):
                expected.add(tuple(np.any([row for _, row in chosen], axis=0).tolist()))
        assert {tuple(way.tolist()) for way in explanations(matches, every)} == expected


def test_no_explanation_where_a_part_is_missing():
    empty, some = np.zeros((0, 4), bool), np.eye(4, dtype=bool)[:1]
    assert explanations([empty, some], True).shape == (0, 4)
    assert explanations([empty, some], False).tolist() == some.tolist()
    assert explanations([empty, empty], False).shape == (0, 4)


@pytest.mark.parametrize("task", ["benzene", "logic7", "or2"])
def test_classes_and_combinations_are_balanced(mols, task):
    found = balanced(TASKS[task], mols, 120)
    assert sum(one.label for one in found) == 60
    assert len({Chem.MolToSmiles(one.mol) for one in found}) == 120
    for value in (0, 1):
        cells = [tuple(len(p.matches(one.mol)) > 0 for p in TASKS[task].patterns) for one in found if one.label == value]
        counts = [cells.count(cell) for cell in set(cells)]
        assert max(counts) - min(counts) <= 1


def test_molecules_with_too_many_matches_are_left_out():
    many = [mol("FC(F)(F)C(F)(F)C(F)(F)C(F)(F)F"), mol("FCC(F)(F)F"), mol("CCC"), mol("CO")]
    found = balanced(Task("fluorine", (Pattern("fluorine", "F"),)), many, 4)
    assert sorted(one.mol.GetNumAtoms() for one in found if one.label) == [6]


def test_tau_agrees_with_scipy_with_and_without_ties():
    rng = RNG(1)
    for size in (2, 3, 10, 40):
        for levels in (2, 4, 1000):
            one, two = rng.integers(levels, size=size).astype(float), rng.integers(levels, size=size).astype(float)
            if np.ptp(one) and np.ptp(two):
                assert kendall(one, two) == pytest.approx(stats.kendalltau(one, two).statistic, abs=1e-12)


def test_tau_of_closed_cases():
    row = np.array([3.0, -1.0, 2.0, 0.0])
    assert kendall(row, row) == 1
    assert kendall(-row, row) == -1
    assert kendall(np.exp(row), row) == 1
    assert kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])) == pytest.approx(1 / 3)  # 2 pairs agree, 1 does not
    assert kendall(np.zeros(4), row) == 0


def test_auroc_agrees_with_scikit_learn_with_and_without_ties():
    rng = RNG(2)
    for levels in (2, 5, 1000):
        found = rng.integers(levels, size=30).astype(float)
        sets = rng.random((20, 30)) < 0.3
        expected = [roc_auc_score(one, found) for one in sets]
        assert aurocs(found, sets) == pytest.approx(expected, abs=1e-12)


def test_auroc_of_closed_cases():
    true = np.array([[True, True, False, False]])
    assert aurocs(np.array([3.0, 4.0, 1.0, 2.0]), true) == [1]
    assert aurocs(np.array([1.0, 2.0, 3.0, 4.0]), true) == [0]
    assert aurocs(np.zeros(4), true) == [0.5]
    assert aurocs(np.array([1.0, 0.0, 0.0, 0.0]), true) == [0.75]  # two wins, two ties, of four pairs
    assert np.isnan(aurocs(np.arange(4.0), np.ones((1, 4), bool))).all()


@pytest.mark.parametrize("task", ["crippen", "benzene", "logic7", "or2"])
def test_perfect_maps_opposite_maps_and_random_ones(mols, task):
    examples = [one for one in balanced(TASKS[task], mols, 600) if one.scored]
    worst, none = (-1, 0) if task == "crippen" else (0, 0.5)
    key = "tau" if task == "crippen" else "all"
    assert all(scores(one.true, one)[key] == pytest.approx(1) for one in examples)
    assert all(scores(-one.true, one)[key] == pytest.approx(worst) for one in examples)
    rng = RNG(3)
    found = [scores(rng.standard_normal(len(one.true)), one)[key] for one in examples]
    assert np.mean(found) == pytest.approx(none, abs=5 * np.std(found) / np.sqrt(len(found)))


def test_the_best_explanation_counts_and_is_never_worse_than_all_of_them():
    ways = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]], bool)
    one = Example(None, 1.0, ways[-1].astype(float), ways)
    assert scores(np.array([4.0, 1.0, 2.0, 3.0]), one) == {"all": 0.5, "best": 1.0}
    rng = RNG(4)
    drawn = [scores(rng.standard_normal(4), one) for _ in range(2000)]
    assert all(each["best"] >= each["all"] for each in drawn)
    # The better of two atoms among four: its place from the end is 0, 1 or 2 with 1/2, 1/3, 1/6, so 1 - (0 + 1/3 + 2/6) / 3.
    assert np.mean([each["best"] for each in drawn]) >= 1 - (1 / 3 + 2 / 6) / 3 - 0.02


class Linear(nn.Module):
    """A score that is a sum over the features of atoms and pairs, each times the square of itself for ``power`` 3."""

    def __init__(self, atoms: int, pairs: int, power: int = 1) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        self.of_atoms, self.of_pairs = (nn.Parameter(torch.randn(width, generator=rng)) for width in (atoms, pairs))
        self.power = power

    def terms(self, atoms, pairs):
        return atoms**self.power @ self.of_atoms, pairs**self.power @ self.of_pairs

    def forward(self, atoms, pairs, ends, there, near):
        own, between = self.terms(atoms, pairs)
        return ((own * there).sum(1) + (between * near).sum(1))[:, None]


@pytest.mark.parametrize("power", [1, 3])
def test_maps_of_an_additive_score_are_its_terms(power):
    graphs = [graph(mol(smiles)) for smiles in ("CC(=O)Oc1ccccc1C(=O)O", "C", "CCN")]
    net = Linear(graphs[0].atoms.shape[1], graphs[0].pairs.shape[1], power).eval()
    integrated, other = METHODS
    for one, found in zip(graphs, maps_of(net, graphs, tol=1e-3, seed=0), strict=True):
        atoms, pairs = (rows.detach().double().numpy() for rows in net.terms(one.atoms, one.pairs))
        whole = atoms.copy()
        for (i, j), value in zip(one.ends.tolist(), pairs, strict=True):
            whole[i] += value / 2
            whole[j] += value / 2
        assert found.converged
        assert found.values[integrated + ALONE] == pytest.approx(atoms, rel=1e-3, abs=1e-3)
        assert found.values[integrated] == pytest.approx(whole, rel=1e-3, abs=1e-3)
        # The gradient of a cube times the input is three times the cube.
        assert found.values[other] == pytest.approx(power * whole, rel=1e-4, abs=1e-4)
        assert found.values[integrated].sum() == pytest.approx(atoms.sum() + pairs.sum(), rel=1e-3, abs=1e-3)


def test_pairs_are_shared_between_their_ends():
    found = per_atom(np.array([1.0, 0.0, 0.0]), np.array([2.0, 4.0]), np.array([[0, 1], [0, 2]]))
    assert found.tolist() == [4, 1, 2]


def smiles_of(one) -> str:
    return Chem.MolToSmiles(one.mol)


@pytest.mark.parametrize("key", ["logic7", "crippen"])
def test_a_packed_task_comes_back_as_it_was(mols, tmp_path, key):
    task, sizes = TASKS[key], Sizes(train=60, valid=20, test=40)
    pack(task, mols, sizes, tmp_path / "task.npz")
    parts = load(task, tmp_path / "task.npz")
    assert {name: len(part.examples) for name, part in parts.items()} == {"test": 40, "valid": 20, "train": 60}
    again = balanced(task, mols, 120)  # the same draw
    assert len({smiles_of(one) for one in again}) == 120  # so that no molecule is in two parts
    read = [pair for part in parts.values() for pair in zip(part.examples, part.graphs, strict=True)]
    for one, (two, packed) in zip(again, read, strict=True):
        made = graph(one.mol)
        assert two.label == pytest.approx(one.label)
        assert two.true == pytest.approx(one.true, abs=1e-6)
        assert two.ways.tolist() == one.ways.tolist()
        assert packed.atoms.numpy() == pytest.approx(made.atoms.numpy(), abs=1e-3)  # charges to 16 bits
        assert torch.equal(packed.pairs, made.pairs)
        assert torch.equal(packed.ends, made.ends)
        assert torch.equal(packed.bond >= 0, made.bond >= 0)
    few = load(task, tmp_path / "task.npz", Sizes(train=7, valid=20, test=1))
    assert [len(few[name].examples) for name in ("train", "valid", "test")] == [7, 20, 1]


def test_the_message_passing_network_reads_bonds_alone_and_nothing_of_the_padding():
    molecules = [graph(mol(smiles)) for smiles in ("CC(=O)Oc1ccccc1C(=O)O", "CCN", "[Na+].[Cl-]")]
    graphs = bonds_only(molecules)
    assert [len(one.pairs) for one in graphs] == [
        mol(smiles).GetNumBonds() for smiles in ("CC(=O)Oc1ccccc1C(=O)O", "CCN", "[Na+].[Cl-]")
    ]
    assert all(one.pairs.shape[1] == len(KEPT) == 5 for one in graphs)
    torch.manual_seed(0)
    net = MessagePassing(graphs[0].atoms.shape[1], 5, hidden=8, dense=(4,)).double().eval()

    def said(some):
        batch = collate(some)
        return net(batch.atoms.double(), batch.pairs.double(), *batch.tensors[2:])

    alone = torch.cat([said([one]) for one in graphs])
    assert torch.allclose(said(graphs), alone, atol=1e-12)
    turned = replace(graphs[1], ends=graphs[1].ends.flip(1))  # a bond has no direction
    assert torch.allclose(said([turned]), alone[1:2], atol=1e-12)
    assert not torch.allclose(said([replace(graphs[1], pairs=graphs[1].pairs * 0)]), alone[1:2], atol=1e-6)


def test_a_message_reaches_as_many_bonds_as_there_are_rounds():
    (chain,) = bonds_only([graph(mol("CCCCCO"))])
    torch.manual_seed(0)
    net = MessagePassing(chain.atoms.shape[1], 5, hidden=16, rounds=2).eval()
    state = {}
    net.updates[-1].register_forward_hook(lambda module, given, out: state.update(last=out))
    net(*collate([chain]).tensors)
    before = state["last"][0].detach()
    other = chain.atoms.clone()
    other[5] = chain.atoms[0]
    net(*collate([replace(chain, atoms=other)]).tensors)
    changed = (state["last"][0].detach() - before).abs().sum(1) > 1e-7
    assert changed.tolist() == [False, False, False, True, True, True]


def test_every_published_figure_is_there_for_every_published_task():
    assert set(PUBLISHED) == set(PUBLISHED_TASKS)
    for methods in PUBLISHED.values():
        assert {len(row) for row in methods.values()} == {len(NETWORKS)}
        assert all(one is None or -1 <= one <= 1 for row in methods.values() for one in row)
    assert figures("logic8", "integrated gradients") == "0.82 / 0.78 / 0.77 / 0.68"
    assert figures("or2", "integrated gradients") == ""


def test_the_table_shows_means_spreads_and_what_was_published():
    def cells(task, scored):
        made = [("integrated gradients", 0.0), ("gradient x input", 0.1), ("random map", 0.2)]
        made += [(name + ALONE, 0.3) for name in METHODS]
        return [
            {"task": task, "network": "weave", "seed": seed, "quality": 0.9 + seed / 100}
            | {"scores": {name: dict.fromkeys(scored, seed / 10 + shift) for name, shift in made}}
            for seed in (1, 0)
        ]

    shown = table(cells("crippen", ["tau"]) + cells("benzene", ["all", "best"])).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown]
    assert rows[0][-1] == PUBLISHED_HEAD
    assert {len(row) for row in rows} == {len(rows[0])}
    assert [row[-1] for row in rows[2:]] == ["", figures("benzene", METHODS[0]), figures("crippen", METHODS[0])]
    # Two seeds a tenth apart: the mean is half-way, the standard deviation a tenth over the square root of two.
    assert rows[4][:6] == ["Crippen logP", "weave", "R2 0.905 ± 0.007", "Kendall tau", "0.050 ± 0.071", "0.150 ± 0.071"]
    assert [row[0] for row in rows[2:]] == ["benzene", "benzene", "Crippen logP"]


@pytest.mark.parametrize("network", ["weave", "message passing"])
def test_a_network_is_trained_and_every_method_is_scored_on_the_molecules_that_have_true_atoms(mols, tmp_path, network):
    pack(TASKS["benzene"], mols, Sizes(train=160, valid=40, test=16), tmp_path / "task.npz")
    parts = load(TASKS["benzene"], tmp_path / "task.npz")
    small = {"hidden": 8, "dense": (8,), "epochs": 2, "batch": 32}
    cell = measure("benzene", parts, 0, network, **small)
    assert list(cell["scores"]) == list(NAMES)
    assert cell["molecules"] == sum(one.scored for one in parts["test"].examples)
    assert all(0 <= found["all"] <= found["best"] <= 1 for found in cell["scores"].values())
    assert cell["converged"] == 1.0


def test_the_command_goes_on_where_it_stopped(mols, tmp_path, monkeypatch, capsys):
    pack(TASKS["benzene"], mols, Sizes(train=160, valid=40, test=16), tmp_path / "benzene.npz")
    out = tmp_path / "cells.jsonl"
    options = ["--packed", str(tmp_path), "--out", str(out), "--quick", "--tasks", "benzene", "--set", "epochs=1"]
    monkeypatch.setattr(sys, "argv", ["molecule_truth", *options, "--networks", "message passing"])
    monkeypatch.chdir(Path(labels.__file__).parents[2])
    main()
    first = capsys.readouterr()
    assert "benzene/message passing/0 done" in first.err
    assert len(out.read_text().splitlines()) == 1
    with out.open("a") as file:
        file.write('{"task": "benz')  # a kill in the middle of a line
    main()
    again = capsys.readouterr()
    assert again.out == first.out
    assert again.err == ""  # nothing was left to do
    monkeypatch.setattr(sys, "argv", ["molecule_truth", "--table", str(out)])
    main()
    assert capsys.readouterr().out == first.out
