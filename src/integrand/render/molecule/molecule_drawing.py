"""Molecules drawn with RDKit, as SVG or pixels: halos on atoms and bonds, arcs between other pairs, and a legend.

Lengths are in pixels.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import OptionError
from ...words import short_repr
from ..escaping import escape
from ..image.pixels import COLOURS
from ..text.word_markup import QUIET, number
from .molecule_data import BOND, Molecule, positions

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Array = NDArray[np.float64]
Kind = Literal["svg", "png"]
Anchor = Literal["start", "middle", "end"]

STEPS = 48
"""The number of shades from the paper's colour to the strongest one."""

PADDING = 0.06
"""The share of the drawing that is left free on each side of the molecule, for halos and arcs."""

RINGS = ((1.0, 0.2), (0.88, 0.4), (0.76, 0.6), (0.64, 0.8), (0.52, 1.0))
"""The discs of a halo from the outside in, each with its share of the radius and of the colour."""

FAINT = 0.02
"""Attributions below this share of the strongest one get no colour."""

SCALE, WIDEST, SMALLEST, MARGIN = 28.0, 2000.0, (300, 200), 18.0
"""The layout where no size is asked for: pixels per unit of the coordinates, the width beyond which molecules are shrunk, the
smallest size, and the margin for letters."""

NARROW, WIDE = frozenset(" .,:;'|!il()[]/\\tfj-"), frozenset("@=+#%mw−≤×")
"""Characters that are narrower, and wider, than the others in a line of text."""

Numbers = bool | Literal["atoms"]

Pairs = Literal["halves", "arcs", "none"]
"""How the attributions of pairs are drawn: half of each in its atoms, on bonds and as arcs, or on bonds only."""

MOST_ARCS = 80
"""At most this many arcs are drawn; more could not be told apart."""


@dataclass(frozen=True)
class Paper:
    """A colour scheme: the background, the colours mixed with it, and those of text.

    Attributes:
        paper: the background.
        ink: the colour of bonds and letters.
        soft: the colour of secondary text.
        areas: the colours of the strongest negative and positive areas, under letters.
        lines: the colours of the strongest negative and positive thin lines.
    """

    paper: str
    ink: str
    soft: str
    areas: tuple[str, str]
    lines: tuple[str, str]

    def area(self, share: float) -> str:
        """The colour of an area for a share from -1 to 1; the paper's own colour at 0.

        >>> LIGHT.area(1.0), LIGHT.area(0.0), LIGHT.area(-0.5)
        ('#d6604d', '#ffffff', '#a1c9e1')
        """
        return self._mixed(self.areas[int(share > 0)], abs(share))

    def line(self, share: float) -> str:
        """The colour of a line for a share from -1 to 1; even a weak one stays visible."""
        return self._mixed(self.lines[int(share > 0)], 0.35 + 0.65 * min(1.0, abs(share)))

    @property
    def ramp(self) -> str:
        """The scale of the areas' colours, from negative to positive, as a CSS gradient."""
        return f"linear-gradient(to right,{','.join(self.area(share) for share in (-1.0, 0.0, 1.0))})"

    def _mixed(self, colour: str, share: float) -> str:
        """A mix of the paper's colour with another, in few enough steps that a page needs few styles."""
        step = min(1.0, round(share * STEPS) / STEPS)
        here, there = (np.array(list(bytes.fromhex(one[1:])), float) for one in (self.paper, colour))
        return "#" + bytes(np.rint(here + (there - here) * step).astype(int).tolist()).hex()


LIGHT = Paper("#ffffff", "#101418", "#5d6671", (COLOURS[1], COLOURS[5]), (COLOURS[0], COLOURS[6]))
DARK = Paper("#14171b", "#e6e9ed", "#9aa4af", (COLOURS[0], COLOURS[6]), (COLOURS[1], COLOURS[5]))


