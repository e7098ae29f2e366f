"""Every account adds up to the change of the score, whatever overlaps."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem, rdBase
from rdkit.Chem import Fragments

from benchmarks import molecule_accounts
from integrand.apps.molecules import MoleculeAttribution, Part, account
from integrand.apps.molecules.accounting import MISSED, fragments, matches, rings
from integrand.apps.molecules.chemical_groups import FRAGMENTS, chemical_groups, ring_name
from integrand.apps.molecules.result import draws_of, kept_draws
from integrand.certificate import Status
from integrand.errors import InputError

from .attributed import ASPIRIN, CAFFEINE, MOLECULES, made, weave

PATTERNS = {"carbonyl": "C=O", "acid": "C(=O)[OX2]", "aromatic": "c", "nitrogen": "[#7]"}


def named(parts: tuple[Part, ...]) -> dict[str, Part]:
    return {part.name: part for part in parts}


@pytest.mark.parametrize("smiles", MOLECULES)
@pytest.mark.parametrize("others", [{}, {"logP": 0.7, "weight": -0.4}])
def test_every_section_adds_up(smiles: str, others: dict[str, float]) -> None:
    for seed in range(5):
        result = made(smiles, seed=seed, others=others, residual=0.003, columns=3)
        found = account(result, smarts=PATTERNS)
        assert list(found.sections) == ["kind", "element", "group", "functional group", "ring", "ring system", "pattern"]
        for parts in found.sections.values():
            assert math.fsum(part.value for part in parts) == pytest.approx(result.change, abs=1e-12)
            assert named(parts)[MISSED].value == pytest.approx(-0.003)
            if found.share_error is not None:
                assert math.fsum(part.share or 0.0 for part in parts) == pytest.approx(1)
                assert all(part.share == pytest.approx(part.value / result.change) for part in parts)


def test_kinds_and_elements_by_hand() -> None:
    pairs = {(0, 1): 8.0, (1, 2): 16.0, (0, 2): 32.0}
    found = account(made("CCO", [1, 2, 4], pairs=pairs, others={"weight": 64.0}))
    assert {part.name: part.value for part in found["kind"]} == {
        "atoms": 7,
        "bonded pairs": 24,
        "other pairs": 32,
        "others": 64,
        MISSED: pytest.approx(0, abs=1e-12),
    }
    elements = named(found["element"])
    assert elements["C"].value == 1 + 2 + (8 + 32) / 2 + (8 + 16) / 2
    assert elements["O"].value == 4 + (16 + 32) / 2
    assert found.part("kind", "bonded pairs").share == pytest.approx(24 / 127)
    assert found.share_error == pytest.approx(0.01)  # nothing cancels, so that the error is that of the attributions


def test_what_overlaps_is_divided_and_what_is_undivided_is_told() -> None:
    """Acetic acid: C1 and O2 are in both patterns, O3 in one, C0 in none."""
    found = named(account(made("CC(=O)O", [1, 2, 4, 8]), smarts={"a": "C=O", "b": "C(=O)[OH]"})["pattern"])
    assert (found["a"].value, found["a"].whole, found["a"].atoms) == (3, 6, (1, 2))
    assert (found["b"].value, found["b"].whole, found["b"].atoms) == (11, 14, (1, 2, 3))
    assert found["in no pattern"].value == 1


def test_several_matches_count_each_atom_once() -> None:
    found = named(account(made("CCC", [1, 2, 4]), smarts={"two": "CC"})["pattern"])
    assert (found["two"].count, found["two"].whole, found["two"].value) == (2, 7, 7)
    assert "in no pattern" not in found


def test_rings_and_ring_systems() -> None:
    values = [float(2**i) for i in range(11)]
    naphthalene = account(made("Cc1ccc2ccccc2c1", values))
    rings = [part for part in naphthalene["ring"] if part.count == 1 and part.atoms != (0,) and part.name != MISSED]
    assert [len(part.atoms) for part in rings] == [6, 6]
    fused = set(rings[0].atoms) & set(rings[1].atoms)
    assert len(fused) == 2
    for part in rings:
        assert part.value == sum(values[i] / (2 if i in fused else 1) for i in part.atoms)
        assert part.whole == sum(values[i] for i in part.atoms)
    systems = [part for part in naphthalene["ring system"] if len(part.atoms) == 10]
    assert len(systems) == 1
    assert systems[0].value == sum(values[1:])
    biphenyl = account(made("c1ccccc1-c1ccccc1"))
    assert sum(len(part.atoms) == 6 for part in biphenyl["ring system"]) == 2
    spiro = account(made("C1CCC2(C1)CCCC2"))
    assert sum(len(part.atoms) == 9 for part in spiro["ring system"]) == 1


def test_functional_groups_are_those_that_rdkit_counts() -> None:
    counted = dict(Fragments.fns)
    names = [line.split("\t")[0] for line in Path(Fragments.defaultPatternFileName).read_text().splitlines() if "\t" in line]
    own = {FRAGMENTS.get(name[3:], name[3:]): name.replace("=", "_").replace("-", "_") for name in names if name[0] == "f"}
    assert len(own) == len(counted) == len(fragments())  # no two share a name
    assert not any("_" in name for name in fragments())
    for smiles in (*MOLECULES, "NS(=O)(=O)c1ccc(cc1)[N+](=O)[O-]", "O=C1CCCO1"):
        mol = made(smiles).mol
        found = matches(mol, fragments())
        for name, rows in found.items():
            assert len(rows) == counted[own[name]](mol)
        assert {name for name, count in counted.items() if count(mol)} == {own[name] for name in found}


def test_shares_of_next_to_nothing_are_not_given() -> None:
    flat = account(made("CCO", [3.0, -3.0, 0.1]))
    assert flat.share_error is None
    assert all(part.share is None for parts in flat.sections.values() for part in parts)
    assert "%" not in str(flat)
    assert "shares of it would say nothing" in str(flat)
    steep = account(made("CCO", [3.0, -1.0, 0.1]))
    assert steep.part("kind", "atoms").share == pytest.approx(1)
    assert steep.share_error == pytest.approx(0.01 * 4.1 / 2.1)
    assert account(made("CCO", [0.0, 0.0, 0.0])).share_error is None


def test_patterns_that_cannot_be_read() -> None:
    for smarts in ("C(", "", 3):
        with pytest.raises(InputError, match="'wrong'"):
            account(made("CCO"), smarts={"fine": "C", "wrong": smarts})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="expected a dict"):
        account(made("CCO"), smarts="CO")  # type: ignore[arg-type]


def test_what_is_not_there() -> None:
    found = account(made(ASPIRIN))
    with pytest.raises(InputError, match="expected one of kind"):
        found["bond"]
    with pytest.raises(InputError, match="atoms, bonded pairs"):
        found.part("kind", "bonds")


def test_as_tables() -> None:
    found = account(made(CAFFEINE, seed=3), smarts=PATTERNS)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["sections"]["element"][0]["name"] in "CNO"
    rows = [row for row in found.rows() if row["section"] == "kind" or row["name"] != "not accounted for"]
    lines = found.lines()
    assert [(row["section"], row["name"], row["value"], row["share"]) for row in rows] == [
        (line.kind, line.name, line.value, line.share) for line in lines
    ]
    text = str(found)
    assert "by ring system" in text
    assert "imidazole" in text
    assert "undivided" in text


def test_a_page_gives_shares_only_where_the_account_does() -> None:
    """Ethanol: 9 of 10 cancel, so that oxygen would have 1000% of the change; then the same without what cancels."""
    flat, steep = made("CCO", [-4.75, 0.0, 5.0]), made("CCO", [0.0, 0.0, 5.0])
    assert {line.share for line in account(flat).lines()} == {None}
    assert ("element", "O", 5.0, 1.0) in [(one.kind, one.name, one.value, one.share) for one in account(steep).lines()]
    tables = [re.search(r'<table class="accounts">.*?</table>', one.page(), re.S)[0] for one in (flat, steep)]  # type: ignore[index]
    assert ["%" in table for table in tables] == ["of the change" in table for table in tables] == [False, True]
    assert "are not given" in flat.page()


def test_notes_speak_of_what_is_there() -> None:
    divided = [any(line.whole is not None for line in found.lines()) for found in map(account, (made("CC"), made(CAFFEINE)))]
    assert divided == [False, True]
    assert "undivided" not in made("CC").page()
    assert "undivided) </td>" not in made(CAFFEINE).page()
    assert made(CAFFEINE).page().count("undivided") > 1  # the note, and the lines that it speaks of
    assert "half" not in " ".join(account(made("[Na+].[Cl-]", [1.0, 2.0])).notes)


def test_the_distribution_over_the_actives(tmp_path: Path) -> None:
    """Three molecules whose shares are known, and one without shares."""
    chosen = [((0, 1), 1.0, 3.0), ((0, 1), 2.0, 2.0), ((0, 1), 4.0, 0.0)]
    results = [made("CC", [atoms, 0.0], pairs={pair: value}) for pair, atoms, value in chosen]
    found = molecule_accounts.summed_up([*results, made("CC", [1.0, -1.0])])
    assert (found["molecules"], found["with shares"], found["converged"]) == (4, 3, 4)
    assert found["shares"]["atoms"]["50%"] == pytest.approx(0.5)
    assert found["shares"]["bonded pairs"]["mean"] == pytest.approx((0.75 + 0.5 + 0) / 3)
    assert found["shares"]["other pairs"]["95%"] == 0
    molecule_accounts.draw(found["raw"], tmp_path / "a.png", "three")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_actives_are_drawn_once_each(tmp_path: Path) -> None:
    rows = "smiles,label\nC,1\nCC,0\nCCC,1.0\nC1CC,1\nCCCC,\n"
    (tmp_path / "a.csv").write_text(rows, encoding="utf-8")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(rows.encode()))
    for name in ("a.csv", "a.csv.gz"):
        assert sorted(molecule_accounts.actives(tmp_path / name, 10)) == ["C", "CCC"]
    assert len(molecule_accounts.actives(tmp_path / "a.csv", 1)) == 1


def test_patterns_that_are_not_there_are_said() -> None:
    found = account(made(ASPIRIN), smarts={"ester": "C(=O)OC", "acid": "C(=O)[OH]"})
    assert found.absent == ("ester",)  # aliphatic carbon only
    assert found.notes[-1] == "Not in this molecule: ester."
    assert found.to_dict()["absent"] == ["ester"]


README = "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1"


def test_groups_have_the_names_that_chemists_use() -> None:
    found = account(made(README))
    groups = {part.name: (part.count, part.atoms) for part in found["group"] if part.name != MISSED}
    assert groups == {
        "benzothiazole": (1, tuple(range(9, 18))),
        "benzene ring": (1, (2, 3, 4, 5, 22, 25)),
        "1,4-dioxane ring": (1, (18, 19, 20, 21)),
        "amide": (1, (6, 7, 8)),
        "methoxy group": (2, (0, 1, 23, 24)),
    }
    methoxy = found.part("group", "methoxy group")
    assert sum(methoxy.each) == pytest.approx(methoxy.value)
    assert {part.name for part in found["ring system"]} >= {"benzene ring at 2-5,22,25", "fused ring of 13 atoms at 9-21"}


@pytest.mark.parametrize(
    ("smiles", "names"),
    [
        (CAFFEINE, {"xanthine", "methyl group"}),
        ("O=C1c2ccccc2C(=O)N1CCN1CCOCC1", {"phthalimide", "morpholine ring", "alkyl chain"}),
        ("CC12CCC3C(CCC4=CC(=O)CCC34C)C1CCC2O", {"steroid", "hydroxyl", "methyl group"}),
        ("NS(=O)(=O)c1ccc([N+](=O)[O-])cc1C#N", {"sulphonamide", "benzene ring", "nitro group", "nitrile"}),
        ("O=c1cccc[nH]1", {"pyridone ring"}),
        ("C1CNCCN1.Cl", {"piperazine ring", "chlorine"}),
        ("[Na+].[Cl-]", {"sodium ion", "chloride"}),
        ("C1CCCCCCCCCCCCC1", {"macrocycle of 14 atoms"}),
        ("C1=CSC=CN1", {"six-membered ring with N, S"}),
    ],
)
def test_rings_and_groups_by_name(smiles: str, names: set[str]) -> None:
    assert set(chemical_groups(made(smiles).mol)) == names


@pytest.mark.parametrize("name", ["bbbp", "pcba_588342", "tox21"])
def test_every_atom_of_real_molecules_is_in_one_group_with_a_readable_name(name: str, data: Callable[[str], Path]) -> None:
    """The first 200 molecules of each file: groups, fragments and rings have names without underscores."""
    with gzip.open(data(f"molecules/{name}.csv.gz"), "rt", encoding="utf-8") as file:
        smiles = [row["smiles"] for row in islice(csv.DictReader(file), 200)]
    with rdBase.BlockLogs():
        mols = [mol for mol in map(Chem.MolFromSmiles, smiles) if mol is not None]
    assert len(mols) > 180
    names = set()
    for mol in mols:
        found = chemical_groups(mol)
        assert sorted(i for rows in found.values() for row in rows for i in row) == list(range(mol.GetNumAtoms()))
        names |= {*found, *matches(mol, fragments())} | {ring_name(mol, ring) for ring in rings(mol)}
    assert len(names) > 100
    assert not [one for one in names if "_" in one]


def test_sentences() -> None:
    one = replace(made(README, [0.01] * 17 + [0.3] + [0.0] * 8), scale="probability")
    one = replace(one, certificate=replace(one.certificate, score=0.85))
    assert one.sentence == "Active (85%): because of the benzothiazole (above all its sulphur); numbers good to 1%."
    low = replace(one, certificate=replace(one.certificate, score=0.12))
    assert low.sentence == "Not active (active: 12%): despite the benzothiazole (above all its sulphur); numbers good to 1%."
    label = "Aqueous Solubility (Solubility_AqSolDB, log(mol/L))"
    grams = replace(made("CCO", [-1.0, 0.0, 3.0]), label=label, units="log(mol/L)")
    said = (
        "Aqueous Solubility 2.3 log(mol/L): raised most by the hydroxyl, lowered most by the ethyl group; numbers good to 1%."
    )
    assert grams.sentence == said
    assert "logit" not in grams.page()
    assert account(made("CCO", [-1.0, 0.0, 3.0])).sentence == (
        "active changes by +2: hydroxyl +3.00 ± 0.04, ethyl group −1.00 ± 0.04."
    )
    missed = replace(one, certificate=replace(one.certificate, status=Status.BUDGET, error=0.12))
    assert missed.sentence.endswith("numbers not good to 1% (error 12%).")


def test_errors_of_sums_cover_what_a_tighter_integration_changes() -> None:
    """Atoms with half of their pairs and groups of them: nearly all within the error that they state, at 5% against 0.1%."""
    smiles = [README, ASPIRIN, CAFFEINE, "CC(C)NCC(O)COc1ccc(CCOCC2CC2)cc1NC(C)=O"]
    model = weave(2, "full").double()
    rough, fine = model.explain(smiles, tol=0.05), model.explain(smiles, tol=1e-3)
    inside = []
    for one, exact in zip(rough, fine, strict=True):
        assert one.sum_error is not None
        for errors, values in ((one.atom_errors, one.per_atom - exact.per_atom), (_errors(one), _sums(one) - _sums(exact))):
            assert all(error is not None and error <= one.sum_error for error in errors)
            inside += [abs(value) <= error for error, value in zip(errors, values, strict=True)]  # type: ignore[operator]
    assert np.mean(inside) >= 0.95
    kept = draws_of(json.loads(json.dumps(kept_draws(rough[0].draws))), len(rough[0].atoms))
    assert replace(rough[0], draws=kept).atom_errors == pytest.approx(rough[0].atom_errors, rel=1e-2)
    assert replace(rough[0], draws=None).atom_errors == (rough[0].sum_error,) * len(rough[0].atoms)


def _sums(one: MoleculeAttribution) -> np.ndarray:
    return np.array([sum(one.per_atom[i] for row in rows for i in row) for rows in one.groups.values()])


def _errors(one: MoleculeAttribution) -> list[float | None]:
    return one.sum_errors(frozenset().union(*rows) for rows in one.groups.values())
