"""Attributions added up by region."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from integrand.errors import InputError, OptionError
from integrand.render import image
from integrand.render.image.image_regions import regions_of, spread
from integrand.render.image.views import TEXT, _texts


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 30), st.integers(1, 30), st.integers(1, 40))
def test_sums_add_up_to_the_total(height, width, tall, wide, count):
    """Whatever the grids of the map and of the photo."""
    values = np.random.default_rng(height * 31 + width).normal(size=(height, width))
    photo = np.random.default_rng(tall).random((tall, wide, 3))
    found = regions_of(values, photo, count=count)
    assert found.total == pytest.approx(values.sum(), abs=1e-12 * np.abs(values).sum() + 1e-300)
    assert found.labels.shape == (max(height, tall), max(width, wide))
    assert found.areas.sum() == found.labels.size
    assert (np.unique(found.labels) == np.arange(len(found))).all()


def test_regions_of_ones_own():
    segments = np.zeros((4, 6), int)
    segments[1:3, 2:5] = 7
    values = np.arange(24.0).reshape(4, 6)
    found = regions_of(values, None, change=100.0, segments=segments)
    inside = values[1:3, 2:5].sum()
    assert found.sums.tolist() == [values.sum() - inside, inside]
    assert found.shares.tolist() == [(values.sum() - inside) / 100, inside / 100]
    assert found.areas.tolist() == [18, 6]
    assert found.total == values.sum()
    assert found.labels[tuple(found.centres[1])] == 1


def test_regions_follow_the_colours(attribution):
    pytest.importorskip("skimage")
    photo = np.zeros((40, 40, 3))
    photo[:, 22:] = (1.0, 0.2, 0.0)
    values = torch.zeros(1, 1, 40, 40)
    values[..., 22:] = 1.0
    found = image.regions(attribution(values), photo, count=12)
    mean = found.sums / found.areas
    assert ((mean < 0.15) | (mean > 0.85)).all()  # hardly any region lies across the edge
    assert found.kind == "superpixels (SLIC)"


def test_rectangles_without_scikit_image_or_photo(attribution, monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage", None)
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    values = torch.arange(16.0).reshape(1, 1, 4, 4)
    for photo in (np.random.default_rng(0).random((4, 4, 3)), None):
        found = image.regions(attribution(values), photo, count=4)
        assert found.sums.tolist() == [10.0, 18.0, 42.0, 50.0]
        assert found.kind == "rectangles"


def test_table_names_the_strongest_first(attribution):
    values = torch.zeros(1, 1, 3, 3)
    values[0, 0, 0, 0], values[0, 0, 1, 1], values[0, 0, 2, 1] = 0.2, -0.5, 1.2
    result = attribution(values, score=1.0, baseline_score=0.0)
    text = str(image.regions(result, segments=np.arange(9).reshape(3, 3))).splitlines()
    assert text[0] == "1  +1.2 (+120%), lower centre, 11% of the area"
    assert text[1] == "2  −0.50 (−50%), centre, 11% of the area"
    assert text[2] == "3  +0.20 (+20%), upper left, 11% of the area"
    assert text[-1] == "9 regions add up to 0.9; F(x) − F(x′) = 1"


def test_what_is_unknown_is_said_and_comes_last():
    values = np.array([[1.0, np.nan], [2.0, -3.0]])
    found = regions_of(values, None, change=0.0, segments=np.arange(4).reshape(2, 2))
    assert found.order.tolist() == [3, 2, 0, 1]
    assert found.summary() == "4 regions, 1 of them unknown"
    assert np.isnan(found.shares).all()  # no share of no change
    assert "(" not in found.lines()[0].split(",")[0]
    assert math.isnan(found.total)


def test_centre_is_inside_a_ring():
    rows, columns = np.indices((41, 41)) - 20
    ring = (np.hypot(rows, columns) > 10) & (np.hypot(rows, columns) < 17)
    found = regions_of(np.ones((41, 41)), None, segments=ring.astype(int))
    row, column = found.centres[1] - 20
    assert 12 < math.hypot(row, column) < 15


def test_view_marks_the_strongest_with_sum_and_share(attribution):
    pytest.importorskip("skimage")
    values = torch.zeros(1, 1, 64, 64)
    values[0, 0, :32, :32] = 1 / 1024
    result = attribution(values, score=2.0, baseline_score=0.0)
    (panel,) = image.panels(result, np.full((64, 64, 3), 0.5), views=image.Superpixels(count=4, top=1))
    (mark,) = panel.marks
    assert mark.text == "1\n+1.0\n+50%"
    factor = panel.pixels.shape[0] / 64
    assert mark.x < 32 * factor
    assert mark.y < 32 * factor
    assert panel.note == "none negative; 4 regions add up to 1"
    assert (panel.limit, panel.clipped) == (1.0, False)
    assert panel.lines[0].startswith("1: +1.0 (+50%), upper left")


@pytest.mark.parametrize("shape", [(120, 120), (90, 160), (160, 60)])
def test_numbers_lie_in_their_regions(shape):
    """Ranks without gaps in their order, every box in its own region but for a corner, and on the picture."""
    rng = np.random.default_rng(1)
    points = rng.random((30, 2)) * shape
    rows, columns = np.indices(shape)
    segments = np.argmin((rows[..., None] - points[:, 0]) ** 2 + (columns[..., None] - points[:, 1]) ** 2, -1)
    found = regions_of(rng.normal(size=shape), None, change=1.0, segments=segments)
    top = found.order[:8].tolist()
    texts = _texts(found, top)
    assert len(texts) >= 6
    line, letter = (part * max(shape[1], shape[0] / 1.75) for part in TEXT)
    for x, y, text in texts:
        first, *numbers = text.split("\n")
        region = top[int(first) - 1]
        assert all(number in found.lines(8)[int(first) - 1] for number in numbers)
        wide, tall = letter * max(map(len, text.split("\n"))), line * len(text.split("\n"))
        assert wide / 2 - 1 <= x <= shape[1] - wide / 2 + 1
        assert tall / 2 - 1 <= y <= shape[0] - tall / 2 + 1
        box = found.labels[round(y - tall / 2) : round(y + tall / 2), round(x - wide / 2) : round(x + wide / 2)]
        assert (box == region).mean() > 0.9


def test_a_region_too_small_for_its_number_has_none():
    segments = np.zeros((100, 100), int)
    segments[:, 50] = 1  # a line
    found = regions_of(np.where(segments, 9.0, 0.001), None, change=1.0, segments=segments)
    (text,) = (text for _, _, text in _texts(found, found.order.tolist()))
    assert text.startswith("2\n")


def test_spreading_keeps_sums():
    values = np.array([[3.0, 5.0]])
    out = spread(values, (2, 5))
    assert out.sum() == pytest.approx(8.0)
    assert out[:, :3].sum() == pytest.approx(3.0)


@pytest.mark.parametrize("segments", [np.zeros((2, 2)), np.zeros(4, int)])
def test_segments_that_are_none(segments):
    with pytest.raises(InputError, match=r"segments has shape .* expected \(H, W\) integers"):
        regions_of(np.ones((2, 2)), None, segments=segments)


def test_no_regions():
    with pytest.raises(OptionError, match="got count=0"):
        regions_of(np.ones((2, 2)), None, count=0)
