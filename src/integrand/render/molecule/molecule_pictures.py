"""Pictures of molecules: atoms and bonds in red and blue by their attributions, other pairs of atoms as arcs.

one = Molecule(mol, atoms, pairs, title="aspirin", label="active", score=0.94, baseline_score=0.01)
svg(one), png(one)          # the drawn molecule with its legend
matrix(one)                 # atom by atom, as figure 7 of the paper shows it
page([one, two])            # one self-contained HTML page: the molecule and a bar chart of its atoms, linked
save(one, "aspirin.svg")    # or .png, .pdf, .html, .json
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from ...certificate import ExampleCertificate
from ...errors import InputError, MissingExtraError, OptionError
from ...files import write
from ..figures import GREY, INK, NEGATIVE, POSITIVE, FigureCell
from ..text.alignment_grid import cell
from ..text.text_figure import shown
from ..text.word_markup import background, ink, number
from .molecule_data import Array, Molecule
from .molecule_drawing import Look, Numbers, draw
from .molecule_page import Account, build
from .molecule_svg import standalone

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Molecules = Molecule | Sequence[Molecule]


def svg(
    molecule: Molecule,
    *,
    size: tuple[int, int] | None = None,
    pairs: Literal["arcs", "none"] = "arcs",
    numbers: Numbers = False,
    legend: bool = True,
    dark: bool = False,
    limit: float | None = None,
) -> str:
    """The drawn molecule as SVG: red speaks for the score, blue against it.

    Atoms have round halos, bonds long ones, and other pairs of atoms arcs; one scale of colours holds for all. Weak arcs are
    left out and the legend says how many, and what they add. Letters have one colour, since red and blue have a meaning
    here. Every atom, bond and arc has an element that names it and its value, to be read where a mouse rests.

    Args:
        molecule: what to draw.
        size: (width, height) in pixels, legend included; by default what the molecule needs.
        pairs: how pairs that are not bonds are drawn.
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
    pairs: Literal["arcs", "none"] = "arcs",
    numbers: Numbers = False,
    legend: bool = True,
    dark: bool = False,
    limit: float | None = None,
) -> bytes:
    """The same as a PNG file; by default with twice the pixels of :func:`svg`, which takes the same options."""
    return draw(molecule, Look(size, pairs, numbers, legend, dark, limit), "png").canvas.png()


def matrix(molecule: Molecule, *, limit: float | None = None) -> Figure:
    """Atom by atom as a heatmap: atoms on the diagonal, pairs off it, and what each atom adds with half of its pairs.

    Args:
        molecule: what to draw.
        limit: as in :func:`svg`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        pass
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a matrix of atoms") from None
    return draw_matrix(molecule, limit)


def figure(molecules: Molecules, *, columns: int | None = None, title: str | None = None, **options: Any) -> Figure:
    """Several molecules next to each other with matplotlib.

    Args:
        molecules: one or several.
        columns: how many in a row; by default up to three.
        title: a heading over everything.
        **options: of :func:`png`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    rows = _several(molecules)
    if columns is not None and columns < 1:
        raise OptionError(f"got columns={columns}; expected at least 1")
    try:
        pass
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing several molecules") from None
    return draw_grid([png(one, **options) for one in rows], columns or min(3, len(rows)), title)


def page(
    molecules: Molecules,
    *,
    title: str | None = None,
    lead: str = "",
    notes: Sequence[str] = (),
    certificates: Sequence[ExampleCertificate | None] = (),
    accounts: Sequence[Sequence[Account]] = (),
    meta: Mapping[str, str] | None = None,
    command: str | None = None,
) -> str:
    """One self-contained HTML page. It loads nothing; every text in it is escaped.

    Each molecule is drawn next to bar charts of its atoms, bonds, other pairs and what else there is; what is pointed at in
    one lights up in the other, with a mouse, a finger or the keyboard. Below follow the running sum from F(x') to F(x), the
    accounts, and the certificate. Several molecules have an overview first.

    Args:
        molecules: one or several.
        title: the heading; by default the name of the only molecule.
        lead: a sentence below it.
        notes: a text for each molecule.
        certificates: how far each one's values can be trusted, None where that is not known.
        accounts: for each molecule, what parts of it add, in order: (kind, name, value, share of the change), such as
            ("element", "N", 0.2, 0.46); without a share where that is None.
        meta: how they were made, name by name.
        command: what makes the page again, to be shown in it.
    """
    rows = _several(molecules)
    for what, given in (("notes", notes), ("certificates", certificates), ("accounts", accounts)):
        if isinstance(given, str) or (len(given) and len(given) != len(rows)):
            raise InputError(f"got {len(given)} {what} for {len(rows)} molecules; expected a list with one for each.")
    return build(rows, title, lead, notes, certificates, accounts, meta, command)


def save(molecules: Molecules, path: str | PathLike[str], **options: Any) -> Path:
    """Write molecules by the ending of the path: ``.svg``, ``.png``, ``.pdf``, ``.html`` or ``.json``.

    Args:
        molecules: one or several.
        path: where to.
        **options: of :func:`page` for ``.html``; of :func:`svg` for one molecule as ``.svg`` or ``.png``; else of
            :func:`figure`.
    """
    rows, path = _several(molecules), Path(path)
    suffix = path.suffix.lower()
    if len(rows) == 1 and suffix == ".svg":
        path.write_text(svg(rows[0], **options), encoding="utf-8")
        return path
    if len(rows) == 1 and suffix == ".png":
        path.write_bytes(png(rows[0], **options))
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


