"""Models of sound whose attributions are known in closed form; transforms inside of models; baselines; bad input."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand import audio
from integrand.apps.audio.sound_baselines import QUIET, baseline_waves
from integrand.apps.audio.sound_spectrum import ShortTime, mel_edges, windows
from integrand.errors import GradientError, InputError, NonFiniteError, OptionError, TargetError
from integrand.files import made_here

RATE = 8000
SOUND = 0.1 * np.random.default_rng(1).normal(size=RATE // 2).astype(np.float32)
EDGES = np.arange(0, len(SOUND) + 1, 400)  # windows of 50 ms


def by_window(values: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, EDGES[:-1])


class Filter(nn.Module):
    """A linear filter, and the sum of its squared output: with h the filter, F = |h * x|^2."""

    def __init__(self, square: bool) -> None:
        super().__init__()
        self.square = square
        self.taps = nn.Parameter(torch.tensor([[[0.5, -1.0, 0.25]]]))

    def forward(self, x: Tensor) -> Tensor:
        found = nn.functional.conv1d(x[:, None], self.taps.to(x.dtype), padding=1)[:, 0]
        return found.square().sum(1) if self.square else found[:, 1000:3000].sum(1)


@pytest.mark.parametrize("baseline", ["silence", "noise", "room"])
def test_a_linear_filter_has_a_closed_form(baseline: str) -> None:
    model = Filter(square=False).eval()
    weights = torch.autograd.functional.jacobian(model, torch.zeros(1, len(SOUND)))[0, 0].numpy()
    start = baseline_waves(baseline, audio.Sound(SOUND, RATE))[0][0, 0].numpy()
    found = audio.explain(model, SOUND, baseline, rate=RATE, window=0.05)
    assert found.values == pytest.approx(by_window((SOUND - start) * weights), abs=1e-5)
    assert not found.values[8:].any()  # the filter does not look there
    assert not found.values[:2].any()


def test_energy_has_a_closed_form() -> None:
    """F = x' A x with A symmetric: from silence each sample gets x_i (A x)_i."""
    model = Filter(square=True).eval()
    x = torch.as_tensor(SOUND)[None].requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x)
    found = audio.explain(model, SOUND, rate=RATE, window=0.05, tol=0.01)
    known = by_window((x * gradient / 2)[0].detach().numpy())
    assert np.abs(found.values - known).sum() <= 0.01 * np.abs(known).sum()
    assert (np.abs(found.values - known) <= found.errors + 1e-6).all()


def test_cells_over_frequencies_are_the_samples_shared_out_over_frames() -> None:
    """The transform is linear, so that a frame's cells add up to what its samples add, each by its share in the frame."""
    model = Filter(square=True).eval()
    x = torch.as_tensor(SOUND)[None].requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x)
    samples = (x * gradient / 2)[0].detach().double().numpy()
    transform = ShortTime.near(RATE)
    shares = transform.overlap(len(SOUND))
    assert shares.sum(0) == pytest.approx(np.ones(len(SOUND)))
    hop = transform.hop / RATE
    found = audio.explain(model, SOUND, rate=RATE, window=hop, explain="spectrogram", tol=0.005)
    frames = shares @ samples
    count = found.grid.shape[1]
    known = np.append(frames[: count - 1], frames[count - 1 :].sum())
    assert np.abs(found.values - known).sum() <= 0.01 * np.abs(known).sum()
    waveform = audio.explain(model, SOUND, rate=RATE, explain="waveform", tol=0.005)
    assert found.values.sum() == pytest.approx(waveform.values.sum(), rel=0.01)


