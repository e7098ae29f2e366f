"""Reading sound: formats, channels, parts and limits; resampling against closed forms and scipy."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from integrand.apps.audio import sound_files
from integrand.apps.audio.resampling import check_rate, resampled
from integrand.apps.audio.sound_files import Sound, read, sound_of, wav_bytes
from integrand.errors import FileError, InputError, IntegrandError, MissingExtraError, OptionError

soundfile = pytest.importorskip("soundfile")

SPEECH = Path(__file__).parents[3] / "examples" / "speech.flac"


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3", "aiff"])
def test_formats_give_the_same_sound(ending: str, tmp_path: Path) -> None:
    samples = tone(440, 16000)
    file = tmp_path / f"tone.{ending}"
    soundfile.write(file, samples, 16000)
    found = read(file)
    assert (found.rate, found.name) == (16000, file.name)
    heard = found.samples[: len(samples)]
    # Lossy formats may shift it by some samples: what counts is the tone.
    spectrum = np.abs(np.fft.rfft(heard * np.hanning(len(heard))))
    assert abs(np.argmax(spectrum) * 16000 / len(heard) - 440) < 4
    if ending in ("wav", "flac", "aiff"):
        assert np.abs(found.samples - samples).max() < 1e-4


def test_the_format_goes_by_what_is_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "sound.txt").write_bytes(SPEECH.read_bytes())
    assert np.array_equal(read(tmp_path / "sound.txt").samples, read(SPEECH).samples)


def test_the_example_is_what_its_note_says() -> None:
    found = read(SPEECH)
    assert (found.rate, found.notes, SPEECH.stat().st_size < 100_000) == (16000, (), True)
    assert 2 < found.seconds < 3
    assert "MODIFIED" in SPEECH.with_suffix(".txt").read_text()


def test_channels_are_mixed_and_said(tmp_path: Path) -> None:
    left, right = tone(300, 8000), tone(700, 8000)
    soundfile.write(tmp_path / "two.wav", np.stack([left, right], 1), 8000, subtype="FLOAT")
    both = read(tmp_path / "two.wav")
    assert np.abs(both.samples - (left + right) / 2).max() < 1e-6
    assert both.notes == ("2 channels were mixed: their mean is explained",)
    assert np.abs(read(tmp_path / "two.wav", channel=2).samples - right).max() < 1e-6
    with pytest.raises(OptionError, match=r"channel=3 for .*two\.wav, which has 2; expected 1 to 2"):
        read(tmp_path / "two.wav", channel=3)
    assert np.abs(sound_of(np.stack([left, right]), 8000).samples - both.samples).max() < 1e-6


def test_a_part_is_read_alone() -> None:
    whole, part = read(SPEECH), read(SPEECH, start=0.5, end=1.0)
    assert np.array_equal(part.samples, whole.samples[8000:16000])
    assert np.array_equal(whole.part(0.5, 1.0).samples, part.samples)
    assert (part.start, part.seconds) == (0.5, 0.5)
    for start, end in [(1.0, 0.5), (9.0, None), (-1.0, 1.0), (0.0, float("nan"))]:
        with pytest.raises(OptionError, match="expected 0 <= start < end"):
            read(SPEECH, start=start, end=end)


def test_arrays_of_all_kinds() -> None:
    wave_ = tone(440, 16000).astype(np.float32)
    for given in (wave_, torch.as_tensor(wave_), wave_[None], np.rint(wave_ * 32768).astype(np.int16)):
        assert np.abs(sound_of(given, 16000).samples - wave_).max() < 1e-4
    bytes_ = np.rint(wave_ * 128 + 128).astype(np.uint8)
    assert np.abs(sound_of(bytes_, 16000).samples - wave_).max() < 0.01
    with pytest.raises(OptionError, match="without rate="):
        sound_of(wave_)
    with pytest.raises(InputError, match=r"Pass sound\.T"):
        sound_of(wave_[:, None].repeat(2, 1), 16000)
    with pytest.raises(InputError, match="shape"):
        sound_of(np.zeros((2, 3, 4)), 16000)
    with pytest.raises(InputError, match="no samples"):
        sound_of(np.zeros(0), 16000)


def fake(rate: int = 16000, channels: int = 1, size: int = 0, data: bytes = b"") -> bytes:
    about = struct.pack("<HHIIHH", 1, channels, rate, 2 * rate * channels, 2 * channels, 16)
    return b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt \x10\0\0\0" + about + b"data" + struct.pack("<I", size) + data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"not a sound at all", "cannot be read as sound .*ffmpeg"),
        (b"\x89PNG\r\n\x1a\n" + bytes(500), "cannot be read as sound"),
        (b"RIFF\xff\xff\xff\xffWAVEfmt ", "cannot be read as sound"),
        (fake(), "has no samples"),
        (fake(rate=7, size=4, data=bytes(4)), "7 samples per second"),
        (fake(channels=200, size=400, data=bytes(400)), "200 channels"),
    ],
)
def test_what_is_no_sound_is_refused_in_one_line(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_bytes(data)
    with pytest.raises(IntegrandError, match=said) as caught:
        read(tmp_path / "bad.wav")
    assert "\n" not in str(caught.value)


def test_other_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Check the path"):
        read(tmp_path / "none.wav")
    with pytest.raises(FileError, match="folder"):
        read(tmp_path)


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "long.flac", np.zeros(8000 * 700), 8000)  # ten minutes and more in a few bytes
    with pytest.raises(FileError, match=r"has 700 s .*; expected at most 600 s at once.*--start 0 --end 60"):
        read(tmp_path / "long.flac")
    assert read(tmp_path / "long.flac", start=690, end=691).seconds == 1.0
    monkeypatch.setattr(sound_files, "LARGEST", 1000)
    with pytest.raises(FileError, match=r"expected a sound file .* of at most"):
        read(SPEECH)


def test_samples_that_are_no_numbers(tmp_path: Path) -> None:
    samples = tone(440, 16000)
    samples[800] = np.nan
    soundfile.write(tmp_path / "nan.wav", samples, 16000, subtype="FLOAT")
    with pytest.raises(InputError, match=r"no number .* at 0\.050 s"):
        read(tmp_path / "nan.wav")


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(sound_files.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"integrand\[audio\]"):
        read(SPEECH)


def test_the_wav_of_a_page_is_the_sound() -> None:
    sound = Sound(np.append(tone(440, 16000), 2.0).astype(np.float32), 16000)
    with wave.open(io.BytesIO(wav_bytes(sound))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        heard = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
    assert np.abs(heard[:-1] - sound.samples[:-1]).max() < 1e-4
    assert heard[-1] == 1.0


@pytest.mark.parametrize(("rate", "wanted"), [(44100, 16000), (8000, 16000), (48000, 16000), (16000, 44100), (11025, 16001)])
def test_a_tone_stays_a_tone(rate: int, wanted: int) -> None:
    found = resampled(tone(440, rate), rate, wanted)
    assert len(found) == -(-len(tone(440, rate)) * wanted // rate)
    inside = slice(wanted // 50, len(found) - wanted // 50)
    assert np.abs(found - tone(440, wanted, len(found) / wanted)[: len(found)])[inside].max() < 1e-4


def test_what_is_too_high_is_filtered_out() -> None:
    found = resampled(tone(9000, 44100), 44100, 16000)
    assert np.abs(found[500:-500]).max() < 1e-4


def test_as_scipy_resamples() -> None:
    signal = pytest.importorskip("scipy.signal")
    slow = np.cumsum(np.random.default_rng(0).normal(size=8000)) / 100  # nothing much near the Nyquist frequency
    slow = signal.filtfilt(*signal.butter(6, 0.2), slow)
    other = signal.resample_poly(slow, 160, 441, window=("kaiser", 12.0))
    found = resampled(slow, 44100, 16000)
    assert np.abs(found - other[: len(found)])[200:-200].max() < 2e-3 * np.abs(slow).max()


def test_resampling_is_noted() -> None:
    assert sound_of(tone(440, 8000), 8000).at(16000).notes == (
        "resampled from 8,000 to 16,000 samples per second (windowed sinc)",
    )


@pytest.mark.parametrize("rate", [0, -1, 16000.5, "16k", True, float("nan"), 10**9])
def test_rates_that_are_none(rate: object) -> None:
    with pytest.raises(OptionError, match="samples per second"):
        check_rate(rate, "rate")
