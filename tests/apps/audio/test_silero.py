"""silero-vad on real speech: the package's own probabilities, and values against a plain sum over the same network."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from integrand.apps import audio
from integrand.apps.audio import silero
from integrand.apps.audio.silero import WINDOW, SileroVad, load_silero
from integrand.apps.audio.sound_files import as_tensor
from integrand.errors import FileError, InputError, MissingExtraError, OptionError, TargetError

pytest.importorskip("soundfile")
package = pytest.importorskip("silero_vad")

SPEECH = Path(__file__).parents[3] / "examples" / "speech.flac"


@pytest.fixture(scope="module")
def network() -> SileroVad:
    return load_silero()[0]


@pytest.fixture(scope="module")
def model() -> audio.SoundModel:
    return audio.load("silero", device="cpu")


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return as_tensor(audio.read(SPEECH))


def reference(x: torch.Tensor) -> torch.Tensor:
    """What the package's own wrapper says of each window, one call for each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapper = package.load_silero_vad()
    wrapper.reset_states()
    with torch.no_grad():
        parts = [part for part in x.split(WINDOW, 1) if part.shape[1] == WINDOW]
        return torch.cat([wrapper(part, 16000) for part in parts], 1)


def test_the_probabilities_are_the_packages(network: SileroVad, x: torch.Tensor) -> None:
    known = reference(x)
    assert float(known.max()) > 0.99
    assert float(known.min()) < 0.02
    whole = x[:, : WINDOW * known.shape[1]]
    with torch.no_grad():
        assert torch.allclose(network(whole).sigmoid(), known, atol=1e-5)


def test_an_unfinished_window_is_filled_with_silence(network: SileroVad, x: torch.Tensor) -> None:
    with torch.no_grad():
        short = x[:, : 5 * WINDOW + 100]
        filled = torch.nn.functional.pad(short, (0, WINDOW - 100))
        assert torch.equal(network(short), network(filled))
        assert network(short).shape == (1, 6)


def test_it_goes_on_from_where_it_was(network: SileroVad, x: torch.Tensor) -> None:
    with torch.no_grad():
        later = network.after(x[:, : 30 * WINDOW])
        assert torch.allclose(later(x[:, 30 * WINDOW :]), network(x)[:, 30:], atol=1e-5)
    assert float(network.state.abs().max()) == 0.0
    assert later.memory is network.memory
    with pytest.raises(InputError, match="whole windows"):
        network.after(x[:, :100])


def test_rows_do_not_hang_on_each_other(network: SileroVad, x: torch.Tensor) -> None:
    with torch.no_grad():
        both = network(torch.cat([x, 0.3 * x.flip(1)]))
        assert torch.allclose(both[:1], network(x), atol=1e-5)


@pytest.fixture(scope="module")
def moment(model: audio.SoundModel) -> audio.ExplainedSound:
    return audio.explain(model, audio.read(SPEECH), target=0.4)


def test_values_are_those_of_a_plain_sum(network: SileroVad, x: torch.Tensor, moment: audio.ExplainedSound) -> None:
    frame, nodes = 12, 500
    part = x[:, : (frame + 1) * WINDOW]
    gradient = torch.zeros(part.shape, dtype=torch.float64)
    for even in ((torch.arange(nodes).double() + 0.5) / nodes).split(50):
        times, weights = even**4, 4 * even**3 / nodes  # it hears speech early on the way: most nodes are near silence
        points = (times.float()[:, None] * part).requires_grad_()
        network(points)[:, frame].sigmoid().sum().backward()
        gradient += (weights[:, None] * points.grad).sum(0, keepdim=True)
    known = (part * gradient).reshape(-1, WINDOW).sum(1).numpy()
    values, one = moment.values[: frame + 1], moment.certificate
    assert one.converged
    assert known.sum() == pytest.approx(one.score - one.baseline_score, abs=1e-2)
    assert moment.score == pytest.approx(float(network(part)[0, frame].sigmoid().detach()), abs=1e-5)
    assert np.abs(values - known).sum() <= (one.tol + 0.01) * np.abs(known).sum()
    # About 98% of sums are within their errors; the reference has one of its own.
    assert (np.abs(values - known) <= 2 * moment.errors[: frame + 1] + 5e-3).all()


def test_the_values_add_up_to_the_change(moment: audio.ExplainedSound) -> None:
    one = moment.certificate
    change = one.score - one.baseline_score
    assert change > 0.9
    assert moment.values.sum() == pytest.approx(change + one.residual, abs=1e-6)
    assert abs(moment.values.sum() - change) <= one.tol * one.magnitude


def test_what_comes_later_gets_nothing(moment: audio.ExplainedSound) -> None:
    assert np.array_equal(moment.values[13:], np.zeros(len(moment.values) - 13))
    assert np.array_equal(moment.errors[13:], np.zeros(len(moment.values) - 13))
    assert moment.asked == pytest.approx((0.384, 0.416))
    assert moment.between(1.0, 2.0) == (0.0, 0.0)


