"""Tasks on engines: what one costs, and what a second worker gains.

    python benchmarks/engine.py [--full] [--out results/bench]

Every part is measured in a process of its own, on a private Ray cluster of two workers. Populations
and alignments are run once before, so that programs are compiled, then with other keys or draws on
one worker and on two by turns; the fastest of each counts. A worker has one thread, so that two
have twice as many cores as one. Bytes moved are those of inputs and results in the shared
directory.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from onebasin.engine import Engine, Task, open_engine, run_tasks

MARK = "measured: "


def tiny(number: int) -> int:
    """A task that does nothing."""
    return number


def rate(engine: Engine, count: int) -> float:
    """Tasks per second."""
    start = time.perf_counter()
    done = sum(1 for _ in run_tasks(engine, (Task(f"t{i}", tiny, (i,)) for i in range(count))))
    assert done == count
    return count / (time.perf_counter() - start)


def tasks(full: bool) -> dict[str, Any]:
    """Start, round trip, rate against Ray's own, and the rate of the local engine."""
    count = 10_000 if full else 2000
    start = time.perf_counter()
    with open_engine("ray", workers=2) as engine:
        opened = time.perf_counter() - start
        start = time.perf_counter()
        list(run_tasks(engine, [Task("first", tiny, (0,))]))
        first = time.perf_counter() - start
        rate(engine, 200)
        start = time.perf_counter()
        for i in range(100):
            list(run_tasks(engine, [Task(f"one-{i}", tiny, (i,))]))
        trip = (time.perf_counter() - start) / 100
        import ray

        plain = ray.remote(tiny)
        ray.get([plain.remote(i) for i in range(200)])
        ours, rays = [], []
        for _ in range(3):
            ours.append(rate(engine, count))
            start = time.perf_counter()
            ray.get([plain.remote(i) for i in range(count)])
            rays.append(count / (time.perf_counter() - start))
    with open_engine("local") as local:
        here = rate(local, count)
    return {
        "seconds to start": opened,
        "seconds of the first task": first,
        "seconds of a round trip": trip,
        "tasks per second": max(ours),
        "tasks per second of Ray itself": max(rays),
        "share of Ray's rate": max(ours) / max(rays),
        "tasks per second, local": here,
    }


def store(full: bool) -> dict[str, Any]:
    """What it costs to write, check and read sealed files."""
    import numpy as np

    from onebasin.store.sealed import is_sealed, seal

    size = 2**27 if full else 2**25
    with tempfile.TemporaryDirectory() as folder:
        small, large = (pathlib.Path(folder) / name for name in ("small", "large"))
        start = time.perf_counter()
        for i in range(50):
            seal(small, str(i), {"x": np.zeros(10)})
        operation = (time.perf_counter() - start) / 50
        values = np.random.default_rng(0).integers(0, 255, size, np.uint8)
        start = time.perf_counter()
        seal(large, "q", {"x": values})
        written = size / (time.perf_counter() - start)
        start = time.perf_counter()
        assert is_sealed(large, "q")
        checked = size / (time.perf_counter() - start)
    return {
        "seconds to write a small file": operation,
        "bytes written per second": written,
        "bytes checked per second": checked,
    }


def moved(folder: pathlib.Path) -> int:
    """Bytes of inputs and results in the shared directory."""
    return sum(p.stat().st_size for p in folder.rglob("*.safetensors"))


class AtATime:
    """An engine on which so many tasks run at a time, whatever it could."""

    def __init__(self, engine: Engine, tasks: int):
        self._engine = engine
        self.window = self.slots = tasks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def by_turns(engine: Engine, work: Callable[[Any, int], Any], turns: int) -> dict[str, Any]:
    """The fastest of some runs with one and with two workers, by turns: others use the machine."""
    best = {1: float("inf"), 2: float("inf")}
    for turn in range(2 * turns):
        workers = 1 + turn % 2
        start = time.perf_counter()
        work(AtATime(engine, workers), turn + 1)
        best[workers] = min(best[workers], time.perf_counter() - start)
    return {
        "seconds with one worker": best[1],
        "seconds with two workers": best[2],
        "speed-up from 1 to 2 workers": best[1] / best[2],
    }


