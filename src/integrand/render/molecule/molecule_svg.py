"""The drawn molecule as SVG, with an invisible mark on every atom, bond and arc that says what it is and what it adds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape

from ..text.word_markup import number
from .molecule_data import Molecule
from .molecule_drawing import Array, Drawing, Look, draw, printable

SIGNS = {"SINGLE": "–", "DOUBLE": "=", "TRIPLE": "≡", "AROMATIC": "∶", "DATIVE": "→"}
"""Between the names of two bonded atoms."""


MARKED = "_"
"""What a mark's name on a page ends with, after that of its bar."""


@dataclass(frozen=True)
class SvgMark:
    """Something that can be pointed at.

    Attributes:
        key: short and unique in a molecule: a3 an atom, b5 a bond, p3-8 another pair.
        data: the same as attributes of the element.
        name: in words.
        value: its attribution.
        shape: the element to point at, without its end.
    """

    key: str
    data: str
    name: str
    value: float
    shape: str


def bond_name(molecule: Molecule, k: int) -> str:
    """Both atoms with the kind of their bond between them, such as C1=O2."""
    i, j = molecule.ends[k]
    kind = str(molecule.mol.GetBondWithIdx(k).GetBondType())
    return f"{molecule.names[i]}{SIGNS.get(kind, '–')}{molecule.names[j]}"


def pair_name(molecule: Molecule, i: int, j: int) -> str:
    """Both atoms of a pair that is not a bond."""
    return f"{molecule.names[i]} … {molecule.names[j]}"


def marks(molecule: Molecule, drawing: Drawing) -> Iterator[SvgMark]:
    """What can be pointed at, atoms last so that they lie on top."""
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


def _parabola(curve: Array) -> str:
    """A curve from its first to its last point, through the one in the middle."""
    (a, b), (c, d), (e, f) = curve[0], 2 * curve[len(curve) // 2] - (curve[0] + curve[-1]) / 2, curve[-1]
    return f"M{a:.0f} {b:.0f}Q{c:.0f} {d:.0f} {e:.0f} {f:.0f}"


def standalone(molecule: Molecule, look: Look) -> str:
    """A file of its own, or a picture in a notebook; names and values show where a mouse rests."""
    drawing = draw(molecule, look, "svg")
    body = drawing.canvas.svg_body()
    found = "".join(
        f'{mark.shape} {mark.data} data-value="{mark.value:.6g}"><title>{escape(mark.name)}: {number(mark.value)}</title>'
        f"</{mark.shape[1 : mark.shape.index(' ')]}>\n"
        for mark in marks(molecule, drawing)
    )
    listed = f'<g fill="none" pointer-events="visible" stroke-width="{0.28 * drawing.bond:.0f}">\n{found}</g>\n'
    return _element(molecule, drawing, body + listed, 'width="{}" height="{}"')


def _element(molecule: Molecule, drawing: Drawing, body: str, size: str = "") -> str:
    width, height = drawing.canvas.size
    about = " ".join(part for part in (molecule.title, molecule.label) if part) or "A molecule"
    said = escape(f"{printable(about)}, drawn with its attributions, which add up to {number(molecule.total)}")
    box = f'viewBox="0 0 {width} {height}" {size.format(width, height)}'.strip()
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="{said}">\n{body}</svg>\n'


Style = tuple[str, str]
"""Of an element: its declarations on light and on dark paper."""


class SvgSheet:
    """The styles of all drawings of a page, each once, on light and on dark paper."""

    def __init__(self) -> None:
        self.known: dict[Style, str] = {}

    def name(self, style: Style) -> str:
        """The class of a style."""
        return self.known.setdefault(style, f"s{len(self.known)}")

    def css(self) -> str:
        """All of them."""
        light = "".join(f".{name}{{{style[0]}}}" for style, name in self.known.items())
        dark = "".join(f".{name}{{{style[1]}}}" for style, name in self.known.items() if style[0] != style[1])
        return f"{light}\n@media(prefers-color-scheme:dark){{{dark}}}"


def inline(molecule: Molecule, sheet: SvgSheet, anchor: str, look: Look) -> tuple[str, Drawing]:
    """The drawing for a page: small, on the reader's paper, each mark a link to the bar ``{anchor}{key}``.

    Args:
        molecule: what is drawn.
        sheet: gets the styles.
        anchor: what the names of this molecule's elements begin with.
        look: without legend and paper.
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


_ELEMENT = re.compile(r"<(path|ellipse)\s([^>]*?)/>")
_ATTRIBUTE = re.compile(r"([\w-]+)='([^']*)'")


def compact(light: str, dark: str, sheet: SvgSheet) -> str:
    """RDKit's elements without what is default or said again and again.

    Args:
        light: RDKit's drawing on light paper.
        dark: the same on dark paper.
        sheet: gets the styles.
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


def _style(given: Mapping[str, str]) -> str:
    parts = dict(part.split(":", 1) for part in given.get("style", "").split(";") if ":" in part)
    fill = parts.get("fill", given.get("fill", "none")).lower()
    width = float(parts.get("stroke-width", "0").removesuffix("px"))
    if not width or parts.get("stroke", "none") == "none":
        return f"fill:{fill}"
    return f"fill:{fill};stroke:{parts['stroke'].lower()};stroke-width:{width:.3g}"


def relative(path: str) -> str:
    """A path of SVG by steps instead of places, in tenths of a pixel, which is shorter.

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


def _joined(command: str, steps: list[int]) -> str:
    """Numbers after each other; a sign or a second point parts them as a space does."""
    out = command
    for k, step in enumerate(steps):
        text = f"{step / 10:g}"
        text = text.replace("0.", ".") if abs(step) < 10 else text
        pointed = text.startswith(".") and k > 0 and steps[k - 1] % 10
        out += text if text.startswith("-") or pointed or (k == 0 and command) else f" {text}"
    return out
