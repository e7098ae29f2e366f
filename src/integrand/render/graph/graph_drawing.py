"""A graph with attributions as every picture takes it, and as SVG whose parts name themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...words import plus_minus, short_repr, shortened
from ..escaping import escape
from ..glance import saying
from ..molecule.molecule_drawing import DARK, LIGHT, Paper
from ..text.word_markup import number
from .graph_layout import Places, layout

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 150
"""The most nodes that are drawn: of larger graphs those that matter most, and what connects them."""

LABELLED = 80
"""Drawings of up to so many nodes have their names on them."""

STEP = 62.0
"""The length of an edge, in pixels, where the drawing has room."""

WIDEST, MARGIN = 980.0, 34.0
"""The widest drawing, and the space around nodes, in pixels."""

RADIUS, LEAST = 15.0, 5.0
"""The radius of nodes in a drawing with room, and in a crowded one."""

FAINT = 0.02
"""Attributions below this share of the strongest one get no colour."""


@dataclass(frozen=True, eq=False, repr=False)
class GraphDrawing:
    """A graph to be drawn.

    Attributes:
        numbers: the nodes that are drawn, as the graph counts them, (N,).
        names: of these.
        places: of these, (N, 2), in pixels.
        values: of these, (N,).
        errors: of these, (N,); NaN where not known.
        links: pairs of rows of the above, (L, 2).
        link_values: of these, (L,); empty where nothing of edges was explained.
        link_errors: of these.
        arrows: of each link: 1 if its only edge goes from the first to the second, -1 the other way, 0 for both ways.
        marked: rows of nodes that are what is explained.
        size: width and height in pixels.
        hidden: how many nodes of the graph are not drawn.
        hidden_value: what they add together.
    """

    numbers: Ints
    names: tuple[str, ...]
    places: Places
    values: Floats
    errors: Floats
    links: Ints
    link_values: Floats
    link_errors: Floats
    arrows: tuple[int, ...]
    marked: tuple[int, ...]
    size: tuple[int, int]
    hidden: int = 0
    hidden_value: float = 0.0

    __repr__ = short_repr

    @staticmethod
    def of(
        names: Sequence[str],
        values: Floats,
        errors: Floats,
        links: Ints,
        link_values: Floats,
        link_errors: Floats,
        *,
        arrows: Sequence[int] = (),
        marked: Sequence[int] = (),
    ) -> GraphDrawing:
        """Choose what is drawn and where.

        Args:
            names: of all nodes.
            values: of all nodes, (nodes,).
            errors: of these.
            links: pairs of nodes, (links, 2).
            link_values: of these; empty where nothing of edges was explained.
            link_errors: of these.
            arrows: as in the class; empty for none.
            marked: nodes that are what is explained.
        """
        kept = chosen(values, links, link_values, marked)
        row = np.full(len(values), -1)
        row[kept] = np.arange(len(kept))
        inside = (row[links] >= 0).all(1) if len(links) else np.zeros(0, bool)
        places, size = _scaled(layout(len(kept), row[links[inside]]))
        rest = np.setdiff1d(np.arange(len(values)), kept)
        known = len(link_values) == len(links)
        return GraphDrawing(
            kept,
            tuple(names[i] for i in kept),
            places,
            values[kept],
            errors[kept],
            row[links[inside]].reshape(-1, 2),
            link_values[inside] if known else np.zeros(0),
            link_errors[inside] if known else np.zeros(0),
            tuple(np.asarray(arrows)[inside].tolist()) if len(arrows) else (0,) * int(inside.sum()),
            tuple(int(row[node]) for node in marked),
            size,
            len(rest),
            float(values[rest].sum()),
        )

    @property
    def limit(self) -> float:
        """The magnitude of a node that gets the strongest colour."""
        return float(np.nanmax(np.abs(self.values), initial=0.0))

    @property
    def link_limit(self) -> float:
        """The magnitude of a link that gets the strongest colour."""
        return float(np.nanmax(np.abs(self.link_values), initial=0.0))

    @property
    def radius(self) -> float:
        """The radius of a node in pixels: as large as the nearest neighbours allow."""
        if len(self.places) < 2:
            return RADIUS
        apart = np.linalg.norm(self.places[:, None] - self.places[None], axis=2)
        np.fill_diagonal(apart, np.inf)
        return float(np.clip(np.quantile(apart.min(1), 0.2) * 0.42, LEAST, RADIUS))

    @property
    def left_out(self) -> str:
        """What is not drawn, in words; empty if all is."""
        if not self.hidden:
            return ""
        return f"{self.hidden:,} nodes that matter less are not drawn; together they add {number(self.hidden_value)}."


def chosen(values: Floats, links: Ints, link_values: Floats, marked: Sequence[int]) -> Ints:
    """The nodes that are drawn, in their order: all, or of a large graph those that matter most, by themselves or by edges.

    Args:
        values: of nodes, (nodes,).
        links: pairs of nodes, (links, 2).
        link_values: of links, or empty.
        marked: nodes that are drawn in any case.
    """
    if len(values) <= MOST:
        return np.arange(len(values))
    weight = np.abs(values).astype(float)
    for side in (0, 1):
        if len(link_values) == len(links):
            np.add.at(weight, links[:, side], np.abs(link_values) / 2)
    weight[list(marked)] = np.inf
    strongest = np.argsort(-weight, kind="stable")[:MOST]
    told = strongest[weight[strongest] > 0]  # those that add nothing would only fill the picture
    return np.sort(told if len(told) else strongest)


def _scaled(places: Places) -> tuple[Places, tuple[int, int]]:
    """Places in pixels, and the size of the drawing."""
    low, span = places.min(0), np.ptp(places, axis=0)
    step = min(STEP, (WIDEST - 2 * MARGIN) / max(float(span[0]), 1.0))
    size = np.maximum(span * step + 2 * MARGIN, (240, 120))
    moved = (places - low) * step + (size - span * step) / 2
    return moved, (math.ceil(size[0]), math.ceil(size[1]))


def told(name: str, value: float, error: float) -> str:
    """A node or link with what it adds, in words."""
    return f"{name}: {plus_minus(float(value), float(error))}"


def link_name(drawing: GraphDrawing, k: int) -> str:
    """A link's name: both ends, with an arrow if it has one direction."""
    a, b = (drawing.names[i] for i in drawing.links[k])
    return f"{a} → {b}" if drawing.arrows[k] > 0 else f"{b} → {a}" if drawing.arrows[k] < 0 else f"{a} – {b}"


