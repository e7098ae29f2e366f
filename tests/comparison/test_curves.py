"""Deletion and insertion curves against sums done by hand."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from integrand import integrated_gradients
from integrand.comparison import CAUTION, deletion_curve, insertion_curve
from integrand.errors import InputError, NonFiniteError, OptionError, RowsError

from .conftest import WEIGHTS

ONES = torch.ones(1, 4, dtype=torch.float64)
VALUES = torch.tensor([WEIGHTS], dtype=torch.float64)  # 3, -2, 1, 1/4: what a linear model's features contribute at ones


@pytest.mark.parametrize(
    ("curve", "by", "scores"),
    [
        # F = 1 + what is left; 3, 1, 1/4, -2 go in this order.
        (deletion_curve, "value", [3.25, 0.25, -0.75, -1.0, 1.0]),
        (insertion_curve, "value", [1.0, 4.0, 5.0, 5.25, 3.25]),
        # 3, -2, 1, 1/4.
        (deletion_curve, "magnitude", [3.25, 0.25, 2.25, 1.25, 1.0]),
        (insertion_curve, "magnitude", [1.0, 4.0, 2.0, 3.0, 3.25]),
    ],
)
def test_linear_model_by_hand(linear, curve, by, scores):
    found = curve(linear, ONES, VALUES, by=by)
    assert found.fractions.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert found.scores[0] == pytest.approx(scores)
    relative = (np.array(scores) - 1) / 2.25
    assert found.relative[0] == pytest.approx(relative)
    assert found.areas[0] == pytest.approx((relative[1:] + relative[:-1]).sum() / 8)


def test_the_order_of_the_values_is_the_best_of_an_additive_score(linear):
    for curve in (deletion_curve, insertion_curve):
        found = curve(linear, ONES, VALUES, orders=200)
        ends = found.scores[0, [0, -1]]
        assert np.array_equal(found.random[:, 0, [0, -1]], np.broadcast_to(ends, (200, 2)))
        best = found.random_areas.min() if curve is deletion_curve else found.random_areas.max()
        # One order in 24 is the same.
        assert found.areas[0] == pytest.approx(best)
        assert 0.9 < found.ahead_of[0] < 1
        worst = curve(linear, ONES, -VALUES, orders=200)
        assert worst.ahead_of[0] < 0.1


def test_random_orders_of_an_additive_score_fall_on_a_line(linear):
    found = deletion_curve(linear, ONES, VALUES, orders=400, seed=1)
    areas = found.random_areas[:, 0]
    assert abs(areas.mean() - 0.5) < 5 * areas.std() / math.sqrt(400)


def test_steps_take_equal_parts(linear):
    found = deletion_curve(linear, ONES, VALUES, steps=2)
    assert found.fractions.tolist() == [0, 0.5, 1]
    assert found.scores[0] == pytest.approx([3.25, -0.75, 1.0])
    many = deletion_curve(lambda x: x.sum(1), torch.ones(1, 10), torch.arange(10.0)[None], steps=4)
    assert (many.fractions * 10).tolist() == [0, 2, 5, 8, 10]
    assert many.scores[0].tolist() == [10, 8, 5, 2, 0]


def test_every_example_has_its_own_order(linear):
    x = torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 4]], dtype=torch.float64)
    values = x * VALUES
    values[1, :3] = torch.tensor([-3.0, -2, -1])
    found = deletion_curve(linear, x, values)
    assert found.scores == pytest.approx(np.array([[3.25, 0.25, -0.75, -1, 1], [2.0, 1, 1, 1, 1]]))
    assert found.random.shape == (10, 2, 5)


def test_features_go_to_the_baseline_and_several_baselines_average(linear):
    twos = 2 * torch.ones_like(ONES)
    found = deletion_curve(linear, ONES, VALUES, [torch.zeros_like(ONES), twos], steps=1)
    # F is 1 at zero and 1 + 2 * 2.25 at two.
    assert found.scores[0] == pytest.approx([3.25, (1 + 5.5) / 2])


@pytest.mark.parametrize("per_group", [True, False])
def test_groups_go_together_and_minus_one_stays(linear, per_group):
    groups = torch.tensor([0, 0, 2, -1])  # 3 - 2 = 1 together, and 1; label 1 is not used
    values = torch.tensor([[1.5, 99.0, 1.0]], dtype=torch.float64) if per_group else VALUES * torch.tensor([1.5, 1, 1, 1])
    found = deletion_curve(linear, ONES, values, groups=groups)
    assert found.units == 2
    assert found.scores[0] == pytest.approx([3.25, 2.25, 1.25])


def test_one_label_for_the_colours_of_a_pixel():
    image = torch.arange(12.0).reshape(1, 3, 2, 2)
    found = deletion_curve(lambda x: x.sum((1, 2, 3)), image, image, groups=torch.arange(4).reshape(2, 2))
    # Pixels hold 12, 15, 18 and 21; the largest goes first.
    assert found.scores[0].tolist() == [66, 45, 27, 12, 0]


def test_dicts_and_single_examples():
    def model(a, b):
        return (a * torch.tensor([1.0, 2.0])).sum() + 3 * b.sum()

    x = {"a": torch.ones(2), "b": torch.ones(1)}
    result = integrated_gradients(model, x, batched=False)
    found = insertion_curve(model, x, result, batched=False)
    assert found.scores[0] == pytest.approx([0, 3, 5, 6])


def test_order_among_equals_is_by_chance():
    weights = torch.tensor([5.0, 0, 0, 0, 0, 0])
    seconds = {
        float(deletion_curve(lambda x: x @ weights, torch.ones(1, 6), torch.zeros(1, 6), seed=seed, orders=1).scores[0, 3])
        for seed in range(20)
    }
    assert seconds == {0.0, 5.0}


def test_the_same_seed_gives_the_same_orders_however_it_runs(linear):
    whole = deletion_curve(linear, ONES, VALUES, seed=5)
    rows = deletion_curve(linear, ONES, VALUES, seed=5, chunk=1)
    other = deletion_curve(linear, ONES, VALUES, seed=6)
    assert np.array_equal(whole.random, rows.random)
    assert not np.array_equal(whole.random, other.random)


def test_a_score_that_does_not_change_has_no_area():
    found = deletion_curve(lambda x: x[:, 0] - x[:, 1], torch.ones(1, 2), torch.tensor([[1.0, -1.0]]))
    assert found.scores[0].tolist() == [0, -1, 0]
    assert np.isnan(found.areas).all()
    assert np.isnan(found.ahead_of).all()
    assert found.to_dict()["areas"] == [None]


def test_layers_are_perturbed_where_they_are():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1, bias=False)).eval()
    x = torch.tensor([[1.0, 2.0]])
    hidden = model[0](x)[0].detach().double()
    parts = (hidden * model[1].weight[0].double()).detach()
    found = deletion_curve(model, x, parts[None].float(), layer="0")
    left = parts.sum() - torch.cat([torch.zeros(1), parts.sort(descending=True).values.cumsum(0)])
    assert found.scores[0] == pytest.approx(left.numpy(), abs=1e-6)


def test_the_model_is_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.ones(2, 3)
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    deletion_curve(model, x, x)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_rows_that_influence_each_other_are_found():
    with pytest.raises(RowsError):
        deletion_curve(lambda x: x.sum(1) - x.mean(), torch.ones(1, 3), torch.ones(1, 3))


def test_scores_have_to_be_finite():
    with pytest.raises(NonFiniteError, match="with 2 of 2 features removed"):
        deletion_curve(lambda x: x.sum(1).log(), torch.ones(1, 2), torch.ones(1, 2))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"steps": 0}, OptionError, "got steps=0; expected a whole number from 1 on"),
        ({"orders": 1.5}, OptionError, "got orders=1.5"),
        ({"by": "size"}, OptionError, "got by='size'; expected 'value' or 'magnitude'"),
        ({"attribution": torch.ones(1, 3)}, InputError, r"shapes \[\(1, 3\)\]; expected \[\(1, 4\)\]"),
        ({"attribution": torch.full((1, 4), math.nan)}, InputError, "NaN or infinite"),
        ({"attribution": ONES, "groups": torch.tensor([3, 2, 1, 0])}, None, ""),
        ({"attribution": VALUES, "groups": torch.tensor([3, 2, 1, 0])}, InputError, "expected to be able to tell"),
    ],
)
def test_options_that_make_no_sense(linear, options, error, words):
    options = {"attribution": VALUES} | options
    if error is None:
        assert deletion_curve(linear, ONES, **options).units == 4
        return
    with pytest.raises(error, match=words):
        deletion_curve(linear, ONES, **options)


def test_text_and_json_carry_the_caution(linear, tmp_path):
    found = insertion_curve(linear, ONES, VALUES)
    text = str(found)
    assert text.startswith("insertion curve of 4 features in 4 steps, largest value first")
    assert "high area" in text
    assert text.endswith(CAUTION)
    read = json.loads(found.save(tmp_path / "curve.json").read_text(encoding="utf-8"))
    assert read == found.to_dict()
    assert read["scores"] == found.scores.tolist()
    assert read["random_areas"] == found.random_areas.tolist()
    assert read["caution"] == CAUTION
    with pytest.raises(OptionError, match=r"expected \.png"):
        found.save(tmp_path / "curve.html")
    with pytest.raises(OptionError, match="for pictures"):
        found.save(tmp_path / "curve.json", name="x")


def test_docstrings_say_what_is_measured():
    for curve in (deletion_curve, insertion_curve):
        words = " ".join(curve.__doc__.split())
        assert "the model as much as the method" in words
        assert "trained on" in words
        assert "a choice of its own" in words
