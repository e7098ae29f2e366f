"""``integrand image``, as a user types it: one photo, folders, bad files, stopped and resumed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import integrand as ig
from integrand.apps import images
from integrand.batch.identity import weights_digest
from integrand.batch.table import parts_of
from integrand.cli import main
from integrand.cli.app import app

SOURCE = """
import torch
from torch import nn

class Colours(nn.Module):
    \"\"\"Scores of three classes: how red, green and blue a picture of 32 x 32 is.\"\"\"

    def forward(self, x):
        return 4 * x.mean((2, 3))

def make():
    return Colours()

def warm():
    return lambda x: Colours()(x) + x.mean((1, 2, 3))[:, None] * torch.tensor([1.0, 0.0, 0.0])

def broken():
    return lambda x: x.reshape(7)
"""

MODEL = ("--model", "nets_for_photos:make", "--size", "32", "--mean", "0", "--scale", "255", "--tol", "0.05", "--trust")

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    (tmp_path / "nets_for_photos.py").write_text(SOURCE)
    (tmp_path / "names.txt").write_text("red thing\ngreen thing\nblue thing, sky\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def invoke(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["integrand", *words])
        return CliRunner().invoke(app, list(words))

    yield invoke
    sys.modules.pop("nets_for_photos", None)


def photo(path: Path, colour: tuple[int, int, int] = (200, 30, 60), **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((48, 64, 3), colour, np.uint8)).save(path, **options)
    return path


class Text(HTMLParser):
    """The tags and the words of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if tag == "a" and name == "href"]

    def handle_data(self, data: str) -> None:
        self.words += data


