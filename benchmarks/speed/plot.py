"""The results as pictures: time against measured error, and the three ratios with their goals."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from .store import Row
from .table import AGAINST, goal, over, runs_of, tolerances

BLUE, RED, GREY = "#0b5394", "#c0392b", "#7f7f7f"
STYLE: dict[str, dict[str, Any]] = {
    "integrand": {"color": BLUE, "lw": 2.4, "marker": "o", "ms": 7, "zorder": 5},
    "oracle": {"color": "#e08e83", "lw": 1.2, "marker": "s", "ms": 5},
    "fixed": {"color": RED, "lw": 1.2, "marker": "D", "ms": 5},
    "saliency": {"color": GREY, "lw": 1.1, "marker": "^", "ms": 5},
    "default": {"color": RED, "lw": 0, "marker": "x", "ms": 8, "mew": 2},
}
NAMES = {
    "integrand": "integrand to 5% and 1%",
    "oracle": "Captum, the fewest steps for each input",
    "fixed": "Captum, one number of steps for all",
    "saliency": "saliency, one number of steps for all",
    "default": "Captum, 50 steps",
}
TITLES = {
    "fixed": "Captum with one number of steps\nfor all inputs, over integrand",
    "default": "Captum with 50 steps,\nover integrand",
    "oracle": "Captum with the fewest steps\nfor each input, over integrand",
}


def draw(rows: dict[str, Row], out: Path) -> list[Path]:
    """``time`` and ``ratios`` as PNG and SVG."""
    import matplotlib

    matplotlib.use("Agg")
    rows = {key: row for key, row in rows.items() if any(one["runs"] for one in row["inputs"].values())}
    if not rows:
        return []
    files = []
    for name, figure in (("time", _times(rows)), ("ratios", _ratios(rows))):
        for kind in ("png", "svg"):
            figure.savefig(out / f"{name}.{kind}", dpi=120)
            files.append(out / f"{name}.{kind}")
    return files


def _times(rows: dict[str, Row]) -> Any:
    """A panel per network: medians joined, each input a faint dot."""
    from matplotlib.figure import Figure

    across = min(3, len(rows))
    down = math.ceil(len(rows) / across)
    figure = Figure(figsize=(4.2 * max(across, 2), 3.0 * down + 0.9), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for panel, row in zip(panels, rows.values(), strict=False):
        handles |= _panel(panel, row, tolerances(rows))
        panel.set_title(f"{row['name']}\n({row['weights']}, {'kinked' if row['kinked'] else 'smooth'})", fontsize=9, loc="left")
    for panel in panels[len(rows) :]:
        panel.set_visible(False)
    for at, panel in enumerate(panels[: len(rows)]):
        if at >= len(rows) - across:
            panel.set_xlabel("measured error (relative L1)")
        if at % across == 0:
            panel.set_ylabel("time")
    ordered = {NAMES[who]: handles[who] for who in STYLE if who in handles}
    figure.legend(
        ordered.values(), ordered.keys(), loc="outside upper center", ncols=min(3, len(ordered)), frameon=False, fontsize=9
    )
    return figure


def _panel(panel: Any, row: Row, tols: list[str]) -> dict[str, Any]:
    handles = {}
    for who, style in STYLE.items():
        groups = [runs for tol in (tols[-1:] if who == "default" else tols) if (runs := runs_of(row, who, tol))]
        groups = [[run for run in runs if math.isfinite(run.get("measured", math.nan))] for runs in groups]
        groups = [runs for runs in groups if runs]
        if not groups:
            continue
        for runs in groups if who in ("integrand", "default") else ():
            x, y = [_shown(run["measured"]) for run in runs], [run["seconds"] for run in runs]
            panel.plot(x, y, color=style["color"], lw=0, marker=style["marker"], ms=style["ms"] / 2, alpha=0.35, zorder=2)
        x = [statistics.median(_shown(run["measured"]) for run in runs) for runs in groups]
        y = [statistics.median(run["seconds"] for run in runs) for runs in groups]
        (handles[who],) = panel.plot(x, y, **style)
    for tol in tols:
        panel.axvline(float(tol), color="#cccccc", lw=0.8, zorder=0)
        at = {"xy": (float(tol), 0), "xycoords": ("data", "axes fraction"), "xytext": (2, 3), "textcoords": "offset points"}
        panel.annotate(f"{float(tol):.0%}", **at, color="#888888", fontsize=7)
    _axes(panel)
    return handles


def _shown(error: float) -> float:
    """What is exact has a place in a logarithmic picture too."""
    return max(error, 1e-7)


def _axes(panel: Any) -> None:
    """Decades in plain words, errors falling to the right."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel.set(xscale="log", yscale="log")
    (low, high), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    panel.set_xlim(high, low)
    if math.log10(top / bottom) < 1.2:
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g}%"))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g} s" if y >= 1 else f"{1000 * y:g} ms"))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_formatter(NullFormatter())
    panel.grid(axis="y", color="#eeeeee", zorder=0)
    panel.spines[["top", "right"]].set_visible(False)


def _ratios(rows: dict[str, Row]) -> Any:
    """Medians and ranges at the smallest tolerance; a green line where the goal is."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    tol = tolerances(rows)[-1]
    figure = Figure(figsize=(11.0, 0.36 * len(rows) + 1.9), layout="constrained")
    panels = figure.subplots(1, len(AGAINST), sharey=True)
    for panel, who in zip(panels, AGAINST, strict=True):
        for at, row in enumerate(rows.values()):
            aim = goal(row, who)
            if aim is not None:
                panel.plot([aim, aim], [at - 0.38, at + 0.38], color="#2e8b57", lw=2, zorder=1)
            if runs := runs_of(row, who, tol):
                values = over(runs)
                middle = statistics.median(values)
                colour = GREY if aim is None else BLUE if middle >= aim else RED
                panel.plot([min(values), max(values)], [at, at], color=colour, lw=1.3, alpha=0.6)
                panel.plot([middle], [at], color=colour, marker="o", ms=6.5)
        panel.axvline(1, color="#999999", lw=0.8, zorder=0)
        panel.set(xscale="log", title=TITLES[who])
        panel.title.set_fontsize(9)
        panel.set_xlim(min(panel.get_xlim()[0], 0.2), max(panel.get_xlim()[1], 12))
        panel.set_xticks(
            [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if panel.get_xlim()[0] <= tick <= panel.get_xlim()[1]]
        )
        panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}x"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(axis="x", color="#eeeeee")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(rows)), [_named(row) for row in rows.values()], fontsize=9)
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.suptitle(
        f"Time at {float(tol):.0%}: medians and ranges over inputs; green: the goal (blue dots reach it)", fontsize=10
    )
    return figure


def _named(row: Row) -> str:
    return row["name"] + (" (random)" if row["weights"] == "random" else "")
