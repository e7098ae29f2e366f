"""Writing interactions: a picture, or their numbers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..attribution import Status
from ..comparison._plain import finite
from ..errors import OptionError
from ._result import Interactions


def save(result: Interactions, path: Path, options: Mapping[str, Any]) -> Path:
    """Write a result by the ending of the path."""
    suffix = path.suffix.lower()
    if suffix in {".png", ".svg", ".pdf"}:
        result.show(**options).savefig(path, bbox_inches="tight", pad_inches=0.15)
    elif suffix == ".json":
        if options:
            raise OptionError(f"got options {sorted(options)} for a .json file; they are for pictures")
        path.write_text(json.dumps(result.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
    else:
        raise OptionError(f"got the ending {suffix!r}; expected .png, .svg, .pdf or .json")
    return path


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
