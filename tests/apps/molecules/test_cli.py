"""``integrand molecule``, as a user types it: one molecule, files, bad ones, stopped and resumed."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from rdkit import Chem
from rdkit.Chem import AllChem
from torch import Tensor
from typer.testing import CliRunner, Result

from integrand import files
from integrand.apps import molecules
from integrand.apps.molecules import GraphModel, MoleculeAttribution, molecule_files, molecule_row
from integrand.apps.molecules.admet import endpoints
from integrand.apps.molecules.molgraph import ATOM_FEATURES, PAIR_FEATURES, explained_together
from integrand.batch import ExplainedTable, many
from integrand.cli import main
from integrand.cli.app import app
from integrand.errors import FileError, OptionError, TargetError

OXYGEN = ATOM_FEATURES["simple"].index("atom O")
BOND, NEAR = PAIR_FEATURES["simple"].index("distance <= 1"), PAIR_FEATURES["simple"].index("distance <= 2")

Run = Callable[..., Result]


def oxygens(atoms: Tensor, pairs: Tensor, ends: Tensor, there: Tensor, near: Tensor) -> Tensor:
    """Two for each oxygen, a half for each bond, a quarter for each pair of atoms up to two bonds apart."""
    said = 2 * atoms[:, :, OXYGEN].sum(1) + 0.5 * pairs[:, :, BOND].sum(1) + 0.25 * pairs[:, :, NEAR].sum(1)
    return said[:, None]


class Counting:
    """A model that counts what it explains, and can be stopped."""

    outputs = ("oxygens",)
    source = "a test"

    def __init__(self, name: str = "counting") -> None:
        self.name, self.model = name, GraphModel(oxygens, "simple", self.outputs, name, logits=False)
        self.explained: list[str] = []
        self.stop_at = -1

    def explain(self, given: Sequence[Any], **how: Any) -> list[MoleculeAttribution]:
        if len(self.explained) == self.stop_at:
            raise KeyboardInterrupt
        found = self.model.explain(given, **how)
        self.explained += [one.smiles for one in found]
        return found


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Counting:
    made = Counting()
    monkeypatch.setattr(molecules, "load", lambda name, device: made)
    return made


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["integrand", "molecule", *words])
        return CliRunner().invoke(app, ["molecule", *words])

    return invoke


class Tags(HTMLParser):
    """The tags and words of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_one_molecule_in_the_terminal(run: Run, model: Counting) -> None:
    done = run("CCO", "--smarts", "hydroxyl=[OH]")
    assert done.exit_code == 0, done.output
    assert "± " in done.stdout  # every sum has its error
    lines = [re.sub(r"± \S+", "", line).split() for line in done.stdout.splitlines()]
    assert done.stdout.startswith("Oxygens 3.75: raised most by the hydroxyl")
    assert ["by", "group", "hydroxyl", "+2.5", "67%"] in lines
    assert ["O2", "+2", "+0.5", "+2.5"] in lines  # itself, half of a bond (0.75) and of a pair (0.25), together
    assert ["C1", "+0", "+0.75", "+0.75"] in lines
    assert ["C0-O2", "+0.25", "no", "bond"] in lines
    assert ["C0-C1", "+0.75"] in lines
    assert ["by", "kind", "atoms", "+2", "53%"] in lines
    assert ["bonded", "pairs", "+1.5", "40%"] in lines
    assert ["by", "pattern", "hydroxyl", "+2.5", "67%"] in lines
    assert done.stderr == ""
    assert "F(x" not in done.stdout
    assert "Gradients evaluated" not in done.stdout
    told = run("CCO", "--verbose").stdout
    assert "Gradients evaluated" in told
    assert "converged" in told.splitlines()[-1]


