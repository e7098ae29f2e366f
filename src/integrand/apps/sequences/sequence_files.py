"""Reads sequences from FASTA files, plain or gzipped, within limits; from places in their headings, coordinates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO

from ...bounded_reading import bounded_bytes
from ...errors import FileError
from ...words import shown
from .alphabets import LONGEST

ENDINGS = (".fa", ".fasta", ".fna", ".faa", ".ffn", ".frn", ".fas")
"""What the names of FASTA files end in; ``.gz`` may follow."""

LONGEST_LINE = 1 << 21
"""The most bytes of a line: many files have a sequence on a single one."""

LARGEST = 1 << 30
"""The most bytes of a file, unpacked."""

_PLACE = re.compile(r"(?:.*::)?([\w.]{1,64}):([\d,]{1,15})-([\d,]{1,15})(?:\([+-]\))?")


@dataclass(frozen=True)
class FastaRecord:
    """One sequence of a FASTA file.

    Attributes:
        name: the first word of the heading.
        about: the rest of it.
        sequence: the letters, white space taken out.
        problem: why it cannot be explained; empty if it can.
    """

    name: str
    about: str
    sequence: str
    problem: str = ""

    @property
    def place(self) -> tuple[str, int] | None:
        """Chromosome and first position, counted from 0, where the name is a place as in ``chr1:1000-1200``.

        As ``bedtools getfasta`` names them: the start counts from 0. None where the length is another than the place says.

        >>> FastaRecord("chr1:1000-1004", "", "ACGT").place
        ('chr1', 1000)
        """
        return place_of(self.name, len(self.sequence))


def place_of(name: str, length: int) -> tuple[str, int] | None:
    """The place that a name tells, if it has so many letters; see :attr:`FastaRecord.place`."""
    found = _PLACE.fullmatch(name)
    if found is None:
        return None
    start, end = (int(text.replace(",", "") or 0) for text in found.groups()[1:])
    return (found[1], start) if end - start == length else None


def is_fasta(name: str) -> bool:
    """Whether a name is that of a FASTA file, by its ending.

    >>> is_fasta("peaks.fa.gz"), is_fasta("ACGT")
    (True, False)
    """
    return name.lower().removesuffix(".gz").endswith(ENDINGS)


def read_fasta(file: str | PathLike[str]) -> Iterator[FastaRecord]:
    """The sequences of a FASTA file, one at a time.

    Args:
        file: plain text or gzipped.

    Raises:
        FileError: it cannot be read, or is no FASTA file.
    """
    path = Path(file)
    with bounded_bytes(path, what="a FASTA file") as opened:
        yield from _records(opened, path)


def _records(lines: IO[bytes], path: Path) -> Iterator[FastaRecord]:
    heading: str | None = None
    parts: list[str] = []
    count = size = total = 0

    def record() -> FastaRecord:
        name, _, about = (heading or "").partition(" ")
        sequence = "".join(parts)
        why = "" if sequence else "it has no letters"
        if len(sequence) > LONGEST:
            why = f"it has more than {LONGEST:,} letters"
        return FastaRecord(name or f"sequence {count}", about.strip(), sequence[: LONGEST + 1], why)

    while raw := lines.readline(LONGEST_LINE):
        total += len(raw)
        if total > LARGEST:
            raise FileError(f"{shown(str(path))} has more than {LARGEST:,} bytes; expected a smaller file. Split it.")
        line = _decoded(raw, path).strip()
        if line.startswith(">"):
            if heading is not None:
                yield record()
            heading, parts, size, count = line[1:].strip()[:1000], [], 0, count + 1
        elif line and not line.startswith(";"):
            if heading is None:
                raise FileError(
                    f"{shown(str(path))} begins with {shown(line[:40])!r}; expected a FASTA file, whose first line begins "
                    "with > and a name."
                )
            if size <= LONGEST:  # of a sequence that is too long, the rest need not be held
                parts.append("".join(line.split()))
                size += len(parts[-1])
    if heading is None:
        raise FileError(f"{shown(str(path))} holds no sequence; expected a FASTA file, whose first line begins with >.")
    yield record()


def _decoded(raw: bytes, path: Path) -> str:
    if b"\0" in raw:
        raise FileError(f"{shown(str(path))} is no text; expected a FASTA file.")
    return raw.decode("utf-8-sig", "replace")
