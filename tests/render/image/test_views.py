"""The views of images: closed forms on small arrays, what is said of odd values, and that everything fits on the figure."""

import itertools
import math
import sys
import warnings

import numpy as np
import pytest
import torch

from integrand import Attribution, Certificate
from integrand.comparison import Comparison
from integrand.errors import InputError, MissingExtraError, OptionError
from integrand.render import figure as any_figure
from integrand.render import image, report
from integrand.render.image.gallery import card
from integrand.render.image.photo_page import ImagePage, image_page
from integrand.render.image.pixels import CANVAS, COLOURS, colour_table, enlarged, grey, grown, laid, onto, rgb, smoothed
from integrand.render.image.viewer import viewer
from integrand.render.image.views import PAPER, SAFE
from integrand.render.image.whereabouts import enclosing

PHOTO = np.full((2, 2, 3), 0.5)
VALUES = torch.tensor([[[[4.0, -4.0], [2.0, 0.0]]]])


def drawn(view, attribution, values=VALUES, photo=PHOTO, **options):
    (panel,) = image.panels(attribution(values), photo, views=view, share=1.0, **options)
    return panel


def test_scaled_multiplies_the_photo_by_the_strength(attribution):
    panel = drawn("scaled", attribution)
    assert panel.pixels[..., 0].tolist() == [[128, 128], [64, 0]]
    assert (panel.title, panel.note, panel.limit) == ("integrated gradients", "brighter = stronger", None)


def test_strength_adds_magnitudes_over_colours_and_the_sum_keeps_signs(attribution):
    values = torch.tensor([1.0, -1.0, 0.0]).reshape(1, 3, 1, 1)
    assert drawn("scaled", attribution, values, np.ones((1, 1, 3))).pixels.tolist() == [[[255] * 3]]
    assert drawn("heatmap", attribution, values, np.ones((1, 1, 3))).note == "all zero"


def test_heatmap_has_the_ends_of_the_colours_at_its_limit(attribution):
    panel = drawn("heatmap", attribution)
    table = colour_table()
    assert panel.limit == 4.0
    assert panel.pixels[0, 0].tolist() == table[-1].tolist()
    assert panel.pixels[0, 1].tolist() == table[0].tolist()
    assert panel.pixels[1, 0].tolist() == np.rint((table[4] + table[5]) / 2).tolist()  # half way up is between two colours
    assert panel.pixels[1, 1].tolist() == table[3].tolist()


@pytest.mark.parametrize(
    ("view", "colours", "words"),
    [("signed", SAFE, "red raises"), ("green-red", PAPER, "the paper's colours: green raises, red lowers")],
)
def test_figure_3_mixes_colour_into_the_grey_photo(attribution, view, colours, words):
    photo = np.zeros((2, 2, 3))
    photo[..., 1] = 1.0  # green is as bright as 0.7152 of white
    panel = drawn(view, attribution, photo=photo)
    under, negative, positive = 0.7 * 0.7152 * 255, *(255 * rgb(colour) for colour in colours)
    assert panel.pixels[0, 0].tolist() == np.rint(positive).tolist()
    assert panel.pixels[0, 1].tolist() == np.rint(negative).tolist()
    assert panel.pixels[1, 0].tolist() == np.rint((under + positive) / 2).tolist()
    assert panel.pixels[1, 1].tolist() == [round(under)] * 3
    assert words in panel.note
    assert (panel.colours[0], panel.colours[-1]) == colours


def test_overlay_is_the_photo_where_nothing_is(attribution):
    panel = drawn(image.Overlay(opacity=0.5, smooth=0), attribution)
    table = colour_table()
    assert panel.pixels[1, 1].tolist() == [128] * 3
    assert panel.pixels[0, 0].tolist() == np.rint((127.5 + table[-1]) / 2).tolist()


