"""Drawn molecules: every atom and bond has its colour, nothing is hidden silently, and what cannot be drawn is refused."""

from __future__ import annotations

import io
import json
import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise, product

import numpy as np
import pytest

Chem = pytest.importorskip("rdkit.Chem", reason="needs rdkit")
from rdkit.Chem import AllChem, Crippen, rdDepictor  # noqa: E402

from integrand.errors import InputError, OptionError  # noqa: E402
from integrand.render import molecule as pictures  # noqa: E402
from integrand.render.molecule import Molecule  # noqa: E402
from integrand.render.molecule.molecule_data import disorder, is_laid_out, laid_out, positions  # noqa: E402
from integrand.render.molecule.molecule_drawing import DARK, LIGHT, MOST_ARCS, Look, _width, _wrapped, draw, shown_pairs  # noqa: E402  # noqa: E402
from integrand.render.molecule.molecule_svg import relative  # noqa: E402

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
CYCLOSPORIN = (
    "CCC1C(=O)N(CC(=O)N(C(C(=O)NC(C(=O)N(C(C(=O)NC(C(=O)NC(C(=O)N(C(C(=O)N(C(C(=O)N(C(C(=O)N(C(C(=O)N1)C(C(C)CC=CC)O)C)"
    "C(C)C)C)CC(C)C)C)CC(C)C)C)C)C)CC(C)C)C)C(C)C)CC(C)C)C)C"
)
ODD = {
    "stereo": "C[C@H](N)C(=O)O",
    "E and Z": "F/C=C/C=C\\Cl",
    "charges": "C[N+](C)(C)CC([O-])=O",
    "isotopes": "[2H]C([2H])([2H])[13CH2][18F]",
    "salt": "CC(=O)[O-].[Na+].O",
    "metal": "[NH3]->[Pt](Cl)(Cl)<-[NH3]",
    "atom": "[Na+]",
    "dummy": "*CC*",
    "macrocycle": "C1CCCCCCCCCCCCCCC1",
    "sandwich": "[CH-]1C=CC=C1.[CH-]1C=CC=C1.[Fe+2]",
}
SPACE = {"svg": "http://www.w3.org/2000/svg"}


def made(smiles=ASPIRIN, atoms=None, pairs=None, **known):
    """A molecule with values of our own; without them, Crippen's contributions to logP and pairs that shrink with distance."""
    mol = Chem.MolFromSmiles(smiles)
    count = mol.GetNumAtoms()
    if atoms is None:
        atoms = [part[0] for part in Crippen.rdMolDescriptors._CalcCrippenContribs(mol)]
    if pairs is None:
        upper = np.triu(np.random.default_rng(0).normal(size=(count, count)) / (1 + Chem.GetDistanceMatrix(mol)) ** 2, 1)
        pairs = upper + upper.T
    return Molecule(mol, atoms, pairs, **known)


def only(count, *given):
    """A matrix of pairs with these (i, j, value)."""
    pairs = np.zeros((count, count))
    for i, j, value in given:
        pairs[i, j] = pairs[j, i] = value
    return pairs


def marked(text, kind):
    return ET.fromstring(text).findall(f".//svg:*[@data-{kind}]", SPACE)


def fills(text):
    """The colours of all that is filled."""
    return re.findall(r"fill:(#[0-9A-Fa-f]{6})", text)


def reddish(colour):
    red, _, blue = bytes.fromhex(colour[1:])
    return red - blue


def png_size(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_parts_add_up():
    one = made(others=(("logP", 0.25),))
    upper = np.triu(one.pairs, 1)
    assert one.total == pytest.approx(one.atoms.sum() + upper.sum() + 0.25)
    assert dict(one.parts)["bonds"] == pytest.approx(sum(one.pairs[i, j] for i, j in one.ends))
    assert [name for name, _ in one.parts] == ["atoms", "bonds", "other pairs", "logP"]
    assert made(others=(("a", 0.25), ("b", -1.0))).parts[-1] == ("others", -0.75)
    assert one.per_atom.sum() == pytest.approx(one.atoms.sum() + upper.sum())
    assert one.bonds.shape == (one.mol.GetNumBonds(),)
    bonded = {tuple(sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx()))) for b in one.mol.GetBonds()}
    assert not bonded & {(i, j) for i, j, _ in one.far}
    assert len(bonded) + len(one.far) == 13 * 12 // 2


