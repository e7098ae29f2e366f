"""What is on the pictures: maps, bars, numbers and words, none over another."""

import itertools
import sys

import numpy as np
import pytest
import torch

from integrand import Attribution
from integrand.comparison import Comparison, compare
from integrand.errors import InputError, OptionError
from integrand.methods import Gradient, GradientTimesInput, IntegratedGradients

from .conftest import WEIGHTS, Constant, Refuses

pytest.importorskip("matplotlib")

METHODS = [IntegratedGradients(), GradientTimesInput(), Gradient()]


def texts(picture):
    found = [text.get_text() for text in picture.texts]
    for axes in picture.axes:
        found += [text.get_text() for text in axes.texts] + [label.get_text() for label in axes.get_yticklabels()]
    return found


def boxes(picture):
    """Where every text is on the canvas, in pixels."""
    picture.canvas.draw()
    found = list(picture.texts)
    for axes in picture.axes:
        for part in (axes, *axes.child_axes):
            found += [*part.texts, part.title, part._left_title]
            for axis in (part.xaxis, part.yaxis):  # ticks beyond the ends have labels too, but they are not drawn
                low, high = sorted(axis.get_view_interval())
                found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
                found += [tick.label2 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [part.xaxis.label, part.yaxis.label]
    return {text: text.get_window_extent() for text in found if text.get_text().strip() and text.get_visible()}


def overlapping(picture):
    found = boxes(picture).items()
    return [(a.get_text(), b.get_text()) for (a, p), (b, q) in itertools.combinations(found, 2) if p.overlaps(q)]


def beyond(picture):
    width, height = picture.canvas.get_width_height()
    return [
        text.get_text()
        for text, box in boxes(picture).items()
        if box.x0 < -2 or box.y0 < -2 or box.x1 > width + 2 or box.y1 > height + 2
    ]


def maps(picture):
    """The pixels of each map, without the matrices."""
    return [np.asarray(axes.images[0].get_array()) for axes in picture.axes if axes.images and not axes.axison]


def scored(x):
    return torch.tanh(x).sum((1, 2, 3)) + (x**2).sum((1, 2, 3)) / 9


@pytest.fixture(scope="module")
def photo():
    return torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def images(photo):
    return compare(scored, photo, methods=[*METHODS, Refuses()])


@pytest.fixture
def table(linear):
    x = torch.tensor([[1.0, 1.0, -1.0, 2.0], [2.0, -3.0, 1.0, 1.0]], dtype=torch.float64)
    return compare(linear, x, methods=METHODS)


def test_photo_then_a_map_for_each_method(images, photo):
    picture = images.figure(image=photo, labels="cat", title="Cats")
    found = maps(picture)
    assert len(found) == 4
    assert np.array_equal(found[0], np.rint(photo[0].numpy().transpose(1, 2, 0).astype(float) * 255).astype(np.uint8))
    for name, pixels in zip(images.names, found[1:], strict=True):
        strength = images.attributions[name].values[0].abs().sum(0)
        place = np.unravel_index(int(strength.argmax()), strength.shape)
        assert np.array_equal(pixels[place], found[0][place])  # the strongest pixel is as bright as in the photo
    said = texts(picture)
    assert {"Cats", "cat", "1  integrated gradients", "2  gradient x input", "3  gradient"} <= set(said)
    assert any("every map is on a scale of its own" in text for text in said)
    assert any("refuses gave nothing: ModelError: no rule" in text for text in said)
    assert any("agree can be wrong together" in text for text in said)


def test_gap_and_cost_are_under_each_map(images, photo):
    said = texts(images.figure(image=photo))
    change = images.changes["gradient"][0]
    total = float(images.attributions["gradient"].values.double().sum())
    share = abs(total - change) / abs(change)
    assert f"adds up to {total:.3g} of {change:.3g} (misses {100 * share:.0f}%)" in said
    seconds = images.costs["gradient"].seconds
    assert f"1 gradient · {seconds:.2g} s · exact" in said
    assert said.count("no promise of completeness, sensitivity-a") == 2


def test_correlations_are_written_into_their_cells(images, photo):
    picture = images.figure(image=photo)
    first, second = (axes for axes in picture.axes if axes.images and axes.axison)
    for axes, found in ((first, images.correlations[0]), (second, images.magnitude_correlations[0])):
        assert np.array_equal(np.asarray(axes.images[0].get_array()), found)
        assert axes.images[0].get_clim() == (-1, 1)
        cells = {text.get_position(): float(text.get_text()) for text in axes.texts}
        assert len(cells) == 9
        assert all(cells[j, i] == pytest.approx(found[i, j], abs=0.0051) for i in range(3) for j in range(3))
    assert [label.get_text() for label in first.get_yticklabels()] == [
        "1  integrated gradients",
        "2  gradient x input",
        "3  gradient",
    ]
    assert {"of values", "of magnitudes"} == {axes.get_title(loc="left") for axes in (first, second)}


def test_a_common_scale_shows_which_map_is_larger(photo):
    small = compare(lambda x: x.sum((1, 2, 3)), photo, methods={"one": Constant(1.0), "ten": Constant(10.0)})
    each = maps(small.figure(image=photo))
    common = maps(small.figure(image=photo, scale="common"))
    assert np.array_equal(each[1], each[2])
    assert common[2].mean() == pytest.approx(10 * common[1].mean(), rel=0.1)
    assert any("on one common scale" in text for text in texts(small.figure(image=photo, scale="common")))


def test_signed_maps_have_colour_bars_in_units_of_the_score(images, photo):
    for picture in (images.figure(), images.figure(image=photo, signed=True)):
        bars = [child for axes in picture.axes for child in axes.child_axes]
        assert len(bars) == 3
        assert "red raises, blue lowers" in " ".join(texts(picture)) or "none negative" in " ".join(texts(picture))


@pytest.mark.parametrize("count", [1, 2, 4, 9])
@pytest.mark.parametrize("options", [{}, {"signed": True, "scale": "common"}])
def test_no_text_is_over_another(images, photo, count, options):
    names = itertools.cycle(images.attributions.values())
    many = {f"method {'with a very long name ' * (k % 3)}{k}": next(names) for k in range(count)}
    found = Comparison(many, {"broken": "ModelError: " + "too long a story " * 40}, dict.fromkeys(many, 123.456))
    picture = found.figure(image=photo, title="A title", labels="something with a rather long name", **options)
    assert overlapping(picture) == []
    assert beyond(picture) == []


@pytest.mark.parametrize("scale", ["each", "common"])
def test_no_text_is_over_another_beside_bars(table, scale):
    picture = table.figure(scale=scale, title="Numbers", features=[f"a feature with a long name {i}" for i in range(4)])
    assert overlapping(picture) == []
    assert beyond(picture) == []


def test_bars_of_the_same_features_side_by_side(table):
    picture = table.figure(features=["a", "b", "c", "d"], top=3)
    charts = [axes for axes in picture.axes if axes.patches]
    assert len(charts) == 6  # three methods, two examples
    # The first example: contributions 3, -2, -1, 1/2; slopes 3, -2, 1, 1/4.
    assert [label.get_text() for label in charts[0].get_yticklabels()] == ["a", "b", "c"]
    for chart, values in zip(charts[:3], ([3, -2, -1], [3, -2, -1], [3, -2, 1]), strict=True):
        assert [bar.get_width() for bar in chart.patches] == pytest.approx(values)
    assert charts[0].get_xlabel() == "and 1 more, adding up to +0.5"
    assert "mean of 2 examples" in texts(picture)


def test_a_feature_that_only_one_method_sees_gets_its_bar(linear):
    x = torch.tensor([[100.0, 0, 0, 0]], dtype=torch.float64)  # only the gradient sees the others
    picture = compare(linear, x, methods=[GradientTimesInput(), Gradient()]).figure(features=list("abcd"), top=2)
    charts = [axes for axes in picture.axes if axes.patches]
    assert [label.get_text() for label in charts[0].get_yticklabels()] == ["a", "b"]
    assert [bar.get_width() for bar in charts[1].patches] == pytest.approx(WEIGHTS[:2])


def test_common_bars_share_their_ends(linear):
    x = torch.tensor([[10.0, 10.0, -10.0, 20.0]], dtype=torch.float64)
    found = compare(linear, x, methods=METHODS)
    shared = {axes.get_xlim() for axes in found.figure(scale="common").axes if axes.patches}
    own = {axes.get_xlim() for axes in found.figure().axes if axes.patches}
    assert len(shared) == 1
    assert len(own) == 2


def test_examples_that_are_left_out_are_counted(table):
    assert "Numbers - first 1 of 2 examples" in texts(table.figure(title="Numbers", most=1))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"scale": "log"}, OptionError, "got scale='log'"),
        ({"share": 0.0}, OptionError, "share"),
        ({"top": 0}, OptionError, "top=0"),
        ({"image": torch.ones(3, 4, 4)}, InputError, "got image= for values of shape"),
        ({"labels": ["one", "two", "three"]}, OptionError, "3 labels for 2 examples"),
    ],
)
def test_options_that_make_no_sense(table, options, error, words):
    with pytest.raises(error, match=words):
        table.figure(**options)


def test_dollars_are_not_mathematics(images, photo):
    renamed = Comparison({"$x^ _1$": images.attributions["gradient"]}, {"$": "$\\frac$"})
    picture = renamed.figure(image=photo, labels="$5", title="$y")
    picture.canvas.draw()  # parsed as mathematics, this would raise
    assert any("$" in text.get_text().replace(r"\$", "$") for text in picture.findobj(lambda part: hasattr(part, "get_text")))


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_pictures_are_written(images, photo, tmp_path, ending):
    path = images.save(tmp_path / f"found.{ending}", image=photo)
    assert path.read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")


def test_pyplot_is_not_asked_for(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # to import it would raise
    picture = table.figure()
    picture.canvas.draw()
    assert picture.axes


def test_matplotlib_is_asked_for_by_name(images, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("integrand.analysis.comparison_figure")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"drawing a comparison needs the package 'matplotlib'"):
        images.figure()


def test_maps_that_are_all_zero_say_so(images, photo):
    one = images.attributions["gradient"]
    zero = Attribution(torch.zeros_like(one.values), one.certificate, one.batched, one.meta)
    assert "all zero" in texts(Comparison({"zero": zero}).figure(image=photo))