class Canvas:
    """A drawing made by RDKit, with coloured areas under the molecule and texts below it.

    Args:
        kind: the format, ``svg`` or ``png``.
        size: width and height of the whole drawing.
        panel: the height of the part with the molecule.
        paper: the colour scheme.
        fill: whether the background is drawn.
        most: the most pixels per unit of the molecule's coordinates, so that small molecules do not become huge.
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
        """Draw a molecule's bonds, with this line width, and letters over what is there."""
        self.drawn.SetLineWidth(line)
        self.drawn.DrawMolecule(mol)

    def places(self, count: int) -> tuple[Array, float]:
        """The positions of the first ``count`` atoms, (count, 2), and the number of pixels per unit of the coordinates."""
        from rdkit.Geometry import Point2D

        spots = [self.drawn.GetDrawCoords(i) for i in range(count)]
        origin, one = (self.drawn.GetDrawCoords(Point2D(x, 0.0)) for x in (0.0, 1.0))
        return np.array([(spot.x, spot.y) for spot in spots]), float(one.x - origin.x)

    def disc(self, centre: Array, radius: float, colour: str) -> None:
        """Draw a filled circle."""
        self._filling(colour)
        self.drawn.DrawEllipse(_point(centre - radius), _point(centre + radius), True)

    def shape(self, corners: Array, colour: str) -> None:
        """Draw a filled polygon, (corners, 2)."""
        self._filling(colour)
        self.drawn.DrawPolygon([_point(corner) for corner in corners], True)

    def text(self, place: tuple[float, float], text: str, size: float, colour: str, anchor: Anchor = "start") -> None:
        """Draw a line of text, vertically centred at a place. In PNGs, characters that RDKit's font lacks become "?"."""
        x, y = place
        if self.kind == "svg":
            look = f'font-family="system-ui,sans-serif" font-size="{size:.1f}" fill="{colour}" text-anchor="{anchor}"'
            self.texts.append(f'<text x="{x:.1f}" y="{y + 0.35 * size:.1f}" {look}>{escape(printable(text))}</text>\n')
            return
        self.drawn.SetColour(_parts(colour))
        self.drawn.SetFontSize(size)
        self.drawn.DrawString(_plain(text), _point(np.array(place)), ("middle", "start", "end").index(anchor), True)

    def svg_body(self) -> str:
        """The drawing as SVG, without the enclosing svg element."""
        self.drawn.FinishDrawing()
        text: str = self.drawn.GetDrawingText()
        return text.split("<!-- END OF HEADER -->\n", 1)[1].rsplit("</svg>", 1)[0] + "".join(self.texts)

    def png(self) -> bytes:
        """The drawing as the bytes of a PNG file."""
        self.drawn.FinishDrawing()
        return bytes(self.drawn.GetDrawingText())

    def _filling(self, colour: str) -> None:
        self.drawn.SetFillPolys(True)
        self.drawn.SetLineWidth(0)
        self.drawn.SetColour(_parts(colour))


