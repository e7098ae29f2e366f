"""The sketcher in a real browser: what is drawn comes out as SMILES, from a sandboxed frame that asks no other host."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from threading import Thread

import pytest

from integrand.loading import shipped
from tests.browser import PHONE

Chem = pytest.importorskip("rdkit.Chem", reason="needs rdkit")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = resources.files("integrand") / "serving" / "sketcher"
LIBRARY = shipped("openchemlib.js", "drawing molecules")
POLICY = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:"
APP = b"""<!doctype html><html lang="en"><head><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"><title>App</title>
<style>body{margin:0} iframe{display:block;border:0;width:100%;height:500px}</style></head><body>
<script src="/app.js"></script><iframe src="/sketcher.html" sandbox="allow-scripts" title="Draw"></iframe></body></html>"""
LISTENS = b"""const heard = [];
addEventListener("message", ({data, source, origin}) => {
  if (source === document.querySelector("iframe").contentWindow && origin === "null") heard.push(data);
});"""
CLEAR, BOND, BENZENE, OXYGEN, OTHER = (0, 0), (0, 5), (1, 9), (0, 13), (1, 16)
"""Column and row of tools."""


class Files(SimpleHTTPRequestHandler):
    """The sketcher's files, and an app that has it in a frame, under a strict policy."""

    def do_GET(self):
        own = {"/": APP, "/app.js": LISTENS, "/openchemlib.js": LIBRARY.read_bytes()}
        if self.path not in own:
            return super().do_GET()
        body = own[self.path]
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path == "/" else "text/javascript")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self):
        own = "; frame-src 'self'" if self.path == "/" else "; frame-ancestors 'self'; sandbox allow-scripts"
        self.send_header("Content-Security-Policy", POLICY + own)
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, *_):
        pass


class Sketcher:
    """The app's page with the sketcher in its frame."""

    def __init__(self, page, scale=1.0):
        self.page, self.frame, self.scale = page, page.frames[1], scale
        self.wait(lambda: page.evaluate("heard") == [{"integrand": "ready"}])

    def wait(self, done):
        until = time.monotonic() + 10
        while not done():
            assert time.monotonic() < until, self.page.evaluate("heard")
            self.page.wait_for_timeout(20)

    def told(self):
        """The SMILES that the sketcher has told the app, as RDKit writes them."""
        said = self.page.evaluate("heard.slice(1)")
        assert all(one == {"integrand": "drawn", "smiles": one["smiles"]} for one in said)
        return [same(one["smiles"]) for one in said]

    def tells(self, smiles):
        """Waits until the last drawing is this molecule."""
        self.wait(lambda: self.told()[-1:] == [same(smiles)])

    def tool(self, which):
        return tuple(self.scale * (12 + 21 * place) for place in which)

    def send(self, **message):
        self.page.evaluate("said => document.querySelector('iframe').contentWindow.postMessage(said, '*')", message)

    def notes(self, text):
        self.wait(lambda: self.frame.locator("#note").text_content().startswith(text))

    def ink(self):
        """How many pixels of the paper are not white."""
        paper = self.frame.locator("canvas").nth(1)
        pixels = "new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)"
        return paper.evaluate(f"c => {pixels}.filter(x => x !== 0xffffffff).length")


@contextmanager
def sketching(browser, address, scale=1.0, **how):
    context = browser.chromium.new_context(**how)
    page = context.new_page()
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    try:
        page.goto(address)
        yield Sketcher(page, scale)
    finally:
        context.close()
    assert not errors, errors
    names = ("", "app.js", "sketcher.html", "openchemlib.js", "sketcher.js")
    assert {one for one in asked if not one.startswith("data:")} == {address + name for name in names}


@pytest.fixture(scope="module")
def address():
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(FOLDER))) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def opened(browser, address):
    with sketching(browser, address, viewport={"width": 900, "height": 520}, color_scheme="dark") as sketcher:
        yield sketcher


@pytest.fixture
def sketcher(opened):
    """The sketcher on a desktop, empty."""
    opened.send(integrand="molecule", smiles="")
    opened.page.evaluate("heard.length = 1")
    return opened


def same(smiles):
    return Chem.CanonSmiles(smiles) if smiles else ""


def test_what_is_drawn_by_mouse_comes_out_as_smiles(sketcher):
    mouse = sketcher.page.mouse
    mouse.click(*sketcher.tool(BENZENE))
    mouse.click(300, 250)
    sketcher.tells("c1ccccc1")
    mouse.click(*sketcher.tool(CLEAR))
    sketcher.tells("")
    mouse.click(*sketcher.tool(BOND))
    for start, end in ((400, 250), (440, 250)), ((440, 250), (460, 284)):
        mouse.move(*start)
        mouse.down()
        mouse.move(*end, steps=3)
        mouse.up()
    mouse.click(*sketcher.tool(OXYGEN))
    mouse.click(460, 284)
    sketcher.tells("CCO")


def test_fingers_draw_and_dialogs_work_in_the_sandbox(browser, address):
    phone = {"viewport": dict(zip(("width", "height"), PHONE, strict=True)), "has_touch": True, "is_mobile": True}
    with sketching(browser, address, scale=1.3, device_scale_factor=2, **phone) as sketcher:  # tools are larger for fingers
        tap = sketcher.page.touchscreen.tap
        tap(*sketcher.tool(BENZENE))
        tap(200, 200)
        tap(*sketcher.tool(OTHER))
        label = sketcher.frame.locator("dialog input").first
        label.fill("Se")
        box = sketcher.frame.locator("dialog").bounding_box()
        assert 0 <= box["x"] <= PHONE[0] - box["width"]
        label.press("Enter")
        tap(200, 400)
        sketcher.tells("c1ccccc1.[SeH2]")


def test_the_app_says_what_to_show_and_hears_nothing_back(sketcher):
    drug = "CN1CCC[C@H]1c1cccnc1"
    mouse = sketcher.page.mouse
    sketcher.send(integrand="molecule", smiles="CCO")
    sketcher.wait(lambda: sketcher.ink() > 20)
    mouse.move(473, 249, steps=3)  # onto an atom, so that the next molecule, which has none, comes while it is looked at
    sketcher.send(integrand="molecule", smiles="[no]")
    sketcher.notes("This SMILES cannot be drawn here")
    mouse.move(600, 300, steps=3)
    assert sketcher.ink() == 0
    sketcher.send(integrand="molecule", smiles="C" * 100_000)
    sketcher.notes("Too long")
    for message in ({"integrand": "molecule", "smiles": 3}, {"integrand": "molecule"}, {"smiles": "CC"}, {}):
        sketcher.send(**message)
    sketcher.frame.evaluate("postMessage({integrand: 'molecule', smiles: 'CCCC'}, '*')")  # not from the app
    assert sketcher.ink() == 0
    sketcher.send(integrand="molecule", smiles=drug)
    sketcher.wait(lambda: sketcher.ink() > 100)
    sketcher.page.wait_for_timeout(250)
    assert sketcher.told() == []
    mouse.click(*sketcher.tool(BENZENE))
    mouse.click(200, 100)
    sketcher.tells(f"{drug}.c1ccccc1")


def test_the_library_is_the_one_that_the_readme_names():
    built = LIBRARY.read_bytes()
    told = (ROOT / "docs" / "sketcher.md").read_text(encoding="utf-8")
    assert hashlib.sha256(built).hexdigest() in told
    assert f"{len(built):,}" in told
    assert b"@version v9.25.0" in built
    assert "openchemlib@9.25.0" in told
    assert not {word for word in (b"eval(", b"new Function(", b"WebAssembly", b"new Worker(") if word in built}
