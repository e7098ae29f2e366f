"""What ``integrand molecule`` writes: pages, pictures, tables, and a few lines for the terminal."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...batch.rows import Row
from ...files import marked, text_file, write_bytes, write_text
from ...render import molecule as render
from ...words import cell, cells
from ..command_line import figures, headline_of
from .molecule_files import COLUMNS, Record
from .result import MoleculeAttribution

PICTURES = (".svg", ".png")

MOST = 200
"""The most molecules on one page: with more, a browser becomes slow."""

MOST_FAILED, MOST_REASONS = 20, 3
"""The most failed molecules that a page names, and the most for which it gives the reasons: more would bury the rest."""

NUMBER = re.compile(r"[+-]?\d[\d.e+-]*%?$")

TOP = 8
"""The most atoms, and the most bonds, that the terminal shows of a molecule."""

MoleculePair = tuple[Record, MoleculeAttribution]
"""A molecule and its attribution."""

Failure = tuple[Record, str]
"""A molecule and the reason why it was not explained."""


@dataclass(frozen=True)
class MoleculeWriter:
    """How molecules are written, the same for all of them.

    Attributes:
        smarts: SMARTS patterns to account by, by name.
        meta: how the values were computed, for the page.
        command: what the user typed.
        numbered: whether pictures show the numbers of atoms.
        headings: those of the columns that the input has of its own, which come first in tables.
    """

    smarts: Mapping[str, str]
    meta: Mapping[str, str]
    command: str
    numbered: bool = False
    headings: tuple[str, ...] = ()

    def write(self, out: Path, found: Iterable[MoleculePair], failed: Sequence[Failure]) -> int:
        """Write all molecules into a file, which appears when it is complete; its ending decides the format.

        Args:
            out: the file.
            found: the molecules that were explained, in order; taken one at a time.
            failed: the molecules that were not; read when all of the others were taken.

        Returns:
            How many molecules were written.
        """
        count = 0

        def counted() -> Iterator[MoleculePair]:
            nonlocal count
            for count, pair in enumerate(found, 1):  # noqa: B007, read at the end
                yield pair

        ending = out.suffix.lower()
        if ending == ".html":
            write_text(out, self.page(counted(), failed))
        elif ending in PICTURES:
            ((record, one),) = counted()
            drawing = one.drawing(title=record.title)
            picture = render.png if ending == ".png" else render.svg
            drawn = picture(drawing, numbers="atoms" if self.numbered else False)
            write_bytes(out, marked(drawn))
        else:
            with text_file(out) as file:
                {".csv": self._csv, ".sdf": self._sdf}.get(ending, self._json)(file, counted(), failed)
        return count

    def page(self, found: Iterable[MoleculePair], failed: Sequence[Failure]) -> str:
        """The page: drawings of the first molecules, with all their numbers."""
        rest = iter(found)
        shown = list(islice(rest, MOST))
        left = sum(1 for _ in rest)
        lead = f"The first {MOST} of {MOST + left} molecules; --out values.csv has all. " if left else ""
        lead += _left_out(failed)
        accounts = [one.account(smarts=self.smarts) for _, one in shown]
        return render.page(
            [one.drawing(title=record.title) for record, one in shown],
            title=shown[0][0].title if len(shown) == 1 and not left else f"{len(shown) + left} molecules",
            lead=lead,
            notes=[" ".join([*one.notes, *account.notes]) for (_, one), account in zip(shown, accounts, strict=True)],
            certificates=[one.certificate for _, one in shown],
            accounts=[account.lines() for account in accounts],
            meta=self.meta,
            command=self.command,
        )

    def numbers(self, record: Record, one: MoleculeAttribution) -> dict[str, Any]:
        """A molecule as JSON values: its name, the rows of its table, its account."""
        known = one.to_dict() | {"account": one.account(smarts=self.smarts).to_dict()}
        given = {"columns": dict(record.columns)} if record.columns else {}
        said = {"name": record.name, "sentence": headline_of(one)} | given
        return said | {key: value for key, value in known.items() if not key.endswith("_features")}

    def _json(self, file: IO[str], found: Iterable[MoleculePair], failed: Sequence[Failure]) -> None:
        file.write('{"molecules": [')
        for i, (record, one) in enumerate(found):
            file.write((",\n" if i else "\n") + json.dumps(self.numbers(record, one), allow_nan=False))
        bad = [{"name": record.name, "smiles": record.text, "where": record.where, "error": why} for record, why in failed]
        file.write(f'\n],\n"failed": {json.dumps(bad)}}}\n')

    def terminal(self, record: Record, one: MoleculeAttribution, *, verbose: bool = False) -> str:
        """A molecule as text: what was said and why, the account by kind, the strongest atoms and bonds.

        Args:
            record: as it was read.
            one: its attribution.
            verbose: with the figures of the certificate.
        """
        named = f"{record.name}: " if record.name else ""
        account = one.account(smarts=self.smarts)
        told = [(section, part) for section, part in account.told() if section in ("group", "kind", "element", "pattern")]
        told.sort(key=lambda row: row[0] != "group")  # what the sentence names comes first
        shares = [(f"by {section}", part.name, _signed(part.value), _off(part.error), part.percent) for section, part in told]
        tables = [_columns(_once(shares)), _atoms(one), *([_bonds(one)] if len(one.pair_values) else [])]
        notes = [account.notes[0]] if account.share_error is None else []
        notes += [f"Not in this molecule: {', '.join(account.absent)}."] if account.absent else []
        more = [figures(one.certificate)] if verbose else []
        return "\n\n".join([f"{named}{one.sentence}\n{one.smiles}", *one.notes, *tables, *notes, *more])

    def _csv(self, file: IO[str], found: Iterable[MoleculePair], _: Sequence[Failure]) -> None:
        """Write a table: the input's own columns first, then ours, under another name where the input has one of that name."""
        names = {name: self._ours(name) for name in ("molecule", "title", "score", "baseline_score", "status", *COLUMNS)}
        writer = csv.DictWriter(file, [*self.headings, *names.values()])
        writer.writerow({name: cell(name) for name in writer.fieldnames})
        for i, (record, one) in enumerate(found, 1):
            given = {name: value for name, value in record.columns if name in self.headings}
            about = {"molecule": i, "title": record.name, "score": one.score, "baseline_score": one.baseline_score}
            about["status"] = one.certificate.status.value
            for row in one.rows():
                writer.writerow(cells(given | {names[name]: value for name, value in (about | row).items()}))

    def _ours(self, name: str) -> str:
        """What to call a column of ours: ``integrand_score`` where the input has a ``score`` already."""
        while name in self.headings:
            name = f"integrand_{name}"
        return name

    def _sdf(self, file: IO[str], found: Iterable[MoleculePair], _: Sequence[Failure]) -> None:
        """Write an SD file: values of atoms as RDKit's lists of atom properties, which KNIME reads too; of bonds as data."""
        from rdkit import Chem
        from rdkit.Chem.rdDepictor import Compute2DCoords

        with Chem.SDWriter(file) as writer:
            for record, one in found:
                mol = Chem.Mol(one.mol)
                if not mol.GetNumConformers():  # those of a file are kept
                    Compute2DCoords(mol)
                mol.SetProp("_Name", record.name)
                for name, value in record.columns:
                    if name in self.headings:
                        mol.SetProp(re.sub(r"[<>\s]+", " ", name), " ".join(value.split()))
                for name, values in (("attribution", one.per_atom), ("attribution_of_atom_itself", one.atoms)):
                    for atom, value in zip(mol.GetAtoms(), values.tolist(), strict=True):
                        atom.SetDoubleProp(name, value)
                    Chem.CreateAtomDoublePropertyList(mol, name)
                mol.SetProp("attribution_of_bonds", " ".join(repr(v) for v in one.drawing().bonds.tolist()))
                mol.SetProp(self._ours("label"), one.label)
                mol.SetDoubleProp(self._ours("score"), one.score)
                mol.SetDoubleProp(self._ours("baseline_score"), one.baseline_score)
                writer.write(mol)