def printable(text: str) -> str:
    """The text with characters that XML forbids or that break the line replaced by spaces."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


@dataclass(frozen=True)
class Look:
    """The options of a molecule's drawing.

    Attributes:
        size: width and height in pixels, legend included; None for what the molecule needs.
        pairs: how pairs are drawn.
        numbers: whether the values of atoms and bonds are written next to them; "atoms" for the numbers of the atoms.
        legend: whether the colour scale and the sums are written below.
        dark: whether it is drawn light on dark paper.
        limit: the attribution that has the strongest colour; None for the largest.
        fill: whether the background is drawn.
    """

    size: tuple[int, int] | None = None
    pairs: Pairs = "halves"
    numbers: Numbers = False
    legend: bool = True
    dark: bool = False
    limit: float | None = None
    fill: bool = True

    def __post_init__(self) -> None:
        if self.pairs not in ("halves", "arcs", "none"):
            raise OptionError(f"got pairs={self.pairs!r}; expected 'halves', 'arcs' or 'none'")
        if self.numbers not in (True, False, "atoms"):
            raise OptionError(f"got numbers={self.numbers!r}; expected True, False or 'atoms'")
        if self.size is not None and not (len(self.size) == 2 and all(60 <= side <= 20_000 for side in self.size)):
            raise OptionError(f"got size={self.size!r}; expected (width, height) of 60 to 20,000 pixels")
        if self.limit is not None and not 0 < self.limit < math.inf:
            raise OptionError(f"got limit={self.limit!r}; expected a positive number, or None for the largest attribution")

    @property
    def paper(self) -> Paper:
        """The colour scheme of the drawing."""
        return DARK if self.dark else LIGHT


@dataclass(frozen=True)
class Drawing:
    """A drawn molecule, with the positions of its atoms and arcs.

    Attributes:
        canvas: the drawing itself.
        spots: (N, 2), the positions of the atoms.
        bond: the length of a bond.
        arcs: (i, j, value, the curve as (points, 2)) of the pairs that were drawn as arcs.
    """

    canvas: Canvas
    spots: Array
    bond: float
    arcs: tuple[tuple[int, int, float, Array], ...]


def draw(molecule: Molecule, look: Look, kind: Kind) -> Drawing:
    """Draw a molecule; see :func:`integrand.render.molecule.svg`."""
    whole, molecule = molecule, molecule.folded if look.pairs == "halves" else molecule
    limit = look.limit or molecule.limit
    mol = copy(molecule.layout)
    if look.numbers == "atoms":
        for i in range(len(molecule.atoms)):
            mol.GetAtomWithIdx(i).SetProp("atomNote", f"{i}")
    elif look.numbers:
        _write_numbers(molecule, mol, limit)
    lines = _legend_lines(whole, look, limit) if look.legend else []
    page = _page(mol, look, lines, kind)
    spots, scale = _places(mol, len(molecule.atoms), page.canvas())
    canvas, bond = page.canvas(), BOND * scale
    arcs = tuple(_arcs(molecule, spots, bond, limit)) if look.pairs == "arcs" else ()
    _halos(canvas, molecule, spots, bond, limit)
    _ribbons(canvas, arcs, bond, limit)
    canvas.molecule(mol, max(1.0, 0.065 * scale))
    if look.legend:
        _legend(canvas, page.lines, limit, page.panel, page.unit)
    return Drawing(canvas, spots, bond, arcs)


def draw_skeleton(molecule: Molecule) -> tuple[tuple[str, str], Drawing]:
    """Draw a molecule without colours, for a page: its SVG for light and for dark paper, and where its atoms and arcs are."""
    look = Look(legend=False, fill=False)
    page = _page(molecule.layout, look, [], "svg")
    spots, scale = _places(molecule.layout, len(molecule.atoms), page.canvas())
    drawn = []
    for dark in (False, True):
        canvas = replace(page, look=replace(look, dark=dark)).canvas()
        canvas.molecule(molecule.layout, max(1.0, 0.065 * scale))
        drawn.append(canvas.svg_body())
    bond = BOND * scale
    arcs = tuple(_arcs(molecule, spots, bond, molecule.limit))
    return (drawn[0], drawn[1]), Drawing(page.canvas(), spots, bond, arcs)


def shown_pairs(molecule: Molecule, limit: float) -> list[tuple[int, int, float]]:
    """The pairs that get an arc, strongest last: those strong enough to be coloured, at most :data:`MOST_ARCS`."""
    loud = [pair for pair in molecule.far if abs(pair[2]) > QUIET * limit]
    return sorted(loud, key=lambda pair: abs(pair[2]))[-MOST_ARCS:]


def pairs_line(molecule: Molecule, look: Look, limit: float) -> str:
    """A sentence on the arcs and the pairs without one; '' where no pair but the bonds has an attribution."""
    count = len(molecule.far)
    if not count:
        return ""
    total = math.fsum(value for _, _, value in molecule.far)
    if look.pairs == "none":
        return f"{count} other pairs not drawn, in sum {number(total)}"
    shown = shown_pairs(molecule, limit)
    share = math.fsum(abs(pair[2]) for pair in shown) / math.fsum(abs(pair[2]) for pair in molecule.far)
    rest = total - math.fsum(pair[2] for pair in shown)
    left = f"; the rest adds {number(rest)}" if len(shown) < count else ""
    return f"arcs: {len(shown)} of {count} other pairs, {100 * share:.0f}% of their magnitude{left}"


def _parts(colour: str) -> tuple[float, ...]:
    return tuple(part / 255 for part in bytes.fromhex(colour[1:]))


def _point(place: Array) -> Any:
    from rdkit.Geometry import Point2D

    return Point2D(float(place[0]), float(place[1]))


def _plain(text: str) -> str:
    """The text in characters that RDKit's own font has, with nothing that RDKit takes for a command.

    >>> _plain("−0.3 <sub>α</sub> é")
    '-0.3 < sub>?< /sub> e'
    """
    known = printable(text).replace("−", "-").replace("′", "'").replace("<", "< ")
    parts = (sign for sign in unicodedata.normalize("NFKD", known) if not unicodedata.combining(sign))
    return "".join(sign if sign.isascii() else "?" for sign in parts)


@dataclass(frozen=True)
class _Page:
    """The layout of a drawing: the molecule above, the legend with its lines below."""

    kind: Kind
    look: Look
    size: tuple[int, int]
    panel: int
    unit: float
    most: float
    lines: tuple[str, ...]

    def canvas(self) -> Canvas:
        return Canvas(self.kind, self.size, self.panel, self.look.paper, fill=self.look.fill, most=self.most)


def _page(mol: Mol, look: Look, lines: Sequence[str], kind: Kind) -> _Page:
    """The layout of a molecule's drawing; where no size is given, the molecule's extent sets it, up to a widest picture."""
    zoom = 2 if kind == "png" else 1  # screens with two pixels for one are common
    if look.size is None:
        wide, high = np.ptp(positions(mol), axis=0)
        scale = min(SCALE, WIDEST / max(wide, high, 1.0))
        least = (SMALLEST[0], SMALLEST[1] if look.legend else SMALLEST[1] // 2)
        needs = ((scale * side + 2 * MARGIN) / (1 - 2 * PADDING) for side in (wide, high))
        width, height = (zoom * max(low, math.ceil(need)) for low, need in zip(least, needs, strict=True))
        unit, most = float(zoom), zoom * SCALE
    else:
        width, height = look.size
        unit, most = min(2.5, max(0.75, min(width / 420, height / 320))), max(SCALE, min(look.size) / 8)
    wrapped = tuple(part for line in lines for part in _wrapped(line, width / unit - 24))
    foot = round(unit * (32 + 16 * len(wrapped))) if look.legend else 0
    full = (width, height) if look.size else (width, height + foot)
    return _Page(kind, look, full, max(full[1] - foot, 20), unit, most, wrapped)


def _wrapped(line: str, room: float) -> list[str]:
    """A text broken into lines of a width; longer words, such as SMILES, are broken too."""
    found, wide = [""], 0.0
    for word in re.findall(r"\S+\s*", line):
        if wide and wide + _width(word.rstrip()) > room:
            found, wide = [*found, ""], 0.0
        for sign in word:
            if wide + _width(sign) > room and not sign.isspace():
                found, wide = [*found, ""], 0.0
            found[-1], wide = found[-1] + sign, wide + _width(sign)
    return [part.rstrip() for part in found]


def _width(text: str) -> float:
    """An estimate of a text's width in the legend, rather too large than too small since viewers' fonts differ."""
    return math.fsum(4.8 if sign in NARROW else 11.5 if sign in WIDE else 9.3 if sign.isupper() else 7.3 for sign in text)


def _places(mol: Mol, count: int, trial: Canvas) -> tuple[Array, float]:
    """The positions that the atoms will have, found by drawing the molecule once, since halos go under it."""
    trial.molecule(mol)
    return trial.places(count)


def _halos(canvas: Canvas, molecule: Molecule, spots: Array, bond: float, limit: float) -> None:
    """Draw the halos of atoms and bonds."""
    for halo in halos(molecule, spots, bond, limit):
        colour = canvas.paper.area(halo.share)
        if halo.end is None:
            canvas.disc(halo.start, halo.radius, colour)
        else:
            canvas.shape(_capsule(halo.start, halo.end, halo.radius), colour)


@dataclass(frozen=True, repr=False)
class Halo:
    """A coloured area under an atom or a bond.

    Attributes:
        share: its colour, from -1 to 1.
        radius: of the disc, or half the width of the band.
        start: the centre of the disc, or where the band begins.
        end: where the band ends; None for a disc.
    """

    share: float
    radius: float
    start: Array
    end: Array | None = None

    __repr__ = short_repr


def halos(molecule: Molecule, spots: Array, bond: float, limit: float) -> Iterator[Halo]:
    """Discs on atoms and bands on bonds, ring by ring over the whole molecule so that no edge covers a core."""
    if not limit:
        return
    atoms, bonds = (np.clip(values / limit, -1, 1).tolist() for values in (molecule.atoms, molecule.bonds))
    for ring, (inner, depth) in enumerate(RINGS):
        for share, (i, j) in sorted(zip(bonds, molecule.ends, strict=True), key=lambda one: abs(one[0])):
            if ring in _rings(abs(share), thin=True):
                a, b = spots[i] + 0.3 * (spots[j] - spots[i]), spots[j] + 0.3 * (spots[i] - spots[j])
                yield Halo(share * depth, bond * (0.08 + 0.1 * math.sqrt(abs(share))) * inner, a, b)
        for share, spot in sorted(zip(atoms, spots, strict=True), key=lambda one: abs(one[0])):
            if ring in _rings(abs(share), thin=False):
                yield Halo(share * depth, bond * (0.18 + 0.26 * math.sqrt(abs(share))) * inner, spot)


def _ribbons(canvas: Canvas, arcs: Sequence[tuple[int, int, float, Array]], bond: float, limit: float) -> None:
    for _, _, value, curve in arcs:
        canvas.shape(_ribbon(curve, arc_width(value, bond, limit)), canvas.paper.line(value / limit))


def arc_width(value: float, bond: float, limit: float) -> float:
    """The width of a pair's arc."""
    return bond * (0.03 + 0.08 * min(1.0, abs(value) / limit))


