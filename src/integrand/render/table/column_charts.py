"""The pictures of a table, laid out: waterfall, bars, beeswarm, heat map, dependence. Sizes are in pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...words import number, plus_minus, shortened
from .chart_marks import (
    LETTER,
    NEGATIVE,
    POSITIVE,
    BarMark,
    Chart,
    ChartMark,
    DotMark,
    LineMark,
    PathMark,
    TextMark,
    fitting,
    legend,
    shade,
    signed_colour,
    ticks,
)
from .table_values import Floats, TableValues, score_text

LINE, SIZE, SMALL = 30.0, 13.0, 11.5
"""The height of a column's line, and the sizes of type."""

DRAWN = 1000
"""The most rows of which a picture draws something each, evenly spread over all rows."""


def waterfall_chart(found: TableValues, place: int, *, most: int = 10, wide: float = 760.0) -> Chart:
    """How a row's columns lead from the base value, at the bottom, to its score at the top.

    Args:
        found: the values.
        place: of the row.
        most: the columns that have a line of their own.
        wide: the width of the picture.
    """
    one, order = found.certificate[place], found.order_of(place)
    kept, rest = _split(order, most)
    steps = [(found.values[place, k], found.errors[place, k], _label(found, place, k)) for k in kept]
    if rest:
        off = float(np.sum(found.errors[place, rest]))
        steps.append((float(found.values[place, rest].sum()), off, f"{len(rest)} other columns"))
    ends = one.baseline_score + np.cumsum([value for value, _, _ in reversed(steps)])
    points = [one.baseline_score, *ends.tolist()]  # from the bottom to the top
    narrow = wide < 500
    texts = [plus_minus(value, error) for value, error, _ in steps]
    # On a phone a line has its label above the bar: beside it there is no room.
    left, top, high = (10.0, 46.0, 46.0) if narrow else (_label_room(wide, [text for _, _, text in steps]), 46.0, LINE)
    scale = _Scale.around(points, left, wide - 10, before=8, after=LETTER * SMALL * max(map(len, texts)) + 8)
    bottom = top + high * len(steps)
    marks: list[ChartMark] = [*_axis(scale, top, bottom)]
    at_base, at_score = scale(one.baseline_score), scale(one.score)
    marks += [LineMark(at_base, bottom - high, at_base, bottom + 26, "soft", dashed=True)]
    marks += [LineMark(at_score, top - 8, at_score, top + high, "soft", dashed=True)]
    what = "score" if found.unit == "score" else fitting(found.unit, 0.5 * wide, SIZE)
    marks.append(
        _within(TextMark(at_score, top - 14, f"{what}: {score_text(one.score, found.unit)}", SIZE, "middle", bold=True), wide)
    )
    base = f"at {fitting(found.start, 0.5 * wide, SIZE)}: {score_text(one.baseline_score, found.unit)}"
    marks.append(_within(TextMark(at_base, bottom + 40, base, SIZE, "middle", "soft"), wide))
    for i, ((value, _, label), text) in enumerate(zip(steps, texts, strict=True)):
        begin, end = points[len(steps) - 1 - i], points[len(steps) - i]
        line = top + high * i
        y = line + (18 if narrow else 6)
        x, width = min(scale(begin), scale(end)), abs(scale(end) - scale(begin))
        fill = POSITIVE if value > 0 else NEGATIVE
        says = f"{label}: {text}, from {number(begin, 3)} to {number(end, 3)}"
        marks.append(BarMark(x, y, max(width, 1.0), 18, fill, says))
        if i:
            marks.append(LineMark(scale(end), y - high + 18, scale(end), y, "soft", wide=0.8))
        marks.append(_beside(text, x, x + width, y + 13.5, scale))
        if narrow:
            marks.append(TextMark(left, line + 13, fitting(label, wide - 20, SMALL), SMALL))
        else:
            marks.append(TextMark(left - 10, y + 13.5, fitting(label, left - 16, SIZE), SIZE, "end"))
    return Chart(f"Waterfall of row {found.labels[place]}", wide, bottom + 50, tuple(marks))