def test_the_transform_is_undone() -> None:
    for size, hop, samples in ((256, 64, 4000), (256, 64, 4001), (64, 32, 500), (16, 4, 7)):
        x = torch.randn(2, samples, dtype=torch.float64)
        parts = ShortTime(size, hop).forward(x)
        assert parts.shape == (2, 2, size // 2 + 1, ShortTime(size, hop).frames(samples))
        assert torch.allclose(ShortTime(size, hop).inverse(parts, samples), x, atol=1e-12)
    with pytest.raises(OptionError, match="can be undone"):
        ShortTime(256, 200)


class ToneDetector(nn.Module):
    """How much of 1 kHz there is, as a small network on a spectrogram (N, 129, frames) of 8 kHz says it."""

    def forward(self, spectrogram: Tensor) -> Tensor:
        return torch.tanh(spectrogram[:, 30:35].sum((1, 2)) / 200)[:, None]


def tones() -> np.ndarray:
    """1 kHz from 0.2 to 0.3 s, in 3 kHz all the time and a little noise."""
    t = np.arange(RATE // 2) / RATE
    there = (t >= 0.2) & (t < 0.3)
    noise = 1e-3 * np.random.default_rng(0).normal(size=len(t))
    return (0.5 * np.sin(2 * np.pi * 1000 * t) * there + 0.5 * np.sin(2 * np.pi * 3000 * t) + noise).astype(np.float32)


@pytest.mark.parametrize("inside", [True, False])
def test_a_tone_gets_what_a_detector_of_tones_says(inside: bool) -> None:
    """With the transform inside of the model, or as a transform whose own cells are explained."""
    first = audio.Spectrogram(256, 64, rate=RATE)
    model = nn.Sequential(first, ToneDetector()).eval() if inside else ToneDetector().eval()
    how = {} if inside else {"transform": first}
    found = audio.explain(model, tones(), rate=RATE, explain="spectrogram", window=0.05, tol=0.01, **how)
    change = found.certificate.score - found.certificate.baseline_score
    cells, _ = found.cells
    low, high = found.grid.edges[:-1], found.grid.edges[1:]
    band = (high > 900) & (low < 1100)
    assert found.certificate.converged
    assert cells.sum() == pytest.approx(change, rel=0.02)
    assert cells[band, 4:6].sum() > 0.9 * change
    assert np.abs(cells[~band]).sum() < 0.1 * change
    assert found.mostly[0] == pytest.approx(0.2)
    assert found.mostly[1] <= 0.3 + 1e-9


def test_a_waveform_is_explained_through_the_transform_of_a_model() -> None:
    first = audio.Spectrogram(256, 64, rate=RATE)
    apart = audio.explain(ToneDetector().eval(), tones(), rate=RATE, window=0.05, transform=first, tol=0.01)
    whole = audio.explain(nn.Sequential(first, ToneDetector()).eval(), tones(), rate=RATE, window=0.05, tol=0.01)
    assert apart.values == pytest.approx(whole.values)
    assert apart.values[4:6].sum() > 0.9 * apart.values.sum()


def test_a_spectrogram_without_a_waveform() -> None:
    first = audio.Spectrogram(256, 64, rate=RATE)
    values = first(torch.as_tensor(tones())[None])[0]
    given = audio.SoundSpectrum(values, 0.5, first.frequencies, "tones")
    found = audio.explain(ToneDetector().eval(), given, explain="spectrogram")
    with torch.no_grad():
        assert found.score == pytest.approx(float(ToneDetector()(values[None])))
    assert found.values.sum() == pytest.approx(found.score, rel=0.02)
    assert "<audio" not in found.html()
    for baseline, words in (("mean", "the mean over time"), (0.0, "0 everywhere"), (torch.zeros_like(values), "yours")):
        assert words in audio.explain(ToneDetector().eval(), given, baseline, explain="spectrogram", tol=0.1).baseline
    with pytest.raises(OptionError, match="there is no waveform"):
        audio.explain(ToneDetector().eval(), given)
    with pytest.raises(OptionError, match="for a spectrogram"):
        audio.explain(ToneDetector().eval(), given, "room", explain="spectrogram")


def test_a_transform_without_frequencies_has_rows() -> None:
    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(len(x), 4, -1, 100).square().mean(3)  # (N, 4, 10): rows that mean nothing

    found = audio.explain(lambda s: s[:, 2].sum(1), SOUND, rate=RATE, transform=Pooled(), explain="spectrogram", window=0.1)
    cells, _ = found.cells
    assert cells.shape == (4, 5)
    assert cells[2].sum() == pytest.approx(found.score, rel=1e-3)
    assert not cells[[0, 1, 3]].any()
    with pytest.raises(InputError, match="frequency before time"):
        audio.explain(lambda s: s.sum(1), SOUND, rate=RATE, transform=lambda x: x**2, explain="spectrogram")


class Classes(nn.Module):
    """Two classes by the energy of the two halves of a sound."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[1] // 2
        return torch.stack([x[:, :half].square().sum(1), 1.5 * x[:, half:].square().sum(1)], 1)


def test_classes_and_their_names() -> None:
    model = audio.SoundModel(Classes().eval(), "halves", RATE, classes=("first", "second"))
    found = audio.explain(model, SOUND, rate=RATE, window=0.05)
    assert (found.label, found.when) == ("second", "")
    assert not found.values[:5].any()
    for target in ("first", 0, "0"):
        other = audio.explain(model, SOUND, rate=RATE, target=target)
        assert other.label == "first"
        assert other.certificate.target == "first (logit)"
    sure = audio.explain(model, SOUND, rate=RATE, score="probability")
    with torch.no_grad():
        assert sure.score == pytest.approx(float(Classes()(torch.as_tensor(SOUND)[None]).softmax(1)[0, 1]), abs=1e-5)
    with pytest.raises(TargetError, match="0 to 1, or one of first, second"):
        audio.explain(model, SOUND, rate=RATE, target="third")


def test_models_of_your_own_that_speak_at_each_moment() -> None:
    model = audio.SoundModel(lambda x: x.unfold(1, 400, 400).square().sum(2), rate=RATE, frame=0.05, label="energy")
    found = audio.explain(model, SOUND, rate=RATE, target=(0.1, 0.2))
    assert found.when == "from 0.1 to 0.2 s"
    known = np.square(SOUND.astype(float)).reshape(-1, 400).sum(1)
    assert found.outputs == pytest.approx(known, rel=1e-4)
    assert found.values[2:4] == pytest.approx(known[2:4] / 2, rel=0.02)
    assert not found.values[[0, 1, 4, 5]].any()


@pytest.mark.parametrize(("name", "level"), [("room", QUIET), ("noise", float(np.std(SOUND)))])
def test_noise_has_its_level_and_is_the_same_each_time(name: str, level: float) -> None:
    sound = audio.Sound(SOUND, RATE)
    waves, words = baseline_waves(name, sound, draws=3)
    assert waves.shape == (3, 1, len(SOUND))
    assert float(waves.std()) == pytest.approx(level, rel=0.05)
    assert torch.equal(waves, baseline_waves(name, sound, draws=3)[0])
    assert "3 averaged" in words


def test_the_mean_spectrum_is_that_of_the_sound_at_every_moment() -> None:
    sound = audio.Sound(tones(), RATE)
    wave = baseline_waves("mean", sound)[0][0]
    transform = ShortTime.near(RATE)
    size = transform.forward(wave).square().sum(1).sqrt()[0]
    at = int(1000 / RATE * transform.size)
    own = transform.forward(torch.as_tensor(tones())[None]).square().sum(1).sqrt()[0, at]
    # 1 kHz is there a fifth of the time, and steady at a fifth of its size afterwards.
    assert float(own.max() / own.min()) > 50
    assert float(size[at, 5:-5].max()) < 0.5 * float(own.max())


def test_another_recording_as_baseline(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    other = 0.1 * np.random.default_rng(5).normal(size=1000)
    soundfile.write(tmp_path / "other.wav", other, RATE, subtype="FLOAT")
    model = Filter(square=False).eval()
    for given in (tmp_path / "other.wav", str(tmp_path / "other.wav"), audio.Sound(other.astype(np.float32), RATE, "other")):
        found = audio.explain(model, SOUND, given, rate=RATE)
        assert "repeated" in found.baseline
        with torch.no_grad():
            known = float(model(torch.as_tensor(np.resize(other, len(SOUND)), dtype=torch.float32)[None]))
        assert found.certificate.baseline_score == pytest.approx(known, abs=1e-4)
    with pytest.raises(OptionError, match="expected one of silence, room, noise, mean"):
        audio.explain(model, SOUND, "quiet", rate=RATE)


def magnitudes(x: Tensor) -> Tensor:
    """The sum of a spectrogram, whose gradient is not a number where there is no sound."""
    return torch.stft(x, 256, 64, window=torch.hann_window(256), return_complex=True).abs().square().sqrt().sum((1, 2))


def test_silence_is_no_obstacle() -> None:
    """Magnitudes grow with the sound: gradient times input is the integral."""
    result = audio.explain(magnitudes, SOUND, rate=RATE, tol=1e-3)
    assert result.certificate.converged
    assert abs(result.certificate.residual) < 1e-5 * result.certificate.score


def test_silence_inside_a_sound_says_what_to_do() -> None:
    with pytest.raises(NonFiniteError, match="--baseline room"):
        audio.explain(magnitudes, np.where(np.arange(len(SOUND)) < len(SOUND) // 2, SOUND, 0), rate=RATE)
    assert audio.explain(magnitudes, SOUND, "room", rate=RATE, tol=0.05).certificate.converged


def test_windows_and_bands() -> None:
    assert windows(1.0, 0.25).tolist() == [0, 0.25, 0.5, 0.75, 1.0]
    assert len(windows(0.01, 0.032)) == 2
    edges = mel_edges(4000, 24, 31.25)
    assert edges[0] == 0
    assert edges[-1] == 4000
    assert (np.diff(edges) >= 31).all()
    found = audio.explain(Filter(square=True).eval(), np.tile(SOUND, 30), rate=RATE, tol=0.1)
    assert 200 < len(found.values) <= 400
    for window in (0.0, -1.0, 1e-6, float("nan"), "32ms"):
        with pytest.raises(OptionError, match="window="):
            audio.explain(Filter(square=True).eval(), SOUND, rate=RATE, window=window)
    with pytest.raises(OptionError, match="at least that"):
        audio.explain(Filter(square=True).eval(), SOUND, rate=RATE, window=0.001, explain="spectrogram")


def test_calls_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match="'waveform' or 'spectrogram'"):
        audio.explain("silero", SOUND, rate=RATE, explain="mel")
    with pytest.raises(OptionError, match="expected 'silero'"):
        audio.explain(3, SOUND, rate=RATE)
    with pytest.raises(OptionError, match="from waveforms"):
        audio.explain(Classes(), SOUND, rate=RATE, transform=3)
    with pytest.raises(InputError, match=r"SoundModel\(model, frame=seconds\)"):
        audio.explain(lambda x: x[:, None, :].repeat(1, 2, 1), SOUND, rate=RATE)
    with pytest.raises(OptionError, match="draws=0"):
        audio.explain(Classes(), SOUND, "noise", rate=RATE, draws=0)
    with pytest.raises(GradientError):
        audio.explain(lambda x: x.detach().sum(1), SOUND, rate=RATE)


def test_files_and_rows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model = audio.SoundModel(Classes().eval(), "halves", RATE, classes=("=first", "second"))
    found = audio.explain(model, SOUND, rate=RATE, target=0, window=0.1, explain="spectrogram")
    for ending in ("html", "png", "svg", "pdf", "csv", "json"):
        file = found.save(tmp_path / f"found.{ending}")
        assert made_here(file), ending
    rows = list(csv.DictReader(io.StringIO((tmp_path / "found.csv").read_text())))
    assert len(rows) == found.cells[0].size
    assert sum(float(row["attribution"]) for row in rows) == pytest.approx(found.values.sum())
    assert rows[0]["explained"] == "'=first"
    said = json.loads((tmp_path / "found.json").read_text())
    assert np.sum(said["cells"]) == pytest.approx(found.values.sum())
    assert [one["attribution"] for one in said["windows"]] == pytest.approx(found.values.tolist())
    with pytest.raises(OptionError, match=r"expected \.html"):
        found.save(tmp_path / "found.wav")
    row = found.row()
    assert row.features[0] == "0.00–0.10 s"
    assert row.attributions == pytest.approx(found.values)
    assert found.sentence in repr(found)
    assert "<iframe" in found._repr_html_()


def test_many_recordings_go_through_the_batch_runner(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    model = audio.SoundModel(Classes().eval(), "halves", RATE, classes=("first", "second"))
    sounds = {f"sound {k}": (k + 1) * SOUND for k in range(3)} | {"bad": np.full(100, np.nan, np.float32)}
    explain = audio.SoundExplainer(model, rate=RATE, window=0.1)
    done = ig.explain_many(sounds, explain, tmp_path / "out", progress=False)
    assert (done.summary.explained, done.summary.failed) == (3, 1)
    known = audio.explain(model, 2 * SOUND, rate=RATE, window=0.1)
    row = next(row for row in done.table.arrow().to_pylist() if row["key"] == "sound 1")
    assert row["attributions"] == pytest.approx(known.values.tolist(), rel=1e-6)
    assert ig.explain_many(sounds, explain, tmp_path / "out", progress=False).summary.known >= 3
