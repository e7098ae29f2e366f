"""Integrated gradients of the retinopathy grader concentrate on lesions: IDRiD's photos, with exudates marked by experts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from benchmarks.lesions import TARGET, WIDER, by_chance, cases, concentration, widened
from integrand.apps import retina

pytestmark = pytest.mark.slow  # a fixture that the tests share takes seconds

STEPS = 4
"""Gradients per photo, for the sake of time. Single pixels are then far from converged, shares of regions are not: in the
three photos that were tried the concentration is within 7% of that at a tolerance of 5%."""


def test_concentration_counts_what_is_positive_and_inside():
    values = np.array([[4.0, -9.0, 1.0], [2.0, 3.0, 50.0]])
    inside = np.array([[True, True, True], [True, True, False]])
    lesions = np.array([[True, True, False], [False, False, True]])
    found = concentration(values, inside, lesions)
    assert found == pytest.approx({"share": 4 / 10, "area": 2 / 5, "ratio": 1.0})
    assert concentration(np.ones((2, 3)), inside, lesions)["ratio"] == pytest.approx(1)


@pytest.mark.parametrize("by", [0, 1, 3, 8])
def test_lesions_are_widened_by_a_distance(by):
    mask = np.random.default_rng(0).random((60, 70)) > 0.99
    assert np.array_equal(widened(mask, by), ndimage.distance_transform_edt(~mask) <= by)


@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (3, 7), (10, 12), (12, 12)])
def test_the_sign_test_is_the_binomial_one(successes, trials):
    expected = stats.binomtest(successes, trials, alternative="greater").pvalue
    assert by_chance(successes, trials) == pytest.approx(expected)


@pytest.fixture(scope="module")
def found(data):
    """Concentrations of the twelve photos: those of integrated gradients, gradient x image, and a random map."""
    pytest.importorskip("efficientnet_lite_pytorch")
    grader, rows = retina.load("cpu"), []
    for case in cases(data("retina/idrid")):
        x, target = grader.input(case.eye).requires_grad_(), grader.find(TARGET)
        (slope,) = torch.autograd.grad(grader.network.module(x)[0, target], x)
        x = x.detach()
        maps = {
            "integrated": grader.explain(case.eye, target=target, steps=STEPS, tol=1.0).values,
            "gradient": slope * (x - grader.baseline(case.eye, "black")),
            "random": torch.randn(x.shape, generator=torch.Generator().manual_seed(0)),
        }
        lesions = widened(case.lesions, WIDER[0])
        rows.append({name: concentration(a[0].double().sum(0).numpy(), case.eye.inside, lesions) for name, a in maps.items()})
    return {name: np.array([row[name]["ratio"] for row in rows]) for name in rows[0]}


def test_a_random_map_does_not_concentrate(found):
    assert len(found["random"]) == 12
    assert np.median(found["random"]) == pytest.approx(1, abs=0.05)


def test_integrated_gradients_concentrate_on_lesions(found):
    ratios = found["integrated"]
    assert by_chance(int((ratios > 1).sum()), len(ratios)) < 0.05
    assert np.median(ratios) > 1.5 * np.median(found["random"])


def test_integrated_gradients_concentrate_more_than_gradient_times_image(found):
    more = int((found["integrated"] > found["gradient"]).sum())
    assert by_chance(more, len(found["gradient"])) < 0.05
