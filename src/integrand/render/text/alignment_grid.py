"""Outputs by inputs as a heatmap with sums: for a terminal, as HTML and with matplotlib. Every text is escaped in HTML."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ...errors import MissingExtraError
from ..figures import GREY, INK, FigureCell, in_inches
from ..html import document, origin
from .text_figure import shown
from .tokens import Tokens, printable
from .word_markup import RAMP, STYLE, background, ink, number, section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALLEST = 0.005
"""Values below it are written as a dot."""

LEAST = 0.05
"""The strongest cell below which numbers are written in a smaller unit."""

Column = tuple[str, list[tuple[str, float]]]
"""Of a terminal's table: its name; what stands in each row, and the value that colours it."""

GRID = """
.grid{overflow-x:auto;margin:0 0 1rem}
.grid table{width:auto;border-collapse:separate;border-spacing:1px;font-size:.8125rem;font-variant-numeric:tabular-nums}
.grid th,.grid td{padding:.2rem .35rem;text-align:right;white-space:nowrap;vertical-align:middle;font-weight:400}
.grid td{min-width:2.9rem}
.grid tbody th{font-size:.9375rem;font-weight:550;position:sticky;left:0;background:var(--paper)}
.grid thead th{vertical-align:bottom;font-size:.9375rem}
.grid thead th span{writing-mode:vertical-rl;transform:rotate(180deg);max-height:11rem;overflow:hidden;text-overflow:ellipsis}
.grid thead .over{text-align:left;color:var(--soft);font-size:.8125rem;border-bottom:1px solid var(--line)}
.grid .first{border-left:.6rem solid transparent;background-clip:padding-box}
.grid tfoot td,.grid tfoot th,.grid .sum{color:var(--soft)}
.grid .end{font-weight:600;color:var(--ink)}
""".strip()


@dataclass(frozen=True)
class Block:
    """Inputs of one kind.

    Attributes:
        name: what they are.
        short: the same in a word, for the column of their sums.
        columns: their names.
        values: (rows, columns).
        there: (rows, columns), False where an input cannot matter since it comes later.
    """

    name: str
    short: str
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    there: NDArray[np.bool_]


@dataclass(frozen=True)
class Grid:
    """Outputs by inputs. A row's values and its baseline score add up to its score.

    Attributes:
        rows: names of the outputs.
        blocks: the inputs.
        baseline_scores: F(x') of each output.
        scores: F(x) of each output.
    """

    rows: tuple[str, ...]
    blocks: tuple[Block, ...]
    baseline_scores: tuple[float, ...]
    scores: tuple[float, ...]

    @property
    def limit(self) -> float:
        """What has the strongest colour: the strongest cell."""
        return max((float(np.abs(block.values).max()) for block in self.blocks if block.values.size), default=0.0)

    @property
    def unit(self) -> float:
        """What numbers are written in: 1, or a power of ten where the strongest cell would be lost in two decimals."""
        largest = self.limit
        return 1.0 if largest >= LEAST or not largest or not math.isfinite(largest) else 10.0 ** math.floor(math.log10(largest))

    def scaled(self) -> Grid:
        """The same in its unit."""
        unit = self.unit
        blocks = tuple(replace(block, values=block.values / unit) for block in self.blocks)
        starts, ends = (tuple(score / unit for score in scores) for scores in (self.baseline_scores, self.scores))
        return replace(self, blocks=blocks, baseline_scores=starts, scores=ends)

    def sums(self) -> list[tuple[str, list[float]]]:
        """The columns that account for each row: what each block adds, F(x') and F(x)."""
        signs = ["", *["+ "] * (len(self.blocks) - 1)]
        added = [(sign + block.short, block.values.sum(1).tolist()) for sign, block in zip(signs, self.blocks, strict=True)]
        return [*added, ("+ F(x′)", list(self.baseline_scores)), ("= F(x)", list(self.scores))]


