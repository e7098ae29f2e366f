"""Every result prints itself in a few lines, and shows itself in a notebook: found by walking through the package."""

from __future__ import annotations

import dataclasses
import html
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import integrand as ig
from integrand.apps import images, networks
from integrand.apps.images.preprocess import Preprocess
from integrand.apps.questions.result import WordAttribution
from integrand.apps.retina import ExaminedEye, Grade
from integrand.axioms import check, table
from integrand.methods import Gradient
from integrand.render.image import regions
from integrand.render.notebook import ResultList
from integrand.render.text.tokens import Tokens
from integrand.words import short_repr

LARGE = re.compile(
    r"\b(Tensors?|Array|Floats|Ints|NDArray|ndarray|(Molecule)?Attribution|(Example)?Certificate|Verdict|Tokens)\b"
)
"""Annotations of fields that hold many numbers, or a whole result."""

PUBLIC = re.compile(r"integrand\.(analysis|axioms|baselines|paths|quadrature|render|apps)\b|integrand\.\w+$")
"""The rooms whose names users see; the engine's own classes are nobody's results."""

INSIDE = re.compile(
    r"_(report|page|figure|run|panels|kinks|products|rows|output|files|headers|network|grid|markup)$|cli$|__main__|engine$"
)
"""Modules of these rooms that hold what is on the way to a result."""

MOST = 500


def public_results() -> Iterator[type]:
    """Every frozen dataclass of the public rooms that holds many numbers or a result."""
    for found in pkgutil.walk_packages(ig.__path__, "integrand."):
        if not PUBLIC.match(found.name) or INSIDE.search(found.name):
            continue
        module = importlib.import_module(found.name)
        for one in vars(module).values():
            if not inspect.isclass(one) or one.__module__ != found.name or one.__name__.startswith("_"):
                continue
            frozen = dataclasses.is_dataclass(one) and one.__dataclass_params__.frozen  # type: ignore[attr-defined]
            if frozen and any(LARGE.search(str(field.type)) for field in dataclasses.fields(one)):
                yield one


ON_THE_WAY = {
    "Builtins", "MeasuredBaseline", "Directed", "Graph", "Batch", "GraphModel", "Encoded", "Slot", "Looked", "Pieces", "Memory",
    "OwnModelQuestion", "OwnExample", "FeatureParts", "AxiomCase", "ExplainedCase", "Finding", "Piece", "Nodes", "PanelRule",
    "PanelSums", "LogWeights", "Map", "PagePicture", "PageRival", "ImagePage", "Journey", "Drawing", "Block", "Grid", "Example",
    "Scene", "PictureOptions", "Reference", "StoredResult", "Known", "Written", "Tree", "StoredQuestion", "StoredLine",
    "StoredGrid", "AskedClass", "ClassTally", "ListedInput", "TableFigures", "TruthCheck", "ModelInputs",
}  # fmt: skip
"""What is made on the way to a result, or to draw one, and shown to nobody."""


