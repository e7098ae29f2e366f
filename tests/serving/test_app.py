"""The app in a real browser: every room from the first click to the file that is saved."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from integrand.serving.server import known_rooms, serve_rooms
from tests.browser import DESKTOP, PHONE, saved, serious
from tests.serving.test_web import Slow

ROOT = Path(__file__).resolve().parents[2]
CAT, EYE = (ROOT / "examples" / name for name in ("cat.jpg", "eye.jpg"))
REFUSED = re.compile("status of 4(04|10|13|22)")
"""What Chromium says in its log of answers that the page then explains."""

LONG = 60_000
"""Milliseconds after which a browser gives up."""


class Tab:
    """A tab of the browser with the app in it."""

    def __init__(self, page, url):
        self.page, self.url = page, url

    def open(self, address=""):
        self.page.goto(self.url + address)
        self.page.locator("#form button").first.wait_for()

    def wait(self, text="Done in"):
        """Waits until the status says something, and the frame, if there is one, has found its height."""
        self.page.locator("#status", has_text=text).wait_for(timeout=LONG)
        before, frame = None, self.page.locator("#frame iframe")
        while frame.count() and before != (now := frame.last.bounding_box()):
            before = now
            self.page.wait_for_timeout(100)

    @property
    def frame(self):
        """The page of the result."""
        handle = self.page.locator("#frame iframe").last.element_handle(timeout=LONG)
        return handle.content_frame()

    def told(self, name):
        return self.page.locator(f"#{name}").inner_text()

    @property
    def settings(self):
        return {name: values[0] for name, values in parse_qs(urlsplit(self.page.url).query).items()}

    def fits(self):
        """Whether nothing is wider than the window, in the app and in the frame."""
        width = self.page.viewport_size["width"]
        return all(one.evaluate("document.documentElement.scrollWidth") <= width for one in (self.page, self.frame))


@pytest.fixture
def tab(browser, server):
    """Opens tabs that fail the test on an error of a script or a request to anywhere else."""

    @contextmanager
    def opened(size=DESKTOP, *, dark=False, touch=False):
        context = browser.chromium.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            accept_downloads=True,
        )
        page = context.new_page()
        page.set_default_timeout(LONG)
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        host = server.url.rstrip("/")
        page.on(
            "request",
            lambda request: None if request.url.startswith((host, "data:", "blob:")) else errors.append(request.url),
        )
        try:
            yield Tab(page, server.url)
        finally:
            context.close()
        unexpected = [text for text in errors if not REFUSED.search(text)]
        assert not unexpected, unexpected

    return opened


def test_words_from_an_example_to_the_saved_files(tab):
    with tab() as here:
        here.open("?room=words")
        here.page.get_by_role("button", name="how many medals").click()
        here.wait()
        assert "Number" in here.told("answers")
        assert "You can rely on these numbers" in here.told("trust")
        assert here.frame.locator("h1").inner_text().startswith("Asks for a number")
        here.frame.locator("[data-says]").first.focus()
        assert re.search(r"[+−]0?\.\d", here.frame.locator("[data-said]").first.inner_text())

        name, data = saved(here.page, "text=Save JSON")
        assert name == "words.json"
        assert json.loads(data)["tokens"]
        name, data = saved(here.page, "text=Save PNG")
        assert (name, data[:4]) == ("words.png", b"\x89PNG")
        name, data = saved(here.page, "text=Save page")
        assert name == "words.html"
        assert b"<!doctype html>" in data
        here.page.get_by_role("button", name="Show the code").click()
        here.page.locator("#tools pre", has_text="questions.load('wtq')").wait_for()

        here.page.get_by_role("button", name=re.compile("^year")).click()  # another answer
        here.page.locator("#answers [aria-pressed=true]", has_text="year").wait_for()
        here.wait()
        assert here.settings == {"room": "words", "text": "how many medals did Norway win in 1994?", "target": "year"}
        assert here.page.locator("#past button").count() == 2
        here.page.locator("#past button").last.click()  # back to the first
        here.wait("Earlier: It asks for a number")
        assert here.page.locator("#field-target").input_value() == ""
        assert here.frame.locator("h1").inner_text().startswith("Asks for a number")


def test_a_link_holds_the_settings(tab):
    with tab() as here:
        here.open("?room=words&text=Who+wrote+Emma%3F&model=trec&target=location&tol=5%25&do=baselines")
        here.wait()
        assert here.page.locator("#field-text").input_value() == "Who wrote Emma?"
        assert here.page.locator("#field-model").input_value() == "trec"
        assert here.page.locator("#field-tol").input_value() == "5%"
        assert here.page.locator("#settings").get_attribute("open") is not None
        assert here.frame.locator("h1").inner_text() == "Which baseline?"
        here.page.get_by_role("button", name="Compare methods").click()
        here.page.locator("#frame iframe[title*=methods]").wait_for()
        here.wait()
        assert "integrated gradients" in here.frame.locator("body").inner_text()
        assert here.settings["do"] == "methods"


def test_a_photo_on_a_phone_in_the_dark(tab):
    with tab(PHONE, dark=True, touch=True) as here:
        here.open("?room=small&tol=20%25")
        here.page.set_input_files("#field-photo", CAT)
        here.wait()
        here.frame.locator("canvas").first.wait_for()
        assert here.fits()
        assert here.page.locator("#result").bounding_box()["y"] < PHONE[1]  # one need not look for the result
        assert serious(here.page) == []
        assert serious(here.frame) == []


def test_a_photo_is_dropped_looked_at_and_gets_more_exact(tab):
    with tab() as here:
        here.open("?room=photo&tol=5%25")
        here.page.set_input_files("#field-photo", CAT)
        here.wait("A first look")
        assert "Egyptian cat" in here.told("answers")
        first = here.frame
        first.locator("canvas").first.wait_for()
        first.locator("input[name=view][value=heatmap]").evaluate("one => one.click()")
        here.wait()
        last = here.frame
        assert last != first
        assert last.locator("input[name=view][value=heatmap]").is_checked()  # the view that was chosen stays
        assert "5% was asked for" in here.told("trust")
        assert here.fits()
        assert here.page.locator("#frame iframe").count() == 1
        box = here.page.locator("#frame iframe").bounding_box()
        assert box["height"] > 600  # the frame is as high as its page, so that only the app scrolls
        name, data = saved(here.page, "text=Save PNG")
        assert (name, data[:4]) == ("cat.png", b"\x89PNG")


def test_what_is_no_photo(tab, tmp_path):
    (tmp_path / "<b>notes.jpg").write_bytes(b"not a photo at all")
    (tmp_path / "large.jpg").write_bytes(b"x" * (3 << 20))
    with tab() as here:
        here.open("?room=photo")
        here.page.get_by_role("button", name="Explain").click()
        assert here.told("problem") == "Photo: there is nothing here yet."
        here.page.set_input_files("#field-photo", tmp_path / "<b>notes.jpg")
        here.page.locator("#problem", has_text="<b>notes.jpg").wait_for()
        assert "Traceback" not in here.told("problem")
        here.page.set_input_files("#field-photo", tmp_path / "large.jpg")
        here.page.locator("#problem", has_text="too large: up to 2 MB").wait_for()
        assert here.page.locator("#frame iframe").count() == 0


def test_cancelling_frees_the_worker(tab, idle):
    with tab() as here:
        here.open("?room=photo&tol=0.1%25")
        here.page.set_input_files("#field-photo", CAT)
        here.page.locator("#answers", has_text="Egyptian cat").wait_for()
        here.page.get_by_role("button", name="Cancel").click()
        here.wait("Cancelled.")
        idle()


def test_closing_the_tab_frees_the_worker(tab, idle, client):
    with tab() as here:
        here.open("?room=photo&tol=0.1%25")
        here.page.set_input_files("#field-photo", CAT)
        here.page.locator("#answers", has_text="Egyptian cat").wait_for()
        assert client("GET", "/health").json["running"] == 1
    idle()


def test_earlier_photos_are_not_mixed_up(tab, tmp_path, client, server):
    """Two photos one after the other; the first again from the list; and once more when the server has forgotten it."""
    (tmp_path / "second.jpg").write_bytes(CAT.read_bytes())
    with tab() as here:
        here.open("?room=small&tol=20%25")
        for file in (CAT, tmp_path / "second.jpg"):
            here.page.set_input_files("#field-photo", file)
            here.wait()
            here.page.locator("#past button", has_text=file.name).wait_for()
        assert len(server.app.uploads) == 1  # the first one was let go
        here.page.locator("#past button", has_text="cat.jpg").click()
        here.wait("Earlier:")
        assert here.page.locator(".drop p").inner_text() == "cat.jpg"
        assert here.page.locator("#answers [aria-pressed=true]").count() == 1
        server.app.results.clear()
        here.page.locator("#past button", has_text="second.jpg").first.click()
        here.wait("Done in")  # made anew, of the right photo
        assert here.page.locator(".drop p").inner_text() == "second.jpg"
        server.app.results.clear()
        here.page.reload()
        here.page.locator("#past button", has_text="cat.jpg").last.click()
        here.page.locator("#problem", has_text="Choose cat.jpg again").wait_for()
    until = time.monotonic() + 10
    while len(server.app.uploads):  # and with the tab the last one goes
        assert time.monotonic() < until
        time.sleep(0.02)


def test_an_eye_and_its_notice(tab):
    with tab() as here:
        here.open("?room=eye&tol=20%25")
        assert "Not a medical device" in here.told("notice")
        here.page.set_input_files("#field-photo", EYE)
        here.wait()
        assert here.told("answers").startswith("Grade 0 of 4")
        assert here.page.locator("#answers .chip").count() == 5
        assert "Not a medical device" in here.frame.locator("body").inner_text()
        assert serious(here.page) == []


def test_a_translation_links_its_words(tab):
    with tab(PHONE, touch=True) as here:
        here.open("?room=translation")
        here.page.locator("#field-text").fill("good morning")
        here.page.locator("#field-text").press("Enter")
        here.wait()
        assert here.told("answers").startswith("Guten Morgen")
        shown = here.frame.locator("body").inner_text()
        here.frame.locator("label", has_text="Morgen").first.click()
        assert here.frame.locator("label[for=output-1]").inner_text() == "Morgen"
        assert here.frame.locator("#output-1").is_checked()
        assert here.frame.locator("body").inner_text() != shown  # what this word comes from
        assert here.fits()
        assert serious(here.page) == []
        assert serious(here.frame) == []


def test_a_molecule_is_pasted_and_drawn(tab):
    Chem = pytest.importorskip("rdkit.Chem", reason="needs rdkit")
    with tab() as here:
        here.open("?room=molecule")
        here.page.locator("#field-smiles").fill("CC(=O)O")
        here.page.locator("#field-smiles").press("Enter")
        here.wait()
        assert "ctive" in here.told("answers")
        assert serious(here.frame) == []
        here.page.get_by_role("button", name="Draw").click()
        board = here.page.locator("iframe.sketcher").element_handle().content_frame()
        board.locator("canvas").nth(1).wait_for()
        paper = here.page.locator("iframe.sketcher").bounding_box()
        tools = board.locator("canvas").first.bounding_box()
        here.page.mouse.click(tools["x"] + 12 + 21, tools["y"] + 12 + 21 * 9)  # the benzene template
        here.page.mouse.click(paper["x"] + paper["width"] * 0.8, paper["y"] + paper["height"] * 0.8)
        until = time.monotonic() + 10
        drawn = "CC(=O)O"
        while drawn == "CC(=O)O" and time.monotonic() < until:
            drawn = here.page.locator("#field-smiles").input_value()
            here.page.wait_for_timeout(50)
        assert {Chem.CanonSmiles(part) for part in drawn.split(".")} == {"CC(=O)O", "c1ccccc1"}
        here.page.locator("#field-smiles").fill("C1CC")
        here.page.get_by_role("button", name="Explain").click()
        here.page.locator("#problem", has_text="C1CC").wait_for()
        assert serious(here.page) == []


def test_a_row_of_a_table_is_picked_and_changed(tab):
    with tab(PHONE, touch=True) as here:
        here.open("?room=table")
        assert "not for decisions about people" in here.told("notice")
        here.page.locator("#field-table").select_option("diabetes")
        here.page.locator("#field-row").fill("3")
        here.page.locator("#field-row").press("Enter")
        here.wait()
        assert here.told("answers") == "Disease progression 204"
        assert here.frame.locator("h1").inner_text() == "Row 3"
        assert here.fits()
        assert serious(here.page) == []
        assert serious(here.frame) == []
        assert here.page.locator("#field-changes").is_visible()  # beside the row, not among the settings
        here.page.locator("#field-changes").fill("bmi = 35")
        here.page.get_by_role("button", name="Explain").click()
        here.page.locator("#frame iframe[title*=changed]").wait_for()
        here.wait()
        assert here.settings == {"room": "table", "table": "diabetes", "row": "3", "changes": "bmi = 35"}
        assert "bmi = 35" in here.frame.locator("svg.narrow, .narrow svg").first.text_content()
        assert here.page.locator("#past button").count() == 2
        here.page.locator("#field-changes").fill("bmj = 35")
        here.page.get_by_role("button", name="Explain").click()
        here.page.locator("#problem", has_text="Did you mean bmi?").wait_for()


def test_by_keyboard_alone(tab):
    """From the address to the saved file without a mouse: what has the focus is seen, and everything can be reached."""
    with tab() as here:
        here.open("?room=photo")

        def tab_to(test, most=60):
            for _ in range(most):
                here.page.keyboard.press("Tab")
                now = here.page.evaluate(
                    "(() => { const e = document.activeElement; return {tag: e.tagName, id: e.id, text: e.textContent.trim(),"
                    "outline: getComputedStyle(e).outlineStyle} })()"
                )
                if test(now):
                    assert now["outline"] != "none", now
                    return now
            raise AssertionError("cannot be reached by the tab key")

        tab_to(lambda now: now["text"] == "Skip to the result")
        here.page.keyboard.press("Enter")
        assert here.page.evaluate("document.activeElement.id") == "result"
        here.page.keyboard.press("Shift+Tab")
        here.page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
        here.open("?room=photo")
        tab_to(lambda now: now["text"] == "Words")
        here.page.keyboard.press("Enter")
        here.page.locator("h1", has_text="Words").wait_for()
        tab_to(lambda now: now["id"] == "field-text")
        here.page.keyboard.type("how many people live there?")
        here.page.keyboard.press("Enter")
        here.wait()
        tab_to(lambda now: now["text"].startswith("year"))
        here.page.keyboard.press("Space")
        here.page.locator("#answers [aria-pressed=true]", has_text="year").wait_for()
        here.wait()
        assert here.page.evaluate("document.activeElement.textContent").startswith("year")  # the focus is where it was
        tab_to(lambda now: now["text"] == "Show the code")
        here.page.keyboard.press("Enter")
        here.page.locator("#tools pre").wait_for()
        for _ in range(60):  # and on into the page, which shows its own focus
            here.page.keyboard.press("Tab")
            if here.page.evaluate("document.activeElement.tagName") == "IFRAME":
                break
        assert here.frame.evaluate("document.hasFocus()")
        assert here.page.get_by_role("status").count() == 1
        for name in ("Question", "Explain", "Network", "Exact to"):
            assert here.page.get_by_label(name).count() >= 1


@pytest.mark.parametrize(
    ("room", "dark"), [("photo", False), ("eye", True), ("words", False), ("translation", True), ("molecule", False)]
)
def test_nothing_serious_before_anything_is_asked(tab, room, dark):
    """By turns on a desktop in the light and on a phone in the dark."""
    size = PHONE if dark else DESKTOP
    with tab(size, dark=dark) as here:
        here.open(f"?room={room}")
        here.page.locator("#settings summary").click()
        assert serious(here.page) == []
        assert here.page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_hostile_words_run_nothing(tab):
    text = "<img src=x onerror=alert(1)> </textarea><script>window.hacked=1</script> how many?"
    with tab() as here:
        here.open("?room=words")
        here.page.on("dialog", lambda dialog: pytest.fail("a script ran"))
        here.page.locator("#field-text").fill(text)
        here.page.get_by_role("button", name="Explain").click()
        here.wait()
        for place in (here.page, here.frame):
            assert place.evaluate("window.hacked") is None
            assert place.locator("img[src=x]").count() == 0
        assert "<script>" in here.page.locator("#past").inner_text()


def test_the_frame_cannot_reach_the_app(tab):
    with tab() as here:
        here.open("?room=words&text=how+many%3F")
        here.wait()
        reach = "(() => { try { return parent.document.title } catch (error) { return error.name } })()"
        assert here.frame.evaluate(reach) == "SecurityError"
        assert here.frame.evaluate("origin") == "null"


def test_in_a_frame_of_a_notebook(browser, monkeypatch):
    """The app in a page at another port of this machine: results are shown in it."""
    monkeypatch.setattr("integrand.serving.server.in_notebook", lambda: True)
    with serve_rooms([Slow(), *known_rooms(["words"])], port=0).start() as here, outer_page(here._repr_html_()) as address:
        context = browser.chromium.new_context()
        page = context.new_page()
        page.goto(address)
        app = page.frame_locator("iframe")
        app.locator("a", has_text="Words").click()
        app.locator("#examples button").first.click()
        app.frame_locator("#frame iframe").locator("h1", has_text="Asks for a number").wait_for(timeout=LONG)
        context.close()


@contextmanager
def outer_page(body):
    """A page of another server, as a notebook is one."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as outer:
        threading.Thread(target=outer.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://localhost:{outer.server_port}/"
        outer.shutdown()


def test_a_link_that_is_too_long_and_storage_that_is_full(tab):
    with tab() as here:
        here.page.add_init_script("Storage.prototype.setItem = () => { throw new Error('full') }")
        here.open("?room=words&text=hi")
        here.wait()
        here.page.locator("#field-text").fill("how many " * 210)
        here.page.locator("#field-text").press("Enter")
        here.page.locator("#frame iframe").wait_for()
        here.wait()
        assert here.settings == {"room": "words"}  # not the question before
        assert here.told("problem") == ""


def test_an_answer_of_a_proxy(tab):
    with tab() as here:
        here.open("?room=words")
        here.page.route("**/api/words/explain", lambda route: route.fulfill(status=413, body="<html>Too large</html>"))
        here.page.locator("#field-text").fill("how many?")
        here.page.get_by_role("button", name="Explain").click()
        here.page.locator("#problem", has_text="The server answered 413.").wait_for()


def test_a_server_that_has_gone(browser):
    here = serve_rooms([Slow()], port=0).start()
    context = browser.chromium.new_context()
    page = context.new_page()
    page.goto(here.url)
    page.locator("#field-text").fill("stay")
    here.close()
    page.get_by_role("button", name="Explain").click()
    page.locator("#problem", has_text="cannot be reached").wait_for(timeout=LONG)
    context.close()
