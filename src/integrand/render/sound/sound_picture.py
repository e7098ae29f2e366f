"""What is drawn of an explained sound, as plain data: its samples, its spectrogram, and what each window or cell adds.

:mod:`integrand.render.sound.sound_page` and :mod:`integrand.render.sound.sound_figure` only lay it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...certificate import ExampleCertificate
from ...words import plus_minus, short_repr
from ..image.pixels import colour_table, mass_limit

Floats = NDArray[np.float64]
Pixels = NDArray[np.uint8]

LOUD = 70.0
"""Decibels below the loudest place of a spectrogram that are drawn as silence."""

SHARE = 0.9
"""The share of the attributions' magnitude up to which colours grow; what is beyond has the strongest colour."""

MOST_COLUMNS = 1200
"""The most columns of a drawn spectrogram, in pixels."""

HIGH = 160
"""The height of a drawn spectrogram, in pixels."""


@dataclass(frozen=True, eq=False)
class SoundPicture:
    """An explained sound.

    Attributes:
        title: what the sound is called.
        sentence: the answer in one line.
        seconds: how long it is.
        times: the edges of the windows in seconds, (windows + 1,).
        values: what each window adds to the score, (windows,).
        errors: by how much each may be off, likewise; NaN where that is not known.
        certificate: how far all can be trusted.
        label: what is explained, in a word or two: ``speech``.
        samples: (n,); None where a spectrogram was given and there is nothing to hear.
        rate: samples per second; 0 without samples.
        spectrum: decibels to draw, (rows, frames), lowest frequency first.
        top: the frequency at the upper edge of the spectrum in Hz; 0 if that is not known.
        edges: the edges of the bands, (bands + 1,), where cells were explained.
        cells: what each cell adds, (bands, windows), likewise.
        cell_errors: by how much each may be off.
        curve: what the model says over time, (frames,), where it says something in each frame.
        asked: from when to when the explained score is, in seconds; None for all.
        wav: the sound as the bytes of a WAV file, to be played.
        notes: what a reader must not miss.
        meta: how it was made, name by name.
    """

    title: str
    sentence: str
    seconds: float
    times: Floats
    values: Floats
    errors: Floats
    certificate: ExampleCertificate
    label: str = ""
    samples: NDArray[np.float32] | None = None
    rate: int = 0
    spectrum: Floats | None = None
    top: float = 0.0
    edges: Floats | None = None
    cells: Floats | None = None
    cell_errors: Floats | None = None
    curve: Floats | None = None
    asked: tuple[float, float] | None = None
    wav: bytes = b""
    notes: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)

    __repr__ = short_repr

    @property
    def limit(self) -> float:
        """What a window has to add for the strongest colour; 1 if none adds anything."""
        return mass_limit(self.values, SHARE) or 1.0

    @property
    def cell_limit(self) -> float:
        """What a cell has to add for the strongest colour."""
        return (0.0 if self.cells is None else mass_limit(self.cells, SHARE)) or 1.0

    def span(self, k: int) -> str:
        """When a window is, in words."""
        return span(self.times[k], self.times[k + 1])

    def saying(self, k: int) -> str:
        """What a window adds, in words."""
        said = f"{self.span(k)}: {plus_minus(float(self.values[k]), float(self.errors[k]))}" if self.values[k] else ""
        return said or f"{self.span(k)}: nothing"

    def numbers(self) -> dict[str, Any]:
        """The windows, and cells where there are some, for JSON."""
        out: dict[str, Any] = {
            "windows": [
                {"start": a, "end": b, "attribution": v, "error": e if math.isfinite(e) else None}
                for a, b, v, e in zip(
                    self.times[:-1].tolist(), self.times[1:].tolist(), self.values.tolist(), self.errors.tolist(), strict=True
                )
            ]
        }
        if self.cells is not None and self.edges is not None:
            out["bands"] = self.edges.tolist()
            out["cells"] = self.cells.tolist()
        if self.curve is not None:
            out["outputs"] = self.curve.tolist()
        return out


