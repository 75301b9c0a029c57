"""What runs on large clusters cost, by simulation, from what was measured on a small one.

    python benchmarks/scale_model.py [--measured results/bench/engine.json] [--page docs/scale.md]

A task waits for a free worker and for the driver, which hands out so many per second; it reads
its inputs, computes, writes its result and returns a receipt, which the driver takes. All workers
share the bandwidth and the operations per second of one file system. The events of that queue are
simulated task by task (of many equal tasks a share, scaled), and the busiest part is named. What
drivers and files cost was measured; speed and bandwidth of the large machines are assumptions.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import json
import pathlib
from typing import Any

MOST_SIMULATED = 20_000


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
    whole = end + gathered
    busy = {
        "workers": count * (compute + link) / slots / whole,
        "driver": count / scaled.hand_out / whole,
        "bytes": count * moved / scaled.bandwidth / whole,
        "files": count * work.files / scaled.operations / whole,
        "gathering": gathered / whole,
    }
    return {
        "work": work.name,
        "nodes": cluster.nodes,
        "tasks": work.tasks * work.rounds,
        "seconds": work.rounds * whole,
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
    tiles = 20  # of 1,024 draws: 20,000 draws in all
    pairs = tiles * (tiles + 1) // 2
    aligned = [
        Work(
            f"align 1,000,000 draws of 11M weights, {per_task} to a task, one round",
            draws // per_task,
            per_task * matching,
            per_task * size,
            2 * size,
            # A sum in double precision of every block.
            between=2 * size * draws / per_task,
        )
        for per_task in (16, 256)
    ]
    compared = [
        Work(
            f"MMD of 10,000 x 10,000 draws of {name} weights, in tiles",
            pairs,
            2 * 1024**2 * count,
            2 * 1024 * 4 * count,
            8 * 1024**2,
            between=8 * 20_000**2,
        )
        for name, count in (("400,000", 4e5), ("11M", weights))
    ]
    return [
        Work("train 10,000 OptuNets, 256 to a task", 40, 256 * 3e12, 2e8, 256 * 2064),
        Work("train 10,000 ResNet-18, 1 to a task", 10_000, 1.7e16, 6e8, size),
        *aligned,
        *compared,
        Work("1,000,000 tasks of a tenth of a second", 1_000_000, 5e12, 1e5, 1e5),
    ]


def fitted(found: dict[str, Any]) -> dict[str, float]:
    """The parameters of the model, from what was measured.

    A piece of work takes s + p / workers seconds: s is the driver's part, p is shared out.
    """
    store = found["store"]
    parameters = {
        "tasks per second of a driver": found["tasks"]["tasks per second"],
        "seconds of a round trip": found["tasks"]["seconds of a round trip"],
        "bytes written per second": store["bytes written per second"],
        "bytes checked per second": store["bytes checked per second"],
        "seconds to write a small file": store["seconds to write a small file"],
    }
    for part in ("population", "alignment"):
        row = found[part]
        one, two = (row[f"seconds with {name}"] for name in ("one worker", "two workers"))
        shared = min(max(2 * (one - two), 0.0), one)
        parameters[f"{part}: seconds of a member's tasks"] = shared / row["members"]
        parameters[f"{part}: seconds of the driver for a member"] = (one - shared) / row["members"]
        parameters[f"{part}: speed-up from 1 to 2 workers"] = one / two
        parameters[f"{part}: bytes moved for a byte of weights"] = (
            row["bytes moved per member"] / row["bytes of weights per member"]
        )
    return parameters


def clusters(parameters: dict[str, float]) -> dict[str, Cluster]:
    """Clusters of parts that one can buy, with the driver that was measured."""
    node = Cluster(
        nodes=1,
        slots=8,
        speed=5e13,
        bandwidth=1e10,
        link=3e9,
        operations=2e4,
        hand_out=parameters["tasks per second of a driver"],
    )
    return {
        "10 nodes": dataclasses.replace(node, nodes=10),
        "100 nodes": dataclasses.replace(node, nodes=100, bandwidth=5e10),
        "1,000 nodes": dataclasses.replace(node, nodes=1000, bandwidth=2e11, operations=1e5),
    }


def pages(parameters: dict[str, float], rows: list[dict[str, Any]]) -> dict[str, str]:
    """The tables of the page, by the name of their place."""
    fit = ["| measured and fitted | |", "|---|---|"]
    fit += [f"| {name} | {value:,.3g} |" for name, value in parameters.items()]
    names = list(dict.fromkeys(row["work"] for row in rows))
    places = list(dict.fromkeys(row["cluster"] for row in rows))
    simulated = ["| work | " + " | ".join(places) + " |", "|---|" + "---|" * len(places)]
    for name in names:
        cells = []
        for place in places:
            row = next(r for r in rows if (r["work"], r["cluster"]) == (name, place))
            cells.append(f"{_time(row['seconds'])}, {row['saturated']}")
        simulated.append(f"| {name} | " + " | ".join(cells) + " |")
    return {"fitted": "\n".join(fit), "simulated": "\n".join(simulated)}


def _time(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.3g} {unit}"
    return f"{seconds:,.3g} s"


def renewed(text: str, tables: dict[str, str]) -> str:
    """A page with its tables written anew."""
    for name, table in tables.items():
        head, tail = f"<!-- scale: {name} -->\n", "<!-- end -->"
        before, found, rest = text.partition(head)
        if not found:
            raise ValueError(f"the page has no place for {name!r}")
        text = before + head + table + "\n" + tail + rest.partition(tail)[2]
    return text


def main() -> None:
    """Simulates every piece of work on every cluster."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = pathlib.Path(__file__).parents[1] / "results" / "bench" / "engine.json"
    parser.add_argument("--measured", type=pathlib.Path, default=default, help="engine.json")
    parser.add_argument("--page", type=pathlib.Path, help="a page whose tables are written anew")
    parser.add_argument("--check", action="store_true", help="only say whether they are right")
    # As the other benchmarks have it; what is found follows from engine.json, and is not kept.
    parser.add_argument("--out", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.measured.is_file():
        print(f"needs {args.measured}: run benchmarks/engine.py --out results/bench first")
        return
    parameters = fitted(json.loads(args.measured.read_text(encoding="utf-8")))
    rows = []
    for where, cluster in clusters(parameters).items():
        for work in works():
            row = {"cluster": where, **simulate(work, cluster)}
            rows.append(row)
            busy = ", ".join(f"{name} {share:.0%}" for name, share in row["busy"].items())
            print(f"{where:>12}  {row['work']}: {_time(row['seconds'])} ({busy})")
    if args.page is None:
        return
    text = args.page.read_text(encoding="utf-8")
    right = renewed(text, pages(parameters, rows))
    if args.check:
        raise SystemExit(0 if right == text else f"{args.page} is not what {args.measured} says")
    args.page.write_text(right, encoding="utf-8")


if __name__ == "__main__":
    main()
