"""The result: what a model said of a sound, and which moments, or which cells of time and frequency, made it say so."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...attribution import Attribution
from ...batch.rows import Row
from ...certificate import ExampleCertificate
from ...errors import OptionError
from ...files import write, write_text
from ...render import sound as pictures
from ...render.certificate_text import trust
from ...render.notebook import notebook_view, said_first
from ...render.sound.sound_picture import SoundPicture, span
from ...words import cell, finite, number, plus_minus, shown
from .sound_files import Sound, wav_bytes
from .sound_spectrum import CellGrid, ShortTime

Floats = NDArray[np.float64]

MOSTLY = 0.5
"""The stretch that is named is the shortest one that adds this share of the change of the score."""

CONTRARY = 0.5
"""A stretch against it is named if it holds at least this share of what the named one adds."""

PLAYED = 120.0
"""The most seconds of sound that are put into a page, to be played there."""

SILENT = f"Longer than {PLAYED:.0f} s, so that it cannot be played here. To listen, explain a part: --start, --end."


@dataclass(frozen=True, eq=False)
class ExplainedSound:
    """What a model said of a sound, and what each window of it adds to that.

    Attributes:
        name: what the sound is called.
        sound: as the model heard it; None where a spectrogram was given.
        seconds: how long it is.
        label: what is explained: ``speech``, or the name of a class.
        when: for which moment, in words; empty for models that answer once for the whole sound.
        asked: from when to when the explained score is, in seconds; None for all.
        explained: ``waveform`` or ``spectrogram``.
        baseline: where the path begins, in words.
        model: what was explained, in words.
        grid: the windows, and the bands where cells were explained.
        attribution: with one number for each window of the part that was explained, or for each cell, band by band.
        first: the number of the first of these windows.
        outputs: what the model says over time, (frames,), for models that do.
        spectrum: decibels, (rows, frames), to be drawn.
        top: the frequency at the upper edge of that in Hz; 0 if not known.
        notes: what a reader must not miss.
    """

    name: str
    sound: Sound | None
    seconds: float
    label: str
    when: str
    asked: tuple[float, float] | None
    explained: str
    baseline: str
    model: str
    grid: CellGrid
    attribution: Attribution
    first: int
    outputs: Floats | None = None
    spectrum: Floats | None = None
    top: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def certificate(self) -> ExampleCertificate:
        """How far the numbers can be trusted; its error is that of the windows, or of the cells."""
        return self.attribution.certificate[0]

    @property
    def score(self) -> float:
        """The explained score of the sound."""
        return self.certificate.score

    @property
    def times(self) -> Floats:
        """The edges of the windows in seconds, (windows + 1,)."""
        return self.grid.times

    @property
    def values(self) -> Floats:
        """What each window adds to the score, (windows,)."""
        return self._windows()[0]

    @property
    def errors(self) -> Floats:
        """By how much each of the values may be off, (windows,); NaN where that is not known."""
        return self._windows()[1]

    @property
    def cells(self) -> tuple[Floats, Floats] | None:
        """What each cell adds, and by how much that may be off, (bands, windows) each; None where windows were explained."""
        if self.explained != "spectrogram":
            return None
        bands, count = self._shape()
        found = self.attribution.sums(torch.arange(bands * count))
        whole = [np.zeros(self.grid.shape) for _ in range(2)]
        for out, part in zip(whole, (found.values, found.errors), strict=True):
            out[:, self.first : self.first + count] = part[0].numpy().reshape(bands, count)
        return whole[0], whole[1]

    def between(self, start: float, end: float) -> tuple[float, float]:
        """What the windows from one second to another add together, and by how much that may be off.

        Args:
            start: in seconds; the window that it lies in counts as a whole.
            end: likewise.
        """
        if not 0 <= start < end or start >= self.seconds:
            raise OptionError(f"got {start:g} to {end:g} s of a sound of {self.seconds:.3g} s; expected a part of it.")
        low = int(np.searchsorted(self.times, start + 1e-9, side="right")) - 1
        high = int(np.searchsorted(self.times, end - 1e-9, side="left"))
        return self._stretch(low, min(high, self.grid.shape[1]))

    @property
    def mostly(self) -> tuple[float, float, float, float] | None:
        """The shortest stretch that adds at least half of the change of the score.

        Returns:
            Start and end in seconds, what it adds, and by how much that may be off; None where no stretch does.
        """
        change = self.certificate.score - self.certificate.baseline_score
        values = self.values * math.copysign(1.0, change)
        if not np.isfinite(values).all() or not abs(change) > 0:
            return None
        total = np.concatenate([[0.0], np.cumsum(values)])
        for length in range(1, len(values) + 1):
            sums = total[length:] - total[:-length]
            best = int(np.argmax(sums))
            if sums[best] >= MOSTLY * abs(change):
                value, error = self._stretch(best, best + length)
                return float(self.times[best]), float(self.times[best + length]), value, error
        return None

    @property
    def sentence(self) -> str:
        """What the model said, because of which moments, and how good the numbers are, in one line."""
        said = f"{self.label[:1].upper()}{self.label[1:]} {level(self.score)}" + (f" {self.when}" if self.when else "")
        found = self.mostly
        change = self.score - self.certificate.baseline_score
        if not change and not self.values.any():
            return f"{shown(said)}, as at the baseline, {self.baseline}: no moment of it adds anything."
        if found is None:
            why = "no stretch of it makes up half of that"
        elif found[1] - found[0] >= 0.999 * self.seconds:
            why = f"{'raised' if change > 0 else 'lowered'} by all of it ({plus_minus(*found[2:])})"
        else:
            told = "mostly because of" if change > 0 else "lowered mostly by"
            why = f"{told} {span(*found[:2])} ({plus_minus(*found[2:])}){self._although(found[2])}"
        return f"{shown(said)}, {why}; {trust(self.certificate)}."

    @property
    def picture(self) -> SoundPicture:
        """Everything that is drawn of it."""
        values, errors = self._windows()
        cells = self.cells
        playable = self.sound is not None and self.seconds <= PLAYED
        heard = self.sound
        return SoundPicture(
            self.name,
            self.sentence,
            self.seconds,
            self.times,
            values,
            errors,
            self.certificate,
            label=self.label,
            samples=None if heard is None else heard.samples,
            rate=0 if heard is None else heard.rate,
            spectrum=self.spectrum,
            top=self.top,
            edges=None if cells is None else self.grid.edges,
            cells=None if cells is None else cells[0],
            cell_errors=None if cells is None else cells[1],
            curve=self.outputs,
            asked=self.asked,
            wav=wav_bytes(heard) if heard is not None and playable else b"",
            notes=self.notes if playable or heard is None else (*self.notes, SILENT),
            meta={
                "sound": f"{self.name}, {self.seconds:.3g} s" + (f" at {heard.rate:,} samples per second" if heard else ""),
                "model": self.model,
                "explained": f"{self.label} {self.when}".strip() + f", by its {self.explained}",
                "baseline": self.baseline,
            },
        )

    def html(self, *, command: str | None = None) -> str:
        """One self-contained page: player, waveform and spectrogram in the colours of what each moment adds.

        Args:
            command: what makes the page again, to be shown in it.
        """
        return pictures.page(self.picture, command=command)

    def numbers(self) -> dict[str, Any]:
        """Everything but the samples, for JSON."""
        one = self.certificate
        found: dict[str, Any] = {
            "sound": self.name,
            "seconds": self.seconds,
            "sentence": self.sentence,
            "label": self.label,
            "when": self.when,
            "explained": self.explained,
            "baseline": self.baseline,
            "model": self.model,
            "score": one.score,
            "baseline_score": one.baseline_score,
            "error": one.error,
            "tol": one.tol,
            "status": one.status.value,
            "gradients": one.gradients,
            "notes": list(self.notes),
            **self.picture.numbers(),
        }
        return finite(found)  # type: ignore[no-any-return]

    def csv(self) -> str:
        """The windows as CSV, a line each; of a spectrogram, the cells, with their lowest and highest frequency."""
        out = io.StringIO()
        writer = csv.writer(out)
        one = self.certificate
        end = [f"{one.score!r}", f"{one.baseline_score!r}", one.status.value, cell(self.label)]
        banded = self.cells
        bands = ["low", "high"] if banded is not None else []
        writer.writerow(["start", "end", *bands, "attribution", "error", "score", "baseline_score", "status", "explained"])
        if banded is None:
            for k, (value, error) in enumerate(zip(self.values, self.errors, strict=True)):
                writer.writerow([*self._when(k), repr(float(value)), repr(float(error)), *end])
        else:
            for band, k in np.ndindex(*self.grid.shape):
                low, high = (f"{edge:.6g}" for edge in self.grid.edges[band : band + 2])
                numbers = (repr(float(part[band, k])) for part in banded)
                writer.writerow([*self._when(k), low, high, *numbers, *end])
        return out.getvalue()

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the result in the format that the ending names: ``.html``, ``.png``, ``.svg``, ``.pdf``, ``.csv``, ``.json``.

        Args:
            path: where to.
            **options: ``command=`` for a page.
        """
        file = Path(path)
        if file.suffix.lower() == ".csv":
            if options:
                raise OptionError(f"got options {sorted(options)} for a .csv file; they are for pages.")
            write_text(file, self.csv())
            return file
        if file.suffix.lower() not in (".html", ".png", ".svg", ".pdf", ".json"):
            raise OptionError(f"got the ending {file.suffix!r}; expected .html, .png, .svg, .pdf, .csv or .json")
        return write(file, options, picture=lambda: pictures.figure(self.picture), numbers=self.numbers, report=self.html)

    def show(self) -> Any:
        """Draw the result with matplotlib, show it, and return the figure."""
        from ...render.figures import present

        return present(pictures.figure(self.picture), "integrand-sound")

    def row(self) -> Row:
        """The result as a row of a table of many sounds: what each window adds."""
        values, errors = self._windows()
        known = tuple(errors.tolist()) if np.isfinite(errors).all() else None
        return Row.of(
            self.certificate,
            prediction=self.label,
            target=f"{self.label} {self.when}".strip(),
            sentence=self.sentence,
            notes=self.notes,
            features=tuple(span(a, b) for a, b in zip(self.times[:-1], self.times[1:], strict=True)),
            attributions=values,
            attribution_errors=known,
        )

    def __repr__(self) -> str:
        return f"{shown(self.name)}: {self.sentence}"

    def __str__(self) -> str:
        order = np.argsort(-np.abs(self.values), kind="stable")[:5]
        lines = [f"  {self.picture.saying(int(k))}" for k in sorted(order) if self.values[k]]
        return "\n".join([f"{shown(self.name)}: {self.sentence}", *lines, *(f"  note: {shown(note)}" for note in self.notes)])

    def _small_html_(self) -> str:
        return said_first(self, "", self.certificate)

    def _repr_html_(self) -> str:
        return notebook_view(self, self.html, self._small_html_)

    def _shape(self) -> tuple[int, int]:
        """How many bands and windows the attribution has numbers for; one band where windows were explained."""
        groups = int(torch.as_tensor(self.attribution.values).shape[-1])
        bands = self.grid.shape[0] if self.explained == "spectrogram" else 1
        return bands, groups // bands

    def _windows(self) -> tuple[Floats, Floats]:
        """What each window of the whole sound adds, and by how much that may be off; 0 outside of what was explained."""
        bands, count = self._shape()
        found = self.attribution.sums(torch.arange(count).repeat(bands))
        out = [np.zeros(self.grid.shape[1]) for _ in range(2)]
        for whole, part in zip(out, (found.values, found.errors), strict=True):
            whole[self.first : self.first + count] = part[0].numpy()
        return out[0], out[1]

    def _stretch(self, low: int, high: int) -> tuple[float, float]:
        """What neighbouring windows add together, and by how much that may be off."""
        bands, count = self._shape()
        inside = (torch.arange(count) + self.first >= low) & (torch.arange(count) + self.first < high)
        if not inside.any():
            return 0.0, 0.0
        found = self.attribution.sums(torch.where(inside, 0, -1).repeat(bands))
        return float(found.values[0, 0]), float(found.errors[0, 0])

    def _although(self, value: float) -> str:
        """The stretch that speaks most against what is said, if it is at least half as strong; '' otherwise."""
        against = -self.values * math.copysign(1.0, value)
        total = np.concatenate([[0.0], np.cumsum(against)])
        gains = total[1:] - np.minimum.accumulate(total)[:-1]  # the most that a stretch with this end can hold
        end = int(np.argmax(gains)) + 1
        if not gains[end - 1] >= CONTRARY * abs(value):
            return ""
        start = int(np.argmin(total[:end]))
        found = self._stretch(start, end)
        return f", although {span(self.times[start], self.times[end])} speaks against it ({plus_minus(*found)})"

    def _when(self, k: int) -> list[str]:
        return [f"{self.times[k]:.6g}", f"{self.times[k + 1]:.6g}"]


def level(score: float) -> str:
    """A score in three digits; one just below 1 does not become 1.

    >>> level(0.6591), level(0.99997), level(-12.345), level(1.0)
    ('0.659', 'over 0.999', '-12.3', '1')
    """
    return "over 0.999" if 0.9995 <= score < 1 else number(score, 3)


def decibels(sound: Sound) -> tuple[Floats, float]:
    """A spectrogram to be drawn, (frequencies, frames) in decibels, and its highest frequency in Hz."""
    transform = ShortTime.near(sound.rate)
    x = torch.as_tensor(np.array(sound.samples, np.float64))[None]
    power = transform.forward(x).square().sum(1)[0]
    found: Floats = (10 * power.clamp(min=1e-20).log10()).numpy()
    return found, sound.rate / 2
