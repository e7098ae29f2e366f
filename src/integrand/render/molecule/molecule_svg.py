"""Molecules as SVG, with an invisible element on every atom, bond and arc that names it and its attribution."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..escaping import escape
from ..text.word_markup import number
from .molecule_data import Molecule
from .molecule_drawing import Array, Drawing, Look, draw, printable

SIGNS = {"SINGLE": "–", "DOUBLE": "=", "TRIPLE": "≡", "AROMATIC": "∶", "DATIVE": "→"}
"""The sign between the names of two bonded atoms, by the type of their bond."""

MARKED = "_"
"""The suffix of an SVG element's id on a page; without it, the id is that of the matching bar."""

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


def marks(molecule: Molecule, drawing: Drawing) -> Iterator[SvgMark]:
    """The elements that can be pointed at; atoms come last, so that they lie on top."""
    spots, bond = drawing.spots, drawing.bond
    for i, j, value, curve in drawing.arcs:
        yield SvgMark(f"p{i}-{j}", f'data-pair="{i} {j}"', pair_name(molecule, i, j), value, f'<path d="{_parabola(curve)}"')
    for k, ((i, j), value) in enumerate(zip(molecule.ends, molecule.bonds.tolist(), strict=True)):
        a, b = spots[i] + 0.25 * (spots[j] - spots[i]), spots[j] + 0.25 * (spots[i] - spots[j])
        shape = f'<path d="M{a[0]:.0f} {a[1]:.0f} {b[0]:.0f} {b[1]:.0f}"'
        yield SvgMark(f"b{k}", f'data-bond="{k}"', bond_name(molecule, k), value, shape)
    for i, (spot, value) in enumerate(zip(spots, molecule.atoms.tolist(), strict=True)):
        shape = f'<circle cx="{spot[0]:.0f}" cy="{spot[1]:.0f}" r="{0.34 * bond:.0f}"'
        yield SvgMark(f"a{i}", f'data-atom="{i}"', molecule.names[i], value, shape)


def standalone(molecule: Molecule, look: Look) -> str:
    """The drawing as an SVG file or notebook picture; names and values show as tooltips."""
    drawing = draw(molecule, look, "svg")
    body = drawing.canvas.svg_body()
    found = "".join(
        f'{mark.shape} {mark.data} data-value="{mark.value:.6g}"><title>{escape(mark.name)}: {number(mark.value)}</title>'
        f"</{mark.shape[1 : mark.shape.index(' ')]}>\n"
        for mark in marks(molecule, drawing)
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


def inline(molecule: Molecule, sheet: SvgSheet, anchor: str, look: Look) -> tuple[str, Drawing]:
    """The drawing for a page: compact, for light and dark paper, each element a link to the bar ``{anchor}{key}``.

    Args:
        molecule: what is drawn.
        sheet: collects the styles.
        anchor: the prefix of the ids of this molecule's elements.
        look: the options, without legend and background.
    """
    drawing = draw(molecule, look, "svg")
    other = draw(molecule, replace(look, dark=True), "svg")  # the same shapes in other colours
    body = compact(drawing.canvas.svg_body(), other.canvas.svg_body(), sheet)
    found = "".join(
        f'<a id="{anchor}{mark.key}{MARKED}" href="#{anchor}{mark.key}">{mark.shape}/></a>\n'
        for mark in marks(molecule, drawing)
    )
    wide = f"{0.28 * drawing.bond:.0f}"
    linked = f'<g id="{anchor}drawn">{body}</g>\n<g class="marks" stroke-width="{wide}">\n{found}</g>\n'
    return _element(molecule, drawing, linked).replace('role="img"', 'role="group"'), drawing


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
