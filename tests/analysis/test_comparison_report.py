"""The page: everything in it, escaped, and nothing loaded."""

import re
from html.parser import HTMLParser

import pytest
import torch

from integrand.comparison import Comparison, compare
from integrand.methods import Gradient, IntegratedGradients

from .conftest import Refuses

HOSTILE = "<script>alert('x')</script>&\"$"
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Texts, tags and attributes of a page; tags have to be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = set(), [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def hostile(linear):
    x = torch.tensor([[1.0, 1.0, -1.0, 2.0]], dtype=torch.float64)
    methods = {HOSTILE: IntegratedGradients(), "slopes": Gradient(), "bad " + HOSTILE: Refuses()}
    return compare(linear, x, methods=methods)


def test_hostile_names_are_text(hostile, tmp_path):
    path = tmp_path / "found.html"
    text = hostile.report(path, title=HOSTILE, labels=HOSTILE, features=[HOSTILE] * 4, command=HOSTILE)
    assert path.read_text(encoding="utf-8") == text
    for source in (text, hostile._repr_html_()):
        page = Page(source)
        assert "script" not in page.tags
        assert HOSTILE in page.text
        assert "no rule for the operation <b>fancy</b>" in page.text
        assert not any(name.startswith("on") for name, _ in page.attributes)


def test_the_page_loads_nothing(hostile):
    page = Page(hostile.report())
    assert not {"script", "link", "iframe", "object"} & page.tags
    assert [value for name, value in page.attributes if name in {"src", "href"} and not value.startswith("data:image/")] == []
    assert ("http-equiv", "Content-Security-Policy") in page.attributes


def test_numbers_are_on_the_page(hostile):
    page = Page(hostile.report())
    # The gradient adds up to 2.25, and the score changes by 0.5.
    assert "adds up to 2.25 of 0.5 (misses 350%)" in page.text
    assert "+1.8e+00" in page.text
    assert "completeness, sensitivity-a" in page.text
    assert f"{hostile.correlations[0, 0, 1]:.2f}" in page.text
    assert "Gradient()" in page.text
    assert "scale of their own" in page.text
    assert "agree can be wrong together" in page.text


def test_images_are_inlined_one_for_each_method_and_the_photo():
    image = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    found = compare(lambda x: x.sum((1, 2, 3)), image, methods=[IntegratedGradients(), Gradient()])
    text = found.report(image=image, labels=["first", "second"], command="python compare.py")
    page = Page(text)
    assert len(re.findall(r"<img ", text)) == 6
    assert "python compare.py" in page.text
    assert "Averaged over 2 examples" in page.text
    assert "every map is on a scale of its own" in page.text
    one = Page(found.report(image=image, most=1))
    assert "1 more examples are not drawn" in one.text


def test_one_method_has_nothing_to_correlate_with(hostile):
    alone = Comparison({"slopes": hostile.attributions["slopes"]})
    for text in (alone.report(), alone._repr_html_(), str(alone)):
        assert "correlations" not in text.lower()


def test_saved_by_its_ending(hostile, tmp_path):
    assert hostile.save(tmp_path / "found.HTML", title="A page").read_text(encoding="utf-8").startswith("<!doctype html>")
