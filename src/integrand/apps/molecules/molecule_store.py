"""Attributions that are done, kept so that the same command goes on where it was stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...files import example_of
from ..command_line import writing
from .molecule_files import Record
from .molgraph import read
from .result import MoleculeAttribution

KEY = 32
"""Characters before the JSON of a line: of what molecule and with which settings it is."""

FORMAT = 2
"""Of the lines; others are of no use. Since 2, atoms of SD files are in the order of the file."""


def store_of(out: Path) -> Path:
    """Beside the output; one for all endings, so that a page becomes a table without computing again."""
    return out.with_name(f"{out.stem}.progress.jsonl")


class MoleculeStore:
    """A file of attributions that only grows, a line each: a kill at any moment loses no more than the line being written.

    A line is found again by its molecule and by the settings that it was made with, so that others are of no use by mistake.
    """

    def __init__(self, file: IO[bytes], settings: dict[str, Any]) -> None:
        self._file, self._settings = file, json.dumps(settings | {"format": FORMAT}, sort_keys=True, default=str)
        self._places: dict[bytes, int] = {}
        place = file.seek(0)
        for line in file:
            if not line.endswith(b"\n"):  # the writer was killed: what follows would be part of this line
                file.truncate(place)
                break
            self._places[line[:KEY]] = place
            place += len(line)

    def get(self, record: Record) -> MoleculeAttribution | None:
        """What is known of a molecule; a damaged line counts as nothing."""
        key = self._key(record)
        if key not in self._places:
            return None
        self._file.seek(self._places[key])
        line = self._file.readline()
        try:
            return _unpacked(json.loads(line[KEY:]), record) if line.startswith(key) else None
        except (ValueError, KeyError, TypeError):
            return None

    def put(self, record: Record, found: MoleculeAttribution) -> MoleculeAttribution:
        """Write it down, and give it as it will be read again: the same whether a run was stopped or not."""
        key = self._key(record)
        line = key + json.dumps(_packed(found)).encode() + b"\n"
        with writing(Path(str(self._file.name))):
            self._places[key] = self._file.seek(0, os.SEEK_END)
            self._file.write(line)
            self._file.flush()
        return _unpacked(json.loads(line[KEY:]), record)

    def _key(self, record: Record) -> bytes:
        return hashlib.sha256(f"{self._settings}\n{record.text}".encode()).hexdigest()[:KEY].encode()


@contextmanager
def opened(path: Path | None, settings: dict[str, Any], *, again: bool) -> Iterator[MoleculeStore]:
    """A store in a file, which stays; or without one, for as long as the command runs."""
    if path is None:
        with tempfile.TemporaryFile() as file:
            yield MoleculeStore(file, settings)
        return
    with writing(path):
        file = path.open("w+b" if again else "a+b")
    with file:
        yield MoleculeStore(file, settings)


def _packed(found: MoleculeAttribution) -> dict[str, Any]:
    one = found.certificate
    return {
        "smiles": found.smiles,
        "label": found.label,
        "model": found.model,
        "atoms": found.atoms.tolist(),
        "ends": found.ends.tolist(),
        "pairs": found.pair_values.tolist(),
        "others": dict(found.others),
        "certificate": dataclasses.asdict(one) | {"status": one.status.name},
    }


def _unpacked(known: dict[str, Any], record: Record) -> MoleculeAttribution:
    """The sums over the features of each atom and pair are kept, as a single feature."""
    return MoleculeAttribution(
        known["smiles"],
        read(record.molecule())[1],
        known["label"],
        np.array(known["atoms"])[:, None],
        np.array(known["ends"], np.int64).reshape(-1, 2),
        np.array(known["pairs"]).reshape(-1, 1),
        example_of(known["certificate"]),
        others=known["others"],
        model=known["model"],
    )