def bar_chart(found: TableValues, *, most: int = 10, wide: float = 760.0) -> Chart:
    """How much each column matters: its values without signs, averaged over the rows.

    Args:
        found: the values.
        most: the columns that have a line of their own.
        wide: the width of the picture.
    """
    kept, rest = _split(found.order, most)
    lines = [(found.names[k], float(found.strength[k]), float(found.strength_errors[k])) for k in kept]
    if rest:
        lines.append(
            (f"{len(rest)} other columns", float(found.strength[rest].sum()), float(found.strength_errors[rest].sum()))
        )
    left = _label_room(wide, [name for name, _, _ in lines])
    texts = [plus_minus(value, error).lstrip("+") for _, value, error in lines]
    room = LETTER * SMALL * max(map(len, texts)) + 14
    reach = max(value for _, value, _ in lines) or 1.0
    top = 26.0
    marks: list[ChartMark] = [
        TextMark(4 if wide < 500 else left, 14, _of_rows(found, wide - (8 if wide < 500 else left)), SMALL, "start", "soft")
    ]
    for i, ((name, value, _), text) in enumerate(zip(lines, texts, strict=True)):
        y = top + LINE * i + 6
        width = (wide - left - room) * value / reach
        marks.append(BarMark(left, y, width, 18, "#6b7480" if rest and i == len(kept) else "#4a6fa5", f"{name}: {text}"))
        marks.append(TextMark(left + width + 6, y + 13.5, text, SMALL, "start", "soft"))
        marks.append(TextMark(left - 10, y + 13.5, fitting(name, left - 16, SIZE), SIZE, "end"))
    bottom = top + LINE * len(lines)
    marks.append(LineMark(left, top, left, bottom + 4, "soft"))
    return Chart("Mean size of the values of each column", wide, bottom + 10, tuple(marks))


def beeswarm_chart(found: TableValues, *, most: int = 10, wide: float = 760.0, drawn: int = DRAWN) -> Chart:
    """The values of all rows, column by column, coloured by what the table holds there.

    Args:
        found: the values.
        most: the columns that are drawn.
        wide: the width of the picture.
        drawn: the most rows that are drawn.
    """
    kept, rest = _split(found.order, most, fold=False)
    rows = _spread(len(found.labels), drawn)
    radius = 3.0 if len(rows) <= 300 else 2.2
    high = 38.0
    left = _label_room(wide, [found.names[k] for k in kept])
    shown = found.values[np.ix_(rows, kept)]
    scale = _Scale.around([0.0, float(shown.min()), float(shown.max())], left, wide - 14, before=6, after=6)
    top = 12.0
    bottom = top + high * len(kept)
    marks: list[ChartMark] = [*_axis(scale, top, bottom), LineMark(scale(0), top, scale(0), bottom, "soft")]
    for i, k in enumerate(kept):
        middle = top + high * (i + 0.5)
        marks.append(TextMark(left - 10, middle + 4.5, fitting(found.names[k], left - 16, SIZE), SIZE, "end"))
        across = [scale(float(value)) for value in shown[:, i]]
        for row, x, off in zip(rows, across, _swarm(across, radius, high / 2 - radius - 1), strict=True):
            marks.append(DotMark(x, middle + off, radius, shade(float(found.shades[row, k])), found.said(row, k)))
    less = f"the {len(kept)} strongest of {len(found.names)} columns" if rest else ""
    few = f"{len(rows):,} of {len(found.labels):,} rows" if len(rows) < len(found.labels) else ""
    notes = [_unit(found), ", ".join(filter(None, (less, few)))]
    foot, high = _foot(notes, left, bottom + 24, wide, ("low", "high"))
    return Chart("Values of all rows, column by column", wide, high, (*marks, *foot))


