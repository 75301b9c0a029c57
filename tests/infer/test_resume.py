"""A process that is killed goes on where it was, and ends with the same draws, bit for bit."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

import onebasin as ob

SCRIPT = """
import sys
import jax
sys.path.insert(0, {tests!r})
from infer.test_resume import run_all
run_all({folder!r})
print("done")
"""


def run_all(folder: str | Path) -> list[np.ndarray]:
    """Methods whose states differ in kind, in chunks of one step."""
    from infer.problems import small_network

    problem = small_network()
    folder = Path(folder)
    found = [
        ob.infer.ensemble(
            jax.random.key(0), problem, num_networks=2, epochs=30, run=folder / "ensemble", chunk=1
        ),
        ob.infer.sghmc(
            jax.random.key(1),
            problem,
            num_chains=2,
            num_samples=15,
            num_warmup=10,
            thin=5,
            init="prior",
            run=folder / "sghmc",
            chunk=1,
        ),
        ob.infer.hmc(
            jax.random.key(2),
            problem,
            num_chains=2,
            num_samples=12,
            num_warmup=10,
            init="random",
            run=folder / "hmc",
            chunk=1,
        ),
    ]
    return [np.asarray(leaf) for draws in found for leaf in jax.tree.leaves(draws)]


def test_killed_at_random_moments(tmp_path) -> None:
    tests = str(Path(__file__).parents[1])
    script = SCRIPT.format(tests=tests, folder=str(tmp_path / "killed"))
    moments = random.Random(0)
    kills = 0
    for attempt in range(40):
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # Until something is on disk nothing can be lost; then any moment will do.
        began = time.time()
        before = progress(tmp_path / "killed")
        while process.poll() is None and progress(tmp_path / "killed") == before:
            assert time.time() - began < 200, "no progress"
            time.sleep(0.02)
        if attempt < 2:
            time.sleep(moments.uniform(0, 1.0))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
        out, error = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, error
    assert "done" in out
    assert kills >= 1
    for resumed, straight in zip(
        run_all(tmp_path / "killed"), run_all(tmp_path / "straight"), strict=True
    ):
        np.testing.assert_array_equal(resumed, straight)


def progress(folder: Path) -> int:
    """How many bytes and files there are; it changes with every saved chunk."""
    try:
        return sum(1 + f.stat().st_size for f in folder.rglob("*") if f.is_file())
    except FileNotFoundError:
        return -1


def test_a_run_can_be_read_by_others(tmp_path) -> None:
    """The draws of a finished run, by their paths, without the method that made them."""
    from .problems import small_network

    draws = ob.infer.ensemble(
        jax.random.key(0), small_network(), num_networks=2, epochs=6, every=2, run=tmp_path / "run"
    )
    run = ob.store.Run.open(tmp_path / "run")
    run.check()
    stored = run.stream("training")
    assert len(stored) == 6
    assert stored.leaf("mode").tolist() == [0, 1, 0, 1, 0, 1]
    path = next(p for p in stored.paths if p.endswith("Dense_0/kernel"))
    kernels = stored.leaf(path)[np.array([0, 2, 4, 1, 3, 5])]
    np.testing.assert_array_equal(
        kernels, next(x for x in jax.tree.leaves(draws.params) if x.shape == kernels.shape)
    )
    assert run.config["method"] == "ensemble"
