"""The results as pictures: time, and peak memory, against measured error."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from .store import Row

BLUE = "#0b5394"
CLAIMED, LIMIT = "the error that integrand claims", "arithmetic limit of its evaluations"
STYLE: dict[str, dict[str, Any]] = {
    "integrand": {"color": BLUE, "lw": 2.6, "marker": "o", "ms": 7, "zorder": 5},
    "captum": {"color": "#c0392b", "lw": 1.4, "marker": "s", "ms": 5},
    "captum, 50 steps": {"color": "#c0392b", "lw": 0, "marker": "x", "ms": 7, "mew": 2},
    "saliency": {"color": "#7f7f7f", "lw": 1.1, "marker": "^", "ms": 5},
    "zennit": {"color": "#b8860b", "lw": 1.1, "marker": "v", "ms": 5},
    "shap": {"color": "#6a3d9a", "lw": 1.1, "marker": "D", "ms": 4},
}
WHAT = {"time": ("seconds", 1.0, "time"), "memory": ("peak", 1e-6, "peak memory, MB")}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """``time`` and ``memory`` as PNG and SVG: a row of panels per network, a column per batch; memory where known."""
    import matplotlib

    matplotlib.use("Agg")
    files = []
    for name, (field, unit, label) in WHAT.items():
        if not any(field in entry for row in rows for entry in row["who"].values()):
            continue
        figure = _figure(rows, field, unit, label)
        for kind in ("png", "svg"):
            figure.savefig(out / f"{name}.{kind}", dpi=120)
            files.append(out / f"{name}.{kind}")
    return files


def _figure(rows: list[Row], field: str, unit: float, label: str) -> Any:
    from matplotlib.figure import Figure

    keys = list(dict.fromkeys(row["key"] for row in rows))
    batches = sorted({row["batch"] for row in rows})
    figure = Figure(figsize=(max(4.6 * len(batches), 8.0) + 0.4, 2.7 * len(keys) + 0.7), layout="constrained")
    panels = figure.subplots(len(keys), len(batches), squeeze=False)
    handles: dict[str, Any] = {}
    for axes, key in zip(panels, keys, strict=True):
        for panel, batch in zip(axes, batches, strict=True):
            some = sorted((row for row in rows if (row["key"], row["batch"]) == (key, batch)), key=lambda row: row["tol"] or 0)
            handles |= _panel(panel, some, field, unit)
            of = "one input" if batch == 1 else f"a batch of {batch}"
            panel.set_visible(bool(some))
            panel.set_title(f"{some[0]['case']} ({some[0]['weights']} weights), {of}" if some else key, fontsize=10, loc="left")
        axes[0].set_ylabel(label)
    for panel in panels[-1]:
        panel.set_xlabel("measured error (relative L1 over features)")
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _panel(panel: Any, rows: list[Row], field: str, unit: float) -> dict[str, Any]:
    """Lines of one network and batch; handles of the legend."""
    handles = {}
    for name, style in STYLE.items():
        found = [row["who"][name] for row in rows if field in row["who"].get(name, {})]
        if found:
            x, y = [_error(entry["measured"]) for entry in found], [unit * entry[field] for entry in found]
            (handles[name],) = panel.plot(x, y, **style)
    mine = [entry for row in rows if field in (entry := row["who"].get("integrand", {}))]
    for entry in mine:
        x, y = [_error(entry["measured"]), _error(entry["claimed"])], [unit * entry[field]] * 2
        (handles[CLAIMED],) = panel.plot(x, y, color=BLUE, lw=1, marker="|", ms=11, markevery=[1])
    if field == "seconds" and mine:
        x, y = [_error(entry["measured"]) for entry in mine], [entry["limit"] for entry in mine]
        (handles[LIMIT],) = panel.plot(x, y, color="black", lw=1.2, ls="--", marker=".", ms=4)
    for tol in {row["tol"] for row in rows if row["tol"]}:
        panel.axvline(tol, color="#cccccc", lw=0.8, zorder=0)
    _axes(panel, field)
    return handles


def _error(error: float) -> float:
    """What is exact has a place in a logarithmic picture too."""
    return max(error, 1e-7)


def _axes(panel: Any, field: str) -> None:
    """Decades in plain words, errors falling to the right."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel.set(xscale="log", yscale="log")
    (low, high), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    panel.set_xlim(10 ** math.ceil(math.log10(high) - 0.05), 10 ** math.floor(math.log10(low) + 0.05))
    panel.set_ylim(bottom / 1.3, top * 1.3)
    if math.log10(top / bottom) < 1:
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g}%"))
    panel.yaxis.set_major_formatter(FuncFormatter(_seconds if field == "seconds" else lambda y, _: f"{y:g}"))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_formatter(NullFormatter())
    panel.grid(axis="y", color="#eeeeee", zorder=0)
    panel.spines[["top", "right"]].set_visible(False)


def _seconds(y: float, _: object) -> str:
    return f"{y:g} s" if y >= 1 else f"{1000 * y:g} ms"
