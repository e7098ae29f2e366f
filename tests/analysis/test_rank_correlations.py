"""Rank correlations against scipy, and where there is nothing to rank."""

import numpy as np
import pytest

from integrand.analysis.comparison_result import mean_over_examples, rank_correlations, ranks

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("kinds", [1, 2, 5, 1000])
def test_ranks_share_ties(kinds):
    row = np.random.default_rng(kinds).integers(0, kinds, 200).astype(float)
    assert np.array_equal(ranks(row), stats.rankdata(row))


@pytest.mark.parametrize("levels", [3, 10, 10**6])
def test_correlations_are_spearmans(levels):
    rows = np.random.default_rng(levels).integers(0, levels, (5, 300)).astype(float)
    rows[1] += rows[0]
    assert rank_correlations(rows) == pytest.approx(stats.spearmanr(rows, axis=1).statistic, abs=1e-12)


def test_a_constant_map_has_no_order_and_takes_nobody_along():
    rows = np.array([[1.0, 2.0, 3.0], [7.0, 7.0, 7.0], [1.0, np.nan, 3.0], [9.0, 4.0, -1.0]])
    found = rank_correlations(rows)
    assert np.isnan(found[[1, 2]]).all()
    assert np.isnan(found[:, [1, 2]]).all()
    assert found[np.ix_([0, 3], [0, 3])] == pytest.approx(np.array([[1.0, -1.0], [-1.0, 1.0]]))


def test_infinite_values_have_a_rank():
    assert rank_correlations(np.array([[1.0, 2.0, np.inf], [1.0, 2.0, 3.0]]))[0, 1] == pytest.approx(1.0)


def test_means_leave_out_what_is_unknown():
    nan = np.nan
    found = mean_over_examples(np.array([[1.0, nan, nan], [3.0, 5.0, nan]]))
    assert found[:2].tolist() == [2.0, 5.0]
    assert np.isnan(found[2])
