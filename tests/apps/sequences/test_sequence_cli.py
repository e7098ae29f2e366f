"""``integrand sequence``: sequences and FASTA files, pages and tables, networks of one's own, and what goes wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from integrand.apps.sequences import model
from integrand.batch import ExplainedTable
from integrand.cli.app import app
from integrand.errors import FileError, InputError, IntegrandError, OptionError, TrustError

Run = Callable[..., Result]
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "motifs.fasta"
QUICK = ("--shuffles", "2", "--tol", "0.1")
OWN = """
import torch
WEIGHTS = torch.linspace(-1, 1, 20)
def network():
    return lambda x: (x * WEIGHTS[:, None]).sum((1, 2))
def broken():
    def run(x):
        raise ZeroDivisionError("never mind")
    return run
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = EXAMPLES.read_text().splitlines(keepends=True)
    (tmp_path / "three.fa").write_text("".join(lines[:15]))
    (tmp_path / "my_proteins.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "my_proteins", raising=False)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def invoke(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["integrand", *words])
        return CliRunner().invoke(app, ["sequence", *words])

    return invoke


def first() -> str:
    return "".join(EXAMPLES.read_text().splitlines()[1:5])


def test_a_sequence_as_a_page_a_picture_and_numbers(run: Run, here: Path) -> None:
    found = run(first(), *QUICK, "--out", "one.html")
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("bound (99.6%), mostly because of ")
    page = (here / "one.html").read_text()
    assert "Content-Security-Policy" in page
    assert "integrand sequence" not in page.partition("Made with")[0]
    assert run(first(), *QUICK, "--out", "one.bedgraph").exit_code == 0
    assert len((here / "one.bedgraph").read_text().splitlines()) == 202
    assert run(first(), *QUICK, "--out", "one.png", "--no-hypothetical").exit_code == 0
    assert (here / "one.png").read_bytes().startswith(b"\x89PNG")
    (numbers,) = json.loads(run(first(), *QUICK, "--json").stdout)
    assert len(numbers["values"]) == 200
    assert len(numbers["hypothetical"]) == 4
    assert numbers["said"] == "bound"
    assert "dinucleotide shuffles (seed 4)" in run(first(), *QUICK, "--seed", "4", "--verbose").stdout


def test_a_file_becomes_a_table_that_goes_on_where_it_was(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, plain = [0], model.integrated_gradients

    def counted(*args: Any, **how: Any) -> object:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return plain(*args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(model, "integrated_gradients", counted)
        stopped = run("three.fa", *QUICK, "--out", "table")
    assert stopped.exit_code == 130
    assert "the same command goes on" in stopped.stderr
    done = run("three.fa", *QUICK, "--out", "table")
    assert done.exit_code == 0
    assert "explained 3 of 3 sequences" in done.stderr
    rows = ExplainedTable.open(here / "table").arrow().to_pylist()
    assert [row["name"] for row in rows] == ["seq1", "seq2", "seq3"]
    assert rows[0]["prediction"] == "bound"
    assert len(rows[0]["attributions"]) == 200
    again = run("three.fa", *QUICK, "--out", "table")
    assert "(3 done before)" in again.stderr


def test_many_on_one_page_past_one_that_fails(run: Run, here: Path) -> None:
    (here / "bad.fa").write_text((here / "three.fa").read_text() + ">odd\nACGT!!\n>none\n")
    found = run("bad.fa", *QUICK, "--out", "many.html")
    assert found.exit_code == 1
    assert "got '!' at position 5" in found.stderr
    assert "it has no letters" in found.stderr
    page = (here / "many.html").read_text()
    assert page.count('<article class="card"') == 3
    assert "2 of 5 sequences could not be explained" in page


def test_a_network_of_ones_own(run: Run) -> None:
    protein = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ"
    words = (protein, "--model", "my_proteins:network", "--alphabet", "protein", "--baseline", "uniform")
    refused = run(*words)
    assert isinstance(refused.exception, TrustError)
    found = run(*words, "--trust", "--verbose")
    assert found.exit_code == 0, found.exception
    assert "the output is" in found.stdout
    broken = run(protein, "--model", "my_proteins:broken", "--alphabet", "protein", "--trust")
    assert isinstance(broken.exception, IntegrandError)
    assert "ZeroDivisionError: never mind" in str(broken.exception)


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (("ACGTZ",), InputError, "got 'Z' at position 5"),
        (("none.fa",), FileError, "none.fa cannot be read"),
        (("three.fa", "ACGT"), OptionError, "expected one FASTA file, or sequences only"),
        (("ACGTACGT", "--model", "foo"), OptionError, "expected one of motifs"),
        (("ACGTACGT", "--model", ""), OptionError, "which is empty; expected the name of a network"),
        (("ACGTACGT", "--alphabet", "RNA"), OptionError, "got --alphabet, which motifs brings itself"),
        (("ACGTACGTTGCAACTGA", "--baseline", "ACC"), OptionError, "got --baseline ACC; expected one of"),
        (("ACGTACGTTGCAACTGA", "--target", "3"), IntegrandError, "a single output; expected 0, 'bound', or none"),
        (("ACG",), InputError, "and --alphabet and --layout as it was trained"),
        (("AAAAAAAAAAAAAAAAAAAAAAA",), InputError, "or --baseline uniform"),
        (("ACGT", "--out", "a.txt"), OptionError, "expected a file that ends in .html"),
        (("three.fa", *QUICK, "--out", "a.png"), InputError, "Several go on a page: --out a.html"),
    ],
)
def test_what_goes_wrong(run: Run, words: tuple[str, ...], error: type[Exception], said: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, error), found.output
    assert said in str(found.exception)
