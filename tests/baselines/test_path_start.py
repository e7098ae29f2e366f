"""How much of the change happens at the very start of a path, and who is told: a norm from zero, in closed form."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.baselines import diagnose
from integrand.baselines.path_start import EARLY, VERY_START, early_shares
from integrand.errors import BaselineWarning
from integrand.profile import Profile
from tests.honesty.story_references import load


def normed(epsilon: float) -> Callable[[Tensor], Tensor]:
    """The size of x, over itself and a little: from 0 to nearly 1, (N, 1)."""

    def model(x: Tensor) -> Tensor:
        square = x.square().sum(1, keepdim=True)
        return square / (square + epsilon)

    return model


def exact(size: float, epsilon: float) -> float:
    """The share of the change of :func:`normed` below a hundredth of the path: the score only rises."""
    start, end = (VERY_START * size) ** 2, size**2
    return start / (start + epsilon) / (end / (end + epsilon))


X = torch.tensor([[0.6, -0.8]], dtype=torch.float64)


def profile_of(t: list[float], mass: list[float], example: list[int] | None = None, piece: list[int] | None = None) -> Profile:
    count, times = len(t), np.array(t)
    groups = [np.array(group or [0] * count) for group in (example, piece)]
    return Profile(*groups, times, times, times, np.array(mass))


@pytest.mark.parametrize("epsilon", [1e-2, 1e-4, 1e-5, 1e-6, 1e-10])
def test_the_share_is_that_of_the_closed_form(epsilon: float) -> None:
    result = ig.integrated_gradients(normed(epsilon), X, 0, tol=0.001)
    assert result.profile is not None
    assert early_shares(result.profile)[0] == pytest.approx(exact(1.0, epsilon), abs=0.02)


def test_shares_of_several_examples_and_pieces() -> None:
    """Constants have 1% in the first hundredth; pieces add up by their mass; nothing has no share."""
    profile = profile_of(
        [0, 1, 0, 1, 0, 0.005, 0.01, 1, 0, 1],
        [7, 7, 1, 1, 0, 200, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 1, 1, 1, 2, 2],
        [0, 0, 0, 0, 1, 1, 1, 1, 0, 0],
    )
    np.testing.assert_allclose(early_shares(profile), [0.01, 1.01 / 2, 0.0])
    assert early_shares(profile_of([0.5], [3.0])).tolist() == [0.0]


@pytest.mark.parametrize("score", ["logit", "probability"])
def test_zeros_that_nobody_chose_are_warned_of(score: str) -> None:
    model = normed(1e-6)
    options = {"score": score}
    with pytest.warns(BaselineWarning, match=r"For 1 of 1 .* \d\d% of the change happens in the first 1% of the path"):
        ig.integrated_gradients(model, X, **options)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ig.integrated_gradients(model, X, 0, **options)  # type: ignore[arg-type]
        ig.integrated_gradients(model, X, torch.zeros_like(X), **options)  # type: ignore[arg-type]
        ig.integrated_gradients(normed(1e-2), X, **options)  # type: ignore[arg-type]


def test_it_names_the_first_example() -> None:
    with pytest.warns(BaselineWarning, match=r"For 2 of 3 example\(s\).* example 1: "):
        ig.integrated_gradients(normed(1e-6), torch.cat([0.01 * X, X, 2 * X]))


def test_nothing_is_evaluated_for_it() -> None:
    calls = []

    def model(x: Tensor) -> Tensor:
        calls.append(len(x))
        return normed(1e-6)(x)

    ig.integrated_gradients(model, X, 0)
    chosen, calls[:] = list(calls), []
    with pytest.warns(BaselineWarning):
        ig.integrated_gradients(model, X)
    assert calls == chosen


@pytest.mark.parametrize("function", [torch.tanh, torch.relu, torch.sigmoid, torch.sin])
def test_ordinary_saturation_is_not_early(function: Callable[[Tensor], Tensor]) -> None:
    result = ig.integrated_gradients(lambda x: function(5 * x).sum(1), X)
    assert result.profile is not None
    assert early_shares(result.profile)[0] < EARLY / 2


def test_a_diagnosis_takes_another_baseline() -> None:
    near, away = torch.zeros_like(X), torch.tensor([[0.0, 0.5]], dtype=X.dtype)  # undecided too, and of ordinary size

    def model(x: Tensor) -> Tensor:
        return torch.stack([8 * normed(1e-6)(x)[:, 0] * (x[:, 0] / x.norm(dim=1).clamp(min=1e-9)), 0 * x[:, 0]], 1)

    found = diagnose(model, X, {"zero": near, "away": away}, score="logit", target=0)
    assert found["zero"].early > EARLY
    assert found["zero"].sudden
    assert not found["zero"].neutral
    assert "change at the very start" in found["zero"].verdict
    assert found.recommended == "away"
    assert "Not neutral: zero (32% of the change happens in the first 1% of the path)." in found.advice
    assert found.to_dict()["rows"][0]["early"] == pytest.approx(found["zero"].early)


def test_where_every_candidate_is_sudden_others_are_named() -> None:
    found = diagnose(normed(1e-6), X, {"zero": 0 * X}, score="logit")
    assert "Try the mean embedding, a real text, or draws of the training set" in found.advice
    assert found["zero"].charge == pytest.approx(exact(1.0, 1e-6) / EARLY, rel=0.03)
    assert math.isfinite(found["zero"].charge)


def test_a_language_model_from_zero_and_from_the_mean_embedding(data: Callable[[str], Path]) -> None:
    network, tokenizer = load(data("language-model/stories260K.bin").parent, torch.float64)
    embeddings = network.model.get_input_embeddings()
    x = embeddings(tokenizer("Lily and Tom went to the", return_tensors="pt").input_ids)
    mean = embeddings.weight.mean(0).expand_as(x).clone()
    mean[:, 0] = x[:, 0]
    found = diagnose(network, x, {"zero": torch.zeros_like(x), "mean": mean}, score="logit")
    assert found["zero"].early == pytest.approx(0.816, abs=0.02)  # python -m benchmarks.zero_baseline: 56% to 82%
    assert found["mean"].early < VERY_START
    assert found.recommended == "mean"
    assert found["zero"].verdict == "near zero, change at the very start"
    assert "82% of the change happens in the first 1% of the path: from this baseline the model hardly sees" in found.advice
    with pytest.warns(BaselineWarning, match="82% of the change"):
        ig.integrated_gradients(network, x, tol=0.05)