def cell(value: float, there: bool = True) -> str:
    """A value as it stands in the heatmap.

    >>> cell(0.314), cell(-0.5), cell(0.001), cell(0.0, False)
    ('+.31', '−.50', '·', '')
    """
    if not there:
        return ""
    if not math.isfinite(value):
        return str(value)
    return f"{value:+.2f}".replace("-", "−").replace("+0.", "+.").replace("−0.", "−.") if abs(value) >= SMALLEST else "·"


def terminal(grid: Grid, *, colour: bool = True, width: int | None = None) -> str:
    """A table of the first block, and what the others add in one column each; parts below each other where it is too wide."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    unit, grid = grid.unit, grid.scaled()
    block, *others = grid.blocks
    rows = [printable(row)[:18] for row in grid.rows]
    left = max(map(len, rows))
    columns: list[Column] = [
        (printable(name)[:14], [(cell(v), float(v)) for v in block.values[:, i]]) for i, name in enumerate(block.columns)
    ]
    columns += [(other.short, [(cell(v), math.nan) for v in other.values.sum(1).tolist()]) for other in others]
    for name, scores in (("F(x′)", grid.baseline_scores), ("F(x)", grid.scores)):
        columns.append((name, [(f"{score:.2f}".replace("-", "−"), math.nan) for score in scores]))
    parts: list[list[Column]] = [[]]
    used = left
    for column in columns:
        wide = 2 + _width(column)
        if parts[-1] and used + wide > width:
            parts.append([])
            used = left
        parts[-1].append(column)
        used += wide
    told = "" if unit == 1 else f"\nnumbers in units of {unit:g}"
    return "\n\n".join(_table(rows, left, part, grid.limit, colour) for part in parts) + told


def _width(column: Column) -> int:
    return max(5, len(column[0]), *(len(text) for text, _ in column[1]))


def _table(rows: Sequence[str], left: int, columns: Sequence[Column], limit: float, colour: bool) -> str:
    wide = [_width(column) for column in columns]
    lines = [" " * left + "".join(f"  {name:>{w}}" for (name, _), w in zip(columns, wide, strict=True))]
    for i, row in enumerate(rows):
        cells = [_painted(*values[i], w, limit, colour) for (_, values), w in zip(columns, wide, strict=True)]
        lines.append(f"{row:<{left}}" + "".join(f"  {text}" for text in cells))
    return "\n".join(line.rstrip() for line in lines)


def _painted(text: str, value: float, wide: int, limit: float, colour: bool) -> str:
    if not colour or not math.isfinite(value) or abs(value) < 0.06 * limit:
        return f"{text:>{wide}}"
    behind = background(value, limit)
    codes = [";".join(str(part) for part in bytes.fromhex(shade[1:])) for shade in (behind, ink(behind))]
    return f"{' ' * (wide - len(text))}\x1b[48;2;{codes[0]}m\x1b[38;2;{codes[1]}m{text}\x1b[0m"


def fragment(grid: Grid) -> str:
    """The heatmap as a piece of HTML with its style, as notebooks show it."""
    return f"<div><style>{GRID}</style>{table(grid)}</div>"


def page(
    grid: Grid, lines: Sequence[Tokens], *, title: str, lead: str, meta: Mapping[str, str], command: str | None = None
) -> str:
    """One self-contained page: the heatmap, then each output with its running sum and certificate."""
    about = (
        "A row for each output, a column for each input. Red speaks for the output, blue against it. Along a row, the cells "
        "and F(x′), the score without any words, add up to F(x), the model's score; that of a word of several pieces is the "
        "sum of theirs."
    )
    ramp = f'<span class="ramp" style="background:linear-gradient(to right,{",".join(RAMP)})"></span>'
    key = f'<p class="key"><span>{escape(number(-grid.limit))}</span>{ramp}<span>{escape(number(grid.limit))}</span></p>\n'
    said = f'<p class="lead"><bdi dir="auto">{escape(lead)}</bdi></p>\n<p>{about}</p>\n'
    each = "".join(section(line) for line in lines)
    body = f"{said}{table(grid)}{key}<h2>Output by output</h2>\n{each}{origin(meta, command)}"
    return document(title, body, style=f"{STYLE}\n{GRID}")


def table(grid: Grid) -> str:
    """The heatmap as an HTML table."""
    unit, grid = grid.unit, grid.scaled()
    limit, sums = grid.limit, grid.sums()
    told = "<th></th>" if unit == 1 else f'<th class="over">in units of {unit:g}</th>'
    over, names, totals = told, "<th></th>", "<th>sum</th>"
    for block in grid.blocks:
        if not block.columns:
            continue
        over += f'<th class="over first" colspan="{len(block.columns)}">{escape(block.name)}</th>'
        for i, name in enumerate(block.columns):
            kind = ' class="first"' if i == 0 else ""
            names += f'<th scope="col"{kind}><span><bdi dir="auto">{escape(name)}</bdi></span></th>'
            totals += f"<td{kind}>{cell(float(block.values[:, i].sum()))}</td>"
    over += f'<th class="over first" colspan="{len(sums)}">sums</th>'
    names += "".join(
        f'<th scope="col" class="sum{" first" * (i == 0)}"><span>{escape(n)}</span></th>' for i, (n, _) in enumerate(sums)
    )
    rows = "".join(_row(grid, i, limit, sums, unit) for i in range(len(grid.rows)))
    head = f"<thead><tr>{over}</tr>\n<tr>{names}</tr></thead>\n"
    return f'<div class="grid"><table>\n{head}<tbody>\n{rows}</tbody>\n<tfoot><tr>{totals}</tr></tfoot></table></div>\n'


def _row(grid: Grid, i: int, limit: float, sums: Sequence[tuple[str, list[float]]], unit: float) -> str:
    cells = ""
    for block in grid.blocks:
        for j, name in enumerate(block.columns):
            value, there, first = float(block.values[i, j]), bool(block.there[i, j]), " first" * (j == 0)
            if not there:
                cells += f'<td class="{first}"></td>'
                continue
            behind = background(value, limit)
            title = escape(f"{grid.rows[i]} from {name}: {number(value * unit)}")
            cells += (
                f'<td class="{first}" style="background-color:{behind};color:{ink(behind)}" title="{title}">{cell(value)}</td>'
            )
    for j, (_, values) in enumerate(sums):
        scores = len(sums) - j <= 2
        kind = f"sum{' first' * (j == 0)}{' end' * (j == len(sums) - 1)}"
        cells += f'<td class="{kind}">{f"{values[i]:.2f}".replace("-", "−") if scores else cell(values[i])}</td>'
    return f'<tr><th scope="row"><bdi dir="auto">{escape(grid.rows[i])}</bdi></th>{cells}</tr>\n'


def figure(grid: Grid, *, title: str) -> Figure:
    """The heatmap with matplotlib.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        pass
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a heatmap") from None
    return draw(grid, title=title)


