"""The first screen and what pages can do: in words here, and in a browser."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from integrand import Certificate, Status
from integrand.render.certificate_text import grade, trust
from integrand.render.glance import (
    GLANCE,
    Entry,
    Export,
    badge,
    collection,
    export_buttons,
    glance,
    glance_script,
    said,
    saying,
)
from integrand.render.html import document
from tests.browser import PHONE, on_first_screen, saved, serious
from tests.render.conftest import certified


@pytest.fixture(scope="module")
def results():
    """A result that converged and one that ran out of its budget."""
    return certified(), certified(status=Status.BUDGET, error=0.12)


@pytest.fixture(scope="module")
def page(results):
    """A page with everything that the kit has."""
    good, bad = results
    words = "".join(
        f"<td{saying(f'row {i} column {j}: {i * j}')} data-value='{i * j}'>{i}·{j}</td>" + ("</tr><tr>" if j == 3 else "")
        for i in range(1, 4)
        for j in range(1, 4)
    )
    table = f'<div data-sayings><table id="grid"><tbody><tr>{words}</tr></tbody></table>{said("Point at a cell.")}</div>'
    drawing = '<svg id="drawing" width="40" height="40" role="img" aria-label="a dot"><circle cx="20" cy="20" r="9"/></svg>'
    names = ["=1+1", "Zoë, or not", "plain"]
    rows = "".join(f"<tr><th scope='row'>{name}</th><td data-value='-0.5'>−.50</td></tr>" for name in names)
    cards = [
        Entry(f"<h3>{name}</h3>", name, {"class": kind}, {"least certain first": error})
        for name, kind, error in (("apple pie", "food", 0.2), ("Anna", "person", 0.1), ("apple tree", "C=O", math.nan))
    ]
    badges = badge(good) + badge(bad, label="other")
    parts = (
        glance("It is a test.", f"<figure>{drawing}</figure>", badges=badges, heed=["Mind <this>."]),
        export_buttons(
            Export("png", "drawing", "a.png"), Export("svg", "drawing", "a.svg"), Export("csv", "rows", "a.csv"),
            Export("png", "grid", "g.png", "Save the grid"),
        ),
        table,
        f'<table id="rows"><tbody>{rows}</tbody></table>',
        collection(cards, noun="thing"),
    )  # fmt: skip
    return document("A heading", "".join(parts), style=GLANCE, scripts=(glance_script(),))


def test_words_of_trust(results):
    good, bad = results
    assert trust(good).startswith("numbers good to ")
    assert trust(bad).startswith("numbers not good to ")
    assert (grade(good), grade(bad)) == ("good", "bad")


def test_errors_that_nobody_can_tell_from_none_are_not_spelled_out(results):
    good, _ = results
    assert trust(replace(good, error=1.2e-7, tol=1e-6)) == "numbers good to under 0.01%"


def test_several_are_counted(results):
    several = Certificate(results)
    assert trust(several) == "1 of 2 not accurate enough"
    assert "1 of 2 not accurate enough" in badge(several)


def test_texts_are_escaped(page):
    assert "Mind &lt;this&gt;." in page


def test_first_screen(browser, page):
    with browser.open(page, size=PHONE) as shown:
        assert all(on_first_screen(shown, part) for part in ("h1", ".says", ".badge", "#drawing", ".heed"))


def test_badge_opens(browser, page):
    with browser.open(page) as shown:
        assert not shown.locator(".badge .facts").first.is_visible()
        shown.locator(".badge summary").first.click()
        assert shown.locator(".badge .facts").first.is_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_serious(browser, page, dark):
    with browser.open(page, dark=dark) as shown:
        assert serious(shown) == []


def test_says_by_pointer_touch_and_keyboard(browser, page):
    with browser.open(page, touch=True) as shown:
        line = shown.locator("[data-said]")
        cells = shown.locator("#grid td")
        cells.nth(4).hover()
        assert line.inner_text() == "row 2 column 2: 4"
        cells.nth(8).tap()
        assert line.inner_text() == "row 3 column 3: 9"
        cells.nth(0).focus()
        for key, expected in (("ArrowRight", "row 1 column 2: 2"), ("ArrowDown", "row 2 column 2: 4")):
            shown.keyboard.press(key)
            assert line.inner_text() == expected
        shown.keyboard.press("Shift+Tab")  # one stop for the whole grid
        assert shown.evaluate("document.activeElement.closest('[data-sayings]')") is None


def test_saves(browser, page):
    with browser.open(page) as shown:
        assert saved(shown, "[data-file='a.png']")[1].startswith(b"\x89PNG")
        assert saved(shown, "[data-file='g.png']")[1].startswith(b"\x89PNG")
        name, text = saved(shown, "[data-file='a.svg']")
        assert name == "a.svg"
        assert b"<circle" in text
        _, table = saved(shown, "[data-file='a.csv']")
    rows = list(csv.reader(io.StringIO(table.decode("utf-8-sig"))))
    assert rows == [["'=1+1", "-0.5"], ["Zoë, or not", "-0.5"], ["plain", "-0.5"]]


def test_many_are_searched_filtered_and_sorted(browser, page):
    with browser.open(page) as shown:
        names = shown.locator(".card:not([hidden]) h3")
        assert names.all_inner_texts() == ["apple pie", "Anna", "apple tree"]
        shown.locator("[data-order]").select_option("least certain first")
        assert names.all_inner_texts() == ["Anna", "apple pie", "apple tree"]
        shown.locator("[data-search]").fill("APPLE")
        assert names.all_inner_texts() == ["apple pie", "apple tree"]
        shown.locator("[data-filter=class]").select_option("C=O")  # a kind may hold an equals sign
        assert names.all_inner_texts() == ["apple tree"]
        assert shown.locator("[data-count]").inner_text() == "1 of 3 things"


def test_without_scripts_everything_shows(browser, page):
    with browser.open(page, scripts=False) as shown:
        assert shown.locator(".card").count() == 3
        assert not shown.locator("[data-search]").is_visible()
