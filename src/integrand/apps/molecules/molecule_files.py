"""Molecules in files: reads SMILES lists, tables and SD files, compressed or not; writes attributions as tables.

Files may come from anybody: a line, a record and what a compressed file unpacks to have limits, and what is beyond them is a
molecule with a problem, or the end of the file, but never held in memory.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...bounded_reading import FileVersion, TextLines, UnpackError, bounded_text
from ...errors import FileError, InputError, MissingExtraError, OptionError
from ...files import text_file
from ...render.molecule.molecule_drawing import printable
from ...words import cells, finite, shown
from .molgraph import check_atoms
from .result import Floats, MoleculeAttribution

if TYPE_CHECKING:
    from rdkit.Chem import Mol

LISTS = (".smi", ".smiles", ".ism", ".txt")
TABLES = (".csv", ".tsv")
SDFS = (".sdf", ".sd")

_SMILES = ("smiles", "canonical smiles", "isomeric smiles", "smi", "structure")
_NAMES = ("name", "id", "title", "molecule name", "compound name", "mol id", "molecule id", "compound id", "chembl id")

LINE = 1 << 17
"""The most characters of a line in a file of molecules; a longer one is a molecule with a problem."""

RECORD = 1 << 20
"""The most characters of a record in an SD file, or of a row in a table."""

NAMED = 20
"""The most headings of a table that an error names."""

COLUMNS = ("smiles", "kind", "index", "name", "begin", "end", "value", "pairs", "total")
"""The columns of the table of attributions; see :meth:`MoleculeAttribution.rows`."""


@dataclass(frozen=True)
class Record:
    """One molecule of a file, or of the command line.

    Attributes:
        text: the molecule as it is written: a SMILES, or a mol block.
        name: what the file calls it; may be empty.
        where: the file and line, for messages.
        problem: why there is no molecule to be had here; empty if there may be.
        block: whether the text is a mol block.
        columns: the other cells of its row in a table, or the data of its record in an SD file, by heading.
    """

    text: str
    name: str = ""
    where: str = ""
    problem: str = ""
    block: bool = False
    columns: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", " ".join(printable(self.name).split()))  # nothing that a terminal would obey

    @property
    def title(self) -> str:
        """The molecule's name for people, or its SMILES where it has none."""
        return self.name or ("" if self.block else shown(self.text[:200])) or self.where

    def molecule(self) -> str | Mol:
        """The SMILES as it is written, or the mol block as read by RDKit, with heavy atoms in their order.

        Raises:
            InputError: there is none.
        """
        if self.problem:
            raise InputError(self.problem)
        return _from_block(self.text) if self.block else self.text


class _Lines(TextLines):
    """The lines of a file, none of them longer than :data:`LINE`: of a longer one nothing is given but that it was there."""

    def __init__(self, file: IO[str], name: str) -> None:
        """Begin with the first line.

        Args:
            file: the text.
            name: what the file is called, for messages.
        """
        super().__init__(file, LINE)
        self._name = name
        self.long: list[Record] = []  # a record for each line that was too long and has not been taken yet

    def too_long(self) -> str:
        """An empty line in place of one that was too long."""
        where = f"{self._name}, line {self.number}"
        self.long.append(Record("", where=where, problem=f"{where} has more than {LINE:,} characters; expected a molecule"))
        return "\n"

    def long_lines(self) -> Iterator[Record]:
        """The records of lines that were too long since this was last asked."""
        while self.long:
            yield self.long.pop(0)


Reader = Callable[[_Lines, str], Iterator[Record]]


def records(path: Path, *, column: str | None = None, version: FileVersion | None = None) -> Iterator[Record]:
    """Read the molecules of a file one by one; a file that breaks off ends with a record that says so.

    Args:
        path: lists (``.smi``, ``.smiles``, ``.ism``, ``.txt``) hold a SMILES and maybe a name per line, and maybe a heading;
            tables (``.csv``, ``.tsv``) a column of SMILES, and maybe one of names; ``.sdf`` records with their titles. All may
            be compressed (``.gz``).
        column: the heading of the SMILES in a table; without it, ``smiles`` or what comes next to that.
        version: what an earlier reading has found in the file; another content is an error at the end.
    """
    read = _reader(path, column)
    count, name = 0, shown(path.name)
    try:
        with bounded_text(path, what="a file of molecules", errors="replace", newline=None, version=version) as file:
            for count, record in enumerate(read(_Lines(file, name), name), 1):  # noqa: B007, read after the loop
                yield record
    except (UnpackError, csv.Error) as error:
        said = str(error).rstrip(".")
        if not count:
            raise FileError(f"{shown(str(path))} cannot be read ({said}); expected a file of molecules.") from None
        yield Record("", where=name, problem=f"{name} cannot be read beyond molecule {count} ({said})")
        return
    except OSError as error:
        raise FileError(
            f"{shown(str(path))} cannot be read ({error.strerror or error}); expected a file of molecules."
        ) from None
    if not count:
        raise FileError(
            f"{shown(str(path))} holds no molecule; expected a SMILES per line, a table with a column of them, or an SD file."
        )