@cache
def made() -> dict[str, Any]:
    """A large result of each class that prints itself in its own words."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 16), nn.GELU(), nn.Linear(16, 3)).eval()
    x = torch.randn(30, 40)
    result = ig.integrated_gradients(model, x)
    photo = np.random.default_rng(0).integers(0, 255, (64, 96, 3), dtype=np.uint8)
    seeing = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * 64, 5)).eval()
    network = networks.Network("small", seeing, Preprocess((64, 64), (0.0,) * 3, (255.0,) * 3), tuple("abcde"), "here", (), 5)
    explained = images.explain(photo, network, rival=False)
    words = tuple(f"word{i}" for i in range(60))
    one = result.certificate[0]
    spans = tuple((found.start(), found.end()) for found in re.finditer(r"\w+", " ".join(words)))
    asked = WordAttribution(" ".join(words), words, spans, tuple(np.linspace(-1, 1, 60)), "date", 0.5, one)
    verdict = check(Gradient(), "completeness", model, x[:1])
    found = [
        result,
        ig.integrated_gradients(model, x[:1]),
        result.certificate,
        ig.compare(model, x[:3]),
        ig.baselines.diagnose(model, x[:1]),
        ig.integrated_hessians(model, x[:2]),
        ig.compare_models({"a": model, "b": model}, x[:2]),
        ig.compare_models({"a": model, "b": model}, x[:2]).differences[0],
        explained,
        ExaminedEye.of(explained, Grade.of([0.0, 2.0, 1.0, -1.0, -3.0])),
        asked,
        Tokens(words, list(np.linspace(-1, 1, 60))),
        verdict,
        table([Gradient()], axioms=["completeness"], model=model, x=x[:1]),
        regions(explained.result, explained.shown),
        ig.tables.explain(model, x.numpy(), target=0),
        ig.tables.explain(model, x.numpy(), target=0, rows=3),
        ig.audio.explain(lambda x: x.square().sum(1), np.ones(8000, np.float32), rate=8000),
    ]
    return {f"{type(one).__name__} {i}": one for i, one in enumerate(found)}


@pytest.mark.parametrize("kind", sorted({one for one in public_results() if one.__name__ not in ON_THE_WAY}, key=str))
def test_every_result_of_the_package_prints_itself_in_a_few_lines(kind: type) -> None:
    """What prints its fields is filled with large ones; what has words of its own is made in earnest."""
    if kind.__repr__ is short_repr and kind.__str__ is object.__str__ and not hasattr(kind, "sentence"):
        one = object.__new__(kind)
        for field in dataclasses.fields(kind):
            text = str(field.type)
            large: Any = torch.zeros(300, 300) if LARGE.search(text) else ("x" * 500 if "str" in text else 3)
            object.__setattr__(one, field.name, large)
        assert len(repr(one)) < MOST
        return
    assert kind.__repr__ is short_repr or any(type(one) is kind for one in made().values()), (
        f"{kind.__name__} prints itself in words of its own; give it __repr__ = short_repr, or make a large one in made()"
    )


@pytest.mark.parametrize("name", sorted(made()))
def test_large_results_print_little_and_show_themselves_in_notebooks(name: str) -> None:
    one = made()[name]
    assert 10 < len(repr(one)) < MOST
    if name.startswith(("Certificate", "Regions", "ModelDifference")):
        return
    whole = one._repr_html_()
    assert "<script" not in whole
    Closed().feed(whole)
    small = one._small_html_() if hasattr(one, "_small_html_") else whole
    assert "<iframe" not in small
    assert "<script" not in small
    assert len(small) < 300_000
    Closed().feed(small)


class Closed(HTMLParser):
    """Refuses what loads anything, or runs anything outside a frame that is shut in."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "object")
        given = dict(attrs)
        assert all(not name.startswith("on") for name in given)
        assert (given.get("src") or "data:").startswith("data:")
        if tag == "iframe":
            assert given["sandbox"] == "allow-scripts allow-downloads"
            assert given["title"]
            assert (given["srcdoc"] or "").startswith("<!doctype html>")
            assert "src" not in given


@pytest.mark.parametrize("kind", ["Explanation", "ExaminedEye", "WordAttribution"])
def test_applications_show_their_page_and_say_the_same_in_text(kind: str) -> None:
    """Where a viewer takes the frame out, its sentence is left, in the frame's place and as plain text."""
    one = next(value for name, value in made().items() if name.startswith(kind))
    whole = one._repr_html_()
    assert whole.startswith("<iframe")
    assert html.unescape(re.sub(r"<iframe[^>]*>|</iframe>", "", whole)) == one.sentence
    assert one.sentence in repr(one)


def test_the_small_view_of_a_photo_has_its_outlines_and_a_line_on_its_accuracy() -> None:
    """Of 113,000 characters, as a photo's result printed itself before."""
    one = next(value for name, value in made().items() if name.startswith("Explanation"))
    assert one._small_html_().count("<img") == 2
    assert "umbers" in one._small_html_()


def test_many_rows_show_attributions_and_not_only_certificates() -> None:
    result = made()["Attribution 0"]
    lines = repr(result).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "… 20 more"
    strongest = int(result.values[0].abs().argmax())
    assert f"#{strongest} {float(result.values[0, strongest]):+.2g}" in lines[1]
    assert f"feature {strongest}" in result._repr_html_()
    assert "… 20 more" in result._repr_html_()
    assert str(result.certificate) in str(result)


def test_names_of_inputs_are_shown_and_escaped() -> None:
    result = ig.integrated_gradients(
        lambda age, **more: age[:, 0] * more["<b>"][:, 0], {"age": torch.ones(1, 1), "<b>": torch.ones(1, 1)}
    )
    assert "age +0.5" in repr(result)
    assert "<b>" not in result._repr_html_()
    assert "&lt;b&gt;" in result._repr_html_()


def test_lists_of_results_are_lists_with_a_view() -> None:
    asked = made()["WordAttribution 10"]
    many = ResultList([asked] * 20)
    assert isinstance(many, list)
    assert len(repr(many)) < MOST + 100
    assert repr(many).endswith("… 15 more")
    assert "… 10 more" in many._repr_html_()
    assert "<iframe" not in many._repr_html_()  # ten pages would be ten times as long
    assert many._repr_html_().count(asked._small_html_()) == 10
