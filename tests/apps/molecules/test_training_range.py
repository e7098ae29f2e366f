"""What a network on molecules never saw: counted by hand, on the assay it was trained on, and in every output."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

from integrand.apps import molecules
from integrand.apps.molecules.molgraph import parse
from integrand.apps.molecules.training_range import PCBA_588342, TrainingRange, traits

PLATIN = "[NH3][Pt]([NH3])(Cl)Cl"
PEPTIDE = "N" + "CC(=O)N" * 60 + "CC(=O)O"
SALT = "CC(C)Cc1ccc(cc1)C(C)C(=O)[O-].[Na+]"


@pytest.fixture(scope="module")
def weave() -> molecules.GraphModel:
    found = molecules.load("weave-w1n2", "cpu")
    assert isinstance(found, molecules.GraphModel)
    return found


def test_counts_by_hand() -> None:
    seen = TrainingRange.of(map(Chem.MolFromSmiles, ["CCO", "CC[O-]", "C1CC1", "CCN.Cl"]))
    assert (seen.molecules, seen.sizes) == (4, (3, 4))
    assert seen.counts == {
        "element": {"C": 4, "Cl": 1, "N": 1, "O": 2},
        "ion": {"O-": 1},
        "valence": {"C with 4 bonds": 4, "Cl with 1 bond": 1, "N with 3 bonds": 1, "O with 2 bonds": 1},
        "ring": {"3": 1},
        "parts": {"2": 1},
    }
    assert seen.notes(Chem.MolFromSmiles("CCCN")) == ()
    (note,) = seen.notes(Chem.MolFromSmiles("C1CCC1[N+](C)(C)C.[Na+].[Cl-]"))
    assert "none of the 4 training molecules had the element Na, Cl-, N+, a ring of 4 atoms or 3 separate parts" in note
    assert "it has 10 heavy atoms; of the 4 training molecules, 99.8% had 3 to 4" in note
    assert "Na+" not in note  # the element says it all


@pytest.mark.parametrize(
    ("smiles", "said"),
    [
        (PLATIN, "none of the 263,709 training molecules had the element Pt; it has 5 heavy atoms"),
        (PEPTIDE, "it has 245 heavy atoms; of the 263,709 training molecules, 99.8% had 10 to 58"),
        (SALT, "had the element Na"),
        ("C[Si](C)(C)c1ccccc1CC", r"hardly any of the 263,709 training molecules had the element Si \(in 5\)"),
        ("[CH2]c1ccccc1CCCC", "had C with 3 bonds"),
    ],
)
def test_what_the_network_never_saw_is_said(weave: molecules.GraphModel, smiles: str, said: str) -> None:
    """Before, a platinum complex and a peptide passed without a word."""
    (found,) = weave.explain([smiles], tol=0.2)
    (note,) = found.notes
    assert re.search(said, note)
    assert note in str(found)
    assert found.to_dict()["notes"] == [note]
    assert note in found.page().replace("&#x27;", "'")


def test_usual_molecules_get_no_note(weave: molecules.GraphModel, data: Callable[[str], Path]) -> None:
    """``training/molecule_range.py`` counts all test molecules: 0.08% get one."""
    assert [one.notes for one in weave.explain(["CC(=O)Oc1ccccc1C(=O)O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O"], tol=0.2)] == [(), ()]
    with gzip.open(data("molecules/pcba_588342.csv.gz"), "rt") as file:
        smiles = [row["smiles"] for row in islice(csv.DictReader(file), 0, 20_000, 20)]
    assert np.mean([bool(PCBA_588342.notes(parse(text))) for text in smiles]) <= 0.01


def test_of_other_networks_nothing_is_said_that_is_not_known() -> None:
    own = molecules.GraphModel(lambda atoms, *_: atoms.sum((1, 2))[:, None], "simple", ("n",), logits=False)
    assert own.explain([PLATIN])[0].notes == ()


def test_notes_come_back_from_a_journal(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from integrand.cli.app import app

    for _ in range(2):  # the second run takes what the first one kept
        done = CliRunner().invoke(app, ["molecule", PLATIN, "--out", str(tmp_path / "a.json"), "--tol", "0.2"])
        assert done.exit_code == 0, done.output
        (one,) = json.loads((tmp_path / "a.json").read_text())["molecules"]
        assert one["notes"] == list(PCBA_588342.notes(parse(PLATIN)))
    assert "the element Pt" in CliRunner().invoke(app, ["molecule", PLATIN, "--tol", "0.2"]).output


def test_traits_of_a_salt() -> None:
    assert {("element", "Na"), ("ion", "Na+"), ("ion", "O-"), ("ring", "6"), ("parts", "2")} <= traits(parse(SALT))