def rows(result: MoleculeAttribution) -> list[dict[str, Any]]:
    """The attributions of a molecule as table rows; see :meth:`MoleculeAttribution.rows`."""
    found: list[dict[str, Any]] = [
        _row(kind="atom", index=i, name=result.mol.GetAtomWithIdx(i).GetSymbol(), value=own, pairs=total - own, total=total)
        for i, (own, total) in enumerate(zip(result.atoms.tolist(), result.per_atom.tolist(), strict=True))
    ]
    seen = sorted(zip(result.bonds.tolist(), result.ends.tolist(), result.pair_values.tolist(), strict=True), key=_bonds_first)
    for bond, (i, j), value in seen:
        kind = {"kind": "pair"} if bond < 0 else {"kind": "bond", "index": bond}
        found.append(_row(**kind, name=f"{result.name(i)}-{result.name(j)}", begin=i, end=j, value=value))
    found += [_row(kind="other", name=name, value=value, total=value) for name, value in result.others.items()]
    return [row | {"smiles": result.smiles} for row in found]


def as_dict(result: MoleculeAttribution) -> dict[str, Any]:
    """The attributions of a molecule as a dictionary for JSON; see :meth:`MoleculeAttribution.to_dict`."""
    one = result.certificate
    facts: dict[str, Any] = {"status": one.status.value, "remedy": one.remedy, "error": one.error, "tol": one.tol}
    facts |= {"residual": one.residual, "magnitude": one.magnitude, "gradients": one.gradients, "target": one.target}
    found = {
        "smiles": result.smiles,
        "model": result.model,
        "label": result.label,
        "score": result.score,
        "baseline_score": result.baseline_score,
        "sum": result.total,
        "notes": list(result.notes),
        "certificate": finite(facts),
        "rows": [{k: v for k, v in row.items() if v is not None and k != "smiles"} for row in rows(result)],
        "account": result.account().to_dict(),
    }
    if result.atom_columns:
        found["atom_features"] = _matrix_rows(result.atom_columns, result.atom_features)
    if result.pair_columns:
        found["pair_features"] = _matrix_rows(result.pair_columns, result.pair_features) | {"ends": result.ends.tolist()}
    return found


def write_csv(results: Iterable[MoleculeAttribution], path: str | PathLike[str]) -> Path:
    """Write the attributions of several molecules as one table, with the rows of :meth:`MoleculeAttribution.rows`."""
    where = Path(path)
    with text_file(where) as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for result in results:
            writer.writerows(map(cells, result.rows()))
    return where


def _reader(path: Path, column: str | None) -> Reader:
    """The function that reads a file, chosen by its suffix."""
    ending = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    if ending in TABLES:
        return partial(_table, column=column)
    if column is not None:
        raise OptionError(f"got a column of SMILES for {shown(path.name)}; expected it for a table ({', '.join(TABLES)}) only.")
    if ending in LISTS:
        return _list
    if ending in SDFS:
        return _sdf
    known = ", ".join((*LISTS, *TABLES, *SDFS))
    raise FileError(f"got {shown(path.name or str(path))}; expected a file that ends in {known}, or in one of these and .gz.")


def _list(lines: _Lines, name: str) -> Iterator[Record]:
    headed = False
    for line in lines:
        yield from lines.long_lines()
        words = re.split(r"[\s,]+", line.strip(), maxsplit=1)  # no SMILES has a comma
        if not words[0] or words[0].startswith("#"):
            continue
        if not headed and _plain(words[0][:100]) in _SMILES:
            headed = True
            continue
        headed = True
        rest = re.sub(r"^\|[^|]*\|\s*", "", words[1]) if len(words) > 1 else ""  # extended SMILES: marks between bars
        yield Record(words[0], rest, f"{name}, line {lines.number}")


def _table(lines: _Lines, name: str, *, column: str | None) -> Iterator[Record]:
    head = next((line for line in lines if line.strip()), "")
    yield from lines.long_lines()
    if not head:
        return
    mark = max(",;\t", key=head.count)
    headings = next(csv.reader([head], delimiter=mark))
    place, label = _column(headings, column, name), _name_column(headings)
    names = told_apart_headings(headings)
    for row in csv.reader(_row_lines(lines), delimiter=mark):
        lines.size = 0
        yield from lines.long_lines()
        if not any(cell.strip() for cell in row):
            continue
        text = row[place].strip() if place < len(row) else ""
        called = " ".join(row[label].split()) if label is not None and label < len(row) else ""
        where = f"{name}, line {lines.number}"
        problem = "" if text else f"{where} has nothing in the column {headings[place]!r}"
        yield Record(text, called, where, problem, columns=tuple(zip(names, row, strict=False)))


