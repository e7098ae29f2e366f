"""The results in a JSON file, written after every input, from which a second run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""Of one network: ``name``, ``weights``, ``kinked``, ``image``, ``fixed`` (peer to tolerance to steps) and ``inputs``.

An input has a ``reference``, ``errors`` (peer to steps to error), ``fewest`` (peer to tolerance to steps, None where no
number was found) and ``runs``: what was timed, by who and tolerance.
"""


class Results:
    """Rows by network.

    Args:
        file: read if it is there.
        header: of the machine; a file of another one is an error.
    """

    def __init__(self, file: Path, header: dict[str, Any]) -> None:
        self.file = file
        self.content: dict[str, Any] = {**header, "rows": {}}
        if file.is_file():
            kept = json.loads(file.read_text())
            other = {name: kept.get(name) for name, value in header.items() if kept.get(name) != value}
            if other or "rows" not in kept:
                raise SystemExit(f"{file} is of {other}, here is {header}; give another --out, or remove it.")
            self.content |= kept

    def row(self, key: str, **facts: Any) -> Row:
        """The row of a network, made if it is not there; one of other weights is made anew."""
        rows = self.content["rows"]
        if rows.get(key, {}).get("weights") != facts.get("weights"):
            rows[key] = {**facts, "fixed": {}, "inputs": {}}
        row: Row = rows[key]
        return row

    def forget(self, keys: Iterable[str]) -> None:
        """Time some networks again. All competitors of an input are, so that they stand side by side; steps and errors stay."""
        for key in keys:
            for entry in self.content["rows"].get(key, {}).get("inputs", {}).values():
                entry["runs"] = {}

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.content, indent=1, default=str))
        new.replace(self.file)
