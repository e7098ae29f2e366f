"""The diagnosis as text, picture, page and numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from integrand.analysis.diagnosis_report import compose
from integrand.baselines import Diagnosis, diagnose
from integrand.errors import OptionError

from .test_baseline_diagnosis import LEFT, SIDE, contrast, logits, split

HOSTILE = "<script>alert('$1')</script>"


@pytest.fixture(scope="module")
def coloured() -> Diagnosis:
    """Three channels, black at -1 and white at 1."""
    x = torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def model(v: Tensor) -> Tensor:
        return logits(12 * (v * LEFT).mean((1, 2, 3)), 10)

    names = {"black": "black", "white": "white", HOSTILE: "uniform"}
    return diagnose(model, x, names, low=-1.0, high=1.0, draws=2, classes=lambda i: f"<b>{i}</b>")


@pytest.fixture(scope="module")
def table() -> Diagnosis:
    """Features instead of pixels."""
    return diagnose(lambda v: logits(v.sum(1), 3), torch.tensor([[2.0, 1.0, 0.5]]), draws=2)


def composed(found: Diagnosis, **changes: Any) -> Any:
    options: dict[str, Any] = dict.fromkeys(("image", "pixels", "label", "features", "title"))
    return compose(found, **options | {"signed": False, "share": 0.7, "top": 12} | changes)


def test_the_text_holds_table_and_advice(coloured: Diagnosis) -> None:
    text = str(coloured)
    assert text.splitlines()[1].split()[:2] == ["baseline", "F(x')"]
    assert "black *" in text
    assert f"{HOSTILE} (2)" in text
    assert coloured.advice in text
    assert coloured.question() in text


def test_baselines_are_shown_in_their_own_colours(coloured: Diagnosis) -> None:
    scene = composed(coloured)
    dark, light, noise = (cell.thumbnail.pixels for cell in scene.cells)
    assert (dark == 0).all()
    assert (light == 255).all()
    assert noise.std() > 40
    expected = np.rint((coloured.x[0].permute(1, 2, 0).double().numpy() + 1) / 2 * 255)  # type: ignore[union-attr]
    assert np.abs(scene.photo.pixels.astype(float) - expected).max() <= 1
    assert scene.cells[0].title == "black (recommended)"
    assert "first of 2 draws" in scene.cells[2].lines


def test_pixels_can_be_made_by_the_user(coloured: Diagnosis) -> None:
    scene = composed(coloured, pixels=lambda v: (v.flip(0).permute(1, 2, 0) + 1) / 2)
    usual = composed(coloured)
    assert np.array_equal(scene.photo.pixels, usual.photo.pixels[..., ::-1])
    assert np.array_equal(scene.cells[2].thumbnail.pixels, usual.cells[2].thumbnail.pixels[..., ::-1])


def test_features_become_bars(table: Diagnosis) -> None:
    scene = composed(table)
    assert scene.photo is None
    assert all(cell.thumbnail is None for cell in scene.cells)
    assert scene.cells[0].part.names == ("feature 0", "feature 1", "feature 2")


@pytest.mark.parametrize("kind", ["coloured", "table"])
@pytest.mark.parametrize("signed", [True, False])
def test_the_figure(kind: str, signed: bool, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found: Diagnosis = request.getfixturevalue(kind)
    figure = found.figure(signed=signed, title="Which?", label="a $cat$")
    texts = " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))
    assert "Which?" in texts
    assert found.recommended in texts
    path = found.save(tmp_path / "found.png", signed=signed)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["coloured", "table"])
def test_the_page_escapes_everything_and_loads_nothing(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    found: Diagnosis = request.getfixturevalue(kind)
    path = found.save(tmp_path / "found.html", label=HOSTILE, command=HOSTILE)
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<b>0</b>" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert "recommended" in text
    assert text.count("data:image/png") == (0 if kind == "table" else 1 + 2 * len(found.rows))
    assert "<script" not in found._repr_html_()


def test_the_numbers(coloured: Diagnosis, tmp_path: Path) -> None:
    read = json.loads(coloured.save(tmp_path / "found.json").read_text())
    assert read["recommended"] == coloured.recommended
    assert [row["name"] for row in read["rows"]] == [row.name for row in coloured.rows]
    assert read["rows"][0]["head_start"] == coloured.rows[0].head_start
    assert read["rows"][0]["status"] == "converged"
    with pytest.raises(OptionError, match=r"\.html, \.png"):
        coloured.save(tmp_path / "found.txt")


def test_a_single_candidate_still_draws() -> None:
    pytest.importorskip("matplotlib")
    found = diagnose(contrast(10), split(), {"itself": split()})
    found.figure()
    assert "-" in str(found)
    assert json.dumps(found.to_dict(), allow_nan=False)
    assert "explains nothing" in found.report()