def test_values_are_a_copy():
    atoms = np.ones(3)
    one = made("CCO", atoms, only(3))
    atoms[0] = 5.0
    assert one.atoms.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        one.atoms[0] = 2


@pytest.mark.parametrize(
    ("atoms", "pairs", "message"),
    [
        ([1.0, 2.0], only(3), r"shape \(2,\).*3 atoms; expected \(3,\)"),
        ([1.0, math.nan, 2.0], only(3), r"nan in atoms at \[1\]"),
        ([1.0, 0.0, 2.0], np.zeros((3, 2)), r"pairs of shape \(3, 2\)"),
        ([1.0, 0.0, 2.0], only(3, (0, 2, math.inf)), r"inf in pairs at \[0, 2\]"),
        ([1.0, 0.0, 2.0], np.eye(3), r"atom 0 with itself.*Add it to atoms"),
        ([1.0, 0.0, 2.0], np.triu(np.ones((3, 3)), 1), r"expected a symmetric matrix.*pairs \+ pairs.T"),
    ],
)
def test_refused(atoms, pairs, message):
    with pytest.raises(InputError, match=message):
        made("CCO", atoms, pairs)


def test_refused_scores_and_nothing():
    with pytest.raises(InputError, match="nan for 'score'"):
        made(score=math.nan)
    with pytest.raises(InputError, match="inf for 'logP'"):
        made(others=(("logP", math.inf),))
    with pytest.raises(InputError, match="without atoms"):
        Molecule(Chem.Mol(), [], np.zeros((0, 0)))
    with pytest.raises(InputError, match="no molecule"):
        pictures.page([])


@pytest.mark.parametrize(
    "options", [{"pairs": "lines"}, {"size": (10, 10)}, {"size": (300,)}, {"limit": 0.0}, {"limit": math.nan}]
)
def test_refused_options(options):
    with pytest.raises(OptionError, match=f"got {next(iter(options))}="):
        pictures.svg(made(), **options)


def test_every_atom_and_bond_can_be_pointed_at():
    one = made()
    for pairs, (kind, values, names) in product(("halves", "arcs"), (("atom", None, one.names), ("bond", one.bonds, None))):
        found = marked(pictures.svg(one, pairs=pairs), kind)
        values = values if values is not None else one.per_atom if pairs == "halves" else one.atoms
        assert [int(mark.get(f"data-{kind}")) for mark in found] == list(range(len(values)))
        assert [float(mark.get("data-value")) for mark in found] == pytest.approx(values.tolist(), rel=1e-5)
        for k, name in enumerate(names or ()):
            assert found[k].find("svg:title", SPACE).text.startswith(f"{name}: ")


def test_marks_are_where_rdkit_draws_the_atoms():
    text = pictures.svg(made("CCCC", [0.0] * 4, only(4)))
    line = re.search(r"class='bond-0 atom-0 atom-1' d='M ([\d.]+),([\d.]+) ", text)
    first = marked(text, "atom")[0]
    assert (float(first.get("cx")), float(first.get("cy"))) == pytest.approx([float(part) for part in line.groups()], abs=0.6)


