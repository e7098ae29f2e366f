"""ADMET-AI's networks: the package's own predictions, and attributions against a plain integral over its own graphs."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rdkit import Chem

from integrand.apps import molecules
from integrand.apps.molecules.admet import (
    Admet,
    endpoints,
    feature_names,
    featurised,
    find_endpoint,
    load_admet,
    unread_elements,
)
from integrand.apps.molecules.molgraph import parse
from integrand.errors import InputError, ModelError, OptionError, TargetError

pytestmark = pytest.mark.slow  # a fixture that the tests share takes seconds

if not all(map(importlib.util.find_spec, ("chemprop", "admet_ai"))):  # imported by the tests alone: that takes five seconds
    pytest.skip("needs chemprop and admet_ai (extra: admet)", allow_module_level=True)

SALT, ASPIRIN, ALKENE = "[Na+].[Cl-]", "CC(=O)Oc1ccccc1C(=O)O", "C[C@H](F)/C=C/Cl"
MOLECULES = (ASPIRIN, "C", SALT, ALKENE, "CN1C=NC2=C1C(=O)N(C(=O)N2C)C")


@pytest.fixture(scope="module")
def brain() -> Admet:
    return load_admet("bbb_martins", "cpu")


@pytest.fixture(scope="module")
def solubility() -> Admet:
    return load_admet("Solubility_AqSolDB", "cpu")


@pytest.fixture(scope="module")
def theirs() -> Any:
    """What the package itself says, a table by SMILES."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from admet_ai import ADMETModel

        return ADMETModel(include_physchem=False, drugbank_path=None, num_workers=0).predict(list(MOLECULES))


def reference(model: Admet, smiles: str, nodes: int = 160) -> tuple[np.ndarray, np.ndarray, float]:
    """Gauss-Legendre in float64 over the package's own networks and graphs: atoms (N,), directed edges (2 bonds,), change."""
    from chemprop.data import BatchMolGraph
    from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
    from chemprop.models import load_model

    graph = SimpleMoleculeMolGraphFeaturizer()(Chem.MolFromSmiles(smiles))
    where, weights = np.polynomial.legendre.leggauss(nodes)
    shares = torch.tensor([*(where + 1) / 2, 0.0, 1.0], dtype=torch.float64)
    weight = torch.tensor([*weights / 2, 0.0, 0.0], dtype=torch.float64)
    whole = BatchMolGraph([graph] * len(shares))
    atoms, edges = whole.V.double(), whole.E.double()
    whole.V = (atoms * shares.repeat_interleave(len(graph.V))[:, None]).requires_grad_()
    whole.E = (edges * shares.repeat_interleave(len(graph.E))[:, None]).requires_grad_()
    networks = [load_model(path).eval().double().requires_grad_(False) for path in sorted(model.endpoint.folder.glob("*.pt"))]
    said = torch.stack([network(whole)[:, model.endpoint.column] for network in networks]).mean(0)
    slopes = torch.autograd.grad(said @ weight, (whole.V, whole.E))
    sums = [(slope * x).sum(1).reshape(len(shares), -1).sum(0) for slope, x in zip(slopes, (atoms, edges), strict=True)]
    return sums[0].numpy(), sums[1].numpy(), (said[-1] - said[-2]).item()


def test_predictions_are_the_packages_own(brain: Admet, solubility: Admet, theirs: Any) -> None:
    for model in (brain, solubility):
        np.testing.assert_allclose(model.predict(MOLECULES)[:, 0], theirs[model.endpoint.name], rtol=1e-5, atol=1e-6)
    assert theirs["BBB_Martins"].between(0, 1).all()
    assert not theirs["Solubility_AqSolDB"].between(0, 1).all()  # log(mol/L): the scaling is undone


def test_every_endpoint_is_one_of_the_packages(theirs: Any) -> None:
    assert {one.name for one in endpoints()} == set(theirs.columns)
    assert sum(not one.units for one in endpoints()) == 31
    assert sum(bool(one.units) for one in endpoints()) == 10
    assert find_endpoint("solubility_aqsoldb").units == "log(mol/L)"


@pytest.mark.parametrize("fixture", ["brain", "solubility"])
def test_attributions_are_the_integral_over_the_packages_own_graph(fixture: str, request: pytest.FixtureRequest) -> None:
    model: Admet = request.getfixturevalue(fixture)
    found = model.explain([ALKENE], tol=0.002)[0]
    atoms, edges, change = reference(model, ALKENE)
    bonds = edges.reshape(-1, 2).sum(1)
    scale = np.abs(atoms).sum() + np.abs(bonds).sum()
    assert np.abs(edges.reshape(-1, 2)[:, 0] - edges.reshape(-1, 2)[:, 1]).max() > 0.01 * scale  # directions differ
    off = np.abs(found.atoms - atoms).sum() + np.abs(found.pair_values - bonds).sum()
    assert off <= 0.003 * scale
    assert found.change == pytest.approx(change, abs=2e-5 * max(1, abs(found.score)))
    assert found.bonds.tolist() == list(range(len(bonds)))


@pytest.mark.parametrize("score", ["probability", "log-probability", "logit"])
def test_atoms_and_bonds_account_for_the_whole_score(brain: Admet, score: Any) -> None:
    found = brain.explain([ASPIRIN], score=score)[0]
    assert found.certificate.converged
    assert abs(found.total - found.change) <= 0.01 * found.magnitude
    assert found.others == {}
    probability = brain.predict([ASPIRIN])[0, 0]
    scales = {"probability": probability, "log-probability": np.log(probability)}
    assert found.score == pytest.approx(scales.get(score, np.log(probability / (1 - probability))), abs=1e-5)


