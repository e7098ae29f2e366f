"""Graphs drawn with matplotlib, for PNG and PDF."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize

from ...words import shortened, shown
from ..figures import GREY, INK, FigureCell
from ..molecule.molecule_drawing import LIGHT
from .graph_drawing import FAINT, LABELLED, GraphDrawing

DPI, SHARP = 100.0, 150.0
"""Pixels of a drawing to an inch, and those of the picture."""

LEFT_OUT = 7.5
"""The size of the line on what is not drawn, in points."""


def draw(drawing: GraphDrawing, *, title: str = "", foot: str = "") -> FigureCell:
    """The graph with its scale of colours.

    Args:
        drawing: what to draw.
        title: a line above.
        foot: a line below.
    """
    wide, tall = (side / DPI for side in drawing.size)
    wide = max(wide, 4.2)
    head, low = (0.42 if title else 0.1), 0.62
    figure = FigureCell(figsize=(wide, tall + head + low), dpi=SHARP)
    axes = figure.add_axes((0.0, low / (tall + head + low), 1.0, tall / (tall + head + low)))
    spare = (wide * DPI - drawing.size[0]) / 2
    axes.set_xlim(-spare, drawing.size[0] + spare)
    axes.set_ylim(drawing.size[1], 0)
    axes.set_axis_off()
    _links(axes, drawing)
    _nodes(axes, drawing)
    if title:
        at = 1 - 0.24 / (tall + head + low)
        figure.text(0.5, at, shown(shortened(title, 90)), ha="center", va="center", fontsize=11, color=INK, parse_math=False)
    _scale(figure, drawing, 0.40 / (tall + head + low), wide)
    words = "; ".join(filter(None, (foot, drawing.left_out.rstrip("."))))
    if words:
        at = 0.1 / (tall + head + low)
        figure.text(0.5, at, shown(words), ha="center", va="center", fontsize=LEFT_OUT, color=GREY, parse_math=False)
    return figure


def _points(pixels: float) -> float:
    return pixels * 72 / DPI


def _links(axes: Axes, drawing: GraphDrawing) -> None:
    if not len(drawing.links):
        return
    known = len(drawing.link_values) == len(drawing.links) and drawing.link_limit > 0
    shares = drawing.link_values / drawing.link_limit if known else np.zeros(len(drawing.links))
    order = np.argsort(np.abs(shares), kind="stable")
    colours = [LIGHT.line(share) if abs(share) > FAINT else "#c6ccd3" for share in shares[order].tolist()]
    widths = [_points(1.1 + 5.4 * abs(share)) if abs(share) > FAINT else _points(1.1) for share in shares[order].tolist()]
    lines = drawing.places[drawing.links[order]]
    axes.add_collection(LineCollection(list(lines), colors=colours, linewidths=widths, zorder=1))
    for k in range(len(drawing.links)):
        if drawing.arrows[k]:
            a, b = drawing.places[drawing.links[k]][:: drawing.arrows[k]]
            far = math.dist(a, b)
            if far > 1e-6:
                tip = b - (b - a) / far * (drawing.radius + 1)
                how = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0, "lw": 0.1, "mutation_scale": 9}
                axes.annotate("", tuple(tip), tuple(tip - (b - a) / far), arrowprops=how)


def _nodes(axes: Axes, drawing: GraphDrawing) -> None:
    limit, radius = drawing.limit or 1.0, drawing.radius
    colours = [LIGHT.area(value / limit if math.isfinite(value) else 0.0) for value in drawing.values.tolist()]
    size = _points(2 * radius) ** 2
    axes.scatter(drawing.places[:, 0], drawing.places[:, 1], s=size, c=colours, edgecolors=GREY, linewidths=0.7, zorder=2)
    if drawing.marked:
        rings = drawing.places[list(drawing.marked)]
        axes.scatter(
            rings[:, 0],
            rings[:, 1],
            s=_points(2 * radius + 8) ** 2,
            facecolors="none",
            edgecolors=INK,
            linewidths=1.8,
            zorder=2,
        )
    if len(drawing.names) > LABELLED:
        return
    for name, (x, y) in zip(drawing.names, drawing.places.tolist(), strict=True):
        text = shown(shortened(name, 16))
        fits = len(text) <= 2 and radius >= 8
        points = _points(min(12.0, radius * 1.05)) if fits else 7.5
        place = y if fits else y + radius + 7
        axes.text(x, place, text, fontsize=points, ha="center", va="center", color=INK, zorder=3, parse_math=False)


def _scale(figure: FigureCell, drawing: GraphDrawing, at: float, wide: float) -> None:
    """The colours of nodes, with numbers at both ends."""
    if not drawing.limit:
        return
    share = 1.6 / wide
    axes = figure.add_axes((0.5 - share / 2, at, share, 0.012 * 6 / max(1.0, figure.get_figheight())))
    ramp = LinearSegmentedColormap.from_list("graph", [LIGHT.area(step) for step in np.linspace(-1, 1, 33).tolist()])
    axes.imshow(np.linspace(-1, 1, 129)[None], aspect="auto", cmap=ramp, norm=Normalize(-1, 1))
    axes.set_axis_off()
    for side, text in (
        (0.5 - share / 2 - 0.01, f"lowers it −{drawing.limit:.2g}"),
        (0.5 + share / 2 + 0.01, f"+{drawing.limit:.2g} raises it"),
    ):
        figure.text(side, at, text, ha="right" if side < 0.5 else "left", va="bottom", fontsize=7.5, color=GREY)
