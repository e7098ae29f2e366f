"""The page over a data set: in a browser, at both widths, with and without scripts."""

from __future__ import annotations

import csv
import dataclasses
import io

import numpy as np
import pytest

from integrand.render.table_data import Distribution
from integrand.render.table_page import table_page, ticks
from tests.batch.tables import made, molecule_rows, photo_rows
from tests.browser import DESKTOP, PHONE, on_first_screen, saved, serious


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """The summary of photos with maps, failures, mistakes, and one that is far off."""
    return made(tmp_path_factory.mktemp("photos"), photo_rows(), title="Photos of three things").summary(label="label")


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    return made(tmp_path_factory.mktemp("molecules"), molecule_rows(), title="Molecules").summary()


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desktop", "phone"])
def test_the_answer_is_on_the_first_screen(browser, tmp_path, size, dark):
    rows = [*photo_rows(14), *photo_rows(41)[40:]] if dark else molecule_rows(12)
    found = made(tmp_path, rows).summary(label="label" if dark else None)
    with browser.open(found.page(), size=size, dark=dark) as page:
        assert page.locator(".says").inner_text() == found.sentence
        for part in (".says", ".badge", ".keyfigures"):
            assert on_first_screen(page, part), part
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        for one in page.locator("details").all()[:10]:
            one.evaluate("one => (one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert serious(page) == []


def test_a_link_opens_its_input_and_lists_are_searched(browser, photos):
    with browser.open(photos.page()) as page:
        link = page.locator("section table a").first
        key = link.inner_text()
        link.click()
        opened = page.locator(".card > details[open]")
        opened.first.wait_for()  # a page hears of its new address a moment later
        assert opened.count() == 1
        assert key in opened.inner_text()
        page.locator("[data-filter='listed as']").select_option("far from the rest")
        left = page.locator(".card:visible")
        assert 0 < left.count() < len(photos.listed)
        page.locator("[data-filter='listed as']").select_option("")
        page.locator("[data-search]").fill("photos/40.jpg")
        assert page.locator(".card:visible .name").all_inner_texts() == ["photos/40.jpg"]


def test_numbers_are_saved_as_a_table(browser, molecules):
    with browser.open(molecules.page()) as page:
        name, raw = saved(page, "[data-part='groups']")
    assert name == "groups.csv"
    rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"))))
    assert [(row["group"], float(row["mean"]), int(row["inputs"])) for row in rows] == [
        (one.name, one.mean, one.inputs) for one in molecules.groups
    ]


def test_without_scripts_everything_is_there(browser, photos):
    with browser.open(photos.page(), size=PHONE, scripts=False) as page:
        assert page.locator(".card").count() == len(photos.listed)
        page.locator(".card > details > summary").first.click()
        assert page.locator(".card .inside").first.is_visible()
        assert page.locator("svg[role=img]").count() >= 5
        assert not page.locator(".tools").first.is_visible()


def test_plots_say_their_numbers(photos):
    made_of = photos.page()
    one = photos.distributions["error / tolerance"]
    assert f"Histogram of {one.label}: {one.count:,} inputs from " in made_of
    assert made_of.count("As numbers") == len(photos.distributions)
    assert ">tolerance</text>" in made_of
    constant = Distribution("evaluations", "", 9, 17.0, (17.0,) * 5, 17.0, edges=(17.0, 17.0), counts=(9,))
    page = table_page(dataclasses.replace(photos, distributions={"evaluations": constant}))
    assert "17 for all 9 inputs" in page


@pytest.mark.parametrize(
    ("low", "high", "log"), [(0.013, 0.91, False), (-3.2e6, 4e5, False), (1e-9, 1e7, True), (17, 60, True), (3, 3.0001, False)]
)
def test_axes_have_a_few_round_numbers(low, high, log):
    found = ticks(Distribution("score", "", 9, low, (low,) * 5, high, log, edges=(low, high)))
    assert 2 <= len(found) <= 7
    assert all(low - 1e-9 * abs(low) <= value <= high + 1e-9 * abs(high) for value in found)
    assert np.all(np.diff(found) > 0)
