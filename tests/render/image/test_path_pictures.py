"""The picture of the path: its numbers from closed forms, and that it is drawn."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch

import integrand as ig
from integrand.errors import InputError, OptionError
from integrand.render import image
from integrand.render.image.image_pictures import joined, journey, settled

X = torch.full((1, 3, 2, 2), 0.5, dtype=torch.float64)
PHOTO = np.full((2, 2, 3), 0.5)
OPTIONS = {"along": None, "thumbnails": 5, "labels": None, "example": 0}


def saturating(x):
    """Rises with t up to t = 0.25 and stays: 12 features of 0.5 make 6t."""
    return x.sum((1, 2, 3)).clamp(max=1.5)


def squares(x):
    return (x**2).sum((1, 2, 3))


@pytest.fixture(scope="module")
def result():
    return ig.integrated_gradients(saturating, X, tol=1e-3)


def test_mass_of_a_saturating_score_lies_early(result):
    drawn = journey(result, PHOTO, None, **OPTIONS)
    assert drawn.reached == pytest.approx((0.125, 0.225), abs=0.01)
    assert settled(drawn.mean, result.certificate[0]) == pytest.approx(0.225, abs=0.05)
    assert "half of the attribution mass lies before t = 0.1" in drawn.note
    assert "the score is 90% there from t = 0.2" in drawn.note


def test_thumbnails_lie_on_the_line(result):
    drawn = journey(result, PHOTO, np.ones((2, 2, 3)), **OPTIONS)
    assert drawn.times == (0.0, 0.25, 0.5, 0.75, 1.0)
    shades = [int(frame.pixels[0, 0, 0]) for frame in drawn.thumbnails]
    assert shades == [round(255 * (1 - t / 2)) for t in drawn.times]
    black = journey(result, PHOTO, None, **OPTIONS)
    assert [int(frame.pixels[0, 0, 0]) for frame in black.thumbnails] == [round(127.5 * t) for t in drawn.times]


def test_thumbnails_of_another_path(result):
    drawn = journey(result, None, None, **OPTIONS | {"along": lambda t: np.full((2, 2), t * t)})
    assert [int(frame.pixels[0, 0, 0]) for frame in drawn.thumbnails] == [round(255 * t * t) for t in drawn.times]


@pytest.mark.parametrize("options", [{"steps": 20, "rule": rule} for rule in ("midpoint", "gauss-legendre")] + [{"tol": 1e-3}])
def test_mass_that_grows_with_t(options):
    """The mass is 2t sum x², its integral t²: half of it by the root of a half, whether the rule saw the ends or not."""
    mean = journey(ig.integrated_gradients(squares, X, **options), None, None, **OPTIONS).mean
    assert (mean.t[0], mean.t[-1]) == (0, 1)
    assert mean.reached(0.5) == pytest.approx(0.5**0.5, abs=0.02)
    assert mean.reached(0.9) == pytest.approx(0.9**0.5, abs=0.02)


def test_pieces_of_a_polyline_follow_each_other():
    path = ig.Polyline([torch.zeros_like(X), X / 2, X])
    result = ig.path_attribution(squares, path)
    drawn = journey(result, PHOTO, None, **OPTIONS)
    assert drawn.single == ()
    assert drawn.thumbnails == ()  # the line from black to the photo would be another path
    assert (drawn.mean.t[0], drawn.mean.t[-1]) == (0, 1)
    assert drawn.mean.score == pytest.approx(drawn.mean.t**2 * 3.0)  # 12 features of 0.5², on the same line
    assert drawn.mean.mass == pytest.approx(2 * drawn.mean.t * 3.0)


def test_several_baselines_are_averaged():
    baselines = [torch.zeros_like(X), X.clone() / 2]
    result = ig.integrated_gradients(squares, X, baselines)
    mean, single = joined(result.profile.of(0), result.certificate[0])
    assert len(single) == 2
    at = 0.5
    both = 3.0 * (at**2 + (0.5 + at / 2) ** 2) / 2
    assert np.interp(at, mean.t, mean.score) == pytest.approx(both, abs=0.02)


def test_shares_that_cancel_are_no_mean():
    """Shares of either sign may add up to nothing; the curves then count alike."""
    result = ig.integrated_gradients(squares, X, [torch.zeros_like(X), 0.25 * X])
    one = result.certificate[0]
    curves = tuple(dataclasses.replace(curve, weight=weight) for curve, weight in zip(one.curves, (1.5, -1.5), strict=True))
    mean, _ = joined(result.profile.of(0), dataclasses.replace(one, curves=curves))
    np.testing.assert_array_equal(mean.score, joined(result.profile.of(0), one)[0].score)


def test_score_that_does_not_change():
    with pytest.warns(ig.errors.ZeroAttributionWarning):
        result = ig.integrated_gradients(lambda x: (0 * x).sum((1, 2, 3)), X)
    assert "no attribution mass" in journey(result, PHOTO, None, **OPTIONS).note


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: image.path(ig.methods.Gradient()(squares, X), PHOTO), InputError, "has no profile of its path"),
        (lambda r: image.path(r, PHOTO, example=3), OptionError, "got example=3; expected 0 to 0"),
        (lambda r: image.path(r, PHOTO, thumbnails=1), OptionError, "got thumbnails=1"),
        (lambda r: image.path(r, PHOTO, baseline=np.ones((5, 5, 3))), InputError, "the baseline has"),
    ],
)
def test_messages(result, call, error, message):
    with pytest.raises(error, match=message):
        call(result)


@pytest.mark.parametrize("photo", [PHOTO, np.full((40, 13, 3), 0.5), np.full((10, 64), 0.5), None])
@pytest.mark.parametrize("thumbnails", [0, 2, 12])
def test_it_is_drawn_without_warnings(result, photo, thumbnails):
    pytest.importorskip("matplotlib")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = image.path(result, photo, thumbnails=thumbnails, labels="$5 " + "long " * 60)
        picture.canvas.draw()
    score, mass = picture.axes[-2:]
    assert len(picture.axes) == 2 + (thumbnails if photo is not None else 0)
    assert np.asarray(score.lines[0].get_ydata())[-1] == pytest.approx(1.5)
    texts = [text for text in mass.texts if text.get_text() in {"50%", "90%"}]
    assert len(texts) == 2
    widest = max(text.get_window_extent().x1 for text in picture.texts)
    assert widest <= picture.bbox.x1 + 1


def test_constant_score_is_drawn():
    pytest.importorskip("matplotlib")
    with pytest.warns(ig.errors.ZeroAttributionWarning):
        result = ig.integrated_gradients(lambda x: (0 * x).sum((1, 2, 3)), X)
    image.path(result, PHOTO).canvas.draw()
