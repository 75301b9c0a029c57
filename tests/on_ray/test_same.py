"""The same study here, on one node and on three: the same files."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from onebasin.engine import open_engine
from onebasin.studies import StudyConfig

from . import toy

ROUNDING = """
import sys
from on_ray import failing
from onebasin.engine import Task, open_engine, run_tasks
with open_engine("ray", address=sys.argv[1], directory=sys.argv[2]) as engine:
    (there,) = run_tasks(engine, [Task("sum", failing.rounded)])
    print(there.value, failing.rounded())
"""


def test_workers_round_as_their_driver_does(nodes: Any, tmp_path: Path) -> None:
    """Whatever the cores of their nodes; here the driver is told to use another number."""
    sums = []
    for threads in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", ROUNDING, nodes.address, str(tmp_path)],
            env={**os.environ, "NPROC": threads, "XLA_FLAGS": ""},
            capture_output=True,
            text=True,
        )
        there, here = done.stdout.split()
        assert there == here
        sums.append(here)
    assert sums[0] != sums[1]


CONFIG = StudyConfig(networks_per_task=2)


def run(folder: Path, **where: Any) -> dict[str, str]:
    said: list[str] = []
    toy.study.run(
        CONFIG,
        folder,
        say=said.append,
        engine=lambda work: open_engine(directory=work, networks_per_task=2, **where),
    )
    assert not any("kept" in line for line in said)
    assert not (folder / "work").exists()
    return toy.checksums(folder)


def test_the_same_study_everywhere(nodes: Any, tmp_path: Path) -> None:
    one = run(tmp_path / "one", name="ray", address=nodes.address)
    while len(nodes.list_all_nodes()) < 3:
        nodes.add_node(num_cpus=1)
    three = run(tmp_path / "three", name="ray", address=nodes.address)
    local = run(tmp_path / "local", name="local")
    assert len(local) == 9
    assert "tables/aligned-cost.csv" in local
    assert (tmp_path / "local/times/aligned-seconds.csv").exists()
    assert one == local
    assert three == local
