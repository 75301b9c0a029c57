"""A budget is kept, measured as the peak resident set of a process, and changes no draws."""

import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

import onebasin as ob
from onebasin.infer.cohorts import Gathered, cohorts

from .test_methods import quick, same

MIB = 2**20
# Compiling takes some memory as well, whatever is compiled.
COMPILING = 100 * MIB
PROGRAM = """
import os, sys, threading, time
import jax, numpy as np
import onebasin as ob

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

rng = np.random.default_rng(0)
x, y = rng.normal(size=(200, 784)).astype(np.float32), rng.integers(0, 10, 200)
problem = ob.Problem(ob.nets.mlp(hidden=(1024,), outputs=10), (x, y))

def train(count):
    options = {options}
    found = ob.infer.ensemble(jax.random.key(0), problem, num_networks=count, **options)
    return jax.block_until_ready(found.params)

train(2)
before, peak, ended = resident(), 0, False

def watch():
    global peak
    while not ended:
        peak = max(peak, resident())
        time.sleep(0.002)

thread = threading.Thread(target=watch)
thread.start()
found = train({count})
ended = True
thread.join()
print(peak - before, sum(leaf.nbytes for leaf in jax.tree.leaves(found)))
"""


def peak_of(count: int, **options: Any) -> tuple[int, int]:
    """How far a process's memory rises while it trains, and how much of that is the result."""
    script = PROGRAM.replace("{options}", repr(options)).replace("{count}", str(count))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak, size = map(int, done.stdout.split())
    return peak, size


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_ensemble_takes_its_budget_beside_its_result() -> None:
    """Without it, several times the result: optimisers and gradients of all networks at once."""
    memory = 50 * MIB
    peak, size = peak_of(64, memory=memory, epochs=1)
    assert size > 180 * MIB
    assert peak < size + memory + COMPILING


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_networks_kept_along_the_way_are_the_result() -> None:
    memory = 80 * MIB
    peak, size = peak_of(16, memory=memory, epochs=4, every=1)
    assert size > 180 * MIB
    assert peak < size + memory + COMPILING


BUDGETS = {
    "ensemble": 12_000,
    "swag": 40_000,
    "laplace": 40_000,
    "dropout": 30_000,
    "mean_field": 40_000,
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_changes_no_networks(name: str, tmp_path) -> None:
    """Seven of them, in cohorts or all at once, bit for bit; on disk as well."""
    found = quick(name, num_networks=7)
    memory = BUDGETS[name]
    assert same(found, quick(name, num_networks=7, memory=memory))
    assert same(found, quick(name, num_networks=7, memory=memory, run=tmp_path / "run"))
    kept = [path for path in (tmp_path / "run").rglob("*") if "training-" in path.name]
    assert kept or name in ("mean_field",)
    assert same(found, quick(name, num_networks=7, memory=memory, run=tmp_path / "run"))
    assert np.shape(found.info["loss"])[1] == 7


def test_snapshots_of_cohorts_are_in_their_order() -> None:
    options = {"num_networks": 5, "epochs": 6, "every": 2}
    found = quick("ensemble", **options)
    assert same(found, quick("ensemble", memory=12_000, **options))
    assert found.statistics["epoch"].tolist() == [2, 4, 6] * 5


@pytest.mark.parametrize("name", ["hmc", "nuts"])
def test_a_budget_changes_no_chains_or_says_that_they_do_not_fit(name: str) -> None:
    memory = {"hmc": 12_000, "nuts": 40_000}[name]
    found = quick(name, num_chains=6)
    assert same(found, quick(name, num_chains=6, memory=10**9))
    with pytest.raises(MemoryError, match=r"6 chains are one program, which needs [\d,]+ bytes"):
        quick(name, num_chains=6, memory=memory)


def test_a_run_keeps_its_grouping(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a budget makes groups, other groups are another question."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    precision = {"precision": "highest", "num_chains": 6, "init": "prior"}
    found = quick("hmc", memory=10**9, run=tmp_path / "run", **precision)
    assert same(found, quick("hmc", memory=10**8, run=tmp_path / "run", **precision))
    with pytest.raises(ob.store.StoreError, match=r"begun with 6 .* this budget lets \d in"):
        quick("hmc", memory=10_000, run=tmp_path / "run", **precision)


@pytest.mark.parametrize("members", range(1, 40))
def test_cohorts_are_all_members_and_fit(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEBASIN_THREADS", "2")
    for memory in range(50, 1000, 50):
        try:
            parts = cohorts(members, memory, 10, 30, 1)
        except MemoryError:
            assert memory < 2 * 10 + 30
            continue
        assert [n for part in parts for n in range(members)[part]] == list(range(members))
        sizes = [part.stop - part.start for part in parts]
        assert min(sizes) >= min(2, members)
        assert max(sizes) - min(sizes) <= 1


def test_what_is_gathered_is_in_its_place() -> None:
    gathered = Gathered(5)
    whole = {"a": np.arange(10.0).reshape(5, 2), "b": jax.numpy.arange(5)}
    for rows in (slice(0, 2), slice(2, 5)):
        gathered.put(rows, jax.tree.map(lambda x, rows=rows: x[rows], whole))
    assert same(gathered.tree, whole)


def test_a_budget_too_small_for_two_networks_says_so() -> None:
    with pytest.raises(MemoryError, match=r"2 networks, the fewest .* need [\d,]+ bytes"):
        quick("ensemble", num_networks=3, memory=3_000)
