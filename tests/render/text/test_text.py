"""Words in colours: nothing is cut, nothing is obeyed, and sums stay."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integrand import ExampleCertificate
from integrand.errors import InputError, OptionError
from integrand.render import text as pictures
from integrand.render.glance import glance_script
from integrand.render.text import Tokens
from integrand.render.text import alignment_grid as _grid
from integrand.render.text.alignment_grid import Block, Grid
from integrand.render.text.tokens import clusters, right_to_left
from integrand.render.text.word_markup import background, ink

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1ec\U0001f1ed"
HEBREW = "כמה אנשים גרים שם?"


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def spaced(text: str, values: list[float], **options: object) -> Tokens:
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    return Tokens([text[a:b] for a, b in spans], values, spans, text=text, **options)  # type: ignore[arg-type]


@pytest.fixture
def line(certificate: Callable[..., ExampleCertificate]) -> Tokens:
    one = certificate(score=0.9, baseline_score=0.2, residual=0.0)
    known = {"label": "number", "score": 0.9, "baseline_score": 0.2, "probability": 0.9, "certificate": one}
    return spaced("how many  live here", [0.5, 0.25, -0.1, 0.05], **known)


def test_running_sum_goes_from_baseline_to_score(line: Tokens) -> None:
    assert line.running == pytest.approx([0.2, 0.7, 0.95, 0.85, 0.9])
    assert line.total == pytest.approx(0.7)
    assert line.missed == pytest.approx(0.0)
    text = Page(pictures.page(line)).text
    for number in ("0.2", "0.7", "0.95", "0.85", "0.9"):
        assert number in text


def test_bars_begin_where_the_last_one_ended(line: Tokens) -> None:
    styles = [attrs["style"] or "" for tag, attrs in Page(pictures.page(line)).tags if tag == "i"]
    places = [tuple(map(float, re.findall(r"[\d.]+(?=%)", style))) for style in styles]
    unit = 0.95 / 100
    for (left, wide), low, high in zip(places, (0, 0.2, 0.7, 0.85, 0.85, 0), (0.2, 0.7, 0.95, 0.95, 0.9, 0.9), strict=True):
        assert (left * unit, (left + wide) * unit) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_terminal(line: Tokens) -> None:
    assert pictures.terminal(line, colour=False) == "how(+0.5) many(+0.25)  live(−0.1) here(+0.05)  [number (90%)]"
    coloured = pictures.terminal(line)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == "how many  live here  [number (90%)]"
    assert "\x1b[48;2;178;24;43m" in coloured  # the strongest red
    assert "estimated error" in pictures.terminal(line, detail=True)


def test_terminal_obeys_nothing() -> None:
    evil = Tokens(["a\x1b]0;owned\x07", "\x9b31m", "\u202e\u2066"], [1.0, -1.0, 1.0], label="\x1b[2J\u202d", note="\ud800")
    assert not set(pictures.terminal(evil, colour=False)) & set("\x1b\x07\x9b\u202d\u202e\u2066\ud800")


def test_everything_is_escaped(line: Tokens) -> None:
    evil = "<script>alert('x')</script>"
    tokens = Tokens([evil, "&amp;", '"'], [1.0, -1.0, 0.1], label=evil, note=evil, score=1.0, baseline_score=0.0)
    made = pictures.page([tokens, line], title=evil, lead=evil, meta={evil: evil}, command=evil)
    for text in (made, pictures.page(tokens), pictures.fragment(tokens)):
        ours = text.replace(f"<script>{glance_script()}</script>", "")
        assert "<script" not in ours
        assert evil in Page(text).text
        assert "&amp;" in Page(text).text  # as the token says, not decoded once more
    assert not [tag for tag, _ in Page(made).tags if tag in ("link", "img", "iframe")]
    assert "default-src 'none'" in made


def test_words_keep_their_order_and_find_their_direction() -> None:
    tokens = spaced(HEBREW, [0.4, 0.1, -0.2, 0.0], label="number")
    made = pictures.fragment(tokens)
    assert HEBREW in Page(made).text
    assert ("bdi", {"dir": "auto"}) in Page(made).tags
    assert right_to_left(HEBREW)
    assert not right_to_left("how " + HEBREW)
    from integrand.render.text.text_figure import placed

    lefts = [word.left for word in placed(tokens)]
    assert lefts == sorted(lefts, reverse=True)  # the first word is the rightmost


def test_pictures_read_words_of_the_other_direction_in_their_own() -> None:
    pytest.importorskip("matplotlib")
    from integrand.render.text.text_figure import placed

    def seen(text: str) -> list[str]:
        words = placed(spaced(text, [0.1] * len(text.split())))
        return [word.text for word in sorted(words, key=lambda word: word.left)]

    assert seen("how many שלום עולם people ?") == ["how", "many", "עולם", "שלום", "people", "?"]
    assert seen("כמה ילדים how many , people שם") == ["שם", "how", "many", ",", "people", "ילדים", "כמה"]
    assert seen("one two three") == ["one", "two", "three"]


def test_columns_of_a_heatmap_are_as_wide_as_their_numbers() -> None:
    block = Block("text", "text", ("a",), np.array([[-12.5], [0.5]]), np.ones((2, 1), bool))
    head, *rows = _grid.terminal(Grid(("x", "y"), (block,), (-123.45, -0.5), (-135.95, 0.0)), colour=False).splitlines()
    assert rows[0].split() == ["x", "−12.50", "−123.45", "−135.95"]
    assert [len(line) for line in rows] == [len(head)] * 2


def test_signs_are_not_cut() -> None:
    text = f"hi {FAMILY}{FLAG} e\u0301"
    assert [text[a:b] for a, b in clusters(text)] == ["h", "i", " ", FAMILY, FLAG, " ", "e\u0301"]
    # Byte-level word pieces: four tokens in one family, one that ends within the flag.
    spans = [(0, 2), (3, 4), (4, 6), (6, 7), (7, 8), (8, 9), (9, 10), (11, 12), (12, 13)]
    tokens = Tokens([text[a:b] for a, b in spans], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0], spans, text=text)
    shown = [(piece.shown, piece.value) for piece in tokens.pieces]
    assert shown == [("hi", 1.0), (FAMILY, 30.0), (FLAG, 96.0), ("e\u0301", 384.0)]
    assert FAMILY + "</span>" in pictures.fragment(tokens)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=20))
def test_clusters_tile_the_text(text: str) -> None:
    found = clusters(text)
    assert "".join(text[a:b] for a, b in found) == text
    assert all(b > a for a, b in found)
    for a, _ in found[1:]:
        assert unicodedata.category(text[a]) not in ("Mn", "Me")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.text("ab 1,é👩\u200d💻", min_size=1, max_size=3), st.floats(-1e3, 1e3)), min_size=1, max_size=8))
def test_joining_keeps_the_sum_and_the_text(parts: list[tuple[str, float]]) -> None:
    text = "".join(part for part, _ in parts)
    ends = [sum(len(part) for part, _ in parts[: k + 1]) for k in range(len(parts))]
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    tokens = Tokens([part for part, _ in parts], [value for _, value in parts], spans, text=text)
    joined = tokens.joined()
    assert joined.total == pytest.approx(tokens.total, abs=1e-9)
    assert sum(piece.value for piece in tokens.pieces) == pytest.approx(tokens.total, abs=1e-9)
    drawn = "".join(piece.gap + piece.shown for piece in tokens.pieces) + tokens.tail
    assert drawn == text


def test_joining_word_pieces() -> None:
    marked = Tokens(["[CLS]", "un", "##believ", "##able", "[SEP]"], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert (marked.joined().texts, marked.joined().values) == (("[CLS]", "unbelievable", "[SEP]"), (1.0, 9.0, 5.0))
    pieces = Tokens(["<s>", "▁good", "▁mor", "ning", "</s>"], [1.0, 2.0, 3.0, 4.0, 5.0]).joined()
    assert (pieces.texts, pieces.values) == (("<s>", "▁good", "▁morning", "</s>"), (1.0, 2.0, 7.0, 5.0))
    assert [piece.shown for piece in pieces.pieces] == ["<s>", "good", "morning", "</s>"]
    spans = [(0, 0), (0, 3), (3, 7), (7, 8), (0, 0)]
    placed = Tokens(["[CLS]", "say", "able", ".", "[SEP]"], [0.5, 1.0, 2.0, 4.0, 8.0], spans, text="sayable.")
    assert (placed.joined().texts, placed.joined().values) == (("[CLS]", "sayable", ".", "[SEP]"), (0.5, 3.0, 4.0, 8.0))
    by_groups = placed.joined([None, 0, 0, 0, None])
    assert (by_groups.texts, by_groups.values) == (("[CLS]", "sayable.", "[SEP]"), (0.5, 7.0, 8.0))
    with pytest.raises(OptionError, match="2 groups for 5 tokens"):
        placed.joined([0, 1])


@pytest.mark.parametrize("values", [[0.0, 0.0], [math.nan, 1.0], [math.inf, -1.0], [math.nan, math.nan]])
def test_zero_and_unknown_values(values: list[float], tmp_path: Path) -> None:
    tokens = Tokens(["a", "b"], values, label="x", score=0.5, baseline_score=0.5)
    assert "[x]" in pictures.terminal(tokens)
    assert "<table" in pictures.page(tokens)
    for name in ("t.png", "t.json"):
        assert pictures.save(tokens, tmp_path / name).stat().st_size
    (saved,) = json.loads((tmp_path / "t.json").read_text())
    assert [row["value"] for row in saved["tokens"]] == [v if math.isfinite(v) else None for v in values]
    unknown = sum(not math.isfinite(v) for v in values)
    for told in (pictures.terminal(tokens, detail=True), pictures.page(tokens)):
        assert (f"{unknown} of 2 words have no number" in told) == (unknown > 0)


def test_figure_draws_anything(line: Tokens, tmp_path: Path) -> None:
    strange = Tokens(["$x_1$", FAMILY, HEBREW, "\x1b", " ", "中文", "w" * 300], [1, -1, 0.5, 0.1, 0, 0.2, 0.3], label="a$b$")
    drawn = pictures.figure([line, strange], running=True, title="$10 or £5")
    path = tmp_path / "t.svg"
    drawn.savefig(path, bbox_inches="tight")  # a warning would be an error
    assert path.stat().st_size
    assert pictures.figure(line)._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [part / 255 for part in bytes.fromhex(colour[1:])]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_words_can_be_read_on_every_colour() -> None:
    for step in range(-50, 51):
        behind = background(step / 50, 1.0)
        assert contrast(behind, ink(behind)) >= 4.5  # what WCAG asks for


def test_what_does_not_fit() -> None:
    with pytest.raises(InputError, match="1 values for 2 tokens"):
        Tokens(["a", "b"], [1.0])
    with pytest.raises(InputError, match="1 spans for 2 tokens"):
        Tokens(["a", "b"], [1.0, 2.0], [(0, 1)])
    with pytest.raises(InputError, match="without spans"):
        Tokens(["a"], [1.0], text="a")
    with pytest.raises(InputError, match="ends at 9 in a text of 1"):
        Tokens(["a"], [1.0], [(0, 9)], text="a")
    with pytest.raises(InputError, match="no text"):
        pictures.page([])
    with pytest.raises(OptionError, match=r"expected \.html"):
        pictures.save(Tokens(["a"], [1.0]), "t.doc")


@pytest.mark.parametrize(("size", "unit"), [(1.0, 1.0), (0.05, 1.0), (0.0123, 0.01), (3e-7, 1e-7), (0.0, 1.0), (math.nan, 1.0)])
def test_a_heatmap_writes_small_numbers_in_a_unit(size: float, unit: float) -> None:
    block = Block("a", "a", ("x", "y"), np.array([[size, -size / 2]]), np.ones((1, 2), bool))
    grid = Grid(("o",), (block,), (0.0,), (size / 2,))
    assert grid.unit == pytest.approx(unit)
    told = "" if unit == 1 else f"units of {unit:g}"
    for page in (_grid.terminal(grid, colour=False), _grid.table(grid)):
        assert told in page
        assert ("units of" in page) == bool(told)
    if told:
        assert f"{size / unit:+.2f}" in _grid.terminal(grid, colour=False)
