"""The scene laid out with matplotlib. Sizes are in inches; nothing touches pyplot or its global state."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from ._certificate import caption
from ._pixels import COLOURS
from ._scene import Bars, Example, Panel, Scene

INK, GREY, WARNING = "#1c2128", "#6a737d", "#a8460b"
POSITIVE, NEGATIVE = COLOURS[-1], COLOURS[0]
SIDE, GAP, HEAD, FOOT, TOP, BAR = 2.8, 0.14, 0.52, 0.36, 0.42, 0.74
LINE, LABELS, NUMBERS, REST = 0.27, 1.9, 4.4, 0.22


class Picture(Figure):
    """A figure that notebooks draw although pyplot does not know of it."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()


def draw(scene: Scene) -> Figure:
    """Lay the scene out, one row per example."""
    rows = [_row_height(example) for example in scene.examples]
    width = max(_row_width(example) for example in scene.examples)
    title = TOP if scene.title or scene.left_out else 0.0
    height = sum(rows) + len(rows) * (HEAD + FOOT) + title
    # Two screen pixels for each of a 224-pixel photo; the canvas is Agg's whatever the user's backend is.
    figure = Picture(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        left_out = f"first {len(scene.examples)} of {len(scene.examples) + scene.left_out} examples" if scene.left_out else ""
        text = " - ".join(part for part in (scene.title, left_out) if part)
        figure.text(0, 1 - 0.08 / height, plain(text), size=14, weight="bold", color=INK, va="top")
    top = height - title
    for example, tall in zip(scene.examples, rows, strict=True):
        top -= HEAD
        _row(figure, example, top, tall, width, height)
        colour = GREY if example.certificate.converged else WARNING
        figure.text(0, (top - tall - 0.12) / height, caption(example.certificate), size=7.5, color=colour, va="top")
        top -= tall + FOOT
    return figure


def _row_height(example: Example) -> float:
    if example.bars:
        return LINE * len(example.bars[0].names) + REST
    return max(map(_panel_height, example.panels))


def _panel_height(panel: Panel) -> float:
    height, width, _ = panel.pixels.shape
    return SIDE * float(height) / float(width)


def _row_width(example: Example) -> float:
    if example.bars:
        return LABELS + len(example.bars) * (NUMBERS + GAP) - GAP
    bars = sum(BAR for panel in example.panels if panel.limit is not None)
    return len(example.panels) * (SIDE + GAP) - GAP + bars


def _row(figure: Figure, example: Example, top: float, tall: float, width: float, height: float) -> None:
    left = LABELS if example.bars else 0.0
    parts: list[Panel | Bars] = [*example.panels, *example.bars]
    for i, part in enumerate(parts):
        wide = NUMBERS if isinstance(part, Bars) else SIDE
        high = tall - REST if isinstance(part, Bars) else _panel_height(part)
        axes = figure.add_axes((left / width, (top - high) / height, wide / width, high / height))
        if i == 0:  # the photo, or where there is none the first attribution, carries the label
            score = f"score {example.certificate.score:.3g}"
            heading(axes, example.label, "; ".join(filter(None, (score, part.note, part.title))), wide)
        else:
            heading(axes, part.title, part.note, wide)
        if isinstance(part, Bars):
            draw_bars(axes, part, names=i == 0)
        else:
            left += draw_panel(axes, part)
        left += wide + GAP


def heading(axes: Axes, title: str, note: str, wide: float) -> None:
    """A title and a note over axes that are so many inches wide; what does not fit is cut off."""
    up: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "va": "baseline",
        "annotation_clip": False,
    }
    # About so many letters of these sizes fit into an inch.
    axes.annotate(plain(short(title, int(11 * wide))), (0, 1), (0, 19), size=11, weight="bold", color=INK, **up)
    axes.annotate(plain(short(note, int(16 * wide))), (0, 1), (0, 6), size=8.5, color=GREY, **up)


def plain(text: str) -> str:
    """A text that matplotlib draws as it is."""
    return text.replace("$", r"\$")  # matplotlib reads dollars as mathematics


def draw_panel(axes: Axes, panel: Panel) -> float:
    """Draw one panel; returns the width that its colour bar takes."""
    # Smooth for photos; colours that mean a number, and pixels large enough to be seen, stay as they are.
    smooth = panel.limit is None and max(panel.pixels.shape) >= 112
    axes.imshow(panel.pixels, interpolation="bicubic" if smooth else "nearest")
    axes.set_axis_off()
    if panel.limit is None:
        return 0.0
    beside = axes.inset_axes((1.025, 0, 0.035, 1))
    limit = panel.limit or 1.0
    colours = LinearSegmentedColormap.from_list("signed", COLOURS)
    ramp = np.linspace(-limit, limit, 256)[:, None]
    extent = (0.0, 1.0, -limit, limit)
    beside.imshow(ramp, cmap=colours, norm=Normalize(-limit, limit), origin="lower", extent=extent, aspect="auto")
    beside.set_xticks([])
    beside.yaxis.tick_right()
    beside.set_yticks([-limit, 0, limit], [f"≤ −{limit:.2g}", "0", f"≥ {limit:.2g}"] if panel.limit else ["", "0", ""])
    beside.tick_params(length=0, labelsize=7, labelcolor=GREY, pad=3)
    beside.set_frame_on(False)
    return BAR


def draw_bars(axes: Axes, bars: Bars, *, names: bool, ends: tuple[float, float] | None = None) -> None:
    """Draw bars; ``ends`` are the least and the largest value that fit, their own if not given."""
    values = np.nan_to_num(np.array(bars.values), nan=0.0, posinf=0.0, neginf=0.0)
    places = np.arange(len(values))
    axes.barh(places, values, height=0.68, color=[POSITIVE if value > 0 else NEGATIVE for value in values])
    low, high = (min(float(values.min()), 0.0), max(float(values.max()), 0.0)) if ends is None else ends
    reach = max(-low, high) or 1.0
    axes.set_xlim(low - 0.28 * reach * (low < 0), high + 0.28 * reach)
    axes.set_ylim(len(values) - 0.4, -0.6)
    for place, shown, value in zip(places, values, bars.values, strict=True):
        text = f"{value:+.2g}" if np.isfinite(value) else str(value)
        side: dict[str, Any] = {"xytext": (4, 0), "ha": "left"} if shown >= 0 else {"xytext": (-4, 0), "ha": "right"}
        axes.annotate(text, (shown, place), textcoords="offset points", size=7.5, color=GREY, va="center", **side)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(places, [plain(short(name)) for name in bars.names] if names else [""] * len(values))
    axes.set_xticks([])
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    axes.spines[:].set_visible(False)
    if bars.hidden:
        axes.set_xlabel(f"and {bars.hidden} more, adding up to {bars.rest:+.2g}", size=7.5, color=GREY, loc="left")


def short(name: str, most: int = 28) -> str:
    """A text of so many letters at the most."""
    return name if len(name) <= most else name[: most - 1] + "…"
