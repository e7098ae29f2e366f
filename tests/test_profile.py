"""What the integration saw on the path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import integrand as ig

X = torch.tensor([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]], dtype=torch.float64)


def squares(x: Tensor) -> Tensor:
    return (x**2 * torch.tensor([1.0, -1.0, 2.0], dtype=x.dtype)).sum(1)


@pytest.mark.parametrize("options", [{}, {"steps": 12}, {"steps": 7, "chunk": 3}, {"chunk": 1}])
def test_scores_slopes_and_mass_along_the_line(options: dict[str, int]) -> None:
    """F(t x) = t² F(x): its slope is 2t F(x), and the magnitudes add up to 2t sum|w x²|."""
    profile = ig.integrated_gradients(squares, X, **options).profile
    assert profile is not None
    sizes = (X**2 * torch.tensor([1.0, 1.0, 2.0], dtype=X.dtype)).sum(1)
    for example in range(2):
        one = profile.of(example)
        assert len(one) >= 7
        assert (np.diff(one.t) > 0).all()
        np.testing.assert_allclose(one.score, one.t**2 * float(squares(X)[example]), rtol=1e-12)
        np.testing.assert_allclose(one.slope, 2 * one.t * float(squares(X)[example]), rtol=1e-12)
        np.testing.assert_allclose(one.mass, 2 * one.t * float(sizes[example]), rtol=1e-12)
        assert profile.of(example).reached(0.25) == pytest.approx(0.5, abs=0.02)  # mass grows with t, its integral with t²


def test_every_gradient_is_listed_once_and_the_ends_are_there() -> None:
    result = ig.integrated_gradients(lambda x: (40 * x).sin().sum(1), X[:, :1], tol=1e-4)
    assert result.profile is not None
    for example in range(2):
        one = result.profile.of(example)
        assert len(one) <= result.certificate[example].gradients
        assert (one.t[0], one.t[-1]) == (0, 1)


def test_pieces_of_a_polyline_and_several_baselines() -> None:
    middle = torch.zeros_like(X)
    middle[:, 0] = X[:, 0]
    profile = ig.path_attribution(squares, ig.Polyline([torch.zeros_like(X), middle, X])).profile
    assert profile is not None
    assert set(profile.piece.tolist()) == {0, 1}
    first = profile.of(1, piece=0)
    np.testing.assert_allclose(first.score, first.t**2 * 9, rtol=1e-12)
    assert set(ig.integrated_gradients(squares, X, [0.0, 1.0, 2.0]).profile.piece.tolist()) == {0, 1, 2}


def test_groups_are_what_the_mass_is_taken_over() -> None:
    profile = ig.integrated_gradients(squares, X, groups=torch.tensor([0, 0, 0])).profile
    np.testing.assert_allclose(profile.mass, np.abs(profile.slope), rtol=1e-12)


def test_it_is_saved_with_the_values(tmp_path: Path) -> None:
    result = ig.integrated_gradients(squares, X)
    again = ig.Attribution.load(result.save(tmp_path / "x.safetensors")).profile
    for column in ("example", "piece", "t", "score", "slope", "mass"):
        np.testing.assert_array_equal(getattr(again, column), getattr(result.profile, column))
    gradient = ig.methods.Gradient()(squares, X)
    assert gradient.profile is None
    assert ig.Attribution.load(gradient.save(tmp_path / "y.safetensors")).profile is None


def test_a_score_without_gradient_has_no_mass() -> None:
    with pytest.warns(ig.errors.ZeroAttributionWarning):
        profile = ig.integrated_gradients(lambda x: (0 * x).sum(1), X).profile
    assert np.isnan(profile.reached(0.5))
