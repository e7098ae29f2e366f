"""Features of molecules against values counted by hand."""

from __future__ import annotations

import math

import pytest
import torch
from rdkit import Chem

from integrand.apps.molecules.molgraph import ATOM_FEATURES, PAIR_FEATURES, Graph, collate, graph, listed, parse, read
from integrand.errors import InputError, OptionError

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def made(smiles: str) -> Graph:
    return graph(parse(smiles))


def atom(one: Graph, name: str) -> list[float]:
    """A column of the atoms' features."""
    return one.atoms[:, ATOM_FEATURES["full"].index(name)].tolist()


def where(one: Graph, name: str) -> set[int]:
    """The atoms with that feature."""
    return {i for i, value in enumerate(atom(one, name)) if value}


def pair(one: Graph, name: str) -> set[tuple[int, ...]]:
    """The pairs with that feature."""
    column = one.pairs[:, PAIR_FEATURES["full"].index(name)]
    return {tuple(ends) for ends, value in zip(one.ends.tolist(), column.tolist(), strict=True) if value}


def test_the_sets_have_the_sizes_of_the_paper() -> None:
    assert len(ATOM_FEATURES["full"]) == len(set(ATOM_FEATURES["full"])) == 27
    assert len(PAIR_FEATURES["full"]) == len(set(PAIR_FEATURES["full"])) == 12
    assert len(ATOM_FEATURES["simple"]) == 11
    assert len(PAIR_FEATURES["simple"]) == 11


def test_aspirin() -> None:
    one = made(ASPIRIN)
    assert where(one, "atom C") == {0, 1, 4, 5, 6, 7, 8, 9, 10}
    assert where(one, "atom O") == {2, 3, 11, 12}
    assert where(one, "aromatic") == where(one, "rings of 6") == {4, 5, 6, 7, 8, 9}
    assert where(one, "donor") == {12}
    assert where(one, "acceptor") == {2, 3, 11}
    assert 0 in where(one, "sp3")
    assert {1, 4, 5, 6, 7, 8, 9, 10} <= where(one, "sp2")
    assert pair(one, "bond single") == {(0, 1), (1, 3), (3, 4), (9, 10), (10, 12)}
    assert pair(one, "bond double") == {(1, 2), (10, 11)}
    assert pair(one, "bond aromatic") == {(4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (4, 9)}
    # Two atoms around each of 5 atoms with two neighbours, three around each of 4 with three: 17 pairs at distance two.
    assert len(one.pairs) == 13 + 17
    assert pair(one, "distance <= 1") == {tuple(ends) for ends in one.ends[one.bond >= 0].tolist()}
    assert all(len(pair(one, f"distance <= {far}")) == 30 for far in range(2, 8))
    assert len(pair(one, "same ring")) == 6 + 6


def test_every_bond_is_named_and_lies_between_its_atoms() -> None:
    one = made("C[C@H](Cl)c1ccc2[nH]ccc2c1.[Na+].O=S(=O)([O-])C#N")
    bonds = {bond.GetIdx(): sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())) for bond in one.mol.GetBonds()}
    named = [(int(bond), ends) for bond, ends in zip(one.bond, one.ends.tolist(), strict=True) if bond >= 0]
    assert dict(named) == bonds
    assert len(named) == len(bonds)


def test_pyridine() -> None:
    one = made("c1ccncc1")
    assert where(one, "atom N") == where(one, "acceptor") == {3}
    assert not where(one, "donor")
    assert atom(one, "rings of 6") == [1] * 6
    assert len(one.pairs) == len(pair(one, "same ring")) == 12
    assert atom(one, "partial charge")[3] == min(atom(one, "partial charge")) < 0


def test_a_salt_has_no_pairs_between_its_ions() -> None:
    one = made("[Na+].CC(=O)[O-]")
    assert where(one, "atom metal") == {0}
    assert atom(one, "formal charge") == [1, 0, 0, 0, -1]
    assert one.ends.tolist() == [[1, 2], [1, 3], [1, 4], [2, 3], [2, 4], [3, 4]]
    assert atom(one, "partial charge")[3] == pytest.approx(atom(one, "partial charge")[4])  # resonance


@pytest.mark.parametrize(("smiles", "label"), [("N[C@@H](C)C(=O)O", "S"), ("N[C@H](C)C(=O)O", "R")])
def test_alanine_is_left_or_right_handed(smiles: str, label: str) -> None:
    one = made(smiles)
    assert where(one, f"chirality {label}") == {1}
    assert not where(one, f"chirality {'R' if label == 'S' else 'S'}")


def test_nitromethane_is_charged() -> None:
    one = made("C[N+](=O)[O-]")
    assert atom(one, "formal charge") == [0, 1, 0, -1]
    assert pair(one, "bond double") == {(1, 2)}


def test_rings_are_counted_by_size() -> None:
    naphthalene, cyclopropane = made("c1ccc2ccccc2c1"), made("C1CC1")
    assert sorted(atom(naphthalene, "rings of 6")) == [1] * 8 + [2] * 2
    assert atom(cyclopropane, "rings of 3") == [1, 1, 1]
    assert pair(cyclopropane, "distance <= 1") == pair(cyclopropane, "same ring") == {(0, 1), (0, 2), (1, 2)}
    assert not any(where(made("C1CCCCCCCC1"), f"rings of {size}") for size in range(3, 9))


