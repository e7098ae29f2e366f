"""The retinopathy grader: framing against drawn discs, grades against closed forms, its card against DeepDRiD."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from benchmarks.grades import auc, kappa
from integrand.apps import retina
from integrand.apps.images.model import Network
from integrand.apps.photos import read
from integrand.apps.retina.fundus import Disc, find_disc, framed, smoothed
from integrand.apps.retina.model import PREPROCESS, SCORES, Evidence, Grader
from integrand.errors import InputError, OptionError, TargetError

RED = (150, 80, 40)


def drawn(height=400, width=600, x=300.0, y=200.0, radius=180.0, colour=RED, ground=0):
    """A disc of one colour on a dark ground, with a darker half as shadows make it."""
    rows, columns = np.ogrid[:height, :width]
    inside = (columns + 0.5 - x) ** 2 + (rows + 0.5 - y) ** 2 <= radius**2
    photo = np.where(inside[..., None], np.array(colour, np.uint8), np.uint8(ground)).astype(np.uint8)
    photo[:, : int(x)] = np.where(inside[:, : int(x), None], photo[:, : int(x)] // 2, photo[:, : int(x)])
    return photo


@pytest.fixture(scope="module")
def grader():
    pytest.importorskip("efficientnet_lite_pytorch")
    return retina.load("cpu")


@pytest.mark.parametrize(
    ("height", "width", "x", "y", "radius", "ground"),
    [
        (400, 600, 300.0, 200.0, 180.0, 0),
        (400, 600, 220.0, 190.0, 180.0, 8),  # off the middle, on a ground that is not quite black
        (400, 600, 310.0, 205.0, 250.0, 0),  # cut off at top and bottom
        (2000, 3000, 1400.0, 1010.0, 1200.0, 5),  # larger than what the search looks at
        (300, 300, 150.0, 150.0, 150.0, 0),  # fills its square
    ],
)
def test_a_drawn_disc_is_found_where_it_was_drawn(height, width, x, y, radius, ground):
    disc = find_disc(drawn(height, width, x, y, radius, ground=ground))
    assert disc.found
    assert max(abs(disc.x - x), abs(disc.y - y), abs(disc.radius - radius)) < 0.01 * radius


def test_marks_and_shadows_do_not_move_the_disc():
    photo = drawn()
    photo[10:30, 10:80] = 255  # a label in a corner
    photo[60:300, 120:200] = 0  # a shadow that eats into the rim
    disc = find_disc(photo)
    assert disc.found
    assert max(abs(disc.x - 300), abs(disc.y - 200), abs(disc.radius - 180)) < 0.02 * 180


def test_a_framed_disc_fills_the_square_and_what_was_cut_off_is_black():
    photo = drawn(400, 600, 310.0, 205.0, 250.0)
    eye = retina.see(photo)
    assert eye.photo.pixels.shape == (512, 512, 3)
    lit = eye.photo.pixels.max(axis=2) > 20
    assert lit.any(axis=0).mean() > 0.99  # from the left to the right edge
    rows = np.flatnonzero(lit.any(axis=1))
    assert rows[0] == pytest.approx((250 - 205) * 512 / 500, abs=3)
    assert rows[-1] == pytest.approx((250 - 205 + 400) * 512 / 500, abs=3)
    assert (eye.inside == lit).mean() > 0.99
    # the part of the circle beyond the photo, by integration
    y = np.linspace(-1, 1, 100001)
    chord = np.sqrt(1 - y**2)
    missing = chord[(y < -205 / 250) | (y > 195 / 250)].sum() / chord.sum()
    (note,) = [note for note in eye.notes if "of the round retina is cut off" in note]
    assert float(note.split("%")[0]) == pytest.approx(100 * missing, abs=1)


def test_a_photo_framed_already_stays_as_it_is(data):
    path = data("retina/deepdrid/images/347_l1.jpg")
    assert np.array_equal(retina.see(path).photo.pixels, np.asarray(Image.open(path).convert("RGB")))


def test_framing_is_the_same_for_a_larger_photo_with_a_margin():
    photo = drawn(512, 512, 256.0, 256.0, 256.0)
    margin = np.zeros((600, 900, 3), np.uint8)
    margin[40:552, 200:712] = photo
    apart = np.abs(retina.see(margin).photo.pixels.astype(int) - retina.see(photo).photo.pixels)
    assert (apart.max(axis=2) > 20).mean() < 0.03  # along the rim, where a pixel more or less of it is seen


def test_what_is_no_fundus_photo_gets_a_note():
    skimage = pytest.importorskip("skimage")
    assert retina.see(skimage.data.retina()).fundus
    assert retina.see(skimage.data.retina()).notes == ()
    cat = retina.see(skimage.data.chelsea())
    assert not cat.fundus
    assert any("no round retina" in note for note in cat.notes)
    moon = retina.see(drawn(colour=(150, 150, 150)))
    assert not moon.fundus
    assert any("colours are not those of a retina" in note for note in moon.notes)
    small = retina.see(drawn(200, 300, 150.0, 100.0, 90.0))
    (note,) = small.notes
    assert "px across" in note
    assert float(note.split(" px across")[0].split()[-1]) == pytest.approx(180, abs=2)


@pytest.mark.parametrize("photo", [np.zeros((5, 5, 3)), np.zeros((5, 5), np.uint8), np.zeros((5, 5, 4), np.uint8), 3])
def test_arrays_that_are_no_photos_are_refused(photo):
    with pytest.raises(InputError, match="expected"):
        retina.see(photo)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (30, 20)])
def test_tiny_and_empty_photos_are_graded_with_a_note(shape):
    eye = retina.see(np.zeros((*shape, 3), np.uint8))
    assert not eye.fundus
    assert all(one.shape == (512, 512, 3) for one in eye.baseline("average"))


def test_baselines_are_black_where_the_photo_shows_no_retina():
    eye = retina.see(drawn(400, 600, 310.0, 205.0, 250.0))
    black, flat, blurred = eye.baseline("average")
    for one in (black, flat, blurred):
        assert not one[~eye.inside].any()
    assert not black.any()
    assert np.array_equal(np.unique(flat[eye.inside], axis=0), [np.median(eye.values[eye.inside], axis=0)])
    with pytest.raises(OptionError, match="grey"):
        eye.baseline("grey")


def test_a_blur_within_a_mask_keeps_a_flat_colour_and_matches_a_plain_gaussian_inside():
    inside = np.zeros((64, 64), bool)
    inside[8:56, 4:60] = True
    flat = np.where(inside[..., None], np.array(RED, np.uint8), np.uint8(0))
    assert np.array_equal(smoothed(flat, inside, 5.0), flat)
    from scipy.ndimage import gaussian_filter

    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    plain = gaussian_filter(noise.astype(float), (2, 2, 0), truncate=8, mode="constant")
    assert np.abs(smoothed(noise, np.ones((64, 64), bool), 2.0)[20:44, 20:44] - plain[20:44, 20:44]).max() <= 0.51


def test_grades_follow_from_the_cumulative_logits():
    logit = torch.tensor([0.9, 0.7, 0.4, 0.1]).logit()
    grade = retina.Grade.of([-float(logit[0]), *logit.tolist()])
    assert grade.at_least == pytest.approx((0.9, 0.7, 0.4, 0.1), abs=1e-6)
    assert grade.expected == pytest.approx(2.1, abs=1e-6)
    assert (grade.grade, grade.words, grade.referable) == (2, "moderate non-proliferative diabetic retinopathy", True)
    assert grade.probabilities == pytest.approx((0.1, 0.2, 0.3, 0.3, 0.1), abs=1e-6)
    crossed = retina.Grade.of([0.0, *torch.tensor([0.2, 0.6, 0.1, 0.05]).logit().tolist()])
    assert crossed.at_least == pytest.approx((0.4, 0.4, 0.1, 0.05), abs=1e-6)  # those that rise share their mean
    assert torch.tensor(crossed.logits).sigmoid().tolist() == pytest.approx((0.2, 0.6, 0.1, 0.05), abs=1e-6)  # as explained
    assert crossed.numbers()["logits"]["2"] == crossed.logits[1]
    assert crossed.expected == pytest.approx(0.95, abs=1e-6)
    assert crossed.probabilities == pytest.approx((0.6, 0.0, 0.3, 0.05, 0.05), abs=1e-6)
    assert sum(crossed.probabilities) == pytest.approx(1)
    assert retina.Grade.of([9.0, *[-9.0] * 4]).target == 1  # for a healthy eye: what speaks for any retinopathy
    assert retina.Grade.of([-9.0, *[9.0] * 4]).target == 4


def graded(*at_least):
    return retina.Grade.of([0.0, *torch.tensor(at_least, dtype=torch.float64).logit().tolist()])


def test_a_grade_that_is_less_likely_than_not_is_called_uncertain_with_its_range():
    torn = graded(0.536, 0.53, 0.52, 0.01)  # the mean is 1.6, but nothing speaks for 2: it is either 0 or 3
    assert (torn.grade, torn.uncertain, torn.between) == (2, True, (0, 3))
    assert torn.headline == "between grades 0 and 3 of 4, uncertain"
    assert torn.sentence == "Between grades 0 and 3 of 4, uncertain (referable: 53%)."
    assert "grades 0: 46%  1: 1%  [2: 1%]  3: 51%  4: 1%" in str(torn)
    assert torn.rule == (
        "Grade 2 is the mean of the grades weighted by their probabilities, 1.60, rounded, and uncertain: it has under 50% "
        "itself, and only grades 0 to 3 together have 80%."
    )
    sure = graded(0.99, 0.97, 0.1, 0.01)
    assert (sure.grade, sure.uncertain, sure.between) == (2, False, (2, 2))
    assert sure.headline.startswith("grade 2 of 4: moderate")
    assert sure.rule == "Grade 2 is the mean of the grades weighted by their probabilities, 2.07, rounded."
    assert graded(0.01, 0.001, 0.001, 0.001).sentence == "Grade 0 of 4, no retinopathy (referable: under 1%)."


def test_a_grade_that_is_not_called_uncertain_is_the_likeliest_one():
    for at_least in np.random.default_rng(0).uniform(1e-3, 1 - 1e-3, (2000, 4)):
        grade = graded(*at_least)
        low, high = grade.between
        assert low <= grade.grade <= high
        assert sum(grade.probabilities[low : high + 1]) >= 0.8
        assert grade.uncertain or int(np.argmax(grade.probabilities)) == grade.grade


def test_agreement_and_ranking_are_what_they_are_by_hand():
    assert kappa([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]) == 1
    assert kappa([0, 4], [4, 0]) == -1
    assert kappa([0, 0, 4, 4], [0, 4, 0, 4]) == 0  # as often right as wrong
    assert auc([0.9, 0.5], [0.5, 0.1]) == 0.875  # three pairs of four in order, one tied


@pytest.fixture(scope="module")
def healthy(grader):
    """A healthy eye, examined roughly."""
    skimage = pytest.importorskip("skimage")
    return grader.examine(skimage.data.retina(), steps=8, tol=1.0)


def test_an_examined_eye_lists_the_grades_in_order_and_marks_the_stated_one(healthy):
    assert [answer.index for answer in healthy.answers] == [0, 1, 2, 3, 4]
    assert healthy.ordered
    assert healthy.stated == healthy.grade.grade == 0
    assert healthy.rule == healthy.grade.rule
    numbers = healthy.numbers()
    assert [one["index"] for one in numbers["answers"]] == [0, 1, 2, 3, 4]
    assert numbers["grade"] == healthy.grade.numbers()
    assert numbers["grade"]["stated"] == 0
    assert numbers["rule"] == healthy.rule
    assert numbers["sentence"] == healthy.sentence


def test_everything_said_of_an_eye_says_that_it_is_no_medical_device(healthy):
    for said in (repr(healthy), str(healthy), repr(healthy.grade), str(healthy.grade), healthy.numbers()["notice"]):
        assert retina.NOTICE in said
    assert retina.NOTICE in healthy.page()
    assert retina.NOTICE.startswith("Not a medical device: for research, not for diagnosing, treating")
    assert not re.search(r"\.md|integrand.models|/", retina.NOTICE)  # no file to look for
    assert max(map(len, (repr(healthy), repr(healthy.grade)))) < 700


def test_a_healthy_eye_is_told_as_what_speaks_against_a_disease(healthy):
    assert healthy.view == "regions"
    assert healthy.answer.label == "any retinopathy"
    assert "\n" not in healthy.sentence
    assert "speaks against “any retinopathy”" in healthy.sentence
    assert healthy.sentence.startswith("Grade 0 of 4, no retinopathy (referable: 2%): ")


def test_where_the_evidence_lies_is_read_off_sums_over_regions(healthy):
    """Made up: the network says yes because of the lower right, and pluses and minuses cancel in the upper left."""
    values = torch.zeros_like(healthy.result.values)
    values[..., 20:120:2, 20:120], values[..., 21:121:2, 20:120] = 0.02, -0.02  # 20 times what follows
    values[..., 380:480, 380:480] = 1e-3
    only = replace(healthy.result.certificate.only, score=3.0)
    result = replace(healthy.result, values=values, certificate=replace(healthy.result.certificate, examples=(only,)))
    found = replace(healthy, result=result)
    assert found.whereabouts == "what speaks for “any retinopathy” lies most of all in the lower right"
    everywhere = replace(result, values=torch.full_like(values, 1e-3))
    assert replace(healthy, result=everywhere).whereabouts == "what speaks for “any retinopathy” lies all over the picture"


def test_outputs_are_numbered_as_grades(grader):
    for name, output in {"referable": 2, "any": 1, "healthy": 0, "3": 3, "Grade 4": 4, "proliferative": 4}.items():
        assert grader.find(name) == output
    for wrong in ("5", "glaucoma", ""):
        with pytest.raises(TargetError):
            grader.find(wrong)
    with torch.no_grad():
        scores = grader.network.module(grader.input(retina.see(drawn())))
    assert scores.shape == (1, 5)
    assert scores[0, 0] == -scores[0, 1]


def test_an_explanation_leaves_the_surround_out_and_accounts_for_the_score(grader):
    eye = retina.see(drawn(400, 600, 310.0, 205.0, 250.0))
    result = grader.explain(eye, target="referable", steps=3, tol=1.0)
    only = result.certificate.only
    with torch.no_grad():
        scores = [grader.network.module(x)[0, 2].item() for x in (grader.input(eye), grader.baseline(eye, "blurred"))]
    assert (only.score, only.baseline_score) == pytest.approx(scores, abs=1e-4)
    assert float(result.values.double().sum()) == pytest.approx(scores[0] - scores[1] + only.residual, abs=1e-3)
    black = torch.from_numpy(~eye.inside & (eye.values.max(axis=2) == 0))
    assert black.float().mean() > 0.2
    assert not result.values[0][:, black].any()


def test_forty_test_photos_are_graded_as_the_card_says(grader, data):
    """The card: AUC .985 and accuracy .762 over 400 photos."""
    folder = data("retina/deepdrid")
    with open(folder / "labels.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
    sick = [row for row in rows if int(row["dr_level"]) >= 2][::8][:20]
    well = [row for row in rows if int(row["dr_level"]) < 2][::11][:20]
    found = [[grader.grade(folder / "images" / f"{row['image_id']}.jpg") for row in group] for group in (sick, well)]
    chances = [[grade.at_least[1] for grade in group] for group in found]
    auc = np.mean([[(a > b) + 0.5 * (a == b) for b in chances[1]] for a in chances[0]])
    truth = [int(row["dr_level"]) for row in (*sick, *well)]
    right = np.mean([grade.grade == level for grade, level in zip((*found[0], *found[1]), truth, strict=True)])
    near = np.mean([abs(grade.grade - level) <= 1 for grade, level in zip((*found[0], *found[1]), truth, strict=True)])
    # Three standard errors below the card: about .02 for an AUC of .985 from 20 and 20, and those of 40 trials.
    assert auc >= 0.985 - 3 * 0.02
    assert right >= 0.762 - 3 * np.sqrt(0.762 * 0.238 / 40)
    assert near >= 0.8


def test_larger_photos_with_a_margin_are_graded_alike(grader, data):
    folder, plain, larger = data("retina/deepdrid/images"), [], []
    for name in ("347_l1", "348_l1", "349_r1", "350_r2", "351_l2", "352_r1"):
        photo = Image.open(folder / f"{name}.jpg").convert("RGB")
        wide = Image.new("RGB", (1600, 1100))
        wide.paste(photo.resize((1024, 1024), Image.Resampling.BICUBIC), (300, 38))
        plain.append(grader.grade(np.asarray(photo)))
        larger.append(grader.grade(np.asarray(wide)))
    assert [one.referable for one in plain] == [one.referable for one in larger]
    assert np.median([abs(a.at_least[1] - b.at_least[1]) for a, b in zip(plain, larger, strict=True)]) < 0.05


@pytest.fixture(scope="module")
def clinic(data):
    """A photo of 12 million pixels as a camera takes it, IDRiD's second, and where its retina is."""
    pixels = read(data("retina/idrid/images/IDRiD_02.jpg")).pixels
    return pixels, find_disc(pixels)


