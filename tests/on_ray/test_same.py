"""The same study here, on one node and on three: the same files."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from onebasin.engine import open_engine

from . import studying, toy

SETTINGS = """
import sys
from on_ray import failing
from onebasin.engine import Task, open_engine, run_tasks
with open_engine("ray", address=sys.argv[1], directory=sys.argv[2]) as engine:
    tasks = [Task("sum", failing.rounded), Task("links", failing.keepalive)]
    there = {receipt.key: receipt.value for receipt in run_tasks(engine, tasks)}
    print(there["sum"], failing.rounded())
    print([there["links"], failing.keepalive()])
"""


def test_workers_round_and_watch_their_links_as_their_driver_does(
    nodes: Any, tmp_path: Path
) -> None:
    """Whatever their nodes were started with; here the driver is told otherwise.

    How long a link may be silent is left to us: it must be asked all the same.
    """
    plain = {name: value for name, value in os.environ.items() if "keepalive" not in name}
    sums = []
    for threads in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", SETTINGS, nodes.address, str(tmp_path)],
            env={
                **plain,
                "NPROC": threads,
                "XLA_FLAGS": "",
                "RAY_grpc_client_keepalive_timeout_ms": "4000",
            },
            capture_output=True,
            text=True,
        )
        rounded, links = done.stdout.splitlines()[-2:]
        there, here = rounded.split()
        assert there == here
        assert links == str([[10_000, 4000], [10_000, 4000]])
        sums.append(here)
    assert sums[0] != sums[1]


def run(folder: Path, **where: Any) -> dict[str, str]:
    said: list[str] = []
    study, config = studying.chosen()
    study.run(
        config,
        folder,
        say=said.append,
        engine=lambda work: open_engine(
            directory=work, networks_per_task=config.networks_per_task, **where
        ),
    )
    assert not any("kept" in line for line in said)
    assert not (folder / "work").exists()
    return toy.checksums(folder)


def test_the_same_study_everywhere(
    nodes: Any, tmp_path: Path, undisturbed: tuple[dict[str, str], float]
) -> None:
    one = run(tmp_path / "one", name="ray", address=nodes.address)
    while len(nodes.list_all_nodes()) < 3:
        nodes.add_node(num_cpus=1)
    three = run(tmp_path / "three", name="ray", address=nodes.address)
    local, _ = undisturbed
    assert one == local
    assert three == local
