"""Hostile texts in every field of everything that becomes a page: they are text there, and nothing else."""

from __future__ import annotations

import ast
import copy
import dataclasses
import enum
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import integrand as ig
from integrand import Attribution, Certificate, CurveCertificate, Promise, Status
from integrand.apps.questions.trigger_rules import Rules, TriggerRule
from integrand.axioms import table as axiom_table
from integrand.axioms.axiom_table import Table
from integrand.baselines import diagnose
from integrand.comparison import compare
from integrand.methods import Gradient, IntegratedGradients
from integrand.render import certificate_table, report
from integrand.render.escaping import escape
from integrand.render.html import document
from integrand.render.image.gallery import card, gallery_page
from integrand.render.image.photo_page import ImagePage, PagePicture, PageRival, image_page
from integrand.render.image.viewer import Map, viewer
from integrand.render.image.views import Mark, Panel
from integrand.render.notebook import framed_page
from integrand.render.table_data import (
    ClassTally,
    Distribution,
    ListedInput,
    MistakeTally,
    NameTally,
    ReasonCount,
    TableFigures,
    TruthCheck,
)
from integrand.render.table_page import table_page
from integrand.render.text import fragment as text_fragment
from integrand.render.text import grid_page
from integrand.render.text import page as text_page
from integrand.render.text.alignment_grid import Block, Grid
from integrand.render.text.tokens import Tokens

from .conftest import certified

SRC = Path(ig.__file__).parent

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "</title></style></textarea><h1>x",
    "--><!-- <![CDATA[ ]]>",
    "<meta http-equiv=refresh content='0;url=//example.org'>",
    "&lt;img&gt; &#60;script&#62; <b",
    "a\x00\x1b[2J\x0c\u2028\u2029\u202e\ufffe\ud800z",
    "url(//example.org);background:red}</style>",
)
HARMLESS = "some words"

ADDRESSES = {"href", "src", "action", "formaction", "srcset", "data", "style", "http-equiv", "content", "id", "class", "type"}
"""Attributes whose values matter to a browser; of others only the names are compared."""


