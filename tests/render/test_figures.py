import dataclasses
import io
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from integrand import Attribution, Certificate, Status
from integrand.errors import InputError, MissingExtraError, OptionError
from integrand.files import made_here
from integrand.render import figure

pytest.importorskip("matplotlib")


def drawn(picture):
    """The pixels of the whole figure, (H, W, 3)."""
    picture.canvas.draw()
    return np.asarray(picture.canvas.buffer_rgba())[..., :3]


def panels(picture):
    """The pixels of each image panel."""
    return [np.asarray(axes.images[0].get_array()) for axes in picture.axes if axes.images]


def texts(picture):
    found = [text.get_text() for text in picture.texts]
    for axes in picture.axes:
        found += [text.get_text() for text in axes.texts] + [text.get_text() for text in axes.get_yticklabels()]
    return found


@pytest.fixture
def values():
    return torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_photo_then_lit_photo_then_heat(attribution, values):
    photo = torch.full((3, 8, 8), 0.5)
    picture = figure(attribution(values), image=photo, labels="cat", others={"gradient": values * 2})
    original, lit, other, heat = panels(picture)
    assert (original == 128).all()
    assert lit.max() == 128
    assert 0 < lit.mean() < 128
    assert np.array_equal(lit, other)  # each is scaled by its own mass, so a factor does not show
    strongest = values.abs().sum(1)[0].argmax()
    assert lit.reshape(-1, 3)[strongest].tolist() == [128] * 3
    # Red where the sum over the colours is positive, blue where it is negative.
    red_over_blue = heat[..., 0].astype(int) - heat[..., 2]
    total = values.sum(1)[0].numpy()
    assert (np.sign(red_over_blue[np.abs(total) > 0.5]) == np.sign(total[np.abs(total) > 0.5])).all()
    assert {"cat", "score 0.94", "integrated gradients", "gradient", "integrated gradients, signed"} <= set(texts(picture))


def test_colours_reach_the_canvas(attribution):
    values = torch.zeros(1, 1, 2, 2)
    values[0, 0, 0, 0], values[0, 0, 1, 1] = 1.0, -1.0
    pixels = drawn(figure(attribution(values))).reshape(-1, 3)
    for colour in ([0xB2, 0x18, 0x2B], [0x21, 0x66, 0xAC], [0xF7, 0xF7, 0xF7]):
        assert (pixels == colour).all(1).sum() > 1000


def test_brightness_is_clipped_by_mass_not_by_the_largest_pixel(attribution):
    values = torch.ones(1, 1, 32, 32)
    values[0, 0, 0, 0] = 200.0
    photo = torch.ones(1, 32, 32)
    by_mass = panels(figure(attribution(values), image=photo))[1]
    by_largest = panels(figure(attribution(values), image=photo, share=1.0))[1]
    assert by_mass.min() == 255
    assert by_largest.max() == 255
    assert np.median(by_largest) == 1


def test_colour_bar_is_in_units_of_the_score(attribution):
    values = torch.full((1, 1, 4, 4), 0.25)
    labels = [
        text.get_text()
        for axes in figure(attribution(values)).axes
        for child in axes.child_axes
        for text in child.get_yticklabels()
    ]
    assert labels == ["≤ −0.25", "0", "≥ 0.25"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (torch.zeros_like, "all zero"),
        (torch.abs, "none negative"),
        (lambda v: -v.abs(), "none positive"),
        (lambda v: torch.full_like(v, torch.nan), "64 of 64 not finite"),
        (lambda v: torch.where(v > 2, torch.inf, v), "not finite"),
    ],
)
@pytest.mark.parametrize("with_photo", [True, False])
def test_odd_values_are_drawn_and_said(attribution, values, change, words, with_photo):
    picture = figure(attribution(change(values)), image=torch.rand(3, 8, 8) if with_photo else None)
    assert any(words in text for text in texts(picture))
    assert np.ptp(drawn(picture)) > 0


def test_without_a_batch_dimension(attribution, values):
    one = figure(attribution(values[0], batched=False), image=torch.ones(3, 8, 8))
    row = figure(attribution(values), image=torch.ones(1, 3, 8, 8))
    assert np.array_equal(drawn(one), drawn(row))


