"""The results in a JSON file, written after every competitor, from which a second run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Results:
    """Rows by case, batch and tolerance; in each, what every competitor took.

    Args:
        file: read if it is there.
        header: of the machine; a file of another one is an error.
    """

    def __init__(self, file: Path, header: dict[str, Any]) -> None:
        self.file = file
        self.content: dict[str, Any] = {**header, "rates": {}, "rows": [], "ladders": {}, "chunks": {}}
        if file.is_file():
            kept = json.loads(file.read_text())
            other = {name: kept.get(name) for name, value in header.items() if kept.get(name) != value}
            if other:
                raise SystemExit(f"{file} is of {other}, here is {header}; give another --out, or remove it.")
            self.content |= kept

    @property
    def rows(self) -> list[Row]:
        rows: list[Row] = self.content["rows"]
        return rows

    def row(self, key: str, batch: int, tol: float | None, **facts: Any) -> Row:
        """The row of a case, batch and tolerance (None: whatever takes none), made if it is not there."""
        for row in self.rows:
            if (row["key"], row["batch"], row["tol"]) == (key, batch, tol):
                return row
        self.rows.append({"key": key, "batch": batch, "tol": tol, **facts, "who": {}})
        return self.rows[-1]

    def forget(
        self,
        keys: Iterable[str],
        batches: Iterable[int],
        tolerances: Iterable[float],
        who: Iterable[str],
        *,
        steps: bool = True,
    ) -> None:
        """Measure some competitors again in some rows; if ``steps``, look for their steps and rows at a time again, too."""
        keys, who, batches, sought = set(keys), set(who), set(batches), {*tolerances, None}
        for row in self.rows:
            if row["key"] in keys and row["batch"] in batches and row["tol"] in sought:
                row["who"] = {name: entry for name, entry in row["who"].items() if name.split(",")[0] not in who}
        for kept in ("ladders", "chunks") if steps else ():
            old = self.content[kept]
            self.content[kept] = {
                at: one for at, one in old.items() if at.split("/")[0] not in keys or at.split("/")[1] not in who
            }

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.content, indent=1, default=str))
        new.replace(self.file)
