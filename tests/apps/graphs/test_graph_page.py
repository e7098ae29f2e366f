"""The page of a graph in a browser: what it says where it is pointed at, with the keyboard, on a phone, and in the dark."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_geometric")

import integrand as ig
from tests.browser import PHONE, saved, serious


@pytest.fixture(scope="module")
def page_of_nine() -> str:
    club, net = ig.graphs.karate_club(), ig.graphs.karate_network()
    how = {"classes": ("Mr. Hi", "Officer"), "node_names": club.names, "edge_weights": True, "score": "probability"}
    return ig.graphs.explain(net, club.data, node="9", **how).page(command="integrand graph karate --node 9")


def test_nodes_edges_and_bars_say_what_they_add_and_light_each_other(browser, page_of_nine):
    with browser.open(page_of_nine) as page:
        page.locator("circle.node[data-row=n32]").hover()
        assert page.locator("[data-said]").first.inner_text().startswith("33: +0.0887 ±")
        assert "across" in page.locator("#first tr[data-row=n32]").get_attribute("class")
        page.locator("#first tr").nth(1).hover()
        assert page.locator("[data-said]").first.inner_text().startswith("9 – Officer: +0.157")
        assert "across" in page.locator("path.link[data-row=e8-33]").get_attribute("class")
        assert serious(page) == []
        name, table = saved(page, "button[data-export=csv]")
        assert name == "nodes.csv"
        assert len(table.decode().splitlines()) == 35


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_is_wider_than_the_screen(browser, page_of_nine, dark):
    with browser.open(page_of_nine, size=PHONE, dark=dark, touch=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert serious(page) == []


def test_without_javascript_everything_shows(browser, page_of_nine):
    with browser.open(page_of_nine, scripts=False) as page:
        assert page.locator("circle.node").count() == 34
        assert page.locator("#first tbody tr").count() == 12
