"""Molecules from anybody: lines, records, compressed files and molecules have limits, and what is beyond them says so."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import sys
from pathlib import Path

import pytest
from rdkit import Chem

from benchmarks.fuzz_inputs import molecule_seeds, molecule_trial
from benchmarks.fuzz_inputs import short_run as fuzzed
from integrand import bounded_reading
from integrand.apps.molecules import molecule_files as module
from integrand.apps.molecules import molgraph
from integrand.apps.molecules.molecule_files import LINE, RECORD, Record, records
from integrand.apps.molecules.weave import read_weave
from integrand.errors import FileError, InputError


def block(name: str = "", smiles: str = "CO") -> str:
    return f"{name}\n" + Chem.MolToMolBlock(Chem.MolFromSmiles(smiles)).split("\n", 1)[1]


class Counted(io.TextIOWrapper):
    """A text that says how much of it was held at most."""

    held = 0

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        found = super().readline(size)
        Counted.held = max(Counted.held, len(found))
        return found


@pytest.mark.parametrize("ending", [".smi", ".csv", ".sdf"])
def test_a_long_line_is_a_problem_of_its_own(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read past, never held; what comes before and after it is there."""
    monkeypatch.setattr(bounded_reading.io, "TextIOWrapper", Counted)
    monkeypatch.setattr(Counted, "held", 0)
    long = "C" * (3 * LINE)
    texts = {
        ".smi": f"CCO a\n{long} b\nC c\n",
        ".csv": f"smiles,name\nCCO,a\n{long},b\nC,c\n",
        ".sdf": f"{block('a')}$$$$\nb\n{long}\n$$$$\n{block('c')}$$$$\n",
    }
    (tmp_path / f"a{ending}").write_text(texts[ending])
    found = list(records(tmp_path / f"a{ending}"))
    assert [bool(one.problem) for one in found] == [False, True, False]
    assert [found[0].name, found[2].name] == ["a", "c"]
    assert re.search(rf"line \d+ has more than {LINE:,} characters", found[1].problem)
    with pytest.raises(InputError, match="characters"):
        found[1].molecule()
    assert Counted.held == LINE + 1


def test_a_line_of_an_sd_file_takes_no_more_than_its_length(tmp_path: Path) -> None:
    """80 KB of < took a minute: for each of them, an expression looked for its >."""
    line = ">" + "<" * 80_000
    (tmp_path / "a.sdf").write_text(f"{block()}{line}\nvalue\n\n> <ID>\nm1\n\n$$$$\n")
    (one,) = records(tmp_path / "a.sdf")
    assert one.name == "m1"
    assert module._between(line) is None
    assert [module._between(text) for text in ("> <ID>", ">  <A><B> (1)", "> ID>", "> <", ">")] == ["ID", "A", None, None, None]


def test_a_record_without_end_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "a.sdf").write_text("a\n" + "x" * 70 * 1000 + ("y" * 70 + "\n") * 30_000 + "$$$$\n" + block("b") + "$$$$\n")
    first, second = records(tmp_path / "a.sdf")
    assert f"more than {RECORD:,} characters" in first.problem
    assert len(first.text) <= RECORD + LINE
    assert (second.name, second.problem) == ("b", "")


def test_a_quote_that_is_not_closed_ends_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('smiles,note\nC,x\nCC,"open\n' + '","\n' * 400_000)
    *found, last = records(tmp_path / "a.csv")
    assert [one.text for one in found] == ["C"]
    assert "is there a quote that is not closed?" in last.problem or "field limit" in last.problem
    assert csv.field_size_limit() == 131072


