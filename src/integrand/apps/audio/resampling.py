"""Sound at another number of samples per second: band-limited, by a windowed sinc; needs nothing but numpy and torch.

The same file gives the same samples whatever else is installed, which would not be so if the best resampler at hand were taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import OptionError

Samples = NDArray[np.float32]
"""Samples of sound, (n,) for one channel."""

ZEROS = 32
"""Zero crossings of the sinc on either side: with :data:`ROLLOFF` the stop band begins at the new Nyquist frequency."""

ROLLOFF = 0.95
"""Where the pass band ends, as a share of the lower of the two Nyquist frequencies."""

BETA = 12.0
"""Kaiser's window with this shape leaves less than 1e-5 (-100 dB) of what is filtered out: below the steps of 16 bits."""

LOWEST, HIGHEST = 1_000, 768_000
"""Samples per second that a recording may have."""

BLOCK = 1 << 15
"""Samples that are computed at a time, so that memory does not grow with the length."""


def check_rate(rate: object, what: str) -> int:
    """A number of samples per second, if it is one.

    Args:
        rate: what was given.
        what: the name of the argument, for the error.
    """
    good = isinstance(rate, (int, float, np.integer, np.floating)) and not isinstance(rate, bool)
    found = float(rate) if good else math.nan  # type: ignore[arg-type]
    if not LOWEST <= found <= HIGHEST or found != int(found):
        raise OptionError(f"got {what}={rate!r}; expected a whole number of samples per second, such as 16000.")
    return int(found)


def resampled(samples: NDArray[np.floating[Any]], rate: int, wanted: int) -> Samples:
    """The same sound at another rate.

    >>> tone = np.sin(2 * np.pi * 440 * np.arange(44100) / 44100)
    >>> found = resampled(tone, 44100, 16000)
    >>> found.shape, bool(abs(found - np.sin(2 * np.pi * 440 * np.arange(16000) / 16000))[1000:-1000].max() < 1e-4)
    ((16000,), True)

    Args:
        samples: (n,) one channel.
        rate: its samples per second.
        wanted: those of the result.

    Returns:
        (ceil(n * wanted / rate),) in float32. What is above the lower of the two Nyquist frequencies is filtered out.
    """
    if rate == wanted:
        return np.asarray(samples, np.float32)
    shared = math.gcd(rate, wanted)
    up, down = wanted // shared, rate // shared
    cutoff = ROLLOFF * min(1.0, up / down)
    reach = math.ceil(ZEROS / cutoff)
    count = -(-len(samples) * up // down)
    padded = torch.nn.functional.pad(torch.as_tensor(np.array(samples, np.float64)), (reach, reach + 1))
    offsets = torch.arange(-reach, reach + 1)
    weights = _weights(torch.arange(min(up, count)) * down % up / up, offsets, cutoff)  # the k-th sample has that of k mod up
    out = np.empty(count, np.float32)
    for start in range(0, count, BLOCK):
        places = torch.arange(start, min(start + BLOCK, count))
        nearest = places * down // up + reach
        taps = padded[nearest[:, None] + offsets]
        out[start : start + len(places)] = (taps * weights[places % up]).sum(1).float().numpy()
    return out


def _weights(phases: torch.Tensor, offsets: torch.Tensor, cutoff: float) -> torch.Tensor:
    """The filter at samples around a place that lies ``phases`` after one of them, (phases, offsets), in float64."""
    away = offsets[None].double() - phases[:, None].double()
    inside = (1 - (away * cutoff / ZEROS).square()).clamp(min=0)
    window = torch.special.i0(BETA * inside.sqrt()) / torch.special.i0(torch.tensor(BETA, dtype=torch.float64))
    weights: torch.Tensor = cutoff * torch.sinc(cutoff * away) * window * (inside > 0)
    return weights
