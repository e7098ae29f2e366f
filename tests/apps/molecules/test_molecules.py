"""Explaining molecules: closed forms, symmetry, batches, certificates, and what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.polynomial.legendre import leggauss
from rdkit import Chem
from torch import Tensor

import integrand as ig
from integrand.apps import molecules
from integrand.apps.molecules import GraphModel, MoleculeAttribution
from integrand.apps.molecules.molgraph import ATOM_FEATURES, PAIR_FEATURES, collate, graph, parse
from integrand.errors import ConvergenceWarning, InputError, OptionError, OutputError, TargetError, ZeroAttributionWarning

from .attributed import ASPIRIN, CAFFEINE, MOLECULES, made, weave

SIMPLE = len(ATOM_FEATURES["simple"]), len(PAIR_FEATURES["simple"])


def linear(seed: int = 0) -> tuple[GraphModel, Tensor, Tensor]:
    """F = sum of weights * features, over atoms and pairs."""
    drawn = torch.Generator().manual_seed(seed)
    own, paired = (torch.randn(width, generator=drawn) for width in SIMPLE)

    def network(atoms: Tensor, pairs: Tensor, ends: Tensor, there: Tensor, near: Tensor) -> Tensor:
        return ((atoms @ own * there).sum(1) + (pairs @ paired * near).sum(1))[:, None]

    return GraphModel(network, "simple", ("sum",), logits=False), own, paired


def test_a_linear_function_gives_weight_times_feature() -> None:
    model, own, paired = linear()
    for result in model.explain(MOLECULES, columns=True):
        one = graph(result.mol, "simple")
        np.testing.assert_allclose(result.atom_features, (one.atoms * own).numpy(), atol=1e-6)
        np.testing.assert_allclose(result.pair_features, (one.pairs * paired).numpy(), atol=1e-6)
        np.testing.assert_allclose(result.atoms, (one.atoms @ own).numpy(), atol=1e-5)
        assert result.atom_columns == ATOM_FEATURES["simple"]
        assert result.pair_columns == PAIR_FEATURES["simple"]


def test_a_square_gives_each_atom_its_term_times_the_sum() -> None:
    """F = S^2 with S a sum over atoms and pairs: the integral of 2 t S x_i is S x_i."""
    model, own, paired = linear(1)
    square = GraphModel(lambda *batch: model.network(*batch) ** 2, "simple", ("square",), logits=False)
    for result in square.explain([ASPIRIN, "CCO"]):
        one = graph(result.mol, "simple")
        terms, between = (one.atoms @ own).numpy(), (one.pairs @ paired).numpy()
        whole = terms.sum() + between.sum()
        np.testing.assert_allclose(result.atoms, terms * whole, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(result.pair_values, between * whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("modules", [1, 2])
def test_a_weave_network_against_a_sum_by_hand(modules: int) -> None:
    model = weave(modules)
    found = model.explain([ASPIRIN], score="logit", tol=1e-4)[0]
    batch = collate([graph(parse(ASPIRIN), "simple")] * 400)
    x, p = batch.atoms.double(), batch.pairs.double()
    atoms, pairs = torch.zeros_like(x[0]), torch.zeros_like(p[0])
    nodes, weights = leggauss(4)
    for node, weight in zip(nodes, weights, strict=True):  # 400 panels of four nodes
        t = ((torch.arange(400) + (node + 1) / 2) / 400)[:, None, None].double()
        a, b = (t * x).requires_grad_(), (t * p).requires_grad_()
        da, db = torch.autograd.grad(model.network(a, b, *batch.tensors[2:]).sum(), (a, b))
        atoms += weight / 800 * (da * x).sum(0)
        pairs += weight / 800 * (db * p).sum(0)
    np.testing.assert_allclose(found.atoms, atoms.sum(1).numpy(), rtol=0, atol=1e-4 * found.magnitude)
    np.testing.assert_allclose(found.pair_values, pairs.sum(1).numpy(), rtol=0, atol=1e-4 * found.magnitude)


@pytest.mark.parametrize("features", ["simple", "full"])
def test_the_certificate_means_the_atoms_and_pairs(features: str) -> None:
    model = weave(2, features)
    some = [ASPIRIN, CAFFEINE, "CCO", "N#Cc1ccc(F)cc1Br"]
    for rough, exact in zip(model.explain(some, tol=0.05), model.explain(some, tol=1e-4), strict=True):
        off = np.abs(rough.atoms - exact.atoms).sum() + np.abs(rough.pair_values - exact.pair_values).sum()
        assert off / exact.magnitude <= 0.055
        assert rough.certificate.error <= 0.05
        assert rough.certificate.tol == 0.05
        assert rough.certificate.magnitude == pytest.approx(rough.magnitude)
        assert rough.certificate.residual == pytest.approx(rough.total - rough.change, abs=1e-12)
        assert rough.score == pytest.approx(float(model.predict([rough.smiles])[0, 0]), abs=1e-12)


def test_columns_add_up_to_atoms_and_pairs() -> None:
    model = weave(2, "full")
    split, summed = (model.explain([CAFFEINE], tol=1e-4, columns=columns)[0] for columns in (True, False))
    assert split.atom_features.shape == (14, 27)
    assert summed.atom_features.shape == (14, 1)
    np.testing.assert_allclose(split.atoms, summed.atoms, rtol=0, atol=1e-3 * summed.magnitude)
    np.testing.assert_allclose(split.pairs, summed.pairs, rtol=0, atol=1e-3 * summed.magnitude)
    one = graph(split.mol, "full")
    assert not split.atom_features[one.atoms.numpy() == 0].any()  # what is zero on the whole path adds nothing


@pytest.mark.parametrize("smiles", ["c1ccccc1", "Cc1ccc(C)cc1", "CC(C)(C)C", "C1CCCCC1", "OC(=O)CCC(=O)O"])
def test_symmetric_atoms_get_the_same(smiles: str) -> None:
    mol = Chem.MolFromSmiles(smiles)
    ranks = np.array(Chem.CanonicalRankAtoms(mol, breakTies=False))
    for modules in (1, 2):
        found = weave(modules).explain([smiles])[0]
        for rank in set(ranks.tolist()):
            for values in (found.atoms, found.per_atom):
                np.testing.assert_allclose(values[ranks == rank], values[ranks == rank][0], rtol=1e-9, atol=1e-15)


def test_a_molecule_does_not_depend_on_its_batch() -> None:
    """With the same nodes, alone, among others, and in another order."""
    model = weave(2, "full")
    together = model.explain(MOLECULES, steps=20, tol=10)
    pairs = model.explain(MOLECULES[::-1], steps=20, tol=10, batch=2)[::-1]
    for i, smiles in enumerate(MOLECULES):
        alone = model.explain([smiles], steps=20, tol=10)[0]
        for other in (together[i], pairs[i]):
            assert other.smiles == smiles
            np.testing.assert_allclose(other.atoms, alone.atoms, rtol=1e-9, atol=1e-14)
            np.testing.assert_allclose(other.pairs, alone.pairs, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", ["weave-w1n2", "weave-w2n2", "weave-w2n2-simple"])
@pytest.mark.parametrize("smiles", ["[Na+].[Cl-]", "[Na+]", "O", "C.C.C"])
def test_molecules_without_pairs(name: str, smiles: str) -> None:
    """Ions and single atoms: everything is the atoms', and what there is to say of pairs is nothing."""
    found = molecules.load(name, "cpu").explain([smiles])[0]
    assert found.certificate.converged
    assert found.pair_values.shape == (0,)
    assert found.atoms.sum() == pytest.approx(found.change, abs=0.01 * found.magnitude)
    assert found.account().part("kind", "bonded pairs").value == 0
    assert "<h3>Bonds" not in found.page()