def _rings(share: float, *, thin: bool) -> tuple[int, ...]:
    """The rings of a halo that are drawn: fewer where they could not be told apart, none where the colour is too faint."""
    if share < FAINT:
        return ()
    if share < 0.35:
        return (0, 4) if thin else (0, 2, 4)
    return (0, 2, 4) if thin else (0, 1, 2, 3, 4)


def _capsule(a: Array, b: Array, half: float) -> Array:
    """The halo of a bond: a band with rounded ends, as a polygon."""
    turn = math.atan2(*(b - a)[::-1])
    angles = np.linspace(-np.pi / 2, np.pi / 2, 4) + turn
    round_end = half * np.stack([np.cos(angles), np.sin(angles)], 1)
    return np.concatenate([b + round_end, a - round_end])


def _arcs(molecule: Molecule, spots: Array, bond: float, limit: float) -> Iterator[tuple[int, int, float, Array]]:
    centre = spots.mean(0)
    joined = [{n.GetIdx() for n in atom.GetNeighbors()} for atom in molecule.mol.GetAtoms()]
    for i, j, value in shown_pairs(molecule, limit):
        across = _across(spots[i], spots[j])
        between = sorted(joined[i] & joined[j])
        middle = spots[i] + spots[j]
        if between:  # keep clear of the atom between the two
            away = float(across @ (middle / 2 - spots[between[0]]))
            sag = bond * max(0.06, 0.5 - abs(away) / bond)
        else:
            away = float(across @ (middle / 2 - centre))
            sag = 0.2 * float(np.linalg.norm(spots[j] - spots[i]))
        bow = math.copysign(sag, away) * across
        yield i, j, value, _curve(spots[i], spots[j], bow, 0.14 * bond, 7 if between else 15)


