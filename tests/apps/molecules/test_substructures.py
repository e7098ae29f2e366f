"""Which groups drive a class, on values chosen by hand."""

from __future__ import annotations

import csv
import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from integrand.apps.molecules import substructures
from integrand.errors import FileError, InputError, OptionError

from .attributed import MOLECULES, made

ALCOHOLS = [made("CO", [1.0, 3.0]), made("CCO", [0.0, 2.0, -4.0]), made("OCCO", [5.0, 0.0, 2.0, 5.0]), made("CC", [1.0, 1.0])]


def test_by_hand() -> None:
    found = substructures(ALCOHOLS, {"hydroxyl": "[OH]", "carbon": "C", "sulphur": "S"}, least=1)
    assert found.molecules == 4
    assert found.label == "active"
    assert found.rare == ()
    assert [one.name for one in found] == ["hydroxyl", "carbon"]  # 3 > 1.75
    hydroxyl, carbon = found
    added = np.array([3.0, -4.0, 10.0])
    assert (hydroxyl.support, hydroxyl.mean, hydroxyl.speaks_for) == (3, 3.0, pytest.approx(2 / 3))
    assert hydroxyl.spread == pytest.approx(added.std(ddof=1))
    assert (hydroxyl.low, hydroxyl.high) == (-0.5, 6.5)
    assert hydroxyl.per_atom == pytest.approx((3 - 4 + 5) / 3)
    assert hydroxyl.elsewhere == pytest.approx((1 + 1 + 1) / 3)
    assert carbon.support == 4
    assert carbon.mean == pytest.approx((1 + 2 + 2 + 2) / 4)
    assert carbon.elsewhere == pytest.approx((3 - 4 + 5) / 3)  # ethane has no other atom


def test_pairs_come_with_their_atoms() -> None:
    one = made("CO", [1.0, 2.0], pairs={(0, 1): 4.0})
    found = substructures([one], {"oxygen": "O", "all": "CO"}, least=1)
    assert {row.name: row.mean for row in found} == {"oxygen": 4.0, "all": 7.0}


def test_rare_groups_are_only_named() -> None:
    found = substructures(ALCOHOLS, {"hydroxyl": "[OH]", "carbon": "C"}, least=4)
    assert [one.name for one in found] == ["carbon"]
    assert found.rare == ("hydroxyl",)
    assert len(found) == 1


def test_functional_groups_of_rdkit_by_default() -> None:
    found = substructures((made(smiles, seed=i) for i, smiles in enumerate(MOLECULES)), least=2)
    names = {one.name: one.support for one in found}
    assert names["benzene"] == 4
    assert names["carbonyl"] == 2
    assert "nitrile" in found.rare
    assert [one.mean for one in found] == sorted((one.mean for one in found), reverse=True)


def test_it_is_saved(tmp_path: Path) -> None:
    found = substructures(ALCOHOLS, {"hydroxyl": "[OH]", "carbon": "C"}, least=1)
    assert json.loads(found.save(tmp_path / "a.json").read_text(encoding="utf-8"))["found"] == found.rows()
    with found.save(tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["hydroxyl", "carbon"]
    assert "hydroxyl" in found.save(tmp_path / "a.txt").read_text(encoding="utf-8")
    with pytest.raises(OptionError, match=r"\.json, \.csv or \.txt"):
        found.save(tmp_path / "a.png")


def test_what_cannot_be_added_up() -> None:
    with pytest.raises(InputError, match="no result"):
        substructures([])
    with pytest.raises(InputError, match="one output"):
        substructures([made("C"), made("C", label="toxic")])


def test_groups_that_are_left_out_are_named() -> None:
    found = substructures([made("CCO")])
    assert not found.found
    assert "left out: aliphatic hydroxyl, aliphatic hydroxyl, not tertiary. least=1 shows them" in str(found)
    assert "None of the groups" in str(substructures([made("CCO")], {"ring": "[R]"}))


@pytest.mark.parametrize("ending", ["json", "csv", "txt"])
def test_a_full_disk_leaves_the_old_file_and_no_name_is_a_formula(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = substructures(ALCOHOLS, {"=1+1": "C"}, least=1)
    path = found.save(tmp_path / f"groups.{ending}")
    before = path.read_bytes()
    if ending == "csv":
        assert b"\n'=1+1," in before

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left"):
        substructures(ALCOHOLS, {"other": "O"}, least=1).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", ["html", "svg", "png", "json", "csv"])
def test_a_full_disk_leaves_the_old_molecule(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ALCOHOLS[0].save(tmp_path / f"molecule.{ending}")
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left"):
        ALCOHOLS[1].save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_one_sentence() -> None:
    found = substructures(
        [made("CCO", [-1.0, 0.0, 3.0]), made("CO", [-2.0, 1.0])], {"hydroxyl": "[OH]", "carbon": "C"}, least=1
    )
    assert found.sentence == (
        "active, 2 molecule(s): raised most by hydroxyl (+2 in 2), lowered most by carbon (-1.5 in 2); numbers good to 1%."
    )
    assert "no group is common enough" in substructures([made("CCO")]).sentence
