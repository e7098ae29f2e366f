"""Molecules in files: lists, tables and SD files as people have them, good and bad."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from rdkit import Chem

from integrand.apps.molecules.molecule_files import Record, records
from integrand.apps.molecules.molgraph import read
from integrand.errors import FileError, InputError, OptionError


def write(path: Path, text: str | bytes) -> Path:
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def pairs(path: Path, **options: str) -> list[tuple[str, str]]:
    return [(one.text, one.name) for one in records(path, **options)]


def sdf(*names: str) -> str:
    blocks = [f"{name}\n" + Chem.MolToMolBlock(Chem.MolFromSmiles("CO")).split("\n", 1)[1] for name in names]
    return "".join(block + "$$$$\n" for block in blocks)


@pytest.mark.parametrize("ending", [".smi", ".smiles", ".ism", ".txt", ".smi.gz", ".SMI"])
def test_a_list_has_a_smiles_and_maybe_a_name_per_line(tmp_path: Path, ending: str) -> None:
    file = write(tmp_path / f"a{ending}", "CCO ethanol, pure\n\n# a comment\nC\tmethane\n  CC\n")
    assert pairs(file) == [("CCO", "ethanol, pure"), ("C", "methane"), ("CC", "")]
    assert [one.where for one in records(file)] == [f"a{ending}, line {n}" for n in (1, 4, 5)]


@pytest.mark.parametrize(
    "text",
    [
        "smiles name\nCCO a\nC b\n",
        "SMILES\tID\nCCO\ta\nC\tb\n",
        "\ufeffCCO a\r\nC b\r\n",
        "Canonical_SMILES name\rCCO a\rC b",
        "CCO |$;;x$| a\nC b",
    ],
)
def test_headings_marks_line_ends_and_extensions_of_a_list(tmp_path: Path, text: str) -> None:
    assert pairs(write(tmp_path / "a.smi", text)) == [("CCO", "a"), ("C", "b")]


def test_a_heading_is_one_only_in_the_first_line(tmp_path: Path) -> None:
    assert pairs(write(tmp_path / "a.smi", "CCO a\nsmiles b\n")) == [("CCO", "a"), ("smiles", "b")]


def test_bytes_that_are_no_text_do_not_stop_the_reading(tmp_path: Path) -> None:
    assert pairs(write(tmp_path / "a.smi", b"CCO caf\xe9\nC b\n")) == [("CCO", "caf\ufffd"), ("C", "b")]
    assert pairs(write(tmp_path / "b.csv", "smiles\tname\nCCO\tcafé\n".encode("utf-16"))) == [("CCO", "café")]


@pytest.mark.parametrize(
    ("head", "mark"),
    [
        ("id,smiles,activity", ","),
        ("ID;Canonical SMILES;activity", ";"),
        ("compound_name\tPUBCHEM_OPENEYE_CAN_SMILES\ty", "\t"),
        ("Molecule ChEMBL ID,Smiles,x", ","),
        ('"Name","isomeric_smiles","y"', ","),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz"])
def test_the_columns_of_a_table_are_found_by_their_headings(tmp_path: Path, head: str, mark: str, ending: str) -> None:
    rows = [head, mark.join(('"a, b; c"', "CCO", "1")), "", mark.join(("d", "C[C@H](N)C", "0"))]
    assert pairs(write(tmp_path / f"a{ending}", "\r\n".join(rows))) == [("CCO", "a, b; c"), ("C[C@H](N)C", "d")]


def test_a_column_that_is_named_is_taken(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "smiles,Product Smiles\nC,CC\n")
    assert pairs(file) == [("C", "")]
    assert pairs(file, column="Product Smiles") == [("CC", "")]
    assert pairs(file, column="product_smiles") == [("CC", "")]
    with pytest.raises(FileError, match="'smiles', 'Product Smiles'; expected a column 'x'"):
        pairs(file, column="x")


def test_a_table_without_smiles_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"columns 'CCO', 'ethanol'; expected a column of SMILES .* with --column"):
        pairs(write(tmp_path / "a.csv", "CCO,ethanol\nC,methane\n"))


def test_rows_without_a_smiles_are_problems_of_their_own(tmp_path: Path) -> None:
    found = list(records(write(tmp_path / "a.csv", "\nname,smiles\na,C\nb\nc,\nd,CC\n")))
    assert [one.text for one in found] == ["C", "", "", "CC"]
    assert [one.problem for one in found[1:3]] == [f"a.csv, line {n} has nothing in the column 'smiles'" for n in (4, 5)]
    with pytest.raises(InputError, match="line 4 has nothing"):
        found[1].molecule()


@pytest.mark.parametrize("ending", [".sdf", ".sd", ".sdf.gz"])
def test_an_sd_file_with_titles_and_a_broken_record(tmp_path: Path, ending: str) -> None:
    broken = "bad\n  x\n\n  1  0  0  0  0  0  0  0  0  0999 V2000\n    0.0\nM  END\n$$$$\n"
    text = (sdf("first") + broken + sdf("last")).replace("\n", "\r\n")
    found = list(records(write(tmp_path / f"a{ending}", text)))
    assert [one.name for one in found] == ["first", "bad", "last"]
    assert [read(found[i].molecule())[0] for i in (0, 2)] == ["CO", "CO"]
    with pytest.raises(InputError, match="cannot read"):
        found[1].molecule()


def test_an_sd_record_without_title_is_called_by_its_data(tmp_path: Path) -> None:
    block = sdf("").removesuffix("$$$$\n")
    data = "> <MW>\n32.0\n\n>  <CHEMBL_ID>  (1)\nCHEMBL14688\n\n"
    found = list(records(write(tmp_path / "a.sdf", block + data)))  # and no $$$$ at the end
    assert [one.name for one in found] == ["CHEMBL14688"]
    assert read(found[0].molecule())[0] == "CO"


def test_an_sd_file_in_three_dimensions_with_hydrogens(tmp_path: Path) -> None:
    mol = Chem.AddHs(Chem.MolFromSmiles("C[C@H](F)Cl"))
    from rdkit.Chem import AllChem

    AllChem.EmbedMolecule(mol, randomSeed=1)
    found = next(records(write(tmp_path / "a.sdf", Chem.MolToMolBlock(mol) + "$$$$\n"))).molecule()
    assert read(found)[0] == Chem.CanonSmiles("C[C@H](F)Cl")  # the handedness stays


@pytest.mark.parametrize("name", ["a.smi", "a.csv", "a.sdf", "a.smi.gz"])
@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_said_to_be(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(FileError, match="holds no molecule"):
        list(records(write(tmp_path / name, text)))


def test_files_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"got a\.xlsx; expected a file that ends in \.smi"):
        list(records(tmp_path / "a.xlsx"))
    with pytest.raises(FileError, match="cannot be read"):
        list(records(tmp_path / "absent.smi"))
    with pytest.raises(OptionError, match="for a table"):
        list(records(write(tmp_path / "a.smi", "C"), column="smiles"))
    (tmp_path / "b.smi.gz").write_bytes(b"CCO\n")
    with pytest.raises(FileError, match=r"cannot be read .*[Gg]zip"):
        list(records(tmp_path / "b.smi.gz"))
    with pytest.raises(FileError, match="cannot be read"):
        list(records(tmp_path.joinpath("folder.smi")))


def test_a_compressed_file_that_breaks_off_gives_what_is_there(tmp_path: Path) -> None:
    lines = "".join(f"{'C' * (n % 7 + 1)}O m{n}\n" for n in range(20000))
    whole = gzip.compress(lines.encode(), compresslevel=1)
    (tmp_path / "a.smi.gz").write_bytes(whole[: len(whole) // 2])
    found = list(records(tmp_path / "a.smi.gz"))
    assert len(found) > 100
    assert found[5] == Record("CCCCCCO", "m5", "a.smi.gz, line 6")
    assert f"beyond molecule {len(found) - 1}" in found[-1].problem


def test_files_are_read_as_they_come(tmp_path: Path) -> None:
    file = write(tmp_path / "a.smi", "CCO\n" * 100_000)
    found = records(file)
    assert next(found).text == "CCO"
    found.close()  # type: ignore[attr-defined]
    assert sum(1 for _ in records(file)) == 100_000


def test_the_title_of_a_record_is_its_name_or_what_it_is() -> None:
    assert Record("CCO", "ethanol").title == "ethanol"
    assert Record("CCO").title == "CCO"
    assert Record("block", where="a.sdf, line 1", block=True).title == "a.sdf, line 1"


def test_a_list_with_commas(tmp_path: Path) -> None:
    found = pairs(write(tmp_path / "a.smi", "smiles,name\nCCO,ethanol\nC1CC1, a ring, small\n\nCO |$a,b$| methanol\n"))
    assert found == [("CCO", "ethanol"), ("C1CC1", "a ring, small"), ("CO", "methanol")]


def test_names_hold_nothing_that_a_terminal_would_obey(tmp_path: Path) -> None:
    assert pairs(write(tmp_path / "a.smi", "CCO \x1b[31mred\x07 \u202edrow\n")) == [("CCO", "[31mred drow")]