def test_arcs_are_for_pairs_that_are_not_bonds():
    pairs = only(4, (0, 1, 1.0), (0, 2, 0.5), (1, 3, -0.7), (0, 3, 0.01))
    one = made("CCCO", [0.1] * 4, pairs)
    text = pictures.svg(one, pairs="arcs", size=(900, 500))
    assert {tuple(map(int, mark.get("data-pair").split())) for mark in marked(text, "pair")} == {(0, 2), (1, 3)}
    # 0.5 and 0.7 of 1.21 in all; the weak one is said, not hidden
    assert "arcs: 2 of 3 other pairs, 99% of their magnitude; the rest adds +0.01" in text
    without = pictures.svg(one, pairs="none", size=(900, 500))
    assert not marked(without, "pair")
    assert "3 other pairs not drawn, in sum −0.19" in without


def test_arcs_keep_clear_of_the_atom_between():
    one = made("CCC", [0.0] * 3, only(3, (0, 2, 1.0)))
    drawing = draw(one, Look(pairs="arcs"), "svg")
    ((_, _, _, curve),) = drawing.arcs
    assert np.linalg.norm(curve - drawing.spots[1], axis=1).min() > 0.45 * drawing.bond
    assert np.linalg.norm(curve - drawing.spots[0], axis=1).min() < 0.3 * drawing.bond


