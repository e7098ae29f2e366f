"""The estimate of segment secants, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from integrand.execute._segments import Spans, _strands
from integrand.quadrature._secants import FACTOR, FEW_FEATURES, FEW_SEGMENTS, estimate, features, segments


def test_many_features_and_segments_leave_the_factor() -> None:
    """A million equal features, ten thousand equal segments whose changes add up: little more than FACTOR + the change."""
    change = torch.full((1_000_000,), 1e-8, dtype=torch.float64)
    found = estimate(change, np.full(10_000, 1e-6), 0.0, 1.0)
    assert found == pytest.approx((FACTOR + 0.01) * 0.01, rel=0.02)


def test_few_features_and_few_segments_raise_it() -> None:
    change = torch.zeros(100, dtype=torch.float64)
    change[7] = 0.01
    norms = np.array([0.01, 0.0, 0.0])
    raised = (1 + FEW_FEATURES) * (1 + FEW_SEGMENTS)
    assert estimate(change, norms, 0.0, 1.0) == pytest.approx((FACTOR + 0.01) * 0.01 * raised)


def test_segments_that_cancel_count_by_the_root_of_their_squares() -> None:
    """Changes of opposite sign: their sum is zero, the error is not."""
    found = estimate(torch.zeros(5, dtype=torch.float64), np.array([3.0, 4.0]), 0.0, 100.0)
    assert found >= FACTOR * 5.0


def test_what_is_missed_is_the_least_error() -> None:
    assert estimate(torch.zeros(5), np.zeros(3), -0.25, 1.0) == 0.25
    assert estimate(torch.zeros(5), np.zeros(3), 0.0, 0.0) == 0.0
    assert estimate(torch.ones(5), np.ones(3), 0.0, 0.0) == np.inf


def test_effective_numbers() -> None:
    assert features(torch.ones(9)) == pytest.approx(9)
    assert segments(np.array([1e-200, 1e-200])) == pytest.approx(2)
    assert segments(np.array([5.0, 0.0, 0.0])) == 1
    assert features(torch.zeros(3)) == segments(np.zeros(3)) == 1


@pytest.mark.parametrize("rows", [1, 3, 4, 16])
def test_strands_hold_every_segment_once_and_in_a_row(rows: int) -> None:
    times = np.r_[np.arange(8) / 16, 0.75, 0.875]
    stop = np.r_[np.arange(1, 9) / 16, 0.875, 1.0]
    spans = Spans(np.r_[times, times], np.r_[stop, stop], np.repeat([0, 1], 10), np.zeros(20, np.int64))
    strands = _strands(spans, rows)
    assert sorted(np.concatenate(strands)) == list(range(20))
    for strand in strands:
        assert (spans.stop[strand[:-1]] == spans.start[strand[1:]]).all()
        assert len(set(spans.rows[strand])) == 1
    assert [len(strand) for strand in strands] == sorted((len(strand) for strand in strands), reverse=True)