def line(record: Record, one: Row) -> str:
    """A molecule in one line: what was said of it and why, and whether the network ever saw its like."""
    heed = f" ({one.notes[0].partition(':')[0]})" if one.notes else ""
    return f"{record.title}: {one.sentence}{heed}"


def _atoms(one: MoleculeAttribution) -> str:
    most = np.argsort(-np.abs(one.per_atom), kind="stable")[:TOP].tolist()
    parts = [(one.name(i), one.atoms[i], one.per_atom[i] - one.atoms[i], one.per_atom[i]) for i in most]
    off = [_off(one.atom_errors[i]) for i in most]
    rows = [(name, *map(_signed, values), error) for (name, *values), error in zip(parts, off, strict=True)]
    left = len(one.atoms) - len(most)
    return _columns([("atom", "itself", "half its pairs", "together", ""), *rows]) + _more(left, "atom")


def _bonds(one: MoleculeAttribution) -> str:
    most = np.argsort(-np.abs(one.pair_values), kind="stable")[:TOP].tolist()
    names = ["-".join(map(one.name, one.ends[i].tolist())) for i in most]
    kinds = ["" if one.bonds[i] >= 0 else "no bond" for i in most]
    rows = [(name, _signed(one.pair_values[i]), kind) for i, name, kind in zip(most, names, kinds, strict=True)]
    return _columns([("pair", "adds", ""), *rows]) + _more(len(one.ends) - len(most), "pair")


def _left_out(failed: Sequence[Failure]) -> str:
    """A sentence that names the molecules that were not explained, with the reasons if they are few."""
    if len(failed) <= MOST_REASONS:
        return " ".join(f"Not explained: {record.title}: {why}" for record, why in failed)
    names = ", ".join(record.title for record, _ in failed[:MOST_FAILED])
    more = f" and {len(failed) - MOST_FAILED} more" if len(failed) > MOST_FAILED else ""
    return f"Not explained: {names}{more}; a .json in place of the page says why."


def _more(count: int, what: str) -> str:
    return f"\n  and {count} more {what}{'s' if count > 1 else ''}" if count else ""


def _once(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Blank the first column of a row if it repeats that of the row above."""
    return [("" if i and rows[i - 1][0] == row[0] else row[0], *row[1:]) for i, row in enumerate(rows)]


def _columns(rows: Iterable[tuple[str, ...]]) -> str:
    """Lay out a table as text: words aligned to the left, numbers to the right."""
    table = list(rows)
    wide = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(part.rjust(w) if NUMBER.match(part) else part.ljust(w) for part, w in zip(row, wide, strict=True))
        for row in table
    )
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _off(error: float | None) -> str:
    """How far a sum may be off, to two digits; '' where that is not known."""
    return f"± {error:.2g}" if error else ""


def _signed(value: float) -> str:
    return f"{value:+.3g}"