def test_averaging_of_the_overlay_cancels_what_alternates(attribution):
    values = torch.ones(1, 1, 40, 40)
    values[..., ::2] = -1.0
    values[0, 0, :20] = 1.0
    panel = drawn(image.Overlay(smooth=0.05), attribution, values, np.full((40, 40, 3), 0.5))
    assert np.abs(panel.pixels[35, 8:-8].astype(int) - 128).max() <= 1  # the edges have nothing to cancel with
    assert panel.limit == pytest.approx(1.0, abs=0.01)
    assert "averaged over 2.8 px" in panel.note


def test_clipping_is_by_mass(attribution):
    values = torch.ones(1, 1, 32, 32)
    values[0, 0, 0, 0] = 200.0
    for view in ("signed", "heatmap"):
        (panel,) = image.panels(attribution(values), np.ones((32, 32, 3)), views=view, share=0.7)
        assert panel.limit == 1.0  # 1024 - 1 pixels of 1 hold more than 70% of 1223


@pytest.mark.parametrize("width", [0.0, 1.5])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_outlines_enclose_the_stated_share_and_no_pixel_more(share, width):
    values = np.random.default_rng(0).gamma(0.5, size=(20, 30))
    inside = enclosing(values, share, width)
    assert values[inside].sum() >= share * values.sum()
    order = np.argsort(-smoothed(values, width), axis=None)
    last = order[inside.sum() - 1]
    assert inside.ravel()[order[: inside.sum()]].all()
    assert values[inside].sum() - values.ravel()[last] < share * values.sum()


def test_outlines_of_a_square(attribution):
    values = torch.zeros(1, 1, 28, 28)
    values[0, 0, 10:18, 10:18] = 1.0
    panel = drawn(image.Outlines(share=0.999, smooth=0), attribution, values, np.ones((28, 28, 3)))
    assert panel.note == "none negative; 99.9% of what raises the score lies in 8.2% of the area"
    factor = CANVAS // 28
    assert panel.pixels.shape == (CANVAS, CANVAS, 3)
    assert (panel.pixels[factor * 14, factor * 14] == 255).all()  # the photo inside
    assert panel.pixels[5, 5].tolist() == [115] * 3  # dimmed outside
    across = panel.pixels[factor * 14, :, 0]
    assert (across == 16).any()  # the dark edge of the line


def test_smoothing_keeps_constants_and_spreads_a_point_evenly():
    assert smoothed(np.full((7, 9), 3.0), 2.0) == pytest.approx(3.0)
    point = np.zeros((21, 21))
    point[10, 10] = 1.0
    out = smoothed(point, 1.5)
    assert out == pytest.approx(out.T)
    assert out[10, 12] / out[10, 10] == pytest.approx(math.exp(-(2**2) / (2 * 1.5**2)))
    assert np.array_equal(smoothed(point, 0.0), point)


def test_growing_and_enlarging():
    point = np.zeros((5, 5), bool)
    point[2, 2] = True
    assert grown(point, 1).sum() == 5
    assert grown(point, 2).sum() == 13
    small, large = enlarged(np.ones((28, 20, 3))), enlarged(np.full((224, 100, 3), 0.25))
    assert small.shape == (448, 320, 3)
    assert large.shape == (448, 200, 3)
    assert large == pytest.approx(0.25)
    assert enlarged(np.ones((600, 500, 3))).shape == (600, 500, 3)


def test_grey_is_as_bright_and_maps_cover_blocks():
    assert grey(np.ones((1, 1, 3))).tolist() == [[[pytest.approx(1.0)] * 3]]
    assert onto(np.array([[1], [2]]), (4, 1)).tolist() == [[1], [1], [2], [2]]


@pytest.mark.parametrize("name", image.VIEWS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (torch.zeros_like, "all zero"),
        (torch.abs, "none negative"),
        (lambda v: -v.abs(), "none positive"),
        (lambda v: torch.full_like(v, torch.nan), "256 of 256 not finite"),
        (lambda v: torch.where(v == v.max(), torch.inf, v), "1 of 256 not finite"),
    ],
)
def test_odd_values_are_drawn_and_said(attribution, name, change, words):
    values = torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    photo = np.random.default_rng(0).random((16, 16, 3))
    panel = drawn(name, attribution, change(values), photo)
    assert words in panel.note
    assert panel.pixels.dtype == np.uint8
    if "256 of 256" in words and name in {"scaled", "signed", "green-red", "heatmap", "overlay"}:
        assert (panel.pixels == 0x80).all()