class Skeleton(HTMLParser):
    """A page without its texts: its elements, their attributes, and the values that a browser goes by."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.comments = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kept = ((name, value if name in ADDRESSES else None) for name, value in attrs)
        self.elements.append((tag, tuple(kept)))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", ()))

    def handle_comment(self, data: str) -> None:
        self.comments += 1

    def handle_decl(self, decl: str) -> None:
        assert decl == "doctype html"

    def unknown_decl(self, data: str) -> None:
        self.comments += 1


def without_looks(seen: Skeleton) -> set[Any]:
    return {(tag, tuple(one for one in attrs if one[0] not in ("style", "class"))) for tag, attrs in seen.elements}


def poisoned(value: Any, word: str, keep: frozenset[str] = frozenset()) -> Any:
    """The same with every text in it replaced, but for fields that hold no text for people."""
    if isinstance(value, str):
        return word
    if isinstance(value, (torch.Tensor, np.ndarray, enum.Enum)) or callable(value):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for part in dataclasses.fields(value):
            if part.name not in keep:
                object.__setattr__(changed, part.name, poisoned(getattr(value, part.name), word, keep))
        return changed
    if isinstance(value, Mapping):
        return {
            poisoned(key, word) + (str(k) if k else ""): poisoned(one, word, keep) for k, (key, one) in enumerate(value.items())
        }
    if isinstance(value, (tuple, list)):
        return type(value)(poisoned(one, word, keep) for one in value)
    return value


# ---- every page maker: from one text, put wherever there is one, to a page -------------------------------------------------

VALUES = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
PHOTO = np.full((8, 8, 3), 100, np.uint8)


def told(word: str, **changes: Any) -> ig.ExampleCertificate:
    curves = (CurveCertificate(0.5, 0.0, 1.0, 0.0, 0.01, 17),) * 2
    texts = dict.fromkeys(("rule", "precision", "target", "note", "knob"), word)
    return certified(**{"curves": curves, "status": Status.BUDGET, "error": 0.2, "moved": 0.1} | texts | changes)


def resulted(word: str, values: Any = VALUES, **changes: Any) -> Attribution:
    promises = (Promise(word, False, word), Promise(word, True, word))
    count = len(values) if isinstance(values, torch.Tensor) else 1
    return Attribution(
        values, Certificate((told(word, **changes),) * count, promises), True, {"method": word, word + "1": word}
    )


def photo_data(word: str) -> ImagePage:
    panel = Panel(word, word, PHOTO, 1.0, marks=(Mark(1, 1, word),), lines=(word,))
    pictures = [PagePicture(word, word, pixels, place) for pixels in (PHOTO, panel) for place in ("path", "more")]  # type: ignore[arg-type]
    data = ImagePage(
        word,
        PHOTO,
        resulted(word),
        top=[(word, 0.5), (word + "2", 0.1)],
        others={word + "2": Map(VALUES[0].numpy(), word)},
        rival=PageRival(word, word, resulted(word), word),
        pictures=pictures,
        notes=[word],
        meta={word: word},
    )
    return dataclasses.replace(
        data,
        **dict.fromkeys(("name", "network", "score_name", "title", "preprocessing", "command", "says", "rule", "notice"), word),
    )


@cache
def compared() -> Any:
    return compare(lambda z: (z**2).sum(1), torch.ones(2, 3), methods={"a": IntegratedGradients(), "b": Gradient()})


@cache
def diagnosed() -> Any:
    def logits(v: torch.Tensor) -> torch.Tensor:
        return torch.stack([v.sum(1), -v.sum(1), 0 * v.sum(1)], 1)

    return diagnose(logits, torch.tensor([[2.0, 1.0, 0.5]]), draws=2)


@cache
def searched() -> Table:
    return axiom_table([Gradient()], axioms=["sensitivity-a", "linearity"], max_examples=20)


def compare_page(word: str) -> str:
    found = poisoned(compared(), word)
    object.__setattr__(found, "failures", {word + "f": word})
    return found.report(title=word, labels=[word] * 2, features=[word] * 3, command=word) + found._repr_html_()


def diagnosis_page(word: str) -> str:
    found = poisoned(diagnosed(), word, frozenset({"classes"}))
    rows = tuple(dataclasses.replace(row, name=f"{word}{k}") for k, row in enumerate(found.rows))
    for name, value in {"rows": rows, "recommended": rows[0].name, "failures": {word: word}}.items():
        object.__setattr__(found, name, value)
    return found.report(label=word, features=[word] * 3, title=word, command=word) + found._repr_html_()


def axioms_page(word: str) -> str:
    keep = frozenset({"axioms", "networks", "promise"})
    found = poisoned(searched(), word, keep)
    return found.html(title=word, command=word) + found._repr_html_() + found.verdicts[0][0]._repr_html_()


def rules_page(word: str) -> str:
    rule = TriggerRule(word, word, "suspicious", word, 5, 6, 0.5, 0.5, 0.3, True, (word,))
    found = Rules((rule,), (word,), 5, 0.5, 0.9, 0.01, {word: 1.0})
    return found.page(title=word, command=word) + found._repr_html_()


def texts_page(word: str) -> str:
    tokens = Tokens([word, word], [1.0, -0.5], label=word, note=word, score=1.0, baseline_score=0.0, certificate=told(word))
    block = Block(word, word, (word, word), np.array([[0.1, -0.2]]), np.ones((1, 2), bool))
    grid = Grid((word,), (block,), (0.0,), (1.0,))
    made = text_page([tokens], title=word, lead=word, meta={word: word}, command=word) + text_fragment(tokens)
    certificate = ig.Certificate((told(word),))
    options: dict[str, Any] = {
        "heading": word,
        "says": word,
        "certificate": certificate,
        "called": (word, word),
        "notes": [word],
    }
    return made + grid_page.page(grid, [tokens], own=1, meta={word: word}, command=word, **options)


def molecules_page(word: str) -> str:
    chem = pytest.importorskip("rdkit.Chem")
    from integrand.render import molecule

    mol = chem.MolFromSmiles("CCO")
    for atom in mol.GetAtoms():
        atom.SetProp("atomLabel", word.encode("utf-8", "replace").decode().replace("\x00", ""))
    one = molecule.Molecule(mol, [0.1, -0.2, 0.3], np.zeros((3, 3)), ((word, 0.1),), title=word, label=word, score=1.0)
    options: dict[str, Any] = {"title": word, "lead": word, "meta": {word: word}, "command": word}
    accounts = [[molecule.AccountLine(word, word, 1.0, 0.5)]]
    return molecule.page([one], notes=[word], certificates=[told(word)], accounts=accounts, **options) + molecule.svg(one)


def galleries_page(word: str) -> str:
    one = card(resulted(word), PHOTO, name=word, label=word, link="a.html", probability=0.5)
    one["status"] = one["detail"] = word
    return gallery_page(word, [one], [(word, word)], meta={word: word}, command=word)


def data_set_page(word: str) -> str:
    names = (NameTally(word, 5, 1.0, 2.0, 3), NameTally(word + "2", 4, -1.0, 2.0, 1))
    grid = np.eye(4)
    bars: dict[str, Any] = {"edges": (0.1, 1.0, 2.0), "counts": (8, 1)}
    spread = Distribution("error / tolerance", word, 9, 0.1, (0.2, 0.4, 0.5, 0.6, 0.9), 2.0, **bars)
    texts = dict.fromkeys(("prediction", "target", "label", "status", "sentence", "failure"), word)
    listed = ListedInput(
        word,
        (("largest error", word), ("not as labelled", word)),
        {word: 7.0},
        notes=(word,),
        features=((word, 0.5),),
        groups=((word, -0.5),),
        values=grid,
        columns={word: word},
        link="a.html",
        about=word,
        **texts,  # type: ignore[arg-type]
    )
    failed = dataclasses.replace(listed, prediction=None, why=((word, ""),), status="failed")
    truth = TruthCheck(word, 9, 8, word, {(word, word): 8, (word, word + "2"): 1}, (MistakeTally(*names),), grid)
    classes = tuple(ClassTally(word + more, 5, 0.5, names, names, grid) for more in ("", "2"))
    figures = TableFigures(
        word,
        9,
        {word: 7, "failed": 2},
        classes,
        2,
        names,
        20,
        names,
        20,
        names,
        names,
        part=word,
        mean_map=grid,
        distributions={word: spread, word + "2": dataclasses.replace(spread, name=word, log=True)},
        failures=(ReasonCount(word, 2),),
        notes=(ReasonCount(word, 2),),
        truth=truth,
        listed=(listed, failed),
        heed=(word,),
        meta={word: word},
    )
    return table_page(figures, command=word)


MAKERS: dict[str, Callable[[str], str]] = {
    "report of a photo": lambda word: report(
        resulted(word), image=torch.ones(3, 8, 8), title=word, labels=word, command=word, others={word + "2": VALUES}
    ),
    "report of features": lambda word: report(resulted(word, {word: torch.ones(1, 2), word + "2": torch.ones(1, 1)})),
    "report of names": lambda word: report(resulted(word, torch.ones(2, 2)), features=[word, word]),
    "certificate": lambda word: certificate_table(resulted(word).certificate) + resulted(word)._repr_html_(),
    "certificates": lambda word: certificate_table(resulted(word, torch.ones(2, 2)).certificate),
    "photo": lambda word: image_page(photo_data(word)),
    "photo in a notebook": lambda word: framed_page(image_page(photo_data(word)), says=word),
    "viewer": lambda word: document(
        word, viewer(PHOTO, {word: Map(VALUES[0].numpy(), word), word + "2": VALUES[0].numpy()}, label=word)
    ),
    "gallery": galleries_page,
    "data set": data_set_page,
    "comparison": compare_page,
    "diagnosis": diagnosis_page,
    "axioms": axioms_page,
    "rules": rules_page,
    "texts": texts_page,
    "molecules": molecules_page,
}


@pytest.mark.parametrize("maker", MAKERS)
def test_hostile_texts_are_text(maker: str) -> None:
    expected = Skeleton(MAKERS[maker](HARMLESS))
    assert expected.elements
    for word in HOSTILE:
        made = MAKERS[maker](word)
        seen = Skeleton(made)
        if maker == "molecules":  # whose texts are laid out by their length
            assert without_looks(seen) <= without_looks(expected), word
        else:
            assert seen.elements == expected.elements, word
        assert seen.comments == 0
        if maker != "gallery":  # whose own module escapes
            assert not set(made) & set("\x00\x1b\ud800")
            made.encode()


class Frames(HTMLParser):
    """The pages that frames hold, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pages: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "iframe":
            self.pages.append(dict(attrs)["srcdoc"] or "")


