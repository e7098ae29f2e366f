"""Pictures of molecules: atoms in red and blue by what they bring, or atoms, bonds and other pairs apart.

one = Molecule(mol, atoms, pairs, title="aspirin", label="active", score=0.94, baseline_score=0.01)
svg(one), png(one)          # the drawn molecule with its legend
matrix(one)                 # atom by atom, as figure 7 of the paper shows it
page([one, two])            # one self-contained HTML page: the molecule and its groups, linked
save(one, "aspirin.svg")    # or .png, .pdf, .html, .json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...certificate import ExampleCertificate
from ...errors import InputError, MissingExtraError, OptionError
from ...files import write, write_bytes, write_text
from .molecule_data import AccountLine, Molecule
from .molecule_drawing import Look, Numbers, Pairs, draw
from .molecule_page import build
from .molecule_svg import standalone

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AccountLine", "Molecule", "figure", "matrix", "page", "png", "save", "svg"]

Molecules = Molecule | Sequence[Molecule]
"""One molecule or several."""


def svg(
    molecule: Molecule,
    *,
    size: tuple[int, int] | None = None,
    pairs: Pairs = "halves",
    numbers: Numbers = False,
    legend: bool = True,
    dark: bool = False,
    limit: float | None = None,
) -> str:
    """The molecule drawn as SVG: red speaks for the score, blue against it.

    Each atom is coloured by what it brings, half of each of its pairs included, so that the atoms add up to the whole. With
    ``pairs="arcs"`` atoms have round halos for what they bring themselves, bonds long ones, and other pairs arcs; weak arcs
    are left out, and the legend says how many and what they add. Letters have one colour, since red and blue have a meaning
    here. Every atom, bond and arc has an element that names it and its value, to be read where a mouse rests.

    Args:
        molecule: what to draw.
        size: (width, height) in pixels, legend included; by default what the molecule needs.
        pairs: "halves" gives half of each pair to its atoms, "arcs" draws pairs apart, "none" leaves out those without a bond.
        numbers: write the values of atoms and bonds next to them; "atoms" for the numbers of the atoms, as tables have them.
        legend: the scale of colours, and the sums, below the molecule.
        dark: for dark paper.
        limit: the attribution that has the strongest colour; by default the largest. Give several molecules the same
            one to compare them.
    """
    return standalone(molecule, Look(size, pairs, numbers, legend, dark, limit))


def png(
    molecule: Molecule,
    *,
    size: tuple[int, int] | None = None,
    pairs: Pairs = "halves",
    numbers: Numbers = False,
    legend: bool = True,
    dark: bool = False,
    limit: float | None = None,
) -> bytes:
    """The molecule drawn as a PNG file: :func:`svg` with the same options, by default at twice its pixels."""
    return draw(molecule, Look(size, pairs, numbers, legend, dark, limit), "png").canvas.png()


def matrix(molecule: Molecule, *, limit: float | None = None) -> Figure:
    """A heatmap of the molecule atom by atom: atoms on the diagonal, pairs off it, and each atom with half of its pairs.

    Args:
        molecule: what to draw.
        limit: as in :func:`svg`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from .molecule_figure import draw_matrix
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a matrix of atoms") from None
    return draw_matrix(molecule, limit)


def figure(molecules: Molecules, *, columns: int | None = None, title: str | None = None, **options: Any) -> Figure:
    """Several molecules next to each other, drawn with matplotlib.

    Args:
        molecules: one or several.
        columns: how many in a row; by default up to three.
        title: a heading over everything.
        **options: options of :func:`png`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    rows = _several(molecules)
    if columns is not None and columns < 1:
        raise OptionError(f"got columns={columns}; expected at least 1")
    try:
        from .molecule_figure import draw_side_by_side
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing several molecules") from None
    return draw_side_by_side([png(one, **options) for one in rows], columns or min(3, len(rows)), title)


def page(
    molecules: Molecules,
    *,
    title: str | None = None,
    lead: str = "",
    notes: Sequence[str] = (),
    certificates: Sequence[ExampleCertificate | None] = (),
    accounts: Sequence[Sequence[AccountLine]] = (),
    meta: Mapping[str, str] | None = None,
    command: str | None = None,
) -> str:
    """One self-contained HTML page of molecules. It loads nothing; every text in it is escaped.

    A molecule is drawn next to bars of its groups; what is pointed at in one lights up in the other and is said in words, with
    a mouse, a finger or the keyboard. Below follow its atoms, bonds and other pairs, the running sum from F(x') to F(x), and
    the accounts. Several molecules can be sorted, filtered and searched, with a summary on top.

    Args:
        molecules: one or several.
        title: the heading; by default the name of the only molecule.
        lead: a sentence below it.
        notes: a text for each molecule.
        certificates: how far each one's values can be trusted, None where that is not known.
        accounts: for each molecule, what parts of it add, in order; those of the kind "group" stand beside the drawing.
        meta: how they were made, name by name.
        command: what makes the page again, to be shown in it.
    """
    rows = _several(molecules)
    for what, given in (("notes", notes), ("certificates", certificates), ("accounts", accounts)):
        if isinstance(given, str) or (len(given) and len(given) != len(rows)):
            raise InputError(f"got {len(given)} {what} for {len(rows)} molecules; expected a list with one for each.")
    return build(rows, title, lead, notes, certificates, accounts, meta, command)


def save(molecules: Molecules, path: str | PathLike[str], **options: Any) -> Path:
    """Write molecules to a file in the format its suffix names: ``.svg``, ``.png``, ``.pdf``, ``.html`` or ``.json``.

    Args:
        molecules: one or several.
        path: where to.
        **options: those of :func:`page` for ``.html``; of :func:`svg` for one molecule as ``.svg`` or ``.png``; else of
            :func:`figure`.
    """
    rows, path = _several(molecules), Path(path)
    suffix = path.suffix.lower()
    if len(rows) == 1 and suffix == ".svg":
        write_text(path, svg(rows[0], **options))
        return path
    if len(rows) == 1 and suffix == ".png":
        write_bytes(path, png(rows[0], **options))
        return path
    return write(
        path,
        options,
        picture=lambda **given: figure(rows, **given),
        numbers=lambda: [one.numbers() for one in rows],
        report=lambda **given: page(rows, **given),
    )


def _several(molecules: Molecules) -> list[Molecule]:
    rows = [molecules] if isinstance(molecules, Molecule) else list(molecules)
    if not rows:
        raise InputError("got no molecule to draw; expected at least one.")
    return rows
