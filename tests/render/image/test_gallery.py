import io
import json
import re

import numpy as np
import pytest
import torch

from integrand import Status
from integrand.render.image.gallery import SIDE, Card, card, card_of, gallery_page, summary, thumbnail

from ...browser import DESKTOP, PHONE, on_first_screen, serious
from ..test_report import EVIL
from ..test_report import Page as Parser

FILE = "<img src=x onerror=alert(1)>.jpg"


class Page(Parser):
    VOID = Parser.VOID | {"input"}


@pytest.fixture
def photo():
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)


@pytest.fixture
def entry(attribution, photo):
    return card(
        attribution(torch.ones(1, 3, 20, 30)), photo, name="cat.jpg", label="tabby cat", link="a/cat.html", probability=0.934
    )


def test_a_card_per_photo(entry):
    text = gallery_page("Cats", [entry, {**entry, "name": "dog.jpg", "status": "budget spent", "good": False}], command="x y z")
    page = Page(text)
    assert not page.open
    assert [tag for tag, _ in page.tags].count("article") == 2
    assert len(list(page.pictures())) == 4
    assert [attrs["href"] for tag, attrs in page.tags if tag == "a"] == ["./a/cat.html"] * 2
    said = (
        "Cats",
        "2 photos explained, 1 of them to the tolerance. Least certain: cat.jpg (tabby cat, 93.4%).",
        "tabby cat",
        "93.4%",
        "dog.jpg",
        "x y z",
    )
    for words in (*said, "error 0.4% (asked for 1%)"):
        assert words in page.text, words
    assert 'class="bad">budget spent' in text
    assert 'class="good">converged' in text


def test_a_card_shows_the_photo_and_where_the_answer_comes_from(attribution, photo):
    image = pytest.importorskip("PIL.Image")
    values = torch.zeros(1, 3, 20, 30)
    values[:, :, :, :10] = 1.0  # one strength only: scaled, these pixels stay as they are, the others turn black
    one = card(attribution(values), photo, name="a", label="b", view="scaled")
    shown, answer = (np.asarray(image.open(io.BytesIO(data))) for data in Page(gallery_page("x", [one])).pictures())
    assert (shown == photo).all()
    assert (answer[:, :10] == photo[:, :10]).all()
    assert (answer[:, 10:] == 0).all()


def test_a_card_tells_its_sentence_and_the_page_its_notice_once(entry):
    cards = [{**entry, "says": "tabby cat (93%): in the centre; numbers good to 0.4%.", "notice": "Not a device."}] * 2
    text = gallery_page("x", cards)
    assert text.count("in the centre; numbers good") == 4  # shown, and looked through by the search
    assert text.count("Not a device.") == 1
    assert "converged" not in Page(text).text  # the sentence has said it
    assert "budget spent" in Page(gallery_page("x", [{**cards[0], "status": "budget spent", "good": False}])).text


def test_cards_survive_json(entry, attribution, photo):
    plain = card(attribution(torch.ones(1, 3, 20, 30), status=Status.EXACT), photo, name="a", label="b")
    for one in (entry, plain):
        again: Card = json.loads(json.dumps(one, allow_nan=False))
        assert gallery_page("x", [again]) == gallery_page("x", [one])
    assert plain["probability"] is None
    assert plain["detail"] == ""  # nothing was estimated


def test_a_card_that_was_read_is_the_card_that_was_written(entry, attribution, photo):
    for one in (entry, card(attribution(torch.ones(1, 3, 20, 30), status=Status.EXACT), photo, name="\udce9", label="b")):
        assert card_of(json.loads(json.dumps(one))) == one
        assert card_of(one | {"more": "x"}) == one


@pytest.mark.parametrize(
    "change",
    [
        *(
            {key: value}
            for key in ("name", "label", "link", "detail", "photo", "answer", "says", "notice", "status")
            for value in (None, 1, [], {})
        ),
        *({"probability": value} for value in ("0.5", True, -0.1, 1.1, np.nan, np.inf, [], 10**400)),
        *({"photo": value} for value in ("", "data:image/png;base64,", EVIL, f"data:image/png;base64,{EVIL}")),
        {"photo": "data:image/svg+xml;base64,AAAA"},
        {"answer": "data:image/png;base64,AAAA\n"},
        {"answer": "https://elsewhere/x.png"},
        *({"error": value} for value in ("0.5", True, -0.1, np.nan, np.inf, [])),
        {"status": "fine"},
        {"status": EVIL},
    ],
)
def test_a_card_that_is_none_is_refused(entry, change):
    with pytest.raises((TypeError, ValueError)):
        card_of(entry | change)
    (key,) = change
    with pytest.raises(KeyError):
        card_of({name: value for name, value in entry.items() if name != key})


