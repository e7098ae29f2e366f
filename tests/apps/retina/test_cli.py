"""``integrand retina``, on scikit-image's photo of a retina."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner, Result

from integrand.apps import retina
from integrand.apps.images.model import Network
from integrand.apps.retina import NOTICE
from integrand.apps.retina.model import PREPROCESS, SCORES, Evidence, Grader
from integrand.cli import main
from integrand.cli.app import app

pytest.importorskip("efficientnet_lite_pytorch")
skimage = pytest.importorskip("skimage")


@pytest.fixture
def eye(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    from skimage import data

    Image.fromarray(data.retina()).save(tmp_path / "eye.jpg", quality=95)
    return tmp_path / "eye.jpg"


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the grader, which takes seconds a photo, one that finds every eye healthy: for what is said beside it."""
    layer = nn.Linear(3, 4)
    with torch.no_grad():
        layer.weight.fill_(0.1)
        layer.bias.fill_(-4.0)
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), layer).eval()
    monkeypatch.setattr(
        retina, "load", lambda device: Grader(Network("calm", Evidence(network), PREPROCESS, SCORES, "here", (), 5))
    )


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.setattr(sys, "argv", ["integrand", *words])
    return CliRunner().invoke(app, list(words))


def test_a_healthy_eye(eye: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Grader.examine_photos
    monkeypatch.setattr(Grader, "examine_photos", lambda self, files, **how: whole(self, files, **how, steps=8))
    done = run(monkeypatch, "retina", "eye.jpg", "--tol", "0.5", "--out", "eye.json")
    assert done.exit_code == 0, done.output
    found = json.loads((eye.parent / "eye.json").read_text(encoding="utf-8"))
    assert found["title"] == "grade 0 of 4: no apparent retinopathy"
    assert found["explained"]["label"] == "any retinopathy"
    assert found["grade"]["stated"] == 0
    assert found["notice"] == NOTICE
    assert sum(answer["probability"] for answer in found["answers"]) == pytest.approx(1)
    grades = {answer["index"]: answer["probability"] for answer in found["answers"]}
    assert found["explained"]["probability"] == pytest.approx(1 - grades[0], abs=1e-9)
    assert found["rival"] is None
    said = done.stdout.splitlines()
    assert said[0].startswith("Grade 0 of 4, no retinopathy")
    assert said[1].startswith("grades [0: 9")
    assert said[2] == found["rule"]
    assert NOTICE in said


def test_a_target_that_is_none(eye: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["integrand", "retina", "eye.jpg", "--target", "blindness"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "blindness" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.usefixtures("calm")
def test_what_is_no_eye_gets_no_diagnosis_as_its_headline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    done = run(monkeypatch, "retina", "noise.png", "--tol", "0.9", "--baseline", "black", "--json")
    found = json.loads(done.stdout)
    assert found["title"].startswith("this does not look like a photo of a retina")
    assert any("the grade means nothing" in note for note in found["notes"])


@pytest.mark.slow
@pytest.mark.usefixtures("calm")
def test_a_card_opens_the_page_of_its_own_patient(eye: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = eye.parent
    for patient in ("pat1", "pat2"):
        (folder / patient).mkdir()
    eye.rename(folder / "pat1" / "left.jpg")
    noise = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    Image.fromarray(noise).save(folder / "pat2" / "left.jpg")
    words = ("--out", "clinic", "--tol", "0.9", "--baseline", "black")
    for patient in ("pat1", "pat2", "pat1"):
        assert run(monkeypatch, "retina", patient, *words).exit_code == 0
    index = (folder / "clinic" / "index.html").read_text(encoding="utf-8")
    cards = re.findall(r'<a href="\./([0-9a-f]{32}\.html)">([^<]+)</a>.*?<span>(pat[12]/left\.jpg)</span>', index)
    assert [name for _, _, name in cards] == ["pat1/left.jpg", "pat2/left.jpg"]
    for link, title, _ in cards:
        assert f"<h1>{title}" in (folder / "clinic" / link).read_text(encoding="utf-8")
    assert cards[0][1].startswith("grade 0")
    assert cards[1][1].startswith("this does not look like a photo of a retina")
