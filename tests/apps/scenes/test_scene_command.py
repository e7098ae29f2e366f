"""``integrand scene``, as a user types it, on networks of the user's own; and the line around what is explained."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from integrand.apps import scenes
from integrand.cli.app import app
from integrand.errors import ModelError, OptionError
from integrand.render.image.pixels import AIM, with_aim

from ...browser import DESKTOP, PHONE, serious

SOURCE = '''
import torch
from torch import nn

class Finder(nn.Module):
    """Finds one bright object in each half of a picture, as torchvision's detectors say it."""

    def forward(self, x):
        out = []
        for row in x:
            halves = row.reshape(3, 32, 2, 16).mean((0, 1, 3))
            scores = torch.sigmoid(6 * halves - 3)
            keep = scores > 0.2
            boxes = torch.tensor([[2.0, 4.0, 14.0, 28.0], [18.0, 4.0, 30.0, 28.0]])
            out.append({"boxes": boxes[keep], "labels": torch.tensor([1, 2])[keep], "scores": scores[keep]})
        return out

class Painter(nn.Module):
    """Maps of three classes, which are how red, green and blue a pixel is."""

    def forward(self, x):
        return {"out": 3 * x, "aux": x}

class Alone(nn.Module):
    """One map, of a single class, which is positive where a pixel is red."""

    def forward(self, x):
        return x[:, :1] - 0.5

def finder():
    return Finder()

def alone():
    return Alone()

def painter():
    return Painter()

def broken():
    return lambda x: x.mean((2, 3))