def test_an_element_that_no_feature_names_is_the_baseline() -> None:
    with pytest.warns(ZeroAttributionWarning, match="equals the baseline"):
        found = molecules.load("weave-w2n2-simple", "cpu").explain(["[Xe]"])[0]
    assert (found.atoms.tolist(), found.change, found.account().share_error) == ([0.0], 0.0, None)


def test_float64_reaches_what_rounding_hides() -> None:
    """Methane moves the score by less than a thousandth of itself."""
    found = molecules.load("weave-w2n2", "cpu").double().explain(["C"])[0]
    assert 0 < abs(found.change) < 1e-3 * found.score
    assert found.certificate.converged
    assert found.certificate.precision == "float64"


def test_padding_gets_exactly_zero() -> None:
    model = weave(2)
    batch = collate([graph(parse(smiles), "simple") for smiles in ("CCO", ASPIRIN)])
    given = batch.atoms.double(), batch.pairs.double()
    atoms, pairs = ig.integrated_gradients(model.network, given, args=batch.tensors[2:], tol=0.1).values
    assert not atoms[~batch.there].any()
    assert not pairs[~batch.near].any()
    assert atoms[batch.there].any()


def test_several_outputs_are_explained_each_on_its_own() -> None:
    """Two yes-or-no outputs: the probability of one does not depend on the other, as it would with softmax."""
    _, own, _ = linear()

    def network(atoms: Tensor, pairs: Tensor, ends: Tensor, there: Tensor, near: Tensor) -> Tensor:
        said = (atoms @ own).sum(1)
        return torch.stack([said, 3 - 5 * said], 1)

    both = GraphModel(network, "simple", ("toxic", "soluble"))
    only = GraphModel(lambda *batch: network(*batch)[:, :1], "simple", ("toxic",))
    for target in ("toxic", 0):
        a, b = both.explain(["CCO"], target=target)[0], only.explain(["CCO"])[0]
        assert a.label == a.certificate.target == "toxic"
        np.testing.assert_allclose(a.atoms, b.atoms, rtol=1e-6)
        assert a.score == pytest.approx(1 / (1 + np.exp(-float(own[[1, 1, 3]].sum()))), rel=1e-5)
    logits = both.explain(["CCO"], target="soluble", score="logit")[0]
    np.testing.assert_allclose(logits.atoms, -5 * own[[1, 1, 3]].numpy(), rtol=1e-5)
    assert both.explain(["CCO"], target="soluble", score="log-probability")[0].score < 0
    for wrong in (None, "active", 2, -1):
        with pytest.raises(TargetError, match="expected one of toxic, soluble"):
            both.explain(["CCO"], target=wrong)