def test_one_photo_gives_a_page_with_the_command_that_made_it(run: Run, tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    done = run("image", "a.png", *MODEL, "--classes", "names.txt")
    assert done.exit_code == 0, done.output
    assert "red thing" in done.output.splitlines()[0]
    assert done.output.splitlines()[1].startswith("other answers: ")
    assert "F(x" not in done.output
    page = Text((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert "red thing" in page.words
    assert "blue thing" in page.words
    assert "integrand image a.png --model nets_for_photos:make --size 32" in page.words


@pytest.mark.parametrize("ending", ["png", "json", "safetensors", "html"])
def test_the_ending_of_out_decides_what_is_written(run: Run, tmp_path: Path, ending: str) -> None:
    photo(tmp_path / "a.png")
    done = run("image", "a.png", *MODEL, "--out", f"deep/b.{ending}")
    assert "there is no folder 'deep'" in str(done.exception)
    assert not (tmp_path / "deep").exists()
    (tmp_path / "deep").mkdir()
    for _ in range(2):  # what this command wrote, it may write again
        done = run("image", "a.png", *MODEL, "--out", f"deep/b.{ending}")
        assert done.exit_code == 0, done.output
    written = tmp_path / "deep" / f"b.{ending}"
    if ending == "png":
        assert written.read_bytes().startswith(b"\x89PNG")
    if ending == "json":
        assert json.loads(written.read_text())["explained"]["index"] == 0
    if ending == "safetensors":
        loaded = ig.Attribution.load(written)
        assert loaded.values.shape == (1, 3, 32, 32)
        assert loaded.profile is not None


def test_a_picture_shows_the_views_that_are_named(run: Run, tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    words = ("image", "a.png", *MODEL, "--no-rival")
    assert run(*words, "--view", "scaled", "--out", "one.png").exit_code == 0
    assert run(*words, "--view", "scaled", "--view", "regions", "--view", "overlay", "--out", "three.png").exit_code == 0
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "three.png") as three:
        assert three.size[1] > 2 * one.size[1]  # with gradient x image next to each view, a row per view
    done = run(*words, "--view", "loud", "--out", "four.png")
    assert "loud" in str(done.exception)


def test_json_holds_what_a_program_needs(run: Run, tmp_path: Path) -> None:
    photo(tmp_path / "a.png", (0, 0, 255))
    done = run("image", "a.png", *MODEL, "--classes", "names.txt", "--json", "--score", "logit", "--rival")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["photo"] == "a.png"
    assert found["explained"]["label"] == "blue thing"
    odds = np.exp([0.0, 0.0, 4.0])
    assert found["explained"]["probability"] == pytest.approx(odds[2] / odds.sum(), abs=1e-6)
    assert [answer["index"] for answer in found["answers"]] == [2, 0, 1]
    assert found["certificate"]["score"] == pytest.approx(4.0, abs=1e-5)
    assert found["certificate"]["baseline_score"] == 0
    assert found["certificate"]["converged"] is True
    assert found["rival"]["certificate"]["score"] == pytest.approx(4.0, abs=1e-5)
    assert sum(region["sum"] for region in found["regions"]) <= 4.0 + 1e-5
    assert not list(tmp_path.glob("*.html"))


def test_the_target_by_name_and_number_and_the_baseline(run: Run, tmp_path: Path) -> None:
    photo(tmp_path / "a.png", (255, 255, 255))
    for target in ("2", "sky", "Blue Thing"):
        done = run("image", "a.png", *MODEL, "--classes", "names.txt", "--target", target, "--json", "--score", "logit")
        assert json.loads(done.stdout)["explained"]["index"] == 2, done.output
    done = run("image", "a.png", *MODEL, "--baseline", "black+white", "--score", "logit", "--json")
    assert json.loads(done.stdout)["certificate"]["baseline_score"] == pytest.approx(2.0)  # the mean of 0 and 4
    photo(tmp_path / "start.png", (51, 51, 51))
    done = run("image", "a.png", *MODEL, "--baseline", "start.png", "--score", "logit", "--json")
    assert json.loads(done.stdout)["certificate"]["baseline_score"] == pytest.approx(0.8, abs=1e-5)


@pytest.mark.parametrize("path", ["blur", "guided"])
def test_other_paths(run: Run, tmp_path: Path, path: str) -> None:
    gradient = np.zeros((32, 32, 3), np.uint8)
    gradient[..., 0] = np.arange(32) * 8
    Image.fromarray(gradient).save(tmp_path / "a.png")
    done = run("image", "a.png", *MODEL, "--path", path, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    certificate = found["certificate"]
    assert found["path"] == path
    assert certificate["converged"]
    assert abs(certificate["residual"]) <= 0.05 * certificate["magnitude"]


# ---- what goes wrong --------------------------------------------------------------------------------------------------------


def _bad_files(folder: Path) -> dict[str, str]:
    """Files that are no photos, with what is said about them."""
    (folder / "notes.jpg").write_text("this is no photo")
    (folder / "empty.png").write_bytes(b"")
    whole = photo(folder / "whole.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "whole.jpg").unlink()
    (folder / "loop.jpg").symlink_to(folder / "loop.jpg")
    return {"notes.jpg": "notes.jpg", "empty.png": "empty.png", "cut.jpg": "cut.jpg", "none.jpg": "none.jpg"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("image", "none.jpg"), "none.jpg"),
        (("image", "notes.jpg"), "notes.jpg"),
        (("image", "empty.png"), "empty.png"),
        (("image", "cut.jpg"), "cut.jpg"),
        (("image", "."), "cut.jpg"),
        (("image", "a.png", "--target", "zebra"), "zebra"),
        (("image", "a.png", "--baseline", "pink"), "pink"),
        (("image", "a.png", "--out", "report.docx"), "report.docx"),
        (("image", "a.png", "--out", "a.png/b.html"), "cannot be written"),
        (("image", "a.png", "--out", "/proc/none/b.html"), "there is no folder '/proc/none'"),
        (("image", "a.png", "notes.jpg", "--out", "a.png"), "expected a folder"),
        (("image", "a.png", "notes.jpg", "--out", "notes.jpg/b"), "cannot be written"),
        (("image", "a.png", "--view", "scaled"), "--view without a picture"),
        (("image", "a.png", "notes.jpg", "--view", "scaled"), "for several photos"),
        (("image", "a.png", "--path", "blur", "--baseline", "white"), "blur path"),
        (("image", "loop.jpg"), "leads nowhere, or to itself"),
        (("image", "a.png", "--size", "big"), "big"),
        (("image", "a.png", "--mean", "1,2"), "1,2"),
        (("image", "a.png", "--tol", "-1"), "--tol -1"),
        (("image", "a.png", "--model", "no_such_network"), "no_such_network"),
        (("image", "a.png", "--model", "nets_for_photos:broken", "--trust"), "nets_for_photos:broken"),
        (("image", "a.png", "--model", "nets_for_photos:nothing", "--trust"), "nothing"),
        (("image", "a.png", "--classes", "none.txt"), "none.txt"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: tuple[str, ...],
    said: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _bad_files(tmp_path)
    if "a.png" in words:
        photo(tmp_path / "a.png")
    monkeypatch.setattr(sys, "argv", ["integrand", "image", *MODEL, *words[1:]])
    with pytest.raises(SystemExit) as ended:
        main()
    err = capsys.readouterr().err
    assert ended.value.code == 2, err
    assert said in err
    assert "Traceback" not in err
    if words != ("image", "."):
        assert len(err.strip().splitlines()) == 1


def test_no_traceback_reaches_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "notes.jpg").write_text("this is no photo")
    code = "from integrand.cli import main; main()"
    words = [sys.executable, "-c", code, "image", "notes.jpg", "missing.jpg"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr


def test_odd_photos_are_read_and_the_page_says_what_was_done(run: Run, tmp_path: Path) -> None:
    upright = np.zeros((20, 40, 3), np.uint8)
    upright[:, 20:, 2] = 255
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(upright).rotate(90, expand=True).save(tmp_path / "turned.jpg", exif=turned, quality=95)
    Image.fromarray(upright).convert("CMYK").save(tmp_path / "ink.jpg")
    Image.fromarray(np.full((30, 30), 40000, np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray(np.dstack([upright, np.full((20, 40), 128, np.uint8)])).save(tmp_path / "glass.png")
    for name in ("turned.jpg", "ink.jpg", "deep.png", "glass.png"):
        done = run("image", name, *MODEL, "--json", "--no-rival")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["notes"], name


def test_a_file_name_cannot_write_into_the_page(run: Run, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>.png"
    photo(tmp_path / "in" / name)
    photo(tmp_path / "in" / "b.png")
    done = run("image", "in", *MODEL, "--out", "out", "--no-rival")
    assert done.exit_code == 0, done.output
    for page in (tmp_path / "out").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<img src=x" not in text
    assert name in Text((tmp_path / "out" / "index.html").read_text(encoding="utf-8")).words


# ---- folders ----------------------------------------------------------------------------------------------------------------


def test_a_folder_gives_a_gallery_and_goes_on_after_a_bad_file(run: Run, tmp_path: Path) -> None:
    for name, colour in (("a.png", (255, 0, 0)), ("sub/a.png", (0, 255, 0)), ("c.png", (0, 0, 255))):
        photo(tmp_path / "in" / name, colour)
    (tmp_path / "in" / "bad.jpg").write_text("no photo")
    (tmp_path / "in" / "readme.txt").write_text("left alone")
    done = run("image", "in", *MODEL, "--classes", "names.txt", "--out", "out", "--no-rival")
    assert done.exit_code == 1, done.output
    assert "explained 3 of 4 photos" in done.output
    assert "bad.jpg" in done.output
    index = Text((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))
    for words in ("red thing", "green thing", "blue thing", "bad.jpg", "Not explained"):
        assert words in index.words
    pages = {page.name for page in (tmp_path / "out").glob("*.html")} - {"index.html"}
    assert len(pages) == 3
    assert {href.removeprefix("./") for href in index.links} == pages


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which photos were explained."""
    seen: list[str] = []
    real = images.explain_photos

    def explain(files: Sequence[Path], *args: Any, **options: Any) -> Any:
        found = real(files, *args, **options)
        seen.extend(file.name for file in files)
        return found

    monkeypatch.setattr(images, "explain_photos", explain)
    return seen


def test_a_stopped_run_goes_on_where_it_was(
    run: Run, tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcd":
        photo(tmp_path / "in" / f"{name}.png")
    words = ("image", "in", *MODEL, "--out", "out", "--no-rival")
    counting = images.explain_photos

    def stopped(files: Sequence[Path], *args: Any, **options: Any) -> Any:
        if files[0].name == "c.png":
            raise KeyboardInterrupt
        return counting(files, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(images, "explain_photos", stopped)
        done = run(*words)
    assert done.exit_code == 130
    assert "goes on where it was" in done.output
    assert "2 are still to come" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert run(*words).exit_code == 0
    assert counted == ["a.png", "b.png", "c.png", "d.png"]
    assert "4 photos explained" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert not list((tmp_path / "out").glob("*.part"))


def test_what_changed_is_done_again_and_nothing_else(run: Run, tmp_path: Path, counted: list[str]) -> None:
    for name in "ab":
        photo(tmp_path / "in" / f"{name}.png")
    (tmp_path / "in" / "bad.jpg").write_text("no photo")
    words = ("image", "in", *MODEL, "--out", "out", "--no-rival")
    assert run(*words).exit_code == 1
    counted.clear()
    photo(tmp_path / "in" / "b.png", (0, 255, 0))  # another photo of the same name
    photo(tmp_path / "in" / "bad.jpg")  # mended
    assert run(*words).exit_code == 0
    assert sorted(counted) == ["b.png", "bad.jpg"]
    counted.clear()
    assert run(*words).exit_code == 0
    assert counted == []
    done = run(*words, "--baseline", "white")
    assert 'holds results of another run: got baseline "white" (there: null)' in str(done.exception)
    assert counted == []
    assert run(*words, "--again").exit_code == 0
    assert len(counted) == 3
    for part in parts_of(tmp_path / "out" / "table"):
        part.unlink()
    counted.clear()
    assert run(*words).exit_code == 0
    assert len(counted) == 3


def test_another_file_under_the_name_of_the_baseline_counts_as_a_change(run: Run, tmp_path: Path, counted: list[str]) -> None:
    photo(tmp_path / "in" / "a.png")
    photo(tmp_path / "start.png", (0, 0, 0))
    words = ("image", "in", *MODEL, "--out", "out", "--no-rival", "--baseline", "start.png")
    assert run(*words).exit_code == 0
    (tmp_path / "nets_for_photos.py").write_text(SOURCE + "\n# changed\n")
    sys.modules.pop("nets_for_photos")
    assert "code" in str(run(*words).exception)
    (tmp_path / "nets_for_photos.py").write_text(SOURCE)
    sys.modules.pop("nets_for_photos")
    photo(tmp_path / "start.png", (90, 90, 90))
    assert "made_with.files" in str(run(*words).exception)
    assert run("image", "in", *MODEL, "--out", "other", "--no-rival", "--baseline", "start.png").exit_code == 0
    assert counted == ["a.png", "a.png"]


def test_other_weights_under_the_same_name_count_as_a_change(run: Run, tmp_path: Path, counted: list[str]) -> None:
    """A user's code may load its weights from wherever it likes."""
    own = "import numpy as np\nfrom nets_for_photos import *\n"
    own += "class Weighed(Colours):\n    def __init__(self):\n        super().__init__()\n"
    own += "        self.register_buffer('w', torch.tensor(np.loadtxt('w.txt'), dtype=torch.float32))\n"
    own += "    def forward(self, x):\n        return self.w * super().forward(x)\n"
    (tmp_path / "weighed_nets.py").write_text(own)
    photo(tmp_path / "in" / "a.png")
    words = ("image", "in", "--model", "weighed_nets:Weighed", *MODEL[2:], "--out", "out", "--no-rival")
    for weight, same in (("1", True), ("1", True), ("2", False)):
        (tmp_path / "w.txt").write_text(weight)
        sys.modules.pop("weighed_nets", None)
        done = run(*words)
        assert (done.exit_code == 0) is same
        assert same or "weights" in str(done.exception)
        assert len(counted) == 1
    sys.modules.pop("weighed_nets", None)


def test_weights_of_any_kind_have_a_digest() -> None:
    class Odd(torch.nn.Module):
        def get_extra_state(self) -> dict[str, int]:
            return {"a": 1}

        def set_extra_state(self, state: object) -> None: ...

    odd = Odd()
    for i, kind in enumerate((torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int8)):
        odd.register_buffer(f"b{i}", torch.ones(2, 3).to(kind))
    odd.register_buffer("one", torch.tensor(1.0))
    odd.register_buffer("none", torch.zeros(0))
    first = weights_digest(odd, "a name")
    assert weights_digest(odd) == first
    odd.one += 1
    assert weights_digest(odd) != first
    assert weights_digest("a name") == weights_digest(lambda x: x) == weights_digest()


def test_a_later_run_on_some_photos_keeps_the_others_in_the_gallery(run: Run, tmp_path: Path, counted: list[str]) -> None:
    for name in "abc":
        photo(tmp_path / "in" / f"{name}.png")
    assert run("image", "in", *MODEL, "--out", "out", "--no-rival").exit_code == 0
    assert run("image", "in/a.png", *MODEL, "--out", "out", "--no-rival").exit_code == 0
    assert len(counted) == 3
    assert "3 photos explained" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_a_page_of_any_name_with_its_photos_beside_it(run: Run, tmp_path: Path) -> None:
    for name in "ab":
        photo(tmp_path / "in" / f"{name}.png")
    assert run("image", "in", *MODEL, "--out", "deep/report.html", "--no-rival", "--force").exit_code == 0
    links = Text((tmp_path / "deep" / "report.html").read_text(encoding="utf-8")).links
    assert len(links) == 2
    for link in links:
        assert link.startswith("./report/")
        assert (tmp_path / "deep" / link).is_file()


def test_links_that_lead_nowhere_are_listed(run: Run, tmp_path: Path) -> None:
    photo(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "gone.png").symlink_to(tmp_path / "none.png")
    done = run("image", "in", *MODEL, "--out", "out", "--no-rival")
    assert done.exit_code == 1
    assert "gone.png is a link that leads nowhere" in done.output


def test_a_class_that_is_not_the_answer_is_not_called_one(run: Run, tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    done = run("image", "a.png", *MODEL, "--classes", "names.txt", "--target", "sky")
    assert done.exit_code == 0, done.output
    words = Text((tmp_path / "a.html").read_text(encoding="utf-8")).words
    assert re.search(r"blue thing \([^)]*, the network's second answer\): ", words)


def test_json_of_a_folder_is_a_line_per_photo(run: Run, tmp_path: Path) -> None:
    photo(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "bad.jpg").write_text("no photo")
    done = run("image", "in", *MODEL, "--out", "out", "--json", "--no-rival")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["photo"] == "a.png"
    assert Path(first["out"]).is_file()
    assert "bad.jpg" in second["photo"]
    assert second["error"]
    assert done.exit_code == 1


def test_a_folder_without_photos(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    done = run("image", "in", *MODEL)
    assert done.exit_code != 0
    assert "in" in str(done.exception)


def test_a_folder_has_an_answer_per_photo_as_it_comes_and_says_what_was_done(run: Run, tmp_path: Path) -> None:
    for name in "ab":
        photo(tmp_path / "in" / f"{name}.png")
    words = ("image", "in", *MODEL, "--classes", "names.txt", "--out", "out")
    first = run(*words).stdout.splitlines()
    assert [line[:6] for line in first[:2]] == ["a.png:", "b.png:"]
    assert "red thing" in first[0]
    photo(tmp_path / "in" / "c.png", (0, 0, 255))
    (tmp_path / "in" / "aa.png").write_bytes(b"broken")  # fails before the last that was done: that is no reason to miscount
    again = run(*words)
    assert "going on: 2 of 4 photos were done before" in again.stderr
    lines = again.stdout.splitlines()
    assert lines[0].startswith("c.png: ")
    assert lines[1:] == ["explained 3 of 4 photos (2 done before); wrote out/index.html, table in out/table"]
    assert [path.name for path in (tmp_path / "out").iterdir() if "progress" in path.name] == []


def test_a_page_that_somebody_else_wrote_stays(run: Run, tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    (tmp_path / "a.html").write_text("<p>my thesis</p>")
    done = run("image", "a.png", *MODEL)
    assert "was not written by integrand" in str(done.exception)
    assert (tmp_path / "a.html").read_text() == "<p>my thesis</p>"
    assert run("image", "a.png", *MODEL, "--force").exit_code == 0
    assert run("image", "a.png", *MODEL).exit_code == 0


def test_two_networks_on_one_photo(run: Run, tmp_path: Path) -> None:
    """The second counts all colours for red: there the whole photo adds its mean, (200 + 30 + 60) / 3 of 255, to that class."""
    photo(tmp_path / "a.png")
    words = ("image", "a.png", *MODEL, "--model", "nets_for_photos:warm", "--score", "logit", "--classes", "names.txt")
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert list(found["models"]) == ["nets_for_photos:make", "nets_for_photos:warm"]
    assert found["differences"][0]["size"] == pytest.approx([290 / 3 / 255], abs=0.01)
    for ending in ("html", "csv", "json"):
        for _ in range(2):  # what it wrote, it may write again
            done = run(*words, "--out", f"both.{ending}")
            assert done.exit_code == 0, done.output
        assert (tmp_path / f"both.{ending}").stat().st_size > 100
    assert found["sentence"] == done.stdout.splitlines()[0]
    assert "nets_for_photos:warm: red thing" in done.stdout
    photo(tmp_path / "b.png")
    for extra, said in ((("--rival",), "--rival"), (("b.png",), "several photos"), (MODEL[:2], "twice")):
        assert said in str(run(*words, *extra).exception)