def test_a_frame_holds_the_very_page() -> None:
    for word in HOSTILE:
        page = image_page(photo_data(word))
        assert Frames(framed_page(page, says=word)).pages == [page]


def test_hostile_texts_cannot_leave_a_frame(browser: Any) -> None:
    """In a notebook's cell, whose own page would obey what comes out of the frame."""
    cells = "".join(
        f"<section>{framed_page(make(word), says=word)}</section>\n"
        for word in HOSTILE
        for make in (MAKERS["photo"], lambda word: text_page([Tokens([word], [1.0], label=word)], title=word))
    )
    asked: list[str] = []
    alerts: list[str] = []
    with browser.open("<!doctype html><title>notebook</title><main></main>") as page:
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
        page.evaluate("html => { document.querySelector('main').innerHTML = html; }", cells.replace('loading="lazy" ', ""))
        count = 2 * len(HOSTILE)
        page.wait_for_function("count => window.frames.length === count", arg=count)
        outside = page.evaluate("[...document.querySelectorAll('main *')].map((one) => one.localName)")
        assert sorted(set(outside)) == ["iframe", "section"]
        assert len(outside) == 2 * count
        for frame in page.frames[1:]:
            frame.wait_for_load_state()
            assert frame.evaluate("document.documentElement.classList.contains('live')")  # its own script runs
            assert frame.evaluate("document.querySelectorAll('h1').length") == 1
            assert frame.evaluate("try { !!parent.document } catch (error) { error.name }") == "SecurityError"
        assert page.title() == "notebook"
    assert alerts == []
    assert [url for url in asked if not url.startswith(("about:", "data:", "blob:"))] == []