def referable(grader, pixels):
    with torch.no_grad():
        return grader.network.module(grader.input(pixels))[0, 2].item()


def test_another_reader_of_the_same_file_gives_the_same_frame_and_grade(grader, clinic):
    """Readers of JPEG differ by one in some pixels; here all of them do, at random."""
    pixels, disc = clinic
    noise = np.random.default_rng(0).integers(-1, 2, pixels.shape, dtype=np.int8)
    other = np.clip(pixels.astype(np.int16) + noise, 0, 255).astype(np.uint8)
    moved = find_disc(other)
    assert max(abs(moved.x - disc.x), abs(moved.y - disc.y), abs(moved.radius - disc.radius)) < 0.2  # of 4288 pixels
    eyes = retina.see(pixels), retina.see(other)
    assert np.abs(eyes[0].values - eyes[1].values).mean() < 0.15
    assert referable(grader, eyes[0]) == pytest.approx(referable(grader, eyes[1]), abs=0.15)


def test_a_frame_moves_as_little_as_the_disc_does(grader, clinic):
    """A disc moved by a hundredth of a pixel, over the middle between two: no rounding to whole pixels."""
    pixels, disc = clinic
    half = math.floor(disc.x - disc.radius) + 0.5 - (disc.x - disc.radius)
    one, two = (framed(pixels, replace(disc, x=disc.x + half + step), 512)[0] for step in (-0.005, 0.005))
    assert np.abs(one - two).max() < 1.0
    assert referable(grader, one) == pytest.approx(referable(grader, two), abs=0.02)