def test_numbers_have_no_probability() -> None:
    model, own, _ = linear()
    assert model.predict(["C"])[0, 0] == pytest.approx(float(own[1]))
    with pytest.raises(OptionError, match="expected one of logit"):
        model.explain(["C"], score="probability")


def test_molecules_of_rdkit_lose_their_hydrogens() -> None:
    model = weave(1)
    with_hydrogens = Chem.AddHs(Chem.MolFromSmiles("CCO"))
    given, written = model.explain([with_hydrogens])[0], model.explain(["CCO"])[0]
    assert given.smiles == "CCO"
    assert given.mol.GetNumAtoms() == 3
    np.testing.assert_allclose(given.atoms, written.atoms, rtol=1e-9)


def test_what_cannot_be_explained() -> None:
    model = weave(1)
    with pytest.raises(InputError, match="no molecule"):
        model.explain([])
    with pytest.raises(InputError, match="C1CC"):
        model.explain(["CCO", "C1CC"])
    with pytest.raises(InputError, match="got a int"):
        model.explain([3])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="'baseline'"):
        model.explain(["C"], baseline=1)
    with pytest.raises(OptionError, match="batch=0"):
        model.explain(["C"], batch=0)
    two = GraphModel(model.network, "simple", ("a", "b"))
    for asked in (lambda: two.predict(["CCO"]), lambda: two.explain(["CCO"], target="a")):
        with pytest.raises(OutputError, match=r"expected \(molecules, 2\)"):
            asked()
    with pytest.raises(OptionError, match="weave-w2n2"):
        molecules.load("weave-w3n3")


def test_a_tolerance_that_is_missed_is_said_once() -> None:
    with pytest.warns(ConvergenceWarning, match="2 of 2") as said:
        found = weave(2).explain([ASPIRIN, CAFFEINE], tol=1e-6, max_evaluations=20, batch=1)
    assert len(said) == 1
    assert not any(one.certificate.converged for one in found)


