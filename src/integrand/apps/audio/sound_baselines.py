"""Where the path begins: silence, noise, the mean spectrum, or another recording."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError, OptionError
from .sound_files import Sound, as_tensor, sound_of
from .sound_spectrum import ShortTime, mean_spectrum

BaselineName = Literal["silence", "room", "noise", "mean"]
"""``silence``: zeros. ``room``: the white noise of a quiet room. ``noise``: white noise as loud as the recording. ``mean``: the
recording's mean spectrum at every moment, with its phases."""

BASELINES: tuple[str, ...] = get_args(BaselineName)

QUIET = 1e-3
"""The root mean square of a quiet room's noise: 60 dB below full scale."""

WORDS = {
    "silence": "silence (zeros)",
    "room": "a quiet room (white noise, 60 dB below full scale)",
    "noise": "white noise as loud as the recording",
    "mean": "the recording's mean spectrum at every moment, with its phases",
}
"""What each baseline is, for people."""


def baseline_spectra(baseline: object, x: Tensor, whole: Tensor, transform: ShortTime) -> Tensor | None:
    """A baseline as real and imaginary parts, (1, 2, frequencies, frames), if it is made of them; None if it is a waveform.

    Args:
        baseline: as in :func:`baseline_waves`.
        x: the part that is explained, (1, n).
        whole: the recording, (1, m), over which the mean is taken.
        transform: the transform whose cells are explained.
    """
    return mean_spectrum(x, transform, whole) if isinstance(baseline, str) and baseline == "mean" else None


def baseline_waves(baseline: object, sound: Sound, *, draws: int = 1) -> tuple[Tensor, str]:
    """A baseline as waveforms, (draws, 1, n), and what it is in words.

    Args:
        baseline: a :data:`BaselineName`; or another recording, as a path, an array at the same rate or a :class:`Sound`, which
            is repeated if it is shorter.
        sound: the recording that is explained.
        draws: for noise, how many are averaged; they are the same in every call.
    """
    x = as_tensor(sound)
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
        raise OptionError(f"got draws={draws!r}; expected how many noises are averaged, at least 1.")
    if isinstance(baseline, str) and baseline in BASELINES:
        if baseline == "silence":
            return torch.zeros_like(x)[None], WORDS[baseline]
        if baseline == "mean":
            transform = ShortTime.near(sound.rate)
            return transform.inverse(mean_spectrum(x, transform, x), x.shape[1])[None], WORDS[baseline]
        level = QUIET if baseline == "room" else max(sound.level, QUIET)
        generator = torch.Generator().manual_seed(0)
        several = f", {draws} averaged" if draws > 1 else ""
        return level * torch.randn(draws, *x.shape, generator=generator), WORDS[baseline] + several
    if isinstance(baseline, str) and not _is_file(baseline):
        raise OptionError(
            f"got baseline={baseline!r}; expected one of {', '.join(BASELINES)}, or another recording: a file, or samples."
        )
    other = sound_of(baseline, sound.rate, name="the baseline").at(sound.rate)
    if not len(other.samples):
        raise InputError("got a baseline without samples; expected another recording.")
    repeated = np.resize(other.samples, len(sound.samples))
    more = ", repeated" if len(other.samples) < len(sound.samples) else ""
    return torch.as_tensor(repeated)[None, None], f"another recording ({other.name}{more})"


def _is_file(name: str) -> bool:
    from pathlib import Path

    return "." in name or "/" in name or Path(name).exists()
