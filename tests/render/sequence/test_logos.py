"""Logos: letters as high as their values, upside down below the line; pages that say their numbers and load nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest

from integrand.certificate import ExampleCertificate, Status
from integrand.errors import InputError, OptionError
from integrand.render import sequence as pictures
from integrand.render.sequence.letter_shapes import outline, outline_svg
from integrand.render.sequence.logo_data import Logo, Seqlet, letter_colour
from integrand.render.sequence.logo_layout import contribution_letters, extent, hypothetical_letters
from integrand.render.sequence.logo_page import window_of
from integrand.render.sequence.logo_svg import logo_svg
from tests.browser import PHONE, Browser, serious


def logo(length: int = 120, alphabet: str = "ACGT", **known: object) -> Logo:
    rng = np.random.default_rng(0)
    letters = "".join(rng.choice(list(alphabet), length))
    values = rng.normal(0, 0.05, length)
    values[20:27] = [1, 2, 3, 2, 1.5, 2, 1]
    values[40:44] = [-1, -1.5, -1, -0.5]
    others = rng.normal(0, 0.5, (len(alphabet), length))
    one = ExampleCertificate(6.0, -3.0, 0.001, 20.0, 0.004, 0.01, 400, 20, Status.CONVERGED, "adaptive", "float32", "bound")
    seqlets = (
        Seqlet(20, 27, letters[20:27], 12.5, 0.02, 0.4),
        Seqlet(40, 44, letters[40:44], -4.0, 0.02, 0.2),
    )
    about = {"label": "bound", "said": "bound", "probability": 0.98, "baseline": "20 shuffles"} | known
    return Logo(
        letters, alphabet, values, np.full(length, 0.01), np.full(length, 0.1), others, others * 0 + 0.02, seqlets, one, **about
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("letter", "ACDEFGHIKLMNPQRSTUVWXY")
def test_outlines_fill_the_unit_square(letter: str) -> None:
    points = outline(letter).to_polygons()
    flat = np.concatenate(points)
    assert flat[:, 1].min() == pytest.approx(0, abs=0.03)
    assert flat[:, 1].max() == pytest.approx(1, abs=0.03)
    if letter != "I":
        assert flat[:, 0].min() == pytest.approx(0, abs=0.03)
        assert flat[:, 0].max() == pytest.approx(1, abs=0.03)
    numbers = [float(x) for x in re.findall(r"-?[\d.]+", outline_svg(letter))]
    assert min(numbers) > -0.1
    assert max(numbers) < 1.1


def test_letters_stand_where_their_values_say() -> None:
    one = logo()
    placed = contribution_letters(one)
    assert [(p.low, p.high) for p in placed[20:22]] == [(0, 1), (0, 2)]
    assert placed[40].low == -1
    assert placed[40].high == 0
    stacks = hypothetical_letters(one, 7, 8)
    assert one.hypothetical is not None
    column = one.hypothetical[:, 7]
    assert max(p.high for p in stacks) == pytest.approx(column[column > 0].sum())
    assert min(p.low for p in stacks) == pytest.approx(column[column < 0].sum())
    assert {p.letter: p.high - p.low for p in stacks} == pytest.approx(dict(zip("ACGT", np.abs(column), strict=True)))
    assert extent([]) == (0.0, 1.0)


def test_letters_below_the_line_stand_on_their_heads() -> None:
    drawn = logo_svg(logo(), 0, 120, name="a", high=100, label="b")
    heads = re.findall(r'scale\(9\.2 (-?[\d.]+)\)" fill', drawn)
    assert any(text.startswith("-") for text in heads)
    assert any(not text.startswith("-") for text in heads)
    assert drawn.count('class="col"') == 120


def test_the_sentence() -> None:
    assert logo().sentence.startswith("bound (98%), mostly because of ")
    assert "at 21–27 (+12.50 ± 0.02, baselines ± 0.4)" in logo().sentence
    other = logo(said="not bound", probability=0.9).sentence
    assert other.startswith("not bound (90%); most for bound speaks ")
    assert "most against it" in other
    plain = logo(said="", label="", probability=None).sentence
    assert plain.startswith("the output is 6, -3 at the baseline, mostly because of ")


def test_parts_that_contradict_each_other() -> None:
    one = logo()
    with pytest.raises(InputError, match="for 119 letters"):
        Logo(
            one.letters[1:],
            *(getattr(one, name) for name in ("alphabet", "values", "errors", "spread")),
            None,
            None,
            (),
            one.certificate,
        )
    with pytest.raises(InputError, match="expected at least one"):
        pictures.page([])


def test_pictures_in_rows_and_windows() -> None:
    whole = pictures.figure(logo(250), hypothetical=True, marks=[(20, 27, "AP-1")])
    assert len(whole.axes) == 6
    part = pictures.figure(logo(250), window=(10, 50))
    assert len(part.axes) == 1
    assert part.axes[0].get_xlim() == (10, 50)
    assert len(part.axes[0].patches) >= 40
    long = pictures.figure(logo(3000))
    assert len(long.axes) == 2  # the strongest stretches
    with pytest.raises(OptionError, match="got window=\\(5, 5\\)"):
        pictures.figure(logo(), window=(5, 5))


def test_long_sequences_are_shown_around_the_strongest_stretch() -> None:
    assert window_of(logo(5000)) == (0, 4000)
    assert window_of(logo(100)) == (0, 100)
    assert "Positions 1 to 4000 of 5,000" in pictures.page(logo(5000))


def test_colours_of_letters() -> None:
    assert letter_colour("U", "ACGU") == letter_colour("T", "ACGT")
    assert letter_colour("K", "ACDEFGHIKLMNPQRSTVWY") == letter_colour("R", "ACDEFGHIKLMNPQRSTVWY")


def test_names_from_outside_are_text() -> None:
    page = pictures.page(logo(name="<script>alert(1)</script>", notes=("<b>x</b>",), label="<i>", said="<i>"))
    assert "<script>alert" not in page
    assert "<b>x</b>" not in page
    assert "<i>" not in page.partition("</style>")[2]


def test_the_page_says_numbers_zooms_and_fits_a_phone(browser: Browser) -> None:
    one = logo(300)
    html = pictures.page(one, command="integrand sequence ACGT")
    with browser.open(html) as page:
        page.locator("#p24 .hit").hover()
        assert page.locator("[data-said]").inner_text() == one.says(23)
        page.locator("#p24").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("[data-said]").inner_text() == one.says(24)
        wide = page.locator("#logo").bounding_box()["width"]
        page.locator("[data-zoom]").fill("28")
        assert page.locator("#logo").bounding_box()["width"] == pytest.approx(2 * wide, rel=0.01)
        page.locator("[data-goto]").last.click()
        assert page.evaluate("document.activeElement.id") == "p43"
        assert serious(page) == []
    with browser.open(html, size=PHONE, dark=True, touch=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        strip, column = (page.locator(name).bounding_box() for name in ("[data-strip]", "#p24"))
        assert strip["x"] <= column["x"] <= strip["x"] + strip["width"]  # it begins where most of the evidence is
        assert serious(page) == []
    with browser.open(html, scripts=False) as page:
        assert page.locator("#logo use").count() > 50
        assert not page.locator("[data-zoom]").is_visible()


def test_many_on_a_page(browser: Browser) -> None:
    html = pictures.page([logo(100, name="first"), logo(100, name="second", said="not bound")], title="Two")
    with browser.open(html) as page:
        assert page.locator("article").count() == 2
        page.locator("[data-search]").fill("second")
        assert page.locator("article:visible").count() == 1
        assert serious(page) == []
