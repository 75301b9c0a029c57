"""How many threads a product takes, where several alignments run side by side."""

import concurrent.futures
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np  # noqa: F401 - the library that is limited
from threadpoolctl import threadpool_info

import onebasin as ob
from onebasin._core.cores import SHORT, one_blas_thread, threads_for_products
from onebasin.align.assignment import Assignment
from onebasin.align.matching import largest_product


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


def test_short_products_take_one_thread_and_long_ones_all():
    before = blas_threads()
    with threads_for_products(SHORT - 1):
        assert blas_threads() == {1}
    assert blas_threads() == before
    with threads_for_products(SHORT):
        assert blas_threads() == before


def test_the_largest_product_of_an_alignment():
    net = ob.nets.mlp(hidden=(7, 5), outputs=11)
    x = jnp.ones((1, 3))
    symmetry = ob.discover(net.apply, net.init(jax.random.key(0), x), x)
    # 5 x 11 with itself along the 5: fewer than the 7 x 5 between the layers along the 7.
    assert largest_product(symmetry) == max(3 * 7 * 7, 7 * 5 * 7, 5 * 11 * 5)


def test_cores_are_those_of_the_process():
    """A container or a job of two cores on a host of sixty-four has two."""
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from onebasin._core.cores import num_cores; print(num_cores())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "ONEBASIN_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