@pytest.mark.parametrize("data", [None, 1, "x", [], [1]])
def test_what_is_no_card_at_all_is_refused(data):
    with pytest.raises((TypeError, KeyError)):
        card_of(data)


def test_a_card_cannot_claim_to_be_good(entry):
    assert card_of(entry | {"good": True, "status": "budget spent"})["good"] is False


def test_failures_come_last(entry):
    text = Page(gallery_page("x", [entry], [("a.txt", "not an image; give a JPEG"), ("b.jpg", "cut off")], waiting=3)).text
    assert text.index("cat.jpg") < text.index("Not explained") < text.index("a.txt") < text.index("give a JPEG")
    assert "1 photo explained, all to the tolerance. 2 files failed and are listed at the end. 3 are still to come." in text


def test_nothing_at_all():
    assert summary([]) == "No photo explained."
    assert not Page(gallery_page("x", [])).open


def test_every_text_is_escaped(entry):
    evil = {
        **entry,
        "name": FILE,
        **dict.fromkeys(("label", "link", "status", "detail", "says", "notice"), EVIL),
        "good": False,
    }
    text = gallery_page(EVIL, [evil], [(FILE, EVIL)], meta={EVIL: EVIL}, command=EVIL)
    page = Page(text)
    assert not page.open
    assert EVIL not in text
    assert FILE not in text
    assert [attrs for tag, attrs in page.tags if tag == "script"] == [{}]  # ours, which the policy names by its hash
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert re.search(r"default-src 'none'; .*; form-action 'none'; script-src 'sha256-[^' ]+'\"", text)


@pytest.mark.parametrize("link", ["javascript:alert(1)", "//elsewhere/x.html", "a b#c?d.html", 'x" onclick="y'])
def test_links_stay_in_the_folder(entry, link):
    page = Page(gallery_page("x", [{**entry, "link": link}]))
    (href,) = (attrs["href"] for tag, attrs in page.tags if tag == "a")
    assert href.startswith("./")
    assert not set(":#?\" '") & set(href)


def test_without_a_page_there_is_no_link(entry):
    page = Page(gallery_page("x", [{**entry, "link": "", "probability": None}]))
    assert "a" not in {tag for tag, _ in page.tags}
    assert "93.4%" not in page.text.replace("error 0.4% (asked for 1%)", "")


def test_thumbnails_are_means():
    pixels = np.arange(4 * 6 * 3).reshape(4, 6, 3).astype(np.uint8)
    np.testing.assert_array_equal(thumbnail(pixels, 3), np.rint(pixels.reshape(2, 2, 3, 2, 3).mean((1, 3))))
    assert thumbnail(pixels, 6) is pixels
    large = np.full((301, 700, 3), 77, np.uint8)
    small = thumbnail(large)
    assert small.shape == (62, SIDE, 3)
    assert (small == 77).all()
    assert thumbnail(np.zeros((1000, 1, 3), np.uint8)).shape == (SIDE, 1, 3)


def test_many_photos_can_be_searched_filtered_and_sorted(browser, entry):
    names = (("b.jpg", "dog", 0.9), ("a.jpg", "cat", 0.4), ("c.jpg", "dog", 0.2))
    cards = [{**entry, "name": name, "label": label, "probability": p, "says": f"{label}."} for name, label, p in names]
    with browser.open(gallery_page("Pets", cards), size=DESKTOP) as page:
        shown = lambda: [one.text_content() for one in page.locator(".card:visible .words > span").all()]  # noqa: E731
        assert "Least certain: c.jpg (dog, 20.0%)" in page.locator(".says").text_content()
        assert [one.text_content() for one in page.locator(".counts li").all()] == ["dog 2", "cat 1"]
        assert shown() == ["b.jpg", "a.jpg", "c.jpg"]
        for order, wanted in (("least certain first", "cab"), ("file", "abc"), ("class", "abc")):
            page.locator("[data-order]").select_option(order)
            assert [name[0] for name in shown()] == list(wanted)
        page.locator("[data-filter=class]").select_option("dog")
        assert shown() == ["b.jpg", "c.jpg"]
        page.locator("[data-search]").fill("c.j")
        assert shown() == ["c.jpg"]
        assert not serious(page)
    cards[2]["label"] = "this does not look like a photo of a pet, and a class of it means nothing"
    with browser.open(gallery_page("Pets", cards), size=PHONE, dark=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]  # long classes widen no select
        assert on_first_screen(page, ".says")
        assert on_first_screen(page, ".card")
        assert not serious(page)
