"""Charts of tables: where marks lie, that the page and the file show the same, and the page in a browser."""

from __future__ import annotations

import io
import itertools
import re

import numpy as np
import pytest
import torch
from torch import nn

from integrand import tables
from integrand.render.table.chart_marks import BarMark, DotMark, TextMark, ticks
from tests.browser import PHONE, saved, serious

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def found():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(0, 1, (60, 14)), columns=[f"column {i}" for i in range(13)] + ["a<b"])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(14, 8), nn.Tanh(), nn.Linear(8, 1)).double().eval()
    return tables.explain(model, frame)


def bars(chart):
    return [mark for mark in chart.marks if isinstance(mark, BarMark) and mark.says]


def test_a_waterfall_leads_from_the_base_value_to_the_score(found):
    picture = found.picture
    drawn = bars(picture.chart("waterfall", place=4, most=6))
    assert len(drawn) == 7
    values = np.abs(found.values[4])
    order = np.argsort(-values)
    # Lengths are in proportion to the values, and each bar begins where the one below ends.
    scale = drawn[0].wide / values[order[0]]
    for mark, k in zip(drawn[:6], order, strict=False):
        assert mark.wide == pytest.approx(max(scale * values[k], 1.0), rel=1e-6)
    for upper, lower in itertools.pairwise(drawn):
        ends = {round(upper.x, 3), round(upper.x + upper.wide, 3)} & {round(lower.x, 3), round(lower.x + lower.wide, 3)}
        assert ends or min(upper.wide, lower.wide) <= 1.0
    texts = [mark.text for mark in picture.chart("waterfall", place=4).marks if isinstance(mark, TextMark)]
    assert f"score: {found.scores[4]:.3g}" in texts


def test_the_beeswarm_places_dots_by_their_values(found):
    chart = found.picture.chart("beeswarm", most=3)
    dots = [mark for mark in chart.marks if isinstance(mark, DotMark)]
    assert len(dots) == 180
    strongest = found.picture.values.order[0]
    across = np.array([dot.x for dot in dots[:60]])
    fit = np.polyfit(found.values[:, strongest], across, 1)
    np.testing.assert_allclose(np.polyval(fit, found.values[:, strongest]), across, atol=1e-6)
    few = [mark for mark in found.picture.chart("beeswarm", most=3, drawn=20).marks if isinstance(mark, DotMark)]
    assert len(few) == 60


def test_the_heat_map_has_a_cell_for_each_value(found):
    chart = found.picture.chart("heatmap", most=5)
    assert len(bars(chart)) == 60 * 6
    assert all(0 <= mark.x <= chart.wide and mark.y + mark.high <= chart.high for mark in bars(chart))


def test_the_dependence_has_a_dot_for_each_row(found):
    chart = found.picture.chart("dependence", column=2, by=None)
    dots = [mark for mark in chart.marks if isinstance(mark, DotMark)]
    fit = np.polyfit(found.cells["column 2"], [dot.x for dot in dots], 1)
    np.testing.assert_allclose(np.polyval(fit, found.cells["column 2"]), [dot.x for dot in dots], atol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3e-7, 2e-7), (-120.0, 4000.0), (0.93, 0.931), (5.0, 5.0)])
def test_ticks_are_few_and_within(low, high):
    found = ticks(low, high)
    assert 1 <= len(found) <= 7
    assert all(low - 1e-12 <= one <= high + 1e-12 for one in found)


def test_extreme_tables_are_drawn():
    pytest.importorskip("matplotlib")
    frame = pd.DataFrame({"same": [1.0, 1.0], "x" * 300: [1e-9, 2e12], "category": ["a", "b"]})
    model = nn.Linear(4, 1).double()
    found = tables.explain(model, frame, columns={"same": None, "x" * 300: (0.0, 1e12), "category": ["a", "b"]})
    charts = [found.bar(), found.beeswarm(), found.heatmap(), found.waterfall(0)]
    charts += [found.dependence("same", by="category"), found.dependence("category", by="same")]
    for chart in charts:
        file = io.BytesIO()
        chart.savefig(file)
        assert file.tell() > 5000


def test_pages_in_a_browser(found, browser):
    one, many = found.row(4).html(), found.html()
    with browser.open(one) as page:
        assert page.locator("svg.broad").is_visible()
        page.locator("svg.broad rect[data-says]").first.hover()
        assert "±" in page.locator("[data-said]").first.inner_text()
        assert serious(page) == []
        name, data = saved(page, "button[data-export=csv]")
        assert name == "row.csv"
        assert data.decode("utf-8-sig").startswith("column,in the row,at the baseline,value,error")
        assert len(data.decode("utf-8-sig").splitlines()) == 15
    with browser.open(many, size=PHONE) as page:
        assert page.locator("svg.narrow").first.is_visible()
        assert not page.locator("svg.broad").first.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("svg.narrow circle").first.dispatch_event("click")
        assert "row " in page.locator("[data-said]").first.inner_text()
    with browser.open(many, dark=True) as page:
        assert serious(page) == []
    with browser.open(many, scripts=False) as page:
        assert page.locator("svg.broad circle").count() > 100


def test_a_page_loads_nothing_and_escapes_names(found):
    page = found.html(by=False)
    assert "a<b" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S)
    assert "a&lt;b" in page
    assert not re.search(r'(?:src|href)="http', page)