def _across(start: Array, end: Array) -> Array:
    """The unit vector perpendicular to the line from one point to another."""
    along = (end - start) / max(float(np.linalg.norm(end - start)), 1e-9)
    return np.array([-along[1], along[0]])


def _curve(start: Array, end: Array, bow: Array, gap: float, count: int) -> Array:
    """An arc between two atoms: a parabola that keeps a gap from both, (count, 2)."""
    away = float(np.linalg.norm(end - start))
    cut = min(0.4, gap / away) if away else 0.0
    t = np.linspace(cut, 1 - cut, count)[:, None]
    return np.asarray((1 - t) * start + t * end + 4 * t * (1 - t) * bow)


def _ribbon(curve: Array, wide: float) -> Array:
    """A curve widened into a polygon."""
    along = np.gradient(curve, axis=0)
    across = np.stack([-along[:, 1], along[:, 0]], 1) / np.maximum(np.linalg.norm(along, axis=1), 1e-9)[:, None]
    return np.concatenate([curve + across * wide / 2, (curve - across * wide / 2)[::-1]])


def _write_numbers(molecule: Molecule, mol: Mol, limit: float) -> None:
    """Write the values of atoms and bonds as notes, which RDKit places where there is room.

    RDKit's font has no true minus sign.
    """
    digits = max(0, 1 - math.floor(math.log10(limit))) if limit else 0
    step = 0.5 * 10.0**-digits
    for i, value in enumerate(molecule.atoms.tolist()):
        if abs(value) >= step:
            mol.GetAtomWithIdx(i).SetProp("atomNote", f"{value:+.{digits}f}")
    for i, value in enumerate(molecule.bonds.tolist()):
        if abs(value) >= step:
            mol.GetBondWithIdx(i).SetProp("bondNote", f"{value:+.{digits}f}")