WIDE, HIGH, GAP, SIZE, NOTE, LONGEST = 0.46, 0.3, 0.16, 10.0, 8.0, 1.7
"""Of a cell, between blocks, of names and numbers, and the room for a name."""

TILT = 0.75
"""How far a name at 45 degrees reaches, up and to the right, of its length."""


def draw(grid: Grid, *, title: str) -> Figure:
    """A row for each output: its cells, and the columns that account for it; see :func:`integrand.render._grid.figure`."""
    unit, grid = grid.unit, grid.scaled()
    rows = [shown(row, LONGEST, SIZE) for row in grid.rows]
    sums = grid.sums()
    names = [[shown(name, LONGEST, SIZE) for name in block.columns] for block in grid.blocks]
    labels = [shown(name, LONGEST, SIZE) for name, _ in sums]
    tallest = max(in_inches(name, SIZE) for part in [*names, labels] for name in part)
    left = max(in_inches(row, SIZE) for row in rows) + 0.12
    lefts = [left]
    for part in names:
        lefts.append(lefts[-1] + WIDE * len(part) + GAP * bool(part))
    wide = lefts[-1] + WIDE * len(sums) + TILT * max(in_inches(label, SIZE) for label in labels)
    head, top = 0.42, 0.42 + TILT * tallest + 0.12
    high = top + HIGH * (len(rows) + 1) + (0.34 if unit == 1 else 0.6)
    picture = FigureCell(figsize=(wide, high), dpi=160, facecolor="white")
    FigureCanvasAgg(picture)
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, wide)
    axes.set_ylim(high, 0)
    axes.text(0, head / 2, shown(title, wide, 12), size=12, weight="bold", color=INK, va="center")
    if unit != 1:
        axes.text(0, high - 0.14, f"numbers in units of {unit:g}", size=NOTE, color=GREY, va="center")
    for i, row in enumerate(rows):
        axes.text(left - 0.1, top + HIGH * (i + 0.5), row, size=SIZE, color=INK, ha="right", va="center")
    axes.text(left - 0.1, top + HIGH * (len(rows) + 0.5), "sum", size=NOTE, color=GREY, ha="right", va="center")
    for k, part in enumerate(names):
        _block(axes, grid, k, part, (lefts[k], top))
    _sums(axes, sums, labels, (lefts[-1], top))
    return picture