@pytest.mark.parametrize("name", [part.name for part in dataclasses.fields(ig.ExampleCertificate)])
def test_texts_in_the_place_of_numbers_are_text_too(name: str) -> None:
    """A certificate that was not checked: its makers fail, or write what they were given as text."""
    for word in HOSTILE[:3]:
        given = dataclasses.replace(told(HARMLESS), **{name: word})
        for make in (
            lambda one: report(Attribution(torch.ones(1, 2), Certificate((one,)))),
            lambda one: certificate_table(Certificate((one,))),
        ):
            try:
                made = make(given)
            except (TypeError, ValueError, AttributeError, KeyError):
                continue
            assert "<script>alert" not in made
            assert not any(tag == "img" for tag, _ in Skeleton(made).elements)


@pytest.mark.parametrize("name", [part.name for part in dataclasses.fields(CurveCertificate)])
def test_texts_in_the_place_of_numbers_of_curves_are_text_too(name: str) -> None:
    for word in HOSTILE[:3]:
        curve = dataclasses.replace(CurveCertificate(0.5, 0.0, 1.0, 0.0, 0.01, 17), **{name: word})
        try:
            made = report(resulted(HARMLESS, torch.ones(1, 2), curves=(curve,)))
        except (TypeError, ValueError):
            continue
        assert "<script>alert" not in made
        assert not any(tag == "img" for tag, _ in Skeleton(made).elements)