CELLS, CELL, SMALL_CELL, SIDE, WRITTEN = 14, 0.42, 0.155, 1.5, 16
"""Up to how many atoms cells are large, their sizes, the room for the sums, up to how many atoms numbers are written."""

PIXELS = 160.0
"""Per inch, as in all figures."""


def draw_matrix(molecule: Molecule, limit: float | None) -> Figure:
    """See :func:`integrand.render.molecule.matrix`."""
    count, limit = len(molecule.atoms), limit or molecule.limit
    values = molecule.pairs.copy()
    np.fill_diagonal(values, molecule.atoms)
    step = float(np.clip(6.0 / count, SMALL_CELL, CELL))
    points = min(9.0, 58 * step)
    room, head, foot = 0.16 + 0.012 * points * max(map(len, molecule.names)), 0.5, 0.5
    wide, high = max(room + step * count + SIDE + 0.3, 4.4), head + room + step * count + foot
    figure = FigureCell(figsize=(wide, high), dpi=PIXELS, facecolor="white")
    FigureCanvasAgg(figure)
    square = (room / wide, foot / high, step * count / wide, step * count / high)
    axes = figure.add_axes(square)
    _cells(axes, values, limit, molecule.names, points)
    beside = figure.add_axes((square[0] + square[2] + 0.12 / wide, square[1], SIDE / wide, square[3]), sharey=axes)
    _sums(beside, molecule, points)
    heading = ": ".join(part for part in (molecule.title, molecule.label) if part) or "Atom by atom"
    figure.text(0.02, 1 - 0.12 / high, shown(heading, wide - 0.2, 12), size=12, weight="bold", color=INK, va="top")
    parts = ", ".join(f"{name} {number(value)}" for name, value in molecule.parts[:3])
    figure.text(
        0.02, 0.2 / high, shown(f"sum {number(molecule.total)}: {parts}", wide - 0.2), size=8.5, color=GREY, va="center"
    )
    return figure


def _cells(axes: Axes, values: Array, limit: float, names: Sequence[str], points: float) -> None:
    """Atoms on the diagonal, in frames; pairs off it."""
    count = len(names)
    table = [[bytes.fromhex(background(float(value), limit)[1:]) for value in row] for row in values]
    pixels = np.array([[list(colour) for colour in row] for row in table], dtype=np.uint8)
    pixels[values == 0] = 255
    axes.imshow(pixels, interpolation="nearest", aspect="auto")
    for i in range(count):
        axes.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=INK, linewidth=0.6, zorder=3))
    if count <= WRITTEN:
        for (i, j), value in np.ndenumerate(values):
            if value:
                colour = ink(background(float(value), limit))
                axes.text(j, i, cell(float(value)), size=min(7.0, points), color=colour, ha="center", va="center")
    axes.set_xticks(range(count), names, rotation=90)
    axes.set_yticks(range(count), names)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=points, labelcolor=INK, pad=2)
    axes.set_xticks(np.arange(0.5, count - 1), minor=True)
    axes.set_yticks(np.arange(0.5, count - 1), minor=True)
    axes.grid(which="minor", color="#e8eaed", linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_color("#c3c8ce")


def _sums(axes: Axes, molecule: Molecule, points: float) -> None:
    """What each atom adds with half of its pairs: the bars add up to all atoms and pairs."""
    sums = molecule.per_atom
    axes.barh(range(len(sums)), sums, height=0.7, color=[POSITIVE if value > 0 else NEGATIVE for value in sums])
    axes.axvline(0, color=INK, linewidth=0.7)
    reach = float(np.abs(sums).max()) or 1.0
    axes.set_xlim(-1.75 * reach, 1.75 * reach)
    for i, value in enumerate(sums.tolist()):
        side = 1 if value >= 0 else -1
        look: dict[str, Any] = {"size": min(7.5, points), "color": GREY, "va": "center", "ha": "left" if side > 0 else "right"}
        axes.annotate(number(value), (value, i), (2 * side, 0), textcoords="offset points", **look)
    axes.set_title("with half of its pairs", size=8, color=GREY, pad=4)
    axes.set_xticks([])
    axes.tick_params(left=False, labelleft=False, which="both")
    axes.spines[:].set_visible(False)


def draw_grid(files: Sequence[bytes], columns: int, title: str | None) -> Figure:
    """PNG files next to each other, each with the pixels it has; see :func:`integrand.render.molecule.figure`."""
    images = [imread(io.BytesIO(file), format="png") for file in files]
    rows = [images[k : k + columns] for k in range(0, len(images), columns)]
    widths = [max(row[k].shape[1] for row in rows if k < len(row)) for k in range(min(columns, len(images)))]
    heights = [max(image.shape[0] for image in row) for row in rows]
    head = 0.45 if title else 0.0
    wide, high = sum(widths) / PIXELS, sum(heights) / PIXELS + head
    figure = FigureCell(figsize=(wide, high), dpi=PIXELS, facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        figure.text(0.1 / wide, 1 - 0.1 / high, shown(title, wide - 0.2, 14), size=14, weight="bold", color=INK, va="top")
    for r, row in enumerate(rows):
        for k, image in enumerate(row):
            tall, broad = image.shape[0] / PIXELS, image.shape[1] / PIXELS
            left, top = sum(widths[:k]) / PIXELS, head + sum(heights[:r]) / PIXELS
            axes = figure.add_axes((left / wide, (high - top - tall) / high, broad / wide, tall / high))
            axes.imshow(image)
            axes.set_axis_off()
    return figure
