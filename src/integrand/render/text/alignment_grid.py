"""A heatmap of outputs by inputs, with sums: for a terminal, as HTML and with matplotlib. Every text is escaped in HTML."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtraError
from ..escaping import escape
from ..glance import saying
from .tokens import printable
from .word_markup import background, ink
from .word_sentences import quoted, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALLEST = 0.005
"""Values smaller than this are written as a dot."""

LEAST = 0.05
"""If the strongest cell is smaller than this, numbers are written in a smaller unit."""

EMPTY, SCORE = "baseline", "score"
"""The names of the columns with F(x'), the score where nothing is said, and F(x), the model's score."""

Column = tuple[str, list[tuple[str, float]]]
"""A column of a terminal's table: its name, and for each row the text shown and the value that colours it."""

GRID = """
.grid{overflow:auto;margin:0 0 .5rem;max-height:min(36rem,62vh);position:relative}
.grid table{width:auto;border-collapse:separate;border-spacing:1px;font-size:.8125rem;font-variant-numeric:tabular-nums}
.grid th,.grid td{padding:.2rem .35rem;text-align:right;white-space:nowrap;vertical-align:middle;font-weight:400}
.grid td{min-width:2.9rem}
.grid tbody th{font-size:.9375rem;font-weight:550;position:sticky;left:0;background:var(--paper);z-index:1}
.grid thead th{vertical-align:bottom;font-size:.9375rem}
.grid thead tr:last-child th{position:sticky;top:0;background:var(--paper);z-index:2}
.grid thead tr:last-child th:first-child{left:0;z-index:3}
.grid thead th span{writing-mode:vertical-rl;transform:rotate(180deg);max-height:9rem;overflow:hidden;text-overflow:ellipsis}
.grid thead .over{text-align:left;color:var(--soft);font-size:.8125rem;border-bottom:1px solid var(--line)}
.grid .first{border-left:.6rem solid transparent;background-clip:padding-box}
.grid tfoot td,.grid tfoot th,.grid .sum{color:var(--soft)}
.grid .end{font-weight:600;color:var(--ink)}
.grid th.across{color:var(--focus)}
.grid td.across{box-shadow:inset 0 2px var(--focus),inset 0 -2px var(--focus)}
.grid td.saying{box-shadow:inset 0 0 0 3px var(--focus)}
""".strip()


@dataclass(frozen=True)
class Block:
    """Input columns of one kind, such as the words of the prompt.

    Attributes:
        name: what the inputs are, in words.
        short: one word for the column of their sums.
        columns: the names of the inputs.
        values: (rows, columns).
        there: (rows, columns), False where an input comes after the output and cannot matter.
        errors: (rows, columns), the estimated error of each value, where it is known.
    """

    name: str
    short: str
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    there: NDArray[np.bool_]
    errors: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Grid:
    """A matrix of outputs by inputs: along a row, the values and the baseline score add up to the output's score.

    Attributes:
        rows: names of the outputs.
        blocks: the inputs by kind.
        baseline_scores: F(x') of each output.
        scores: F(x) of each output.
        named: what each of these scores is, in words, such as "probability 0.93"; nothing where that is not known.
    """

    rows: tuple[str, ...]
    blocks: tuple[Block, ...]
    baseline_scores: tuple[float, ...]
    scores: tuple[float, ...]
    named: tuple[str, ...] = ()

    @property
    def limit(self) -> float:
        """The value that gets the strongest colour: the largest magnitude among the cells."""
        return max((float(np.abs(block.values).max()) for block in self.blocks if block.values.size), default=0.0)

    @property
    def unit(self) -> float:
        """The unit of the numbers: 1, or a power of ten where two decimals would round the strongest cell away."""
        largest = self.limit
        return 1.0 if largest >= LEAST or not largest or not math.isfinite(largest) else 10.0 ** math.floor(math.log10(largest))

    def scaled(self) -> Grid:
        """A copy of the grid with all values and scores divided by its unit."""
        unit = self.unit
        blocks = tuple(replace(block, values=block.values / unit) for block in self.blocks)
        starts, ends = (tuple(score / unit for score in scores) for scores in (self.baseline_scores, self.scores))
        return replace(self, blocks=blocks, baseline_scores=starts, scores=ends)

    def sums(self) -> list[tuple[str, list[float]]]:
        """The columns that account for each row: the sum of each block, the score without words, and the score."""
        signs = ["", *["+ "] * (len(self.blocks) - 1)]
        added = [(sign + block.short, block.values.sum(1).tolist()) for sign, block in zip(signs, self.blocks, strict=True)]
        return [*added, (f"+ {EMPTY}", list(self.baseline_scores)), (f"= {SCORE}", list(self.scores))]

    def saying(self, block: Block, i: int, j: int) -> str:
        """What input j of a block adds to output i, in words.

        >>> there, values = np.ones((1, 1), bool), np.array([[0.62]])
        >>> block = Block("the text", "text", ("good",), values, there)
        >>> Grid(("Guten",), (block,), (0.0,), (0.93,), ("probability 0.93",)).saying(block, 0, 0)
        "'good' adds +0.62 to 'Guten' (probability 0.93)"
        """
        score = self.named[i] if self.named else f"{SCORE} {self.scores[i]:.3g}"
        added = with_error(float(block.values[i, j]), None if block.errors is None else float(block.errors[i, j]))
        return f"{quoted(block.columns[j])} adds {added} to {quoted(self.rows[i])} ({score})"


def cell(value: float, there: bool = True) -> str:
    """A value as it is written in a cell of the heatmap.

    >>> cell(0.314), cell(-0.5), cell(0.001), cell(0.0, False)
    ('+.31', '−.50', '·', '')
    """
    if not there:
        return ""
    if not math.isfinite(value):
        return str(value)
    return f"{value:+.2f}".replace("-", "−").replace("+0.", "+.").replace("−0.", "−.") if abs(value) >= SMALLEST else "·"


def terminal(grid: Grid, *, colour: bool = True, width: int | None = None) -> str:
    """The heatmap as a table for a terminal, split into parts where it is too wide.

    The cells of the first block are shown; each further block is one column with its sums.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    unit, grid = grid.unit, grid.scaled()
    block, *others = grid.blocks
    rows = [printable(row)[:18] for row in grid.rows]
    left = max(map(len, rows))
    columns: list[Column] = [
        (printable(name)[:14], [(cell(v), float(v)) for v in block.values[:, i]]) for i, name in enumerate(block.columns)
    ]
    columns += [(other.short, [(cell(v), math.nan) for v in other.values.sum(1).tolist()]) for other in others]
    for name, scores in ((EMPTY, grid.baseline_scores), (SCORE, grid.scores)):
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


def fragment(grid: Grid) -> str:
    """The heatmap as an HTML fragment with its style, as notebooks show it."""
    return f"<div><style>{GRID}</style>{table(grid, titles=True)}</div>"


def table(grid: Grid, *, name: str = "", titles: bool = False) -> str:
    """The heatmap as an HTML table; every cell says what it shows.

    Args:
        grid: what is shown.
        name: the ``id`` of the table, by which it is saved.
        titles: whether cells say it as tooltips, where there is no script.
    """
    unit, whole, grid = grid.unit, grid, grid.scaled()
    limit, sums = grid.limit, grid.sums()
    told = "<td></td>" if unit == 1 else f'<th class="over">in units of {unit:g}</th>'
    over, names, totals = told, "<td></td>", "<th>sum</th>"
    column = 0
    for block in grid.blocks:
        if not block.columns:
            continue
        over += f'<th class="over first" colspan="{len(block.columns)}">{escape(block.name)}</th>'
        for i, text in enumerate(block.columns):
            kind = ' class="first"' if i == 0 else ""
            seen = f'<span><bdi dir="auto">{escape(text, directed=True)}</bdi></span>'
            names += f'<th scope="col" data-column="{column}"{kind}>{seen}</th>'
            total = float(block.values[:, i].sum())
            totals += f'<td data-value="{total * unit!r}"{kind}>{cell(total)}</td>'
            column += 1
    over += f'<th class="over first" colspan="{len(sums)}">sums</th>'
    names += "".join(
        f'<th scope="col" class="sum{" first" * (i == 0)}" data-value="{escape(n.lstrip("+= "))}"><span>{escape(n)}</span></th>'
        for i, (n, _) in enumerate(sums)
    )
    rows = "".join(_row(grid, whole, i, limit, sums, titles) for i in range(len(grid.rows)))
    head = f'<thead><tr data-csv="no">{over}</tr>\n<tr>{names}</tr></thead>\n'
    mark = f' id="{escape(name)}"' if name else ""
    body = f"{head}<tbody>\n{rows}</tbody>\n<tfoot><tr>{totals}</tr></tfoot>"
    return f'<div class="grid" tabindex="0" role="region" aria-label="Matrix"><table{mark}>\n{body}</table></div>\n'


def figure(grid: Grid, *, title: str) -> Figure:
    """The heatmap drawn with matplotlib.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from .text_figure import draw_grid
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a heatmap") from None
    return draw_grid(grid, title=title)


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


def _row(grid: Grid, whole: Grid, i: int, limit: float, sums: Sequence[tuple[str, list[float]]], titles: bool) -> str:
    cells, unit, column = "", whole.unit, 0
    for k, block in enumerate(grid.blocks):
        for j in range(len(block.columns)):
            value, there, first = float(block.values[i, j]), bool(block.there[i, j]), " first" * (j == 0)
            column += 1
            if not there:
                cells += f'<td class="{first}"></td>'
                continue
            behind = background(value, limit)
            told = whole.saying(whole.blocks[k], i, j)
            says = f' title="{escape(told)}"' if titles else saying(told) + f' data-row="{i}" data-column="{column - 1}"'
            look = f"background-color:{behind};color:{ink(behind)}"
            cells += f'<td class="{first}" style="{look}" data-value="{value * unit!r}"{says}>{cell(value)}</td>'
    for j, (_, values) in enumerate(sums):
        scores = len(sums) - j <= 2
        kind = f"sum{' first' * (j == 0)}{' end' * (j == len(sums) - 1)}"
        text = f"{values[i]:.2f}".replace("-", "−") if scores else cell(values[i])
        cells += f'<td class="{kind}" data-value="{values[i] * unit!r}">{text}</td>'
    name = f'<bdi dir="auto">{escape(grid.rows[i], directed=True)}</bdi>'
    return f'<tr><th scope="row" data-row="{i}">{name}</th>{cells}</tr>\n'
