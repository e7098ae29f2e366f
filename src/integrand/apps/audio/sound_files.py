"""Reads sound from files and arrays, within limits of size and length, as one channel at the rate that a model needs."""

from __future__ import annotations

import hashlib
import importlib
import math
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import FileError, InputError, MissingExtraError, OptionError
from ...files import reading
from ...words import byte_size, first_line, short_repr, shown
from .resampling import HIGHEST, LOWEST, Samples, check_rate, resampled

ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64", ".rf64")
"""The suffixes of files in a folder that are taken for sound. What is read goes by what is in a file, not by its name."""

LARGEST = 1 << 30
"""The most bytes that a file of sound may have; an hour in stereo at 48 kHz has 0.7 GB."""

LONGEST = 600.0
"""The most seconds that are read at once. More is read in parts, with ``start`` and ``end``."""

CANCELLED = 0.01
"""Channels whose mean has less than this share of the loudest one's level, -40 dB, are said to cancel each other."""

MOST_CHANNELS = 64
"""The most channels of a recording that are mixed."""

MAX_FRAMES = 1 << 26
"""Samples of a channel that are held at once, in 270 MB: ten minutes at 96 kHz, five at 192."""

MAX_SAMPLES = 1 << 29
"""Samples of all channels that are read at once: some seconds' work, however small the file."""

BLOCK = 1 << 20
"""Samples of all channels that are mixed at a time."""

EXPECTED = "a sound file (WAV, FLAC, Ogg, MP3, AIFF)"
CONVERT = "Convert others first: ffmpeg -i recording.m4a recording.wav"


