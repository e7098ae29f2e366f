"""The path laid out with matplotlib: thumbnails over the score over the mass, all on the same axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..attribution import number
from ._certificate import caption
from ._figure import GREY, INK, WARNING, Picture, fitted, plain
from ._path import SHARES, Journey

LEFT, WIDE, RIGHT = 0.85, 6.6, 0.6
HEAD, SCORE, MASS, GAP, FOOT = 0.58, 1.55, 1.15, 0.42, 0.82
THUMB, TALLEST, UNDER = 1.05, 1.5, 0.5
FILL = ("#2b6ca3", "#7fb2d6", "#cfe2f0")
"""The first half of the mass, what comes up to 90%, and the rest."""


def draw_path(journey: Journey) -> Figure:
    """Draw a path."""
    thumbs = max(map(_high, (frame.pixels.shape for frame in journey.thumbnails)), default=0.0)
    top = thumbs + (UNDER if thumbs else 0)
    width, height = LEFT + WIDE + RIGHT, HEAD + top + SCORE + GAP + MASS + FOOT
    figure = Picture(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)

    def at(left: float, down: float, wide: float, high: float) -> Axes:
        return figure.add_axes((left / width, 1 - (down + high) / height, wide / width, high / height))

    title = plain(fitted(journey.label, width, 12, bold=True))
    figure.text(0, 1 - 0.05 / height, title, size=12, weight="bold", color=INK, va="top")
    figure.text(0, 1 - 0.3 / height, plain(fitted(journey.note, width, 8.5)), size=8.5, color=GREY, va="top")
    _thumbnails(journey, at, thumbs)
    score = at(LEFT, HEAD + top, WIDE, SCORE)
    mass = at(LEFT, HEAD + top + SCORE + GAP, WIDE, MASS)
    _score(score, journey)
    _mass(mass, journey)
    _times(score, mass, journey)
    colour = GREY if journey.certificate.converged else WARNING
    said = fitted(caption(journey.certificate), width, 7.5)
    figure.text(0, 0.15 / height, plain(said), size=7.5, color=colour, va="bottom")
    return figure


def _high(shape: tuple[int, ...]) -> float:
    return min(THUMB * shape[0] / shape[1], TALLEST)


def _thumbnails(journey: Journey, at: Any, high: float) -> None:
    """Each over its time; narrower where there are many."""
    count = len(journey.thumbnails)
    for frame, t in zip(journey.thumbnails, journey.times, strict=True):
        wide = min(THUMB, 0.92 * WIDE / (count - 1))
        axes = at(LEFT + t * WIDE - wide / 2, HEAD, wide, high)
        axes.set_anchor("S")
        axes.imshow(frame.pixels, interpolation="bicubic" if max(frame.pixels.shape) >= 112 else "nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set(color="#c8cdd3", linewidth=0.6)
        axes.set_xlabel(f"t = {frame.title}", size=7.5, color=GREY, labelpad=3)


def _score(axes: Axes, journey: Journey) -> None:
    certificate, mean = journey.certificate, journey.mean
    for part in journey.single:
        axes.plot(part.t, part.score, color="#b9c0c8", linewidth=0.8)
    dots = "o" if len(mean.t) <= 200 else None
    axes.plot(mean.t, mean.score, color=INK, linewidth=1.6, marker=dots, markersize=1.9)
    low, high = axes.get_ylim()
    ends = {certificate.baseline_score: "F(x′)", certificate.score: "F(x)"}
    if abs(certificate.score - certificate.baseline_score) < 0.15 * (high - low):  # no room for both
        ends = {certificate.score: "F(x)"}
    for value in ends:
        axes.axhline(value, color="#d5dae0", linewidth=0.8, zorder=0)
    axes.set_yticks(list(ends), [f"{name} {number(value, 3)}" for value, name in ends.items()])
    _dress(axes, "score along the path")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], [""] * 5)


def _mass(axes: Axes, journey: Journey) -> None:
    mean = journey.mean
    cuts = [0.0, *(t if math.isfinite(t) else 1.0 for t in journey.reached), 1.0]
    for colour, start, end in zip(FILL, cuts, cuts[1:], strict=False):
        t = np.unique(np.r_[start, mean.t[(mean.t > start) & (mean.t < end)], end])
        axes.fill_between(t, np.interp(t, mean.t, mean.mass), color=colour, linewidth=0)
    axes.plot(mean.t, mean.mass, color=INK, linewidth=0.9)
    most = float(mean.mass.max())
    axes.set_ylim(0, 1.18 * most or 1.0)
    axes.set_yticks(
        [0, most] if most else [0], ["0", f"{most:,.0f}" if 100 <= most < 1e6 else number(most, 2)] if most else ["0"]
    )
    _dress(axes, "attribution mass per t: magnitudes of gradient × step, added up over the features")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nbaseline", "0.25", "0.5", "0.75", "1\ninput"])


def _times(score: Axes, mass: Axes, journey: Journey) -> None:
    """Where the shares of the mass are reached, as lines through both plots."""
    for share, t in zip(SHARES, journey.reached, strict=True):
        if math.isfinite(t):
            for axes in (score, mass):
                axes.axvline(t, color=GREY, linewidth=0.8, linestyle=(0, (3, 2)))
            up: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            mass.annotate(f"{100 * share:g}%", (t, 1), (3, -2), size=7.5, color=INK, va="top", **up)


def _dress(axes: Axes, title: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_title(title, size=8.5, color=GREY, loc="left", pad=5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color="#c8cdd3")
    axes.tick_params(length=2.5, color="#c8cdd3", labelsize=7.5, labelcolor=GREY)