def population(full: bool) -> dict[str, Any]:
    """Training a population of OptuNets, 8 to a task."""
    with open_engine("ray", workers=2, networks_per_task=8) as engine:
        import jax
        import numpy as np

        import onebasin as ob

        count, epochs = (64, 20) if full else (32, 2)
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1000, 28, 28, 1)).astype(np.float32)
        problem = ob.Problem(ob.nets.optunet(outputs=10), (x, rng.integers(0, 10, 1000)))

        def train(on: Any, seed: int) -> Any:
            key = jax.random.key(seed)
            return ob.infer.ensemble(key, problem, num_networks=count, epochs=epochs, engine=on)

        found = train(engine, 0)
        before = moved(engine.directory)
        train(engine, 1000)
        weights = sum(x[0].size for x in jax.tree.leaves(found.params))
        return {
            "members": count,
            "weights": weights,
            "bytes moved per member": (moved(engine.directory) - before) / count,
            "bytes of weights per member": 4 * weights,
            **by_turns(engine, train, 4),
        }


def alignment(full: bool) -> dict[str, Any]:
    """Aligning draws of a 784-w-w-10 network to their mean, 8 to a task."""
    with open_engine("ray", workers=2, networks_per_task=8) as engine:
        import jax
        import jax.numpy as jnp

        import onebasin as ob

        count, width = (64, 512) if full else (32, 256)
        net = ob.nets.mlp(hidden=(width, width), outputs=10)
        inputs = jnp.zeros((1, 784))
        params = net.init(jax.random.key(0), inputs)
        symmetry = ob.discover(net.apply, params, inputs)

        def copies(seed: int) -> Any:
            keys = jax.random.split(jax.random.key(seed), count)
            return jax.vmap(lambda k: symmetry.act(symmetry.random(k), _noisy(k, params)))(keys)

        drawn = {seed: jax.block_until_ready(copies(seed)) for seed in range(9)}

        def align(on: Any, seed: int) -> Any:
            return ob.align_many(symmetry, drawn[seed], scaling=None, engine=on)

        before = moved(engine.directory)
        found = align(engine, 0)
        weights = sum(x.size for x in jax.tree.leaves(params))
        return {
            "members": count,
            "weights": weights,
            "rounds": len(found.history),
            "bytes moved per member": (moved(engine.directory) - before) / count,
            "bytes of weights per member": 4 * weights,
            **by_turns(engine, align, 4),
        }


def _noisy(key: Any, params: Any) -> Any:
    import jax

    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.fold_in(key, 1), len(leaves))
    noisy = [
        x + 0.3 * x.std() * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, noisy)


def measured(*part: str) -> dict[str, Any]:
    """One part, in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--part", *part]
    one_thread = {**os.environ, "NPROC": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=one_thread)
    line = next(line for line in done.stdout.splitlines() if line.startswith(MARK))
    return dict(json.loads(line.removeprefix(MARK)))


def main() -> None:
    """Measures all and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="larger populations, more tasks")
    parser.add_argument("--out", type=pathlib.Path, help="folder for engine.json")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("needs Ray: run it with .venv-ray/bin/python, which make test-ray sets up")
        return
    if args.part:
        parts = {f.__name__: f for f in (tasks, store, population, alignment)}
        found = parts[args.part](args.full)
        print(MARK + json.dumps(found))
        return
    from shared import record  # type: ignore[import-not-found]

    more = ["--full"] if args.full else []
    result = {part: measured(part, *more) for part in ("tasks", "store", "population", "alignment")}
    for part, found in result.items():
        print(part)
        for name, value in found.items():
            print(f"{name:>36}  {value:>14.5g}")
    record.save(args.out, "engine", result)


if __name__ == "__main__":
    main()
