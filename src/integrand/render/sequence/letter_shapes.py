"""The outlines of letters, filling a square of side 1, so that a logo can make them as high as a number. By matplotlib."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

FONT = FontProperties(family="DejaVu Sans", weight="bold")
"""The font that matplotlib brings along: the same letters everywhere."""

NARROW = {"I": 0.45}
"""How wide a letter is, where it is no broad one: stretched to a square it would be a block."""

_NAMES = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}


@lru_cache(maxsize=128)
def outline(letter: str) -> Outline:
    """A letter as a path that fills the square from (0, 0) to (1, 1), upright; narrow letters stand in its middle."""
    path = TextPath((0, 0), letter, size=100, prop=FONT, usetex=False)
    points = np.asarray(path.vertices)[path.codes != Outline.CLOSEPOLY]
    low, high = points.min(0), points.max(0)
    wide = NARROW.get(letter, 1.0)
    vertices = (np.asarray(path.vertices) - low) / np.where(high > low, high - low, 1.0)
    vertices[:, 0] = (1 - wide) / 2 + wide * vertices[:, 0]
    return Outline(np.where((path.codes == Outline.CLOSEPOLY)[:, None], 0.0, vertices), path.codes)


@lru_cache(maxsize=128)
def outline_svg(letter: str) -> str:
    """The same as the ``d`` of an SVG path, upright where y goes down: from (0, 1) at its foot to (1, 0)."""
    parts: list[str] = []
    for points, code in outline(letter).iter_segments(curves=True, simplify=False):
        if code == Outline.CLOSEPOLY:
            parts.append("Z")
            continue
        pairs = np.asarray(points).reshape(-1, 2)
        parts.append(_NAMES[code] + " ".join(f"{x:.3f} {1 - y:.3f}" for x, y in pairs))
    return "".join(parts)
