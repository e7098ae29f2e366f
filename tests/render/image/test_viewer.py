"""The viewer, run in a real browser: what it draws must be what Python draws, what it adds up what Python adds up."""

import base64
import hashlib
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from integrand.errors import InputError, OptionError
from integrand.render.html import document
from integrand.render.image.pixels import contribution, heat, lit, mass_limit, strength
from integrand.render.image.viewer import DRAWN, MOST, SHOWN, VIEWER, Map, _json, blocks, script, viewer
from integrand.render.image.views import Subject

from ..test_report import EVIL, Page

WIDTH, HEIGHT = 24, 16

# Goes through states by the address, as a reader's link would, and writes down what the canvas shows.
HOOK = """
const out = [], viewer = document.querySelector("[data-viewer]"), canvas = viewer.querySelector("canvas");
const said = () => viewer.querySelector("[data-part=reading]").textContent;
// The canvas has as many pixels for each of the photo as fit: one in the middle of each is read.
const pixels = () => {
  const zoom = canvas.width / 24, read = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const data = new Uint8Array(24 * 16 * 4);
  for (let y = 0; y < 16; y++) for (let x = 0; x < 24; x++) {
    const at = 4 * (Math.floor((y + 0.5) * zoom) * canvas.width + Math.floor((x + 0.5) * zoom));
    data.set(read.subarray(at, at + 4), 4 * (y * 24 + x));
  }
  return btoa(String.fromCharCode(...data));
};
const tick = () => new Promise((done) => setTimeout(done, 30));
const finish = () => {
  const pre = document.createElement("pre");
  pre.id = "out";
  pre.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(out))));
  document.body.append(pre);
};
"""


