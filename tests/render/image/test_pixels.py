import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from integrand.errors import InputError, OptionError
from integrand.render.html import png
from integrand.render.image.pixels import COLOURS, contribution, heat, lit, mass_limit, photo_pixels, remark, strength

FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False)
ENDS = [tuple(bytes.fromhex(colour[1:])) for colour in (COLOURS[0], COLOURS[len(COLOURS) // 2], COLOURS[-1])]


def test_colours_that_cancel_are_strong_but_contribute_nothing():
    values = np.zeros((3, 1, 2))
    values[:, 0, 1] = [2.0, -2.0, 0.0]
    assert contribution(values).tolist() == [[0.0, 0.0]]
    assert strength(values).tolist() == [[0.0, 4.0]]


@given(hnp.arrays(float, st.integers(1, 40), elements=FLOATS), st.floats(0.01, 1))
def test_limit_is_the_least_magnitude_that_holds_the_share(values, share):
    limit = mass_limit(values, share)
    size = np.abs(values)
    assert size[size <= limit].sum() >= share * size.sum() * (1 - 1e-9)
    assert size[size < limit].sum() <= share * size.sum() * (1 + 1e-9)


def test_one_outlier_does_not_set_the_scale():
    values = np.ones(10_000)
    values[0] = 1_000.0  # nine per cent of the mass
    assert mass_limit(values, 0.9) == 1.0
    assert mass_limit(values, 1.0) == 1_000.0


def test_limit_of_huge_values_does_not_overflow():
    assert mass_limit(np.full(8, 1e308), 0.7) == 1e308


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan")])
def test_share_that_makes_no_sense(share):
    with pytest.raises(OptionError, match=r"got share=.*expected a share of the attribution mass"):
        mass_limit(np.ones(3), share)


def test_heat_reaches_its_ends_at_the_limit_and_stays_there():
    pixels = heat(np.array([[-9.0, -1.0, 0.0, 1.0, 9.0]]), 1.0)
    assert [tuple(pixel) for pixel in pixels[0].tolist()] == [ENDS[0], ENDS[0], ENDS[1], ENDS[2], ENDS[2]]


def test_heat_is_symmetric_in_brightness():
    # Equal magnitudes of either sign must look equally strong.
    values = np.linspace(-1, 1, 21)[None]
    luma = heat(values, 1.0)[0] @ np.array([0.2126, 0.7152, 0.0722])
    assert np.abs(luma - luma[::-1]).max() < 45
    assert (np.diff(luma[:11]) > 0).all()
    assert (np.diff(luma[10:]) < 0).all()


def test_heat_is_told_apart_without_seeing_red_or_green():
    # With red and green mixed into one channel, blue against that mix still tells the signs apart.
    low, _, high = (np.array(end, float) for end in ENDS)
    assert low[2] - low[:2].mean() > 80
    assert high[2] - high[:2].mean() < 0


def test_photo_is_scaled_by_strength():
    photo = np.full((1, 4, 3), 0.5)
    pixels = lit(photo, np.array([[0.0, 1.0, 2.0, 8.0]]), 2.0)
    assert pixels[0, :, 0].tolist() == [0, 64, 128, 128]


def test_what_is_unknown_is_grey():
    values = np.array([[np.nan, np.inf, 1.0]])
    assert heat(values, 1.0)[0, :2].tolist() == [[128] * 3] * 2
    assert lit(np.ones((1, 3, 3)), values, 1.0)[0].tolist() == [[128] * 3, [128] * 3, [255] * 3]


def test_a_coarse_map_covers_blocks_of_the_photo():
    pixels = lit(np.ones((4, 6, 3)), np.array([[0.0, 1.0], [1.0, 0.0]]), 1.0)[..., 0]
    assert pixels[:2, :3].max() == pixels[2:, 3:].max() == 0
    assert pixels[:2, 3:].min() == pixels[2:, :3].min() == 255


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0, 0.0], "all zero"),
        ([0.0, 2.0], "none negative"),
        ([0.0, -2.0], "none positive"),
        ([1.0, -2.0], ""),
        ([np.nan, np.nan], "2 of 2 not finite"),
        ([np.inf, 0.0], "1 of 2 not finite; all zero"),
    ],
)
def test_remark(values, words):
    assert remark(np.array(values)) == words


@pytest.mark.parametrize("shape", [(5, 7), (1, 5, 7), (3, 5, 7), (4, 5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)])
def test_photo_in_any_layout(shape):
    pixels, note = photo_pixels(np.full(shape, 51, np.uint8))
    assert pixels.shape == (5, 7, 3)
    assert pixels.max() == pytest.approx(0.2)
    assert note == ""


def test_size_of_the_map_settles_an_ambiguous_layout():
    photo = np.arange(3 * 4 * 4).reshape(3, 4, 4) / 48
    first, _ = photo_pixels(photo, (4, 4))
    assert first.shape == (4, 4, 3)
    assert first[1, 2].tolist() == photo[:, 1, 2].tolist()


def test_normalised_photo_is_stretched_and_says_so():
    pixels, note = photo_pixels(np.linspace(-2, 2, 12).reshape(2, 2, 3))
    assert (pixels.min(), pixels.max()) == (0, 1)
    assert note == "colours stretched from -2…2"


@pytest.mark.parametrize("shape", [(2, 5, 7), (5, 7, 2), (5,), (3, 0, 7)])
def test_what_is_no_photo(shape):
    with pytest.raises(InputError, match=r"image has shape .* expected \(H, W\)"):
        photo_pixels(np.zeros(shape))


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_png_is_read_back_by_another_library(pixels):
    image = pytest.importorskip("PIL.Image")
    with image.open(io.BytesIO(png(pixels))) as read:
        assert np.array_equal(np.asarray(read), pixels)
