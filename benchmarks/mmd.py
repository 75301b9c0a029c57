"""MMD between two populations of networks on disk, against one dense distance matrix.

    python benchmarks/mmd.py [--full] [--out results/bench]

Ours reads both populations from a run on disk within a memory budget and computes all distances:
within x, within y and across. The dense ways compute the distances across alone, from arrays in
memory: SciPy's cdist, and NumPy's subtraction of one row at a time (all at once would need
terabytes). They are timed on a part of the pairs and scaled up. Floors: what the matrix products
alone take (Gaussian), and two vector additions for each weight and pair at the rate of those
products (Laplace), which has no product; and reading all weights once.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from shared import record  # type: ignore[import-not-found]

import onebasin as ob

BUDGET = 2**31
METRICS = {"gaussian": "sqeuclidean", "laplace": "cityblock"}
SHARD = 100


def populations(folder: str, draws: int, weights: int) -> Any:
    """Two populations as streams of a run: normal weights, those of the second a bit wider."""
    rng = np.random.default_rng(0)
    run = ob.store.Run.create(pathlib.Path(folder) / "run", {})
    for _ in range(0, draws, SHARD):
        with run.transaction() as t:
            for name, scale in (("x", 1.0), ("y", 1.01)):
                rows = rng.standard_normal((min(SHARD, draws), weights), dtype=np.float32)
                t.append(name, {"w": scale * rows})
    return run.stream("x"), run.stream("y")


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, seconds of processor time, and the result."""
    start, used = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - start, time.process_time() - used, found


class Peak:
    """The most memory that a block took beyond what was there, mapped files left out."""

    def __enter__(self) -> Peak:
        self._start = self.most = _anonymous()
        self._running = True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._thread.join()
        self.most -= self._start

    def _watch(self) -> None:
        while self._running:
            self.most = max(self.most, _anonymous())
            time.sleep(0.02)


def _anonymous() -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return 0


def by_rows(x: np.ndarray, y: np.ndarray, kernel: str) -> np.ndarray:
    """Distances across with NumPy, a row of x at a time."""
    if kernel == "laplace":
        return np.stack([np.abs(y - row).sum(axis=1) for row in x])
    return np.stack([np.square(y - row).sum(axis=1) for row in x])


def dense(x: Any, y: Any, kernel: str, part: int) -> dict[str, float]:
    """Seconds of the dense ways for all pairs across, from `part` rows of either side."""
    scale = len(x) * len(y) / part**2
    a, b = (np.array(stream.leaf("w", slice(part))) for stream in (x, y))
    doubles = [rows.astype(float) for rows in (a, b)]
    scipy_seconds, scipy_used, _ = timed(lambda: cdist(*doubles, METRICS[kernel]))
    numpy_seconds, numpy_used, _ = timed(lambda: by_rows(a, b, kernel))
    return {
        "cdist seconds": scale * scipy_seconds,
        "cdist processor seconds": scale * scipy_used,
        "NumPy seconds": scale * numpy_seconds,
        "NumPy processor seconds": scale * numpy_used,
    }


def floors(draws: int, weights: int) -> dict[str, float]:
    """Seconds of the products, of the additions, and of reading all weights once."""
    count, width = 2 * draws, 4096
    block = np.random.default_rng(0).standard_normal((count, width), dtype=np.float32)
    product = min(timed(lambda: block @ block.T)[0] for _ in range(3)) * weights / width
    other = block.copy()
    full = min(timed(lambda: block @ other.T)[0] for _ in range(3)) * weights / width
    # Half of all pairs, two additions each, where the product has one multiply-add for all pairs.
    much = np.ones(2**26, np.float32)
    reading = min(timed(much.sum)[0] for _ in range(3)) * count * weights / much.size
    return {"gaussian": product, "laplace": full, "reading": reading}


def measure(x: Any, y: Any, kernel: str, weights: int, part: int) -> dict[str, Any]:
    """One column of the table."""
    with Peak() as peak:
        seconds, used, found = timed(lambda: ob.mmd(x, y, kernel=kernel, memory=BUDGET))
    floor = floors(len(x), weights)
    row: dict[str, Any] = {
        "kernel": kernel,
        "draws": len(x),
        "weights": weights,
        "seconds": seconds,
        "processor seconds": used,
        "peak bytes": peak.most,
        "floor seconds": floor[kernel],
        "reading seconds": floor["reading"],
        **dense(x, y, kernel, part),
        "MMD": float(found),
    }
    row["seconds over floor"] = seconds / floor[kernel]
    row["ratio to cdist"] = row["cdist seconds"] / seconds
    row["ratio to NumPy"] = row["NumPy seconds"] / seconds
    row["ratio to cdist, processor"] = row["cdist processor seconds"] / used
    row["ratio to NumPy, processor"] = row["NumPy processor seconds"] / used
    return row


def main() -> None:
    """Runs both kernels and prints the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="1,000 draws of 400,000 weights a side")
    parser.add_argument("--out", type=pathlib.Path, help="folder for mmd.json")
    args = parser.parse_args()
    draws, weights, part = (1000, 400_000, 40) if args.full else (300, 40_000, 40)
    with tempfile.TemporaryDirectory() as folder:
        x, y = populations(folder, draws, weights)
        # What is compiled once is not part of the work.
        warm = [np.ones((draws, 4096), np.float32) for _ in "xy"]
        rows = []
        for kernel in METRICS:
            ob.mmd(*warm, kernel=kernel)
            rows.append(measure(x, y, kernel, weights, part))
    for name in rows[0]:
        cells = [row[name] for row in rows]
        shown = [f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells]
        print(f"{name:>26}  {shown[0]:>12}  {shown[1]:>12}")
    # On a busy machine processor time says more than seconds.
    load = os.getloadavg()[0]
    record.save(args.out, "mmd", {"budget bytes": BUDGET, "load average": load, "rows": rows})


if __name__ == "__main__":
    main()