def test_one_row_per_example_and_the_title_says_how_many_there_were(attribution):
    values = torch.randn(5, 1, 4, 4)
    picture = figure(attribution(values), most=2, title="Digits")
    assert len(panels(picture)) == 2
    assert "Digits - first 2 of 5 examples" in texts(picture)


def test_what_did_not_converge_is_said_under_the_picture(certificate, values):
    bad = Certificate((certificate(status=Status.BUDGET, error=0.2),))
    caption = " ".join(text.get_text() for text in figure(Attribution(values, bad)).texts)
    assert "estimated error 20% (asked for 1%)" in caption
    assert "budget spent" in caption


def test_strongest_features_first(attribution):
    values = torch.tensor([[0.1, -3.0, 2.0, float("nan"), 0.0]])
    picture = figure(attribution(values), features=["a", "b", "c", "d", "e"], top=3)
    (axes,) = picture.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "c", "a"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([-3.0, 2.0, 0.1])
    assert axes.get_xlabel() == "and 2 more, adding up to +nan"
    assert "score 0.94; 1 of 5 not finite; integrated gradients" in texts(picture)


def test_names_of_tokens_sum_over_the_rest(attribution):
    values = torch.tensor([[[1.0, 2.0], [-5.0, 1.0]]])
    (axes,) = figure(attribution(values), features=["good", "bad"]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bad", "good"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([-4.0, 3.0])


def test_names_made_from_places(attribution):
    values = {"age": torch.tensor([[3.0]]), "blood": torch.tensor([[[1.0, 2.0]]])}
    (axes,) = figure(attribution(values)).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["age", "blood [0, 1]", "blood [0, 0]"]


@pytest.mark.parametrize("words", ["$\\frac{1$", r"\$5 or $x_{$", "$$", "a\x1b[2J\x00b", "caf\udce9"])
def test_texts_from_outside_are_drawn_as_they_are(attribution, words):
    """Notes, targets and names of a result file: neither mathematics nor what no font can show."""
    result = attribution({words: torch.ones(1, 1), "b": torch.ones(1, 1)}, note=words, target=words)
    result = Attribution(result.values, result.certificate, True, {"method": words})
    picture = figure(result, title=words)
    assert drawn(picture).size
    spelt = words.replace("\x1b", r"\x1b").replace("\x00", r"\x00").replace("\udce9", r"\xe9").replace("$", r"\$")
    assert sum(spelt in text for text in texts(picture)) >= 4  # title, heading, bar, caption


def test_dollars_are_not_mathematics(attribution, values):
    assert drawn(figure(attribution(values), labels="$5 or $x^ per_unit$", title="$\\frac$")).size


def test_a_long_label_stays_in_its_panel(attribution, values):
    picture = figure(attribution(values), image=torch.ones(3, 8, 8), labels="x" * 500)
    assert max(map(len, texts(picture))) < 150


def test_photo_of_another_size_than_the_map(attribution):
    layer = torch.randn(1, 16, 7, 10)  # a stride of 4, rounded
    picture = figure(attribution(layer), image=np.zeros((28, 42, 3), np.uint8))
    assert panels(picture)[1].shape == (28, 42, 3)
    assert any("photo 42 × 28, attributions 10 × 7" in text for text in texts(picture))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"image": torch.ones(2, 3, 8, 8)}, InputError, "image holds 2 photos for 1 examples"),
        ({"others": {"g": torch.ones(2, 3, 8, 8)}}, InputError, r"others\['g'\] has shape \(2, 3, 8, 8\); expected as many"),
        ({"labels": ["a", "b"]}, OptionError, "got 2 labels for 1 examples"),
        ({"features": ["a", "b"]}, OptionError, "got 2 names in features=; expected 192, one per feature, or 3"),
        ({"share": 0}, OptionError, "got share=0"),
        ({"most": 0}, OptionError, "got most=0"),
    ],
)
def test_messages(attribution, values, options, error, message):
    with pytest.raises(error, match=message):
        figure(attribution(values), **options)


