"""Workers, nodes and drivers that are killed at any moment: nothing lost, nothing doubled."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from . import driver, processes, toy

THOROUGH = bool(os.environ.get("ONEBASIN_THOROUGH"))
TIMES = 10 if THOROUGH else 2
STUDIES = 10 if THOROUGH else 1
COUNT = 25 * TIMES
SECONDS = 0.15
SOONER = {
    "RAY_grpc_client_keepalive_time_ms": "1000",
    "RAY_grpc_client_keepalive_timeout_ms": "1000",
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    processes.ended(processes.start("local", "none", folder, COUNT, 0))
    return driver.checksums(folder)


def check(folder: Path, expected: dict[str, str], receipts: list[int]) -> None:
    assert driver.checksums(folder) == expected
    assert len(expected) == COUNT
    assert len(set(receipts)) == len(receipts)


def test_workers(three_nodes: Any, tmp_path: Path, expected: dict[str, str]) -> None:
    chance = random.Random(0)
    running = processes.start("ray", three_nodes.address, tmp_path, COUNT, SECONDS)
    killed = 0
    assert running.stdout is not None
    first = [running.stdout.readline() for _ in range(2)]
    while killed < TIMES and running.poll() is None:
        time.sleep(chance.uniform(0.1, 1.0))
        busy = [
            p
            for p in processes.workers(*three_nodes.list_all_nodes())
            if "call" in processes.title(p)
        ]
        if busy:
            processes.kill(chance.choice(busy))
            killed += 1
    receipts = processes.ended(running) + [int(line) for line in first if line.strip().isdigit()]
    assert killed == TIMES
    assert sorted(receipts) == list(range(COUNT))
    check(tmp_path, expected, receipts)


def test_nodes(three_nodes: Any, tmp_path: Path, expected: dict[str, str]) -> None:
    chance = random.Random(1)
    running = processes.start("ray", three_nodes.address, tmp_path, COUNT, SECONDS)
    assert running.stdout is not None
    first = [running.stdout.readline() for _ in range(2)]
    killed = 0
    while killed < TIMES and running.poll() is None:
        time.sleep(chance.uniform(0.1, 1.0))
        node = chance.choice(sorted(three_nodes.worker_nodes, key=lambda n: n.node_id))
        gone = processes.below(processes.raylet(node))
        processes.kill(processes.raylet(node))
        for pid in gone:
            if processes.title(pid).startswith("ray::"):
                processes.kill(pid)
        three_nodes.remove_node(node, allow_graceful=False)
        killed += 1
        three_nodes.add_node(num_cpus=1)
    receipts = processes.ended(running) + [int(line) for line in first if line.strip().isdigit()]
    assert killed == TIMES
    assert sorted(receipts) == list(range(COUNT))
    check(tmp_path, expected, receipts)


def test_a_cut_link(three_nodes: Any, tmp_path: Path, expected: dict[str, str]) -> None:
    """A node that says nothing more, and whose links stay open: its tasks are done elsewhere,
    and when it goes on with them it does no harm.

    Ray by itself waits for minutes before it asks whether a link is there.
    """
    node = three_nodes.add_node(num_cpus=1)
    running = processes.start(
        "ray", three_nodes.address, tmp_path, COUNT, SECONDS, **{} if THOROUGH else SOONER
    )
    assert running.stdout is not None
    first: list[bytes] = []
    silent: list[int] = []
    try:
        while not silent:
            first.append(running.stdout.readline())
            busy = [p for p in processes.workers(node) if "call" in processes.title(p)]
            if busy:
                silent = [processes.raylet(node), *processes.below(processes.raylet(node))]
        for pid in silent:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        receipts = processes.ended(running)
        waited = time.monotonic() - began
    finally:
        running.kill()
        for pid in silent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        # Time for what it was cut off from: a file of its own, late.
        time.sleep(2 * SECONDS)
        three_nodes.remove_node(node)
    receipts += [int(line) for line in first if line.strip().isdigit()]
    assert waited < 60
    check(tmp_path, expected, receipts)
    assert sorted(receipts) == list(range(COUNT))


def test_drivers(three_nodes: Any, tmp_path: Path, expected: dict[str, str]) -> None:
    chance = random.Random(2)
    kept: set[str] = set()
    for number in range(TIMES):
        running = processes.start("ray", three_nodes.address, tmp_path, COUNT, SECONDS)
        assert running.stdout is not None
        # Some are killed before the first receipt, some after.
        for _ in range((1, 8, 2)[number % 3]):
            assert running.stdout.readline()
        time.sleep(chance.uniform(0, 0.3))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        done = set(driver.checksums(tmp_path))
        assert kept <= done
        kept = done
    assert kept
    receipts = processes.ended(
        processes.start("ray", three_nodes.address, tmp_path, COUNT, SECONDS)
    )
    assert len(receipts) <= COUNT - len(kept)
    check(tmp_path, expected, receipts)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_drivers_of_a_study(
    engine: str, three_nodes: Any, tmp_path: Path, undisturbed: tuple[dict[str, str], float]
) -> None:
    """The same command goes on with it, as often as it takes."""
    chance = random.Random(3)
    expected, seconds = undisturbed
    address = three_nodes.address if engine == "ray" else "none"
    folders = (tmp_path / str(number) for number in itertools.count())
    folder = next(folders)
    killed = 0
    while killed < STUDIES:
        running = processes.start(engine, address, folder, module="studying")
        assert running.stdout is not None
        assert running.stdout.readline()
        try:
            running.wait(chance.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.communicate()
            killed += running.returncode == -signal.SIGKILL
        else:
            # It had come so far that it ended: the next begins anew.
            processes.ended(running)
            assert toy.checksums(folder) == expected
            folder = next(folders)
    processes.ended(processes.start(engine, address, folder, module="studying"))
    assert toy.checksums(folder) == expected
    assert not (folder / "work").exists()