def test_colours_of_a_panel_are_text() -> None:
    panel = Panel("t", "", PHOTO, 1.0, colours=('"><script>alert(1)</script>', "#fff"))
    page = image_page(ImagePage("x", PHOTO, resulted(HARMLESS), pictures=[PagePicture("t", "", panel)]))
    assert "<script>alert" not in page


@pytest.mark.parametrize(
    "maker", ["report of a photo", "photo", "gallery", "data set", "comparison", "diagnosis", "axioms", "rules", "molecules"]
)
def test_every_page_has_a_second_wall(maker: str) -> None:
    """The policy that a browser holds a page to comes before anything from outside."""
    made = MAKERS[maker](HARMLESS)
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', made)
    assert policy
    assert policy.start() < made.index("<title>")
    said = dict(part.partition(" ")[::2] for part in policy[1].split("; "))
    assert said["default-src"] == said["base-uri"] == said["form-action"] == "'none'"
    assert said["img-src"] == "data:"
    assert "unsafe" not in said.get("script-src", "")


def test_escaping_keeps_what_can_be_shown() -> None:
    assert escape("Zoë, 犬\n\t½ “x”") == "Zoë, 犬\n\t½ “x”"
    assert escape(math.nan) == "nan"
    assert escape("a\u202eb") == r"a\u202eb"
    assert escape("a\u202eb\x07", directed=True) == "a\u202eb\\x07"


# ---- and no other way in ---------------------------------------------------------------------------------------------------

OURS = {
    "mark.key",
    "mark.shape",
    "mark.shape[1:mark.shape.index(' ')]",
    "mark.data",
    "row.data",
    "row.key",
    "one.anchor",
    "_section(one, sheet)[0]",
    "found['a']",
    "found['b']",
    "found['p']",
    "ends[0]",
    "ends[1]",
    "given['cx']",
    "given['cy']",
    "given['rx']",
    "bars[sign]",
    "mark.anchor",
    "mark.tone",
    "LIGHT.ink",
    "LIGHT.soft",
    "LIGHT.paper",
}
"""Parts of HTML that the same module made of numbers, or that are one of a few words or colours of ours."""

NUMBER = re.compile(r"[deEfFgGn%,]'$")


def html_parts() -> list[tuple[str, str]]:
    """What goes into HTML without being a number's format or escaped: file and line, and the expression."""
    found = []
    for file in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            text = "".join(part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str))
            if not re.search(r"<[a-z/!]+[\s>]|[a-z-]+=\"", text):
                continue
            for part in node.values:
                if isinstance(part, ast.FormattedValue) and isinstance(part.value, (ast.Attribute, ast.Subscript)):
                    spec = ast.unparse(part.format_spec) if part.format_spec is not None else ""
                    if not NUMBER.search(spec):
                        found.append((f"{file.relative_to(SRC)}:{node.lineno}", ast.unparse(part.value)))
    return found


def test_no_field_is_written_into_html_as_it_is() -> None:
    """A field in an f-string with tags has a number's format, or goes through ``escape``; constants are ours."""
    assert [(place, said) for place, said in html_parts() if said not in OURS and not said.split("[")[0].isupper()] == []


def test_pages_have_one_way_of_escaping() -> None:
    others = {"render/escaping.py"}
    found = [
        str(file.relative_to(SRC))
        for file in SRC.rglob("*.py")
        if re.search(r"^(from html|import html)\b", file.read_text(encoding="utf-8"), re.M)
    ]
    assert set(found) <= others