def test_hybridisation_and_triple_bonds() -> None:
    one = made("CC#N")
    assert (where(one, "sp3"), where(one, "sp")) == ({0}, {1, 2})
    assert pair(one, "bond triple") == {(1, 2)}


@pytest.mark.parametrize(("smiles", "name"), [("[Cl-]", "atom Cl"), ("[K+]", "atom metal"), ("[H+]", "atom H")])
def test_an_ion_alone_has_no_pairs(smiles: str, name: str) -> None:
    one = made(smiles)
    assert where(one, name) == {0}
    assert one.pairs.shape == (0, 12)
    assert one.ends.shape == (0, 2)
    batch = collate([one])
    assert batch.pairs.shape == (1, 1, 12)
    assert not batch.near.any()


@pytest.mark.parametrize("smiles", ["C[Hg]C", "C[Se]C", "*CC", "N[Pt](N)(Cl)Cl", "[Fe]", "CB(O)O"])
def test_charges_that_are_not_defined_are_zero(smiles: str) -> None:
    assert all(math.isfinite(value) for value in atom(made(smiles), "partial charge"))


def test_elements_without_a_column_have_none() -> None:
    one = made("C[Si](C)(C)C")
    assert one.atoms[1, :11].sum() == 0
    assert where(one, "sp3") == set(range(5))


def test_a_hundred_and_fifty_atoms() -> None:
    one = made("C" * 150)
    assert one.atoms.shape == (150, 27)
    assert len(one.pairs) == 149 + 148


def test_the_simple_set_is_a_part_of_the_full_one() -> None:
    mol = parse(ASPIRIN)
    full, simple = graph(mol), graph(mol, "simple")
    assert torch.equal(simple.atoms, full.atoms[:, :11])
    assert torch.equal(simple.pairs, full.pairs[:, :11])
    assert ATOM_FEATURES["full"][:11] == ATOM_FEATURES["simple"]
    assert PAIR_FEATURES["full"][:11] == PAIR_FEATURES["simple"]


def test_the_molecule_stays_as_it_was() -> None:
    mol = parse(ASPIRIN)
    before = mol.ToBinary(Chem.PropertyPickleOptions.AllProps)
    assert graph(mol).mol is mol
    assert mol.ToBinary(Chem.PropertyPickleOptions.AllProps) == before


def test_a_batch_holds_its_graphs_and_zeros() -> None:
    graphs = [made(smiles) for smiles in (ASPIRIN, "[Cl-]", "C[N+](=O)[O-]")]
    batch = collate(graphs)
    for i, one in enumerate(graphs):
        assert torch.equal(batch.atoms[i][batch.there[i]], one.atoms)
        assert torch.equal(batch.pairs[i][batch.near[i]], one.pairs)
        assert torch.equal(batch.ends[i][batch.near[i]], one.ends)
        assert not batch.atoms[i][~batch.there[i]].any()
        assert not batch.pairs[i][~batch.near[i]].any()
    assert batch.to("cpu").there.equal(batch.there)


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("C1CC", "unclosed ring"),
        ("c1cccc1", "kekulize"),
        ("C(C)(C)(C)(C)C", "greater than permitted"),
        ("CC(=O)O.[Na", "position 11"),
        ("", "no atoms"),
    ],
)
def test_what_is_no_smiles_is_told_in_one_line(smiles: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        parse(smiles)
    assert repr(smiles) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_bad_calls() -> None:
    with pytest.raises(InputError, match="expected a string"):
        parse(None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no graphs"):
        collate([])
    with pytest.raises(OptionError, match="'full' or 'simple'"):
        graph(parse("C"), "rich")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="without atoms"):
        graph(Chem.Mol())
    with pytest.raises(InputError, match="the same set"):
        collate([graph(parse("C")), graph(parse("C"), "simple")])


@pytest.mark.parametrize(
    "smiles", ["CC\u041e", "\u540dC", "CC\u2212C", "C\u00e9C name", "C\x02C", "F<&Z#\x18\ufffd\x021^N\ufffd\u072c\u0451"]
)
def test_signs_that_smiles_do_not_have_are_said(smiles: str) -> None:
    with pytest.raises(InputError, match="which SMILES do not have"):  # RDKit takes the Cyrillic O for the end
        parse(smiles)
    assert parse("CCO caf\u00e9").GetNumAtoms() == 3  # a name behind it may have any


def test_molecules_of_rdkit_get_the_features_of_their_smiles() -> None:
    kekulised, raw = Chem.MolFromSmiles("Oc1ccccc1"), Chem.MolFromSmiles("Oc1ccccc1", sanitize=False)
    Chem.Kekulize(kekulised, clearAromaticFlags=True)
    for mol in (kekulised, raw):
        smiles, found = read(mol)
        assert smiles == "Oc1ccccc1"
        assert torch.equal(graph(found).atoms, graph(parse("Oc1ccccc1")).atoms)
    assert not any(atom.GetIsAromatic() for atom in kekulised.GetAtoms())  # left as it was
    with pytest.raises(InputError, match="cannot sanitise"):
        read(Chem.MolFromSmiles("C(C)(C)(C)(C)C", sanitize=False))


def test_one_molecule_needs_no_list() -> None:
    mol = Chem.MolFromSmiles("CCO")
    assert listed(mol) == [mol]
    assert listed("CCO") == ["CCO"]
