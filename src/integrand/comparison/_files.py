"""Writing results of perturbations: a picture, or their numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import OptionError


def save(result: Any, path: Path, options: Mapping[str, Any]) -> Path:
    """Write a result by the ending of the path."""
    suffix = path.suffix.lower()
    if suffix in {".png", ".svg", ".pdf"}:
        result.figure(**options).savefig(path, bbox_inches="tight", pad_inches=0.15)
    elif suffix == ".json":
        if options:
            raise OptionError(f"got options {sorted(options)} for a .json file; they are for pictures")
        path.write_text(json.dumps(result.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
    else:
        raise OptionError(f"got the ending {suffix!r}; expected .png, .svg, .pdf or .json")
    return path
