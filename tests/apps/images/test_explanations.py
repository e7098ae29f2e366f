"""What an explained photo says of itself: the sentence, the unit, the rival, the picture."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import integrand as ig
from integrand.apps.images import explain, explain_photos
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


# ---- many photos ------------------------------------------------------------------------------------------------------------


ROWS = []
"""How many rows the network below was given, call by call."""


class Wavy(nn.Module):
    """Three smooth scores of a picture."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(1728, 12), nn.Linear(12, 3)

    def forward(self, x):
        ROWS.append(len(x))
        return self.last(torch.tanh(4 * self.first(x.flatten(1))))


@pytest.fixture(scope="module")
def wavy():
    return Network("wavy", Wavy().eval(), PLAIN, NAMES, "a test", outputs=3)


@pytest.fixture(scope="module")
def photos():
    return list(np.random.default_rng(0).integers(0, 256, (5, 24, 24, 3)).astype(np.uint8))


@pytest.mark.parametrize(
    "how",
    [
        {"score": "logit"},
        {"baseline": "blurred", "target": "green"},
        {"baseline": "black+white", "rival": True},
        {"baseline": "uniform", "tol": 0.05},
        {"path": "blur", "tol": 0.05},
    ],
    ids=["logit", "blurred", "several baselines", "random baselines", "blur path"],
)
def test_photos_together_have_the_numbers_of_each_alone(wavy, photos, how):
    alone = [explain(photo, wavy, **how) for photo in photos]
    together = explain_photos(photos, wavy, together=3, **how)
    for one, other in zip(alone, together, strict=True):
        assert torch.allclose(one.result.values, other.result.values, rtol=1e-4, atol=1e-6 * one.result.values.abs().max())
        assert torch.allclose(one.gradient.values, other.gradient.values, rtol=1e-4, atol=1e-6)
        assert one.result.certificate.only.gradients == other.result.certificate.only.gradients
        assert (one.answer.label, one.unit, one.sentence) == (other.answer.label, other.unit, other.sentence)
        assert len(one.result.profile) == len(other.result.profile)
        assert np.array_equal(one.shown, other.shown)
        assert (one.rival is None) == (other.rival is None)
        assert other.page()
    if "path" not in how:
        calls = [len(ROWS)]
        for size in (1, 3):
            explain_photos(photos, wavy, together=size, **how)
            calls.append(len(ROWS))
        assert calls[2] - calls[1] < 0.7 * (calls[1] - calls[0])  # two calls of the integrator in place of five


def test_a_cpu_takes_photos_one_by_one_and_together_must_make_sense(wavy, photos):
    first, again = explain_photos(photos[:2], wavy, score="logit"), explain(photos[1], wavy, score="logit")
    assert torch.equal(first[1].result.values, again.result.values)
    with pytest.raises(OptionError, match="got together=0"):
        explain_photos(photos, wavy, together=0)


def test_the_row_of_a_photo_has_signed_sums_over_a_grid(found, wavy, photos):
    row = found.row()
    assert (row.prediction, row.target, row.status) == ("red left", "red left", found.result.certificate.only.status.value)
    assert row.attributions.shape == (16, 16)
    # Of 24 columns the left 8 are red: fields 0 to 5 of 16, and the photo's attributions add up to 4 there, evenly.
    total = found.result.values.double().sum((0, 1, 2))
    assert row.attributions.sum(0)[:5].sum() == pytest.approx(float(total[:8].sum()), rel=1e-5)
    assert row.attributions.sum() == pytest.approx(4, rel=1e-2)
    assert len(row.attribution_errors) == 256
    one = explain(photos[0], wavy, target="blue", score="logit").row()
    assert (one.prediction, one.target) == (explain(photos[0], wavy).answer.label, "blue all over")
    assert one.attributions.sum() == pytest.approx(one.score - one.baseline_score, abs=abs(one.residual) + 1e-5)
    small = ig.integrated_gradients(lambda x: (2 * x).sum((1, 2, 3)), torch.ones(1, 3, 4, 20))
    sums = dataclasses.replace(found, result=small, telling="small").row().attributions
    assert (sums.sum(), np.count_nonzero(sums)) == (pytest.approx(480), 64)  # 4 rows of pixels, 16 fields across


def test_a_folder_of_photos_becomes_a_table(wavy, photos, tmp_path):
    (tmp_path / "in").mkdir()
    for i, photo in enumerate(photos):
        Image.fromarray(photo).save(tmp_path / "in" / f"{i}.png")
    (tmp_path / "in" / "notes.txt").write_text("no photo")
    explainer = functools.partial(explain_photos, network=wavy, together=4)
    done = ig.explain_many(tmp_path / "in", explainer, tmp_path / "out")
    assert (done.summary.explained, done.summary.failed) == (5, 1)
    rows = {row.key: row for row in done.table.rows()}
    assert "notes.txt" in rows["notes.txt"].failure
    for i, photo in enumerate(photos):
        alone = explain(photo, wavy).row()
        assert rows[f"{i}.png"].sentence == alone.sentence
        np.testing.assert_allclose(rows[f"{i}.png"].attributions, alone.attributions, rtol=1e-4, atol=1e-7)
    assert ig.explain_many(tmp_path / "in", explainer, tmp_path / "out").summary.known == 5
    with pytest.raises(OptionError, match="another run: got explain"):
        ig.explain_many(tmp_path / "in", functools.partial(explainer, tol=0.05), tmp_path / "out")
    whole = ig.explain_many(tmp_path / "in", explainer, tmp_path / "files", attributions="files")
    file = next(row.attribution_file for row in whole.table.rows() if row.key == "0.png")
    assert ig.Attribution.load(tmp_path / "files" / file).values.shape == (1, 3, 24, 24)