def test_progress_counts_molecules() -> None:
    seen: list[tuple[int, int]] = []
    linear()[0].explain(MOLECULES[:5], batch=2, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_views_of_a_result() -> None:
    result = made("CCO", [1, 2, 4], pairs={(0, 1): 8.0, (1, 2): -16.0, (0, 2): 32.0}, others={"weight": 64.0})
    assert result.bonds.tolist() == [0, 1, -1]
    assert result.pairs.tolist() == [[0, 8, 32], [8, 0, -16], [32, -16, 0]]
    assert result.per_atom.tolist() == [1 + 20, 2 - 4, 4 + 8]
    assert result.total == 95
    assert result.magnitude == 127
    assert result.change == pytest.approx(95)
    text = str(result)
    assert "atoms +7, bonds -8, other pairs +32, weight +64" in text
    assert "converged" in text
    assert "C0 +21" in text


def test_results_with_shapes_that_do_not_fit() -> None:
    known = made("CCO", [1, 2, 3])
    for atoms, ends, pairs in (
        (np.zeros((2, 1)), np.zeros((0, 2)), np.zeros((0, 1))),
        (np.zeros((3, 1)), np.zeros((1, 2)), np.zeros((1, 1))),
        (np.zeros((3, 1)), np.array([[0, 1], [1, 0]]), np.zeros((2, 1))),
        (np.zeros((3, 1)), np.array([[0, 3]]), np.zeros((1, 1))),
        (np.zeros((3, 1)), np.array([[0, 1]]), np.zeros((2, 1))),
    ):
        with pytest.raises(InputError, match="expected"):
            MoleculeAttribution("CCO", known.mol, "", atoms, ends, pairs, known.certificate)


def test_rows_add_up_and_are_written(tmp_path: Path) -> None:
    results = [made(smiles, seed=i, others={"weight": 0.5}) for i, smiles in enumerate(MOLECULES)]
    for result in results:
        rows = result.rows()
        assert sum(row["value"] for row in rows) == pytest.approx(result.total)
        assert sum(row["total"] for row in rows if row["kind"] in ("atom", "other")) == pytest.approx(result.total)
        bonds = [row for row in rows if row["kind"] == "bond"]
        assert [row["index"] for row in bonds] == list(range(result.mol.GetNumBonds()))
        for row in bonds:
            bond = result.mol.GetBondWithIdx(row["index"])
            assert {row["begin"], row["end"]} == {bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()}
    where = molecules.write_csv(results, tmp_path / "all.csv")
    with where.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == sum(len(one.rows()) for one in results)
    assert sum(float(row["value"]) for row in read) == pytest.approx(sum(one.total for one in results))


def test_it_is_saved_by_its_ending(tmp_path: Path) -> None:
    result = weave(2, "full").explain([ASPIRIN], columns=True)[0]
    known = json.loads(result.save(tmp_path / "a.json").read_text(encoding="utf-8"))
    assert known["smiles"] == ASPIRIN
    assert known["certificate"]["status"] == "converged"
    assert np.sum(known["atom_features"]["values"]) == pytest.approx(result.atoms.sum())
    assert known["account"]["change"] == pytest.approx(result.change)
    assert result.save(tmp_path / "a.svg").read_text(encoding="utf-8").lstrip().startswith(("<svg", "<?xml"))
    assert result.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = result.save(tmp_path / "a.html", command="integrand molecule x").read_text(encoding="utf-8")
    assert "integrand molecule x" in page
    assert "functional group" in page
    assert "in no ring" in page
    assert len(result.save(tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()) == 1 + len(result.rows())
    with pytest.raises(OptionError, match=r"\.html, \.svg"):
        result.save(tmp_path / "a.mol")
    with pytest.raises(OptionError, match="for pages and pictures"):
        result.save(tmp_path / "a.csv", command="x")


@pytest.mark.parametrize("outputs", ["active", ()])
def test_outputs_are_a_name_for_each_number(outputs: Any) -> None:
    with pytest.raises(OptionError, match=r"expected a name for each number, such as \('active',\)"):
        GraphModel(lambda *given: given[0].sum((1, 2))[:, None], "simple", outputs)


def test_the_scale_of_the_score_is_known() -> None:
    """A quantity is neither a probability nor a logit; a logit says so."""

    def heavy(atoms, pairs, ends, there, near):  # type: ignore[no-untyped-def]
        return atoms.sum((1, 2))[:, None]

    one = GraphModel(heavy, "simple", ("heavy atoms",), logits=False).explain(["CCO"])[0]
    assert one.scale == ""
    assert one.answer == "Heavy atoms 3"
    assert "logit" not in one.page()
    weighed = GraphModel(heavy, "simple", ("active",))
    assert weighed.explain(["CCO"], score="logit")[0].answer == "Active (logit) 3"
    assert weighed.explain(["CCO"])[0].answer == "Active (95%)"
