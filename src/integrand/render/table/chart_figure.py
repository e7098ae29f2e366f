"""Charts drawn with matplotlib, for files and notebooks."""

from __future__ import annotations

from itertools import count
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..figures import GREY, INK, FigureCell, plain
from .chart_marks import BarMark, Chart, DotMark, LineMark, PathMark, TextMark

TONES = {"ink": INK, "soft": GREY, "line": "#d5dae0", "paper": "#ffffff"}
PIXEL = 1 / 96
"""Inches of a pixel, and 0.75 points of one."""


def chart_figure(chart: Chart) -> Figure:
    """A chart as a figure of matplotlib, on white."""
    figure = FigureCell(figsize=(chart.wide * PIXEL, chart.high * PIXEL), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, chart.wide)
    axes.set_ylim(chart.high, 0)
    axes.set_axis_off()
    layers = count()  # what comes later lies above, whatever it is
    # Marks of one kind that follow each other are drawn together: thousands of them one by one take seconds.
    run: list[BarMark | DotMark] = []

    def flush() -> None:
        if run and isinstance(run[0], BarMark):
            patches = [Rectangle((one.x, one.y), max(one.wide, 0.5), one.high) for one in run if isinstance(one, BarMark)]
            axes.add_collection(
                PatchCollection(patches, facecolors=[one.fill for one in run], linewidths=0, zorder=next(layers))
            )
        elif run:
            dots = [one for one in run if isinstance(one, DotMark)]
            look: dict[str, Any] = {
                "s": [(1.5 * one.radius) ** 2 for one in dots],
                "c": [one.fill for one in dots],
                "linewidths": 0,
            }
            axes.scatter([one.x for one in dots], [one.y for one in dots], zorder=next(layers), **look)
        run.clear()

    for mark in chart.marks:
        if isinstance(mark, (BarMark, DotMark)):
            if run and type(run[0]) is not type(mark):
                flush()
            run.append(mark)
            continue
        flush()
        if isinstance(mark, LineMark):
            style = (0, (3, 3)) if mark.dashed else "-"
            drawn: dict[str, Any] = {
                "color": TONES[mark.tone],
                "linewidth": 0.75 * mark.wide,
                "linestyle": style,
                "zorder": next(layers),
            }
            axes.plot([mark.x, mark.to_x], [mark.y, mark.to_y], **drawn)
        elif isinstance(mark, PathMark):
            across, down = zip(*mark.points, strict=True)
            axes.plot(across, down, color=TONES[mark.tone], linewidth=0.75 * mark.wide, zorder=next(layers))
        elif isinstance(mark, TextMark):
            axes.text(
                mark.x,
                mark.y,
                plain(mark.text),
                size=0.75 * mark.size,
                color=TONES[mark.tone],
                ha={"start": "left", "middle": "center", "end": "right"}[mark.anchor],
                va="baseline",
                weight="bold" if mark.bold else "normal",
                rotation=90 if mark.turned else 0,
                rotation_mode="anchor",
                zorder=next(layers),
            )
    flush()
    return figure
