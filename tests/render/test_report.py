import base64
import io
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from integrand import Attribution, Certificate, CurveCertificate, Status
from integrand.render import certificate_table, report

EVIL = "<script>alert('1')</script>\"'&"


class Page(HTMLParser):
    """Tags with their attributes, the visible text, and whether every tag is closed."""

    VOID = frozenset({"meta", "img", "br", "hr"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def pictures(self):
        for tag, attrs in self.tags:
            if tag == "img":
                kind, _, data = attrs["src"].partition(",")
                assert kind == "data:image/png;base64"
                yield base64.b64decode(data)


@pytest.fixture
def values():
    return torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_every_text_is_escaped(attribution, values):
    result = attribution(values, target=EVIL, rule=EVIL, precision=EVIL)
    result = Attribution(values, result.certificate, True, {"method": EVIL, EVIL: EVIL})
    for labels in (EVIL, None):
        options = {"labels": labels, "title": EVIL, "command": EVIL, "others": {EVIL: values}}
        for image in (None, torch.ones(3, 8, 8)):
            text = report(result, image=image, **options)
            page = Page(text)
            assert not page.open
            assert "script" not in {tag for tag, _ in page.tags}
            assert EVIL in page.text
            assert EVIL not in text
            assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)


def test_names_of_features_are_escaped(attribution):
    page = Page(report(attribution(torch.ones(1, 2)), features=[EVIL, "b"]))
    assert "script" not in {tag for tag, _ in page.tags}
    assert EVIL in page.text


def test_nothing_is_loaded_from_anywhere(attribution, values):
    text = report(attribution(values), image=torch.ones(3, 8, 8))
    assert not re.search(r"https?:|//[a-z]|@import|url\(|<link|<script|<iframe", text)
    page = Page(text)
    policy = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]
    assert all(attrs["src"].startswith("data:") for _, attrs in page.tags if "src" in attrs)


def test_pictures_are_inside(attribution, values):
    image = pytest.importorskip("PIL.Image")
    pictures = list(Page(report(attribution(values), image=torch.full((3, 8, 8), 0.5))).pictures())
    assert len(pictures) == 3
    with image.open(io.BytesIO(pictures[0])) as photo:
        assert (np.asarray(photo) == 128).all()
    with image.open(io.BytesIO(pictures[1])) as lit:
        assert lit.size == (8, 8)
        assert np.asarray(lit).max() == 128


def test_certificate_is_told_in_words(attribution, values):
    page = Page(report(attribution(values, residual=0.02), command="python explain.py"))
    for words in (
        "the score goes from 0.01 to 0.94, a change of 0.93. The attributions add up to 0.95.",
        "Converged".lower(),
        "The error estimate is within the tolerance",
        "+2.0e-02",
        "0.4%",
        "63",
        "python explain.py",
        "2.5",
    ):
        assert words in page.text, words


@pytest.mark.parametrize("status", list(Status))
def test_remedy_is_on_the_page(certificate, values, status):
    example = certificate(status=status, error=0.2, jump_at=0.5, jump_size=1.0)
    result = Attribution(values, Certificate((example,)))
    for text in (report(result), certificate_table(result.certificate)):
        page = Page(text)
        assert status.value in page.text
        assert example.remedy in page.text
        assert ("What to do" in page.text) == (not example.converged)


def test_odd_values_are_told(attribution, values):
    for changed, words in (
        (torch.zeros_like(values), "all zero"),
        (values.abs(), "none negative"),
        (torch.full_like(values, torch.nan), "64 of 64 not finite"),
    ):
        page = Page(report(attribution(changed), image=torch.ones(3, 8, 8)))
        assert words in page.text
        assert len(list(page.pictures())) == 3


def test_bars_point_to_the_side_of_their_sign(attribution):
    text = report(attribution(torch.tensor([[2.0, -1.0, float("nan"), 0.0]])), top=3)
    styles = re.findall(r'<i style="left:([\d.]+)%;width:([\d.]+)%', text)
    assert styles == [("50.00", "50.00"), ("25.00", "25.00"), ("50.00", "0.00")]
    assert "and 1 more, adding up to +nan" in Page(text).text


def test_several_examples_each_have_a_section(attribution):
    page = Page(report(attribution(torch.randn(5, 1, 4, 4)), labels=list("abcde"), most=3))
    assert [tag for tag, _ in page.tags].count("h2") == 4  # three examples and how it was made
    assert "3 of 5 attributions" in page.text
    assert "2 more examples are not drawn" in page.text


def test_curves_are_listed(certificate, values):
    curves = tuple(CurveCertificate(0.5, 0.1 * i, 0.9, 0.0, 0.01, 17) for i in range(2))
    page = Page(report(Attribution(values, Certificate((certificate(curves=curves),)))))
    assert "Each of the 2 curves" in page.text


def test_report_needs_no_optional_package(attribution, values, monkeypatch):
    for package in ("matplotlib", "matplotlib.figure", "PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, package, None)
    assert len(list(Page(report(attribution(values), image=torch.ones(3, 8, 8))).pictures())) == 3


def test_table_of_one_explains_and_of_several_lists(certificate):
    one = Page(certificate_table(Certificate((certificate(),))))
    assert "Estimated error" in one.text
    assert not one.open
    fine, spent = certificate(), certificate(status=Status.BUDGET, error=0.5)
    many = Page(certificate_table(Certificate((fine,) * 150 + (spent,) * 2)))
    assert [tag for tag, _ in many.tags].count("tr") == 101
    assert "and 52 more examples" in many.text
    assert many.text.count(spent.remedy) == 1  # also where the rows that need it are not listed


def test_table_is_escaped(certificate):
    page = Page(certificate_table(Certificate((certificate(target=EVIL, rule=EVIL),))))
    assert "script" not in {tag for tag, _ in page.tags}
    assert EVIL in page.text


def test_save_writes_page_and_picture(attribution, values, tmp_path):
    pytest.importorskip("matplotlib")
    result = attribution(values)
    page = result.save(tmp_path / "a.html", image=torch.ones(3, 8, 8), command="x")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert result.save(tmp_path / "a.png", image=torch.ones(3, 8, 8)).read_bytes().startswith(b"\x89PNG")
    assert certificate_table(result.certificate) in result._repr_html_()