def test_the_sentence_names_the_shortest_stretch_with_half_of_it(moment: audio.ExplainedSound) -> None:
    start, end, value, error = moment.mostly
    assert value == pytest.approx(moment.between(start, end)[0])
    assert value >= 0.5 * (moment.certificate.score - moment.certificate.baseline_score)
    assert 0 < error < 0.1 * value
    assert 0.3 < start < end < 0.42  # he begins to speak at 0.32 s
    assert f"{start:.3f}–{end:.3f} s" in moment.sentence or f"{start:.2f}–{end:.2f} s" in moment.sentence
    assert moment.sentence.startswith("Speech 0.9") or moment.sentence.startswith("Speech over 0.9")
    assert "numbers good to" in moment.sentence


def test_speech_raises_the_mean_and_the_pause_does_not(model: audio.SoundModel) -> None:
    found = audio.explain(model, audio.read(SPEECH), tol=0.05)
    assert found.score == pytest.approx(found.outputs.mean(), abs=1e-5)
    speech, pause = found.between(0.32, 1.25)[0], found.between(1.35, 1.65)
    assert speech > 0.4
    assert abs(pause[0]) < 0.05 * speech


def test_cells_add_up_to_the_same_change(model: audio.SoundModel, moment: audio.ExplainedSound) -> None:
    found = audio.explain(model, audio.read(SPEECH), target=0.4, explain="spectrogram")
    one = found.certificate
    assert one.converged
    assert (one.score, one.baseline_score) == pytest.approx((moment.score, moment.certificate.baseline_score), abs=1e-4)
    cells, errors = found.cells
    assert cells.shape == errors.shape == found.grid.shape
    assert cells.sum(0) == pytest.approx(found.values, abs=1e-9)
    assert abs(cells.sum() - (one.score - one.baseline_score)) <= one.tol * one.magnitude
    assert not cells[:, 13:].any()
    # The voice of a man is below a kilohertz; hiss above four is not what the detector goes by.
    low = cells[found.grid.edges[1:] <= 1000].sum()
    assert low > 0.4 * cells.sum()


def test_what_was_long_before_is_held(model: audio.SoundModel) -> None:
    whole = audio.read(SPEECH)
    long = audio.Sound(np.tile(whole.samples, 4), whole.rate, "long")
    found = audio.explain(model, long, target=8.6, tol=0.1)
    with torch.no_grad():
        known = model.module(as_tensor(long)).sigmoid()[0, int(8.6 / 0.032)]
    assert found.score == pytest.approx(float(known), abs=1e-5)
    assert "is held as the model heard it" in found.notes[-1]
    assert not found.values[: found.first].any()
    assert found.first == int(8.6 / 0.032) - 250
    assert found.values.sum() == pytest.approx(
        found.score - found.certificate.baseline_score, abs=0.1 * found.certificate.magnitude
    )


def test_windows_are_as_fine_as_what_is_explained_allows(model: audio.SoundModel) -> None:
    """Eight seconds of a long recording have windows of their own frame, until there are too many in all."""
    whole = audio.read(SPEECH)
    for copies, length in ((8, 0.032), (60, 0.128)):  # 18 and 138 s: 575 and 4,313 windows of 32 ms
        long = audio.Sound(np.tile(whole.samples, copies), whole.rate, "long")
        found = audio.explain(model, long, target=17.0, tol=0.5)
        assert np.diff(found.times)[:-1] == pytest.approx(length)
        assert len(found.values) <= 1600
        assert found.values[found.first :].any()
        page = found.html()
        assert ("cannot be played here" in page) == (copies == 60)
        assert ("<audio" in page) == (copies == 8)


def test_another_rate_is_resampled(model: audio.SoundModel) -> None:
    heard = audio.read(SPEECH)
    found = audio.explain(model, heard.at(8000).samples, rate=8000, target=0.9, tol=0.1)
    assert found.sound.rate == 16000
    assert found.score > 0.9
    assert any("resampled from 8,000" in note for note in found.notes)


@pytest.mark.parametrize("target", [99.0, -1.0, (0.5, 0.4), "speech", (1.0, 2.0, 3.0), float("nan"), True])
def test_moments_that_are_none(model: audio.SoundModel, target: object) -> None:
    with pytest.raises(TargetError, match="expected a"):
        audio.explain(model, SPEECH, target=target)


def test_too_long(model: audio.SoundModel) -> None:
    long = audio.Sound(np.zeros(16000 * 130, np.float32) + 1e-3, 16000, "long")
    with pytest.raises(InputError, match=r"130 s would be explained at once.*--at 12\.5"):
        audio.explain(model, long)


def test_names_of_models() -> None:
    with pytest.raises(OptionError, match="expected silero"):
        audio.load("whisper")


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    load_silero()
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(silero, "FILE", "silero_vad.onnx")
    with pytest.raises(FileError, match=r"silero-vad>=6\.2"):
        load_silero()
    monkeypatch.setattr(silero.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"integrand\[audio\]"):
        load_silero()
