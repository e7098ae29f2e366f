"""What pictures of molecules are drawn on: RDKit's SVG or its pixels, by the same few strokes. Lengths are in pixels."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._pixels import COLOURS

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Array = NDArray[np.float64]
Kind = Literal["svg", "png"]
Anchor = Literal["start", "middle", "end"]

STEPS = 48
"""From the paper to the strongest colour."""

PADDING = 0.06
"""The share of the room that is left free at each side of the molecule, for halos and arcs."""


@dataclass(frozen=True)
class Paper:
    """What colours are mixed with, and those that letters can be read on.

    Attributes:
        paper: behind everything.
        ink: of bonds and letters.
        soft: of what is less important.
        areas: of the strongest negative and positive areas, under letters.
        lines: the same of thin lines.
    """

    paper: str
    ink: str
    soft: str
    areas: tuple[str, str]
    lines: tuple[str, str]

    def area(self, share: float) -> str:
        """The colour of an area, from -1 to 1; the paper's own at 0.

        >>> LIGHT.area(1.0), LIGHT.area(0.0), LIGHT.area(-0.5)
        ('#d6604d', '#ffffff', '#a1c9e1')
        """
        return self._mixed(self.areas[int(share > 0)], abs(share))

    def line(self, share: float) -> str:
        """The colour of a line, from -1 to 1. Even a weak one can be seen."""
        return self._mixed(self.lines[int(share > 0)], 0.35 + 0.65 * abs(share))

    def _mixed(self, colour: str, share: float) -> str:
        """In steps that no eye tells apart, so that a page needs few of them."""
        step = min(1.0, round(share * STEPS) / STEPS)
        here, there = (np.array(list(bytes.fromhex(one[1:])), float) for one in (self.paper, colour))
        return "#" + bytes(np.rint(here + (there - here) * step).astype(int).tolist()).hex()


LIGHT = Paper("#ffffff", "#101418", "#5d6671", (COLOURS[1], COLOURS[5]), (COLOURS[0], COLOURS[6]))
DARK = Paper("#14171b", "#e6e9ed", "#9aa4af", (COLOURS[0], COLOURS[6]), (COLOURS[1], COLOURS[5]))


class Canvas:
    """RDKit's drawing, with areas under the molecule and texts below it.

    Args:
        kind: what comes out.
        size: of everything, width and height.
        panel: the height that the molecule has.
        paper: the colours.
        fill: whether the paper is drawn.
        most: pixels per unit of the molecule's coordinates at most, so that small ones do not become huge.
    """

    def __init__(self, kind: Kind, size: tuple[int, int], panel: int, paper: Paper, *, fill: bool, most: float) -> None:
        from rdkit.Chem.Draw import rdMolDraw2D  # there, since the molecule came from it

        drawer: Any = rdMolDraw2D.MolDraw2DSVG if kind == "svg" else rdMolDraw2D.MolDraw2DCairo  # RDKit's types are wrong
        self.kind, self.size, self.paper = kind, size, paper
        self.drawn = drawer(size[0], size[1], size[0], panel)
        self.texts: list[str] = []
        look = self.drawn.drawOptions()
        look.useBWAtomPalette()  # red and blue have another meaning here
        look.setBackgroundColour(_parts(paper.paper))
        look.updateAtomPalette({-1: _parts(paper.ink)})
        for part in (look.setSymbolColour, look.setAnnotationColour, look.setAtomNoteColour, look.setBondNoteColour):
            part(_parts(paper.ink))
        look.fixedBondLength = most
        look.padding = PADDING
        look.maxFontSize = 1000
        look.minFontSize = 1
        look.prepareMolsBeforeDrawing = False
        if fill:
            self.drawn.ClearDrawing()
        look.clearBackground = False

    def molecule(self, mol: Mol, line: float = 2.0) -> None:
        """Bonds of a width and letters, over what is there."""
        self.drawn.SetLineWidth(line)
        self.drawn.DrawMolecule(mol)

    def places(self, count: int) -> tuple[Array, float]:
        """Where the first atoms of the molecule are, (count, 2), and how many pixels its unit has."""
        from rdkit.Geometry import Point2D

        spots = [self.drawn.GetDrawCoords(i) for i in range(count)]
        origin, one = (self.drawn.GetDrawCoords(Point2D(x, 0.0)) for x in (0.0, 1.0))
        return np.array([(spot.x, spot.y) for spot in spots]), float(one.x - origin.x)

    def disc(self, centre: Array, radius: float, colour: str) -> None:
        """A filled circle."""
        self._filling(colour)
        self.drawn.DrawEllipse(_point(centre - radius), _point(centre + radius), True)

    def shape(self, corners: Array, colour: str) -> None:
        """A filled polygon, (corners, 2)."""
        self._filling(colour)
        self.drawn.DrawPolygon([_point(corner) for corner in corners], True)

    def text(self, place: tuple[float, float], text: str, size: float, colour: str, anchor: Anchor = "start") -> None:
        """A line of text, its middle at a height. In pixels, what RDKit's font lacks is a question mark."""
        x, y = place
        if self.kind == "svg":
            look = f'font-family="system-ui,sans-serif" font-size="{size:.1f}" fill="{colour}" text-anchor="{anchor}"'
            self.texts.append(f'<text x="{x:.1f}" y="{y + 0.35 * size:.1f}" {look}>{escape(printable(text))}</text>\n')
            return
        self.drawn.SetColour(_parts(colour))
        self.drawn.SetFontSize(size)
        self.drawn.DrawString(_plain(text), _point(np.array(place)), ("middle", "start", "end").index(anchor), True)

    def svg_body(self) -> str:
        """What was drawn, without the element around it."""
        self.drawn.FinishDrawing()
        text: str = self.drawn.GetDrawingText()
        return text.split("<!-- END OF HEADER -->\n", 1)[1].rsplit("</svg>", 1)[0] + "".join(self.texts)

    def png(self) -> bytes:
        """What was drawn, as a file."""
        self.drawn.FinishDrawing()
        return bytes(self.drawn.GetDrawingText())

    def _filling(self, colour: str) -> None:
        self.drawn.SetFillPolys(True)
        self.drawn.SetLineWidth(0)
        self.drawn.SetColour(_parts(colour))


def _parts(colour: str) -> tuple[float, ...]:
    return tuple(part / 255 for part in bytes.fromhex(colour[1:]))


def _point(place: Array) -> Any:
    from rdkit.Geometry import Point2D

    return Point2D(float(place[0]), float(place[1]))


def printable(text: str) -> str:
    """A text without the signs that XML forbids or that move the line."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _plain(text: str) -> str:
    """A text as RDKit's own font can write it, with nothing that it takes for a command.

    >>> _plain("−0.3 <sub>α</sub> é")
    '-0.3 < sub>?< /sub> e'
    """
    known = printable(text).replace("−", "-").replace("′", "'").replace("<", "< ")
    parts = (sign for sign in unicodedata.normalize("NFKD", known) if not unicodedata.combining(sign))
    return "".join(sign if sign.isascii() else "?" for sign in parts)
