"""Means of a few runs, and how sure they are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from onebasin.studies.results import interval, middle

RUNS = [0.2, 0.25, 0.31, 6.0, 0.22]


def test_interval_is_that_of_students_test() -> None:
    found = interval(RUNS)
    low, high = stats.ttest_1samp(RUNS, 0.0).confidence_interval(0.95)
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(RUNS), low, high))
    assert low < 0


def test_interval_of_logarithms_stays_above_zero_and_knows_no_unit() -> None:
    found = interval(RUNS, log=True)
    assert found.value == pytest.approx(stats.gmean(RUNS))
    assert 0 < found.low < found.value < found.high
    longer = interval(1000 * np.array(RUNS), log=True)
    assert [longer.value, longer.low, longer.high] == pytest.approx(
        [1000 * found.value, 1000 * found.low, 1000 * found.high]
    )


@pytest.mark.parametrize("log", [False, True])
def test_one_run_has_no_interval(log: bool) -> None:
    found = interval([3.0], log=log)
    assert found.value == pytest.approx(3)
    assert found.low is None
    assert found.high is None


def test_the_middle_of_values_that_may_be_infinite() -> None:
    found = middle(np.array([1.0, 2.0, 3.0, np.inf, np.inf, np.nan]))
    assert (found.value, found.low, found.high) == (3.0, 1.0, None)
    plain = middle(np.array([1.0, 2.0, 4.0, np.nan]))
    assert plain.value == 2.0
    assert plain.high == pytest.approx(2 + 2 * 0.9)