def dependence_chart(found: TableValues, column: int, by: int | None, *, wide: float = 760.0, drawn: int = DRAWN) -> Chart:
    """What a column adds, against what the table holds in it, coloured by another column.

    Args:
        found: the values.
        column: the position of the column.
        by: the position of the column that colours; None for none.
        wide: the width of the picture.
        drawn: the most rows that are drawn.
    """
    rows = [row for row in _spread(len(found.labels), drawn) if math.isfinite(found.numbers[row, column])]
    left, right, top, bottom = 66.0, wide - 16, 40.0, 330.0
    cells, values = found.numbers[rows, column], found.values[rows, column]
    across = _Scale.around(_ends(cells) if len(cells) else [0.0, 1.0], left, right, before=10, after=10)
    ends = _ends(np.append(values, 0.0))
    down = _Scale.around(ends, bottom, top, before=10, after=10)
    marks: list[ChartMark] = []
    for tick in ticks(down.low, down.high, 6):
        marks += [LineMark(left, down(tick), right, down(tick), "line")]
        marks += [TextMark(left - 8, down(tick) + 4, number(tick, 3).replace("-", "−"), SMALL, "end", "soft")]
    levels = found.levels[column]
    places = (
        [(float(i), text) for i, text in enumerate(levels)]
        if levels
        else [(t, number(t, 4)) for t in ticks(across.low, across.high, 7)]
    )
    for tick, text in places:
        marks.append(
            TextMark(
                across(tick), bottom + 20, fitting(text, (right - left) / max(len(places), 1), SMALL), SMALL, "middle", "soft"
            )
        )
    marks += [LineMark(left, down(0.0), right, down(0.0), "soft"), LineMark(left, bottom, right, bottom, "soft")]
    if levels:  # rows of one category lie beside each other, the same way each time
        cells = cells + 0.5 * (np.modf(np.arange(len(cells)) * 0.618034)[0] - 0.5)
    for row, cell, value in zip(rows, cells.tolist(), values.tolist(), strict=True):
        fill = "#4a6fa5" if by is None else shade(float(found.shades[row, by]))
        says = found.said(row, column) + ("" if by is None else f"; {found.names[by]} is {shortened(found.cells[row][by], 40)}")
        marks.append(DotMark(across(cell), down(value), 3.2, fill, says))
    marks.append(TextMark((left + right) / 2, bottom + 40, fitting(found.names[column], right - left, SIZE), SIZE, "middle"))
    said = (
        f"what {found.names[column]} adds to the {found.unit}" if found.unit != "score" else f"what {found.names[column]} adds"
    )
    marks.append(TextMark(left, 14, fitting(said, wide - left - (170 if by is not None else 0), SMALL), SMALL, "start", "soft"))
    if by is not None:
        marks.append(TextMark(wide - 16, 12, fitting(found.names[by], 150, SMALL), SMALL, "end"))
        marks += legend(wide - 136, 18, 120, ("low", "high"), size=10)
    return Chart(f"Dependence of {found.names[column]}", wide, bottom + 52, tuple(marks))


def heat_chart(found: TableValues, *, most: int = 10, by: str = "score", wide: float = 760.0, drawn: int = 400) -> Chart:
    """The values of rows and columns as colours, under the score of each row.

    Args:
        found: the values.
        most: the columns that have a line of their own.
        by: rows in the order of their ``score``, or as they are ``given``.
        wide: the width of the picture.
        drawn: the most rows that are drawn.
    """
    kept, rest = _split(found.order, most)
    scores = found.scores
    order = np.argsort(scores, kind="stable").tolist() if by == "score" else list(range(len(scores)))
    rows = [order[i] for i in _spread(len(order), drawn)]
    names = [found.names[k] for k in kept] + ([f"{len(rest)} other columns"] if rest else [])
    left, top, high, upper = _label_room(wide, names), 70.0, 24.0, 44.0
    part = (wide - left - 14) / len(rows)
    shown = found.values[rows]
    limit = float(np.percentile(np.abs(shown), 99)) or float(np.abs(shown).max()) or 1.0
    marks: list[ChartMark] = [
        TextMark(
            4 if wide < 500 else left,
            12,
            fitting(_unit(found), wide - (8 if wide < 500 else left + 10), SMALL),
            SMALL,
            "start",
            "soft",
        )
    ]
    low, most_score = float(scores.min()), float(scores.max())
    span = (most_score - low) or 1.0
    points = tuple((left + part * (i + 0.5), 22 + upper - upper * (scores[row] - low) / span) for i, row in enumerate(rows))
    marks += [PathMark(points)] if len(points) > 1 else []
    marks += [
        TextMark(left - 8, 28, number(most_score, 3), SMALL, "end", "soft"),
        TextMark(left - 8, 66, number(low, 3), SMALL, "end", "soft"),
    ]
    for j, name in enumerate(names):
        y = top + high * j
        marks.append(TextMark(left - 10, y + 16, fitting(name, left - 16, SIZE), SIZE, "end"))
        for i, row in enumerate(rows):
            own = j < len(kept)
            value = float(found.values[row, kept[j]] if own else found.values[row, rest].sum())
            says = found.said(row, kept[j]) if own else f"row {found.labels[row]}: {name}, {value:+.3g}"
            marks.append(BarMark(left + part * i, y, part + 0.3, high - 2, signed_colour(value, limit), says))
    bottom = top + high * len(names)
    how = "rows by their score" if by == "score" else "rows as they are given"
    few = f", {len(rows):,} of {len(scores):,}" if len(rows) < len(scores) else ""
    ends = (f"≤ {number(-limit, 2)}".replace("-", "−"), f"≥ {number(limit, 2)}")
    colours = [signed_colour(-limit + 2 * limit * i / 31, limit) for i in range(32)]
    foot, end = _foot([how + few], left, bottom + 10, wide, ends, colours)
    return Chart("Values of rows and columns", wide, end, (*marks, *foot))


