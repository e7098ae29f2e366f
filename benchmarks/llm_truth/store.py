"""What was measured, as JSON: a run goes on where an earlier one stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("results.json")
Row = dict[str, Any]


class Results:
    """Parts (truth, claims, meaning) of rows by name.

    Args:
        file: read if it is there, and written after each new row.
        again: measure anew what is there.
    """

    def __init__(self, file: Path = STORED, *, again: bool = False) -> None:
        self.file, self.again = file, again
        self.parts: dict[str, dict[str, Row]] = json.loads(file.read_text()) if file.is_file() else {}

    def part(self, name: str) -> dict[str, Row]:
        """The rows of a part."""
        return self.parts.setdefault(name, {})

    def missing(self, part: str, key: str) -> bool:
        """Whether a row is to be measured."""
        return self.again or key not in self.part(part)

    def put(self, part: str, key: str, row: Row) -> Row:
        """Store a row."""
        self.part(part)[key] = {name: rounded(value) for name, value in row.items()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.parts, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
        return self.part(part)[key]

    def measured(self, part: str, key: str, measure: Callable[[], Row]) -> Row:
        """A stored row, or a new one."""
        return self.put(part, key, measure()) if self.missing(part, key) else self.part(part)[key]


def rounded(value: Any) -> Any:
    """Four digits of a number."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
