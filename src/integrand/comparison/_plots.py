"""Pictures of perturbations. Nothing touches pyplot or its global state."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..render._figure import GREY, INK, Picture, plain, short
from ._curve import PerturbationCurve
from ._removal import CAUTION
from ._sensitivity import SensitivityN

LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart with every common kind of colour blindness (Okabe and Ito)."""

DASHES = ("-", "--", "-.", ":")
WIDE, HIGH, LEFT, TOP, FOOT = 4.4, 3.0, 0.75, 0.36, 0.62
MOST = 6


def draw_curves(curves: Mapping[str, PerturbationCurve], title: str | None) -> Figure:
    """One panel per example: the curves over the band of the random orders."""
    main = next(iter(curves.values()))
    gone = "deleted" if main.kind == "deletion" else "inserted"
    low, went = ("low", "went") if main.kind == "deletion" else ("high", "came")

    def draw(axes: Axes, i: int) -> None:
        chance = main.random[:, i]
        label = f"{len(chance)} random orders, {_area(float(main.random_areas[:, i].mean()))}"
        axes.fill_between(main.fractions, chance.min(0), chance.max(0), color="#c8ccd1", linewidth=0, label=plain(label))
        axes.plot(main.fractions, chance.mean(0), color=GREY, linewidth=1)
        for k, (name, curve) in enumerate(curves.items()):
            label = f"{short(name, 30)}, {_area(float(curve.areas[i]))}"
            axes.plot(curve.fractions, curve.scores[i], color=_colour(k), linestyle=_dash(k), linewidth=1.8, label=plain(label))
        axes.set_xlabel(f"share of {main.units} features {gone}, largest {main.by} first")
        axes.set_ylabel("score")

    notes = (
        "Area: under the score scaled to 0 with everything removed and 1 with nothing removed. Only beside those of the random "
        f"orders does it mean something: where it is {low} among them, what holds the score up {went} early. Band: the least "
        "and the largest score of the random orders.",
        CAUTION,
    )
    return _panels(draw, main.targets, notes, title or f"{main.kind.capitalize()} curve")


def draw_sensitivity(found: Mapping[str, SensitivityN], title: str | None) -> Figure:
    """One panel per example: correlations over n, with standard errors."""
    main = next(iter(found.values()))

    def draw(axes: Axes, i: int) -> None:
        axes.axhline(0, color=GREY, linewidth=0.8)
        for k, (name, one) in enumerate(found.items()):
            look: dict[str, Any] = {
                "color": _colour(k),
                "linestyle": _dash(k),
                "capsize": 2.5,
                "marker": "o",
                "markersize": 3.5,
            }
            axes.errorbar(one.sizes, one.correlations[i], one.errors[i], label=plain(short(name, 40)), linewidth=1.6, **look)
        if main.sizes.max() > 20 * main.sizes.min():
            axes.set_xscale("log")
        lowest = [float(np.nanmin([0.0, *(one.correlations[i] - one.errors[i])])) for one in found.values()]
        axes.set_ylim(max(min(lowest), -1.0) - 0.05, 1.06)
        axes.set_xlabel(f"n, of {main.units} features")
        axes.set_ylabel("correlation")

    notes = (
        "Correlation, over random subsets of n features, between the sum of their attributions and the drop of the score when "
        "they are removed. Bars: standard errors.",
        CAUTION,
    )
    return _panels(draw, main.targets, notes, title or "Sensitivity-n")


def _panels(draw: Callable[[Axes, int], None], targets: Sequence[str], notes: Sequence[str], title: str) -> Figure:
    shown = min(len(targets), MOST)
    columns = min(shown, 3)
    lines = -(-shown // columns)
    width = columns * (LEFT + WIDE) + 0.1
    words = [line for note in notes for line in textwrap.wrap(note, int(15.5 * width))]
    below = 0.17 * len(words) + 0.1
    height = TOP + lines * (TOP + HIGH + FOOT) + below
    figure = Picture(figsize=(width, height), dpi=140, facecolor="white")
    FigureCanvasAgg(figure)
    left_out = f" - first {shown} of {len(targets)} examples" if shown < len(targets) else ""
    figure.text(0.01, 1 - 0.12 / height, plain(title + left_out), size=13, weight="bold", color=INK, va="top")
    for i in range(shown):
        line, column = divmod(i, columns)
        bottom = below + (lines - 1 - line) * (TOP + HIGH + FOOT) + FOOT
        axes = figure.add_axes(((LEFT + column * (LEFT + WIDE)) / width, bottom / height, (WIDE - 0.1) / width, HIGH / height))
        draw(axes, i)
        axes.set_title(plain(short(targets[i], 48)), size=10, loc="left", color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8, color=GREY, labelcolor=INK)
        axes.legend(fontsize=7.5, frameon=False, loc="best")
    for k, text in enumerate(words):
        figure.text(0.01, (below - 0.08 - 0.17 * k) / height, plain(text), size=8, color=GREY, va="top")
    return figure


def _area(value: float) -> str:
    return "no area: F(x) = F(x')" if np.isnan(value) else f"area {value:.2f}"


def _colour(k: int) -> str:
    return LINES[k % len(LINES)]


def _dash(k: int) -> str:
    return DASHES[k % len(DASHES)]
