"""The page of molecules: drawings and bars are linked both ways, everything adds up, and no name is obeyed."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

Chem = pytest.importorskip("rdkit.Chem", reason="needs rdkit")
from rdkit.Chem import Crippen  # noqa: E402

from integrand.errors import InputError  # noqa: E402
from integrand.render.html import policy  # noqa: E402
from integrand.render.molecule import Molecule, page  # noqa: E402
from integrand.render.molecule.molecule_drawing import DARK, LIGHT  # noqa: E402
from integrand.render.molecule.molecule_page import MOST_ROWS, script  # noqa: E402

DRUG = "CC(C)NCC(O)COc1ccc(CCOCC2CC2)cc1NC(C)=O"  # 25 heavy atoms and the rings, amines and oxygens that drugs have
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;'


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_data(self, data):
        self.text += data

    @property
    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]


def made(smiles=DRUG, reach=2, **known):
    """Crippen's contributions to logP on atoms, made-up values on pairs up to a distance."""
    mol = Chem.MolFromSmiles(smiles)
    count = mol.GetNumAtoms()
    atoms = [part[0] for part in Crippen.rdMolDescriptors._CalcCrippenContribs(mol)]
    near = Chem.GetDistanceMatrix(mol) <= reach
    upper = np.triu(np.random.default_rng(0).normal(scale=0.2, size=(count, count)) * near, 1)
    return Molecule(mol, atoms, upper + upper.T, **known)


@pytest.fixture(scope="module")
def one():
    found = made(title="drug", label="soluble", others=(("weight", 0.125),))
    return Molecule(
        found.mol, found.atoms, found.pairs, found.others, "drug", "soluble", score=0.5 + found.total, baseline_score=0.5
    )


def test_links_go_both_ways(one):
    seen = Page(page(one))
    assert len(seen.ids) == len(set(seen.ids))
    marks = {name[:-1] for name in seen.ids if name.endswith("_")}
    rows = {attrs["id"] for tag, attrs in seen.tags if tag == "tr" and "id" in attrs}
    assert {f"m0a{i}" for i in range(len(one.atoms))} <= marks
    assert {f"m0b{k}" for k in range(len(one.bonds))} <= marks
    assert marks <= rows  # every mark has its bar
    links = {attrs["href"] for tag, attrs in seen.tags if tag == "a"}
    assert {f"#{name}" for name in marks} <= links
    assert {f"#{name}_" for name in marks} <= links


def test_bars_have_the_values(one):
    text = page(one)
    bars = re.findall(r'<tr id="m0a(\d+)".*?<i class="(\w)" style="width:([\d.e-]+)%">', text)
    assert len(bars) == len(one.atoms)
    assert [float(wide) for _, _, wide in bars] == sorted((float(wide) for _, _, wide in bars), reverse=True)
    for atom, sign, wide in bars:
        value = one.atoms[int(atom)]
        assert float(wide) == pytest.approx(50 * abs(value) / one.limit, rel=0.01)
        assert sign == ("p" if value > 0 else "n")


def test_completeness_is_visible(one, certificate):
    told = certificate(score=one.score, baseline_score=one.baseline_score, residual=0.0)
    text = Page(page(one, certificates=[told])).text
    for part in ("What adds up to the score", "nothing: F(x′)", "the model: F(x)", "weight", "Certificate"):
        assert part in text
    running = [one.baseline_score + sum(value for _, value in one.parts[: k + 1]) for k in range(len(one.parts))]
    for value in running:
        assert f"{value:.4g}".replace("-", "−") in text
    assert "The attributions add up to" in text
    assert "add up to" in Page(page(one)).text  # without a certificate too


def test_steps_begin_where_the_last_one_ended(one):
    table = re.search(r'<table class="run">.*?</table>', page(one), re.S)[0]
    bars = re.findall(r'<i class="(\w+)" style="left:([\d.e-]+)%;width:([\d.e-]+)%">', table)
    assert [kind for kind, _, _ in bars][:: len(bars) - 1] == ["at", "at"]  # F(x') and F(x)
    place = float(bars[0][1])
    for kind, left, wide in bars[1:-1]:
        low, high = float(left), float(left) + float(wide)
        start, end = (low, high) if kind == "p" else (high, low)
        assert start == pytest.approx(place, abs=0.2)
        place = end
    assert place == pytest.approx(float(bars[-1][1]), abs=0.2)


def test_accounts(one):
    rows = [("part", "atoms", 0.5, 0.46), ("part", "bonds", -0.02, -0.03), ("element", "<b>N</b>", 0.1, None)]
    text = page(one, accounts=[rows])
    assert "46%" in text
    assert "−3%" in text
    assert "&lt;b&gt;N&lt;/b&gt;" in text
    assert text.count("<th>part</th>") == 1  # a kind is named once
    assert "of the change" in text
    assert "of the change" not in page(one, accounts=[[("part", "atoms", 0.5, None)]])


