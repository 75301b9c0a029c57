"""Drivers and the processes of nodes, to be looked at and killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def start(*arguments: Any, module: str = "driver", **environment: str) -> "subprocess.Popen[bytes]":
    """A driver in a process of its own.

    Its pipes have no buffers: what a line read ahead would be lost to `communicate`.
    """
    return subprocess.Popen(
        [sys.executable, "-m", f"on_ray.{module}", *map(str, arguments)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )


def ended(driver: "subprocess.Popen[bytes]") -> list[int]:
    """The receipts of a driver that comes to its end."""
    output, errors = driver.communicate(timeout=180)
    lines = output.decode().split("\n")
    assert "end" in lines, errors.decode()[-3000:]
    return [int(line) for line in lines if line.isdigit()]


def parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(entry.name)] = int(fields[1])
    return found


def below(*roots: int) -> set[int]:
    """All processes that some processes have started."""
    tree = parents()
    found: set[int] = set()
    while True:
        more = {pid for pid, parent in tree.items() if parent in {*roots, *found}} - found
        if not more:
            return found
        found |= more


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def raylet(node: Any) -> int:
    return node.all_processes["raylet"][0].process.pid


def workers(*nodes: Any) -> list[int]:
    """The processes that run tasks."""
    found = below(*(raylet(node) for node in nodes))
    return [pid for pid in sorted(found) if title(pid).startswith(("ray::call", "ray::IDLE"))]


@contextlib.contextmanager
def node(
    python: str, nodes: Any, name: str, cpus: int = 1, gpus: int = 0, **environment: str
) -> Iterator[None]:
    """A node of its own kind, in processes of its own."""
    process = subprocess.Popen(
        [python, str(Path(__file__).parent / "node.py"), nodes.address, name, str(cpus), str(gpus)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        deadline = time.monotonic() + 60
        while not any(
            n["NodeName"] == name and n["Alive"] for n in nodes.global_state.node_table()
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