'''

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    (tmp_path / "nets_for_scenes.py").write_text(SOURCE)
    (tmp_path / "names.txt").write_text("nothing\nlamp\nwindow\n")
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:, :32] = (250, 240, 230)
    pixels[:, 32:] = (90, 140, 250)
    Image.fromarray(pixels).save(tmp_path / "room.png")
    Image.fromarray(pixels[::2, ::2]).save(tmp_path / "small.png")  # as large as the networks take it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def invoke(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["integrand", *words])
        return CliRunner().invoke(app, list(words))

    yield invoke
    sys.modules.pop("nets_for_scenes", None)


FINDER = ("--model", "nets_for_scenes:finder", "--trust", "--size", "32", "--mean", "0", "--scale", "255")
PAINTER = ("--model", "nets_for_scenes:painter", "--trust", "--size", "32", "--mean", "0", "--scale", "255")


def test_a_picked_box_gives_a_page_that_says_what_jumps(run: Run, tmp_path: Path) -> None:
    done = run("scene", "room.png", *FINDER, "--classes", "names.txt", "--out", "box.html")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("lamp (9")
    assert "in the box 4,8-28,56" in lines[0]  # in pixels of the photo, which is twice as large
    assert "numbers incomplete" in lines[0]
    assert lines[1].startswith("found: 0: lamp (9")
    assert "1: window (" in lines[1]
    assert "non-maximum suppression" in done.output
    page = (tmp_path / "box.html").read_text(encoding="utf-8")
    assert "the box that is explained, “lamp”" in page
    assert "What the detector found" in page
    assert "found again by the overlap of its box" in page


def test_a_mask_in_all_kinds_of_files(run: Run, tmp_path: Path) -> None:
    for ending in ("html", "png", "json", "safetensors"):
        done = run("scene", "small.png", *PAINTER, "--classes", "names.txt", "--mask", "window", "--out", f"mask.{ending}")
        assert done.exit_code == 0, done.output
    assert done.output.startswith("window: its mask, 50% of the picture, accounts for +2.94")
    told = json.loads((tmp_path / "mask.json").read_text())["scene"]
    # Blue of the right half, 250 of 255, times 3: all of it from inside.
    assert told["inside"]["sum"] == pytest.approx(3 * 250 / 255, rel=1e-5)
    assert told["outside"]["sum"] == pytest.approx(0, abs=1e-9)
    assert told["box_in_input"] == [16, 0, 32, 32]
    picture = np.asarray(Image.open(tmp_path / "mask.png").convert("RGB")).astype(int)
    assert (np.abs(picture - AIM).sum(-1) < 12).sum() > 100  # the yellow line


def test_a_region_of_the_photo(run: Run) -> None:
    done = run("scene", "room.png", *PAINTER, "--mask", "0", "--region", "0,0,16,16", "--json")
    told = json.loads(done.output)["scene"]
    assert told["kind"] == "region"
    assert told["box_in_input"] == [0, 0, 8, 8]
    assert told["inside"]["sum"] == pytest.approx(3 * 250 / 255, rel=1e-5)


def test_a_region_that_is_the_whole_photo_has_nothing_outside(run: Run) -> None:
    done = run("scene", "room.png", *PAINTER, "--mask", "0", "--region", "0,0,64,64")
    assert done.output.startswith("class 0 in the region 0,0-64,64: the region, 100% of the picture, accounts for +2.000")
    # Red is 250 of 255 in one half and 90 in the other, times 3.
    assert ", and there is nothing outside it; numbers" in done.output


def test_a_single_map_says_its_class_where_it_is_positive(run: Run) -> None:
    single = (*PAINTER[:1], "nets_for_scenes:alone", *PAINTER[2:])
    told = json.loads(run("scene", "small.png", *single, "--json").output)["scene"]
    assert told["box_in_input"] == [0, 0, 16, 32]
    assert told["area"] == 0.5
    assert told["inside"]["sum"] == pytest.approx(250 / 255, rel=1e-5)


def test_a_box_of_a_part_of_the_photo_says_whose_pixels_it_is_in(run: Run) -> None:
    assert "in the box 2,4-14,28 of what the network got:" in run("scene", "room.png", *FINDER, "--fit", "crop").output
    assert "in the box 4,8-28,56:" in run("scene", "room.png", *FINDER).output


def test_several_photos_are_a_gallery_and_a_table(run: Run, tmp_path: Path) -> None:
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(tmp_path / "dark.png")
    done = run("scene", "room.png", "dark.png", *FINDER, "--out", "found")
    assert done.exit_code == 1, done.output
    assert "explained 1 of 2 photos" in done.output
    assert (tmp_path / "found" / "index.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "got no --model; expected fastestdet:weights.pth"),
        (("--model", "fastestdet"), "github.com/dog-qiuqiu/FastestDet"),
        ((*FINDER, "--box", "7"), "it finds 0: class 1"),
        ((*FINDER, "--box", "-1"), "got box '-1'; expected the number of an object, from 0 on, or a class"),
        ((*FINDER, "--box", "0.5"), "got box '0.5'; expected the number of an object"),
        ((*FINDER, "--explain", "left"), "no coordinates"),
        ((*FINDER, "--mask", "road"), "finds boxes"),
        ((*PAINTER, "--box", "0"), "gives masks"),
        ((*PAINTER, "--region", "1,2"), "LEFT,TOP,RIGHT,BOTTOM"),
        ((*PAINTER, "--mask", "1"), "sees no class 1"),
        ((*PAINTER, "--mask", "3"), "classes 0 to 2"),
        (("--model", "nets_for_scenes:finder"), "--trust"),
        (("--model", "nets_for_scenes:broken", "--trust"), "neither boxes nor maps"),
    ],
)
def test_bad_use_is_refused(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run("scene", "room.png", *words)
    assert done.exit_code != 0
    assert said in str(done.exception)


def test_image_says_which_command_explains_boxes(run: Run) -> None:
    done = run("image", "room.png", "--model", "fastestdet:weights.pth")
    assert "integrand scene PHOTO --model fastestdet:weights.pth" in str(done.exception)
    maps = run("image", "room.png", "--model", "nets_for_scenes:alone", *PAINTER[2:])
    assert "gives (1, 1, 32, 32) for one picture" in str(maps.exception)
    assert "Masks are explained by integrand scene" in str(maps.exception)


def test_a_model_that_fails_says_on_what() -> None:
    def picky(x: object) -> None:
        raise RuntimeError("nothing of that size")

    with pytest.raises(ModelError, match=r"\(1, 3, 48, 48\): nothing of that size"):
        scenes.scene_network(picky, size=48)


def test_the_line_goes_around_what_is_explained() -> None:
    grey, inside = np.full((60, 80, 3), 128, np.uint8), np.zeros((60, 80), bool)
    inside[20:40, 30:60] = True
    drawn = with_aim(grey, inside)
    yellow = (drawn == AIM).all(-1)
    assert yellow[20, 30:60].all()
    assert yellow[20:40, 59].all()
    assert not yellow[25:35, 35:55].any()
    assert not yellow[:15].any()
    assert (with_aim(grey, None) == grey).all()
    assert (with_aim(grey, np.ones((60, 80), bool)) == AIM).any()  # around all of it the line is inside


def test_the_page_in_a_browser(run: Run, tmp_path: Path, browser) -> None:  # type: ignore[no-untyped-def]
    run(
        "scene", "room.png", *PAINTER, "--classes", "names.txt", "--mask", "window", "--region", "40,8,56,24", "--out", "a.html"
    )
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    read = """() => { const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d");
      const data = pen.getImageData(0, 0, canvas.width, canvas.height).data; let count = 0;
      for (let i = 0; i < data.length; i += 4) count += data[i] === 255 && data[i + 1] === 214 && data[i + 2] === 10;
      return count; }"""
    for size in (DESKTOP, PHONE):
        with browser.open(html, size=size) as page:
            for view in ("outlines", "regions", "heatmap", "photo"):
                page.locator(f"input[value={view}]").check(force=True)
                assert page.evaluate(read) > 100, view
                assert "Yellow: the region that is explained, “window”." in page.locator("[data-part=meaning]").text_content()
            assert not serious(page)


def test_a_scene_has_no_widget(run: Run) -> None:
    import torch

    found = scenes.explain(np.full((16, 16, 3), 200, np.uint8), scenes.scene_network(lambda x: 3 * x, size=16))
    assert isinstance(found.x, torch.Tensor)
    with pytest.raises(OptionError, match="its page"):
        found.widget()
    assert "accounts for" in found._repr_html_()