@pytest.mark.parametrize("name", image.VIEWS)
@pytest.mark.parametrize(
    ("shape", "grid"), [((224, 224), (7, 7)), ((60, 30), (8, 4)), ((30, 60), (4, 8)), ((8, 8), (7, 7)), ((8, 8), (16, 16))]
)
def test_map_on_another_grid_than_the_photo(attribution, name, shape, grid):
    panel = drawn(name, attribution, torch.randn(1, 16, *grid), np.full((*shape, 3), 0.5))
    height, width = panel.pixels.shape[:2]
    assert name == "heatmap" or height / width == shape[0] / shape[1]
    assert panel.note.endswith(f"photo {shape[1]} × {shape[0]}, attributions {grid[1]} × {grid[0]}")


@pytest.mark.parametrize(
    "call",
    [
        lambda r, p: image.panels(r, p),
        lambda r, p: image.figure2(r, p),
        lambda r, p: image.figure3(r, p),
        lambda r, p: image.regions(r, p),
        lambda r, p: any_figure(r, image=p),
        lambda r, p: report(r, image=p),
        lambda r, p: report(r, image=np.moveaxis(p, -1, 1)),
        lambda r, p: Comparison({"a": r, "b": r}).report(image=p),
        lambda r, p: viewer(p[0], {"a": r.values[0].numpy()}),
        lambda r, p: viewer(np.ones((40, 61, 3)), {"a": r.values[0].numpy(), "b": np.ones((3, 30, 61))}),
        lambda r, p: report(r, image=np.ones((2, 40, 61, 3)), others={"b": torch.ones(2, 3, 30, 61)}),
        lambda r, p: image.regions(r, segments=np.zeros((30, 61), int)),
        lambda r, p: card(attributed(r), p[0], name="a", label="b"),
        lambda r, p: image_page(ImagePage("cat", p[0], attributed(r))),
    ],
)
def test_a_photo_of_other_proportions_is_refused(attribution, call):
    """Every pixel would be out of place."""
    pytest.importorskip("matplotlib")
    result, photo = attribution(torch.ones(2, 3, 40, 61)), np.ones((2, 30, 61, 3))
    sizes = r"is 61 × 30 pixels and the attributions are 61 × 40|is 61 × 40 pixels and the attributions are 61 × 30"
    with pytest.raises(InputError, match=f"({sizes}); expected the same size.*pass what the network saw"):
        call(result, photo)


def attributed(result):
    """The first example alone."""
    return Attribution(result.values[:1], Certificate(result.certificate.examples[:1]), True, result.meta)


def test_proportions_may_differ_by_a_pixel_of_rounding():
    for size in itertools.product(range(1, 13), repeat=2):
        for stride in (2.0, 3.0, 7.5):
            fine = tuple(math.ceil(stride * side) for side in size)
            for coarse in itertools.product(*({max(1, math.floor(n / stride)), math.ceil(n / stride)} for n in fine)):
                assert laid(coarse, fine)
                assert laid(fine, coarse)
    for one, other in (((224, 224), (224, 220)), ((7, 7), (60, 30)), ((10, 20), (20, 10)), ((224, 224), (300, 451))):
        for values, photo in ((one, other), (other, one)):
            with pytest.raises(InputError, match="the same proportions"):
                laid(values, photo)


def test_views_of_every_attribution_in_turn(attribution):
    found = image.panels(attribution(VALUES), PHOTO, views=("scaled", "heatmap"), others={"g": VALUES})
    assert [panel.title for panel in found] == [
        "integrated gradients",
        "g",
        "integrated gradients, signed",
        "g, signed",
    ]