def test_numbers_of_atoms_and_bonds_as_a_table(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.csv").write_text('id,smiles\n"a,1",CCO\nb,O\n')
    done = run("--file", "many.csv", "--out", "values.csv")
    assert done.exit_code == 0, done.output
    found = table(tmp_path / "values.csv")
    keys = ("molecule", "title", "smiles", "kind", "index", "name", "begin", "end")
    assert [tuple(row[key] for key in keys) for row in found] == [
        ("1", "a,1", "CCO", "atom", "0", "C", "", ""),
        ("1", "a,1", "CCO", "atom", "1", "C", "", ""),
        ("1", "a,1", "CCO", "atom", "2", "O", "", ""),
        ("1", "a,1", "CCO", "bond", "0", "C0-C1", "0", "1"),
        ("1", "a,1", "CCO", "bond", "1", "C1-O2", "1", "2"),
        ("1", "a,1", "CCO", "pair", "", "C0-O2", "0", "2"),
        ("2", "b", "O", "atom", "0", "O", "", ""),
    ]
    assert [float(row["value"]) for row in found] == pytest.approx([0, 0, 2, 0.75, 0.75, 0.25, 2])
    assert [float(row["pairs"]) for row in found if row["kind"] == "atom"] == pytest.approx([0.5, 0.75, 0.5, 0])
    assert [float(row["total"]) for row in found if row["kind"] == "atom"] == pytest.approx([0.5, 0.75, 2.5, 2])
    assert [float(row["score"]) for row in found] == pytest.approx([3.75] * 6 + [2])


def test_numbers_as_json_and_printed(run: Run, model: Counting, tmp_path: Path) -> None:
    done = run("CCO", "C1CC", "O", "--out", "values.json", "--json", "--smarts", "water=[OH2]")
    assert done.exit_code == 1
    found = json.loads((tmp_path / "values.json").read_text())
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert found["molecules"] == printed
    assert [one["score"] for one in printed] == pytest.approx([3.75, 2])
    assert [one["smiles"] for one in found["failed"]] == ["C1CC"]
    assert "ring" in found["failed"][0]["error"]
    assert printed[1]["account"]["sections"]["pattern"][0]["name"] == "water"


def test_an_sd_file_with_lists_of_atom_properties(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "a.smi").write_text("CCO ethanol\n")
    assert run("--file", "a.smi", "--out", "values.sdf").exit_code == 0
    mol = next(iter(Chem.SDMolSupplier(str(tmp_path / "values.sdf"))))
    assert mol.GetProp("_Name") == "ethanol"
    assert [atom.GetDoubleProp("attribution") for atom in mol.GetAtoms()] == pytest.approx([0.5, 0.75, 2.5])
    assert [atom.GetDoubleProp("attribution_of_atom_itself") for atom in mol.GetAtoms()] == pytest.approx([0, 0, 2])
    assert [float(value) for value in mol.GetProp("attribution_of_bonds").split()] == pytest.approx([0.75, 0.75])
    again = run("--file", "values.sdf", "--json")  # what is written is read again
    assert json.loads(again.stdout)["name"] == "ethanol"
    assert json.loads(again.stdout)["score"] == pytest.approx(3.75)


def test_atoms_of_an_sd_file_keep_their_numbers_and_places(run: Run, model: Counting, tmp_path: Path) -> None:
    given = Chem.AddHs(Chem.MolFromSmiles("OCC"))
    AllChem.EmbedMolecule(given, randomSeed=1)
    (tmp_path / "a.sdf").write_text(Chem.MolToMolBlock(given) + "$$$$\n")
    assert run("--file", "a.sdf", "--out", "b.csv", "--keep").exit_code == 0
    found = [row for row in table(tmp_path / "b.csv") if row["kind"] == "atom"]
    assert [(row["index"], row["name"]) for row in found] == [("0", "O"), ("1", "C"), ("2", "C")]
    assert [float(row["total"]) for row in found] == pytest.approx([2.5, 0.75, 0.5])
    again = run("--file", "a.sdf", "--out", "b.sdf")  # from what is kept
    assert "1 done before" in again.stderr
    mol = next(iter(Chem.SDMolSupplier(str(tmp_path / "b.sdf"))))
    assert [atom.GetDoubleProp("attribution") for atom in mol.GetAtoms()] == pytest.approx([2.5, 0.75, 0.5])
    places = given.GetConformer().GetPositions()[:3]
    assert mol.GetConformer().GetPositions() == pytest.approx(places, abs=1e-3)


def test_molecules_are_not_overwritten_by_their_values(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("smiles\nCCO\n")
    found = run("--file", "a.csv", "--out", "./a.csv")
    assert isinstance(found.exception, OptionError)
    assert "expected another file to write to, such as values.csv" in str(found.exception)
    assert (tmp_path / "a.csv").read_text() == "smiles\nCCO\n"


@pytest.mark.parametrize("words", [("--target", "absent"), ("--tol", "0"), ("--score", "probability")])
def test_a_wrong_option_is_said_once_and_of_no_molecule(run: Run, model: Counting, words: tuple[str, str]) -> None:
    found = run("CCO", "C", "CC", *words)
    assert isinstance(found.exception, (OptionError, TargetError))
    assert "not explained" not in found.stderr


def test_sums_of_the_table_can_be_checked_with_what_is_in_it(run: Run, model: Counting, tmp_path: Path) -> None:
    assert run("CCO", "--out", "a.csv").exit_code == 0
    found = table(tmp_path / "a.csv")
    change = float(found[0]["score"]) - float(found[0]["baseline_score"])
    assert sum(float(row["value"]) for row in found) == pytest.approx(change)
    assert {row["status"] for row in found} == {"converged"}


def test_a_pattern_that_matches_nothing_is_said(run: Run, model: Counting) -> None:
    assert "Not in this molecule: ring." in run("CCO", "--smarts", "ring=[R]", "--smarts", "oxygen=O").stdout


def test_numbers_of_atoms_in_a_picture(run: Run, model: Counting, tmp_path: Path) -> None:
    assert run("CCO", "--quiet", "--out", "a.svg").exit_code == 0
    assert run("CCO", "--quiet", "--out", "b.svg", "--numbers").exit_code == 0
    plain, numbered = ((tmp_path / name).read_text() for name in ("a.svg", "b.svg"))
    assert "class='note'" not in plain
    assert numbered.count("class='note'") == 3


def test_what_cannot_be_written_leaves_nothing_behind(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "a.html").mkdir()
    assert run("CCO", "--out", "a.html").exit_code != 0
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<"), ("png", b"\x89PNG")])
def test_a_picture_of_one_molecule(run: Run, model: Counting, tmp_path: Path, ending: str, start: bytes) -> None:
    assert "there is no folder 'deep'" in str(run("CCO", "--out", f"deep/a.{ending}").exception)
    for force in (("--force",), ()):  # what was written here may be written again
        done = run("CCO", "--out", f"deep/a.{ending}", *force)
        assert done.exit_code == 0, done.output
    assert (tmp_path / "deep" / f"a.{ending}").read_bytes().startswith(start)
    refused = run("CCO", "CC", "--out", f"b.{ending}")
    assert "for 2 molecules" in str(refused.exception)
    assert not list(tmp_path.glob("b.*"))


def test_an_unparsable_smiles_in_the_middle_is_listed_at_the_end(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.smi").write_text("smiles name\nCCO good\nC(C bad\nc1ccccc1X\nO water\n")
    done = run("--file", "many.smi", "--out", "page.html")
    assert done.exit_code == 1
    assert model.explained == ["CCO", "O"]
    assert "not explained: bad: got 'C(C'" in done.stderr
    assert "not explained: many.smi, line 4: got 'c1ccccc1X'" in done.stderr
    assert "explained 2 of 4 molecule(s); wrote page.html" in done.stderr
    page = Tags((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "Not explained: bad" in page.words
    assert "integrand molecule --file many.smi --out page.html" in page.words


def test_where_none_works_nothing_is_written(run: Run, model: Counting, tmp_path: Path) -> None:
    done = run("C1CC", "XX", "--out", "page.html")
    assert done.exit_code == 2
    assert done.stderr.count("not explained: ") == 2
    assert not (tmp_path / "page.html").exists()


def test_hostile_names_are_words_on_the_page(run: Run, model: Counting, tmp_path: Path) -> None:
    hostile = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
    (tmp_path / "a.smi").write_text(f"CCO {hostile}\nO b\nC1 {hostile}\n")
    (tmp_path / "b.smi").write_text("CCO kind\nO b\nC1 kind\n")
    for name in ("a", "b"):
        assert run("--file", f"{name}.smi", "--smarts", "<b>=O", "--out", f"{name}.html").exit_code == 1
    bad, good = (Tags((tmp_path / f"{name}.html").read_text(encoding="utf-8")) for name in ("a", "b"))
    assert bad.tags == good.tags
    assert hostile in bad.words


def test_several_molecules_are_a_line_each(run: Run, model: Counting) -> None:
    done = run("CCO", "O")
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert first.startswith("CCO: Oxygens 3.75: raised most by the hydroxyl")
    assert second.startswith("O: Oxygens 2: ")


MANY = "".join(f"{'C' * n}O m{n}\n" for n in range(1, 7))


@pytest.mark.parametrize("name", ["page.html", "values.csv", "values.json"])
def test_a_stopped_run_goes_on_and_gives_the_same_file(run: Run, model: Counting, tmp_path: Path, name: str) -> None:
    (tmp_path / "many.smi").write_text(MANY)
    model.stop_at = 4
    done = run("--file", "many.smi", "--out", name)
    assert done.exit_code == 130
    assert "the same command goes on where it was" in done.stderr
    assert not (tmp_path / name).exists()
    model.stop_at = -1
    done = run("--file", "many.smi", "--out", name)
    assert done.exit_code == 0, done.output
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["m5", "m6"]  # an answer for each as it comes
    assert "explained 6 of 6 molecule(s) (4 done before)" in done.stderr
    assert "going on: 4 of 6 molecules were done before" in done.stderr
    assert len(model.explained) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["many.smi", name])  # what was kept is gone
    resumed = (tmp_path / name).read_bytes()
    assert run("--file", "many.smi", "--out", name, "--again").exit_code == 0
    assert len(model.explained) == 12
    assert (tmp_path / name).read_bytes().replace(b" --again", b"") == resumed


class Together:
    """A network on graphs that counts what it explains at a time, and can be stopped or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[str]] = []
        self.stop_at, self.bad, self.explain = -1, "", GraphModel.explain
        made = GraphModel(oxygens, "simple", ("oxygens",), "counting", logits=False)
        monkeypatch.setattr(molecules, "load", lambda name, device: made)
        called = explained_together(2)(lambda model, given, **how: self.called(model, given, how))
        monkeypatch.setattr(GraphModel, "explain", called)

    def called(self, model: GraphModel, given: Sequence[str], how: dict[str, Any]) -> list[MoleculeAttribution]:
        if len(self.batches) == self.stop_at:
            raise KeyboardInterrupt
        if self.bad in given:
            raise RuntimeError("boom")
        self.batches.append(list(given))
        return self.explain(model, given, **how)


def test_molecules_of_about_the_same_size_go_together(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In windows of eight; the file has them in their own order, and a stopped run loses the window that it was at."""
    monkeypatch.setattr(many, "LOOKAHEAD", 4)
    seen = Together(monkeypatch)
    texts = ["CCCCO", "C1C", "CO", "CCCO", "O", "CCCCCCO", "CCCCCO", "CCO", "CCCCCCCO", "C"]
    (tmp_path / "many.smi").write_text("\n".join(texts))
    seen.stop_at = 4
    assert run("--file", "many.smi", "--out", "a.csv").exit_code == 130
    assert seen.batches == [["O"], ["CO", "CCO"], ["CCCO", "CCCCO"], ["CCCCCO", "CCCCCCO"]]
    seen.stop_at = -1
    done = run("--file", "many.smi", "--out", "a.csv")
    assert done.exit_code == 1
    assert "explained 9 of 10 molecule(s) (7 done before)" in done.stderr
    assert seen.batches[4:] == [["C", "CCCCCCCO"]]
    assert list(dict.fromkeys(row["smiles"] for row in table(tmp_path / "a.csv"))) == [text for text in texts if text != "C1C"]


def test_of_a_batch_only_the_molecule_at_fault_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Together(monkeypatch)
    seen.bad = "CO"
    done = run("CCO", "CO", "O")
    assert done.exit_code == 1
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["CCO", "O"]
    assert done.stderr == "not explained: CO: the model: RuntimeError: boom. --debug shows where it happened.\n"
    assert seen.batches == [["O"], ["CCO"]]


def test_molecules_that_miss_the_tolerance_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def cubed(*tensors: Tensor) -> Tensor:
        return oxygens(*tensors) ** 9

    wild = GraphModel(cubed, "simple", ("oxygens",), "wild", logits=False)
    monkeypatch.setattr(molecules, "load", lambda name, device: wild)
    explain = GraphModel.explain
    monkeypatch.setattr(GraphModel, "explain", lambda model, given, **how: explain(model, given, steps=1, **how))
    done = run("CCO", "O", "--tol", "1e-4")
    assert "note: not as exact as asked for: 2 of 2 molecules (CCO, O); allow more work with --max-evaluations" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_part_that_is_gone_is_explained_again_and_a_damaged_one_is_named(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.smi").write_text(MANY)
    assert run("--file", "many.smi", "--out", "values.csv", "--keep").exit_code == 0
    whole, part = (tmp_path / "values.csv").read_bytes(), tmp_path / "values.table" / "part-000001.parquet"
    part.write_bytes(b"PAR1 and not much more")
    refused = run("--file", "many.smi", "--out", "values.csv")
    assert isinstance(refused.exception, FileError)
    assert "part-000001.parquet cannot be read" in str(refused.exception)
    part.unlink()  # as it says
    model.explained.clear()
    assert run("--file", "many.smi", "--out", "values.csv").exit_code == 0
    assert len(model.explained) == 6
    assert (tmp_path / "values.csv").read_bytes() == whole


def test_what_is_done_serves_every_ending_and_every_order(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.smi").write_text(MANY)
    (tmp_path / "more.smi").write_text("CCCCCCCO new\n" + "".join(reversed(MANY.splitlines(keepends=True))))
    assert run("--file", "many.smi", "--out", "a.html", "--keep").exit_code == 0
    model.explained.clear()
    assert run("--file", "more.smi", "--out", "a.json", "--smarts", "alcohol=CO").exit_code == 0
    assert model.explained == ["CCCCCCCO"]
    found = json.loads((tmp_path / "a.json").read_text())["molecules"]
    assert [one["name"] for one in found] == ["new", *(f"m{n}" for n in range(6, 0, -1))]


@pytest.mark.parametrize("change", ["tol", "model"])
def test_results_of_another_model_or_option_are_never_mixed(
    run: Run, model: Counting, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    assert run("CCO", "--out", "a.csv", "--keep").exit_code == 0
    other = Counting("another") if change == "model" else model
    monkeypatch.setattr(molecules, "load", lambda name, device: other)
    model.explained.clear()
    words = ("CCO", "--out", "a.csv", *(("--tol", "0.02") if change == "tol" else ()))
    refused = run(*words)
    assert isinstance(refused.exception, OptionError)
    assert ("tol 0.02 (there: 0.01)" if change == "tol" else 'model "another" (there: "counting")') in str(refused.exception)
    assert "--again drops it and begins anew" in str(refused.exception)
    assert other.explained == []
    assert run(*words, "--again").exit_code == 0  # as it says
    assert other.explained == ["CCO"]


def test_quiet_says_only_what_went_wrong(run: Run, model: Counting) -> None:
    done = run("CCO", "C1", "--out", "a.csv", "--quiet")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("not explained: C1: ")
    assert done.stderr.splitlines()[1:] == ["--retry-failed tries them again"]
    assert run("CCO", "--out", "a.csv", "--quiet").output == ""


def test_molecules_of_a_table_by_a_column(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,structure A,smiles\nx,O,C\n")
    assert run("--file", "t.csv", "--column", "structure_a").stdout.splitlines()[1] == "O"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "got no molecule"),
        (("C", "--out", "a.docx"), "a.docx"),
        (("C", "--smarts", "CO"), "expected NAME=SMARTS"),
        (("C", "--smarts", "x=C(("), "RDKit cannot read"),
        (("C", "--smarts", "x=C", "--smarts", "x=O"), "twice"),
        (("C", "--numbers"), "without a picture"),
        (("--file", "."), "got .;"),
        (("C", "--column", "smiles"), "without a table"),
        (("--file", "absent.smi"), "cannot be read"),
        (("--file", "a.pdf"), "ends in .smi"),
        (("here.smi",), "expected --file here.smi"),
        (("--file", "empty.csv"), "holds no molecule"),
    ],
)
def test_errors_are_one_line_and_status_two(
    words: tuple[str, ...],
    said: str,
    model: Counting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.smi").write_text("C\n")
    (tmp_path / "empty.csv").write_text("")
    monkeypatch.setattr(sys, "argv", ["integrand", "molecule", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert error.count("\n") == 1
    assert said in error


@pytest.mark.parametrize(
    ("package", "extra", "name"), [("rdkit", "molecules", "weave-w1n2"), ("chemprop", "admet", "admet:AMES")]
)
def test_a_missing_package_is_said_with_the_extra_that_has_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, package: str, extra: str, name: str
) -> None:
    endpoints.cache_clear()
    for part in [key for key in sys.modules if key.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, part, None)
    monkeypatch.setitem(sys.modules, package, None)
    assert f"pip install 'integrand[{extra}]'" in str(run("CCO", "--model", name).exception)


def test_what_fails_in_a_model_is_a_molecule_that_fails(run: Run, model: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    explain = model.explain

    def fails(given: Sequence[Any], **how: Any) -> list[MoleculeAttribution]:
        if given == ["O"]:
            raise RuntimeError("boom\nand more")
        return explain(given, **how)

    monkeypatch.setattr(model, "explain", fails)
    done = run("CCO", "O")
    assert done.exit_code == 1
    assert "not explained: O: the model: RuntimeError: boom. --debug shows where it happened." in done.stderr
    assert isinstance(run("O", "--debug").exception, RuntimeError)


def test_a_real_network_by_name(run: Run, tmp_path: Path) -> None:
    done = run(
        "CC(=O)Oc1ccccc1C(=O)O", "--model", "weave-w1n2", "--json", "--device", "cpu", "--score", "logit", "--tol", "0.05"
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    total = sum(row["value"] for row in found["rows"])
    assert total == pytest.approx(found["score"] - found["baseline_score"], abs=0.05 * found["certificate"]["magnitude"])
    assert len([row for row in found["rows"] if row["kind"] == "bond"]) == 13
    refused = run("C", "--model", "weave-w9")
    assert "weave-w9" in str(refused.exception)
    shutil.rmtree(tmp_path)  # nothing is left open


def test_many_that_failed_do_not_fill_the_page(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "a.smi").write_text("CCO good\n" + "".join(f"x{i} bad{i}\n" for i in range(30)))
    assert run("--file", "a.smi", "--out", "a.html").exit_code == 1
    words = Tags((tmp_path / "a.html").read_text(encoding="utf-8")).words
    assert "Not explained: bad0, bad1," in words
    assert "bad19 and 10 more; a .json in place of the page says why." in words
    assert "cannot read" not in words


# ---- nothing mixed up, nothing lost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after", ["".join(MANY.splitlines(keepends=True)[:4]), "CCCN other\n" + MANY, MANY + "N more\n", "C1\n", ""]
)
def test_a_file_that_is_replaced_meanwhile_leaves_the_old_table(run: Run, model: Counting, tmp_path: Path, after: str) -> None:
    (tmp_path / "many.smi").write_text(MANY)
    assert run("--file", "many.smi", "--out", "values.csv").exit_code == 0
    before = (tmp_path / "values.csv").read_bytes()
    explain = model.explain

    def replaced(given: Sequence[Any], **how: Any) -> list[MoleculeAttribution]:
        (tmp_path / "new.smi").write_text(after)
        (tmp_path / "new.smi").replace(tmp_path / "many.smi")
        return explain(given, **how)

    model.explain = replaced  # type: ignore[method-assign]
    done = run("--file", "many.smi", "--out", "values.csv", "--again")
    assert done.exit_code == 1
    assert "not written: values.csv: " in done.stderr
    assert "many.smi changed while it was read" in done.stderr or not after
    assert "explained" not in done.stderr.replace("What is done is kept: the same command explains", "")
    assert (tmp_path / "values.csv").read_bytes() == before
    model.explain = explain  # type: ignore[method-assign]
    if after.startswith("C1") or not after:
        return
    assert run("--file", "many.smi", "--out", "values.csv").exit_code == 0
    assert list(dict.fromkeys(row["title"] for row in table(tmp_path / "values.csv"))) == [
        line.split()[1] for line in after.splitlines()
    ]


def test_a_file_that_grows_before_it_is_read_is_not_taken_for_all(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.smi").write_text(MANY)
    explain = model.explain

    def grows(given: Sequence[Any], **how: Any) -> list[MoleculeAttribution]:
        if not model.explained:  # while the first is explained, the rest is being read
            with (tmp_path / "many.smi").open("a") as file:
                file.write("".join(f"N{'C' * n} n{n}\n" for n in range(3)))
        return explain(given, **how)

    model.explain = grows  # type: ignore[method-assign]
    done = run("--file", "many.smi", "--out", "values.csv")
    assert done.exit_code == 1
    assert "many.smi changed while it was read" in done.stderr
    assert not (tmp_path / "values.csv").exists()


def test_a_result_that_is_lost_before_the_file_is_written_is_said(
    run: Run, model: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many.smi").write_text(MANY)
    packed = molecule_row._packed

    def spoiled(found: MoleculeAttribution) -> dict[str, Any]:
        return packed(found) | ({"atoms": None} if found.smiles == "CCCO" else {})

    with monkeypatch.context() as patch:
        patch.setattr(molecule_row, "_packed", spoiled)
        done = run("--file", "many.smi", "--out", "values.csv")
    assert done.exit_code == 1
    assert "not written: values.csv: the result of m3 is not to be found any more" in done.stderr
    model.explained.clear()
    assert run("--file", "many.smi", "--out", "values.csv").exit_code == 0
    assert model.explained == ["CCCO"]
    assert [path.name for path in tmp_path.glob("values*")] == ["values.csv"]


def test_a_second_run_on_the_same_stem_is_refused_and_changes_nothing(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.smi").write_text(MANY)
    assert run("--file", "many.smi", "--out", "a.csv", "--keep").exit_code == 0

    def there() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = there()
    model.explained.clear()
    with files.locked(tmp_path / "a.table"):
        for words in (("a.csv",), ("a.html",), ("a.csv", "--again")):
            refused = run("--file", "many.smi", "--out", *words)
            assert isinstance(refused.exception, FileError)
            assert "a.table is being written by process" in str(refused.exception)
    assert there() == before
    assert model.explained == []


def test_an_interrupted_run_that_does_all_again_keeps_what_was_there(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.smi").write_text(MANY)
    assert run("--file", "many.smi", "--out", "a.csv", "--keep").exit_code == 0
    before = (tmp_path / "a.csv").read_bytes()
    model.explained.clear()
    model.stop_at = 2
    done = run("--file", "many.smi", "--out", "a.csv", "--again")
    assert done.exit_code == 130
    assert (
        "without --again it goes on, with old results for the rest: integrand molecule --file many.smi --out a.csv\n"
        in done.stderr
    )
    model.stop_at = -1
    assert run("--file", "many.smi", "--out", "a.csv").exit_code == 0
    assert len(model.explained) == 2
    assert (tmp_path / "a.csv").read_bytes() == before


def test_a_title_is_never_a_formula(run: Run, model: Counting, tmp_path: Path) -> None:
    names = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "plain", "-5", "=cmd|' /C calc'!A0"]
    (tmp_path / "many.smi").write_text("".join(f"{'C' * (n + 1)} {name}\n" for n, name in enumerate(names)))
    assert run("--file", "many.smi", "--out", "a.csv").exit_code == 0
    titles = list(dict.fromkeys(row["title"] for row in table(tmp_path / "a.csv")))
    assert titles == ["'=1+1", "'+1+1", "'-1+1", "'@SUM(A1)", "plain", "-5", "'=cmd|' /C calc'!A0"]


def test_a_heading_is_never_a_formula_and_no_column_is_lost(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("smiles,=1+1,score,integrand_score,x,x,x (2)\nCO,a,b,c,d,e,f\n")
    assert run("--file", "t.csv", "--out", "a.csv").exit_code == 0
    head, first, *_ = list(csv.reader((tmp_path / "a.csv").read_text().splitlines()))
    assert head[:7] == ["smiles", "'=1+1", "score", "integrand_score", "x", "x (2)", "x (2) (2)"]
    assert first[:7] == ["CO", "a", "b", "c", "d", "e", "f"]
    assert len(set(head)) == len(head)
    assert "integrand_integrand_score" in head


def test_a_line_of_nothing_but_commas_does_not_take_hours() -> None:
    assert len(molecule_files.told_apart_headings([""] * 100_000 + ["x"] * 30_000)) == 130_000


def test_an_output_with_the_longest_name(run: Run, model: Counting, tmp_path: Path) -> None:
    names = ["x" * 250 + "a.csv"[1:], "x" * 249 + "y.csv"]
    for name in names:
        assert run("CCO", "--out", name, "--keep").exit_code == 0
        assert table(tmp_path / name)[0]["smiles"] == "CCO"
    assert len(list(tmp_path.iterdir())) == 4  # two tables, each with what is done
    assert len(model.explained) == 2


def test_nothing_is_written_through_links_that_somebody_planted(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine\n")
    (tmp_path / "elsewhere").mkdir()
    for name in ("a.csv", "a.csv.part", "c.table"):
        (tmp_path / name).symlink_to("precious")
    (tmp_path / "b.table").symlink_to("elsewhere")
    assert "not written by integrand" in str(run("CCO", "--out", "a.csv").exception)
    assert run("CCO", "--out", "a.csv", "--force").exit_code == 0
    for name in ("b.csv", "c.csv"):
        assert "it is a link" in str(run("CCO", "--out", name).exception)
    assert not list((tmp_path / "elsewhere").iterdir())
    assert (tmp_path / "precious").read_text() == "mine\n"


@pytest.mark.parametrize("windows", ["the same", "two"])
@pytest.mark.parametrize("good_first", [True, False])
def test_a_record_with_a_problem_leaves_the_molecule_of_the_same_text_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: str, good_first: bool
) -> None:
    """A record of an SD file that is too long has the same mol block as a good one."""
    if windows == "the same":
        Together(monkeypatch)
    else:
        monkeypatch.setattr(molecules, "load", lambda name, device: Counting())
    monkeypatch.setattr(molecule_files, "RECORD", 2000)
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO"))
    good, bad = block + "$$$$\n", block + "> <note>\n" + "much\n" * 1000 + "\n$$$$\n"
    (tmp_path / "many.sdf").write_text(good + bad if good_first else bad + good)
    for _ in range(2):
        done = run("--file", "many.sdf", "--out", "a.csv")
        assert done.exit_code == 1, done.output
        assert done.stderr.count("not explained") == 1
        assert "is a record with more than 2,000 characters" in done.stderr
        assert "explained 1 of 2 molecule(s)" in done.stderr
        assert len(table(tmp_path / "a.csv")) == 6


def test_molecules_that_come_twice_were_not_done_before(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.smi").write_text("CCO\nCO\nCCO\nCO\nO\n")
    done = run("--file", "many.smi", "--out", "a.csv", "--keep")
    assert done.stderr == "explained 5 of 5 molecule(s); wrote a.csv\n"
    assert "(5 done before)" in run("--file", "many.smi", "--out", "a.csv").stderr
    assert len(model.explained) == 3


def test_the_columns_of_a_table_come_back_first_and_ours_give_way(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.csv").write_text('id,smiles,score,name,name\na,CCO,7.5,"x, y",=1+1\nb,O,,z\n')
    assert run("--file", "many.csv", "--out", "values.csv").exit_code == 0
    head = (tmp_path / "values.csv").read_text().splitlines()[0].split(",")
    assert head[:5] == ["id", "smiles", "score", "name", "name (2)"]
    ours = ["molecule", "title", "integrand_score", "baseline_score", "status", "integrand_smiles", "kind", "index"]
    assert head[5:] == [*ours, "integrand_name", "begin", "end", "value", "pairs", "total"]
    found = table(tmp_path / "values.csv")
    assert [found[0][key] for key in ("id", "smiles", "score", "name", "name (2)")] == ["a", "CCO", "7.5", "x, y", "'=1+1"]
    assert [found[-1][key] for key in ("id", "smiles", "score", "name", "name (2)")] == ["b", "O", "", "z", ""]
    assert float(found[0]["integrand_score"]) == pytest.approx(3.75)
    assert run("--file", "many.csv", "--out", "values.csv").exit_code == 0  # known as ours, whatever columns it has
    printed = json.loads(run("--file", "many.csv", "--json").stdout.splitlines()[0])
    assert printed["columns"] == {"id": "a", "smiles": "CCO", "score": "7.5", "name": "x, y", "name (2)": "=1+1"}
    assert run("--file", "many.csv", "--out", "values.sdf").exit_code == 0
    mol = next(iter(Chem.SDMolSupplier(str(tmp_path / "values.sdf"))))
    assert (mol.GetProp("id"), mol.GetProp("score"), mol.GetDoubleProp("integrand_score")) == ("a", "7.5", pytest.approx(3.75))
    assert run("--file", "values.sdf", "--out", "again.csv", "O").exit_code == 0  # data of SD files, and a molecule without
    rows = table(tmp_path / "again.csv")
    assert (rows[0]["id"], rows[-1]["id"]) == ("", "b")


def test_a_molecule_unlike_those_of_training_is_said_so_on_its_line(run: Run) -> None:
    said = run("N[Pt](N)(Cl)Cl", "CC(=O)Oc1ccccc1C(=O)O", "--device", "cpu").stdout.splitlines()
    assert "was not trained on molecules like this one" in said[0]
    assert "was not trained" not in said[1]


# ---- the table itself --------------------------------------------------------------------------------------------------------


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a table, as any reader of Parquet folders has them."""
    found: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return found


def test_a_folder_becomes_a_table_with_a_row_for_each_molecule(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.csv").write_text("id,smiles,Score,=x\na,CCO,7.5,1\nb,C1C,,2\nc,O,-1,3\nd,CCO,8,4\ne,,9,5\n")
    done = run("--file", "many.csv", "--out", "found")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "explained 3 of 5 molecule(s); table in found"
    assert "note: 1 of 5 molecules are there more than once; the table has each once" in done.stderr
    assert "--retry-failed tries them again" in done.stderr
    assert len(model.explained) == 2
    found = rows(tmp_path / "found")
    assert [row["key"] for row in found] == ["CCO", "C1C", "O", "many.csv, line 6"]
    own = ("smiles", "name", "id", "input_Score", "=x")
    assert [tuple(row[name] for name in own) for row in found] == [
        ("CCO", "a", "a", "7.5", "1"),
        ("C1C", "b", "b", "", "2"),
        ("O", "c", "c", "-1", "3"),
        ("", "e", "e", "9", "5"),
    ]
    assert [row["status"] for row in found] == ["converged", "failed", "converged", "failed"]
    assert "ring" in found[1]["failure"]
    assert "has nothing in the column 'smiles'" in found[3]["failure"]
    first = found[0]
    assert (first["prediction"], first["probability"], first["target"]) == ("3.75", None, "oxygens")
    assert first["features"] == ["C0", "C1", "O2"]
    assert first["attributions"] == pytest.approx([0.5, 0.75, 2.5])
    assert dict(zip(first["groups"], first["group_sums"], strict=True)) == pytest.approx({"hydroxyl": 2.5, "ethyl group": 1.25})
    assert first["sentence"].startswith("Oxygens 3.75: raised most by the hydroxyl")
    title = json.loads((tmp_path / "found" / "_manifest.json").read_text())["title"]
    assert title == "many.csv: counting"


def test_columns_that_are_called_as_the_tables_own_are_kept_beside_them(run: Run, model: Counting, tmp_path: Path) -> None:
    """Before, ``smiles`` was that of the file, and not the molecule that was explained."""
    (tmp_path / "many.csv").write_text("canonical,smiles,Name\nCCO,OCC.[Na],ethanol\n")
    assert run("--file", "many.csv", "--column", "canonical", "--out", "found").exit_code == 0
    [row] = rows(tmp_path / "found")
    assert {name: row[name] for name in ("smiles", "canonical", "input_smiles", "name")} == {
        "smiles": "CCO",
        "canonical": "CCO",
        "input_smiles": "OCC.[Na]",
        "name": "ethanol",
    }


def test_a_table_goes_on_and_tries_failures_again_when_asked_to(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "many.csv").write_text("id,smiles\na,CCO\nb,CO\nc,O\n")
    explain, bad = model.explain, ["CO"]

    def sometimes(given: Sequence[Any], **how: Any) -> list[MoleculeAttribution]:
        if given == bad:
            raise RuntimeError("no memory today")
        return explain(given, **how)

    model.explain = sometimes  # type: ignore[method-assign]
    assert run("--file", "many.csv", "--out", "found").exit_code == 1
    first = rows(tmp_path / "found")
    bad.clear()
    done = run("--file", "many.csv", "--out", "found")
    assert done.exit_code == 1  # not tried again
    assert "not explained: b: the model: RuntimeError: no memory today" in done.stderr
    assert done.stdout == ""
    assert rows(tmp_path / "found") == first
    done = run("--file", "many.csv", "--out", "found", "--retry-failed")
    assert done.exit_code == 0
    assert done.stderr == "explained 3 of 3 molecule(s) (2 done before); table in found\n"
    assert model.explained == ["CCO", "O", "CO"]
    assert {row["key"]: row["status"] for row in rows(tmp_path / "found")} == dict.fromkeys(("CCO", "CO", "O"), "converged")
    (tmp_path / "many.csv").write_text("id,smiles\na,CCO\nother,CO\nc,O\n")  # what the file says is part of the table
    assert run("--file", "many.csv", "--out", "found").exit_code == 0
    assert model.explained[3:] == ["CO"]
    assert {row["key"]: row["id"] for row in rows(tmp_path / "found")} == {"CCO": "a", "CO": "other", "O": "c"}


def test_a_folder_with_something_else_in_it_is_left_alone(run: Run, model: Counting, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert "a folder that holds 'notes.txt'" in str(run("CCO", "--out", "mine").exception)
    assert "a file without an ending" in str(run("CCO", "--out", "file").exception)
    assert "a name without an ending for a folder" in str(run("CCO", "--out", "new.v2").exception)
    assert "there is no folder 'no'" in str(run("CCO", "--out", "no/table").exception)
    (tmp_path / "old.v2").mkdir()
    assert run("CCO", "--out", "old.v2").exit_code == 0
    assert len(rows(tmp_path / "old.v2")) == 1
    assert "tol 0.02 (there: 0.01)" in str(run("CCO", "--out", "old.v2", "--tol", "0.02", "--again").exception)


def test_without_an_output_nothing_is_kept_and_nothing_is_promised(
    run: Run, model: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    done = run("CCO", *(f"x{i}" for i in range(30)))
    assert done.exit_code == 1
    assert done.stderr.splitlines()[20:] == ["not explained: 10 more; with --out, a table has the reasons"]
    model.stop_at = 1
    assert "goes on" not in run("CCO", "CO").stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


def test_an_sd_file_becomes_a_table_from_which_molecules_are_drawn_again(run: Run, model: Counting, tmp_path: Path) -> None:
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(text)) for text in ("OCC", "OC")]
    (tmp_path / "a.sdf").write_text("".join(f"m{i}{block}> <dose>\n{i}\n\n$$$$\n" for i, block in enumerate(blocks)))
    assert run("--file", "a.sdf", "--out", "found").exit_code == 0
    found = list(ExplainedTable.open(tmp_path / "found").rows())
    assert [row.key.split()[0] for row in found] == ["m0", "m1"]
    assert [row.columns for row in found] == [
        {"smiles": "CCO", "name": "m0", "dose": "0"},
        {"smiles": "CO", "name": "m1", "dose": "1"},
    ]
    drawn = MoleculeAttribution.from_row(found[0])
    assert found[0].features == ("O0", "C1", "C2")  # as in the file, not as in the SMILES
    assert [drawn.name(i) for i in range(3)] == ["O0", "C1", "C2"]
    assert drawn.per_atom == pytest.approx([2.5, 0.75, 0.5])
    kept = replace(found[0], key="", input_digest="", columns={"smiles": "CCO"}, attributions=None)
    assert replace(drawn.row(), attributions=None) == kept
