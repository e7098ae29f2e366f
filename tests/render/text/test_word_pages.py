"""Pages of texts and of what was written word by word, in a browser: the first screen, touch and keyboard, search, files."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from integrand import Certificate, Status
from integrand.render import text as pictures
from integrand.render.text import Tokens
from integrand.render.text.alignment_grid import Block, Grid
from integrand.render.text.grid_page import page as grid_page
from integrand.render.text.word_sentences import sentence
from tests.browser import DESKTOP, PHONE, on_first_screen, saved, serious
from tests.render.conftest import certified

CHOICES = [("a yes or no", 0.82), ("a text", 0.16), ("a number", 0.02)]


def asked(text: str, values: list[float], label: str, chance: float, **options: object) -> Tokens:
    words, spans, at = text.split(), [], 0
    for word in words:
        at = text.index(word, at)
        spans.append((at, at + len(word)))
    known = {"label": label, "meaning": f"asks for a {label}", "probability": chance, "text": text}
    sums = {"score": 0.2 + sum(values), "baseline_score": 0.2}
    one = certified(**sums, residual=0.0)
    return Tokens(words, values, spans, **{"certificate": one} | known | sums | options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def question() -> Tokens:
    values = [0.35, 0.11, 0.03, -0.05, -0.01, 0.15]
    text = "did charles oakley play more than"
    errors = [0.002] * 6
    return asked(text, values, "yes or no", 0.82, choices=CHOICES, errors=errors, notes=("It does not know 'oakley'.",))


@pytest.fixture(scope="module")
def single(question: Tokens) -> str:
    return pictures.page(question, title="What the questions ask for", command="integrand questions")


@pytest.fixture(scope="module")
def many(question: Tokens) -> str:
    bad = certified(status=Status.BUDGET, error=0.12)
    others = [
        asked("how many live here", [0.5, 0.3, -0.1, 0.0], "number", 0.99),
        asked("how much is it", [0.4, 0.2, -0.1, 0.0], "number", 0.45, certificate=bad),
    ]
    return pictures.page([question, *others], title="What the questions ask for")


@pytest.fixture(scope="module")
def matrix() -> str:
    text, written = ("good", "morning"), ("Guten", "Morgen")
    values = np.array([[0.6, 0.3], [-0.1, 0.5]])
    so_far = np.array([[0.0, 0.0], [0.55, 0.0]])
    there = np.array([[False, False], [True, False]])
    scores = (0.93, 0.95)
    blocks = (
        Block("the text", "text", text, values, np.ones((2, 2), bool), np.full((2, 2), 0.004)),
        Block("the translation so far", "so far", written[:1], so_far[:, :1], there[:, :1]),
    )
    grid = Grid(written, blocks, (0.03, 0.0), scores, ("probability 0.93", "probability 0.95"))
    whole = "good morning\nGuten"
    spans = [(0, 4), (5, 12), (13, 18)]
    lines = [
        Tokens(text, values[0], spans[:2], label="Guten", probability=0.93, text="good morning", certificate=certified()),
        Tokens([*text, "Guten"], [*values[1], 0.55], spans, label="Morgen", probability=0.95, text=whole),
    ]
    made = Certificate((certified(), certified()))
    return grid_page(grid, lines, heading="Guten Morgen", says="It says so.", certificate=made, own=2, meta={"model": "LSTM"})


def test_the_sentence_names_words_for_and_against(question: Tokens) -> None:
    told = sentence(question)
    assert told.startswith("It asks for a yes or no (82%) because of 'did' and 'than'; numbers good to ")
    assert question.numbers()["sentence"] == told
    mixed = Tokens(["when", "year"], [0.4, -0.36], label="date", probability=0.45)
    assert sentence(mixed) == "date (45%), mostly because of 'when', although 'year' speaks against it."
    assert sentence(Tokens(["a"], [math.nan], label="x")) == "x: some of its words have no number."
    assert sentence(Tokens(["a"], [-1.0], label="x")) == "x: no word speaks for it."


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_one_question_at_a_glance(browser, single, size):
    with browser.open(single, size=size) as shown:
        assert shown.locator("h1").inner_text() == "Asks for a yes or no (82%)"
        assert all(on_first_screen(shown, part) for part in ("h1", ".says", ".badge", ".heed", "#words", ".chances"))
        first = shown.locator("main").inner_text().split("Word by word")[0]
        assert "F(x" not in first


def test_words_by_touch_and_keyboard(browser, single):
    with browser.open(single, touch=True) as shown:
        line, words = shown.locator("[data-said]").first, shown.locator("#words [data-says]")
        words.nth(3).tap()
        assert line.inner_text() == "'play' speaks against it: −0.050 ± 0.002"
        words.first.focus()
        shown.keyboard.press("ArrowRight")
        assert line.inner_text() == "'charles' speaks for it: +0.110 ± 0.002"


def test_words_are_saved(browser, single):
    with browser.open(single) as shown:
        assert saved(shown, "[data-export=png]")[1].startswith(b"\x89PNG")
        name, table = saved(shown, "[data-export=csv]")
    rows = list(csv.reader(io.StringIO(table.decode("utf-8-sig"))))
    assert name == "words.csv"
    assert rows[0] == ["word", "adds", "sum", "±"]
    assert rows[2][0] == "did"
    assert [float(cell) for cell in rows[2][1:]] == pytest.approx([0.35, 0.55, 0.002])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_serious(browser, single, many, matrix, dark):
    for page in (single, many, matrix):
        with browser.open(page, dark=dark) as shown:
            assert serious(shown) == []
            for summary in shown.locator("summary").all():
                summary.click()
            assert serious(shown) == []
            shown.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
            assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
            assert serious(shown) == []


def test_many_are_searched_filtered_and_sorted(browser, many):
    with browser.open(many) as shown:
        assert all(on_first_screen(shown, part) for part in ("h1", ".says", ".badge", ".heed", ".tools", ".card .line"))
        assert "least certain of 'how much is it': asks for a number (45%)" in shown.locator(".says").inner_text()
        names = shown.locator(".card:not([hidden]) h2")
        shown.locator("[data-order]").select_option("least certain first")
        assert names.first.inner_text() == "Asks for a number (45%)"
        shown.locator("[data-filter=answer]").select_option("asks for a yes or no")
        assert names.all_inner_texts() == ["Asks for a yes or no (82%)"]
        table = list(csv.reader(io.StringIO(saved(shown, "[data-export=csv]")[1].decode("utf-8-sig"))))
    assert len(table) == 1 + 6 + 4 + 4


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_what_was_written_at_a_glance(browser, matrix, size):
    with browser.open(matrix, size=size) as shown:
        assert all(on_first_screen(shown, part) for part in ("h1", ".says", ".badge", ".chosen", ".pane .line"))
        assert on_first_screen(shown, ".grid") or size == PHONE
        shown.locator("label", has_text="Morgen").click()
        words = shown.locator(".pane:visible .line")
        assert words.all_inner_texts() == ["good morning", "Guten"]
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_cells_say_what_they_show(browser, matrix):
    with browser.open(matrix) as shown:
        cell = shown.locator("#matrix td[data-row='1'][data-column='1']")
        cell.hover()
        line = shown.locator("[data-sayings]:has(#matrix) [data-said]")
        assert line.inner_text() == "'morning' adds +0.500 ± 0.004 to 'Morgen' (probability 0.95)"
        assert shown.locator("#matrix th.across").all_inner_texts() == ["morning", "Morgen"]
        cell.focus()
        shown.keyboard.press("ArrowUp")
        assert line.inner_text().startswith("'morning' adds +0.300 ± 0.004 to 'Guten'")
        rows = list(csv.reader(io.StringIO(saved(shown, "[data-export=csv]")[1].decode("utf-8-sig"))))
        assert saved(shown, "[data-export=png]")[1].startswith(b"\x89PNG")
    assert rows[0] == ["", "good", "morning", "Guten", "text", "so far", "baseline", "score"]
    assert [float(cell) for cell in rows[2][1:]] == pytest.approx([-0.1, 0.5, 0.55, 0.4, 0.55, 0.0, 0.95])


def test_without_scripts_a_word_can_be_chosen(browser, matrix):
    with browser.open(matrix, scripts=False) as shown:
        shown.locator("label", has_text="Morgen").click()
        assert shown.locator(".pane:visible .line").all_inner_texts() == ["good morning", "Guten"]