def test_a_view_of_ones_own(attribution):
    def largest(subject):
        return image.Panel(
            f"{subject.values.max():g} of {subject.name}", f"{subject.change:.2f}", np.zeros((4, 4, 3), np.uint8)
        )

    (panel,) = image.panels(attribution(VALUES), views=largest)
    assert (panel.title, panel.note) == ("4 of integrated gradients", "0.93")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: image.panels(r, PHOTO, views="heat"), OptionError, "got 'heat' in views=; expected one or more of 'scaled'"),
        (lambda r: image.panels(r, PHOTO, views=()), OptionError, "got no views"),
        (lambda r: image.panels(r, views="scaled"), OptionError, "the view 'scaled' draws on the photo; give image="),
        (lambda r: image.panels(r, PHOTO, example=1), OptionError, "got example=1; expected 0 to 0"),
        (lambda r: image.panels(r, PHOTO, share=0), OptionError, "got share=0"),
        (lambda r: any_figure(r, views="heat"), OptionError, "got 'heat'"),
        (lambda r: image.Outlines(share=1.0), OptionError, "between 0 and 1"),
        (lambda r: image.Overlay(opacity=2), OptionError, "got Overlay"),
        (lambda r: image.Superpixels(top=0), OptionError, "at least 1"),
    ],
)
def test_messages(attribution, call, error, message):
    with pytest.raises(error, match=message):
        call(attribution(VALUES))


def test_views_for_what_is_no_image(attribution):
    result = attribution(torch.ones(1, 4))
    with pytest.raises(InputError, match=r"got views= for values of shape \(1, 4\)"):
        report(result, views="heatmap")
    with pytest.raises(InputError, match=r"got values of shape \(1, 4\)"):
        image.regions(result)


def _seen(colour, matrix):
    """A colour as seen with a kind of colour blindness, in CIE Lab."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ (matrix @ linear).clip(
        0, 1
    )
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089]).clip(6 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# Machado, Oliveira, Fernandes 2009, severity 1.
BLIND = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("pair", [(COLOURS[0], COLOURS[-1]), SAFE, (COLOURS[1], COLOURS[-2])])
def test_signs_are_told_apart_by_hue_with_every_kind_of_colour_blindness(kind, pair):
    """By hue, since brightness is what tells strong from weak."""
    low, high = (_seen(rgb(colour), np.array(BLIND[kind])) for colour in pair)
    assert math.dist(low[1:], high[1:]) > 40


def hue(colour):
    """In CIE Lab, in degrees."""
    _, a, b = _seen(rgb(colour), np.eye(3))
    return math.degrees(math.atan2(b, a))


def test_signs_have_one_hue_in_every_view(attribution):
    """Whatever is drawn by default; the paper's own colours are there on request, and say so."""
    photo = np.random.default_rng(0).random((64, 64, 3))
    values = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    for name in image.VIEWS:
        panel = drawn(name, attribution, values, photo)
        if panel.limit is not None and name != "green-red":
            assert hue(panel.colours[0]) == pytest.approx(hue(COLOURS[0]), abs=15), name
            assert hue(panel.colours[-1]) == pytest.approx(hue(COLOURS[-1]), abs=15), name
        assert "red lowers" not in panel.note or "the paper's colours" in panel.note


def test_the_papers_green_and_red_are_not():
    low, high = (_seen(rgb(colour), np.array(BLIND["deuteranopia"])) for colour in PAPER)
    assert math.dist(low[1:], high[1:]) < 40


def boxes(picture):
    """Every text of a figure that is drawn, with its box in pixels."""
    renderer = picture.canvas.get_renderer()
    texts = list(picture.texts)
    for axes in picture.axes:
        for part in [axes, *axes.child_axes]:
            texts += [*part.texts, *(part.get_yticklabels() if part.axison and part is not axes else [])]
    return {text: text.get_window_extent(renderer) for text in texts if text.get_text()}