def span(start: float, end: float) -> str:
    """From when to when, in seconds with as many digits as tell the two apart.

    >>> span(1.312, 1.344), span(0.0, 0.5)
    ('1.312–1.344 s', '0.00–0.50 s')
    """
    digits = 2 if all(abs(100 * one - round(100 * one)) < 1e-6 for one in (start, end)) else 3
    return f"{start:.{digits}f}–{end:.{digits}f} s"


def frequency(hertz: float) -> str:
    """A frequency for people.

    >>> frequency(440.0), frequency(7231.0)
    ('440 Hz', '7.2 kHz')
    """
    return f"{hertz:.0f} Hz" if hertz < 1000 else f"{hertz / 1000:.2g} kHz"


def colour_of(value: float, limit: float) -> str:
    """The colour of a value, from blue over grey to red; it can be told from a white and from a black ground."""
    shade = max(-1.0, min(1.0, value / limit)) if math.isfinite(value) else 0.0
    rgb = tinted(np.array([[150.0, 150.0, 150.0]]), np.array([shade]))[0]
    return "#" + "".join(f"{int(one):02x}" for one in rgb)


def tinted(ground: Floats, shades: Floats) -> Floats:
    """A ground (..., 3) from 0 to 255, towards red by shades from 0 to 1 and towards blue by those below 0, (...)."""
    table = colour_table()
    ends = np.where((shades > 0)[..., None], np.array([214.0, 39.0, 40.0]), table[1])
    strength = np.sqrt(np.abs(shades))[..., None]
    out: Floats = np.rint((1 - strength) * ground + strength * ends)
    return out


def spectrum_pixels(picture: SoundPicture, *, overlay: bool = True) -> Pixels | None:
    """The spectrogram, (rows, columns, 3), highest frequency first: loud places light, and coloured by what they add.

    Args:
        picture: what is drawn; None is returned if it has no spectrum.
        overlay: whether attributions are laid over it.
    """
    if picture.spectrum is None:
        return None
    rows, frames = picture.spectrum.shape
    columns = max(2, min(MOST_COLUMNS, 4 * frames))
    moments = (np.arange(columns) + 0.5) / columns * picture.seconds
    at = np.clip(np.rint(moments / picture.seconds * (frames - 1)).astype(int), 0, frames - 1)
    line = np.clip(((np.arange(HIGH) + 0.5) / HIGH * rows).astype(int), 0, rows - 1)
    finite = picture.spectrum[np.isfinite(picture.spectrum)]
    loudest = float(finite.max()) if finite.size else 0.0
    light = np.clip(np.nan_to_num(picture.spectrum, neginf=-1e9) - loudest + LOUD, 0, LOUD) / LOUD
    grey = 20 + 215 * light[line][:, at]
    ground = np.repeat(grey[..., None], 3, 2)
    if overlay:
        ground = tinted(ground, _shades(picture, line, moments, rows))
    pixels: Pixels = np.clip(ground[::-1], 0, 255).astype(np.uint8)
    return pixels


def _shades(picture: SoundPicture, line: NDArray[np.int_], moments: Floats, rows: int) -> Floats:
    """How strongly each pixel is coloured, -1 to 1, (HIGH, columns)."""
    window = np.clip(np.searchsorted(picture.times, moments, side="right") - 1, 0, len(picture.values) - 1)
    if picture.cells is None or picture.edges is None:
        shade = np.clip(picture.values / picture.limit, -1, 1)[window]
        # Over all frequencies alike, and faintly: nothing is known of them.
        return np.repeat(0.12 * np.nan_to_num(shade)[None], len(line), 0)
    top = picture.edges[-1]
    place = (line + 0.5) / rows * top
    band = np.clip(np.searchsorted(picture.edges, place, side="right") - 1, 0, len(picture.cells) - 1)
    found: Floats = np.clip(np.nan_to_num(picture.cells) / picture.cell_limit, -1, 1)[band][:, window]
    return found