def told_apart_headings(headings: Sequence[str]) -> list[str]:
    """The headings of a table, each with a name of its own.

    >>> told_apart_headings(["smiles", "name", "", "name", "name (2)"])
    ['smiles', 'name', 'column 3', 'name (2)', 'name (2) (2)']
    """
    found: dict[str, None] = {}
    counts: Counter[str] = Counter()  # a line may have as many headings as characters: each is looked at once
    for i, heading in enumerate(headings, 1):
        own = name = " ".join(heading.split()) or f"column {i}"
        while name in found:
            counts[own] += 1
            name = f"{own} ({counts[own] + 1})"
        found[name] = None
    return list(found)


def _row_lines(lines: _Lines) -> Iterator[str]:
    """The lines of a table; an error where a row, which quotes let go on over many of them, is too long."""
    for line in lines:
        if lines.size > RECORD:
            raise csv.Error(f"a row with more than {RECORD:,} characters; is there a quote that is not closed?")
        yield line


def _column(headings: Sequence[str], wanted: str | None, name: str) -> int:
    """The index of the column of SMILES."""
    plain = [_plain(heading) for heading in headings]
    if wanted is not None and wanted in headings:
        return headings.index(wanted)
    for known in _SMILES if wanted is None else (_plain(wanted),):
        if known in plain:
            return plain.index(known)
    near = [i for i, heading in enumerate(plain) if "smiles" in heading]
    if wanted is None and near:
        return near[0]
    asked = "a column of SMILES (smiles, canonical_smiles, ...); name yours" if wanted is None else f"a column {wanted!r}"
    some = [*(repr(heading[:80]) for heading in headings[:NAMED]), *(["..."] if len(headings) > NAMED else [])]
    raise FileError(f"{name} has the columns {', '.join(some)}; expected {asked} with --column.")


def _name_column(headings: Sequence[str]) -> int | None:
    plain = [_plain(heading) for heading in headings]
    known = [plain.index(name) for name in _NAMES if name in plain]
    known += [i for i, heading in enumerate(plain) if heading.endswith((" id", " name"))]
    return known[0] if known else None


def _plain(heading: str) -> str:
    """A heading in lower case without punctuation: ``Canonical_SMILES`` is ``canonical smiles``."""
    return re.sub(r"[\W_]+", " ", heading).strip().lower()


def _sdf(lines: _Lines, name: str) -> Iterator[Record]:
    kept: list[str] = []
    start = 1
    for line in lines:
        if line.startswith("$$$$"):
            yield _from_sdf(kept, lines, f"{name}, line {start}")
            kept, start, lines.size = [], lines.number + 1, 0
        elif lines.size <= RECORD:
            kept.append(line.rstrip("\n"))
    if lines.long or any(line.strip() for line in kept):
        yield _from_sdf(kept, lines, f"{name}, line {start}")


def _from_sdf(kept: Sequence[str], lines: _Lines, where: str) -> Record:
    """A record of an SD file: a title, the mol block, then data (a line ``> <NAME>``, then the value)."""
    long = list(lines.long_lines())
    end = next((i + 1 for i, line in enumerate(kept) if line.startswith("M  END")), len(kept))
    facts = [(_between(line), i) for i, line in enumerate(kept[end:-1], end) if line.startswith(">")]
    data = {found: kept[i + 1].strip() for found, i in facts if found is not None}
    label = _name_column(list(data))
    called = (kept[0].strip() if kept else "") or ("" if label is None else list(data.values())[label])
    problem = f"{where} is a record with more than {RECORD:,} characters; expected a molecule" if lines.size > RECORD else ""
    block = "\n".join(kept[:end]) + "\n"
    return Record(block, called, where, long[0].problem if long else problem, block=True, columns=tuple(data.items()))


def _between(line: str) -> str | None:
    """What is between the first < of a line and the next >; None if there is no such thing."""
    name, closed, _ = line.partition("<")[2].partition(">")
    return name if closed else None


def _from_block(block: str) -> Mol:
    """Parse a mol block, with RDKit's log silenced."""
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "reading molecules") from None
    with rdBase.BlockLogs():
        try:
            mol = Chem.MolFromMolBlock(block, sanitize=False, removeHs=False)
            if mol is not None:
                check_atoms(mol)
                mol = Chem.MolFromMolBlock(block)
        except InputError:
            raise
        except (ValueError, RuntimeError) as error:  # what RDKit raises rather than to give None
            said = shown(" ".join(str(error).split())[:200])
            raise InputError(f"got a record that RDKit cannot read ({said}); expected a valid mol block.") from None
    if mol is None or not mol.GetNumAtoms():
        what = "that RDKit cannot read" if mol is None else "without atoms"
        raise InputError(f"got a record {what}; expected a valid mol block.")
    return mol


def _row(**given: Any) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS) | given


def _bonds_first(pair: tuple[int, list[int], float]) -> tuple[bool, int, list[int]]:
    bond, ends, _ = pair
    return bond < 0, bond, ends


def _matrix_rows(columns: tuple[str, ...], values: Floats) -> dict[str, Any]:
    return {"columns": list(columns), "values": values.tolist()}
