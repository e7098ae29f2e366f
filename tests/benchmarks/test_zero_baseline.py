"""The tables of a language model from zero embeddings: one prompt, and what they say of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("captum")

from benchmarks import zero_baseline as program


def test_one_prompt_from_zero(data: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data("language-model/stories260K.bin")
    picture = tmp_path / "zero.png"
    program.main(["--prompts", "1", "--starts", program.ZERO, "--scores", "logit", "--picture", str(picture)])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    (share,) = [row for row in rows if row[:2] == [program.ZERO, "logit"] and len(row) == 7]
    assert float(share[5].partition("%")[0]) > 50  # below t = 1%
    errors = {row[3]: float(row[6].strip("%<")) for row in rows if len(row) == 9 and row[2] == "1"}
    assert errors["Captum, 50 steps"] > 90
    assert errors["Captum, 300 steps"] > 30
    assert errors["integrand, 5%"] <= 5
    assert errors["integrand, 1%"] <= 1
    assert picture.stat().st_size > 1000


def test_the_share_below_a_time() -> None:
    """The integral of a constant is t."""
    np.testing.assert_allclose(program.below(np.full(len(program.TIMES), 7.0)), program.TIMES, atol=1e-12)


@pytest.mark.parametrize(
    ("value", "text"), [(np.nan, ""), (0.0004, "< 0.1%"), (0.0123, "1.2%"), (0.997, "100%"), (23.4, "2,340%")]
)
def test_shares_in_words(value: float, text: str) -> None:
    assert program.shown(value) == text
