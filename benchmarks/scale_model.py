"""What runs on large clusters cost, by simulation, from what was measured on a small one.

    python benchmarks/scale_model.py [--measured results/bench/engine.json] [--out results/bench]

A task waits for a free worker and for the driver, which hands out so many per second; it reads
its inputs, computes, writes its result and returns a receipt, which the driver takes. All workers
share the bandwidth and the operations per second of one file system. The events of that queue are
simulated task by task (of many equal tasks a share, scaled), and the busiest part is named.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import json
import pathlib
from typing import Any

MOST_SIMULATED = 200_000


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Machines, and the file system that they share.

    Attributes:
        nodes: How many.
        slots: Tasks at a time on each.
        speed: Multiplies and additions per second of a slot.
        bandwidth: Bytes per second that the file system moves, for all together.
        link: Bytes per second of one node.
        operations: Files opened, written or renamed per second, for all together.
        hand_out: Tasks per second that one driver hands out and takes back.
    """

    nodes: int
    slots: int
    speed: float
    bandwidth: float
    link: float
    operations: float
    hand_out: float


@dataclasses.dataclass(frozen=True)
class Work:
    """Equal tasks, in rounds that wait for each other.

    Attributes:
        name: What it is.
        tasks: Tasks of a round.
        flops: Of one task.
        read: Bytes that a task reads.
        written: Bytes that it writes.
        files: Operations on files.
        rounds: How many rounds.
        between: Bytes that the driver reads between rounds.
    """

    name: str
    tasks: int
    flops: float
    read: float
    written: float
    files: int = 4
    rounds: int = 1
    between: float = 0.0


def simulate(work: Work, cluster: Cluster) -> dict[str, Any]:
    """Seconds of a piece of work, and how busy each part of the cluster was."""
    share = max(1, -(-work.tasks // MOST_SIMULATED))
    count, slots = work.tasks // share, max(1, cluster.nodes * cluster.slots // share)
    scaled = dataclasses.replace(
        cluster,
        bandwidth=cluster.bandwidth / share,
        operations=cluster.operations / share,
        hand_out=cluster.hand_out / share,
    )
    moved = work.read + work.written
    link = moved / (cluster.link / cluster.slots)
    compute = work.flops / cluster.speed
    free = [0.0] * slots
    heapq.heapify(free)
    driver = disk = files = 0.0
    end = 0.0
    for _ in range(count):
        driver += 1 / scaled.hand_out
        start = max(heapq.heappop(free), driver)
        # One queue for bytes and one for operations: a task is served when its turn has come.
        disk = max(disk, start) + moved / scaled.bandwidth
        files = max(files, start) + work.files / scaled.operations
        done = max(start + compute + link, disk, files)
        heapq.heappush(free, done)
        end = max(end, done)
    gathered = work.between / cluster.link
    seconds = work.rounds * (end + gathered)
    busy = {
        "workers": count * (compute + link) / (slots * end),
        "driver": count / scaled.hand_out / end,
        "bytes": count * moved / scaled.bandwidth / end,
        "files": count * work.files / scaled.operations / end,
        "gathering": gathered / (end + gathered),
    }
    return {
        "work": work.name,
        "nodes": cluster.nodes,
        "tasks": work.tasks * work.rounds,
        "seconds": seconds,
        "task seconds": compute + link,
        "busy": busy,
        "saturated": max(busy, key=lambda name: busy[name]),
    }


def works() -> list[Work]:
    """The plans: what the design is asked to carry."""
    weights, draws = 11e6, 1_000_000
    size = 4 * weights
    # Coordinate descent on a ResNet-18: a few products of every layer with the centre, per round.
    matching = 20 * weights * 512
    per_task = 16
    tiles = 20  # of 1,024 draws: 20,000 draws in all
    pairs = tiles * (tiles + 1) // 2
    small = 400_000
    return [
        Work("train 10,000 OptuNets, 256 to a task", 40, 256 * 3e10, 2e8, 256 * 1600),
        Work("train 10,000 ResNet-18, 1 to a task", 10_000, 1.7e16, 6e8, size),
        Work(
            "align 1,000,000 draws of 11M weights, 16 to a task, a round",
            draws // per_task,
            per_task * matching,
            per_task * size,
            2 * size,
            between=2 * size * draws / per_task,
        ),
        Work(
            "the same, sums of 64 blocks added up by tasks first",
            draws // per_task,
            per_task * matching,
            per_task * size,
            2 * size,
            between=2 * size * draws / per_task / 64,
        ),
        Work(
            "MMD of 10,000 x 10,000 draws of 400,000 weights, in tiles",
            pairs,
            2 * 1024**2 * small,
            2 * 1024 * 4 * small,
            8 * 1024**2,
            between=8 * 20_000**2,
        ),
        Work(
            "MMD of 10,000 x 10,000 draws of 11M weights, in tiles",
            pairs,
            2 * 1024**2 * weights,
            2 * 1024 * size,
            8 * 1024**2,
            between=8 * 20_000**2,
        ),
        Work("1,000,000 tasks of a tenth of a second", 1_000_000, 1e10, 1e5, 1e5),
    ]


def fitted(path: pathlib.Path) -> dict[str, float]:
    """What the measurements say: rates of the driver, the store and a worker."""
    found = json.loads(path.read_text(encoding="utf-8"))
    store = found["store"]
    return {
        "hand_out": found["tasks"]["tasks per second"],
        "written": store["bytes written per second"],
        "operation": store["seconds to write a small file"],
    }


def clusters(measured: dict[str, float]) -> dict[str, Cluster]:
    """The machine that was measured, and larger ones with parts that one can buy."""
    here = Cluster(
        nodes=1,
        slots=2,
        speed=2e10,
        bandwidth=measured["written"],
        link=measured["written"],
        operations=1 / measured["operation"],
        hand_out=measured["hand_out"],
    )
    node = dataclasses.replace(here, slots=8, speed=5e13, link=3e9, operations=2e4)
    return {
        "2 cores": here,
        "10 nodes": dataclasses.replace(node, nodes=10, bandwidth=1e10),
        "100 nodes": dataclasses.replace(node, nodes=100, bandwidth=5e10),
        "1,000 nodes": dataclasses.replace(node, nodes=1000, bandwidth=2e11, operations=1e5),
    }


def main() -> None:
    """Simulates every piece of work on every cluster."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = pathlib.Path(__file__).parents[1] / "results" / "bench" / "engine.json"
    parser.add_argument("--measured", type=pathlib.Path, default=default, help="engine.json")
    parser.add_argument("--out", type=pathlib.Path, help="folder for scale_model.json")
    args = parser.parse_args()
    if not args.measured.is_file():
        print(f"needs {args.measured}: run benchmarks/engine.py --out results/bench first")
        return
    measured = fitted(args.measured)
    rows = []
    for where, cluster in clusters(measured).items():
        for work in works():
            row = {"cluster": where, **simulate(work, cluster)}
            rows.append(row)
            print(
                f"{where:>12}  {row['work']:<62}  {row['tasks']:>9,} tasks  "
                f"{row['seconds']:>12,.0f} s  {row['saturated']}"
            )
    from shared import record  # type: ignore[import-not-found]

    record.save(args.out, "scale_model", {"measured": measured, "rows": rows})


if __name__ == "__main__":
    main()
