"""Interactions as plain numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..attribution import Status
from ..comparison._plain import finite
from ._result import Interactions


def plain(result: Interactions) -> dict[str, Any]:
    """A result as lists, dicts, numbers and texts."""
    values = result.numpy()
    found = {
        "values": list(values) if isinstance(values, tuple) else values,
        "attributions": result.attributions.detach().double().cpu().numpy(),
        "outside": None if result.outside is None else result.outside.detach().double().cpu().numpy(),
        "rows": [list(row) if isinstance(row, tuple) else row for row in result.rows],
        "batched": result.batched,
        "certificate": [_certificate(dataclasses.asdict(one)) for one in result.certificate],
        "meta": dict(result.meta),
    }
    out: dict[str, Any] = finite(found)
    return out


def _certificate(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, Status) else _number(value) for name, value in row.items()}


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
