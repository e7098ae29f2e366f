"""Attributions of molecules as tables: for CSV and JSON."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from ._molecule_result import Floats, MoleculeAttribution

COLUMNS = ("smiles", "kind", "index", "name", "begin", "end", "value", "pairs", "total")
"""Of the table: see :meth:`MoleculeAttribution.rows`."""


def rows(result: MoleculeAttribution) -> list[dict[str, Any]]:
    """See :meth:`MoleculeAttribution.rows`."""
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
    """See :meth:`MoleculeAttribution.to_dict`."""
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
        "certificate": {name: _finite(value) for name, value in facts.items()},
        "rows": [{k: v for k, v in row.items() if v is not None and k != "smiles"} for row in rows(result)],
        "account": result.account().to_dict(),
    }
    if result.atom_columns:
        found["atom_features"] = _table(result.atom_columns, result.atom_features)
    if result.pair_columns:
        found["pair_features"] = _table(result.pair_columns, result.pair_features) | {"ends": result.ends.tolist()}
    return found


def write_csv(results: Iterable[MoleculeAttribution], path: str | PathLike[str]) -> Path:
    """Write the rows of several molecules as one table, as :meth:`MoleculeAttribution.rows` describes it."""
    where = Path(path)
    with where.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for result in results:
            writer.writerows(result.rows())
    return where


def _row(**given: Any) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS) | given


def _bonds_first(pair: tuple[int, list[int], float]) -> tuple[bool, int, list[int]]:
    bond, ends, _ = pair
    return bond < 0, bond, ends


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(columns: tuple[str, ...], values: Floats) -> dict[str, Any]:
    return {"columns": list(columns), "values": values.tolist()}
