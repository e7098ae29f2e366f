"""What an explained photo says of itself: the sentence, the unit, the rival, the picture."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from integrand.apps.images import explain
from integrand.apps.images.model import Network
from integrand.apps.images.preprocess import Preprocess
from integrand.errors import OptionError, TargetError

PLAIN = Preprocess(size=(24, 24), mean=(0.0,) * 3, scale=(255.0,) * 3)
NAMES = ("red left", "green right", "blue all over")

pytestmark = pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")


class Sides(nn.Module):
    """How red the left third of a picture is, how green the right third is, how blue all of it is, and a head start."""

    def forward(self, x):
        red, green = x[:, 0, :, :8].mean((1, 2)), x[:, 1, :, 16:].mean((1, 2))
        return torch.stack([4 * red**2, 3 * green**2 + 0.5, x[:, 2].mean((1, 2))], 1)


@pytest.fixture(scope="module")
def pixels():
    photo = np.zeros((24, 24, 3), np.uint8)
    photo[:, :8, 0], photo[:, 16:, 1], photo[..., 2] = 255, 128, 51
    return photo


@pytest.fixture(scope="module")
def network():
    return Network("sides", Sides(), PLAIN, NAMES, "a test", outputs=3)


@pytest.fixture(scope="module")
def found(pixels, network):
    return explain(pixels, network, score="logit", rival="green")


def test_the_sentence_is_one_true_line(found):
    sure = f"({100 * found.answer.probability:.0f}%)"
    assert found.sentence.startswith(
        f"red left {sure}: half of what speaks for it lies in 17% of the picture, most of all down the "
    )
    assert found.sentence.endswith(("numbers exact.", "%."))
    assert "\n" not in found.sentence
    assert found.numbers()["sentence"] == found.sentence
    assert found.numbers()["focus"]["area"] == pytest.approx(1 / 6, abs=0.01)  # half of a third
    assert found.sentence in json.dumps(found.numbers(), ensure_ascii=False)
    assert dataclasses.replace(found, telling="As I say.").sentence == "As I say."


def test_a_rival_is_computed_only_when_it_is_asked_for(pixels, network, found):
    assert explain(pixels, network, score="logit").rival is None
    assert found.rival.answer.label == "green right"
    # The change of 4 red^2 - 3 green^2 - 0.5 from black to the photo.
    assert float(found.rival.result.values.double().sum()) == pytest.approx(4 - 3 * (128 / 255) ** 2, rel=1e-3)
    assert explain(pixels, network, score="logit", rival=True).rival.answer.label == "green right"
    assert explain(pixels, network, score="logit", target="green", rival=True).rival.answer.label == "red left"
    assert explain(pixels, network, score="logit", rival=2).rival.answer.label == "blue all over"
    with pytest.raises(OptionError, match="the class that is explained; expected another class"):
        explain(pixels, network, rival="red")
    with pytest.raises(TargetError):
        explain(pixels, network, rival="purple")


def test_the_page_takes_the_side_of_the_explained_class(found):
    page = found.page()
    assert "Why red left and not green right" in page
    assert "At the baseline (black) it was behind by 0.5" in page
    assert "separates" not in page


@pytest.mark.parametrize(
    ("module", "score", "unit", "known"),
    [
        (nn.Linear(1728, 3), "probability", "probability", True),
        (nn.Linear(1728, 3), "logit", "logit", True),
        (nn.Sequential(nn.Linear(1728, 3), nn.Softmax(1)), "probability", "probability", True),
        (nn.Sequential(nn.Linear(1728, 3), nn.Sigmoid()), "logit", "probability", True),
        (nn.Linear(1728, 1), "probability", "probability", True),
        (nn.Linear(1728, 1), "logit", "output", False),  # a regression, for all that is known
    ],
)
def test_the_unit_is_what_the_numbers_are(pixels, module, score, unit, known):
    torch.manual_seed(0)
    network = Network("n", nn.Sequential(nn.Flatten(), module).eval(), PLAIN, None, "a test")
    found = explain(pixels, network, score=score, tol=0.05)
    assert found.unit == found.numbers()["unit"] == unit
    assert f"the {unit} of" in found.page()
    assert np.isfinite(found.answer.probability) == known
    if not known:
        assert "the logit of" not in found.page()
        assert found.numbers()["explained"]["probability"] is None


def test_the_figure_has_the_photo_where_it_lies_and_the_regions_and_the_notice(found):
    pytest.importorskip("matplotlib")
    told = dataclasses.replace(found, notice="Not a medical device: for research.")
    texts = [text.get_text() for text in told.figure().findobj() if hasattr(text, "get_text")]
    for words in ("red left", "integrated gradients, outlined", "integrated gradients, regions", "Not a medical device"):
        assert any(words in text for text in texts), words
    assert not any("gradient × image" in text for text in texts)
    scaled = dataclasses.replace(found, view="heatmap").figure()
    assert any("signed" in text.get_text() for text in scaled.findobj() if hasattr(text, "get_text"))


def test_show_saves_where_there_is_no_display(found, tmp_path, monkeypatch, capsys):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    found.show()
    (written,) = tmp_path.glob("integrand-photo*.png")
    assert f"saved {written.name}" in capsys.readouterr().out