def _legend_lines(molecule: Molecule, look: Look, limit: float) -> list[str]:
    said = f"{molecule.label} {molecule.score:.3g}" if molecule.label and molecule.score is not None else molecule.label
    parts = ", ".join(f"{name} {number(value)}" for name, value in molecule.parts if value or name in ("atoms", "bonds"))
    head = ": ".join(part for part in (molecule.title, molecule.answer or said) if part)
    if look.pairs == "halves" and molecule.pairs.any():
        with_halves = math.fsum(molecule.per_atom)
        parts = ", ".join([f"atoms with half of their pairs {number(with_halves)}", *_others_said(molecule)])
        return [line for line in (head, f"sum {number(molecule.total)} = {parts}") if line]
    return [line for line in (head, f"sum {number(molecule.total)} = {parts}", pairs_line(molecule, look, limit)) if line]


def _others_said(molecule: Molecule) -> list[str]:
    return [f"{name} {number(value)}" for name, value in molecule.parts[3:]]


def _legend(canvas: Canvas, lines: Sequence[str], limit: float, top: int, unit: float) -> None:
    """Draw the colour scale with its values, and the lines with the sums."""
    paper, left, wide = canvas.paper, 12 * unit, min(200 * unit, canvas.size[0] - 24 * unit)
    high, steps = 10 * unit, 31
    for k, share in enumerate(np.linspace(-1, 1, steps)):
        a, b = left + wide * k / steps, left + wide  # each to the end under the next, so that no seams show
        box = np.array([[a, top], [b, top], [b, top + high], [a, top + high]])
        canvas.shape(box, paper.area(float(share) if limit else 0.0))
    ends = (f"against {number(-limit)}", "0", f"for {number(limit)}") if limit else ("", "all zero", "")
    y = top + high + 9 * unit
    for text, x, anchor in zip(ends, (left, left + wide / 2, left + wide), ("start", "middle", "end"), strict=True):
        canvas.text((x, y), text, 10.5 * unit, paper.soft, anchor)  # type: ignore[arg-type]
    for k, line in enumerate(lines):
        canvas.text((left, top + unit * (36 + 16 * k)), line, 12 * unit, paper.ink if k == 0 else paper.soft)
