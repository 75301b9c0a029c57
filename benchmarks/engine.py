"""Tasks on engines: what one costs, and what a second worker gains.

    python benchmarks/engine.py [--full] [--out results/bench]

Every row is measured in a process of its own, on a private Ray cluster. Populations and alignments
are run once before, so that programs are compiled, then three times with other keys or draws; the
fastest counts. A worker has one thread, so that two have twice as many cores as one. Bytes
moved are those of the inputs and results in the shared directory.
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


def population(workers: int, full: bool) -> dict[str, Any]:
    """Seconds of training a population of OptuNets, 8 to a task."""
    with open_engine("ray", workers=workers, networks_per_task=8) as engine:
        import jax
        import numpy as np

        import onebasin as ob

        count, epochs = (64, 20) if full else (32, 4)
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1000, 28, 28, 1)).astype(np.float32)
        problem = ob.Problem(ob.nets.optunet(outputs=10), (x, rng.integers(0, 10, 1000)))

        def train(seed: int) -> tuple[Any, float]:
            start = time.perf_counter()
            found = ob.infer.ensemble(
                jax.random.key(seed), problem, num_networks=count, epochs=epochs, engine=engine
            )
            return found, time.perf_counter() - start

        _, cold = train(0)
        before = moved(engine.directory)
        found, seconds = train(1)
        left = moved(engine.directory) - before
        seconds = min(seconds, train(2)[1], train(3)[1])
        weights = sum(x[0].size for x in jax.tree.leaves(found.params))
        return {
            "workers": workers,
            "networks": count,
            "weights": weights,
            "first seconds": cold,
            "seconds": seconds,
            "bytes moved per network": left / count,
            "bytes of weights per network": 4 * weights,
        }


def alignment(workers: int, full: bool) -> dict[str, Any]:
    """Seconds of aligning draws of a 784-w-w-10 network, 8 to a task."""
    with open_engine("ray", workers=workers, networks_per_task=8) as engine:
        import jax
        import jax.numpy as jnp

        import onebasin as ob

        count, width = (64, 256) if full else (32, 128)
        net = ob.nets.mlp(hidden=(width, width), outputs=10)
        inputs = jnp.zeros((1, 784))
        params = net.init(jax.random.key(0), inputs)
        symmetry = ob.discover(net.apply, params, inputs)

        def copies(seed: int) -> Any:
            keys = jax.random.split(jax.random.key(seed), count)
            return jax.vmap(lambda key: symmetry.act(symmetry.random(key), _noisy(key, params)))(
                keys
            )

        def align(seed: int) -> tuple[Any, float]:
            draws = copies(seed)
            start = time.perf_counter()
            found = ob.align_many(symmetry, draws, scaling=None, engine=engine)
            return found, time.perf_counter() - start

        _, cold = align(0)
        before = moved(engine.directory)
        found, seconds = align(1)
        left = moved(engine.directory) - before
        seconds = min(seconds, align(2)[1], align(3)[1])
        return {
            "workers": workers,
            "draws": count,
            "weights": sum(x.size for x in jax.tree.leaves(params)),
            "rounds": len(found.history),
            "first seconds": cold,
            "seconds": seconds,
            "bytes moved per draw": left / count,
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
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("needs Ray: run it with .venv-ray/bin/python, which make test-ray sets up")
        return
    if args.part:
        parts = {"tasks": tasks, "store": store}
        by_workers = {"population": population, "alignment": alignment}
        if args.part in parts:
            found = parts[args.part](args.full)
        else:
            found = by_workers[args.part](args.workers, args.full)
        print(MARK + json.dumps(found))
        return
    from shared import record  # type: ignore[import-not-found]

    more = ["--full"] if args.full else []
    result: dict[str, Any] = {"tasks": measured("tasks", *more), "store": measured("store", *more)}
    for part in ("population", "alignment"):
        rows = [measured(part, "--workers", str(n), *more) for n in (1, 2)]
        gain = rows[0]["seconds"] / rows[1]["seconds"]
        result[part] = {"rows": rows, "speed-up from 1 to 2 workers": gain}
    for part, found in result.items():
        print(part)
        rows = found.pop("rows", [])
        for name, value in [
            *found.items(),
            *((k, [r[k] for r in rows]) for k in (rows or [{}])[0]),
        ]:
            shown = value if isinstance(value, list) else [value]
            print(f"{name:>36}  " + "  ".join(f"{v:>14.5g}" for v in shown))
        if rows:
            found["rows"] = rows
    record.save(args.out, "engine", result)


if __name__ == "__main__":
    main()
