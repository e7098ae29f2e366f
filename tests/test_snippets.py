"""The first things that a new user pastes: every Python block of the README and of getting started runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [block for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE) if kind == language]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "number"),
    [
        (page, i)
        for page in ("README.md", "docs/getting-started.md", "docs/serve.md")
        for i in range(len(blocks(page, "python")))
    ],
)
def test_python_runs_as_it_is_pasted(
    page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, model, x, baseline and photo had to come from somewhere."""
    monkeypatch.chdir(tmp_path)
    code = blocks(page, "python")[number].replace('score="probability")', 'score="probability", tol=0.3)')  # sooner
    torch.manual_seed(0)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_commands_name_files_that_are_there() -> None:
    """Before, the first command named cat.jpg, which nobody has, and a network whose weights nobody publishes."""
    commands = [line for block in blocks("README.md", "") for line in block.splitlines() if line.startswith("integrand ")]
    words = [shlex.split(line, comments=True) for line in commands]
    photos = [word for line in words if line[1] in ("image", "retina") for word in line[2:] if word.endswith((".jpg", ".png"))]
    assert photos == ["examples/cat.jpg", "examples/cat.jpg", "examples/eye.jpg"]
    assert all((ROOT / photo).is_file() for photo in photos)
    assert not any("--model" in line and line[1] == "image" for line in words)


def test_brackets_of_extras_are_quoted() -> None:
    """Some shells read brackets as a pattern of file names."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    bare = [line for page in pages for line in page.read_text().splitlines() if re.search(r"install (\S+ )*[^'\"` ]+\[", line)]
    assert bare == []
