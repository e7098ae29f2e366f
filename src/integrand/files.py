"""Writing results by the ending of a path: pictures, pages and numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .errors import OptionError


def write(
    path: Path,
    options: Mapping[str, Any],
    *,
    picture: Callable[..., Any],
    numbers: Callable[[], Any],
    report: Callable[..., str] | None = None,
) -> Path:
    """Write something by the ending of the path: a picture, its numbers as JSON, or a page.

    Args:
        path: where to.
        options: for pictures and pages.
        picture: gives the figure.
        numbers: gives what JSON can hold.
        report: gives the page, where there is one.
    """
    suffix = path.suffix.lower()
    if suffix in {".png", ".svg", ".pdf"}:
        picture(**options).savefig(path, bbox_inches="tight", pad_inches=0.15)
    elif suffix == ".html" and report is not None:
        path.write_text(report(**options), encoding="utf-8")
    elif suffix == ".json":
        if options:
            raise OptionError(f"got options {sorted(options)} for a .json file; they are for pictures")
        path.write_text(json.dumps(numbers(), indent=1, allow_nan=False), encoding="utf-8")
    else:
        pages = "" if report is None else ".html, "
        raise OptionError(f"got the ending {suffix!r}; expected {pages}.png, .svg, .pdf or .json")
    return path
