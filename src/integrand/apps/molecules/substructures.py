"""Over a data set: which functional groups, or patterns of your own, drive a class."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, OptionError
from .accounting import compiled, fragments, matches
from .result import MoleculeAttribution

RARE = 12
"""Groups with too little support that are named."""


@dataclass(frozen=True)
class Substructure:
    """What a group of atoms adds, over the molecules that have it.

    Attributes:
        name: of the group.
        support: how many molecules have it.
        mean: of what all atoms of the group in a molecule add, with half of each of their pairs.
        spread: standard deviation of it.
        low: its lower quartile.
        high: its upper quartile.
        speaks_for: the share of the molecules in which it adds something positive.
        per_atom: the mean of what one atom of the group adds; groups of many atoms add more.
        elsewhere: the mean of what one atom outside the group adds in the same molecules; None where there is none.
    """

    name: str
    support: int
    mean: float
    spread: float
    low: float
    high: float
    speaks_for: float
    per_atom: float
    elsewhere: float | None


@dataclass(frozen=True)
class Substructures:
    """Which groups drive a class.

    Attributes:
        label: the output that was explained.
        molecules: how many there were.
        least: the support below which groups are left out.
        found: one for each group, those that add most first.
        rare: names of groups that are there, with too little support.
    """

    label: str
    molecules: int
    least: int
    found: tuple[Substructure, ...]
    rare: tuple[str, ...]

    def __iter__(self) -> Iterator[Substructure]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def rows(self) -> list[dict[str, Any]]:
        """A table, a row for each group."""
        return [dict(vars(one)) for one in self.found]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        head = {"label": self.label, "molecules": self.molecules, "least": self.least, "rare": list(self.rare)}
        return head | {"found": self.rows()}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write by the ending of the path: ``.json``, ``.csv`` or ``.txt``."""
        where = Path(path)
        ending = where.suffix.lower()
        if ending == ".json":
            where.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
        elif ending == ".csv":
            with where.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(Substructure.__annotations__))
                writer.writeheader()
                writer.writerows(self.rows())
        elif ending == ".txt":
            where.write_text(f"{self}\n", encoding="utf-8")
        else:
            raise OptionError(f"got the ending {where.suffix!r}; expected .json, .csv or .txt.")
        return where

    def __str__(self) -> str:
        wide = max((len(one.name) for one in self.found), default=5)
        lines = [
            f"{self.molecules:,} molecule(s), {self.label}; groups in at least {self.least}. They overlap: each has all of its "
            "atoms, with half of their pairs.",
            f"  {'group':<{wide}}  molecules      adds    spread  speaks for  per atom  elsewhere",
        ]
        for one in self.found:
            rest = "" if one.elsewhere is None else f"{one.elsewhere:+.2g}"
            lines.append(
                f"  {one.name:<{wide}}  {one.support:>9,}  {one.mean:>+8.3f}  {one.spread:>8.3f}  {one.speaks_for:>10.0%}  "
                f"{one.per_atom:>+8.2g}  {rest:>9}"
            )
        if self.rare:
            named = ", ".join(self.rare[:RARE]) + (f" and {len(self.rare) - RARE} more" if len(self.rare) > RARE else "")
            lines.append(f"In fewer molecules, and left out: {named}. least=1 shows them.")
        elif not self.found:
            lines.append("None of the groups is in these molecules.")
        return "\n".join(lines)


def substructures(
    results: Iterable[MoleculeAttribution], smarts: Mapping[str, str] | None = None, *, least: int = 5
) -> Substructures:
    """Which groups drive a class: what each adds over the molecules that have it.

    Args:
        results: of ``explain``, all of the same output.
        smarts: patterns by name; by default RDKit's functional groups.
        least: the support that a group needs.
    """
    patterns = fragments() if smarts is None else compiled(smarts)
    gathered: dict[str, list[tuple[float, float, float]]] = {}
    labels, count = set(), 0
    for result in results:
        count += 1
        labels.add(result.label)
        for name, rows in matches(result.mol, patterns).items():
            gathered.setdefault(name, []).append(_values(result, sorted(frozenset().union(*rows))))
    if not count:
        raise InputError("got no result; expected at least one.")
    if len(labels) > 1:
        raise InputError(f"got results of {', '.join(sorted(labels))}; expected those of one output.")
    found = [_substructure(name, np.array(values)) for name, values in gathered.items() if len(values) >= least]
    rare = tuple(sorted(name for name, values in gathered.items() if len(values) < least))
    return Substructures(labels.pop(), count, least, tuple(sorted(found, key=lambda one: -one.mean)), rare)


def _values(result: MoleculeAttribution, atoms: list[int]) -> tuple[float, float, float]:
    """What the atoms add, what one of them adds, and what one of the others adds (NaN where there is none)."""
    inside = np.zeros(len(result.per_atom), bool)
    inside[atoms] = True
    rest = result.per_atom[~inside]
    return result.per_atom[inside].sum(), result.per_atom[inside].mean(), rest.mean() if len(rest) else np.nan


def _substructure(name: str, values: np.ndarray[Any, np.dtype[np.float64]]) -> Substructure:
    added, per_atom, elsewhere = values.T
    low, high = np.quantile(added, [0.25, 0.75]).tolist()
    rest = elsewhere[np.isfinite(elsewhere)]
    return Substructure(
        name,
        len(added),
        float(added.mean()),
        float(added.std(ddof=1)) if len(added) > 1 else 0.0,
        low,
        high,
        float((added > 0).mean()),
        float(per_atom.mean()),
        float(rest.mean()) if len(rest) else None,
    )
