"""Sensitivity-n: 1 on linear models, and against enumeration by hand on others."""

import itertools
import json
import math

import numpy as np
import pytest
import torch

from integrand.comparison import CAUTION, sensitivity_n
from integrand.comparison._sensitivity import correlated
from integrand.errors import InputError, OptionError

from .conftest import WEIGHTS

ONES = torch.ones(1, 4, dtype=torch.float64)
VALUES = torch.tensor([WEIGHTS], dtype=torch.float64)


def test_one_for_every_n_on_a_linear_model(linear):
    found = sensitivity_n(linear, ONES, VALUES, sizes=[1, 2, 3])
    assert found.correlations == pytest.approx(np.ones((1, 3)))
    assert found.counts.tolist() == [4, 6, 4]
    assert found.complete.all()
    assert not found.errors.any()


def test_one_where_subsets_are_drawn_too():
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(30, generator=generator, dtype=torch.float64)
    x = torch.randn(3, 30, generator=generator, dtype=torch.float64)
    found = sensitivity_n(lambda x: x @ weights, x, x * weights, sizes=[2, 10, 29], subsets=25)
    assert found.correlations == pytest.approx(np.ones((3, 3)))
    assert found.errors == pytest.approx(np.zeros((3, 3)), abs=1e-9)
    assert found.counts.tolist() == [25, 25, 25]
    assert found.complete.tolist() == [False, False, False]
    assert found.mean == pytest.approx(np.ones(3))
    opposite = sensitivity_n(lambda x: x @ weights, x, -x * weights, sizes=[2], subsets=25)
    assert opposite.correlations == pytest.approx(-np.ones((3, 1)))


def test_all_subsets_of_a_score_with_interactions_by_hand():
    def model(x):
        return x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] * x[:, 4] + x[:, 0]

    x = torch.tensor([[1.0, 2.0, 3.0, 0.5, -1.0]], dtype=torch.float64)
    base = torch.full_like(x, 0.25)
    values = torch.tensor([[1.0, 5.0, -2.0, 0.5, 2.0]], dtype=torch.float64)
    sums, drops = [], []
    for a, b in itertools.combinations(range(5), 2):
        point = x.clone()
        point[0, [a, b]] = base[0, [a, b]]
        sums.append(float(values[0, a] + values[0, b]))
        drops.append(float(model(x) - model(point)))
    found = sensitivity_n(model, x, values, base, sizes=[2])
    assert found.counts.tolist() == [10]
    assert found.correlations[0, 0] == pytest.approx(np.corrcoef(sums, drops)[0, 1])


def test_standard_errors_are_the_jackknifes():
    generator = np.random.default_rng(0)
    a = generator.normal(size=40)
    b = 0.5 * a + generator.normal(size=40)
    found, error = correlated(a, b)
    assert found == pytest.approx(np.corrcoef(a, b)[0, 1])
    left_out = [np.corrcoef(np.delete(a, i), np.delete(b, i))[0, 1] for i in range(40)]
    assert error == pytest.approx(math.sqrt(39 / 40 * np.sum((left_out - np.mean(left_out)) ** 2)))


def test_standard_errors_cover_the_truth():
    # Normal numbers with correlation 0.6: two standard errors hold it about 95 times in 100.
    generator = np.random.default_rng(1)
    a = generator.normal(size=(300, 60))
    b = 0.6 * a + 0.8 * generator.normal(size=(300, 60))
    pairs = [correlated(p, q) for p, q in zip(a, b, strict=True)]
    assert 0.88 < np.mean([abs(r - 0.6) < 2 * e for r, e in pairs]) < 0.99


def test_without_variation_there_is_no_correlation(linear):
    everything = sensitivity_n(linear, ONES, VALUES, sizes=[4])
    assert everything.counts.tolist() == [1]
    assert np.isnan(everything.correlations).all()
    constant = sensitivity_n(linear, ONES, torch.full_like(VALUES, 0.1), sizes=[2])
    assert np.isnan(constant.correlations).all()
    # Either factor takes the whole product along, but for float32's rounding of large terms.
    product = sensitivity_n(lambda x: (x.prod(1) / 3 + 1e4) - 1e4, torch.ones(1, 5), torch.arange(5.0)[None], sizes=[1])
    assert np.isnan(product.correlations).all()
    assert "–" in str(product)


def test_groups_and_dicts():
    def model(a, b):
        return a.sum(1) + 2 * b.sum(1)

    x = {"a": torch.ones(1, 2), "b": torch.ones(1, 2)}
    values = {"a": torch.ones(1, 2), "b": torch.full((1, 2), 2.0)}
    groups = {"a": torch.tensor([0, 0]), "b": torch.tensor([1, 2])}
    found = sensitivity_n(model, x, values, groups=groups, sizes=[1, 2])
    assert found.units == 3
    assert np.isnan(found.correlations[0, 0])  # all three groups are worth 2
    uneven = sensitivity_n(model, x, values, groups=groups | {"b": torch.tensor([1, -1])}, sizes=[1])
    assert uneven.units == 2
    merged = sensitivity_n(model, x, values, groups={"a": torch.tensor([0, 1]), "b": torch.tensor([1, 2])}, sizes=[1, 2])
    assert merged.correlations == pytest.approx(np.ones((1, 2)))


def test_default_sizes_reach_from_one_to_most_features():
    x = torch.arange(1.0, 101.0)[None]
    found = sensitivity_n(lambda x: x.sum(1), x, x, subsets=5)
    assert found.sizes[0] == 1
    assert found.sizes[-1] == 80
    assert (np.diff(found.sizes) > 0).all()
    assert len(found.sizes) <= 10
    one = sensitivity_n(lambda x: x.sum(1), x[:, :1], x[:, :1])
    assert one.sizes.tolist() == [1]


def test_the_same_seed_draws_the_same_subsets_however_it_runs():
    x = torch.randn(2, 20, generator=torch.Generator().manual_seed(0))

    def model(x):
        return torch.tanh(x).sum(1)

    first, rows, other = (sensitivity_n(model, x, x, sizes=[5], subsets=20, **how) for how in ({}, {"chunk": 3}, {"seed": 1}))
    assert rows.correlations == pytest.approx(first.correlations, abs=1e-5)
    assert not np.allclose(other.correlations, first.correlations, atol=1e-5)
    assert (first.errors > 0).all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sizes": []}, OptionError, "from 1 to 4"),
        ({"sizes": [5]}, OptionError, "from 1 to 4"),
        ({"sizes": [0]}, OptionError, "got sizes=0"),
        ({"subsets": 2}, OptionError, "got subsets=2; expected a whole number from 3 on"),
        ({"attribution": torch.ones(2, 2)}, InputError, "attribution has shapes"),
    ],
)
def test_options_that_make_no_sense(linear, options, error, words):
    with pytest.raises(error, match=words):
        sensitivity_n(linear, ONES, **{"attribution": VALUES} | options)


def test_text_and_json_carry_the_caution(linear, tmp_path):
    found = sensitivity_n(linear, ONES, VALUES, sizes=[1, 4])
    assert "4 (all)" in str(found)
    assert "1.000 ± 0.000" in str(found)
    assert str(found).endswith(CAUTION)
    read = json.loads(found.save(tmp_path / "found.json").read_text(encoding="utf-8"))
    assert read == found.to_dict()
    assert read["sizes"] == [1, 4]
    assert read["correlations"][0][1] is None
    assert "the model as much as the method" in " ".join(sensitivity_n.__doc__.split())
