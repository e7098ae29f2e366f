"""The page of a photo in a real browser: what is on the first screen, what can be pressed, read and saved."""

import csv
import io

import numpy as np
import pytest
import torch

import integrand as ig
from integrand.render.image import regions
from integrand.render.image.photo_page import ImagePage, PageRival, image_page
from integrand.render.image.viewer import REGIONS
from integrand.words import plus_minus

from ...browser import DESKTOP, PHONE, on_first_screen, saved, serious

SIDE = 120


@pytest.fixture(scope="module")
def explained():
    """Two squares of colour on grey: the score is the red one's brightness squared, less the blue one's."""
    photo = np.full((SIDE, SIDE, 3), 90, np.uint8)
    photo[10:50, 10:50] = (220, 30, 30)
    photo[70:110, 70:110] = (30, 30, 220)
    x = torch.as_tensor(photo / 255).permute(2, 0, 1)[None]

    def score(rows):
        return (rows[:, 0, 10:50, 10:50] ** 2).sum((1, 2)) - (rows[:, 2, 70:110, 70:110] ** 3).sum((1, 2))

    return photo, ig.integrated_gradients(score, x, tol=0.01)


@pytest.fixture(scope="module")
def html(explained):
    photo, result = explained
    top = [("red square", 0.62), ("blue square", 0.3), ("grey", 0.05), ("green", 0.03)]
    rival = PageRival("red square", "blue square", result)
    page = ImagePage(
        "red square", photo, result, name="squares.png", top=top, rival=rival, regions=regions(result, photo, count=REGIONS)
    )
    return image_page(page)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_first_screen_answers(browser, html, size, dark):
    with browser.open(html, size=size, dark=dark, touch=size == PHONE) as page:
        for part in (
            "h1",
            ".says",
            ".badge summary",
            ".seen img",
            ".stage canvas",
            ".chances tr:nth-of-type(5) th",
            ".reading",
        ):
            assert on_first_screen(page, part), part
        assert page.locator("input[value=outlines]").is_checked()
        assert page.locator(".says").text_content().startswith("red square (62%): half of what speaks for it lies in 5")
        assert "in the upper left" in page.locator(".says").text_content()
        if size == PHONE:  # the photo is small beside what the network said, the answer large under both
            small, large = (page.locator(part).bounding_box() for part in (".seen img", ".stage canvas"))
            assert small["width"] < 130 < 340 < large["width"]
            assert on_first_screen(page, ".reading")
        assert not serious(page)


def test_outlines_show_the_photo_inside_and_grey_outside(browser, html):
    read = """([x, y]) => { const canvas = document.querySelector("canvas"), at = (share, size) => Math.floor(share * size);
      const pen = canvas.getContext("2d");
      return [...pen.getImageData(at(x, canvas.width), at(y, canvas.height), 1, 1).data.slice(0, 3)]; }"""
    with browser.open(html) as page:
        assert page.evaluate(read, [0.25, 0.25])[0] == 220  # in the red square
        outside = page.evaluate(read, [0.75, 0.75])  # the blue one speaks against it
        assert len(set(outside)) == 1
        canvas = page.locator("canvas")
        box = canvas.bounding_box()
        canvas.hover(position={"x": 0.25 * box["width"], "y": 0.25 * box["height"]})
        assert page.locator(".reading").text_content().startswith("Inside the line. The outlined 5")
        canvas.hover(position={"x": 0.75 * box["width"], "y": 0.75 * box["height"]})
        assert page.locator(".reading").text_content().startswith("Outside the line.")


def test_regions_say_their_sums_with_errors_by_mouse_touch_and_keyboard(browser, html, explained):
    photo, result = explained
    found = regions(result, photo, count=REGIONS)
    assert np.isfinite(found.errors).all()

    def words(row, column):
        k = found.labels[row, column]
        return plus_minus(float(found.sums[k]), float(found.errors[k]))

    with browser.open(html + "", size=PHONE, touch=True) as page:
        page.locator("input[value=regions]").check(force=True)
        canvas = page.locator("canvas")
        box = canvas.bounding_box()
        for row, column in ((30, 30), (90, 90)):
            canvas.tap(position={"x": box["width"] * (column + 0.5) / SIDE, "y": box["height"] * (row + 0.5) / SIDE})
            assert words(row, column) in page.locator(".reading").text_content()
    with browser.open(html) as page:
        page.locator("input[value=regions]").check(force=True)
        canvas = page.locator("canvas")
        box = canvas.bounding_box()
        canvas.hover(position={"x": box["width"] * 30.5 / SIDE, "y": box["height"] * 30.5 / SIDE})
        assert words(30, 30) in page.locator(".reading").text_content()
        canvas.focus()
        page.mouse.move(0, 0)
        page.keyboard.press("ArrowRight")  # begins at the strongest
        assert "Region 1, " in page.locator(".reading").text_content()
        first = page.locator(".reading").text_content()
        page.keyboard.press("ArrowDown" if found.centres[found.order[0]][0] < SIDE / 2 else "ArrowUp")
        assert page.locator(".reading").text_content() != first
        page.keyboard.press("Escape")
        assert "regions add up to" in page.locator(".reading").text_content()


def test_pictures_and_tables_can_be_saved(browser, html, explained):
    photo, result = explained
    found = regions(result, photo, count=REGIONS)
    with browser.open(html) as page:
        name, data = saved(page, "[data-export=png]")
        assert name == "squares-explained.png"
        assert data.startswith(b"\x89PNG")
        assert int.from_bytes(data[16:20], "big") >= 1000  # as wide as it is drawn, not as the photo is
        name, data = saved(page, "[data-part=svg]")
        assert name == "squares-explained.svg"
        assert data.startswith(b"<svg ")
        assert data.count(b"<path") == 2  # the line and its edge
        name, data = saved(page, "[data-export=csv]")
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"))))
        assert name == "squares-regions.csv"
        assert sum(float(row["contributes"]) for row in rows) == pytest.approx(float(found.sums.sum()))
        assert [float(row["error"]) for row in rows] == pytest.approx(found.errors[found.order].tolist())


def test_without_scripts_the_page_answers_too(browser, html):
    with browser.open(html, scripts=False) as page:
        for part in (".says", ".badge summary", ".seen img", ".stage img", ".chances th"):
            assert on_first_screen(page, part), part
        assert not page.locator(".controls").is_visible()
        assert not page.locator(".buttons").is_visible()