@dataclass(frozen=True, eq=False)
class Sound:
    """A recording as one channel of samples.

    Attributes:
        samples: (n,) float32, from -1 to 1 as a rule.
        rate: samples per second.
        name: what it is called: the name of its file.
        start: where in the file it begins, in seconds.
        notes: what was done to it: mixed, cut, resampled.
        digest: SHA-256 of the bytes of its file, in hexadecimal; empty if it comes from no file.
    """

    samples: Samples
    rate: int
    name: str = "sound"
    start: float = field(default=0.0, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    digest: str = field(default="", kw_only=True)

    __repr__ = short_repr

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.rate

    @property
    def level(self) -> float:
        """The root mean square of the samples."""
        return float(np.sqrt(np.mean(np.square(self.samples, dtype=np.float64))))

    def at(self, rate: int) -> Sound:
        """The same sound at another rate; a note says so."""
        if rate == self.rate:
            return self
        said = f"resampled from {self.rate:,} to {rate:,} samples per second (windowed sinc)"
        return replace(self, samples=resampled(self.samples, self.rate, rate), rate=rate, notes=(*self.notes, said))

    def part(self, start: float | None = None, end: float | None = None) -> Sound:
        """A part of it, from one second to another."""
        first, last = _stretch(start, end, self.seconds, self.name)
        if (first, last) == (0.0, self.seconds):
            return self
        kept = self.samples[round(first * self.rate) : round(last * self.rate)]
        return _checked(replace(self, samples=kept, start=self.start + first, notes=(*self.notes, _cut(first, last))))


def read(
    path: str | PathLike[str],
    *,
    rate: int | None = None,
    start: float | None = None,
    end: float | None = None,
    channel: int | None = None,
) -> Sound:
    """Read a sound file: WAV, FLAC, Ogg, MP3, AIFF and what else libsndfile knows, whatever the file is called.

    Several channels are mixed: their mean is taken. The notes say what was done.

    Args:
        path: the file.
        rate: samples per second of the result; None for those of the file.
        start: the second from which on it is read.
        end: the second up to which it is read.
        channel: one of the channels, counted from 1, instead of their mean.

    Raises:
        FileError: it is no sound, is empty or is beyond a limit, with the remedy in one line.
        MissingExtraError: soundfile is not installed.
    """
    wanted = None if rate is None else check_rate(rate, "rate")
    soundfile = _soundfile()
    file, name = Path(path), shown(str(path))
    with reading(file, what=EXPECTED) as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > LARGEST:
            raise FileError(f"{name} has {byte_size(size)}; expected {EXPECTED} of at most {byte_size(LARGEST)}. Cut it first.")
        if not size:
            raise FileError(f"{name} is empty (0 bytes); expected {EXPECTED}.")
        digest = hashlib.sha256()
        while block := opened.read(1 << 20):
            digest.update(block)
        opened.seek(0)
        try:
            with soundfile.SoundFile(opened) as sound:
                blocks, first = _blocks(sound, name, start, end)
                mixed, notes = _mixed(blocks, int(sound.channels), channel, name)
                own = int(sound.samplerate)
        except MemoryError:
            raise FileError(f"{name} does not fit into memory. Take a part: start=0, end=60 (--start 0 --end 60).") from None
        except (soundfile.SoundFileError, TypeError) as error:
            said = first_line(error).removeprefix("Error opening ").rpartition(": ")[2]
            raise FileError(f"{name} cannot be read as sound ({said}); expected {EXPECTED}. {CONVERT}") from error
    if start is not None or end is not None:
        notes = (*notes, _cut(first, first + len(mixed) / own))
    heard = _checked(Sound(mixed, own, file.name, start=first, notes=notes, digest=digest.hexdigest()))
    return heard if wanted is None else heard.at(wanted)


def sound_of(given: object, rate: int | None = None, *, name: str = "sound") -> Sound:
    """A recording, from whatever it is given as.

    Args:
        given: a :class:`Sound`, the path of a file, or samples as an array or tensor, (n,) or (channels, n): floats from -1 to
            1, or integers, whose largest value is full scale.
        rate: the samples per second of an array, which it has to have; a file says that itself.
        name: what to call an array.
    """
    if isinstance(given, Sound):
        return given
    if isinstance(given, (str, PathLike)):
        return read(given)
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2):
        raise InputError(
            f"got a sound of shape {array.shape} and type {array.dtype}; expected the path of a file, or numbers of shape "
            "(samples,) or (channels, samples)."
        )
    if not array.size:
        raise InputError(f"got a sound of shape {array.shape}, which has no samples; expected at least one.")
    if rate is None:
        raise OptionError("got samples without rate=; expected how many there are in a second: rate=16000.")
    if array.ndim == 2 and array.shape[0] > MOST_CHANNELS >= array.shape[1]:
        raise InputError(
            f"got a sound of shape {array.shape}; expected (channels, samples) with at most {MOST_CHANNELS} channels. Pass "
            "sound.T."
        )
    scale = 1.0 if array.dtype.kind == "f" else float(2 ** (8 * array.dtype.itemsize - 1))
    shift = scale if array.dtype.kind == "u" else 0.0
    floats = ((array.astype(np.float64) - shift) / scale).astype(np.float32)
    whole = np.atleast_2d(floats).T
    samples, notes = _mixed([whole], whole.shape[1], None, name)
    return _checked(Sound(samples, check_rate(rate, "rate"), name, notes=notes))


def wav_bytes(sound: Sound) -> bytes:
    """A recording as the bytes of a WAV file with 16 bits per sample, which browsers play; what is beyond 1 is clipped."""
    data = np.rint(np.clip(sound.samples, -1, 1) * 32767).astype("<i2").tobytes()
    about = struct.pack("<HHIIHH", 1, 1, sound.rate, 2 * sound.rate, 2, 16)  # plain samples, one channel, rate, bytes, bits
    chunks = b"WAVEfmt " + struct.pack("<I", len(about)) + about + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def _soundfile() -> Any:
    try:
        return importlib.import_module("soundfile")
    except (ImportError, OSError):  # OSError: libsndfile is not there
        raise MissingExtraError("soundfile", "audio", "reading sound files") from None


