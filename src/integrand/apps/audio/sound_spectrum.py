"""Time and frequency: the transform that can be undone, spectrograms as part of a model, and cells of both to sum over."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import OptionError
from ...words import short_repr

Floats = NDArray[np.float64]

BANDS = 24
"""Bands of frequency that cells are summed into by default; the width of each grows as hearing does (the mel scale)."""

MOST_BANDS = 128
"""The most rows of a spectrogram of the model's own that are told apart; more are summed in groups of neighbours."""


def magnitude(real: Tensor, imaginary: Tensor) -> Tensor:
    """The size of complex numbers, with a gradient of 0 where they are 0.

    The plain square root has no gradient there, and in digital silence all are 0. Along the straight line from silence a size
    grows in proportion, so that this one point, where it has a corner, does not count in the integral.
    """
    power = real.square() + imaginary.square()
    there = power > 0
    return torch.where(there, power, 1.0).sqrt() * there


class Spectrogram(nn.Module):
    """The sizes of a short-time Fourier transform: a first layer for models that take spectrograms.

    ``nn.Sequential(Spectrogram(512, 128), network)`` takes waveforms, and its waveform can be explained through it. Passed as
    ``transform=``, it lets the cells be explained instead. Frames are centred: frame k is about sample k * hop.

    Args:
        size: samples of a frame.
        hop: samples from one frame to the next; a quarter of the size if not given.
        scale: ``magnitude``; ``power``, its square; or ``decibel``, ten times the decimal logarithm of the power, not below
            -100.
        rate: samples per second, so that rows have frequencies.
    """

    window: Tensor

    def __init__(
        self,
        size: int = 512,
        hop: int | None = None,
        *,
        scale: Literal["magnitude", "power", "decibel"] = "magnitude",
        rate: int | None = None,
    ) -> None:
        super().__init__()
        if scale not in ("magnitude", "power", "decibel"):
            raise OptionError(f"got scale={scale!r}; expected 'magnitude', 'power' or 'decibel'.")
        self.transform = ShortTime(size, hop or max(1, size // 4))
        self.scale, self.rate = scale, rate
        self.register_buffer("window", torch.hann_window(size), persistent=False)

    @property
    def frequencies(self) -> tuple[float, ...] | None:
        """The frequency of each row in Hz, lowest first; None without a rate."""
        return None if self.rate is None else tuple(self.transform.frequencies(self.rate).tolist())

    def forward(self, x: Tensor) -> Tensor:
        """From waveforms (N, n) to (N, size // 2 + 1, frames)."""
        real, imaginary = self.transform.forward(x).unbind(1)
        if self.scale == "magnitude":
            return magnitude(real, imaginary)
        power = real.square() + imaginary.square()
        return power if self.scale == "power" else 10 * power.clamp(min=1e-10).log10()


@dataclass(frozen=True)
class ShortTime:
    """A short-time Fourier transform that can be undone: Hann's window, centred frames, zeros beyond the ends.

    It is linear both ways, so that a straight line between two waveforms is one between their spectra: what a model sees on
    the way is the same whichever of them is explained.

    Attributes:
        size: samples of a frame.
        hop: samples from one frame to the next, at most half of the size.
    """

    size: int
    hop: int

    def __post_init__(self) -> None:
        if self.size < 4 or self.size % 2 or not 1 <= self.hop <= self.size // 2:
            raise OptionError(
                f"got frames of {self.size} samples every {self.hop}; expected an even number of at least 4, and a hop of at "
                "most half of it, so that the transform can be undone."
            )

    @staticmethod
    def near(rate: int, seconds: float = 0.032) -> ShortTime:
        """Frames of about so many seconds, each a power of two; every fourth part of one begins another."""
        size = 2 ** max(4, round(math.log2(seconds * rate)))
        return ShortTime(size, size // 4)

    def frequencies(self, rate: int) -> Floats:
        """The frequency of each row in Hz, (size // 2 + 1,)."""
        return np.arange(self.size // 2 + 1, dtype=np.float64) * (rate / self.size)

    def frames(self, samples: int) -> int:
        """How many frames so many samples have."""
        return 1 + samples // self.hop

    def forward(self, x: Tensor) -> Tensor:
        """Real and imaginary parts: from (N, n) to (N, 2, size // 2 + 1, frames)."""
        found = torch.stft(x, self.size, self.hop, window=self._window(x), pad_mode="constant", return_complex=True)
        return torch.stack([found.real, found.imag], 1)

    def inverse(self, parts: Tensor, samples: int) -> Tensor:
        """The waveforms of real and imaginary parts: from (N, 2, size // 2 + 1, frames) to (N, samples)."""
        spectra = torch.complex(parts[:, 0], parts[:, 1])
        found: Tensor = torch.istft(spectra, self.size, self.hop, window=self._window(parts), length=samples)
        return found

    def overlap(self, samples: int) -> Floats:
        """The share of each sample that belongs to each frame, (frames, samples); each column adds up to 1.

        The attributions of a frame's cells add up, over the frequencies, to those of the samples times these shares.
        """
        window = torch.hann_window(self.size, dtype=torch.float64).numpy() ** 2
        out = np.zeros((self.frames(samples), samples + self.size))
        for k in range(len(out)):
            out[k, k * self.hop : k * self.hop + self.size] = window
        out = out[:, self.size // 2 : self.size // 2 + samples]
        shares: Floats = out / out.sum(0)
        return shares

    def _window(self, like: Tensor) -> Tensor:
        return torch.hann_window(self.size, dtype=like.dtype, device=like.device)


class FromSpectrum(nn.Module):
    """A model of waveforms as one of their spectra: the inverse transform comes first.

    Args:
        model: takes (N, samples).
        transform: what is undone.
        samples: how many the waveform has.
    """

    def __init__(self, model: Callable[..., Any], transform: ShortTime, samples: int) -> None:
        super().__init__()
        self.model, self.transform, self.samples = model, transform, samples
        self.training = False

    def forward(self, parts: Tensor) -> Any:
        """From (N, 2, frequencies, frames) to what the model gives."""
        return self.model(self.transform.inverse(parts, self.samples))


class Through(nn.Module):
    """A model of spectrograms as one of waveforms: the transform comes first.

    Args:
        transform: from waveforms (N, n) to what the model takes.
        model: takes that.
    """

    def __init__(self, transform: Callable[..., Any], model: Callable[..., Any]) -> None:
        super().__init__()
        self.transform, self.model = transform, model
        self.training = False

    def forward(self, x: Tensor) -> Any:
        """From (N, n) to what the model gives."""
        return self.model(self.transform(x))


@dataclass(frozen=True, eq=False)
class CellGrid:
    """Cells of time and frequency that attributions are summed into.

    Attributes:
        times: the edges of the windows in seconds, (windows + 1,).
        edges: the edges of the bands in Hz, (bands + 1,); where the rows of a spectrogram have no frequencies, numbers of rows.
        hertz: whether the edges are frequencies.
    """

    times: Floats
    edges: Floats
    hertz: bool = True

    __repr__ = short_repr

    @property
    def shape(self) -> tuple[int, int]:
        """How many bands and windows there are."""
        return len(self.edges) - 1, len(self.times) - 1

    def labels(self, frequencies: Floats, moments: Floats) -> Tensor:
        """The number of the cell that each place of a spectrogram belongs to, (frequencies, moments): band by band.

        Args:
            frequencies: of the rows, in the unit of the edges.
            moments: the middle of each frame in seconds.
        """
        band = np.clip(np.searchsorted(self.edges, frequencies, side="right") - 1, 0, self.shape[0] - 1)
        time = window_of(moments, self.times)
        return torch.as_tensor(band[:, None] * self.shape[1] + time[None])


def window_of(moments: Floats, times: Floats) -> NDArray[np.int64]:
    """The number of the window that each moment lies in; what is at the very end belongs to the last.

    >>> window_of(np.array([0.0, 0.1, 0.2]), np.array([0.0, 0.1, 0.2]))
    array([0, 1, 1])
    """
    # A sample that begins a window may lie a rounding error before its edge.
    found = np.searchsorted(times, moments + 1e-9, side="right") - 1
    return np.clip(found, 0, len(times) - 2).astype(np.int64)


def windows(seconds: float, window: float) -> Floats:
    """The edges of windows of a length over a sound; the last one may be shorter, but not by more than to a half.

    >>> windows(0.1, 0.032).round(3).tolist(), windows(0.074, 0.032).round(3).tolist()
    ([0.0, 0.032, 0.064, 0.1], [0.0, 0.032, 0.074])
    """
    whole = max(1, math.floor(seconds / window + 1e-6))
    rest = seconds - whole * window
    count = whole + (rest > window / 2 + 1e-9)
    edges = np.arange(count + 1, dtype=np.float64) * window
    edges[-1] = seconds
    return edges


def mel_edges(top: float, bands: int, least: float) -> Floats:
    """Edges of bands of frequency that are equally wide to the ear (the mel scale), from 0 to ``top`` Hz, (bands + 1,).

    Args:
        top: the highest frequency in Hz.
        bands: how many are wanted; fewer are made if some would be narrower than ``least``.
        least: the distance of two rows of the spectrum in Hz.
    """
    if bands < 1:
        raise OptionError(f"got bands={bands!r}; expected at least 1.")
    mel = np.linspace(0, 2595 * math.log10(1 + top / 700), bands + 1)
    wanted = 700 * (10 ** (mel / 2595) - 1)
    edges = [0.0]
    for one in wanted[1:]:
        if one - edges[-1] >= least:
            edges.append(float(one))
    edges[-1] = top
    return np.array(edges) if len(edges) > 1 else np.array([0.0, top])


def mean_spectrum(x: Tensor, transform: ShortTime, whole: Tensor) -> Tensor:
    """The mean size of each frequency over time with the phases of a sound, (1, 2, frequencies, frames).

    Args:
        x: the sound that has the phases, (1, n).
        transform: the transform.
        whole: the sound over which the mean is taken, (1, m).
    """
    parts, all_parts = transform.forward(x), transform.forward(whole)
    size = magnitude(parts[:, 0], parts[:, 1])
    mean = magnitude(all_parts[:, 0], all_parts[:, 1]).mean(2, keepdim=True)
    return parts / torch.where(size > 0, size, 1.0)[:, None] * mean[:, None]