def svg_of(drawing: GraphDrawing, *, ident: str = "", live: bool = False, title: str = "", foot: str = "") -> str:
    """The graph as SVG: nodes coloured by what they add, edges likewise; red raises the score, blue lowers it.

    Args:
        drawing: what to draw.
        ident: the ``id`` of the element.
        live: for a page: colours are those of its style sheet, and parts say what they add.
        title: a line above, for a file.
        foot: a line below, for a file.
    """
    above, below = (30 if title else 0), (26 if foot else 0)
    width, height = drawing.size[0], drawing.size[1] + above + below
    if title or foot:
        width = max(width, int(7.4 * max(len(title), len(foot))) + 20)
    shift = f' transform="translate({(width - drawing.size[0]) / 2:.0f} {above:d})"'
    inside = _links(drawing, live) + _nodes(drawing, live) + _labels(drawing, live)
    ink = "" if live else f' fill="{LIGHT.ink}"'
    texts = f'<text x="{width / 2:.0f}" y="20" font-size="15" text-anchor="middle"{ink}>{escape(title)}</text>' if title else ""
    if foot:
        texts += (
            f'<text x="{width / 2:.0f}" y="{height - 9:d}" font-size="12" text-anchor="middle" fill="{LIGHT.soft}">'
            f"{escape(foot)}</text>"
        )
    paper = "" if live else f'<rect width="100%" height="100%" fill="{LIGHT.paper}"/>'
    named = f' id="{escape(ident)}"' if ident else ""
    font = ' font-family="system-ui,-apple-system,Segoe UI,Roboto,sans-serif"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{named} viewBox="0 0 {width:d} {height:d}" width="{width:d}" '
        f'height="{height:d}"{font} role="{"group" if live else "img"}" '
        'aria-label="The graph, its nodes coloured by what they add">'
        f"{paper}<g{shift}>{inside}</g>{texts}</svg>"
    )


def _colour(paper: Paper, value: float, limit: float, *, line: bool = False) -> str:
    share = 0.0 if not limit or not math.isfinite(value) else max(-1.0, min(1.0, value / limit))
    return (paper.line(share) if abs(share) > FAINT else "") if line else paper.area(share)


def _both(property_: str, make: Callable[[Paper], str], live: bool) -> str:
    """A colour for light and for dark paper: on a page as two variables, of which its style takes one."""
    if not live:
        return f' {property_}="{make(LIGHT)}"'
    return f' style="--l:{make(LIGHT)};--d:{make(DARK)}"'


