"""What importing onebasin leaves as it was: random states, the environment, warning filters."""

import os
import subprocess
import sys

import pytest

TOLD = """
import os, random, sys, warnings
random.seed(0)
{first}
import numpy
numpy.random.seed(0)
{then}
state = numpy.random.get_state()
print(random.random(), state[1].sum(), state[2])
print(sorted(os.environ.keys() - {{"PYTEST_CURRENT_TEST"}}))
print(warnings.filters)
"""
ALL = "import onebasin; [getattr(onebasin, name) for name in onebasin.__all__]"
# What has been made by hand before is opened from elsewhere as well.
ROOMS = "from onebasin.infer import hmc; from onebasin.engine import run_tasks"
# The product of two matrices on one thread, and a bar, bring libraries along.
USED = """
import onebasin
from onebasin._core.cores import one_blas_thread
from onebasin.engine.progress import Bar
with one_blas_thread(), Bar("tasks", 3, 0, enabled=True):
    pass
"""


def told(first: str = "pass", then: str = "pass") -> str:
    script = TOLD.format(first=first, then=then)
    # Neither may be there before.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("KMP_", "TPU_", "TF_"))}
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def of_jax() -> str:
    return told("import jax")


def test_importing_does_what_importing_jax_does_and_no_more(of_jax: str) -> None:
    assert told("import onebasin") == of_jax


@pytest.mark.parametrize("then", [ALL, USED], ids=["all names", "in use"])
def test_what_comes_later_leaves_no_trace(of_jax: str, then: str) -> None:
    assert told("import jax", then) == of_jax


def test_rooms_that_are_opened_directly_do_not_draw_random_numbers(of_jax: str) -> None:
    assert told("import jax", ROOMS).splitlines()[0] == of_jax.splitlines()[0]