def test_image_for_what_is_none(attribution):
    with pytest.raises(InputError, match=r"got image= for values of shape \(1, 4\)"):
        figure(attribution(torch.ones(1, 4)), image=torch.ones(3, 8, 8))


def test_other_features_than_the_result(attribution):
    with pytest.raises(InputError, match=r"others has .* features; expected"):
        figure(attribution(torch.ones(1, 4)), others={"g": torch.ones(1, 5)})


def test_notebooks_get_a_png(attribution, values):
    image = pytest.importorskip("PIL.Image")
    with image.open(io.BytesIO(figure(attribution(values))._repr_png_())) as read:
        assert read.format == "PNG"
        assert min(read.size) > 300


def test_pyplot_is_left_alone():
    code = (
        "import sys, torch, integrand as ig; "
        "from integrand.render import figure; figure(ig.integrated_gradients(lambda x: x.sum(1), torch.ones(1, 2))); "
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_matplotlib_names_the_extra(attribution, values, monkeypatch):
    monkeypatch.delitem(sys.modules, "integrand.render.figures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'integrand\[pictures\]'"):
        figure(attribution(values))


def script(code, folder, **environment):
    """What a script prints that shows a result."""
    made = "import torch, integrand as ig; result = ig.integrated_gradients(lambda x: x.sum(1), torch.ones(1, 2)); "
    options = {"check": True, "cwd": folder, "env": os.environ | environment, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, "-c", made + code], **options).stdout.splitlines()


def test_a_script_without_a_display_saves_and_says_where(tmp_path):
    (tmp_path / "integrand-attribution-2.png").write_bytes(b"of somebody else")
    said = script("drawn = result.show(); assert drawn.texts; result.show()", tmp_path, MPLBACKEND="agg")
    assert said == ["saved integrand-attribution.png", "saved integrand-attribution-3.png"]
    assert (tmp_path / "integrand-attribution.png").read_bytes().startswith(b"\x89PNG")
    assert made_here(tmp_path / "integrand-attribution.png")
    assert (tmp_path / "integrand-attribution-2.png").read_bytes() == b"of somebody else"


def test_a_script_with_a_display_opens_a_window(tmp_path):
    """With a backend that has windows, in name: it notes what it is asked to show."""
    (tmp_path / "windows.py").write_text(
        "from matplotlib.backend_bases import FigureManagerBase\n"
        "from matplotlib.backends.backend_agg import FigureCanvasAgg\n"
        "class Manager(FigureManagerBase):\n"
        "    @classmethod\n"
        "    def pyplot_show(cls, *, block=None): print('shown')\n"
        "class FigureCanvas(FigureCanvasAgg):\n"
        "    manager_class = Manager\n",
        encoding="utf-8",
    )
    paths = f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{tmp_path}"
    assert script("result.show()", tmp_path, MPLBACKEND="module://windows", PYTHONPATH=paths) == ["shown"]
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.parametrize("shape", [(1, 1, 8, 8), (1, 1, 8, 2), (2, 1, 8, 8), (1, 4)])
def test_no_text_of_a_figure_is_cut(certificate, shape):
    """Long certificates, labels and titles stay on the figure, whatever its width, also without bbox_inches="tight"."""
    long = "a certificate with a long note: " + "rounding inside the model moves scores by up to 0.00123 " * 3
    examples = tuple(dataclasses.replace(certificate(), note=long, status=Status.BUDGET) for _ in range(shape[0]))
    result = Attribution(torch.randn(shape), Certificate(examples))
    picture = figure(result, title="a title that is far longer than the picture under it is wide, and goes on")
    picture.canvas.draw()
    width, height = picture.canvas.get_width_height()
    for text in picture.texts:
        box = text.get_window_extent()
        assert box.x0 >= -1
        assert box.x1 <= width + 1, text.get_text()
        assert box.y0 >= -1
        assert box.y1 <= height + 1
    said = " ".join(text.get_text() for text in picture.texts)
    assert said.count("0.00123") == 3 * shape[0]
