"""``integrand audio`` as a user types it, with real speech, models of one's own and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from integrand.cli.app import app
from integrand.errors import IntegrandError

pytest.importorskip("soundfile")
pytest.importorskip("silero_vad")

SPEECH = Path(__file__).parents[3] / "examples" / "speech.flac"

OWN = """
import torch
from torch import nn
from integrand.audio import SoundModel

class Halves(nn.Module):
    def forward(self, x):
        half = x.shape[1] // 2
        return torch.stack([x[:, :half].square().sum(1), x[:, half:].square().sum(1)], 1)

def make():
    return SoundModel(Halves().eval(), "halves", 8000, classes=("early", "late"))

def broken(x):
    return x @ torch.ones(3, 3)
"""


def run(*words: object, fails: bool = False) -> str:
    done = CliRunner().invoke(app, ["audio", *map(str, words)])
    if fails:
        assert done.exit_code != 0
        if isinstance(done.exception, IntegrandError):
            assert "\n" not in str(done.exception)
            return str(done.exception)
        return done.output
    assert done.exception is None, done.exception
    return done.output


def test_the_first_command_gives_a_page_to_listen_to(tmp_path: Path) -> None:
    out = run(SPEECH, "--out", tmp_path / "speech.html", "--tol", "0.1")
    assert out.startswith("Speech 0.6")
    assert "mostly because of" in out.splitlines()[0]
    page = (tmp_path / "speech.html").read_text(encoding="utf-8")
    assert "data:audio/wav;base64," in page
    assert "integrand" in page


def test_a_moment_as_numbers(tmp_path: Path) -> None:
    said = json.loads(run(SPEECH, "--at", "0.4", "--json"))
    assert said["when"] == "at 0.4 s"
    assert said["score"] > 0.99
    assert sum(one["attribution"] for one in said["windows"]) == pytest.approx(said["score"], abs=0.03)
    run(SPEECH, "--at", "0.35-0.45", "--window", "16ms", "--baseline", "room", "--out", tmp_path / "found.csv", "--tol", "0.1")
    assert len((tmp_path / "found.csv").read_text().splitlines()) == 1 + round(2.3 / 0.016)


def test_cells_and_the_logit() -> None:
    out = run(SPEECH, "--at", "0.4", "--explain", "spectrogram", "--score", "logit", "--verbose", "--tol", "0.1", "--end", "1")
    assert "speech at 0.4 s" not in out.splitlines()[0]
    assert "Gradients evaluated" in out


def test_a_model_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_sounds.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "--trust" in run(SPEECH, "--model", "my_sounds:make", fails=True)
    out = run(SPEECH, "--model", "my_sounds:make", "--trust")
    assert out.startswith("Early")
    assert "resampled from 16,000 to 8,000" in out
    assert run(SPEECH, "--model", "my_sounds:make", "--trust", "--target", "late").startswith("Late")
    assert "--target" in run(SPEECH, "--model", "my_sounds:make", "--trust", "--at", "1", fails=True)
    assert "the model takes waveforms" in run(SPEECH, "--model", "my_sounds:broken", "--trust", fails=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--at", "soon"], "expected a second"),
        (["--at", "99"], "got 99 s of a sound of 2.3 s"),
        (["--at", "1", "--target", "0"], "expected one of them"),
        (["--target", "0"], "expected --at"),
        (["--window", "a while"], "such as 32ms"),
        (["--window", "0"], "such as 32ms"),
        (["--window", "1us"], "such as 32ms"),
        (["--model", ""], "is empty"),
        (["--model", "whisper"], "expected silero"),
        (["--baseline", "quiet"], "silence, room, noise, mean"),
        (["--baseline", "none.wav"], "Check the path"),
        (["--channel", "2"], "expected 1 to 1"),
        (["--start", "5"], "start < end"),
        (["--out", "speech.mp4"], ".html"),
        (["--rate", "3"], "samples per second"),
        (["--rate", "8000"], "silero-vad, which takes 16,000 samples per second; leave it out"),
    ],
)
def test_options_that_make_no_sense(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in run(SPEECH, *words, fails=True)


def test_files_that_are_no_sound(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a sound")
    assert "cannot be read as sound" in run(tmp_path / "notes.txt", fails=True)
    assert "Check the path" in run(tmp_path / "none.wav", fails=True)


def test_digital_silence_is_explained_by_nothing(tmp_path: Path) -> None:
    import soundfile

    soundfile.write(tmp_path / "silence.wav", np.zeros(8000), 16000)
    out = run(tmp_path / "silence.wav")
    said, note = out.splitlines()
    assert said.startswith("Speech 0.00")
    assert said.endswith("over 0.5 s, as at the baseline, silence (zeros): no moment of it adds anything.")
    assert "Expected a baseline that differs" in note
    assert "no moment of it adds anything" not in run(tmp_path / "silence.wav", "--baseline", "room", "--tol", "0.2")


def test_channels_that_cancel_are_said_and_one_can_be_taken(tmp_path: Path) -> None:
    import soundfile

    samples, rate = soundfile.read(SPEECH, frames=16000)
    soundfile.write(tmp_path / "phase.wav", np.stack([samples, -samples], 1), rate)
    out = run(tmp_path / "phase.wav", "--at", "0.4")
    assert "no moment of it adds anything" in out
    assert "note: the channels cancel each other" in out
    assert "--channel 1" in out
    assert run(tmp_path / "phase.wav", "--at", "0.4", "--channel", "1", "--tol", "0.1").startswith("Speech 0.99")
    soundfile.write(tmp_path / "left.wav", np.stack([samples, 0 * samples], 1), rate)
    assert "cancel" not in run(tmp_path / "left.wav", "--at", "0.4", "--tol", "0.1")


def test_moments_of_a_part_count_from_its_beginning() -> None:
    said = run(SPEECH, "--start", "1.5", "--at", "1.9", fails=True)
    assert "got 1.9 s of a sound of 0.8 s; expected a moment, or a stretch, from 0 to 0.8 s." in said
    assert "beginning of the part, at 1.5 s of the recording" in said
    out = run(SPEECH, "--start", "1.5", "--at", "0.4", "--tol", "0.1")
    assert out.startswith("Speech")
    assert "the part from 1.5 to 2.3 s of the recording; seconds count from its beginning" in out
