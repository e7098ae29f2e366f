"""Pages in a real browser: Chromium, driven by Playwright. Where either is missing the tests that need them are skipped."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

DESKTOP, PHONE = (1400, 900), (390, 844)


@dataclass
class Browser:
    """Opens pages: ``with browser.open(html) as page`` gives Playwright's page, which fails the test on any script error."""

    chromium: object
    folder: Path

    @contextmanager
    def open(self, html, *, size=DESKTOP, dark=False, touch=False, scripts=True):
        file = self.folder / "page.html"
        file.write_text(html, encoding="utf-8")
        context = self.chromium.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            java_script_enabled=scripts,
            accept_downloads=True,
        )
        page = context.new_page()
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        try:
            page.goto(file.as_uri())
            yield page
        finally:
            context.close()
        assert not errors, errors


def on_first_screen(page, selector):
    """Whether the first element of the selector lies within the window before any scrolling, to the last pixel."""
    box = page.locator(selector).first.bounding_box()
    size = page.viewport_size
    inside = box is not None and box["x"] >= 0 and box["y"] >= 0
    return inside and box["x"] + box["width"] <= size["width"] + 1 and box["y"] + box["height"] <= size["height"] + 1


def until(page, expression, *, seconds=10.0):
    """Wait until an expression holds in the page, asking again and again from outside.

    Playwright's ``wait_for_function`` asks inside the page, where our pages' Content-Security-Policy forbids ``eval``: it
    passes only if the expression holds at once.
    """
    for _ in range(int(seconds / 0.05)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"after {seconds:g} s this does not hold: {expression}")


ALSO_SERIOUS = {"scrollable-region-focusable"}
"""Rules that our axe-core calls moderate, and that we hold pages to all the same: what scrolls is reached with the keyboard."""


def serious(page, *, only=None):
    """What axe-core finds serious or critical on a page, as texts; of a list of its rules ``only``, if given."""
    axe = pytest.importorskip("axe_core_python", reason="needs axe-core-python: make test installs it")
    page.evaluate(resources.files(axe).joinpath("axe.min.js").read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(only)} if only else {})
    found = page.evaluate("async options => (await axe.run(document, options)).violations", options)
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']][:3]}"
        for one in found
        if one["impact"] in ("serious", "critical") or one["id"] in ALSO_SERIOUS
    ]


def saved(page, button):
    """The name and the bytes of the file that pressing a button saves."""
    with page.expect_download() as download:
        page.locator(button).first.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A :class:`Browser`; skips where there is no Playwright or no Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: make test installs it")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("needs a browser: no chromium, chromium-browser or google-chrome on the path")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield Browser(chromium, tmp_path_factory.mktemp("pages"))
        chromium.close()
