"""Opening the engine that is a Ray cluster: started or joined, checked, and left again."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from onebasin.engine import cluster, nodes
from onebasin.engine.directory import check_directory
from onebasin.engine.errors import EngineError
from onebasin.engine.ray import RayEngine, Settings
from onebasin.engine.refusals import forget


def open_ray(
    directory: str | Path | None,
    address: str | None,
    workers: int | None,
    memory: int | None,
    *,
    networks_per_task: int | None,
    retries: int,
) -> RayEngine:
    """Starts or joins a cluster and sees that every node can take part; see `open_engine`.

    Raises:
        EngineError: If it cannot be used.
    """
    if address is not None and directory is None:
        raise EngineError(
            f"the cluster at {address!r} needs a directory that all of its nodes see: name one"
        )
    cluster.check_installed()
    folders: list[Path] = []
    if directory is None:
        folders.append(Path(tempfile.mkdtemp(prefix="onebasin-")))
        directory = folders[0]
    place = Path(directory).resolve()
    check_directory(place)
    present = sys.modules.get("ray")
    joined = present is not None and present.is_initialized()
    if not joined and address is None:
        folders.append(cluster.start_private(workers))
    elif not joined and address is not None:
        cluster.connect(address)
    ray = cluster.imported()

    def shut() -> None:
        if not joined:
            ray.shutdown()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    try:
        private = not joined and address is None
        smallest = (
            None
            if private and not ray.cluster_resources().get("GPU")
            else (nodes.check_nodes(ray, place))
        )
        roomiest = max(
            int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"]
        )
        options, waiting = task_options(ray.cluster_resources(), memory, smallest, roomiest)
        slots = max(1, int(ray.cluster_resources().get("CPU", 1)))
        if options.get("num_gpus"):
            slots = max(1, int(ray.cluster_resources()["GPU"] / options["num_gpus"]))
        forget(place)
        settings = Settings(str(place), slots, networks_per_task, retries, options, waiting)
        return RayEngine(settings, shut)
    except BaseException:
        shut()
        raise


def task_options(
    resources: dict[str, float], memory: int | None, smallest_gpu: int | None, roomiest: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a task asks of its node, from the memory that it may take; and one that waits.

    Args:
        resources: What the nodes have together.
        memory: Bytes of a task, if they are limited.
        smallest_gpu: Bytes of the smallest GPU, if there is one whose size is known.
        roomiest: Bytes of the node that has the most memory for tasks.

    Raises:
        EngineError: If no node has so much, which Ray would wait for without a word.
    """
    # Tries are counted here, with those of tasks that fail by themselves.
    options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
    waiting: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
    if resources.get("GPU"):
        share = (1 - nodes.WAITING_SHARE) * nodes.gpu_share(memory, smallest_gpu)
        options |= _on_gpu(round(share, 4))
        waiting |= _on_gpu(nodes.WAITING_SHARE / 2)
    elif memory is not None:
        if memory > roomiest:
            raise EngineError(
                f"a task may take {memory:,} bytes, and no node has more than {roomiest:,} for "
                "tasks: lower `memory`"
            )
        options["memory"] = memory
    return options, waiting


def _on_gpu(share: float) -> dict[str, Any]:
    fraction = str(round(0.9 * share, 4))
    environment = {"env_vars": {"XLA_PYTHON_CLIENT_MEM_FRACTION": fraction}}
    return {"num_gpus": share, "runtime_env": environment}