@pytest.mark.parametrize("ending", [".smi.gz", ".csv.gz", ".sdf.gz"])
@pytest.mark.parametrize("sign", [b"\n", b"C", b"C\n", b"$$$$\n", b'"\n', b"\0"])
def test_a_compressed_bomb_goes_off_early(tmp_path: Path, ending: str, sign: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousandfold: a megabyte stands for as many gigabytes as one likes."""
    monkeypatch.setattr(bounded_reading, "FREE", 10_000)
    data = gzip.compress(b"smiles\nC\n" + sign * (1_000_000 // len(sign)))
    assert len(data) < 4000
    (tmp_path / f"a{ending}").write_bytes(data)
    read = 0
    try:
        for one in records(tmp_path / f"a{ending}"):
            read += 1
            last = one
    except FileError as error:
        last = Record("", problem=str(error))
    assert read < 500_000
    assert re.search("unpacks to more than 200 times its size|field limit|quote that is not closed", last.problem)


def test_molecules_with_too_many_atoms_are_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 atoms took 51 seconds."""
    for text in ("C" * 3000, "C" * 501, ".".join("C" * 600)):
        with pytest.raises(InputError, match=r"heavy atoms .* up to 500 are explained"):
            molgraph.parse(text)
    assert molgraph.parse("C" * 500).GetNumAtoms() == 500
    with_hydrogens = Chem.AddHs(Chem.MolFromSmiles("C" * 400))
    assert molgraph.read(with_hydrogens)[1].GetNumAtoms() == 400
    large = Chem.MolFromSmiles("C" * 600)
    text = Chem.MolToV3KMolBlock(large)
    monkeypatch.setattr(Chem, "SanitizeMol", lambda *_: pytest.fail("it was sanitised"))
    with pytest.raises(InputError, match="up to 500"):
        molgraph.read(large)
    with pytest.raises(InputError, match=r"^got a molecule with 600 heavy atoms"):
        Record(text, block=True).molecule()


def test_molecules_with_too_many_pairs_or_bonds_are_refused() -> None:
    star = "*" + "(C)" * 120
    with pytest.raises(InputError, match="7,260 pairs of atoms up to 2 bonds apart; up to 5,000"):
        molgraph.graph(molgraph.parse(star))
    dense = Chem.RWMol()
    for i in range(150):
        dense.AddAtom(Chem.Atom(0))
        for j in range(i):
            dense.AddBond(i, j, Chem.BondType.SINGLE)
    with pytest.raises(InputError, match="11,175 bonds"):
        molgraph.read(dense)
    for i in range(149, 120, -1):
        dense.RemoveAtom(i)
    with pytest.raises(InputError, match=r"cannot sanitise.*rings"):  # no SMILES has as many open rings
        molgraph.read(dense)


def test_a_long_smiles_is_never_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(molgraph, "_parsed", lambda _: pytest.fail("RDKit was asked"))
    with pytest.raises(InputError, match="a SMILES of 10,001 characters; up to 10,000"):
        molgraph.parse("C" * 10_001)
    monkeypatch.undo()
    with pytest.raises(InputError) as caught:
        molgraph.parse("(" * 9_000)
    assert len(str(caught.value)) < 500


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_devices_and_folders(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.smi")
    os.mkfifo(tmp_path / "a.smi.gz")
    (tmp_path / "zero.smi").symlink_to("/dev/zero")
    (tmp_path / "folder.sdf").mkdir()
    for name, kind in (("a.smi", "a pipe"), ("a.smi.gz", "a pipe"), ("zero.smi", "a device"), ("folder.sdf", "a folder")):
        with pytest.raises(FileError, match=f"is {kind}; expected a file of molecules in an ordinary file"):
            next(records(tmp_path / name))
    with pytest.raises(FileError, match="is a pipe; expected tensors in an ordinary file"):
        read_weave(tmp_path / "a.smi")
    (tmp_path / "no.safetensors").write_bytes(b"[" * 100_000)
    with pytest.raises(FileError, match="cannot be read"):
        read_weave(tmp_path / "no.safetensors")


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="names of files are text there")
def test_names_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    name = os.path.join(folder, b"caf\xe9\x1b[2J.smi")
    with open(name, "wb") as file:
        file.write(b"C \x1b]0;title\x07\xe2\x80\xaex\nC\x1b[31m\n")
    first, second = records(Path(os.fsdecode(name)))
    assert first.where == "caf\\xe9\\x1b[2J.smi, line 1"
    assert first.title.isprintable()
    assert second.title == "C\\x1b[31m"
    with pytest.raises(InputError) as caught:
        molgraph.parse(second.text)
    assert str(caught.value).isprintable()
    with pytest.raises(FileError) as caught:
        next(records(Path(os.fsdecode(name + b".xyz"))))
    assert str(caught.value).isprintable()


def test_a_table_of_a_thousand_columns_has_a_short_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",".join(f"column{i}" for i in range(9000)) + "\n1\n")
    with pytest.raises(FileError, match="expected a column of SMILES") as caught:
        next(records(tmp_path / "a.csv"))
    assert len(str(caught.value)) < 1000


def test_what_fuzzing_makes_is_read_or_one_of_our_errors(tmp_path: Path) -> None:
    assert fuzzed(molecule_seeds(), molecule_trial(tmp_path), count=150, seed=2) == []