def test_tiny_bars_have_one_unit(one):
    small = Molecule(one.mol, one.atoms / 1e3, one.pairs / 1e3, title="small")
    assert 1e-4 < small.limit < 1e-3
    text = page(small)
    for atom, written in re.findall(r'<tr id="m0a(\d+)".*?</i></td><td>([^<]*)</td>', text):
        micro = float(written.replace("−", "-"))
        assert micro == pytest.approx(1e6 * small.atoms[int(atom)], rel=0.01)
    assert "Atoms ×10⁻⁶" in text
    assert 'data-unit=" ×10⁻⁶"' in text
    assert "×10" not in page(one)


def test_nothing_is_obeyed(one):
    hostile = Molecule(one.mol, one.atoms, one.pairs, ((HOSTILE, 0.1),), title=HOSTILE, label=HOSTILE, score=1.0)
    text = page(
        [hostile, one],
        title=HOSTILE,
        lead=HOSTILE,
        notes=[HOSTILE, ""],
        accounts=[[(HOSTILE, HOSTILE, 1.0, 0.5)], []],
        meta={HOSTILE: HOSTILE},
        command=HOSTILE,
    )
    seen = Page(text)
    assert sum(tag == "script" for tag, _ in seen.tags) == 1
    assert not any(tag == "img" for tag, _ in seen.tags)
    assert not any(name.startswith("on") for _, attrs in seen.tags for name in attrs)
    assert f"<script>{script()}</script>" in text


def test_nothing_is_loaded(one):
    text = page(one)
    assert policy((script(),)) in text
    for tag, attrs in Page(text).tags:
        for name in ("src", "href", "xlink:href"):
            assert attrs.get(name, "#").startswith("#"), (tag, attrs)
    assert "url(" not in text
    assert "@import" not in text


def test_several_have_an_overview(one):
    seen = Page(page([one, made("CCO", title="ethanol"), made("O")]))
    uses = [attrs["href"] for tag, attrs in seen.tags if tag == "use"]
    assert uses == ["#m0drawn", "#m1drawn", "#m2drawn"]
    assert {name[1:] for name in uses} <= set(seen.ids)
    assert {"m0", "m1", "m2"} <= set(seen.ids)
    for name in ("3 molecules", "drug", "ethanol", "Molecule 3"):
        assert name in seen.text
    assert not any(tag == "use" for tag, _ in Page(page(one)).tags)


def test_small(one, certificate):
    size = len(page(one, certificates=[certificate()]).encode())
    assert 20_000 < size < 60_000


def test_dark_and_light_in_one_drawing(one):
    text = page(one)
    style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    plain, night = style[style.index(".s0{") :].split("@media(prefers-color-scheme:dark)")
    light, dark = (dict(re.findall(r"\.(s\d+)\{([^}]*)\}", part)) for part in (plain, night))
    drawn = re.search(r'<g id="m0drawn">(.*?)</g>', text, re.S)[1]
    used = set(re.findall(r'class="(s\d+)"', drawn))
    assert used
    assert used <= set(light)
    assert used <= set(dark)  # no colour is the same on both papers
    assert f"stroke:{LIGHT.ink}" in " ".join(light.values())
    assert f"stroke:{DARK.ink}" in " ".join(dark.values())
    assert "style=" not in drawn


def test_weak_pairs_are_summed(one):
    many = made("C" * 30, reach=30)
    text = page(many)
    bars = re.findall(r'<tr id="m0p(\d+)-(\d+)"', text)
    assert len(bars) >= MOST_ROWS
    listed = {(int(i), int(j)) for i, j in bars}
    rest = sum(value for i, j, value in many.far if (i, j) not in listed)
    assert f"and {len(many.far) - len(bars)} more, adding up to {rest:+.3g}".replace("-", "−") in text
    strongest = sorted(many.far, key=lambda pair: -abs(pair[2]))[: len(bars)]
    assert listed == {(i, j) for i, j, _ in strongest}


def test_matrix_only_for_small_ones(one):
    assert 'class="cells"' in page(one)
    assert 'class="cells"' not in page(made("C" * 50))
    assert 'class="cells"' not in page(Molecule(one.mol, one.atoms, np.zeros_like(one.pairs)))  # nothing off the diagonal
    cells = re.search(r'<svg class="cells".*?</svg>', page(one), re.S)[0]
    drawn = {(int(i), int(j) - 2) for j, i in re.findall(r"M(\d+) (\d+)h1", cells)}
    full = one.pairs + np.diag(one.atoms)
    assert drawn == {(int(i), int(j)) for i, j in zip(*np.nonzero(full), strict=True)}


