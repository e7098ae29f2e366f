"""Where the evidence lies: closed forms, the bound on the half, and the words."""

import math

import numpy as np
import pytest

from integrand import Status
from integrand.render.image.whereabouts import HALF, chance, focus_of, photo_sentence, places


def blob(*ones, size=60):
    """A map of zeros with squares of ones: (row, column, side)."""
    values = np.zeros((1, size, size))
    for row, column, side in ones:
        values[0, row : row + side, column : column + side] = 1.0
    return values


def test_half_of_what_speaks_for_it_is_found_and_what_speaks_against_it_is_counted_apart(certificate):
    values = blob((0, 0, 20)) - 2 * blob((40, 40, 20))  # 400 for it in the upper left, 800 against it in the lower right
    found = focus_of(values, certificate(error=0.003, magnitude=1200.0), smooth=0)
    assert found.share == HALF
    assert found.area == 200 / 3600
    assert found.places == "in the upper left"
    assert found.against == 0
    assert found.off == pytest.approx(0.5 * 3.6 / (400 - 3.6))  # errors of 3.6 in all, taken from the 200 inside
    assert found.told() == "half of what speaks for it lies in 5.6% of the picture, most of all in the upper left"


def test_no_error_within_the_certificate_moves_the_half_further_than_is_said(certificate):
    rng = np.random.default_rng(0)
    values = rng.standard_t(2, (3, 30, 30))
    size = np.abs(values).sum()
    found = focus_of(values, certificate(error=0.05, magnitude=size))
    worst = 0.0
    for kind in ("random", "inside", "outside"):
        for sign in (1, -1):
            error = rng.normal(size=values.shape) if kind == "random" else np.zeros(values.shape)
            if kind != "random":
                where = found.inside if kind == "inside" else ~found.inside
                error[0, where & (values.sum(0) > 0)] = 1.0
            error *= sign * 0.05 * size / np.abs(error).sum()
            true = np.maximum((values - error).sum(0), 0)
            worst = max(worst, abs(true[found.inside].sum() / true.sum() - found.share))
    assert 0.5 * found.off < worst <= found.off  # it holds, and is not idle


@pytest.mark.parametrize(
    ("off", "words"),
    [(0.001, "half of what"), (0.05, "about half of what"), (0.2, "half (± 20%) of what"), (0.6, "too uncertain to say")],
)
def test_the_half_is_told_as_well_as_it_is_known(certificate, off, words):
    values = blob((20, 20, 20))
    error = 400 * off / (0.5 + off)  # what makes the bound so large
    assert words in focus_of(values, certificate(error=error / 400, magnitude=400.0)).told()


def test_nothing_speaks_for_it(certificate):
    for values in (np.zeros((3, 9, 9)), -np.ones((3, 9, 9)), np.full((3, 9, 9), np.nan)):
        found = focus_of(values, certificate())
        assert not found.inside.any()
        assert found.told() == "nothing in the picture speaks for it"
        assert "nothing to outline" in found.details


@pytest.mark.parametrize(
    ("squares", "words"),
    [
        ([(25, 25, 10)], "in the centre"),
        ([(0, 25, 10)], "at the top"),
        ([(0, 0, 15), (0, 22, 15), (0, 45, 15)], "across the top"),
        ([(0, 45, 15), (22, 45, 15), (45, 45, 15)], "down the right side"),
        ([(45, 45, 15), (45, 25, 14)], "towards the lower right"),
        ([(25, 25, 13), (0, 0, 12)], "in the centre and in the upper left"),
        ([(0, 0, 60)], "all over it"),
    ],
)
def test_places_in_words(squares, words):
    assert places(blob(*squares)[0]) == words


def test_the_sentence_says_what_where_and_how_sure(certificate):
    focus = focus_of(blob((25, 25, 10)), certificate())
    said = photo_sentence("Egyptian cat", focus, certificate(error=0.009), probability=0.389, rank=1)
    assert said.startswith(
        "Egyptian cat (39%): half of what speaks for it lies in 1.4% of the picture, most of all in the centre;"
    )
    assert said.endswith("numbers good to 0.9%.")
    assert "(33%, the network's second answer)" in photo_sentence("tiger", focus, certificate(), probability=0.33, rank=2)
    assert photo_sentence("x", focus, certificate()).startswith("x: ")
    assert "not good to 1%" in photo_sentence("x", focus, certificate(error=0.12, status=Status.BUDGET))


def test_probabilities_are_never_rounded_to_certainty():
    assert chance(1 - 1e-9, digits=0) == "> 99.9%"
    assert chance(1e-9) == "< 0.1%"
    assert math.isnan(focus_of(np.ones((1, 3, 3))).off)  # without a certificate