def _links(drawing: GraphDrawing, live: bool) -> str:
    out, radius, known = [], drawing.radius, len(drawing.link_values) == len(drawing.links) and drawing.link_limit > 0
    order = np.argsort(np.abs(drawing.link_values), kind="stable") if known else np.arange(len(drawing.links))
    for k in order.tolist():
        a, b = drawing.places[drawing.links[k]]
        value = float(drawing.link_values[k]) if known else 0.0
        share = abs(value) / drawing.link_limit if known else 0.0
        strong = share > FAINT
        wide = 1.1 + 5.4 * share if strong else 1.1
        kind = f' class="link{" told" if strong else ""}"' if live else ""
        colour = (
            _both("stroke", lambda paper, v=value: _colour(paper, v, drawing.link_limit, line=True), live)  # type: ignore[misc]
            if strong
            else ("" if live else ' stroke="#c6ccd3"')
        )
        said = told(link_name(drawing, k), value, float(drawing.link_errors[k])) if known else link_name(drawing, k)
        key = "-".join(map(str, sorted(drawing.numbers[drawing.links[k]].tolist())))
        says = f'{saying(said)} data-row="e{key}"' if live and known else ""
        name = "" if live else f"<title>{escape(said)}</title>"
        out.append(
            f'<path{kind}{says} d="{_way(a, b, radius)}" fill="none" stroke-width="{wide:.1f}"{colour}>{name}</path>'
            + (_arrow(a, b, drawing.arrows[k], radius, wide, live) if drawing.arrows[k] else "")
        )
    return "".join(out)


def _way(a: Places, b: Places, radius: float) -> str:
    """A straight line, or a loop above a node."""
    if np.allclose(a, b):
        x, y, r = float(a[0]), float(a[1]), radius
        corners = [(-0.6, -0.7), (-2.0, -3.0), (2.0, -3.0), (0.6, -0.7)]
        start, *others = (f"{x + r * dx:.1f} {y + r * dy:.1f}" for dx, dy in corners)
        return f"M{start}C{' '.join(others)}"
    return f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}"


def _arrow(a: Places, b: Places, direction: int, radius: float, wide: float, live: bool) -> str:
    """The head of an arrow at the end that the edge goes to."""
    start, end = (a, b) if direction > 0 else (b, a)
    length = float(np.linalg.norm(end - start))
    if length < 1e-6:
        return ""
    along = (end - start) / length
    across = np.array([-along[1], along[0]])
    tip, size = end - along * (radius + 1), 5 + wide
    left, right = (tip - along * size + sign * across * size * 0.45 for sign in (1, -1))
    shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in (tip, left, right))
    return f'<polygon points="{shape}"' + (' class="arrow"/>' if live else f' fill="{LIGHT.soft}"/>')


def _nodes(drawing: GraphDrawing, live: bool) -> str:
    out, radius = [], drawing.radius
    for k, ((x, y), value) in enumerate(zip(drawing.places.tolist(), drawing.values.tolist(), strict=True)):
        said = told(drawing.names[k], value, float(drawing.errors[k]))
        if k in drawing.marked:
            ring = ' class="ring"' if live else f' stroke="{LIGHT.ink}"'
            out.append(f'<circle{ring} cx="{x:.1f}" cy="{y:.1f}" r="{radius + 4:.1f}" fill="none" stroke-width="2.5"/>')
            said += "; its output is explained"
        colour = _both("fill", lambda paper, v=value: _colour(paper, v, drawing.limit), live)  # type: ignore[misc]
        kind = f' class="node"{saying(said)} data-row="n{int(drawing.numbers[k])}"' if live else ' stroke="#5d6671"'
        name = "" if live else f"<title>{escape(said)}</title>"
        out.append(f'<circle{kind} cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" stroke-width="1"{colour}>{name}</circle>')
    return "".join(out)


def _labels(drawing: GraphDrawing, live: bool) -> str:
    """Names: inside of nodes where they are short, else below them; none where there are too many nodes."""
    if len(drawing.names) > LABELLED:
        return ""
    out, radius = [], drawing.radius
    for name, (x, y) in zip(drawing.names, drawing.places.tolist(), strict=True):
        text = shortened(name, 16)
        fits = len(text) <= 2 and radius >= 8
        size = min(12.0, radius * 1.05) if fits else 10.5
        place = y + size * 0.36 if fits else y + radius + 11
        kind = ' class="label"' if live else f' fill="{LIGHT.ink}"'
        halo = "" if fits or live else f' stroke="{LIGHT.paper}" stroke-width="3" paint-order="stroke"'
        out.append(
            f'<text{kind}{halo} x="{x:.1f}" y="{place:.1f}" font-size="{size:.1f}" text-anchor="middle" pointer-events="none">'
            f"{escape(text)}</text>"
        )
    return "".join(out)
