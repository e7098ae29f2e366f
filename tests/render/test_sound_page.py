"""The page of an explained sound: it plays, loads nothing, and is read by pointer, touch, keyboard and without scripts."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from integrand import audio
from integrand.render.html import POLICY, policy, with_script
from integrand.render.sound.sound_picture import colour_of, spectrum_pixels
from tests.browser import PHONE, on_first_screen, saved, serious, until

RATE = 8000


@pytest.fixture(scope="module")
def found() -> audio.ExplainedSound:
    samples = 0.2 * np.random.default_rng(0).normal(size=4000)
    samples[:1000] *= 0.01
    model = audio.SoundModel(
        lambda x: x.unfold(1, 400, 400).square().sum(2), "energy <b>", RATE, frame=0.05, label="energy <i>", causal=True
    )
    sound = audio.Sound(samples.astype(np.float32), RATE, "a <script>alert(1)</script>.wav")
    return audio.explain(model, sound, target=(0.2, 0.3), explain="spectrogram", window=0.05)


@pytest.fixture(scope="module")
def html(found: audio.ExplainedSound) -> str:
    return found.html(command="integrand audio 'a <b>.wav'")


def test_only_pages_with_sound_may_play_it(html: str) -> None:
    assert policy() == POLICY
    assert "media-src" not in policy(("a();",))
    mine = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert mine.startswith(f"{POLICY}; media-src data:; script-src 'sha256-")
    assert "http" not in mine
    more = re.search(r'Content-Security-Policy" content="([^"]*)"', with_script(html, "b();"))[1]
    assert more.startswith(f"{mine} 'sha256-")


def test_names_are_escaped(html: str) -> None:
    assert "<script>alert" not in html
    assert "energy <i>" not in html
    assert "a <b>.wav" not in html


@pytest.mark.parametrize("count", [100, 900, 3000])
def test_the_waveform_is_drawn_however_many_windows_there_are(count: int) -> None:
    """Polygons lie side by side from end to end, each as wide as its window and as high as its samples."""
    samples = np.tile(np.array([0.5, -0.5], np.float32), 6000)
    found = audio.explain(lambda x: x.square().sum(1), samples, rate=12000, window=1 / count)
    drawn = re.findall(r'<polygon points="([^"]+)"', found.html())
    assert len(drawn) == count
    corners = [np.array([pair.split(",") for pair in one.split()], float) for one in drawn]
    left, right = (np.array([edge(one[:, 0]) for one in corners]) for edge in (np.min, np.max))
    assert left == pytest.approx(1000 * np.arange(count) / count, abs=0.01)
    assert right == pytest.approx(1000 * np.arange(1, count + 1) / count, abs=0.01)
    assert all(np.ptp(one[:, 1]) > 80 for one in corners)  # of 90 pixels: all samples are as loud


def test_numbers_under_the_axis_do_not_touch(browser) -> None:
    for seconds in (2.3, 13.8):  # marks at 2 and 12 s would reach into the end's own number on a phone
        found = audio.explain(lambda x: x.square().sum(1), np.ones(int(1000 * seconds), np.float32), rate=1000, window=0.1)
        with browser.open(found.html(), size=PHONE) as page:
            spans = page.locator(".seconds span")
            boxes = [spans.nth(k).bounding_box() for k in range(spans.count())]
            assert len(boxes) > 4
            assert all(a["x"] + a["width"] < b["x"] for a, b in pairwise(boxes))


def test_it_plays_and_follows(html: str, browser) -> None:
    with browser.open(html) as page:
        until(page, "document.querySelector('audio').readyState >= 1")
        assert page.evaluate("document.querySelector('audio').duration") == pytest.approx(0.5, abs=0.01)
        page.evaluate("document.querySelector('audio').currentTime = 0.25")
        until(page, "document.querySelector('.head').style.left.startsWith('5')")
        assert on_first_screen(page, "audio")
        assert on_first_screen(page, "#sound")
        page.locator(".over rect[data-start]").nth(4).hover()
        said = page.locator("[data-said]").inner_text()
        assert said.startswith("0.20–0.25 s: +")
        assert "±" in said
        assert "Hz" in said
        page.locator(".over rect[data-start]").nth(4).click()
        assert page.locator("[data-sound]").get_attribute("data-heard") == "0.2-0.25"
        page.keyboard.press("ArrowRight")
        assert page.locator("[data-said]").inner_text().startswith("0.25–0.30 s")
        page.keyboard.press("Enter")
        assert page.locator("[data-sound]").get_attribute("data-heard") == "0.25-0.3"
        page.locator("button[data-hear=around][data-start]").first.click()
        assert serious(page) == []


def test_the_numbers_can_be_saved(html: str, found: audio.ExplainedSound, browser) -> None:
    with browser.open(html) as page:
        name, data = saved(page, "button[data-export=csv]")
        assert name.endswith("-windows.csv")
        lines = data.decode().splitlines()
        assert len(lines) == 1 + len(found.values)
        assert float(lines[5].split(",")[2]) == pytest.approx(found.values[4])


def test_on_a_phone_in_the_dark(html: str, browser) -> None:
    with browser.open(html, size=PHONE, dark=True, touch=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        page.locator(".over rect[data-start]").nth(4).tap()
        assert page.locator("[data-said]").inner_text().startswith("0.20–0.25 s")
        assert serious(page) == []


def test_without_scripts_the_player_and_the_numbers_are_there(html: str, browser) -> None:
    with browser.open(html, scripts=False) as page:
        assert page.locator("audio[controls]").is_visible()
        assert page.locator(".laid").is_visible()
        page.locator("#overlay").uncheck()  # styles alone
        assert not page.locator(".laid").is_visible()
        assert page.locator(".plain").is_visible()
        assert not page.locator(".head").is_visible()
        assert not page.locator("button").first.is_visible()
        assert page.locator("#windows tbody tr").count() == 10


def test_colours_say_the_sign() -> None:
    red, grey, blue = (colour_of(value, 1.0) for value in (1.0, 0.0, -1.0))
    assert red == "#d62728"
    assert grey == "#969696"
    assert int(blue[5:], 16) > int(blue[1:3], 16)
    assert colour_of(float("nan"), 1.0) == grey


def test_the_spectrogram_is_coloured_where_cells_add(found: audio.ExplainedSound) -> None:
    laid, plain = (spectrum_pixels(found.picture, overlay=one).astype(int) for one in (True, False))
    assert laid.shape == plain.shape
    wide = laid.shape[1]
    inside, outside = slice(int(0.42 * wide), int(0.58 * wide)), slice(int(0.7 * wide), wide)
    assert (laid[:, inside, 0] - laid[:, inside, 2]).mean() > 20  # red
    assert np.abs(laid[:, outside] - plain[:, outside]).max() <= 1


def test_a_picture(found: audio.ExplainedSound) -> None:
    pytest.importorskip("matplotlib")
    from integrand.render.sound import figure

    drawn = figure(found.picture)
    assert len(drawn.axes) == 4
    assert drawn.axes[0].get_xlim() == (0, 0.5)


def test_the_script_is_in_the_package() -> None:
    assert (Path(audio.__file__).parent / "render" / "sound" / "sound.js").is_file()