class _Scale:
    """From numbers to pixels."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self.start, self.end = low, high, start, end

    @staticmethod
    def around(points: Sequence[float], start: float, end: float, *, before: float, after: float) -> _Scale:
        """A scale on which points lie between two places, with margins in pixels at its ends."""
        low, high = min(points), max(points)
        if not high > low:
            low, high = low - 0.5, high + 0.5
        pixel = (high - low) / max(abs(end - start) - before - after, 20)
        return _Scale(low - before * pixel, high + after * pixel, start, end)

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


def _foot(
    notes: Sequence[str], left: float, y: float, wide: float, ends: Sequence[str], colours: Sequence[str] = ()
) -> tuple[list[ChartMark], float]:
    """The legend of colours at the lower right, notes to its left or, where there is no room, below it; and where that ends."""
    marks = legend(wide - 138, y, 124, ends, colour=colours)
    narrow = wide < 500
    x, line = (4.0, y + 38) if narrow else (left, y + 9)
    for note in filter(None, notes):
        marks.append(TextMark(x, line, fitting(note, wide - x - (8 if narrow else 150), SMALL), SMALL, "start", "soft"))
        line += 16
    return marks, max(y + 32, line - 4)


def _axis(scale: _Scale, top: float, bottom: float) -> list[ChartMark]:
    marks: list[ChartMark] = []
    for tick in ticks(scale.low, scale.high, 6 if scale.end - scale.start > 300 else 4):
        marks += [LineMark(scale(tick), top, scale(tick), bottom, "line")]
        marks += [TextMark(scale(tick), bottom + 16, number(tick, 3).replace("-", "−"), SMALL, "middle", "soft")]
    return marks


def _split(order: Sequence[int], most: int, *, fold: bool = True) -> tuple[list[int], list[int]]:
    """The columns that are drawn one by one, and the others; of those that come as one there are at least two."""
    kept = len(order) if len(order) <= most + (1 if fold else 0) else most
    return list(order[:kept]), list(order[kept:])


def _label(found: TableValues, place: int, column: int) -> str:
    return f"{found.names[column]} = {shortened(found.cells[place][column], 24) or 'empty'}"


def _label_room(wide: float, texts: Sequence[str]) -> float:
    """The width of the labels on the left: as the longest asks for, at most two fifths of the picture."""
    return min(LETTER * SIZE * max(map(len, texts)) + 22, 0.4 * wide)


def _beside(text: str, left: float, right: float, y: float, scale: _Scale) -> TextMark:
    """The number of a bar, to the right of it, or to the left where there is no room."""
    wide = LETTER * SMALL * len(text)
    if right + 6 + wide <= scale.end or left - 6 - wide < scale.start:
        return TextMark(right + 6, y, text, SMALL, "start", "soft")
    return TextMark(left - 6, y, text, SMALL, "end", "soft")


def _within(mark: TextMark, wide: float) -> TextMark:
    """A centred text, moved so that it stays in the picture."""
    half = LETTER * mark.size * len(mark.text) / 2 + 4
    x = min(max(mark.x, half), max(wide - half, half))
    return TextMark(x, mark.y, mark.text, mark.size, "middle", mark.tone, mark.bold)


def _unit(found: TableValues) -> str:
    return "value: what a column adds" if found.unit == "score" else f"value: what a column adds to the {found.unit}"


def _of_rows(found: TableValues, wide: float) -> str:
    return fitting(f"mean |value| over {len(found.labels):,} rows, in units of the {found.unit}", wide, SMALL)


def _spread(count: int, most: int) -> list[int]:
    """At most so many positions, evenly spread."""
    return list(range(count)) if count <= most else np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()


def _ends(values: Floats) -> list[float]:
    return [float(values.min()), float(values.max())]


def _swarm(across: Sequence[float], radius: float, reach: float) -> list[float]:
    """How far dots move up or down so that they lie beside each other, from the middle outwards; the densest set the scale."""
    bins: dict[int, int] = {}
    steps = []
    for x in across:
        place = round(x / (2 * radius))
        seen = bins.get(place, 0)
        bins[place] = seen + 1
        steps.append((seen + 1) // 2 * (1 if seen % 2 else -1))
    most = max(map(abs, steps), default=0)
    unit = min(2 * radius, reach / most) if most else 0.0
    return [step * unit for step in steps]
