"""Pages of signals: what they say where they are pointed at, on a phone, in the dark, without scripts; hostile names."""

from __future__ import annotations

import re

import numpy as np
import pytest

import integrand as ig
from integrand.render.series.signal import AttributedSignal, drawn_bins, limits
from integrand.render.series.signal_page import plots
from integrand.render.series.time_axis import TimeAxis, number_ticks
from tests.browser import PHONE, Browser, on_first_screen, serious


@pytest.fixture(scope="module")
def motion() -> ig.series.SeriesExplanation:
    watch = ig.series.load("motions")
    return watch.explain(watch.example(35), tol=0.05)


@pytest.fixture(scope="module")
def ahead() -> ig.series.ForecastExplanation:
    airline = ig.series.load("airline")
    return airline.forecast(airline.example(), horizon=[1, 2, 7])


def made(count: int, channels: int = 1, names: tuple[str, ...] = ()) -> AttributedSignal:
    rng = np.random.default_rng(0)
    values, added = rng.normal(size=(2, count, channels))
    windows = tuple(drawn_bins(count, 10))
    sums = np.stack([added[a:b].sum(0) for a, b in windows])
    off = np.full_like(sums, 0.01)
    names = names or tuple(f"c{i}" for i in range(channels))
    units, axis = ("",) * channels, TimeAxis.steps(count)
    return AttributedSignal(
        axis, values, 0 * values, added, names, units, windows, sums, off, added.sum(0), 0.02 * np.ones(channels)
    )


def test_a_window_says_what_it_adds(browser: Browser, motion: ig.series.SeriesExplanation) -> None:
    with browser.open(motion.page()) as page:
        cells = page.locator(".windows i")
        assert cells.count() == 25 * 6
        cells.nth(30).hover()
        said = page.locator("[data-said]").first.inner_text()
        w, c = 30 % 25, 30 // 25
        assert said == motion.signal.window_saying(w, c)
        cells.first.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("[data-said]").first.inner_text() == motion.signal.window_saying(1, 0)
        page.keyboard.press("ArrowDown")
        assert page.locator("[data-said]").first.inner_text() == motion.signal.window_saying(1, 1)
        assert on_first_screen(page, ".badge")
        assert serious(page) == []


@pytest.mark.parametrize("which", ["motion", "ahead"])
def test_phones_and_the_dark(browser: Browser, which: str, request: pytest.FixtureRequest) -> None:
    html = request.getfixturevalue(which).page()
    with browser.open(html, size=PHONE, touch=True, dark=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert serious(page) == []
    with browser.open(html, scripts=False) as page:
        assert page.locator(".plots svg").first.is_visible()


def test_each_horizon_can_be_chosen(browser: Browser, ahead: ig.series.ForecastExplanation) -> None:
    with browser.open(ahead.page(), scripts=False) as page:
        page.locator("label", has_text="Feb 1961").click()
        assert page.get_by_text(ahead.sentences[1]).is_visible()
        assert not page.get_by_text(ahead.sentences[0]).is_visible()
    with browser.open(ahead.page()) as page:
        cell = page.locator(".lags .windows i").nth(36 * 2 + 30)
        cell.hover()
        assert page.locator("[data-said]").first.inner_text() == ahead.lags.saying(2, 30, 0)


def test_names_from_outside_are_text(browser: Browser) -> None:
    signal = made(20, 2, ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'))
    html = plots(signal)
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;") >= 3


def test_long_series_are_drawn_together() -> None:
    html = plots(made(20_000))
    assert len(html) < 200_000
    assert "more channels" in plots(made(30, 20))
    bars = re.findall(r'class="(?:for|against)" d="([^"]*)"', plots(made(20_000)))
    assert sum(path.count("M") for path in bars) <= 500


def test_bars_have_the_height_of_their_values() -> None:
    signal = made(12)
    html = plots(signal)
    tops = {}
    for kind, path in re.findall(r'<path class="(for|against)" d="([^"]*)"', html):
        for left, top in re.findall(r"M([\d.]+) 0V(-?[\d.]+)H", path):
            tops[float(left)] = -float(top)
            assert (float(top) < 0) == (kind == "for")
    drawn = np.array([tops[left] for left in sorted(tops)])
    exact = signal.attributions[:, 0]
    assert np.allclose(drawn / np.abs(drawn).max(), exact / np.abs(exact).max(), atol=1e-3)


def test_parts_of_a_figure_have_one_time_axis(ahead: ig.series.ForecastExplanation) -> None:
    airline = ig.series.load("airline")
    one = airline.forecast(airline.example(), horizon=7)
    for figure in (ahead.figure(), one.figure(), one.explanations[0].figure()):
        assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_marks_are_round() -> None:
    assert [text for _, text in number_ticks(-1.31, 1.4, 4)] == ["−1", "0", "1"]
    assert number_ticks(2.0, 2.0) == [(2.0, "2")]
    assert limits([np.array([3.0])]) == (1.5, 4.5)
    assert all(len(number_ticks(0, 10.0**k, 5)) in range(2, 7) for k in range(-6, 7))