def test_refused(one, certificate):
    for given in ({"notes": ["a", "b"]}, {"certificates": [certificate()] * 3}, {"accounts": [[], []]}):
        with pytest.raises(InputError, match=f"{next(iter(given))} for 1 molecules; expected a list with one for each"):
            page(one, **given)
    with pytest.raises(InputError, match="notes"):
        page(one, notes="a text")


HOOK = """
const out = [], root = document.getElementById("m0"), part = (name) => document.getElementById(name);
const point = (target, kind, place) => target.dispatchEvent(new PointerEvent(kind, { bubbles: true, ...place }));
const lit = () => [...root.querySelectorAll(".on")].map((one) => one.id).sort();
const tip = () => { const box = root.querySelector(".tip"); return box.hidden ? null : box.textContent; };
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
"""


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Runs a page in a browser with steps of the test's own: ``browse(html, steps)`` gives what they put into ``out``."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("needs a browser: no chromium, chromium-browser or google-chrome on the path")
    folder = tmp_path_factory.mktemp("browser")

    def run(text, steps):
        end = (
            'const pre = document.createElement("pre"); pre.id = "out";'
            "pre.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(out)))); document.body.append(pre);"
        )
        test = f"{{{HOOK} try {{ {steps} }} catch (e) {{ out.push(String(e)); }} {end}}}"
        allowed = text.replace(policy((script(),)), policy((script(), test)))  # its own script still needs its digest
        path = folder / "page.html"
        path.write_text(allowed.replace("</body>", f"<script>{test}</script></body>"), encoding="utf-8")
        options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/user", "--window-size=1100,900")
        done = subprocess.run((browser, *options, "--dump-dom", path.as_uri()), capture_output=True, timeout=60, check=False)
        found = re.search(r'<pre id="out">([^<]*)</pre>', done.stdout.decode())
        assert found, done.stderr.decode()[-2000:]
        return json.loads(base64.b64decode(found[1]))

    return run


def test_pointing_lights_both(browse, one):
    weak = next(row for row in re.findall(r'<tr id="(m0p\d+-\d+)"', page(one)) if f'id="{row}_"' not in page(one))
    steps = f"""
    point(part("m0a3_").firstElementChild, "pointerover"); out.push(lit(), tip());
    point(part("m0b2").cells[1], "pointerover"); out.push(lit(), tip());
    point(part("{weak}").cells[0], "pointerover"); out.push(lit());
    point(root, "pointerleave"); out.push(lit(), tip());
    const list = root.querySelectorAll(".rows a"); list[0].focus(); out.push(lit());
    press("ArrowDown"); out.push(document.activeElement === list[1], lit());
    press("Escape"); out.push(lit());
    const cells = root.querySelector(".cells"), n = {len(one.atoms)} + 2; root.querySelector(".matrix").open = true;
    const box = cells.getBoundingClientRect(), at = (i) => (i + 2.5) / n;
    point(cells, "pointermove", {{ clientX: box.left + at(1) * box.width, clientY: box.top + at(0) * box.height }});
    out.push(root.querySelector(".matrix output").textContent);
    out.push(part("m0a3_").getAttribute("aria-label"));
    out.push([...root.querySelectorAll(".marks a, .rows a")].filter((link) => link.tabIndex === 0).length);
    """
    found = browse(page(one), steps)
    value = f"{one.atoms[3]:+.3g}".replace("-", "−")
    half = f"{one.per_atom[3]:+.3g}".replace("-", "−")
    assert found[:2] == [["m0a3", "m0a3_"], f"{one.names[3]}: {value}, with half of its pairs {half}"]
    assert found[2] == ["m0b2", "m0b2_"]
    assert found[3].endswith(f"{one.bonds[2]:+.3g}".replace("-", "−"))
    i, j = weak[3:].split("-")
    assert found[4] == sorted([weak, f"m0a{i}_", f"m0a{j}_"])  # what has no arc lights its atoms
    assert found[5:7] == [[], None]
    strongest = np.argsort(-np.abs(one.atoms), kind="stable")[:2]
    assert found[7] == [f"m0a{strongest[0]}", f"m0a{strongest[0]}_"]
    assert found[8:11] == [True, [f"m0a{strongest[1]}", f"m0a{strongest[1]}_"], []]
    assert found[11] == f"C0–C1: {one.pairs[0, 1]:+.3g}".replace("-", "−")
    assert found[12] == f"{one.names[3]}: {value}"
    assert found[13] == 5  # stops of the tab key: the drawing, atoms, bonds, other pairs, others