@pytest.mark.parametrize("shape", [(28, 28), (224, 224), (96, 160), (160, 96), (40, 400)])
@pytest.mark.parametrize("sources", [1, 2])
def test_texts_do_not_touch_each_other(attribution, shape, sources):
    pytest.importorskip("matplotlib")
    values = torch.randn(1, 3, *shape, generator=torch.Generator().manual_seed(0)) / math.prod(shape) ** 0.5
    photo = np.random.default_rng(0).random((*shape, 3))
    others = {"gradient × image": values.abs()} if sources > 1 else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        label = "a label of so many words that it does not fit over a photo"
        picture = image.figure(attribution(values), photo, views=tuple(image.VIEWS), others=others, labels=label)
        picture.draw_without_rendering()
    found = list(boxes(picture).items())
    for i, (one, box) in enumerate(found):
        assert box.x0 >= -2
        assert box.x1 <= picture.bbox.x1 + 2, one.get_text()
        for other, second in found[i + 1 :]:
            apart = box.x1 <= second.x0 + 1 or second.x1 <= box.x0 + 1 or box.y1 <= second.y0 + 2 or second.y1 <= box.y0 + 2
            assert apart, (one.get_text(), other.get_text())


def test_many_panels_wrap_into_rows_of_four(attribution):
    pytest.importorskip("matplotlib")
    for count, rows in ((3, 1), (4, 2), (7, 2), (8, 3)):
        picture = image.figure(attribution(VALUES), PHOTO, views=["heatmap"] * count)
        tops = {round(axes.get_position().y1, 3) for axes in picture.axes}
        assert (len(picture.axes), len(tops)) == (count + 1, rows)


def test_the_papers_figures(attribution):
    pytest.importorskip("matplotlib")
    result = attribution(VALUES)
    second = image.figure2(result, PHOTO, others={"gradient × image": VALUES}, labels="cat")
    third = image.figure3(result, PHOTO)
    pixels = [[np.asarray(axes.images[0].get_array()) for axes in picture.axes] for picture in (second, third)]
    assert len(pixels[0]) == 3
    assert np.array_equal(pixels[0][1], pixels[0][2])
    assert pixels[1][1][0, 0].tolist() == [0, 255, 0]
    assert pixels[1][1][0, 1].tolist() == [255, 0, 0]
    assert np.asarray(image.figure3(result, PHOTO, safe=True).axes[1].images[0].get_array())[0, 0].tolist() == [255, 79, 63]


def test_stated_share_is_under_the_picture(attribution):
    pytest.importorskip("matplotlib")
    for share, words in ((0.6, "60% of the attribution mass"), (1.0, "full at the strongest pixel")):
        assert words in image.figure(attribution(VALUES), PHOTO, share=share).texts[-1].get_text()


def test_views_reach_files(attribution, tmp_path):
    pytest.importorskip("matplotlib")
    result = attribution(VALUES)
    assert result.save(tmp_path / "a.png", image=PHOTO, views=("outlines", "overlay")).read_bytes().startswith(b"\x89PNG")
    assert "integrated gradients, outlined" in result.save(tmp_path / "a.html", image=PHOTO, views="outlines").read_text(
        "utf-8"
    )


def test_panels_need_no_optional_package(attribution, monkeypatch):
    for package in ("matplotlib", "matplotlib.figure", "PIL", "skimage", "skimage.segmentation", "scipy"):
        monkeypatch.setitem(sys.modules, package, None)
    for module in [name for name in sys.modules if name.startswith("integrand.render.") and "figure" in name]:
        monkeypatch.delitem(sys.modules, module)
    result = attribution(torch.randn(1, 3, 16, 16))
    assert len(image.panels(result, np.ones((16, 16, 3)), views=tuple(image.VIEWS))) == len(image.VIEWS)
    for call in (image.figure, image.figure2):
        with pytest.raises(MissingExtraError, match=r"integrand\[pictures\]"):
            call(result, np.ones((16, 16, 3)))