def _block(axes: Axes, grid: Grid, k: int, names: Sequence[str], corner: tuple[float, float]) -> None:
    block, (left, top), limit = grid.blocks[k], corner, grid.limit
    if not names:
        return
    _tilted(axes, names, corner)
    count = len(grid.rows)
    for i in range(count):
        for j in range(len(names)):
            if not block.there[i, j]:
                continue
            value = float(block.values[i, j])
            behind = background(value, limit)
            place = (left + WIDE * j, top + HIGH * i)
            axes.add_patch(Rectangle(place, WIDE, HIGH, facecolor=behind, edgecolor="white", linewidth=0.8))
            _number(axes, cell(value), (left, top), i, j, ink(behind))
    for j in range(len(names)):
        _number(axes, cell(float(block.values[:, j].sum())), (left, top), count, j, GREY)
    below = top + HIGH * (count + 1) + 0.06
    axes.plot([left + 0.03, left + WIDE * len(names) - 0.03], [below, below], color=GREY, linewidth=0.8)
    look: dict[str, Any] = {"size": NOTE + 0.5, "color": GREY, "ha": "center", "va": "center"}
    axes.text(left + WIDE * len(names) / 2, below + 0.14, shown(f"from {block.name}"), **look)


def _sums(axes: Axes, sums: Sequence[tuple[str, list[float]]], labels: Sequence[str], corner: tuple[float, float]) -> None:
    _tilted(axes, labels, corner)
    for j, (_, values) in enumerate(sums):
        for i, value in enumerate(values):
            score = len(sums) - j <= 2
            text = f"{value:.2f}".replace("-", "−") if score else cell(value)
            _number(axes, text, corner, i, j, INK, bold=j == len(sums) - 1)


def _tilted(axes: Axes, names: Sequence[str], corner: tuple[float, float]) -> None:
    for j, name in enumerate(names):
        place = (corner[0] + WIDE * (j + 0.35), corner[1] - 0.06)
        axes.text(*place, name, size=SIZE, color=INK, rotation=45, rotation_mode="anchor", ha="left", va="baseline")


def _number(axes: Axes, text: str, corner: tuple[float, float], i: int, j: int, colour: str, *, bold: bool = False) -> None:
    place = (corner[0] + WIDE * (j + 0.5), corner[1] + HIGH * (i + 0.5))
    weight = "bold" if bold else "normal"
    axes.text(*place, text, size=NOTE, color=colour, weight=weight, ha="center", va="center")
