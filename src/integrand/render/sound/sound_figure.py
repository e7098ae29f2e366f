"""An explained sound with matplotlib: what each window adds, the waveform, the spectrogram and what the model says."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..certificate_text import caption
from ..figures import GREY, INK, FigureCell, plain
from .sound_picture import Floats, SoundPicture, colour_of, spectrum_pixels

WIDE = 8.0
"""The width of the figure in inches."""

TALL = {"bars": 1.2, "wave": 1.0, "spectrum": 1.6, "curve": 0.6}
"""The height of each layer in inches."""

LEFT, RIGHT, TOP, GAP, FOOT = 0.75, 0.12, 0.42, 0.08, 0.55
"""Margins, the gap between two layers, and the room for the axis and the caption, in inches."""


def draw(picture: SoundPicture) -> Figure:
    """Draw a sound; see :func:`integrand.render.sound.figure`."""
    layers = ["bars"]
    layers += ["wave"] if picture.samples is not None else []
    layers += ["spectrum"] if picture.spectrum is not None else []
    layers += ["curve"] if picture.curve is not None and len(picture.curve) > 1 else []
    height = TOP + sum(TALL[one] + GAP for one in layers) + FOOT
    figure = FigureCell(figsize=(WIDE, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(LEFT / WIDE, 1 - 0.06 / height, plain(picture.sentence), size=9.5, color=INK, va="top", wrap=True)
    drawn = {"bars": _bars, "wave": _wave, "spectrum": _spectrum, "curve": _curve}
    top = height - TOP
    for name in layers:
        box = (LEFT / WIDE, (top - TALL[name]) / height, (WIDE - LEFT - RIGHT) / WIDE, TALL[name] / height)
        axes = figure.add_axes(box)
        drawn[name](axes, picture)
        axes.set_xlim(0, picture.seconds)
        axes.tick_params(labelsize=7.5, color=GREY, labelcolor=INK, length=2.5)
        axes.spines[:].set_visible(False)
        if picture.asked is not None:
            for edge in picture.asked:
                axes.axvline(edge, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        if name != layers[-1]:
            axes.set_xticks([])
        top -= TALL[name] + GAP
    axes.set_xlabel("seconds", size=8, color=INK, labelpad=1)
    figure.text(LEFT / WIDE, 0.04 / height, plain(caption(picture.certificate)), size=6.5, color=GREY, va="bottom")
    return figure


def _middles(picture: SoundPicture) -> Floats:
    middles: Floats = (picture.times[:-1] + picture.times[1:]) / 2
    return middles


def _bars(axes: Axes, picture: SoundPicture) -> None:
    values = np.nan_to_num(picture.values)
    colours = [colour_of(value, picture.limit) for value in picture.values]
    axes.bar(_middles(picture), values, 0.84 * np.diff(picture.times), color=colours)
    errors = np.where(np.isfinite(picture.errors), picture.errors, 0.0)
    some = errors > 0
    axes.errorbar(_middles(picture)[some], values[some], errors[some], fmt="none", ecolor=INK, elinewidth=0.6, alpha=0.7)
    axes.axhline(0, color=GREY, linewidth=0.6)
    axes.set_ylabel("adds", size=8, color=INK)


def _wave(axes: Axes, picture: SoundPicture) -> None:
    samples = np.asarray(picture.samples)
    for k in range(len(picture.values)):
        first, last = (round(edge * picture.rate) for edge in picture.times[k : k + 2])
        part = samples[first : last + 1]
        axes.plot(
            (first + np.arange(len(part))) / picture.rate,
            part,
            linewidth=0.5,
            color=colour_of(picture.values[k], picture.limit),
        )
    axes.set_yticks([])
    axes.set_ylabel("waveform", size=8, color=INK)


def _spectrum(axes: Axes, picture: SoundPicture) -> None:
    pixels = spectrum_pixels(picture)
    assert pixels is not None
    assert picture.spectrum is not None
    top = picture.top / 1000 or float(len(picture.spectrum))
    axes.imshow(pixels, aspect="auto", extent=(0, picture.seconds, 0, top), interpolation="nearest")
    axes.set_ylabel("kHz" if picture.top else "row", size=8, color=INK)


def _curve(axes: Axes, picture: SoundPicture) -> None:
    assert picture.curve is not None
    curve = np.append(picture.curve, picture.curve[-1])
    axes.step(np.linspace(0, picture.seconds, len(curve)), curve, where="post", color=INK, linewidth=1)
    if curve.min() >= 0 and curve.max() <= 1:
        axes.set_ylim(-0.05, 1.05)
    axes.set_ylabel(plain(picture.label[:12]), size=8, color=INK)