def test_not_more_arcs_than_can_be_told_apart():
    count = 40
    one = made("C" * count, np.ones(count), np.ones((count, count)) - np.eye(count))
    assert len(shown_pairs(one, one.limit)) == MOST_ARCS
    total = count * (count - 1) // 2 - (count - 1)
    assert f"arcs: {MOST_ARCS} of {total} other pairs" in pictures.svg(one, pairs="arcs", size=(1200, 900))


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_colours_are_monotone_and_have_the_sign(paper):
    shares = np.linspace(-1, 1, 41)
    away = []
    ground = np.array(list(bytes.fromhex(paper.paper[1:])), float)
    for share in shares:
        colour = paper.area(float(share))
        assert share * reddish(colour) > 0 or abs(share) < 0.06
        away.append(np.abs(np.array(list(bytes.fromhex(colour[1:]))) - ground).sum())
    assert (np.diff(away[:21]) <= 0).all()
    assert (np.diff(away[20:]) >= 0).all()
    assert paper.area(0.0) == paper.paper


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_letters_can_be_read_on_the_strongest_colours(paper):
    def light(colour):
        parts = np.array(list(bytes.fromhex(colour[1:]))) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    for area in paper.areas:  # 4.5 is WCAG's AA for text
        high, low = sorted((light(area), light(paper.ink)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_drawn_colours_follow_the_values():
    values = [-1.0, -0.5, 0.0, 0.5, 1.0]
    text = pictures.svg(made("CCCCC", values, only(5)), legend=False)
    root = ET.fromstring(text)
    spots = {int(m.get("data-atom")): (float(m.get("cx")), float(m.get("cy"))) for m in marked(text, "atom")}
    cores = {}
    for disc in root.findall("svg:ellipse", SPACE):
        place = float(disc.get("cx")), float(disc.get("cy"))
        atom = min(spots, key=lambda i: math.dist(spots[i], place))
        cores[atom] = fills(disc.get("style"))[0]  # the innermost is drawn last
    assert set(cores) == {0, 1, 3, 4}
    assert reddish(cores[0]) < reddish(cores[1]) < 0 < reddish(cores[3]) < reddish(cores[4])
    assert cores[4].lower() == LIGHT.areas[1]
    assert cores[0].lower() == LIGHT.areas[0]


def test_zero_attributions_have_no_colour():
    text = pictures.svg(made("CCO", [0.0] * 3, only(3)))
    assert "<ellipse" not in text
    assert "all zero" in text
    assert {colour.lower() for colour in fills(text)} == {LIGHT.paper}


def test_a_limit_of_ones_own_is_kept():
    strong, weak = (pictures.svg(made("CC", [1.0, 1.0], only(2)), limit=limit) for limit in (1.0, 4.0))
    red = reddish(LIGHT.areas[1])
    assert max(map(reddish, fills(strong.split("against")[0]))) == red
    discs = [max(map(reddish, fills(" ".join(re.findall(r"<ellipse[^>]*>", text))))) for text in (strong, weak)]
    assert discs[1] == pytest.approx(discs[0] / 4, rel=0.05)


def test_letters_have_one_colour():
    text = pictures.svg(made("NCCO", [0.0] * 4, only(4)))  # RDKit's own would be blue and red
    letters = re.findall(r"<path class='atom-\d+'[^>]*fill='(#\w+)'", text)
    assert letters
    assert {colour.lower() for colour in letters} == {LIGHT.ink}


def test_numbers_are_written_on_request():
    one = made("CCO", [0.31, 0.0, -0.2], only(3, (0, 1, 0.12)))
    plain, written = (pictures.svg(one, numbers=numbers).count("<path") for numbers in (False, True))
    assert written >= plain + 3 * len("+0.31")  # a shape for each sign of three numbers
    assert not Chem.MolFromSmiles("CCO").GetAtomWithIdx(0).HasProp("atomNote")
    assert not one.mol.GetAtomWithIdx(0).HasProp("atomNote")  # the caller's molecule stays as it was


def test_texts_are_escaped_and_the_file_is_xml():
    hostile = '<script>alert("x")</script> & \x00\n é α'
    text = pictures.svg(made(title=hostile, label="</svg>", score=1.0), size=(900, 500))
    ET.fromstring(text)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert png_size(pictures.png(made(title=hostile, label="</svg><sub>"), size=(500, 400))) == (500, 400)


def test_legend_says_the_sum():
    one = made("CCO", [0.5, 0.25, 0.0], only(3, (0, 1, 0.2), (0, 2, -0.05)), title="ethanol", label="active", score=0.94)
    text = pictures.svg(one, pairs="arcs", size=(700, 400))
    for said in ("ethanol: active 0.94", "sum +0.9 = atoms +0.75, bonds +0.2, other pairs −0.05", "for +0.5", "against −0.5"):
        assert said in text
    assert "<text" not in pictures.svg(one, legend=False)
    halves = pictures.svg(one, size=(700, 400))
    for said in ("sum +0.9 = atoms with half of their pairs +0.9", "for +0.575"):
        assert said in halves
    assert "arcs" not in halves


@pytest.mark.parametrize("options", [{}, {"dark": True, "numbers": True}, {"size": (333, 444)}])
def test_deterministic(options):
    assert pictures.svg(made(), **options) == pictures.svg(made(), **options)
    assert pictures.png(made(), **options) == pictures.png(made(), **options)


def test_dark_paper():
    text = pictures.svg(made(), dark=True)
    assert DARK.paper in text.lower()
    assert LIGHT.ink not in text.lower()


@pytest.mark.parametrize("name", ODD)
def test_odd_molecules_draw(name):
    mol = Chem.MolFromSmiles(ODD[name])
    count = mol.GetNumAtoms()
    one = Molecule(mol, np.linspace(-1, 1, count) if count > 1 else [1.0], np.zeros((count, count)), title=name)
    text = pictures.svg(one)
    assert len(marked(text, "atom")) == count
    assert len(marked(text, "bond")) == mol.GetNumBonds()
    width, height = (float(ET.fromstring(text).get(side)) for side in ("width", "height"))
    for mark in marked(text, "atom"):
        assert 0 < float(mark.get("cx")) < width
        assert 0 < float(mark.get("cy")) < height


def test_stereo_is_kept():
    for smiles in ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "CC(N)C(=O)O"):
        mol = laid_out(Chem.MolFromSmiles(smiles))
        drawn = {bond.GetBondDir() for bond in mol.GetBonds()} & {Chem.BondDir.BEGINWEDGE, Chem.BondDir.BEGINDASH}
        assert len(drawn) == smiles.count("[C")  # a wedge or a hash where there is something to show
        Chem.AssignChiralTypesFromBondDirs(mol)
        assert Chem.MolToSmiles(Chem.RemoveHs(mol)) == Chem.CanonSmiles(smiles)  # and the right one
    for smiles, side in (("F/C=C/F", -1), ("F/C=C\\F", 1)):
        places = positions(laid_out(Chem.MolFromSmiles(smiles)))
        axis = places[2] - places[1]
        across = [
            axis[0] * (p[1] - q[1]) - axis[1] * (p[0] - q[0]) for p, q in ((places[0], places[1]), (places[3], places[2]))
        ]
        assert np.sign(across[0] * across[1]) == side


def test_what_was_not_checked_is_drawn_too():
    for smiles in ("c1cccc1", "CN(=O)=O", "[H][H]"):  # no Kekulé structure, a valence of five, no heavy atom
        mol = Chem.MolFromSmiles(smiles, sanitize=False)
        count = mol.GetNumAtoms()
        assert len(marked(pictures.svg(Molecule(mol, np.ones(count), np.zeros((count, count)))), "atom")) == count


def test_coordinates_of_ones_own_are_kept_and_3d_is_not():
    mol = Chem.MolFromSmiles("CCO")
    rdDepictor.Compute2DCoords(mol)
    turned = np.array([[0.0, 0, 0], [0, 1.5, 0], [0, 3, 0]])
    for i, place in enumerate(turned):
        mol.GetConformer().SetAtomPosition(i, place.tolist())
    spots = draw(Molecule(mol, np.ones(3), np.zeros((3, 3))), Look(), "svg").spots
    assert np.ptp(spots[:, 0]) == pytest.approx(0, abs=1e-6)  # still upright
    solid = Chem.AddHs(Chem.MolFromSmiles("CCO"))
    AllChem.EmbedMolecule(solid, randomSeed=1)
    assert not laid_out(solid).GetConformer().Is3D()


def test_rdkits_settings_stay_as_they_were():
    before = rdDepictor.GetPreferCoordGen()
    laid_out(Chem.MolFromSmiles(CYCLOSPORIN))
    assert rdDepictor.GetPreferCoordGen() == before


@pytest.mark.parametrize("smiles", [CYCLOSPORIN, "C1CC2CCC1CC2", Chem.MolToSmiles(Chem.MolFromSequence("GIVEQCCTSICSLYQ"))])
def test_large_ones_are_laid_out_without_overlaps(smiles):
    mol = laid_out(Chem.MolFromSmiles(smiles))
    places = positions(mol)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + 9 * np.eye(len(places))
    assert apart.min() > 0.5  # of 1.5, the length of a bond
    ends = np.array([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()])
    assert disorder(places, ends) <= 3


def test_a_layout_that_puts_all_atoms_in_one_place_is_not_taken():
    """CoordGen gives such a one to a row of many rings, and it has neither crossings nor a length of bonds."""
    mol = Chem.MolFromSmiles("C1CC1" * 80)
    flat = Chem.Mol(mol)
    rdDepictor.Compute2DCoords(flat, forceRDKit=True)
    conformer = flat.GetConformer()
    for i in range(flat.GetNumAtoms()):
        conformer.SetAtomPosition(i, (0.0, 0.0, 0.0))
    assert not is_laid_out(flat)
    assert is_laid_out(laid_out(mol))


def test_a_hundred_atoms():
    smiles = Chem.MolToSmiles(Chem.MolFromSequence("GIVEQCCTSICSLYQLE"))
    one = made(smiles)
    assert len(one.atoms) > 120
    text = pictures.svg(one)
    assert len(marked(text, "atom")) == len(one.atoms)
    sides = [[float(ET.fromstring(part).get(side)) for side in ("width", "height")] for part in (pictures.svg(made()), text)]
    assert math.prod(sides[1]) > 5 * math.prod(sides[0])  # the picture grows, so that bonds keep their length
    assert draw(one, Look(), "svg").bond == pytest.approx(draw(made(), Look(), "svg").bond, rel=0.05)


@pytest.mark.parametrize("size", [(300, 200), (640, 480), (1500, 500)])
def test_png_has_the_size_asked_for(size):
    assert png_size(pictures.png(made(), size=size)) == size
    root = ET.fromstring(pictures.svg(made(), size=size))
    assert (int(root.get("width")), int(root.get("height"))) == size


def test_png_shows_the_colours():
    from PIL import Image

    data = pictures.png(made("CCCCC", [1.0, 0, 0, 0, -1.0], only(5)), legend=False)
    colours = {"#" + bytes(colour[:3]).hex() for _, colour in Image.open(io.BytesIO(data)).getcolors(1 << 20)}
    assert {*LIGHT.areas, LIGHT.paper, LIGHT.ink} <= colours


def test_matrix():
    one = made("CCO", [0.5, 0.25, 0.0], only(3, (0, 1, -0.2), (0, 2, 0.1)), title="ethanol $x$")
    cells, sums, *_ = pictures.matrix(one).axes
    assert [label.get_text() for label in cells.get_yticklabels() if label.get_text()] == ["C0", "C1", "O2"]
    pixels = np.asarray(cells.images[0].get_array(), int)
    assert (pixels == pixels.transpose(1, 0, 2)).all()
    assert pixels[0, 0, 0] > pixels[0, 0, 2]  # red
    assert pixels[0, 1, 0] < pixels[0, 1, 2]  # blue
    assert pixels[1, 2].tolist() == [255] * 3  # nothing there
    assert [bar.get_width() for bar in sums.patches] == pytest.approx([0.45, 0.15, 0.05])


def test_matrix_of_sixty_atoms_has_room_for_its_names():
    one = made("C" * 60)
    figure = pictures.matrix(one)
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels() if label.get_text()]
    assert len(boxes) == 60
    tops = sorted((box.y0, box.y1) for box in boxes)
    assert all(below[1] <= above[0] + 2 for below, above in pairwise(tops))


