"""Tasks that share a GPU: here one that is declared, and a script that tells its size."""

import os
import sys
from pathlib import Path
from typing import Any

from onebasin.engine import Task, open_engine, run_tasks

from . import failing, processes

MEBIBYTE = 2**20


def test_as_many_tasks_share_a_gpu_as_its_memory_takes(nodes: Any, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 1000\n")
    tool.chmod(0o755)
    path = os.pathsep.join([str(tool.parent), os.environ["PATH"]])
    where = {"address": nodes.address, "directory": tmp_path / "shared"}
    with (
        processes.node(sys.executable, nodes, "gpu", cpus=4, gpus=1, PATH=path),
        open_engine("ray", memory=300 * MEBIBYTE, **where) as engine,
    ):
        assert engine.slots == 3
        tasks = [Task(f"task/{i}", failing.side_by_side, (i,)) for i in range(9)]
        found = [receipt.value for receipt in run_tasks(engine, tasks)]
    together = [sum(b <= began < e for b, e, *_ in found) for began, *_ in found]
    assert max(together) == 3
    # Their processes stay, with what they have compiled.
    assert len({pid for _, _, pid, *_ in found}) < 6
    # A third of nine tenths of the four fifths that waiting tasks leave; and the driver's threads.
    threads = os.environ.get("OMP_NUM_THREADS") or str(len(os.sched_getaffinity(0)))
    assert {tuple(rest) for _, _, _, *rest in found} == {("0.2399", threads)}
