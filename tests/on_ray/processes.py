"""Drivers and the processes of nodes, to be looked at and killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def start(*arguments: Any, module: str = "driver", **environment: str) -> "subprocess.Popen[str]":
    """A driver in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", f"on_ray.{module}", *map(str, arguments)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(driver: "subprocess.Popen[str]") -> list[int]:
    """The receipts of a driver that comes to its end."""
    output, errors = driver.communicate(timeout=180)
    lines = output.split("\n")
    assert "end" in lines, errors[-3000:]
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


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
