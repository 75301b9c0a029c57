"""What every node of a cluster must have: this package in this version, and the shared directory.

The functions that are sent to nodes carry all that they need with them, since a node may not have
the package that they come from.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from onebasin.engine.errors import EngineError

PACKAGE = "onebasin"
PROBE_SECONDS = 60.0
UNKNOWN_SECONDS = 2.0
# Of a GPU, for two tasks that wait for others.
WAITING_SHARE = 0.2


def own_version() -> str:
    """The version of this package here."""
    return metadata.version(PACKAGE)


def make_probe(package: str, version: str, trial: str | None) -> Callable[[], dict[str, Any]]:
    """A function that says what is wrong with the node it runs on, if anything is."""

    def probe() -> dict[str, Any]:
        import os
        import socket
        import subprocess
        from importlib import metadata

        fault = None
        try:
            there = metadata.version(package)
        except metadata.PackageNotFoundError:
            there = None
        if there != version:
            has = f"has {package} {there}" if there else f"has no {package}"
            fault = f"{has}, and the driver has {version}: install {package}=={version} there"
        elif trial is not None and not os.path.exists(trial):
            folder = os.path.dirname(trial)
            fault = f"does not see the shared directory {folder}: mount it there, or name another"
        asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout
            gpus = [int(line) * 2**20 for line in answer.split()]
        except (OSError, ValueError, subprocess.SubprocessError):
            gpus = []
        return {"host": socket.gethostname(), "fault": fault, "gpus": gpus}

    return probe


def check_nodes(ray: Any, directory: Path) -> int | None:
    """Asks every node, and refuses the first that cannot take part.

    Returns:
        Bytes of the smallest GPU, if there is one.

    Raises:
        EngineError: If a node has not the package in this version, or does not see the directory.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    trial = directory / f".seen-{secrets.token_hex(4)}"
    trial.touch()
    try:
        alive = {
            node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]
        }
        probe = ray.remote(make_probe(PACKAGE, own_version(), str(trial)))

        def ask(node: str) -> Any:
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            return probe.options(num_cpus=0, scheduling_strategy=where).remote()

        asked = {node: ask(node) for node in alive}
        answers = {node: _answer(ray, asked[node], name) for node, name in alive.items()}
        # A node that has just come, or gone, may not be known to the one that hands out tasks.
        for node in [node for node, answer in answers.items() if answer is None]:
            time.sleep(UNKNOWN_SECONDS)
            if any(other["NodeID"] == node and other["Alive"] for other in ray.nodes()):
                answers[node] = _answer(ray, ask(node), alive[node])
    finally:
        trial.unlink(missing_ok=True)
    known = {node: answer for node, answer in answers.items() if answer is not None}
    for node, answer in known.items():
        if answer["fault"]:
            raise EngineError(f"the node {alive[node]} ({answer['host']}) {answer['fault']}")
    return min((gpu for answer in known.values() for gpu in answer["gpus"]), default=None)


def _answer(ray: Any, reference: Any, name: str) -> dict[str, Any] | None:
    gone = (ray.exceptions.TaskUnschedulableError, ray.exceptions.NodeDiedError)
    try:
        return dict(ray.get(reference, timeout=PROBE_SECONDS))
    except gone:
        return None
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())[:200]
        raise EngineError(
            f"the node {name} does not run tasks ({reason}): look at its logs, or leave it out"
        ) from error


def gpu_share(memory: int | None, smallest: int | None) -> float:
    """The part of a GPU that a task with so much memory takes, such that whole tasks share one.

    Args:
        memory: Bytes of a task; None for a whole GPU.
        smallest: Bytes of the smallest GPU; None where its size is not known.

    Example:
        >>> from onebasin.engine.nodes import gpu_share
        >>> gpu_share(2**33, 2**35), gpu_share(3 * 2**33, 2**35), gpu_share(None, 2**35)
        (0.25, 1.0, 1.0)
    """
    if memory is None or smallest is None:
        return 1.0
    if memory > smallest:
        raise EngineError(
            f"a task may take {memory:,} bytes, and the smallest GPU has {smallest:,}: lower "
            "`memory`, or leave that node out"
        )
    together = min(smallest // memory, 100)
    return math.floor(10000 / together) / 10000
