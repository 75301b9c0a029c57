"""How many threads a product takes, where several alignments run side by side."""

import concurrent.futures
import threading

import numpy as np  # noqa: F401 - the library that is limited
from threadpoolctl import threadpool_info

from onebasin._cores import one_blas_thread
from onebasin.align.assignment import Assignment


def blas_threads():
    return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}


def test_the_first_to_come_may_be_the_first_to_leave():
    """One enters, another enters, the first leaves: the limit stays, and then goes."""
    entered, joined, left = (threading.Event() for _ in range(3))

    def first():
        with one_blas_thread():
            entered.set()
            joined.wait(10)
        left.set()

    before = blas_threads()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ended = pool.submit(first)
        assert entered.wait(10)
        with one_blas_thread():
            joined.set()
            assert left.wait(10)
            assert blas_threads() == {1}
        ended.result()
        assert blas_threads() == before


def test_assignments_take_no_more_than_the_share_of_a_worker(monkeypatch):
    monkeypatch.setenv("ONEBASIN_THREADS", "3")
    assert Assignment()._threads == 3
