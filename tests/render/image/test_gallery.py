import io
import json

import numpy as np
import pytest
import torch

from integrand import Status
from integrand.render.image.gallery import SIDE, Card, card, card_of, gallery_page, summary, thumbnail

from ..test_report import EVIL, Page

FILE = "<img src=x onerror=alert(1)>.jpg"


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
    assert [tag for tag, _ in page.tags].count("li") == 2
    assert len(list(page.pictures())) == 4
    assert [attrs["href"] for tag, attrs in page.tags if tag == "a"] == ["./a/cat.html"] * 2
    said = ("Cats", "2 photos explained, 1 of them to the tolerance.", "tabby cat", "93.4%", "dog.jpg", "x y z")
    for words in (*said, "error 0.4% (asked for 1%)"):
        assert words in page.text, words
    assert 'class="bad">budget spent' in text
    assert 'class="good">converged' in text


def test_a_card_shows_the_photo_and_its_attributions(attribution, photo):
    image = pytest.importorskip("PIL.Image")
    values = torch.zeros(1, 3, 20, 30)
    values[:, :, :, :10] = 1.0  # one strength only: these pixels stay as they are, the others turn black
    one = card(attribution(values), photo, name="a", label="b")
    shown, scaled = (np.asarray(image.open(io.BytesIO(data))) for data in Page(gallery_page("x", [one])).pictures())
    assert (shown == photo).all()
    assert (scaled[:, :10] == photo[:, :10]).all()
    assert (scaled[:, 10:] == 0).all()


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
            for key in ("name", "label", "link", "detail", "photo", "scaled", "status")
            for value in (None, 1, [], {})
        ),
        *({"probability": value} for value in ("0.5", True, -0.1, 1.1, np.nan, np.inf, [], 10**400)),
        *({"photo": value} for value in ("", "data:image/png;base64,", EVIL, f"data:image/png;base64,{EVIL}")),
        {"photo": "data:image/svg+xml;base64,AAAA"},
        {"scaled": "data:image/png;base64,AAAA\n"},
        {"scaled": "https://elsewhere/x.png"},
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
    evil = {**entry, "name": FILE, "label": EVIL, "link": EVIL, "status": EVIL, "detail": EVIL}
    text = gallery_page(EVIL, [evil], [(FILE, EVIL)], meta={EVIL: EVIL}, command=EVIL)
    page = Page(text)
    assert not page.open
    assert EVIL not in text
    assert FILE not in text
    assert "script" not in {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"" in text
    )  # no script may run


@pytest.mark.parametrize("link", ["javascript:alert(1)", "//elsewhere/x.html", "a b#c?d.html", 'x" onclick="y'])
def test_links_stay_in_the_folder(entry, link):
    page = Page(gallery_page("x", [{**entry, "link": link}]))
    (href,) = (attrs["href"] for tag, attrs in page.tags if tag == "a")
    assert href.startswith("./")
    assert not set(":#?\" '") & set(href)


def test_without_a_page_there_is_no_link(entry):
    page = Page(gallery_page("x", [{**entry, "link": "", "probability": None}]))
    assert "a" not in {tag for tag, _ in page.tags}
    assert "%" not in page.text.replace("error 0.4% (asked for 1%)", "")


def test_thumbnails_are_means():
    pixels = np.arange(4 * 6 * 3).reshape(4, 6, 3).astype(np.uint8)
    np.testing.assert_array_equal(thumbnail(pixels, 3), np.rint(pixels.reshape(2, 2, 3, 2, 3).mean((1, 3))))
    assert thumbnail(pixels, 6) is pixels
    large = np.full((301, 700, 3), 77, np.uint8)
    small = thumbnail(large)
    assert small.shape == (62, SIDE, 3)
    assert (small == 77).all()
    assert thumbnail(np.zeros((1000, 1, 3), np.uint8)).shape == (SIDE, 1, 3)