def _blocks(sound: Any, name: str, start: float | None, end: float | None) -> tuple[Iterator[Samples], float]:
    """The samples of a part of an open file, in blocks of (n, channels) in float32, and the second at which it begins."""
    rate, frames, channels = int(sound.samplerate), int(sound.frames), int(sound.channels)
    if not LOWEST <= rate <= HIGHEST or not 1 <= channels <= MOST_CHANNELS:
        raise FileError(
            f"{name} says it has {rate:,} samples per second in {channels} channels; expected {LOWEST:,} to {HIGHEST:,} in at "
            f"most {MOST_CHANNELS}."
        )
    if frames <= 0:
        raise FileError(f"{name} has no samples; expected {EXPECTED} with at least one.")
    first, last = _stretch(start, end, frames / rate, name)
    longest = min(LONGEST, MAX_FRAMES / rate, MAX_SAMPLES / channels / rate)
    if last - first > longest:
        raise FileError(
            f"{name} has {last - first:,.0f} s of {channels} channel(s) at {rate:,} samples per second; expected at most "
            f"{longest:.0f} s at once. Take a part: start=0, end=60 (--start 0 --end 60)."
        )
    begin = min(frames - 1, round(first * rate))
    sound.seek(begin)
    count, block = max(1, round(last * rate) - begin), BLOCK // channels
    return (sound.read(min(block, count - i), dtype="float32", always_2d=True) for i in range(0, count, block)), begin / rate


def _stretch(start: float | None, end: float | None, seconds: float, name: str) -> tuple[float, float]:
    """From where to where, in seconds; an error if that is not a part of the recording."""
    first, last = 0.0 if start is None else float(start), seconds if end is None else float(end)
    if not (math.isfinite(first) and math.isfinite(last)) or first < 0 or last <= first or first >= seconds:
        raise OptionError(
            f"got start={start!r}, end={end!r} for {shown(name)}, which has {seconds:.3g} s; expected 0 <= start < end in it."
        )
    return first, min(last, seconds)


def _cut(first: float, last: float) -> str:
    counted = "; seconds count from its beginning" if first else ""
    return f"the part from {first:.6g} to {last:.6g} s of the recording{counted}"


def _mixed(blocks: Iterable[Samples], count: int, channel: int | None, name: str) -> tuple[Samples, tuple[str, ...]]:
    """One channel of blocks of (n, channels), and what was done."""
    if channel is not None and not 1 <= channel <= count:
        raise OptionError(f"got channel={channel!r} for {shown(name)}, which has {count}; expected 1 to {count}.")
    if count == 1 or channel is not None:
        place = (channel or 1) - 1
        alone = np.concatenate([block[:, place] for block in blocks])
        return alone, (f"channel {channel} of {count}",) if count > 1 else ()
    parts, power, mixed_power = [], np.zeros(count), 0.0
    for block in blocks:
        mixed = block.mean(1, dtype=np.float64)
        power += np.square(block, dtype=np.float64).sum(0)
        mixed_power += float(np.square(mixed).sum())
        parts.append(mixed.astype(np.float32))
    notes: tuple[str, ...] = (f"{count} channels were mixed: their mean is explained",)
    if math.sqrt(mixed_power) < CANCELLED * math.sqrt(power.max()):
        notes = (*notes, "the channels cancel each other: hardly anything is left of them; take one (channel=1, --channel 1)")
    return np.concatenate(parts), notes


def _checked(sound: Sound) -> Sound:
    """The sound, if it has samples that are numbers."""
    if not len(sound.samples):
        raise InputError(f"{shown(sound.name)} has no samples; expected at least one.")
    if not np.isfinite(sound.samples).all():
        place = int(np.argmin(np.isfinite(sound.samples)))
        raise InputError(
            f"{shown(sound.name)} has a sample that is no number (NaN or infinite) at {place / sound.rate:.3f} s; expected "
            "numbers. Repair the recording, or take a part without it."
        )
    return sound


def as_tensor(sound: Sound, device: torch.device | str = "cpu") -> Tensor:
    """The samples as a model's input, (1, n)."""
    return torch.as_tensor(np.array(sound.samples, np.float32))[None].to(device)