def test_a_cut_is_the_integral_of_a_picture_that_is_known():
    """A plane stays one under any cut and scale, wherever the filter does not reach beyond the picture."""
    y, x = np.mgrid[:300, :400]
    plane = np.stack([x // 2, y // 2, (x + y) // 4], axis=2).astype(np.uint8)
    left, top, length, side = 40.3, 25.8, 230.4, 64
    found = framed(plane, Disc(left + length / 2, top + length / 2, length / 2, 1.0), side)[0]
    centre = (np.arange(side) + 0.5) * length / side
    expected = (centre + left - 0.5) / 2 - 0.25  # the halves are rounded down
    assert np.abs(found[5:-5, 5:-5, 0] - expected[5:-5]).max() < 0.1


def test_framed_does_not_write_into_the_photo():
    photo = drawn()
    copy = photo.copy()
    framed(photo, find_disc(photo), 512)
    assert np.array_equal(photo, copy)


def test_eyes_together_have_the_numbers_of_each_alone_and_columns_of_the_grade():
    torch.manual_seed(0)
    tiny = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 8), nn.Tanh(), nn.Linear(8, 4)).eval()
    stand_in = Grader(Network("a stand-in", Evidence(tiny), PREPROCESS, SCORES, "a test", outputs=5))
    eyes = [drawn(colour=colour) for colour in (RED, (120, 60, 30))]
    one = stand_in.examine(eyes[1], steps=4, baseline="black")
    other = stand_in.examine_photos(eyes, steps=4, baseline="black", together=2)[1]
    assert torch.allclose(one.result.values, other.result.values, rtol=1e-4, atol=1e-6 * one.result.values.abs().max())
    assert one.grade == other.grade
    row = other.row()
    assert row.prediction == f"grade {one.grade.grade}"
    assert row.probability == one.grade.probabilities[one.grade.grade]
    assert row.target == other.answer.label
    assert (row.columns["grade"], row.columns["referable"]) == (one.grade.grade, one.grade.referable)
    assert row.columns["referable_probability"] == one.grade.at_least[1]
    assert row.attributions.shape == (16, 16)
    assert row.attributions.sum() == pytest.approx(float(one.result.values.double().sum()), rel=1e-3, abs=1e-5)
    cat = dataclasses.replace(other, grade=dataclasses.replace(other.grade, fundus=False)).row()
    assert (cat.prediction, cat.probability, cat.columns["looks_like_a_retina"]) == ("no retina", None, False)
    with pytest.raises(TargetError):
        stand_in.examine_photos(eyes, target="blindness")
