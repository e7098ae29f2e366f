"""The score along the path and the attribution mass under it, as a drawing of lines that follows the page's colours."""

from __future__ import annotations

from html import escape

import numpy as np

from ..attribution import Attribution
from ._certificate import amount
from ._path import SHARES, joined, remarks
from ._pixels import Array

WIDE, TALL, GAP = 640, 150, 46
"""The size of one plot and the room between two, in units of the drawing."""

PLOT = """
.plot{display:block;width:100%;height:auto;max-width:46rem;font-size:13px;overflow:visible}
.plot text{fill:var(--soft)}
.plot .frame{stroke:var(--line);fill:none}
.plot .score{stroke:var(--focus);stroke-width:2.5;fill:none;stroke-linejoin:round}
.plot .mass{fill:var(--focus);opacity:.28}
.plot .share{stroke:var(--soft);stroke-dasharray:3 4}
@media(max-width:40rem){.plot{font-size:19px}}
""".strip()


def path_plot(result: Attribution) -> str:
    """The path of a single example as an SVG element with a caption; '' where no profile of it was kept."""
    if result.profile is None or not len(result.profile):
        return ""
    certificate = result.certificate.only
    mean, _ = joined(result.profile.of(int(result.profile.example[0])), certificate)
    reached = tuple(mean.reached(share) for share in SHARES)
    said = remarks(mean, certificate, reached)
    upper = _curve("score", mean.t, mean.score, 0)
    top = TALL + GAP
    lower = _curve("mass", mean.t, mean.mass, top)
    marks = "".join(
        f'<line class="share" x1="{WIDE * t:.1f}" x2="{WIDE * t:.1f}" y1="{top}" y2="{top + TALL}"/>{_before(share, t, top, i)}'
        for i, (share, t) in enumerate(zip(SHARES, reached, strict=True))
        if np.isfinite(t)
    )
    ends = (
        f'<text x="0" y="{top + TALL + 18}">baseline</text>'
        f'<text x="{WIDE}" y="{top + TALL + 18}" text-anchor="end">photo</text>'
    )
    caption = f"{said[:1].upper()}{said[1:]}."
    return (
        f'<figure><svg class="plot" viewBox="-2 -22 {WIDE + 60} {2 * TALL + GAP + 46}" role="img" '
        f'aria-label="{escape(caption)}">{upper}{lower}{marks}{ends}</svg>'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
    )


def _before(share: float, t: float, top: int, row: int) -> str:
    """What lies before a time, beside its line: on the left of it where the right edge is near."""
    x, anchor = (WIDE * t - 4, ' text-anchor="end"') if t > 0.75 else (WIDE * t + 4, "")
    return f'<text x="{x:.1f}" y="{top}" dy="{1.1 + 1.2 * row:.1f}em"{anchor}>{100 * share:.0f}% before here</text>'


def _curve(kind: str, t: Array, values: Array, top: int) -> str:
    """One plot from t = 0 to 1: a line for the score, an area for the mass."""
    known = np.where(np.isfinite(values), values, 0.0)
    low, high = min(float(known.min()), 0.0), max(float(known.max()), 0.0)
    span = high - low or 1.0
    points = [f"{WIDE * x:.1f},{top + TALL * (high - y) / span:.1f}" for x, y in zip(t, known, strict=True)]
    floor = top + TALL * high / span
    if kind == "mass":
        shape = f'<path class="mass" d="M0,{floor:.1f} L{" ".join(points)} L{WIDE},{floor:.1f} Z"/>'
    else:
        shape = f'<polyline class="score" points="{" ".join(points)}"/>'
    title = "score" if kind == "score" else "attribution mass, magnitudes collected per step of the path"
    return (
        f'<text x="0" y="{top - 8}">{title}</text>'
        f'<path class="frame" d="M0,{top} V{top + TALL} M0,{floor:.1f} H{WIDE}"/>{shape}'
        f'<text x="{WIDE + 6}" y="{top + 10}">{amount(high)}</text>'
        f'<text x="{WIDE + 6}" y="{top + TALL}">{amount(low)}</text>'
    )
