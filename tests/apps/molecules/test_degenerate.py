"""Atoms that a network cannot tell apart: found where they are known to be, and nowhere else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rdkit import Chem

from integrand.apps import molecules
from integrand.apps.molecules import find_degenerate
from integrand.apps.molecules.degenerate import Alike, Degenerate, neighbourhoods
from integrand.errors import InputError, OptionError

from .attributed import ASPIRIN, CAFFEINE, made, weave

DRUGS = (ASPIRIN, CAFFEINE, "CC(C)Cc1ccc(cc1)C(C)C(=O)O", "CCOC(=O)c1ccc(N)cc1", "CN(C)CCc1c[nH]c2ccccc12", "OCC(O)CNC(=O)CCS")


def pair_counts(smiles: str) -> list[tuple[str, ...]]:
    """What W1N2 with simple features knows of each atom: its element and the kinds of its pairs within two bonds."""
    mol = Chem.MolFromSmiles(smiles)
    distance = Chem.GetDistanceMatrix(mol)
    known = []
    for atom in mol.GetAtoms():
        i = atom.GetIdx()
        bonds = sorted(str(bond.GetBondType()) for bond in atom.GetBonds())
        known.append((atom.GetSymbol(), *bonds, str(int((distance[i] == 2).sum()))))
    return known


@pytest.mark.parametrize("seed", [0, 1])
def test_one_module_has_exactly_the_atoms_of_one_type_with_the_same_bond_counts(seed: int) -> None:
    """Predicted from the architecture alone: the same element and pairs, in different neighbourhoods."""
    found = find_degenerate(weave(1, seed=seed), DRUGS, score="logit")
    expected = set()
    for i, smiles in enumerate(DRUGS):
        known, around = pair_counts(smiles), neighbourhoods(Chem.MolFromSmiles(smiles), 2)
        for kind in set(known):
            atoms = tuple(k for k, one in enumerate(known) if one == kind)
            if len({around[k] for k in atoms}) > 1:
                expected.add((i, atoms))
    assert {(one.molecule, one.atoms) for one in found} == expected
    assert len(expected) > 5
    assert found.affected_molecules == len({i for i, _ in expected})
    assert found.affected_atoms == sum(len(atoms) for _, atoms in expected)
    assert found.molecules == len(DRUGS)


@pytest.mark.parametrize(("modules", "features"), [(2, "simple"), (1, "full"), (2, "full")])
def test_two_modules_or_the_full_features_have_none(modules: int, features: str) -> None:
    found = find_degenerate(weave(modules, features), DRUGS, score="logit")
    assert not found
    assert found.remedy == ""
    assert str(found).startswith("None of 6 molecule(s)")


@pytest.mark.parametrize(("features", "expected"), [("simple", {(2, 8), (3, 7), (4, 6)}), ("full", set())])
def test_two_modules_cannot_see_what_no_feature_tells(features: str, expected: set[tuple[int, int]]) -> None:
    """Benzimidazole: without hydrogens N and NH are the same, and so are the two sides of the molecule.

    Atoms 0 and 1 have no nitrogen within two bonds, and the same surroundings; atom 5 is its own mirror image.
    """
    found = find_degenerate(weave(2, features), ["c1ccc2[nH]cnc2c1"], score="logit")
    assert {one.atoms for one in found} == expected


def test_it_is_not_the_integration_that_makes_them_equal() -> None:
    """Coarse or fine, with features one by one or added up, the atoms are the same."""
    model = weave(1)
    classes = [
        [(one.molecule, one.atoms) for one in find_degenerate(model, DRUGS[:3], **options)]
        for options in ({"tol": 0.2}, {"tol": 1e-3}, {"columns": True}, {"radius": 3})
    ]
    assert classes[0] == classes[1] == classes[2]
    assert classes[0]
    assert set(classes[0]) <= set(classes[3])  # a larger neighbourhood differs more often


def test_symmetric_atoms_are_not_reported() -> None:
    assert not find_degenerate(weave(1), ["c1ccccc1", "CC(C)(C)C", "OC(=O)CCC(=O)O", "[Na+].[Cl-]"])


def test_equal_by_hand() -> None:
    """Chloro-propanol: C0, C1, C2 in different places. Equal values, unequal ones, and values that are nearly equal."""
    equal = find_degenerate([made("OCCCCl", [9.0, 1.0, 2.0, 1.0, 5.0])])
    assert [(one.atoms, one.value) for one in equal] == [((1, 3), 1.0)]
    assert not find_degenerate([made("OCCCCl", [9.0, 1.0, 2.0, 1.0 + 1e-7, 5.0])])
    assert find_degenerate([made("OCCCCl", [9.0, 1.0, 2.0, 1.0 + 1e-7, 5.0], precision="float32")])
    assert find_degenerate([made("OCCCCl", [9.0, 1.0, 2.0, 1.0 + 1e-7, 5.0])], rtol=1e-6)
    assert not find_degenerate([made("OCCCCl", [9.0, 0.0, 2.0, 0.0, 5.0])])  # what adds nothing is no evidence


def test_sums_that_agree_by_chance_do_not_count() -> None:
    one = made("OCCCCl", columns=2)
    features = np.array([[9.0, 1], [1, 2], [5, 5], [2, 1], [0, 7]])  # atoms 1 and 3 both add 3
    object.__setattr__(one, "atom_features", features)
    assert not find_degenerate([one])


def test_pairs_are_looked_at_in_any_order() -> None:
    chain = {(0, 1): 1.0, (1, 2): 2.0, (2, 3): 2.0, (3, 4): 1.0}
    values = [9.0, 1.0, 2.0, 1.0, 5.0]
    assert find_degenerate([made("OCCCCl", values, pairs=chain)]).found[0].pairs_too
    assert not find_degenerate([made("OCCCCl", values, pairs=chain | {(3, 4): 1.5})]).found[0].pairs_too


def test_neighbourhoods() -> None:
    assert neighbourhoods(Chem.MolFromSmiles("CCCCO"), 0)[:3] == [0, 1, 1]
    near = neighbourhoods(Chem.MolFromSmiles("CCCCCCCCCO"), 2)
    assert near[3] == near[4] == near[5] == near[6] != near[7]  # the oxygen is three bonds from 6 and two from 7
    for smiles in DRUGS:  # symmetric atoms look the same at any radius
        mol = Chem.MolFromSmiles(smiles)
        ranks = list(Chem.CanonicalRankAtoms(mol, breakTies=False))
        for radius in (0, 1, 2, 5):
            around = neighbourhoods(mol, radius)
            assert len(set(zip(ranks, around, strict=True))) == len(set(ranks))


def test_what_is_said_of_them() -> None:
    found = find_degenerate([made("OCCCCl", [9.0, 1.0, 2.0, 1.0, 5.0]), made("CCO", [1.0, 2.0, 3.0])])
    text = str(found)
    assert text.startswith("1 of 2 molecule(s)")
    assert "2 of 8 atoms (25%)" in text
    assert "second Weave module" in text
    assert "1 in [CH2]([OH])[CH2][CH2]" in text
    assert "3 in [CH2]([Cl])[CH2][CH2]" in text
    known = json.loads(json.dumps(found.to_dict()))
    assert known["affected_molecules"] == 1
    assert known["found"][0]["atoms"] == [1, 3]


def test_what_cannot_be_looked_at() -> None:
    with pytest.raises(InputError, match="without molecules"):
        find_degenerate(weave(1))
    with pytest.raises(InputError, match="no result"):
        find_degenerate([])
    with pytest.raises(OptionError, match="results alone"):
        find_degenerate([made("CCO")], ["CCO"])
    with pytest.raises(OptionError, match="radius=-1"):
        find_degenerate([made("CCO")], radius=-1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("weave-w1n2-simple", True), ("weave-w2n2-simple", False), ("weave-w1n2", False), ("weave-w2n2", False)],
)
def test_the_trained_networks(name: str, expected: bool) -> None:
    """The paper's finding, on the networks that are shipped: one module cannot tell atoms apart that two modules can."""
    found = find_degenerate(molecules.load(name, "cpu"), DRUGS, tol=0.2)
    assert bool(found) == expected
    if found:  # benzocaine: the ring atoms next to the ester and next to the amine
        assert (6, 7, 10, 11) in [one.atoms for one in found if one.molecule == DRUGS.index("CCOC(=O)c1ccc(N)cc1")]


def test_one_sentence() -> None:
    alike = Degenerate((Alike(0, "CCO", (0, 1), 0.1, ("C", "O"), False),), 2, 8, 2, 1e-9)
    assert alike.sentence == (
        "The network cannot tell 2 of 8 atoms (25%) from others in other places, in 1 of 2 molecule(s); "
        "attributions compared to 1e-09."
    )
    assert Degenerate((), 2, 8, 2, 1e-9).sentence.startswith("The network tells all atoms apart, in 2 molecule(s) of 8 atoms")
