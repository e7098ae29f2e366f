"""Drawings show every unit, bias and weight, and nothing that was not escaped."""

import xml.etree.ElementTree as ET

import pytest

from integrand.axioms import network, parse
from integrand.axioms.formula_network import units

SVG = "{http://www.w3.org/2000/svg}"
NETS = ["relu(relu(x1) - 1 - relu(x2))", "h = relu(2*x1 - x2*x3 + 0.5); max(h, x1) - 3*h + x2/3", "x1"]


@pytest.mark.parametrize("text", NETS)
def test_the_svg_has_a_box_for_each_value_and_a_labelled_line_for_each_weight(text):
    net = parse(text)
    root = ET.fromstring(net.svg())  # well-formed
    parts, _ = units(net)
    edges = sum(len(unit.sources) for unit in parts)
    assert len(list(root.iter(f"{SVG}rect"))) == net.inputs + len(parts)
    assert len(list(root.iter(f"{SVG}path"))) == edges + 1  # and the one that leaves the output
    assert len([t for t in root.iter(f"{SVG}text") if t.get("class") == "w"]) == edges
    assert root.find(f"{SVG}title").text == str(net)


def test_weights_and_biases_are_told():
    root = ET.fromstring(parse("relu(2*x1 - 0.5*x2 - 1)").svg())
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts == ["x1", "x2", "relu", "−1", "2", "−0.5"]


def test_boxes_do_not_touch_and_stay_inside():
    root = ET.fromstring(parse("relu(2*x1 - x2 + x3 - 1) - relu(x1 + x2) + relu(relu(x1) - x3) + x2").svg())
    width, height = float(root.get("width")), float(root.get("height"))
    boxes = [tuple(float(rect.get(k)) for k in ("x", "y", "width", "height")) for rect in root.iter(f"{SVG}rect")]
    for i, (x, y, w, h) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        for other, (a, b, c, d) in enumerate(boxes):
            assert i == other or x + w < a or a + c < x or y + h < b or b + d < y


def test_drawings_load_nothing():
    text = parse(NETS[1]).svg()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text
    assert network(NETS[1])._repr_svg_() == parse(NETS[1])._repr_svg_() == text


def test_text_drawings_repeat_no_unit():
    lines = parse("h = relu(x1 - 1); relu(2*h - x2) + h").drawing().splitlines()
    assert lines == [
        "Σ",
        "├─ 1 ─ relu",
        "│      ├─ 2 ─ h1: relu  bias -1",
        "│      │      └─ 1 ─ x1",
        "│      └─ -1 ─ x2",
        "└─ 1 ─ h1 (above)",
    ]
    assert parse("x1").drawing() == "x1"
