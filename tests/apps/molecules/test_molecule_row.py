"""Molecules as rows of a table: what the row says, the result from it again, and ``ig.explain_many`` with a network."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rdkit import Chem

import integrand as ig
from integrand.apps.molecules import GraphModel, MoleculeAttribution
from integrand.batch import Row
from integrand.errors import InputError, OptionError, TargetError
from tests.apps.molecules.attributed import ASPIRIN, CAFFEINE, MOLECULES, made, weave


@pytest.fixture(scope="module")
def ethanol() -> Row:
    """A row as it was written."""
    return made("CCO").row()


def scored(score: float, scale: str, label: str = "active") -> Row:
    """The row of a molecule with this score."""
    found = made("CCO", [0.1, 0.2, 0.3], label=label)
    return replace(found, scale=scale, certificate=replace(found.certificate, score=score)).row()


@pytest.mark.parametrize(
    ("score", "scale", "label", "prediction", "probability"),
    [
        (0.85, "probability", "active", "active", 0.85),
        (0.12, "probability", "active", "not active", 0.88),
        (0.0, "logit", "active", "active", 0.5),
        (math.log(3), "logit", "active", "active", 0.75),
        (-math.log(3), "logit", "active", "not active", 0.75),
        (-800.0, "logit", "active", "not active", 1.0),
        (math.log(0.9), "log-probability", "active", "active", 0.9),
        (0.7, "probability", "Blood-Brain Barrier (BBB_Martins)", "Blood-Brain Barrier likely", 0.7),
        (-2.1345678, "", "Solubility (Solubility_AqSolDB, log-mol/L)", "-2.13457", None),
    ],
)
def test_what_the_network_says_whatever_the_scale(
    score: float, scale: str, label: str, prediction: str, probability: float | None
) -> None:
    row = scored(score, scale, label)
    assert (row.prediction, row.target) == (prediction, label)
    assert row.probability == (None if probability is None else pytest.approx(probability))


@pytest.mark.parametrize("smiles", MOLECULES)
def test_atoms_and_groups_add_up_to_the_change(smiles: str) -> None:
    found = made(smiles, others={"weight": 0.25})
    row = found.row()
    assert row.features == (*(f"{a.GetSymbol()}{a.GetIdx()}" for a in found.mol.GetAtoms()), "weight")
    assert row.attributions.sum() == pytest.approx(found.change)
    assert row.groups is not None
    assert row.group_sums is not None
    assert len(set(row.groups)) == len(row.groups)
    assert sum(row.group_sums) == pytest.approx(found.change)
    assert row.columns == {"smiles": smiles}


@pytest.mark.parametrize("smiles", MOLECULES)
def test_the_result_again_from_its_row(smiles: str) -> None:
    [found] = weave(1).explain([smiles])
    again = MoleculeAttribution.from_row(found.row())
    for name in ("smiles", "label", "model", "scale", "units", "notes", "certificate", "sentence", "groups"):
        assert getattr(again, name) == getattr(found, name), name
    for name in ("atoms", "ends", "pair_values", "per_atom"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert again.atom_errors == pytest.approx(found.atom_errors)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_atoms_keep_the_order_of_the_molecule_that_was_given(smiles: str) -> None:
    mol = Chem.MolFromSmiles(smiles)
    order = np.random.default_rng(0).permutation(mol.GetNumAtoms()).tolist()
    [found] = weave(1).explain([Chem.RenumberAtoms(mol, order)])
    again = MoleculeAttribution.from_row(found.row())
    assert [again.name(i) for i in range(len(order))] == [found.name(i) for i in range(len(order))]
    assert again.mol.HasSubstructMatch(found.mol)
    np.testing.assert_array_equal(Chem.GetAdjacencyMatrix(again.mol), Chem.GetAdjacencyMatrix(found.mol))


def test_a_row_of_something_else_is_refused() -> None:
    row = made("CCO").row()
    spoiled = json.loads(str(row.details)) | {"order": [0, 0, 1]}
    for wrong in (Row.failed("x", "no"), replace(row, details=None), replace(row, details="{}"), replace(row, details="[")):
        with pytest.raises(InputError, match=r"has no result|makes no sense"):
            MoleculeAttribution.from_row(wrong)
    with pytest.raises(InputError, match="give the molecule"):
        MoleculeAttribution.from_row(replace(row, details=json.dumps(spoiled)))
    named = replace(made("CCO"), smiles="ethanol")  # a model of the user's own may call it what it likes
    assert MoleculeAttribution.from_row(named.row(), "CCO").smiles == "CCO"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("atoms", [1.0, 2.0]),
        ("atoms", ["1.0", "2", "3"]),
        ("atoms", [1.0, float("nan"), 2.0]),
        ("atoms", {"0": 1}),
        ("atoms", [[1.0], [2.0], [3.0]]),
        ("ends", [[0, 9], [1, 2], [0, 2]]),
        ("ends", [[0, 1.5], [1, 2], [0, 2]]),
        ("ends", [[0, 0], [1, 2], [0, 2]]),
        ("ends", 7),
        ("pairs", [1.0]),
        ("others", {"x": "y"}),
        ("others", []),
        ("label", None),
        ("model", 3),
        ("notes", [1]),
        ("draws", [1, [2]]),
        ("certificate", {}),
        ("certificate", []),
        ("certificate", {"status": "CONVERGED"}),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(ethanol: Row, key: str, value: Any) -> None:
    kept = json.loads(str(ethanol.details)) | {key: value}
    with pytest.raises(InputError, match="makes no sense"):
        MoleculeAttribution.from_row(replace(ethanol, details=json.dumps(kept)))


@pytest.mark.parametrize("field", ["score", "gradients", "rule", "needed", "status", "curves"])
def test_a_certificate_of_other_types_makes_no_sense(ethanol: Row, field: str) -> None:
    kept = json.loads(str(ethanol.details))
    kept["certificate"][field] = ["<b>"]
    with pytest.raises(InputError, match="makes no sense"):
        MoleculeAttribution.from_row(replace(ethanol, details=json.dumps(kept)))


def test_many_molecules_of_a_table_of_the_users(tmp_path: Path) -> None:
    """Rows equal what the network explains one by one; what cannot be read fails alone; sizes go together."""
    texts = [ASPIRIN, "C1CC", "CCO", CAFFEINE, "", "CC", "[Na+].[Cl-]"]
    (tmp_path / "many.csv").write_text("id,smiles,label\n" + "".join(f"m{i},{text},{i % 2}\n" for i, text in enumerate(texts)))
    model = weave(1)
    explain = functools.partial(model.explain, tol=0.05, score="logit")
    asked: dict[str, Any] = {"column": "smiles", "key": "id", "carry": ["label"]}
    done = ig.explain_many(tmp_path / "many.csv", explain, tmp_path / "out", **asked)
    assert (done.summary.explained, done.summary.failed) == (5, 2)
    rows = list(done.table.rows())
    assert [row.key for row in rows] == [f"m{i}" for i in range(len(texts))]
    assert [row.columns["label"] for row in rows] == [str(i % 2) for i in range(len(texts))]
    assert "ring" in str(rows[1].failure)
    assert "no atoms" in str(rows[4].failure)
    good = [text for text in texts if text not in ("C1CC", "")]
    for row, text in zip((row for row in rows if row.ok), good, strict=True):
        [alone] = explain([text])
        assert row.columns["smiles"] == text
        assert row.prediction == ("active" if alone.score >= 0 else "not active")
        assert row.probability == pytest.approx(torch.tensor(abs(alone.score)).sigmoid().item())
        off = alone.certificate.error * alone.certificate.magnitude
        np.testing.assert_allclose(row.attributions, alone.per_atom, atol=2 * off)
    with pytest.raises(OptionError, match=r"explain.options.tol 0.02 \(there: 0.05\)"):
        ig.explain_many(tmp_path / "many.csv", functools.partial(explain, tol=0.02), tmp_path / "out", **asked)
    with pytest.raises(TargetError):  # no molecule's fault
        ig.explain_many(tmp_path / "many.csv", functools.partial(model.explain, target="no"), tmp_path / "new", **asked)


def test_molecules_of_about_one_size_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []

    def first(atoms: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return atoms.sum((1, 2))[:, None]

    model = GraphModel(first, "simple", ("atoms",), logits=False)
    result = GraphModel._integrated

    def noted(self: GraphModel, graphs: Any, *given: Any) -> Any:
        seen.append([len(graph.atoms) for graph in graphs])
        return result(self, graphs, *given)

    monkeypatch.setattr(GraphModel, "_integrated", noted)
    chains = ["C" * (1 + i * 7 % 40) for i in range(40)]
    ig.explain_many(chains, functools.partial(model.explain, tol=0.05), tmp_path / "out")
    assert [max(sizes) - min(sizes) + 1 for sizes in seen] == list(map(len, seen))  # neighbours in size, none left out
    assert [len(seen), sum(map(len, seen))] == [3, 40]  # 16 together at the most