@pytest.fixture(scope="session")
def browse(tmp_path_factory):
    """Runs a page in a browser with a script of the test's own: ``browse(html, script)`` gives what it put into ``out``."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("needs a browser: no chromium, chromium-browser or google-chrome on the path")
    folder = tmp_path_factory.mktemp("browser")

    def run(body, steps):
        test = f"{HOOK}(async () => {{ try {{ {steps} }} catch (e) {{ out.push(String(e)); }} finish(); }})();"
        page = folder / "page.html"
        page.write_text(document("Test", body, style=VIEWER, scripts=(script(), test)), encoding="utf-8")
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder}/user",
            "--virtual-time-budget=20000",
        )
        command = (browser, *options, "--window-size=900,900", "--dump-dom", page.as_uri())
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        found = re.search(r'<pre id="out">([^<]*)</pre>', done.stdout.decode())
        assert found, done.stderr.decode()[-2000:]
        return json.loads(base64.b64decode(found[1]))

    return run


@pytest.fixture(scope="module")
def maps():
    """An ordinary map with heavy tails, one with unknown pixels, and a coarse one of one sign."""
    rng = np.random.default_rng(0)
    plain = rng.standard_t(2, (3, HEIGHT, WIDTH)) * 0.01
    odd = rng.normal(size=(3, HEIGHT, WIDTH))
    odd[0, 2, 3], odd[1, 5, 7] = np.nan, np.inf
    return {"plain": plain, "odd": odd, "coarse": np.abs(rng.normal(size=(1, 4, 6)))}


@pytest.fixture(scope="module")
def photo():
    return np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)


def expected(photo, values, view, share):
    if view == "photo":
        return photo
    panel = DRAWN[view](Subject("", values, photo / 255, share)).pixels
    rows, columns = (np.arange(n) * panel.shape[k] // n for k, n in enumerate((HEIGHT, WIDTH)))
    return panel[rows[:, None], columns]  # a heat map of a coarse map comes on the coarse grid


def decoded(text):
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(HEIGHT, WIDTH, 4).astype(int)


def test_canvas_shows_what_python_draws(browse, photo, maps):
    states = [(m, v, s) for m in range(3) for v in SHOWN if v not in ("outlines", "regions") for s in (0.3, 0.9)]
    steps = f"""for (const [map, view, share] of {json.dumps(states)}) {{
      location.hash = `map=${{map}}&view=${{view}}&share=${{share}}`; await tick();
      out.push([pixels(), Number(canvas.dataset.limit)]); }}"""
    shown = browse(viewer(photo, maps), steps)
    assert len(shown) == len(states)
    for (m, view, share), (pixels, limit) in zip(states, shown, strict=True):
        values = list(maps.values())[m]
        drawn = decoded(pixels)
        assert (drawn[..., 3] == 255).all()
        assert np.abs(drawn[..., :3] - expected(photo, values, view, share)).max() <= 1, (m, view, share)
        sizes = strength(values) if view == "scaled" else contribution(values)
        assert limit == pytest.approx(mass_limit(sizes, share), rel=1e-3)


def test_signs_and_squares(browse, photo, maps):
    steps = """for (const sign of ["positive", "negative"]) for (const view of ["scaled", "heatmap"])
      for (const side of [1, 4]) {
      location.hash = `map=0&view=${view}&share=0.6&sign=${sign}&side=${side}`; await tick(); out.push(pixels()); }"""
    shown = iter(browse(viewer(photo, maps), steps))
    for sign in (1, -1):
        for view in ("scaled", "heatmap"):
            for side in (1, 4):
                signed, size = (blocks(of(maps["plain"]), side) for of in (contribution, strength))
                keep = sign * signed > 0
                if view == "scaled":
                    want = lit(photo / 255, np.where(keep, size, 0), mass_limit(size, 0.6))
                else:
                    want = np.repeat(np.repeat(heat(np.where(keep, signed, 0), mass_limit(signed, 0.6)), side, 0), side, 1)
                assert np.abs(decoded(next(shown))[..., :3] - want).max() <= 1, (sign, view, side)


def test_regions_add_up(browse, photo, maps):
    steps = """
      out.push(said());
      location.hash = "map=0&region=2,3,5,6"; await tick(); out.push(said());
      location.hash = "map=0&region=0,0,24,16"; await tick(); out.push(said());
      location.hash = "map=1&region=0,0,24,16"; await tick(); out.push(said());"""
    start, some, whole, odd = browse(viewer(photo, maps), steps)
    signed = contribution(maps["plain"])
    region, total = signed[3:9, 2:7], signed.sum()
    assert number(start, r"together: (\S+)\. Point") == pytest.approx(total, rel=5e-3)
    assert number(some, r"contributes (\S+) of") == pytest.approx(region.sum(), rel=5e-3)
    assert number(some, r" of (\S+):") == pytest.approx(total, rel=5e-3)
    assert number(some, r": (\S+) from") == pytest.approx(region[region > 0].sum(), rel=5e-3)
    assert number(some, r", (\S+) from") == pytest.approx(region[region < 0].sum(), rel=5e-3)
    assert number(some, r"covers (\S+)%") == pytest.approx(100 * 30 / 384, rel=5e-3)
    assert number(whole, r"contributes (\S+) of") == pytest.approx(total, rel=5e-3)
    known = contribution(maps["odd"])
    assert number(odd, r"contributes (\S+) of") == pytest.approx(known[np.isfinite(known)].sum(), rel=5e-3)


def number(text, pattern):
    found = re.search(pattern, text)
    assert found, text
    return float(found[1].replace("−", "-"))


def test_mouse_and_keyboard_read_pixels_and_regions(browse, photo, maps):
    steps = """
      const at = (type, x, y) => { const box = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new PointerEvent(type, { bubbles: true, pointerType: "mouse", pointerId: 1,
          clientX: box.left + (x + .5) * box.width / 24, clientY: box.top + (y + .5) * box.height / 16 })); };
      const key = (key, shiftKey = false) =>
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, cancelable: true }));
      at("pointermove", 4, 9); out.push(said());
      at("pointerdown", 6, 2); at("pointermove", 3, 5); at("pointerup", 3, 5); out.push(said());
      out.push(location.hash); out.push(viewer.querySelector("[data-part=clear]").hidden);
      viewer.querySelector("[data-part=clear]").click(); at("pointerleave", 0, 0); out.push(said());
      key("ArrowRight"); out.push(said());
      key("ArrowLeft", true); key("Enter"); key("ArrowDown"); key("ArrowRight"); out.push(said());
      key("Escape"); out.push(said()); out.push(viewer.querySelector("[data-part=reading]").getAttribute("aria-live"));
      const slider = viewer.querySelector("input[type=range]");
      slider.value = 35; slider.dispatchEvent(new Event("input", { bubbles: true }));
      out.push(Number(canvas.dataset.limit)); out.push(slider.getAttribute("aria-valuetext"));"""
    found = browse(viewer(photo, maps), steps)
    pixel, region, address, hidden, cleared, right, keyed, escaped, live, limit, spoken = found
    signed = contribution(maps["plain"])
    assert "column 5, row 10" in pixel
    assert number(pixel, r": (\S+) of") == pytest.approx(signed[9, 4], rel=5e-3)
    assert number(region, r"contributes (\S+) of") == pytest.approx(signed[2:6, 3:7].sum(), rel=5e-3)
    assert address.endswith("&region=3,2,4,4")
    assert hidden is False
    assert cleared.startswith("All pixels together")
    assert number(right, r": (\S+) of") == pytest.approx(signed[8, 13], rel=5e-3)  # one to the right of the middle
    assert number(keyed, r"contributes (\S+) of") == pytest.approx(signed[8:10, 3:5].sum(), rel=5e-3)
    assert "column 5, row 10" in escaped
    assert live == "polite"
    assert limit == pytest.approx(mass_limit(strength(maps["plain"]), 0.35), rel=1e-3)
    assert spoken.startswith("35%")


def test_a_large_map_goes_in_as_blocks():
    values = np.random.default_rng(2).normal(size=(1, 700, 701))
    data = parsed(viewer(np.zeros((700, 701, 3), np.uint8), {"large": values}))
    (packed,) = data["maps"]
    assert packed["grain"] == 2
    assert packed["width"] * packed["height"] == 350 * 351 <= MOST
    halves = np.frombuffer(base64.b64decode(packed["signed"]), "<f2").astype(float).reshape(350, 351) * packed["unit"]
    assert halves[3, 5] == pytest.approx(values[0, 6:8, 10:12].sum(), rel=1e-3)
    assert packed["total"] == pytest.approx(values.sum())


def parsed(text):
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text)[1])


def test_numbers_survive_the_trip(maps):
    data = parsed(viewer(np.zeros((HEIGHT, WIDTH, 3), np.uint8), maps))
    for packed, values in zip(data["maps"], maps.values(), strict=True):
        for name, wanted in (("signed", contribution(values)), ("strength", strength(values))):
            read = np.frombuffer(base64.b64decode(packed[name]), "<f2").astype(float).reshape(wanted.shape) * packed["unit"]
            known = np.isfinite(wanted)
            assert (np.isfinite(read) == known).all()
            np.testing.assert_allclose(read[known], wanted[known], rtol=2**-11)


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e300])
def test_sizes_that_halves_do_not_hold(scale):
    (packed,) = parsed(viewer(np.zeros((2, 2, 3), np.uint8), {"a": scale * np.array([[[1.0, 2.0], [-3.0, 0.0]]])}))["maps"]
    read = np.frombuffer(base64.b64decode(packed["signed"]), "<f2").astype(float) * packed["unit"]
    np.testing.assert_allclose(read, scale * np.array([1.0, 2.0, -3.0, 0.0]), rtol=2**-11)
    assert ("all zero" in packed["remark"]) == (scale == 0)


def test_texts_cannot_leave_their_place(browse, photo, maps):
    body = viewer(photo, {EVIL: Map(maps["plain"], EVIL + "</script><!--<script>"), "b": maps["odd"]}, label=EVIL)
    assert EVIL not in body
    page = Page(body.replace("<input", "<br").replace("<br", "<meta"))  # void elements that the parser knows
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert parsed(body)["maps"][0]["name"] == EVIL
    # A script that is not ours does not run, whether inline, as a handler or as an address.
    body += "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
    title, about = browse(
        body, "await tick(); out.push(document.title, viewer.querySelector('[data-part=sides]').textContent);"
    )
    assert title == "Test"
    assert EVIL in about


def test_without_script_the_first_view_is_a_picture(photo, maps):
    image = pytest.importorskip("PIL.Image")
    import io

    body = viewer(photo, maps, share=0.5)
    address = re.search(r'<img[^>]*src="data:image/png;base64,([^"]+)"', body)[1]
    with image.open(io.BytesIO(base64.b64decode(address))) as still:
        values = strength(maps["plain"])
        assert (np.asarray(still) == lit(photo / 255, values, mass_limit(values, 0.5))).all()
    assert ".viewer:not(.live) :is(.controls," in VIEWER  # hidden until the script says that it runs


def test_policy_allows_our_script_alone(photo, maps):
    text = document("x", viewer(photo, maps), scripts=(script(),))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    assert "unsafe-eval" not in policy
    text = text.replace("http://www.w3.org/2000/svg", "")  # the name of a language, which nothing is loaded from
    assert not re.search(r"https?:|@import|url\(|<link|<iframe|\seval\(|innerHTML|fetch\(", text)
    assert not re.search(r"<[a-z][^>]*\son[a-z]+=", text)


def test_json_holds_no_markup():
    text = _json({"a": "</script><!-- & -->"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": "</script><!-- & -->"}


def test_what_makes_no_sense_is_refused(photo, maps):
    with pytest.raises(InputError, match="no maps"):
        viewer(photo, {})
    with pytest.raises(InputError, match="expected \\(channels, height, width\\)"):
        viewer(photo, {"flat": np.zeros((4, 4))})
    with pytest.raises(OptionError, match="view="):
        viewer(photo, maps, view="fancy")
    with pytest.raises(OptionError, match="share="):
        viewer(photo, maps, share=0.0)