def test_features_add_up_to_atoms_and_bonds(brain: Admet) -> None:
    fine, coarse = brain.explain([ALKENE], tol=0.002, columns=True)[0], brain.explain([ALKENE], tol=0.002)[0]
    assert fine.atom_features.shape == (6, 72)
    assert fine.pair_features.shape == (5, 14)
    assert coarse.atom_features.shape == (6, 1)
    np.testing.assert_allclose(fine.per_atom, coarse.per_atom, atol=0.01 * coarse.magnitude)
    zero = np.array(
        [name.startswith("element") and name not in ("element C", "element F", "element Cl") for name in fine.atom_columns]
    )
    assert zero.sum() == 35
    assert not fine.atom_features[:, zero].any()


def test_the_names_of_features_are_those_of_their_columns() -> None:
    atoms, bonds = feature_names()
    graph = featurised([Chem.MolFromSmiles("c1cc[nH+]cc1"), Chem.MolFromSmiles("C/C=C/F")], torch.device("cpu"))

    def said(names: Sequence[str], row: torch.Tensor) -> set[str]:
        return {name for name, value in zip(names, row.tolist(), strict=True) if value}

    both = {"mass", "chirality unspecified", "degree 3", "hybridisation sp2"}
    assert said(atoms, graph.atoms[0, 3]) == both | {"element N", "charge +1", "hydrogens 1", "aromatic"}
    assert said(atoms, graph.atoms[1, 1]) == both | {"element C", "charge +0", "hydrogens 1"}
    assert said(bonds, graph.edges[0, 0]) == {"bond aromatic", "conjugated", "in ring", "stereo none"}
    assert said(bonds, graph.edges[1, 2]) == {"bond double", "stereo e"}


def test_a_molecule_is_the_same_alone_and_in_a_padded_batch(brain: Admet) -> None:
    mols = [Chem.MolFromSmiles(smiles) for smiles in MOLECULES]
    graphs = featurised(mols, brain.device)
    together = brain.ensemble(graphs.atoms, graphs.edges, *graphs.structure)
    for row, mol in enumerate(mols):
        one = featurised([mol], brain.device)
        torch.testing.assert_close(brain.ensemble(one.atoms, one.edges, *one.structure)[0], together[row], rtol=1e-4, atol=1e-5)
    louder = brain.ensemble(
        graphs.atoms + 9 * ~graphs.there[..., None], graphs.edges + 9 * ~graphs.near[..., None], *graphs.structure
    )
    assert torch.equal(louder, together)  # padding does not count


@pytest.mark.parametrize("smiles", ["C", SALT])
def test_molecules_without_bonds(brain: Admet, smiles: str) -> None:
    found = brain.explain([smiles])[0]
    assert found.pair_values.shape == (0,)
    assert abs(found.atoms.sum() - found.change) <= 0.01 * found.magnitude


def test_several_molecules_keep_their_order_and_tell_how_far_they_are(brain: Admet) -> None:
    told: list[tuple[int, int]] = []
    found = brain.explain(["CCO", Chem.MolFromSmiles("CC")], progress=lambda done, total: told.append((done, total)))
    assert [one.smiles for one in found] == ["CCO", "CC"]
    assert told == [(1, 2), (2, 2)]
    assert found[0].certificate.target == "BBB_Martins"


def test_loading_is_silent_and_what_is_loaded_is_frozen(capfd: pytest.CaptureFixture[str]) -> None:
    model = molecules.load("admet:ames", "cpu")
    assert capfd.readouterr() == ("", "")
    assert model.outputs == ("AMES",)
    assert model.name == "admet:AMES"
    assert "Chemprop" in model.source
    assert not any(weight.requires_grad for weight in model.ensemble.parameters())  # type: ignore[attr-defined]
    assert not model.ensemble.training  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "near"), [("BBB", "BBB_Martins"), ("amess", "AMES"), ("solubility", "Solubility_AqSolDB")])
def test_an_unknown_endpoint_names_those_that_are_near(name: str, near: str) -> None:
    with pytest.raises(OptionError, match=rf"Did you mean .*{near}"):
        load_admet(name)


def test_what_is_asked_for_wrongly_is_said(brain: Admet, solubility: Admet) -> None:
    with pytest.raises(OptionError, match="no probability"):
        solubility.explain(["C"], score="probability")
    with pytest.raises(TargetError, match="Load another endpoint"):
        brain.explain(["C"], target="AMES")
    with pytest.raises(OptionError, match="max_steps"):
        brain.explain(["C"], max_steps=3)
    with pytest.raises(InputError, match="unclosed ring"):
        brain.explain(["C1CC"])
    with pytest.raises(OptionError, match=r"'zzz'.*AMES, BBB_Martins"):
        load_admet("zzz")


def test_networks_that_want_more_than_the_graph_are_refused(brain: Admet, monkeypatch: pytest.MonkeyPatch) -> None:
    import chemprop.models

    load = chemprop.models.load_model

    def wider(path: Path) -> Any:
        network = load(path)
        network.predictor.ffn = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(500, 31)))
        network.predictor.ffn.input_dim = 500
        return network

    monkeypatch.setattr(chemprop.models, "load_model", wider)
    with pytest.raises(ModelError, match="take 200 descriptors"):
        load_admet("AMES")


def test_elements_without_a_feature_are_said() -> None:
    """What ADMET-AI was trained on is not known here; what its networks cannot tell apart is."""
    assert unread_elements(parse("CC(=O)Oc1ccccc1C(=O)O")) == ()
    (note,) = unread_elements(parse("[NH3][Pt]([NH3])(Cl)Cl"))
    assert note == "The network has no feature of its own for Pt: its answer may mean nothing."
