"""FASTA files: read within limits, and what is wrong with others."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from integrand.apps.sequences import sequence_files
from integrand.errors import FileError
from integrand.sequences import FastaRecord, read_fasta


def test_names_lines_comments_and_ends_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.fa"
    file.write_bytes(b">one first of all\r\nACGT\r\nacgtNN\r\n\r\n;a comment\r\n>chr1:10-14\r\nAC GT\n>\nA\n>empty\n")
    found = list(read_fasta(file))
    assert found[0] == FastaRecord("one", "first of all", "ACGTacgtNN")
    assert found[1].sequence == "ACGT"
    assert found[1].place == ("chr1", 10)
    assert (found[2].name, found[2].sequence) == ("sequence 3", "A")
    assert found[3].problem == "it has no letters"
    packed = tmp_path / "a.fa.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert list(read_fasta(packed)) == found


def test_what_is_no_fasta_file(tmp_path: Path) -> None:
    file = tmp_path / "a.fa"
    for content, said in [
        (b"ACGT\n", "begins with 'ACGT'; expected a FASTA file"),
        (b"\n\n", "holds no sequence"),
        (b">a\nAC\0GT\n", "is no text"),
        (gzip.compress(b">a\nACGT\n" * 999)[:-20], "cannot be unpacked"),
    ]:
        file.write_bytes(content)
        with pytest.raises(FileError, match=said):
            list(read_fasta(file))
    with pytest.raises(FileError, match="cannot be read"):
        list(read_fasta(tmp_path / "none.fa"))


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_files, "LONGEST", 100)
    monkeypatch.setattr(sequence_files, "LARGEST", 2000)
    file = tmp_path / "a.fa"
    file.write_text(">long\n" + "ACGTACGTAC\n" * 15 + ">short\nACGT\n")
    long, short = read_fasta(file)
    assert "more than 100 letters" in long.problem
    assert len(long.sequence) <= 110
    assert short.sequence == "ACGT"
    file.write_text(">long\n" + "ACGTACGTAC\n" * 200)
    with pytest.raises(FileError, match="more than 2,000 bytes"):
        list(read_fasta(file))


def test_places_need_the_right_length() -> None:
    assert FastaRecord("peak1::chr7:5,000-5,004(+)", "", "ACGT").place == ("chr7", 5000)
    assert FastaRecord("chr7:5000-5010", "", "ACGT").place is None
    assert FastaRecord("seq1", "", "ACGT").place is None
