"""Molecules as SVG, with an invisible element on every atom, bond and arc that names it and its attribution."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..escaping import escape
from ..text.word_markup import number
from .molecule_data import Molecule
from .molecule_drawing import DARK, LIGHT, Array, Drawing, Look, arc_width, draw, draw_skeleton, halos, printable

SIGNS = {"SINGLE": "–", "DOUBLE": "=", "TRIPLE": "≡", "AROMATIC": "∶", "DATIVE": "→"}
"""The sign between the names of two bonded atoms, by the type of their bond."""

Style = tuple[str, str]
"""The CSS declarations of an element on light and on dark paper."""

_ELEMENT = re.compile(r"<(path|ellipse)\s([^>]*?)/>")
_ATTRIBUTE = re.compile(r"([\w-]+)='([^']*)'")


@dataclass(frozen=True)
class SvgMark:
    """An atom, bond or arc that a reader can point at.

    Attributes:
        key: a short name, unique in a molecule: a3 for an atom, b5 for a bond, p3-8 for another pair.
        data: the same key as HTML attributes of the element.
        name: its name for people.
        value: its attribution.
        shape: the opening tag of the SVG element to point at.
    """

    key: str
    data: str
    name: str
    value: float
    shape: str


def bond_name(molecule: Molecule, k: int) -> str:
    """The names of two bonded atoms with the sign of their bond between them, such as C1=O2."""
    i, j = molecule.ends[k]
    kind = str(molecule.mol.GetBondWithIdx(k).GetBondType())
    return f"{molecule.names[i]}{SIGNS.get(kind, '–')}{molecule.names[j]}"


def pair_name(molecule: Molecule, i: int, j: int) -> str:
    """The names of two atoms that are not bonded."""
    return f"{molecule.names[i]} … {molecule.names[j]}"


def marks(molecule: Molecule, drawing: Drawing, *, halves: bool = False) -> Iterator[SvgMark]:
    """The elements that can be pointed at; atoms come last, so that they lie on top.

    Args:
        molecule: what is drawn.
        drawing: where its parts are.
        halves: whether the value of an atom includes half of each of its pairs.
    """
    spots, bond = drawing.spots, drawing.bond
    for i, j, value, curve in drawing.arcs:
        yield SvgMark(f"p{i}-{j}", f'data-pair="{i} {j}"', pair_name(molecule, i, j), value, f'<path d="{_parabola(curve)}"')
    for k, ((i, j), value) in enumerate(zip(molecule.ends, molecule.bonds.tolist(), strict=True)):
        a, b = spots[i] + 0.25 * (spots[j] - spots[i]), spots[j] + 0.25 * (spots[i] - spots[j])
        shape = f'<path d="M{a[0]:.0f} {a[1]:.0f} {b[0]:.0f} {b[1]:.0f}"'
        yield SvgMark(f"b{k}", f'data-bond="{k}"', bond_name(molecule, k), value, shape)
    values = molecule.per_atom if halves else molecule.atoms
    for i, (spot, value) in enumerate(zip(spots, values.tolist(), strict=True)):
        shape = f'<circle cx="{spot[0]:.0f}" cy="{spot[1]:.0f}" r="{0.34 * bond:.0f}"'
        yield SvgMark(f"a{i}", f'data-atom="{i}"', molecule.names[i], value, shape)


def standalone(molecule: Molecule, look: Look) -> str:
    """The drawing as an SVG file or notebook picture; names and values show as tooltips."""
    drawing = draw(molecule, look, "svg")
    body = drawing.canvas.svg_body()
    found = "".join(
        f'{mark.shape} {mark.data} data-value="{mark.value:.6g}"><title>{escape(mark.name)}: {number(mark.value)}</title>'
        f"</{mark.shape[1 : mark.shape.index(' ')]}>\n"
        for mark in marks(molecule, drawing, halves=look.pairs == "halves")
    )
    listed = f'<g fill="none" pointer-events="visible" stroke-width="{0.28 * drawing.bond:.0f}">\n{found}</g>\n'
    return _element(molecule, drawing, body + listed, 'width="{}" height="{}"')


class SvgSheet:
    """Collects the styles of all drawings on a page, each once, for light and for dark paper."""

    def __init__(self) -> None:
        self.known: dict[Style, str] = {}

    def name(self, style: Style) -> str:
        """The CSS class of a style, new if the style was not seen before."""
        return self.known.setdefault(style, f"s{len(self.known)}")

    def css(self) -> str:
        """The CSS of all styles collected so far."""
        light = "".join(f".{name}{{{style[0]}}}" for style, name in self.known.items())
        dark = "".join(f".{name}{{{style[1]}}}" for style, name in self.known.items() if style[0] != style[1])
        return f"{light}\n@media(prefers-color-scheme:dark){{{dark}}}"


def inline(molecule: Molecule, sheet: SvgSheet, anchor: str, say: Callable[[SvgMark], str]) -> tuple[str, Drawing]:
    """The drawing for a page, in layers: compact, for light and dark paper, with an element on each atom, bond and arc.

    Args:
        molecule: what is drawn.
        sheet: collects the styles.
        anchor: the prefix of the ids of this molecule's elements.
        say: what a mark says when it is pointed at.
    """
    skeleton, drawing = draw_skeleton(molecule)
    folded = molecule.folded
    halves = _halo_svg(folded, drawing, folded.limit, sheet)
    apart = _halo_svg(molecule, drawing, molecule.limit, sheet) + _arc_svg(drawing, molecule.limit, sheet)
    found: dict[str, str] = {"a": "", "b": "", "p": ""}
    for mark in marks(molecule, drawing, halves=True):
        found[mark.key[0]] += f'{mark.shape} id="{anchor}{mark.key}" data-says="{escape(say(mark))}"/>\n'
    wide = f"{0.28 * drawing.bond:.0f}"
    body = (
        f'<g class="halves" id="{anchor}halves">{halves}</g>\n<g class="apart">{apart}</g>\n'
        f'<g id="{anchor}bones">{compact(*skeleton, sheet)}</g>\n'
        f'<g class="numbers" font-size="{0.26 * drawing.bond:.1f}">{_numbers(molecule, drawing)}</g>\n'
        f'<g class="marks" stroke-width="{wide}">\n<g class="apart">{found["p"]}</g>{found["b"]}{found["a"]}</g>\n'
    )
    return _element(molecule, drawing, body, f'class="look" id="{anchor}svg"').replace('role="img"', 'role="group"'), drawing


def _halo_svg(molecule: Molecule, drawing: Drawing, limit: float, sheet: SvgSheet) -> str:
    out = ""
    for halo in halos(molecule, drawing.spots, drawing.bond, limit):
        (x, y), colours = halo.start, [paper.area(halo.share) for paper in (LIGHT, DARK)]
        if halo.end is None:
            name = sheet.name((f"fill:{colours[0]}", f"fill:{colours[1]}"))
            out += f'<circle class="{name}" cx="{x:.0f}" cy="{y:.0f}" r="{halo.radius:.1f}"/>'
        else:
            name = _stroke(colours[0], colours[1], 2 * halo.radius, sheet)
            out += f'<path class="{name}" d="M{x:.0f} {y:.0f}L{halo.end[0]:.0f} {halo.end[1]:.0f}"/>'
    return out


def _arc_svg(drawing: Drawing, limit: float, sheet: SvgSheet) -> str:
    out = ""
    for _, _, value, curve in drawing.arcs:
        light, dark = (paper.line(value / limit) for paper in (LIGHT, DARK))
        name = _stroke(light, dark, arc_width(value, drawing.bond, limit), sheet)
        out += f'<path class="{name}" d="{_parabola(curve)}"/>'
    return out


def _stroke(light: str, dark: str, width: float, sheet: SvgSheet) -> str:
    """The class of a round line, in a few widths only, so that a page needs few styles."""
    rest = f"stroke-width:{round(2 * width) / 2:g};stroke-linecap:round"
    return sheet.name((f"fill:none;stroke:{light};{rest}", f"fill:none;stroke:{dark};{rest}"))


def _numbers(molecule: Molecule, drawing: Drawing) -> str:
    """The numbers of the atoms, each in the widest gap between the bonds of its atom."""
    out = ""
    for i, spot in enumerate(drawing.spots):
        atom = molecule.mol.GetAtomWithIdx(i)
        turns = sorted(math.atan2(*(drawing.spots[other.GetIdx()] - spot)[::-1]) for other in atom.GetNeighbors())
        gaps = [((b - a) % math.tau or math.tau, a) for a, b in zip(turns, [*turns[1:], *turns[:1]], strict=True)]
        wide, start = max(gaps, default=(math.tau, 0.0))
        away = drawing.bond * (0.32 if atom.GetSymbol() == "C" else 0.42)
        turn = start + wide / 2
        x, y = spot[0] + away * math.cos(turn), spot[1] + away * math.sin(turn) + 0.09 * drawing.bond
        out += f'<text x="{x:.0f}" y="{y:.0f}">{i}</text>'
    return out


def compact(light: str, dark: str, sheet: SvgSheet) -> str:
    """RDKit's SVG elements without defaults and repeated styles.

    Args:
        light: RDKit's drawing on light paper.
        dark: RDKit's drawing of the same molecule on dark paper.
        sheet: collects the styles.
    """
    out: list[tuple[str, str]] = []
    for (tag, first), (_, second) in zip(_ELEMENT.findall(light), _ELEMENT.findall(dark), strict=True):
        given, other = (dict(_ATTRIBUTE.findall(one)) for one in (first, second))
        name = sheet.name((_style(given), _style(other)))
        if tag == "ellipse":
            out.append((f'<circle class="{name}" ', f'cx="{given["cx"]}" cy="{given["cy"]}" r="{given["rx"]}'))
        elif out and out[-1][0] == f'<path class="{name}" ':
            out[-1] = (out[-1][0], out[-1][1] + relative(given["d"]))  # neighbours of one style are one path
        else:
            out.append((f'<path class="{name}" ', f'd="{relative(given["d"])}'))
    return "".join(f'{start}{rest}"/>' for start, rest in out)


def relative(path: str) -> str:
    """An SVG path with relative instead of absolute coordinates, in tenths of a pixel, which is shorter.

    >>> relative("M 10.0,20.0 L 10.5,20.0 L 10.5,19.75 Z")
    'M10 20l.5 0 0-.2z'
    """
    out, x, y, last = "", 0, 0, ""
    for command, rest in re.findall(r"([MLQCZ])([^MLQCZ]*)", path):
        numbers = [round(10 * float(text)) for text in re.findall(r"-?[\d.]+", rest)]
        if command != "M":
            numbers, command = [value - (y if k % 2 else x) for k, value in enumerate(numbers)], command.lower()
        if numbers:
            x, y = numbers[-2] + x * (command != "M"), numbers[-1] + y * (command != "M")
        out += _joined("" if command == last and command != "M" else command, numbers)
        last = command
    return out


def _parabola(curve: Array) -> str:
    """An SVG path from the first to the last point of a curve, through its middle point."""
    (a, b), (c, d), (e, f) = curve[0], 2 * curve[len(curve) // 2] - (curve[0] + curve[-1]) / 2, curve[-1]
    return f"M{a:.0f} {b:.0f}Q{c:.0f} {d:.0f} {e:.0f} {f:.0f}"


def _element(molecule: Molecule, drawing: Drawing, body: str, size: str = "") -> str:
    width, height = drawing.canvas.size
    about = " ".join(part for part in (molecule.title, molecule.label) if part) or "A molecule"
    said = escape(f"{printable(about)}, drawn with its attributions, which add up to {number(molecule.total)}")
    box = f'viewBox="0 0 {width} {height}" {size.format(width, height)}'.strip()
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="{said}">\n{body}</svg>\n'


def _style(given: Mapping[str, str]) -> str:
    parts = dict(part.split(":", 1) for part in given.get("style", "").split(";") if ":" in part)
    fill = parts.get("fill", given.get("fill", "none")).lower()
    width = float(parts.get("stroke-width", "0").removesuffix("px"))
    if not width or parts.get("stroke", "none") == "none":
        return f"fill:{fill}"
    return f"fill:{fill};stroke:{parts['stroke'].lower()};stroke-width:{width:.3g}"


def _joined(command: str, steps: list[int]) -> str:
    """The numbers of an SVG path command, with a space only where a sign or a decimal point does not separate them."""
    out = command
    for k, step in enumerate(steps):
        text = f"{step / 10:g}"
        text = text.replace("0.", ".") if abs(step) < 10 else text
        pointed = text.startswith(".") and k > 0 and steps[k - 1] % 10
        out += text if text.startswith("-") or pointed or (k == 0 and command) else f" {text}"
    return out
