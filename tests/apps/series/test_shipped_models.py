"""The shipped classifiers: right on the official test series, and explained as a plain sum over the same network says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import integrand as ig
from integrand.errors import BaselineWarning, InputError, OptionError


@pytest.mark.parametrize(("name", "count"), [("gunpoint", 150), ("motions", 40)])
def test_test_accuracy(name: str, count: int) -> None:
    model = ig.series.load(name)  # type: ignore[arg-type]
    x = torch.from_numpy(np.stack([one.values.T for one, _ in model.examples])).float()
    with torch.no_grad():
        said = [model.classes[i] for i in model.module(x).argmax(1).tolist()]
    assert len(said) == count
    assert np.mean([a == b for a, (_, b) in zip(said, model.examples, strict=True)]) >= 0.97  # the card: all of them


@pytest.mark.parametrize(("name", "row"), [("gunpoint", 3), ("motions", 35)])
def test_values_against_a_plain_sum(name: str, row: int) -> None:
    model = ig.series.load(name)  # type: ignore[arg-type]
    found = model.explain(model.example(row), tol=0.01)
    x = torch.from_numpy(model.example(row).values.T.copy()).float()
    start = x.mean(1, keepdim=True).expand(x.shape)
    nodes = (torch.arange(2000) + 0.5) / 2000
    grads = torch.zeros_like(x)
    for part in nodes.split(500):
        points = (start + part[:, None, None] * (x - start)).requires_grad_()
        chance = model.module(points).softmax(1)[:, model.classes.index(found.label)].sum()
        grads += torch.autograd.grad(chance, points)[0].sum(0) / 2000
    exact = (grads * (x - start)).T.numpy()
    assert np.abs(found.values - exact).sum() <= 0.012 * np.abs(exact).sum()
    assert found.label == found.prediction == model.examples[row][1]
    assert found.meta["model"] == name


def test_a_constant_series_says_gun_or_point_with_equal_chances() -> None:
    model = ig.series.load("gunpoint")
    found = model.explain([one for one, _ in model.examples[:8]], tol=0.1)
    assert all(0.3 < one.certificate.baseline_score < 0.7 for one in found)


def test_someone_who_stands_is_told_that_the_baseline_stands_too() -> None:
    model = ig.series.load("motions")
    row = next(i for i, (_, label) in enumerate(model.examples) if label == "standing")
    with pytest.warns(BaselineWarning, match="has the explained class already"):
        model.explain(model.example(row))


def test_frames_are_taken_by_their_names() -> None:
    pd = pytest.importorskip("pandas")
    model = ig.series.load("motions")
    one = model.example(30)
    frame = pd.DataFrame(one.values, columns=list(model.channels))[list(reversed(model.channels))]
    assert np.allclose(model.explain(frame, tol=0.1).values, model.explain(one, tol=0.1).values, atol=1e-6)
    with pytest.raises(InputError, match="got 2 channels"):
        model.explain(one.values[:, :2])
    with pytest.raises(InputError, match="expected 0 to 39"):
        model.example(40)
    with pytest.raises(OptionError, match="expected one of gunpoint, motions, airline"):
        ig.series.load("sunspots")  # type: ignore[arg-type]