def test_figure_and_save(tmp_path):
    one, two = made(title="aspirin"), made("CCO", title="ethanol")
    assert len(pictures.figure([two] * 4, columns=3, title="a_b$").axes) == 4
    for what, ending in ((one, "svg"), (one, "png"), (one, "html"), ([one, two], "pdf"), ([one, two], "json")):
        path = pictures.save(what, tmp_path / f"x.{ending}")
        assert path.stat().st_size > 500
    saved = json.loads((tmp_path / "x.json").read_text())
    assert [atom["value"] for atom in saved[0]["atoms"]] == one.atoms.tolist()
    assert sum(pair["bond"] for pair in saved[0]["pairs"]) == one.mol.GetNumBonds()
    with pytest.raises(OptionError, match=r"'\.bmp'"):
        pictures.save(one, tmp_path / "x.bmp")
    with pytest.raises(OptionError, match="columns=0"):
        pictures.figure([one], columns=0)


def test_shorter_paths_are_the_same_paths():
    rng = np.random.default_rng(1)
    points = np.round(rng.uniform(0, 300, (40, 2)), 1)
    path = "M " + " L ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    short = relative(path)
    assert len(short) < len(path)
    first, rest = short[1:].split("l")
    steps = np.array([float(text) for text in re.findall(r"-?\d*\.?\d+", rest)]).reshape(-1, 2)
    start = np.array([float(text) for text in first.split()])
    assert np.concatenate([start[None], start + steps.cumsum(0)]) == pytest.approx(points, abs=1e-6)


def test_long_titles_are_broken_before_the_edge():
    smiles = "C[C@H]1[C@@](O[C@@H]2)" * 9
    lines = _wrapped(f"{smiles}: active 0.5", 300)
    assert "".join(lines).replace(" ", "") == f"{smiles}:active0.5"
    assert max(map(_width, lines)) <= 300
    assert _wrapped("sum -0.5 = atoms -0.5, bonds 0", 150) == ["sum -0.5 = atoms -0.5,", "bonds 0"]


def test_numbers_that_are_none():
    with pytest.raises(OptionError, match="expected True, False or 'atoms'"):
        Look(numbers="values")
